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
  find,
  find_many,
  insert,
  upsert,
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
  find_at = count,
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
  HeldVersion() = default;
  ~HeldVersion() { let_go(); }
  HeldVersion(const HeldVersion&) = delete;
  HeldVersion& operator=(const HeldVersion&) = delete;

  bool held() const noexcept { return pin_.pinned; }
  Status hold(detail::VersionedIndex& index, std::uint64_t version);
  void let_go() noexcept;
  // Of that map.
  std::optional<std::uint64_t> version_of(const detail::VersionedIndex& index) const noexcept;

 private:
  detail::VersionedIndex* index_ = nullptr;
  detail::VersionPin pin_;
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
    detail::Key view() const noexcept { return {.word = word, .bytes = bytes}; }
  };
  struct Bounds {
    OwnKey from, to;
    detail::ScanRange range;
    Oracle::Range expected;
  };
  OwnKey key_of(std::uint8_t choice) const;
  std::string name_of(const OwnKey& key) const { return encoded(map_.info, key.view()); }
  detail::Value value_of(std::uint8_t choice);
  void bounds_of(std::uint8_t choice, Bounds& out) const;
  std::uint64_t version_of(std::uint8_t choice) const;

  void find(const OwnKey& key);
  void find_many(std::uint8_t choice);
  void write(Op op, const OwnKey& key, const detail::Value& value);
  void erase(const OwnKey& key);
  void fill(Op op, std::uint8_t first, unsigned n);
  void scan(std::uint8_t choice);
  void for_each();

  void on_versions(Op op, std::uint8_t choice, Reader& input);
  void find_at(const OwnKey& key, std::uint64_t version);
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
  template <class T>
  bool answered(const Expected<T>& result, bool readable) const;
  // Reads all of it, and answers it if it is compared with something.
  std::string look(const detail::Value& value) const;
  Oracle::Value look(const std::optional<detail::Value>& value) const;

  UntypedMap& map_;
  Oracle* oracle_;
  HeldVersion& held_;
  std::string value_;
};

}  // namespace perdure::fuzz
