// BackupFiles: names and head of a backup, for its writer and its reader.
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "backup/backup_format.h"
#include "cut/segment_names.h"
#include "perdure/function_ref.h"
#include "platform/file_system.h"
#include "util/containers.h"

namespace perdure {

// Bytes copied, and bytes to copy, as far as that is known.
using BackupProgress = FunctionRef<void(std::uint64_t done, std::uint64_t total)>;

// A file that is closed at the end.
class OpenFile {
 public:
  explicit OpenFile(FileSystem& files) noexcept : files_(files) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() { close(); }

  Status open(std::string_view path, FileSystem::Open how) noexcept {
    close();
    auto file = files_.open(path, how);
    if (!file) return std::move(file.error());
    file_ = *file;
    return {};
  }
  void close() noexcept {
    if (file_ >= 0) files_.close(std::exchange(file_, -1));
  }
  FileSystem::File operator*() const noexcept { return file_; }

 private:
  FileSystem& files_;
  FileSystem::File file_ = -1;
};

// The same error as damage of the backup.
inline Status as_corruption(const Status& s) noexcept {
  return Status::format(StatusCode::corruption, "%.*s", static_cast<int>(s.message().size()),
                        s.message().data());
}

class BackupFiles {
 public:
  // `folder` must stay valid.
  BackupFiles(FileSystem& files, const char* folder) noexcept : files_(files), folder_(folder) {}

  const char* folder() const noexcept { return folder_; }
  // Names the parts. Errors: invalid_argument (a path is too long).
  Status name() noexcept {
    Status s = path_of(layout::kBackupBase, base_);
    return s.ok() ? path_of(layout::kBackupLog, log_) : std::move(s);
  }
  // After name() or read().
  const char* base() const noexcept { return base_.c_str(); }
  const char* log() const noexcept { return log_.c_str(); }
  Status path_of(std::string_view name, PathText& path) const noexcept {
    return path_in(folder_, name, path);
  }
  // Makes the folder, unless it is there.
  Status make() noexcept;
  // Errors: not_found (the folder has no backup), corruption, unsupported_format, out_of_memory,
  // io.
  Status read() noexcept;
  const layout::BackupHead& head() const noexcept { return head_; }
  const Array<std::uint32_t>& sums() const noexcept { return sums_; }
  Array<std::uint32_t> take_sums() noexcept { return std::move(sums_); }

 private:
  Status damaged(const char* what) const noexcept {
    return Status::format(StatusCode::corruption, "%s/%s: %s; use another backup", folder_,
                          layout::kBackupHead, what);
  }

  FileSystem& files_;
  const char* folder_;
  PathText base_, log_;
  layout::BackupHead head_{};
  Array<std::uint32_t> sums_;
};

inline Status BackupFiles::make() noexcept {
  Status made = files_.make_folder(folder_);
  const bool there = made == StatusCode::exists;  // perhaps not durably
  if (!made.ok() && !there) return made;
  Status synced = files_.sync_folder(folder_of(folder_), "backup.folder.name"_site);
  return there ? Status() : std::move(synced);
}

inline Status BackupFiles::read() noexcept {
  PathText path;
  Status s = name();
  if (s.ok()) s = path_of(layout::kBackupHead, path);
  if (!s.ok()) return s;
  OpenFile file(files_);
  s = file.open(path.c_str(), FileSystem::Open::reading);
  if (s == StatusCode::not_found) {
    return Status::format(StatusCode::not_found,
                          "%s: has no finished backup; perdure backup makes one", folder_);
  }
  if (!s.ok()) return s;
  auto got = files_.read(*file, &head_, sizeof(head_), 0);
  if (!got) return std::move(got.error());
  if (*got != sizeof(head_) || !layout::is_backup(head_)) return damaged("is damaged");
  if (head_.version != layout::kBackupVersion) {
    return Status::format(StatusCode::unsupported_format, "%s: has version %u; this build reads %u",
                          path.c_str(), head_.version, layout::kBackupVersion);
  }
  constexpr std::uint64_t kMostPiece = std::uint64_t{1} << 26, kMostBase = std::uint64_t{1} << 48;
  if (head_.piece_bytes == 0 || head_.piece_bytes > kMostPiece || head_.base_bytes > kMostBase)
    return damaged("says what no backup has");
  const std::uint64_t pieces = (head_.base_bytes + head_.piece_bytes - 1) / head_.piece_bytes;
  std::uint32_t crc = 5;
  for (std::uint64_t i = 0; i < pieces; ++i) {
    std::uint32_t sum = 0;
    auto read = files_.read(*file, &sum, sizeof(sum), sizeof(head_) + i * sizeof(sum));
    if (!read) return std::move(read.error());
    if (*read != sizeof(sum)) return damaged("is too short");
    if (!sums_.push_back(sum)) return StatusCode::out_of_memory;
    crc = crc32c(crc, &sum, sizeof(sum));
  }
  return crc == head_.sums_crc ? Status() : damaged("its checksums are damaged");
}

}  // namespace perdure
