// SkiplistMap: the persistent ordered maps `as` and `ascs`, whose whole index is in the pool.
//
// WHAT  Atomic skiplists (Xiao et al., IEEE Access 2021): a skiplist that is changed by ordered
//   8-byte stores, without a log. `as` keeps every level consistent on the medium at every moment,
//   `ascs` level 0 only. WHEN: an ordered map that needs no index in DRAM: `as` if an open must
//   read no nodes, `ascs` for the fewest write-backs. WHEN NOT: the fastest ordered map (phast).
//   docs/design/atomic_skiplists.md lists the deviations and their reasons: a node is written back
//   whole before its link; a later operation writes the last link of a tower back; any number of
//   threads read and write.
// LAYOUT  layout.h, node.h. A node is key, value and tower in one block. Its first line holds the
//   key, the value word and the lowest five links. The head's links are in the root block.
// READING PATH  (lines) Core: layout.h 64, node.h 107, kinds.h 46, codec.h 55, writer_latch.h 54,
//   in_flight.h 45, stripes.h 144, state.h 260, lookup.h 496, towers.h 375, write.h 375,
//   rebuild.h 326, recovery.h 447. Optional: fingers.h 216. Each class derives from the one before
//   it, and the first one from MapEngine: state.h -> lookup.h -> towers.h -> write.h -> rebuild.h
//   -> recovery.h -> this.
// INVARIANTS  (C: after any crash; D: in DRAM)
//   skiplist.I1 C  Level 0 is a list of whole, durable nodes in ascending order. It is the map.
//   skiplist.I2 C  as: level i + 1 is a sub-list of level i. A node may be missing in the highest
//         levels of its tower, and never in one between two that it is in.
//   skiplist.I3 C  ascs: the levels above 0 may hold anything. No operation follows them. An open
//         looks for nodes there, and believes only in those that level 0 leads to.
//   skiplist.I4 D  In both engines every thread sees level i + 1 as a sub-list of level i: towers
//         are linked from below and unlinked from above.
//   skiplist.I5 D  A word of a reachable node changes with the node's stripe held (stripes.h), from
//         before the store until after the fence of the last store that a result can rest on. So
//         does a node that is linked or unlinked: no other change uses its place meanwhile. If a
//         stripe is free, all that its nodes have in level 0, and all links of towers but the one
//         that it owes, are durable. No thread holds a stripe across an allocation from the heap,
//         nor while it finishes retired blocks.
//   skiplist.I6 D  A node is marked erased (bit 63 of its state) after its unlink is durable and
//         before its stripe is released. If the holder of its stripe finds the bit clear in a node
//         that was in the list, the node is in the list, in all its levels.
//   skiplist.I7 D  All that a returned operation has seen is durable. The stripe of the node that
//         a result rests on announces the word that is being changed, from before the store until
//         after the fence. A reader looks there after it has read the word; it then writes the
//         word's line back and fences.
//   skiplist.I8 D  The links of an erased node do not change. They lead to the nodes that came
//         behind it.
//   skiplist.I9 C  In a cleanly closed map the root's sum is that of all nodes. If the walk behind
//         an open of `as` finds damage, it notes it in the root, durably. From then on no result is
//         "absent".
// OPERATIONS  (LP linearization, PP persist point; F write-backs, S fences; k lines of a node,
//   b of a blob, h height)
//   insert  lookup -> node without links -> path anew from where it was -> stripes of the path and
//           of the node; again if the path has changed -> links, F*k S -> announce -> link of level
//           0 (LP) -> F S (PP) -> withdraw -> as: link, F, S for each further level; F and S of the
//           last one are left to the next change that holds the node's stripe (skiplist.I2,
//           Stripe::owed). as (k+1)F 2S, of height h > 1 (k+h-1)F hS; ascs (k+1)F 2S; + 1F for each
//           link that is owed. A long value: its blob's bF with the node's.
//   update  of a word: stripe of the node; again if it is erased -> announce -> value and its check
//           (LP) -> F S (PP). 1F 1S. Of bytes: blob F*b S -> stripe -> announce -> value word (LP)
//           -> F S (PP) -> retire: (b+1)F 2S.
//   update_if, erase_if  as update and erase, after a look at the value with the stripe held.
//   erase   lookup -> path -> stripes of the path and of the node; again if they have changed ->
//           as: unlink, F S for each level from the top -> announce -> unlink level 0 (LP) -> F S
//           (PP) -> erased -> retire. as hF hS, + 1F for each link that is owed; ascs 1F 1S.
//   close   if the last owner was killed the walk to its end -> sum of the nodes, F; the pool
//           fences.
//   find    down and right from the head, or right from a finger. Found: LP a moment at which the
//           node was in the list; absent: one at which its neighbours were neighbours
//           (skiplist.I8). 0F 0S; if the key is in flight 1F 1S. as, after a kill: the write-back
//           of each extent that no operation has visited before (AfterKill).
//   scan    batches of entries from level 0; backwards each batch from a node some entries before.
//           Not one operation.
// ORDERING
//   node       whole and fenced before the link to it (release); a reader's load acquires.
//   in_flight  in_flight.h.
//   LP         of a change: a locked instruction. Otherwise it could return with its store still in
//              its core's buffer. Of two threads that each change one key and then look up that of
//              the other, one must see the other's change, and they share no latch.
//   upper links  as: S between two levels of one tower, both ways. The last link of an insert is
//              written back late: only a change that holds the node's stripe relies on it, and not
//              before its first fence.
//   value      before its check, in one line. A crash between them does no harm: checks count in a
//              cleanly closed pool only.
// RECOVERY  as: reads the root; O(1). mark_some() walks level 0 and verifies the links above
//   while the map serves; until its end mutations take turns with it and each other (latch_), and
//   each confirms its path before it stores. An insert or erase that was interrupted has left links
//   missing above, and needs no repair. ascs: walks level 0 from many nodes at once, with all
//   threads of the recovery (rebuild.h), marks the nodes, and links the towers anew from the
//   durable heights. What a dead process left visible
//   becomes durable before a result or a store rests on it: `as` settles every node that it visits.
//   Non-authoritative pointers: all links above level 0 of ascs.
// RECLAMATION  Nodes and blobs go through epochs, after the fence of the unlink from level 0 (and
//   from the levels above before it). During a sweep a block is marked before it is unlinked.
// PROGRESS  find and scan are wait-free except for the length of the list that they walk. There is
//   one exception: in `as`, until the walk behind an open after a clean close is over, a lookup
//   that meets an update of a word between its two stores looks again, and in the end waits for
//   the node's stripe. insert, update, erase: a change waits for changes of its key and of
//   neighbours, and for those of another key with which it shares a stripe, one in 512. It holds
//   its stripes for its fences. The paper has one writer. pool_full: inserts and updates of bytes
//   fail; all else continues.
#pragma once

