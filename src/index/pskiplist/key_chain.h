// KeyChain: the blocks that hold the slots of all keys of the multi-version store, and which slots
// are free.
//
// WHAT  A free slot lies in a stash of threads (stashes.h), or has a bit in the mask of its block.
//   An empty stash is filled from the blocks with free slots, lowest slots first; a full one gives
//   half back. A block is linked ahead, when few slots have bits. An opening puts all free slots
//   into the masks: what the stashes had is in no other place, and needs none.
// INVARIANTS  (C: after any crash; D: in DRAM)
//   pskiplist.K1 C  A block is durably zero before it is linked, and its link is durable before one
//         of its slots is handed out. A block leaves the chain when all its slots are free,
//         durably.
//   pskiplist.K2 D  A slot is free here only if its stamp is durably 0.
//   pskiplist.K3 D  A block leaves the chain only if all its slots have their bits: none is in a
//         stash, or with a thread. From then on no thread takes one.
// ORDERING  link_latch_ orders what is stored in the links, and is held across their fences. latch_
//   orders masks, lists and counts, and is held across no fence. link_latch_ is taken before
//   latch_; a stash's latch before latch_, and never with link_latch_.
// PROGRESS  A claim or a release waits for latch_ at most once in 32. A claim waits for the fence
//   of a link only if all bits were taken while it was under way. A thread that a block is linked
//   or unlinked by waits for its own fence.
// SPACE  A stripe of threads keeps at most 64 free slots: as many blocks cannot leave the chain. A
//   trim or a rollback gives them back. A claim takes a slot from any stash before it fails.
#pragma once

#include <cstdint>

