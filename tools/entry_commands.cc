// put, get, incr, del: one entry, read from the command line and printed without escapes.
#include <unistd.h>

#include <memory>

#include "commands.h"

namespace perdure::cli {

namespace {

struct EntryArguments {
  PoolArguments pool;
  std::string key;
  std::string value;
  std::int64_t delta = 1;     // incr only
  std::uint64_t version = 0;  // get only; 0: the present state
};

// Calls act(map), which returns the status of the command, with the map, which is created if it is
// absent. `value` is of the type of the value that the command writes.
template <class Act>
int in_new_map(const EntryArguments& arguments, Bytes value, Act&& act) {
  // Before anything is created: a new map of the wrong types would stay.
  if (const Status s = TextMap::accepts(new_map_info(arguments.pool), arguments.key, value);
      !s.ok() && (arguments.pool.key_type || arguments.pool.value_type)) {
    return report_entry(arguments.pool, s);
  }
  if (const Status s = require_max_size(arguments.pool); !s.ok()) {
    return report_entry(arguments.pool, s);
  }
  auto pool = open_pool(arguments.pool, Access::create);
  if (!pool) return report(arguments.pool.path, pool.error());
  auto map = open_map(*pool, arguments.pool, true);
  if (!map) return close_pool(*pool, arguments.pool, report_map(arguments.pool, map.error()));
  return close_pool(*pool, arguments.pool, act(*map));
}

int run_put(const EntryArguments& arguments) {
  return in_new_map(arguments, arguments.value, [&](TextMap& map) {
    const Found put = map.put(arguments.key, arguments.value);
    return put.ok() ? exit_done : report_entry(arguments.pool, put.status());
  });
}

int run_incr(const EntryArguments& arguments) {
  return in_new_map(arguments, "0", [&](TextMap& map) -> int {
    const auto sum = map.add(arguments.key, arguments.delta);
    if (!sum) return report_entry(arguments.pool, sum.error());
    Output output(STDOUT_FILENO);
    output.write(*sum);
    output.write("\n");
    return finish_output(output, "standard output", exit_done);
  });
}

int run_get(const EntryArguments& arguments) {
  auto pool = open_pool(arguments.pool, Access::read);
  if (!pool) return report(arguments.pool.path, pool.error());
  auto map = open_map(*pool, arguments.pool, false);
  if (!map) return close_pool(*pool, arguments.pool, report_map(arguments.pool, map.error()));
  Output output(STDOUT_FILENO);
  const auto print = [&](Bytes value) {
    output.write(value);
    output.write("\n");
  };
  const Found found = arguments.version == 0 ? map->read(arguments.key, print)
                                             : map->read(arguments.key, arguments.version, print);
  int status = exit_negative;
  if (!found.ok()) {
    status = report_entry(arguments.pool, found.status());
  } else if (found.present()) {
    status = finish_output(output, "standard output", exit_done);
  }
  return close_read_pool(*pool, arguments.pool, status);
}

int run_del(const EntryArguments& arguments) {
  auto pool = open_pool(arguments.pool, Access::existing);
  if (!pool) return report(arguments.pool.path, pool.error());
  auto map = open_map(*pool, arguments.pool, false);
  if (!map) return close_pool(*pool, arguments.pool, report_map(arguments.pool, map.error()));
  const Found erased = map->erase(arguments.key);
  int status = exit_negative;
  if (!erased.ok()) {
    status = report_entry(arguments.pool, erased.status());
  } else if (erased.present()) {
    status = exit_done;
  }
  return close_pool(*pool, arguments.pool, status);
}

}  // namespace

void register_entry_commands(CLI::App& app, Action& action) {
  const auto add = [&](const char* name, const char* help, const char* footer, bool creates,
                       int (*run)(const EntryArguments&)) {
    auto arguments = std::make_shared<EntryArguments>();
    CLI::App* command = app.add_subcommand(name, help);
    add_path(*command, arguments->pool);
    add_key(*command, arguments->key);
    if (run == run_put) {
      command
          ->add_option("VALUE", arguments->value,
                       "bytes, taken literally; in a map of word values, a decimal number")
          ->required();
    } else if (run == run_incr) {
      add_delta(*command, "NUMBER", arguments->delta, "what is added; it may be negative (1)");
    }
    if (creates) {
      add_types(*command, arguments->pool);
      add_engine(*command, arguments->pool);
      add_max_size(*command, arguments->pool);
    }
    add_map(*command, arguments->pool);
    add_opening(*command, arguments->pool);
    if (run == run_get) {
      add_count(*command, "--version", arguments->version, 1, ~std::uint64_t{0},
                "the value that the key had in version N; see perdure tag --help");
      add_read_only(*command, arguments->pool);
    } else {
      add_durability(*command, arguments->pool);
    }
    command->footer(footer);
    command->callback([&action, arguments, run] { action = [=] { return run(*arguments); }; });
  };
  add("put", "insert or replace one entry; creates the pool and the map if they are absent",
      R"(
--engine, --max-size, --key and --value apply to a new pool or map. Leave them out for one that
exists: another engine, another maximum, or other types, are refused.

EXAMPLES
  perdure put inventory.perdure apple 3
  perdure put inventory.perdure "user:7" "Ada Lovelace" --map people
  perdure put inventory.perdure 2026 7 --map visits --key u32 --value u64
  perdure put inventory.perdure -- -key --value     (after -- nothing is an option))",
      true, run_put);
  add("get", "print the value of a key and a newline; status 1 if the key is absent",
      R"(
EXAMPLES
  perdure get inventory.perdure apple
  perdure get inventory.perdure "user:7" --map people || echo absent
  perdure get layers.perdure conv1 --version 7)",
      false, run_get);
  add("incr", "add to the number that a key has, and print the sum; an absent key counts as 0",
      R"(
Creates the pool and the map if they are absent. The value is a decimal number: in a map of byte
strings its text. The increment is durable when the command ends with status 0. After a kill it has
happened entirely or not at all.

EXAMPLES
  perdure incr counters.perdure visits
  perdure incr counters.perdure visits 10
  perdure incr counters.perdure stock:7 -- -3
  perdure incr counters.perdure 2026 --map visits --key u32 --value u64)",
      true, run_incr);
  add("del", "remove one entry; status 1 if the key is absent",
      R"(
EXAMPLES
  perdure del inventory.perdure apple
  perdure del inventory.perdure "user:7" --map people)",
      false, run_del);
}

}  // namespace perdure::cli
