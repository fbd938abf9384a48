// PieceBatch: a large batch that lets other mutations go on. It closes the gate for a piece at a
// time.
//
// WHAT  batch.h has the record, the word and what an open does; they are the same, but that the
//   record has a word for each piece. For maps whose engines take pieces
//   (EngineInstance::takes_pieces). In between, mutations of maps that the batch does not change
//   go on as always. The others go beside it, one at a time (index/phast/beside.h): they do the
//   piece of their key first, and leave the batch the room that it was given.
// LAYOUT  format/layout.h, batch_record.h
// INVARIANTS
//   batch.K1  (C) From the commit until a piece is durably done, no other thread changes a key of
//       it. So an open does the pieces that are not marked, and takes nothing back (batch.I3).
//   batch.K2  (C) From the moment that a put was prepared until its piece is done, the leaf that
//       has its key in its range also has a free slot for it, if the key is not there. A split
//       keeps that: fewer puts need fewer slots. A leaf with such a put in its range is not
//       unlinked, because its neighbour may lack the slot. So neither a piece nor an open needs
//       space.
//   batch.K3  (C) Each put has its block at the commit (batch.I2). A block of a piece that is done
//       is its map's, and may be free: an open does not look at it.
//   batch.K4  (D) The state of the batch changes only while the gate is closed. So it stays as a
//       mutation has found it, pinned.
// OPERATIONS  (each line but `record` closes the gate, and opens it again)
//   publish  from now on mutations ask the batch.
//   prepare  some puts at a time: their blocks, and room. Changes no entry.
//   record   as in batch.h, and the words of the pieces: 0. 1 fence, also for the blocks.
//   commit   the requirements, then the word, 1 fence: linearization point and persist point.
//   piece    the mutations of a piece as by write_many(), then its word, 1 fence. By the thread
//            that commits, in their order, or by one that needs a key of it.
//   end      the word of the log, 1 fence. No thread is beside the batch then. The record is freed.
//   A failure before the commit changes no entry, and one after it poisons the pool, as in batch.h.
// RECOVERY  batch.h. The words of the pieces say which mutations are left.
// PROGRESS  blocking. Mutations of other threads wait for a step: at most kMost mutations. Other
//   batches wait for the end. The latch of Pool's maintenance excludes all else that closes the
//   gate and changes something, and what makes, drops, compacts or seals.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "index/pending_batch.h"
#include "pool/batch.h"

namespace perdure {

// When a batch is done in pieces, and how large they are. Tests have small ones.
struct PieceLimits {
  std::size_t whole = 1024;        // keys: no more are done as a whole
  std::uint32_t piece = 256;       // mutations
  std::size_t bytes = 256 << 10;   // of keys and values that are prepared together
  std::size_t requirements = 256;  // they are read with the gate closed
};

template <Platform P>
class PieceBatch final : private PendingBatch {
 public:
  static constexpr std::uint32_t kMost = 256;  // mutations of a step

  PieceBatch(PoolCore<P>& core, std::span<const BatchTarget> targets,
             std::span<const BatchMutation> mutations, const BatchOrder& order,
             const PieceLimits& limits)
      : core_(core), targets_(targets), mutations_{mutations, order}, limits_(limits) {}
  PieceBatch(const PieceBatch&) = delete;
  PieceBatch& operator=(const PieceBatch&) = delete;

  // Whether the batch is large, and all its maps take pieces. False, too, if memory is short.
  bool fits() {
    if (mutations_.size() <= limits_.whole || !divide()) return false;
    return std::all_of(parts_.begin(), parts_.end(), [&](const Part& part) {
      return part.target.map->takes_pieces(part.puts_end > part.begin ? &mutations_[part.begin]
                                                                      : nullptr);
    });
  }
  // After fits(). The caller is in no guard, and the sweep is over. `check` returns whether the
  // requirements are met. Errors: as Batch::commit; its own.
  template <class Check>
  Status commit(Check&& check) {
    if (Status s = core_.use_batches(); !s.ok()) return s;
    for (bool again = false;; again = true) {
      Status s = make_ready();
      if (s.ok()) s = commit_record(check);
      if (s.ok()) break;
      give_up();
      if (s != StatusCode::pool_full || again) return s;
      core_.epochs().drain_for_room();
      core_.heap().reclaim();
    }
    if (Status s = do_pieces(); !s.ok()) return s;
    core_.heap().free(record_);
    return {};
  }

