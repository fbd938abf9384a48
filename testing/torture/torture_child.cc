#include "testing/torture/torture_child.h"
#include "testing/torture/pool_files.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <thread>

#include "testing/torture/kill_point.h"

namespace perdure::testing {

namespace {

// The operations of a thread in a cycle.
class OpStream {
 public:
  OpStream(const TortureOptions& options, const KillPlan& plan, std::uint64_t cycle,
           std::uint32_t thread)
      : keys_(options.keys_per_thread + plan.age * options.more_keys),
        thread_(thread),
        grows_(plan.when == KillWhen::growth),
        trim_one_in_(plan.trims ? 200 : 10'000),
        random_(options.seed << 32 ^ cycle << 8 ^ thread) {}
  // From now on also tags (`tags` times) and trims, which forget at least half of the known
  // versions.
  void keep_versions(const std::vector<KeptVersion>& kept, std::uint32_t tags) {
    for (const KeptVersion& version : kept) known_.push_back(version.number);
    tags_left_ = tags;
  }
  void tagged(std::uint64_t version) { known_.push_back(version); }

  LogEntry next(bool may_tag) {
    if (may_tag && tags_left_ != 0 && random_.one_in(100)) {
      --tags_left_;
      return {.key = tags_++, .kind = OpKind::tag};
    }
    if (!known_.empty() && random_.one_in(trim_one_in_)) {
      const std::size_t half = known_.size() / 2;
      known_.erase(
          known_.begin(),
          known_.begin() + static_cast<std::ptrdiff_t>(half + random_.below(known_.size() - half)));
      return {.kind = OpKind::trim, .version = known_.front()};
    }
    LogEntry entry = some_call();
    if (entry.kind == OpKind::update && random_.one_in(2)) entry.kind = OpKind::update_if;
    if (entry.kind == OpKind::erase && random_.one_in(4)) entry.kind = OpKind::erase_if;
    return entry;
  }
  // What a conditional operation expects: in three of four cases the value that the key has.
  std::uint64_t expectation(const KeyValue& has) {
    const std::uint64_t other = random_.next();
    return has && !random_.one_in(4) ? *has : other;
  }
  // The mutations of a write_many(), of which `entries` has the first one. Returns their number.
  std::uint32_t add_more(LogEntry* entries, std::uint32_t room) {
    const std::uint64_t wanted =
        std::min<std::uint64_t>(2 + random_.below(kMostTogether - 1), room);
    std::uint32_t n = 1;
    while (n < wanted) {
      const LogEntry more = some_call();
      const auto same = [&](const LogEntry& entry) { return entry.key == more.key; };
      if (more.kind == OpKind::find || std::any_of(entries, entries + n, same)) break;
      entries[n++] = more;
    }
    return n;
  }
  bool goes_on_together() { return random_.one_in(8); }

 private:
  LogEntry some_call() {
    static constexpr OpKind kKinds[] = {OpKind::upsert, OpKind::upsert, OpKind::upsert,
                                        OpKind::insert, OpKind::update, OpKind::erase,
                                        OpKind::erase,  OpKind::find};
    LogEntry entry;
    entry.key = static_cast<std::uint32_t>(random_.below(keys_)) * kTortureThreads + thread_;
    entry.kind = kKinds[random_.below(grows_ ? 5 : 8)];
    entry.value = random_.next();
    if (grows_ && random_.one_in(4)) entry.value &= ~std::uint64_t{15};  // a long value
    return entry;
  }

  std::uint64_t keys_;
  std::uint32_t thread_;
  bool grows_;
  std::uint64_t trim_one_in_;
  Random random_;
  std::vector<std::uint64_t> known_;
  std::uint32_t tags_ = 0;
  std::uint32_t tags_left_ = 0;
};

MutationKind mutation_kind(OpKind kind) {
  switch (kind) {
    case OpKind::insert:
      return MutationKind::insert;
    case OpKind::update:
      return MutationKind::update;
    case OpKind::erase:
      return MutationKind::erase;
    default:
      return MutationKind::put;
  }
}

std::string text_of(const TortureOptions& options, const LogEntry& entry) {
  return describe({.kind = entry.kind,
                   .key = key_text(options, entry.key),
                   .value = value_text(options, entry.value),
                   .expected = is_conditional(entry.kind) ? value_text(options, entry.expected)
                                                          : std::string()});
}

}  // namespace

void TortureChild::report(const std::string& what) { log_.failure.report(what); }

void TortureChild::wait_for_the_kill() {
  for (;;) pause();
}

void TortureChild::arm() {
  if (plan_.by_site) KillPoint::arm(plan_.site, plan_.nth, &log_.killed_at);
}

void TortureChild::run(const TortureOpen& open, const std::string& file, bool created) {
  // The parent must be on time, and no child may outlive it.
  (void)setpriority(PRIO_PROCESS, 0, 5);
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!options_.mutant.empty() && !set_mutant(options_.mutant)) {
    report("no such mutant: " + options_.mutant);
  }
  if (plan_.when == KillWhen::create || plan_.when == KillWhen::recovery) arm();
  log_.phase = Phase::opening;
  auto target = open(options_, file);
  if (!target && !created) {
    // The child was killed inside create: this is not a pool yet, and creation was not
    // acknowledged.
    remove_pool(file);
    target = open(options_, file);
  }
  if (!target) report("open: " + std::string(target.error().message()));
  target_ = std::move(*target);
  log_.keeps_versions = target_->keeps_versions();
  log_.open_calls = KillPoint::calls();
  log_.phase = Phase::opened;
  verify();
  log_.phase = Phase::verified;
  if (plan_.last) {
    if (const Status s = target_->close(); !s.ok()) report("close: " + std::string(s.message()));
    _exit(0);
  }
  if (plan_.when == KillWhen::close) {
    close();
  } else {
    if (plan_.when > KillWhen::recovery) arm();
    if (rollback_to_ != 0) roll_back();
    work_in_all(kLogEntries);
  }
  wait_for_the_kill();
}

// --- verification ---

std::string TortureChild::check_key(std::uint32_t key, const ThreadModel& model) {
  const std::string name = key_text(options_, key);
  std::string value;
  const auto found = target_->find(name, value);
  if (!found) return "find " + printable(name) + ": " + std::string(found.error().message());
  const KeyValue word = model.value_of(key);
  if (!word) return *found ? printable(name) + " was erased and is back: " + printable(value) : "";
  if (!*found) return printable(name) + " was acknowledged and is lost";
  const std::string expected = value_text(options_, *word);
  if (value == expected) return "";
  return printable(name) + " is " + printable(value) + ", not " + printable(expected);
}

// Each operation in flight has happened or not. The result of the first verification must stay.
void TortureChild::verify_pending(ThreadModel& model, std::uint32_t thread) {
  for (ThreadModel::Pending& pending : model.pending()) {
    if (pending.outcome != Outcome::unknown) continue;
    const bool undone = check_key(pending.entry.key, model).empty();
    pending.outcome = undone ? Outcome::undone : Outcome::done;
  }
  const std::vector<ThreadModel::Pending> ended = model.pending();
  model.end_pending();
  for (std::size_t i = 0; i < ended.size(); ++i) {
    const LogEntry& entry = ended[i].entry;
    if (const std::string wrong = check_key(entry.key, model); !wrong.empty()) {
      report("in flight, " + text_of(options_, entry) + ": " + wrong);
    }
    log_.outcome[thread][i] = ended[i].outcome;
  }
}

void TortureChild::verify() {
  std::uint64_t entries = 0;
  if (model_.rollback) decide_rollback();
  for (std::uint32_t t = 0; t < model_.threads.size(); ++t) {
    ThreadModel& model = model_.threads[t];
    verify_pending(model, t);
    for (const auto& [key, value] : model.content()) {
      if (const std::string wrong = check_key(key, model); !wrong.empty()) report(wrong);
    }
    entries += model.content().size();
  }
  if (target_->keeps_versions()) {
    if (const std::string wrong = verify_versions(); !wrong.empty()) report(wrong);
  }
  // A check waits for the sweep that open left to the background. In every third cycle this process
  // works beside the sweep, and a later one makes the check.
  if (cycle_ % 3 == 2 && !plan_.last) return;
  std::uint64_t found = 0;
  if (const std::string wrong = target_->check(found); !wrong.empty()) report(wrong);
  if (found != entries) {
    report("there are " + std::to_string(found) + " entries, not " + std::to_string(entries));
  }
}

// --- work ---

void TortureChild::perform(ThreadLog& log, std::uint32_t index) {
  LogEntry& entry = log.entries[index];
  if (entry.kind == OpKind::tag || entry.version != 0) {
    log.started.store(index + 1, std::memory_order_release);
    perform_at_versions(log, entry);
    log.acknowledged.store(index + 1, std::memory_order_release);
    return;
  }
  const std::string key = key_text(options_, entry.key);
  const std::string value =
      entry.kind == OpKind::find ? std::string() : value_text(options_, entry.value);
  const std::string expected =
      is_conditional(entry.kind) ? value_text(options_, entry.expected) : std::string();
  log.started.store(index + 1, std::memory_order_release);
  if (options_.early_ack) {
    log.acknowledged.store(index + 1, std::memory_order_release);
    usleep(20);
  }
  std::string found;
  const auto result = entry.kind == OpKind::erase       ? target_->erase(key)
                      : entry.kind == OpKind::insert    ? target_->insert(key, value)
                      : entry.kind == OpKind::update    ? target_->update(key, value)
                      : entry.kind == OpKind::upsert    ? target_->upsert(key, value)
                      : entry.kind == OpKind::update_if ? target_->update_if(key, expected, value)
                      : entry.kind == OpKind::erase_if  ? target_->erase_if(key, expected)
                                                        : target_->find(key, found);
  if (!result) {
    report(text_of(options_, entry) + ": " + std::string(result.error().message()));
  }
  if (options_.early_ack) return;
  if (entry.kind == OpKind::find && *result) entry.value = digest(found);
  entry.result = *result ? LogResult::yes : LogResult::no;
  log.acknowledged.store(index + 1, std::memory_order_release);
}

void TortureChild::perform_together(ThreadLog& log, std::uint32_t index, std::uint32_t n) {
  std::vector<TortureTarget::Write> writes;
  for (std::uint32_t i = index; i < index + n; ++i) {
    LogEntry& entry = log.entries[i];
    entry.together = true;
    writes.push_back({.kind = mutation_kind(entry.kind), .key = key_text(options_, entry.key)});
    if (entry.kind != OpKind::erase) writes.back().value = value_text(options_, entry.value);
  }
  log.started.store(index + n, std::memory_order_release);
  target_->write_many(writes, [&](std::size_t i, const Expected<bool>& result) {
    LogEntry& entry = log.entries[index + i];
    if (!result) {
      report("together, " + text_of(options_, entry) + ": " +
             std::string(result.error().message()));
    }
    entry.result = *result ? LogResult::yes : LogResult::no;
    const auto ended = static_cast<std::uint32_t>(index + i + 1);
    log.acknowledged.store(ended, std::memory_order_release);
  });
}

void TortureChild::work(std::uint32_t thread, std::uint32_t limit) {
  OpStream stream(options_, plan_, cycle_, thread);
  ThreadLog& log = log_.threads[thread];
  ThreadModel& model = model_.threads[thread];  // for what conditional operations expect
  if (target_->keeps_versions() && !options_.early_ack) {
    const std::size_t room = kMostVersions - 1 - model_.kept.size();
    stream.keep_versions(model_.kept, std::min<std::uint32_t>(room / options_.threads, kLogTags));
  }
  std::uint64_t tagged = 0;  // the version of the tag before
  for (std::uint32_t i = 0, n = 1; i < limit; i += n, n = 1) {
    log.entries[i] = tagged != 0 && !options_.loose_versions ? read_beside(thread, i, tagged)
                                                             : stream.next(tagged == 0);
    if (options_.early_ack && log.entries[i].kind == OpKind::find) {
      log.entries[i].kind = OpKind::upsert;  // the log of an early acknowledged find has no result
    }
    LogEntry& entry = log.entries[i];
    if (is_conditional(entry.kind)) entry.expected = stream.expectation(model.value_of(entry.key));
    const bool alone = options_.early_ack || options_.loose_versions || entry.kind > OpKind::erase;
    if (!alone && stream.goes_on_together()) n = stream.add_more(&entry, limit - i);
    if (n == 1) {
      perform(log, i);
    } else {
      perform_together(log, i, n);
    }
    for (std::uint32_t j = i; j < i + n; ++j) model.apply(log.entries[j]);
    if (tagged != 0 && options_.loose_versions) (void)target_->tag();
    tagged = entry.kind == OpKind::tag ? entry.version : 0;
    if (tagged != 0) stream.tagged(tagged);
    if (plan_.when != KillWhen::upkeep || thread != 0 || i / 64 == (i + n) / 64) continue;
    const Status s = i % 128 < 64 ? target_->sync() : target_->compact();
    if (!s.ok()) report("upkeep: " + std::string(s.message()));
  }
}

void TortureChild::work_in_all(std::uint32_t limit) {
  std::vector<std::thread> threads;
  for (std::uint32_t t = 1; t < options_.threads; ++t) {
    threads.emplace_back([this, t, limit] { work(t, limit); });
  }
  work(0, limit);
  for (std::thread& thread : threads) thread.join();
}

void TortureChild::close() {
  work_in_all(200);
  const std::uint64_t before = KillPoint::calls();
  arm();
  log_.phase = Phase::closing;
  if (const Status s = target_->close(); !s.ok()) report("close: " + std::string(s.message()));
  log_.close_calls = KillPoint::calls() - before;
  log_.phase = Phase::closed;
}

}  // namespace perdure::testing
