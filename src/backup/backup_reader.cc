#include "backup/backup_reader.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "cut/base_mark.h"

namespace perdure {

Status BackupReader::scan() noexcept {
  const layout::BackupHead& head = from_.head();
  if (!epochs_.push_back(head.first)) return StatusCode::out_of_memory;
  if (head.kind == layout::BackupKind::closed) return {};
  reader_.emplace(files_, from_.log());
  reader_->limit(0, head.last_segment, head.last_segment_bytes);
  Status s = reader_->scan(head.mark);
  if (s.ok() && reader_->end().epoch != head.last.epoch) {
    s = Status::format(StatusCode::corruption, "%s: ends at epoch %lu, and had %lu", from_.log(),
                       reader_->end().epoch, head.last.epoch);
  }
  if (s == StatusCode::untrusted) s = as_corruption(s);
  if (!s.ok()) return s;
  for (std::size_t i = 0; i < reader_->count(); ++i) {
    const auto next = reader_->counting(i);
    if (next.id.epoch <= head.first.epoch) continue;
    if (!epochs_.push_back(layout::epoch_of(next.id, next.unix_ns)))
      return StatusCode::out_of_memory;
  }
  return {};
}

Expected<layout::BackupEpoch> BackupReader::at_epoch(std::uint64_t epoch) const noexcept {
  for (const layout::BackupEpoch& found : epochs_) {
    if (found.epoch == epoch) return found;
  }
  return fail(StatusCode::invalid_argument, "%s: has no epoch %lu; it has %lu to %lu",
              from_.folder(), epoch, epochs_[0].epoch, last().epoch);
}

Expected<layout::BackupEpoch> BackupReader::at_time(std::uint64_t unix_ns) const noexcept {
  if (unix_ns > std::max(from_.head().ends_unix_ns, last().unix_ns)) {
    return fail(StatusCode::invalid_argument,
                "%s: was made before that time; its last epoch is %lu", from_.folder(),
                last().epoch);
  }
  const layout::BackupEpoch* found = nullptr;
  for (std::size_t i = 0; i < epochs_.size(); ++i) {
    const bool ends = i + 1 == epochs_.size() || epochs_[i + 1].unix_ns > unix_ns;
    // The clock of the base may not be known.
    if (epochs_[i].unix_ns == 0 || epochs_[i].unix_ns > unix_ns || !ends) continue;
    if (found != nullptr) {
      return fail(StatusCode::invalid_argument,
                  "%s: the clock was set back, so epochs %lu and %lu are both the last before "
                  "that time; name one of them",
                  from_.folder(), found->epoch, epochs_[i].epoch);
    }
    found = &epochs_[i];
  }
  if (found != nullptr) return *found;
  return fail(StatusCode::invalid_argument,
              "%s: has no epoch whose time is known to be as early; the first is %lu",
              from_.folder(), epochs_[0].epoch);
}

Status BackupReader::copy_base(FileSystem::File to, BackupProgress progress) noexcept {
  const layout::BackupHead& head = from_.head();
  OpenFile base(files_);
  Status s = base.open(from_.base(), FileSystem::Open::reading);
  if (!s.ok()) return as_corruption(s);
  std::unique_ptr<std::byte[]> piece(new (std::nothrow) std::byte[head.piece_bytes]);
  if (piece == nullptr) return StatusCode::out_of_memory;
  for (std::size_t i = 0; i < from_.sums().size(); ++i) {
    const std::uint64_t at = i * head.piece_bytes;
    const std::size_t n = std::min(head.piece_bytes, head.base_bytes - at);
    auto got = files_.read(*base, piece.get(), n, at);
    if (!got) return std::move(got.error());
    const bool same = *got == n && crc32c(0, piece.get(), n) == from_.sums()[i];
    if (!same && (*got != n || files_.does("backup.base.sums"_site))) {
      return Status::format(StatusCode::corruption, "%s: is damaged at %lu; use another backup",
                            from_.base(), at);
    }
    const bool hole =
        at + n < head.base_bytes &&
        std::all_of(piece.get(), piece.get() + n, [](std::byte b) { return b == std::byte{}; });
    if (hole) continue;
    if (s = files_.write(to, piece.get(), n, at); !s.ok()) return s;
    progress(at + n, head.base_bytes);
  }
  return {};
}

// Lines that follow one another are written together.
Status BackupReader::replay(FileSystem::File to, std::uint64_t epoch) noexcept {
  constexpr std::size_t kMost = 64;
  std::byte run[kMost * kLine];
  std::uint64_t first = 0;
  std::size_t count = 0;
  Status written;
  const auto flush = [&] {
    if (written.ok() && count != 0) written = files_.write(to, run, count * kLine, first * kLine);
    count = 0;
  };
  Status s = reader_->replay(epoch, [&](std::uint64_t line, const LineWords& content) {
    if (count == kMost || line != first + count) flush();
    if (count == 0) first = line;
    std::memcpy(run + count++ * kLine, &content, kLine);
  });
  flush();
  if (s == StatusCode::untrusted) s = as_corruption(s);
  return s.ok() ? std::move(written) : std::move(s);
}

// restore.Q2. A pool that never had a log has no marks.
Status BackupReader::write_marks(FileSystem::File to, const layout::BackupEpoch& epoch) noexcept {
  if (from_.head().mark.magic == 0) return {};
  BaseMarks marks(files_, to);
  layout::BaseMark mark{};
  mark.state = layout::BaseState::closed;
  fill_random(mark.log_id);
  mark.folded = mark.folding = epoch.epoch;
  mark.folded_seal = mark.folding_seal = epoch.seal;
  mark.live.max_bytes = from_.head().mark.live.max_bytes;
  return marks.write_both(mark, "backup.restore.mark"_site, "backup.restore.both"_site);
}

Status BackupReader::replay_over(FileSystem::File base, const layout::BackupEpoch& epoch) noexcept {
  Status s;
  if (reader_) {
    // Of what the pool has grown by, the log has only what was stored there.
    std::uint64_t bytes = from_.head().base_bytes;
    for (std::size_t i = 0; i < reader_->count(); ++i) {
      const auto next = reader_->counting(i);
      if (next.id.epoch <= epoch.epoch) bytes = std::max(bytes, next.pool_bytes);
    }
    s = files_.allocate(base, 0, bytes);
    if (s.ok()) s = replay(base, epoch.epoch);
  }
  return s.ok() ? write_marks(base, epoch) : std::move(s);
}

Status BackupReader::write_to(FileSystem::File to, const layout::BackupEpoch& epoch,
                              BackupProgress progress) noexcept {
  Status s = copy_base(to, progress);
  if (s.ok()) s = replay_over(to, epoch);
  return s.ok() ? files_.sync(to, kNoSite) : std::move(s);
}

}  // namespace perdure
