#include "pool/last_cut.h"

#include <utility>

#include "backup/backup_reader.h"
#include "backup/backup_writer.h"
#include "cut/base_mark.h"
#include "platform/memory_files.h"

namespace perdure {

namespace {

constexpr const char* kFolder = "copy";

// Of a log that no process writes, a scan says what is wrong with it.
Status why_not(const FileStorage& storage, FileSystem& files, std::string_view path,
               std::string_view log, Status failed) noexcept {
  if (failed != StatusCode::busy || storage.lock_holder() != 0) return failed;
  OpenFile base(files);
  if (Status s = base.open(path, FileSystem::Open::reading); !s.ok()) return s;
  BaseMarks marks(files, *base);
  Status s = marks.read();
  if (s.ok()) s = LogReader(files, log).scan(marks.mark());
  return s.ok() ? std::move(failed) : std::move(s);
}

}  // namespace

Status copy_last_cut(FileStorage& storage, std::string_view path,
                     std::uint64_t max_bytes) noexcept {
  PathText log, name;
  if (!log.assign(path, "-log")) return StatusCode::invalid_argument;
  Status s = path_in(kFolder, layout::kBackupBase, name);
  if (s.ok()) s = storage.map_memory(max_bytes);
  if (!s.ok()) return s;
  RealFileSystem files;
  MemoryFiles memory(name.c_str(), {storage.base(), max_bytes});
  const auto ignored = [](std::uint64_t, std::uint64_t) {};
  BackupWriter writer(files, {.base = path, .log = log.c_str()}, memory, kFolder, ignored);
  if (s = writer.run(); !s.ok()) return why_not(storage, files, path, log.c_str(), std::move(s));
  if (writer.head().kind == layout::BackupKind::closed) {
    return Status::format(StatusCode::busy, "was closed while it was read; try again");
  }
  BackupReader reader(memory, kFolder);
  OpenFile base(memory);
  s = reader.read();
  if (s.ok()) s = reader.scan();
  if (s.ok()) s = base.open(name.c_str(), FileSystem::Open::existing);
  if (s.ok()) s = reader.replay_over(*base, reader.last());
  auto bytes = memory.size(*base);
  if (s.ok()) storage.set_size(align_up(*bytes, kPage));
  return s;
}

}  // namespace perdure