#include <memory>
#include <optional>

#include "index/skiplist/recovery.h"

namespace perdure::skiplist {

template <class T>
class SkiplistMap final : public Recovery<T> {
  using Base = Recovery<T>;
  using typename Base::P, typename Base::Codec, typename Base::Kind;
  friend MapEngine<T, layout::Root, SkiplistMap, detail::OrderedIndex>;
  friend struct Peek;  // of tests, which break invariants with it

 public:
  using Base::Base;
  ~SkiplistMap() override { this->context_.epochs.drain_all(); }  // tables of fingers_

  // Writes an empty map and returns the offset of its root block, which is durable and not yet
  // named.
  static Expected<std::uint64_t> create(const EngineContext<P>& context, const MapKinds& kinds) {
    P& platform = context.platform;
    auto block = context.heap.allocate(Base::kRootBytes, BlockKind::plain);
    if (!block) return block;
    layout::Root image{};
    image.magic = layout::kRootMagic;
    image.max_height = Base::kMaxHeight;
    image.flags = (Codec::kBytes ? layout::kBytesKeys : 0) |
                  (kinds.value == ValueKind::bytes ? layout::kBytesValues : 0) |
                  (Kind::kUpperDurable ? layout::kUpperDurable : 0);
    image.fixed_crc = fixed_crc_of(image);
    auto* root = context.heap.template at<layout::Root>(*block);
    platform.zero(root, Base::kRootBytes);
    platform.copy(root, &image, sizeof(image));
    platform.flush(root, Base::kRootBytes, kSite<Kind, "create.root">);
    if (!platform.fence(kSite<Kind, "create.root">)) return fail(StatusCode::poisoned);
    return block;
  }
  // Returns the instance of a root block whose values are said to be of this kind; recover() comes
  // next.
  static Expected<std::unique_ptr<EngineInstance>> open(
      const EngineContext<P>& context, std::uint64_t root,
      std::optional<ValueKind> values = std::nullopt);
};

// Not inline: a test with `extern template` must not instantiate the constructor and thereby all
// virtual functions.
template <class T>
Expected<std::unique_ptr<EngineInstance>> SkiplistMap<T>::open(const EngineContext<P>& context,
                                                               std::uint64_t root,
                                                               std::optional<ValueKind> values) {
  return make_instance<SkiplistMap>(context, root, Base::kRootBytes, values);
}

template <Platform P, class Codec, class Kind, class G = DefaultGeometry>
using Skiplist = SkiplistMap<Traits<P, Codec, Kind, G>>;

}  // namespace perdure::skiplist
