// Phast: a persistent ordered map. Leaves in persistent memory, everything above them in DRAM.
//
// WHAT  PhaST (Li et al., TPDS 2022): prefix partitions, index cache, inner nodes, leaves of up to
//   60 entries. WHEN: the default; fastest ordered map, scans. WHEN NOT: restart must not depend on
//   the number of leaves (recovery reads each once). Deviations, and why, in docs/design/phast.md:
//   an entry commits itself, so an insert is one write-back and one fence instead of two; leaves
//   hold 60 entries, not 56, since neither bitmap nor fingerprints are kept on media; slots of
//   deleted entries are reused, empty leaves freed.
// LAYOUT  layout.h (media), leaf_table.h (descriptors), inner.h (DRAM levels).
// INVARIANTS  (C: after any crash; D: in DRAM)
//   phast.I1 C  The leaves of a partition form one chain from its head; bounds strictly increase to
//         the partition's own, except that a half-done split leaves two neighbours with one bound.
//   phast.I2 C  An entry counts iff its commit word is not 0 and its key lies in (left bound,
//         bound]. Such keys are unique. Entries outside are garbage for ever, because a bound never
//         rises.
//   phast.I3 C  A new leaf, its separator and its records are durable before the link that makes
//         them reachable.
//   phast.I4 D  What a returned operation has seen is durable (docs/durability.md). Inserts publish
//         in DRAM after their fence. Updates and erases hold the key's stripe from before the store
//         until after the fence; whoever took such a value, or missed because of it, finds the
//         stripe held when it looks afterwards, and writes the line back and fences first.
//   phast.I5 D  Writers of one key exclude each other by the key's latch stripe in the leaf's
//         descriptor. All four stripes together exclude every writer of the leaf: split and unlink
//         hold them.
// OPERATIONS  (LP linearization, PP persist point; F write-backs, S fences; k lines of a record)
//   insert  claim slot and stripe by one CAS -> value, then commit word -> F S (PP) ->
//           fingerprint (LP) -> release. 1F 1S; with a record first F*k and S: (k+1)F 2S.
//   update  stripe -> value word (LP) -> F S (PP) -> release. 1F 1S; by record (k+1)F 2S.
//   erase   stripe -> commit word 0 (LP) -> version -> F S (PP) -> fingerprint 0 -> release, and
//           the slot is free. 1F 1S.
//   find    version -> range -> stripe (phast.D5) -> fingerprints -> entry -> stripe -> version
//           again. 0F 0S; when the stripe is held at the end, the candidates' lines and 1S.
//   split   new leaf whole, F*16 S -> next, bound (one line), F S (PP) -> new descriptor -> next
//           -> bound -> version -> fingerprints -> version. 17F 2S. Byte strings: the separator's
//           lines too, and moved slots are zeroed, up to 15F, fenced by the insert that follows in
//           the same guard.
//   unlink  left neighbour's next, F S (PP) -> version (dead) -> low of the right neighbour ->
//           retire.
//   scan    per leaf a validated snapshot, delivered in order; not one operation.
// ORDERING
//   entry        value before commit word, same line: a crash keeps a prefix. The releases pair
//                with find's acquires.
//   fingerprint  after the fence, before the stripe's release.
//   version      raised (release) after low, bound, next changed and before a slot becomes free;
//                find loads it first and last.
//   stripes      loaded after the value: if the store was seen, the stripe is held, unless its
//                fence is over. Released by a plain byte store: no locked instruction between a
//                fence and the next operation's loads. Hence also loaded before: phast.D5.
// RECOVERY  per partition in parallel: finish half-done splits (phast.I1) from the immutable `low`
//   of the new leaf; byte strings: zero entries outside their leaf's range, durably, before
//   anything is swept; mark leaves, separators, records; rebuild DRAM. Idempotent; O(leaves).
//   Non-authoritative pointers: `low` (except in a half-done split), entries outside the range.
// RECLAMATION  leaves, records, separators, descriptors through epochs, after the fence of their
//   unlink.
// PROGRESS  find and scan are lock-free except while an inner node loses a leaf: they wait a moment
//   for a stripe that is held, then fence its holder and go on (without membarrier(2) they wait);
//   writers block on a stripe, splits on a leaf. pool_full: inserts fail, all else goes on.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "index/engine.h"
#include "index/map_engine.h"
#include "index/ordered/inner.h"
#include "index/ordered/scan_range.h"
#include "index/phast/codec.h"
#include "index/phast/layout.h"
#include "index/phast/leaf_table.h"
#include "index/records.h"
#include "perdure/index.h"
#include "perdure/options.h"

