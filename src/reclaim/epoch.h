// EpochDomain: when memory that readers may hold can be reused.
//
// WHAT  Epoch-based reclamation (Fraser 2004), one domain per pool, dynamic threads. WHEN NOT: a
//   guard held for long (a slow callback of a read or scan) keeps everything retired since.
// INVARIANTS (DRAM only; a crash turns limbo into garbage that the recovery sweep finds)
//   epoch.I1  While a thread is pinned the global epoch moves at most once: from the epoch of its
//       pin, or not at all where that was an old one already when the pin was published.
//   epoch.I2  An object is finished kGrace epochs after retire(): every thread that could have
//       loaded a reference to it was pinned at most one epoch after its retirement, and has left.
//   epoch.I3  retire() comes after the unlink is durable (the caller fences first: no thread leaves
//       its guard with an unfenced link, unlink or erase of its own).
// OPERATIONS
//   pin       publishes the global epoch in the thread's slot; nests. No locked instruction: the
//             next operation's cache misses overlap with the last one's write-back.
//   retire    O(1), no locked instruction; every kCollectEvery-th call finishes some of what is
//             due, every kAdvanceEvery-th advances, unless another thread has since the last time:
//             the heavy fence interrupts every core that runs a thread of the process, some 20
//             microseconds on a virtual machine. Large objects count as many.
//   collect   two steps per batch: `prepare` of every object (a type that must be durably dead
//             stores and writes back its zero word), one fence if any, then `finish` of every
//             object.
//   drain_all the same for every thread's limbo, from any thread, at any time.
// ORDERING
//   slot.pinned   stored, then light_fence(), then any load of shared state; the advancer does
//                 heavy_fence() before it reads the slots: either it sees the pin, or the pin's
//                 loads come after the fence and see everything unlinked before it.
//   chunks_made_  raised before a chunk is published: a thread that uses a slot has seen it raised.
//                 The heavy fence that shows a pin to the advancer shows the slot's chunk, too.
//   epoch         loaded (acquire) before the pin: a thread pinned at e sees all that was unlinked
//                 before the advance to e.
//   retire        tags the object with an epoch e that is the retiring thread's or one more. A
//                 thread pinned at e + 2 saw the advance from e + 1, which saw the retiring thread
//                 gone, and so the unlink. A thread pinned at e + 1 may have seen an advance before
//                 the unlink, which may still be in the retiring thread's store buffer: retiring
//                 has no locked instruction (docs/decisions/0006). So kGrace is 3, not 2.
// RECLAMATION  is what this is. Limbo lists are DRAM, per thread slot, inherited by the slot's
//   next thread.
// PROGRESS  pin is wait-free. A stalled reader stops reclamation, not other operations, until
//   limbo_full() says that a thread's limbo is at its bound; then mutations fail with pool_full
//   and name the reason.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

#include "platform/platform.h"

namespace perdure {

// What to do with a retired object. `prepare` may be null; `finish` gives the memory back. `touch`
// may be null: it prefetches what the other two read, for a whole batch before its first. A struct
// of functions, not an interface as HeapHost: an owner has one for each kind of object, constant,
// and a batch needs to know which functions are null.
struct Reclaimer {
  void (*prepare)(void* context, std::uint64_t object);
  void (*finish)(void* context, std::uint64_t object);
  void (*touch)(void* context, std::uint64_t object) = nullptr;
};

template <Platform P>
class EpochDomain {
  struct Slot;

 public:
  static constexpr std::uint32_t kCollectEvery = 64;
  static constexpr std::uint32_t kAdvanceEvery = 512;
  static constexpr std::size_t kBytesOfOne = 8 << 10;    // what counts as one object
  static constexpr std::uint32_t kBatchesAtOnce = 2;     // more than comes in between
  static constexpr std::uint32_t kLookAfterOthers = 16;  // every so-many-th collection
  static constexpr std::uint64_t kGrace = 3;             // epochs between retire() and finish()
  static constexpr std::uint32_t kMaxLimbo =
      1U << 16;  // objects per thread before mutations are refused
  static constexpr std::uint64_t kPatienceNs = 1'000'000'000;     // with a limbo at its bound
  static constexpr std::uint64_t kBriefPatienceNs = 100'000'000;  // with anything in limbo

  explicit EpochDomain(P& platform) noexcept : platform_(platform) {}
  EpochDomain(const EpochDomain&) = delete;
  EpochDomain& operator=(const EpochDomain&) = delete;
  // No thread may be pinned any more.
  ~EpochDomain() {
    for_each_slot([](Slot& slot) { std::free(slot.limbo); });
    for (auto& chunk : chunks_) delete[] chunk.load(std::memory_order_acquire);
  }

