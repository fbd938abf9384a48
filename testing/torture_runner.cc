#include "testing/torture_runner.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <thread>
#include <vector>

#include "testing/sites.h"
#include "testing/subject.h"

namespace perdure::testing {

namespace {

constexpr std::uint32_t kMaxThreads = 8;
enum class Phase : std::uint32_t { started, opened, verified };

// Outlives the child: the record of what it acknowledged.
struct Shared {
  std::atomic<Phase> phase;
  std::atomic<std::uint64_t> started[kMaxThreads];
  std::atomic<std::uint64_t> acknowledged[kMaxThreads];
  std::atomic<bool>
      applied[kMaxThreads];  // the last kill's operation in flight; valid from `verified`
  std::atomic<bool> failed;
  char message[1024];
};

// What one thread does, and must find: keys are not shared between threads.
struct ThreadModel {
  Model acknowledged;
  bool in_flight = false;
  Op pending;
};

// The operations of a thread in a cycle, in order.
class OpStream {
 public:
  OpStream(const TortureOptions& options, std::uint64_t cycle, std::uint32_t thread)
      : options_(options), thread_(thread), random_(options.seed << 32 ^ cycle << 8 ^ thread) {}
  Op next() {
    const std::uint64_t number = random_.below(options_.keys_per_thread) * kMaxThreads + thread_;
    Op op;
    const std::uint64_t kind = random_.below(8);
    op.kind = kind < 4 ? OpKind::upsert : kind < 5 ? OpKind::insert : OpKind::erase;
    const std::uint64_t value = random_.next();
    if (options_.keys == "integer") {
      // Spread over all partitions; 0 is among them.
      const std::uint64_t spread = __builtin_bswap64(number * 0x9E3779B97F4A7C15ULL);
      op.key.assign(reinterpret_cast<const char*>(&spread), 8);
      op.value.assign(reinterpret_cast<const char*>(&value), 8);
    } else {
      op.key = "customer:" + std::to_string(number);
      op.value.assign(value % 150, static_cast<char>('a' + value % 26));
      op.value += std::to_string(value);
    }
    return op;
  }

