#include "testing/torture/torture_runner.h"
#include "testing/torture/pool_files.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
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

#include "testing/torture/torture_child.h"

namespace perdure::testing {

namespace {

std::uint64_t now_us() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}
// Spins for short waits: a sleep may be late by more than a recovery takes.
void wait_us(std::uint64_t us) {
  const std::uint64_t end = now_us() + us;
  if (us > 400) std::this_thread::sleep_for(std::chrono::microseconds(us - 200));
  while (now_us() < end) {
  }
}

constexpr std::uint64_t kHangUs = 120'000'000;
constexpr std::uint64_t kGrowthUs = 10'000;  // the file must have grown by then
constexpr const char* kGrowthSites[] = {"heap.extent.assign", "pool.header.write"};

// An interrupted run must not leave its pool in memory.
char file_to_remove[4096];
void on_interrupt(int signal) {
  unlink(file_to_remove);
  _exit(128 + signal);
}

class Torture {
 public:
  Torture(const TortureOptions& options, const TortureOpen& open)
      : options_(options),
        open_(open),
        file_(options.path + "/torture-" + std::to_string(getpid()) + ".perdure"),
        model_(options.threads),
        random_(options.seed) {
    void* p = mmap(nullptr, sizeof(TortureLog), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                   -1, 0);
    if (p == MAP_FAILED) std::abort();
    log_ = new (p) TortureLog;
    std::snprintf(file_to_remove, sizeof(file_to_remove), "%s", file_.c_str());
    for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, on_interrupt);
    if (options.mode != "plain") sites_ = kill_sites(options.engine);
  }
  ~Torture() {
    munmap(static_cast<void*>(log_), sizeof(TortureLog));
    remove_pool(file_);
    for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
  }
  Torture(const Torture&) = delete;
  Torture& operator=(const Torture&) = delete;

  TortureReport run() {
    const std::uint64_t start = now_us();
    remove_pool(file_);
    for (cycle_ = 0; cycle_ < options_.cycles && report_.ok(); ++cycle_) {
      one_cycle(next_plan());
      if (options_.verbose && cycle_ % 100 == 99) {
        std::fprintf(stderr, "torture: %s\n", report_.summary(options_).c_str());
      }
    }
    if (report_.ok()) one_cycle({.age = age_, .last = true});
    report_.seconds = static_cast<double>(now_us() - start) / 1e6;
    return report_;
  }

 private:
  // --- where to kill ---

  // The first pools of each generation are killed during their creation.
  KillPlan next_plan() {
    const std::uint64_t age = cycle_ % options_.create_every;
    const std::uint64_t creations =
        std::min<std::uint64_t>(options_.create_every, options_.cycles) / 20 + 1;
    if (age < creations) start_anew();
    KillPlan plan{.age = age_++};
    if (age < creations) {
      plan.when = KillWhen::create;
    } else if (cycle_ % 5 == 4) {
      plan.when = KillWhen::recovery;
    } else {
      static constexpr KillWhen kOthers[] = {KillWhen::close, KillWhen::growth, KillWhen::growth,
                                             KillWhen::upkeep};
      const std::uint64_t draw = random_.below(10);
      plan.when = draw < std::size(kOthers) ? kOthers[draw] : KillWhen::work;
    }
    plan.by_site = !sites_.empty() && !random_.one_in(3);
    if (plan.by_site) choose_site(plan);
    if (report_.keeps_versions) choose_version_work(plan);
    plan.delay_us = delay_of(plan);
    return plan;
  }

  void choose_site(KillPlan& plan) {
    const auto below = [this](std::uint64_t n) { return 1 + random_.below(std::max(n, 1UL)); };
    switch (plan.when) {
      case KillWhen::create:
      case KillWhen::recovery:
        plan.nth = below(plan.when == KillWhen::create ? create_calls_ : open_calls_);
        return;
      case KillWhen::close:
        plan.nth = below(close_calls_);
        return;
      case KillWhen::growth:
        plan.site = find_site(kGrowthSites[random_.below(std::size(kGrowthSites))]);
        plan.nth = below(4);
        return;
      default:
        break;
    }
    if (random_.one_in(2)) {
      plan.nth = below(2000);
      return;
    }
    // Of two sites, the one in which fewer kills have ended.
    const SiteInfo* a = sites_[random_.below(sites_.size())];
    const SiteInfo* b = sites_[random_.below(sites_.size())];
    plan.site = site_kills_[a] <= site_kills_[b] ? a : b;
    plan.nth = below(std::uint64_t{1} << random_.below(7));
  }

