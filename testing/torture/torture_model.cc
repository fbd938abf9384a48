#include "testing/torture/torture_model.h"

#include <algorithm>
#include <iterator>

namespace perdure::testing {

namespace {

KeyValue value_after(const LogEntry& entry, const KeyValue& before) {
  switch (entry.kind) {
    case OpKind::insert:
      return before ? before : entry.value;
    case OpKind::upsert:
      return entry.value;
    case OpKind::update:
      return before ? KeyValue(entry.value) : std::nullopt;
    case OpKind::erase:
      return std::nullopt;
    case OpKind::update_if:
      return before == entry.expected ? entry.value : before;
    case OpKind::erase_if:
      return before == entry.expected ? std::nullopt : before;
    default:
      return before;
  }
}

}  // namespace

KeyValue digest_of(const TortureOptions& options, const KeyValue& value) {
  if (!value) return std::nullopt;
  return digest(value_text(options, *value));
}

// --- a thread ---

KeyValue ThreadModel::value_of(std::uint32_t key) const {
  const auto it = content_.find(key);
  return it == content_.end() ? std::nullopt : KeyValue(it->second);
}

KeyValue ThreadModel::value_at(std::uint32_t key, std::uint64_t cut) const {
  KeyValue value;
  if (const auto it = history_.find(key); it != history_.end()) {
    for (const Change& change : it->second) {
      if (change.since > cut) break;
      value = change.value;
    }
  }
  return value;
}

void ThreadModel::note(std::uint32_t key, const KeyValue& value) {
  if (!keeps_history_) return;
  const auto it = history_.find(key);
  const KeyValue before = it == history_.end() ? std::nullopt : it->second.back().value;
  if (before != value) history_[key].push_back({operations_, value});
}

void ThreadModel::set(std::uint32_t key, const KeyValue& value) {
  if (value) {
    content_.insert_or_assign(key, *value);
  } else {
    content_.erase(key);
  }
  note(key, value);
}

bool ThreadModel::apply(const LogEntry& entry) {
  ++operations_;
  const KeyValue before = value_of(entry.key);
  if (is_write(entry.kind)) set(entry.key, value_after(entry, before));
  if (is_conditional(entry.kind)) return before == entry.expected;
  const bool makes = entry.kind == OpKind::insert || entry.kind == OpKind::upsert;
  return before.has_value() != makes;
}

void ThreadModel::begin(const LogEntry& entry) {
  pending_.push_back({.entry = entry, .since = ++operations_});
  note(entry.key, value_after(entry, value_of(entry.key)));
}

void ThreadModel::end_pending() {
  for (const auto& [entry, since, outcome] : pending_) {
    if (outcome == Outcome::done) {
      set(entry.key, value_after(entry, value_of(entry.key)));
    } else if (const auto it = history_.find(entry.key); it != history_.end()) {
      if (it->second.back().since == since) it->second.pop_back();
      if (it->second.empty()) history_.erase(it);
    }
  }
  pending_.clear();
}

bool ThreadModel::narrow(const TortureOptions& options, std::uint32_t key, const KeyValue& found,
                         Cut& cut) const {
  Cut explained;
  bool any = false;
  Cut part = cut;
  const auto consider = [&](const KeyValue& value) {
    if (digest_of(options, value) != found) return;
    explained = {any ? explained.from : part.from, part.to};
    any = true;
  };
  KeyValue value = value_at(key, cut.from);
  if (const auto it = history_.find(key); it != history_.end()) {
    for (const Change& change : it->second) {
      if (change.since <= cut.from || change.since > cut.to) continue;
      part.to = change.since - 1;
      consider(value);
      part = {change.since, cut.to};
      value = change.value;
    }
  }
  consider(value);
  if (any) cut = explained;
  return any;
}

bool ThreadModel::changes_within(std::uint32_t key, const Cut& cut) const {
  const auto it = history_.find(key);
  return it != history_.end() && std::ranges::any_of(it->second, [&](const Change& change) {
           return change.since > cut.from && change.since <= cut.to;
         });
}

std::string ThreadModel::narrow_to_all(const TortureOptions& options, const Found& found,
                                       Cut& cut) const {
  std::vector<std::uint32_t> moving;
  for (const auto& [key, changes] : history_) {
    if (changes_within(key, cut)) moving.push_back(key);
  }
  for (const auto& [key, changes] : history_) {
    const KeyValue its = found(key);
    if (narrow(options, key, its, cut)) continue;
    return printable(key_text(options, key)) + " is " + (its ? "another value" : "lost") +
           ", not what it was after " + std::to_string(cut.from) + " to " + std::to_string(cut.to) +
           " operations";
  }
  const auto explains = [&](std::uint64_t at) {
    return std::ranges::all_of(moving, [&](std::uint32_t key) {
      return digest_of(options, value_at(key, at)) == found(key);
    });
  };
  for (; cut.from <= cut.to; ++cut.from) {
    if (explains(cut.from)) return {};
  }
  return "keys are of different moments of one thread";
}

std::size_t ThreadModel::entries_at(std::uint64_t cut) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      history_, [&](const auto& row) { return value_at(row.first, cut).has_value(); }));
}

