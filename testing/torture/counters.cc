#include "testing/torture/counters.h"
#include "testing/torture/pool_files.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "testing/crash/children.h"
#include "testing/crash/subject.h"
#include "testing/torture/kill_point.h"
#include "testing/torture/torture_log.h"

namespace perdure::testing {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint32_t kCounters = 12;
constexpr std::uint32_t kAccounts = 12;  // numbered behind the counters
constexpr std::uint32_t kNumbers = kCounters + kAccounts;
constexpr std::uint32_t kSteps = 8192;  // of a thread and process
constexpr auto kHang = std::chrono::seconds(120);

// An addition of 1, or a transfer of `amount` between two accounts.
struct Step {
  std::uint32_t to = 0;
  std::uint32_t from = 0;  // of a transfer; an addition: `to`
  std::uint64_t amount = 1;
  std::uint64_t before = 0;  // what the addition returned

  bool moves() const { return from != to; }
};
struct Log {
  std::atomic<std::uint32_t> started;
  std::atomic<std::uint32_t> acknowledged;
  Step steps[kSteps];
};
// Outlives a child.
struct Shared {
  std::atomic<bool> opened;
  std::atomic<bool> reported;  // `found` is complete
  FirstFailure failure;
  std::atomic<const SiteInfo*> killed_at;
  std::uint64_t found[kNumbers];
  Log logs[kTortureThreads];
};

class Child {
 public:
  Child(Shared& shared, const TortureOptions& options, Torn torn)
      : shared_(shared), options_(options), torn_(torn) {}

  // `nth`: the call of a persist site at which the process kills itself; 0: none.
  [[noreturn]] void run(const TortureOpen& open, const std::string& file, std::uint64_t seed,
                        std::uint64_t nth, bool created, bool last) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    auto target = open(options_, file);
    if (!target && !created) {
      remove_pool(file);  // killed inside create: no caller knows that it is a pool
      target = open(options_, file);
    }
    if (!target) give_up("open", target.error());
    target_ = target->get();
    shared_.opened = true;
    for (std::uint32_t i = 0; i < kNumbers; ++i) shared_.found[i] = value_of(i);
    shared_.reported = true;
    if (last) {
      std::uint64_t entries = 0;
      if (const std::string wrong = target_->check(entries); !wrong.empty()) give_up(wrong, {});
      if (const Status s = target_->close(); !s.ok()) give_up("close", s);
      _exit(0);
    }
    KillPoint::arm(nullptr, nth, &shared_.killed_at);
    std::vector<std::thread> threads;
    for (std::uint32_t t = 1; t < options_.threads; ++t) {
      threads.emplace_back([this, t, seed] { work(t, seed); });
    }
    work(0, seed);
    for (;;) pause();  // wait for the kill
  }

 private:
  [[noreturn]] void give_up(const std::string& what, const Status& status) {
    shared_.failure.report(what + ": " + std::string(status.message()));
  }

  void work(std::uint32_t thread, std::uint64_t seed) {
    Random random(seed << 8 ^ thread);
    Log& log = shared_.logs[thread];
    for (std::uint32_t i = 0; i < kSteps; ++i) {
      log.steps[i] = next_step(random);
      log.started.store(i + 1, std::memory_order_release);
      do_step(log.steps[i]);
      log.acknowledged.store(i + 1, std::memory_order_release);
    }
  }
  // One step in three is a transfer.
  static Step next_step(Random& random) {
    const auto account = [&] {
      return kCounters + static_cast<std::uint32_t>(random.below(kAccounts));
    };
    if (!random.one_in(3)) {
      const auto to = static_cast<std::uint32_t>(random.below(kNumbers));
      return {.to = to, .from = to};
    }
    Step step{.to = account(), .from = account()};
    if (step.moves()) step.amount = 1 + random.below(100);
    return step;
  }
  void do_step(Step& step) {
    if (step.moves()) {
      transfer(step);
    } else {
      step.before = add(step.to);
    }
  }

  void transfer(const Step& step) {
    for (bool done = false; !done;) {
      const std::uint64_t from = value_of(step.from);
      const std::uint64_t to = value_of(step.to);
      const std::vector<TortureTarget::Write> writes{put(step.from, from - step.amount),
                                                     put(step.to, to + step.amount)};
      if (torn_ == Torn::transfers) {
        for (const auto& [kind, key, value] : writes) {
          if (auto put = target_->upsert(key, value); !put) give_up("a put", put.error());
        }
        return;
      }
      auto committed = target_->commit({is(step.from, from), is(step.to, to)}, writes);
      if (!committed) give_up("a transfer", committed.error());
      done = *committed;
    }
  }
  TortureTarget::Write put(std::uint32_t number, std::uint64_t value) const {
    return {MutationKind::put, key_text(options_, number), text_of(value)};
  }
  // As a requirement. A number that was never written is 0; one that became 0 is there.
  TortureTarget::Write is(std::uint32_t number, std::uint64_t value) {
    std::string text;
    const std::string key = key_text(options_, number);
    const auto found = target_->find(key, text);
    if (!found) give_up("a find", found.error());
    if (!*found) return {MutationKind::erase, key, {}};
    return put(number, value);
  }