 private:
  const TortureOptions& options_;
  std::uint32_t thread_;
  Random random_;
};

[[noreturn]] void report_failure(Shared& shared, const std::string& what) {
  bool expected = false;
  if (shared.failed.compare_exchange_strong(expected, true)) {
    std::snprintf(shared.message, sizeof(shared.message), "%s", what.c_str());
  }
  _exit(9);
}

std::string check_key(TortureTarget& target, const std::string& key, const Model& model) {
  std::string value;
  const auto found = target.find(key, value);
  if (!found) return "find " + printable(key) + ": " + std::string(found.error().message());
  const auto it = model.find(key);
  if (it == model.end()) {
    return *found ? printable(key) + " was erased and is back: " + printable(value) : "";
  }
  if (!*found) return printable(key) + " was acknowledged and is lost";
  return value == it->second
             ? ""
             : printable(key) + " is " + printable(value) + ", not " + printable(it->second);
}

// Every key of every thread, and what became of the operations in flight.
void verify(Shared& shared, TortureTarget& target, const std::vector<ThreadModel>& models) {
  std::uint64_t entries = 0;
  for (std::size_t t = 0; t < models.size(); ++t) {
    Model model = models[t].acknowledged;
    bool applied = false;
    if (models[t].in_flight) {
      Model after = model;
      apply_to(after, models[t].pending);
      const std::string& key = models[t].pending.key;
      if (!check_key(target, key, model).empty()) {
        applied = true;
        if (const std::string wrong = check_key(target, key, after); !wrong.empty()) {
          report_failure(shared, "in flight, " + describe(models[t].pending) + ": " + wrong);
        }
        model = std::move(after);
      }
    }
    shared.applied[t] = applied;
    for (const auto& [key, value] : model) {
      if (const std::string wrong = check_key(target, key, model); !wrong.empty()) {
        report_failure(shared, wrong);
      }
    }
    entries += model.size();
  }
  std::uint64_t found = 0;
  if (const std::string wrong = target.check(found); !wrong.empty()) report_failure(shared, wrong);
  if (found != entries) {
    report_failure(shared, "a scan finds " + std::to_string(found) + " entries, not " +
                               std::to_string(entries));
  }
}

void work(Shared& shared, const TortureOptions& options, TortureTarget& target, std::uint64_t cycle,
          std::uint32_t thread) {
  OpStream stream(options, cycle, thread);
  for (std::uint64_t i = 1;; ++i) {
    const Op op = stream.next();
    shared.started[thread].store(i, std::memory_order_release);
    const auto answer = op.kind == OpKind::erase    ? target.erase(op.key)
                        : op.kind == OpKind::insert ? target.insert(op.key, op.value)
                                                    : target.upsert(op.key, op.value);
    if (!answer)
      report_failure(shared, describe(op) + ": " + std::string(answer.error().message()));
    shared.acknowledged[thread].store(i, std::memory_order_release);
  }
}

[[noreturn]] void child(Shared& shared, const TortureOptions& options, const TortureOpen& open,
                        const std::string& file, const std::vector<ThreadModel>& models,
                        std::uint64_t cycle, bool created, bool last) {
  if (!options.mutant.empty() && !set_mutant(options.mutant)) {
    report_failure(shared, "no such mutant: " + options.mutant);
  }
  auto target = open(options, file);
  if (!target && !created) {
    // Killed inside create: not a pool yet, and never acknowledged to be one.
    unlink(file.c_str());
    target = open(options, file);
  }
  if (!target) report_failure(shared, "open: " + std::string(target.error().message()));
  shared.phase = Phase::opened;
  verify(shared, **target, models);
  shared.phase = Phase::verified;
  if (last) {
    const Status s = (*target)->close();
    if (!s.ok()) report_failure(shared, "close: " + std::string(s.message()));
    _exit(0);
  }
  std::vector<std::thread> threads;
  for (std::uint32_t t = 1; t < options.threads; ++t) {
    threads.emplace_back([&, t] { work(shared, options, **target, cycle, t); });
  }
  work(shared, options, **target, cycle, 0);
  _exit(0);
}

void sleep_us(std::uint64_t us) { std::this_thread::sleep_for(std::chrono::microseconds(us)); }

class Torture {
 public:
  Torture(const TortureOptions& options, const TortureOpen& open)
      : options_(options),
        open_(open),
        file_(options.path + "/torture-" + std::to_string(getpid()) + ".perdure"),
        models_(options.threads),
        random_(options.seed) {
    void* p =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) std::abort();
    shared_ = new (p) Shared{};
  }
  ~Torture() {
    munmap(static_cast<void*>(shared_), sizeof(Shared));
    unlink(file_.c_str());
  }
  Torture(const Torture&) = delete;
  Torture& operator=(const Torture&) = delete;

  TortureReport run() {
    unlink(file_.c_str());
    for (std::uint64_t cycle = 0; cycle < options_.cycles && report_.ok(); ++cycle) {
      if (cycle % options_.create_every == 0) start_anew();
      one_cycle(cycle, false);
      if (options_.verbose && cycle % 100 == 99) {
        std::fprintf(stderr, "torture: %s\n", report_.summary(options_).c_str());
      }
    }
    if (report_.ok()) one_cycle(options_.cycles, true);
    return report_;
  }

 private:
  void start_anew() {
    unlink(file_.c_str());
    created_ = false;
    std::ranges::fill(models_, ThreadModel{});
  }

