#include "backup/backup_writer.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "format/header.h"
#include "platform/nap.h"
#include "platform/real_platform.h"

namespace perdure {

// --- the folder of the backup --------------------------------------------------------------------

Status BackupWriter::occupied(const char* why) const noexcept {
  return Status::format(StatusCode::exists, "%s: %s; name another folder", to_.folder(), why);
}

// What the folder has: nothing, a backup, or one that was not finished.
Status BackupWriter::look() noexcept {
  Status s = to_.read();
  extends_ = s.ok();
  if (s.ok()) {
    head_ = to_.head();
    sums_ = to_.take_sums();
    return {};
  }
  if (s != StatusCode::not_found) return s;
  std::size_t names = 0;  // a marker alone need not have its content yet
  Status listed = files_.list(to_.folder(), [&](std::string_view name) {
    names += name != layout::kBackupNewHead ? 1 : 0;
  });
  if (listed == StatusCode::not_found || (listed.ok() && names == 0)) return {};
  if (!listed.ok()) return listed;
  PathText path;
  if (Status named = to_.path_of(layout::kBackupNewHead, path); !named.ok()) return named;
  OpenFile marker(files_);
  std::uint64_t magic = 0;
  if (marker.open(path.c_str(), FileSystem::Open::reading).ok()) {
    (void)files_.read(*marker, &magic, sizeof(magic), 0);
  }
  return magic == layout::kBackupMagic ? Status() : occupied("is not empty, and has no backup");
}

// The marker says that what else is there may be removed.
Status BackupWriter::begin_folder() noexcept {
  if (Status made = to_.make(); !made.ok()) return made;
  OpenFile marker(files_);
  Status s = open_new_head(marker);
  if (!s.ok()) return s;
  layout::BackupHead head{};
  head.magic = layout::kBackupMagic;
  head.version = layout::kBackupVersion;
  head.crc = layout::backup_crc(head);
  s = files_.write(*marker, &head, sizeof(head), 0);
  if (s.ok()) s = files_.sync(*marker, "backup.marker.sync"_site);
  if (s.ok()) s = files_.sync_folder(to_.folder(), "backup.marker.name"_site);
  return s.ok() ? clear() : std::move(s);
}

// Makes the file, or opens what an attempt before this one has left, which may be torn: its first
// sector has no content, or that of a head. Anything else is not overwritten.
Status BackupWriter::open_new_head(OpenFile& file) noexcept {
  PathText path;
  Status s = to_.path_of(layout::kBackupNewHead, path);
  if (s.ok()) s = file.open(path.c_str(), FileSystem::Open::fresh);
  if (s != StatusCode::exists) return s;
  s = file.open(path.c_str(), FileSystem::Open::existing);
  if (!s.ok()) return s;
  std::uint64_t magic = 0;
  auto got = files_.read(*file, &magic, sizeof(magic), 0);
  if (!got) return std::move(got.error());
  return magic == 0 || magic == layout::kBackupMagic
             ? Status()
             : occupied("has another file that is called backup-new");
}

// Removes what an attempt before this one has left.
Status BackupWriter::clear() noexcept {
  Status s = files_.remove(to_.base());
  if (!s.ok() && s != StatusCode::not_found) return s;
  while (!sums_.empty()) (void)sums_.pop_back();
  head_ = {};
  s = remove_later(0);
  return s == StatusCode::not_found ? files_.make_folder(to_.log()) : std::move(s);
}

// The segments behind this one: they do not count, and their numbers may come again.
Status BackupWriter::remove_later(std::uint64_t segment) noexcept {
  Array<std::uint64_t> numbers;
  Status s = list_segments(files_, to_.log(), numbers);
  for (std::size_t i = 0; s.ok() && i < numbers.size(); ++i) {
    if (numbers[i] > segment) s = remove_in(files_, to_.log(), segment_name(numbers[i]));
  }
  return s;
}

// What an addition that failed has left behind the last part may not be on the disk, and must not
// count when the segment is not the last one any more.
Status BackupWriter::trim_last() noexcept {
  PathText path, trimmed;
  Status s = path_in(to_.log(), segment_name(head_.last_segment), path);
  if (s.ok()) s = path_in(to_.log(), kUnnamedSegment, trimmed);
  if (!s.ok() || head_.last_segment == 0) return s;
  OpenFile old(files_), file(files_);
  if (s = old.open(path.c_str(), FileSystem::Open::reading); !s.ok()) return as_corruption(s);
  auto size = files_.size(*old);
  if (!size) return std::move(size.error());
  if (*size <= head_.last_segment_bytes || !files_.does("backup.trim.file"_site)) return {};
  s = files_.remove(trimmed.c_str());
  if (s.ok() || s == StatusCode::not_found) s = file.open(trimmed.c_str(), FileSystem::Open::fresh);
  for (std::uint64_t at = 0; s.ok() && at < head_.last_segment_bytes;) {
    const std::size_t n = std::min(shape_.piece_bytes, head_.last_segment_bytes - at);
    auto got = files_.read(*old, piece_.get(), n, at);
    if (!got) return std::move(got.error());
    s = files_.write(*file, piece_.get(), *got, at);
    at += n;
  }
  if (s.ok()) s = files_.sync(*file, "backup.trim.sync"_site);
  // Until the name is durable the head may have the longer file, which counts as much.
  return s.ok() ? files_.rename(trimmed.c_str(), path.c_str()) : std::move(s);
}

// backup.K2
Status BackupWriter::write_head(layout::BackupKind kind, std::uint64_t unix_ns) noexcept {
  head_.magic = layout::kBackupMagic;
  head_.version = layout::kBackupVersion;
  head_.kind = kind;
  head_.ends_unix_ns = std::max({head_.ends_unix_ns, unix_ns, head_.last.unix_ns});
  head_.sums_crc = 5;
  for (const std::uint32_t sum : sums_) {
    head_.sums_crc = crc32c(head_.sums_crc, &sum, sizeof(sum));
  }
  head_.crc = layout::backup_crc(head_);
  PathText path, named;
  Status s = to_.path_of(layout::kBackupNewHead, path);
  if (s.ok()) s = to_.path_of(layout::kBackupHead, named);
  if (!s.ok()) return s;
  OpenFile file(files_);
  s = open_new_head(file);
  if (s.ok() && !sums_.empty())
    s = files_.write(*file, sums_.begin(), sums_.size() * sizeof(std::uint32_t), sizeof(head_));
  if (s.ok()) s = files_.write(*file, &head_, sizeof(head_), 0);
  if (s.ok()) s = files_.sync(*file, "backup.head.sync"_site);
  if (s.ok()) s = files_.sync_folder(to_.folder(), "backup.names.sync"_site);
  if (s.ok()) s = files_.rename(path.c_str(), named.c_str());
  return s.ok() ? files_.sync_folder(to_.folder(), "backup.head.name"_site) : std::move(s);
}

// --- the pool ------------------------------------------------------------------------------------

Status BackupWriter::changed(const char* what) const noexcept {
  return Status::format(StatusCode::busy, "%.*s: %s while it was copied; try again",
                        static_cast<int>(source_.base.size()), source_.base.data(), what);
}

// A mark may be under way: then a copy is damaged for a moment.
Status BackupWriter::read_mark(layout::BaseMark& mark) noexcept {
  Status s;
  for (int i = 0; i < kTorn; ++i) {
    layout::BaseMark copies[2] = {};
    int whole = 0;
    for (std::uint64_t k = 0; k < 2; ++k) {
      auto got = pool_.read(*base_, &copies[k], sizeof(copies[k]),
                            k * layout::kMarkStride + layout::kMarkOffset);
      if (!got) return std::move(got.error());
      if (*got != sizeof(copies[k])) copies[k] = {};
      const bool valid =
          copies[k].magic == layout::kMarkMagic && copies[k].crc == layout::mark_crc(copies[k]);
      whole += valid || copies[k].magic == 0 ? 1 : 0;
    }
    int counts = -1;
    s = layout::choose_mark(copies, counts);
    mark = counts >= 0 ? copies[counts] : layout::BaseMark{};
    if (whole == 2) return s;
    nap();
  }
  return s;
}

Status BackupWriter::run() noexcept {
  piece_.reset(new (std::nothrow) std::byte[shape_.piece_bytes]);
  if (piece_ == nullptr) return StatusCode::out_of_memory;
  if (Status s = look(); !s.ok()) return s;
  Status s;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    s = try_once();
    if (s != StatusCode::busy) break;
  }
  return s;
}

