// TortureChild: verifies versions, and works at them.
#include <algorithm>
#include <set>
#include <unordered_map>

#include "testing/torture/torture_child.h"

namespace perdure::testing {

namespace {

constexpr std::size_t kWhole = 2;      // versions that are verified key by key
constexpr std::size_t kSamples = 8;    // keys of each other version
constexpr std::size_t kHistories = 4;  // verified histories of keys

std::string of_version(std::uint64_t number) { return "version " + std::to_string(number); }

}  // namespace

// --- verification ---

// Decides whether the rollback happened. It was begun only if it changes some key, whose value
// tells.
void TortureChild::decide_rollback() {
  const std::uint64_t to = *model_.rollback;
  const KeptVersion& version = *model_.find(to);
  Outcome outcome = Outcome::unknown;
  for (std::uint32_t t = 0; t < model_.threads.size() && outcome == Outcome::unknown; ++t) {
    const ThreadModel& model = model_.threads[t];
    for (const auto& [key, changes] : model.history()) {
      if (model.value_of(key) == model.value_at(key, version.cuts[t].from)) continue;
      outcome = check_key(key, model).empty() ? Outcome::undone : Outcome::done;
      break;
    }
  }
  if (outcome == Outcome::done) model_.roll_back(to);
  model_.rollback.reset();
  log_.rollback_outcome = outcome;
}

std::string TortureChild::verify_range(const VersionRange& range) {
  const std::string text = std::to_string(range.first) + " to " + std::to_string(range.last);
  if (range.last < model_.last) {
    return "there are versions " + text + ": " + std::to_string(model_.last) +
           " was acknowledged and is lost";
  }
  const bool trimmed = range.first > model_.first && std::ranges::count(model_.trims, range.first);
  if (range.first == model_.first || trimmed) return {};
  return "there are versions " + text + ": those below " + std::to_string(model_.first) +
         " were trimmed, and no others";
}

std::string TortureChild::verify_versions() {
  const VersionRange range = target_->versions();
  if (std::string wrong = verify_range(range); !wrong.empty()) return wrong;
  Random random(options_.seed << 32 ^ cycle_ << 8 ^ 0xFF);
  std::vector<KeptVersion>& kept = model_.kept;
  // If the clock has passed the last acknowledged version, this version is closed.
  const bool newest = range.last > model_.last && range.last >= range.first;
  if (newest) kept.push_back(model_.between(range.last));
  std::set<std::size_t> whole;
  for (std::size_t i = 0; i < kWhole && !kept.empty(); ++i) whole.insert(random.below(kept.size()));
  if (newest) whole.insert(kept.size() - 1);
  if (plan_.rolls_back && !kept.empty()) {
    const KeptVersion& version = kept[*whole.begin()];
    if (version.number >= range.first) rollback_to_ = version.number;
  }
  Entries before;
  const KeptVersion* from = nullptr;  // the last one that was verified whole
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (kept[i].number < range.first) {
      if (std::string wrong = verify_trimmed(kept[i].number, random); !wrong.empty()) return wrong;
      continue;
    }
    Entries entries;
    std::string wrong =
        whole.contains(i) ? verify_whole(kept[i], entries) : verify_some(kept[i], random);
    if (wrong.empty() && whole.contains(i)) {
      if (from != nullptr) wrong = verify_difference(*from, before, kept[i], entries);
      from = &kept[i];
      before = std::move(entries);
    }
    if (!wrong.empty()) return wrong;
    ++log_.verified;
  }
  for (std::size_t i = 0; i < kHistories; ++i) {
    if (std::string wrong = verify_history(range.first, random); !wrong.empty()) return wrong;
  }
  // Versions trimmed long ago, and versions never acknowledged.
  if (range.first > 1) {
    for (const std::uint64_t version : {range.first - 1, 1 + random.below(range.first - 1)}) {
      if (std::string wrong = verify_trimmed(version, random); !wrong.empty()) return wrong;
    }
  }
  if (range.last >= range.first) {
    const std::uint64_t number = range.first + random.below(range.last - range.first + 1);
    KeptVersion version = model_.between(number);
    if (model_.find(number) == nullptr) {
      if (std::string wrong = verify_some(version, random); !wrong.empty()) return wrong;
    }
  }
  publish(range, newest);
  return {};
}

