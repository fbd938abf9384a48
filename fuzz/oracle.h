// Oracle: what a map of an undamaged pool holds, and what it must answer, at present and at its
// versions. A map that keeps none has one that is always open.
//
// Not testing/version_model.h: that one gives a version one byte, and leaves out bounds, rollbacks,
// pins and the versions that a crash skips, all of which inputs ask for.
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

// As bytes: of integer keys those whose order is that of the keys.
std::string encoded(const MapInfo& info, const UntypedKey& key);
std::string encoded(const UntypedValue& value);

class Oracle {
 public:
  using Value = std::optional<std::string>;  // nothing: the key is not there
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

  // Of a map that is right, by what it answers.
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
  // Entries at and below the horizon may be gone, but for what they say of it.
  bool could_be_history(const std::string& key, const History& said) const;
  // The least versions that show every state there is: the present one last.
  std::vector<std::uint64_t> states() const;

  void write(const std::string& key, Value value) { keys_[key][open()] = std::move(value); }
  void tag() noexcept { ++last_; }
  void trim(std::uint64_t version) noexcept { first_ = std::max(first_, version); }
  void roll_back(std::uint64_t version);
  // What the next process answers. A crash closes the open version, and some that nobody has used.
  bool could_reopen_as(VersionRange range, bool crashed) const noexcept {
    return range.first == first_ && (crashed ? range.last >= last_ : range.last == last_);
  }
  void reopen_as(VersionRange range) noexcept { last_ = range.last; }

 private:
  using Writes = std::map<std::uint64_t, Value>;  // what a version has left

  static Value at(const Writes& writes, std::uint64_t version);
  template <class F>
  void for_each_key(const Range& range, F&& visit) const;  // visit() answers whether it counts

  std::map<std::string, Writes> keys_;
  std::uint64_t first_ = 1;
  std::uint64_t last_ = 0;
};

}  // namespace perdure::fuzz