#include "heap/heap.h"
#include "index/pskiplist/layout.h"
#include "index/pskiplist/stashes.h"
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
    if (Status s = stashes_.reserve(); !s.ok()) return s;
    return blocks_.reserve(blocks + 1);
  }
  // Adds the chain's next block, with all slots free. Returns its number, or 0. The caller holds
  // both latches, or nothing else runs.
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
      if (blocks_[n].free_count != 0) add_partial_first(n);
    }
  }

  // Returns a slot, which the caller owns now. Errors: pool_full, out_of_memory, poisoned.
  [[gnu::noinline]] Expected<Place> claim() {
    Place place;
    bool few = false;  // slots are left for others
    while (!stashes_.take(place, [&](Place* places) { return take_some(places, few); })) {
      if (Status s = link_block(); !s.ok()) {
        if (stashes_.steal(place)) return place;
        return fail(std::move(s));
      }
    }
    if (few) [[unlikely]]
      link_ahead();
    return place;
  }
  // Frees a slot whose stamp is durably 0. The caller is pinned.
  [[gnu::noinline]] void release(const Place& place) {
    PERDURE_ASSERT(P, "pskiplist.K2", is_free(place));
    stashes_.give(place, [this](const Place* places, std::uint32_t n) { give_back(places, n); });
  }
  // Gives the slots of all stashes back to their blocks. The caller is pinned.
  void give_back_all() {
    stashes_.give_back_all([this](const Place* places, std::uint32_t n) { give_back(places, n); });
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
  // No claim and no release is in flight.
  std::uint64_t used_slots() {
    const std::uint64_t stashed = stashes_.count();
    LatchGuard guard(latch_);
    return linked_ * kSlots - free_slots_ - stashed;
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
  // Slots that go into a stash or out of it at once.
  static constexpr std::uint32_t kBatch = kSlots < 64 ? 1 : 32;
  // A block is linked ahead while fewer slots have bits, and no block is unlinked then.
  static constexpr std::uint32_t kFew = 2 * kBatch;
  static_assert(kFew <= kSlots);

  struct BlockDesc {
    std::uint64_t offset = 0;  // 0: not in use
    std::uint64_t free[(kSlots + 63) / 64] = {};
    std::uint32_t free_count = 0;
    std::uint32_t next = 0, prev = 0;  // in the chain; next also in the list of unused numbers
    std::uint32_t next_partial = 0, prev_partial = 0;  // in the list of blocks with free slots
  };

  // --- free slots; the caller of the next four holds latch_ ---

  void add_partial_first(std::uint32_t number) {
    blocks_[number].next_partial = partial_;
    blocks_[number].prev_partial = 0;
    (partial_ != 0 ? blocks_[partial_].prev_partial : last_partial_) = number;
    partial_ = number;
  }
  void add_partial_last(std::uint32_t number) {
    blocks_[number].next_partial = 0;
    blocks_[number].prev_partial = last_partial_;
    (last_partial_ != 0 ? blocks_[last_partial_].next_partial : partial_) = number;
    last_partial_ = number;
  }
  void remove_partial(std::uint32_t number) {
    const BlockDesc& block = blocks_[number];
    (block.next_partial != 0 ? blocks_[block.next_partial].prev_partial : last_partial_) =
        block.prev_partial;
    (block.prev_partial != 0 ? blocks_[block.prev_partial].next_partial : partial_) =
        block.next_partial;
  }
  // Whether the block has all its bits and is not needed. Otherwise a map whose keys come and go
  // would link and unlink blocks all the time.
  bool can_go(std::uint32_t number) const {
    return blocks_[number].free_count == kSlots && free_slots_ >= 2 * kSlots;
  }
  // Takes the bits of up to kBatch slots. `few`: whether a block should be linked.
  [[gnu::noinline]] std::uint32_t take_some(Place* places, bool& few) {
    LatchGuard guard(latch_);
    std::uint32_t count = 0;
    for (std::uint32_t number = partial_; count < kBatch && number != 0;) {
      BlockDesc& block = blocks_[number];
      for (std::uint32_t w = 0; w * 64 < kSlots; ++w) {
        for (; block.free[w] != 0 && count < kBatch; block.free[w] &= block.free[w] - 1) {
          const auto i = w * 64 + static_cast<std::uint32_t>(__builtin_ctzll(block.free[w]));
          places[count++] = {slot_in(block.offset, i), number};
          --block.free_count;
        }
      }
      const std::uint32_t next = block.next_partial;
      if (block.free_count == 0) remove_partial(number);
      number = next;
    }
    const std::uint64_t left = free_slots_ - count;
    free_slots_ = left;
    few = left < kFew;
    return count;
  }
  // Sets the bits of slots, and unlinks blocks that have become free.
  [[gnu::noinline]] void give_back(const Place* places, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) __builtin_prefetch(&blocks_[places[i].block], 1);
    std::uint32_t emptied[2 * kBatch];
    std::uint32_t blocks = 0;
    {
      LatchGuard guard(latch_);
      for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint32_t number = places[i].block;
        BlockDesc& block = blocks_[number];
        const std::uint32_t bit = bit_of(places[i]);
        PERDURE_ASSERT(P, "pskiplist.K2", (block.free[bit / 64] >> bit % 64 & 1) == 0);
        block.free[bit / 64] |= 1ULL << bit % 64;
        ++free_slots_;
        if (++block.free_count == 1) add_partial_first(number);
        if (can_go(number)) emptied[blocks++] = number;
      }
    }
    while (blocks != 0) unlink_empty(emptied[--blocks]);
  }
  std::uint32_t bit_of(const Place& place) const {
    return static_cast<std::uint32_t>((place.slot - slot_in(blocks_[place.block].offset, 0)) /
                                      sizeof(Slot));
  }
  bool is_free(const Place& place) const {
    const auto& stamp = heap_.template at<Slot>(place.slot)->first.stamp;
    return platform_.load(stamp) == 0 && platform_.persisted(&stamp, sizeof(stamp));
  }

  // --- links ---

  // Makes sure that there was a free slot in the meantime.
  [[gnu::noinline]] Status link_block() {
    LatchGuard linking(link_latch_);
    return free_slots() != 0 ? Status() : grow();
  }
  // Errors are left to the claim that finds no slot.
  [[gnu::noinline]] void link_ahead() {
    if (!link_latch_.try_lock()) return;
    if (free_slots() < kFew) (void)grow();
    link_latch_.unlock();
  }
  std::uint64_t free_slots() {
    LatchGuard guard(latch_);
    return free_slots_;
  }
  // Appends one block to the chain. The caller holds link_latch_.
  [[gnu::noinline]] Status grow() {
    if (unused_ == 0 && high_ + 1 == blocks_.capacity()) return StatusCode::out_of_memory;
    auto offset = heap_.allocate(kBlockBytes, BlockKind::zero_on_free);
    if (!offset) return std::move(offset.error());
    std::uint64_t& link = link_to_next(last_);
    PERDURE_ASSERT(P, "pskiplist.K1",
                   platform_.persisted(heap_.template at<void>(*offset), kBlockBytes));
    if (!set_link(link, *offset, "pskiplist.chain.link"_site)) return StatusCode::poisoned;
    PERDURE_ASSERT(P, "pskiplist.K1", platform_.persisted(&link, sizeof(link)));
    LatchGuard guard(latch_);
    add_partial_last(append(*offset));
    return {};
  }
  // The block had all its bits. Unlinks it if that still holds.
  [[gnu::noinline]] void unlink_empty(std::uint32_t number) {
    std::uint64_t offset = 0;
    {
      LatchGuard linking(link_latch_);
      {
        LatchGuard guard(latch_);
        if (!can_go(number)) return;
        remove_partial(number);  // pskiplist.K3
        free_slots_ -= kSlots;
        offset = blocks_[number].offset;
      }
      if (!unlink(number)) {
        LatchGuard guard(latch_);
        add_partial_first(number);
        free_slots_ += kSlots;
        return;
      }
    }
    heap_.retire(offset, "pskiplist.chain.retire"_site);
  }
  // The caller holds link_latch_. Returns false if the pool is poisoned.
  [[gnu::noinline]] bool unlink(std::uint32_t number) {
    BlockDesc& desc = blocks_[number];
    PERDURE_ASSERT(P, "pskiplist.K3", desc.free_count == kSlots);
    const std::uint64_t next = platform_.load(block(number).next);
    if (!set_link(link_to_next(desc.prev), next, "pskiplist.chain.unlink"_site)) return false;
    LatchGuard guard(latch_);
    if (desc.prev != 0) blocks_[desc.prev].next = desc.next;
    (desc.next != 0 ? blocks_[desc.next].prev : last_) = desc.prev;
    --linked_;
    desc.offset = 0;
    desc.free_count = 0;
    desc.next = unused_;
    unused_ = number;
    return true;
  }
  template <class Site>
  [[gnu::always_inline]] bool set_link(std::uint64_t& link, std::uint64_t block, Site site) {
    platform_.store(link, block);
    platform_.flush(&link, 8, site);
    return platform_.fence(site);
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
  Arena<BlockDesc> blocks_;
  Stashes<P, Place, kBatch> stashes_;
  alignas(kOwnLine) typename P::Latch link_latch_;
  typename P::Latch latch_;
  std::uint32_t high_ = 0;
  std::uint32_t unused_ = 0;
  std::uint32_t last_ = 0;
  std::uint32_t partial_ = 0;
  std::uint32_t last_partial_ = 0;
  std::uint64_t linked_ = 0;
  std::uint64_t free_slots_ = 0;  // bits
};

}  // namespace perdure::pskiplist
