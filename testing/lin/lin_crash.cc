// Recorded runs of processes that are killed.
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
#include <thread>
#include <vector>

#include "testing/crash/children.h"
#include "testing/crash/subject.h"
#include "testing/lin/lin_runner.h"
#include "testing/sim/sites.h"

namespace perdure::testing {

namespace {

constexpr std::uint32_t kMaxThreads = 8;
constexpr std::uint32_t kMaxOps = 1400;
constexpr std::uint32_t kMaxVersions = 4096;
constexpr std::uint32_t kVersionsRead = 8;  // by each process, of every key
// Mutations of one write_many(). Many in flight at a kill are too much for the checker.
constexpr std::uint32_t kMostTogether = 5;

// One thread's operations. The first `started` have begun. Of those, the ones whose result is not
// `open` are acknowledged: it is stored last.
struct Log {
  std::atomic<std::uint32_t> started;
  HistoryOp ops[kMaxOps];
};
struct Shared {
  std::atomic<bool> opened;
  std::atomic<bool> read;  // the pass over all keys is done
  std::atomic<bool> failed;
  char message[512];
  Log logs[kMaxThreads];
  // Versions that a tag has returned or a read has seen, in any process; 0: not stored yet.
  std::atomic<std::uint32_t> known;
  std::atomic<Version> versions[kMaxVersions];
  Version highest;  // the highest that a tag before this process can have made
};

class Child {
 public:
  Child(Shared& shared, const LinCrashOptions& options, std::uint16_t session)
      : shared_(shared), options_(options), session_(session) {}

  [[noreturn]] void run(const TortureOpen& open, const std::string& file, bool existed, bool last) {
    const TortureOptions& torture = options_.torture;
    if (!torture.mutant.empty() && !set_mutant(torture.mutant)) give_up("no such mutant");
    const std::uint64_t opening = history_call();
    auto target = open(torture, file);
    if (!target && !existed) {
      unlink(file.c_str());  // killed inside create: no caller knows that it is a pool
      target = open(torture, file);
    }
    if (!target) give_up("open: " + std::string(target.error().message()));
    target_ = target->get();
    shared_.opened = true;
    read_all(opening);
    shared_.read = true;
    if (last) {
      std::uint64_t entries = 0;
      const std::string wrong = target_->check(entries);
      if (!wrong.empty()) give_up(wrong);
      if (const Status s = target_->close(); !s.ok()) give_up("close");
      _exit(0);
    }
    std::vector<std::thread> threads;
    for (std::uint32_t t = 1; t < torture.threads; ++t) {
      threads.emplace_back([this, t] { work(t); });
    }
    work(0);
    for (;;) pause();  // wait for the kill
  }

 private:
  [[noreturn]] void give_up(const std::string& what) {
    bool expected = false;
    if (shared_.failed.compare_exchange_strong(expected, true)) {
      std::snprintf(shared_.message, sizeof shared_.message, "%s", what.c_str());
    }
    _exit(9);
  }

  void read_all(std::uint64_t opening) {
    Log& log = shared_.logs[0];
    for (std::uint32_t key = 0; key < options_.keys; ++key) {
      perform(log, HistoryKind::find, key, 0);
    }
    if (!target_->keeps_versions()) return;
    recovered_ = target_->versions().last;
    // Recovery has closed a version that no tag can have closed. It holds the content found now.
    if (recovered_ > shared_.highest) {
      HistoryOp& op = begin(
          log, {.call = opening, .version = recovered_, .key = kAllKeys, .kind = HistoryKind::tag});
      acknowledge(op, true);
      learn(recovered_);
    }
    Random random(options_.torture.seed << 16 ^ std::uint64_t{session_} << 8 ^ 0xff);
    for (std::uint32_t i = 0; i < kVersionsRead; ++i) {
      const Version version = some_version(random);
      for (std::uint32_t key = 0; key < options_.keys && version != 0; ++key) {
        perform(log, HistoryKind::find_at, key, 0, version);
      }
    }
  }

