// create, resize, remove, drop, sync, compact, check: commands on a whole pool.
#include <unistd.h>

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "commands.h"
#include "progress.h"

namespace perdure::cli {

namespace {

struct CheckArguments {
  PoolArguments pool;
  bool deep = false;
  bool accept = false;
};

int run_create(const PoolArguments& arguments) {
  auto pool = open_pool(arguments, Access::must_create);
  if (!pool) return report(arguments.path, pool.error());
  auto map = open_map(*pool, arguments, true);
  if (!map) {  // no file may stay, or the corrected command would find one
    ::unlink(arguments.path.c_str());
    return close_pool(*pool, arguments, report_entry(arguments, map.error()));
  }
  const auto info = pool->info();
  if (!info) return close_pool(*pool, arguments, report(arguments.path, info.error()));
  if (const int status = close_pool(*pool, arguments, exit_done)) return status;
  if (arguments.json) {
    print_json({{"path", arguments.path},
                {"uuid", info->uuid},
                {"map", arguments.map},
                {"key_type", key_type_name(map->info())},
                {"value_type", value_type_name(map->info())},
                {"durability", durability_name(info->durability)},
                {"medium", medium_name(info->medium)},
                {"max_bytes", info->max_bytes}});
  } else {
    print_text(fmt::format("created {}: map '{}', durability {} on {}, at most {}\n",
                           arguments.path, arguments.map, durability_name(info->durability),
                           medium_name(info->medium), human_bytes(info->max_bytes)));
  }
  return exit_done;
}

int run_resize(const PoolArguments& arguments) {
  const auto before = Pool::inspect(arguments.path);
  const Status resized = Pool::resize(arguments.path, *arguments.max_size);
  if (!resized.ok()) return report_entry(arguments, resized);
  const auto after = Pool::inspect(arguments.path);
  if (!before || !after) {
    return report(arguments.path, before ? after.error() : before.error());
  }
  if (arguments.json) {
    print_json({{"path", arguments.path},
                {"old_max_bytes", before->max_bytes},
                {"max_bytes", after->max_bytes}});
  } else {
    fmt::print("resized {}: at most {}, before {}\n", arguments.path, human_bytes(after->max_bytes),
               human_bytes(before->max_bytes));
  }
  return exit_done;
}

int run_remove(const PoolArguments& arguments) {
  const Status removed = destroy(arguments.path);
  if (!removed.ok()) return report_entry(arguments, removed);
  if (arguments.json) {
    print_json({{"path", arguments.path}, {"removed", true}});
  } else {
    fmt::print("removed {} and all that belonged to it\n", arguments.path);
  }
  return exit_done;
}

// There is no default: what is dropped is gone.
int ask_for_map(const PoolArguments& arguments) {
  const auto info = Pool::inspect(arguments.path);
  if (!info) return report(arguments.path, info.error());
  std::string names;
  for (const MapInfo& map : info->maps) {
    if (map.name.starts_with('.')) continue;
    names += (names.empty() ? "the pool has " : ", ") + map.name;
  }
  return report(arguments.path,
                fmt::format("drop removes a map for good, so name it; --map NAME is required: {}",
                            names.empty() ? "the pool has no map" : names),
                exit_usage);
}

int run_drop(const PoolArguments& arguments) {
  if (arguments.map.empty()) return ask_for_map(arguments);
  auto pool = open_pool(arguments, Access::existing);
  if (!pool) return report(arguments.path, pool.error());
  Status dropped = pool->drop(arguments.map);
  if (dropped.ok()) dropped = forget_loads(*pool, arguments.map);
  if (!dropped.ok()) return close_pool(*pool, arguments, report_map(arguments, dropped));
  if (const int status = close_pool(*pool, arguments, exit_done)) return status;
  if (arguments.json) {
    print_json({{"path", arguments.path}, {"dropped", arguments.map}});
  } else {
    print_text(
        fmt::format("dropped map '{}'; perdure compact returns its space to the file "
                    "system\n",
                    arguments.map));
  }
  return exit_done;
}

int run_sync(const PoolArguments& arguments) {
  auto pool = open_pool(arguments, Access::existing);
  if (!pool) return report(arguments.path, pool.error());
  if (const Status synced = pool->sync(); !synced.ok()) {
    return close_pool(*pool, arguments, report(arguments.path, synced));
  }
  const auto info = pool->info();
  if (const int status = close_pool(*pool, arguments, exit_done)) return status;
  if (arguments.json) {
    print_json(
        {{"path", arguments.path}, {"synced", true}, {"file_bytes", info ? info->file_bytes : 0}});
  } else {
    fmt::print("synced: the whole file is written back; a copy of it will be trusted\n");
  }
  return exit_done;
}

int run_compact(const PoolArguments& arguments) {
  auto pool = open_pool(arguments, Access::existing);
  if (!pool) return report(arguments.path, pool.error());
  auto given_back = pool->compact();
  if (!given_back) {
    return close_pool(*pool, arguments, report(arguments.path, given_back.error()));
  }
  const auto info = pool->info();
  if (const int status = close_pool(*pool, arguments, exit_done)) return status;
  if (arguments.json) {
    print_json({{"path", arguments.path},
                {"given_back_bytes", *given_back},
                {"file_bytes", info ? info->file_bytes : 0}});
  } else {
    fmt::print("returned {} to the file system\n", human_bytes(*given_back));
  }
  return exit_done;
}

void print_report(const CheckArguments& arguments, const CheckReport& found) {
  if (arguments.pool.json) {
    auto violations = nlohmann::ordered_json::array();
    for (const auto& violation : found.violations) violations.push_back(violation);
    print_json({{"path", arguments.pool.path},
                {"ok", found.ok()},
                {"deep", arguments.deep},
                {"entries", found.entries},
                {"objects", found.objects},
                {"leaked_blocks", found.leaked_blocks},
                {"violation_count", found.violation_count},
                {"violations", std::move(violations)}});
    return;
  }
  for (const auto& violation : found.violations) {
    print_text(fmt::format("violation: {}\n", violation));
  }
  if (found.violation_count > found.violations.size()) {
    fmt::print("and {} more\n", found.violation_count - found.violations.size());
  }
  const std::string counts = fmt::format("{} entries, {} objects checked",
                                         with_commas(found.entries), with_commas(found.objects));
  if (!found.ok()) {
    // Leaked blocks are not counted while a map cannot be read.
    fmt::print("NOT OK: {} violation{}; {}{}\n", with_commas(found.violation_count),
               found.violation_count == 1 ? "" : "s", counts,
               found.leaked_blocks == 0
                   ? ""
                   : fmt::format(", {} leaked blocks", with_commas(found.leaked_blocks)));
    return;
  }
  fmt::print("ok: {}{}, {} leaked blocks\n", counts,
             arguments.deep ? ", every key and checksum verified" : "",
             with_commas(found.leaked_blocks));
}

// A script that asked for JSON gets an object also if the pool cannot be opened.
int cannot_check(const CheckArguments& arguments, const Status& status) {
  if (arguments.pool.json) {
    print_json(
        {{"path", arguments.pool.path}, {"ok", false}, {"error", std::string(status.message())}});
  }
  return report(arguments.pool.path, status);
}

// The number of entries of the tool's own maps.
std::uint64_t own_entries(Pool& pool) {
  std::uint64_t entries = 0;
  const auto stats = pool.stats();
  if (!stats) return entries;
  for (const MapStats& map : stats->maps) {
    if (std::string_view(map.name).starts_with('.')) entries += map.entries;
  }
  return entries;
}

int run_check(CheckArguments arguments) {
  // A pool is accepted only after a deep check, so its report is shown.
  arguments.deep = arguments.deep || arguments.accept;
  auto pool = open_pool(arguments.pool, Access::check, arguments.accept);
  if (!pool && pool.error() == StatusCode::corruption) {
    auto damaged = open_pool(arguments.pool, Access::damaged, arguments.accept);
    if (damaged) pool = std::move(damaged);
  }
  if (!pool) return cannot_check(arguments, pool.error());
  Progress progress(0, 0);
  const auto show = [](void* bar, std::uint64_t done, std::uint64_t total) {
    static_cast<Progress*>(bar)->show_bytes(done, total);
  };
  auto found =
      pool->check({.deep = arguments.deep, .progress = show, .progress_context = &progress});
  progress.clear();
  if (!found) return close_pool(*pool, arguments.pool, cannot_check(arguments, found.error()));
  found->entries -= std::min(found->entries, own_entries(*pool));
  print_report(arguments, *found);
  return close_pool(*pool, arguments.pool, found->ok() ? exit_done : exit_negative);
}

void register_create(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<PoolArguments>();
  CLI::App* command = app.add_subcommand("create", "create a new pool with one empty map");
  add_path(*command, *arguments);
  add_engine(*command, *arguments);
  add_layout(*command, *arguments);
  add_max_size(*command, *arguments);
  add_durability(*command, *arguments);
  add_opening(*command, *arguments);
  add_map(*command, *arguments);
  add_types(*command, *arguments);
  add_json(*command, *arguments);
  command->footer(R"(
Numbers are decimal on the command line and in TSV files.

EXAMPLES
  perdure create inventory.perdure
  perdure create counters.perdure --key u64 --value u64
  perdure create users.perdure --engine level --capacity 10000000
  perdure create /dev/shm/cache.perdure --max-size 4G --durability process
  perdure create /mnt/pmem/orders.perdure --durability power --map orders)");
  command->callback([&action, arguments] {
    require_layout_fits(*arguments);
    action = [=] { return run_create(*arguments); };
  });
}

void register_resize(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<PoolArguments>();
  CLI::App* command = app.add_subcommand("resize", "raise the size that a pool may grow to");
  add_path(*command, *arguments);
  add_max_size(*command, *arguments,
               "the new size that the pool may grow to, with K, M, G or T; more than before")
      ->required();
  add_json(*command, *arguments);
  command->footer(R"(
No process may have the pool open. Nothing is moved, and no disk space is taken: the file grows when
entries need it. A crash leaves the old size or the new one. A pool cannot be made smaller. A build
of perdure that does not have this command refuses the pool afterwards.

EXAMPLES
  perdure resize inventory.perdure --max-size 256G
  perdure resize inventory.perdure --max-size 256G --json)");
  command->callback([&action, arguments] { action = [=] { return run_resize(*arguments); }; });
}

void register_remove(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<PoolArguments>();
  CLI::App* command = app.add_subcommand("remove", "remove a pool with all that belongs to it");
  add_path(*command, *arguments);
  add_json(*command, *arguments);
  command->footer(R"(
No process may have the pool open. Of a pool with durability `buffered` that was not closed, this
removes log and live image, too, also in another folder. If the file is gone, it removes what is
left beside it, unless that belongs to a pool in the same folder that was renamed: then it removes
nothing, and names that pool. If PATH is a live image that was set aside (see perdure info), it
removes that image alone. A damaged pool is removed like any other. What is no part of a pool stays:
if a file of another kind lies in the folder of the log, nothing is removed. If the command is
interrupted, run it again. There is no way back.

EXAMPLES
  perdure remove inventory.perdure
  perdure remove inventory.perdure-live.unknown-91c25a0a4b4f3a11)");
  command->callback([&action, arguments] { action = [=] { return run_remove(*arguments); }; });
}

void register_check(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<CheckArguments>();
  CLI::App* command = app.add_subcommand("check", "verify the structure of a pool, or all of it");
  add_path(*command, arguments->pool);
  command->add_flag("--deep", arguments->deep,
                    "also verify each key and the checksum of each record");
  command->add_flag("--accept", arguments->accept,
                    "serve a pool that is not trusted (see perdure info) again, if a full check\n"
                    "(--deep) finds no violation");
  add_read_only(*command, arguments->pool);
  add_opening(*command, arguments->pool);
  add_json(*command, arguments->pool);
  command->footer(R"(
Verifies headers, root directory, extent table, the leaves, table or nodes of each map against their
image in memory, and that no block is leaked or used twice. If the pool was closed, the open
verifies the checksums of leaves and tables. --deep also reads every key and record. Only --deep
finds damaged records of phast, level and pskiplist. If a copy of the header was damaged in a pool
that was closed, that is a violation, too: nothing is lost, because there are two copies, and any
open for writing, such as that of this command, writes both anew. A terminal shows the progress. A
pool that the open refuses as damaged is opened once more, for reading only. With --read-only the
last durable cut of a pool is checked that another process has open in durability buffered.

Status 0: no violation. Status 1: violations, one on a line. Status 3 with violations: damage of a
map of engine clevel or as. Status 3 without: the pool cannot be opened, for example because its
headers or its extent table are damaged. --accept is for pools that are not trusted; it repairs
nothing.

EXAMPLES
  perdure check inventory.perdure
  perdure check inventory.perdure --deep --json
  perdure check restored.perdure --accept)");
  command->callback([&action, arguments] { action = [=] { return run_check(*arguments); }; });
}

}  // namespace

void register_pool_commands(CLI::App& app, Action& action) {
  register_create(app, action);
  register_resize(app, action);
  register_remove(app, action);
  const auto add = [&](const char* name, const char* help, const char* footer,
                       int (*run)(const PoolArguments&)) {
    auto arguments = std::make_shared<PoolArguments>();
    CLI::App* command = app.add_subcommand(name, help);
    add_path(*command, *arguments);
    if (run == run_drop) {
      arguments->map.clear();
      command->add_option("--map", arguments->map, "the map to remove; required")
          ->type_name("NAME");
    }
    add_durability(*command, *arguments);
    add_opening(*command, *arguments);
    add_json(*command, *arguments);
    command->footer(footer);
    command->callback([&action, arguments, run] { action = [=] { return run(*arguments); }; });
  };
  add("drop", "remove a map and all its entries",
      R"(
Without --map nothing is removed: the command prints the maps that there are, and ends with status
2. There is no way back.

EXAMPLES
  perdure drop inventory.perdure --map people
  perdure drop inventory.perdure --map default   (the map of the commands without --map))",
      run_drop);
  add("sync", "write the whole file back, so that a copy, or a reboot, finds it complete",
      R"(
EXAMPLES
  perdure sync inventory.perdure && cp inventory.perdure backup/)",
      run_sync);
  add("compact", "shrink tables that are too large and return free space to the file system",
      R"(
EXAMPLES
  perdure compact inventory.perdure
  perdure compact inventory.perdure --json)",
      run_compact);
  register_check(app, action);
}

}  // namespace perdure::cli
