// info, list, stats: properties and figures of a pool. The first two work while another process has
// it open, and stats if that is in durability buffered.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "commands.h"
#include "format/layout.h"

namespace perdure::cli {

namespace {

using Json = nlohmann::ordered_json;

struct ListArguments {
  PoolArguments pool;
  bool all = false;
  bool one = false;

  bool shows(const MapInfo& info) const {
    const std::string_view name = info.name;
    return one ? name == pool.map : all || !name.starts_with('.');
  }
};

// ---- words --------------------------------------------------------------------------------------

const char* kind_name(KeyKind kind) {
  if (kind == KeyKind::array) return "array";
  return kind == KeyKind::bytes ? "bytes" : "integer";
}
const char* kind_name(ValueKind kind) {
  if (kind == ValueKind::array) return "array";
  return kind == ValueKind::bytes ? "bytes" : "word";
}

const char* medium_words(const PoolInfo& info) {
  switch (info.medium) {
    case Medium::page:
      return info.filesystem.ends_with("unknown") ? "page cache, perhaps not over a local disk"
                                                  : "page cache over a block device";
    case Medium::volatile_ram:
      return "ordinary memory, lost with the machine";
    case Medium::cache_line:
      return "persistent memory, written back by cache line";
    case Medium::eadr:
      return "persistent memory whose CPU caches survive power loss";
    case Medium::network:
      return "network or user-space file system";
  }
  return "unknown";
}

// The guarantee for a power failure or a crash of the kernel (table in docs/durability.md).
const char* power_promise(const PoolInfo& info) {
  if (info.durability == Durability::power) return "nothing acknowledged is lost";
  if (info.durability == Durability::buffered) {
    return "it opens as it was at its last durable cut, at most a moment before";
  }
  if (info.durability == Durability::emulated) return "no guarantee (emulation only)";
  return "no guarantee; the next open detects it and refuses the file";
}

const char* state_words(const PoolInfo& info) {
  if (info.in_use) return "in use";
  if (info.clean && info.synced) return "closed, whole file written back";
  if (info.synced) return "open when it was synced, not written since";
  if (info.clean) return "closed";
  // Of a copy, or after a restart of the machine, the row `trusted` says why it is not closed.
  return info.trusted ? "not closed: its last process ended without a close" : "not closed";
}

// The stores that are known to be on the medium and not only in caches of the kernel.
const char* written_back_words(const PoolInfo& info) {
  if (!info.live_image.empty()) return "everything up to the last durable cut, in its log";
  return info.synced || info.weakest_mode == Durability::power
             ? "everything acknowledged"
             : "everything up to the last sync or close; not the stores since then";
}

// What a power failure at this moment would take.
std::string loss_words(const PoolInfo& info) {
  if (info.durability == Durability::buffered && !info.live_image.empty()) {
    if (info.durable_unix_ns == 0) return "what its last durable cut does not have";
    const std::uint64_t now = static_cast<std::uint64_t>(
        std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count());
    const std::uint64_t age = now - std::min(now, info.durable_unix_ns);
    return fmt::format("what changed since {}, {:.2f} s ago", utc_time(info.durable_unix_ns),
                       static_cast<double>(age) / 1e9);
  }
  if (info.medium == Medium::volatile_ram) return "everything: its files are lost with the machine";
  const bool durable = info.synced || info.weakest_mode == Durability::power;
  return durable ? "nothing that was acknowledged" : "everything: the next open refuses the file";
}

std::string owner_words(const PoolInfo& info) {
  if (!info.in_use) return "";
  const std::string host = info.owner_host.empty() ? "" : " on " + info.owner_host;
  return fmt::format(" by process {}{}", info.owner_pid, host);
}

// ---- info ---------------------------------------------------------------------------------------

Json to_json(const MapInfo& map) {
  return {{"name", map.name},
          {"engine", engine_name(map.engine)},
          {"engine_version", map.engine_version},
          {"key", kind_name(map.key_kind)},
          {"value", kind_name(map.value_kind)},
          {"signed", map.is_signed},
          {"key_type", key_type_name(map)},
          {"value_type", value_type_name(map)}};
}

Json to_json(const std::vector<MapInfo>& maps, const ListArguments& which) {
  Json array = Json::array();
  for (const MapInfo& map : maps) {
    if (which.shows(map)) array.push_back(to_json(map));
  }
  return array;
}

Json to_json(const std::vector<AsideImage>& images) {
  Json array = Json::array();
  for (const AsideImage& image : images) {
    array.push_back({{"path", image.path}, {"durable_unix_ns", image.durable_unix_ns}});
  }
  return array;
}

std::vector<int> bits_of(std::uint64_t features) {
  std::vector<int> bits;
  for (int bit = 0; bit < 64; ++bit) {
    if ((features >> bit & 1) != 0) bits.push_back(bit);
  }
  return bits;
}

Json to_json(const PoolInfo& info) {
  return {{"path", info.path},
          {"uuid", info.uuid},
          {"format_version", info.format_version},
          {"compatible_features", bits_of(info.compatible_features)},
          {"incompatible_features", bits_of(info.incompatible_features)},
          {"file_bytes", info.file_bytes},
          {"max_bytes", info.max_bytes},
          {"extent_bytes", info.extent_bytes},
          {"filesystem", info.filesystem},
          {"medium", medium_name(info.medium)},
          {"durability", durability_name(info.durability)},
          {"weakest_mode", durability_name(info.weakest_mode)},
          {"live", info.live_image},
          {"durable_unix_ns", info.durable_unix_ns},
          {"set_aside", to_json(info.aside_images)},
          {"power_failure_loses", loss_words(info)},
          {"flush_instruction", info.flush_instruction},
          {"survives_kill", true},
          {"survives_power_loss", info.durability == Durability::power},
          {"clean", info.clean},
          {"synced", info.synced},
          {"trusted", info.trusted},
          {"trust_note", info.trust_note},
          {"in_use", info.in_use},
          {"owner_pid", info.owner_pid},
          {"owner_host", info.owner_host},
          {"maps", to_json(info.maps, {.all = true})}};
}

// `names`: of the bits that this build knows, by number.
void print_features(const char* kind, std::uint64_t set, std::span<const char* const> names) {
  std::vector<std::string> words;
  std::vector<int> unknown;
  for (const int bit : bits_of(set)) {
    const auto number = static_cast<std::size_t>(bit);
    if (number < names.size()) {
      words.emplace_back(names[number]);
    } else {
      unknown.push_back(bit);
    }
  }
  if (!unknown.empty()) words.push_back(fmt::format("bits {}", fmt::join(unknown, ", ")));
  if (!words.empty()) print_row(kind, fmt::format("{}", fmt::join(words, ", ")));
}

void print_info(const PoolInfo& info) {
  print_row("pool", info.path);
  print_row("uuid", info.uuid);
  print_row("format", std::to_string(info.format_version));
  print_features("  compatible features", info.compatible_features, {});
  print_features("  incompatible features", info.incompatible_features, layout::kIncompatibleNames);
  print_row("size", fmt::format("{} of at most {}", human_bytes(info.file_bytes),
                                human_bytes(info.max_bytes)));
  print_row("medium", fmt::format("{}: {} ({})", medium_name(info.medium), medium_words(info),
                                  info.filesystem));
  // "none" in mode `process`, and if no process has the pool open.
  const std::string instruction = info.flush_instruction == "none"
                                      ? ""
                                      : fmt::format(" (write-back: {})", info.flush_instruction);
  print_row("durability", std::string(durability_name(info.durability)) + instruction);
  print_row("  process killed", "nothing acknowledged is lost");
  print_row("  OS crash, power loss", power_promise(info));
  print_row("  if it failed now", "it would lose " + loss_words(info));
  print_row("written back", written_back_words(info));
  if (!info.live_image.empty()) print_row("live image", info.live_image);
  print_row("state", state_words(info) + owner_words(info));
  for (const AsideImage& image : info.aside_images) {
    print_row("not used", fmt::format("{}, last cut {}; once the pool has what it must have: "
                                      "perdure remove {}",
                                      image.path, utc_time(image.durable_unix_ns), image.path));
  }
  print_row("trusted", info.trusted ? std::string("yes") : "NO: " + info.trust_note);
  for (const MapInfo& map : info.maps) {
    print_row("map", fmt::format("{}: {}, {} -> {}", map.name, engine_name(map.engine),
                                 key_type_name(map), value_type_name(map)));
  }
}

int run_info(const PoolArguments& arguments) {
  std::error_code ignored;
  if (std::filesystem::is_directory(arguments.path, ignored)) {
    const auto backup = inspect_backup(arguments.path);
    if (backup || backup.error() != StatusCode::not_found) return run_backup_info(arguments);
  }
  auto info = Pool::inspect(arguments.path);
  if (!info) return report(arguments.path, info.error());
  if (arguments.json) {
    print_json(to_json(*info));
  } else {
    print_info(*info);
  }
  return exit_done;
}

// ---- list ---------------------------------------------------------------------------------------

int run_list(const ListArguments& arguments) {
  auto info = Pool::inspect(arguments.pool.path);
  if (!info) return report(arguments.pool.path, info.error());
  const bool any = std::any_of(info->maps.begin(), info->maps.end(),
                               [&](const MapInfo& map) { return arguments.shows(map); });
  if (arguments.one && !any) {
    return report_map(arguments.pool, Status(StatusCode::not_found));
  }
  if (arguments.pool.json) {
    print_json({{"path", arguments.pool.path}, {"maps", to_json(info->maps, arguments)}});
    return exit_done;
  }
  for (const MapInfo& map : info->maps) {
    if (!arguments.shows(map)) continue;
    print_text(fmt::format("{}\t{}\t{}\t{}\n", map.name, engine_name(map.engine),
                           key_type_name(map), value_type_name(map)));
  }
  return exit_done;
}

// ---- stats --------------------------------------------------------------------------------------

Json to_json(const MapStats& map) {
  Json levels = Json::array();
  for (const LevelStats& level : map.levels) {
    levels.push_back({{"slots", level.slots}, {"entries", level.entries}});
  }
  Json resizes = Json::array();
  for (const ResizeStats& resize : map.resizes) {
    resizes.push_back({{"shrink", resize.shrink},
                       {"begin_ns", resize.begin_ns},
                       {"end_ns", resize.end_ns},
                       {"slots_before", resize.slots_before},
                       {"slots_after", resize.slots_after},
                       {"entries", resize.entries},
                       {"buckets", resize.buckets},
                       {"moved", resize.moved}});
  }
  return {{"name", map.name},
          {"engine", engine_name(map.engine)},
          {"entries", map.entries},
          {"load_factor", map.load_factor},
          {"height", map.height},
          {"leaves", map.leaves},
          {"inner_nodes", map.inner_nodes},
          {"pm_bytes", map.pm_bytes},
          {"dram_bytes", map.dram_bytes},
          {"scan_order_bytes", map.scan_order_bytes},
          {"splits", map.splits},
          {"merges", map.merges},
          {"levels", std::move(levels)},
          {"resizes", std::move(resizes)}};
}

Json to_json(const std::string& path, const PoolStats& stats) {
  Json maps = Json::array();
  for (const MapStats& map : stats.maps) maps.push_back(to_json(map));
  return {{"path", path},
          {"file_bytes", stats.file_bytes},
          {"disk_bytes", stats.disk_bytes},
          {"used_bytes", stats.used_bytes},
          {"max_bytes", stats.max_bytes},
          {"assigned_bytes", stats.assigned_bytes},
          {"free_bytes", stats.free_bytes},
          {"allocated_bytes", stats.allocated_bytes},
          {"punched_bytes", stats.punched_bytes},
          {"fragmentation", stats.fragmentation},
          {"heap_dram_bytes", stats.heap_dram_bytes},
          {"limbo_blocks", stats.limbo_blocks},
          {"epoch", stats.epoch},
          {"stalled_readers", stats.stalled_readers},
          {"recovery_ns", stats.recovery_ns},
          {"maps", std::move(maps)}};
}

// Figures of structures that the engine does not have are not printed.
void print_map_stats(const MapStats& map) {
  print_row("  entries", with_commas(map.entries));
  print_row("  in the pool", human_bytes(map.pm_bytes));
  print_row("  in DRAM", human_bytes(map.dram_bytes));
  const std::string full = fmt::format("{:.0f}% full", 100 * map.load_factor);
  if (map.leaves != 0) {
    print_row("  leaves", fmt::format("{} ({})", with_commas(map.leaves), full));
  } else if (!map.levels.empty() && map.load_factor != 0) {
    print_row("  table", full);
  }
  if (map.height != 0) print_row("  height", std::to_string(map.height));
  for (const LevelStats& level : map.levels) {
    print_row("  level",
              fmt::format("{} of {} slots", with_commas(level.entries), with_commas(level.slots)));
  }
  if (!map.resizes.empty()) print_row("  resizes", std::to_string(map.resizes.size()));
}

void print_stats(const std::string& path, const PoolStats& stats) {
  print_row("pool", path);
  print_row("used", fmt::format("{} of at most {} ({:.1f}%)", human_bytes(stats.used_bytes),
                                human_bytes(stats.max_bytes),
                                100 * static_cast<double>(stats.used_bytes) /
                                    static_cast<double>(stats.max_bytes)));
  print_row("file", human_bytes(stats.file_bytes));
  print_row("  on the medium", human_bytes(stats.disk_bytes));
  print_row("  assigned to maps", human_bytes(stats.assigned_bytes));
  print_row("  allocated",
            fmt::format("{} ({:.1f}% fragmentation)", human_bytes(stats.allocated_bytes),
                        100 * stats.fragmentation));
  print_row("  free", human_bytes(stats.free_bytes));
  print_row("DRAM of the heap", human_bytes(stats.heap_dram_bytes));
  print_row("recovery at open",
            fmt::format("{:.1f} ms", static_cast<double>(stats.recovery_ns) / 1e6));
  for (const MapStats& map : stats.maps) {
    print_text(fmt::format("map {} ({})\n", map.name, engine_name(map.engine)));
    print_map_stats(map);
  }
}

int run_stats(const PoolArguments& arguments) {
  auto info = Pool::inspect(arguments.path);
  if (!info) return report(arguments.path, info.error());
  // A map that changes while it is read looks damaged, so its figures cover what could be read.
  auto pool = open_pool(arguments, info->in_use ? Access::damaged : Access::read);
  if (!pool) return report(arguments.path, pool.error());
  auto counted = pool->stats();
  const auto listed = pool->list();
  if (!counted || !listed) {
    return close_pool(*pool, arguments,
                      report(arguments.path, !counted ? counted.error() : listed.error()));
  }
  const PoolStats& stats = *counted;
  std::vector<std::string> changing;
  for (const MapInfo& map : *listed) {
    const bool seen = std::any_of(stats.maps.begin(), stats.maps.end(), [&](const MapStats& other) {
      return other.name == map.name && !other.partial;
    });
    if (!seen) changing.push_back(map.name);
  }
  if (arguments.json) {
    Json object = to_json(arguments.path, stats);
    object["in_use"] = info->in_use;
    object["changing_maps"] = changing;
    print_json(object);
  } else {
    print_stats(arguments.path, stats);
    for (const std::string& name : changing) {
      print_text(
          fmt::format("map {}: it changed while it was read; its figures are incomplete\n", name));
    }
  }
  return close_pool(*pool, arguments, exit_done);
}

}  // namespace

void register_inspect_commands(CLI::App& app, Action& action) {
  const auto add = [&](const char* name, const char* help, const char* footer,
                       int (*run)(const PoolArguments&)) {
    auto arguments = std::make_shared<PoolArguments>();
    CLI::App* command = app.add_subcommand(name, help);
    add_path(*command, *arguments);
    if (run == run_stats) {
      add_read_only(*command, *arguments);
      add_opening(*command, *arguments);
    }
    add_json(*command, *arguments);
    command->footer(footer);
    command->callback([&action, arguments, run] { action = [=] { return run(*arguments); }; });
  };
  add("info", "print what the file is and what its medium guarantees",
      R"(
Takes no lock: works while another process has the pool open.

EXAMPLES
  perdure info inventory.perdure
  perdure info inventory.perdure --json
  perdure info /backups/inventory               (a folder that perdure backup has made))",
      run_info);
  add("stats", "print the size of the pool, and entries, space and memory of each map",
      R"(
Of a pool that another process has open in durability buffered: as of its last durable cut.

EXAMPLES
  perdure stats inventory.perdure
  perdure stats inventory.perdure --json)",
      run_stats);

  auto arguments = std::make_shared<ListArguments>();
  CLI::App* command = app.add_subcommand("list", "print the maps of a pool");
  add_path(*command, arguments->pool);
  command->add_option("--map", arguments->pool.map, "only this map; status 1 if there is none")
      ->type_name("NAME");
  command->add_flag("--all", arguments->all, "also print the tool's own maps (.load)");
  add_json(*command, arguments->pool);
  command->footer(R"(
Prints name<TAB>engine<TAB>type of keys<TAB>type of values.

EXAMPLES
  perdure list inventory.perdure
  perdure list inventory.perdure --map people --json)");
  command->callback([&action, arguments, command] {
    arguments->one = command->count("--map") > 0;
    action = [=] { return run_list(*arguments); };
  });
}

}  // namespace perdure::cli
