// Oracle: the contents of a map of an undamaged pool, and the results that it must return, at
// present and at its versions. For a map without versions, one version is always open.
//
// testing/schedule/version_model.h does not serve here. It stores a version in one byte and has no
// bounds, rollbacks, pins or versions that a crash skips. Inputs use all of these.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "perdure/perdure.h"

namespace perdure::fuzz {

// Encodes keys as bytes. The order of encoded integers is the order of the keys.
std::string encoded(const MapInfo& info, const UntypedKey& key);
std::string encoded(const UntypedValue& value);

class Oracle {
 public:
  using Value = std::optional<std::string>;  // nullopt: the key is absent
  using Entries = std::vector<std::pair<std::string, std::string>>;
  using History = std::vector<std::pair<std::uint64_t, Value>>;
  struct Difference {
    std::string key;
    Value before = {};
    Value after = {};
    bool operator==(const Difference&) const = default;
  };
  struct Range {
    std::optional<std::string> from = {};
    std::optional<std::string> to = {};
    bool reverse = false;
    std::uint64_t limit = ~std::uint64_t{0};
  };

  // Reads a map that is known to be correct.
  static Oracle of(UntypedMap& map);

  std::uint64_t open() const noexcept { return last_ + 1; }
  VersionRange versions() const noexcept { return {first_, last_}; }
  bool readable(std::uint64_t version) const noexcept {
    return version >= first_ && version <= last_;
  }

  Value at(const std::string& key, std::uint64_t version) const;
  Value now(const std::string& key) const { return at(key, open()); }
  Entries scan(std::uint64_t version, const Range& range) const;
  std::vector<Difference> diff(std::uint64_t from, std::uint64_t to, const Range& range) const;
  // Whether a history is correct. Entries at and below the horizon may be missing, but the value at
  // the horizon must follow from the rest.
  bool could_be_history(const std::string& key, const History& said) const;
  // The smallest set of versions that shows every state. The present state is last.
  std::vector<std::uint64_t> states() const;

  void write(const std::string& key, Value value) { keys_[key][open()] = std::move(value); }
  void tag() noexcept { ++last_; }
  void trim(std::uint64_t version) noexcept { first_ = std::max(first_, version); }
  void roll_back(std::uint64_t version);
  // Whether the next process may report this range. A crash closes the open version, and some after
  // it that were never used.
  bool could_reopen_as(VersionRange range, bool crashed) const noexcept {
    return range.first == first_ && (crashed ? range.last >= last_ : range.last == last_);
  }
  void reopen_as(VersionRange range) noexcept { last_ = range.last; }

 private:
  using Writes = std::map<std::uint64_t, Value>;  // by the version that wrote it

  static Value at(const Writes& writes, std::uint64_t version);
  template <class F>
  // visit() returns whether the key counts against the limit
  void for_each_key(const Range& range, F&& visit) const;

  std::map<std::string, Writes> keys_;
  std::uint64_t first_ = 1;
  std::uint64_t last_ = 0;
};

}  // namespace perdure::fuzz