  // Leads the work past the versions' kill sites, and keeps the model small.
  void choose_version_work(KillPlan& plan) {
    const std::string_view site = plan.site != nullptr ? plan.site->name : "";
    plan.trims = random_.one_in(4) || model_.kept.size() > kMostVersions / 2 ||
                 site.find(".trim.") != std::string_view::npos;
    plan.rolls_back = random_.one_in(8) || site.find(".rollback.") != std::string_view::npos;
  }

  std::uint64_t delay_of(const KillPlan& plan) {
    switch (plan.when) {
      case KillWhen::create:
      case KillWhen::recovery:
        return random_.below((plan.when == KillWhen::create ? create_us_ : open_us_) * 5 / 4);
      case KillWhen::close:
        return random_.below(close_us_ * 5 / 4);
      case KillWhen::growth:
        return random_.below(100);
      default:
        return random_.below(options_.max_work_us);
    }
  }

  // --- a cycle ---

  void start_anew() {
    remove_pool(file_);
    created_ = false;
    age_ = 0;
    model_ = TortureModel(options_.threads);
  }

  void one_cycle(const KillPlan& plan) {
    log_->phase = Phase::started;
    log_->failure.clear();
    log_->killed_at = nullptr;
    log_->open_calls = log_->close_calls = 0;
    for (ThreadLog& thread : log_->threads) thread.started = thread.acknowledged = 0;
    for (auto& outcomes : log_->outcome) {
      for (auto& outcome : outcomes) outcome = Outcome::unknown;
    }
    log_->keeps_versions = log_->rolled_back = false;
    log_->seen.first = log_->verified = log_->rollback_to = 0;
    log_->rollback_outcome = Outcome::unknown;
    std::fflush(nullptr);
    const pid_t pid = fork();
    if (pid < 0) std::abort();
    if (pid == 0) {
      TortureChild(*log_, options_, plan, model_, cycle_).run(open_, file_, created_);
    }
    const bool hangs = !wait_a_while(pid, plan);
    if (!plan.last || hangs) kill(pid, SIGKILL);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    settle(plan, status, hangs);
  }

