// VersionedMap<K, V>: an ordered map that keeps what its keys were (engine pskiplist). Snapshot<K,
// V>: a view of one closed version.
//
//   auto layers = pool->versioned_map<std::string_view, std::string_view>("layers");
//   if (!layers->put("conv1", weights).ok()) ...
//   auto version = layers->tag();               // Expected<Version>: closes the open version
//   auto before = layers->snapshot(*version);   // Expected<Snapshot>
//   if (!layers->erase("conv1").ok()) ...
//   auto was = before->get("conv1");            // the weights
//
// Mutations write to the open version; get(key), scan(..) and the other methods of OrderedMap read
// it. tag() closes it and returns its number: the state with everything that was done before, and
// nothing after. A closed version does not change, whatever is written or crashes, until it is
// trimmed. A key that is written several times in one version has one entry in its history.
//
// Version numbers rise; after a crash some are skipped, and a skipped version reads like its
// predecessor. A call that names a version that is not closed, or was trimmed, fails with
// invalid_argument. A Snapshot cannot fail so: it holds its version.
//
// Thread safety: as Map, but rollback(): no other operation may be in flight.
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
  std::uint64_t left = options.limit;
  if (left == 0) return {};
  PrefixEnd end;
  auto range = scan_range(options, end);
  if (!range) return fail(std::move(range.error()));
  return index.diff(from, to, *range, [&](const Difference& difference) {
    --left;
    return goes_on(visit, from_key<K>(difference.key), typed<V>(difference.before),
                   typed<V>(difference.after)) &&
           left != 0;
  });
}

// Up to and with version `last`.
template <MapKey K, MapValue V, class F>
Expected<void> history_entries(VersionedIndex& index, const K& key, Version last, F& visit) {
  return index.history(to_key(key), [&](const VersionedValue& entry) {
    return entry.version <= last && goes_on(visit, entry.version, typed<V>(entry.value));
  });
}

}  // namespace detail

// A view of a version. It holds the version: while it lives no trim() forgets it, and no rollback()
// passes it. It must not outlive the pool; the map object may go. Thread safety: reads from any
// number of threads.
template <MapKey K, MapValue V>
class Snapshot {
 public:
  explicit Snapshot(detail::HeldVersion held) noexcept : held_(std::move(held)) {}

  Version version() const noexcept { return held_.version(); }

  // A copy of the value that the key had, or nothing.
  Expected<std::optional<Owned<V>>> get(const K& key) const {
    return detail::owned_copy<V>([&](auto visit) { return read_at(key, visit); });
  }
  Found contains(const K& key) const {
    return detail::present_if(read_at(key, [](const detail::Value&) {}));
  }
  // Calls `visit(value)` without copying, if the key was present; the view ends with the call.
  template <class F>
  Found read(const K& key, F&& visit) const {
    return detail::present_if(
        read_at(key, [&](const detail::Value& value) { visit(detail::from_value<V>(value)); }));
  }
  // Copies the value that keys[i] had into values[i], nothing where it was absent. Returns how many
  // were present. Errors: invalid_argument if `values` is shorter than `keys`.
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

  // As those of OrderedMap.
  template <class F>
  Expected<std::uint64_t> scan(const ScanOptions<K>& options, F&& visit) const {
    return detail::scan_entries<K, V>(
        options,
        [&](const auto& range, auto each) {
          return held_.index()->scan_at(version(), range, each);
        },
        visit);
  }
  // Holds the version for itself: the Snapshot may go.
  Iterator<K, V> scan(const ScanOptions<K>& options = {}) const {
    auto held = detail::HeldVersion::of(held_.index(), version());
    return Iterator<K, V>(held ? detail::cursor_of(std::move(*held), options)
                               : detail::Cursor(std::move(held.error())));
  }

