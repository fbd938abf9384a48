// KeyNode: the DRAM state of one key of the multi-version store: which thread may write it, and a
// copy of its last entry. A lookup at or after that entry reads no line of the pool. One line.
//
// STATE  a phase, and either a number n of the writes that this node has seen, or a version p.
//     idle(n)       no write is under way
//     held(n)       a thread writes the key, or decides what to write
//     unstamped(n)  a write is coming; any thread that meets it gives it the open version
//     stamped(p)    the write has version p; its stores follow, or a fence that only its thread can
//                   execute
//     stored(n)     all its stores are in the line of the last entry, on their way to the medium
//     dead          the key has left the map, durably
//   A compare-and-swap changes idle to held. The holder makes the next changes, but any thread may
//   change unstamped to stamped.
// INVARIANTS (DRAM)
//   pskiplist.N1  No n comes twice in unstamped, nor in stored: each write has its own. A write
//       that goes back to held and stamps once more takes another n. So a compare-and-swap that was
//       prepared for one write fails in all later ones.
//   pskiplist.N2  last, value, stamp, slot and entries change in state stamped, or while nothing
//       else runs. Exception: in held a trim may move the last entry, and `last` then names the
//       copy; the trim lowers `entries` after the trimmed ones are gone, and no reader relies on
//       fewer than there are. So a reader that loads them between two loads of the same idle state
//       (pskiplist.N1) has values of one moment. In held or stored this holds too, except for
//       entries.
//   pskiplist.N3  In idle and held, the entry that last, value and stamp describe is durable.
#pragma once

#include <algorithm>
#include <cstdint>

#include "index/pskiplist/layout.h"
#include "index/pskiplist/stashes.h"
#include "platform/platform.h"
#include "util/arena.h"

namespace perdure::pskiplist {

enum class Phase : std::uint8_t { idle, held, unstamped, stamped, stored, dead };

struct State {
  std::uint64_t word;
  constexpr Phase phase() const { return static_cast<Phase>(word & 7); }
  constexpr std::uint64_t number() const { return word >> 3; }
  static constexpr State of(Phase phase, std::uint64_t number) {
    return {number << 3 | static_cast<std::uint64_t>(phase)};
  }
  friend bool operator==(const State&, const State&) = default;
};

// The last entry of a history, and the number of its entries without the trimmed ones.
struct End {
  std::uint64_t entry = 0;  // offset; 0: the key is not written yet
  std::uint64_t value = 0;
  std::uint64_t stamp = 0;
  std::uint32_t entries = 0;

  bool present() const { return entry != 0 && !is_removed(stamp); }
  std::uint64_t version() const { return version_of(stamp); }
};

template <Platform P>
struct alignas(64) KeyNode {
  using Word = typename P::template Atomic<std::uint64_t>;

  Word state{0};
  Word slot{0};  // offset
  Word last{0};  // with the next three an End
  Word value{0};
  Word stamp{0};
  typename P::template Atomic<std::uint32_t> entries{0};
  std::uint32_t block = 0;  // number of the slot's block; in a free node the next of its batch
  // Set before the node is in the directory.
  std::uint64_t key = 0;  // the word, or the offset of the byte string's record
  // Only the holder uses it: the last segment of the history, 0: none. In the first free node of a
  // batch the first of the next batch.
  std::uint64_t tail = 0;

  State load() const { return {state.load(std::memory_order_seq_cst)}; }
  void set(State next) { state.store(next.word, std::memory_order_release); }
  bool change(State expected, State desired) {
    return state.compare_exchange_strong(expected.word, desired.word, std::memory_order_seq_cst);
  }
  // The holder gets values of one moment, other threads by pskiplist.N2. Inlined, because a copy
  // through memory stalls.
  [[gnu::always_inline]] End end() const {
    return {last.load(std::memory_order_acquire), value.load(std::memory_order_acquire),
            stamp.load(std::memory_order_acquire), entries.load(std::memory_order_acquire)};
  }
  void set_end(const End& end) {
    value.store(end.value, std::memory_order_release);
    stamp.store(end.stamp, std::memory_order_release);
    last.store(end.entry, std::memory_order_release);
    entries.store(end.entries, std::memory_order_release);
  }
};

// The nodes by number. Free ones lie in stashes; those of a full stash go to a list in batches.
template <Platform P>
class NodeTable {
 public:
  using Node = KeyNode<P>;

