// UntypedMap: a map whose types are known at run time only, for tools. UntypedSnapshot: a view of
// one of its versions. UntypedIterator: a position in either.
//
//   auto map = pool->untyped_map("users");          // whatever its types and its engine are
//   if (map->info().key_kind == KeyKind::integer) {
//     auto erased = map->erase({.word = 42});       // a Found
//   }
//
// The calls are those of Map, OrderedMap and VersionedMap, with UntypedKey and UntypedValue
// (untyped.h) as types, and read() in place of get(). A key or a value that does not fit the map's
// types fails with invalid_argument. A callback must not throw.
//
// Thread safety, durability, complexity, errors: as Map.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "perdure/cursor.h"
#include "perdure/found.h"
#include "perdure/function_ref.h"
#include "perdure/map_types.h"
#include "perdure/stats.h"
#include "perdure/untyped.h"

namespace perdure {

// As ScanOptions. `prefix` is for keys that are byte strings or arrays; a scan of integer keys with
// a prefix fails with invalid_argument. `from` and `to` of array keys may be shorter or longer than
// the keys: they compare as byte strings.
struct UntypedScanOptions {
  std::optional<UntypedKey> from = {};
  std::optional<UntypedKey> to = {};
  std::string_view prefix = {};
  std::uint64_t limit = std::numeric_limits<std::uint64_t>::max();
  bool reverse = false;
};

// A callback. It returns false to end the walk. Views end with it. `value`, `before` and `after`
// are empty where the key is absent.
using VisitUntyped = FunctionRef<bool(const UntypedKey& key, const UntypedValue& value)>;
using VisitUntypedVersion =
    FunctionRef<bool(Version version, const std::optional<UntypedValue>& value)>;
using VisitUntypedDifference =
    FunctionRef<bool(const UntypedKey& key, const std::optional<UntypedValue>& before,
                     const std::optional<UntypedValue>& after)>;

// As Iterator (scan.h). Views end with the next call that moves.
class UntypedIterator {
 public:
  // UntypedMap::scan() makes it.
  explicit UntypedIterator(detail::Cursor cursor) noexcept : cursor_(std::move(cursor)) {}

  // True if the iterator is on an entry.
  bool valid() const noexcept { return cursor_.valid(); }
  // The key and the value of the entry; zero and "" if not valid().
  UntypedKey key() const noexcept { return cursor_.entry().key; }
  UntypedValue value() const noexcept { return cursor_.entry().value; }
  // The error that ended the walk, or ok.
  const Status& status() const noexcept { return cursor_.status(); }

  // Moves, as the calls of Iterator with these names do.
  void next() noexcept { cursor_.next(); }
  void prev() noexcept { cursor_.prev(); }
  void first() noexcept { cursor_.first(); }
  void last() noexcept { cursor_.last(); }
  void seek(const UntypedKey& key) noexcept { cursor_.seek(key); }

 private:
  detail::Cursor cursor_;
};

namespace detail {
// The types that keys and values must fit, and the map's name for messages. Owns no memory.
struct NamedTypes {
  MapTypes types;
  char name[kMaxMapNameBytes + 1] = {};

  explicit NamedTypes(const MapInfo& info) noexcept
      : types{info.key_kind, info.value_kind, info.is_signed, info.key_bytes, info.value_bytes} {
    std::string_view(info.name).copy(name, kMaxMapNameBytes);
  }
};
}  // namespace detail

// As Snapshot (versioned_map.h): holds its version.
class UntypedSnapshot {
 public:
  // UntypedMap::snapshot() makes it.
  UntypedSnapshot(const detail::NamedTypes& types, detail::HeldVersion held) noexcept
      : types_(types), held_(std::move(held)) {}

  // The number of the version that it holds.
  Version version() const noexcept { return held_.version(); }
  // As the calls of Snapshot with these names.
  Found read(const UntypedKey& key, FunctionRef<void(const UntypedValue&)> visit) const;
  Found contains(const UntypedKey& key) const;
  Expected<std::uint64_t> scan(const UntypedScanOptions& options, VisitUntyped visit) const;
  UntypedIterator scan(const UntypedScanOptions& options = {}) const;
  // Returns how many keys were visited: those that differ, until the callback returned false.
  Expected<std::uint64_t> diff(Version after, const UntypedScanOptions& options,
                               VisitUntypedDifference visit) const;
  // Returns how many entries were visited. Ends at this version.
  Expected<std::uint64_t> history(const UntypedKey& key, VisitUntypedVersion visit) const;

