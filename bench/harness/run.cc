#include "bench/harness/run.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "bench/harness/cleanup.h"
#include "bench/harness/kill_child.h"

namespace perdure::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Makes the system hold the memory that a run will take. In a virtual machine, pages that no
// process has written to may not exist yet: the host makes each at its first write.
Result<void> touch_memory(std::uint64_t bytes) {
  if (bytes == 0) return {};
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return failure(kExitIo, fmt::format("--touch: cannot map so much: {}", std::strerror(errno)));
  }
  ::madvise(memory, bytes, MADV_HUGEPAGE);
  for (std::uint64_t at = 0; at < bytes; at += 4096) {
    static_cast<volatile char*>(memory)[at] = 1;
  }
  ::munmap(memory, bytes);
  return {};
}

class Run {
 public:
  Run(Subject& subject, const BenchOptions& options, Progress& progress)
      : subject_(subject),
        options_(options),
        keys_(key_space(options)),
        values_(options.value),
        maker_(options.work, keys_),
        driver_(subject, keys_, values_, progress,
                {.clock_all = options.clock_all, .dependent = options.dependent}) {}

  Result<RunResult> execute() {
    result_.engine = subject_.name();
    if (auto touched = touch_memory(options_.touch); !touched) return forward(touched);
    if (subject_.persistent()) {
      if (auto started = child_.start(subject_, keys_, values_); !started) return forward(started);
    }
    if (auto created = subject_.create(); !created) return forward(created);
    if (!options_.keep) remove_on_signal(subject_.file());
    result_.medium = subject_.medium();
    result_.durability = subject_.durability();
    result_.version = subject_.version();
    if (options_.keys && keys_.kind().is_string) {
      result_.key_bytes = keys_.mean_length(options_.work.records);
    }
    for (const Workload workload : options_.workloads) {
      if (workload == Workload::erase && !footprint_taken_) {
        if (auto done = check_and_weigh(); !done) return forward(done);
      }
      if (auto done = phase(workload); !done) return forward(done);
    }
    if (auto done = check_and_weigh(); !done) return forward(done);
    if (subject_.persistent()) {
      if (auto done = reopen_twice(); !done) return forward(done);
    }
    if (auto closed = subject_.close(); !closed) return forward(closed);
    return std::move(result_);
  }

 private:
  static std::unexpected<Failure> forward(const Result<void>& result) {
    return std::unexpected(result.error());
  }

  static KeySpace key_space(const BenchOptions& options) {
    if (options.keys) return KeySpace(*options.keys);
    return {key_scheme(options.work.distribution, options.workloads), options.key,
            options.work.seed};
  }

  Result<void> phase(Workload workload) {
    const Phase work = maker_.make(workload, ledger_);
    auto done = driver_.run(work, ledger_);
    if (!done) return std::unexpected(done.error());
    WorkMaker::commit(work, ledger_);
    result_.missing += done->missing;
    result_.unexpected += done->unexpected;
    result_.phases.push_back(std::move(*done));
    return {};
  }

  Result<void> read_back() {
    auto missing = driver_.read_back(ledger_, options_.work.threads);
    if (!missing) return std::unexpected(missing.error());
    result_.missing += *missing;
    return {};
  }

  // Measures the footprint when the store is fullest: before the first delete.
  Result<void> check_and_weigh() {
    if (!footprint_taken_) {
      result_.footprint = subject_.footprint();
      footprint_taken_ = true;
    }
    return read_back();
  }

  // Opens the store and looks up one key that must be present, if there is one.
  Result<void> timed_reopen(double& open_seconds, double& lookup_seconds) {
    const auto begin = Clock::now();
    if (auto opened = subject_.reopen(); !opened) return opened;
    open_seconds = seconds_since(begin);
    const std::uint64_t present = ledger_.present();
    KeyRef key{.word = keys_.word(present == 0 ? 0 : ledger_.index_at(present - 1))};
    std::string bytes(keys_.max_length(), '\0');
    if (keys_.kind().is_string) {
      key.bytes = std::string_view(bytes).substr(0, keys_.write(key.word, bytes.data()));
    }
    const std::unique_ptr<Session> session = subject_.session();
    if (session->read(key, [](const ValueRef&) {}) == Outcome::failed) {
      return failure(kExitIo, session->error());
    }
    lookup_seconds = seconds_since(begin);
    return {};
  }

  Result<void> reopen_twice() {
    const auto begin = Clock::now();
    if (auto closed = subject_.close(); !closed) return closed;
    result_.close_seconds = seconds_since(begin);
    double open_seconds = 0;
    double lookup_seconds = 0;
    if (auto done = timed_reopen(open_seconds, lookup_seconds); !done) return done;
    result_.reopen_clean_seconds = open_seconds;
    if (auto closed = subject_.close(); !closed) return closed;
    if (auto killed = child_.dirty_and_kill(ledger_.used()); !killed) return killed;
    if (auto done = timed_reopen(open_seconds, lookup_seconds); !done) return done;
    result_.reopen_killed_seconds = open_seconds;
    result_.first_lookup_seconds = lookup_seconds;
    return read_back();
  }

  Subject& subject_;
  const BenchOptions& options_;
  KeySpace keys_;
  ValueCodec values_;
  WorkMaker maker_;
  Driver driver_;
  Ledger ledger_;
  KillChild child_;
  RunResult result_;
  bool footprint_taken_ = false;
};

}  // namespace

Result<RunResult> run_subject(Subject& subject, const BenchOptions& options, Progress& progress) {
  auto result = Run(subject, options, progress).execute();
  // After a failure the store may still be open. An error of its close does not matter then.
  if (!result) (void)subject.close();
  if (!options.keep) subject.remove();
  remove_on_signal({});
  return result;
}

}  // namespace perdure::bench
