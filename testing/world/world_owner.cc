// perdure-world-owner: has a pool open and does what it is told (scripts/world.py).
//
//   perdure-world-owner FILE [engine=NAME] [durability=NAME] [create|existing|read-only]
//                       [sigbus] [memory=FOLDER]
//
// Prints one line for the open, and one for each line that it reads: the name of a status code, and
// numbers or the message. The text map `m` has the keys PREFIX00000000, PREFIX00000001 and so on:
//   put PREFIX N [ROUND]   how many were put; the value says key and round
//   erase PREFIX N         how many were erased
//   has PREFIX N [ROUND]   how many are there, and how many of these have another value
//   sync, fold, resume, check (how many violations), backup FOLDER
//   drop                   the kernel forgets the pages of its mappings that it takes for clean
//   close                  closes the pool; the program ends
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

#include <perdure/backup.h>
#include <perdure/perdure.h>

#include "page_out.h"

namespace {

using namespace perdure;

using Words = Map<std::string_view, std::string_view>;

int say(const Status& s, const std::string& text = {}) {
  const std::string message(s.ok() ? "" : s.message());
  std::printf("%s %s%s%s\n", status_code_name(s.code()), text.c_str(), text.empty() ? "" : " ",
              message.c_str());
  std::fflush(stdout);
  return s.ok() ? 0 : 1;
}

void log_line(void*, LogLevel level, std::string_view message) {
  std::cerr << log_level_name(level) << ": " << message << '\n';
}

std::string key_of(const std::string& prefix, std::uint64_t i) {
  const std::string digits = std::to_string(i);
  return prefix + std::string(8 - std::min<std::size_t>(digits.size(), 8), '0') + digits;
}
std::string value_of(const std::string& key, std::uint64_t round) {
  return key + " " + std::to_string(round) + " secret" + std::string(80, 'v');
}

// The keys that a command is about.
struct Range {
  std::string prefix;
  std::uint64_t keys = 0;
  std::uint64_t round = 0;
};

// Calls change(key) for each key until it fails.
template <class F>
int change_all(const Range& range, F&& change) {
  for (std::uint64_t i = 0; i < range.keys; ++i) {
    const Found done = change(key_of(range.prefix, i));
    if (!done.ok()) return say(done.status(), std::to_string(i));
  }
  return say({}, std::to_string(range.keys));
}

int count(Words& words, const Range& range) {
  std::uint64_t found = 0, wrong = 0;
  for (std::uint64_t i = 0; i < range.keys; ++i) {
    const std::string key = key_of(range.prefix, i);
    const auto value = words.get(key);
    if (!value) return say(value.error(), std::to_string(found) + " " + std::to_string(wrong));
    if (!*value) continue;
    ++found;
    if (**value != value_of(key, range.round)) ++wrong;
  }
  return say({}, std::to_string(found) + " " + std::to_string(wrong));
}

int check(Pool& pool) {
  const auto report = pool.check({.deep = true});
  if (!report) return say(report.error());
  return say({}, std::to_string(report->violation_count) + " " + std::string(report->first()));
}

// Returns false after a close.
bool obey(Pool& pool, Words& words, const std::string& path, const std::string& line) {
  std::istringstream in(line);
  std::string what;
  Range range;
  in >> what >> range.prefix >> range.keys >> range.round;
  if (what == "put") {
    change_all(range,
               [&](const std::string& key) { return words.put(key, value_of(key, range.round)); });
  } else if (what == "erase") {
    change_all(range, [&](const std::string& key) { return words.erase(key); });
  } else if (what == "has") {
    count(words, range);
  } else if (what == "sync") {
    say(pool.sync());
  } else if (what == "fold") {
    say(pool.fold_log());
  } else if (what == "resume") {
    say(pool.resume_log());
  } else if (what == "check") {
    check(pool);
  } else if (what == "backup") {
    const auto made = pool.backup(range.prefix);
    say(made ? Status() : made.error());
  } else if (what == "drop") {
    say({}, std::to_string(page_out(path)));
  } else if (what == "close") {
    say(pool.close());
    return false;
  } else {
    say(Status::format(StatusCode::invalid_argument, "there is no command %s", what.c_str()));
  }
  return true;
}

// Returns false if there is no such option.
bool take(const std::string& option, PoolOptions& pool, MapOptions& map) {
  const std::string value = option.substr(option.find('=') + 1);
  if (option.starts_with("engine=")) {
    map.engine = engine_named(value);
    return map.engine.has_value();
  }
  if (option.starts_with("durability=")) {
    pool.durability = value == "buffered" ? Durability::buffered : Durability::process;
    return value == "buffered" || value == "process";
  }
  if (option.starts_with("memory=")) {
    static std::string folder;
    folder = value;
    pool.buffered.memory_directory = folder;
  } else if (option == "sigbus") {
    pool.handle_sigbus = true;
  } else if (option == "create") {
    pool.mode = OpenMode::create_new;
  } else if (option == "existing") {
    pool.mode = OpenMode::existing;
  } else if (option == "read-only") {
    pool.mode = map.mode = OpenMode::read_only;
  } else {
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  PoolOptions options{.log = log_line};
  MapOptions map_options;
  bool known = argc > 1;
  for (int i = 2; i < argc && known; ++i) known = take(argv[i], options, map_options);
  if (!known) {
    std::fprintf(stderr, "usage: perdure-world-owner FILE [OPTION ..]\n");
    return 2;
  }
  const std::string path = argv[1];
  auto pool = Pool::open(path, options);
  if (!pool) return say(pool.error());
  auto words = pool->map<std::string_view, std::string_view>("m", map_options);
  if (!words) return say(words.error());
  say({});
  for (std::string line; std::getline(std::cin, line);) {
    if (!obey(*pool, *words, path, line)) return 0;
  }
  ::_exit(0);  // without a close
}
