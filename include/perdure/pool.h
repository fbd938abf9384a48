// Pool: one file that holds up to 1,024 named maps. Start here.
//
//   auto pool  = perdure::Pool::open("cache.perdure");                    // Expected<Pool>
//   auto users = pool->map<std::uint64_t, std::uint64_t>("users");        // Expected<Map<..>>
//   auto put   = users->insert(42, 7);                                    // Found: put.ok()
//
// One process owns a pool at a time; a second open fails with `busy` and names the owner. A child
// of fork() must not use its parent's pool: its calls on the pool fail with invalid_argument. Only
// close() returns ok there, and leaves the parent's pool alone.
//
// Thread safety: open, close and the destructor are for one thread, while no other thread uses the
// pool or its maps. Any number of threads may call everything else, except where a comment forbids
// it.
// Errors of every call of Pool on a pool that is closed, and in a callback of a read, a scan or a
// read_batch() of the pool: invalid_argument. Only close() of a closed pool returns what it has
// returned. Maps, iterators and snapshots may outlive their pool: once it is closed, the map is
// dropped, or the process is a child of fork(), their calls fail with invalid_argument. An iterator
// first goes on in the entries that it has copied. A Pool that was moved from may only be
// destroyed, assigned to or closed.
// A poisoned pool: every call that reads or changes entries returns poisoned, and so do sync(),
// drop(), compact() and close().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "perdure/backup.h"
#include "perdure/function_ref.h"
#include "perdure/map.h"
#include "perdure/options.h"
#include "perdure/stats.h"
#include "perdure/status.h"
#include "perdure/untyped_map.h"
#include "perdure/versioned_map.h"

namespace perdure {

class WriteBatch;

namespace detail {
class BatchItems;
class PoolImpl;
}  // namespace detail

class Pool {
 public:
  // Opens or creates the file `path`, as options.mode says. Recovery runs inside this call, on
  // recovery_threads threads: O(leaves) for phast, O(buckets) for level, O(entries) for ascs and
  // pskiplist. A pool whose maps are all of clevel or as serves at once; the rest of its recovery
  // runs in the background. Reserves max_size bytes of address space.
  // Errors: not_found, exists (mode; or the log's folder has segments of another pool); busy;
  // untrusted; live_missing; corruption; unsupported_format; unsupported
  // (the medium cannot give this durability); invalid_argument; io; out_of_memory; pool_full;
  // poisoned (a write-back of the recovery failed).
  // In durability `buffered` an open that fails leaves the content of the file as it was, but its
  // header and its marks may have been written. After a kill it reads the parts that were stored to
  // since the pool was opened, and the log.
  // Errors of OpenMode::read_only: also busy (a process has the pool open, and not in durability
  // `buffered`).
  // A refusal with busy, untrusted, unsupported_format or unsupported leaves the file as it was. So
  // does every refusal of a pool that was closed properly, up to the end of its recovery. A pool
  // that was not closed properly is first marked as in use and repaired map by map. If its open
  // then fails, the file is as another kill would leave it, and the next open repairs again.
  static Expected<Pool> open(std::string_view path, const PoolOptions& options = {});

  // Reads the header and the names of the maps, without the lock and without recovery, and writes
  // nothing. Works while another process has the pool open. O(names in its folder), for images that
  // were set aside; of the file at most 256 lines.
  // Errors: not_found, io, corruption, unsupported_format, out_of_memory.
  static Expected<PoolInfo> inspect(std::string_view path);

  // Raises the maximum of the pool in the file `path` to `max_size` bytes, rounded down to whole
  // extents (PoolInfo::extent_bytes), in one step: opens the file, raises, closes. No process may
  // have the pool open. It moves no data, takes no disk space, and opens no map: a pool that its
  // owner did not close stays so, and its next open recovers it. The file grows on demand, as
  // before. Reserves max_size bytes of address space, and so does every later open.
  // Durable in every durability mode when it returns. After a crash in the middle the pool has the
  // old maximum or the new one, and is otherwise unchanged. O(extents of the file).
  // Afterwards a build from before the call existed refuses the pool (unsupported_format). The call
  // works at least 8 times; from then on each that would need another extent table fails.
  // Errors: invalid_argument (max_size is not larger than the present maximum, or the pool was left
  // open in durability `buffered`, or max_size is larger than
  // kMaxPoolSize, or adds less than its extent table takes); not_found; busy; untrusted;
  // corruption (header, root directory or extent table); unsupported_format; unsupported (no
  // further extent table, or the medium cannot give the pool's durability); io (also of a file
  // without write permission); out_of_memory (address space); poisoned (the write-back of the
  // header failed: the pool has the old maximum or the new one).
  static Status resize(std::string_view path, std::uint64_t max_size);

