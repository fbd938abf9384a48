// What the commands share: exit statuses, the options that several of them take, how a pool is
// opened and how a failure is told. Each command registers itself with CLI11 and leaves what it has
// to do in `Action`, which main runs once the whole command line is known to be right.
#pragma once

#include <perdure/perdure.h>
#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "text_map.h"

namespace perdure::cli {

// Scripts rely on these numbers.
enum ExitStatus : int {
  exit_done = 0,
  exit_negative = 1,  // not found, or check found a violation
  exit_usage = 2,
  exit_failure = 3,  // cannot open, I/O, corruption
};

using Action = std::function<int()>;

void register_pool_commands(CLI::App& app, Action& action);     // create drop sync compact check
void register_inspect_commands(CLI::App& app, Action& action);  // info list stats
void register_entry_commands(CLI::App& app, Action& action);    // put get del
void register_scan_commands(CLI::App& app, Action& action);     // scan dump
void register_version_commands(CLI::App& app, Action& action);  // tag history snapshot diff ..
void register_load_command(CLI::App& app, Action& action);      // load

// The map that `load` keeps its progress in; names that begin with a dot are the tool's own.
inline constexpr std::string_view kLoadMap = ".load";
// Forgets how far files were loaded into `map`: what they put there is gone.
Status forget_loads(Pool& pool, std::string_view map);

// ---- options ------------------------------------------------------------------------------------

struct PoolArguments {
  std::string path;
  std::string map = "default";
  std::optional<Engine> engine;          // absent: the map's own, phast for a new one
  std::optional<Durability> durability;  // absent: that of the last open, `auto` for a new pool
  std::optional<std::uint64_t> max_size;
  // Of a new map; an existing one must have those that were given.
  std::optional<MapTypes> key_type;    // only what concerns keys
  std::optional<MapTypes> value_type;  // only what concerns values
  // Of a new map, as MapOptions; absent: the engine's default.
  std::uint64_t capacity = 0;
  std::optional<std::uint32_t> partition_bits;
  std::optional<std::uint32_t> partition_shift;
  std::uint64_t buckets = 0;
  bool no_auto_shrink = false;
  std::uint64_t recovery_threads = 0;  // one per core
  std::uint64_t background_threads = 1;
  bool verbose = false;
  bool read_only = false;
  bool json = false;
};

void add_path(CLI::App& command, PoolArguments& arguments);
void add_map(CLI::App& command, PoolArguments& arguments);
void add_engine(CLI::App& command, PoolArguments& arguments);
void add_durability(CLI::App& command, PoolArguments& arguments);
// How a new map is laid out: --capacity and what its engine has.
void add_layout(CLI::App& command, PoolArguments& arguments);
// An option of one engine for a map of another: CLI::ValidationError. For a command's callback.
void require_layout_fits(const PoolArguments& arguments);
// Of every command that opens a pool: threads, and --verbose.
void add_opening(CLI::App& command, PoolArguments& arguments);
void add_max_size(CLI::App& command, PoolArguments& arguments);
void add_types(CLI::App& command, PoolArguments& arguments);
void add_read_only(CLI::App& command, PoolArguments& arguments);
// A number of at least `least` and at most `most`.
CLI::Option* add_count(CLI::App& command, const char* name, std::uint64_t& target,
                       std::uint64_t least, std::uint64_t most, const char* help);
void add_json(CLI::App& command, PoolArguments& arguments);
void add_range(CLI::App& command, TextMap::Range& range);  // --from --to --prefix --limit --reverse
void add_key(CLI::App& command, std::string& key);

// "64M" is 64 MiB; nothing if it is not a number with at most one of the suffixes K, M, G and T.
std::optional<std::uint64_t> parse_size(const std::string& text);

// ---- pools --------------------------------------------------------------------------------------

enum class Access : std::uint8_t {
  existing,  // the pool must exist
  create,    // made if it is absent
  must_create,
  read,     // as `existing`; a file that may not be written is looked at without a lock
  check,    // as `read`; one that is looked at may be damaged
  damaged,  // read only, and as much of a damaged or changing pool as can be
};

Expected<Pool> open_pool(const PoolArguments& arguments, Access access,
                         bool accept_untrusted = false);
// What a map that the arguments make would be.
MapInfo new_map_info(const PoolArguments& arguments);
// The map that the arguments name, whatever its types and engine are; made, if `create`, with the
// types that they name (default: bytes). invalid_argument if it exists with others.
Expected<TextMap> open_map(Pool& pool, const PoolArguments& arguments, bool create);
// Closes the pool. Answers `status`, or exit_failure, said on standard error, if that fails.
int close_pool(Pool& pool, const PoolArguments& arguments, int status,
               const CloseOptions& options = {});
// Of a command that looks a few entries up: it does not wait for the recovery of a killed pool.
inline constexpr CloseOptions kCloseAtOnce{.finish_recovery = false};

// ---- output -------------------------------------------------------------------------------------

// `perdure: FILE: what is wrong; what to do` on standard error. Answers exit_failure.
int report(const std::string& path, const Status& status);
// The same for what the tool itself found out; `message` is all after "FILE: ".
int report(const std::string& path, std::string_view message, int status = exit_failure);
// `report` for a map that could not be opened: a missing one is "not found", not a failure.
int report_map(const PoolArguments& arguments, const Status& status);
// `report` for what was done with a map: a key or value that is none of its types is exit_usage.
int report_entry(const PoolArguments& arguments, const Status& status);

void print_json(const nlohmann::ordered_json& object);
std::string human_bytes(std::uint64_t bytes);
std::string with_commas(std::uint64_t number);

// Buffered bytes to a file descriptor. A reader that went away (`perdure scan ... | head`) is no
// error: from then on everything is dropped, and `closed()` says that more work is pointless.
class Output {
 public:
  explicit Output(int fd) : fd_(fd) { buffer_.reserve(kBuffer); }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(std::string_view bytes);
  bool flush();  // false: a write failed
  bool closed() const noexcept { return error_ != 0; }
  // 0, or the errno of the write that failed. EPIPE is a reader that went away.
  int error() const noexcept { return error_; }

 private:
  static constexpr std::size_t kBuffer = 256 << 10;
  void write_out(std::string_view bytes);

  int fd_;
  int error_ = 0;
  std::string buffer_;
};

// Flushes, and says on standard error what went wrong. Answers `status` or exit_failure.
int finish_output(Output& output, const std::string& name, int status);

// ---- signals ------------------------------------------------------------------------------------

// From here on the first SIGINT or SIGTERM only sets what interrupted() answers; a second one
// kills.
void catch_interrupts();
bool interrupted() noexcept;

}  // namespace perdure::cli
