// KeyChain: the blocks that hold the slots of all keys of the multi-version store, and which slots
// are free.
//
// INVARIANTS  (C: after any crash; D: in DRAM)
//   pskiplist.K1 C  A block is durably zero before it is linked, and its link is durable before one
//         of its slots is handed out. A block leaves the chain when all its slots are free,
//         durably.
//   pskiplist.K2 D  A slot is free here only if its stamp is durably 0.
// PROGRESS  One latch serves all calls. It is held across a fence only where a block is linked or
//   unlinked.
#pragma once

#include <cstdint>

#include "heap/heap.h"
#include "index/pskiplist/layout.h"
#include "util/arena.h"

namespace perdure::pskiplist {

struct Peek;

template <class T>
class KeyChain {
  using P = typename T::Platform;
  friend struct Peek;  // of tests, into blocks

 public:
  static constexpr std::uint32_t kSlots = T::Geometry::kBlockSlots;
  static constexpr std::size_t kBlockBytes = sizeof(layout::Block) + kSlots * sizeof(Slot);
  struct Place {
    std::uint64_t slot = 0;   // offset
    std::uint32_t block = 0;  // number
  };

  KeyChain(P& platform, Heap<P>& heap) : platform_(platform), heap_(heap) {}
  KeyChain(const KeyChain&) = delete;
  KeyChain& operator=(const KeyChain&) = delete;

  Status reserve(layout::Root* root, std::size_t blocks) {
    root_ = root;
    return blocks_.reserve(blocks + 1);
  }
  // Adds the chain's next block, with all slots free. Returns its number, or 0. The caller holds
  // the latch, or nothing else runs.
  std::uint32_t append(std::uint64_t offset) {
    std::uint32_t number = unused_;
    if (number != 0) {
      unused_ = blocks_[number].next;
    } else if (high_ + 1 < blocks_.capacity()) {
      number = ++high_;
    } else {
      return 0;
    }
    BlockDesc& block = blocks_[number];
    block.offset = offset;
    block.free_count = kSlots;
    for (std::uint32_t i = 0; i < kSlots; ++i) block.free[i / 64] |= 1ULL << i % 64;
    block.next = 0;
    block.prev = last_;
    if (last_ != 0) blocks_[last_].next = number;
    last_ = number;
    ++linked_;
    free_slots_ += kSlots;
    return number;
  }
  // Between append() and settle(): the slot holds a key. Several threads may call this for
  // different blocks.
  void take(std::uint32_t number, std::uint32_t slot) {
    BlockDesc& block = blocks_[number];
    block.free[slot / 64] &= ~(1ULL << slot % 64);
    --block.free_count;
  }
  // Call it after the last append() and take() of a recovery.
  void settle() {
    free_slots_ = 0;
    for (std::uint32_t n = last_; n != 0; n = blocks_[n].prev) {
      free_slots_ += blocks_[n].free_count;
      if (blocks_[n].free_count != 0) add_partial(n);
    }
  }

  // Returns a slot, which the caller owns now. Errors: pool_full, out_of_memory, poisoned.
  [[gnu::noinline]] Expected<Place> claim() {
    LatchGuard guard(latch_);
    if (partial_ == 0) {
      if (unused_ == 0 && high_ + 1 == blocks_.capacity()) return fail(StatusCode::out_of_memory);
      if (Status s = grow(); !s.ok()) return fail(std::move(s));
    }
    const std::uint32_t number = partial_;
    BlockDesc& block = blocks_[number];
    std::uint32_t word = 0;
    while (block.free[word] == 0) ++word;
    const std::uint32_t i =
        word * 64 + static_cast<std::uint32_t>(__builtin_ctzll(block.free[word]));
    block.free[word] &= block.free[word] - 1;
    --free_slots_;
    if (--block.free_count == 0) remove_partial(number);
    return Place{slot_in(block.offset, i), number};
  }
  // Frees a slot whose stamp is durably 0. The caller is pinned.
  [[gnu::noinline]] void release(const Place& place) {
    LatchGuard guard(latch_);
    BlockDesc& block = blocks_[place.block];
    const auto i =
        static_cast<std::uint32_t>((place.slot - slot_in(block.offset, 0)) / sizeof(Slot));
    PERDURE_ASSERT(P, "pskiplist.K2", (block.free[i / 64] >> i % 64 & 1) == 0 && is_free(place));
    block.free[i / 64] |= 1ULL << i % 64;
    ++free_slots_;
    if (++block.free_count == 1) add_partial(place.block);
    // One free block stays. Otherwise a key that comes and goes would link a block each time.
    if (block.free_count == kSlots && free_slots_ >= 2 * kSlots) unlink(place.block);
  }

