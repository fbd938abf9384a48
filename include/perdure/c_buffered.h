// perdure for C: pools of durability `buffered`, backups, and removal. The rules of perdure/c.h
// hold here, too. docs/durability.md says what such a pool promises, docs/operating.md how it is
// kept.
//
//   perdure_buffered_options often = PERDURE_BUFFERED_OPTIONS_INIT;
//   often.interval_ms = 20;
//   perdure_pool_open_buffered("users.perdure", NULL, &often, &pool);
//   ...
//   perdure_pool_backup(pool, "/backups/users", NULL, NULL);           // full; later: what is new
//   perdure_restore("/backups/users", "users.perdure", NULL, NULL);    // as at its last epoch
#pragma once

#include "perdure/c.h"

// NOLINTBEGIN(readability-identifier-naming, bugprone-macro-parentheses)
#ifdef __cplusplus
extern "C" {
#endif

// ---- pools --------------------------------------------------------------------------------------

// The options of perdure_pool_open_buffered().
typedef struct perdure_buffered_options {
  size_t struct_size;
  uint32_t interval_ms;  // milliseconds between two cuts, up to 3,600,000; 0: 100
  uint32_t flags;        // PERDURE_BUFFERED_...
  // Bound of the log, in bytes; at least 32 MiB. 0: 1 GiB, or a quarter of a larger pool.
  uint64_t log_bytes;
  uint64_t keep_log_bytes;  // of the log that stay for the next backup after they are folded
  // The folder of the live image, for instance "/dev/shm". NULL or "": beside the pool.
  const char* memory_directory;
} perdure_buffered_options;
// If the disk is too slow, the lag grows and mutations do not wait for a cut.
#define PERDURE_BUFFERED_REPORT_LAG 1U
// If the log cannot be written, mutations go on; a power failure then loses all since the last cut.
#define PERDURE_BUFFERED_SERVE_WITHOUT_LOG 2U
// All defaults.
#define PERDURE_BUFFERED_OPTIONS_INIT {sizeof(perdure_buffered_options), 0, 0, 0, 0, NULL}

// perdure_pool_open() with options for a pool of durability `buffered`. They have no effect on
// another pool. `options` decides on the durability as always.
// Errors: those of perdure_pool_open(); LIVE_MISSING (the live image of a pool that was left open
// is gone, or cannot be used).
PERDURE_API perdure_status perdure_pool_open_buffered(const char* path,
                                                      const perdure_pool_options* options,
                                                      const perdure_buffered_options* buffered,
                                                      perdure_pool** pool);

// perdure_pool_sync() in two steps, for `buffered` only. *epoch: the number of the next cut, which
// will have everything that was acknowledged before the call. The numbers are of this open.
// perdure_pool_wait_durable() returns when that cut survives a power failure: one write to the disk
// serves all threads that wait. In `power` both return at once. perdure_pool_epoch() is O(1).
// Errors: UNSUPPORTED (other durabilities); INVALID_ARGUMENT (a number that
// perdure_pool_epoch() has not returned yet); IO, POOL_FULL of the log, which then stops.
PERDURE_API perdure_status perdure_pool_epoch(perdure_pool* pool, uint64_t* epoch);
PERDURE_API perdure_status perdure_pool_wait_durable(perdure_pool* pool, uint64_t epoch);
// After a write of the log has failed: tries again, and returns when a new cut is durable. Until
// then mutations fail with PERDURE_IO, unless PERDURE_BUFFERED_SERVE_WITHOUT_LOG was set. A pool
// with background threads does it by itself each second. Does nothing if the log has not failed.
// Errors: those of perdure_pool_wait_durable().
PERDURE_API perdure_status perdure_pool_resume_log(perdure_pool* pool);
// Brings the log into the pool's file, as the pool does in the background when the log is long; an
// open after a power failure is then faster. Does nothing in other durabilities. O(pages changed).
// Errors: those of perdure_pool_wait_durable().
PERDURE_API perdure_status perdure_pool_fold_log(perdure_pool* pool);

// Figures of the cuts, the log and the live image; all 0 in other durabilities.
typedef struct perdure_buffered_stats {
  size_t struct_size;
  uint64_t lag_ns;              // nanoseconds; what a power failure would undo now is not older
  uint64_t cuts;                // since the open
  uint64_t log_bytes;           // that the log takes on the disk
  uint64_t log_written_bytes;   // since the open
  uint64_t log_bound_bytes;     // mutations wait while so much of the log is needed
  uint64_t folds;               // of the log into the pool's file, since the open
  uint64_t fold_written_bytes;  // to the pool's file by them
  uint64_t live_bytes;          // of the pool's parts in its live image
  uint64_t longest_stop_ns;     // nanoseconds in which a cut let no thread store
  uint64_t log_failed_unix_ns;  // when a write of the log failed (since 1970); 0: it did not
  uint64_t stopped_thread;  // that has been in one store for a second, so that no cut can be made
} perdure_buffered_stats;
// Fills `stats`, whose struct_size must be set. May read every map: O(n).
PERDURE_API perdure_status perdure_pool_get_buffered_stats(perdure_pool* pool,
                                                           perdure_buffered_stats* stats);

// What a file says about its cuts.
typedef struct perdure_buffered_info {
  size_t struct_size;
  // A power failure now would keep what was acknowledged by then (nanoseconds since 1970). 0: not
  // known, or the pool is not open in `buffered`.
  uint64_t durable_unix_ns;
  char live_image[4096];  // its path, if the pool is open in `buffered` or was left open; else ""
  // Live images that an open did not use, and set aside: their number; path and last durable cut of
  // the newest one (nanoseconds since 1970). perdure_destroy() of that path removes it.
  uint64_t aside_images;
  uint64_t newest_aside_unix_ns;
  char newest_aside[4096];
} perdure_buffered_info;
// Fills `info`, whose struct_size must be set, as perdure_pool_inspect(). Errors: as that.
PERDURE_API perdure_status perdure_pool_inspect_buffered(const char* path,
                                                         perdure_buffered_info* info);

// Removes a pool of any durability that is not open, with all that belongs to it: log and live
// image, also if the file is gone already; images that were set aside; files that were not
// finished. If `path` is an image that was set aside: that one. A damaged pool, and one of another
// format version, is removed, too. What is no part of the pool stays. Durable when it returns. If
// it was interrupted, call it again.
// Errors, with nothing removed: NOT_FOUND (no file, and no part); BUSY; INVALID_ARGUMENT (a
// symbolic link; a pool that was left open has hard links); EXISTS (the folder of the log has
// something else); UNTRUSTED (another user may have put a part there); UNSUPPORTED (a pool that was
// left open is mounted alone); those of perdure_pool_open() for a file that is no pool; IO (then a
// part may have been removed).
PERDURE_API perdure_status perdure_destroy(const char* path);

// ---- backups ------------------------------------------------------------------------------------

// A backup is a folder: a copy of a pool's file and, of a `buffered` pool, the log that follows it.
// Each cut of the pool is an epoch in it, and can be restored. A folder is used by one call at a
// time; a second one fails with PERDURE_BUSY.

// The options of calls that make a backup.
typedef struct perdure_backup_options {
  size_t struct_size;
  // The calling thread calls it now and then, with the bytes copied and those to copy. May be NULL.
  void (*progress)(void* context, uint64_t done, uint64_t total);
  void* context;
} perdure_backup_options;
// All defaults.
#define PERDURE_BACKUP_OPTIONS_INIT {sizeof(perdure_backup_options), NULL, NULL}

// What a backup has. Times are nanoseconds since 1970; 0: not known.
typedef struct perdure_backup_info {
  size_t struct_size;
  uint64_t first_epoch;  // that can be restored
  uint64_t first_unix_ns;
  uint64_t last_epoch;
  uint64_t last_unix_ns;
  uint64_t base_bytes;    // of the copy of the pool's file
  uint64_t log_bytes;     // of the log behind it
  uint64_t made_unix_ns;  // when the pool's file was copied
  uint64_t ends_unix_ns;  // what was acknowledged by then is in it
  uint64_t copied_bytes;  // by this call
  uint32_t closed;        // the pool was closed, so the backup has one state
  uint32_t extended;      // the folder had a backup, and this call added what was new
  char uuid[40];          // of the pool
} perdure_backup_info;

// Makes a backup of a `buffered` pool in `folder`, while other threads go on. The folder is made if
// it does not exist; otherwise it must be empty, or have a backup of this pool: then only what is
// new is copied. Has everything that was acknowledged before the call. Each byte is read back and
// verified, and the result is durable. `info`, whose struct_size must be set, may be NULL.
// O(bytes of the pool, or of what is new).
// Errors: UNSUPPORTED (another durability: close the pool and call perdure_back_up()); EXISTS (the
// folder has something else, or a backup that cannot be continued); INVALID_ARGUMENT (the folder is
// a pool, or a part of one, or has a link to one); BUSY; CORRUPTION (of the backup in the folder);
// POOL_FULL (no space); IO.
PERDURE_API perdure_status perdure_pool_backup(perdure_pool* pool, const char* folder,
                                               const perdure_backup_options* options,
                                               perdure_backup_info* info);
// The same of a file that this process has not opened: a `buffered` pool that another process has
// open or has left open, or a closed pool of any durability. What was acknowledged after the last
// durable cut is not in it.
// Errors: as above; NOT_FOUND; INVALID_ARGUMENT (also: a pool of another durability was not
// closed); UNTRUSTED; UNSUPPORTED_FORMAT.
PERDURE_API perdure_status perdure_back_up(const char* path, const char* folder,
                                           const perdure_backup_options* options,
                                           perdure_backup_info* info);
// Fills `info`, whose struct_size must be set, with what a backup has. O(1).
// Errors: NOT_FOUND (no finished backup), CORRUPTION, UNSUPPORTED_FORMAT, IO.
PERDURE_API perdure_status perdure_inspect_backup(const char* folder, perdure_backup_info* info);

// The options of perdure_restore().
typedef struct perdure_restore_options {
  size_t struct_size;
  uint32_t flags;  // PERDURE_RESTORE_...; 0: the last epoch
  uint32_t reserved;
  uint64_t epoch;    // with PERDURE_RESTORE_EPOCH
  uint64_t unix_ns;  // with PERDURE_RESTORE_TIME: the last epoch up to then
  // As in perdure_backup_options.
  void (*progress)(void* context, uint64_t done, uint64_t total);
  void* context;
} perdure_restore_options;
// Restores the epoch of this number.
#define PERDURE_RESTORE_EPOCH 1U
// Restores the last epoch up to a time.
#define PERDURE_RESTORE_TIME 2U
// All defaults: the last epoch.
#define PERDURE_RESTORE_OPTIONS_INIT {sizeof(perdure_restore_options), 0, 0, 0, 0, NULL, NULL}

// Makes a pool of a backup, and stores its epoch in *epoch, which may be NULL. `path` must not
// exist, and no log or live image of a pool of that name either. Every byte is verified, and the
// pool is checked in depth, before it gets its name. O(bytes of the pool and its log).
// Errors: EXISTS; NOT_FOUND (no backup); INVALID_ARGUMENT (no such epoch; a time that names two
// epochs, or lies after the backup; a part of a pool or of a backup lies, or will lie, at `path`);
// CORRUPTION; BUSY; POOL_FULL (no space); UNSUPPORTED_FORMAT;
// IO.
PERDURE_API perdure_status perdure_restore(const char* folder, const char* path,
                                           const perdure_restore_options* options, uint64_t* epoch);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(readability-identifier-naming, bugprone-macro-parentheses)
