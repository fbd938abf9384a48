// VersionedMap<K, V>: an ordered map that keeps the history of its keys (engine pskiplist).
// Snapshot<K, V>: a view of one closed version. The operations are those of the multi-version
// dictionary of Nicolae (IPDPS 2022, section II); docs/design/pskiplist.md names the differences.
//
//   auto layers = pool->versioned_map<std::string_view, std::string_view>("layers");
//   if (!layers->put("conv1", weights).ok()) ...
//   auto version = layers->tag();               // Expected<Version>: closes the open version
//   auto before = layers->snapshot(*version);   // Expected<Snapshot>
//   if (!layers->erase("conv1").ok()) ...
//   auto was = before->get("conv1");            // the weights
//
// Mutations write to the open version; get(key), scan(..) and the other methods of OrderedMap read
// it. tag() closes it and returns its number. That version contains everything that was done before
// the tag, and nothing later. A closed version does not change until it is trimmed, whatever is
// written and whatever crashes. Several writes of one key in one version leave one entry in its
// history.
//
// Version numbers rise, but they do not count tags: numbers are reserved in blocks, and after a
// kill and after a rollback some are skipped. After a kill, all numbers that the dead process had
// reserved are closed, up to 4,096 above its last tag. They contain what it wrote after that tag,
// because acknowledged writes survive. A program that must go on from its last tag keeps the number
// that tag() returned, for example in a second map, and calls rollback() with it after the open.
// docs/guide.md shows how, and examples/time_steps.cc is a program that does it.
//
// A call with the open version, or with a trimmed one, fails with invalid_argument. A call of a
// Snapshot does not fail with it for its own version, which the snapshot holds.
//
// Thread safety: as Map. During rollback() no other operation may be in flight.
// Durability: as Map. tag(), trim() and rollback() are mutations: durable when they return. A
// snapshot and the hold of an iterator are in DRAM and end with the process.
// Errors: as Map.
// Complexity: a read at a version costs a lookup and a search of the key's history. A scan or a
// diff visits every key of the range that has a history, also those that are absent in the version.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "perdure/map.h"

namespace perdure {

namespace detail {

template <MapValue V>
std::optional<V> typed(const std::optional<Value>& value) {
  if (!value) return std::nullopt;
  return from_value<V>(*value);
}

template <MapKey K, MapValue V, class F>
Expected<void> diff_entries(VersionedIndex& index, Version from, Version to,
                            const ScanOptions<K>& options, F& visit) {
  std::uint64_t left = options.limit;  // 0: only the arguments are verified
  PrefixEnd end;
  auto range = scan_range(options, end);
  if (!range) return fail(std::move(range.error()));
  Carried each([&](const Difference& difference) {
    if (left == 0) return false;
    --left;
    return goes_on(visit, from_key<K>(difference.key), typed<V>(difference.before),
                   typed<V>(difference.after)) &&
           left != 0;
  });
  auto done = index.diff(from, to, *range, each);
  each.rethrow();
  return done;
}

// Visits the history of `key` up to version `last`, which is included.
template <MapKey K, MapValue V, class F>
Expected<void> history_entries(VersionedIndex& index, const K& key, Version last, F& visit) {
  Carried each([&](const VersionedValue& entry) {
    return entry.version <= last && goes_on(visit, entry.version, typed<V>(entry.value));
  });
  auto done = index.history(to_key(key), each);
  each.rethrow();
  return done;
}

}  // namespace detail

// A view of one closed version. While it lives, trim() keeps its version and rollback() does not go
// below it. The map object may go. Once the pool is closed, its calls fail with invalid_argument.
// Thread safety: any number of threads may read it.
template <MapKey K, MapValue V>
class Snapshot {
 public:
  // VersionedMap::snapshot() makes it.
  explicit Snapshot(detail::HeldVersion held) noexcept : held_(std::move(held)) {}

  // The number of the version that it holds.
  Version version() const noexcept { return held_.version(); }