 private:
  detail::NamedTypes types_;
  detail::HeldVersion held_;
};

class WriteBatch;

class UntypedMap {
 public:
  // Pool::untyped_map() makes it.
  UntypedMap(MapInfo info, detail::Handle<detail::Index> index,
             detail::Handle<detail::OrderedIndex> ordered,
             detail::Handle<detail::VersionedIndex> versioned) noexcept
      : types_(info),
        info_(std::move(info)),
        index_(std::move(index)),
        ordered_(std::move(ordered)),
        versioned_(std::move(versioned)) {}

  // Ok; or invalid_argument if the pool is closed or the parent's, or the map was dropped. Then the
  // calls that read or change the map fail with it, too.
  Status usable() const noexcept { return index_->usable(); }
  // Name, engine and types of the map, also when it is not usable.
  const MapInfo& info() const noexcept { return info_; }
  bool ordered() const noexcept { return bool{ordered_}; }      // scan() works
  bool versioned() const noexcept { return bool{versioned_}; }  // the calls with versions work

  // As the calls of Map with these names.
  Found put(const UntypedKey& key, const UntypedValue& value);
  Found insert(const UntypedKey& key, const UntypedValue& value);
  Found update(const UntypedKey& key, const UntypedValue& value);
  Found erase(const UntypedKey& key);
  Found contains(const UntypedKey& key);
  Found read(const UntypedKey& key, FunctionRef<void(const UntypedValue&)> visit);
  // As Map::compare_exchange(). A read may deliver a short word as one of 8 bytes, and `expected`
  // may be such a value.
  Exchanged compare_exchange(const UntypedKey& key, const std::optional<UntypedValue>& expected,
                             const std::optional<UntypedValue>& desired);
  // As Map::write_many(). A mutation that does not fit the map's types fails by itself.
  Status write_many(std::span<const UntypedMutation> mutations,
                    FunctionRef<void(std::size_t, const Found&)> done);
  // Calls visit(i, value) for each keys[i] that is present. Returns how many are present.
  Expected<std::uint64_t> read_many(std::span<const UntypedKey> keys,
                                    FunctionRef<void(std::size_t, const UntypedValue&)> visit);
  // As Map::for_each(), Map::size() and Map::stats().
  Expected<std::uint64_t> for_each(VisitUntyped visit);
  Expected<std::uint64_t> size();
  MapStats stats();

  // As OrderedMap::scan(). If the engine keeps no order: `unsupported`, as the error or as the
  // iterator's status().
  Expected<std::uint64_t> scan(const UntypedScanOptions& options, VisitUntyped visit);
  UntypedIterator scan(const UntypedScanOptions& options = {});
  Expected<std::uint64_t> erase_range(const UntypedScanOptions& options);

  // As VersionedMap. If the engine keeps no versions: `unsupported`, as the error or as the
  // iterator's status(). history() and diff() return how many entries, or keys, were visited.
  Expected<Version> tag();
  Expected<VersionRange> versions();
  Expected<UntypedSnapshot> snapshot(Version version);
  Expected<UntypedSnapshot> snapshot();  // of the last closed version
  Found read(const UntypedKey& key, Version version, FunctionRef<void(const UntypedValue&)> visit);
  Expected<std::uint64_t> scan_at(Version version, const UntypedScanOptions& options,
                                  VisitUntyped visit);
  UntypedIterator scan_at(Version version, const UntypedScanOptions& options = {});
  Expected<std::uint64_t> history(const UntypedKey& key, VisitUntypedVersion visit);
  Expected<std::uint64_t> diff(Version from, Version to, const UntypedScanOptions& options,
                               VisitUntypedDifference visit);
  Expected<Version> trim(Version version);
  Status rollback(Version version);

 private:
  friend class WriteBatch;
  Status keeps_order() const;
  Status keeps_versions() const;
  Status takes(const UntypedKey& key, const UntypedValue* value) const;

  detail::NamedTypes types_;
  MapInfo info_;
  detail::Handle<detail::Index> index_;
  detail::Handle<detail::OrderedIndex> ordered_;      // null if the engine keeps no order
  detail::Handle<detail::VersionedIndex> versioned_;  // null if it keeps no versions
};

}  // namespace perdure
