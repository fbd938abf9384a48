// Subject and Session: what an engine has to offer to be driven.
//
// A Subject is one engine with one store on disk or in memory; it is created, closed, opened again
// and removed by one thread. A Session is one thread's handle on it: made, used and destroyed by
// that thread, many at a time. A foreign engine implements these two and is driven exactly like our
// own.
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

// What a scan goes through, counted entry by entry without an indirect call: that would cost more
// than some engines take for an entry.
class ScanTally {
 public:
  // `first` is called with the first entry; it outlives the tally.
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
  std::uint64_t touched_ = 0;  // keeps the loads of values from being optimised away
};

class Session {
 public:
  virtual ~Session() = default;
  Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // `no`: the key exists and nothing changed. Engines that cannot tell answer `yes`.
  virtual Outcome insert(const KeyRef& key, const ValueRef& value) = 0;
  // `no`: the key is absent. Engines that cannot tell answer `yes`.
  virtual Outcome update(const KeyRef& key, const ValueRef& value) = 0;
  virtual Outcome erase(const KeyRef& key) = 0;
  // Views end with the callback.
  virtual Outcome read(const KeyRef& key, FunctionRef<void(const ValueRef&)> visit) = 0;
  // Calls visit(i, value) for every key that is present. Engines without batches look up one by
  // one.
  virtual Outcome read_batch(std::span<const KeyRef> keys,
                             FunctionRef<void(std::size_t, const ValueRef&)> visit);
  // Up to `limit` entries in key order, beginning with `from`. Keys are given as the engine returns
  // them: integers in `word`, strings in `bytes` (and `word` 0).
  virtual Outcome scan(const KeyRef& from, std::uint64_t limit, ScanTally& tally) = 0;

  // Of engines that keep versions; others fail.
  virtual Outcome tag();
  virtual VersionRange versions() { return {.first = 1, .last = 0}; }
  virtual Outcome read_at(const KeyRef& key, Version version,
                          FunctionRef<void(const ValueRef&)> visit);
  // Calls visit(version, value), null where the key was removed, oldest first. `no`: it never was.
  virtual Outcome history(const KeyRef& key, FunctionRef<void(Version, const ValueRef*)> visit);
  // All entries of a version, in key order.
  virtual Outcome scan_at(Version version, ScanTally& tally);

  // What failed last.
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

// What a store takes. Absent: the engine cannot tell.
struct Footprint {
  std::uint64_t entries = 0;
  std::optional<std::uint64_t> pm_bytes = {};  // persistent: assigned extents, or files
  std::optional<std::uint64_t> dram_bytes = {};
  std::optional<double> load_factor = {};
  std::vector<ResizeStats> resizes = {};  // of a hash table, the last of them
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
  // Whether perdure::thread_counters() counts what it does.
  virtual bool counted() const { return false; }
  // Whether anything is left after close, so that opening again can be measured.
  virtual bool persistent() const { return true; }

  // Makes a new, empty store; refuses to replace a file that it did not make.
  virtual Result<void> create() = 0;
  virtual Result<void> reopen() = 0;
  virtual Result<void> close() = 0;
  // Removes the files of a closed store. Idempotent.
  virtual void remove() = 0;

  // Where the store is one file, its path: an interrupted run removes it.
  virtual std::string file() const { return {}; }

  virtual std::unique_ptr<Session> session() = 0;
  virtual Footprint footprint() = 0;
};

}  // namespace perdure::bench