Status BackupWriter::try_once() noexcept {
  if (Status s = base_.open(source_.base, FileSystem::Open::reading); !s.ok()) return s;
  layout::BaseMark mark;
  if (Status s = read_mark(mark); !s.ok()) return s;
  if (extends_) return extend(mark);
  if (Status s = begin_folder(); !s.ok()) return s;
  return mark.state == layout::BaseState::open ? copy_open(mark) : copy_closed(mark);
}

// --- the base ------------------------------------------------------------------------------------

Status BackupWriter::poll(SegmentHolds* holds) noexcept {
  progress_(copied_, std::max(copied_, total_));
  const std::uint64_t now = RealPlatform::now_ns();
  if (holds == nullptr || now - polled_at_ < shape_.poll_ns) return {};
  polled_at_ = now;
  Status s = holds->take(head_.mark.folded);
  return s.ok() ? copy_segments(*holds, false) : std::move(s);
}

// Pieces of zeros are holes of the copy. The base may grow meanwhile: what it gets then is in the
// log.
Status BackupWriter::copy_base(SegmentHolds* holds) noexcept {
  auto size = pool_.size(*base_);
  if (!size) return std::move(size.error());
  head_.base_bytes = *size;
  head_.piece_bytes = shape_.piece_bytes;
  head_.made_unix_ns = RealPlatform::unix_ns();
  total_ = copied_ + *size;
  OpenFile copy(files_);
  if (Status s = copy.open(to_.base(), FileSystem::Open::fresh); !s.ok()) return s;
  bool hole = false;
  for (std::uint64_t at = 0; at < *size;) {
    const std::size_t n = std::min(shape_.piece_bytes, *size - at);
    auto got = pool_.read(*base_, piece_.get(), n, at);
    if (!got) return std::move(got.error());
    if (*got != n) return changed("its file became shorter");
    if (!sums_.push_back(crc32c(0, piece_.get(), n))) return StatusCode::out_of_memory;
    hole = std::all_of(piece_.get(), piece_.get() + n,
                       [](std::byte byte) { return byte == std::byte{}; });
    Status s = hole ? Status() : files_.write(*copy, piece_.get(), n, at);
    at += n;
    copied_ += n;
    if (s.ok()) s = poll(holds);
    if (!s.ok()) return s;
  }
  if (hole) {
    if (Status s = files_.write(*copy, piece_.get(), 1, *size - 1); !s.ok()) return s;
  }
  return {};
}

