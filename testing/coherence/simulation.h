// Simulation: operations of many simulated threads on one map, and the lines that they take over.
//
// Each simulated thread is a real thread and a core of the Machine. Only one of them runs at a
// time, and runs one operation. Its accesses then happen one by one on the Machine, in the order of
// the cores' times, among those of the other cores. Background threads of the pool are cores, too.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "perdure/options.h"

namespace perdure::testing {

struct SimulationOptions {
  Engine engine = Engine::phast;
  std::uint32_t threads = 64;
  std::uint64_t records = 1'000'000;
  std::uint64_t operations = 200'000;
  std::uint64_t seed = 1;
  std::string path;  // of the pool, which must not exist, and is removed again
};

enum class Operation : std::uint8_t { find, update, insert, erase };
inline constexpr std::size_t kOperations = 4;
inline constexpr const char* kOperationNames[kOperations] = {"find", "update", "insert", "erase"};

struct OperationCost {
  std::uint64_t operations = 0;
  std::uint64_t content = 0;         // lines taken over
  std::uint64_t infrastructure = 0;  // lines taken over
  std::uint32_t queue = 0;           // the longest
  std::uint64_t time_ps = 0;         // by the Machine
};

struct HotLine {
  std::string name;
  bool content = false;
  std::uint64_t taken_over = 0;
  std::uint32_t queue = 0;
  std::string writer;  // the function that most often takes it over to write, and its line
  std::string reader;
};

struct SimulationResult {
  std::array<OperationCost, kOperations> costs;
  std::vector<HotLine> hottest;  // infrastructure by name, the most often taken over first
};

// Prints to stderr and ends the process if an operation fails.
SimulationResult simulate(const SimulationOptions& options);

}  // namespace perdure::testing
