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
//   retire    O(1), no locked instruction. Every kCollectEvery-th call finishes and prepares up to
//             kAtOnce objects, so that no operation pays for many. Every kAdvanceEvery-th call
//             advances, unless another thread has since the last time: the heavy fence interrupts
//             every core that runs a thread of the process, some 20 microseconds on a virtual
//             machine. Large objects count as many. A reader that lags prevents the advance: then
//             there is no heavy fence, and the slots are read again after kTryAgain retirements,
//             then twice as many, up to kAdvanceEvery.
//   collect   two steps: `prepare` (a type that must be durably dead stores and writes back its
//             zero word), and after a fence `finish`. One fence serves kBatch objects.
//   drain_all the same for every thread's limbo, from any thread, at any time. It prepares again
//             what the thread itself has not fenced yet: a fence covers the write-backs of its own
//             thread only. The latch of another thread costs a heavy fence. So it is not taken
//             before the epoch at which something can be due (Slot::due_outside). It returns when
//             what other threads had taken is finished: the caller may free what the reclaimers
//             use, or look for the memory.
//   inherit   takes over what is left in a slot whose thread has not retired for kIdleEpochs. A
//             thread that has only lost its core for a moment comes back earlier.
// ORDERING
//   ring          head <= fenced <= prepared <= tail. [head, fenced) may be finished; [fenced,
//                 prepared) has been written back by the owner and waits for a fence of the
//                 owner. The owner adds at the tail with no latch; all else is under the latch, a
//                 BiasedLatch. A thread that ends completes its write-backs (platform.h), so the
//                 next thread of the slot may fence them.
//   slot.pinned   stored, then light_fence(), then any load of shared state; the advancer does
//                 heavy_fence() before it reads the slots: either it sees the pin, or the pin's
//                 loads come after the fence and see everything unlinked before it.
//   slot.rounds   raised to an odd number before objects leave a ring, and again after the last of
//                 them is finished. So a thread that finds a ring without them sees either that
//                 they are on their way, or all that their finish() did.
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

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

