// load: writes TSV into a map with several threads, acknowledges line by line, and can be resumed.
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "commands.h"
#include "load_input.h"
#include "load_pipeline.h"
#include "load_resume.h"
#include "progress.h"

namespace perdure::cli {

namespace {

constexpr double kMaxSilence = 0.2;  // seconds between two acknowledgements
constexpr double kMinSilence = 0.004;

struct LoadArguments {
  PoolArguments pool;
  std::string file;
  std::uint64_t threads = 1;
  bool skip_bad = false;
  bool restart = false;
  std::uint64_t skip_lines = 0;
  std::uint64_t tag_every = 0;  // lines; 0: never
};

// ---- input --------------------------------------------------------------------------------------

// Returns 0 or an errno.
int open_input(const std::string& name, InputFile& input) {
  input.name = input_name(name);
  input.fd = name == "-" ? STDIN_FILENO : ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status{};
  if (input.fd < 0 || ::fstat(input.fd, &status) != 0) return errno;
  if (S_ISDIR(status.st_mode)) return EISDIR;
  if (name == "-" || !S_ISREG(status.st_mode)) return 0;
  input.regular = true;
  input.size = static_cast<std::uint64_t>(status.st_size);
  input.mtime_ns = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec;
  std::error_code error;
  const auto canonical = std::filesystem::canonical(name, error);
  input.canonical = error ? name : canonical.string();
  return 0;
}

// ---- acknowledging ------------------------------------------------------------------------------

// Reports from time to time how much is durable, first to the pool, then to standard error. The
// pauses grow with the age of the load from 4 to 160 ms. So a short load is reported closely, and a
// long one does not fill a log.
class Acknowledger {
 public:
  Acknowledger(LoadPipeline& pipeline, ResumeLog* log, Acknowledged start, std::uint64_t total)
      : pipeline_(pipeline), log_(log), saved_(start), progress_(start.offset, total) {
    thread_ = std::thread([this] { run(); });
  }
  ~Acknowledger() { finish(); }
  Acknowledger(const Acknowledger&) = delete;
  Acknowledger& operator=(const Acknowledger&) = delete;

  // Reports a last time. Call it when the pipeline has finished.
  Acknowledged finish() {
    if (!thread_.joinable()) return saved_;
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    wake_.notify_one();
    thread_.join();
    progress_.clear();
    const Acknowledged at = acknowledge();
    say(fmt::format("acknowledged {}\n", at.lines));
    return at;
  }
  // Reports now, to the pool only.
  void save() {
    const std::lock_guard lock(mutex_);
    acknowledge();
  }
  double seconds() const { return progress_.seconds(); }
  const Status& status() const noexcept { return status_; }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!done_) {
      const double pause = std::clamp(progress_.seconds() / 50, kMinSilence, kMaxSilence * 0.8);
      wake_.wait_for(lock, std::chrono::duration<double>(pause));
      if (done_) break;
      const std::uint64_t before = saved_.lines;
      const Acknowledged at = acknowledge();
      if (progress_.visible()) {
        progress_.show(at.offset, pipeline_.records(), at.lines);
      } else if (at.lines != before) {
        say(fmt::format("acknowledged {}\n", at.lines));
      }
    }
  }

  Acknowledged acknowledge() {
    const Acknowledged at = pipeline_.acknowledged();
    if (log_ != nullptr && at.lines != saved_.lines && status_.ok()) status_ = log_->save(at);
    saved_ = at;
    return at;
  }

