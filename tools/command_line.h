// The command line without its effect: what is to be done, or what there is to print instead.
#pragma once

#include <string>

#include "commands.h"

namespace perdure::cli {

struct CommandLine {
  Action action;              // empty: only `out` and `error` are left to print
  std::string out;            // for standard output: help, the version
  std::string error;          // for standard error
  int status = exit_failure;  // without an action
};

// Reads every option, opens nothing. `bench` has options of its own and is not read here.
CommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace perdure::cli