  // Waits until the phase, or until the child is dead or has reported a failure. Returns false if
  // it hangs. Time in which the parent did not run does not count, because machines get suspended.
  bool wait_for(pid_t pid, Phase phase) {
    std::uint64_t waited = 0;
    for (std::uint64_t last = now_us(); log_->phase.load() < phase && !over(pid);) {
      if (waited > kHangUs) return false;
      wait_us(20);
      const std::uint64_t now = now_us();
      waited += std::min<std::uint64_t>(now - last, 10'000);
      last = now;
    }
    return true;
  }
  bool over(pid_t pid) {
    siginfo_t info{};
    return log_->failure.reported() ||
           (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            info.si_pid == pid);
  }

  bool wait_a_while(pid_t pid, const KillPlan& plan) {
    if (plan.last) return wait_for(pid, static_cast<Phase>(~0U));
    if (!wait_for(pid, Phase::opening)) return false;
    if (plan.when == KillWhen::create || plan.when == KillWhen::recovery) {
      if (!plan.by_site) {
        wait_us(plan.delay_us);
        return true;
      }
      const std::uint64_t start = now_us();
      if (!wait_for(pid, Phase::opened)) return false;
      if (!created_) measured(create_us_, now_us() - start);
      return wait_for(pid, Phase::verified);
    }
    const std::uint64_t start = now_us();
    if (!wait_for(pid, Phase::opened)) return false;
    measured(open_us_, now_us() - start);
    if (!wait_for(pid, Phase::verified)) return false;
    if (plan.when == KillWhen::close) return wait_for_close(pid, plan);
    if (plan.when == KillWhen::growth) wait_for_growth(pid);
    if (plan.by_site) {  // the site may not be reached
      for (const std::uint64_t end = now_us() + 2UL * options_.max_work_us;
           now_us() < end && !over(pid);) {
        wait_us(50);
      }
      return true;
    }
    wait_us(plan.delay_us);
    return true;
  }
  bool wait_for_close(pid_t pid, const KillPlan& plan) {
    if (!wait_for(pid, Phase::closing)) return false;
    const std::uint64_t start = now_us();
    if (!plan.by_site && !random_.one_in(8)) {
      wait_us(plan.delay_us);
      return true;
    }
    if (!wait_for(pid, Phase::closed)) return false;
    if (!plan.by_site) measured(close_us_, now_us() - start);
    return true;
  }
  // The kill comes when the file has just got its new length.
  void wait_for_growth(pid_t pid) {
    const std::uint64_t before = file_bytes();
    const std::uint64_t end = now_us() + kGrowthUs;
    while (file_bytes() == before && now_us() < end && !over(pid)) {
    }
    report_.grown += file_bytes() - before;
  }
  std::uint64_t file_bytes() const {
    struct stat stat{};
    return ::stat(file_.c_str(), &stat) == 0 ? static_cast<std::uint64_t>(stat.st_size) : 0;
  }
  static void measured(std::uint64_t& average, std::uint64_t us) { average = (average + us) / 2; }

  // --- what it left ---

  void fail(const std::string& what) {
    ++report_.lost;
    report_.failure =
        "cycle " + std::to_string(cycle_) + ", seed " + std::to_string(options_.seed) + ": " + what;
  }

  // Updates the models by what the dead child acknowledged.
  void settle(const KillPlan& plan, int status, bool hangs) {
    if (log_->failure.reported()) return fail(log_->failure.text());
    if (hangs) return fail("the child hangs");
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    const bool finished = plan.last && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!killed && !finished) return fail("the child died with status " + std::to_string(status));
    if (finished) return;
    const Phase phase = log_->phase.load();
    count(plan, phase);
    if (phase > Phase::opening) created_ = true;
    if (log_->keeps_versions.load()) report_.keeps_versions = true;
    for (std::uint32_t t = 0; t < options_.threads; ++t) {
      ThreadModel& model = model_.threads[t];
      if (log_->keeps_versions.load()) model.keep_history();
      for (std::size_t i = 0; i < model.pending().size(); ++i) {
        const Outcome outcome = log_->outcome[t][i];
        if (outcome != Outcome::unknown) model.pending()[i].outcome = outcome;
      }
    }
    model_.see(*log_);
    report_.versions_verified += log_->verified.load();
    // Until a verification is over, the earlier operation in flight is still open.
    if (phase < Phase::verified) return;
    for (ThreadModel& model : model_.threads) model.end_pending();
    settle_rollback();
    std::array<std::uint64_t, kTortureThreads> before{};
    for (std::uint32_t t = 0; t < options_.threads; ++t) {
      before[t] = model_.threads[t].operations();
    }
    for (std::uint32_t t = 0; t < options_.threads && report_.ok(); ++t) {
      settle_thread(model_.threads[t], log_->threads[t]);
    }
    if (!report_.ok() || !log_->keeps_versions.load()) return;
    const std::string wrong = model_.settle_versions(options_, *log_, before);
    if (!wrong.empty()) fail(wrong);
  }

  void settle_rollback() {
    const std::uint64_t to = log_->rollback_to.load();
    if (to == 0) return;
    if (log_->rolled_back.load()) {
      model_.roll_back(to);
      ++report_.rollbacks;
    } else {
      model_.rollback = to;
      ++report_.in_flight;
    }
  }

  void settle_thread(ThreadModel& model, const ThreadLog& log) {
    const std::uint32_t done = log.acknowledged.load();
    report_.acknowledged += done;
    for (std::uint32_t i = 0; i < done; ++i) {
      const LogEntry& entry = log.entries[i];
      count_by_call(entry);
      const bool finds = entry.kind == OpKind::find && entry.version == 0;
      const KeyValue before = finds ? model.value_of(entry.key) : std::nullopt;
      const bool same_value = !before || entry.value == digest_of(options_, before);
      const bool expected = model.apply(entry);
      if (entry.result == LogResult::unknown || !(is_write(entry.kind) || finds)) continue;
      if (expected != (entry.result == LogResult::yes) || !same_value) {
        return fail(describe({entry.kind, key_text(options_, entry.key), {}}) +
                    (same_value ? " returned a wrong result" : " found another value"));
      }
    }
    for (std::uint32_t i = done; i < log.started.load(); ++i) {
      const LogEntry& entry = log.entries[i];
      if (is_write(entry.kind)) model.begin(entry);
      ++report_.in_flight;
      if (entry.together) ++report_.together_in_flight;
    }
  }

