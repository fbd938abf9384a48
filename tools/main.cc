// perdure: the command line. docs/guide.md describes it; `perdure COMMAND --help` shows examples.
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include <fmt/format.h>

#include "bench_command.h"
#include "commands.h"

namespace perdure::cli {

namespace {

constexpr const char* kFooter = R"(
EXAMPLES
  perdure create inventory.perdure --max-size 4G
  perdure put inventory.perdure apple 3
  perdure get inventory.perdure apple
  perdure load inventory.perdure items.tsv --threads 2
  perdure scan inventory.perdure --prefix user: --limit 10
  perdure check inventory.perdure --deep

EXIT STATUS
  0 done   1 not found, or check found a violation   2 usage
  3 cannot open, I/O or corruption

`perdure COMMAND --help` shows the options and examples of a command.)";

int usage_error(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  if (app.get_subcommands().empty() && argc > 1 && argv[1][0] != '-') {
    fmt::print(stderr, "perdure: there is no command '{}'; perdure --help names them\n", argv[1]);
    return exit_usage;
  }
  std::string command = "perdure";
  for (const CLI::App* used : app.get_subcommands()) command += " " + used->get_name();
  fmt::print(stderr, "perdure: {}; {} --help shows how\n", error.what(), command);
  return exit_usage;
}

int run(int argc, char** argv) {
  // The benchmark has options of its own and parses them itself.
  if (argc > 1 && std::string_view(argv[1]) == "bench") return run_bench(argc - 1, argv + 1);

  CLI::App app("Crash-consistent key-value pools in persistent or ordinary memory.", "perdure");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.set_version_flag("--version", "perdure " + std::string(version()), "print the version");
  app.set_help_flag("-h,--help", "print this help");

  Action action;
  register_pool_commands(app, action);
  register_inspect_commands(app, action);
  register_entry_commands(app, action);
  register_scan_commands(app, action);
  register_load_command(app, action);
  app.add_subcommand("bench", "measure: see perdure bench --help");

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::RequiredError& error) {
    if (argc > 1) return usage_error(app, error, argc, argv);
    fmt::print(stderr, "{}", app.help());
    return exit_usage;
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error, argc, argv);
  }
  return action();
}

}  // namespace

}  // namespace perdure::cli

int main(int argc, char** argv) {
  // A reader that goes away must not kill a process that has a pool open: writes see EPIPE instead.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return perdure::cli::run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("perdure: out of memory; free some and try again\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "perdure: %s\n", error.what());
  }
  return perdure::cli::exit_failure;
}
