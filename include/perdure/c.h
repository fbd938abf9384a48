// perdure for C: crash-consistent maps in one memory-mapped file. C99 and C++. docs/c.md has the
// first program and how to link.
//
//   perdure_pool* pool = NULL;
//   perdure_map* users = NULL;
//   if (perdure_pool_open("users.perdure", NULL, &pool) != PERDURE_OK ||
//       perdure_map_open(pool, NULL, NULL, &users) != PERDURE_OK ||
//       perdure_put(users, "ada", 3, "36", 2, NULL) != PERDURE_OK) {
//     fprintf(stderr, "%s\n", perdure_last_error());
//   }
//   perdure_map_close(users);
//   perdure_pool_close(pool, 0);
//
// STATUS  A call that can fail returns a perdure_status. perdure_last_error() has the text. Absence
//   of a key is no failure: calls on one key store in `*present` whether the key was present when
//   the call took effect.
// OUTPUTS  A call that fails stores 0, NULL or false into its outputs, except where a comment says
//   otherwise. A pointer to an output may be NULL only where the comment allows it. Strings that
//   are passed in end with a NUL byte, and are borrowed for the call only, like all inputs.
// KEYS AND VALUES  An address and a number of bytes. NULL is allowed if the number is 0. They are
//   any bytes: no NUL byte ends them. In a map of integers the key is the address of an integer of
//   the map's type, with its size, and so is a value of fixed size:
//       uint64_t id = 42, visits = 1;
//       perdure_put(map, &id, sizeof id, &visits, sizeof visits, NULL);
//   Integers order as numbers, other keys as unsigned bytes. A size that does not fit the map's
//   types fails with PERDURE_INVALID_ARGUMENT, and so does a key of more than PERDURE_MAX_KEY_SIZE
//   bytes or a value of more than PERDURE_MAX_VALUE_SIZE.
// OWNERSHIP  Each handle has one call that releases it; this call accepts NULL. Any handle may be
//   released at any time and in any order, also after its pool was closed. Calls on a map, iterator
//   or snapshot whose pool was closed, or whose map was dropped, fail with
//   PERDURE_INVALID_ARGUMENT; an iterator first goes on in the entries that it has copied. The use
//   of a released handle is undefined. Buffers that a call allocates are released with
//   perdure_free().
// VIEWS  What a callback gets is a view of the map: it ends with the callback. What an iterator
//   returns ends with the next call that moves it or releases it. All other results are copies.
// CALLBACKS  A callback of a call that reads may read any map. What it calls to change an entry of
//   the same pool, or on the pool itself, fails with PERDURE_INVALID_ARGUMENT. While it runs,
//   blocks that other threads free in its pool cannot be reused, so it must be short: there is no
//   other handle that keeps a view, because it would do the same for as long as it lives. A
//   callback must not leave by longjmp or pthread_exit. A C++ exception ends in the library: the
//   call stops there, and fails with PERDURE_INVALID_ARGUMENT.
// THREADS  Any number of threads may use a pool, a map or a snapshot. Opening, closing and dropping
//   are for one thread, while no other uses the handles concerned. One thread at a time may use an
//   iterator or a batch: a second one gets PERDURE_BUSY. At most 4,096 live threads may use the
//   library; another one waits.
// FORK  A child must not use what its parent has opened: its calls fail with
//   PERDURE_INVALID_ARGUMENT. It may release it, which leaves the parent's pool alone. A child that
//   was made by vfork or by a bare clone is not recognized.
// DURABILITY  When a call returns, its effect, and every state that it has returned, is durable as
//   the pool's mode guarantees (docs/durability.md). Each call on one key is atomic: a crash leaves
//   its effect whole or absent. There is nothing to wait for. perdure_pool_sync() makes all of it
//   survive a power failure, in every mode.
// COMPLEXITY  A call on one key is O(log n) in an ordered engine and expected O(1) in a hash table.
// ERRORS  of every call: PERDURE_OUT_OF_MEMORY, PERDURE_INVALID_ARGUMENT, PERDURE_POISONED, and
//   PERDURE_CORRUPTION if it reads damaged content. Of every call that changes a map: also
//   PERDURE_READ_ONLY, PERDURE_POOL_FULL and PERDURE_HASH_OVERFLOW. After PERDURE_POISONED the
//   change may be in the file or not; the next open shows it whole or not at all. After every other
//   error the entry is unchanged.
// STRUCTS  A struct with `struct_size` may grow at its end in later versions. Set struct_size to
//   the size of the struct. A larger struct than the library knows is accepted if the rest is 0.
//   Structs without struct_size do not change.
// OPTIONS  0, NULL and false mean the default, so PERDURE_..._INIT or
//   {.struct_size = sizeof(options)} is enough. NULL instead of options stands for all defaults.
//   `reserved` fields, and bits of `flags` that have no name, must be 0.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "perdure/version.h"

