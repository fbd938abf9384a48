// Level: a persistent hash table of two levels, which grows and shrinks in place.
//
// WHAT  Level hashing (Zuo, Hua, Wu, 2018): two levels, the top one twice the bottom one, two hash
//   functions, so four candidate buckets; an insert moves at most one item, also from bottom to
//   top; a resize rehashes one level of three. WHEN: point access, full before it grows. WHEN NOT:
//   order, or no wait for a rehash (clevel). Deviations, and why, in docs/design/level.md: a
//   line holds its own tokens, so an insert is one write-back and one fence; version locks and
//   fingerprints per bucket in DRAM; movements are recorded; a resize is one store.
// LAYOUT  layout.h and line.h (media), tier.h (DRAM). A bucket is two lines of {tokens, 3 slots,
//   crc}; in maps of arrays, of 2 slots of 31 bytes and their tokens.
// INVARIANTS  (C: after any crash; D: in DRAM)
//   level.I1 C  A slot counts iff its token is set. Its key lies in one of the two buckets that its
//         hashes name in that level.
//   level.I2 C  A key counts once; or twice, with one value, where a Move line names both lines, or
//         one of the two is in the level that is being drained. Recovery drops either.
//   level.I3 C  Levels, records and descriptors are durable before the word that names them; a new
//         level is durably zero. A level leaves the table when none of its tokens is set, durably.
//   level.I4 D  What a returned operation has seen is durable: a bucket's lock is held from before
//         the first store into it until after the last fence of it, and whoever read it looks at
//         its version again.
//   level.I5 D  Who adds an item holds the locks of all candidate buckets of its key, in the order
//         of the levels, the largest first, then of buckets. Who changes an item or takes it away
//         holds that of its bucket, taken only as it was when the item was seen there (by its
//         version). Whoever holds a lock waits only for later ones in that order, or for none
//         (try_lock): no deadlock.
//   level.I6 D  Whoever has taken locks to add looks afterwards whether the view is still the
//         current one, also after a try_lock, before it stores. So nothing is added to a level that
//         has been drained: a bucket that is drained under a view was locked after that view was
//         published. A bucket that has an item is not drained yet, and is not while it is locked.
//   level.I7 D  Two copies of a key exist only while the buckets of both are locked.
// OPERATIONS  (LP linearization, PP persist point; F write-backs, S fences; k lines of a record)
//   insert  (absent? -> record, F*k, S) -> lock -> view -> absent? -> value, key, token in one
//           line -> F S (PP) -> fingerprint -> unlock (LP). 1F 1S; with a record (k+1)F 2S.
//   .. with movement: Move line, F S -> the victim's copy with its token, F S -> victim's token
//           off, value, key, token on, in one line, F S (PP). 3F 3S.
//   update  as find -> lock of its bucket, at the version seen -> value word -> F S (PP) -> unlock
//           (LP) -> retire. 1F 1S; by a record (k+1)F 2S. Absent: as find. After kRetries it takes
//           the locks of an insert; a put that finds nothing is one.
//   .. of an array's two words (level_update.inl.h): the other slot of the line and both tokens, in
//           one line -> F S (PP). If that slot is taken: Update line, F S (PP) -> both words, F S
//           -> no Update, F S. 1F 1S or 3F 3S.
//   erase   as update -> token -> F S (PP) -> fingerprint -> unlock (LP). 1F 1S.
//   find    versions -> fingerprints -> slots -> version of the bucket it was found in, or of all,
//           and the view (LP: the moment between). 0F 0S; waits while a candidate is locked, so it
//           sees nothing that is not fenced. After kRetries it takes the locks.
//   resize  level (zero) -> descriptor, F S -> root word, F S (PP) -> view (LP). 2F 2S. Then
//           batches of source buckets: copies with tokens, F each, S -> source tokens, F each, S.
//           When all are done: descriptor without the level, F S -> root word, F S -> view ->
//           retire.
//   close     checksums of lines, F each; the root's word that binds them and the descriptor (E21,
//             E27), F; the pool fences.
//   for_each  holds movements off (`scans_`), bucket after bucket; not one operation.
// ORDERING
//   slot      value, key, tokens: one line, so a crash keeps a prefix. Release; find's loads
//             acquire, so a find that has seen a store sees the version odd or raised.
//   version   odd (seq_cst) before the first store, raised (release) after the last fence.
//   view      stored (release) after the root word's fence: nothing is stored into a level that the
//             medium does not name. Loaded by writers after their locks, by find last.
//   scans     raised (seq_cst), then versions loaded; movers lock, then load it: one sees the
//             other.
//   inside, closed  of a view: an undo closes it (seq_cst), then waits until nobody is inside;
//             a batch enters, then looks whether it is closed.
//   cursor    stored (release) when a round begins anew, after `done` and `failed`; a batch is
//             taken with acquire, so what it adds to them comes after.
//   helped    (E19) an insert that would move an item while a level is drained drains a batch
//             first, and while the drain lags behind, one of 64 does: inserts fill the levels that
//             take its items no faster than that.
//   counts    (E20) an erase lowers the count, then looks at the view; the end of a drain stores
//             the view, then sums the counts, each with a locked instruction in between: one of
//             the two sees that the table is too large.
// RECOVERY  O(buckets), in parallel: Update lines: stored again, then gone (E25). Move lines, one
//   after the other, each looked at anew: a key in both lines loses its slot in `from`. Then every
//   level: fingerprints, counts, marks; the one that is being drained last, and what is already in
//   the others loses its slot there. Idempotent: beside the Updates, only tokens are cleared, of
//   one of two copies. start() goes on with the resize from its first bucket. Non-authoritative
//   pointers: Move lines; slots without a token.
// RECLAMATION  levels, records, descriptors, tiers and views through epochs, after the fence of
//   their unlink.
// PROGRESS  blocking: a find waits for a writer of one of its buckets, at most for its fences; an
//   insert that finds no place waits for the end of a resize, at which it helps, or makes room;
//   who sets a drain back sees to it that the background is due or blocked (E22).
//   pool_full: inserts that find no place fail, all else goes on. hash_overflow: keys of one hash,
//   of which 2 kSlots are taken, and inserts without a place below a load of 1 / kLeastLoad; the
//   table does not grow for them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