  Status reserve(std::size_t nodes) {
    const std::size_t capacity = nodes < 0xFFFFFFF0ULL ? nodes + 1 : 0xFFFFFFF0ULL;
    if (Status s = near_.reserve(capacity / kNear + 1); !s.ok()) return s;
    if (Status s = stashes_.reserve(); !s.ok()) return s;
    return nodes_.reserve(capacity);
  }
  Node& operator[](std::uint32_t number) const { return nodes_[number]; }
  std::size_t capacity() const { return nodes_.capacity(); }

  // Returns the number of a free node, which is held now, or 0. No reader has a number that was
  // used before: give() comes through epochs, or the node was never in the directory.
  std::uint32_t take() {
    std::uint32_t number = 0;
    if (!stashes_.take(number, [this](std::uint32_t* numbers) { return take_some(numbers); }) &&
        !stashes_.steal(number)) [[unlikely]] {
      return 0;
    }
    begin(nodes_[number]);
    return number;
  }
  // Takes `count` nodes with consecutive numbers, none of which was used before. Returns the first
  // number, or 0.
  std::uint32_t take_row(std::uint32_t count) {
    std::uint32_t first = 0;
    {
      LatchGuard guard(latch_);
      if (nodes_.capacity() - high_ <= count) return 0;
      first = high_ + 1;
      high_ += count;
    }
    for (std::uint32_t i = 0; i < count; ++i) begin(nodes_[first + i]);
    return first;
  }
  void give(std::uint32_t number) {
    PERDURE_ASSERT(P, "pskiplist.I5", is_free(nodes_[number].load().phase()));
    stashes_.give(number, [this](const std::uint32_t* numbers, std::uint32_t count) {
      for (std::uint32_t i = 0; i < count; ++i) {
        nodes_[numbers[i]].block = i + 1 < count ? numbers[i + 1] : 0;
      }
      LatchGuard guard(latch_);
      nodes_[numbers[0]].tail = free_;
      free_ = numbers[0];
    });
  }

  // Keys in order get nodes and slots in a row, or nearly so. So the slot of one node tells where
  // the slots of its neighbours may be. This guess lets a slot be fetched together with its node.
  void set_slot(std::uint32_t number, std::uint64_t slot) {
    nodes_[number].slot.store(slot, std::memory_order_release);
    near_[number / kNear].store(slot - number % kNear * sizeof(Slot), std::memory_order_relaxed);
  }
  std::uint64_t likely_slot(std::uint32_t number) const {
    return near_[number / kNear].load(std::memory_order_relaxed) + number % kNear * sizeof(Slot);
  }

  std::uint64_t dram_bytes() {
    LatchGuard guard(latch_);
    return high_ * sizeof(Node) + high_ / kNear * sizeof(std::uint64_t);
  }

 private:
  static constexpr std::uint32_t kNear = 16;  // nodes that share a guess

  // Dead, or never in the directory.
  static bool is_free(Phase phase) { return phase == Phase::dead || phase == Phase::held; }
  static void begin(Node& node) {
    node.set(State::of(Phase::held, 0));
    node.set_end({});
    node.slot.store(0, std::memory_order_relaxed);
    node.key = node.tail = 0;
    node.block = 0;
  }

  // Fills a stash: with a batch of free nodes, or a row of new ones.
  [[gnu::noinline]] std::uint32_t take_some(std::uint32_t* numbers) {
    std::uint32_t next = 0;
    std::uint32_t fresh = 0;
    std::uint32_t count = 0;
    {
      LatchGuard guard(latch_);
      next = free_;
      if (next != 0) {
        free_ = static_cast<std::uint32_t>(nodes_[next].tail);
      } else {
        fresh = high_ + 1;
        count =
            static_cast<std::uint32_t>(std::min<std::size_t>(kBatch, nodes_.capacity() - fresh));
        high_ = fresh + count - 1;
      }
    }
    for (std::uint32_t i = 0; i < count; ++i) numbers[i] = fresh + i;
    for (; next != 0; next = nodes_[next].block) numbers[count++] = next;
    return count;
  }

  static constexpr std::uint32_t kBatch = 32;

  Arena<Node> nodes_;
  Arena<typename P::template Atomic<std::uint64_t>> near_;
  Stashes<P, std::uint32_t, kBatch> stashes_;
  alignas(kOwnLine) typename P::Latch latch_;
  std::uint32_t free_ = 0;  // the first node of the first batch
  std::uint32_t high_ = 0;  // no node above it was ever used
};

}  // namespace perdure::pskiplist