  // What is moved from may only be destroyed, assigned to or closed.
  Pool(Pool&&) noexcept;
  Pool& operator=(Pool&&) noexcept;
  ~Pool();  // closes with the default CloseOptions; cannot report an error, close() can

  // Opens or creates the map `name` (1 to 31 bytes, no NUL), as `options` say. A new map is as
  // durable as a mutation: in `buffered`, a power failure can undo it until the next cut or sync().
  // Several calls with one name return objects of the same map. Opening is O(1). Creating is
  // O(options.capacity) for a hash table, O(partitions) for phast, else O(1).
  // Errors: invalid_argument (the map has other types or another engine; the name is not allowed);
  // not_found; exists; unsupported (a new map of an engine that is not in this build);
  // unsupported_format (an existing map of an engine, or of a version of an engine, that is not in
  // this build); pool_full; out_of_memory; read_only; corruption (the map is damaged).
  template <MapKey K, MapValue V>
  Expected<Map<K, V>> map(std::string_view name, const MapOptions& options = {}) {
    auto index = open_index(name, options, map_types<K, V>());
    if (!index) return fail(std::move(index.error()));
    return Map<K, V>(std::move(*index));
  }
  // The same, with scans.
  // Errors: also unsupported, if the engine keeps no order.
  template <MapKey K, MapValue V>
  Expected<OrderedMap<K, V>> ordered_map(std::string_view name, const MapOptions& options = {}) {
    auto index = open_ordered(name, options, map_types<K, V>());
    if (!index) return fail(std::move(index.error()));
    return OrderedMap<K, V>(std::move(*index));
  }
  // The same, with versions.
  // Errors: also unsupported, if the engine keeps no versions; pskiplist does.
  template <MapKey K, MapValue V>
  Expected<VersionedMap<K, V>> versioned_map(std::string_view name,
                                             const MapOptions& options = {}) {
    auto index = open_versioned(name, options, map_types<K, V>());
    if (!index) return fail(std::move(index.error()));
    return VersionedMap<K, V>(std::move(*index));
  }
  // For other types. They have no definition. A call does not compile; the error names the rule.
  template <class K, class V>
    requires(!MapKey<K> || !MapValue<V>)
  detail::TypesNotAllowed<K, V> map(std::string_view name, const MapOptions& options = {});
  template <class K, class V>
    requires(!MapKey<K> || !MapValue<V>)
  detail::TypesNotAllowed<K, V> ordered_map(std::string_view name, const MapOptions& options = {});
  template <class K, class V>
    requires(!MapKey<K> || !MapValue<V>)
  detail::TypesNotAllowed<K, V> versioned_map(std::string_view name,
                                              const MapOptions& options = {});

  // For tools: opens a map of any types and any engine. If the map is absent and `create` has a
  // value, creates it with those types.
  // Errors: not_found if it is absent and `create` has none; those of map().
  Expected<UntypedMap> untyped_map(std::string_view name, const MapOptions& options = {},
                                   const std::optional<MapTypes>& create = std::nullopt);

  // The maps of the pool, in the order of the root directory. O(maps).
  // Errors: out_of_memory.
  Expected<std::vector<MapInfo>> list() const;
  // Removes a map and frees its blocks. As durable as a mutation: no kill brings the map back; in
  // `buffered`, a power failure can until the next cut or sync(). If the map turns out to be
  // damaged, its blocks are not freed before the next open. No other thread may be using the map;
  // afterwards the calls of its objects fail with invalid_argument. Its memory in DRAM is freed
  // when the pool closes. First finishes the sweep of an open that left it to the background: until
  // then O(content of the pool), otherwise O(blocks of the map).
  // Errors: not_found, read_only, out_of_memory, corruption (the sweep found damage).
  Status drop(std::string_view name);

