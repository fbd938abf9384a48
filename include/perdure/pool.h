// Pool: one file that holds up to 256 named maps. Start here.
//
//   auto pool  = perdure::Pool::open("cache.perdure");                    // Expected<Pool>
//   auto users = pool->map<std::uint64_t, std::uint64_t>("users");        // Expected<Map<..>>
//   users->insert(42, 7);
//
// One process owns a pool at a time; a second open fails with `busy` and names the owner. A child
// of fork() must not use its parent's pool: its calls on the pool fail with invalid_argument.
//
// Thread safety: open, close and the destructor are for one thread, while no other thread uses the
// pool or its maps. Any number of threads may call everything else, except where a comment forbids
// it.
// Errors of every call on a pool that is closed: invalid_argument. On a poisoned pool: poisoned.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "perdure/map.h"
#include "perdure/options.h"
#include "perdure/stats.h"
#include "perdure/status.h"
#include "perdure/untyped_map.h"
#include "perdure/versioned_map.h"

namespace perdure {

namespace detail {
class PoolImpl;
}  // namespace detail

class Pool {
 public:
  // Opens or creates the file `path`, as options.mode says. Recovery runs inside this call, on
  // recovery_threads threads: O(leaves) for phast, O(buckets) for level, O(entries) for ascs and
  // pskiplist. A pool whose maps are all of clevel or as serves at once; the rest of its recovery
  // runs in the background. Reserves max_size bytes of address space.
  // Errors: not_found, exists (mode); busy; untrusted; corruption; unsupported_format; unsupported
  // (the medium cannot give this durability); invalid_argument; io; out_of_memory; pool_full. An
  // open that refuses a pool leaves its file as it was.
  static Expected<Pool> open(std::string_view path, const PoolOptions& options = {});

  // Reads the header and the names of the maps, without the lock and without recovery. Works while
  // another process has the pool open.
  // Errors: not_found, io, corruption, unsupported_format, out_of_memory.
  static Expected<PoolInfo> inspect(std::string_view path);

  Pool(Pool&&) noexcept;
  Pool& operator=(Pool&&) noexcept;
  ~Pool();  // closes with the default CloseOptions; cannot report an error, close() can

  // Opens or creates the map `name` (1 to 31 bytes, no NUL), as `options` say. A new map is durable
  // when the call returns. O(1), except for creating a hash table.
  // Errors: invalid_argument (the map has other types or another engine; the name is not allowed);
  // not_found; exists; unsupported (the engine is not in this build); pool_full; out_of_memory;
  // read_only; corruption (the map is damaged).
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

  // For tools: opens a map of any types and any engine. If the map is absent and `create` has a
  // value, creates it with those types.
  // Errors: not_found if it is absent and `create` has none; those of map().
  Expected<UntypedMap> untyped_map(std::string_view name, const MapOptions& options = {},
                                   const std::optional<MapTypes>& create = std::nullopt);

  // The maps of the pool, in the order of the root directory.
  // Errors: out_of_memory.
  Expected<std::vector<MapInfo>> list() const;
  // Removes a map and frees its blocks; the blocks of a damaged map are freed by the next open.
  // Durable when it returns. No other thread may be using the map. Its memory in DRAM is freed when
  // the pool closes. O(blocks of the map).
  // Errors: not_found, read_only, out_of_memory, corruption.
  Status drop(std::string_view name);

  // What the file is, how it was left and what its medium guarantees (stats.h). Errors:
  // out_of_memory.
  Expected<PoolInfo> info() const;
  // Space of the pool and figures of each map (stats.h). May read every map: O(n). Waits for the
  // sweep of an open that left it to the background. Errors: out_of_memory.
  Expected<PoolStats> stats() const;
  // Verifies the pool and all maps. Violations are in the report; they are not an error of the
  // call. No mutation may be in flight. One thread; O(leaves) or O(slots), with options.deep
  // O(bytes).
  // Errors: out_of_memory.
  Expected<CheckReport> check(const CheckOptions& options = {}) const;

  // Writes the whole file back. When it returns, everything that was acknowledged before the call
  // survives a crash of the machine, in every durability mode. Mutations may run meanwhile. Must
  // not be called from a callback of a read or a scan.
  //
  // For backups: if no mutation runs between this call and the end of the copy, the copy is trusted
  // as that of a closed pool, and so is this file after a power failure. info().synced is then
  // true. The next mutation ends this state and first makes a header durable. If a mutation runs
  // during the copy, an open of the copy fails with `untrusted`.
  //
  // O(assigned bytes); all cores read them, unless mutations run. Finishes background work first,
  // for about a second. If more is left, the file is written back and info().synced stays false.
  // Errors: io, poisoned, corruption.
  Status sync();
  // Shrinks hash tables that are too large (level, clevel) and returns free extents to the file
  // system. Returns the number of bytes returned to it. Other operations may run meanwhile.
  // Errors: read_only; unsupported (the file system cannot punch holes); io; out_of_memory.
  Expected<std::uint64_t> compact();

  // Runs one step, about a millisecond at most, of the pool's background work (a rehash or a sweep)
  // on the calling thread. Returns false if there was none; phast has none. For pools opened with
  // background_threads = 0; in others it helps the threads. Work that is left at close() continues
  // after the next open.
  Expected<bool> run_background();

  // Closes the pool. Afterwards its maps, iterators and snapshots may only be destroyed.
  // Idempotent. With options.sync, O(dirty pages) of write-back.
  // Errors: io (the pool is not marked clean; everything acknowledged is in the file), poisoned,
  // corruption (found in the background).
  Status close(const CloseOptions& options = {});

 private:
  explicit Pool(std::unique_ptr<detail::PoolImpl> impl) noexcept;
  Expected<std::shared_ptr<detail::Index>> open_index(std::string_view name,
                                                      const MapOptions& options,
                                                      const MapTypes& spec);
  Expected<std::shared_ptr<detail::OrderedIndex>> open_ordered(std::string_view name,
                                                               const MapOptions& options,
                                                               const MapTypes& spec);
  Expected<std::shared_ptr<detail::VersionedIndex>> open_versioned(std::string_view name,
                                                                   const MapOptions& options,
                                                                   const MapTypes& spec);
  friend class detail::PoolImpl;

  std::unique_ptr<detail::PoolImpl> impl_;
};

// The persistence counters of the calling thread since it started, over all pools.
Counters thread_counters() noexcept;

// An engine of this build. Opening a map of another engine fails with `unsupported`.
struct EngineInfo {
  Engine engine = Engine::phast;
  std::string_view name;   // the name that the command line prints and takes
  bool ordered = false;    // Pool::ordered_map opens its maps
  bool versioned = false;  // Pool::versioned_map opens its maps
};
// The engines of this build. The span is valid for the life of the program.
std::span<const EngineInfo> engines() noexcept;

// The version of the library that is linked, e.g. "0.1.0".
std::string_view version() noexcept;

}  // namespace perdure