  // For EpochGuard. Pins the calling thread: its slot, or nullptr if DRAM is short for one.
  [[gnu::always_inline]] Slot* pin() noexcept {
    Slot* slot = this_slot();
    if (slot != nullptr && slot->depth++ == 0) [[likely]] {
      slot->pinned.store(epoch_.load(std::memory_order_acquire) << 1 | 1,
                         std::memory_order_relaxed);
      P::light_fence();
      if constexpr (P::kAsserts) {
        [[maybe_unused]] const typename P::Unobserved unobserved{};
        slot->seen = epoch();
      }
    }
    return slot;
  }
  [[gnu::always_inline]] void unpin(Slot* slot) noexcept {
    if (--slot->depth != 0) return;
    PERDURE_ASSERT(P, "epoch.I1", epoch() <= slot->seen + 1);
    slot->pinned.store(0, std::memory_order_release);
  }
  // For assertions. Whether the calling thread is pinned; also true if DRAM is short for its slot.
  bool pinned() noexcept {
    Slot* slot = this_slot();
    return slot == nullptr || slot->depth != 0;
  }

  // Hands an unlinked object of so many bytes over. The caller is pinned and has fenced the unlink.
  void retire(const Reclaimer& reclaimer, void* context, std::uint64_t object,
              std::size_t bytes = 0) noexcept {
    Slot* slot = this_slot();
    if (slot == nullptr) [[unlikely]] {  // recovery retires unpinned, and DRAM is short
      lost_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    const std::uint32_t tail = slot->tail.load(std::memory_order_relaxed);
    if (tail - slot->head.load(std::memory_order_acquire) == slot->capacity && !grow(*slot)) {
      lost_.fetch_add(1, std::memory_order_relaxed);  // leaked until the next open's sweep
      return;
    }
    const std::uint64_t tag = epoch_.load(std::memory_order_seq_cst);
    PERDURE_ASSERT(P, "epoch.I2",
                   slot->depth == 0 || tag >= slot->pinned.load(std::memory_order_relaxed) >> 1);
    slot->limbo[tail & (slot->capacity - 1)] = {&reclaimer, context, object, tag};
    slot->tail.store(tail + 1, std::memory_order_release);
    slot->since_collect += 1 + static_cast<std::uint32_t>(bytes / kBytesOfOne);
    if (slot->since_collect < kCollectEvery || slot->collecting) [[likely]]
      return;
    slot->collecting = true;  // finish() may retire again
    slot->since_advance += std::exchange(slot->since_collect, 0);
    if (slot->since_advance >= kAdvanceEvery && epoch() == slot->last_epoch) try_advance();
    if (const std::uint64_t now = epoch(); now != slot->last_epoch) {
      slot->last_epoch = now;
      slot->since_advance = 0;
    }
    collect(*slot, kBatchesAtOnce);
    if (++slot->collections % kLookAfterOthers == 0) collect_others();
    slot->collecting = false;
  }

  // For EpochGuard. True if the slot's limbo is at its bound although it was tried to empty it.
  bool limbo_full(Slot* slot) noexcept {
    if (size_of(*slot) < kMaxLimbo) [[likely]]
      return false;
    try_advance();
    collect(*slot);
    return size_of(*slot) >= kMaxLimbo;
  }

  // Finishes what every thread has retired, as far as pinned readers allow; the caller is not
  // pinned.
  void drain_all() noexcept {
    for (std::uint64_t i = 0; i < kGrace; ++i) try_advance();
    for_each_slot([this](Slot& slot) { collect(slot); });
  }
  // The same for a thread that needs room in the pool or in its limbo: readers that have only lost
  // their core get kBriefPatienceNs to leave their guards (kPatienceNs if this thread's limbo is at
  // its bound), so that a full pool is not refused for what a preempted thread holds back.
  void drain_for_room() noexcept {
    const std::uint64_t begin = P::now_ns();
    const std::uint64_t wanted = epoch() + kGrace;  // then all that is in limbo now is due
    drain_all();
    Slot* slot = this_slot();
    if (slot == nullptr || slot->depth != 0) return;  // a thread cannot wait for itself
    for (;;) {
      const std::uint64_t waited = P::now_ns() - begin;
      const bool full = size_of(*slot) >= kMaxLimbo && waited < kPatienceNs;
      const bool held = epoch() < wanted && limbo_count() != 0 && waited < kBriefPatienceNs;
      if (!full && !held) return;
      P::pause(63);  // gives the core away
      drain_all();
    }
  }

  std::uint64_t epoch() const noexcept { return epoch_.load(std::memory_order_relaxed); }
  std::uint64_t limbo_count() noexcept {
    std::uint64_t count = 0;
    for_each_slot([&](Slot& slot) { count += size_of(slot); });
    return count;
  }
  std::uint64_t stalled_readers() noexcept {
    const std::uint64_t now = epoch();
    std::uint64_t count = 0;
    for_each_slot([&](Slot& slot) {
      const std::uint64_t pinned = slot.pinned.load(std::memory_order_relaxed);
      if ((pinned & 1) != 0 && (pinned >> 1) + 1 <= now &&
          slot.pinned_before.exchange(pinned, std::memory_order_relaxed) == pinned) {
        ++count;
      }
      slot.pinned_before.store(pinned, std::memory_order_relaxed);
    });
    return count;
  }

 private:
  struct Retired {
    const Reclaimer* reclaimer;
    void* context;
    std::uint64_t object;
    std::uint64_t epoch;
  };
  struct alignas(128) Slot {
    typename P::template Atomic<std::uint64_t> pinned{0};  // epoch << 1 | 1, or 0
    // Owner only:
    std::uint32_t depth = 0;
    std::uint32_t since_collect = 0;
    std::uint32_t since_advance = 0;
    std::uint32_t collections = 0;
    std::uint64_t last_epoch = 0;
    bool collecting = false;
    // A ring: the owner adds at the tail, with no latch. The holder of the latch takes at the head.
    // Only the owner replaces the ring itself, under the latch.
    typename P::template Atomic<std::uint32_t> tail{0};
    typename P::template Atomic<std::uint32_t> head{0};
    std::uint32_t capacity = 0;  // power of two
    Retired* limbo = nullptr;
    typename P::Latch latch;
    typename P::template Atomic<std::uint64_t> pinned_before{0};  // statistics only
    // For the assertion of epoch.I1: the global epoch after the pin. Owner only.
    struct None {};
    [[no_unique_address]] std::conditional_t<P::kAsserts, std::uint64_t, None> seen{};
  };
  static constexpr std::uint32_t kChunk = 16;

  static std::uint32_t size_of(const Slot& slot) noexcept {
    const std::uint32_t head = slot.head.load(std::memory_order_acquire);
    return slot.tail.load(std::memory_order_acquire) - head;
  }
  [[gnu::always_inline]] Slot* this_slot() noexcept {
    const std::uint32_t number = P::thread_slot();
    Slot* slots = chunks_[number / kChunk].load(std::memory_order_acquire);
    if (slots == nullptr) [[unlikely]]
      slots = make_chunk(number / kChunk);
    return slots == nullptr ? nullptr : &slots[number % kChunk];
  }
  Slot* make_chunk(std::uint32_t number) noexcept {
    Slot* fresh = new (std::nothrow) Slot[kChunk];
    if (fresh == nullptr) return nullptr;
    std::uint32_t made = chunks_made_.load(std::memory_order_relaxed);
    while (made <= number &&
           !chunks_made_.compare_exchange_strong(made, number + 1, std::memory_order_acq_rel)) {
    }
    Slot* expected = nullptr;
    if (chunks_[number].compare_exchange_strong(expected, fresh, std::memory_order_acq_rel)) {
      return fresh;
    }
    delete[] fresh;
    return expected;
  }
  template <class F>
  void for_each_slot(F&& visit) noexcept {
    const std::uint32_t made = chunks_made_.load(std::memory_order_acquire);
    for (std::uint32_t number = 0; number < made; ++number) {
      Slot* slots = chunks_[number].load(std::memory_order_acquire);
      for (std::uint32_t i = 0; slots != nullptr && i < kChunk; ++i) visit(slots[i]);
    }
  }
  static bool grow(Slot& slot) noexcept {
    const std::uint32_t capacity = slot.capacity == 0 ? 256 : slot.capacity * 2;
    auto* limbo = static_cast<Retired*>(std::calloc(capacity, sizeof(Retired)));
    if (limbo == nullptr) return false;
    LatchGuard guard(slot.latch);
    const std::uint32_t tail = slot.tail.load(std::memory_order_relaxed);
    for (std::uint32_t i = slot.head.load(std::memory_order_relaxed); i != tail; ++i) {
      limbo[i & (capacity - 1)] = slot.limbo[i & (slot.capacity - 1)];
    }
    std::free(std::exchange(slot.limbo, limbo));
    slot.capacity = capacity;
    return true;
  }

  // epoch.I1: the epoch moves only when every pinned thread has seen it.
  void try_advance() noexcept {
    std::uint64_t epoch = epoch_.load(std::memory_order_seq_cst);
    if (!all_at(epoch)) return;  // the heavy fence would be wasted
    if (!P::heavy_fence() && !P::full_light_fences()) return;
    if (all_at(epoch)) epoch_.compare_exchange_strong(epoch, epoch + 1, std::memory_order_seq_cst);
  }
  bool all_at(std::uint64_t epoch) noexcept {
    const std::uint32_t made = chunks_made_.load(std::memory_order_acquire);
    for (std::uint32_t number = 0; number < made; ++number) {
      Slot* slots = chunks_[number].load(std::memory_order_acquire);
      for (std::uint32_t i = 0; slots != nullptr && i < kChunk; ++i) {
        const std::uint64_t pinned = slots[i].pinned.load(std::memory_order_seq_cst);
        if ((pinned & 1) != 0 && (pinned >> 1) != epoch) return false;
      }
    }
    return true;
  }

  // Limbo is in order of epochs, so what is due is a prefix. Objects are finished outside the
  // latch.
  void collect(Slot& slot, std::uint32_t batches = UINT32_MAX) noexcept {
    constexpr std::uint32_t kBatch = 64;
    Retired batch[kBatch];
    for (std::uint32_t taken = kBatch; taken == kBatch && batches != 0; --batches) {
      taken = take_due(slot, batch, kBatch);
      for (std::uint32_t i = 0; i < taken; ++i) {
        if (batch[i].reclaimer->touch == nullptr) continue;
        batch[i].reclaimer->touch(batch[i].context, batch[i].object);
      }
      bool prepared = false;
      for (std::uint32_t i = 0; i < taken; ++i) {
        if (batch[i].reclaimer->prepare == nullptr) continue;
        batch[i].reclaimer->prepare(batch[i].context, batch[i].object);
        prepared = true;
      }
      if (prepared) (void)platform_.fence("reclaim.batch.dead"_site);
      for (std::uint32_t i = 0; i < taken; ++i) {
        batch[i].reclaimer->finish(batch[i].context, batch[i].object);
      }
    }
  }
  // Threads end or fall idle with something in limbo: each collection also handles one more chunk.
  void collect_others() noexcept {
    const std::uint32_t turn = turn_.fetch_add(1, std::memory_order_relaxed);
    const std::uint32_t made = chunks_made_.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < made; ++i) {
      Slot* slots = chunks_[(turn + i) % made].load(std::memory_order_acquire);
      if (slots == nullptr) continue;
      for (std::uint32_t s = 0; s < kChunk; ++s) {
        if (size_of(slots[s]) != 0) collect(slots[s]);
      }
      return;
    }
  }
  std::uint32_t take_due(Slot& slot, Retired* batch, std::uint32_t room) noexcept {
    LatchGuard guard(slot.latch);
    const std::uint64_t now = epoch_.load(std::memory_order_seq_cst);
    const std::uint32_t head = slot.head.load(std::memory_order_relaxed);
    const std::uint32_t count = slot.tail.load(std::memory_order_acquire) - head;
    std::uint32_t taken = 0;
    for (; taken < room && taken < count; ++taken) {
      const Retired& next = slot.limbo[(head + taken) & (slot.capacity - 1)];
      if (next.epoch + kGrace > now) break;
      PERDURE_ASSERT(P, "epoch.I2", taken == 0 || batch[taken - 1].epoch <= next.epoch);
      batch[taken] = next;
    }
    slot.head.store(head + taken, std::memory_order_release);
    return taken;
  }

