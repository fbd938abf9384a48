// PhastMap: a persistent ordered map. Leaves in persistent memory, everything above them in DRAM.
//
// WHAT  PhaST (Li et al., TPDS 2022): prefix partitions, index cache, inner nodes, leaves of up to
//   60 entries. WHEN: the default; fastest ordered map, scans. WHEN NOT: restart must not depend on
//   the number of leaves (recovery reads each once). docs/design/phast.md gives the deviations and
//   their reasons: an entry commits itself, so an insert is one write-back and one fence instead of
//   two; leaves hold 60 entries, not 56, since neither bitmap nor fingerprints are kept on media;
//   slots of deleted entries are reused, empty leaves freed.
// LAYOUT  layout.h (media), leaf_table.h (descriptors), ordered/inner.h (DRAM levels).
// READING PATH  (lines) Core: layout.h 78, codec.h 52, leaf_table.h 337, zero_latch.h 65,
//   state.h 153, lookup.h 771, structure.h 490, write.h 600, recovery.h 760. Optional:
//   batch_room.h 205, beside.h 125, batch_latch.h 221, move.h 197; write_many and check() have no
//   files of their own, and in each section of a class they follow the core. Each layer derives
//   from the one before it: MapEngine -> state.h -> lookup.h -> structure.h -> batch_room.h ->
//   beside.h -> write.h -> batch_latch.h -> move.h -> recovery.h -> phast.h.
// INVARIANTS  (C: after any crash; D: in DRAM)
//   phast.I1 C  The leaves of a partition form one chain from its head; bounds strictly increase to
//         the partition's own, except that a half-done split leaves two neighbours with one bound.
//   phast.I2 C  An entry counts iff its commit word is not 0 and its key lies in (left bound,
//         bound]. Such keys are unique. Entries outside stay garbage, because a bound never rises.
//   phast.I3 C  A new leaf, its separator and its records are durable before the link that makes
//         them reachable.
//   phast.I6 C  (byte strings) While an entry that a split has moved is not durably zero in its old
//         leaf, the new leaf is as the split has made it. So an entry is stale iff the right
//         neighbour names its record.
//   phast.I4 D  Everything that a returned operation has seen is durable (docs/durability.md).
//         Inserts publish in DRAM after their fence. Updates and erases hold the key's stripe from
//         before the store until after the fence. A reader that took such a value, or missed
//         because of it, checks the stripe afterwards. It finds the stripe held, writes the line
//         back and fences first.
//   phast.I5 D  Writers of one key exclude each other by the key's latch stripe in the leaf's
//         descriptor. All four stripes together exclude every writer of the leaf: split and unlink
//         hold them.
// OPERATIONS  (LP linearization, PP persist point; F write-backs, S fences; k lines of a record)
//   insert  claim slot and stripe by one CAS -> value, then commit word -> F S (PP) ->
//           fingerprint (LP) -> release. 1F 1S; with a record first F*k and S: (k+1)F 2S.
//   update  stripe -> value word (LP) -> F S (PP) -> release. 1F 1S; by record (k+1)F 2S.
//   erase   stripe -> commit word 0 (LP) -> version -> F S (PP) -> fingerprint 0 -> release, and
//           the slot is free. 1F 1S.
//   update_if, erase_if  as update and erase, after a look at the value under the stripe.
//   many    up to 16: records, F*k each, one S -> all stripes, all stores, F each, one S (PP of
//           all) -> all fingerprints and releases. Each has the LP of its single operation.
//   find    version -> range -> stripe (phast.D5) -> fingerprints -> entry -> stripe -> version
//           again. 0F 0S; when the stripe is held at the end, the candidates' lines and 1S.
//   split   new leaf whole, F*16 S -> next, bound (one line), F S (PP) -> new descriptor -> next
//           -> bound -> version -> fingerprints -> version. 17F 2S. Byte strings: the separator's
//           lines too; then moved slots are zeroed, up to 15F, S -> release of the new leaf.
//   unlink  left neighbour's next, F S (PP) -> version (dead) -> low of the right neighbour ->
//           retire.
//   move    of a record, by compact(): F*k of the copies of a leaf, one S -> each word as an update
//           by a record. No LP: the value stays (move.h).
//   scan    per leaf a validated snapshot, delivered in order; not one operation.
// ORDERING
//   entry        value before commit word, same line: a crash keeps a prefix. The releases pair
//                with find's acquires.
//   fingerprint  after the fence, before the stripe's release.
//   version      raised (release) after low, bound, next changed and before a slot becomes free;
//                find loads it first and last.
//   stripes      loaded after the value: if the store was seen, the stripe is held, unless its
//                fence is over. Released by a plain byte store, so no locked instruction stands
//                between a fence and the next operation's loads. Hence loaded before, too:
//                phast.D5.
// RECOVERY  per partition in parallel: finish half-done splits (phast.I1) from the immutable `low`
//   of the new leaf; byte strings: zero moved entries (phast.I6), durably, before anything is
//   swept; mark leaves, separators, records; rebuild DRAM. Idempotent; O(leaves). No record of an
//   entry is read, except in maps with words in records, and after a kill in maps of older builds.
//   Non-authoritative pointers: `low` (except in a half-done split), entries outside the range.
// RECLAMATION  leaves, records, separators, descriptors through epochs, after the fence of their
//   unlink.
// PROGRESS  find and scan are lock-free, except while an inner node loses a leaf. If a stripe is
//   held, they wait a moment, then fence its holder and continue (without membarrier(2) they wait).
//   Writers block on a stripe, splits on a leaf. pool_full: inserts fail, all else continues.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "index/phast/recovery.h"
#include "index/traits.h"
#include "perdure/options.h"