  void one_cycle(std::uint64_t cycle, bool last) {
    *shared_->message = '\0';
    shared_->phase = Phase::started;
    shared_->failed = false;
    for (std::uint32_t t = 0; t < kMaxThreads; ++t) {
      shared_->started[t] = shared_->acknowledged[t] = 0;
    }
    std::fflush(nullptr);
    const pid_t pid = fork();
    if (pid < 0) std::abort();
    if (pid == 0) child(*shared_, options_, open_, file_, models_, cycle, created_, last);
    if (!last) {
      wait_a_while(pid);
      kill(pid, SIGKILL);
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    settle(cycle, status, last);
  }

  // One kill in four, and most of those of a pool that is not yet one, fall anywhere from the fork
  // on; the others into the work.
  void wait_a_while(pid_t pid) {
    const auto start = std::chrono::steady_clock::now();
    const auto elapsed_us = [&] {
      return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                            std::chrono::steady_clock::now() - start)
                                            .count());
    };
    if (created_ ? random_.one_in(4) : !random_.one_in(4)) {
      sleep_us(random_.below(std::max<std::uint64_t>(ready_us_, 500) * 3 / 2));
      return;
    }
    while (shared_->phase.load() != Phase::verified && !shared_->failed.load() &&
           elapsed_us() < 60'000'000) {
      siginfo_t info{};
      if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
          info.si_pid == pid) {
        return;  // it died by itself
      }
      sleep_us(50);
    }
    ready_us_ = elapsed_us();
    sleep_us(random_.below(options_.max_work_us));
  }

  // Brings the models up to what the dead child acknowledged.
  void settle(std::uint64_t cycle, int status, bool last) {
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    const bool finished = last && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    const Phase phase = shared_->phase.load();
    if (shared_->failed.load() || (!killed && !finished)) {
      ++report_.lost;
      report_.failure =
          "cycle " + std::to_string(cycle) + ", seed " + std::to_string(options_.seed) + ": " +
          (shared_->failed.load() ? shared_->message
                                  : "the child died with status " + std::to_string(status));
      return;
    }
    if (last) return;
    ++report_.kills;
    if (phase != Phase::verified)
      ++(created_ ? report_.kills_in_recovery : report_.kills_in_create);
    if (phase != Phase::started) created_ = true;
    if (phase != Phase::verified) return;  // what was in flight before is open still
    for (std::uint32_t t = 0; t < options_.threads; ++t) {
      ThreadModel& model = models_[t];
      if (model.in_flight && shared_->applied[t]) apply_to(model.acknowledged, model.pending);
      model.in_flight = false;
      OpStream stream(options_, cycle, t);
      const std::uint64_t done = shared_->acknowledged[t].load();
      for (std::uint64_t i = 0; i < done; ++i) apply_to(model.acknowledged, stream.next());
      report_.acknowledged += done;
      if (shared_->started[t].load() > done) {
        model.in_flight = true;
        model.pending = stream.next();
        ++report_.in_flight;
      }
    }
  }

  const TortureOptions& options_;
  const TortureOpen& open_;
  std::string file_;
  std::vector<ThreadModel> models_;
  Random random_;
  Shared* shared_ = nullptr;
  TortureReport report_;
  bool created_ = false;
  std::uint64_t ready_us_ = 2000;  // from fork to the end of the verification, of late
};

}  // namespace

std::string TortureReport::summary(const TortureOptions& options) const {
  char text[320];
  std::snprintf(text, sizeof(text),
                "%s, %s keys, %u threads: %llu kills (%llu in recovery, %llu in create), "
                "%llu operations acknowledged, %llu in flight, %llu lost",
                options.mode.c_str(), options.keys.c_str(), options.threads,
                static_cast<unsigned long long>(kills),
                static_cast<unsigned long long>(kills_in_recovery),
                static_cast<unsigned long long>(kills_in_create),
                static_cast<unsigned long long>(acknowledged),
                static_cast<unsigned long long>(in_flight), static_cast<unsigned long long>(lost));
  return text;
}

TortureReport run_torture(const TortureOptions& options, const TortureOpen& open) {
  Torture torture(options, open);
  return torture.run();
}

}  // namespace perdure::testing