#include "index/closed_sum.h"
#include "index/engine.h"
#include "index/level/codec.h"
#include "index/level/layout.h"
#include "index/level/tier.h"
#include "index/map_engine.h"
#include "index/records.h"
#include "perdure/index.h"
#include "perdure/options.h"

namespace perdure::level {

struct Peek;

template <Platform P, class Codec, class G = DefaultGeometry>
class Level final : public MapEngine<P, Codec, Level<P, Codec, G>, detail::Index> {
  using Base = MapEngine<P, Codec, Level<P, Codec, G>, detail::Index>;
  friend Base;
  friend struct Peek;  // of tests, which plant what no operation does

 public:
  using Form = typename Codec::Form;
  using Line = typename Form::Line;
  using Item = typename Form::Item;
  using Drain = layout::Drain;
  using TierT = Tier<P, Form, G>;
  using ViewT = View<P, Form, G>;
  using MetaT = Meta<P>;
  static constexpr std::uint32_t kSlots = TierT::kSlots;

  static Expected<std::uint64_t> create(const EngineContext<P>& context, const MapKinds& kinds,
                                        const LevelOptions& options);
  static Expected<std::unique_ptr<EngineInstance>> open(const EngineContext<P>& context,
                                                        std::uint64_t root);
  // Of the top level, so that so many items fit at a load of 0.9; the hint may be wrong, so that
  // both levels leave three quarters of what the pool may grow to.
  static std::uint64_t buckets_for(const Heap<P>& heap, std::uint64_t items) noexcept;
  Level(const EngineContext<P>& context, std::uint64_t root) noexcept;
  ~Level() override;

  // --- EngineInstance ---
  Expected<Recovered> recover(bool clean) override;
  void start() noexcept override;
  void release_blocks() override;
  Status close() override;
  Expected<bool> compact() override;

  // Begins an expansion, whatever the load is; for benchmarks. Errors: those of an insert.
  Status expand() noexcept;

  // --- Index ---
  Expected<bool> erase(const detail::Key& key) override;
  Expected<bool> read(const detail::Key& key,
                      FunctionRef<void(const detail::Value&)> visit) override;
  Expected<std::uint64_t> read_many(
      std::span<const detail::Key> keys,
      FunctionRef<void(std::size_t, const detail::Value&)> visit) override;
  Expected<void> for_each(FunctionRef<bool(std::span<const detail::Entry>)> visit) override;
  void stats(EngineStats& out) override;
  void check(const CheckOptions& options, Findings& report) override;

