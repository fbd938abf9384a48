#include "command_line.h"

#include <fmt/format.h>

#include <sstream>
#include <utility>

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
  3 cannot open, I/O or corruption   4 another process has the pool (see --wait)

`perdure COMMAND --help` shows the options and examples of a command.)";

CommandLine usage_error(const CLI::App& app, const CLI::ParseError& error, int argc,
                        const char* const* argv) {
  CommandLine line{.status = exit_usage};
  if (app.get_subcommands().empty() && argc > 1 && argv[1][0] != '-') {
    line.error =
        fmt::format("perdure: there is no command '{}'; perdure --help lists them\n", argv[1]);
    return line;
  }
  std::string command = "perdure";
  for (const CLI::App* used : app.get_subcommands()) command += " " + used->get_name();
  line.error = fmt::format("perdure: {}; {} --help shows how\n", error.what(), command);
  return line;
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
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
  register_version_commands(app, action);
  register_load_command(app, action);
  register_apply_command(app, action);
  register_backup_commands(app, action);
  app.add_subcommand("bench", "measure: see perdure bench --help");

  CommandLine line;
  try {
    app.parse(argc, argv);
    line.action = std::move(action);
  } catch (const CLI::Success& help) {
    std::ostringstream out;
    std::ostringstream error;
    line.status = app.exit(help, out, error);
    line.out = out.str();
    line.error = error.str();
  } catch (const CLI::RequiredError& error) {
    if (argc > 1) return usage_error(app, error, argc, argv);
    line.error = app.help();
    line.status = exit_usage;
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error, argc, argv);
  }
  return line;
}

}  // namespace perdure::cli
