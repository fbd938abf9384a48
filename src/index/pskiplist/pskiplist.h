// PSkipList: a persistent ordered map that keeps the history of its keys, version by version.
//
// WHAT  The multi-version ordered store of Nicolae (IPDPS 2022): a history per key, appended to, in
//   persistent memory; the order of keys in DRAM only, rebuilt from a chain of key blocks; tag()
//   closes a version. WHEN: snapshots, history, time travel. WHEN NOT: the restart time must not
//   depend on the number of keys, or only the latest state is read (phast). Deviations, and the
//   reasons, in docs/design/pskiplist.md: an entry per version, not per operation; the first entry
//   lies in the key's slot; leaves under PhaST's inner nodes in place of a skiplist.
// LAYOUT  layout.h (media); key_node.h, directory.h, key_chain.h (DRAM).
// READING PATH  (lines) Core: layout.h 107, stashes.h 146, key_node.h 207, key_chain.h 338,
//   leaf.h 169, directory_lookup.h 223, directory_build.h 315, directory.h 328, state.h 259,
//   lookup.h 457, write.h 543, recovery.h 590. Optional: key_hints.h 430, segment_reserve.h 83,
//   trim.h 354. Of the core files, the sections on batches and checks are optional, too. Each class
//   derives from the one before: map_engine.h -> state.h -> lookup.h -> write.h -> trim.h ->
//   recovery.h -> pskiplist.h.
// INVARIANTS  (C: after any crash; D: in DRAM)
//   pskiplist.I1 C  A slot counts iff its stamp is not 0. The versions of a history's entries rise.
//         Entries behind the first empty one are empty. The value of a removed entry names nothing.
//   pskiplist.I2 D  The key of every slot that counts has one node in the directory. If a node in
//         the directory has no slot, its holder writes its first entry, or takes it away.
//   pskiplist.I3 D  A write's version is the clock as it was loaded after the node was `unstamped`
//         with a number that no other stamp of the node has (pskiplist.N1). No thread reads past an
//         unstamped node without stamping it. So if a read sees a write of version p + 1, no write
//         of a version up to p comes later.
//   pskiplist.I4 D  An entry changes, or goes, in `stamped(p)` and only if p is its version. So no
//         reader of a closed version has seen the entry before the change.
//   pskiplist.I5 D  A node is dead after its slot is durably free, or if it never got one. It
//         leaves the directory before the operation that killed it returns.
//   pskiplist.I6 C  Entries that are superseded below `horizon` may be missing. Those of all other
//         versions are there. The horizon is durable, then known in DRAM, before the first of those
//         entries goes.
//   pskiplist.I7 C  While rollback_to is not 0, entries of versions in (from, to] do not count.
//   pskiplist.I8 C  The limit is not below any version that tag() has returned. No entry's version
//         is above the one that follows the limit. If the pool makes cuts, that holds after a power
//         failure, too: a cut has the limit before a version up to it is closed.
//   pskiplist.I9 C  Blocks of the chain and segments are durably zero before they are linked.
//         Records are durable as a whole before they are named.
// OPERATIONS  (LP linearization, PP persist point; F write-backs, S fences; k lines of a record)
//   insert  (records, F*k, S) -> node held -> [new: in the directory, slot] -> unstamped -> stamped
//           (LP, if it succeeds) -> value, stamp [new: key, more before] -> F S (PP) -> idle.
//           1F 1S; 2F 1S if the entry begins a segment; with records + F*k, S.
//   update  the same; in place if the last entry has this version.
//   update_if, erase_if  as update and erase, after a look at the value while the node is held.
//   erase   the same with a removed entry; 0 as the slot's stamp if no other version can see the
//           key -> F S (PP) -> dead -> out of the directory.
//   find    state -> the node's copy of the last entry -> state again (LP: the second load). 0F 0S;
//           in state `stored` it writes back and fences the entry's line; in `stamped` it waits.
//   read_at state (only a write of its version or below matters) -> the copy -> state again; if the
//           last entry is too new, or the state is not the same `idle`: history, each link before
//           the entries that a trim replaces by it -> horizon. LP: the tag.
//   tag     (limit, F S, a cut, if the clock has reached it) -> clock + 1 (LP). 0F 0S.
//   scan    leaf after leaf; each entry is a find. scan_at: all of them at one version; the horizon
//           after each leaf, and at the end.
//   history a find (LP) -> the entries before its own, each stamp before and after its value.
//   trim    horizon, F S -> key after key: segment with the entries that stay, F S -> `more`, F S
//           -> first entry's stamp, F S. No step changes a version that can be read.
//   rollback  (limit, as tag) -> from, to, F S (PP) -> entries of every key, F; S -> to = 0,
//           from = 0, F S. Alone.
// ORDERING
//   state     `unstamped` is stored by an exchange (seq_cst), then the clock is loaded (seq_cst).
//             The clock is raised (seq_cst), then states are loaded (seq_cst). So if a writer
//             stamps with the old clock, every reader of the closed version has seen that writer.
//             For a new key a reader gets to the state by a hint or the leaf (acquire). The writer
//             has stored both before the exchange, and hints that lack the key say so only if it
//             has no version (key_hints.h, ABSENCE). A reader that has seen a clock that the writer
//             has not seen must see the key. This rests on x86-64, where the writer's exchange and
//             the tag's compare-and-swap are full fences. C++ alone would allow the reader to miss
//             the key.
//   unstamped, stored  carry the number of the write. A thread that has loaded one, and stamps or
//             returns by it, does so for that write or not at all.
//   entry     value, then stamp; slot: key, more, value, stamp: one line, a crash keeps a prefix.
//   more      stored (release) before the first entry is dropped, loaded (acquire) before that
//             entry. So after two trims a reader still finds the entry that removed the key.
//   horizon   stored (seq_cst) before an entry goes, loaded last by readers of a version.
// RECOVERY  O(keys + entries). In parallel: the blocks of the chain, i mod T; histories; sorting
//   each thread's keys; then leaves and hints, by chunks of neighbouring keys
//   (directory_build.h). What the root says of versions is believed if tag, trim and rollback can
//   have stored it. Only a rollback that was cut short is repaired: first, key by key, in segments
//   that the heap has marked as that key's. The clock begins above the limit: no tag has closed
//   that version, and no entry is above it.
//   Non-authoritative pointers: all words of slots whose stamp is 0; values of removed and dropped
//   entries.
// RECLAMATION  Records, segments, blocks, nodes and leaves go through epochs, after the fence of
//   their unlink. Slots are free at once: a reader of the latest value loads the state again, and
//   to a reader at a version the slot's next entry is too new.
// PROGRESS  Writes of one key wait for each other, also while one that begins a segment allocates
//   it. A find waits for a write of its key between its stamp and its stores, a few instructions.
//   If the write begins a segment, or gives its key back, the find waits for its fence. Readers of
//   closed versions wait only for writes that began before their tag. Writes of different keys meet
//   in a leaf or a bucket of hints, and once in 32 new or given-back keys of a thread at a latch.
//   Latches that are held across a fence: of the chain's links, which only a claim that finds no
//   slot waits for; of the limit; of pins, by trim. tag waits for nothing, or for the fence of the
//   limit, its own or another tag's, and then for a cut, if the pool makes cuts: in no guard of its
//   own, with no latch. After its LP it waits for the heap, if the reserve is not full. pool_full:
//   writes that need space fail. Erases fail if they append, their history's segment is full, and
//   the reserve is used up. trim never fails: without room it copies nothing, and drops whole
//   segments only.
#pragma once