 private:
  using Base::absent;
  using Base::begin_mutation;
  using Base::begin_read;
  using Base::context_;
  using Base::pass_over;
  using Base::validate;
  using Base::with_room;
  using typename Base::Mode;
  using Counter = typename P::template Atomic<std::uint64_t>;
  static constexpr std::size_t kRootBytes =
      Form::kArrays ? sizeof(layout::ArrayRoot) : sizeof(layout::Root);
  static constexpr unsigned kRetries = 64;
  static constexpr std::uint64_t kLeastLoad = 16;                   // no expansion below 1/16
  static constexpr std::uint32_t kBatchBuckets = G::kBatchBuckets;  // drained with two fences
  static constexpr std::uint32_t kStepBatches = G::kStepBatches;
  // An insert that may not move anything since a scan goes on waits so long before it fails.
  static constexpr std::uint64_t kScanPatienceNs = 1'000'000'000;
  // Of a batch, or of a key in all levels; and where it or a victim goes.
  static constexpr std::uint32_t kMaxHeld =
      std::max(kBatchBuckets * (1 + kSlots), 2 * kMaxLevels + 1);

  struct Place {
    TierT* tier = nullptr;
    std::uint64_t bucket = 0;
    std::uint32_t slot = kSlots;

    bool found() const noexcept { return slot != kSlots; }
    MetaT& meta() const noexcept { return tier->metas[bucket]; }
    Line& line() const noexcept { return tier->line(bucket, slot); }
    std::uint32_t in_line() const noexcept { return slot % Form::kSlots; }
    std::uint64_t bit() const noexcept { return 1ULL << in_line(); }
    std::uint64_t line_offset() const noexcept {
      return tier->offset + static_cast<std::uint64_t>(&line() - tier->lines) * sizeof(Line);
    }
  };
  // Locks of a key's candidate buckets, or of a batch; unlocks what is left.
  struct Locks {
    struct Held {
      TierT* tier;
      std::uint64_t bucket;
      bool changed;
    };
    Held held[kMaxHeld];
    std::uint32_t count = 0;

    Locks() = default;
    ~Locks() { release(); }
    Locks(const Locks&) = delete;
    Locks& operator=(const Locks&) = delete;
    bool has(const TierT* tier, std::uint64_t bucket) const noexcept {
      for (std::uint32_t i = 0; i < count; ++i) {
        if (held[i].tier == tier && held[i].bucket == bucket) return true;
      }
      return false;
    }
    // Whether all of them come before this one in the order of locks.
    bool precede(const TierT& tier, std::uint64_t bucket) const noexcept {
      return std::all_of(held, held + count, [&](const Held& h) {
        return h.tier == &tier ? h.bucket < bucket : h.tier->log > tier.log;
      });
    }
    void lock(TierT& tier, std::uint64_t bucket) noexcept {
      PERDURE_ASSERT(P, "level.I5", precede(tier, bucket));
      tier.metas[bucket].lock();
      held[count++] = {&tier, bucket, false};
    }
    bool try_lock(TierT& tier, std::uint64_t bucket) noexcept {
      if (!tier.metas[bucket].try_lock()) return false;
      held[count++] = {&tier, bucket, false};
      return true;
    }
    bool try_lock(TierT& tier, std::uint64_t bucket, std::uint64_t seen) noexcept {
      if (!tier.metas[bucket].try_lock(seen)) return false;
      held[count++] = {&tier, bucket, false};
      return true;
    }
    void changed(const TierT* tier, std::uint64_t bucket) noexcept {
      PERDURE_ASSERT(P, "level.I5", has(tier, bucket));
      for (std::uint32_t i = 0; i < count; ++i) {
        if (held[i].tier == tier && held[i].bucket == bucket) held[i].changed = true;
      }
    }
    void release() noexcept {
      while (count > 0) {
        --count;
        held[count].tier->metas[held[count].bucket].unlock(held[count].changed);
      }
    }
  };
  enum class Made : std::uint8_t {
    done,
    full,          // no place, and no item can be moved
    again,         // somebody holds a lock that was needed, or the view has changed
    wants_record,  // which is made before the locks are taken
    overflow,      // too many keys have this one's hash
    failed         // poisoned; or Fresh::damaged
  };
  // What a mutation brings to its locks, and takes from them.
  struct Fresh {
    std::uint64_t record = 0;    // durable, and named by nothing
    std::uint64_t replaced = 0;  // a record that nothing names any more
    std::uint64_t damaged = 0;   // a record that cannot be read
    bool found = false;
  };
  struct Work final : BackgroundWork<P> {
    explicit Work(Level& owner) noexcept : level(owner) {}
    Step run_some() noexcept override { return level.work(); }
    Level& level;
  };

