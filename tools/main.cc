// perdure: the command line. docs/guide.md describes it; `perdure COMMAND --help` has examples.
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "bench_command.h"
#include "command_line.h"

namespace perdure::cli {

namespace {

int run(int argc, char** argv) {
  // The benchmark parses its own options.
  if (argc > 1 && std::string_view(argv[1]) == "bench") return run_bench(argc - 1, argv + 1);
  const CommandLine line = parse_command_line(argc, argv);
  if (line.action) return line.action();
  fmt::print("{}", line.out);
  say(line.error);
  return line.status;
}

// The status of a command that an exception has ended.
int ended_by(const std::exception& error) {
  const auto* failed = dynamic_cast<const std::system_error*>(&error);
  if (failed != nullptr && std::ferror(stdout) != 0) {  // of fmt::print()
    return finish_standard_output(exit_done, failed->code().value());
  }
  const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  say("perdure: ");
  say(memory ? "out of memory; free some memory and try again" : error.what());
  say("\n");
  return exit_failure;
}

}  // namespace

}  // namespace perdure::cli

int main(int argc, char** argv) {
  // A reader that goes away must not kill a process that has a pool open. Writes get EPIPE instead.
  std::signal(SIGPIPE, SIG_IGN);
  using namespace perdure::cli;
  try {
    if (const int status = open_standard_files()) return status;
    if (const int status = refuse_own_outputs()) return finish_standard_output(status);
    return finish_standard_output(run(argc, argv));
  } catch (const std::exception& error) {
    return ended_by(error);
  }
}
