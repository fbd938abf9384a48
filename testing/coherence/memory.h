// Memory: what lies at an address, and which function an instruction belongs to. This gives the
// lines of a trace their names. memory.cc wraps the functions that get memory.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace perdure::testing {

// The memory that a function got, or a mapped file, or a static object.
struct Memory {
  enum class Kind : std::uint8_t { unknown, heap, file, fixed } kind = Kind::unknown;
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> callers;  // return addresses, the innermost first; heap only
  std::string name;                    // of a static object
};
// Off: what the calling thread gets from now on has no name, which saves time.
void name_memory_of_thread(bool on);
Memory memory_at(std::uint64_t address);

// The functions around an instruction, the innermost first: one, and those it was inlined into.
struct Frame {
  std::string full;      // as the compiler names it
  std::string function;  // without arguments and namespace, such as "Shortcut::split"
  std::string place;     // "shortcut.h:97"
};
using Frames = std::map<std::uint64_t, std::vector<Frame>>;
// Looks up all at once with addr2line, which takes seconds. A code is a return address.
Frames frames_of(const std::set<std::uint64_t>& codes);
// Removes template arguments, parameters and "perdure::" from the name of a function or type.
std::string short_name(const std::string& full);

}  // namespace perdure::testing
