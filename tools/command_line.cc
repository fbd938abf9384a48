#include "command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

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
  5 salvage has written what can be read, and something is lost

`perdure COMMAND --help` shows the options and examples of a command.)";

// In words that all commands use, instead of those of CLI11.
std::string what_is_wrong(const CLI::App& command, const CLI::ParseError& error) {
  const std::vector<std::string> rest = command.remaining();
  const auto option = std::find_if(rest.begin(), rest.end(), [](const std::string& argument) {
    return argument.size() > 1 && argument[0] == '-';
  });
  if (option != rest.end()) {
    const bool takes_key = command.get_option_no_throw("KEY") != nullptr;
    return fmt::format("{}: there is no such option of {}{}", *option, command.get_name(),
                       takes_key ? "; write -- before a key or value that begins with -" : "");
  }
  if (!rest.empty()) return fmt::format("'{}' is one argument too many", rest.front());
  std::string message = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    return message.substr(0, message.find(':')) + ": its value is missing";
  }
  return message;
}

CommandLine usage_error(const CLI::App& app, const CLI::ParseError& error, int argc,
                        const char* const* argv) {
  CommandLine line{.status = exit_usage};
  if (app.get_subcommands().empty() && argc > 1) {
    line.error = fmt::format("perdure: there is no {} '{}'; perdure --help lists them\n",
                             argv[1][0] != '-' ? "command" : "option", argv[1]);
    return line;
  }
  const CLI::App& used = *app.get_subcommands().front();
  line.error = fmt::format("perdure: {}; perdure {} --help shows how\n", what_is_wrong(used, error),
                           used.get_name());
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
