// Clevel: a persistent hash map that rehashes in the background, and whose open reads no entries.
//
// WHAT  Clevel hashing (Chen et al., ATC 2020): a list of levels, each twice the one below it. A
//   key has two candidate buckets of eight slots in each level. Slots name items. A background
//   rehash moves items from the last level towards the first. WHEN: point access that never waits
//   for the rehash or for a level, and an open that reads only the root. WHEN NOT: ordered access;
//   the smallest memory. Deviations from the paper; docs/design/clevel.md has the reasons:
//   operations linearize on the item, not on the slot; the slots of the level that drains are
//   sealed; there is no persistent cursor, context or buffer; an update never writes a slot; of the
//   inserts of one key one succeeds.
// READING PATH  (lines) Core: layout.h 78, hash.h 61, item.h 90, stripe.h 133, state.h 204,
//   lookup.h 570, growth.h 780, write.h 778, recovery.h 501. The ends of write.h (write_many, plans
//   of batches) and recovery.h (check, statistics) are optional. Each class derives from the one
//   before: state.h -> lookup.h -> growth.h -> write.h -> recovery.h -> this file.
// LAYOUT  layout.h has the root and buckets, item.h the items, index/blob.h the blobs. A level is
//   2^b buckets and nothing else. The ring of words in the root names the levels: one word store
//   makes the list longer or shorter.
// INVARIANTS  (C: after any crash; D: in DRAM)
//   clevel.I1 C  The ring's words that are not 0 are one run. Each level was durably empty before
//         its word was stored. A level is twice the largest one before it, or smaller.
//   clevel.I2 C  A slot is 0, sealed, or names an item block; the bucket is then one of the item's
//         two in that level. Sealed slots exist only in the last of more than two levels. A slot
//         whose item is not live (it may be pending), or not whole, is no entry.
//   clevel.I3 C  A key has at most one live, whole item. Two slots name one item only if one of
//         them is in the last level and the other above it. (D) A Moving scope is then alive, or
//         the slots are not verified yet (clevel.I7). (D) An item becomes live only when it is the
//         last insert of its stripe, or has been. Then all that were it before have become live,
//         or were withdrawn. The last insert is forgotten before the block of its item is retired.
//   clevel.I4 C  A block is reused only after every slot that named it is durably something else.
//         The block is durably dead (state 0) by then.
//   clevel.I5 D  A key's stripe is not 0 from before a store to an item's state, an item's value
//         word or a fresh slot until after its fence. If the stripe is 0 after a thread has loaded
//         such a word, what it loaded is durable. Otherwise the thread writes it back and fences.
//         What withdraws an item does not fence: nothing rests on an item that was never live.
//   clevel.I6 D  A level is announced by one list, and is part of the next one, which is published
//         after the ring's word is fenced. Only then is anything stored into the level. From the
//         announcement until it is dropped its place in the ring is 0 or has its word, and no
//         thread stores another word there. Lists and levels live as long as a guard that may have
//         loaded them.
//   clevel.I7 D  Until mark_some() has been through the table (verified_), a found item counts only
//         if its checksum matches and its slot still names it, and no item is rehashed.
//   clevel.I8 C  In a map that was closed cleanly, every slot that is not 0 or sealed names a live,
//         whole item, and the sum of all slots is the root's. The checksum of a closed item covers
//         its value word. A closed item is whole until it is freed, whatever happens.
//   clevel.I9 D  While the walk of a cleanly closed map sums the slots, a slot changes only under
//         the latch of its bucket. Changes ahead of the walk are added up and taken out of its sum.
//   clevel.I10 C If the walk has found damage, the root says so, and no operation returns "absent"
//         any more.
// OPERATIONS  (LP linearization, PP persist point; F write-backs, S fences; k lines of an item)
//   find    all levels from the last to the first: tag -> state live -> key -> value. LP: the load
//           of the state; a newer value belongs to an update that is ordered before it, or before
//           the erase that came between. Nothing found: absent, if the list is still the same (LP:
//           that load, or a moment of absence during the walk), else again. 0F 0S. If the key's
//           stripe is in flight: writes back what the result rests on, 1S. A dead item of that tag
//           in flight: 1F 1S before "absent".
//   insert  last insert of the stripe, made live if it may be pending -> find: absent -> item whole
//           but pending, state last -> count the stripe -> slot CAS 0 -> item -> last insert of the
//           stripe: CAS -> state CAS pending -> live (LP) -> F*k F S (PP) -> uncount. (k+1)F 1S. If
//           the last insert has changed: find again, from there. If the key is there, the item is
//           withdrawn: slot cleared, state dead, retired. If the rehash has withdrawn the item: the
//           same, and all again. A value beyond kInlineValue: its blob first, F* S.
//   update  find -> count the stripe -> live? -> closed: opened -> value word: CAS (LP) -> F S (PP)
//           -> uncount. 1F 1S.
//           Bytes: blob F* S -> CAS of the value word (LP) -> F S (PP) -> old blob retired: (k+1)F
//           2S.
//   erase   find -> count -> CAS state live -> dead (LP) -> the stripe forgets the item -> F S (PP)
//           -> clear the slots -> uncount -> retire. 1F 1S, and 2F per item in the reclamation
//           batch (slot, state 0). A copy that a move has made: F S at once.
//   update_if  as update, with one CAS from the value that was found.
//   erase_if   as erase, but no update or other erase is in the stripe from the look at the value
//           to the fence: none comes in between, and none that comes later is ordered before it.
//   many    up to 16: items; blobs of values that are replaced, F* each, one S -> all stripes and
//           LPs, F each, one S (PP of all) -> slots cleared, stripes released. Values of more than
//           kInlineValue are written alone.
//   expand  level zero, F* S, in the background -> list that announces it, by CAS -> ring word, F S
//           (PP) -> list with it, by CAS. The insert that found no slot does it, and helps another
//           one with the last two steps. If the level does not lie ready, it makes a smaller one,
//           64F 1S. Instead, if an item of its buckets in the last of two levels can go up, and no
//           other thread moves items: copy F S -> old slot cleared, F S.
//   rehash  any number of threads, each another range of the last level. Per bucket: empty slots
//           sealed; pending items made live, or withdrawn by one CAS of the state; live items
//           copied into a level above, F per copy; 1S. Dead meanwhile: the copy undone, F. Then
//           sealed, 1F; 1S a step. All sealed: ring word 0, F S (PP) -> list -> level retired.
//   compact two smaller levels, added as by an expansion; the rehash then empties the old ones.
//   for_each  bucket by bucket. No item moves meanwhile, so each entry is seen once.
//   close   the walk to its end -> items closed -> sum of the slots, F. The pool fences.
// ORDERING
//   state, key, value  before the slot's CAS (release). A find loads the slot first (acquire).
//   last insert        An insert loads it before its search, and replaces it after its own slot is
//                      filled. It is live, or its thread is in the stripe: that enters before it
//                      replaces the word, and leaves after it has made the item live. Locked
//                      instructions, and loads that are sequentially consistent.
//   copy               before the seal: a thread that finds a seal finds the copy further up, or a
//                      new list. A dead item's slot is not sealed: its eraser clears it first.
//   seal               durable before the step's guard ends: blocks that sealed slots named are
//                      reused later (clevel.I4).
//   dead / moves       An eraser: state CAS, verified_, moves_, then list and slots. A mover:
//                      moves_, copy CAS, then state. With locked instructions on both sides, one of
//                      them sees the other's store (Dekker). On x86 a locked instruction orders
//                      both; acquire and release alone do not.
//   stripe             raised before the store, and loaded after the value. Lowered after the fence
//                      by a plain store: no locked instruction stands between a fence and the next
//                      operation's misses (docs/decisions/0006).
//   scanners, moves    each side raises its own count, then loads the other's (seq_cst).
//   installers, list   A thread that may store a level's word counts itself, then loads the list.
//                      The drop of the level finds it in the list, then loads the count (seq_cst).
//   raised, list       A move names its buckets, then loads the list. A step of the rehash loads
//                      the list, then those names (seq_cst).
// RECOVERY  Open reads the ring: O(levels). mark_some() then walks the slots while the map serves.
//   It clears a slot that names a dead, torn or pending item, once the death is durable. A move cut
//   short leaves two slots that name one item: it clears the lower one. It fences in the same step,
//   before the sweep can free the block. It marks the items and blobs of the other slots. A rehash
//   restarts from bucket 0. All this is idempotent. Damage ends the walk (clevel.I10): 1F 1S, once.
//   An item that is pending never was one; if its block may have been allocated since the open,
//   the walk leaves it to its insert.
//   Non-authoritative pointers: slots of dead, torn and pending items; the second slot of a moving
//   item; bits 0..38 of a dead state; value words of dead items.
// RECLAMATION  Items go through epochs, also those that were withdrawn; the batch that frees them
//   writes back their slot and zeroes their state. Blobs, levels and lists go through epochs after
//   the fence of their unlink. During a sweep, the target of a reference is marked before the
//   reference is removed.
// PROGRESS  insert, find, update and erase are lock-free, with two exceptions: an allocation waits
//   for latches of the heap (heap/heap.h), and a mutation waits while the gate of the pool is
//   closed for a batch or read_batch (reclaim/gate.h). An insert searches again only if another
//   insert of its stripe has succeeded, or an erase has, or if its slot was taken or sealed. Until
//   the extent table is read after an open, updates and erases may also wait for a reader of it
//   (heap/table.h). Updates and erases wait for an erase_if of their stripe, and it waits for them,
//   across one fence. An insert and an erase_if do not wait for each other. An expansion is
//   lock-free, except for an allocation. No operation waits for the rehash. The rehash goes on
//   beside an insert that is stopped anywhere. It leaves a range for later if an erase is between
//   death and slot there, or if an insert moves an item up from there; all other ranges drain. The
//   level stays until those, and the ranges of stopped threads, are done, and until no thread may
//   store the level's word. A scan stops the rehash. A thread that is stopped in one of these, or
//   while it zeroes the next level, holds up no operation but scans: levels are added, up to 15. An
//   insert that needs a level before it lies ready zeroes one itself, of 4 KiB, four times as much
//   for every level beyond the third: 64 MiB beyond the tenth. During the walk of a clean
//   open, a thread that stores into a slot takes a latch for it, and so does the walk (clevel.I9).
//   pool_full: inserts and byte updates fail, all else goes on. hash_overflow: an insert fails
//   because its buckets are full though the table is nearly empty; its keys were chosen to collide.
//   Inserts of other keys go on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "index/clevel/recovery.h"
#include "index/engine.h"
#include "index/engine_report.h"