  // Returns a copy of the value that the key had, or nothing if it was absent.
  Expected<std::optional<Owned<V>>> get(const K& key) const {
    return detail::owned_copy<V>([&](auto visit) { return read_at(key, visit); });
  }
  // present(): the key existed. Copies nothing.
  Found contains(const K& key) const {
    return detail::present_if(read_at(key, [](const detail::Value&) {}));
  }
  // Calls visit(value) if the key was present. Copies nothing; as Map::read().
  template <class F>
  Found read(const K& key, F&& visit) const {
    detail::Carried one([&](const detail::Value& value) { visit(detail::from_value<V>(value)); });
    auto present = read_at(key, one);
    one.rethrow();
    return detail::present_if(std::move(present));
  }
  // Copies the value that each keys[i] had into values[i]; values[i] is empty if it was absent.
  // Returns how many were present. Cache misses do not overlap.
  // Errors: invalid_argument if `values` is shorter than `keys`.
  Expected<std::uint64_t> get_many(std::span<const K> keys,
                                   std::span<std::optional<Owned<V>>> values) const {
    if (values.size() < keys.size()) {
      return fail(StatusCode::invalid_argument, "get_many: %zu keys, but room for %zu values",
                  keys.size(), values.size());
    }
    std::uint64_t present = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      auto value = get(keys[i]);
      if (!value) return fail(std::move(value.error()));
      values[i] = std::move(*value);
      present += values[i].has_value() ? 1 : 0;
    }
    return present;
  }

  // As OrderedMap::scan().
  template <class F>
  Expected<std::uint64_t> scan(const ScanOptions<K>& options, F&& visit) const {
    return detail::scan_entries<K, V>(
        options,
        [&](const auto& range, auto each) {
          return held_.index()->scan_at(version(), range, each);
        },
        visit);
  }
  // The iterator holds the version itself, so the Snapshot may go.
  Iterator<K, V> scan(const ScanOptions<K>& options = {}) const {
    auto held = detail::HeldVersion::of(held_.index(), version());
    return Iterator<K, V>(held ? detail::cursor_of(std::move(*held), options)
                               : detail::Cursor(std::move(held.error())));
  }

  // Calls visit(key, before, after) in key order for every key of the range whose value differs
  // between this version and `after`. Both are const std::optional<V>&, empty where the key was
  // absent. `visit` returns void, or bool where false ends the walk. Views end with the callback.
  // Errors: invalid_argument if version `after` cannot be read.
  template <class F>
  Expected<void> diff(Version after, const ScanOptions<K>& options, F&& visit) const {
    return detail::diff_entries<K, V>(*held_.index(), version(), after, options, visit);
  }
  // `after` must be a snapshot of the same map.
  template <class F>
  Expected<void> diff(const Snapshot& after, const ScanOptions<K>& options, F&& visit) const {
    return diff(after.version(), options, std::forward<F>(visit));
  }

  // As VersionedMap::history(), up to this version.
  template <class F>
  Expected<void> history(const K& key, F&& visit) const {
    return detail::history_entries<K, V>(*held_.index(), key, version(), visit);
  }

 private:
  Expected<bool> read_at(const K& key, FunctionRef<void(const detail::Value&)> visit) const {
    return held_.index()->read_at(detail::to_key(key), version(), visit);
  }

  detail::HeldVersion held_;
};

template <MapKey K, MapValue V>
class VersionedMap : public OrderedMap<K, V> {
 public:
  using OrderedMap<K, V>::get;
  using OrderedMap<K, V>::read;
  // What snapshot() returns.
  using Snapshot = perdure::Snapshot<K, V>;

  // Pool::versioned_map() makes it.
  explicit VersionedMap(detail::Handle<detail::VersionedIndex> index) noexcept
      : OrderedMap<K, V>(index), versioned_(std::move(index)) {}

  // Closes the open version and returns its number; the paper's tag. The tag is durable when it
  // returns, as mutations are. Any thread may call it beside mutations: each of them falls on one
  // side. O(1). No number is returned twice, also if a power failure takes versions back: in
  // durability `buffered` the first call after an open, and one in 4,096, waits for a cut.
  // Errors: pool_full if no version number is left; in `buffered` those of Pool::sync() from a call
  // that would wait for a cut.
  Expected<Version> tag() { return versioned_->tag(); }
  // The closed versions that can be read. After a kill `last` is above the last tag, see above.
  // Other threads may tag and trim meanwhile. O(1).
  VersionRange versions() { return versioned_->versions(); }