  // Blocks have the numbers 1 to numbers(). A number that is not in use has the offset 0. The block
  // of a pinned caller may leave the chain, but is not reused.
  std::uint32_t numbers() {
    LatchGuard guard(latch_);
    return high_;
  }
  std::uint64_t offset_of(std::uint32_t number) {
    LatchGuard guard(latch_);
    return blocks_[number].offset;
  }
  static std::uint64_t slot_in(std::uint64_t block, std::uint32_t i) {
    return block + sizeof(layout::Block) + i * sizeof(Slot);
  }
  std::uint64_t used_slots() {
    LatchGuard guard(latch_);
    return linked_ * kSlots - free_slots_;
  }
  std::uint64_t blocks() {
    LatchGuard guard(latch_);
    return linked_;
  }
  std::uint64_t dram_bytes() {
    LatchGuard guard(latch_);
    return std::uint64_t{high_} * sizeof(BlockDesc);
  }

 private:
  struct BlockDesc {
    std::uint64_t offset = 0;  // 0: not in use
    std::uint64_t free[(kSlots + 63) / 64] = {};
    std::uint32_t free_count = 0;
    std::uint32_t next = 0, prev = 0;  // in the chain; next also in the list of unused numbers
    std::uint32_t next_partial = 0, prev_partial = 0;  // in the list of blocks with free slots
  };

  void add_partial(std::uint32_t number) {
    blocks_[number].next_partial = partial_;
    blocks_[number].prev_partial = 0;
    if (partial_ != 0) blocks_[partial_].prev_partial = number;
    partial_ = number;
  }
  void remove_partial(std::uint32_t number) {
    const BlockDesc& block = blocks_[number];
    if (block.next_partial != 0) blocks_[block.next_partial].prev_partial = block.prev_partial;
    (block.prev_partial != 0 ? blocks_[block.prev_partial].next_partial : partial_) =
        block.next_partial;
  }
  // Appends one block to the chain. The caller holds the latch.
  [[gnu::noinline]] Status grow() {
    auto offset = heap_.allocate(kBlockBytes, BlockKind::zero_on_free);
    if (!offset) return std::move(offset.error());
    std::uint64_t& link = link_to_next(last_);
    PERDURE_ASSERT(P, "pskiplist.K1",
                   platform_.persisted(heap_.template at<void>(*offset), kBlockBytes));
    if (!set_link(link, *offset, "pskiplist.chain.link"_site)) return StatusCode::poisoned;
    PERDURE_ASSERT(P, "pskiplist.K1", platform_.persisted(&link, sizeof(link)));
    add_partial(append(*offset));
    return {};
  }
  // The caller holds the latch.
  [[gnu::noinline]] void unlink(std::uint32_t number) {
    BlockDesc& desc = blocks_[number];
    PERDURE_ASSERT(P, "pskiplist.K1", desc.free_count == kSlots);
    const std::uint64_t next = platform_.load(block(number).next);
    if (!set_link(link_to_next(desc.prev), next, "pskiplist.chain.unlink"_site)) return;
    remove_partial(number);
    if (desc.prev != 0) blocks_[desc.prev].next = desc.next;
    (desc.next != 0 ? blocks_[desc.next].prev : last_) = desc.prev;
    --linked_;
    free_slots_ -= kSlots;
    heap_.retire(desc.offset, "pskiplist.chain.retire"_site);
    desc.offset = 0;
    desc.next = unused_;
    unused_ = number;
  }
  template <class Site>
  [[gnu::always_inline]] bool set_link(std::uint64_t& link, std::uint64_t block, Site site) {
    platform_.store(link, block);
    platform_.flush(&link, 8, site);
    return platform_.fence(site);
  }
  bool is_free(const Place& place) const {
    const auto& stamp = heap_.template at<Slot>(place.slot)->first.stamp;
    return platform_.load(stamp) == 0 && platform_.persisted(&stamp, sizeof(stamp));
  }
  layout::Block& block(std::uint32_t number) const {
    return *heap_.template at<layout::Block>(blocks_[number].offset);
  }
  std::uint64_t& link_to_next(std::uint32_t number) const {
    return number == 0 ? root_->chain : block(number).next;
  }

  P& platform_;
  Heap<P>& heap_;
  layout::Root* root_ = nullptr;
  typename P::Latch latch_;
  Arena<BlockDesc> blocks_;
  std::uint32_t high_ = 0;
  std::uint32_t unused_ = 0;
  std::uint32_t last_ = 0;
  std::uint32_t partial_ = 0;
  std::uint64_t linked_ = 0;
  std::uint64_t free_slots_ = 0;
};

}  // namespace perdure::pskiplist