std::string TortureChild::verify_whole(KeptVersion& version, Entries& entries) {
  auto scanned =
      target_->scan_at(version.number, [&](std::string_view key, std::string_view value) {
        entries.emplace(key, digest(std::string(value)));
      });
  const std::string what = of_version(version.number);
  if (!scanned) return what + ": " + std::string(scanned.error().message());
  std::size_t expected = 0;
  for (std::uint32_t t = 0; t < model_.threads.size(); ++t) {
    const ThreadModel& model = model_.threads[t];
    const auto found = [&](std::uint32_t key) {
      const auto it = entries.find(key_text(options_, key));
      return it == entries.end() ? std::nullopt : KeyValue(it->second);
    };
    const std::string wrong = model.narrow_to_all(options_, found, version.cuts[t]);
    if (!wrong.empty()) return what + ": " + wrong;
    expected += model.entries_at(version.cuts[t].from);
  }
  if (entries.size() == expected) return {};
  return what + " has " + std::to_string(entries.size()) + " entries, not " +
         std::to_string(expected);
}

// For two versions that were verified whole: the difference must have every key that differs, in
// order, and no other.
std::string TortureChild::verify_difference(const KeptVersion& from, const Entries& before,
                                            const KeptVersion& to, const Entries& after) {
  const std::string what = "the difference of versions " + std::to_string(from.number) + " and " +
                           std::to_string(to.number);
  const auto of = [](const Entries& entries, const std::string& key) {
    const auto it = entries.find(key);
    return it == entries.end() ? KeyValue() : KeyValue(it->second);
  };
  std::string wrong;
  std::string last;
  std::size_t named = 0;
  auto done = target_->diff(
      from.number, to.number,
      [&](std::string_view key, const TortureTarget::Text& was, const TortureTarget::Text& is) {
        const std::string name(key);
        if (named++ != 0 && name <= last) wrong = printable(name) + " is out of order";
        if (of(before, name) != was.transform(digest) || of(after, name) != is.transform(digest)) {
          wrong = printable(name) + " has other values";
        } else if (of(before, name) == of(after, name)) {
          wrong = printable(name) + " does not differ";
        }
        last = name;
      });
  if (!done) return what + ": " + std::string(done.error().message());
  if (!wrong.empty()) return what + ": " + wrong;
  std::size_t differ = 0;
  for (const auto& [key, value] : before) differ += of(after, key) != KeyValue(value) ? 1 : 0;
  for (const auto& [key, value] : after) differ += before.contains(key) ? 0 : 1;
  if (named == differ) return {};
  return what + " has " + std::to_string(named) + " keys, not " + std::to_string(differ);
}

// Entry by entry, from the first readable version on: each is the key's value until the next entry.
std::string TortureChild::verify_history(std::uint64_t first, Random& random) {
  const std::string name = key_text(options_, some_key(random));
  const std::string what = "the history of " + printable(name) + ": ";
  std::vector<std::pair<std::uint64_t, TortureTarget::Text>> entries;
  auto done = target_->history(name, [&](std::uint64_t version, const TortureTarget::Text& value) {
    entries.emplace_back(version, value);
  });
  if (!done) return what + std::string(done.error().message());
  for (std::size_t i = 1; i < entries.size(); ++i) {
    if (entries[i - 1].first >= entries[i].first) return what + "versions out of order";
  }
  const auto in_history = [&](std::uint64_t version) {
    TortureTarget::Text value;
    for (const auto& [since, then] : entries) {
      if (since <= version) value = then;
    }
    return value;
  };
  for (const KeptVersion& version : model_.kept) {
    if (version.number < first) continue;
    std::string value;
    const auto there = target_->find_at(name, version.number, value);
    if (!there) return what + std::string(there.error().message());
    if (in_history(version.number) != (*there ? TortureTarget::Text(value) : std::nullopt)) {
      return what + "not what it was in " + of_version(version.number);
    }
  }
  std::string value;
  const auto there = target_->find(name, value);
  if (!there) return what + std::string(there.error().message());
  if (in_history(~std::uint64_t{0}) == (*there ? TortureTarget::Text(value) : std::nullopt)) {
    return {};
  }
  return what + "it ends with another value than the key has";
}

std::uint32_t TortureChild::some_key(Random& random) {
  const std::uint64_t keys = options_.keys_per_thread + plan_.age * options_.more_keys;
  return static_cast<std::uint32_t>(random.below(keys) * kTortureThreads +
                                    random.below(options_.threads));
}

