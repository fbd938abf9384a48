// The parts that commands share: exit statuses, options that several commands take, the opening of
// a pool, and error messages. Each command registers itself with CLI11 and stores what it will do
// in `Action`. main() runs the action once the whole command line is valid.
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

// Scripts depend on these numbers.
enum ExitStatus : int {
  exit_done = 0,
  exit_negative = 1,  // the key or map was not found, or check found a violation
  exit_usage = 2,
  exit_failure = 3,  // everything else: cannot open, full, I/O, corruption
  exit_busy = 4,     // another process has the pool: the same command may work later
  exit_lost = 5,     // salvage: what could be read was written, and something is lost
};

using Action = std::function<int()>;

void register_pool_commands(CLI::App& app, Action& action);     // create remove drop ..
void register_inspect_commands(CLI::App& app, Action& action);  // info list stats
void register_entry_commands(CLI::App& app, Action& action);    // put get del
void register_scan_commands(CLI::App& app, Action& action);     // scan dump salvage
void register_version_commands(CLI::App& app, Action& action);  // tag versions history ..
void register_load_command(CLI::App& app, Action& action);      // load
void register_apply_command(CLI::App& app, Action& action);     // apply
void register_backup_commands(CLI::App& app, Action& action);   // backup restore

// The map in which `load` keeps its progress. Names that begin with a dot belong to the tool.
inline constexpr std::string_view kLoadMap = ".load";
// Deletes the progress of all loads into `map`, whose entries were dropped.
Status forget_loads(Pool& pool, std::string_view map);

// ---- options ------------------------------------------------------------------------------------

struct PoolArguments {
  std::string path;
  std::string map = "default";
  std::optional<Engine> engine;          // absent: that of the map; a new one gets phast
  std::optional<Durability> durability;  // absent: that of the last open; `auto` for a new pool
  std::optional<std::uint64_t> max_size;
  // The types of a new map. An existing map must have those that are given.
  std::optional<MapTypes> key_type;    // only the fields of keys
  std::optional<MapTypes> value_type;  // only the fields of values
  // MapOptions of a new map. Absent: the engine's default.
  std::uint64_t capacity = 0;
  std::optional<std::uint32_t> partition_bits;
  std::optional<std::uint32_t> partition_shift;
  std::uint64_t buckets = 0;
  bool no_auto_shrink = false;
  std::uint64_t recovery_threads = 0;  // 0: one per core
  std::uint64_t background_threads = 1;
  double wait = 0;  // seconds, for a pool that another process has open
  bool interleave = false;
  bool verbose = false;
  bool read_only = false;
  bool json = false;
};

void add_path(CLI::App& command, PoolArguments& arguments);
void add_map(CLI::App& command, PoolArguments& arguments);
void add_engine(CLI::App& command, PoolArguments& arguments);
void add_durability(CLI::App& command, PoolArguments& arguments);
// The layout of a new map: --capacity and the options of its engine.
void add_layout(CLI::App& command, PoolArguments& arguments);
// Throws CLI::ValidationError if an option of one engine is given for a map of another. For a
// command's callback.
void require_layout_fits(const PoolArguments& arguments);
// Options of every command that opens a pool: threads and --verbose.
void add_opening(CLI::App& command, PoolArguments& arguments);
// Of a new pool, unless `help` says what else.
CLI::Option* add_max_size(CLI::App& command, PoolArguments& arguments, const char* help = nullptr);
void add_types(CLI::App& command, PoolArguments& arguments);
// For a command that only reads. Refuses --durability, which would change the mode of the pool.
void add_read_only(CLI::App& command, PoolArguments& arguments);
// A number from `least` to `most`.
CLI::Option* add_count(CLI::App& command, const char* name, std::uint64_t& target,
                       std::uint64_t least, std::uint64_t most, const char* help);
// A number that may be negative.
CLI::Option* add_delta(CLI::App& command, const char* name, std::int64_t& target, const char* help);
void add_json(CLI::App& command, PoolArguments& arguments);
void add_range(CLI::App& command, TextMap::Range& range);  // --from --to --prefix --limit --reverse
void add_key(CLI::App& command, std::string& key);

// Parses a size: "64M" is 64 MiB. Returns nothing unless `text` is a number with at most one of the
// suffixes K, M, G and T.
std::optional<std::uint64_t> parse_size(const std::string& text);

// ---- pools --------------------------------------------------------------------------------------

enum class Access : std::uint8_t {
  existing,  // the pool must exist
  create,    // created if it is absent
  must_create,
  read,     // as `existing`; a file without write permission is opened read-only
  check,    // as `read`; a pool that is opened read-only may be damaged
  damaged,  // read-only, and as much of a damaged or changing pool as can be read
};

