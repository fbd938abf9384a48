// scan, dump: print entries as text.
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
  std::string file;  // dump only
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

int write_dump(const ScanArguments& arguments, TextMap& map) {
  DumpFile file;
  if (const int reason = file.open(arguments.file)) return cannot_write(arguments.file, reason);
  const bool to_file = file.fd() != STDOUT_FILENO;
  const std::string name = to_file ? arguments.file : "standard output";
  catch_interrupts();
  Output output(file.fd());
  EntryWriter write(output);
  auto written = map.for_each(write);
  if (!written) return report(arguments.pool.path, written.error());
  if (interrupted()) return report(name, "interrupted, so the dump is incomplete; run it again");
  if (const int status = finish_output(output, name, exit_done)) return status;
  if (const int status = file.check()) return status;
  if (const int reason = file.commit()) return cannot_write(name, reason);
  if (to_file) say(fmt::format("dumped {} entries to {}\n", with_commas(*written), name));
  return exit_done;
}

int run_dump(const ScanArguments& arguments) {
  if (!is_standard_output(arguments.file)) {
    const Status s = check_output(arguments.file);
    if (!s.ok()) return report_output(arguments.file, s);
  }
  auto pool = open_pool(arguments.pool, Access::read);
  if (!pool) return report(arguments.pool.path, pool.error());
  auto map = open_map(*pool, arguments.pool, false);
  if (!map) return close_pool(*pool, arguments.pool, report_map(arguments.pool, map.error()));
  return close_pool(*pool, arguments.pool, write_dump(arguments, *map));
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
}

}  // namespace perdure::cli