  P& platform_;
  alignas(128) typename P::template Atomic<std::uint64_t> epoch_{2};
  alignas(128) typename P::template Atomic<Slot*> chunks_[kMaxThreadSlots / kChunk] = {};
  typename P::template Atomic<std::uint32_t> chunks_made_{0};  // none at or after this number
  typename P::template Atomic<std::uint64_t> lost_{0};
  typename P::template Atomic<std::uint32_t> turn_{0};
};

// Scope in which references loaded from shared memory stay valid. Check ok() once: false if DRAM is
// short.
template <Platform P>
class [[nodiscard]] EpochGuard {
 public:
  [[gnu::always_inline]] explicit EpochGuard(EpochDomain<P>& domain) noexcept
      : domain_(domain), slot_(domain.pin()) {}
  [[gnu::always_inline]] ~EpochGuard() {
    if (slot_ != nullptr) [[likely]]
      domain_.unpin(slot_);
  }
  EpochGuard(const EpochGuard&) = delete;
  EpochGuard& operator=(const EpochGuard&) = delete;
  bool ok() const noexcept { return slot_ != nullptr; }
  // True if so much that this thread has retired waits for a stalled reader that it may retire no
  // more.
  bool limbo_full() noexcept { return domain_.limbo_full(slot_); }

 private:
  EpochDomain<P>& domain_;
  decltype(std::declval<EpochDomain<P>&>().pin()) slot_;
};

}  // namespace perdure