  void work(std::uint32_t thread) {
    Random random(options_.torture.seed << 16 ^ std::uint64_t{session_} << 8 ^ thread);
    std::uint64_t value = std::uint64_t{session_} << 48 | std::uint64_t{thread} << 40 | 1;
    static constexpr HistoryKind kKinds[] = {HistoryKind::insert, HistoryKind::upsert,
                                             HistoryKind::update, HistoryKind::erase,
                                             HistoryKind::find,   HistoryKind::find};
    for (std::uint32_t i = 0; i < options_.ops_per_thread; ++i) {
      Log& log = shared_.logs[thread];
      if (target_->keeps_versions() && random.one_in(16)) tag(log);
      const auto key = static_cast<std::uint32_t>(random.below(options_.keys));
      const Version version =
          target_->keeps_versions() && random.one_in(4) ? some_version(random) : 0;
      if (version != 0) {
        perform(log, HistoryKind::find_at, key, 0, version);
      } else if (const std::uint64_t dice = random.below(16); dice == 0) {
        i += perform_together(log, random, value) - 1;
      } else if (dice == 3) {
        i += perform_batch(log, random, key, value) - 1;
      } else if (dice < 3) {
        i += perform_if(log, dice == 1, key, value++) - 1;
      } else {
        perform(log, kKinds[random.below(6)], key, value++);
      }
    }
  }

  // A known version, the newest with probability 1/2; or the latest one, if a tag of this process
  // makes it, even if that tag has not returned. 0: none.
  Version some_version(Random& random) {
    if (random.one_in(4)) {
      const Version last = target_->versions().last;
      return last > recovered_ ? last : 0;
    }
    const std::uint32_t known = std::min(shared_.known.load(), kMaxVersions);
    if (known == 0) return 0;
    return shared_.versions[random.one_in(2) ? known - 1 : random.below(known)].load();
  }
  void learn(Version version) {
    const std::uint32_t known = std::min(shared_.known.load(), kMaxVersions);
    if (known != 0 && shared_.versions[known - 1] >= version) return;
    const std::uint32_t at = shared_.known.fetch_add(1);
    if (at < kMaxVersions) shared_.versions[at] = version;
  }

  HistoryOp& begin(Log& log, HistoryOp op) {
    const std::uint32_t at = log.started.load(std::memory_order_relaxed);
    op.session = session_;
    if (op.call == 0) op.call = history_call();
    log.ops[at] = op;
    log.started.store(at + 1, std::memory_order_release);
    return log.ops[at];
  }
  void acknowledge(HistoryOp& op, bool yes) {
    op.end = history_end();
    std::atomic_ref(op.result).store(yes ? HistoryResult::yes : HistoryResult::no,
                                     std::memory_order_release);
  }

  void tag(Log& log) {
    HistoryOp& op = begin(log, {.key = kAllKeys, .kind = HistoryKind::tag});
    auto version = target_->tag();
    if (!version) give_up("tag: " + std::string(version.error().message()));
    op.version = *version - (planted(Canary::early_tag, *version) ? 1 : 0);
    acknowledge(op, true);
    learn(*version);
  }
  bool planted(Canary canary, std::uint64_t which) const {
    return options_.canary == canary && which % 16 == 0;
  }