#include "platform/biased_latch.h"
#include "platform/platform.h"
#include "reclaim/gate.h"

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
  static constexpr std::uint32_t kAdvanceEvery = 512;
  static constexpr std::uint32_t kTryAgain = 64;       // after an advance that a reader prevented
  static constexpr std::size_t kBytesOfOne = 8 << 10;  // what counts as one object
  static constexpr std::uint32_t kCollectEvery = 8;    // retirements
  static constexpr std::uint32_t kAtOnce = 16;         // more than comes in between
  static constexpr std::uint32_t kAtOnceBehind = 128;  // the same with kBehind objects in limbo
  static constexpr std::uint32_t kBehind = 5 * kAdvanceEvery;
  static constexpr std::uint32_t kBatch = 64;             // objects per fence
  static constexpr std::uint32_t kLookAfterOthers = 256;  // every so-many-th retirement
  static constexpr std::uint32_t kMostInherited = 4096;   // objects, from one slot at once
  static constexpr std::uint64_t kIdleEpochs = 3;         // without a retirement; then inherited
  static constexpr std::uint64_t kFirstEpoch = 2;
  static constexpr std::uint64_t kGrace = 3;  // epochs between retire() and finish()
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
  // `kMutates`: for a mutation, which then asks the gate. Inside another guard it has no effect.
  template <bool kMutates>
  [[gnu::always_inline]] Slot* pin() noexcept {
    Slot* slot = this_slot();
    if (slot != nullptr && slot->depth++ == 0) [[likely]] {
      slot->pinned.store(epoch_.load(std::memory_order_acquire) << kPinBits |
                             (kMutates ? kPinned | kMutating : kPinned),
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
  // For EpochGuard, pinned as a mutation, at the closed gate or in another guard. It is no member
  // of the guard: a call with the guard's address would keep the guard of every mutation in memory.
  [[gnu::noinline, gnu::cold]] bool wait_at_gate(Slot* slot) noexcept {
    if (gate_.does_batch()) return pace_batch(slot);
    if (slot->depth > 1 && gate_.beside()) return true;  // its outer guard has passed
    if (slot->depth > 1 || gate_.held()) return false;
    if (!gate_.refusal().ok()) return false;
    if (gate_.lets_pass()) return true;
    const typename Gate<P>::Waiting waiting(gate_);
    do {
      unpin(slot);
      waiting.wait();
      (void)pin<true>();
      if (!gate_.refusal().ok()) return false;
    } while (!gate_.lets_pass());
    return true;
  }
  // Whether the calling thread is in a guard within a guard.
  bool nested() noexcept {
    const Slot* slot = this_slot();
    return slot != nullptr && slot->depth > 1;
  }
  // Whether the calling thread is in a guard.
  bool in_guard() noexcept {
    const Slot* slot = this_slot();
    return slot != nullptr && slot->depth != 0;
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
    PERDURE_ASSERT(
        P, "epoch.I2",
        slot->depth == 0 || tag >= slot->pinned.load(std::memory_order_relaxed) >> kPinBits);
    slot->limbo[tail & (slot->capacity - 1)] = {&reclaimer, context, object, tag};
    slot->tail.store(tail + 1, std::memory_order_release);
    slot->since_advance += 1 + static_cast<std::uint32_t>(bytes / kBytesOfOne);
    if (slot->collecting) return;  // finish() may retire again
    slot->collecting = true;
    if (slot->since_advance >= kAdvanceEvery) [[unlikely]] {
      if (tag == slot->last_epoch) try_advance();
      const std::uint64_t now = epoch();
      const bool prevented = now == slot->last_epoch;
      slot->since_advance = prevented ? kAdvanceEvery - slot->try_again : 0;
      slot->try_again = prevented ? std::min(slot->try_again * 2, kAdvanceEvery) : kTryAgain;
      slot->last_epoch = now;
    }
    const std::uint32_t retirements = ++slot->retirements;
    if (tag >= slot->due && retirements % kCollectEvery == 0) collect_some(*slot, tag);
    if (retirements % kLookAfterOthers == 0) inherit(*slot);
    slot->collecting = false;
  }

  // For EpochGuard. True if the slot's limbo is at its bound although it was tried to empty it. No
  // bound holds for a batch that is committed.
  bool limbo_full(Slot* slot) noexcept {
    if (size_of(*slot) < kMaxLimbo) [[likely]]
      return false;
    if (gate_.does_batch()) return false;
    try_advance();
    collect(*slot, true, kMaxLimbo);
    return size_of(*slot) >= kMaxLimbo;
  }

  // Finishes what every thread has retired, as far as pinned readers allow; the caller is not
  // pinned.
  void drain_all() noexcept {
    for (std::uint64_t i = 0; i < kGrace; ++i) try_advance();
    Slot* own = this_slot();
    for_each_slot([&](Slot& slot) {
      // No more than there is now: other threads may go on to retire.
      const std::uint32_t size = size_of(slot);
      if (size == 0) return;
      const bool is_own = &slot == own;
      if (!is_own && epoch() < slot.due_outside.load(std::memory_order_relaxed)) return;
      collect(slot, is_own, size);
    });
    if (own != nullptr && !finishing(*own)) wait_for_others(*own);
  }
  // The same for a thread that needs room in the pool or in its limbo: readers that have only lost
  // their core get kBriefPatienceNs to leave their guards (kPatienceNs if this thread's limbo is at
  // its bound), so that a full pool is not refused for what a preempted thread holds back.
  void drain_for_room() noexcept {
    const std::uint64_t begin = P::now_ns();
    const std::uint64_t wanted = after_drain();
    bool drained = drain(wanted);
    Slot* slot = this_slot();
    if (slot == nullptr || slot->depth != 0) return;  // a thread cannot wait for itself
    for (;;) {
      const std::uint64_t waited = P::now_ns() - begin;
      const bool full = size_of(*slot) >= kMaxLimbo && waited < kPatienceNs;
      if (!full && (drained || waited >= kBriefPatienceNs)) return;
      P::pause(63);  // gives the core away
      drained = drain(wanted);
    }
  }
  // drain_all(), and whether no reader holds back what was in limbo when after_drain() returned
  // `wanted`.
  bool drain(std::uint64_t wanted) noexcept {
    drain_all();
    return epoch() >= wanted || limbo_count() == 0;
  }
  // The epoch in which all that is in limbo now is due.
  std::uint64_t after_drain() const noexcept { return epoch() + kGrace; }

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
      if ((pinned & kPinned) != 0 && (pinned >> kPinBits) + 1 <= now &&
          slot.pinned_before.exchange(pinned, std::memory_order_relaxed) == pinned) {
        ++count;
      }
      slot.pinned_before.store(pinned, std::memory_order_relaxed);
    });
    return count;
  }

  // For Gate. Whether another thread than the caller is in a mutation.
  bool others_mutate() noexcept {
    const Slot* own = this_slot();
    bool any = false;
    for_each_slot([&](const Slot& slot) {
      any |= &slot != own && (slot.pinned.load(std::memory_order_seq_cst) & kMutating) != 0;
    });
    return any;
  }
  Gate<P>& gate() noexcept { return gate_; }
  const Gate<P>& gate() const noexcept { return gate_; }

 private:
  // A batch that was committed is finished, whatever has failed, but it also waits for the brake.
  bool pace_batch(Slot* slot) noexcept {
    while (slot->depth == 1 && gate_.slows_batch()) {
      unpin(slot);
      gate_.wait_for_brake();
      (void)pin<true>();
    }
    return true;
  }
  static constexpr std::uint64_t kPinned = 1;
  static constexpr std::uint64_t kMutating = 2;
  static constexpr unsigned kPinBits = 2;
  struct Retired {
    const Reclaimer* reclaimer;
    void* context;
    std::uint64_t object;
    std::uint64_t epoch;
  };
  struct alignas(128) Slot {
    // 0, or the epoch << kPinBits | kPinned, and | kMutating in a mutation.
    typename P::template Atomic<std::uint64_t> pinned{0};
    // Owner only:
    std::uint32_t depth = 0;
    std::uint32_t since_advance = 0;
    std::uint32_t try_again = kTryAgain;  // retirements, after an advance that a reader prevents
    std::uint32_t retirements = 0;
    bool collecting = false;
    std::uint64_t last_epoch = kFirstEpoch;
    std::uint64_t due = 0;  // before this epoch there is nothing to collect
    // A ring; see ORDERING. Only the owner replaces the ring itself, under the latch.
    typename P::template Atomic<std::uint32_t> tail{0};
    typename P::template Atomic<std::uint32_t> head{0};
    std::uint32_t fenced = 0;
    std::uint32_t prepared = 0;
    // Odd while this thread finishes objects, which are in no ring any more.
    typename P::template Atomic<std::uint32_t> rounds{0};
    bool must_fence = false;     // an object in [fenced, prepared) has been written back
    std::uint32_t capacity = 0;  // power of two
    Retired* limbo = nullptr;
    BiasedLatch<P> latch;
    // By inherit(): the tail, and 32 bits of the epoch at which it was seen first, above it.
    typename P::template Atomic<std::uint64_t> tail_seen{0};
    // Stored under the latch. Before this epoch nothing is due, unless it was on its way to the
    // ring. Never more than kGrace ahead, so it holds nothing back from a drain_all() that advances
    // kGrace times.
    typename P::template Atomic<std::uint64_t> due_outside{0};
    typename P::template Atomic<std::uint64_t> pinned_before{0};  // statistics only
    // For the assertion of epoch.I1: the global epoch after the pin. Owner only.
    struct None {};
    [[no_unique_address]] std::conditional_t<P::kAsserts, std::uint64_t, None> seen{};
  };
  static constexpr std::uint32_t kChunk = P::kAsserts ? 4 : 16;  // few: a test walks them often

  static std::uint32_t size_of(const Slot& slot) noexcept {
    const std::uint32_t head = slot.head.load(std::memory_order_acquire);
    return slot.tail.load(std::memory_order_acquire) - head;
  }
  [[gnu::always_inline]] Slot* this_slot() noexcept {
    if constexpr (kCached) {
      const auto& own = P::own_slot();
      if (own.of == number_) [[likely]]
        return static_cast<Slot*>(own.slot);
      Slot* slot = find_slot();
      if (slot != nullptr) P::own_slot() = {number_, slot};
      return slot;
    }
    return find_slot();
  }
  Slot* find_slot() noexcept {
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
        if ((pinned & kPinned) != 0 && (pinned >> kPinBits) != epoch) return false;
      }
    }
    return true;
  }

  static bool finishing(const Slot& slot) noexcept {
    return slot.rounds.load(std::memory_order_acquire) % 2 != 0;
  }
  // While a thread takes objects from a ring and finishes them. A round within a round, of a
  // finish() that drains, is a part of it.
  class Round {
   public:
    explicit Round(Slot* slot) noexcept
        : slot_(slot == nullptr || finishing(*slot) ? nullptr : slot) {
      add();
    }
    ~Round() { add(); }
    Round(const Round&) = delete;
    Round& operator=(const Round&) = delete;

   private:
    void add() noexcept {
      if (slot_ == nullptr) return;
      slot_->rounds.store(slot_->rounds.load(std::memory_order_relaxed) + 1,
                          std::memory_order_release);
    }
    Slot* slot_;
  };
  // Waits for the end of the rounds that are under way. No round waits for another one.
  void wait_for_others(const Slot& own) noexcept {
    for_each_slot([&](const Slot& slot) {
      if (&slot == &own) return;
      const std::uint32_t round = slot.rounds.load(std::memory_order_acquire);
      for (unsigned spins = 0;
           round % 2 != 0 && slot.rounds.load(std::memory_order_acquire) == round; ++spins) {
        P::pause(spins);
      }
    });
  }

  Retired& at(const Slot& slot, std::uint32_t i) const noexcept {
    return slot.limbo[i & (slot.capacity - 1)];
  }
  static void touch(const Retired& object) noexcept {
    if (object.reclaimer->touch != nullptr) object.reclaimer->touch(object.context, object.object);
  }
  static bool prepare(const Retired& object) noexcept {
    if (object.reclaimer->prepare == nullptr) return false;
    object.reclaimer->prepare(object.context, object.object);
    return true;
  }
  // The owner finishes a few objects, and prepares a few. Objects are finished outside the latch.
  [[gnu::noinline]] void collect_some(Slot& slot, std::uint64_t now) noexcept {
    const Round round(&slot);
    Retired batch[kAtOnceBehind];
    std::uint32_t taken = 0;
    {
      LatchGuard guard(slot.latch);
      const std::uint32_t head = slot.head.load(std::memory_order_relaxed);
      const std::uint32_t limbo = slot.tail.load(std::memory_order_relaxed) - head;
      const std::uint32_t n = limbo < kBehind ? kAtOnce : kAtOnceBehind;
      while (taken < n && head + taken != slot.fenced) {
        batch[taken] = at(slot, head + taken);
        touch(batch[taken++]);
      }
      slot.head.store(head + taken, std::memory_order_release);
      prepare_some(slot, n, now);
    }
    for (std::uint32_t i = 0; i < taken; ++i) {
      batch[i].reclaimer->finish(batch[i].context, batch[i].object);
    }
  }
  // Prepares up to n objects that are due. Fences if there is a batch of them, or if no more are
  // due.
  void prepare_some(Slot& slot, std::uint32_t n, std::uint64_t now) noexcept {
    const std::uint32_t tail = slot.tail.load(std::memory_order_relaxed);
    const auto due = [&](std::uint32_t i) {
      return i != tail && at(slot, i).epoch + kGrace <= now;
    };
    std::uint32_t end = slot.prepared;
    for (; end - slot.prepared < n && due(end); ++end) touch(at(slot, end));
    while (slot.prepared != end) slot.must_fence |= prepare(at(slot, slot.prepared++));
    const bool more = due(end);
    if (!slot.must_fence || !more || slot.prepared - slot.fenced >= kBatch) {
      if (std::exchange(slot.must_fence, false)) (void)platform_.fence("reclaim.batch.dead"_site);
      slot.fenced = slot.prepared;
    }
    if (more || slot.head.load(std::memory_order_relaxed) != slot.fenced) {
      slot.due = now;
    } else {
      slot.due = (slot.prepared != tail ? at(slot, slot.prepared).epoch : now) + kGrace;
    }
  }
  // Finishes up to `most` objects of a slot: the thread's own, or another one's. Limbo is in order
  // of epochs, so what is due is a prefix.
  void collect(Slot& slot, bool own, std::uint32_t most) noexcept {
    const Round round(this_slot());
    Retired batch[kBatch];
    for (std::uint32_t taken = kBatch; taken == kBatch && most != 0; most -= taken) {
      std::uint32_t fenced = 0;
      if (own) {
        slot.latch.lock();
      } else if (!slot.latch.lock_outside()) {
        return;
      }
      taken = take_due(slot, batch, std::min(kBatch, most), fenced);
      own ? slot.latch.unlock() : slot.latch.unlock_outside();
      for (std::uint32_t i = 0; i < taken; ++i) touch(batch[i]);
      bool prepared = false;
      for (std::uint32_t i = fenced; i < taken; ++i) prepared |= prepare(batch[i]);
      if (prepared) (void)platform_.fence("reclaim.batch.dead"_site);
      for (std::uint32_t i = 0; i < taken; ++i) {
        batch[i].reclaimer->finish(batch[i].context, batch[i].object);
      }
    }
  }
  // Threads end or fall idle with something in limbo. Looks at one more chunk, and takes over what
  // the slots in it have left that have not retired for kIdleEpochs. It counts as retired now.
  [[gnu::noinline]] void inherit(Slot& own) noexcept {
    const std::uint32_t turn = turn_.fetch_add(1, std::memory_order_relaxed);
    const std::uint32_t made = chunks_made_.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < made; ++i) {
      Slot* slots = chunks_[(turn + i) % made].load(std::memory_order_acquire);
      if (slots == nullptr) continue;
      for (std::uint32_t s = 0; s < kChunk; ++s) {
        Slot& slot = slots[s];
        if (&slot == &own || size_of(slot) == 0) continue;
        const std::uint32_t tail = slot.tail.load(std::memory_order_relaxed);
        const std::uint64_t seen = slot.tail_seen.load(std::memory_order_relaxed);
        const auto now = static_cast<std::uint32_t>(epoch());
        if (static_cast<std::uint32_t>(seen) != tail) {
          slot.tail_seen.store(std::uint64_t{now} << 32 | tail, std::memory_order_relaxed);
        } else if (now - static_cast<std::uint32_t>(seen >> 32) >= kIdleEpochs) {
          move(slot, own);
        }
      }
      return;
    }
  }
  void move(Slot& from, Slot& own) noexcept {
    // Before the latch: the thread of the other slot may do the same with this one.
    const std::uint32_t wanted = std::min(size_of(from), kMostInherited);
    if (size_of(own) > kMaxLimbo / 2) return;
    while (own.capacity - size_of(own) < wanted) {
      if (!grow(own)) return;
    }
    if (!from.latch.lock_outside()) return;
    const std::uint32_t head = from.head.load(std::memory_order_relaxed);
    const std::uint32_t count = std::min(from.tail.load(std::memory_order_acquire) - head, wanted);
    std::uint32_t tail = own.tail.load(std::memory_order_relaxed);
    std::uint32_t moved = 0;
    for (; moved < count; ++moved) {
      Retired& object = at(own, tail) = at(from, head + moved);
      object.epoch = epoch_.load(std::memory_order_seq_cst);
      own.tail.store(++tail, std::memory_order_release);
    }
    take_away(from, moved);
    from.latch.unlock_outside();
  }
  // Removes the first objects. The slot's latch is held.
  static void take_away(Slot& slot, std::uint32_t taken) noexcept {
    const std::uint32_t head = slot.head.load(std::memory_order_relaxed);
    slot.fenced = head + std::max(slot.fenced - head, taken);
    slot.prepared = head + std::max(slot.prepared - head, taken);
    slot.head.store(head + taken, std::memory_order_release);
  }
  // Takes what is due. The first `fenced` objects of the batch need no other fence.
  std::uint32_t take_due(Slot& slot, Retired* batch, std::uint32_t room,
                         std::uint32_t& fenced) noexcept {
    const std::uint64_t now = epoch_.load(std::memory_order_seq_cst);
    const std::uint32_t head = slot.head.load(std::memory_order_relaxed);
    const std::uint32_t count = slot.tail.load(std::memory_order_acquire) - head;
    std::uint32_t taken = 0;
    for (; taken < room && taken < count; ++taken) {
      const Retired& next = at(slot, head + taken);
      if (next.epoch + kGrace > now) break;
      PERDURE_ASSERT(P, "epoch.I2", taken == 0 || batch[taken - 1].epoch <= next.epoch);
      batch[taken] = next;
    }
    fenced = std::min(slot.fenced - head, taken);
    if (taken < room) {
      // A thread that is about to retire has its tag already, from one epoch before at worst.
      const std::uint64_t oldest = taken < count ? at(slot, head + taken).epoch : now - 1;
      slot.due_outside.store(oldest + kGrace, std::memory_order_relaxed);
    }
    take_away(slot, taken);
    return taken;
  }

  // A thread keeps the slot that it has used last, by the domain's number: no two domains of a
  // process have one, so a slot of a domain that is gone is never used.
  static constexpr bool kCached = requires { P::own_slot(); };
  static std::uint64_t new_number() noexcept {
    if constexpr (kCached) return P::next_number();
    return 0;
  }

  P& platform_;
  alignas(128) typename P::template Atomic<std::uint64_t> epoch_{kFirstEpoch};
  const std::uint64_t number_ = new_number();
  alignas(128) typename P::template Atomic<Slot*> chunks_[kMaxThreadSlots / kChunk] = {};
  typename P::template Atomic<std::uint32_t> chunks_made_{0};  // none at or after this number
  typename P::template Atomic<std::uint64_t> lost_{0};
  typename P::template Atomic<std::uint32_t> turn_{0};
  alignas(128) Gate<P> gate_{*this};
};

