// MapOps: runs and judges the operations of an input on one map. A damaged pool may return any
// documented result; an undamaged one only what its oracle says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fuzz/oracle.h"
#include "fuzz/target.h"

namespace perdure::fuzz {

// An operation is a byte of an input, modulo `count`; modulo `count_with_versions` if the recipe
// sets kVersions; modulo `count_all` if it sets kAllOperations.
enum class Op : std::uint8_t {
  get,
  get_many,
  insert,
  put,
  update,
  erase,
  scan,
  for_each,
  fill,   // many inserts: nodes split
  clear,  // many erases: nodes are freed
  stats,
  check,
  sync,
  compact,
  background,
  create,
  drop,
  reopen,
  abandon,  // as if the process had died: the next open recovers
  count,
  // On maps that keep versions; others ignore them.
  get_at = count,
  scan_at,
  history,
  diff,
  tag,
  trim,
  rollback,
  pin,  // unpins, if a version is pinned
  count_with_versions,
  // On every map:
  write_many = count_with_versions,
  exchange,     // compare_exchange()
  erase_range,  // of a part of a range; erases nothing of a map without an order
  batch,        // Pool::commit()
  count_all,
};

// A pinned version of a map. One at a time; release it before its map or pool is closed.
class HeldVersion {
 public:
  bool held() const noexcept { return snapshot_.has_value(); }
  Status hold(UntypedMap& map, std::uint64_t version);
  void let_go() noexcept { snapshot_.reset(); }
  // The pinned version, if `map` is the map that it belongs to.
  std::optional<std::uint64_t> version_of(const UntypedMap& map) const;

 private:
  std::optional<UntypedSnapshot> snapshot_;
  std::string map_;
};

class MapOps {
 public:
  // The oracle is null if the pool is damaged.
  MapOps(Pool& pool, UntypedMap& map, Oracle* oracle, HeldVersion& held)
      : pool_(pool), map_(map), oracle_(oracle), held_(held) {}

  // `choice` is the byte after the operation. run() reads further bytes as it needs them.
  void run(Op op, std::uint8_t choice, Reader& input);
  // Compares the present state and every version with the oracle.
  void verify();

 private:
  struct OwnKey {
    std::uint64_t word = 0;
    std::string bytes;
    UntypedKey view() const noexcept { return {.word = word, .bytes = bytes}; }
  };
  struct Bounds {
    OwnKey from, to;
    UntypedScanOptions range;
    Oracle::Range expected;
  };
  OwnKey key_of(std::uint8_t choice) const;
  std::string name_of(const OwnKey& key) const { return encoded(map_.info(), key.view()); }
  UntypedValue value_of(std::uint8_t choice);
  void bounds_of(std::uint8_t choice, Bounds& out) const;
  std::uint64_t version_of(std::uint8_t choice) const;

  void get(const OwnKey& key);
  void get_many(std::uint8_t choice);
  void write(Op op, const OwnKey& key, const UntypedValue& value);
  void erase(const OwnKey& key);
  void fill(Op op, std::uint8_t first, unsigned n);
  void write_many(unsigned n, Reader& input);
  void commit(unsigned n, Reader& input);
  void exchange(const OwnKey& key, Reader& input);
  void erase_range(std::uint8_t choice, std::uint64_t limit);
  void scan(std::uint8_t choice);
  void iterate(const Bounds& bounds);
  void for_each();

  void on_versions(Op op, std::uint8_t choice, Reader& input);
  void get_at(const OwnKey& key, std::uint64_t version);
  void scan_at(std::uint64_t version, const Bounds& bounds);
  void history(const OwnKey& key);
  void diff(std::uint64_t from, std::uint64_t to, const Bounds& bounds);
  void tag();
  void trim(std::uint64_t version);
  void roll_back(std::uint64_t version);
  void pin(std::uint64_t version);

  // Judges an error. An operation that may need space may fail for lack of it.
  void refused(const Status& status) const;
  // Whether there is a result to compare. A failure must be one that the oracle allows: the
  // versions are not readable.
  bool comparable(const Status& result, bool readable) const;
  template <class T>
  bool comparable(const Expected<T>& result, bool readable) const {
    return comparable(result ? Status() : result.error(), readable);
  }
  // Reads the whole value. Returns its bytes if there is an oracle to compare with.
  std::string look(const UntypedValue& value) const;
  Oracle::Value look(const std::optional<UntypedValue>& value) const;

  Pool& pool_;
  UntypedMap& map_;
  Oracle* oracle_;
  HeldVersion& held_;
  std::string value_;
};

}  // namespace perdure::fuzz