  LoadPipeline& pipeline_;
  ResumeLog* log_;
  Acknowledged saved_;
  Progress progress_;
  Status status_;  // of the log; a load continues if its progress cannot be saved
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

// ---- the command --------------------------------------------------------------------------------

struct Outcome {
  Acknowledged start;
  Acknowledged end;
  std::uint64_t records = 0;
  std::uint64_t bad_lines = 0;
  std::uint64_t tags = 0;
  double seconds = 0;
};

// Returns where to begin: behind the lines that an earlier run of the same input has acknowledged.
Expected<Acknowledged> find_start(const LoadArguments& arguments, const InputFile& input,
                                  ResumeLog& log, TextMap& map) {
  if (arguments.restart || arguments.skip_lines > 0) return Acknowledged{};
  auto found = log.find();
  if (!found) return fail(std::move(found.error()));
  if (found->match == ResumeLog::Match::none || found->at.lines == 0) return Acknowledged{};
  if (found->match == ResumeLog::Match::changed) {
    say(fmt::format("{} has changed since it was loaded; starting at the first line\n",
                    input.name));
    return Acknowledged{};
  }
  // An empty map has lost nothing: it was emptied or dropped on purpose.
  auto any = map.for_each([](Bytes, Bytes) { return false; });
  if (!any) return fail(std::move(any.error()));
  if (*any == 0) return Acknowledged{};
  if (::lseek(input.fd, static_cast<off_t>(found->at.offset), SEEK_SET) < 0) return Acknowledged{};
  if (found->at.offset == input.size) {
    say(fmt::format("{} is loaded already, all {} lines; --restart loads it again\n", input.name,
                    found->at.lines));
  } else {
    say(fmt::format("resuming {} at line {}: lines 1 to {} are durable\n", input.name,
                    found->at.lines + 1, found->at.lines));
  }
  return found->at;
}

int explain_stop(const LoadArguments& arguments, const InputFile& input, const LineReader& reader,
                 const LoadPipeline& pipeline, const Outcome& outcome) {
  const std::string resume =
      input.regular ? "run the same command again to continue"
                    : fmt::format("continue with the same input and --skip {}", outcome.end.lines);
  if (const auto& failure = pipeline.failure()) {
    const std::string where = fmt::format("line {} of {}: ", failure->line, input.name);
    return report(arguments.pool.path,
                  Status::format(failure->status.code(), "%s%.*s", where.c_str(),
                                 static_cast<int>(failure->status.message().size()),
                                 failure->status.message().data()));
  }
  if (interrupted()) {
    return report(arguments.pool.path,
                  fmt::format("interrupted after line {}; {}", outcome.end.lines, resume));
  }
  if (const auto& bad = reader.bad_line()) {
    return report(input.name, fmt::format("line {}: {}, or skip such lines with --skip-bad",
                                          bad->number, bad->what));
  }
  if (const int error = reader.read_error()) {
    return report(input.name, fmt::format("cannot read: {}; {}", std::strerror(error), resume));
  }
  return exit_done;
}

void print_outcome(const LoadArguments& arguments, const InputFile& input, const Outcome& outcome) {
  const double rate =
      outcome.seconds > 0 ? static_cast<double>(outcome.records) / outcome.seconds : 0;
  if (arguments.pool.json) {
    print_json({{"path", arguments.pool.path},
                {"map", arguments.pool.map},
                {"input", input.name},
                {"resumed_at", outcome.start.lines},
                {"acknowledged", outcome.end.lines},
                {"records", outcome.records},
                {"bad_lines", outcome.bad_lines},
                {"tags", outcome.tags},
                {"seconds", outcome.seconds},
                {"records_per_second", rate}});
    return;
  }
  const std::string bad =
      outcome.bad_lines == 0 ? "" : fmt::format(", {} bad lines skipped", outcome.bad_lines);
  const std::string tags = outcome.tags == 0 ? "" : fmt::format(", {} versions", outcome.tags);
  fmt::print("loaded {} records in {:.2f} s ({} records/s){}{}\n", with_commas(outcome.records),
             outcome.seconds, with_commas(static_cast<std::uint64_t>(rate)), bad, tags);
}

// Closes a version behind line `line`, when all lines up to it are done and none behind it has
// begun. Saves the progress before a later line begins, so that a resumed load does not write a
// version twice.
bool close_version(std::uint64_t line, TextMap& map, LoadPipeline& pipeline,
                   Acknowledger& acknowledger) {
  if (!pipeline.drain()) return false;
  if (auto version = map.tag(); !version) {
    pipeline.fail_at(line, std::move(version.error()));
    return false;
  }
  acknowledger.save();
  return true;
}

// Threads that start while this lives block signals, so that a signal ends the main thread's wait
// for input.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

int load_from(const LoadArguments& arguments, const InputFile& input, ResumeLog* log,
              Acknowledged start, TextMap& map) {
  LineReader reader(input.fd, {.workers = static_cast<unsigned>(arguments.threads),
                               .skip_bad = arguments.skip_bad,
                               .skip_lines = arguments.skip_lines,
                               .lines_before = start.lines,
                               .offset = start.offset,
                               .cut_every = arguments.tag_every});
  Outcome outcome{.start = start};
  catch_interrupts();
  std::optional<LoadPipeline> pipeline;
  std::optional<Acknowledger> acknowledger;
  {
    const SignalsBlocked blocked;
    pipeline.emplace(map, static_cast<unsigned>(arguments.threads), start);
    acknowledger.emplace(*pipeline, log, start, input.size);
  }
  while (auto block = reader.next()) {
    const std::uint64_t end = block->lines_before + block->lines.size();
    if (!pipeline->push(std::move(block))) break;
    if (arguments.tag_every == 0 || end % arguments.tag_every != 0) continue;
    if (!close_version(end, map, *pipeline, *acknowledger)) break;
    ++outcome.tags;
  }
  pipeline->finish(false);
  outcome.seconds = acknowledger->seconds();
  outcome.end = acknowledger->finish();
  outcome.records = pipeline->records();
  outcome.bad_lines = reader.bad_lines_skipped();
  if (!acknowledger->status().ok()) {
    say(fmt::format(
        "perdure: {}: progress could not be saved ({}); the next load starts at line 1\n",
        arguments.pool.path, acknowledger->status().message()));
  }
  const int status = explain_stop(arguments, input, reader, *pipeline, outcome);
  if (status == exit_done || arguments.pool.json) print_outcome(arguments, input, outcome);
  return status;
}

int run_load(const LoadArguments& arguments) {
  InputFile input;
  if (const int error = open_input(arguments.file, input)) {
    return report(input.name,
                  fmt::format("cannot read: {}; name a TSV file or -", std::strerror(error)));
  }
  if (const int refused = refuse_own_input(input.name, input.fd)) return refused;
  if (const Status s = require_max_size(arguments.pool); !s.ok()) {
    return report_entry(arguments.pool, s);
  }
  auto pool = open_pool(arguments.pool, Access::create);
  if (!pool) return report(arguments.pool.path, pool.error());
  auto map = open_map(*pool, arguments.pool, true);
  if (!map) return close_pool(*pool, arguments.pool, report_map(arguments.pool, map.error()));

  std::optional<ResumeLog> log;
  Acknowledged start;
  if (input.regular) {
    auto opened = ResumeLog::open(*pool, input, map->info());
    if (!opened)
      return close_pool(*pool, arguments.pool, report(arguments.pool.path, opened.error()));
    log.emplace(std::move(*opened));
    auto found = find_start(arguments, input, *log, *map);
    if (!found)
      return close_pool(*pool, arguments.pool, report(arguments.pool.path, found.error()));
    start = *found;
  }
  const int status = load_from(arguments, input, log ? &*log : nullptr, start, *map);
  return close_pool(*pool, arguments.pool, status);
}

}  // namespace

