// Index: the interface of an engine, which Map and Store call. Users need map.h and store.h. This
// header is installed because Map is a template over it.
//
// Thread safety: any number of threads may call every method at once, except where a comment
// forbids it.
// Durability: when a mutation returns, its effect is durable as the pool's durability guarantees.
// The same holds for every state that a read has returned (docs/durability.md).
// Errors of every method that returns an Expected or a Status: poisoned, out_of_memory, and
// corruption if the call reads damaged content. Mutations also: read_only, invalid_argument (a key
// or value is too long), pool_full, hash_overflow.
#pragma once

#include <concepts>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

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
using Mutation = UntypedMutation;
using VersionRange = perdure::VersionRange;

// Whether two values of one map are the same, by their bits. An engine may deliver a short word as
// one of 8 bytes.
inline bool same_value(const Value& a, const Value& b) noexcept {
  if ((a.word_size == 0) != (b.word_size == 0)) return false;
  if (a.word_size == 0) return a.bytes == b.bytes;
  const std::uint32_t bytes = a.word_size < b.word_size ? a.word_size : b.word_size;
  return (a.word ^ b.word) << (64 - 8 * bytes) == 0;
}

struct Entry {
  Key key;
  Value value;
};

// The half-open interval [from, to). An absent bound is open. With `reverse`, a scan visits it in
// descending order.
struct ScanRange {
  std::optional<Key> from = {};
  std::optional<Key> to = {};
  bool reverse = false;
  std::uint64_t limit = ~std::uint64_t{0};  // a hint; the visitor ends the scan
};

// The value that a key has from `version` on; no value means that the key was removed.
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
};

class Index {
 public:
  virtual ~Index() = default;
  Index() = default;
  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;

  // Returns true if it inserted the key. Returns false, and changes nothing, if the key exists.
  virtual Expected<bool> insert(const Key& key, const Value& value) = 0;
  // Returns true if it inserted the key, false if it replaced the value.
  virtual Expected<bool> put(const Key& key, const Value& value) = 0;
  // Returns true if it replaced the value. Returns false, and changes nothing, if the key is
  // absent.
  virtual Expected<bool> update(const Key& key, const Value& value) = 0;
  // Returns true if it removed the key, false if the key was absent.
  virtual Expected<bool> erase(const Key& key) = 0;
  // update() and erase() of a key that has this value. Return false, and change nothing, if the key
  // is absent or has another value.
  virtual Expected<bool> update_if(const Key& key, const Value& expected, const Value& value) = 0;
  virtual Expected<bool> erase_if(const Key& key, const Value& expected) = 0;
  // Does all mutations, each atomically by itself, with cache misses overlapped and with one fence
  // for several. Mutations of one key take effect in their order. Calls done(i, result) when
  // mutations[i] has ended: what the single call would have returned. `done` is called in order,
  // without a latch or guard.
  virtual void write_many(std::span<const Mutation> mutations,
                          FunctionRef<void(std::size_t, Expected<bool>)> done) {
    for (std::size_t i = 0; i < mutations.size(); ++i) done(i, write_one(mutations[i]));
  }
  // The single call of a mutation.
  Expected<bool> write_one(const Mutation& mutation) {
    switch (mutation.kind) {
      case MutationKind::put:
        return put(mutation.key, mutation.value);
      case MutationKind::insert:
        return insert(mutation.key, mutation.value);
      case MutationKind::update:
        return update(mutation.key, mutation.value);
      case MutationKind::erase:
        return erase(mutation.key);
    }
    return fail(StatusCode::invalid_argument, "mutation kind %u is unknown",
                static_cast<unsigned>(mutation.kind));
  }
  // Calls visit(value) under the reader's guard and returns true; returns false if the key is
  // absent. Views in the value end with the callback. `visit` must not call a mutating function of
  // the same pool.
  virtual Expected<bool> read(const Key& key, FunctionRef<void(const Value&)> visit) = 0;
  // The same of a map of integers and words, without a callback: copies the word of the value.
  // Failed: read() says why.
  enum class Got : std::uint8_t { absent, present, failed };
  virtual Got get_word(std::uint64_t key, std::uint64_t& value) {
    auto found = read({.word = key}, [&](const Value& visited) { value = visited.word; });
    return !found ? Got::failed : *found ? Got::present : Got::absent;
  }
  // Looks up all keys, with their cache misses overlapped. Calls visit(i, value) for each keys[i]
  // that is present, and returns how many are present.
  virtual Expected<std::uint64_t> read_many(std::span<const Key> keys,
                                            FunctionRef<void(std::size_t, const Value&)> visit) = 0;

  // Visits every entry once, in batches, in the engine's order. Views end with the callback. The
  // callback returns false to end the walk. Entries that are inserted or removed meanwhile may be
  // visited or not.
  virtual Expected<void> for_each(FunctionRef<bool(std::span<const Entry>)> visit) = 0;

