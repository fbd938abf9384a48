// SyntheticEngine: a small persistent map without hashing. It uses everything of the heap that
// PhaST does not.
//
// WHAT  Two levels of slots, each slot {tag, record}. Records move between the levels all the time
//   (4a), are published by the same fence as their slot (X2), and are deleted by clearing their
//   state word. Short values live in durably zero, append-only segments, long ones in blobs, which
//   may be runs of extents. It restarts at once: what a killed process left is settled and marked
//   step by step while it serves (OpenSweep). Moving is a unit of its own. All searches are linear:
//   the subject is the heap, not speed.
// LAYOUT  root   plain         magic, slots[2][kSlots]
//         record dead_on_free  state (commit word, last), key, target, size: one line
//         segment zero_on_free 16 words; a value is one word, never 0; the last nonzero one counts
//         blob   plain         bytes of a value longer than 7; durable before the record
// INVARIANTS
//   synthetic.I1 (after any crash) a slot names 0, a dead record, or a live one with the slot's
//   tag.
//   synthetic.I2 (after any crash) at most one live record per key, named by one slot, or by two
//         while it moves.
//   synthetic.I3 (DRAM) during the sweep, a thread marks the target of a reference before it copies
//         the reference.
// OPERATIONS (fences)  insert of a short value 1, of a long one 2; update in a segment 1; update by
//   record 2 (+1 to free the old one); erase 2.
//
// Each rule can be switched off in SyntheticRules, for tests that must then fail.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "format/pool_core.h"
#include "heap/heap.h"
#include "perdure/status.h"
#include "reclaim/epoch.h"
#include "util/crc32c.h"

namespace perdure::testing {

struct SyntheticRules {
  bool mark_before_copy = true;  // 4a
  bool fence_helpers = true;     // X4: the mover fences before it leaves its guard
  BlockKind record_kind = BlockKind::dead_on_free;   // X2
  BlockKind segment_kind = BlockKind::zero_on_free;  // G8
  bool help_sweep = true;                            // 4d
  bool settle_results = true;                        // X1, lazily
  std::uint32_t marks_per_step = 2;                  // speed of the background sweep
  std::uint32_t mover_thread = 1;                    // thread slot of the background work
};

template <Platform P>
class SyntheticEngine final : public MarkingMap {
 public:
  static constexpr std::uint32_t kSlots = 40;
  static constexpr std::uint32_t kSegmentWords =
      16;  // two lines: the first value is not written into the second
  static constexpr std::uint64_t kMagic = 0x53594E5448ULL;

  SyntheticEngine(P& platform, Heap<P>& heap, EpochDomain<P>& epochs, PoolCore<P>& core,
                  const SyntheticRules& rules)
      : platform_(platform),
        heap_(heap),
        epochs_(epochs),
        core_(core),
        background_(core.background()),
        rules_(rules) {}
  ~SyntheticEngine() { background_.remove(mover_work_); }

  // Writes an empty root block. The caller publishes its offset.
  Expected<std::uint64_t> create() {
    auto offset = heap_.allocate(sizeof(Root), BlockKind::plain);
    if (!offset) return offset;
    Root* root = heap_.template at<Root>(*offset);
    platform_.zero(root, sizeof(Root));
    platform_.store(root->magic, kMagic);
    platform_.flush(root, sizeof(Root), "synthetic.create.root"_site);
    if (!platform_.fence("synthetic.create.root"_site)) return fail(StatusCode::poisoned);
    return offset;
  }
  Status open(std::uint64_t root) {
    if (!heap_.contains(root, sizeof(Root)) ||
        platform_.load(heap_.template at<Root>(root)->magic) != kMagic) {
      return Status::format(StatusCode::corruption, "synthetic: bad root");
    }
    root_offset_ = root;
    root_ = heap_.template at<Root>(root);
    heap_.mark_copied(root);
    return {};
  }
  void start() { background_.add(mover_work_); }