 private:
  // The mutations of one map.
  struct Part {
    BatchTarget target;
    std::size_t begin = 0;
    std::size_t puts_end = 0;
    std::size_t end = 0;
    std::uint64_t piece = 0;  // its first
  };
  // The mutations in the order of the batch.
  struct Sorted {
    std::span<const BatchMutation> mutations;
    const BatchOrder& order;
    std::size_t size() const { return order.size(); }
    const detail::Mutation& operator[](std::size_t i) const { return mutations[order[i]].mutation; }
    std::uint32_t target(std::size_t i) const { return mutations[order[i]].target; }
  };
  // The gate is closed for a scope, and the mutations of this thread pass.
  class Step {
   public:
    explicit Step(PoolCore<P>& core) : hold_(core.epochs()), gate_(core.epochs().gate()) {
      gate_.set_batch(true);
    }
    ~Step() { gate_.set_batch(false); }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    const GateHold<P> hold_;
    Gate<P>& gate_;
  };

  bool divide() {
    parts_.clear();
    pieces_ = 0;
    const std::size_t n = mutations_.size();
    for (std::size_t i = 0; i < n;) {
      const std::uint32_t target = mutations_.target(i);
      Part part{.target = targets_[target], .begin = i, .puts_end = i, .end = i, .piece = pieces_};
      for (; i < n && mutations_.target(i) == target; ++i) {
        if (!batch_record::erases(mutations_[i])) part.puts_end = i + 1;
      }
      part.end = i;
      pieces_ += (part.end - part.begin + limits_.piece - 1) / limits_.piece;
      if (!parts_.push_back(part)) return false;
    }
    return true;
  }

  // --- before the commit ---

  Status make_ready() {
    while (blocks_.size() < mutations_.size()) {
      if (!blocks_.reserve(mutations_.size()) || !blocks_.push_back(0)) {
        return StatusCode::out_of_memory;
      }
    }
    // After the commit this thread must not lack its slot.
    if (const EpochGuard<P> guard(core_.epochs()); !guard.ok()) return StatusCode::out_of_memory;
    {
      const Step step(core_);
      core_.epochs().gate().set_pending(this);
    }
    for (const Part& part : parts_) {
      for (std::size_t i = part.begin; i < part.end;) {
        const Step step(core_);
        if (Status s = prepare(part, i); !s.ok()) return s;
        ready_ = i;
      }
    }
    return write_record();
  }
  // Prepares the mutation i and some behind it. Moves i behind them.
  Status prepare(const Part& part, std::size_t& i) {
    const std::size_t from = i;
    const std::size_t first = i - std::min(i - part.begin, BatchPlan::kAgain);
    for (std::size_t bytes = 0; i < part.end && i - from < kMost && bytes <= limits_.bytes; ++i) {
      bytes += mutations_[i].key.bytes.size() + batch_record::value_bytes(mutations_[i]);
    }
    some_.clear();
    present_.clear();
    for (std::size_t n = first; n < i; n += kTogether) {
      if (Status s = read(part, n, std::min(i, n + kTogether)); !s.ok()) return s;
    }
    BlockNeeds needs;
    return part.target.map->plan_batch({{some_.begin(), some_.size()},
                                        {present_.begin(), present_.size()},
                                        {blocks_.begin() + first, i - first},
                                        needs,
                                        false,
                                        true});
  }
  // Adds some mutations, and whether their keys are present. An error of a read, as of a damaged
  // entry, comes before the commit.
  Status read(const Part& part, std::size_t begin, std::size_t end) {
    detail::Key keys[kTogether];
    bool present[kTogether] = {};
    for (std::size_t i = begin; i < end; ++i) keys[i - begin] = mutations_[i].key;
    auto found = part.target.map->index().read_many(
        {keys, end - begin}, [&](std::size_t i, const detail::Value&) { present[i] = true; });
    if (!found) return std::move(found.error());
    for (std::size_t i = begin; i < end; ++i) {
      if (!some_.push_back(mutations_[i]) || !present_.push_back(present[i - begin])) {
        return StatusCode::out_of_memory;
      }
    }
    return {};
  }
  static constexpr std::size_t kTogether = 64;

