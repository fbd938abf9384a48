// Options, the opening of pools, and error messages, for all commands.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <limits>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "commands.h"
#include "pool/output_check.h"

namespace perdure::cli {

namespace {

std::string engine_names() {
  std::string names;
  for (const EngineInfo& info : engines()) {
    names += (names.empty() ? "" : ", ") + std::string(info.name);
  }
  return names;
}
constexpr std::array kDurabilities = {Durability::automatic, Durability::process, Durability::power,
                                      Durability::buffered, Durability::emulated};

// The remedy, for messages that name none.
std::string advice(StatusCode code, const std::string& path) {
  switch (code) {
    case StatusCode::invalid_argument:
      return "perdure COMMAND --help lists what is allowed";
    case StatusCode::not_found:
      return "perdure create " + path + " makes a pool";
    case StatusCode::exists:
      return "choose another path, or remove the file first";
    case StatusCode::busy:
      return "wait for that process or stop it; info and list work meanwhile";
    case StatusCode::corruption:
      return "restore a copy of the file";
    case StatusCode::unsupported_format:
      return "use the release that wrote it";
    case StatusCode::untrusted:
      return "perdure check " + path + " --accept, or restore a copy";
    case StatusCode::pool_full:
      return "free space on its disk; if the pool has its maximum, delete entries, or raise it "
             "with "
             "perdure resize";
    case StatusCode::out_of_memory:
      return "free some memory and try again";
    case StatusCode::io:
      return "check the permissions, the disk and the kernel's log";
    case StatusCode::poisoned:
      return "check the disk, and open the pool again; in the modes `power` and `buffered` what "
             "was durable is safe, in another mode restore a copy";
    case StatusCode::unsupported:
      return "choose what this build and this medium support";
    case StatusCode::read_only:
      return "make the file writable";
    case StatusCode::hash_overflow:
      return "use keys that were not made to collide, or an engine that keeps order";
    case StatusCode::conflict:
      return "read the keys again";
    case StatusCode::live_missing:
      return "bring the live image back, or perdure check " + path + " --accept";
    case StatusCode::ok:
      break;
  }
  return "try again";
}

template <class Values, class Name>
auto parse_name(const std::string& text, const Values& values, Name name) {
  const auto found = std::find_if(values.begin(), values.end(), [&](auto value) {
    return name(value) == std::string_view(text);
  });
  return found == values.end() ? std::nullopt : std::optional(*found);
}

template <class T, class Parse>
CLI::Option* add_parsed(CLI::App& command, const char* name, std::optional<T>& target, Parse parse,
                        const std::string& expected, const std::string& help) {
  return command.add_option_function<std::string>(
      name,
      [=, &target](const std::string& text) {
        target = parse(text);
        if (!target) throw CLI::ValidationError(name, "'" + text + "' is not " + expected);
      },
      help);
}

template <class T>
CLI::Option* add_integer(CLI::App& command, const char* name, T& target, T least, T most,
                         const std::string& expected, const char* help) {
  return command
      .add_option_function<std::string>(
          name,
          [=, &target](const std::string& text) {
            const char* end = text.data() + text.size();
            const auto [rest, error] = std::from_chars(text.data(), end, target);
            if (error == std::errc() && rest == end && target >= least && target <= most) return;
            throw CLI::ValidationError(name, fmt::format("'{}' is not {}", text, expected));
          },
          help)
      ->type_name("N");
}

}  // namespace

// ---- options ------------------------------------------------------------------------------------

void add_path(CLI::App& command, PoolArguments& arguments) {
  command.add_option("PATH", arguments.path, "the pool's file")->required();
}

void add_map(CLI::App& command, PoolArguments& arguments) {
  command.add_option("--map", arguments.map, "the map inside the pool (default: default)")
      ->type_name("NAME");
}

void add_engine(CLI::App& command, PoolArguments& arguments) {
  add_parsed(command, "--engine", arguments.engine, engine_named,
             "an engine (" + engine_names() + ")",
             "index design of a new map (default: phast): " + engine_names())
      ->type_name("ENGINE");
}

void add_durability(CLI::App& command, PoolArguments& arguments) {
  add_parsed(
      command, "--durability", arguments.durability,
      [](const std::string& text) { return parse_name(text, kDurabilities, durability_name); },
      "a durability (auto, process, buffered, power, emulated)",
      "what the effect of a command survives: process, buffered, power, emulated or auto;\n"
      "stays for later opens (default: auto, the mode of the last open; of a new pool power on\n"
      "persistent memory, buffered on a local disk, process elsewhere)")
      ->type_name("D");
}

CLI::Option* add_max_size(CLI::App& command, PoolArguments& arguments, const char* help) {
  if (help == nullptr) {
    help = "the size that a new pool may grow to, with K, M, G or T (default: 64G)";
  }
  return add_parsed(
             command, "--max-size", arguments.max_size,
             [](const std::string& text) {
               const auto size = parse_size(text);
               return size >= kMinPoolSize && size <= kMaxPoolSize ? size : std::nullopt;
             },
             "a size from 1M to 4T, such as 512M (suffixes K, M, G, T)", help)
      ->type_name("SIZE");
}

void add_types(CLI::App& command, PoolArguments& arguments) {
  const auto typed = [](bool (*parse)(Bytes, MapTypes&)) {
    return [parse](const std::string& text) {
      MapTypes spec{};
      return parse(text, spec) ? std::optional(spec) : std::nullopt;
    };
  };
  add_parsed(command, "--key", arguments.key_type, typed(parse_key_type),
             "a type of keys (bytes, u8, u16, u32, u64, i8, i16, i32, i64, array:1 to array:16)",
             "type of a new map's keys: bytes, u8 to u64, i8 to i64, array:1 to array:16 (default: "
             "bytes)")
      ->type_name("TYPE");
  add_parsed(command, "--value", arguments.value_type, typed(parse_value_type),
             "a type of values (bytes, u8, u16, u32, u64, array:9 to array:15)",
             "type of a new map's values: bytes, u8 to u64, array:9 to array:15 (default: bytes)")
      ->type_name("TYPE");
}

void add_read_only(CLI::App& command, PoolArguments& arguments) {
  command.add_flag("--read-only", arguments.read_only,
                   "write nothing; of a pool that another process has open in durability buffered\n"
                   "read the last durable cut (implied if the file may not be written)");
  command
      .add_option_function<std::string>(
          "--durability",
          [](const std::string&) {
            throw CLI::ValidationError(
                "--durability",
                "this command only reads, and a pool keeps its mode; state a mode for a command "
                "that writes, such as sync");
          })
      ->group("");  // not in the help
}

CLI::Option* add_count(CLI::App& command, const char* name, std::uint64_t& target,
                       std::uint64_t least, std::uint64_t most, const char* help) {
  const std::string range = most != ~std::uint64_t{0} ? fmt::format("from {} to {}", least, most)
                                                      : fmt::format("of {} or more", least);
  return add_integer(command, name, target, least, most, "a number " + range, help);
}
CLI::Option* add_delta(CLI::App& command, const char* name, std::int64_t& target,
                       const char* help) {
  using Limits = std::numeric_limits<std::int64_t>;
  return add_integer(command, name, target, Limits::min(), Limits::max(), "a number of 64 bits",
                     help);
}

void add_layout(CLI::App& command, PoolArguments& arguments) {
  const auto number = [&](const char* name, std::optional<std::uint32_t>& target,
                          std::uint32_t most, const char* help) {
    add_parsed(
        command, name, target,
        [most](const std::string& text) -> std::optional<std::uint32_t> {
          const auto value = parse_size(text);
          if (!value || *value > most) return std::nullopt;
          return static_cast<std::uint32_t>(*value);
        },
        fmt::format("a number from 0 to {}", most), help)
        ->type_name("N");
  };
  add_count(command, "--capacity", arguments.capacity, 0, ~std::uint64_t{0},
            "expected number of entries of a new map, a hint (default: unknown)");
  number("--partition-bits", arguments.partition_bits, 16,
         "phast: 2^N partitions by key prefix (default: by the capacity, or 4)");
  number("--partition-shift", arguments.partition_shift, 64,
         "phast: lowest key bit of the prefix, for unsigned keys (default: the topmost bits)");
  add_count(command, "--buckets", arguments.buckets, 2, ~std::uint64_t{0},
            "level: buckets of the top level, a power of two and a lower bound (default: 32)");
  command.add_flag("--no-auto-shrink", arguments.no_auto_shrink,
                   "level: do not shrink a table that is less than a quarter full");
}

void require_layout_fits(const PoolArguments& arguments) {
  const Engine engine = arguments.engine.value_or(Engine::phast);
  const auto require = [&](bool given, const char* option, Engine needed) {
    if (!given || engine == needed) return;
    throw CLI::ValidationError(option, fmt::format("is for a new map of engine {}, not {}",
                                                   engine_name(needed), engine_name(engine)));
  };
  require(arguments.partition_bits.has_value(), "--partition-bits", Engine::phast);
  require(arguments.partition_shift.has_value(), "--partition-shift", Engine::phast);
  require(arguments.buckets != 0, "--buckets", Engine::level);
  require(arguments.no_auto_shrink, "--no-auto-shrink", Engine::level);
}

void add_opening(CLI::App& command, PoolArguments& arguments) {
  add_count(command, "--recovery-threads", arguments.recovery_threads, 1, 256,
            "threads of the recovery at open (default: one per core)");
  add_count(command, "--background-threads", arguments.background_threads, 0, kMaxBackgroundThreads,
            "threads that rehash and sweep beside the command (default: 1)");
  command
      .add_option("--wait", arguments.wait,
                  "how long to wait for a pool that another process has open (default: 0)")
      ->type_name("SECONDS")
      ->check([](const std::string& text) {
        double seconds = 0;
        const bool fits =
            CLI::detail::lexical_cast(text, seconds) && seconds >= 0 && seconds <= 1e6;
        return fits ? std::string() : "'" + text + "' is not from 0 to 1000000 seconds";
      });
  command.add_flag("--interleave", arguments.interleave,
                   "take new memory from all nodes of the machine in turn (NUMA)");
  command.add_flag("--verbose", arguments.verbose,
                   "print the log on standard error: recovery, resizes, syncs, refusals");
}

void add_json(CLI::App& command, PoolArguments& arguments) {
  command.add_flag("--json", arguments.json, "print one JSON object");
}

void add_range(CLI::App& command, TextMap::Range& range) {
  // Not bound to the optionals directly, because CLI11 would read an empty key as "none".
  const auto bound = [&](const char* name, std::optional<std::string>& target, const char* help) {
    command
        .add_option_function<std::string>(
            name, [&target](const std::string& key) { target = key; }, help)
        ->type_name("KEY");
  };
  bound("--from", range.from, "first key");
  bound("--to", range.to, "first key behind the range; it is not printed");
  command.add_option("--prefix", range.prefix, "only keys that begin with P")->type_name("P");
  add_count(command, "--limit", range.limit, 0, ~std::uint64_t{0}, "at most N entries");
  command.add_flag("--reverse", range.reverse, "in descending order");
}

void add_key(CLI::App& command, std::string& key) {
  command
      .add_option("KEY", key, "bytes, taken literally; in a map of integer keys, a decimal number")
      ->required();
}

std::optional<std::uint64_t> parse_size(const std::string& text) {
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest == text.data()) return std::nullopt;
  if (rest == end) return number;
  constexpr std::string_view kSuffixes = "KMGT";
  const std::size_t step = kSuffixes.find(static_cast<char>(*rest & ~0x20));
  if (step == std::string_view::npos || rest + 1 != end) return std::nullopt;
  const auto shift = 10 * (step + 1);
  if (number > (~std::uint64_t{0} >> shift)) return std::nullopt;
  return number << shift;
}