  Expected<bool> insert(std::uint64_t key, std::string_view value) {
    const EpochGuard<P> guard(epochs_);
    if (find(key).slot != nullptr) return false;
    std::uint64_t* slot = free_slot();
    if (slot == nullptr) return fail(StatusCode::pool_full);
    auto record = make_record(key, value, false);
    if (!record) return fail(std::move(record.error()));
    platform_.store(*slot, tagged(key, *record));
    platform_.flush(slot, 8, "synthetic.insert.slot"_site);
    if (!platform_.fence("synthetic.insert.slot"_site)) return fail(StatusCode::poisoned);
    return true;
  }
  Expected<bool> update(std::uint64_t key, std::string_view value) {
    const EpochGuard<P> guard(epochs_);
    Found found = resolve(key);
    if (found.slot == nullptr) return false;
    Record* record = found.record;
    if (is_short(value) && platform_.load(record->size) < kShort) {
      std::uint64_t* words = segment(record);
      for (std::uint32_t i = 0; i < kSegmentWords; ++i) {
        if (platform_.load(words[i]) != 0) continue;
        platform_.store(words[i], encode(value));
        platform_.flush(&words[i], 8, "synthetic.update.segment"_site);
        if (!platform_.fence("synthetic.update.segment"_site)) return fail(StatusCode::poisoned);
        return true;
      }
    }
    return replace(key, found, value);
  }
  Expected<bool> erase(std::uint64_t key) {
    const EpochGuard<P> guard(epochs_);
    Found found = resolve(key);
    if (found.slot == nullptr) return false;
    const std::uint64_t offset = target(platform_.load(*found.slot));
    mark_taken(offset);
    platform_.store(found.record->state, 0);
    platform_.flush(&found.record->state, 8, "synthetic.erase.state"_site);
    if (!platform_.fence("synthetic.erase.state"_site)) return fail(StatusCode::poisoned);
    platform_.store(*found.slot, 0);
    platform_.flush(found.slot, 8, "synthetic.erase.slot"_site);
    if (!platform_.fence("synthetic.erase.slot"_site)) return fail(StatusCode::poisoned);
    retire(offset);
    return true;
  }
  bool lookup(std::uint64_t key, std::string& value) {
    const EpochGuard<P> guard(epochs_);
    const Found found = find(key);
    if (found.slot == nullptr) return false;
    read(found.record, value);
    return true;
  }
  // Calls visit(key, value) once for every entry.
  template <class F>
  void for_each(F&& visit) {
    const EpochGuard<P> guard(epochs_);
    settle(root_offset_, sizeof(Root));
    for (std::uint32_t i = 0; i < 2 * kSlots; ++i) {
      const std::uint64_t word = platform_.load(slot_at(i));
      Record* record = live(word);
      if (record == nullptr || duplicate(word, i)) continue;
      std::string value;
      read(record, value);
      visit(platform_.load(record->key), value);
    }
  }

  // Does some background work: marks during a sweep, and moves one record.
  void step() {
    const bool marking = heap_.sweeping();
    background_.wake(mover_work_);
    // Runs as another thread: no fence of this thread covers its write-backs.
    const std::uint32_t self = std::exchange(P::world().thread, rules_.mover_thread);
    (void)background_.run_some();
    if (marking) (void)background_.run_some();
    P::world().thread = self;
  }
  // The position of the mover; 0 at the end of a round.
  std::uint32_t mover() const { return mover_; }
  // Marks the rest and ends the sweep.
  bool finish_sweep() { return core_.sweep().finish(); }

  // Marks the blocks that the next slots reach. Clears a slot of a dead record, with a fence,
  // before the sweep can free the block.
  Expected<bool> mark_some(std::uint64_t) noexcept override {
    const EpochGuard<P> guard(epochs_);
    for (std::uint32_t n = rules_.marks_per_step; n > 0 && cursor_ < 2 * kSlots; --n, ++cursor_) {
      std::uint64_t& slot = slot_at(cursor_);
      std::uint64_t word = platform_.load(slot);
      if (word == 0) continue;
      Record* record = live(word);
      if (record == nullptr) {
        // No reference is taken away here: nothing else reaches a dead record.
        if (!platform_.compare_exchange(slot, word, 0)) continue;
        platform_.flush(&slot, 8, "synthetic.sweep.slot"_site);
        (void)platform_.fence("synthetic.sweep.slot"_site);
        continue;
      }
      if (Status s = heap_.mark_serving(target(word)); !s.ok()) return fail(std::move(s));
      Status s = heap_.mark_serving(platform_.load(record->target));
      if (!s.ok()) return fail(std::move(s));
    }
    return cursor_ < 2 * kSlots;
  }