bool ThreadModel::differs_from(std::uint64_t cut) const {
  return std::ranges::any_of(
      history_, [&](const auto& row) { return value_of(row.first) != value_at(row.first, cut); });
}

void ThreadModel::roll_back(std::uint64_t cut) {
  ++operations_;
  for (const auto& [key, changes] : history_) set(key, value_at(key, cut));
}

void ThreadModel::forget_before(std::uint64_t cut) {
  for (auto it = history_.begin(); it != history_.end();) {
    std::vector<Change>& changes = it->second;
    const auto later =
        std::ranges::find_if(changes, [&](const Change& change) { return change.since > cut; });
    if (later != changes.begin()) {
      const auto counts = std::prev(later);
      changes.erase(changes.begin(), counts->value ? counts : later);
    }
    it = changes.empty() ? history_.erase(it) : std::next(it);
  }
}

// --- all of them ---

const KeptVersion* TortureModel::find(std::uint64_t number) const {
  const auto it = std::ranges::lower_bound(kept, number, {}, &KeptVersion::number);
  return it != kept.end() && it->number == number ? &*it : nullptr;
}

KeptVersion TortureModel::between(std::uint64_t number) const {
  const auto above = std::ranges::upper_bound(kept, number, {}, &KeptVersion::number);
  KeptVersion version{.number = number};
  for (std::size_t t = 0; t < threads.size(); ++t) {
    version.cuts[t] = {above == kept.begin() ? floor_[t] : std::prev(above)->cuts[t].from,
                       above == kept.end() ? threads[t].operations() : above->cuts[t].to};
  }
  return version;
}

void TortureModel::trim(std::uint64_t to) {
  first = std::max(first, to);
  const auto stays = std::ranges::lower_bound(kept, first, {}, &KeptVersion::number);
  if (stays == kept.begin()) return;
  for (std::size_t t = 0; t < threads.size(); ++t) {
    floor_[t] = std::prev(stays)->cuts[t].from;
    threads[t].forget_before(floor_[t]);
  }
  kept.erase(kept.begin(), stays);
}

// Later versions read as that one from now on.
void TortureModel::roll_back(std::uint64_t to) {
  const KeptVersion& version = *find(to);
  for (std::size_t t = 0; t < threads.size(); ++t) {
    threads[t].roll_back(version.cuts[t].from);
    for (KeptVersion& other : kept) {
      if (other.number > to) other.cuts[t] = {threads[t].operations(), threads[t].operations()};
    }
  }
}

bool TortureModel::order_cuts() {
  for (std::size_t t = 0; t < threads.size(); ++t) {
    std::uint64_t from = floor_[t];
    for (KeptVersion& version : kept) {
      from = version.cuts[t].from = std::max(from, version.cuts[t].from);
    }
    std::uint64_t to = threads[t].operations();
    for (auto it = kept.rbegin(); it != kept.rend(); ++it) {
      to = it->cuts[t].to = std::min(to, it->cuts[t].to);
      if (it->cuts[t].from > to) return false;
    }
  }
  return true;
}

void TortureModel::see(const TortureLog& log) {
  if (rollback && log.rollback_outcome.load() != Outcome::unknown) {
    if (log.rollback_outcome.load() == Outcome::done) roll_back(*rollback);
    rollback.reset();
  }
  const SeenVersions& seen = log.seen;
  if (seen.first.load(std::memory_order_acquire) == 0) return;
  if (seen.newest != 0) kept.push_back({.number = seen.newest});
  for (std::size_t i = 0; i < kept.size(); ++i) {
    std::ranges::copy(seen.cuts[i], kept[i].cuts.begin());
  }
  trims.clear();
  last = std::max(last, seen.last);
  trim(seen.first.load());
}