namespace perdure::phast {

struct Peek;

template <Platform P, class Codec, class G = DefaultGeometry>
class Phast final : public MapEngine<P, Codec, Phast<P, Codec, G>, detail::OrderedIndex> {
  using Base = MapEngine<P, Codec, Phast<P, Codec, G>, detail::OrderedIndex>;
  friend Base;
  friend struct Peek;  // of tests, into leaves

 public:
  using Leaf = layout::Leaf<G>;
  using Entry = layout::Entry;
  using Table = LeafTable<P, Codec, G>;
  using Desc = typename Table::Desc;
  using Inner = ordered::InnerIndex<P, LeafTable<P, Codec, G>, G::kInnerLeaves>;
  static constexpr std::uint32_t kEntries = G::kLeafEntries;

  // Writes an empty map and answers the offset of its root block; durable, not yet named by
  // anything.
  static Expected<std::uint64_t> create(const EngineContext<P>& context, const MapKinds& kinds,
                                        const PhastOptions& options);
  // How many partitions a map of so many entries is worth: each begins with a leaf, and only with
  // some hundred does a prefix save anything.
  static std::uint32_t partition_bits_for(std::uint64_t capacity) noexcept {
    std::uint32_t bits = 0;
    while (bits < kDefaultBits && (capacity == 0 || capacity >> bits > kPartitionEntries)) ++bits;
    return bits;
  }
  // The instance of a root block; recover() comes next.
  static Expected<std::unique_ptr<EngineInstance>> open(const EngineContext<P>& context,
                                                        std::uint64_t root);

  Phast(const EngineContext<P>& context, std::uint64_t root) noexcept;
  ~Phast() override;

  // --- EngineInstance ---
  Expected<Recovered> recover(bool clean) override;
  Status close() override;

  // --- Index ---
  Expected<bool> erase(const detail::Key& key) override;
  Expected<bool> read(const detail::Key& key,
                      FunctionRef<void(const detail::Value&)> visit) override;
  Expected<std::uint64_t> read_many(
      std::span<const detail::Key> keys,
      FunctionRef<void(std::size_t, const detail::Value&)> visit) override;
  void stats(EngineStats& out) override;
  void check(const CheckOptions& options, Findings& report) override;
  Expected<void> scan(const detail::ScanRange& range,
                      FunctionRef<bool(std::span<const detail::Entry>)> visit) override;

 private:
  static constexpr std::uint32_t kDefaultBits = 7;
  static constexpr std::uint64_t kPartitionEntries = 512;
  using Base::absent;
  using Base::begin_mutation;
  using Base::begin_read;
  using Base::context_;
  using Base::pass_over;
  using Base::validate;
  using Base::with_room;
  using typename Base::Mode;
  static constexpr std::uint64_t kSlots = Desc::kSlots;
  static constexpr std::uint64_t kOrderNumber = (1ULL << 26) - 1;  // of a descriptor's order word
  static constexpr std::uint32_t kGroup = 16;                      // lookups in flight in read_many

  // A leaf entered by a reader: valid as long as its version is `version`.
  struct Entered {
    std::uint32_t number;
    std::uint64_t version;
  };

  // --- helpers ---
  Leaf& leaf_of(const Desc& desc) const noexcept {
    return *context_.heap.template at<Leaf>(
        std::uint64_t{desc.leaf.load(std::memory_order_relaxed)} * sizeof(Leaf));
  }
  // The line in which the key's entry lies if there was room, while its descriptor is on the way.
  [[gnu::always_inline]] void prefetch_home(std::uint32_t number,
                                            const Probe& probe) const noexcept {
    const Leaf* leaf =
        context_.heap.template at<Leaf>(std::uint64_t{table_.place(number)} * sizeof(Leaf));
    __builtin_prefetch(&leaf->entries[home_of<G>(probe.fingerprint) * kLineEntries]);
  }
  static std::uint64_t leaf_offset(const Desc& desc) noexcept {
    return std::uint64_t{desc.leaf.load(std::memory_order_relaxed)} * sizeof(Leaf);
  }
  const RecordPrefix* record_at(std::uint64_t word) const noexcept {
    return records_.at(word & kOffsetMask);
  }
  bool records() const noexcept { return Codec::kBytes || record_values_; }
  static unsigned stripe_of(const Probe& probe) noexcept {
    return probe.fingerprint % P::ByteLatches::kCount;
  }
  // For assertions: the caller holds the key's stripe in its leaf, which is linked.
  static bool holds(const Desc& desc, std::uint8_t fingerprint) noexcept {
    return (desc.holder(fingerprint % P::ByteLatches::kCount) & kHeld) != 0 && desc.linked();
  }