  // What the file is, how it was left and what its medium guarantees (stats.h). O(maps).
  // Errors: out_of_memory.
  Expected<PoolInfo> info() const;
  // Space of the pool and figures of each map (stats.h). May read every map: O(n). Waits for the
  // sweep of an open that left it to the background. Errors: out_of_memory.
  Expected<PoolStats> stats() const;
  // Verifies the pool and all maps, and writes nothing to them. Violations are in the report; they
  // are not an error of the call. No mutation may be in flight; reads may. First finishes the sweep
  // of an open that left it to the background. Runs on the calling thread alone. O(leaves) or
  // O(slots), with options.deep O(bytes).
  // A copy of the header that was damaged when a closed pool was opened is a violation, too,
  // although nothing is lost by it, and an open for writing has written it anew.
  // Errors: out_of_memory.
  Expected<CheckReport> check(const CheckOptions& options = {}) const;
  // For a damaged pool, opened with OpenMode::read_only and PoolOptions::allow_damage. Calls
  // visit(key, value) for each entry of the map `name` that is as it was written, in any order:
  // the engine reaches it, and its checksums match. A pool that was not closed properly has none
  // for integers and words that lie in a leaf, a table or a slot; those are visited as they are.
  // The report says what is damaged. If it is ok(), nothing is lost. Damage of a node can take
  // entries with it that the node alone leads to; damage of the map's root block takes all.
  // Writes nothing. `visit` must not throw, and must not call into the pool. O(bytes of the map).
  // Errors: not_found; invalid_argument (the pool was opened otherwise); corruption (the root
  // directory is damaged, and does not have the map); out_of_memory.
  Expected<CheckReport> salvage(
      std::string_view name, FunctionRef<void(const UntypedKey&, const UntypedValue&)> visit) const;

  // Writes the whole file back. When it returns, everything that was acknowledged before the call
  // survives a crash of the machine, in every durability mode. Mutations may run meanwhile. Must
  // not be called from a callback of a read or a scan.
  // In `buffered` it waits for a cut that began after the call, and for one write of what has
  // changed since the last one. info().synced stays false: for a backup close the pool.
  //
  // For backups: stop all mutations, call sync(), and look at info().synced. If it is true, and no
  // mutation runs until the end of the copy, the copy is trusted as that of a closed pool. So is
  // this file after a power failure. The next mutation ends this state and first makes a header
  // durable. If a mutation runs during the copy, an open of the copy fails with `untrusted`.
  //
  // O(assigned bytes); all cores read them, unless mutations run. Finishes background work first,
  // for about a second. If more is left, the file is written back and info().synced stays false.
  // Does nothing in a read-only pool.
  // Errors: io or poisoned (the write-back failed; the pool is poisoned, but in `buffered` see
  // resume_log()); corruption (found in the background).
  Status sync();
  // Only for durability `buffered`; sync() is both of them. epoch() returns the number of the next
  // cut of the pool: it will have everything that was acknowledged before the call. wait_durable()
  // returns when that cut, or a later one, is durable: it survives a power failure. So a server can
  // do other work between the two, and one write to the disk serves all callers that wait.
  // The numbers are of this open, and begin with 1. epoch() is O(1).
  // In `power` both return at once, because everything is durable.
  // Errors: unsupported (other durabilities); invalid_argument (epoch() has not returned the number
  // yet); io, pool_full or others of the log, which then stops: see resume_log().
  Expected<std::uint64_t> epoch() const;
  Status wait_durable(std::uint64_t epoch);
  // After a write of the log of a `buffered` pool has failed: tries again, from the last durable
  // cut on, and returns when a new cut is durable. Until then mutations fail with `io`, unless
  // BufferedOptions::on_log_failure says otherwise, and sync() and wait_durable() return the error.
  // A pool with background threads does it by itself each second, while it is open. Does nothing if
  // the log has not failed. Errors: those of wait_durable().
  Status resume_log();
  // Brings the log of a `buffered` pool into the pool's file, and returns when everything that was
  // acknowledged before the call is there. The pool does the same in the background before the log
  // becomes too long (BufferedOptions::log_bytes); a shorter log makes the open after a power
  // failure faster. Other operations go on. Writes each page of the pool that has changed since the
  // fold before. Does nothing in other durabilities. Errors: those of wait_durable();
  // out_of_memory (the pool goes on as before).
  Status fold_log();
  // Makes a backup (backup.h) of a `buffered` pool in `folder`, while all other operations go on.
  // The folder is made if it does not exist; otherwise it must be empty, or have a backup of this
  // pool: then only what is new in the log is copied. That works if the log still has all of it:
  // the pool has not been closed since, and not more was folded than
  // BufferedOptions::keep_log_bytes keeps. Begins with a cut, so the backup has everything that was
  // acknowledged before the call. Each byte is read back and verified. The result is durable. A
  // backup that is interrupted leaves the one that the folder had as it was.
  // Until it ends, the disk of the pool needs space for what is logged meanwhile; if it has none,
  // the backup fails, and the pool goes on. Memory: 1 MiB, and 70 bytes for each part of the log.
  // O(bytes of the pool, or of what is new).
  // Errors: unsupported (another durability); exists (the folder has something else, or a backup
  // that cannot be continued; the message says why: name another folder); invalid_argument (the
  // folder is a pool, or a part of one, or has a link to one); busy (another backup uses
  // the folder, or the log was used again several times because the disk was full); corruption (of
  // the backup in the folder); pool_full (no space for the backup); io; those of wait_durable().
  Expected<BackupInfo> backup(std::string_view folder, const BackupOptions& options = {});
  // Shrinks hash tables that are too large (level, clevel), moves records out of extents that are
  // thin (phast), and returns free extents to the file system, and what growth has prepared.
  // Returns the number of bytes by which the file takes less space there. Other operations may run
  // meanwhile; space that they give to the file is subtracted. It changes no entry, and a crash in
  // the middle loses nothing. Background threads give back much free space by themselves, but for a
  // reserve of 32 MiB or an eighth of what is used (docs/operating.md). O(extents), O(slots) for
  // each table that it shrinks, and O(entries) for each map whose records may move. A table without
  // room to shrink stays as it is, and drop() waits for the end. In durability `buffered` it also
  // folds the log (fold_log()).
  // Errors: read_only; unsupported (the file system cannot punch holes); io; out_of_memory;
  // corruption.
  Expected<std::uint64_t> compact();

