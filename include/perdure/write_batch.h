// WriteBatch: puts and erases of any maps of one pool that happen wholly or not at all.
//
//   perdure::WriteBatch batch;
//   batch.require(*accounts, 1, 100);                // or nothing is done: conflict
//   batch.put(*accounts, 1, 70);
//   batch.put(*accounts, 2, 30);
//   batch.erase(*orders, "order:17");
//   if (auto done = pool->commit(batch); !done.ok()) return done;
//
//   batch.get(*accounts, 1);                         // 70: what the commit would make of it
//
// A batch holds copies of its keys and values in DRAM. It may be committed any number of times.
// Thread safety: of a value; distinct batches may be used from distinct threads.
// Errors: put, erase and the requirements return none. The first error, out_of_memory or
// invalid_argument (a key or a value is too long or does not fit the types of an UntypedMap), is
// kept, and commit returns it. Amortised O(bytes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "perdure/map.h"
#include "perdure/store.h"
#include "perdure/untyped_map.h"

namespace perdure {

namespace detail {
class BatchItems;
struct BatchItemsDelete {
  void operator()(BatchItems* items) const noexcept;
};
}  // namespace detail

class WriteBatch {
 public:
  WriteBatch() noexcept = default;

  // Gives the key the value. Of several puts and erases of a key in one batch the last one counts.
  template <MapKey K, MapValue V>
  void put(const Map<K, V>& map, const std::type_identity_t<K>& key,
           const std::type_identity_t<V>& value) {
    add(Kind::put, index_of(map), detail::to_key(key), detail::to_value(value));
  }
  // Removes the key, if it is present.
  template <MapKey K, MapValue V>
  void erase(const Map<K, V>& map, const std::type_identity_t<K>& key) {
    add(Kind::erase, index_of(map), detail::to_key(key), {});
  }
  // Commits the batch only if the key has this value, compared by its bits, or is absent. It is
  // looked at before any mutation of the batch.
  template <MapKey K, MapValue V>
    requires(HasExactBits<V>)
  void require(const Map<K, V>& map, const std::type_identity_t<K>& key,
               const std::type_identity_t<V>& value) {
    add(Kind::require, index_of(map), detail::to_key(key), detail::to_value(value));
  }
  template <MapKey K, MapValue V>
  void require_absent(const Map<K, V>& map, const std::type_identity_t<K>& key) {
    add(Kind::require_absent, index_of(map), detail::to_key(key), {});
  }

  // The same for a map whose types are known at run time only. `visit` gets what get() returns.
  Found read(UntypedMap& map, const UntypedKey& key,
             FunctionRef<void(const UntypedValue&)> visit) const;
  void put(UntypedMap& map, const UntypedKey& key, const UntypedValue& value) {
    add(Kind::put, map, key, &value);
  }
  void erase(UntypedMap& map, const UntypedKey& key) { add(Kind::erase, map, key, nullptr); }
  void require(UntypedMap& map, const UntypedKey& key, const UntypedValue& value) {
    add(Kind::require, map, key, &value);
  }
  void require_absent(UntypedMap& map, const UntypedKey& key) {
    add(Kind::require_absent, map, key, nullptr);
  }

  // Returns a copy of the value that the key would have after a commit now: what this batch gives
  // it, or else what the map has; nothing if the key would be absent. Costs a lookup. Errors: those
  // of Map::get(), and that which the batch keeps.
  template <MapKey K, MapValue V>
  Expected<std::optional<Owned<V>>> get(const Map<K, V>& map,
                                        const std::type_identity_t<K>& key) const {
    return detail::owned_copy<V>(
        [&](auto visit) { return read(index_of(map), detail::to_key(key), visit); });
  }
  // Calls visit(key, value) for every entry that the range would have after a commit now, in
  // order; as OrderedMap::scan(). Nothing may be added to the batch meanwhile. O(n log n) of its
  // size more. Errors: also that which the batch keeps.
  template <MapKey K, MapValue V, class F>
  Expected<std::uint64_t> scan(const OrderedMap<K, V>& map, const ScanOptions<K>& options,
                               F&& visit) const {
    return detail::scan_entries<K, V>(
        options,
        [&](const auto& range, auto each) {
          return scan(*map.ordered_, IntegerKey<K>, range, each);
        },
        visit);
  }

  // The map of a store.
  void put(Store& store, std::string_view key, std::string_view value) {
    put(store.map(), key, value);
  }
  void erase(Store& store, std::string_view key) { erase(store.map(), key); }
  void require(Store& store, std::string_view key, std::string_view value) {
    require(store.map(), key, value);
  }
  void require_absent(Store& store, std::string_view key) { require_absent(store.map(), key); }
  Expected<std::optional<std::string>> get(Store& store, std::string_view key) const {
    return get(store.map(), key);
  }
  // Errors: unsupported if the engine keeps no order.
  template <class F>
  Expected<std::uint64_t> scan(Store& store, const ScanOptions<std::string_view>& options,
                               F&& visit) const {
    auto ordered = store.ordered();
    if (!ordered) return fail(std::move(ordered.error()));
    return scan(*ordered, options, std::forward<F>(visit));
  }

  // The number of puts, erases and requirements.
  std::size_t size() const noexcept;
  // Removes everything from the batch, also its error.
  void clear() noexcept {
    items_.reset();
    failure_ = {};
  }

 private:
  friend class Pool;
  enum class Kind : std::uint8_t { put, erase, require, require_absent };

  template <MapKey K, MapValue V>
  static detail::Index& index_of(const Map<K, V>& map) noexcept {
    return *map.index_;
  }
  void add(Kind kind, detail::Index& index, const detail::Key& key,
           const detail::Value& value) noexcept;
  void add(Kind kind, UntypedMap& map, const UntypedKey& key, const UntypedValue* value) noexcept;
  static UntypedKey exact(const UntypedMap& map, const UntypedKey& key) noexcept;
  void fail_with(Status status) noexcept;
  Expected<bool> read(detail::Index& index, const detail::Key& key,
                      FunctionRef<void(const detail::Value&)> visit) const;
  // `words`: the keys are integers.
  Expected<void> scan(detail::OrderedIndex& index, bool words, const detail::ScanRange& range,
                      FunctionRef<bool(std::span<const detail::Entry>)> visit) const;

  std::unique_ptr<detail::BatchItems, detail::BatchItemsDelete> items_;  // null: none
  Status failure_;
};

}  // namespace perdure
