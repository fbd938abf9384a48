// VersionedMap<K, V>: an ordered map that keeps what its keys were (engine pskiplist).
//
//   auto layers = pool->versioned_map<std::string_view, std::string_view>("layers");
//   layers->upsert("conv1", weights);
//   const auto v = layers->tag();               // Expected<Version>: closes the open version
//   layers->erase("conv1");
//   layers->find("conv1", *v);                  // what it was
//
// Mutations write to the open version; find(key), scan(..) and the other methods of OrderedMap read
// it. tag() closes it and answers its number: the state with everything that was done before, and
// nothing after. A closed version does not change, whatever is written or crashes, until it is
// trimmed. A key that is written several times in one version has one entry in its history.
//
// Versions rise, but not by one: after a crash some are left out; they read as the one before. What
// names a version that is not closed, or was trimmed, fails with invalid_argument.
//
// Thread safety: as Map, but rollback(): no other operation may be in flight.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "perdure/map.h"

namespace perdure {

using Version = std::uint64_t;

// The closed versions that can be read: [first, last]; none if last < first.
using VersionRange = detail::VersionRange;

template <MapKey K, MapValue V>
class VersionedMap : public OrderedMap<K, V> {
 public:
  using OrderedMap<K, V>::find;
  using OrderedMap<K, V>::read;

  explicit VersionedMap(std::shared_ptr<detail::VersionedIndex> index) noexcept
      : OrderedMap<K, V>(index), versioned_(index.get()) {}

  // Closes the open version; durable when it returns, as mutations are.
  Expected<Version> tag() { return versioned_->tag(); }
  VersionRange versions() { return versioned_->versions(); }

  // A copy of the value that the key had, or nothing.
  Expected<std::optional<detail::Owned<V>>> find(const K& key, Version version) {
    std::optional<detail::Owned<V>> out;
    bool copied = true;
    auto found = versioned_->read_at(detail::to_key(key), version, [&](const detail::Value& value) {
      copied = detail::attempt([&] { out.emplace(detail::from_value<V>(value)); });
    });
    if (!found) return fail(std::move(found.error()));
    if (!copied) return fail(StatusCode::out_of_memory);
    return out;
  }
  // Calls `visit(value)` without copying; the view ends with the call. Answers whether the key was
  // there.
  template <class F>
  Expected<bool> read(const K& key, Version version, F&& visit) {
    return versioned_->read_at(detail::to_key(key), version, [&](const detail::Value& value) {
      visit(detail::from_value<V>(value));
    });
  }

  // The paper's extract_snapshot: calls visit(key, value) in order for every entry of the range as
  // it was. `visit` may return void, or bool: false ends it. Answers how many entries were visited.
  // Views end with the callback.
  template <class F>
  Expected<std::uint64_t> scan_at(Version version, const ScanOptions<K>& options, F&& visit) {
    std::uint64_t left = options.limit;
    if (left == 0) return std::uint64_t{0};
    detail::PrefixEnd end;
    auto range = scan_range(options, end);
    if (!range) return fail(std::move(range.error()));
    auto done = versioned_->scan_at(version, *range, [&](std::span<const detail::Entry> entries) {
      for (const detail::Entry& entry : entries) {
        --left;
        if (!Map<K, V>::call(visit, entry) || left == 0) return false;
      }
      return true;
    });
    if (!done) return fail(std::move(done.error()));
    return options.limit - left;
  }

  // The paper's extract_history: calls visit(version, value) for every version in which the key was
  // written, oldest first; value is a const std::optional<V>&, nothing where it was removed. Views
  // end with the callback.
  template <class F>
  Expected<void> history(const K& key, F&& visit) {
    return versioned_->history(detail::to_key(key), [&](const detail::VersionedValue& entry) {
      visit(entry.version, typed(entry.value));
      return true;
    });
  }

  // Calls visit(key, before, after) in order for every key of the range whose value differs between
  // two versions; nothing where it was absent. `visit` returns void. Views end with the callback.
  template <class F>
  Expected<void> diff(Version from, Version to, const ScanOptions<K>& options, F&& visit) {
    detail::PrefixEnd end;
    auto range = scan_range(options, end);
    if (!range) return fail(std::move(range.error()));
    return versioned_->diff(from, to, *range, [&](const detail::Difference& difference) {
      visit(detail::from_key<K>(difference.key), typed(difference.before), typed(difference.after));
      return true;
    });
  }

  // Forgets the versions below this one, or below the lowest that a Snapshot holds; answers below
  // which. What only they needed is freed; in a full pool not all of it, but by the next trim.
  Expected<Version> trim(Version version) { return versioned_->trim(version); }
  // Makes the state of that version the latest one, in one step, whatever crashes. What was written
  // since is lost, and versions above it read as it does. Alone. Errors: busy if a Snapshot holds a
  // later version.
  Status rollback(Version version) { return versioned_->rollback(version); }

  // Holds a version: it is not trimmed, and no rollback passes it, while this lives. Must not
  // outlive the map's pool.
  class Snapshot {
   public:
    Snapshot(Snapshot&& other) noexcept
        : index_(std::exchange(other.index_, nullptr)), pin_(std::move(other.pin_)) {}
    Snapshot& operator=(Snapshot&&) = delete;
    ~Snapshot() {
      if (index_ != nullptr) index_->unpin(*pin_);
    }
    Version version() const noexcept { return pin_->version; }

   private:
    friend class VersionedMap;
    Snapshot(detail::VersionedIndex* index, std::unique_ptr<detail::VersionPin> pin) noexcept
        : index_(index), pin_(std::move(pin)) {}
    detail::VersionedIndex* index_;
    std::unique_ptr<detail::VersionPin> pin_;
  };
  Expected<Snapshot> snapshot(Version version) {
    std::unique_ptr<detail::VersionPin> pin(new (std::nothrow) detail::VersionPin);
    if (pin == nullptr) return fail(StatusCode::out_of_memory);
    if (Status s = versioned_->pin(*pin, version); !s.ok()) return fail(std::move(s));
    return Snapshot(versioned_, std::move(pin));
  }

 private:
  static std::optional<V> typed(const std::optional<detail::Value>& value) {
    if (!value) return std::nullopt;
    return detail::from_value<V>(*value);
  }

  detail::VersionedIndex* versioned_;
};

}  // namespace perdure