  void count_by_call(const LogEntry& entry) {
    if (entry.together) ++report_.together;
    if (is_conditional(entry.kind) && entry.result == LogResult::yes) ++report_.conditional;
    if (entry.kind == OpKind::tag) ++report_.tags;
    if (entry.kind == OpKind::trim) ++report_.trims;
    if (entry.kind == OpKind::find && entry.version != 0) ++report_.reads_at_versions;
  }

  void count(const KillPlan& plan, Phase phase) {
    KillWhen where = plan.when;
    if (phase <= Phase::opening) {
      where = created_ ? KillWhen::recovery : KillWhen::create;
    } else if (phase == Phase::opened) {
      where = KillWhen::verify;
    } else if (phase == Phase::verified &&
               (plan.when <= KillWhen::recovery || plan.when == KillWhen::close)) {
      where = KillWhen::work;
    }
    ++report_.kills;
    ++report_.kills_in[static_cast<std::size_t>(where)];
    if (const SiteInfo* site = log_->killed_at.load(); site != nullptr) {
      ++report_.kills_at_sites;
      ++site_kills_[site];
      report_.sites.insert(site->name);
    }
    if (phase > Phase::opening) (created_ ? open_calls_ : create_calls_) = log_->open_calls.load();
    if (phase == Phase::closed) close_calls_ = log_->close_calls.load();
  }

  const TortureOptions& options_;
  const TortureOpen& open_;
  std::string file_;
  TortureModel model_;
  Random random_;
  TortureLog* log_ = nullptr;
  TortureReport report_;
  std::vector<const SiteInfo*> sites_;
  std::map<const SiteInfo*, std::uint64_t> site_kills_;
  std::uint64_t cycle_ = 0;
  std::uint64_t age_ = 0;
  bool created_ = false;
  // Recent averages:
  std::uint64_t create_us_ = 800, open_us_ = 800, close_us_ = 500;
  std::uint64_t create_calls_ = 30, open_calls_ = 30, close_calls_ = 30;
};

}  // namespace

const char* kill_name(KillWhen when) {
  static constexpr const char* kNames[kKillPlaces] = {"create", "recovery", "verify", "work",
                                                      "growth", "upkeep",   "close"};
  return kNames[static_cast<std::size_t>(when)];
}

std::vector<const SiteInfo*> kill_sites(const std::string& engine) {
  std::vector<const SiteInfo*> sites;
  for (const SiteInfo* site : all_sites()) {
    for (const std::string& prefix :
         {std::string("heap."), std::string("pool."), std::string("reclaim."), engine + "."}) {
      if (std::string_view(site->name).starts_with(prefix)) sites.push_back(site);
    }
  }
  return sites;
}

std::string TortureReport::summary(const TortureOptions& options) const {
  std::string text = options.mode + ", " + options.keys + " keys, " +
                     std::string(durability_name(options.durability)) + ", " +
                     std::to_string(options.threads) + " threads, " + options.path + ": " +
                     std::to_string(kills) + " kills (";
  for (std::size_t i = 0; i < kKillPlaces; ++i) {
    text += std::string(i == 0 ? "" : ", ") + std::to_string(kills_in[i]) + " " +
            kill_name(static_cast<KillWhen>(i));
  }
  char rest[200];
  std::snprintf(
      rest, sizeof(rest),
      "; %llu at %zu sites), %llu acknowledged (%llu together, %llu on a condition), "
      "%llu in flight (%llu together), %llu lost, %.1f s",
      static_cast<unsigned long long>(kills_at_sites), sites.size(),
      static_cast<unsigned long long>(acknowledged), static_cast<unsigned long long>(together),
      static_cast<unsigned long long>(conditional), static_cast<unsigned long long>(in_flight),
      static_cast<unsigned long long>(together_in_flight), static_cast<unsigned long long>(lost),
      seconds);
  text += rest;
  if (!keeps_versions) return text;
  std::snprintf(rest, sizeof(rest),
                "; %llu tags, %llu trims, %llu rollbacks, %llu reads at versions, %llu versions "
                "verified",
                static_cast<unsigned long long>(tags), static_cast<unsigned long long>(trims),
                static_cast<unsigned long long>(rollbacks),
                static_cast<unsigned long long>(reads_at_versions),
                static_cast<unsigned long long>(versions_verified));
  return text + rest;
}

TortureReport run_torture(const TortureOptions& options, const TortureOpen& open) {
  Torture torture(options, open);
  return torture.run();
}

}  // namespace perdure::testing
