// VersionModel: what a map that keeps versions holds, and answers, one operation after the other.
//
// Versions are numbers, as the map gives them: the first tag answers 1, the next 2. A version is
// named by a byte (version_name), so that version_key() is a key of it. Texts of answers: of a find
// the value; of a tag the version's name; of scan_at "key:value ..", of diff "key:before>after ..",
// of history "version:value .."; kRefused if the version is open or was trimmed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "testing/subject.h"

namespace perdure::testing {

inline constexpr char kRefused[] = "refused";

inline std::string version_name(std::uint64_t version) {
  return std::string(1, static_cast<char>('0' + version));
}
inline std::uint64_t version_number(char name) { return static_cast<std::uint64_t>(name - '0'); }

// A key or a value, in the texts of answers.
std::string version_text(const std::optional<std::string>& value);
inline std::string version_text(const std::string& key, const std::optional<std::string>& value) {
  return version_text(key) + ":" + version_text(value) + " ";
}

class VersionModel {
 public:
  // Whether the operation can have answered so; it has its effect on the model. `pending`: it has
  // not answered. `trimmed`: what the highest trim that was called before the answer asked for.
  struct Answer {
    bool yes = false;
    std::optional<std::string> text = {};
    bool pending = false;
    std::uint64_t trimmed = 0;
  };
  bool explains(const Op& op, const Answer& answer);

  // What a Subject's contents say: kPresent and a key; version_key() of versions that can be read;
  // kNamed and nothing, the names of the first and the last of them. After a crash versions can be
  // read that no tag has answered.
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

  std::map<std::string, Entries> keys_;  // all entries, also those that a trim has taken away
  std::uint64_t first_ = 1;
  std::uint64_t last_ = 0;
};

}  // namespace perdure::testing