std::string TortureModel::settle_versions(
    const TortureOptions& options, const TortureLog& log,
    const std::array<std::uint64_t, kTortureThreads>& before) {
  if (std::string wrong = add_tags(log, before); !wrong.empty()) return wrong;
  std::uint64_t asked = 0, trimmed = 0;  // of the highest trim that began; that was acknowledged
  for (std::size_t t = 0; t < threads.size(); ++t) {
    const ThreadLog& thread = log.threads[t];
    for (std::uint32_t i = 0; i < thread.started.load(); ++i) {
      const LogEntry& entry = thread.entries[i];
      if (entry.kind != OpKind::trim) continue;
      const bool acknowledged = i < thread.acknowledged.load();
      asked = std::max(asked, entry.version);
      if (acknowledged) trimmed = std::max(trimmed, entry.version);
      if (!acknowledged) trims.push_back(entry.version);
    }
  }
  for (std::size_t t = 0; t < threads.size(); ++t) {
    std::string wrong = judge_reads(options, log.threads[t], asked);
    if (!wrong.empty()) return wrong;
  }
  if (!order_cuts()) return "no order of the versions explains the reads";
  // A version was read with an operation in flight in it: the operation has happened. Engines that
  // keep versions do the mutations of a write_many() one after the other.
  for (std::size_t t = 0; t < threads.size() && !kept.empty(); ++t) {
    for (ThreadModel::Pending& pending : threads[t].pending()) {
      if (pending.since <= kept.back().cuts[t].from) pending.outcome = Outcome::done;
    }
  }
  trim(trimmed);
  return {};
}

std::string TortureModel::add_tags(const TortureLog& log,
                                   const std::array<std::uint64_t, kTortureThreads>& before) {
  const std::uint64_t seen = last;
  for (std::size_t t = 0; t < threads.size(); ++t) {
    const ThreadLog& thread = log.threads[t];
    for (std::uint32_t i = 0; i < thread.acknowledged.load(); ++i) {
      const LogEntry& entry = thread.entries[i];
      if (entry.kind != OpKind::tag) continue;
      KeptVersion version{.number = entry.version};
      if (version.number <= seen) {
        return "a tag returned " + std::to_string(version.number) + " after " +
               std::to_string(seen) + " had been returned or seen";
      }
      for (std::size_t other = 0; other < threads.size(); ++other) {
        const Cut& cut = thread.tags[entry.key].cuts[other];
        version.cuts[other] = {before[other] + cut.from, before[other] + cut.to};
      }
      version.cuts[t].to = version.cuts[t].from;
      last = std::max(last, version.number);
      kept.push_back(version);
    }
  }
  std::ranges::sort(kept, {}, &KeptVersion::number);
  if (std::ranges::adjacent_find(kept, {}, &KeptVersion::number) != kept.end()) {
    return "two tags returned the same version";
  }
  return order_cuts() ? "" : "the versions of tags have another order than the tags";
}

// A version may be refused once a trim of a later one has begun. It must be refused once a trim of
// this thread is over.
std::string TortureModel::judge_reads(const TortureOptions& options, const ThreadLog& log,
                                      std::uint64_t asked) {
  std::uint64_t trimmed = 0;
  for (std::uint32_t i = 0; i < log.acknowledged.load(); ++i) {
    const LogEntry& entry = log.entries[i];
    if (entry.kind == OpKind::trim) trimmed = std::max(trimmed, entry.version);
    if (entry.kind != OpKind::find || entry.version == 0) continue;
    const std::string what =
        "version " + std::to_string(entry.version) + ", " + printable(key_text(options, entry.key));
    if (entry.result == LogResult::refused) {
      if (entry.version >= asked) return what + ": refused, although it was not trimmed";
      continue;
    }
    if (entry.version < trimmed) return what + ": read, although it was trimmed";
    const auto version = std::ranges::lower_bound(kept, entry.version, {}, &KeptVersion::number);
    const std::uint32_t owner = entry.key % kTortureThreads;
    const KeyValue found = entry.result == LogResult::yes ? KeyValue(entry.value) : std::nullopt;
    if (!threads[owner].narrow(options, entry.key, found, version->cuts[owner])) {
      return what + ": another value was found than the key had";
    }
  }
  return {};
}

}  // namespace perdure::testing