namespace perdure::clevel {

template <class T>
class ClevelMap final : public Recovery<T> {
  using Base = Recovery<T>;
  using P = typename T::Platform;
  using G = typename T::Geometry;
  friend MapEngine<T, Root, ClevelMap, detail::Index>;
  friend State<T>;

 public:
  // Writes an empty map with room for about `capacity` entries. Returns the offset of its root
  // block, which is durable and not yet named.
  [[gnu::noinline]] static Expected<std::uint64_t> create(const EngineContext<P>& context,
                                                          const MapKinds& kinds,
                                                          std::uint64_t capacity) {
    P& platform = context.platform;
    // The hint may be wrong: the buckets leave three quarters of what the pool may grow to.
    const std::uint64_t most = context.heap.max_data_bytes() / 4 / sizeof(Bucket);
    std::uint64_t lower = lower_for(std::min(capacity, most * G::kSlots));
    while (lower > kMinBuckets && lower * 3 > most) lower /= 2;
    auto block = context.heap.allocate(sizeof(Root), BlockKind::plain);
    if (!block) return block;
    Root image{};
    image.magic = layout::kRootMagic;
    image.slots = G::kSlots;
    image.flags = (kBytesKeys ? layout::kBytesKeys : 0) |
                  (kinds.value == ValueKind::bytes ? layout::kBytesValues : 0);
    image.seed[0] = P::random();
    image.seed[1] = P::random();
    image.fixed_crc = fixed_crc_of(image);
    std::uint64_t made = 0;
    for (std::uint32_t i = 0; i < 2; ++i) {
      const std::uint64_t bytes = (lower << i) * sizeof(Bucket);
      auto level = context.heap.allocate(bytes, BlockKind::plain);
      if (!level) {
        if (made != 0) context.heap.free(made);
        context.heap.free(*block);
        return level;
      }
      made = *level;
      auto* buckets = context.heap.template at<Bucket>(made);
      platform.zero(buckets, bytes);
      platform.flush(buckets, bytes, "clevel.create.level"_site);
      image.levels[i] = level_word(made, lower << i);
    }
    auto* root = context.heap.template at<Root>(*block);
    platform.copy(root, &image, sizeof(image));
    platform.flush(root, sizeof(*root), "clevel.create.root"_site);
    if (!platform.fence("clevel.create.root"_site)) return fail(StatusCode::poisoned);
    return block;
  }