  // Calls visit(key, before, after) in order for every key of the range whose value differs between
  // this version and the other one; both are const std::optional<V>&, nothing where it was absent.
  // `visit` may return void, or bool: false ends it. Views end with the callback.
  template <class F>
  Expected<void> diff(Version after, const ScanOptions<K>& options, F&& visit) const {
    return detail::diff_entries<K, V>(*held_.index(), version(), after, options, visit);
  }
  // The other one is of the same map.
  template <class F>
  Expected<void> diff(const Snapshot& after, const ScanOptions<K>& options, F&& visit) const {
    return diff(after.version(), options, std::forward<F>(visit));
  }

  // As that of VersionedMap, up to this version.
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
  using Snapshot = perdure::Snapshot<K, V>;

  explicit VersionedMap(std::shared_ptr<detail::VersionedIndex> index) noexcept
      : OrderedMap<K, V>(index), versioned_(std::move(index)) {}

  // Closes the open version; durable when it returns, as mutations are.
  Expected<Version> tag() { return versioned_->tag(); }
  VersionRange versions() { return versioned_->versions(); }

  // A view of the version, or of the last closed one. Errors: invalid_argument if it cannot be
  // read; out_of_memory.
  Expected<Snapshot> snapshot(Version version) {
    return view(detail::HeldVersion::of(versioned_, version));
  }
  Expected<Snapshot> snapshot() { return view(detail::HeldVersion::of_last(versioned_)); }

  // A copy of the value that the key had, or nothing.
  Expected<std::optional<Owned<V>>> get(const K& key, Version version) {
    return detail::owned_copy<V>(
        [&](auto visit) { return versioned_->read_at(detail::to_key(key), version, visit); });
  }
  // Calls `visit(value)` without copying, if the key was present; the view ends with the call.
  template <class F>
  Found read(const K& key, Version version, F&& visit) {
    return detail::present_if(versioned_->read_at(
        detail::to_key(key), version,
        [&](const detail::Value& value) { visit(detail::from_value<V>(value)); }));
  }

  // scan() at a version: the paper's extract_snapshot. Not named scan: of integer keys,
  // `scan(7, {}, visit)` could mean the keys from 7 to 0.
  template <class F>
  Expected<std::uint64_t> scan_at(Version version, const ScanOptions<K>& options, F&& visit) {
    return detail::scan_entries<K, V>(
        options,
        [&](const auto& range, auto each) { return versioned_->scan_at(version, range, each); },
        visit);
  }
  // An iterator, which holds the version.
  Iterator<K, V> scan_at(Version version, const ScanOptions<K>& options = {}) {
    auto held = detail::HeldVersion::of(versioned_, version);
    return Iterator<K, V>(held ? detail::cursor_of(std::move(*held), options)
                               : detail::Cursor(std::move(held.error())));
  }

  // The paper's extract_history: calls visit(version, value) for every version in which the key was
  // written, oldest first; value is a const std::optional<V>&, nothing where it was removed.
  // `visit` may return void, or bool: false ends it. Views end with the callback.
  template <class F>
  Expected<void> history(const K& key, F&& visit) {
    return detail::history_entries<K, V>(*versioned_, key, ~Version{0}, visit);
  }

  // As that of Snapshot, between two versions.
  template <class F>
  Expected<void> diff(Version from, Version to, const ScanOptions<K>& options, F&& visit) {
    return detail::diff_entries<K, V>(*versioned_, from, to, options, visit);
  }

  // Forgets the versions below this one, or below the lowest that a Snapshot or an iterator holds;
  // returns below which. What only they needed is freed; in a full pool not all of it, but by the
  // next trim.
  Expected<Version> trim(Version version) { return versioned_->trim(version); }
  // Makes the state of that version the latest one, in one step, whatever crashes. What was written
  // since is lost, and versions above it read as it does. No other operation may be in flight.
  // Errors: busy if a Snapshot or an iterator holds a later version.
  Status rollback(Version version) { return versioned_->rollback(version); }

 private:
  static Expected<Snapshot> view(Expected<detail::HeldVersion> held) {
    if (!held) return fail(std::move(held.error()));
    return Snapshot(std::move(*held));
  }

  std::shared_ptr<detail::VersionedIndex> versioned_;
};

}  // namespace perdure