  // How many entries there are: exact when no mutation is under way. O(threads), but the first call
  // after an open may read the whole map, while mutations wait.
  virtual Expected<std::uint64_t> size() = 0;
  virtual void stats(EngineStats& out) = 0;
  // Ok, or why all calls through a Handle fail.
  virtual Status usable() const noexcept { return {}; }
  // Verifies what `options` asks for and adds violations to `report`. No mutation may be in flight.
  virtual void check(const CheckOptions& options, Findings& report) = 0;
};

class OrderedIndex : public Index {
 public:
  // Visits the range in key order, in batches. Views end with the callback, which returns false to
  // end the scan. Each entry is linearizable and durable on its own; a scan is not a snapshot.
  virtual Expected<void> scan(const ScanRange& range,
                              FunctionRef<bool(std::span<const Entry>)> visit) = 0;
  Expected<void> for_each(FunctionRef<bool(std::span<const Entry>)> visit) final {
    return scan({}, visit);
  }
};

// An ordered index that keeps the history of its keys. Mutations write to the open version, and
// tag() closes it. A closed version does not change. The methods of OrderedIndex read the open
// version.
class VersionedIndex : public OrderedIndex {
 public:
  // Closes the open version and returns its number. That version contains everything that was done
  // before the call and nothing later.
  virtual Expected<std::uint64_t> tag() = 0;
  virtual VersionRange versions() = 0;
  // A method below that takes a version fails with invalid_argument unless versions() contains it.
  // trim() also accepts any older version and the open one.
  virtual Expected<bool> read_at(const Key& key, std::uint64_t version,
                                 FunctionRef<void(const Value&)> visit) = 0;
  virtual Expected<void> scan_at(std::uint64_t version, const ScanRange& range,
                                 FunctionRef<bool(std::span<const Entry>)> visit) = 0;
  // Visits the entries of the key's history, the oldest first. The open version comes last, if the
  // key was written there. Views end with the callback.
  virtual Expected<void> history(const Key& key,
                                 FunctionRef<bool(const VersionedValue&)> visit) = 0;
  // Visits the keys of the range whose values differ between the two versions, in key order. Views
  // end with the callback.
  virtual Expected<void> diff(std::uint64_t from, std::uint64_t to, const ScanRange& range,
                              FunctionRef<bool(const Difference&)> visit) = 0;
  // Forgets the versions below `version`, or below the lowest pinned one if that is lower. Returns
  // the first version that remains. Frees the space that only forgotten versions needed.
  // Errors: invalid_argument if `version` is above the open one.
  virtual Expected<std::uint64_t> trim(std::uint64_t version) = 0;
  // Makes the state of `version` the latest one. Later writes are lost. No other operation may be
  // in flight.
  // Errors: busy if a later version is pinned.
  virtual Status rollback(std::uint64_t version) = 0;
  // Until unpin(), trim() keeps the version and rollback() does not go below it. `pin` must not
  // move meanwhile.
  virtual Status pin(VersionPin& pin, std::uint64_t version) = 0;
  virtual void unpin(VersionPin& pin) noexcept = 0;
};

// While a handle refers to the Index of an engine, its memory stays.
void hold(const Index& index) noexcept;
void let_go(const Index& index) noexcept;
// VersionedIndex::unpin(), at the same time as another thread may end the engine.
void unpin(VersionedIndex& index, VersionPin& pin) noexcept;

// A reference to the engine of a map. It may outlive the engine: once the pool is closed or the map
// is dropped, and in a child of fork(), each call through it fails with invalid_argument, at no
// cost for other calls (src/index/tombstone.h). A copy costs an atomic increment.
template <class X>
class Handle {
 public:
  Handle() noexcept = default;
  explicit Handle(X* index) noexcept : index_(index) {
    if (index_ != nullptr) hold(*index_);
  }
  Handle(const Handle& other) noexcept : Handle(other.index_) {}
  Handle(Handle&& other) noexcept : index_(std::exchange(other.index_, nullptr)) {}
  template <std::derived_from<X> Y>
  Handle(const Handle<Y>& other) noexcept : Handle(other.get()) {}  // NOLINT: as for pointers
  Handle& operator=(Handle other) noexcept {
    std::swap(index_, other.index_);
    return *this;
  }
  ~Handle() {
    if (index_ != nullptr) let_go(*index_);
  }

  explicit operator bool() const noexcept { return index_ != nullptr; }
  X* get() const noexcept { return index_ == nullptr ? nullptr : std::launder(index_); }
  // Another object may be there than at the last call.
  X& operator*() const noexcept { return *std::launder(index_); }
  X* operator->() const noexcept { return std::launder(index_); }

 private:
  X* index_ = nullptr;
};

// Returns the figures of Index::stats() in the form of Map::stats(). `partial` is set if DRAM was
// too short for all of them.
MapStats stats_of(Index& index) noexcept;

}  // namespace detail
}  // namespace perdure
