// Store: an embedded key-value store of byte strings, which is one map of a pool.
//
//   auto store = perdure::Store::open("inventory.perdure");
//   if (auto put = store->put("apple", "3"); !put.ok()) return put.status();
//   auto apples = store->get("apple");         // Expected<std::optional<std::string>>
//   auto it = store->scan({.prefix = "user:"});
//   for (; it.valid(); it.next()) use(it.key());
//   if (!it.status().ok()) return it.status();
//
// Keys have up to 65,535 bytes, values up to 1 GiB, of any content. The calls are those of Map
// (map.h), OrderedMap and VersionedMap (versioned_map.h). A call that needs an engine with order or
// with versions fails with `unsupported` on other engines.
//
// Thread safety, durability, complexity, errors: as Map and Pool.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "perdure/pool.h"

namespace perdure {

// Example: Store::open(path, {.map = {.engine = Engine::clevel}, .pool = {.max_size = 4_GiB}});
struct StoreOptions {
  std::string_view map_name = "default";
  MapOptions map = {};
  PoolOptions pool = {};
};

class Store {
 public:
  // The type of keys and values.
  using Bytes = std::string_view;

  // Opens or creates the pool `path` and its map. Errors: those of Pool::open() and Pool::map().
  static Expected<Store> open(std::string_view path, const StoreOptions& options = {});

  // Inserts the key or replaces its value. absent(): inserted. present(): replaced.
  Found put(std::string_view key, std::string_view value) { return map_->put(key, value); }
  // Inserts the key unless it exists. absent(): inserted. present(): nothing changed.
  Found insert(std::string_view key, std::string_view value) { return map_->insert(key, value); }
  // Replaces the value if the key exists. present(): replaced. absent(): nothing changed.
  Found update(std::string_view key, std::string_view value) { return map_->update(key, value); }
  // Removes the key. present(): removed. absent(): nothing changed.
  Found erase(std::string_view key) { return map_->erase(key); }

  // Returns a copy of the value, or nothing if the key is absent.
  Expected<std::optional<std::string>> get(std::string_view key) { return map_->get(key); }
  // present(): the key exists. Copies nothing.
  Found contains(std::string_view key) { return map_->contains(key); }
  // As Map::size().
  Expected<std::uint64_t> size() { return map_->size(); }
  // Calls visit(std::string_view) if the key is present. Copies nothing; as Map::read().
  template <class F>
  Found read(std::string_view key, F&& visit) {
    return map_->read(key, std::forward<F>(visit));
  }
  // As Map::compare_exchange(). Without a value: "absent".
  Exchanged compare_exchange(std::string_view key, const std::optional<Bytes>& expected,
                             const std::optional<Bytes>& desired) {
    return map_->compare_exchange(key, expected, desired);
  }
  // As Map::modify().
  template <class F>
  Found modify(std::string_view key, F&& f) {
    return map_->modify(key, std::forward<F>(f));
  }
  // As Map::write_many().
  template <class F>
  Status write_many(std::span<const Mutation<Bytes, Bytes>> mutations, F&& done) {
    return map_->write_many(mutations, std::forward<F>(done));
  }
  Status write_many(std::span<const Mutation<Bytes, Bytes>> mutations) {
    return map_->write_many(mutations);
  }
  // As Map::read_many().
  template <class F>
  Expected<std::uint64_t> read_many(std::span<const Bytes> keys, F&& visit) {
    return map_->read_many(keys, std::forward<F>(visit));
  }
  // As Map::get_many().
  Expected<std::uint64_t> get_many(std::span<const Bytes> keys,
                                   std::span<std::optional<std::string>> values) {
    return map_->get_many(keys, values);
  }

  // Calls visit(key, value) for every entry of the range, in order; as OrderedMap::scan().
  // Errors: unsupported if the engine keeps no order.
  template <class F>
  Expected<std::uint64_t> scan(const ScanOptions<Bytes>& options, F&& visit) {
    if (!ordered_) return fail(keeps_no_order());
    return ordered_->scan(options, std::forward<F>(visit));
  }
  // As OrderedMap::count() and OrderedMap::erase_range(). Errors: unsupported likewise.
  Expected<std::uint64_t> count(const ScanOptions<Bytes>& options = {}) {
    if (!ordered_) return fail(keeps_no_order());
    return ordered_->count(options);
  }
  Expected<std::uint64_t> erase_range(const ScanOptions<Bytes>& options) {
    if (!ordered_) return fail(keeps_no_order());
    return ordered_->erase_range(options);
  }
  // Returns an iterator on the first entry of the range. If the engine keeps no order, it is never
  // valid and its status() is unsupported.
  Iterator<Bytes, Bytes> scan(const ScanOptions<Bytes>& options = {}) {
    if (!ordered_) return Iterator<Bytes, Bytes>(detail::Cursor(keeps_no_order()));
    return ordered_->scan(options);
  }
  // Returns a view of the last closed version, or of `version`. versioned()->tag() closes the open
  // version.
  // Errors: unsupported if the engine keeps no versions; those of VersionedMap::snapshot().
  Expected<Snapshot<Bytes, Bytes>> snapshot();
  Expected<Snapshot<Bytes, Bytes>> snapshot(Version version);

  // The same map with the calls of OrderedMap or of VersionedMap.
  // Errors: unsupported if the engine lacks them.
  Expected<OrderedMap<Bytes, Bytes>> ordered();
  Expected<VersionedMap<Bytes, Bytes>> versioned();

  // The map and the pool of this store. Both end with it.
  Map<Bytes, Bytes>& map() noexcept { return *map_; }
  Pool& pool() noexcept { return pool_; }
  // As Pool::sync() and Pool::close(). After close() all other calls fail with
  // invalid_argument.
  Status sync() { return pool_.sync(); }
  Status close(const CloseOptions& options = {}) { return pool_.close(options); }

 private:
  Store(Pool pool, Map<Bytes, Bytes> map, std::string name)
      : pool_(std::move(pool)), map_(std::move(map)), name_(std::move(name)) {}

  Status keeps_no_order();

  Pool pool_;
  std::optional<Map<Bytes, Bytes>> map_;
  std::optional<OrderedMap<Bytes, Bytes>> ordered_;  // empty if the engine keeps no order
  std::string name_;
};

}  // namespace perdure
