// PSkipList: a persistent ordered map that keeps what its keys were, version by version.
//
// WHAT  The multi-version ordered store of Nicolae (IPDPS 2022): a history per key, appended to, in
//   persistent memory; the order of keys in DRAM only, rebuilt from a chain of key blocks; tag()
//   closes a version. WHEN: snapshots, history, time travel. WHEN NOT: restart must not depend on
//   the number of keys; the latest state is all that is asked for (phast). Deviations, and why, in
//   docs/design/pskiplist.md: an entry per version, not per operation; the first entry lies in the
//   key's slot; leaves under PhaST's inner nodes in place of a skiplist.
// LAYOUT  layout.h (media); key_node.h, directory.h, key_chain.h (DRAM).
// INVARIANTS  (C: after any crash; D: in DRAM)
//   pskiplist.I1 C  A slot counts iff its stamp is not 0. The versions of a history's entries rise;
//         entries behind the first empty one are empty. A removed entry's value names nothing.
//   pskiplist.I2 D  The key of every slot that counts has one node, in the directory; of a node in
//         the directory that has no slot, the holder is writing its first entry, or taking it away.
//   pskiplist.I3 D  A write's version is the clock as it was loaded after its node was `unstamped`,
//         with a number that no other stamp of the node has (pskiplist.N1). Nobody reads past an
//         unstamped node without stamping it. So what is read with a write of version p + 1 is of
//         no version up to p that comes later.
//   pskiplist.I4 D  An entry changes, or goes, in `stamped(p)` and only if p is its version: no
//         reader of a closed version has seen it as it was.
//   pskiplist.I5 D  A node is dead after its slot is durably free, or where it never got one, and
//         leaves the directory before the operation that killed it returns.
//   pskiplist.I6 C  Entries that are superseded below `horizon` may be missing; those of all other
//         versions are there. The horizon is durable, then known in DRAM, before the first of them
//         goes.
//   pskiplist.I7 C  While rollback_to is not 0, entries of versions in (from, to] do not count.
//   pskiplist.I8 C  The limit is not below any version that tag() has answered; no entry's version
//         is above the one that follows it.
//   pskiplist.I9 C  Blocks of the chain and segments are durably zero before they are linked,
//         records whole.
// OPERATIONS  (LP linearization, PP persist point; F write-backs, S fences; k lines of a record)
//   insert  (records, F*k, S) -> node held -> [new: in the directory, slot] -> unstamped -> stamped
//           (LP, if it succeeds) -> value, stamp [new: key, more before] -> F S (PP) -> idle.
//           1F 1S; 2F 1S if the entry begins a segment; with records + F*k, S.
//   update  the same; in place if the last entry has this version.
//   erase   the same with a removed entry; 0 as the slot's stamp if no other version can see the
//           key -> F S (PP) -> dead -> out of the directory.
//   find    state -> the node's copy of the last entry -> state again (LP: the second load). 0F 0S;
//           in state `stored` it writes back and fences the entry's line; in `stamped` it waits.
//   read_at state (only a write of its version or below matters) -> the copy -> state again; if the
//           last entry is too new, or the state is not the same `idle`: history, links before what
//           a trim replaces by them -> horizon. LP: the tag.
//   tag     (limit, F S, if the clock has reached it) -> clock + 1 (LP). 0F 0S.
//   scan    leaf after leaf; each entry is a find. scan_at: all of them at one version; the horizon
//           after each leaf, and at the end.
//   history a find (LP) -> the entries before its own, each stamp before and after its value.
//   trim    horizon, F S -> key after key: segment with what stays, F S -> `more`, F S -> first
//           entry's stamp, F S. Each step leaves every version that can be read as it was.
//   rollback  from, to, F S (PP) -> entries of every key, F; S -> to = 0, from = 0, F S. Alone.
// ORDERING
//   state     unstamped is stored by an exchange (seq_cst), then the clock is loaded (seq_cst); the
//             clock is raised (seq_cst), then states are loaded (seq_cst): a writer that stamps
//             with the old clock was seen by every reader of the version that was closed.
//             For a key that is being added a reader comes to its state by a hint or the leaf,
//             acquire: that it sees the key, as it has seen the clock that the writer has not,
//             rests on x86-64, where the writer's exchange and the tag's compare-and-swap are full
//             fences. C++ alone would allow both as they were before.
//   unstamped, stored  carry the number of the write: who has loaded one, and stamps or answers by
//             it, does so for that write or not at all.
//   entry     value, then stamp; slot: key, more, value, stamp: one line, a crash keeps a prefix.
//   more      stored (release) before the first entry is dropped, loaded (acquire) before that: two
//             trims under a reader leave it what says that the key was removed.
//   horizon   stored (seq_cst) before an entry goes, loaded by readers of a version last.
// RECOVERY  O(keys + entries). In parallel: the blocks of the chain, i mod T; histories; sorting
//   each thread's keys; the hints. By one thread: merging what they sorted, building the leaves.
//   What the root says of versions is believed if tag, trim and rollback can have stored it. Only a
//   rollback that was cut short is repaired, first, key by key, in segments that the heap has
//   marked as that key's. The clock begins above the limit: no tag has closed that version, and no
//   entry is above it.
//   Non-authoritative pointers: all words of slots whose stamp is 0; values of removed and dropped
//   entries.
// RECLAMATION  records, segments, blocks, nodes and leaves through epochs, after the fence of their
//   unlink. Slots at once: who reads the latest value looks at the state again, and to who reads at
//   a version what comes later is too new.
// PROGRESS  writes of one key wait for each other, also while one that begins a segment
//   allocates it. A find waits for a write of its key between its stamp and its store, a few
//   instructions, or where it begins a segment or gives its key back, for its fence; readers of
//   closed versions only for writes that began before their tag. Latches that are held across a
//   fence: of free slots, where a block of the chain comes or goes; of the limit; of pins, by
//   trim. tag waits for nothing, or for the fence of the limit, its own or another tag's; behind
//   its LP for the heap, where the reserve is not full. pool_full: writes that need space fail;
//   erases, where they append and their history's segment is full, once the reserve is used up;
//   trim never: without room it copies nothing, and drops whole segments only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "index/map_engine.h"
#include "index/ordered/scan_range.h"
#include "index/pskiplist/directory.h"
#include "index/pskiplist/key_chain.h"
#include "index/pskiplist/key_node.h"
#include "index/pskiplist/layout.h"
#include "index/pskiplist/segment_reserve.h"
#include "index/records.h"
#include "perdure/index.h"
#include "util/containers.h"