// ---- pools --------------------------------------------------------------------------------------

namespace {

// Whether the open would take the mode `power` from an existing pool.
bool leaves_power(const PoolArguments& arguments, const PoolOptions& options) {
  if (options.mode == OpenMode::read_only || options.durability == Durability::automatic ||
      options.durability == Durability::power) {
    return false;
  }
  const auto info = Pool::inspect(arguments.path);
  return info && info->durability == Durability::power;
}

}  // namespace

Expected<Pool> open_pool(const PoolArguments& arguments, Access access, bool accept_untrusted) {
  PoolOptions options;
  options.accept_untrusted = accept_untrusted;
  const bool reads = access == Access::read || access == Access::check;
  const bool unwritable =
      ::access(arguments.path.c_str(), R_OK) == 0 && ::access(arguments.path.c_str(), W_OK) != 0;
  options.mode = OpenMode::existing;
  if (access == Access::create) options.mode = OpenMode::open_or_create;
  if (access == Access::must_create) options.mode = OpenMode::create_new;
  if (arguments.read_only || access == Access::damaged || (reads && unwritable)) {
    options.mode = OpenMode::read_only;
  }
  options.allow_damage = access == Access::damaged || access == Access::check;
  options.handle_sigbus = true;
  if (arguments.max_size) options.max_size = *arguments.max_size;
  if (arguments.durability) options.durability = *arguments.durability;
  options.open_timeout_ms = static_cast<std::uint32_t>(std::ceil(arguments.wait * 1000));
  options.recovery_threads = static_cast<std::uint32_t>(arguments.recovery_threads);
  options.background_threads = static_cast<std::uint32_t>(arguments.background_threads);
  options.interleave = arguments.interleave;
  if (arguments.verbose) {
    options.log = [](void*, LogLevel level, std::string_view message) {
      say(fmt::format("perdure: {}: {}\n", log_level_name(level), message));
    };
  }
  // The log says it, too. Without --verbose it must not go unnoticed, because the mode stays.
  const bool weaker = !arguments.verbose && leaves_power(arguments, options);
  auto pool = Pool::open(arguments.path, options);
  const bool starved =
      !pool && (pool.error() == StatusCode::pool_full || pool.error() == StatusCode::poisoned);
  if (starved && reads) {
    options.mode = OpenMode::read_only;
    if (auto read = Pool::open(arguments.path, options)) pool = std::move(read);
  }
  if (pool && weaker) {
    say(fmt::format(
        "perdure: warning: {}: its durability was `power` and is `{}` from now on, so a "
        "power failure can lose it; to go back, run perdure sync {} --durability power\n",
        arguments.path, durability_name(options.durability), arguments.path));
  }
  // The library's message names the process, and not the option of the commands that open a pool.
  if (!pool && pool.error() == StatusCode::busy && arguments.wait == 0) {
    const std::string why(pool.error().message());
    return fail(StatusCode::busy, "%s; --wait SECONDS waits for that", why.c_str());
  }
  return pool;
}