  // Does all puts and erases of the batch (write_batch.h), wholly or not at all, across every
  // crash, if its requirements are met. They are durable when the call returns ok. Every later call
  // sees all of them. While it runs, a read sees some keys before and some after it, and a
  // read_batch() none or all. In a map with versions they lie in one version.
  // First it makes sure that nothing can fail: it enlarges hash tables, and allocates all blocks.
  // So it may need more space in the pool than the entries take, and a batch that is large in
  // relation to a hash table makes the table grow early. At most 256 keys and 256 KiB of phast maps
  // go beside other calls: only mutations of these keys wait, and of keys that share a latch with
  // them (one in four of a leaf). (But not with integer key 0, with an integer as the value of a
  // byte-string key, or if two new keys share a latch, as ascending ones do.) For any other batch,
  // and for one that meets others again and again, the mutations of all threads wait, and so do
  // sync(), check(), compact() and the making of maps.
  // After a kill the first batches wait for the recovery that goes on in the background.
  // O(n log n) for n mutations, beside the calls that it stands for; 3 fences beside those of the
  // single calls, of which phast's share some.
  // Errors, with nothing done: conflict; invalid_argument (a map of another pool; what the batch
  // has refused; a call from a callback of a read); those of the single calls; unsupported (an
  // engine that takes no batches, or a map of the pool that cannot be read); busy (a rollback is
  // under way). After `poisoned` the next open does the batch wholly or not at all.
  Status commit(const WriteBatch& batch);
  // Calls reads() while no mutation of any map of the pool is under way: all that it reads, with
  // any number of calls on any maps, belongs to one moment. Mutations of other threads wait
  // meanwhile, so `reads` must be short; other reads go on, and a Map::size() counts. It must not
  // change a map or call Pool: such calls fail with invalid_argument. It may throw. read_batch()
  // must not be called from a callback of a read or a scan. First waits for the mutations under
  // way, and for another read_batch(), sync(), check(), compact(), or the making or dropping of a
  // map. Beside the reads it costs some microseconds for each core that runs a thread of the
  // process.
  template <class F>
  Status read_batch(F&& reads) {
    detail::Carried once([&] { reads(); });
    Status s = run_read_batch(once);
    once.rethrow();
    return s;
  }