Status BackupWriter::sync_base() noexcept {
  OpenFile copy(files_);
  if (Status s = copy.open(to_.base(), FileSystem::Open::existing); !s.ok()) return s;
  Status s = files_.sync(*copy, "backup.base.sync"_site);
  if (s.ok()) files_.forget(*copy);
  return s;
}

Status BackupWriter::verify_base() noexcept {
  OpenFile copy(files_);
  if (Status s = copy.open(to_.base(), FileSystem::Open::reading); !s.ok()) return s;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const std::uint64_t at = i * shape_.piece_bytes;
    const std::size_t n = std::min(shape_.piece_bytes, head_.base_bytes - at);
    auto got = files_.read(*copy, piece_.get(), n, at);
    if (!got) return std::move(got.error());
    if (*got != n || crc32c(0, piece_.get(), n) != sums_[i]) {
      return Status::format(StatusCode::io, "%s: what was written at %lu cannot be read back",
                            to_.base(), at);
    }
  }
  return {};
}

Status BackupWriter::copy_closed(const layout::BaseMark& mark) noexcept {
  const std::uint64_t unix_ns = RealPlatform::unix_ns();
  Status s = copy_base(nullptr);
  if (s.ok()) s = sync_base();
  if (s.ok()) s = verify_base();
  if (!s.ok()) return s;
  // An open for writing changes a header, or a mark, first of all.
  const std::size_t n = std::min<std::uint64_t>(layout::kDirectoryOffset, head_.base_bytes);
  std::unique_ptr<std::byte[]> now(new (std::nothrow) std::byte[2 * n]);
  if (now == nullptr) return StatusCode::out_of_memory;
  OpenFile copy(files_);
  if (s = copy.open(to_.base(), FileSystem::Open::reading); !s.ok()) return s;
  auto before = files_.read(*copy, now.get(), n, 0);
  auto after = pool_.read(*base_, now.get() + n, n, 0);
  if (!before) return std::move(before.error());
  if (!after) return std::move(after.error());
  if (*before != n || *after != n || std::memcmp(now.get(), now.get() + n, n) != 0)
    return changed("the pool was opened");
  layout::Header header;
  if (s = read_header(now.get(), head_.base_bytes, header); !s.ok()) return s;
  if (header.close_state == layout::CloseState::dirty) return changed("the pool was opened");
  std::memcpy(head_.uuid, header.uuid, sizeof(head_.uuid));
  head_.mark = mark;
  head_.first = layout::epoch_of({.epoch = mark.folded, .seal = mark.folded_seal}, 0);
  head_.last = head_.first;
  return write_head(layout::BackupKind::closed, unix_ns);
}