Status require_max_size(const PoolArguments& arguments) {
  if (!arguments.max_size) return {};
  const auto info = Pool::inspect(arguments.path);
  // Without an existing pool there is nothing to compare with. The open reports other errors.
  if (!info) return {};
  // The maximum is a number of whole extents.
  if (*arguments.max_size / info->extent_bytes * info->extent_bytes == info->max_bytes) return {};
  return Status::format(
      StatusCode::invalid_argument,
      "its maximum is %llu bytes, not the %llu of --max-size; leave out --max-size, or raise the "
      "maximum with perdure resize",
      static_cast<unsigned long long>(info->max_bytes),
      static_cast<unsigned long long>(*arguments.max_size));
}

MapInfo new_map_info(const PoolArguments& arguments) {
  MapInfo info;
  info.name = arguments.map;
  if (const auto& key = arguments.key_type) {
    info.key_kind = key->key_kind;
    info.is_signed = key->is_signed;
    info.key_bytes = key->key_bytes;
  }
  if (const auto& value = arguments.value_type) {
    info.value_kind = value->value_kind;
    info.value_bytes = value->value_bytes;
  }
  return info;
}

namespace {

// The refusal of another engine than the map has, in terms of the command line.
Status in_options_of(const Pool& pool, const PoolArguments& arguments, Status refused) {
  if (refused != StatusCode::invalid_argument || !arguments.engine) return refused;
  auto maps = pool.list();
  if (!maps) return refused;
  for (const MapInfo& map : *maps) {
    if (map.name != arguments.map || map.engine == *arguments.engine) continue;
    return Status::format(StatusCode::invalid_argument,
                          "map '%s' is of engine %s, not %s; leave out --engine, or use another "
                          "--map",
                          map.name.c_str(), std::string(engine_name(map.engine)).c_str(),
                          std::string(engine_name(*arguments.engine)).c_str());
  }
  return refused;
}

}  // namespace