  void perform(Log& log, HistoryKind kind, std::uint32_t number, std::uint64_t value,
               Version version = 0) {
    const bool reads = kind == HistoryKind::find || kind == HistoryKind::find_at;
    const bool writes = !reads && kind != HistoryKind::erase;
    const std::string key = key_of(number);
    const std::string written = writes ? value_of(value) : "";
    std::string found;
    HistoryOp& op =
        begin(log, {.value = writes ? value : 0, .version = version, .key = number, .kind = kind});
    auto result = kind == HistoryKind::find      ? target_->find(key, found)
                  : kind == HistoryKind::find_at ? find_at(key, version, found)
                  : kind == HistoryKind::erase   ? target_->erase(key)
                  : kind == HistoryKind::insert  ? target_->insert(key, written)
                  : kind == HistoryKind::update  ? target_->update(key, written)
                                                 : target_->upsert(key, written);
    if (!result) give_up("an operation: " + std::string(result.error().message()));
    if (reads && *result) op.value = number_of(found);
    acknowledge(op, *result);
    if (version != 0) learn(version);
  }
  // Reads the key, and then expects what another thread may change meanwhile. Returns the number of
  // operations.
  std::uint32_t perform_if(Log& log, bool erases, std::uint32_t number, std::uint64_t value) {
    perform(log, HistoryKind::find, number, 0);
    const HistoryOp& seen = log.ops[log.started.load(std::memory_order_relaxed) - 1];
    if (seen.result != HistoryResult::yes) return 1;
    const std::string key = key_of(number);
    const std::string expected = value_of(seen.value);
    const std::string written = value_of(value);
    HistoryOp& op = begin(log, {.value = erases ? 0 : value,
                                .version = seen.value,
                                .key = number,
                                .kind = erases ? HistoryKind::erase_if : HistoryKind::update_if});
    auto result =
        erases ? target_->erase_if(key, expected) : target_->update_if(key, expected, written);
    if (!result) give_up("a conditional operation: " + std::string(result.error().message()));
    acknowledge(op, *result);
    return 2;
  }
  // One call of write_many(). Each mutation is an operation of its own, from the call to its
  // result. Returns their number.
  std::uint32_t perform_together(Log& log, Random& random, std::uint64_t& value) {
    static constexpr HistoryKind kKinds[] = {HistoryKind::insert, HistoryKind::upsert,
                                             HistoryKind::update, HistoryKind::erase};
    static constexpr MutationKind kCalls[] = {MutationKind::insert, MutationKind::put,
                                              MutationKind::update, MutationKind::erase};
    std::vector<TortureTarget::Write> writes(2 + random.below(kMostTogether - 1));
    std::vector<HistoryOp*> ops;
    for (TortureTarget::Write& write : writes) {
      const auto number = static_cast<std::uint32_t>(random.below(options_.keys));
      const std::uint64_t kind = random.below(4);
      const bool erases = kKinds[kind] == HistoryKind::erase;
      write = {.kind = kCalls[kind], .key = key_of(number), .value = value_of(value)};
      ops.push_back(
          &begin(log, {.value = erases ? 0 : value, .key = number, .kind = kKinds[kind]}));
      ++value;
    }
    target_->write_many(writes, [&](std::size_t i, const Expected<bool>& result) {
      if (!result) give_up("one of write_many: " + std::string(result.error().message()));
      acknowledge(*ops[i], *result);
    });
    return static_cast<std::uint32_t>(ops.size());
  }
  // A batch of puts and erases of distinct keys. That it is done wholly or not at all is judged by
  // the accounts of the torture. Returns the number of operations.
  std::uint32_t perform_batch(Log& log, Random& random, std::uint32_t first, std::uint64_t& value) {
    std::vector<TortureTarget::Write> writes(
        std::min<std::size_t>(2 + random.below(kMostTogether - 1), options_.keys));
    std::vector<HistoryOp*> ops;
    for (TortureTarget::Write& write : writes) {
      const std::uint32_t number = first++ % options_.keys;
      const bool erases = random.one_in(3);
      write = {.kind = erases ? MutationKind::erase : MutationKind::put,
               .key = key_of(number),
               .value = value_of(value)};
      ops.push_back(
          &begin(log, {.value = erases ? 0 : value,
                       .key = number,
                       .kind = erases ? HistoryKind::batch_erase : HistoryKind::batch_put}));
      ++value;
    }
    auto done = target_->commit({}, writes);
    if (!done) give_up("a batch: " + std::string(done.error().message()));
    for (HistoryOp* op : ops) acknowledge(*op, true);
    return static_cast<std::uint32_t>(ops.size());
  }
  Expected<bool> find_at(const std::string& key, Version version, std::string& value) {
    if (planted(Canary::late_read, version)) return target_->find(key, value);
    return target_->find_at(key, version, value);
  }

  bool integers() const { return options_.torture.keys == "integer"; }
  std::string key_of(std::uint32_t number) const {
    if (!integers()) return history_text_key(number);
    const std::uint64_t word = __builtin_bswap64(number);
    return {reinterpret_cast<const char*>(&word), 8};
  }
  std::string value_of(std::uint64_t number) const {
    if (!integers()) return history_text_value(number);
    return {reinterpret_cast<const char*>(&number), 8};
  }
  std::uint64_t number_of(const std::string& value) const {
    if (!integers()) return history_value_number(value);
    std::uint64_t number = 0;
    if (value.size() == 8) std::memcpy(&number, value.data(), 8);
    return number;
  }