  std::uint64_t add(std::uint32_t counter) {
    if (torn_ == Torn::additions) return add_torn(counter);
    const std::string key = key_text(options_, counter);
    const auto next = [this](const std::optional<std::string>& before) {
      return text_of(before ? number_of(*before) + 1 : 1);
    };
    auto before = target_->modify(key, next);
    if (!before) give_up("an addition", before.error());
    return *before ? number_of(**before) : 0;
  }
  std::uint64_t add_torn(std::uint32_t counter) {
    const std::uint64_t before = value_of(counter);
    std::this_thread::yield();  // on a single processor another thread would rarely come between
    const auto done = target_->upsert(key_text(options_, counter), text_of(before + 1));
    if (!done) give_up("an upsert", done.error());
    return before;
  }
  std::uint64_t value_of(std::uint32_t counter) {
    std::string text;
    const auto found = target_->find(key_text(options_, counter), text);
    if (!found) give_up("a find", found.error());
    return *found ? number_of(text) : 0;
  }

  // Byte strings change their length with each addition.
  bool integers() const { return options_.keys == "integer"; }
  std::string text_of(std::uint64_t number) const {
    if (integers()) return {reinterpret_cast<const char*>(&number), sizeof number};
    return std::to_string(number) + std::string(number % 40, '.');
  }
  std::uint64_t number_of(const std::string& text) const {
    std::uint64_t number = 0;
    if (!integers()) return std::strtoull(text.c_str(), nullptr, 10);
    if (text.size() == sizeof number) std::memcpy(&number, text.data(), sizeof number);
    return number;
  }

  Shared& shared_;
  const TortureOptions& options_;
  Torn torn_;
  TortureTarget* target_ = nullptr;
};

class Counters {
 public:
  Counters(const TortureOptions& options, const TortureOpen& open, Torn torn)
      : options_(options),
        open_(open),
        torn_(torn),
        random_(options.seed),
        file_(options.path + "/counters-" + std::to_string(getpid()) + ".perdure") {
    shared_ = shared_array<Shared>(1);
  }
  ~Counters() {
    munmap(static_cast<void*>(shared_), sizeof(Shared));
    remove_pool(file_);
  }
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;

  CountersReport run() {
    const auto start = Clock::now();
    remove_pool(file_);
    for (std::uint64_t cycle = 0; cycle <= options_.cycles && report_.ok(); ++cycle) {
      one_process(cycle, cycle == options_.cycles);
    }
    report_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return std::move(report_);
  }

 private:
  void one_process(std::uint64_t cycle, bool last) {
    shared_->opened = shared_->reported = false;
    shared_->failure.clear();
    for (Log& log : shared_->logs) log.started = log.acknowledged = 0;
    const bool by_site = options_.mode != "plain" && random_.one_in(2);
    const std::uint64_t nth = by_site && !last ? 1 + random_.below(1000) : 0;
    std::fflush(nullptr);
    const pid_t pid = fork();
    if (pid < 0) std::abort();
    if (pid == 0) {
      Child(*shared_, options_, torn_)
          .run(open_, file_, options_.seed << 20 ^ cycle, nth, created_, last);
    }
    const bool hangs = !wait_a_while(pid, nth, last);
    if (!last || hangs) kill(pid, SIGKILL);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    created_ = created_ || shared_->opened.load();
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    const bool finished = last && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (shared_->failure.reported()) return fail(cycle, shared_->failure.text());
    if (hangs) return fail(cycle, "the child hangs");
    if (!killed && !finished) return fail(cycle, "a child died: " + std::to_string(status));
    report_.kills += killed ? 1 : 0;
    if (!shared_->reported.load()) return;
    if (const std::string wrong = judge(); !wrong.empty()) return fail(cycle, wrong);
    collect();
  }
  void fail(std::uint64_t cycle, const std::string& what) {
    report_.failure =
        "cycle " + std::to_string(cycle) + ", seed " + std::to_string(options_.seed) + ": " + what;
  }