  // Also valid during the sweep.
  Status check() {
    for (std::uint32_t i = 0; i < 2 * kSlots; ++i) {
      const std::uint64_t word = platform_.load(slot_at(i));
      Record* record = live(word);
      if (record == nullptr) continue;
      if (word != tagged(platform_.load(record->key), target(word))) {
        return Status::format(StatusCode::corruption, "slot %u names a foreign record (%s)", i,
                              "synthetic.I1");
      }
      for (std::uint32_t j = 0; j < i; ++j) {
        Record* other = live(platform_.load(slot_at(j)));
        if (other != nullptr && other != record &&
            platform_.load(other->key) == platform_.load(record->key)) {
          return Status::format(StatusCode::corruption, "two records of one key (%s)",
                                "synthetic.I2");
        }
      }
    }
    return {};
  }
  // Declares every reachable block to the heap's audit. The sweep must be over.
  Status audit() {
    if (Status s = check(); !s.ok()) return s;
    if (Status s = heap_.audit_mark(root_offset_); !s.ok()) return s;
    for (std::uint32_t i = 0; i < 2 * kSlots; ++i) {
      const std::uint64_t word = platform_.load(slot_at(i));
      Record* record = live(word);
      if (record == nullptr || duplicate(word, i)) continue;
      if (Status s = heap_.audit_mark(target(word)); !s.ok()) return s;
      if (Status s = heap_.audit_mark(platform_.load(record->target)); !s.ok()) return s;
    }
    return {};
  }

 private:
  struct Record {
    std::uint64_t state;  // 0: dead; otherwise the checksum of the rest, | 1
    std::uint64_t key;
    std::uint64_t target;  // segment or blob
    std::uint64_t size;    // of a blob; < kShort: a segment
    std::uint64_t pad[4];
  };
  struct Root {
    std::uint64_t magic;
    std::uint64_t pad[7];
    std::uint64_t slots[2][kSlots];
  };
  struct Found {
    std::uint64_t* slot = nullptr;
    Record* record = nullptr;
  };
  struct Mover final : BackgroundWork<P> {
    explicit Mover(SyntheticEngine* e) : engine(e) {}
    Step run_some() noexcept override {
      engine->move_step();
      return engine->mover_ != 0 ? Step::more : Step::rest;  // after each round
    }
    SyntheticEngine* engine;
  };
  static constexpr std::uint64_t kShort = 8;
  static constexpr std::uint64_t kOffsetBits = 48;

