// Backups: copies of pools that are made while the pools are in use, and what brings them back.
//
//   pool->backup("/backups/users");                              // full; later: what is new
//   perdure::restore("/backups/users", "users.perdure");         // as at its last epoch
//
// A backup is a folder. It has a copy of the pool's file and, of a pool with durability `buffered`,
// the log that follows it. Each cut of the pool is an *epoch* in it, and can be restored.
// docs/operating.md has a section on backups.
//
// Thread safety: any thread, also beside a pool that is open. A folder is used by one call at a
// time; a second one returns busy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "perdure/status.h"

namespace perdure {

// Options of Pool::backup() and back_up().
struct BackupOptions {
  // If not null: the calling thread calls it now and then, with the number of bytes copied and of
  // those to copy, as far as they are known. It must return soon, and must not throw.
  void (*progress)(void* context, std::uint64_t done, std::uint64_t total) = nullptr;
  void* progress_context = nullptr;
};

// A state that a backup has. These numbers are those of the log; Pool::epoch() has others.
struct BackupEpoch {
  std::uint64_t epoch = 0;
  std::uint64_t unix_ns = 0;  // everything acknowledged by then is in it (since 1970); 0: not known
};

// The result of Pool::backup(), back_up() and inspect_backup().
struct BackupInfo {
  std::string uuid;   // of the pool
  BackupEpoch first;  // that can be restored
  BackupEpoch last;
  std::uint64_t base_bytes = 0;    // of the copy of the pool's file
  std::uint64_t log_bytes = 0;     // of the log behind it
  std::uint64_t made_unix_ns = 0;  // when the pool's file was copied (since 1970)
  std::uint64_t ends_unix_ns = 0;  // what was acknowledged by then is in it (since 1970)
  bool closed = false;             // the pool was closed, so the backup has one state
  // Of a call that made a backup.
  bool extended = false;           // the folder had one, and what was new was added
  std::uint64_t copied_bytes = 0;  // by this call
};

// The options of restore(). At most one of `epoch` and `unix_ns` has a value; without one, the last
// epoch is restored.
struct RestoreOptions {
  std::optional<std::uint64_t> epoch = {};
  // Nanoseconds since 1970: the last epoch whose clock is not later.
  std::optional<std::uint64_t> unix_ns = {};
  void (*progress)(void* context, std::uint64_t done, std::uint64_t total) = nullptr;
  void* progress_context = nullptr;
};

// Pool::backup() of a pool that this process has not opened: one that another process has open in
// durability `buffered`, or that its last process left open, or a closed one of any durability. It
// has the last durable cut, so up to the last BufferedOptions::interval_ms may be missing. Changes
// nothing of the pool, and needs no write permission. Memory: 1 MiB, and 70 bytes for each part of
// the log.
// Errors: those of Pool::backup(); not_found; busy (also: a process has the pool open in another
// durability); invalid_argument (also: a pool of another durability was not closed: open and close
// it); untrusted; corruption; unsupported_format.
Expected<BackupInfo> back_up(std::string_view path, std::string_view folder,
                             const BackupOptions& options = {});

// What a backup has. Reads its head only. Errors: not_found (the folder has no finished backup),
// corruption, unsupported_format, out_of_memory, io.
Expected<BackupInfo> inspect_backup(std::string_view folder);

// Makes a pool of a backup, as it was at an epoch, and returns that. `path` must not exist, and no
// log or live image of a pool of that name either. Every byte that was copied is verified by its
// checksum; then the pool is opened, checked in depth and closed. It has the uuid of the pool that
// was backed up, and its durability, or `process` where this medium cannot give that. `path` exists
// only once all of that has succeeded, durably; until then the file is `path`.restoring-NUMBER,
// which the next restore removes if this one is interrupted.
// O(bytes of the pool and of its log).
// Errors: exists; not_found (no backup); invalid_argument (it has no such epoch; its clock was set
// back, so that the time names two epochs; a time after the backup; a part of a pool or of a backup
// lies, or will lie, at `path`); corruption (it is damaged); busy; pool_full (no space),
// unsupported_format, io, out_of_memory.
Expected<BackupEpoch> restore(std::string_view folder, std::string_view path,
                              const RestoreOptions& options = {});

}  // namespace perdure