  // One kill in eight comes at any time after the fork. The others come during the work. Returns
  // false if the child hangs.
  bool wait_a_while(pid_t pid, std::uint64_t nth, bool last) {
    const auto sleep = [](std::uint64_t us) {
      std::this_thread::sleep_for(std::chrono::microseconds(us));
    };
    const auto over = [&] {
      siginfo_t info{};
      return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
             info.si_pid == pid;
    };
    const auto end = Clock::now() + kHang;
    if (!last && random_.one_in(8)) {
      sleep(random_.below(4'000));
      return true;
    }
    while ((last || !shared_->reported.load()) && !over()) {
      if (Clock::now() > end) return false;
      sleep(50);
    }
    if (last) return true;
    const std::uint64_t most = options_.max_work_us;
    if (nth == 0) {
      sleep(random_.below(most));
    } else {
      for (std::uint64_t us = 0; us < 2 * most && !over(); us += 50) sleep(50);
    }
    return true;
  }

  // Compares what the child has found with what the children before it have done.
  std::string judge() {
    for (std::uint32_t i = 0; i < kCounters; ++i) {
      const std::string what = "counter " + std::to_string(i) + ": ";
      auto& [last, results, in_flight] = known_[i];
      const std::uint64_t now = shared_->found[i];
      if (now < last + results.size() || now > last + results.size() + in_flight) {
        return what + std::to_string(results.size()) + " additions to " + std::to_string(last) +
               ", and " + std::to_string(in_flight) + " in flight, made " + std::to_string(now);
      }
      std::ranges::sort(results);
      if (const auto twice = std::ranges::adjacent_find(results); twice != results.end()) {
        return what + "two additions returned " + std::to_string(*twice);
      }
      if (!results.empty() && (results.front() < last || results.back() >= now)) {
        return what + "an addition returned a value that the counter never had";
      }
      last = now;
      results.clear();
      in_flight = 0;
    }
    return judge_accounts();
  }

  using Accounts = std::array<std::uint64_t, kAccounts>;
  static void take(const Step& step, Accounts& accounts) {
    if (step.moves()) accounts[step.from - kCounters] -= step.amount;
    accounts[step.to - kCounters] += step.amount;
  }
  std::string judge_accounts() {
    Accounts now;
    std::copy_n(shared_->found + kCounters, kAccounts, now.begin());
    for (std::uint32_t chosen = 0; chosen < 1U << steps_in_flight_.size(); ++chosen) {
      Accounts sum = accounts_;
      for (std::size_t i = 0; i < steps_in_flight_.size(); ++i) {
        if ((chosen >> i & 1) != 0) take(steps_in_flight_[i], sum);
      }
      if (sum != now) continue;
      accounts_ = now;
      steps_in_flight_.clear();
      return {};
    }
    std::string text = "no choice of the steps in flight explains the accounts:";
    for (std::uint32_t i = 0; i < kAccounts; ++i) {
      text += " " + std::to_string(static_cast<std::int64_t>(accounts_[i])) + "/" +
              std::to_string(static_cast<std::int64_t>(now[i]));
    }
    for (const Step& step : steps_in_flight_) {
      text += "; " + std::to_string(step.amount) + " from " +
              std::to_string(step.from - kCounters) + " to " + std::to_string(step.to - kCounters);
    }
    return text;
  }

  void collect() {
    for (const Log& log : shared_->logs) {
      const std::uint32_t done = log.acknowledged.load();
      for (std::uint32_t i = 0; i < done; ++i) {
        const Step& step = log.steps[i];
        ++(step.moves() ? report_.transfers : report_.additions);
        if (step.to >= kCounters) {
          take(step, accounts_);
        } else {
          known_[step.to].results.push_back(step.before);
        }
      }
      if (log.started.load() == done) continue;
      ++report_.in_flight;
      const Step& step = log.steps[done];
      if (step.to >= kCounters) {
        steps_in_flight_.push_back(step);
      } else {
        ++known_[step.to].in_flight;
      }
    }
  }

  struct Known {
    std::uint64_t last = 0;  // at the last report; since then:
    std::vector<std::uint64_t> results = {};
    std::uint64_t in_flight = 0;
  };

  const TortureOptions& options_;
  const TortureOpen& open_;
  Torn torn_;
  Random random_;
  std::string file_;
  Shared* shared_ = nullptr;
  std::array<Known, kCounters> known_;
  Accounts accounts_ = {};  // with all acknowledged steps
  std::vector<Step> steps_in_flight_;
  CountersReport report_;
  bool created_ = false;
};

}  // namespace

std::string CountersReport::summary(const TortureOptions& options) const {
  char text[300];
  std::snprintf(text, sizeof(text),
                "counters, %s, %s keys, %s, %u threads, %s: %llu kills, %llu additions, %llu "
                "transfers, %llu in flight, %.1f s",
                options.mode.c_str(), options.keys.c_str(),
                std::string(durability_name(options.durability)).c_str(), options.threads,
                options.path.c_str(), static_cast<unsigned long long>(kills),
                static_cast<unsigned long long>(additions),
                static_cast<unsigned long long>(transfers),
                static_cast<unsigned long long>(in_flight), seconds);
  return text;
}

CountersReport run_counters(const TortureOptions& options, const TortureOpen& open, Torn torn) {
  Counters counters(options, open, torn);
  return counters.run();
}

}  // namespace perdure::testing