namespace perdure::pskiplist {

struct Peek;

template <Platform P, class Codec, class G = DefaultGeometry>
class PSkipList final : public MapEngine<P, Codec, PSkipList<P, Codec, G>, detail::VersionedIndex> {
  using Base = MapEngine<P, Codec, PSkipList<P, Codec, G>, detail::VersionedIndex>;
  friend Base;
  friend struct Peek;  // of tests, into nodes

 public:
  using Node = KeyNode<P>;
  using Entry = layout::Entry;
  using Slot = layout::Slot;
  using Segment = layout::Segment;
  using DirectoryT = Directory<P, Codec, G>;
  using Chain = KeyChain<P, G>;

  static Expected<std::uint64_t> create(const EngineContext<P>& context, const MapKinds& kinds);
  static Expected<std::unique_ptr<EngineInstance>> open(const EngineContext<P>& context,
                                                        std::uint64_t root);
  PSkipList(const EngineContext<P>& context, std::uint64_t root) noexcept;
  ~PSkipList() override;

  // --- EngineInstance ---
  detail::VersionedIndex* versioned() noexcept override { return this; }
  Expected<Recovered> recover(bool clean) override;
  Status close() override;

  // --- Index, OrderedIndex ---
  Expected<bool> erase(const detail::Key& key) override;
  Expected<bool> read(const detail::Key& key,
                      FunctionRef<void(const detail::Value&)> visit) override;
  Expected<std::uint64_t> read_many(
      std::span<const detail::Key> keys,
      FunctionRef<void(std::size_t, const detail::Value&)> visit) override;
  Expected<void> scan(const detail::ScanRange& range,
                      FunctionRef<bool(std::span<const detail::Entry>)> visit) override {
    return scan_versions(range, kLatest, visit);
  }
  void stats(EngineStats& out) override;
  void check(const CheckOptions& options, Findings& report) override;

