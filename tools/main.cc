// perdure: the command line. docs/guide.md describes it; `perdure COMMAND --help` has examples.
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string_view>

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
  fmt::print(stderr, "{}", line.error);
  return line.status;
}

}  // namespace

}  // namespace perdure::cli

int main(int argc, char** argv) {
  // A reader that goes away must not kill a process that has a pool open. Writes get EPIPE instead.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return perdure::cli::run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("perdure: out of memory; free some memory and try again\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "perdure: %s\n", error.what());
  }
  return perdure::cli::exit_failure;
}
