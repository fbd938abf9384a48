// Pool: one file that holds named maps. Start here.
//
//   auto pool  = perdure::Pool::open("cache.perdure");                    // Expected<Pool>
//   auto users = pool->map<std::uint64_t, std::uint64_t>("users");        // Expected<Map<..>>
//   users->insert(42, 7);
//
// One process owns a pool at a time; a second open fails with `busy` and names the owner. A child
// of fork() must not use its parent's pool. Thread safety: open and close are for one thread;
// everything else is for any number.
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
  // Opens or creates. Recovery runs here, in parallel: O(leaves) for phast, O(buckets) for level,
  // O(entries) for ascs and pskiplist; clevel and as serve at once and do the rest in the
  // background. Errors: not_found, exists, busy, corruption, unsupported_format, untrusted,
  // invalid_argument, io, out_of_memory, pool_full.
  static Expected<Pool> open(std::string_view path, const PoolOptions& options = {});

  // What the file says about itself, without the lock and without recovery: works while another
  // process has the pool.
  static Expected<PoolInfo> inspect(std::string_view path);

  Pool(Pool&&) noexcept;
  Pool& operator=(Pool&&) noexcept;
  ~Pool();  // closes; errors are lost: call close() to see them

  // Opens or creates a map, as MapOptions says. Durable when it returns. O(1) but for the making of
  // a hash table. Errors: invalid_argument (it exists with other types or another engine; the name
  // is not allowed), not_found, exists, unsupported (the engine is not in this build), pool_full,
  // out_of_memory, read_only, and that of a damaged map, corruption.
  template <MapKey K, MapValue V>
  Expected<Map<K, V>> map(std::string_view name, const MapOptions& options = {}) {
    auto index = open_index(name, options, map_types<K, V>());
    if (!index) return fail(std::move(index.error()));
    return Map<K, V>(std::move(*index));
  }
  // The same for engines that keep order; `unsupported` with others.
  template <MapKey K, MapValue V>
  Expected<OrderedMap<K, V>> ordered_map(std::string_view name, const MapOptions& options = {}) {
    auto index = open_ordered(name, options, map_types<K, V>());
    if (!index) return fail(std::move(index.error()));
    return OrderedMap<K, V>(std::move(*index));
  }
  // The same for engines that keep versions, as pskiplist does; `unsupported` with others.
  template <MapKey K, MapValue V>
  Expected<VersionedMap<K, V>> versioned_map(std::string_view name,
                                             const MapOptions& options = {}) {
    auto index = open_versioned(name, options, map_types<K, V>());
    if (!index) return fail(std::move(index.error()));
    return VersionedMap<K, V>(std::move(*index));
  }

  // For tools: opens a map whatever its types are. With `create` it is made with those types if it
  // is absent. Fails with not_found, and as map() does.
  Expected<UntypedMap> untyped_map(std::string_view name, const MapOptions& options = {},
                                   const std::optional<MapTypes>& create = std::nullopt);

  // Errors: out_of_memory; invalid_argument if closed. As info() and stats().
  Expected<std::vector<MapInfo>> list() const;
  // Removes a map and frees its blocks (a damaged map's at the next open). No other thread may be
  // using it. Its DRAM is given back when the pool closes. Fails with not_found.
  Status drop(std::string_view name);

  Expected<PoolInfo> info() const;
  Expected<PoolStats> stats() const;
  // Verifies the pool, all maps; what is wrong is in the report. No mutation may be in flight.
  // O(leaves) or O(slots); with `deep` O(bytes), one thread. Errors: invalid_argument if closed.
  Expected<CheckReport> check(const CheckOptions& options = {}) const;

  // Writes the whole file back: afterwards it has everything acknowledged before the call,
  // whatever happens to the machine. Any thread, with mutations going on or not.
  //
  // For backups: if nothing is mutated between the call and the end of the copy, the copy is
  // trusted like that of a closed pool, and so is this file after a power failure;
  // info().synced says whether the pool is in that state. The next mutation ends it, and pays for a
  // durable header first. A copy that a mutation ran into is found out when it is opened
  // (`untrusted`). O(assigned bytes), read by all cores, unless mutations go on. Background work
  // that is left is done first, for about a second; if that is not enough, the file is written back
  // and info().synced stays false. Not from within a read or scan callback. Errors: io, poisoned,
  // invalid_argument if closed.
  Status sync();
  // Shrinks large tables (level, clevel), gives free extents back to the file system. Answers the
  // bytes.
  Expected<std::uint64_t> compact();

  // One bounded step (about a millisecond at most) of the pool's background work, a rehash or a
  // sweep, on the calling thread. False: there was none to do; phast has none of its own. For pools
  // opened with `background_threads` 0; with one it joins in. What is not done at close goes on at
  // the next open. Errors: invalid_argument if closed.
  Expected<bool> run_background();

  // Idempotent. After it every use of the pool's maps but their destruction is undefined.
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

// This thread's persistence counters since it started, over all pools.
Counters thread_counters() noexcept;

// The engines of this build; others answer `unsupported`.
struct EngineInfo {
  Engine engine = Engine::phast;
  std::string_view name;   // as the command line prints and takes it
  bool ordered = false;    // its maps may be opened with Pool::ordered_map
  bool versioned = false;  // and with Pool::versioned_map
};
std::span<const EngineInfo> engines() noexcept;

// The library's version, e.g. "0.1.0".
std::string_view version() noexcept;

}  // namespace perdure