  static bool is_short(std::string_view value) { return value.size() < kShort; }
  static std::uint64_t tagged(std::uint64_t key, std::uint64_t offset) {
    return offset | (key * 0x9E3779B97F4A7C15ULL >> kOffsetBits) << kOffsetBits;
  }
  static std::uint64_t target(std::uint64_t word) { return word & ((1ULL << kOffsetBits) - 1); }
  // Encodes up to 7 bytes and their number + 1. Never 0.
  static std::uint64_t encode(std::string_view value) {
    std::uint64_t word = 0;
    std::memcpy(&word, value.data(), value.size());
    return word | (value.size() + 1) << 56;
  }
  std::uint64_t& slot_at(std::uint32_t i) { return root_->slots[i / kSlots][i % kSlots]; }
  std::uint64_t* segment(Record* record) {
    return heap_.template at<std::uint64_t>(platform_.load(record->target));
  }
  std::uint64_t state_of(Record* record) {
    const std::uint64_t words[3] = {platform_.load(record->key), platform_.load(record->target),
                                    platform_.load(record->size)};
    return std::uint64_t{crc32c(0, words, sizeof(words))} << 1 | 1;
  }
  // The record of a slot word. Null if the insert did not happen: the slot is 0, the record is
  // dead, or the first word of its segment did not reach the medium.
  Record* live(std::uint64_t word) {
    const std::uint64_t offset = target(word);
    if (offset == 0 || !heap_.contains(offset, sizeof(Record))) return nullptr;
    Record* record = heap_.template at<Record>(offset);
    settle(offset, sizeof(Record));
    if (platform_.load(record->state) == 0 || platform_.load(record->state) != state_of(record)) {
      return nullptr;
    }
    const std::uint64_t value = platform_.load(record->target);
    settle(value, heap_.block_bytes(value));
    if (platform_.load(record->size) < kShort && platform_.load(segment(record)[0]) == 0) {
      return nullptr;
    }
    return record;
  }
  // Makes durable what a decision reads.
  void settle(std::uint64_t offset, std::size_t n) {
    if (rules_.settle_results) (void)core_.after_kill().settle(offset, n);
  }
  // Whether an earlier slot names the same record: it was moving when the process died.
  bool duplicate(std::uint64_t word, std::uint32_t before) {
    for (std::uint32_t i = 0; i < before; ++i) {
      if (platform_.load(slot_at(i)) == word) return true;
    }
    return false;
  }
  Found find(std::uint64_t key) {
    settle(root_offset_, sizeof(Root));
    for (std::uint32_t i = 0; i < 2 * kSlots; ++i) {
      const std::uint64_t word = platform_.load(slot_at(i));
      Record* record = live(word);
      if (record != nullptr && platform_.load(record->key) == key) return {&slot_at(i), record};
    }
    return {};
  }
  // find() for a mutation: also finishes a move that a crash interrupted, so that one slot names
  // the record.
  Found resolve(std::uint64_t key) {
    const Found found = find(key);
    if (found.slot == nullptr) return found;
    const std::uint64_t word = platform_.load(*found.slot);
    for (std::uint32_t i = 0; i < 2 * kSlots; ++i) {
      std::uint64_t& other = slot_at(i);
      if (&other == found.slot || platform_.load(other) != word) continue;
      platform_.store(other, 0);
      platform_.flush(&other, 8, "synthetic.resolve.slot"_site);
      (void)platform_.fence("synthetic.resolve.slot"_site);
    }
    return found;
  }
  // Returns an empty slot, or the slot of a dead record, cleared and fenced before that block may
  // be reused.
  std::uint64_t* free_slot() {
    for (std::uint32_t i = 0; i < 2 * kSlots; ++i) {
      if (platform_.load(slot_at(i)) == 0) return &slot_at(i);
    }
    return nullptr;
  }
  void read(Record* record, std::string& value) {
    const std::uint64_t size = platform_.load(record->size);
    if (size >= kShort) {
      value.assign(heap_.template at<char>(platform_.load(record->target)), size);
      return;
    }
    std::uint64_t last = 0;
    for (std::uint32_t i = 0; i < kSegmentWords; ++i) {
      const std::uint64_t word = platform_.load(segment(record)[i]);
      if (word != 0) last = word;
    }
    value.assign(reinterpret_cast<const char*>(&last), (last >> 56) - 1);
  }
  // Makes a record with its value, written back. Also fenced if `fence`, or if the value is long.
  Expected<std::uint64_t> make_record(std::uint64_t key, std::string_view value, bool fence) {
    auto block = is_short(value) ? heap_.allocate(kSegmentWords * 8, rules_.segment_kind)
                                 : heap_.allocate(value.size(), BlockKind::plain);
    if (!block) return block;
    auto offset = heap_.allocate(sizeof(Record), rules_.record_kind);
    if (!offset) {
      heap_.discard(*block);
      return offset;
    }
    if (is_short(value)) {
      auto* words = heap_.template at<std::uint64_t>(*block);
      platform_.store(words[0], encode(value));
      platform_.flush(words, 8, "synthetic.insert.segment"_site);
    } else {
      platform_.copy(heap_.template at<char>(*block), value.data(), value.size());
      platform_.flush(heap_.template at<char>(*block), value.size(), "synthetic.insert.blob"_site);
      (void)platform_.fence("synthetic.insert.blob"_site);
    }
    Record* record = heap_.template at<Record>(*offset);
    platform_.store(record->key, key);
    platform_.store(record->target, *block);
    platform_.store(record->size, is_short(value) ? 0 : value.size());
    platform_.store(record->state, state_of(record));
    platform_.flush(record, sizeof(Record), "synthetic.insert.record"_site);
    if (fence) (void)platform_.fence("synthetic.replace.record"_site);
    return offset;
  }
  Expected<bool> replace(std::uint64_t key, const Found& found, std::string_view value) {
    auto fresh = make_record(key, value, true);
    if (!fresh) return fail(std::move(fresh.error()));
    const std::uint64_t old = target(platform_.load(*found.slot));
    mark_taken(old);
    platform_.store(*found.slot, tagged(key, *fresh));
    platform_.flush(found.slot, 8, "synthetic.replace.slot"_site);
    if (!platform_.fence("synthetic.replace.slot"_site)) return fail(StatusCode::poisoned);
    retire(old);
    return true;
  }
  // Call it before the store that takes a record and its value out of the map.
  void mark_taken(std::uint64_t offset) {
    heap_.mark_copied(offset);
    heap_.mark_copied(platform_.load(heap_.template at<Record>(offset)->target));
  }
  // Retires a record and its value. Every link to it must be durably gone.
  void retire(std::uint64_t offset) {
    const std::uint64_t value = platform_.load(heap_.template at<Record>(offset)->target);
    heap_.retire(offset);
    heap_.retire(value);
  }