  // --- lookups ---
  Entered enter(const Probe& probe, std::uint32_t number) const noexcept;
  bool key_matches(const Entry& entry, const Probe& probe, std::uint64_t& value) const noexcept;
  std::uint32_t find_slot(const Desc& desc, const Probe& probe,
                          std::uint64_t& value) const noexcept;
  bool help(const Desc& desc, std::uint64_t slots) noexcept;
  bool value_of(std::uint64_t word, detail::Value& value) const noexcept;
  static Status damaged_record(std::uint64_t word) noexcept {
    return Records<P>::damaged(word & kOffsetMask);
  }
  Expected<bool> read_from(const Probe& probe, std::uint32_t start,
                           FunctionRef<void(const detail::Value&)> visit) noexcept;

  // --- mutations ---
  template <Mode kMode>
  Expected<bool> write(const detail::Key& key, const detail::Value& value);
  template <Mode kMode>
  Expected<bool> write_once(const detail::Key& key, const detail::Value& value);
  struct Latched {
    std::uint32_t number;
    std::uint32_t slot;  // claimed; kNoSlot if none was asked for, or is free
  };
  template <bool kClaims, bool kPresent>
  Latched latch_leaf(const Probe& probe) noexcept;
  Expected<std::uint64_t> stored_value(const Probe& probe, const detail::Value& value) noexcept;
  Status fill_slot(Desc& desc, std::uint32_t slot, const Probe& probe,
                   const detail::Value& value) noexcept;
  Status replace_value(Desc& desc, std::uint32_t slot, std::uint64_t before, const Probe& probe,
                       const detail::Value& value) noexcept;
  Status clear_slot(Desc& desc, std::uint32_t slot, std::uint64_t before) noexcept;
  Expected<bool> write_zero(const detail::Value& value, Mode mode) noexcept;
  Expected<bool> erase_zero() noexcept;
  Expected<bool> read_zero(FunctionRef<void(const detail::Value&)> visit) noexcept;

  // --- structure ---
  struct SplitPlan {
    std::uint32_t count = 0;             // visible entries
    std::uint32_t keep = 0;              // smallest of them that stay
    std::uint8_t order[64];              // slots by key
    std::uint8_t fingerprints[64] = {};  // of the new leaf, by slot
  };
  Status split(std::uint32_t number, const Probe& probe) noexcept;
  Status plan_split(const Desc& desc, const Probe& probe, SplitPlan& plan) const noexcept;
  Status split_latched(std::uint32_t number, SplitPlan& plan) noexcept;
  bool build_leaf(const Desc& old, SplitPlan& plan, Leaf& fresh, std::uint64_t low) noexcept;
  void publish_split(std::uint32_t number, std::uint32_t fresh, const SplitPlan& plan,
                     Separator<P>* middle, std::uint64_t fresh_offset) noexcept;
  void try_unlink(std::uint32_t number) noexcept;
  bool unlink_latched(std::uint32_t left, std::uint32_t number) noexcept;
  std::uint32_t sort_slots(const Leaf& leaf, std::uint64_t slots,
                           std::uint8_t* order) const noexcept;
  std::string_view key_of(std::uint64_t word) const noexcept;
  Probe probe_of(const Entry& entry) const noexcept;
  static void finish_leaf(void* self, std::uint64_t number) {
    static_cast<Phast*>(self)->free_leaf(static_cast<std::uint32_t>(number));
  }
  static void finish_order(void* self, std::uint64_t number) {
    static_cast<Phast*>(self)->table_.give_order(static_cast<std::uint32_t>(number));
  }
  static constexpr Reclaimer kLeafReclaimer{nullptr, &finish_leaf};
  static constexpr Reclaimer kOrderReclaimer{nullptr, &finish_order};
  void free_leaf(std::uint32_t number) noexcept;

  // --- scans ---
  struct Batch {
    std::uint32_t count = 0;
    std::uint32_t next = kNoLeaf;
    std::uint64_t low = 0, bound = 0;
    std::uint64_t damaged = 0;  // names a damaged record, if there is one
    const Separator<P>* low_separator = nullptr;
    const Separator<P>* bound_separator = nullptr;
    union {  // not initialised: only the first `count` are ever looked at
      detail::Entry entries[64];
    };
    Batch() noexcept {}  // NOLINT(modernize-use-equals-default): the union has none