  Shared& shared_;
  const LinCrashOptions& options_;
  std::uint16_t session_;
  TortureTarget* target_ = nullptr;
  Version recovered_ = 0;  // the last one that this process found at its start
};

class CrashRun {
 public:
  CrashRun(const LinCrashOptions& options, const TortureOpen& open)
      : options_(options),
        open_(open),
        random_(options.torture.seed),
        file_(options.torture.path + "/lin-" + std::to_string(getpid()) + ".perdure") {
    shared_ = shared_array<Shared>(1);
  }
  ~CrashRun() {
    munmap(static_cast<void*>(shared_), sizeof(Shared));
    unlink(file_.c_str());
  }
  CrashRun(const CrashRun&) = delete;
  CrashRun& operator=(const CrashRun&) = delete;

  LinCrashRun run() {
    unlink(file_.c_str());
    for (std::uint16_t session = 0; session <= options_.kills && run_.failure.empty(); ++session) {
      one_process(session, session == options_.kills);
    }
    return std::move(run_);
  }

 private:
  void one_process(std::uint16_t session, bool last) {
    shared_->opened = shared_->read = shared_->failed = false;
    for (Log& log : shared_->logs) log.started = 0;
    std::fflush(nullptr);
    const pid_t pid = fork();
    if (pid < 0) std::abort();
    if (pid == 0) Child(*shared_, options_, session).run(open_, file_, existed_, last);
    HistoryOp crash{.key = kAllKeys,
                    .kind = HistoryKind::crash,
                    .result = HistoryResult::yes,
                    .session = session};
    if (!last) {
      wait_a_while(pid);
      crash.call = history_call();
      kill(pid, SIGKILL);
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    crash.end = history_end();
    existed_ = existed_ || shared_->opened.load();
    collect();
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    const bool finished = last && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (shared_->failed.load()) {
      run_.failure = shared_->message;
    } else if (!killed && !finished) {
      run_.failure = "the child died with status " + std::to_string(status);
    }
    if (last) return;
    ++run_.kills;
    run_.ops.push_back(crash);
  }

  // One kill in eight comes at any time after the fork: in create, recovery or the pass over the
  // keys. The others come during the work, or after its end.
  void wait_a_while(pid_t pid) {
    const auto sleep = [](std::uint64_t us) {
      std::this_thread::sleep_for(std::chrono::microseconds(us));
    };
    if (random_.one_in(8)) return sleep(random_.below(4'000));
    for (int i = 0; i < 200'000 && !shared_->read.load() && !shared_->failed.load(); ++i) {
      siginfo_t info{};
      if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
          info.si_pid == pid) {
        return;  // the child died by itself
      }
      sleep(50);
    }
    sleep(random_.below(options_.torture.max_work_us));
  }

  // Collects the logs. A find without a result is dropped; a mutation without one stays open.
  void collect() {
    Version open_tags = 0;
    for (const Log& log : shared_->logs) {
      for (std::uint32_t i = 0; i < log.started.load(); ++i) {
        HistoryOp op = log.ops[i];
        const bool tags = op.kind == HistoryKind::tag;
        if (op.result == HistoryResult::open) {
          if (op.kind == HistoryKind::find || op.kind == HistoryKind::find_at) continue;
          op.end = kNever;
          ++run_.in_flight;
          open_tags += tags ? 1 : 0;
        }
        if (tags) shared_->highest = std::max(shared_->highest, op.version);
        run_.ops.push_back(op);
      }
    }
    shared_->highest += open_tags;
  }

  const LinCrashOptions& options_;
  const TortureOpen& open_;
  Random random_;
  std::string file_;
  Shared* shared_ = nullptr;
  LinCrashRun run_;
  bool existed_ = false;
};

}  // namespace

LinCrashRun run_crashed(const LinCrashOptions& options, const TortureOpen& open) {
  CrashRun run(options, open);
  return run.run();
}

}  // namespace perdure::testing