// Scope in which references loaded from shared memory stay valid. Check ok() once: false if DRAM is
// short. kMutates: the scope of a mutation, which begins if the gate lets it pass.
template <Platform P, bool kMutates = false>
class [[nodiscard]] EpochGuard {
 public:
  [[gnu::always_inline]] explicit EpochGuard(EpochDomain<P>& domain) noexcept
      : domain_(domain), slot_(domain.template pin<kMutates>()) {}
  [[gnu::always_inline]] ~EpochGuard() {
    if constexpr (kMutates && P::kAsserts) {
      PERDURE_ASSERT(P, "gate.G1", !passed_ || !domain_.gate().closed_to_me());
    }
    if (slot_ != nullptr) [[likely]]
      domain_.unpin(slot_);
  }
  EpochGuard(const EpochGuard&) = delete;
  EpochGuard& operator=(const EpochGuard&) = delete;
  bool ok() const noexcept { return slot_ != nullptr; }
  // Waits while the gate is closed, unpinned; so call it before anything else. Returns false if
  // the thread must not change anything: it is in a callback of a read, or has closed the gate.
  [[gnu::always_inline]] bool pass_gate() noexcept
    requires(kMutates)
  {
    const bool passes = finds_gate_open() || domain_.wait_at_gate(slot_);
    if constexpr (P::kAsserts) passed_ = passes && slot_->depth == 1;
    return passes;
  }
  // Whether it passes at once, and no batch is pending. False: call pass_gate().
  [[gnu::always_inline]] bool finds_gate_open() noexcept
    requires(kMutates)
  {
    const bool open = slot_->depth == 1 && domain_.gate().passes();
    if constexpr (P::kAsserts) passed_ = open;
    return open;
  }
  // True if so much that this thread has retired waits for a stalled reader that it may retire no
  // more.
  bool limbo_full() noexcept { return domain_.limbo_full(slot_); }

 private:
  EpochDomain<P>& domain_;
  decltype(std::declval<EpochDomain<P>&>().template pin<kMutates>()) slot_;
  struct None {};
  [[no_unique_address]] std::conditional_t<kMutates && P::kAsserts, bool, None> passed_{};
};
template <Platform P>
using MutationGuard = EpochGuard<P, true>;

}  // namespace perdure
