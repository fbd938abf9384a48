// tag, versions, history, snapshot, diff, trim, rollback: of a map whose engine keeps versions.
#include <unistd.h>

#include <memory>

#include <fmt/format.h>

#include "commands.h"
#include "tsv.h"

namespace perdure::cli {

namespace {

struct VersionArguments {
  PoolArguments pool;
  std::string key;
  std::uint64_t version = 0;
  std::uint64_t other = 0;  // diff only: the version to compare with
  TextMap::Range range;
};

// Opens the map, calls run(map), which returns an exit status, and closes the pool.
template <class F>
int with_map(const VersionArguments& arguments, Access access, F&& run) {
  auto pool = open_pool(arguments.pool, access);
  if (!pool) return report(arguments.pool.path, pool.error());
  auto map = open_map(*pool, arguments.pool, false);
  if (!map) return close_pool(*pool, arguments.pool, report_map(arguments.pool, map.error()));
  return close_pool(*pool, arguments.pool, run(*map));
}

// Prints lines of fields. end() returns false if the output has no reader or a signal came.
class Lines {
 public:
  // Fields are escaped, words are not.
  Lines& word(std::string_view text) {
    line_ += text;
    return *this;
  }
  Lines& field(Bytes bytes) {
    line_ += '\t';
    escape(bytes, line_);
    return *this;
  }
  bool end() {
    line_ += '\n';
    output_.write(line_);
    line_.clear();
    return !output_.closed() && !interrupted();
  }
  // Returns the exit status of a command that has printed all lines.
  template <class T>
  int finish(const VersionArguments& arguments, const Expected<T>& done) {
    const int status = finish_output(output_, "standard output", exit_done);
    return done ? status : report_entry(arguments.pool, done.error());
  }