namespace perdure::phast {

struct Peek;

template <class T>
class PhastMap final : public Recovery<T> {
  using Base = Recovery<T>;
  using Base::context_, Base::for_each_leaf, Base::inner_, Base::table_;
  using typename Base::Codec, typename Base::Leaf, typename Base::P;
  friend MapEngine<T, layout::Root, PhastMap, detail::OrderedIndex>;
  friend struct Peek;  // of tests, into leaves

 public:
  using Base::Base, Base::kBytes, Base::kEntries;

  [[gnu::noinline]] ~PhastMap() override {
    context_.epochs.drain_all();  // reclaimers point here
    if constexpr (kBytes) {
      if (table_.empty()) return;
      for_each_leaf([this](std::uint32_t number) {
        auto& separators = table_[number].separators;
        inner_.release(separators.bound.load(std::memory_order_relaxed));
        inner_.release(separators.low.load(std::memory_order_relaxed));
      });
      context_.epochs.drain_all();
    }
  }

  // Returns the number of partitions that pays for a map of so many entries; 0: unknown. Each
  // partition begins with a leaf, and its prefix saves something only if it has some hundred
  // entries.
  static std::uint32_t partition_bits_for(std::uint64_t capacity) {
    constexpr std::uint32_t kDefaultBits = 4;
    constexpr std::uint32_t kMostBits = 7;
    constexpr std::uint64_t kPartitionEntries = 512;
    if (capacity == 0) return kDefaultBits;
    std::uint32_t bits = 0;
    while (bits < kMostBits && capacity >> bits > kPartitionEntries) ++bits;
    return bits;
  }

  // Writes an empty map and returns the offset of its root block. The map is durable; nothing names
  // it yet.
  [[gnu::noinline]] static Expected<std::uint64_t> create(const EngineContext<P>& context,
                                                          const MapKinds& kinds,
                                                          const PhastOptions& options) {
    const std::uint32_t bits = options.partition_bits == PhastOptions::kAuto
                                   ? partition_bits_for(0)
                                   : options.partition_bits;
    if (bits > 16) {
      return fail(StatusCode::invalid_argument, "partition_bits %u; at most 16 are allowed", bits);
    }
    const std::uint32_t shift =
        options.partition_shift == ~0U ? 64 - bits : options.partition_shift;
    if (bits > 0 && (shift > 64 - bits)) {
      return fail(StatusCode::invalid_argument,
                  "partition_shift %u leaves fewer than %u bits above it", shift, bits);
    }
    P& platform = context.platform;
    const ordered::Partitioning partitioning{.bits = bits, .shift = bits == 0 ? 0 : shift};
    const std::uint32_t count = partitioning.count();
    const std::size_t bytes = sizeof(layout::Root) + count * 8ULL;
    // Rounded up to lines: blocks of such classes lie on line boundaries. The zero slot needs that.
    auto block = context.heap.allocate((bytes + kLine - 1) / kLine * kLine, BlockKind::plain);
    if (!block) return block;
    auto* root = context.heap.template at<layout::Root>(*block);
    auto* master = reinterpret_cast<std::uint64_t*>(root + 1);
    std::uint32_t made = 0;
    Status s;
    for (; made < count; ++made) {
      auto head = context.heap.allocate(sizeof(Leaf), kStructureKind);
      if (!head) {
        s = std::move(head.error());
        break;
      }
      alignas(64) Leaf image{};
      image.bound = kBytes ? 0 : partitioning.bound(made);
      Leaf* leaf = context.heap.template at<Leaf>(*head);
      platform.copy(leaf, &image, sizeof(image));
      platform.flush(leaf, sizeof(*leaf), "phast.create.leaf"_site);
      platform.store(master[made], *head);
    }
    if (!s.ok()) {
      while (made > 0) context.heap.discard(platform.load(master[--made]));
      context.heap.free(*block);
      return fail(std::move(s));
    }
    layout::Root image{};
    image.magic = layout::kRootMagic;
    image.geometry = kEntries;
    image.partition_bits = bits;
    image.partition_shift = partitioning.shift;
    image.flags = (kBytes ? layout::kBytesKeys : 0) |
                  (!kBytes && kinds.value == ValueKind::bytes ? layout::kRecordValues : 0) |
                  (kBytes && kinds.value == ValueKind::word ? layout::kWordRecords : 0);
    image.fixed_crc = crc32c(fixed_crc_of(image), master, count * 8ULL);
    platform.copy(root, &image, sizeof(image));
    platform.flush(root, bytes, "phast.create.root"_site);
    if (!platform.fence("phast.create.root"_site)) return fail(StatusCode::poisoned);
    return block;
  }

  [[gnu::noinline]] static Expected<std::unique_ptr<EngineInstance>> open(
      const EngineContext<P>& context, std::uint64_t root) {
    return make_instance<PhastMap>(context, root, sizeof(layout::Root));
  }
};

template <Platform P, class Codec, class G = DefaultGeometry>
using Phast = PhastMap<Traits<P, Codec, G>>;

}  // namespace perdure::phast