#include <cstdint>
#include <memory>

#include "index/pskiplist/recovery.h"

namespace perdure::pskiplist {

struct Peek;

template <class T>
class PSkipListMap final : public Recovery<T> {
  using Base = Recovery<T>;
  using Base::context_;
  using typename Base::P, typename Base::Codec;
  friend MapEngine<T, layout::Root, PSkipListMap, detail::VersionedIndex>;
  friend struct Peek;  // of tests, into nodes

 public:
  using DirectoryT = Directory<T>;

  [[gnu::noinline]] static Expected<std::uint64_t> create(const EngineContext<P>& context,
                                                          const MapKinds& kinds) {
    P& platform = context.platform;
    auto block = context.heap.allocate(sizeof(layout::Root), BlockKind::plain);
    if (!block) return block;
    layout::Root head{};
    head.magic = layout::kRootMagic;
    head.geometry = T::Geometry::kBlockSlots;
    head.flags = (Codec::kBytes ? layout::kBytesKeys : 0) |
                 (kinds.value == ValueKind::bytes ? layout::kRecordValues : 0);
    head.fixed_crc = fixed_crc_of(head);
    head.horizon = 1;
    auto* root = context.heap.template at<layout::Root>(*block);
    platform.copy(root, &head, sizeof(head));
    platform.flush(root, sizeof(head), "pskiplist.create.root"_site);
    if (!platform.fence("pskiplist.create.root"_site)) return fail(StatusCode::poisoned);
    return block;
  }
  [[gnu::noinline]] static Expected<std::unique_ptr<EngineInstance>> open(
      const EngineContext<P>& context, std::uint64_t root) {
    return make_instance<PSkipListMap>(context, root, sizeof(layout::Root));
  }
  PSkipListMap(const EngineContext<P>& context, std::uint64_t root) : Base(context, root) {}
  ~PSkipListMap() override { context_.epochs.drain_all(); }  // reclaimers point here

  detail::VersionedIndex* versioned() noexcept override { return this; }
};

template <Platform P, class Codec, class G = DefaultGeometry>
using PSkipList = PSkipListMap<Traits<P, Codec, G>>;

}  // namespace perdure::pskiplist