  // --- helpers ---
  ViewT* current() const noexcept { return view_.load(std::memory_order_acquire); }
  std::span<layout::Update> updates() const noexcept
    requires(Form::kArrays)
  {
    return reinterpret_cast<layout::ArrayRoot*>(root_)->updates;
  }
  const RecordPrefix* record_at(std::uint64_t offset) const noexcept { return records_.at(offset); }
  bool records() const noexcept { return Codec::kBytes || (!Form::kArrays && record_values_); }
  Item load(const Place& place) const noexcept {
    return Form::load(context_.platform, place.line(), place.in_line());
  }
  Item item_of(const Probe& probe, const detail::Value& value, std::uint64_t record) const noexcept;
  // What assertions ask.
  static bool may_hold(const TierT& tier, std::uint64_t bucket, const Probe& probe) noexcept {
    return tier.index(probe.hashes[0]) == bucket || tier.index(probe.hashes[1]) == bucket;
  }
  static bool all_held(const Locks& locks, const ViewT& view, const Probe& probe) noexcept {
    return std::all_of(view.tiers, view.tiers + view.levels, [&](const TierT* tier) {
      return locks.has(tier, tier->index(probe.hashes[0])) &&
             locks.has(tier, tier->index(probe.hashes[1]));
    });
  }
  bool in_table(const TierT* tier) const noexcept {
    const ViewT& view = *current();
    return std::find(view.tiers, view.tiers + view.levels, tier) != view.tiers + view.levels;
  }
  bool persisted(const Line& line) const noexcept {
    return context_.platform.persisted(&line, sizeof(line));
  }
  // No token is set, durably; of a level whose every bucket was looked at. Inserts, erases and
  // batches count before they give their locks back.
  bool is_drained(const TierT& tier) const noexcept {
    return tier.items() == 0 &&
           context_.platform.persisted(tier.lines, TierT::line_bytes(tier.log));
  }
  bool record_persisted(std::uint64_t record) const noexcept {
    const auto* prefix = record_at(record);
    return context_.platform.persisted(prefix, RecordView::read(context_.platform, prefix).size());
  }
  Status takes(const detail::Key& key) const noexcept;
  Status takes(const detail::Key& key, const detail::Value& value) const noexcept;

  // --- lookups ---
  bool key_matches(const Line& line, std::uint32_t slot, const Probe& probe) const noexcept;
  std::uint32_t find_in(const TierT& tier, std::uint64_t bucket, std::uint64_t prints,
                        const Probe& probe) const noexcept;
  bool value_of(const Item& item, detail::Value& value) const noexcept;
  detail::Key key_of(const Item& item) const noexcept;
  static Status damaged_record(std::uint64_t offset) noexcept {
    return Records<P>::damaged(offset);
  }
  void prefetch(const ViewT& view, const Probe& probe) const noexcept;
  template <bool kLocks>
  void prefetch_all(const ViewT& view, const Probe& probe) const noexcept;
  void prefetch_items(const ViewT& view, const Probe& probe) const noexcept;
  enum class Looked : std::uint8_t { found, absent, again };
  template <class Found>
  Looked seek(const ViewT& view, const Probe& probe, Found&& found) const noexcept;
  Looked look(const ViewT& view, const Probe& probe, Item& item, detail::Value& value,
              bool& readable) const noexcept;
  Expected<bool> read_probe(const Probe& probe,
                            FunctionRef<void(const detail::Value&)> visit) noexcept;
  Expected<std::uint32_t> snapshot(const TierT& tier, std::uint64_t bucket, Item* items,
                                   detail::Entry* entries) const noexcept;

