// Lines: the names of lines, and the table of those that are content.
//
// CONTENT  Two threads that change different keys of a large map seldom meet in a line of content:
//   entries, buckets, leaves, items, their descriptors with the stripes that lie in them. A line
//   that the table does not list is infrastructure.
#pragma once

#include <cstdint>
#include <string>

#include "perdure/options.h"
#include "testing/coherence/memory.h"

namespace perdure::testing {

struct LineName {
  std::string name;
  bool content = false;
};

class Lines {
 public:
  explicit Lines(Engine engine) : engine_(engine) {}
  // The name of the object that the line lies in, with the line's place in a small one: "block",
  // "root block +0x40", "Arena<phast::Descriptor>", "State::State (state.h:42) +0x80".
  LineName name_of(std::uint64_t line);

 private:
  static constexpr std::uint64_t kSmall = 4096;  // bytes of an object whose lines differ

  LineName in_file(const Memory& memory, std::uint64_t address) const;
  std::string maker_of(const Memory& memory);

  Engine engine_;
  std::map<std::vector<std::uint64_t>, std::string> makers_;  // by callers
};

}  // namespace perdure::testing