  // --- VersionedIndex ---
  Expected<std::uint64_t> tag() override;
  detail::VersionRange versions() override;
  Expected<bool> read_at(const detail::Key& key, std::uint64_t version,
                         FunctionRef<void(const detail::Value&)> visit) override;
  Expected<void> scan_at(std::uint64_t version, const detail::ScanRange& range,
                         FunctionRef<bool(std::span<const detail::Entry>)> visit) override;
  Expected<void> history(const detail::Key& key,
                         FunctionRef<bool(const detail::VersionedValue&)> visit) override;
  Expected<void> diff(std::uint64_t from, std::uint64_t to, const detail::ScanRange& range,
                      FunctionRef<bool(const detail::Difference&)> visit) override;
  Expected<std::uint64_t> trim(std::uint64_t version) override;
  Status rollback(std::uint64_t version) override;
  Status pin(detail::VersionPin& pin, std::uint64_t version) override;
  void unpin(detail::VersionPin& pin) noexcept override;

 private:
  using Base::absent;
  using Base::begin_mutation;
  using Base::begin_read;
  using Base::context_;
  using Base::pass_over;
  using Base::validate;
  using Base::with_room;
  using typename Base::Mode;
  template <class T>
  using Atomic = typename P::template Atomic<T>;
  static constexpr std::uint64_t kLatest = ~std::uint64_t{0};  // in place of a version
  // The highest limit, so that the clock, which may be one above it, is a version.
  static constexpr std::uint64_t kLastVersion = layout::kMaxVersion - 1;

  // What a mutation brings to its node, durable and named by nothing, and what it takes from it.
  struct Fresh {
    std::uint64_t key = 0;       // record
    std::uint64_t value = 0;     // record
    std::uint64_t segment = 0;   // zero
    std::uint64_t replaced = 0;  // a record that nothing names any more
  };
  // What a reader finds: the entry that counts, 0: none; the key is there if it is not a removed
  // one.
  struct Found {
    std::uint64_t entry = 0;  // offset
    std::uint64_t word = 0;
    bool present = false;
  };

  // --- helpers ---
  static std::uint64_t version_of(std::uint64_t stamp) noexcept {
    return stamp >> layout::kStampShift;
  }
  static std::uint64_t stamp_of(std::uint64_t version, bool removed) noexcept {
    return version << layout::kStampShift | (removed ? layout::kRemoved : 0);
  }
  // For assertions: what a power failure leaves.
  bool persisted(std::uint64_t offset, std::size_t bytes) const noexcept {
    return context_.platform.persisted(context_.heap.template at<void>(offset), bytes);
  }
  Entry& entry_at(std::uint64_t offset) const noexcept {
    return *context_.heap.template at<Entry>(offset);
  }
  Slot& slot_at(std::uint64_t offset) const noexcept {
    return *context_.heap.template at<Slot>(offset);
  }
  Segment& segment_at(std::uint64_t offset) const noexcept {
    return *context_.heap.template at<Segment>(offset);
  }
  // 0 if no block lies there.
  std::uint32_t capacity_of(std::uint64_t segment) const noexcept {
    const std::size_t bytes = context_.heap.block_bytes(segment);
    if (bytes < sizeof(Segment)) [[unlikely]]
      return 0;
    return static_cast<std::uint32_t>((bytes - sizeof(Segment)) / sizeof(Entry));
  }
  static std::uint64_t entry_offset(std::uint64_t segment, std::uint32_t i) noexcept {
    return segment + sizeof(Segment) + i * sizeof(Entry);
  }
  static Found found_in(const End& end) noexcept { return {end.entry, end.value, end.present()}; }
  bool value_of(std::uint64_t word, detail::Value& value) const noexcept;
  std::uint64_t clock() const noexcept { return clock_.load(std::memory_order_seq_cst); }

