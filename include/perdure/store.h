// Store: an embedded key-value store of byte strings over one map of a pool.
//
//   auto store = perdure::Store::open("inventory.perdure");
//   store->put("apple", "3");
//   store->get("apple");                       // Expected<std::optional<std::string>>
//   auto ordered = store->ordered();           // fails once, here, if the engine keeps no order
//   for (auto it = ordered->scan({.prefix = "user:"}); it.valid(); it.next()) ...
//
// Thread safety and durability: as Map and Pool.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

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

  // Inserts or replaces.
  Status put(std::string_view key, std::string_view value);
  Expected<std::optional<std::string>> get(std::string_view key) { return map_->find(key); }
  // Calls visit(std::string_view) without copying; false if absent.
  template <class F>
  Expected<bool> read(std::string_view key, F&& visit) {
    return map_->read(key, std::forward<F>(visit));
  }
  // True: inserted. False: the key exists and nothing changed.
  Expected<bool> insert(std::string_view key, std::string_view value) {
    return map_->insert(key, value);
  }
  // False: the key was absent.
  Expected<bool> erase(std::string_view key) { return map_->erase(key); }

  // The ordered view; fails with `unsupported` if the engine keeps no order.
  Expected<OrderedMap<Bytes, Bytes>> ordered();
  // The same with tag, find at a version, history and the rest of VersionedMap; fails with
  // `unsupported` if the engine keeps no versions.
  Expected<VersionedMap<Bytes, Bytes>> versioned();

  Map<Bytes, Bytes>& map() noexcept { return *map_; }
  Pool& pool() noexcept { return pool_; }
  Status sync() { return pool_.sync(); }
  Status close(const CloseOptions& options = {}) { return pool_.close(options); }

 private:
  Store(Pool pool, Map<Bytes, Bytes> map, std::string name)
      : pool_(std::move(pool)), map_(std::move(map)), name_(std::move(name)) {}

  Pool pool_;
  std::optional<Map<Bytes, Bytes>> map_;
  std::string name_;
};

}  // namespace perdure