  // Moves one record from the mover's position to the other level.
  void move_step() {
    const EpochGuard<P> guard(epochs_);
    settle(root_offset_, sizeof(Root));
    Record* record = nullptr;
    for (int tries = 0; tries < 5 && record == nullptr; ++tries) {
      mover_ = (mover_ + 2 * kSlots - 1) % (2 * kSlots);  // in the direction opposite to the marker
      record = live(platform_.load(slot_at(mover_)));
      if (mover_ == 0) break;
    }
    if (record == nullptr) return;
    std::uint64_t& from = slot_at(mover_);
    const std::uint64_t word = platform_.load(from);
    int names = 0;  // two while a move is unfinished: resolve() ends it
    for (std::uint32_t i = 0; i < 2 * kSlots; ++i) names += platform_.load(slot_at(i)) == word;
    if (names != 1) return;
    std::uint64_t* to = nullptr;
    for (std::uint32_t i = 0; i < kSlots && to == nullptr; ++i) {
      std::uint64_t& slot = root_->slots[mover_ < kSlots ? 1 : 0][i];
      if (platform_.load(slot) == 0) to = &slot;
    }
    if (to == nullptr) return;
    if (rules_.mark_before_copy) {
      heap_.mark_copied(target(word));
      heap_.mark_copied(platform_.load(record->target));
    }
    platform_.store(*to, word);
    platform_.flush(to, 8, "synthetic.move.copy"_site);
    (void)platform_.fence("synthetic.move.copy"_site);
    platform_.store(from, 0);
    platform_.flush(&from, 8, "synthetic.move.clear"_site);
    if (rules_.fence_helpers) (void)platform_.fence("synthetic.move.clear"_site);
  }

  P& platform_;
  Heap<P>& heap_;
  EpochDomain<P>& epochs_;
  PoolCore<P>& core_;
  Background<P>& background_;
  SyntheticRules rules_;
  Mover mover_work_{this};
  std::uint64_t root_offset_ = 0;
  Root* root_ = nullptr;
  std::uint32_t cursor_ = 0;
  std::uint32_t mover_ = 0;
};

}  // namespace perdure::testing
