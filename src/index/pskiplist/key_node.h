// KeyNode: what DRAM has of a key of the multi-version store: who writes it, and a copy of its last
// entry, so that a lookup at or behind it reads no line of the pool. One line.
//
// STATE  a phase, and a number n, of the writes that this node has seen, or a version p.
//     idle(n)       nobody writes. held(n): somebody does, or looks what there is to write
//     unstamped(n)  a write is coming; whoever meets it gives it the open version
//     stamped(p)    it has version p; stores come, or a fence that only their thread can do
//     stored(n)     all its stores are in the line of the last entry, on their way to the medium
//     dead          the key has left the map, durably
//   idle -> held by compare-and-swap, then the holder's; unstamped -> stamped by anyone.
// INVARIANTS (DRAM)
//   pskiplist.N1  No n comes twice in unstamped, nor in stored: a write has one of its own, and
//       takes another if it goes back to held and stamps once more. So a compare-and-swap that was
//       prepared for one write fails in all later ones.
//   pskiplist.N2  last, value, stamp, slot and entries change in state stamped, or while nothing
//       else runs; but in held a trim may move the last entry, `last` then names its copy, and
//       lower entries, once those that it takes are gone: nobody counts on fewer than there are. So
//       who has loaded them between two loads of the same state idle (pskiplist.N1) has loaded one
//       moment; in held or stored likewise, but for entries.
//   pskiplist.N3  idle, held: what last, value and stamp say is durable.
#pragma once

#include <cstdint>

#include "index/pskiplist/layout.h"
#include "platform/platform.h"
#include "util/arena.h"

namespace perdure::pskiplist {

enum class Phase : std::uint8_t { idle, held, unstamped, stamped, stored, dead };

struct State {
  std::uint64_t word;
  constexpr Phase phase() const noexcept { return static_cast<Phase>(word & 7); }
  constexpr std::uint64_t number() const noexcept { return word >> 3; }
  static constexpr State of(Phase phase, std::uint64_t number) noexcept {
    return {number << 3 | static_cast<std::uint64_t>(phase)};
  }
  friend bool operator==(const State&, const State&) = default;
};

// The last entry of a history, and how many there are, but those trimmed.
struct End {
  std::uint64_t entry = 0;  // offset; 0: the key is not written yet
  std::uint64_t value = 0;
  std::uint64_t stamp = 0;
  std::uint32_t entries = 0;

  bool present() const noexcept { return entry != 0 && (stamp & layout::kRemoved) == 0; }
  std::uint64_t version() const noexcept { return stamp >> layout::kStampShift; }
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
  std::uint32_t block = 0;  // of the slot, by number; in a node of nobody the next such node
  // Before the node is in the directory:
  std::uint64_t key = 0;  // a word; of a byte string the offset of its record
  // Of the holder:
  std::uint64_t tail = 0;  // last segment of the history, 0: none

  State load() const noexcept { return {state.load(std::memory_order_seq_cst)}; }
  void set(State next) noexcept { state.store(next.word, std::memory_order_release); }
  bool change(State expected, State desired) noexcept {
    return state.compare_exchange_strong(expected.word, desired.word, std::memory_order_seq_cst);
  }
  // Of one moment to the holder, to others by pskiplist.N2. In line: a copy of it through memory
  // stalls.
  [[gnu::always_inline]] End end() const noexcept {
    return {last.load(std::memory_order_acquire), value.load(std::memory_order_acquire),
            stamp.load(std::memory_order_acquire), entries.load(std::memory_order_acquire)};
  }
  void set_end(const End& end) noexcept {
    value.store(end.value, std::memory_order_release);
    stamp.store(end.stamp, std::memory_order_release);
    last.store(end.entry, std::memory_order_release);
    entries.store(end.entries, std::memory_order_release);
  }
};

template <Platform P>
class NodeTable {
 public:
  using Node = KeyNode<P>;

  Status reserve(std::size_t nodes) noexcept {
    const std::size_t capacity = nodes < 0xFFFFFFF0ULL ? nodes + 1 : 0xFFFFFFF0ULL;
    if (Status s = near_.reserve(capacity / kNear + 1); !s.ok()) return s;
    return nodes_.reserve(capacity);
  }
  Node& operator[](std::uint32_t number) const noexcept { return nodes_[number]; }
  std::size_t capacity() const noexcept { return nodes_.capacity(); }

  // A node of nobody, held; its number, or 0. A number that was used before may still be in the
  // hands of no reader (give() comes through epochs, or was never in the directory).
  std::uint32_t take() noexcept {
    std::uint32_t number = 0;
    {
      LatchGuard guard(latch_);
      if (free_ != 0) {
        number = free_;
        free_ = nodes_[number].block;
      } else if (high_ + 1 < nodes_.capacity()) {
        number = ++high_;
      }
    }
    if (number != 0) begin(nodes_[number]);
    return number;
  }
  // So many such nodes, with numbers in a row, none of which was used before; the first one's
  // number, or 0.
  std::uint32_t take_row(std::uint32_t count) noexcept {
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
  void give(std::uint32_t number) noexcept {
    LatchGuard guard(latch_);
    PERDURE_ASSERT(P, "pskiplist.I5", is_nobodys(nodes_[number].load().phase()));
    nodes_[number].block = free_;
    free_ = number;
  }

  // Keys that come one after the other get nodes and slots in a row, or nearly so: who has set a
  // node's slot says where those of its neighbours may be. A guess, so that a slot can be fetched
  // together with its node.
  void set_slot(std::uint32_t number, std::uint64_t slot) noexcept {
    nodes_[number].slot.store(slot, std::memory_order_release);
    near_[number / kNear].store(slot - number % kNear * sizeof(layout::Slot),
                                std::memory_order_relaxed);
  }
  std::uint64_t likely_slot(std::uint32_t number) const noexcept {
    return near_[number / kNear].load(std::memory_order_relaxed) +
           number % kNear * sizeof(layout::Slot);
  }

  std::uint64_t dram_bytes() noexcept {
    LatchGuard guard(latch_);
    return high_ * sizeof(Node) + high_ / kNear * sizeof(std::uint64_t);
  }

 private:
  static constexpr std::uint32_t kNear = 16;  // nodes that share a guess

  // Dead, or never in the directory.
  static bool is_nobodys(Phase phase) noexcept {
    return phase == Phase::dead || phase == Phase::held;
  }
  static void begin(Node& node) noexcept {
    node.set(State::of(Phase::held, 0));
    node.set_end({});
    node.slot.store(0, std::memory_order_relaxed);
    node.key = node.tail = 0;
    node.block = 0;
  }

  Arena<Node> nodes_;
  Arena<typename P::template Atomic<std::uint64_t>> near_;
  typename P::Latch latch_;
  std::uint32_t free_ = 0;
  std::uint32_t high_ = 0;
};

}  // namespace perdure::pskiplist