  // Runs one step, about a millisecond at most, of the pool's background work (a rehash or a sweep)
  // on the calling thread. Returns false if there was none; phast has none. For pools opened with
  // background_threads = 0; in others it helps the threads. In such a pool with durability
  // `buffered` a step can be a cut or a piece of a fold, which wait for the disk. Work that is left
  // at close() continues after the next open.
  Expected<bool> run_background();

  // Closes the pool, also if it returns an error: the file is unmapped and unlocked. No other
  // thread may be in a call on the pool or on one of its maps. A second call does nothing and
  // returns the same status. Only a call from a callback of a read leaves the pool open
  // (invalid_argument).
  // O(leaves) or O(slots) for the checksums of each map, except `as` and `ascs`. Also the rest of
  // the walk of `clevel`, and of `as` after a kill. With options.sync also the write-back.
  // After an error the pool is not marked clean. Errors: poisoned (a write-back failed: in `power`
  // the medium has everything that was acknowledged before; in the other modes the kernel may drop
  // the pages that it could not write, so treat the pool as damaged, docs/durability.md);
  // corruption (found in the background or by the rest of a walk); pool_full, io (of the log in
  // `buffered`: all files stay as a kill leaves them, and the next open goes on).
  Status close(const CloseOptions& options = {});

 private:
  explicit Pool(std::unique_ptr<detail::PoolImpl> impl) noexcept;
  Expected<detail::Handle<detail::Index>> open_index(std::string_view name,
                                                     const MapOptions& options,
                                                     const MapTypes& spec);
  Expected<detail::Handle<detail::OrderedIndex>> open_ordered(std::string_view name,
                                                              const MapOptions& options,
                                                              const MapTypes& spec);
  Expected<detail::Handle<detail::VersionedIndex>> open_versioned(std::string_view name,
                                                                  const MapOptions& options,
                                                                  const MapTypes& spec);
  Status run_read_batch(FunctionRef<void()> reads);
  friend class detail::PoolImpl;

  std::unique_ptr<detail::PoolImpl> impl_;
};

// Removes the pool in the file `path`, which no process may have open, with all that belongs to it:
// the log and the live image of durability `buffered`, also in a `memory_directory`; images that
// were set aside (PoolInfo::aside_images); files that a killed process has not finished. If the
// file is gone already, the parts that are left. If `path` is an image that was set aside: that
// one.
//
// It asks for no trust: a damaged pool is removed, and one of another format version, as by rm. A
// part is what has the name and the content of one. Anything else stays. All parts are looked at
// before the first one is removed, and the file is the last one: if the removal is interrupted, the
// same call goes on with it. Durable when it returns. O(parts of the log, names in the folders).
//
// Errors, with nothing removed: not_found (no file, and no part); busy (a process has the pool or a
// part open); invalid_argument (`path` is a symbolic link, or the live image of a pool; a pool that
// was left open has hard links); exists (the folder of the log has something else, too; or log or
// live image belong to another file of the same folder, a pool that was left open and then renamed
// or copied: the message names it); untrusted (another user may have put a part there);
// unsupported (a pool that was left open is mounted alone); those of Pool::open() for a file that
// is no pool; out_of_memory; io. With io a part may have been removed.
Status destroy(std::string_view path);

// The persistence counters of the calling thread since it started, over all pools.
Counters thread_counters() noexcept;

// An engine of this build. Creating a map of another engine fails with `unsupported`, opening one
// with `unsupported_format`.
struct EngineInfo {
  Engine engine = Engine::phast;
  std::string_view name;   // a literal that ends with '\0'; the command line prints and takes it
  bool ordered = false;    // Pool::ordered_map opens its maps
  bool versioned = false;  // Pool::versioned_map opens its maps
};
// The engines of this build. The span is valid for the life of the program.
std::span<const EngineInfo> engines() noexcept;

// The version of the library that is linked, e.g. "0.1.0".
std::string_view version() noexcept;

}  // namespace perdure