Expected<Pool> open_pool(const PoolArguments& arguments, Access access,
                         bool accept_untrusted = false);
// ok unless the pool exists and --max-size is not its maximum. For a command that creates an absent
// pool.
// Errors: invalid_argument.
Status require_max_size(const PoolArguments& arguments);
// Describes the map that the arguments create.
MapInfo new_map_info(const PoolArguments& arguments);
// Opens the map that the arguments name, of any types and engine. With `create`, creates an absent
// map with the types that they name (default: bytes).
// Errors: invalid_argument if the map has other types.
Expected<TextMap> open_map(Pool& pool, const PoolArguments& arguments, bool create);
// Closes the pool. Returns `status`. If the close fails, reports that and returns exit_failure.
int close_pool(Pool& pool, const PoolArguments& arguments, int status);
// For a command that only reads: it does not wait for the recovery of a killed pool. Returns
// `status`. If the close fails, warns.
int close_read_pool(Pool& pool, const PoolArguments& arguments, int status);

int run_backup_info(const PoolArguments& arguments);  // of a folder

// ---- output -------------------------------------------------------------------------------------

// Opens /dev/null in place of each of descriptors 0 to 2 that is closed: a file that gets such a
// number would get what the command prints. Returns exit_done, or reports an error.
int open_standard_files();
// Refuses a pool, or a part of one, as standard output or error. Returns exit_done, or reports it.
int refuse_own_outputs();
// Writes out what fmt::print() has not written yet. `failed`: the errno of a write that failed, or
// 0. Returns `status`, or reports that output is lost.
int finish_standard_output(int status, int failed = 0);

// What a file, or a terminal, gets for `text`. A terminal would obey the control characters that a
// key, a value or a name may have. So they are replaced by \xHH there, except newline and tab.
std::string shown_on(int fd, std::string_view text);
// Prints on standard output what may contain names, keys or values.
void print_text(std::string_view text);
// Prints on standard error. An error is ignored: there is no other place to tell it.
void say(std::string_view text);
// Prints `perdure: FILE: what is wrong; what to do` on standard error. Returns exit_failure, or
// exit_busy.
int report(const std::string& path, const Status& status);
// The same for an error that the tool itself has found. `message` is all after "FILE: ".
int report(const std::string& path, std::string_view message, int status = exit_failure);
// As report(), for a map that could not be opened: an absent map returns exit_negative.
int report_map(const PoolArguments& arguments, const Status& status);
// As report(), for an operation on a map: a key or value that does not fit its types returns
// exit_usage.
int report_entry(const PoolArguments& arguments, const Status& status);
// As report(), for an output that check_output() or check_place() refuses: returns exit_usage,
// unless a file cannot be read.
int report_output(const std::string& path, const Status& status);
// Returns exit_failure. `reason`: an errno.
int cannot_write(const std::string& name, int reason);
// How messages name an input: "-" is standard input.
std::string input_name(const std::string& file);
// Returns exit_done unless a file is a pool, or a part of one, which no command takes as its input.
int refuse_own_input(const std::string& name, int fd);

void print_json(const nlohmann::ordered_json& object);
void print_row(std::string_view name, std::string_view value);
std::string human_bytes(std::uint64_t bytes);
std::string utc_time(std::uint64_t unix_ns);  // "2026-11-27 21:50:00.250 UTC"
std::string with_commas(std::uint64_t number);

// Writes bytes to a file descriptor, through a buffer; to a terminal as shown_on() says. A reader
// that went away (`perdure scan ... | head`) is no error: later output is dropped, and `closed()`
// tells the command to stop.
class Output {
 public:
  explicit Output(int fd);
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(std::string_view bytes);
  bool flush();  // returns false if a write failed
  bool closed() const noexcept { return error_ != 0; }
  // The errno of the write that failed, or 0. EPIPE: the reader went away.
  int error() const noexcept { return error_; }

 private:
  static constexpr std::size_t kBuffer = 256 << 10;
  void write_out(std::string_view bytes);

  int fd_;
  bool terminal_;
  int error_ = 0;
  std::string buffer_;
};

// Flushes. Returns `status`; if the flush fails, reports that and returns exit_failure.
int finish_output(Output& output, const std::string& name, int status);

// ---- signals ------------------------------------------------------------------------------------

// From now on the first SIGINT or SIGTERM only makes interrupted() return true. A second one ends
// the process.
void catch_interrupts();
bool interrupted() noexcept;

}  // namespace perdure::cli