    bool ends_before(const Probe& position) const noexcept {
      if (Codec::kBytes && position.word == bound) {
        return bound_separator != nullptr && compare(position, bound_separator->view()) > 0;
      }
      return position.word > bound;
    }
  };
  using Limits = ordered::Limits<Codec>;
  void prefetch_leaf(const Desc& desc) const noexcept;
  std::uint32_t first_at(const Leaf& leaf, const std::uint8_t* order, std::uint32_t count,
                         std::uint64_t word) const noexcept;
  bool snapshot(const Entered& entered, const Limits& limits, bool reverse, std::uint64_t limit,
                Batch& batch) noexcept;
  std::uint32_t collect_words(const Leaf& leaf, std::span<const std::uint8_t> order,
                              const Limits& limits, bool reverse, std::uint64_t limit,
                              Batch& batch) const noexcept;
  std::uint32_t collect_bytes(const Leaf& leaf, std::span<const std::uint8_t> order,
                              const Limits& limits, bool reverse, std::uint64_t limit,
                              Batch& batch) const noexcept;
  std::uint32_t ordered_slots(Desc& desc, const Leaf& leaf, const Entered& entered,
                              std::uint64_t visible, bool settled, std::uint8_t* order) noexcept;
  Expected<bool> scan_zero(const Limits& limits,
                           FunctionRef<bool(std::span<const detail::Entry>)> visit) noexcept;

  // --- recovery ---
  Status enumerate(Status (Heap<P>::*mark)(std::uint64_t) noexcept) noexcept;
  Status read_root() noexcept;
  bool root_intact(const layout::Root& image, std::size_t partitions) const noexcept;
  class LeafList;
  Status follow_chain(std::uint32_t partition, bool clean, LeafList& leaves) noexcept;
  Status recover_partition(std::uint32_t partition, bool clean) noexcept;
  Status finish_split(Leaf& left, Leaf& right) noexcept;
  Status load_slots(Desc& desc, Leaf& leaf, bool clean, bool& wrote) noexcept;
  Expected<bool> admit_bytes(Desc& desc, Entry& entry, bool clean, Probe& probe,
                             bool& wrote) noexcept;
  Expected<bool> admit_word(Desc& desc, const Entry& entry, Probe& probe) noexcept;
  Expected<bool> skip(Status why) noexcept;
  Status set_bounds(Desc& desc, const Leaf& leaf, const Desc* left,
                    std::uint32_t partition) noexcept;
  Status check_record(std::uint64_t word, bool deep) const noexcept {
    return records_.check(word & kOffsetMask, deep, "phast.record.crc"_site);
  }
  std::uint64_t leaf_crc(const Leaf& leaf) const noexcept;
  std::uint64_t values_crc(const Leaf& leaf, std::uint64_t visible) const noexcept;
  std::uint64_t* master() const noexcept { return reinterpret_cast<std::uint64_t*>(root_ + 1); }
  std::uint64_t zero_crc() const noexcept;
  template <class F>
  void for_each_leaf(F&& visit) const;
  void check_leaf(std::uint32_t number, Findings& report);
  void check_place(std::uint32_t number, const Desc* left, std::uint32_t partition,
                   Findings& report);
  void check_entries(std::uint32_t number, Findings& report);
  void check_order(std::uint32_t number, Findings& report);

  Records<P> records_{context_};
  std::uint64_t root_offset_;
  layout::Root* root_;
  bool record_values_ = false;  // integer keys with values of any size
  bool word_records_ = false;   // byte-string keys with word values
  Table table_;
  Inner inner_;
  typename P::Latch zero_latch_;
  typename P::template Atomic<std::uint64_t> splits_{0};
  typename P::template Atomic<std::uint64_t> unlinks_{0};
};

}  // namespace perdure::phast

#include "index/phast/phast_check.inl.h"    // IWYU pragma: keep
#include "index/phast/phast_find.inl.h"     // IWYU pragma: keep
#include "index/phast/phast_recover.inl.h"  // IWYU pragma: keep
#include "index/phast/phast_scan.inl.h"     // IWYU pragma: keep
#include "index/phast/phast_split.inl.h"    // IWYU pragma: keep
#include "index/phast/phast_write.inl.h"    // IWYU pragma: keep