Expected<TextMap> open_map(Pool& pool, const PoolArguments& arguments, bool create) {
  const MapInfo made = new_map_info(arguments);
  const MapTypes types{made.key_kind, made.value_kind, made.is_signed, made.key_bytes,
                       made.value_bytes};
  MapOptions options;
  options.mode = create ? OpenMode::open_or_create : OpenMode::existing;
  options.engine = arguments.engine;
  options.capacity = arguments.capacity;
  if (arguments.partition_bits) options.phast.partition_bits = *arguments.partition_bits;
  if (arguments.partition_shift) options.phast.partition_shift = *arguments.partition_shift;
  options.level = {.buckets = arguments.buckets, .auto_shrink = !arguments.no_auto_shrink};
  auto map = pool.untyped_map(arguments.map, options, create ? std::optional(types) : std::nullopt);
  if (!map) return fail(in_options_of(pool, arguments, std::move(map.error())));
  const MapInfo& found = map->info();
  const bool other_key = arguments.key_type &&
                         (found.key_kind != types.key_kind || found.key_bytes != types.key_bytes ||
                          found.is_signed != types.is_signed);
  const bool other_value = arguments.value_type && (found.value_kind != types.value_kind ||
                                                    found.value_bytes != types.value_bytes);
  if (other_key || other_value) {
    return fail(StatusCode::invalid_argument,
                "map '%s' exists with keys of type %s and values of type %s; leave out --key and "
                "--value, or name another map",
                found.name.c_str(), key_type_name(found).c_str(), value_type_name(found).c_str());
  }
  return TextMap(std::move(*map));
}