 private:
  Output output_{STDOUT_FILENO};
  std::string line_;
};

int run_tag(const VersionArguments& arguments) {
  return with_map(arguments, Access::existing, [&](TextMap& map) {
    auto version = map.tag();
    if (!version) return report_entry(arguments.pool, version.error());
    fmt::print("{}\n", *version);
    return int{exit_done};
  });
}

int run_versions(const VersionArguments& arguments) {
  return with_map(arguments, Access::read, [&](TextMap& map) {
    auto versions = map.versions();
    if (!versions) return report_entry(arguments.pool, versions.error());
    if (versions->last < versions->first) return int{exit_negative};
    fmt::print("{}\t{}\n", versions->first, versions->last);
    return int{exit_done};
  });
}

int run_history(const VersionArguments& arguments) {
  return with_map(arguments, Access::read, [&](TextMap& map) {
    catch_interrupts();
    Lines lines;
    auto entries =
        map.history(arguments.key, [&](Version version, const std::optional<Bytes>& value) {
          lines.word(std::to_string(version)).word(value ? "\t+" : "\t-");
          if (value) lines.field(*value);
          return lines.end();
        });
    const int status = lines.finish(arguments, entries);
    return entries && *entries == 0 ? int{exit_negative} : status;
  });
}

int run_snapshot(const VersionArguments& arguments) {
  return with_map(arguments, Access::read, [&](TextMap& map) {
    catch_interrupts();
    Lines lines;
    std::string name;
    auto entries = map.scan_at(arguments.version, arguments.range, [&](Bytes key, Bytes value) {
      name.clear();
      escape(key, name);
      return lines.word(name).field(value).end();
    });
    return lines.finish(arguments, entries);
  });
}

int run_diff(const VersionArguments& arguments) {
  return with_map(arguments, Access::read, [&](TextMap& map) {
    catch_interrupts();
    Lines lines;
    auto keys = map.diff(
        arguments.version, arguments.other, arguments.range,
        [&](Bytes key, const std::optional<Bytes>& before, const std::optional<Bytes>& after) {
          bool more = true;
          if (before) more = lines.word("-").field(key).field(*before).end();
          if (after) more = lines.word("+").field(key).field(*after).end();
          return more;
        });
    return lines.finish(arguments, keys);
  });
}

int run_trim(const VersionArguments& arguments) {
  return with_map(arguments, Access::existing, [&](TextMap& map) {
    auto first = map.trim(arguments.version);
    if (!first) return report_entry(arguments.pool, first.error());
    fmt::print("{}\n", *first);
    return int{exit_done};
  });
}

int run_rollback(const VersionArguments& arguments) {
  return with_map(arguments, Access::existing, [&](TextMap& map) {
    const Status s = map.rollback(arguments.version);
    return s.ok() ? int{exit_done} : report_entry(arguments.pool, s);
  });
}

using Run = int (*)(const VersionArguments&);

// Registers a command that takes the pool, the map and what `takes` adds.
void add_command(CLI::App& app, Action& action, const char* name, const char* help,
                 const char* footer, Run run, bool reads,
                 void (*takes)(CLI::App&, VersionArguments&)) {
  auto arguments = std::make_shared<VersionArguments>();
  CLI::App* command = app.add_subcommand(name, help);
  add_path(*command, arguments->pool);
  takes(*command, *arguments);
  add_map(*command, arguments->pool);
  add_opening(*command, arguments->pool);
  if (reads) {
    add_read_only(*command, arguments->pool);
  } else {
    add_durability(*command, arguments->pool);
  }
  command->footer(footer);
  command->callback([&action, arguments, run] { action = [=] { return run(*arguments); }; });
}

void add_version(CLI::App& command, const char* name, std::uint64_t& version, const char* help) {
  add_count(command, name, version, 1, ~std::uint64_t{0}, help)->required();
}
void takes_nothing(CLI::App&, VersionArguments&) {}
void takes_key(CLI::App& command, VersionArguments& arguments) { add_key(command, arguments.key); }
void takes_version(CLI::App& command, VersionArguments& arguments) {
  add_version(command, "VERSION", arguments.version, "a number that tag printed");
}
void takes_range(CLI::App& command, VersionArguments& arguments) {
  takes_version(command, arguments);
  add_range(command, arguments.range);
}
void takes_versions(CLI::App& command, VersionArguments& arguments) {
  add_version(command, "FROM", arguments.version, "a number that tag printed");
  add_version(command, "TO", arguments.other, "another number that tag printed");
  add_range(command, arguments.range);
}

}  // namespace

void register_version_commands(CLI::App& app, Action& action) {
  add_command(app, action, "tag", "close the open version of a map, and print its number",
              R"(
The number reads the state that the map has now, whatever is written later, until the version is
trimmed. Only for maps of engine pskiplist: put, load or create with --engine pskiplist make one.

EXAMPLES
  perdure put layers.perdure conv1 0.25 --engine pskiplist
  V=$(perdure tag layers.perdure)
  perdure get layers.perdure conv1 --version $V)",
              run_tag, false, takes_nothing);
  add_command(app, action, "versions", "print the first and the last version that can be read",
              R"(
Prints first<TAB>last. Status 1 if no version is closed. Every number from first to last can be
read, also one that no tag returned: after a kill and after a rollback some numbers are skipped, and
read as the state that the writes before them left. The map does not list the numbers that tags
returned.

EXAMPLES
  perdure versions layers.perdure
  perdure versions layers.perdure --map weights)",
              run_versions, true, takes_nothing);
  add_command(app, action, "history", "print the values of a key, version by version",
              R"(
Prints version<TAB>+<TAB>value, or version<TAB>- if the key was removed. There is one line for every
version in which the key was written, the oldest first and the open version last. Values are escaped
as perdure scan does. Status 1 if the key was never written.

EXAMPLES
  perdure history layers.perdure conv1)",
              run_history, true, takes_key);
  add_command(app, action, "snapshot", "print the entries of a version, in key order",
              R"(
Prints key<TAB>value lines, as perdure scan does. perdure load reads them.

EXAMPLES
  perdure snapshot layers.perdure 7
  perdure snapshot layers.perdure 7 --prefix conv --limit 10)",
              run_snapshot, true, takes_range);
  add_command(app, action, "diff", "print the keys that differ between two versions, in key order",
              R"(
Prints -<TAB>key<TAB>value for an entry of FROM that TO lacks, and +<TAB>key<TAB>value for an entry
of TO that FROM lacks. A key whose value has changed gets both lines.

EXAMPLES
  perdure diff layers.perdure 7 9
  perdure diff layers.perdure 7 9 --prefix conv)",
              run_diff, true, takes_versions);
  add_command(app, action, "trim", "forget the versions below VERSION and free their space",
              R"(
Prints the first version that can still be read.

EXAMPLES
  perdure trim layers.perdure 7)",
              run_trim, false, takes_version);
  add_command(app, action, "rollback", "make the state of VERSION the present one",
              R"(
Everything written since then is lost, in one step. Later versions read as this one. The open
version is closed and reads as this one, too: perdure versions prints its number as the last.

EXAMPLES
  perdure rollback layers.perdure 7)",
              run_rollback, false, takes_version);
}

}  // namespace perdure::cli