  // --- lookups ---
  std::uint32_t find_with_slot(const Probe& probe) const noexcept;
  State settle_state(Node& node, std::uint64_t version) const noexcept;
  End latest(Node& node) const noexcept;
  void help(std::uint64_t entry) const noexcept;
  Found as_of(Node& node, std::uint64_t version) const noexcept;
  Found search(std::uint64_t offset, std::uint64_t version, std::uint32_t most) const noexcept;
  Expected<bool> show(const Found& found, std::uint64_t version,
                      FunctionRef<void(const detail::Value&)> visit) noexcept;
  Status readable(std::uint64_t version) const noexcept;
  bool is_segment(std::uint64_t offset) const noexcept;
  struct Steps {                    // from segment to segment
    bool wary = false;              // links may be damaged: of who only looks they always are
    std::uint32_t left = 1U << 20;  // then
  };
  std::uint64_t linked(const std::uint64_t& link, Steps& steps) const noexcept;
  Status follow(const std::uint64_t& link, Steps& steps, std::uint64_t& segment) const noexcept;
  using Limits = ordered::Limits<Codec>;
  struct Listing {  // what a leaf has within the limits, in the direction of the scan
    std::uint32_t count = 0;
    std::uint64_t words[G::kLeafKeys];
    std::uint32_t nodes[G::kLeafKeys];
  };
  detail::Key key_of(std::uint64_t word, std::uint32_t node) const noexcept;
  void within(const typename DirectoryT::Batch& batch, const Limits& limits, bool reverse,
              Listing& out) const noexcept;
  template <class F>
  Expected<void> for_each_leaf(const detail::ScanRange& range, F&& visit) noexcept;
  void prefetch(const Listing& listing, std::uint64_t limit, std::uint64_t version) const noexcept;
  Expected<void> scan_versions(const detail::ScanRange& range, std::uint64_t version,
                               FunctionRef<bool(std::span<const detail::Entry>)> visit) noexcept;
  template <class F>
  void for_each_entry(const Slot& slot, F&& visit, Steps steps = {}) const noexcept;

  // --- mutations ---
  template <Mode kMode>
  Expected<bool> write(const detail::Key& key, const detail::Value& value);
  template <Mode kMode>
  Expected<bool> write_once(const Probe& probe, const detail::Value& value) noexcept;
  template <Mode kMode>
  Expected<bool> write_held(std::uint32_t number, const Probe& probe, State held,
                            const detail::Value& value, Fresh& fresh) noexcept;
  Expected<bool> erase_once(const Probe& probe, bool full) noexcept;
  Status make_records(const Probe& probe, const detail::Value& value, bool key,
                      Fresh& fresh) noexcept;
  void discard(const Fresh& fresh) noexcept;
  bool hold(Node& node, State& held) noexcept;
  static void let_go(Node& node, State held, bool changed) noexcept;
  std::uint64_t stamp(Node& node, State held) noexcept;
  Expected<std::uint64_t> stamp_with_room(Node& node, State& held, bool reserved,
                                          Fresh& fresh) noexcept;
  Expected<std::uint64_t> new_segment(const Node& node, bool reserved) noexcept;
  bool must_grow(Node& node) const noexcept;
  std::uint32_t used_in_tail(const Node& node) const noexcept;
  Status write_first(Node& node, State held, std::uint64_t version, const Probe& probe,
                     std::uint64_t value, Fresh& fresh) noexcept;
  Status write_in_place(Node& node, State held, std::uint64_t version, std::uint64_t value,
                        bool removed) noexcept;
  Status append(Node& node, State held, std::uint64_t version, std::uint64_t value, bool removed,
                Fresh& fresh) noexcept;
  Status give_back(std::uint32_t number, const Probe& probe) noexcept;
  bool has_no_slot(const Node& node) const noexcept;
  void bury(std::uint32_t number, const Probe& probe) noexcept;
  template <class Site>
  void retire_value(std::uint64_t value, std::uint64_t stamp, Site site) noexcept;
  void retire_segments(std::uint64_t first, std::uint64_t end = 0) noexcept;
  Status extend_limit(std::uint64_t version) noexcept;

  // --- trim and rollback ---
  struct Trim {
    std::uint64_t horizon = 0;
    bool short_of_room = false;  // some keys have kept what may go
  };
  Status trim_slot(std::uint64_t offset, Trim& trim) noexcept;
  Status trim_key(std::uint32_t number, const Probe& probe, Trim& trim, bool& gone) noexcept;
  void retire_dropped(std::uint64_t first, std::uint64_t end, std::uint32_t drop) noexcept;
  Status keep_entries(Node& node, Slot& slot, std::uint32_t drop) noexcept;
  Status skip_segments(Slot& slot, std::uint32_t& drop) noexcept;
  Status relink(Slot& slot, std::uint64_t segment) noexcept;
  // The versions that a rollback takes away.
  struct Void {
    std::uint64_t from = 0, to = 0;  // (from, to]
    bool has(std::uint64_t version) const noexcept { return version > from && version <= to; }
  };
  bool outlives(const Slot& slot, const Void& gone) const noexcept;
  bool void_entries(Slot& slot, const Void& gone, bool freeing) noexcept;
  Status may_roll_back(std::uint64_t version, std::uint64_t open) noexcept;
  Status set_rollback(std::uint64_t from, std::uint64_t to) noexcept;
  void roll_back_node(std::uint64_t offset) noexcept;
  void place_end(Node& node, const Slot& slot) noexcept;

