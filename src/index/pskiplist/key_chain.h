// KeyChain: the slots of all keys of the multi-version store, in blocks, and which of them are
// free.
//
// INVARIANTS  (C: after any crash; D: in DRAM)
//   pskiplist.K1 C  A block is durably zero before it is linked, and its link is durable before one
//         of its slots is handed out. A block leaves the chain when all its slots are free,
//         durably.
//   pskiplist.K2 D  A slot is free here only if its stamp is durably 0.
// PROGRESS  a latch for all; held across a fence only where a block comes or goes.
#pragma once

#include <cstdint>

#include "heap/heap.h"
#include "index/pskiplist/layout.h"
#include "util/arena.h"

namespace perdure::pskiplist {

struct Peek;

template <Platform P, class G>
class KeyChain {
  friend struct Peek;  // of tests, into blocks

 public:
  static constexpr std::uint32_t kSlots = G::kBlockSlots;
  static constexpr std::size_t kBlockBytes = sizeof(layout::Block) + kSlots * sizeof(layout::Slot);
  struct Place {
    std::uint64_t slot = 0;   // offset
    std::uint32_t block = 0;  // number
  };

  KeyChain(P& platform, Heap<P>& heap) noexcept : platform_(platform), heap_(heap) {}
  KeyChain(const KeyChain&) = delete;
  KeyChain& operator=(const KeyChain&) = delete;

  Status reserve(layout::Root* root, std::size_t blocks) noexcept {
    root_ = root;
    return blocks_.reserve(blocks + 1);
  }
  // While nothing else runs: the chain's next block, all of whose slots are free; its number, or 0.
  std::uint32_t append(std::uint64_t offset) noexcept;
  // Of a block that was appended, before settle(): the slot holds a key. Any thread, a block each.
  void take(std::uint32_t number, std::uint32_t slot) noexcept {
    BlockDesc& block = blocks_[number];
    block.free[slot / 64] &= ~(1ULL << slot % 64);
    --block.free_count;
  }
  // After the last append() and take().
  void settle() noexcept;

  // A slot, which is nobody else's. Errors: pool_full, out_of_memory, poisoned.
  Expected<Place> claim() noexcept;
  // Its stamp is durably 0. The caller is pinned.
  void release(const Place& place) noexcept;

  // Blocks have the numbers 1 to numbers(); those in no use the offset 0. A pinned caller's block
  // may leave the chain, but stays.
  std::uint32_t numbers() noexcept {
    LatchGuard guard(latch_);
    return high_;
  }
  std::uint64_t offset_of(std::uint32_t number) noexcept {
    LatchGuard guard(latch_);
    return blocks_[number].offset;
  }
  static std::uint64_t slot_in(std::uint64_t block, std::uint32_t i) noexcept {
    return block + sizeof(layout::Block) + i * sizeof(layout::Slot);
  }
  std::uint64_t used_slots() noexcept {
    LatchGuard guard(latch_);
    return linked_ * kSlots - free_slots_;
  }
  std::uint64_t blocks() noexcept {
    LatchGuard guard(latch_);
    return linked_;
  }
  std::uint64_t dram_bytes() noexcept {
    LatchGuard guard(latch_);
    return std::uint64_t{high_} * sizeof(BlockDesc);
  }

 private:
  struct BlockDesc {
    std::uint64_t offset = 0;  // 0: in no use
    std::uint64_t free[(kSlots + 63) / 64] = {};
    std::uint32_t free_count = 0;
    std::uint32_t next = 0, prev = 0;                  // in the chain; of one in no use, the next
    std::uint32_t next_partial = 0, prev_partial = 0;  // of those with free slots
  };

