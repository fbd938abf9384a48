#include "testing/guard/guard.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "testing/crash/children.h"
#include "testing/sim/sites.h"

namespace perdure::testing {
namespace {

constexpr const char* kUsage =
    "perdure-guard COMMAND [OPTION ..]\n"
    "Tries to lose data, or to find lost data. COMMAND --help lists the options of a command.\n\n";
constexpr const char* kStatus =
    "\nExit status 0: nothing is wrong, and every planted fault was found; 1: otherwise;\n"
    "2: wrong arguments.\n";

std::string running = "perdure-guard";  // followed by the command

std::vector<Command> commands() {
  return {explore_command(), interleave_command(), torture_command(), lin_command(),
          mutants_command()};
}

void print_row(const std::string& name, std::size_t width, const std::string& about) {
  std::string shown = "  " + name;
  for (const std::string& line : split(about, '\n')) {
    shown.resize(width + 4, ' ');
    std::printf("%s%s\n", shown.c_str(), line.c_str());
    shown.clear();
  }
}

int print_table(const std::vector<Command>& all) {
  std::printf("%s", kUsage);
  for (const Command& command : all) print_row(command.name, 10, command.summary);
  print_row("canary", 10, "plants faults that each command, or each COMMAND named, must find");
  print_row("smoke", 10, "runs each command, or each COMMAND named, for some seconds at most");
  std::printf("%s", kStatus);
  return 0;
}

int print_help(const Command& command) {
  std::size_t width = 0;
  const auto shown = [](const Option& option) { return option.name + " " + option.value; };
  for (const Option& option : command.options) width = std::max(width, shown(option).size());
  std::printf("perdure-guard %s [OPTION ..]\n%s.\n%s\n", command.name, command.summary,
              command.details);
  for (const Option& option : command.options) print_row(shown(option), width, option.about);
  std::printf("%s", kStatus);
  return 0;
}

int run(const Command& command, const std::string& program, const Words& words) {
  running = std::string("perdure-guard ") + command.name;
  // What a replay line names.
  static std::string line;
  line = program + " " + command.name;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& name = words[i];
    line += " " + name;
    if (name == "--help") return print_help(command);
    const auto option = std::ranges::find(command.options, name, &Option::name);
    if (option == command.options.end()) wrong("there is no option " + name);
    const bool has_value = !option->value.empty();
    if (has_value && ++i == words.size()) wrong(name + " needs a value");
    if (has_value) line += " " + words[i];
    option->take(has_value ? words[i] : "");
  }
  program_invocation_name = line.data();
  return command.run();
}

// Runs a command in a child, in an empty folder. Returns whether it returns this status; shows its
// output if not.
bool returns(int status, const Command& command, const std::string& arguments) {
  const auto start = std::chrono::steady_clock::now();
  std::string folder = std::filesystem::temp_directory_path() / "perdure-guard.XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) wrong("cannot make a folder " + folder);
  const auto body = [&](std::size_t) {
    if (chdir(folder.c_str()) != 0 || std::freopen("output", "w", stdout) == nullptr) return false;
    dup2(STDOUT_FILENO, STDERR_FILENO);
    const int returned = run(command, "perdure-guard", split(arguments, ' '));
    std::fflush(nullptr);
    return returned == status;
  };
  bool right = false;
  in_children(1, 1, body, [&](std::size_t, bool ok) { right = ok; });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("%s %s: %s, %.1f s\n", command.name, arguments.c_str(), right ? "right" : "WRONG",
              seconds.count());
  if (!right) std::cout << std::ifstream(folder + "/output").rdbuf() << std::flush;
  std::filesystem::remove_all(folder);
  return right;
}

// Runs the canaries or the smoke runs of the named commands, or of all.
int check(const std::vector<Command>& all, bool canary, const Words& names) {
  for (const std::string& name : names) {
    if (name == "--help") return print_table(all);
    if (std::ranges::find(all, name, &Command::name) == all.end()) wrong("no command " + name);
  }
  unsetenv("PERDURE_REPLAY");
  bool right = true;
  for (const Command& command : all) {
    if (!names.empty() && std::ranges::find(names, command.name) == names.end()) continue;
    const std::vector<const char*> smoke{command.smoke};
    for (const char* arguments : canary ? command.canaries : smoke) {
      right = returns(canary ? 1 : 0, command, arguments) && right;
    }
  }
  return right ? 0 : 1;
}

}  // namespace

Words split(const std::string& text, char separator) {
  Words words;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, separator);) words.push_back(word);
  return words;
}

void wrong(const std::string& what) {
  std::fprintf(stderr, "%s: %s; see %s --help\n", running.c_str(), what.c_str(), running.c_str());
  std::exit(2);
}

Option flag(const char* name, bool& out, const char* about) {
  return {name, "", about, [&out](const std::string&) { out = true; }};
}

Option text(const char* name, const char* value, std::string& out, const char* about) {
  return {name, value, about, [&out](const std::string& given) { out = given; }};
}

Option choice(const char* name, const std::string& words, std::string& out, const char* about) {
  return {name, words, about, [=, &out](const std::string& given) {
            const Words known = split(words, '|');
            if (std::ranges::find(known, given) == known.end()) {
              wrong(std::string(name) + " is " + words + ", not " + given);
            }
            out = given;
          }};
}

std::uint64_t number_of(const char* name, const std::string& text, std::uint64_t least,
                        std::uint64_t most) {
  char* end = nullptr;
  errno = 0;
  const std::uint64_t value = std::strtoull(text.c_str(), &end, 10);
  if (text.empty() || text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 ||
      value < least || value > most) {
    wrong(std::string(name) + " is a number from " + std::to_string(least) + " to " +
          std::to_string(most) + ", not " + text);
  }
  return value;
}

Option engine_option(std::string& out) {
  return {"--engine", "E", "default: phast", [&out](const std::string& name) {
            if (find_engine_under_test(name) == nullptr) wrong("no engine " + name);
            out = name;
          }};
}

Option jobs_option(unsigned& out) {
  return number("--jobs", out, "child processes; default: one per processor", 1, 1024);
}

Option mutant_option(std::string& out, const char* about) {
  return {"--mutant", "SITE:op", about, [&out](const std::string& name) {
            if (!set_mutant(name)) wrong("no mutant " + name);
            out = name;
          }};
}

}  // namespace perdure::testing

int main(int argc, char** argv) {
  using namespace perdure::testing;
  const std::vector<Command> all = commands();
  if (argc < 2) wrong("no command");
  const std::string name = argv[1];
  const Words words(argv + 2, argv + argc);
  if (name == "--help") return print_table(all);
  if (name == "canary" || name == "smoke") return check(all, name == "canary", words);
  const auto command = std::ranges::find(all, name, &Command::name);
  if (command == all.end()) wrong("no command " + name);
  return run(*command, argv[0], words);
}