int close_pool(Pool& pool, const PoolArguments& arguments, int status) {
  if (const Status closed = pool.close(); !closed.ok()) {
    return report(arguments.path, closed);
  }
  return status;
}

int close_read_pool(Pool& pool, const PoolArguments& arguments, int status) {
  if (const Status closed = pool.close({.finish_recovery = false}); !closed.ok()) {
    say(fmt::format("perdure: warning: {}: cannot be closed, and stays as it was: {}\n",
                    arguments.path, std::string_view(closed.message())));
  }
  return status;
}

// ---- output -------------------------------------------------------------------------------------

int report(const std::string& path, const Status& status) {
  std::string message(status.message());
  if (message.starts_with(path + ": ")) message.erase(0, path.size() + 2);
  if (message.find(';') == std::string::npos) {
    message += "; ";
    message += advice(status.code(), path);
  }
  return report(path, message, status == StatusCode::busy ? exit_busy : exit_failure);
}

int report(const std::string& path, std::string_view message, int status) {
  say(fmt::format("perdure: {}: {}\n", path, message));
  return status;
}

int report_map(const PoolArguments& arguments, const Status& status) {
  if (status == StatusCode::not_found) {
    return report(arguments.path,
                  fmt::format("there is no map '{}'; perdure list {} lists those that exist",
                              arguments.map, arguments.path),
                  exit_negative);
  }
  return report_entry(arguments, status);
}

int report_entry(const PoolArguments& arguments, const Status& status) {
  return report_output(arguments.path, status);
}

int report_output(const std::string& path, const Status& status) {
  const int code = report(path, status);
  return status == StatusCode::invalid_argument ? exit_usage : code;
}

int cannot_write(const std::string& name, int reason) {
  return report(name, fmt::format("cannot write: {}; make room or choose another place",
                                  std::strerror(reason)));
}

std::string input_name(const std::string& file) { return file == "-" ? "standard input" : file; }

int refuse_own_input(const std::string& name, int fd) {
  const char* kind = own_kind(fd);
  if (kind == nullptr) return exit_done;
  return report(name, fmt::format("is {}; perdure dump POOL makes a text of it", kind), exit_usage);
}

void print_json(const nlohmann::ordered_json& object) {
  // A path may be no UTF-8, which JSON requires.
  const auto text = object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  fmt::print("{}\n", text);
}

std::string human_bytes(std::uint64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

void print_row(std::string_view name, std::string_view value) {
  print_text(fmt::format("{:<24}{}\n", name, value));
}

std::string utc_time(std::uint64_t unix_ns) {
  const auto seconds = static_cast<std::time_t>(unix_ns / 1'000'000'000);
  return fmt::format("{:%F %T}.{:03} UTC", fmt::gmtime(seconds), unix_ns / 1'000'000 % 1000);
}

std::string with_commas(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

Output::Output(int fd) : fd_(fd), terminal_(::isatty(fd) != 0) { buffer_.reserve(kBuffer); }

void Output::write(std::string_view bytes) {
  std::string shown;
  if (terminal_) bytes = shown = shown_on(fd_, bytes);
  if (buffer_.size() + bytes.size() > kBuffer) {
    flush();
    if (bytes.size() >= kBuffer) return write_out(bytes);
  }
  buffer_ += bytes;
}

bool Output::flush() {
  write_out(buffer_);
  buffer_.clear();
  return error_ == 0;
}

void Output::write_out(std::string_view bytes) {
  while (!bytes.empty() && error_ == 0) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      error_ = errno;
    } else if (interrupted()) {
      error_ = EPIPE;  // an interrupted command must not wait for a reader that does not read
    }
  }
}

int finish_output(Output& output, const std::string& name, int status) {
  if (output.flush() || output.error() == EPIPE) return status;
  return cannot_write(name, output.error());
}

}  // namespace perdure::cli
