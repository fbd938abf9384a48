// Subject and Session: the interface of an engine under the driver.
//
// A Subject is one engine with one store on disk or in memory. One thread creates, closes, reopens
// and removes it. A Session is one thread's handle on it: that thread makes, uses and destroys it,
// and many exist at a time. A foreign engine implements both and is driven exactly like our own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/workloads/data.h"
#include "perdure/function_ref.h"
#include "perdure/stats.h"
#include "perdure/versioned_map.h"

namespace perdure::bench {

enum class Outcome : std::uint8_t { no, yes, failed };

// Counts the entries of a scan without an indirect call per entry, which would cost more than some
// engines take for an entry.
class ScanTally {
 public:
  // `first` is called with the first entry. It must outlive the tally.
  explicit ScanTally(FunctionRef<void(const KeyRef&, const ValueRef&)> first) : first_(first) {}

  void add(const KeyRef& key, const ValueRef& value) {
    if (entries_++ == 0) {
      first_(key, value);
    } else {
      touched_ +=
          value.bytes.empty() ? value.word : static_cast<unsigned char>(value.bytes.front());
    }
  }
  std::uint64_t entries() const noexcept { return entries_; }
  std::uint64_t touched() const noexcept { return touched_; }

 private:
  FunctionRef<void(const KeyRef&, const ValueRef&)> first_;
  std::uint64_t entries_ = 0;
  std::uint64_t touched_ = 0;  // the compiler must not remove the loads of values
};

enum class OpKind : std::uint8_t;  // bench/workloads/work.h

class Session {
 public:
  virtual ~Session() = default;
  Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // `no`: the key exists and nothing changed. Engines that cannot tell return `yes`.
  virtual Outcome insert(const KeyRef& key, const ValueRef& value) = 0;
  // `no`: the key is absent. Engines that cannot tell return `yes`.
  virtual Outcome update(const KeyRef& key, const ValueRef& value) = 0;
  // update() of what visit(value) has seen, as one step. The default does not exclude that another
  // thread comes in between.
  virtual Outcome modify(const KeyRef& key, FunctionRef<void(const ValueRef&)> visit,
                         const ValueRef& value);
  virtual Outcome erase(const KeyRef& key) = 0;
  // Operations of one kind: insert, update or erase. Returns `yes` if all return it, otherwise
  // another result of one of them. The default does them one by one. Of the kind batch: updates,
  // all or nothing, which the default cannot do.
  virtual Outcome write_many(OpKind kind, std::span<const KeyRef> keys,
                             std::span<const ValueRef> values);
  // The views are valid during the callback.
  virtual Outcome read(const KeyRef& key, FunctionRef<void(const ValueRef&)> visit) = 0;
  // Calls visit(i, value) for every present key. The default looks the keys up one by one.
  virtual Outcome read_batch(std::span<const KeyRef> keys,
                             FunctionRef<void(std::size_t, const ValueRef&)> visit);
  // Up to `limit` entries in key order, from `from` on. Keys are as the engine returns them:
  // integers in `word`, strings in `bytes` (and `word` 0).
  virtual Outcome scan(const KeyRef& from, std::uint64_t limit, ScanTally& tally) = 0;

  // For engines that keep versions; others fail.
  virtual Outcome tag();
  virtual VersionRange versions() { return {.first = 1, .last = 0}; }
  virtual Outcome read_at(const KeyRef& key, Version version,
                          FunctionRef<void(const ValueRef&)> visit);
  // Calls visit(version, value), oldest first; value is null if the key was removed. `no`: the key
  // never existed.
  virtual Outcome history(const KeyRef& key, FunctionRef<void(Version, const ValueRef*)> visit);
  // All entries of a version, in key order.
  virtual Outcome scan_at(Version version, ScanTally& tally);

  // The message of the last failure.
  const std::string& error() const noexcept { return error_; }

 protected:
  Outcome fail(std::string message) {
    error_ = std::move(message);
    return Outcome::failed;
  }
  Outcome keeps_no_versions() { return fail("the engine keeps no versions"); }

 private:
  std::string error_;
};

// The space of a store. Absent: the engine cannot tell.
// Of a pool with durability `buffered`: what its cuts have cost.
struct CutCosts {
  std::uint64_t cuts = 0;
  std::uint64_t log_bytes = 0;  // written
  std::uint64_t folds = 0;
  std::uint64_t fold_bytes = 0;       // written to the pool's file by them
  std::uint64_t longest_stop_ns = 0;  // of all stores
};

struct Footprint {
  std::uint64_t entries = 0;
  std::optional<std::uint64_t> pm_bytes = {};  // persistent: assigned extents, or files
  std::optional<std::uint64_t> dram_bytes = {};
  std::optional<double> load_factor = {};
  std::vector<ResizeStats> resizes = {};  // the last resizes of a hash table
  std::optional<CutCosts> cuts = {};
};

class Subject {
 public:
  virtual ~Subject() = default;
  Subject() = default;
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  virtual std::string name() const = 0;
  virtual std::string medium() const = 0;
  virtual std::string durability() const = 0;
  virtual std::string version() const = 0;
  // Whether perdure::thread_counters() counts its work.
  virtual bool counted() const { return false; }
  // Whether the store survives close, and reopening can be measured.
  virtual bool persistent() const { return true; }

  // Makes a new, empty store. Fails rather than replace a file that it did not make.
  virtual Result<void> create() = 0;
  virtual Result<void> reopen() = 0;
  virtual Result<void> close() = 0;
  // Removes the files of a closed store. Idempotent.
  virtual void remove() = 0;

  // The path, if the store is one file: an interrupted run removes it.
  virtual std::string file() const { return {}; }

  virtual std::unique_ptr<Session> session() = 0;
  virtual Footprint footprint() = 0;
};

}  // namespace perdure::bench
