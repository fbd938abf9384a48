// Parses the command line and opens nothing. The result is an action, or text to print.
#pragma once

#include <string>

#include "commands.h"

namespace perdure::cli {

struct CommandLine {
  Action action;              // empty: only `out` and `error` are to be printed
  std::string out;            // for standard output: the help or the version
  std::string error;          // for standard error
  int status = exit_failure;  // if there is no action
};

// Reads every option and opens nothing. `bench` reads its own options and is not parsed here.
CommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace perdure::cli