  [[gnu::noinline]] static Expected<std::unique_ptr<EngineInstance>> open(
      const EngineContext<P>& context, std::uint64_t root) {
    return make_instance<ClevelMap>(context, root, sizeof(Root));
  }

  [[gnu::noinline]] ~ClevelMap() override {
    end_background();  // reclaimers point here
    const LevelList* list = levels_.load(std::memory_order_acquire);
    if (list == nullptr) return;
    for (const Level* level : *list) delete level;
    for (const Level* level : list->coming()) delete level;
    delete list;
  }

  void start() noexcept override {
    std::uint64_t& opened = root_->opened;
    if (context_.platform.load(opened) == 0) {
      context_.platform.store(opened, layout::kOpened);
      (void)persist(&opened, sizeof(opened), "clevel.start.opened"_site);
    }
    context_.background.add(ahead_);
    context_.background.add(rehash_, BackgroundWork<P>::kMaxWidth);
  }

  void release_blocks() override {
    end_background();
    Base::release_blocks();
  }

 private:
  using Base::ahead_, Base::context_, Base::kBytesKeys, Base::level_word, Base::levels_,
      Base::lower_for, Base::persist, Base::rehash_, Base::root_;
  using Base::Base;

  [[gnu::noinline]] void end_background() {
    context_.background.remove(rehash_);
    context_.background.remove(ahead_);
    context_.epochs.drain_all();
  }
};

template <Platform P, class Codec, class G = DefaultGeometry>
using Clevel = ClevelMap<Traits<P, Codec, G>>;

}  // namespace perdure::clevel