// NOLINTBEGIN(readability-identifier-naming, bugprone-macro-parentheses)
#if defined(__GNUC__)
#define PERDURE_API __attribute__((visibility("default")))  // the shared library exports it
#else
#define PERDURE_API  // the shared library exports it
#endif
// Enums have the size of an int in both languages, also with a value that has no name.
#ifdef __cplusplus
#define PERDURE_ENUM(name) enum name : int
extern "C" {
#else
#define PERDURE_ENUM(name) enum name
#endif

#define PERDURE_MAX_KEY_SIZE 65535U         // bytes
#define PERDURE_MAX_VALUE_SIZE 1073741824U  // bytes
#define PERDURE_MAX_MAP_NAME_SIZE 31U       // bytes
#define PERDURE_DEFAULT_MAP "default"       // of a perdure::Store and of the command line

// ---- status -------------------------------------------------------------------------------------

// Why a call failed. Numbers are never reused. A later version may have more of them.
// perdure/status.h and docs/guide.md say what to do.
typedef PERDURE_ENUM(perdure_status){
    PERDURE_OK = 0,
    PERDURE_INVALID_ARGUMENT = 1,    // the call breaks a rule of this header
    PERDURE_NOT_FOUND = 2,           // there is no such file or map; never: no such key
    PERDURE_EXISTS = 3,              // the file or map exists, and the call asked for a new one
    PERDURE_BUSY = 4,                // another process has the pool; another thread is in a call
    PERDURE_CORRUPTION = 5,          // the content of the file breaks the format
    PERDURE_UNSUPPORTED_FORMAT = 6,  // the file is of another format version or kind of machine
    PERDURE_UNTRUSTED = 7,           // the file may lack acknowledged data
    PERDURE_POOL_FULL = 8,           // no space in the pool or on the disk; reads work
    PERDURE_OUT_OF_MEMORY = 9,       // DRAM is short, not the pool
    PERDURE_IO = 10,                 // the operating system refused an operation
    PERDURE_POISONED = 11,           // a write-back failed: close the pool and open it again
    PERDURE_UNSUPPORTED = 12,        // the engine, the medium or this build cannot do it
    PERDURE_READ_ONLY = 13,          // a mutation of a pool that was opened read-only
    PERDURE_HASH_OVERFLOW = 14,      // more keys of one hash than the table takes
    PERDURE_CONFLICT = 15,           // a requirement of a batch is not met; nothing was changed
    PERDURE_LIVE_MISSING = 16,       // the live image of a buffered pool is missing, or not usable
    PERDURE_TRUNCATED = 100          // the value is larger than the caller's buffer
} perdure_status;

// The text of the last call of this thread that failed: file, cause and remedy. "" if none has
// failed. Never NULL. A call that succeeds keeps it. Valid until the next call of this thread that
// fails, and not after the thread has ended.
PERDURE_API const char* perdure_last_error(void);
// The name in lower case, "pool_full"; "unknown" for a number that is none.
PERDURE_API const char* perdure_status_name(perdure_status status);
// Releases a buffer that a call has allocated. NULL is allowed.
PERDURE_API void perdure_free(void* buffer);
// The version of the library, "0.1.0". PERDURE_VERSION is that of this header.
PERDURE_API const char* perdure_version(void);

// ---- handles and types --------------------------------------------------------------------------

typedef struct perdure_pool perdure_pool;          // one file, with up to 1,024 maps
typedef struct perdure_map perdure_map;            // one map of a pool
typedef struct perdure_iterator perdure_iterator;  // a position in the entries of a range
typedef struct perdure_snapshot perdure_snapshot;  // a closed version of a map
typedef struct perdure_batch perdure_batch;        // mutations that happen all or not at all

// docs/engines.md compares them.
typedef PERDURE_ENUM(perdure_engine){
    PERDURE_ENGINE_DEFAULT = 0,   // that of the map; of a new one phast
    PERDURE_ENGINE_PHAST = 1,     // ordered
    PERDURE_ENGINE_LEVEL = 2,     // hash
    PERDURE_ENGINE_CLEVEL = 3,    // hash, restarts at once
    PERDURE_ENGINE_AS = 4,        // ordered, restarts at once
    PERDURE_ENGINE_ASCS = 5,      // ordered
    PERDURE_ENGINE_PSKIPLIST = 6  // ordered, with versions
} perdure_engine;

// Which failures cannot undo the effect of a call that has returned (docs/durability.md).
typedef PERDURE_ENUM(perdure_durability){
    PERDURE_DURABILITY_AUTOMATIC = 0,  // that of the last open; of a new pool as in C++
    PERDURE_DURABILITY_PROCESS = 1,    // a kill of the process
    PERDURE_DURABILITY_POWER = 2,      // also a power failure
    PERDURE_DURABILITY_EMULATED = 3,   // guarantees as process, costs as power: for benchmarks
    PERDURE_DURABILITY_BUFFERED = 4  // as process; after a power failure as it was a moment before
} perdure_durability;

// Whether an open may create the pool or the map. While a process reads a pool, and none owns it,
// none can own it (PERDURE_BUSY). If one owns it already, in PERDURE_DURABILITY_BUFFERED, a reader
// sees the pool as it was at its last durable cut, in a copy: memory as large as pool and log,
// O(pool) time. In another durability: PERDURE_BUSY.
typedef PERDURE_ENUM(perdure_open_mode){
    PERDURE_OPEN_OR_CREATE = 0,
    PERDURE_OPEN_EXISTING = 1,  // PERDURE_NOT_FOUND if it is absent
    PERDURE_CREATE_NEW = 2,     // PERDURE_EXISTS if it is present
    PERDURE_OPEN_READ_ONLY = 3  // as existing, and writes nothing; what is seen stays as it is
} perdure_open_mode;

// The types that keys of a map may have.
typedef PERDURE_ENUM(perdure_key_type){
    PERDURE_KEY_BYTES = 0,  // byte strings
    PERDURE_KEY_U8 = 1,     // integers
    PERDURE_KEY_U16 = 2,   PERDURE_KEY_U32 = 3, PERDURE_KEY_U64 = 4, PERDURE_KEY_I8 = 5,
    PERDURE_KEY_I16 = 6,   PERDURE_KEY_I32 = 7, PERDURE_KEY_I64 = 8,
    PERDURE_KEY_ARRAY = 9,  // key_size bytes, 1 to 16
    PERDURE_KEY_ANY = 10    // open only: whatever the map has, for tools
} perdure_key_type;

// The types that values of a map may have.
typedef PERDURE_ENUM(perdure_value_type){
    PERDURE_VALUE_BYTES = 0,  // byte strings
    PERDURE_VALUE_FIXED = 1,  // value_size bytes, 1 to 15; up to 8 they lie in the index itself
    PERDURE_VALUE_ANY = 2     // open only: whatever the map has, for tools
} perdure_value_type;

// What carries a log line; see perdure_pool_options.
typedef PERDURE_ENUM(perdure_log_level){
    PERDURE_LOG_INFO = 0,     // a long operation ended
    PERDURE_LOG_WARNING = 1,  // the pool continues with less, or accepted an untrusted file
    PERDURE_LOG_ERROR = 2     // the pool is poisoned, or a part of it is damaged
} perdure_log_level;

// The class of the medium under a file, determined at open.
typedef PERDURE_ENUM(perdure_medium){
    PERDURE_MEDIUM_PAGE = 1,        // page cache over a disk
    PERDURE_MEDIUM_VOLATILE = 2,    // tmpfs and the like
    PERDURE_MEDIUM_CACHE_LINE = 3,  // DAX
    PERDURE_MEDIUM_EADR = 4,        // DAX, and a power failure does not lose the CPU caches
    PERDURE_MEDIUM_NETWORK = 5} perdure_medium;

// A key or a value that a call borrows.
typedef struct perdure_bytes {
  const void* data;
  size_t size;
} perdure_bytes;

// Memory for perdure_free(). `data` is NULL if there is no value. A NUL byte follows the value.
typedef struct perdure_buffer {
  void* data;
  size_t size;
} perdure_buffer;

// The keys in [from, to) that begin with `prefix`, at most `limit` of them, in ascending order.
// `from` is included and `to` is not, in both directions. `prefix` is for keys that are byte
// strings or arrays. `from` and `to` of array keys may be shorter or longer than the keys.
typedef struct perdure_range {
  size_t struct_size;
  const void* from;  // NULL: from the first key
  size_t from_size;
  const void* to;  // NULL: to the last key, which is included
  size_t to_size;
  const void* prefix;
  size_t prefix_size;
  uint64_t limit;  // 0: no limit. A program that computes a limit must not pass 0
  uint32_t flags;  // PERDURE_REVERSE
  uint32_t reserved;
} perdure_range;
#define PERDURE_REVERSE 1U  // descending order
// All entries, in ascending order.
#define PERDURE_RANGE_INIT {sizeof(perdure_range), NULL, 0, NULL, 0, NULL, 0, 0, 0, 0}

// A callback gets `context` of its call. If it returns bool, it returns true to go on, and false to
// end the walk. An empty byte string is not NULL, so NULL stands for "absent".
typedef void perdure_value_fn(void* context, const void* value, size_t value_size);
typedef void perdure_indexed_fn(void* context, size_t index, const void* value, size_t value_size);
typedef bool perdure_entry_fn(void* context, const void* key, size_t key_size, const void* value,
                              size_t value_size);
// `value` is NULL where the key was removed.
typedef bool perdure_history_fn(void* context, uint64_t version, const void* value,
                                size_t value_size);
// `before` or `after` is NULL where the key was absent.
typedef bool perdure_difference_fn(void* context, const void* key, size_t key_size,
                                   const void* before, size_t before_size, const void* after,
                                   size_t after_size);

// ---- pools --------------------------------------------------------------------------------------

// The options of perdure_pool_open().
typedef struct perdure_pool_options {
  size_t struct_size;
  perdure_open_mode mode;
  // A mode that is stated stays for later opens, also if it is a weaker one. So a service that
  // needs `power` states it at every open.
  perdure_durability durability;
  uint64_t max_size;  // bytes that a new pool may grow to, 1 MiB to 4 TiB; 0: 64 GiB
  // Gets one line for an operator, which begins with the file's path and ends with a NUL byte. Any
  // thread may call it, several at once, with locks of the pool held: it must return soon and must
  // not call the library. The line ends with the call.
  void (*log)(void* context, perdure_log_level level, const char* line);
  void* log_context;
  uint32_t recovery_threads;   // of recovery and close; 0: one per core
  int32_t background_threads;  // 0: one; at most 16; -1: none, see perdure_pool_run_background()
  uint32_t write_latency_ns;   // wait after each write-back, with PERDURE_DURABILITY_EMULATED only
  uint32_t flags;              // PERDURE_POOL_...
  uint32_t open_timeout_ms;    // how long to wait for a pool that is busy; 0: not
  uint32_t reserved;           // 0
} perdure_pool_options;
// If another process cuts the file short, or its medium fails, calls return PERDURE_POISONED and
// the process gets no SIGBUS. Installs a handler for the process.
#define PERDURE_POOL_HANDLE_SIGBUS 1U
// With PERDURE_OPEN_READ_ONLY: opens a damaged pool, to inspect it.
#define PERDURE_POOL_ALLOW_DAMAGE 2U
// Serves an untrusted pool if a full check finds no violation. No check can tell what is missing.
#define PERDURE_POOL_ACCEPT_UNTRUSTED 4U
// For machines with several memory nodes (NUMA): new pages of a file on tmpfs, and of large tables
// in DRAM, come from all nodes in turn. What the system refuses is logged, and is no error.
#define PERDURE_POOL_INTERLEAVE 8U
// All defaults.
#define PERDURE_POOL_OPTIONS_INIT \
  {sizeof(perdure_pool_options),  \
   PERDURE_OPEN_OR_CREATE,        \
   PERDURE_DURABILITY_AUTOMATIC,  \
   0,                             \
   NULL,                          \
   NULL,                          \
   0,                             \
   0,                             \
   0,                             \
   0,                             \
   0,                             \
   0}

// Opens or creates the file `path`. Recovery runs inside this call. One process owns a pool at a
// time; it opens it once and shares the handle among its threads. Reserves max_size bytes of
// address space. O(leaves), O(buckets) or O(entries), by engine; clevel and as recover in the
// background.
// Errors: NOT_FOUND, EXISTS (mode); BUSY; UNTRUSTED; CORRUPTION; UNSUPPORTED_FORMAT; UNSUPPORTED
// (the medium cannot give this durability); IO; POOL_FULL.
PERDURE_API perdure_status perdure_pool_open(const char* path, const perdure_pool_options* options,
                                             perdure_pool** pool);
// Closes the pool and releases the handle, also if it returns an error: the file is then unlocked,
// but not marked clean. No other thread may be in a call on the pool or on its maps. A pool needs
// no close to survive a kill; after a close it is also trusted after a power failure. `flags`: 0 or
// PERDURE_CLOSE_.... O(content) for checksums and write-back.
// Errors: POISONED (a write-back failed), CORRUPTION; POOL_FULL, IO (of the log in `buffered`: all
// files stay as a kill leaves them, and the next open goes on); INVALID_ARGUMENT, with nothing
// closed, in a callback or for unknown flags.
PERDURE_API perdure_status perdure_pool_close(perdure_pool* pool, uint32_t flags);
#define PERDURE_CLOSE_NO_SYNC 1U         // does not write the file back
#define PERDURE_CLOSE_LEAVE_RECOVERY 2U  // leaves a recovery that still runs to the next open

// What a file says about itself. Numbers are bytes, counts or 0 and 1.
typedef struct perdure_pool_info {
  size_t struct_size;
  uint64_t file_bytes;
  uint64_t max_bytes;
  uint64_t extent_bytes;
  uint64_t compatible_features;    // bits
  uint64_t incompatible_features;  // bits
  int64_t owner_pid;               // of the present or last owner
  uint32_t format_version;
  perdure_medium medium;
  perdure_durability durability;     // of this open; from perdure_pool_inspect() of the last one
  perdure_durability weakest_store;  // weakest mode of a store since the last full write-back
  uint32_t clean;                    // the owner before this open closed it
  uint32_t synced;                   // the whole file is written back, and nothing was stored since
  uint32_t trusted;
  uint32_t in_use;  // a process has it open, perhaps this one
  uint32_t map_count;
  uint32_t reserved;
  char uuid[40];
  char filesystem[32];
  char flush_instruction[16];
  char owner_host[72];
  char trust_note[256];  // perdure_pool_inspect(): why it is not trusted
} perdure_pool_info;

// Fills `info`, whose struct_size must be set. O(maps).
PERDURE_API perdure_status perdure_pool_get_info(perdure_pool* pool, perdure_pool_info* info);
// The same of any file, without its lock, and without writing; also while a process has it open.
// Errors: NOT_FOUND, IO, CORRUPTION, UNSUPPORTED_FORMAT.
PERDURE_API perdure_status perdure_pool_inspect(const char* path, perdure_pool_info* info);
// Raises the maximum of a pool that is not open. Durable when it returns. Moves no data.
// Errors: those of perdure_pool_open(); INVALID_ARGUMENT if max_size is not larger.
PERDURE_API perdure_status perdure_pool_resize(const char* path, uint64_t max_size);

// The space of a pool, and figures of its recovery and of its readers.
typedef struct perdure_pool_stats {
  size_t struct_size;
  uint64_t file_bytes;       // of the pool; the file may already be longer, for growth
  uint64_t disk_bytes;       // that the file takes on the medium
  uint64_t used_bytes;       // the pool is full when it reaches max_bytes
  uint64_t max_bytes;        // that the file may grow to
  uint64_t assigned_bytes;   // in extents that are in use
  uint64_t free_bytes;       // in extents that are free inside the file
  uint64_t allocated_bytes;  // in blocks, each rounded up to its size class
  uint64_t punched_bytes;    // in free extents, given back to the system since the open
  uint64_t heap_dram_bytes;
  uint64_t limbo_blocks;     // unlinked blocks that wait for readers before they are reused
  uint64_t epoch;            // of memory reclamation; it rises while readers move on
  uint64_t stalled_readers;  // threads in a callback that keep blocks from being reused
  uint64_t recovery_ns;      // nanoseconds that the open took
  double fragmentation;      // 1 - allocated_bytes / assigned_bytes
} perdure_pool_stats;
// Fills `stats`, whose struct_size must be set. May read every map: O(n).
PERDURE_API perdure_status perdure_pool_get_stats(perdure_pool* pool, perdure_pool_stats* stats);

// The options of perdure_pool_check().
typedef struct perdure_check_options {
  size_t struct_size;
  // Calls from time to time with the number of bytes checked, and of bytes to check in all. Must
  // not call the library.
  void (*progress)(void* context, uint64_t done, uint64_t total);
  // Gets each of the first 100 violations, one line with a NUL byte, after the check.
  void (*violation)(void* context, const char* line);
  void* context;   // of both
  uint32_t flags;  // PERDURE_CHECK_DEEP
  uint32_t reserved;
} perdure_check_options;
#define PERDURE_CHECK_DEEP 1U  // reads every byte: also verifies each key and each checksum
// All defaults.
#define PERDURE_CHECK_OPTIONS_INIT {sizeof(perdure_check_options), NULL, NULL, NULL, 0, 0}
// The result of perdure_pool_check().
typedef struct perdure_check_report {
  size_t struct_size;
  uint64_t objects;  // leaves, records and root blocks that were checked
  uint64_t entries;
  uint64_t bytes;
  uint64_t leaked_blocks;
  uint64_t violations;
} perdure_check_report;
// Verifies the pool and all maps, and writes nothing to them. No mutation may be in flight. Fails
// with PERDURE_CORRUPTION if there is a violation; `report` is then filled, and the text is the
// first violation. A copy of the header that was damaged when a closed pool was opened is one, too,
// although nothing is lost by it, and an open for writing has written it anew. `report` may be
// NULL. O(structure), with PERDURE_CHECK_DEEP O(bytes).
PERDURE_API perdure_status perdure_pool_check(perdure_pool* pool,
                                              const perdure_check_options* options,
                                              perdure_check_report* report);

// For a damaged pool that was opened with PERDURE_OPEN_READ_ONLY and PERDURE_POOL_ALLOW_DAMAGE.
// Calls visit for each entry of the map `name` that is as it was written, in any order; it returns
// false to get no more. `visited` and `report` may be NULL; `options` say where violations go, and
// their `progress` is not called.
// Integers and words of a pool that was not closed have no checksum, and are visited as they are.
// Fails with PERDURE_CORRUPTION if something is lost or may be: the outputs are then filled, and
// the text is the first violation. `visit` must not call the library. O(bytes of the map).
// Errors: NOT_FOUND; INVALID_ARGUMENT (the pool was opened otherwise).
PERDURE_API perdure_status perdure_pool_salvage(perdure_pool* pool, const char* name,
                                                const perdure_check_options* options,
                                                perdure_entry_fn* visit, void* context,
                                                uint64_t* visited, perdure_check_report* report);

// Writes the whole file back: what was acknowledged before survives a crash of the machine, in
// every mode. Mutations may run meanwhile. For a backup see docs/operating.md. O(assigned bytes).
// In durability `buffered` it waits for one write of what has changed since the last cut instead.
// Errors: IO, POISONED, CORRUPTION.
PERDURE_API perdure_status perdure_pool_sync(perdure_pool* pool);
// Shrinks hash tables that are too large, moves records together (PHAST), and returns free space to
// the file system. Stores into *freed, which may be NULL, by how many bytes the file has become
// smaller there.
// Errors: UNSUPPORTED (the file system cannot punch holes), IO.
PERDURE_API perdure_status perdure_pool_compact(perdure_pool* pool, uint64_t* freed);
// Runs one step, about a millisecond, of background work. *worked: whether there was any. Needed
// only in a pool without background threads.
PERDURE_API perdure_status perdure_pool_run_background(perdure_pool* pool, bool* worked);
// Calls `reads` while no mutation of the pool is under way: all that it reads belongs to one
// moment. Mutations of other threads wait, so it must be short. It may read maps and use iterators
// and snapshots; it must not change a map or call the pool. Must not be called in a callback.
PERDURE_API perdure_status perdure_pool_read_batch(perdure_pool* pool, void (*reads)(void* context),
                                                   void* context);
// Removes a map and frees its space. No kill brings it back; in `buffered`, a power failure can
// until the next cut or perdure_pool_sync(). No other thread may be using the map.
// O(blocks of the map). Errors: NOT_FOUND, READ_ONLY, CORRUPTION.
PERDURE_API perdure_status perdure_pool_drop(perdure_pool* pool, const char* name);

// Removes a pool of any durability that is not open, with all that belongs to it: log and live
// image, also if the file is gone already; images that were set aside; files that were not
// finished. If `path` is an image that was set aside: that one. A damaged pool, and one of another
// format version, is removed, too. What is no part of the pool stays. Durable when it returns. If
// it was interrupted, call it again.
// Errors, with nothing removed: NOT_FOUND (no file, and no part); BUSY; INVALID_ARGUMENT (a
// symbolic link; a pool that was left open has hard links); EXISTS (the folder of the log has
// something else; or log or live image belong to a pool in the same folder that was renamed or
// copied); UNTRUSTED (another user may have put a part there); UNSUPPORTED (a pool that was
// left open is mounted alone); those of perdure_pool_open() for a file that is no pool; IO (then a
// part may have been removed).
PERDURE_API perdure_status perdure_destroy(const char* path);

// ---- maps ---------------------------------------------------------------------------------------

// The options of perdure_map_open().
typedef struct perdure_map_options {
  size_t struct_size;
  perdure_engine engine;  // if it is stated and the map has another: PERDURE_INVALID_ARGUMENT
  perdure_open_mode mode;
  // Fixed when the map is created. An open with other types fails with PERDURE_INVALID_ARGUMENT.
  // If one of them is ANY, an absent map is not created.
  perdure_key_type key_type;
  uint32_t key_size;  // bytes of PERDURE_KEY_ARRAY; otherwise 0
  perdure_value_type value_type;
  uint32_t value_size;  // bytes of PERDURE_VALUE_FIXED; otherwise 0
  // The rest is for a new map only.
  uint64_t capacity;             // expected entries, a hint; 0: unknown
  uint64_t level_buckets;        // level: buckets of the top level, a power of two; 0: 32
  uint32_t phast_partitions;     // phast: a power of two up to 65,536; 0: by capacity
  uint32_t phast_partition_bit;  // phast: the lowest key bit of a partition's number, see flags
  uint32_t flags;                // PERDURE_MAP_...
  uint32_t reserved;
} perdure_map_options;
#define PERDURE_MAP_NO_SHRINK 1U      // level: the table does not shrink by itself
#define PERDURE_MAP_PARTITION_BIT 2U  // phast_partition_bit is set; otherwise the topmost bits
// All defaults.
#define PERDURE_MAP_OPTIONS_INIT \
  {sizeof(perdure_map_options),  \
   PERDURE_ENGINE_DEFAULT,       \
   PERDURE_OPEN_OR_CREATE,       \
   PERDURE_KEY_BYTES,            \
   0,                            \
   PERDURE_VALUE_BYTES,          \
   0,                            \
   0,                            \
   0,                            \
   0,                            \
   0,                            \
   0,                            \
   0}

// Opens or creates the map `name` (1 to 31 bytes; NULL: PERDURE_DEFAULT_MAP). A new map is as
// durable as an entry that was put: in `buffered`, a power failure can undo it until the next cut
// or perdure_pool_sync(). Several handles of one map are allowed. O(1); creating a hash table is
// O(capacity).
// Errors: INVALID_ARGUMENT (other types or another engine); NOT_FOUND; EXISTS; UNSUPPORTED;
// UNSUPPORTED_FORMAT; POOL_FULL; READ_ONLY; CORRUPTION.
PERDURE_API perdure_status perdure_map_open(perdure_pool* pool, const char* name,
                                            const perdure_map_options* options, perdure_map** map);
// Releases the handle. The map stays in the pool.
PERDURE_API void perdure_map_close(perdure_map* map);

// Name, engine and types of a map.
typedef struct perdure_map_info {
  size_t struct_size;
  perdure_engine engine;
  uint32_t engine_version;  // of the engine's format on media
  perdure_key_type key_type;
  uint32_t key_size;  // bytes of an integer or an array; 0: byte strings
  perdure_value_type value_type;
  uint32_t value_size;  // 0: byte strings
  uint32_t ordered;     // 1: ranges and iterators work
  uint32_t versioned;   // 1: the calls with versions work
  char name[32];
} perdure_map_info;
// Fills `info`, whose struct_size must be set. O(1).
PERDURE_API perdure_status perdure_map_get_info(perdure_map* map, perdure_map_info* info);
// Calls visit(context, info) for each map of the pool; `info` ends with the callback, which may
// call the library. visit returns false to end the walk. O(maps).
PERDURE_API perdure_status perdure_pool_list(
    perdure_pool* pool, bool (*visit)(void* context, const perdure_map_info* info), void* context);

// Numbers of structures that the engine does not have are 0.
typedef struct perdure_map_stats {
  size_t struct_size;
  uint64_t entries;  // exact if no thread changes the map meanwhile
  uint64_t height;   // levels that a lookup walks
  uint64_t leaves;
  uint64_t inner_nodes;
  uint64_t pm_bytes;          // in the file, with records
  uint64_t dram_bytes;        // of structures in DRAM
  uint64_t scan_order_bytes;  // part of dram_bytes
  uint64_t splits;            // since open
  uint64_t merges;            // since open
  double load_factor;         // entries / slots
  uint64_t partial;           // 1: the figures cover a part only
} perdure_map_stats;
// Fills `stats`, whose struct_size must be set. May read the whole map: O(n).
PERDURE_API perdure_status perdure_map_get_stats(perdure_map* map, perdure_map_stats* stats);
// The number of entries: as Map::size() in map.h, so mostly O(threads).
PERDURE_API perdure_status perdure_size(perdure_map* map, uint64_t* entries);

// ---- one key ------------------------------------------------------------------------------------

// Inserts the key or replaces its value. In these four, `present` may be NULL.
PERDURE_API perdure_status perdure_put(perdure_map* map, const void* key, size_t key_size,
                                       const void* value, size_t value_size, bool* present);
// Inserts the key unless it exists; then nothing is changed.
PERDURE_API perdure_status perdure_insert(perdure_map* map, const void* key, size_t key_size,
                                          const void* value, size_t value_size, bool* present);
// Replaces the value if the key exists; otherwise nothing is changed.
PERDURE_API perdure_status perdure_update(perdure_map* map, const void* key, size_t key_size,
                                          const void* value, size_t value_size, bool* present);
// Removes the key, if it exists.
PERDURE_API perdure_status perdure_erase(perdure_map* map, const void* key, size_t key_size,
                                         bool* present);

// *present: the key exists. Copies nothing.
PERDURE_API perdure_status perdure_contains(perdure_map* map, const void* key, size_t key_size,
                                            bool* present);
// Stores into *value a copy of the value, for perdure_free(), or NULL if the key is absent. A NUL
// byte follows the value, which value_size does not count. `value_size` may be NULL.
PERDURE_API perdure_status perdure_get(perdure_map* map, const void* key, size_t key_size,
                                       void** value, size_t* value_size);
// Copies the value into `buffer`, which has `capacity` bytes, and adds no NUL byte. *value_size is
// the size of the whole value. If it is larger than `capacity`, `buffer` has the first bytes, and
// the call fails with PERDURE_TRUNCATED; *value_size and *present are then set, too. Does not
// allocate. `value_size` may be NULL, `present` may not.
PERDURE_API perdure_status perdure_get_into(perdure_map* map, const void* key, size_t key_size,
                                            void* buffer, size_t capacity, size_t* value_size,
                                            bool* present);
// Calls visit with a view of the value, if the key is present. Copies nothing. `present` may be
// NULL.
PERDURE_API perdure_status perdure_read(perdure_map* map, const void* key, size_t key_size,
                                        perdure_value_fn* visit, void* context, bool* present);

// Gives the key the value `desired` if it has the value `expected`. NULL stands for "absent", so
// pass "" for an empty value. *exchanged: it had, and now it has `desired`; otherwise nothing
// changed. No other mutation of the key comes in between.
PERDURE_API perdure_status perdure_compare_exchange(perdure_map* map, const void* key,
                                                    size_t key_size, const void* expected,
                                                    size_t expected_size, const void* desired,
                                                    size_t desired_size, bool* exchanged);

// What a perdure_modify_fn wants.
typedef PERDURE_ENUM(perdure_change){
    PERDURE_CHANGE_NONE = 0,  // leaves the key as it is
    PERDURE_CHANGE_PUT = 1,   // gives it the value in *after
    PERDURE_CHANGE_ERASE = 2  // removes it
} perdure_change;
// `before` is a copy of the value, NULL if the key is absent. *after is borrowed: what it points to
// must stay until the function is called again or perdure_modify() has returned.
typedef perdure_change perdure_modify_fn(void* context, const void* before, size_t before_size,
                                         perdure_bytes* after);
// Changes the key as `change` says. If another thread changes the key meanwhile, calls `change`
// again, and only its last result counts. It may read the pool, and write other keys: such a write
// happens at once and stays, and happens again if `change` is called again. It must not close the
// pool or drop the map. `present`, which may be NULL: whether the key was present before.
PERDURE_API perdure_status perdure_modify(perdure_map* map, const void* key, size_t key_size,
                                          perdure_modify_fn* change, void* context, bool* present);
// Adds to a value of fixed size of up to 8 bytes, which is taken as an integer; an absent key
// counts as 0 and is inserted. Overflow wraps around, so (uint64_t)-1 subtracts 1. *before, which
// may be NULL, is the value from before, without its sign. No increment is lost, whatever the
// number of threads.
PERDURE_API perdure_status perdure_fetch_add(perdure_map* map, const void* key, size_t key_size,
                                             uint64_t delta, uint64_t* before);

// ---- maps of 64-bit integers --------------------------------------------------------------------

// The same calls for maps with PERDURE_KEY_U64 and PERDURE_VALUE_FIXED of 8 bytes. On other maps
// they fail with PERDURE_INVALID_ARGUMENT. `present` may be NULL in the first four.
PERDURE_API perdure_status perdure_u64_put(perdure_map* map, uint64_t key, uint64_t value,
                                           bool* present);
PERDURE_API perdure_status perdure_u64_insert(perdure_map* map, uint64_t key, uint64_t value,
                                              bool* present);
PERDURE_API perdure_status perdure_u64_update(perdure_map* map, uint64_t key, uint64_t value,
                                              bool* present);
PERDURE_API perdure_status perdure_u64_erase(perdure_map* map, uint64_t key, bool* present);
// `value` may be NULL, `present` may not.
PERDURE_API perdure_status perdure_u64_get(perdure_map* map, uint64_t key, uint64_t* value,
                                           bool* present);
// Looks up all keys with their cache misses overlapped. values[i] is 0 and present[i] false if
// keys[i] is absent. *found, which may be NULL: how many are present.
PERDURE_API perdure_status perdure_u64_get_many(perdure_map* map, const uint64_t* keys,
                                                size_t count, uint64_t* values, bool* present,
                                                size_t* found);
// Puts, or erases, all keys, as perdure_write_many(). `present`, which may be NULL, gets what each
// single call would have stored. Returns the first error; the rest is tried anyway.
PERDURE_API perdure_status perdure_u64_put_many(perdure_map* map, const uint64_t* keys,
                                                const uint64_t* values, size_t count,
                                                bool* present);
PERDURE_API perdure_status perdure_u64_erase_many(perdure_map* map, const uint64_t* keys,
                                                  size_t count, bool* present);

// ---- many keys ----------------------------------------------------------------------------------

// Copies the value of each keys[i] into values[i], for perdure_free(); values[i].data is NULL if it
// is absent. *found, which may be NULL: how many are present. Cache misses overlap; 8 to 64 keys
// gain most. If it fails, there is nothing to free.
PERDURE_API perdure_status perdure_get_many(perdure_map* map, const perdure_bytes* keys,
                                            size_t count, perdure_buffer* values, size_t* found);
// Calls visit(context, i, value, size) for each keys[i] that is present, in any order. `found` may
// be NULL. The lookups are not one atomic operation.
PERDURE_API perdure_status perdure_read_many(perdure_map* map, const perdure_bytes* keys,
                                             size_t count, perdure_indexed_fn* visit, void* context,
                                             size_t* found);

// The single call that a mutation stands for.
typedef PERDURE_ENUM(perdure_mutation_kind){
    PERDURE_PUT = 0, PERDURE_INSERT = 1, PERDURE_UPDATE = 2,
    PERDURE_ERASE = 3  // ignores the value
} perdure_mutation_kind;
// A mutation of perdure_write_many().
typedef struct perdure_mutation {
  perdure_mutation_kind kind;
  perdure_bytes key;
  perdure_bytes value;
} perdure_mutation;
// The result of a mutation of perdure_write_many().
typedef struct perdure_result {
  perdure_status status;
  bool present;  // what the single call would have stored
} perdure_result;
// Does all mutations, each atomic by itself, and durable when the call returns. Mutations of one
// key take effect in their order. 16 to 256 of them gain most. results[i] is what the single call
// would have returned; `results` may be NULL. Returns the first error; the rest is tried anyway.
PERDURE_API perdure_status perdure_write_many(perdure_map* map, const perdure_mutation* mutations,
                                              size_t count, perdure_result* results);

// ---- ranges -------------------------------------------------------------------------------------

// Calls visit for every entry, in the engine's order, also of a hash table. *visited, which may be
// NULL, counts them, with the last one if it ended the walk; it is 0 after an error. Entries that
// are inserted or removed meanwhile may be visited or not. O(n).
PERDURE_API perdure_status perdure_for_each(perdure_map* map, perdure_entry_fn* visit,
                                            void* context, uint64_t* visited);
// The same for a range, in key order. `range` may be NULL: all entries. A scan is not a snapshot.
// O(log n), and O(1) for each entry.
// Errors of all calls with a range: UNSUPPORTED if the engine keeps no order.
PERDURE_API perdure_status perdure_scan(perdure_map* map, const perdure_range* range,
                                        perdure_entry_fn* visit, void* context, uint64_t* visited);
// Counts the entries of a range, as perdure_scan() visits them.
PERDURE_API perdure_status perdure_count(perdure_map* map, const perdure_range* range,
                                         uint64_t* count);
// Erases the entries of the range. `range` must not be NULL: an initialized range is all entries.
// Not one atomic operation: after a crash or an error some are erased. `erased` may be NULL.
PERDURE_API perdure_status perdure_erase_range(perdure_map* map, const perdure_range* range,
                                               uint64_t* erased);

// A position in the entries of a range:
//     for (perdure_iterator_open(map, &range, &it); perdure_iterator_valid(it);
//          perdure_iterator_next(it)) use(perdure_iterator_key(it, &size));
//     status = perdure_iterator_status(it);
//     perdure_iterator_close(it);
// It copies entries in batches and holds nothing between calls: it may live long, and any thread
// may change the map meanwhile. A value may be as old as the last call that moved.
// A new iterator is on the first entry. first() and last() move to the ends of the range in the
// direction of the scan, next() moves in that direction, prev() against it. seek() moves to the
// first entry at or behind the key, in that direction. `limit` counts entries since the last of
// first(), last() and seek(). At an end and after an error the iterator is not valid, and next()
// and prev() do nothing. The moves return what perdure_iterator_status() returns: PERDURE_OK at an
// end. A step is O(1) amortized, the other moves O(log n).
PERDURE_API perdure_status perdure_iterator_open(perdure_map* map, const perdure_range* range,
                                                 perdure_iterator** iterator);
PERDURE_API void perdure_iterator_close(perdure_iterator* iterator);
// False also for NULL.
PERDURE_API bool perdure_iterator_valid(const perdure_iterator* iterator);
// The error that ended the walk, or PERDURE_OK.
PERDURE_API perdure_status perdure_iterator_status(const perdure_iterator* iterator);
// Views; NULL, and size 0, if the iterator is not valid. `size` may be NULL. A view of an integer
// or of a value of fixed size is aligned to 8 bytes.
PERDURE_API const void* perdure_iterator_key(const perdure_iterator* iterator, size_t* size);
PERDURE_API const void* perdure_iterator_value(const perdure_iterator* iterator, size_t* size);
// The moves; see perdure_iterator_open().
PERDURE_API perdure_status perdure_iterator_next(perdure_iterator* iterator);
PERDURE_API perdure_status perdure_iterator_prev(perdure_iterator* iterator);
PERDURE_API perdure_status perdure_iterator_first(perdure_iterator* iterator);
PERDURE_API perdure_status perdure_iterator_last(perdure_iterator* iterator);
PERDURE_API perdure_status perdure_iterator_seek(perdure_iterator* iterator, const void* key,
                                                 size_t key_size);

// ---- versions -----------------------------------------------------------------------------------

// For maps of PERDURE_ENGINE_PSKIPLIST; UNSUPPORTED on others. Mutations write to the open version.
// A closed version does not change until it is trimmed. Numbers rise, but do not count tags: after
// a kill and after a rollback some are skipped (docs/guide.md). A version that is open or trimmed
// fails with PERDURE_INVALID_ARGUMENT.

// Closes the open version; *version is its number. Durable when it returns. O(1). In durability
// `buffered` the first call after an open, and one in 4,096, waits for a cut, with the errors of
// perdure_pool_sync().
PERDURE_API perdure_status perdure_tag(perdure_map* map, uint64_t* version);
// The closed versions that can be read, both included. If *last < *first, there is none. O(1).
PERDURE_API perdure_status perdure_versions(perdure_map* map, uint64_t* first, uint64_t* last);
// As perdure_get(), of the value that the key had in `version`.
PERDURE_API perdure_status perdure_get_at(perdure_map* map, uint64_t version, const void* key,
                                          size_t key_size, void** value, size_t* value_size);
// Calls visit for every version in which the key was written, the oldest first, with the open one.
// `visited` may be NULL.
PERDURE_API perdure_status perdure_history(perdure_map* map, const void* key, size_t key_size,
                                           perdure_history_fn* visit, void* context,
                                           uint64_t* visited);
// Calls visit, in key order, for every key of the range whose value differs between two versions.
// `range` and `visited` may be NULL.
PERDURE_API perdure_status perdure_diff(perdure_map* map, uint64_t from_version,
                                        uint64_t to_version, const perdure_range* range,
                                        perdure_difference_fn* visit, void* context,
                                        uint64_t* visited);
// Forgets the versions below `version`, or below the lowest one that a snapshot or an iterator
// holds. *first, which may be NULL, is the first that remains. O(keys and their entries).
PERDURE_API perdure_status perdure_trim(perdure_map* map, uint64_t version, uint64_t* first);
// Makes the state of `version` the latest one, in one step; later writes are lost. No other
// operation may be in flight. O(keys and their entries).
// Errors: BUSY if a snapshot or an iterator holds a later version.
PERDURE_API perdure_status perdure_rollback(perdure_map* map, uint64_t version);

#define PERDURE_LAST_VERSION UINT64_MAX  // the last closed one
// A view of a closed version, which perdure_trim() keeps while the snapshot is open. The calls are
// those of a map.
PERDURE_API perdure_status perdure_snapshot_open(perdure_map* map, uint64_t version,
                                                 perdure_snapshot** snapshot);
PERDURE_API void perdure_snapshot_close(perdure_snapshot* snapshot);
// 0 for NULL.
PERDURE_API uint64_t perdure_snapshot_version(const perdure_snapshot* snapshot);
// As the calls of a map with these names, of the version that the snapshot holds.
PERDURE_API perdure_status perdure_snapshot_contains(perdure_snapshot* snapshot, const void* key,
                                                     size_t key_size, bool* present);
PERDURE_API perdure_status perdure_snapshot_get(perdure_snapshot* snapshot, const void* key,
                                                size_t key_size, void** value, size_t* value_size);
PERDURE_API perdure_status perdure_snapshot_get_into(perdure_snapshot* snapshot, const void* key,
                                                     size_t key_size, void* buffer, size_t capacity,
                                                     size_t* value_size, bool* present);
PERDURE_API perdure_status perdure_snapshot_read(perdure_snapshot* snapshot, const void* key,
                                                 size_t key_size, perdure_value_fn* visit,
                                                 void* context, bool* present);
PERDURE_API perdure_status perdure_snapshot_scan(perdure_snapshot* snapshot,
                                                 const perdure_range* range,
                                                 perdure_entry_fn* visit, void* context,
                                                 uint64_t* visited);
PERDURE_API perdure_status perdure_snapshot_count(perdure_snapshot* snapshot,
                                                  const perdure_range* range, uint64_t* count);
// The iterator holds the version itself, so the snapshot may be closed.
PERDURE_API perdure_status perdure_snapshot_iterate(perdure_snapshot* snapshot,
                                                    const perdure_range* range,
                                                    perdure_iterator** iterator);
// Up to this version.
PERDURE_API perdure_status perdure_snapshot_history(perdure_snapshot* snapshot, const void* key,
                                                    size_t key_size, perdure_history_fn* visit,
                                                    void* context, uint64_t* visited);

// ---- batches ------------------------------------------------------------------------------------

// Puts and erases, of any maps of one pool, that happen all or not at all. A batch holds copies. If
// a call on it fails, that call adds nothing, and perdure_batch_commit() fails with the first such
// error until perdure_batch_clear().
PERDURE_API perdure_status perdure_batch_create(perdure_batch** batch);
PERDURE_API void perdure_batch_destroy(perdure_batch* batch);
// Of several puts and erases of one key in a batch the last one counts.
PERDURE_API perdure_status perdure_batch_put(perdure_batch* batch, perdure_map* map,
                                             const void* key, size_t key_size, const void* value,
                                             size_t value_size);
PERDURE_API perdure_status perdure_batch_erase(perdure_batch* batch, perdure_map* map,
                                               const void* key, size_t key_size);
// Commits the batch only if the key has this value. Requirements are looked at before any mutation
// of the batch.
PERDURE_API perdure_status perdure_batch_require(perdure_batch* batch, perdure_map* map,
                                                 const void* key, size_t key_size,
                                                 const void* value, size_t value_size);
PERDURE_API perdure_status perdure_batch_require_absent(perdure_batch* batch, perdure_map* map,
                                                        const void* key, size_t key_size);
// As perdure_get(), of what the key would have after a commit now: what the batch gives it, or else
// what the map has. Fails with the error of the batch, if it keeps one.
PERDURE_API perdure_status perdure_batch_get(perdure_batch* batch, perdure_map* map,
                                             const void* key, size_t key_size, void** value,
                                             size_t* value_size);
// Does all of the batch, or nothing of it, across every crash; durable when it returns PERDURE_OK.
// The batch stays as it is, and can be committed again. While it runs, reads may see some of its
// changes and not yet others; perdure_pool_read_batch() sees none or all. Mutations of other
// threads wait, but not for a small batch of phast maps. O(n log n).
// Errors, with nothing done: CONFLICT (a requirement is not met); those of the single calls;
// UNSUPPORTED; BUSY (a rollback is under way, or another thread is in a call on the batch).
PERDURE_API perdure_status perdure_batch_commit(perdure_batch* batch);
// Removes everything from the batch, also its error.
PERDURE_API perdure_status perdure_batch_clear(perdure_batch* batch);
// The number of puts, erases and requirements; 0 for NULL.
PERDURE_API size_t perdure_batch_size(const perdure_batch* batch);

// ---- pools of durability `buffered` -------------------------------------------------------------

// docs/durability.md says what such a pool promises, docs/operating.md how it is kept.
//
//   perdure_buffered_options often = PERDURE_BUFFERED_OPTIONS_INIT;
//   often.interval_ms = 20;
//   perdure_pool_open_buffered("users.perdure", NULL, &often, &pool);

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

// ---- backups ------------------------------------------------------------------------------------

// A backup is a folder: a copy of a pool's file and, of a `buffered` pool, the log that follows it.
// Each cut of the pool is an epoch in it, and can be restored. A folder is used by one call at a
// time; a second one fails with PERDURE_BUSY.
//
//   perdure_pool_backup(pool, "/backups/users", NULL, NULL);         // full; later: what is new
//   perdure_restore("/backups/users", "users.perdure", NULL, NULL);  // as at its last epoch

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
// Errors: as above; NOT_FOUND; BUSY (also: a process has the pool open in another durability);
// INVALID_ARGUMENT (also: a pool of another durability was not closed); UNTRUSTED;
// UNSUPPORTED_FORMAT.
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

// ---- others -------------------------------------------------------------------------------------

// The name of an engine, "phast"; NULL if this build does not have it.
PERDURE_API const char* perdure_engine_name(perdure_engine engine);

// The persistence work of the calling thread since it started, over all pools.
typedef struct perdure_counters {
  size_t struct_size;
  uint64_t flushes;        // write-backs of cache lines, or of pages
  uint64_t fences;         // store fences, or batches of msync
  uint64_t written_lines;  // lines of persistent memory that were stored to
  uint64_t allocations;    // blocks allocated in pools
} perdure_counters;
// Fills `counters`, whose struct_size must be set. O(1).
PERDURE_API perdure_status perdure_thread_counters(perdure_counters* counters);

#undef PERDURE_ENUM
#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(readability-identifier-naming, bugprone-macro-parentheses)