  std::uint32_t link_last(std::uint64_t offset) noexcept;
  void add_partial(std::uint32_t number) noexcept;
  void remove_partial(std::uint32_t number) noexcept;
  Status grow() noexcept;
  void unlink(std::uint32_t number) noexcept;
  bool is_free(const Place& place) const noexcept {
    const auto& stamp = heap_.template at<layout::Slot>(place.slot)->first.stamp;
    return platform_.load(stamp) == 0 && platform_.persisted(&stamp, sizeof(stamp));
  }
  layout::Block& block(std::uint32_t number) const noexcept {
    return *heap_.template at<layout::Block>(blocks_[number].offset);
  }
  std::uint64_t& link_to_next(std::uint32_t number) const noexcept {
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

template <Platform P, class G>
std::uint32_t KeyChain<P, G>::link_last(std::uint64_t offset) noexcept {
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

template <Platform P, class G>
std::uint32_t KeyChain<P, G>::append(std::uint64_t offset) noexcept {
  return link_last(offset);
}

template <Platform P, class G>
void KeyChain<P, G>::settle() noexcept {
  free_slots_ = 0;
  for (std::uint32_t n = last_; n != 0; n = blocks_[n].prev) {
    free_slots_ += blocks_[n].free_count;
    if (blocks_[n].free_count != 0) add_partial(n);
  }
}

template <Platform P, class G>
void KeyChain<P, G>::add_partial(std::uint32_t number) noexcept {
  blocks_[number].next_partial = partial_;
  blocks_[number].prev_partial = 0;
  if (partial_ != 0) blocks_[partial_].prev_partial = number;
  partial_ = number;
}

template <Platform P, class G>
void KeyChain<P, G>::remove_partial(std::uint32_t number) noexcept {
  const BlockDesc& block = blocks_[number];
  if (block.next_partial != 0) blocks_[block.next_partial].prev_partial = block.prev_partial;
  if (block.prev_partial != 0) {
    blocks_[block.prev_partial].next_partial = block.next_partial;
  } else {
    partial_ = block.next_partial;
  }
}

// One more block at the end of the chain.
template <Platform P, class G>
Status KeyChain<P, G>::grow() noexcept {
  auto offset = heap_.allocate(kBlockBytes, BlockKind::zero_on_free);
  if (!offset) return std::move(offset.error());
  std::uint64_t& link = link_to_next(last_);
  PERDURE_ASSERT(P, "pskiplist.K1",
                 platform_.persisted(heap_.template at<void>(*offset), kBlockBytes));
  platform_.store(link, *offset);
  platform_.flush(&link, 8, "pskiplist.chain.link"_site);
  if (!platform_.fence("pskiplist.chain.link"_site)) return StatusCode::poisoned;
  PERDURE_ASSERT(P, "pskiplist.K1", platform_.persisted(&link, sizeof(link)));
  add_partial(link_last(*offset));
  return {};
}

template <Platform P, class G>
Expected<typename KeyChain<P, G>::Place> KeyChain<P, G>::claim() noexcept {
  LatchGuard guard(latch_);
  if (partial_ == 0) {
    if (unused_ == 0 && high_ + 1 == blocks_.capacity()) return fail(StatusCode::out_of_memory);
    if (Status s = grow(); !s.ok()) return fail(std::move(s));
  }
  const std::uint32_t number = partial_;
  BlockDesc& block = blocks_[number];
  std::uint32_t word = 0;
  while (block.free[word] == 0) ++word;
  const std::uint32_t i = word * 64 + static_cast<std::uint32_t>(__builtin_ctzll(block.free[word]));
  block.free[word] &= block.free[word] - 1;
  --free_slots_;
  if (--block.free_count == 0) remove_partial(number);
  return Place{slot_in(block.offset, i), number};
}

template <Platform P, class G>
void KeyChain<P, G>::release(const Place& place) noexcept {
  LatchGuard guard(latch_);
  BlockDesc& block = blocks_[place.block];
  const auto i = static_cast<std::uint32_t>((place.slot - block.offset - sizeof(layout::Block)) /
                                            sizeof(layout::Slot));
  PERDURE_ASSERT(P, "pskiplist.K2", (block.free[i / 64] >> i % 64 & 1) == 0 && is_free(place));
  block.free[i / 64] |= 1ULL << i % 64;
  ++free_slots_;
  if (++block.free_count == 1) add_partial(place.block);
  // One stays free, so that a key that comes and goes does not bring a block each time.
  if (block.free_count == kSlots && free_slots_ >= 2 * kSlots) unlink(place.block);
}

// The latch is held.
template <Platform P, class G>
void KeyChain<P, G>::unlink(std::uint32_t number) noexcept {
  BlockDesc& desc = blocks_[number];
  PERDURE_ASSERT(P, "pskiplist.K1", desc.free_count == kSlots);
  std::uint64_t& link = link_to_next(desc.prev);
  platform_.store(link, platform_.load(block(number).next));
  platform_.flush(&link, 8, "pskiplist.chain.unlink"_site);
  if (!platform_.fence("pskiplist.chain.unlink"_site)) return;
  remove_partial(number);
  if (desc.prev != 0) blocks_[desc.prev].next = desc.next;
  if (desc.next != 0) {
    blocks_[desc.next].prev = desc.prev;
  } else {
    last_ = desc.prev;
  }
  --linked_;
  free_slots_ -= kSlots;
  if (P::runs("pskiplist.chain.retire"_site)) heap_.retire(desc.offset);
  desc.offset = 0;
  desc.next = unused_;
  unused_ = number;
}

}  // namespace perdure::pskiplist
