// Index: what an engine offers to Map and Store. Users need map.h and store.h; this header is
// installed because Map is a template over it.
//
// Thread safety: every method may be called by any number of threads at once, except where said.
// Durability: when a mutation returns, its effect has survived what the pool's durability promises;
// so has everything a read returned (docs/durability.md).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "perdure/function_ref.h"
#include "perdure/stats.h"
#include "perdure/status.h"
#include "perdure/untyped.h"

namespace perdure {

struct EngineStats;
struct Findings;

namespace detail {

using Key = UntypedKey;
using Value = UntypedValue;
using VersionRange = perdure::VersionRange;

struct Entry {
  Key key;
  Value value;
};

// Half-open interval [from, to); absent bounds are open. `reverse` visits it in descending order.
struct ScanRange {
  std::optional<Key> from = {};
  std::optional<Key> to = {};
  bool reverse = false;
  std::uint64_t limit = ~std::uint64_t{0};  // a hint: the visitor stops the scan
};

// What a key was from a version on; no value: it was removed.
struct VersionedValue {
  std::uint64_t version = 0;
  std::optional<Value> value = {};
};

struct Difference {
  Key key;
  std::optional<Value> before = {};
  std::optional<Value> after = {};
};

struct VersionPin {
  std::uint64_t version = 0;
  VersionPin* next = nullptr;
  VersionPin* prev = nullptr;
  bool pinned = false;
};

class Index {
 public:
  virtual ~Index() = default;
  Index() = default;
  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;

  // True: inserted. False: the key exists and nothing changed.
  virtual Expected<bool> insert(const Key& key, const Value& value) = 0;
  // True: inserted. False: an existing value was replaced.
  virtual Expected<bool> put(const Key& key, const Value& value) = 0;
  // True: replaced. False: the key is absent and nothing changed.
  virtual Expected<bool> update(const Key& key, const Value& value) = 0;
  // True: removed. False: the key was absent.
  virtual Expected<bool> erase(const Key& key) = 0;
  // Calls `visit` with the value, under the reader's guard, and returns true; false if absent.
  // Views in the value end with the call. `visit` must not call into the same pool's mutating
  // functions.
  virtual Expected<bool> read(const Key& key, FunctionRef<void(const Value&)> visit) = 0;
  // Looks up all keys with their cache misses overlapped; visit(i, value) for those that are
  // present. Returns how many were.
  virtual Expected<std::uint64_t> read_many(std::span<const Key> keys,
                                            FunctionRef<void(std::size_t, const Value&)> visit) = 0;

  // Visits every entry once, in the engine's order, in batches; views end with the callback, which
  // answers whether to go on. Entries that are inserted or removed meanwhile may be missed or seen.
  virtual Expected<void> for_each(FunctionRef<bool(std::span<const Entry>)> visit) = 0;

  virtual void stats(EngineStats& out) = 0;
  // Verifies what CheckOptions says; call with no mutation in flight.
  virtual void check(const CheckOptions& options, Findings& report) = 0;
};

class OrderedIndex : public Index {
 public:
  // Visits the range in key order, one batch per leaf; views end with the callback, which returns
  // whether to go on. Each entry is linearizable and durable on its own; a scan is not a snapshot.
  virtual Expected<void> scan(const ScanRange& range,
                              FunctionRef<bool(std::span<const Entry>)> visit) = 0;
  Expected<void> for_each(FunctionRef<bool(std::span<const Entry>)> visit) final {
    return scan({}, visit);
  }
};

// An ordered index that keeps what its keys were. The open version is what mutations write to;
// tag() closes it. Closed versions do not change. OrderedIndex reads the latest state, the open
// version.
class VersionedIndex : public OrderedIndex {
 public:
  // Closes the open version and returns its number: what was done before it, and nothing after.
  virtual Expected<std::uint64_t> tag() = 0;
  virtual VersionRange versions() = 0;
  // Calls below that name a version fail with invalid_argument unless versions() holds it.
  virtual Expected<bool> read_at(const Key& key, std::uint64_t version,
                                 FunctionRef<void(const Value&)> visit) = 0;
  virtual Expected<void> scan_at(std::uint64_t version, const ScanRange& range,
                                 FunctionRef<bool(std::span<const Entry>)> visit) = 0;
  // What the key was, oldest first; the open version last, if it has changed there. Views end with
  // the callback.
  virtual Expected<void> history(const Key& key,
                                 FunctionRef<bool(const VersionedValue&)> visit) = 0;
  // The keys of the range that differ between the two versions, in order. Views end with the
  // callback.
  virtual Expected<void> diff(std::uint64_t from, std::uint64_t to, const ScanRange& range,
                              FunctionRef<bool(const Difference&)> visit) = 0;
  // Forgets the versions below this one, or below the lowest that is pinned; returns below which.
  // Space that only they needed is freed.
  virtual Expected<std::uint64_t> trim(std::uint64_t version) = 0;
  // Makes the state of that version the latest; what was written since is lost. No other operation
  // may be in flight. Errors: busy if a later version is pinned.
  virtual Status rollback(std::uint64_t version) = 0;
  // Keeps trim() and rollback() off the version until unpin(). `pin` stays where it is.
  virtual Status pin(VersionPin& pin, std::uint64_t version) = 0;
  virtual void unpin(VersionPin& pin) noexcept = 0;
};

// What stats() says, as Map::stats() returns it; `partial` if DRAM was too short for all of it.
MapStats stats_of(Index& index) noexcept;

}  // namespace detail
}  // namespace perdure
