// Store: an embedded key-value store of byte strings over one map of a pool.
//
//   auto store = perdure::Store::open("inventory.perdure");
//   if (auto put = store->put("apple", "3"); !put.ok()) return put.status();
//   auto apples = store->get("apple");         // Expected<std::optional<std::string>>
//   for (auto it = store->scan({.prefix = "user:"}); it.valid(); it.next()) use(it.key());
//
// The calls are those of Map, OrderedMap and VersionedMap. Those that need an engine that keeps
// order, or versions, fail with `unsupported` on others.
//
// Thread safety, durability, errors: as Map and Pool.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "perdure/pool.h"

namespace perdure {

//   Store::open(path, {.map = {.engine = Engine::clevel}, .pool = {.max_size = 4_GiB}});
struct StoreOptions {
  std::string_view map_name = "default";
  MapOptions map = {};
  PoolOptions pool = {};
};

class Store {
 public:
  using Bytes = std::string_view;

  static Expected<Store> open(std::string_view path, const StoreOptions& options = {});

  // Inserts or replaces. Absent: inserted. Present: replaced.
  Found put(std::string_view key, std::string_view value) { return map_->put(key, value); }
  // Absent: inserted. Present: nothing changed.
  Found insert(std::string_view key, std::string_view value) { return map_->insert(key, value); }
  // Present: replaced. Absent: nothing changed.
  Found update(std::string_view key, std::string_view value) { return map_->update(key, value); }
  // Present: removed. Absent: nothing changed.
  Found erase(std::string_view key) { return map_->erase(key); }

  // A copy of the value, or nothing.
  Expected<std::optional<std::string>> get(std::string_view key) { return map_->get(key); }
  Found contains(std::string_view key) { return map_->contains(key); }
  // Calls visit(std::string_view) without copying, if the key is present.
  template <class F>
  Found read(std::string_view key, F&& visit) {
    return map_->read(key, std::forward<F>(visit));
  }
  // As that of Map.
  Expected<std::uint64_t> get_many(std::span<const Bytes> keys,
                                   std::span<std::optional<std::string>> values) {
    return map_->get_many(keys, values);
  }

  // Calls visit(key, value) in order for every entry of the range; as that of OrderedMap. Errors:
  // `unsupported` if the engine keeps no order.
  template <class F>
  Expected<std::uint64_t> scan(const ScanOptions<Bytes>& options, F&& visit) {
    if (!ordered_) return fail(keeps_no_order());
    return ordered_->scan(options, std::forward<F>(visit));
  }
  // An iterator that stands on the first entry of the range. If the engine keeps no order it is
  // never valid, and its status() is `unsupported`.
  Iterator<Bytes, Bytes> scan(const ScanOptions<Bytes>& options = {}) {
    if (!ordered_) return Iterator<Bytes, Bytes>(detail::Cursor(keeps_no_order()));
    return ordered_->scan(options);
  }
  // A view of a closed version, or of the last one; versioned()->tag() closes the open one. Errors:
  // `unsupported` if the engine keeps no versions; as those of VersionedMap.
  Expected<Snapshot<Bytes, Bytes>> snapshot();
  Expected<Snapshot<Bytes, Bytes>> snapshot(Version version);

  // The map with what its engine can do; `unsupported` if it cannot.
  Expected<OrderedMap<Bytes, Bytes>> ordered();
  Expected<VersionedMap<Bytes, Bytes>> versioned();

  Map<Bytes, Bytes>& map() noexcept { return *map_; }
  Pool& pool() noexcept { return pool_; }
  Status sync() { return pool_.sync(); }
  Status close(const CloseOptions& options = {}) { return pool_.close(options); }

 private:
  Store(Pool pool, Map<Bytes, Bytes> map, std::string name)
      : pool_(std::move(pool)), map_(std::move(map)), name_(std::move(name)) {}

  Status keeps_no_order();

  Pool pool_;
  std::optional<Map<Bytes, Bytes>> map_;
  std::optional<OrderedMap<Bytes, Bytes>> ordered_;  // nothing if the engine keeps no order
  std::string name_;
};

}  // namespace perdure