  // --- recovery, close ---
  // What one thread has found.
  struct Loader {
    Array<Listed> keys;
    std::uint64_t max_version = 0;
    std::uint32_t node = 0;  // the first of so many that are left for the keys of a block
    std::uint32_t row = 0;
    Status status;
  };
  Status read_root() noexcept;
  Status read_versions() noexcept;
  bool root_intact(const layout::Root& image) const noexcept;
  Status load_chain(bool clean) noexcept;
  Status load_block(std::uint32_t number, bool clean, Loader& loader) noexcept;
  Status check_segments(const Slot& slot) const noexcept;
  Status mark_segments(const Slot& slot) const noexcept;
  bool comes_before(const Listed& a, const Listed& b) const noexcept;
  Status sort_keys(Array<Listed>& keys) const noexcept;
  Status load_slot(std::uint32_t number, std::uint32_t i, bool clean, Loader& loader) noexcept;
  Status load_key(const Slot& slot, std::uint32_t node, std::uint64_t& word) noexcept;
  Status load_history(const Slot& slot, bool clean, Loader& loader) noexcept;
  Status load_entry(std::uint64_t offset, std::uint64_t& before, Loader& loader) noexcept;
  Status build_directory(Loader* loaders, std::size_t threads) noexcept;
  Status check_record(std::uint64_t offset, bool deep) const noexcept {
    return records_.check(offset, deep, "pskiplist.record.crc"_site);
  }
  std::uint64_t block_crc(std::uint64_t offset) const noexcept;
  std::uint64_t segment_crc(std::uint64_t offset) const noexcept;
  std::uint64_t root_crc() const noexcept;
  void set_crc(std::uint64_t& word, std::uint64_t crc) noexcept;
  static void free_node(void* self, std::uint64_t number) {
    static_cast<PSkipList*>(self)->nodes_.give(static_cast<std::uint32_t>(number));
  }
  static constexpr Reclaimer kNodeReclaimer{nullptr, &free_node};
  Status enumerate(Status (Heap<P>::*mark)(std::uint64_t) noexcept) noexcept;
  void check_key(std::uint32_t number, std::uint64_t word, bool deep, std::uint64_t& hinted,
                 Findings& report) noexcept;

  Records<P> records_{context_};
  std::uint64_t root_offset_;
  layout::Root* root_;
  bool record_values_ = false;
  NodeTable<P> nodes_;
  DirectoryT directory_;
  Chain chain_;
  SegmentReserve<P, G> reserve_;
  alignas(64) Atomic<std::uint64_t> clock_{1};
  alignas(64) Atomic<std::uint64_t> limit_{0};  // what is durable of it
  Atomic<std::uint64_t> horizon_{1};
  typename P::Latch limit_latch_;  // of root_->limit
  typename P::Latch trim_latch_;   // one trim or rollback at a time
  typename P::Latch pin_latch_;    // of pins_, and of horizon_ where it rises
  detail::VersionPin* pins_ = nullptr;
  Void void_;  // what recovery finds of a rollback that was cut short
};

}  // namespace perdure::pskiplist

#include "index/pskiplist/pskiplist_check.inl.h"     // IWYU pragma: keep
#include "index/pskiplist/pskiplist_find.inl.h"      // IWYU pragma: keep
#include "index/pskiplist/pskiplist_recover.inl.h"   // IWYU pragma: keep
#include "index/pskiplist/pskiplist_trim.inl.h"      // IWYU pragma: keep
#include "index/pskiplist/pskiplist_versions.inl.h"  // IWYU pragma: keep
#include "index/pskiplist/pskiplist_write.inl.h"     // IWYU pragma: keep
