// scan, dump, salvage: print entries as text.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "commands.h"
#include "pool/output_check.h"
#include "tsv.h"

namespace perdure::cli {

namespace {

struct ScanArguments {
  PoolArguments pool;
  TextMap::Range range;
  std::string file;  // dump and salvage only
};

bool is_standard_output(const std::string& name) { return name.empty() || name == "-"; }

// Writes entries. Returns false if the output has no reader or a signal came.
class EntryWriter {
 public:
  explicit EntryWriter(Output& output) : output_(output) {}
  bool operator()(Bytes key, Bytes value) {
    line_.clear();
    escape(key, line_);
    line_ += '\t';
    escape(value, line_);
    line_ += '\n';
    output_.write(line_);
    return !output_.closed() && !interrupted();
  }

 private:
  Output& output_;
  std::string line_;
};

int run_scan(const ScanArguments& arguments) {
  auto pool = open_pool(arguments.pool, Access::read);
  if (!pool) return report(arguments.pool.path, pool.error());
  auto map = open_map(*pool, arguments.pool, false);
  if (!map) return close_pool(*pool, arguments.pool, report_map(arguments.pool, map.error()));
  catch_interrupts();
  Output output(STDOUT_FILENO);
  EntryWriter write(output);
  auto scanned = map->scan(arguments.range, write);
  int status = finish_output(output, "standard output", exit_done);
  if (!scanned) status = report_entry(arguments.pool, scanned.error());
  return close_read_pool(*pool, arguments.pool, status);
}

// A file that appears whole or not at all. It is written beside its name, synced, then renamed.
// What is no regular file (a FIFO, /dev/null) is written in place.
class DumpFile {
 public:
  DumpFile() = default;
  DumpFile(const DumpFile&) = delete;
  DumpFile& operator=(const DumpFile&) = delete;
  ~DumpFile() {
    if (fd_ >= 0 && fd_ != STDOUT_FILENO) ::close(fd_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }

  // Returns 0 or an errno.
  int open(const std::string& name) {
    if (is_standard_output(name)) {
      fd_ = STDOUT_FILENO;
      return 0;
    }
    struct stat existing{};
    const bool exists = ::stat(name.c_str(), &existing) == 0;
    if (exists && !S_ISREG(existing.st_mode)) {
      fd_ = ::open(name.c_str(), O_WRONLY | O_CLOEXEC);
      return fd_ >= 0 ? 0 : errno;
    }
    std::error_code error;
    target_ = std::filesystem::weakly_canonical(name, error);  // through a symbolic link
    if (error) target_ = name;
    // A file of that name may be there: of a process that was killed, or anything else.
    for (int i = 0; i < kNames && fd_ < 0; ++i) {
      temporary_ = fmt::format("{}.{}-{}.tmp", target_.string(), ::getpid(), i);
      fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (fd_ < 0 && errno != EEXIST) break;
    }
    if (fd_ < 0) {
      const int reason = errno;
      temporary_.clear();
      return reason;
    }
    if (exists) ::fchmod(fd_, existing.st_mode & 07777);
    return 0;
  }

  int fd() const noexcept { return fd_; }

  // Returns exit_done, or reports that what has its name by now must not be replaced.
  int check() const {
    if (temporary_.empty()) return exit_done;
    const Status s = check_output(target_.native());
    return s.ok() ? int{exit_done} : report_output(target_.native(), s);
  }
  // Makes the file appear under its name. Returns 0 or an errno.
  int commit() {
    if (temporary_.empty()) return 0;
    if (::fsync(fd_) != 0 || ::rename(temporary_.c_str(), target_.c_str()) != 0) return errno;
    temporary_.clear();
    const int folder = ::open(target_.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
      ::fsync(folder);
      ::close(folder);
    }
    return 0;
  }

 private:
  static constexpr int kNames = 16;
  int fd_ = -1;
  std::filesystem::path target_;
  std::string temporary_;
};

// Writes the file of a command. `fill(write)` passes the entries to `write`, and returns the status
// of the command; the file appears if it is exit_done or exit_lost.
template <class Fill>
int write_file(const ScanArguments& arguments, Fill&& fill) {
  DumpFile file;
  if (const int reason = file.open(arguments.file)) return cannot_write(arguments.file, reason);
  const std::string name = is_standard_output(arguments.file) ? "standard output" : arguments.file;
  catch_interrupts();
  Output output(file.fd());
  EntryWriter write(output);
  const int filled = fill(write);
  if (filled != exit_done && filled != exit_lost) return filled;
  if (interrupted()) return report(name, "interrupted, so it is incomplete; run it again");
  if (const int status = finish_output(output, name, exit_done)) return status;
  if (const int status = file.check()) return status;
  if (const int reason = file.commit()) return cannot_write(name, reason);
  return filled;
}

// Returns exit_done, or reports that the output is none.
int check_file(const ScanArguments& arguments) {
  if (is_standard_output(arguments.file)) return exit_done;
  const Status s = check_output(arguments.file);
  return s.ok() ? int{exit_done} : report_output(arguments.file, s);
}

int write_dump(const ScanArguments& arguments, TextMap& map) {
  std::uint64_t entries = 0;
  const int status = write_file(arguments, [&](EntryWriter& write) {
    auto written = map.for_each(write);
    if (!written) return report(arguments.pool.path, written.error());
    entries = *written;
    return int{exit_done};
  });
  if (status == exit_done && !is_standard_output(arguments.file)) {
    say(fmt::format("dumped {} entries to {}\n", with_commas(entries), arguments.file));
  }
  return status;
}

int run_dump(const ScanArguments& arguments) {
  if (const int status = check_file(arguments)) return status;
  auto pool = open_pool(arguments.pool, Access::read);
  if (!pool) return report(arguments.pool.path, pool.error());
  auto map = open_map(*pool, arguments.pool, false);
  if (!map) return close_pool(*pool, arguments.pool, report_map(arguments.pool, map.error()));
  return close_pool(*pool, arguments.pool, write_dump(arguments, *map));
}

// The map of a damaged pool, as its root directory describes it.
Expected<MapInfo> find_map(const Pool& pool, const std::string& name) {
  auto maps = pool.list();
  if (!maps) return fail(std::move(maps.error()));
  for (const MapInfo& map : *maps) {
    if (map.name == name) return map;
  }
  MapInfo absent;
  absent.name = name;
  return absent;
}

void say_lost(const CheckReport& found) {
  for (const auto& violation : found.violations) say(fmt::format("damage: {}\n", violation));
  if (found.violation_count > found.violations.size()) {
    say(fmt::format("and {} more\n", found.violation_count - found.violations.size()));
  }
}

int salvage_from(const ScanArguments& arguments, const Pool& pool) {
  auto map = find_map(pool, arguments.pool.map);
  if (!map) return report(arguments.pool.path, map.error());
  std::uint64_t entries = 0;
  bool reads_on = true;  // the reader of a pipe may have gone
  const int status = write_file(arguments, [&](EntryWriter& write) {
    auto found = TextMap::salvage(pool, *map, [&](Bytes key, Bytes value) {
      reads_on = reads_on && write(key, value);
      entries += reads_on ? 1 : 0;
    });
    if (!found) return report_map(arguments.pool, found.error());
    if (!reads_on) return int{exit_done};
    say_lost(*found);
    const auto info = pool.info();
    const bool trusted = info && info->trusted;
    if (!trusted) say("damage: the pool is not trusted; perdure info says why\n");
    if (found->ok() && trusted) return int{exit_done};
    if (entries != 0) return int{exit_lost};
    return report(arguments.pool.path,
                  "nothing of map '" + arguments.pool.map +
                      "' can be read, and nothing is written; restore a backup");
  });
  if ((status != exit_done && status != exit_lost) || !reads_on) return status;
  say(fmt::format("salvaged {} entries of map '{}'; {}\n", with_commas(entries), arguments.pool.map,
                  status == exit_done ? "nothing is lost" : "others are lost, or may be"));
  return status;
}

int run_salvage(const ScanArguments& arguments) {
  if (const int status = check_file(arguments)) return status;
  auto pool = open_pool(arguments.pool, Access::damaged, true);
  if (!pool) return report(arguments.pool.path, pool.error());
  return close_pool(*pool, arguments.pool, salvage_from(arguments, *pool));
}

void register_salvage(CLI::App& app, Action& action) {
  auto salvage = std::make_shared<ScanArguments>();
  CLI::App* command =
      app.add_subcommand("salvage", "write what can be read of a damaged map as TSV");
  add_path(*command, salvage->pool);
  command->add_option("FILE", salvage->file, "output file; - or none is standard output");
  add_map(*command, salvage->pool);
  add_opening(*command, salvage->pool);
  command->footer(R"(
Writes the entries of one map whose checksums match, in any order, as perdure load reads them. The
pool is only read, and it stays as it is. Standard error says how many entries were written, and
what is damaged. FILE appears whole or not at all. First try a copy or a backup: it may have more.

Status 0: nothing is lost. Status 5: the entries that could be read are written, and others are
lost, or may be. Status 3: nothing could be read, for example because the headers of the pool are
damaged. A pool that was not closed has no checksum for integers that lie in a leaf or a table:
they are written as they are.

EXAMPLES
  perdure salvage damaged.perdure items.tsv
  perdure salvage damaged.perdure people.tsv --map people
  perdure load new.perdure items.tsv)");
  command->callback([&action, salvage] { action = [=] { return run_salvage(*salvage); }; });
}

}  // namespace

void register_scan_commands(CLI::App& app, Action& action) {
  auto scan = std::make_shared<ScanArguments>();
  CLI::App* command = app.add_subcommand("scan", "print the entries of a key range, in order");
  add_path(*command, scan->pool);
  add_range(*command, scan->range);
  add_map(*command, scan->pool);
  add_opening(*command, scan->pool);
  add_read_only(*command, scan->pool);
  command->footer(R"(
Prints key<TAB>value lines. A tab, newline or backslash inside a key or value is printed as \t, \n
or \\; every other byte, NUL included, as it is. Bounds are taken literally; of maps with integer
keys they are decimal numbers. If the engine of a map keeps no order, use perdure dump.

EXAMPLES
  perdure scan inventory.perdure --prefix user: --limit 10
  perdure scan inventory.perdure --from a --to b
  perdure scan inventory.perdure --reverse --limit 1     (the greatest key))");
  command->callback([&action, scan] { action = [=] { return run_scan(*scan); }; });

  auto dump = std::make_shared<ScanArguments>();
  command = app.add_subcommand(
      "dump", "write all entries of a map as TSV, in key order if its engine keeps one");
  add_path(*command, dump->pool);
  command->add_option("FILE", dump->file, "output file; - or none is standard output");
  add_map(*command, dump->pool);
  add_opening(*command, dump->pool);
  add_read_only(*command, dump->pool);
  command->footer(R"(
Writes what `perdure load` reads. FILE appears whole or not at all.

EXAMPLES
  perdure dump inventory.perdure items.tsv
  perdure dump inventory.perdure | gzip > items.tsv.gz)");
  command->callback([&action, dump] { action = [=] { return run_dump(*dump); }; });

  register_salvage(app, action);
}

}  // namespace perdure::cli
