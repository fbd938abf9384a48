// BatchLog: which batch is committed and not done yet (pool/batch.h).
//
// WHAT  A batch is a record in a block of its own, and a word that names it. The word is its
//   commit. It lies in the last line of the page of header copy A. Pools without batches have 0
//   there and no feature bit.
// INVARIANTS
//   pool.L1  (C) A word that is not 0 names a whole record: the record is durable before the word
//       is stored.
//   pool.L2  (C) While the word is not 0, no mutation of another thread has changed a key of the
//       batch since the commit: it is durably 0 before the gate is opened, or the keys are
//       released, and before a map serves. A batch in pieces releases a key when its record says,
//       durably, that the piece is done.
//   pool.L3  (C) The word counts only in a dirty pool: a batch is done before a close or a seal. A
//       copy of a sealed file may have an old word, which is cleared before the pool gets dirty.
// OPERATIONS
//   commit  the word, 1 fence. Linearization and persist point of a batch.
//   clear   the word, 1 fence. After a crash before it, the batch is done once more: all its keys
//           have their values already (pool.L2).
// RECOVERY  A word has a checksum of its own. If it is damaged, the pool is refused. The loss of
//   the whole page at the moment of a crash in a batch is not noticed.
#pragma once

#include <cstdint>
#include <utility>

#include "format/growth.h"

namespace perdure::format {

template <Platform P>
class BatchLog : public Growth<P> {
  using Base = Growth<P>;

 public:
  using Base::Base;

  // Before the first batch of a pool: older builds must refuse it from now on. Both header copies
  // say so when this returns ok.
  [[gnu::noinline]] Status use_batches() {
    LatchGuard guard(this->latch_);
    if ((header_.incompatible & layout::kBatches) != 0) return {};
    this->unseal();
    PERDURE_ASSERT(P, "pool.I4", this->is_dirty());
    if (platform_.load(batch_word()) != 0) return damaged_word();
    header_.incompatible |= layout::kBatches;
    header_.batch_log = layout::kBatchLog;
    return this->write_headers("pool.batch.second_copy"_site);
  }
  // Of the word, from commit to clear, for batches that do not close the gate
  // (pool/latched_batch.h).
  typename P::Latch& batch_latch() { return word_latch_; }
  // Commits the batch with this durable record of so many bytes. False: the pool is poisoned.
  [[gnu::noinline]] bool commit_batch(std::uint64_t record, std::uint64_t bytes) {
    PERDURE_ASSERT(P, "pool.L1", platform_.persisted(this->storage_.base() + record, bytes));
    PERDURE_ASSERT(P, "batch.J3", platform_.load(batch_word()) == 0);
    return set_word(word_of(record), "pool.batch.commit"_site);
  }
  // The batch is done, durably.
  [[gnu::noinline]] bool clear_batch() {
    const bool done = set_word(0, "pool.batch.clear"_site);
    PERDURE_ASSERT(P, "pool.L2", !done || platform_.persisted(&batch_word(), 8));
    return done;
  }
  // Clears a word that does not count. write_dirty(), which must follow, makes that durable before
  // it writes a header.
  [[gnu::noinline]] void forget_batch() {
    if (!has_word()) return;
    if (P::runs("pool.batch.forget"_site)) platform_.store(batch_word(), 0);
    PERDURE_ASSERT(P, "pool.L3", !has_word());
  }
  // Returns the record of the batch that is committed and not done, or 0.
  [[gnu::noinline]] Expected<std::uint64_t> committed_batch() const {
    if ((header_.incompatible & layout::kBatches) == 0) return 0;
    const std::uint64_t word = platform_.load(batch_word());
    const std::uint64_t record = word & kOffsets;
    if (word == 0 || matches<P>(word == word_of(record), "pool.batch.word"_site)) return record;
    return fail(damaged_word());
  }

 protected:
  using Base::header_, Base::platform_;

 private:
  typename P::Latch word_latch_;
  static constexpr std::uint64_t kOffsets = (1ULL << 48) - 1;

  static Status damaged_word() {
    return Status::format(StatusCode::corruption,
                          "the word of the log of batches is damaged; restore a copy of the file");
  }
  static std::uint64_t word_of(std::uint64_t record) {
    if (record == 0) return 0;
    return record | std::uint64_t{crc32c(0x5A, &record, sizeof(record)) & 0xFFFF} << 48;
  }
  bool has_word() const {
    return (header_.incompatible & layout::kBatches) != 0 && platform_.load(batch_word()) != 0;
  }
  std::uint64_t& batch_word() const {
    return *reinterpret_cast<std::uint64_t*>(this->storage_.base() + layout::kBatchLog);
  }
  template <FixedString Name>
  [[nodiscard]] bool set_word(std::uint64_t word, Site<Name> site) {
    platform_.store(batch_word(), word);
    platform_.flush(&batch_word(), sizeof(word), site);
    return platform_.fence(site);
  }
};

}  // namespace perdure::format
