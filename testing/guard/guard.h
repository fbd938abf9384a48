// perdure-guard: the commands that try to lose data, or to find lost data. Each is a source of this
// folder; guard.cc has their table and parses the arguments of all.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "testing/engines/engine_list.h"

namespace perdure::testing {

using Words = std::vector<std::string>;
Words split(const std::string& text, char separator);

// Says what is wrong with the arguments, and ends the program with status 2.
[[noreturn]] void wrong(const std::string& what);

// What several commands take.
struct Arguments {
  std::string engine = "phast";
  std::string preset;
  std::string only;
  std::string mutant;
  std::uint64_t seed = 1;
  unsigned jobs = std::max(1U, std::thread::hardware_concurrency());
  bool list = false;

  const EngineUnderTest& row() const { return *find_engine_under_test(engine); }
};

struct Option {
  std::string name;   // "--seed"
  std::string value;  // what follows it, "N"; empty: nothing
  std::string about;
  std::function<void(const std::string& text)> take;  // stores the value, or says that it is wrong
};
Option flag(const char* name, bool& out, const char* about);
Option text(const char* name, const char* value, std::string& out, const char* about);
// `words` are separated by |.
Option choice(const char* name, const std::string& words, std::string& out, const char* about);
std::uint64_t number_of(const char* name, const std::string& text, std::uint64_t least,
                        std::uint64_t most);
template <class T>
Option number(const char* name, T& out, const char* about, std::uint64_t least = 0,
              std::uint64_t most = 1'000'000'000) {
  return {name, "N", about, [=, &out](const std::string& text) {
            out = static_cast<T>(number_of(name, text, least, most));
          }};
}
// Options of several commands.
Option engine_option(std::string& out);
Option jobs_option(unsigned& out);
Option mutant_option(std::string& out, const char* about);  // also sets the mutant

struct Command {
  const char* name;
  const char* summary;  // a line
  const char* details;
  std::vector<Option> options;
  std::function<int()> run;  // after the options have been taken; returns the exit status
  // Arguments that plant a fault. The command must find it, and return 1.
  std::vector<const char*> canaries;
  const char* smoke;  // the arguments of the shortest useful run, which must return 0
};
// Each is called once.
Command explore_command();
Command interleave_command();
Command torture_command();
Command lin_command();
Command mutants_command();

}  // namespace perdure::testing