  Status write_record() {
    const std::span<const std::uint64_t> blocks(blocks_.begin(), blocks_.size());
    head_ = batch_record::head_of(parts_, 0, mutations_, blocks, limits_.piece);
    const std::uint64_t words_bytes = pieces_ * sizeof(std::uint64_t);
    auto record = core_.heap().allocate(head_.bytes + words_bytes, BlockKind::plain);
    if (!record) return std::move(record.error());
    record_ = *record;
    core_.platform().zero(&done_word(0), words_bytes);
    core_.platform().flush(&done_word(0), words_bytes, "pool.batch.pieces"_site);
    auto* memory = core_.heap().template at<std::byte>(record_);
    const bool written = batch_record::write(
        core_.platform(), memory, record_, head_, parts_, mutations_, blocks, [](auto&) {},
        [&] { core_.epochs().gate().slow_record(); });
    return written ? Status() : core_.platform().failure();
  }
  template <class Check>
  Status commit_record(Check&& check) {
    const Step step(core_);
    if (Status s = check(); !s.ok()) return s;
    if (core_.commit_batch(record_, head_.bytes)) {
      committed_ = true;
      return {};
    }
    core_.platform().poison();
    return core_.platform().failure();
  }
  // Nothing was committed.
  void give_up() {
    lift();
    if (core_.platform().poisoned()) return;
    for (std::uint64_t& block : blocks_) {
      if (block != 0) core_.heap().free(std::exchange(block, 0));
    }
    if (record_ != 0) core_.heap().free(std::exchange(record_, 0));
    ready_ = 0;
  }
  void lift() {
    const BesideHold<P> beside(core_.epochs().gate(), true);
    const Step step(core_);
    core_.epochs().gate().set_pending(nullptr);
  }

  // --- after it ---

  Status do_pieces() {
    Status s;
    for (std::uint64_t piece = 0; s.ok() && piece < pieces_; ++piece) s = do_piece(piece);
    const BesideHold<P> beside(core_.epochs().gate(), true);
    const Step step(core_);
    if (s.ok() && !core_.clear_batch()) s = core_.platform().failure();
    core_.epochs().gate().set_pending(nullptr);
    return s;
  }
  Status do_piece(std::uint64_t piece) {
    const Step step(core_);
    if (core_.platform().poisoned()) return core_.platform().failure();
    if (is_done(piece) || (apply(piece) && note_done(piece))) return {};
    core_.platform().poison();
    return core_.platform().failure();
  }
  bool apply(std::uint64_t piece) {
    const Part& part = part_of(piece);
    EngineInstance& map = *part.target.map;
    std::size_t i = part.begin + (piece - part.piece) * limits_.piece;
    const std::size_t end = std::min<std::size_t>(part.end, i + limits_.piece);
    bool all = true;
    while (all && i < end) {
      detail::Mutation some[kTogether];
      std::size_t count = 0;
      for (; count < kTogether && i + count < end; ++count) some[count] = mutations_[i + count];
      map.begin_apply({some, count}, {blocks_.begin() + i, count});
      map.index().write_many({some, count}, [&](std::size_t, const Expected<bool>& result) {
        all &= result.has_value();
      });
      map.end_apply();
      i += count;
    }
    return all;
  }
  bool is_done(std::uint64_t piece) const { return core_.platform().load(done_word(piece)) != 0; }
  bool note_done(std::uint64_t piece) {
    std::uint64_t& word = done_word(piece);
    core_.platform().store(word, batch_record::done_word(record_, piece));
    core_.platform().flush(&word, sizeof(word), "pool.batch.piece"_site);
    return core_.platform().fence("pool.batch.piece"_site);
  }
  // On the medium.
  std::uint64_t& done_word(std::uint64_t piece) const {
    return core_.heap().template at<std::uint64_t>(record_ + head_.bytes)[piece];
  }
  const Part& part_of(std::uint64_t piece) const {
    const Part* part = parts_.begin();
    while (part + 1 != parts_.end() && part[1].piece <= piece) ++part;
    return *part;
  }
  // --- what mutations beside it ask ---

