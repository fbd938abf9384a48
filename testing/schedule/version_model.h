// VersionModel: the content and results of a map that keeps versions, for sequential operations.
//
// Versions are numbers, as the map returns them: the first tag returns 1, the next 2. A version is
// named by a byte (version_name), which version_key() uses in its keys. The text of a result is:
// for a find the value; for a tag the version's name; for scan_at "key:value ..", for diff
// "key:before>after ..", for history "version:value .."; kRefused if the version is open or was
// trimmed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "testing/crash/subject.h"

namespace perdure::testing {

inline constexpr char kRefused[] = "refused";

inline std::string version_name(std::uint64_t version) {
  return std::string(1, static_cast<char>('0' + version));
}
inline std::uint64_t version_number(char name) { return static_cast<std::uint64_t>(name - '0'); }

// A key or a value, as in the texts of results.
std::string version_text(const std::optional<std::string>& value);
inline std::string version_text(const std::string& key, const std::optional<std::string>& value) {
  return version_text(key) + ":" + version_text(value) + " ";
}

class VersionModel {
 public:
  // Applies the operation to the model. Returns whether it can have returned this result.
  // `pending`: it has not returned. `trimmed`: the highest argument of a trim that was called
  // before the return.
  struct Result {
    bool yes = false;
    std::optional<std::string> text = {};
    bool pending = false;
    std::uint64_t trimmed = 0;
  };
  bool explains(const Op& op, const Result& result);

  // Whether a Subject's contents match: kPresent and a key; version_key() of readable versions;
  // kNamed alone, with the names of the first and the last version. After a crash, versions may be
  // readable that no tag has returned.
  bool matches(const Model& content) const;

 private:
  using Entries = std::vector<std::pair<std::uint64_t, std::optional<std::string>>>;

  std::uint64_t open() const { return last_ + 1; }
  std::optional<std::string> at(const std::string& key, std::uint64_t version) const;
  bool write(const Op& op);
  bool readable(std::uint64_t version) const { return version >= first_ && version <= last_; }
  std::string scan(std::uint64_t version) const;
  std::string diff(std::uint64_t from, std::uint64_t to) const;
  bool could_be_history(const std::string& key, const std::string& text,
                        std::uint64_t trimmed) const;

  std::map<std::string, Entries> keys_;  // all entries, also trimmed ones
  std::uint64_t first_ = 1;
  std::uint64_t last_ = 0;
};

}  // namespace perdure::testing
