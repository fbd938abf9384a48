// MapOps: the operations of an input on one map, judged. Of a damaged pool every answer will do
// that is documented; of another one only what its oracle says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fuzz/oracle.h"
#include "fuzz/target.h"

namespace perdure::fuzz {

// A byte of an input, modulo `count`, or `count_with_versions` if the recipe says kVersions.
enum class Op : std::uint8_t {
  get,
  get_many,
  insert,
  put,
  update,
  erase,
  scan,
  for_each,
  fill,   // many entries: nodes split
  clear,  // many entries: nodes go
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
  // Of maps that keep versions; nothing on others.
  get_at = count,
  scan_at,
  history,
  diff,
  tag,
  trim,
  rollback,
  pin,  // or unpin, if one is held
  count_with_versions,
};

// A version of a map that is held. One at a time; let go before the map or its pool goes.
class HeldVersion {
 public:
  bool held() const noexcept { return snapshot_.has_value(); }
  Status hold(UntypedMap& map, std::uint64_t version);
  void let_go() noexcept { snapshot_.reset(); }
  // Of that map.
  std::optional<std::uint64_t> version_of(const UntypedMap& map) const;

 private:
  std::optional<UntypedSnapshot> snapshot_;
  std::string map_;
};

class MapOps {
 public:
  // No oracle: the pool is damaged.
  MapOps(UntypedMap& map, Oracle* oracle, HeldVersion& held)
      : map_(map), oracle_(oracle), held_(held) {}

  // `choice` is the input's byte after the operation's own; what else it needs is read.
  void run(Op op, std::uint8_t choice, Reader& input);
  // Everything: the present state, and what every version was.
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

  // An answer that is an error. An operation that can need space may be refused it.
  void refused(const Status& status) const;
  // Whether it was answered; if not, rightly: the versions cannot be read.
  bool answered(const Status& result, bool readable) const;
  template <class T>
  bool answered(const Expected<T>& result, bool readable) const {
    return answered(result ? Status() : result.error(), readable);
  }
  // Reads all of it, and answers it if it is compared with something.
  std::string look(const UntypedValue& value) const;
  Oracle::Value look(const std::optional<UntypedValue>& value) const;

  UntypedMap& map_;
  Oracle* oracle_;
  HeldVersion& held_;
  std::string value_;
};

}  // namespace perdure::fuzz