  const Part* part_of_root(std::uint64_t root) const {
    for (const Part& part : parts_) {
      if (part.target.root == root) return &part;
    }
    return nullptr;
  }
  static bool below(const detail::Key& a, const detail::Key& b) {
    return a.word != b.word ? a.word < b.word : a.bytes < b.bytes;
  }
  std::size_t first_in(std::size_t begin, std::size_t end, const detail::Key& key) const {
    while (begin < end) {
      const std::size_t middle = begin + (end - begin) / 2;
      if (below(mutations_[middle].key, key)) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return begin;
  }
  std::uint64_t piece_of(const Part& part, std::size_t i) const {
    return part.piece + (i - part.begin) / limits_.piece;
  }
  // Of the mutation of this key, or end().
  std::size_t find(const Part& part, const detail::Key& key) const {
    for (const auto& [begin, end] :
         {std::pair(part.begin, part.puts_end), std::pair(part.puts_end, part.end)}) {
      const std::size_t i = first_in(begin, end, key);
      if (i != end && !below(key, mutations_[i].key)) return i;
    }
    return part.end;
  }

  bool names(std::uint64_t root) const noexcept override { return part_of_root(root) != nullptr; }
  bool is_due(std::uint64_t root, const detail::Key& key) const noexcept override {
    if (!committed_) return false;
    const Part& part = *part_of_root(root);
    const std::size_t i = find(part, key);
    return i != part.end && !is_done(piece_of(part, i));
  }
  Status finish(std::uint64_t root, const detail::Key& key) noexcept override {
    const Part& part = *part_of_root(root);
    return do_piece(piece_of(part, find(part, key)));
  }
  // So many puts were prepared.
  std::size_t ready(const Part& part) const {
    return std::clamp(ready_, part.begin, part.puts_end) - part.begin;
  }
  std::size_t first_put(std::uint64_t root, const detail::Key& key) const noexcept override {
    const Part& part = *part_of_root(root);
    return first_in(part.begin, part.begin + ready(part), key) - part.begin;
  }
  const detail::Mutation* put(std::uint64_t root, std::size_t number) const noexcept override {
    const Part& part = *part_of_root(root);
    return number < ready(part) ? &mutations_[part.begin + number] : nullptr;
  }
  bool needs_room(std::uint64_t root, std::size_t number) const noexcept override {
    const Part& part = *part_of_root(root);
    return !committed_ || !is_done(piece_of(part, part.begin + number));
  }

  PoolCore<P>& core_;
  std::span<const BatchTarget> targets_;
  const Sorted mutations_;
  const PieceLimits limits_;
  Array<Part> parts_;
  std::uint64_t pieces_ = 0;
  Array<std::uint64_t> blocks_;   // with the entry of the mutation; 0: none
  std::size_t ready_ = 0;         // so many of the mutations were prepared
  Array<detail::Mutation> some_;  // for prepare(), with present_
  Array<bool> present_;
  layout::BatchRecord head_{};
  std::uint64_t record_ = 0;
  bool committed_ = false;
};

}  // namespace perdure