std::string TortureChild::verify_some(KeptVersion& version, Random& random) {
  for (std::size_t i = 0; i < kSamples; ++i) {
    const std::uint32_t key = some_key(random);
    const std::string name = key_text(options_, key);
    const std::string what = of_version(version.number) + ", " + printable(name) + ": ";
    std::string value;
    const auto there = target_->find_at(name, version.number, value);
    if (!there) return what + std::string(there.error().message());
    const std::uint32_t owner = key % kTortureThreads;
    const KeyValue found = *there ? KeyValue(digest(value)) : std::nullopt;
    const ThreadModel& model = model_.threads[owner];
    Cut& cut = version.cuts[owner];
    if (model.narrow(options_, key, found, cut)) continue;
    const KeyValue word = model.value_at(key, cut.from);
    return what + (*there ? printable(value) : "absent") + ", not " +
           (word ? printable(value_text(options_, *word)) : "absent");
  }
  return {};
}

std::string TortureChild::verify_trimmed(std::uint64_t version, Random& random) {
  std::string value;
  const auto there = target_->find_at(key_text(options_, some_key(random)), version, value);
  if (!there && there.error() == StatusCode::invalid_argument) return {};
  return of_version(version) + " was trimmed and is back";
}

void TortureChild::publish(const VersionRange& range, bool newest) {
  for (std::size_t i = 0; i < model_.kept.size(); ++i) {
    std::ranges::copy(model_.kept[i].cuts, log_.seen.cuts[i]);
  }
  log_.seen.newest = newest ? range.last : 0;
  log_.seen.last = range.last;
  log_.seen.first.store(range.first, std::memory_order_release);
}

// --- work ---

// Rolls back to a version that was verified whole: its content is then known.
void TortureChild::roll_back() {
  const KeptVersion& version = *model_.find(rollback_to_);
  bool differs = false;
  for (std::uint32_t t = 0; t < model_.threads.size() && !differs; ++t) {
    differs = model_.threads[t].differs_from(version.cuts[t].from);
  }
  if (!differs) return;
  log_.rollback_to = rollback_to_;
  if (const Status s = target_->rollback(rollback_to_); !s.ok()) {
    report("rollback to " + of_version(rollback_to_) + ": " + std::string(s.message()));
  }
  log_.rolled_back = true;
  model_.roll_back(rollback_to_);
}

// A find, at a version that this thread has just tagged, of a key that another thread writes: it
// meets stores that are not durable yet. A single thread reads its own last write.
LogEntry TortureChild::read_beside(std::uint32_t thread, std::uint32_t index,
                                   std::uint64_t version) {
  const std::uint32_t others = options_.threads - 1;
  const std::uint32_t other = others == 0 ? 0 : (thread + 1 + index % others) % options_.threads;
  const ThreadLog& log = log_.threads[other];
  std::uint32_t at = other == thread ? index : log.started.load(std::memory_order_acquire);
  while (at > 0 && !is_write(log.entries[at - 1].kind)) --at;
  const std::uint32_t key = at > 0 ? log.entries[at - 1].key : other;
  return {.key = key, .kind = OpKind::find, .version = version};
}

void TortureChild::perform_at_versions(ThreadLog& log, LogEntry& entry) {
  if (entry.kind == OpKind::tag) {
    Cut* const cuts = log.tags[entry.key].cuts;
    for (std::uint32_t t = 0; t < options_.threads; ++t) {
      cuts[t].from = log_.threads[t].acknowledged.load(std::memory_order_acquire);
    }
    const auto version = options_.loose_versions ? target_->versions().last + 1 : target_->tag();
    if (!version) report("tag: " + std::string(version.error().message()));
    for (std::uint32_t t = 0; t < options_.threads; ++t) {
      cuts[t].to = log_.threads[t].started.load(std::memory_order_acquire);
    }
    entry.version = *version;
  } else if (entry.kind == OpKind::trim) {
    const auto first = target_->trim(entry.version);
    if (!first) report("trim: " + std::string(first.error().message()));
    if (*first < entry.version) {
      report("trim of " + of_version(entry.version) + " returned " + std::to_string(*first));
    }
  } else {
    std::string found;
    const auto there = target_->find_at(key_text(options_, entry.key), entry.version, found);
    if (!there && there.error() != StatusCode::invalid_argument) {
      report("a find at " + of_version(entry.version) + ": " +
             std::string(there.error().message()));
    }
    if (there && *there) entry.value = digest(found);
    entry.result = !there ? LogResult::refused : *there ? LogResult::yes : LogResult::no;
    return;
  }
  entry.result = LogResult::yes;
}

}  // namespace perdure::testing