  // --- mutations ---
  template <Mode kMode>
  Expected<bool> write(const detail::Key& key, const detail::Value& value);
  template <Mode kMode>
  Expected<bool> write_once(const Probe& probe, const detail::Value& value, bool helped,
                            std::uint64_t& no_room) noexcept;
  ViewT* lock_key(const Probe& probe, Locks& locks) noexcept;
  bool lock_item(const Probe& probe, Locks& locks, Place& place) noexcept;
  Place find_locked(const ViewT& view, const Probe& probe) const noexcept;
  Place free_place(const ViewT& view, const Probe& probe) const noexcept;
  void set_item(const Place& place, const Item& item) noexcept;
  void show(const Place& place, std::uint8_t print) noexcept;
  void hide(const Place& place) noexcept;
  bool in_place(const detail::Value& before, const detail::Value& value) const noexcept;
  template <Mode kMode>
  bool expects_record(const Probe& probe, const detail::Value& value) const noexcept;
  Made replace_value(const Place& place, const Probe& probe, const detail::Value& value,
                     Fresh& fresh, Locks& locks) noexcept;
  Made store_word(const Place& place, std::uint64_t& target, std::uint64_t word,
                  Locks& locks) noexcept;
  Made replace_array(const Place& place, const Item& before, const Item& item,
                     Locks& locks) noexcept
    requires(Form::kArrays);
  Made replace_in_place(const Place& place, const Item& item) noexcept
    requires(Form::kArrays);
  bool too_many_clash(const ViewT& view, const Probe& probe) const noexcept;
  template <Mode kMode>
  Made write_locked(const Probe& probe, const detail::Value& value, Fresh& fresh, bool helped,
                    std::uint64_t& no_room) noexcept;
  Made insert_locked(const ViewT& view, const Probe& probe, const Item& item, bool helped,
                     Locks& locks) noexcept;
  Made find_victim(const ViewT& view, const Probe& probe, Locks& locks, Place& victim,
                   Place& goal) noexcept;
  Made move_and_put(const Place& victim, const Place& goal, const Probe& probe, const Item& item,
                    Locks& locks) noexcept;

  // --- resize ---
  Status make_room(std::uint64_t generation, bool helped) noexcept;
  Status grow(std::uint64_t generation) noexcept;
  Status undo_shrink(ViewT& view) noexcept;
  Expected<bool> shrink(std::uint64_t load) noexcept;
  void resize_begins(const ViewT& before, const ViewT& after, bool shrink) noexcept;
  void resize_ends(const ViewT& drained) noexcept;
  Expected<TierT*> make_tier(std::uint32_t log) noexcept;
  void drop_tier(TierT* tier, const Status& why) noexcept;
  Status publish(ViewT& before, TierT* const* tiers, std::uint32_t levels, Drain drain) noexcept;
  Step finish_drain(ViewT& view, Status& failure) noexcept;
  Step work() noexcept;
  Step drain_some(std::uint32_t batches, Status& failure) noexcept;
  void prefetch_goals(const ViewT& view, std::uint64_t first, std::uint64_t end) const noexcept;
  Made drain_batch(ViewT& view, std::uint64_t first, std::uint64_t end) noexcept;
  Made drain_round(ViewT& view, std::uint64_t& bucket, std::uint64_t end) noexcept;
  // What a round of a drain has copied, and not written back yet.
  struct Copied {
    std::uint32_t slots[kBatchBuckets] = {};  // of each source bucket, bits
    Line* lines[kBatchBuckets * kSlots];      // where to
    std::uint32_t count = 0;
    std::uint32_t to_upper = 0;  // of them, to the upper level
  };
  Made copy_bucket(ViewT& view, std::uint64_t bucket, Locks& locks, Copied& copied,
                   std::uint32_t* slots, Probe& stuck) noexcept;
  void clear_slots(TierT& source, std::uint64_t bucket, std::uint32_t bits) noexcept;
  Made relocate(ViewT& view, std::uint64_t bucket, const Probe& probe) noexcept;
  static void turn_search(ViewT& view) noexcept;
  void after_insert(ViewT& view) noexcept;
  void keep_pace() noexcept;
  void after_erase(std::int64_t left) noexcept;
  void expect_growth(const ViewT& view) noexcept;
  bool too_large(const ViewT& view) const noexcept;
  static void free_view(void*, std::uint64_t view) { delete reinterpret_cast<ViewT*>(view); }
  static void free_tier(void*, std::uint64_t tier) { delete reinterpret_cast<TierT*>(tier); }
  static constexpr Reclaimer kViewReclaimer{nullptr, &free_view};
  static constexpr Reclaimer kTierReclaimer{nullptr, &free_tier};