Status BackupWriter::copy_open(const layout::BaseMark& mark) noexcept {
  if (mark.live.unverified != 0) {
    return Status::format(StatusCode::untrusted,
                          "%.*s: no check of its content has passed yet; try again later",
                          static_cast<int>(source_.base.size()), source_.base.data());
  }
  head_.mark = mark;
  SegmentHolds holds(pool_, source_.log, 1);
  Status s = holds.take(mark.folded);
  if (s.ok()) s = copy_base(&holds);
  if (!s.ok()) return s;
  layout::BaseMark end;
  if (s = read_mark(end); !s.ok()) return s;
  const bool same = end.state == layout::BaseState::open &&
                    layout::same_id(end.log_id, mark.log_id) &&
                    layout::same_id(end.live.live_id, mark.live.live_id);
  if (!same) return changed("the pool was opened or closed");
  if (files_.does("backup.mark.folding"_site)) {  // backup.K1
    head_.mark.folding = end.folding;
    head_.mark.folding_seal = end.folding_seal;
    head_.mark.folding_segment = end.folding_segment;
  }
  head_.mark.newest = end.newest;
  s = copy_all(holds, end.newest);
  if (s.ok()) s = verify_log();
  if (s.ok()) s = sync_base();
  if (s.ok()) s = verify_base();
  if (!s.ok()) return s;
  layout::Header header{};
  auto got = pool_.read(*base_, &header, sizeof(header), 0);
  if (!got) return std::move(got.error());
  std::memcpy(head_.uuid, header.uuid, sizeof(head_.uuid));
  return write_head(layout::BackupKind::open, source_.ends_unix_ns);
}

// --- the log -------------------------------------------------------------------------------------

// Errors: not_found (the segment was used again), io.
Expected<layout::SegmentHead> BackupWriter::head_of(const SegmentHolds::Held& held) noexcept {
  auto head = read_segment_head(pool_, held.file);
  const bool other =
      head && (head->number != held.number || !layout::same_id(head->log_id, head_.mark.log_id));
  if (other) return fail(StatusCode::not_found);
  return head;
}

Status BackupWriter::copy_segment(const SegmentHolds::Held& held,
                                  const layout::SegmentHead& head) noexcept {
  const bool goes_on = held.number == head_.last_segment;
  const std::uint64_t begin = goes_on ? head_.last_segment_bytes : kPage;
  PathText path;
  Status s = path_in(to_.log(), segment_name(held.number), path);
  OpenFile file(files_);
  if (s.ok()) s = file.open(path.c_str(), FileSystem::Open::existing);
  if (s == StatusCode::not_found) s = file.open(path.c_str(), FileSystem::Open::fresh);
  if (s.ok() && begin == kPage) s = files_.write(*file, &head, sizeof(head), 0);
  if (!s.ok()) return s;
  LogReader reader(pool_, source_.log);
  auto end = reader.visit_parts(
      head_.mark, held.file, held.number, begin,
      [&](const layout::PartHead& part, std::span<const std::byte> body) {
        Status put = files_.write(*file, &part, sizeof(part), part.offset);
        if (put.ok())
          put = files_.write(*file, body.data(), body.size(), part.offset + sizeof(part));
        copied_ += sizeof(part) + body.size();
        branches_ = branches_ || (extends_ && part.after < to_.head().last.epoch);
        if (put.ok()) put = poll(nullptr);
        return put;
      });
  if (!end) return std::move(end.error());
  head_.last_segment = held.number;
  head_.last_segment_bytes = *end;
  head_.log_bytes += *end - begin;
  s = files_.sync(*file, "backup.segment.sync"_site);
  if (s.ok()) files_.forget(*file);
  return s;
}

// Those that are complete, and `last` also the one that may grow (backup.K4). The chain of epochs
// shows what is missing.
Status BackupWriter::copy_segments(SegmentHolds& holds, bool last) noexcept {
  const auto& held = holds.held();
  std::size_t done = 0;
  for (; done + (last ? 0 : 1) < held.size(); ++done) {
    auto head = head_of(held[done]);
    if (!head && head.error() == StatusCode::not_found) continue;
    if (!head) return std::move(head.error());
    if (Status s = copy_segment(held[done], *head); !s.ok()) return s;
  }
  holds.drop(done);
  return last ? files_.sync_folder(to_.log(), "backup.log.names"_site) : Status();
}