  // Returns a view of `version`, or of the last closed version. Copies nothing. O(1).
  // Errors: invalid_argument if it cannot be read; out_of_memory.
  Expected<Snapshot> snapshot(Version version) {
    return view(detail::HeldVersion::of(versioned_, version));
  }
  Expected<Snapshot> snapshot() { return view(detail::HeldVersion::of_last(versioned_)); }

  // Returns a copy of the value that the key had, or nothing if it was absent.
  Expected<std::optional<Owned<V>>> get(const K& key, Version version) {
    return detail::owned_copy<V>(
        [&](auto visit) { return versioned_->read_at(detail::to_key(key), version, visit); });
  }
  // Calls visit(value) if the key was present. Copies nothing; as Map::read().
  template <class F>
  Found read(const K& key, Version version, F&& visit) {
    detail::Carried one([&](const detail::Value& value) { visit(detail::from_value<V>(value)); });
    auto present = versioned_->read_at(detail::to_key(key), version, one);
    one.rethrow();
    return detail::present_if(std::move(present));
  }

  // As scan(), but visits the entries of `version`: the paper's extract_snapshot. It is not named
  // scan because, with integer keys, scan(7, {}, visit) could mean the keys from 7 to 0.
  template <class F>
  Expected<std::uint64_t> scan_at(Version version, const ScanOptions<K>& options, F&& visit) {
    return detail::scan_entries<K, V>(
        options,
        [&](const auto& range, auto each) { return versioned_->scan_at(version, range, each); },
        visit);
  }
  // Returns an iterator, which holds the version.
  Iterator<K, V> scan_at(Version version, const ScanOptions<K>& options = {}) {
    auto held = detail::HeldVersion::of(versioned_, version);
    return Iterator<K, V>(held ? detail::cursor_of(std::move(*held), options)
                               : detail::Cursor(std::move(held.error())));
  }

  // Calls visit(version, value) for every version in which the key was written, the oldest first;
  // the paper's extract_history. `value` is a const std::optional<V>&, empty where the key was
  // removed. Includes the open version, and leaves out what trim() has removed. `visit` returns
  // void, or bool where false ends the walk. Views end with the callback. Costs a lookup, and O(1)
  // for each entry.
  template <class F>
  Expected<void> history(const K& key, F&& visit) {
    return detail::history_entries<K, V>(*versioned_, key, ~Version{0}, visit);
  }

  // As Snapshot::diff(), between two versions. O(keys of the range), with a search of the history
  // of each key that was written after the lower version.
  template <class F>
  Expected<void> diff(Version from, Version to, const ScanOptions<K>& options, F&& visit) {
    return detail::diff_entries<K, V>(*versioned_, from, to, options, visit);
  }

  // Forgets the versions below `version`, or below the lowest one that a Snapshot or an iterator
  // holds if that is lower. Returns the first version that remains. Frees the space that only
  // forgotten versions needed. In a full pool, and after a crash, the next trim frees the rest.
  // Durable when it returns. O(keys and their entries).
  // Errors: invalid_argument if `version` is above the open one.
  Expected<Version> trim(Version version) { return versioned_->trim(version); }
  // Makes the state of `version` the latest one, in one step, whatever crashes. Later writes are
  // lost, and later versions read as this one. So does the open version, which is closed. No other
  // operation may be in flight. Durable when it returns; a rollback that a crash interrupts is
  // finished by the next open or never happened.
  // O(keys and their entries).
  // Errors: invalid_argument if the version cannot be read; busy if a Snapshot or an iterator holds
  // a later version; pool_full if no version number is left. In `buffered` it may wait as tag(),
  // with its errors.
  Status rollback(Version version) { return versioned_->rollback(version); }

 private:
  static Expected<Snapshot> view(Expected<detail::HeldVersion> held) {
    if (!held) return fail(std::move(held.error()));
    return Snapshot(std::move(*held));
  }

  detail::Handle<detail::VersionedIndex> versioned_;
};

}  // namespace perdure