  // --- recovery ---
  Status read_root() noexcept;
  Status read_descriptor(bool clean) noexcept;
  bool root_intact(const layout::Root& image) const noexcept;
  bool descriptor_intact(const layout::Descriptor& image) const noexcept;
  static std::uint32_t closed_crc(std::uint64_t descriptor, std::uint64_t generation) noexcept;
  static std::uint32_t descriptor_crc(const layout::Descriptor& d) noexcept;
  Place place_of(std::uint64_t line) const noexcept;
  Status finish_moves() noexcept;
  Status finish_updates() noexcept
    requires(Form::kArrays);
  template <class F>
  Status for_each_bucket(const TierT& tier, std::uint64_t& sum, F&& visit) noexcept;
  Status recover_bucket(TierT& tier, std::uint64_t bucket, bool clean, bool twice) noexcept;
  Status check_record(std::uint64_t offset, bool deep) const noexcept {
    return records_.check(offset, deep, "level.record.crc"_site);
  }
  Probe probe_of(const Item& item) const noexcept { return Codec::probe_of(item, seeds_); }
  bool is_twice(const TierT& source, const Item& item, const Probe& probe) const noexcept;
  static bool same_item(const Item& a, const Item& b) noexcept;
  std::uint32_t line_crc(const Line& line) const noexcept;
  std::uint32_t values_crc(const Line& line) const noexcept;
  bool line_intact(const TierT& tier, std::uint64_t bucket, std::uint32_t slot,
                   bool values) const noexcept;
  std::uint64_t sum_of(const TierT& tier, std::uint64_t bucket) const noexcept;
  Status enumerate(Status (Heap<P>::*mark)(std::uint64_t) noexcept) noexcept;
  std::uint64_t items_at_rest() noexcept;
  void check_bucket(const ViewT& view, TierT& tier, std::uint64_t bucket, bool deep,
                    Findings& report) noexcept;

  Records<P> records_{context_};
  std::uint64_t root_offset_;
  layout::Root* root_;  // of a map of arrays, the first part of an ArrayRoot
  Seeds seeds_;
  bool record_values_ = false;  // integer keys with values of any size
  bool word_records_ = false;   // byte-string keys with word values
  // Of a map of arrays; 0: its keys are integers, its values words.
  std::uint8_t key_bytes_ = 0;
  std::uint8_t value_bytes_ = 0;
  bool may_shrink_ = false;
  typename P::template Atomic<ViewT*> view_{nullptr};
  typename P::template Atomic<std::uint32_t> scans_{0};
  Counter at_expansion_{0};  // items
  typename P::template Atomic<bool> wants_shrink_{false};
  typename P::template Atomic<bool> wants_level_{false};
  typename P::template Atomic<bool> lags_{false};  // the drain, behind inserts
  typename P::Latch resize_latch_;                 // of root_->descriptor and view_
  typename P::Latch move_latches_[kMoveLines];
  // Under the latch of resizes: those since open, the last of them.
  ResizeStats resizes_[MapStats::kMaxResizes] = {};
  std::uint64_t resizes_begun_ = 0;
  std::uint64_t resizes_ended_ = 0;
  Counter items_{0};                         // moved, of the oldest that goes on
  Counter moves_begun_{0}, moves_ended_{0};  // rounds of drains: items change levels in them
  std::uint64_t opened_ns_ = P::now_ns();
  Work work_{*this};
};

}  // namespace perdure::level

#include "index/level/level_check.inl.h"    // IWYU pragma: keep
#include "index/level/level_find.inl.h"     // IWYU pragma: keep
#include "index/level/level_recover.inl.h"  // IWYU pragma: keep
#include "index/level/level_resize.inl.h"   // IWYU pragma: keep
#include "index/level/level_update.inl.h"   // IWYU pragma: keep
#include "index/level/level_write.inl.h"    // IWYU pragma: keep