// Up to the segment `newest` at least: the owner may be faster than the copy.
Status BackupWriter::copy_all(SegmentHolds& holds, std::uint64_t newest) noexcept {
  for (;;) {
    if (Status s = holds.take(head_.mark.folded); !s.ok()) return s;
    const auto& held = holds.held();
    const bool more = holds.full() && held[held.size() - 1].number < newest;
    if (Status s = copy_segments(holds, !more); !s.ok() || !more) return s;
  }
}

// Scans from the segment `first` on, of a base with this mark.
Status BackupWriter::verify_chain(LogReader& reader, const layout::BaseMark& mark,
                                  std::uint64_t first) noexcept {
  reader.limit(first, head_.last_segment, head_.last_segment_bytes);
  Status s = reader.scan(mark);
  if (!s.ok()) return s;
  if (source_.least.epoch <= mark.folded || reader.has(source_.least)) return {};
  return Status::format(StatusCode::untrusted, "the log lacks epoch %lu, which was durable",
                        source_.least.epoch);
}

void BackupWriter::set_end(const LogReader& reader) noexcept {
  const LogEnd& end = reader.end();
  head_.last = layout::epoch_of({.epoch = end.epoch, .seal = end.seal}, end.unix_ns);
  head_.end_segment = reader.last_segment();
}

// backup.K2
Status BackupWriter::verify_log() noexcept {
  LogReader reader(files_, to_.log());
  Status s = verify_chain(reader, head_.mark, 0);
  if (s == StatusCode::untrusted || s == StatusCode::exists)
    return changed("its log was used again");
  if (!s.ok()) return s;
  const layout::BaseMark& mark = head_.mark;
  head_.first = layout::epoch_of({.epoch = mark.folded, .seal = mark.folded_seal}, 0);
  // Another one if a restart has replaced it.
  for (std::size_t i = 0; i < reader.count() && head_.first.epoch < mark.folding; ++i) {
    const auto epoch = reader.counting(i);
    if (epoch.id.epoch < mark.folding) continue;
    head_.first = layout::epoch_of(epoch.id, epoch.unix_ns);
  }
  set_end(reader);
  return {};
}

// --- an addition ---------------------------------------------------------------------------------

// What was added follows the last epoch, and has all that the pool's mark knows.
Status BackupWriter::verify_added(const layout::BaseMark& now) noexcept {
  layout::BaseMark last = head_.mark;
  last.folded = last.folding = head_.last.epoch;
  last.folded_seal = last.folding_seal = head_.last.seal;
  last.replaced = 0;
  // A mark can be one segment behind, after a kill. One that is further behind is of another time.
  const bool older = now.newest + 1 < to_.head().last_segment;
  last.newest = now.newest < to_.head().last_segment ? 0 : now.newest;
  LogReader reader(files_, to_.log());
  Status s = verify_chain(reader, last, to_.head().end_segment);
  const bool follows =
      s.ok() && !branches_ && !older &&
      (now.folded < last.folded || reader.has({.epoch = now.folded, .seal = now.folded_seal}));
  if (s == StatusCode::untrusted || s == StatusCode::exists || (s.ok() && !follows)) {
    return Status::format(StatusCode::exists,
                          "%s: its backup ends at epoch %lu, and the pool's log %s; name another "
                          "folder",
                          to_.folder(), head_.last.epoch,
                          branches_ || older ? "was begun again from an earlier one"
                                             : "does not have what follows any more (see "
                                               "BufferedOptions::keep_log_bytes)");
  }
  if (!s.ok() || reader.count() == 0) return s;
  set_end(reader);
  return {};
}

Status BackupWriter::extend(const layout::BaseMark& mark) noexcept {
  layout::Header header{};
  auto got = pool_.read(*base_, &header, sizeof(header), 0);
  if (!got) return std::move(got.error());
  if (!layout::same_id(header.uuid, head_.uuid)) return occupied("has a backup of another pool");
  const bool goes_on =
      mark.state == layout::BaseState::open && head_.kind == layout::BackupKind::open &&
      mark.live.inode == head_.mark.live.inode && layout::same_id(mark.log_id, head_.mark.log_id);
  if (!goes_on) return occupied("has a backup of another time that the pool was open");
  if (Status s = remove_later(head_.last_segment); !s.ok()) return s;
  if (Status s = trim_last(); !s.ok()) return s;
  SegmentHolds holds(pool_, source_.log, head_.last_segment);
  Status s = copy_all(holds, mark.newest);
  if (s.ok()) s = verify_added(mark);
  return s.ok() ? write_head(layout::BackupKind::open, source_.ends_unix_ns) : std::move(s);
}

}  // namespace perdure