void register_load_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<LoadArguments>();
  CLI::App* command = app.add_subcommand("load", "insert or replace the entries of a TSV file");
  add_path(*command, arguments->pool);
  command->add_option("FILE", arguments->file, "key<TAB>value lines; - is standard input")
      ->required();
  add_count(*command, "--threads", arguments->threads, 1, 256, "worker threads (default: 1)");
  command->add_flag("--skip-bad", arguments->skip_bad, "count bad lines and continue");
  add_count(*command, "--skip", arguments->skip_lines, 0, ~std::uint64_t{0},
            "skip the first N lines");
  command->add_flag("--restart", arguments->restart,
                    "start at the first line, also if the file was loaded before");
  add_count(*command, "--tag-every", arguments->tag_every, 1, ~std::uint64_t{0},
            "close a version after every N lines; a new map gets engine pskiplist");
  add_map(*command, arguments->pool);
  add_types(*command, arguments->pool);
  add_engine(*command, arguments->pool);
  add_layout(*command, arguments->pool);
  add_max_size(*command, arguments->pool);
  add_durability(*command, arguments->pool);
  add_opening(*command, arguments->pool);
  add_json(*command, arguments->pool);
  command->footer(R"(
A tab, newline or backslash inside a key or value is written \t, \n or \\; every other byte stands
for itself. Of lines with equal keys the last one wins. `acknowledged N` on standard error means
that lines 1 to N are durable, for any number of threads. If the command is killed, run it again: it
continues behind the last acknowledged line of the file. For standard input use --skip N. Creates
the pool and the map if they are absent.

EXAMPLES
  perdure load inventory.perdure items.tsv --threads 2
  zcat items.tsv.gz | perdure load inventory.perdure -
  perdure load inventory.perdure visits.tsv --map visits --key u32 --value u64
  perdure load inventory.perdure people.tsv --map people --skip-bad
  perdure load layers.perdure epochs.tsv --tag-every 1000)");
  command->callback([&action, arguments] {
    if (arguments->tag_every != 0 && !arguments->pool.engine) {
      arguments->pool.engine = Engine::pskiplist;
    }
    require_layout_fits(arguments->pool);
    action = [=] { return run_load(*arguments); };
  });
}

}  // namespace perdure::cli
