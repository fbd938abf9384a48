// Recorded runs of several threads on the public API.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <optional>
#include <thread>

#include "perdure/perdure.h"
#include "testing/crash/subject.h"
#include "testing/lin/lin_runner.h"

namespace perdure::testing {

namespace {

constexpr std::uint32_t kSpacing = 3;  // between integer keys
constexpr std::uint64_t kPasses = 6;
constexpr std::uint64_t kWindow = 150;      // three leaves of PhaST
constexpr std::uint32_t kVersionsRead = 8;  // read as a whole at the end

template <class K>
OwnedKey<K> key_of(std::uint32_t number) {
  if constexpr (std::same_as<K, std::string_view>) {
    return history_text_key(number);
  } else {
    return K{number} * kSpacing;
  }
}
template <class K>
std::uint32_t number_of(const K& key) {
  if constexpr (std::same_as<K, std::string_view>) {
    return history_key_number(key);
  } else {
    return key % kSpacing == 0 ? static_cast<std::uint32_t>(key / kSpacing) : kAllKeys;
  }
}
template <class V>
Owned<V> value_of(std::uint64_t number) {
  if constexpr (std::same_as<V, std::string_view>) {
    return history_text_value(number);
  } else {
    return number;
  }
}
template <class V>
std::uint64_t number_of_value(const V& value) {
  if constexpr (std::same_as<V, std::string_view>) {
    return history_value_number(value);
  } else {
    return value;
  }
}

// Shared by the threads of a run: how far all of them are. Without it, a thread that gets a core
// could finish before the next one starts.
struct Progress {
  explicit Progress(std::uint32_t threads) : start(threads) {}
  std::barrier<> start;
  std::atomic<std::uint64_t> recorded{0};
  std::atomic<Version> tagged{0};    // the last version that a tag has returned
  std::atomic<Version> trimming{0};  // a trim may have begun to forget versions below
  std::atomic<Version> trimmed{0};   // all versions below are forgotten
};

void raise(std::atomic<Version>& to, Version version) {
  Version was = to.load();
  while (was < version && !to.compare_exchange_weak(was, version)) {
  }
}

// One map, by the interfaces that its engine offers.
template <class K, class V>
struct Views {
  Pool& pool;
  Map<K, V> map;
  std::optional<OrderedMap<K, V>> ordered = {};
  std::optional<VersionedMap<K, V>> versioned = {};
};

// One thread of a run, with its recording.
template <class K, class V>
class Worker {
 public:
  Worker(const LinOptions& options, const Views<K, V>& views, Progress& progress,
         std::uint32_t thread)
      : options_(options),
        progress_(progress),
        pool_(views.pool),
        map_(views.map),
        ordered_(views.ordered),
        versioned_(views.versioned),
        random_(options.seed << 8 ^ thread),
        next_value_(std::uint64_t{thread} << 40 | 1),
        seen_(options.keys) {
    log_.reserve(options.ops + (3 + kVersionsRead) * options.keys);
  }

  void run() {
    progress_.start.arrive_and_wait();
    std::size_t told = 0;
    while (failure_.empty() && progress_.recorded.load(std::memory_order_relaxed) < options_.ops) {
      step();
      if (!random_.one_in(16)) continue;
      progress_.recorded.fetch_add(log_.size() - told, std::memory_order_relaxed);
      told = log_.size();
      std::this_thread::yield();
    }
  }
  // Reads everything. No other thread may run.
  void read_all() {
    if (ordered_) scan(0, options_.keys, false, ~std::uint64_t{0});
    visit_all();
    for (std::uint32_t key = 0; key < options_.keys; ++key) find(key);
    if (!versioned_) return;
    const auto [first, last] = versioned_->versions();
    for (std::uint32_t i = 0; i < kVersionsRead && last >= first; ++i) {
      scan(0, options_.keys, false, ~std::uint64_t{0},
           i == 0 ? last : first + random_.below(last - first + 1));
    }
  }
  std::vector<HistoryOp>& log() { return log_; }
  std::uint64_t trims() const { return trims_; }
  std::uint64_t refused() const { return refused_; }
  const std::string& failure() const { return failure_; }

 private:
  void step() {
    if (versioned_ && random_.one_in(64)) return random_.one_in(8) ? trim() : tag();
    if (options_.canary == Canary::none && random_.one_in(128)) return commit();
    if (options_.ranges) return wave_step();
    const std::uint32_t key = static_cast<std::uint32_t>(random_.below(options_.keys));
    const std::uint64_t dice = random_.below(1000);
    if (dice < 130) {
      mutate(random_.one_in(3) ? HistoryKind::upsert : HistoryKind::insert, key);
    } else if (dice < 260) {
      mutate(HistoryKind::erase, key);
    } else if (dice < 460) {
      mutate(random_.one_in(2) ? HistoryKind::upsert : HistoryKind::update, key);
    } else {
      look(key, options_.keys);
    }
  }

  // A window passes over the key space six times and fills and empties it in turn. All threads are
  // at about the same place, where leaves are split or unlinked.
  void wave_step() {
    const std::uint64_t done = progress_.recorded.load(std::memory_order_relaxed);
    const std::uint64_t pass_length = options_.ops / kPasses + 1;
    const bool filling = done / pass_length % 2 == 0;
    const std::uint64_t base = done % pass_length * (options_.keys - kWindow) / pass_length;
    const std::uint32_t key = static_cast<std::uint32_t>(base + random_.below(kWindow));
    const std::uint64_t dice = random_.below(1000);
    if (dice < (filling ? 500 : 20)) {
      mutate(random_.one_in(3) ? HistoryKind::upsert : HistoryKind::insert, key);
    } else if (dice < 600) {
      mutate(HistoryKind::erase, key);
    } else if (dice < 700) {
      mutate(HistoryKind::update, key);
    } else {
      look(key, 40);
    }
  }

  // Reads at `key` in one way or another.
  void look(std::uint32_t key, std::uint32_t width) {
    if (versioned_ && random_.one_in(4)) return look_at_version(key, width);
    const std::uint64_t dice = random_.below(1000);
    if (dice < 930) {
      find(key);
    } else if (dice < 990 || (!ordered_ && options_.ranges)) {
      find_many(key, width);
    } else if (!ordered_) {
      visit_all();
    } else {
      scan(key, std::min(key + 1 + static_cast<std::uint32_t>(random_.below(width)), options_.keys),
           random_.one_in(2), random_.one_in(3) ? random_.below(10) : ~std::uint64_t{0});
    }
  }

  // Reads at the version that a tag of any thread has returned last; or at the latest version, even
  // if its tag has not returned yet; or repeats an earlier read of this thread.
  void look_at_version(std::uint32_t key, std::uint32_t width) {
    const std::uint64_t dice = random_.below(4);
    auto& [key_before, version_before] = read_before_[random_.below(read_before_.size())];
    if (dice == 0 && version_before != 0) return find_at(key_before, version_before);
    const Version version =
        dice == 1 ? versioned_->versions().last : progress_.tagged.load(std::memory_order_acquire);
    if (version == 0) return;
    if (random_.one_in(32)) {
      return scan(key, std::min(key + width, options_.keys), random_.one_in(2), ~std::uint64_t{0},
                  version);
    }
    find_at(key, version);
    key_before = key;
    version_before = version;
  }

  void fail_with(const char* what, const Status& status) {
    failure_ = std::string(what) + ": " + std::string(status.message());
  }

  void record(HistoryKind kind, std::uint32_t key, std::uint64_t value, bool yes,
              std::uint64_t call, std::uint64_t end, Version version = 0) {
    log_.push_back({.call = call,
                    .end = end,
                    .value = value,
                    .version = version,
                    .key = key,
                    .kind = kind,
                    .result = yes ? HistoryResult::yes : HistoryResult::no});
  }

  // A third of the mutations goes by in calls of write_many(), another by conditional calls.
  void mutate(HistoryKind kind, std::uint32_t number) {
    const bool planted = options_.canary != Canary::none;
    const std::uint64_t dice = planted ? 0 : random_.below(6);
    if (dice == 1 && kind != HistoryKind::insert) {
      return mutate_if(kind == HistoryKind::erase ? HistoryKind::erase_if : HistoryKind::update_if,
                       number);
    }
    if (dice == 2) return mutate_many(kind, number);
    mutate_one(kind, number);
  }

  // Expects what another thread may change meanwhile.
  void mutate_if(HistoryKind kind, std::uint32_t number) {
    const auto key = key_of<K>(number);
    const std::uint64_t id = next_value_++;
    const auto value = value_of<V>(id);
    std::optional<Owned<V>> before;
    find(number, &before);
    if (!before) return;
    std::optional<V> wanted;
    if (kind == HistoryKind::update_if) wanted = V(value);
    const std::uint64_t call = history_call();
    const Exchanged done = map_.compare_exchange(K(key), V(*before), wanted);
    const std::uint64_t end = history_end();
    if (!done.ok()) return fail_with("compare_exchange", done.status());
    record(kind, number, kind == HistoryKind::erase_if ? 0 : id, done.exchanged(), call, end,
           number_of_value<V>(*before));
  }

  // Each mutation is an operation of its own, from the call to its result. Waves are made of one
  // kind, so that they fill and empty leaves; otherwise kinds are drawn.
  void mutate_many(HistoryKind wave, std::uint32_t first) {
    struct One {
      std::uint32_t number;
      HistoryKind kind;
      std::uint64_t id;
      OwnedKey<K> key;
      Owned<V> value;
    };
    static constexpr HistoryKind kKinds[] = {HistoryKind::insert, HistoryKind::upsert,
                                             HistoryKind::update, HistoryKind::erase};
    static constexpr MutationKind kCalls[] = {MutationKind::insert, MutationKind::put,
                                              MutationKind::update, MutationKind::erase};
    std::vector<One> all(2 + random_.below(20));
    std::vector<Mutation<K, V>> mutations;
    for (std::size_t i = 0; i < all.size(); ++i) {
      One& one = all[i];
      one.number =
          static_cast<std::uint32_t>((first + (i == 0 ? 0 : random_.below(40))) % options_.keys);
      const std::uint64_t kind =
          options_.ranges ? static_cast<std::uint64_t>(std::ranges::find(kKinds, wave) - kKinds)
                          : random_.below(4);
      one.kind = kKinds[kind];
      one.id = next_value_++;
      one.key = key_of<K>(one.number);
      one.value = value_of<V>(one.id);
      mutations.push_back({.kind = kCalls[kind], .key = K(one.key), .value = V(one.value)});
    }
    const std::uint64_t call = history_call();
    const Status s = map_.write_many(mutations, [&](std::size_t i, const Found& found) {
      const One& one = all[i];
      const bool inserts = one.kind == HistoryKind::insert || one.kind == HistoryKind::upsert;
      record(one.kind, one.number, one.kind == HistoryKind::erase ? 0 : one.id,
             inserts ? found.absent() : found.present(), call, history_end());
    });
    if (!s.ok()) fail_with("write_many", s);
  }

  // A batch of puts and erases of distinct keys. Each is an operation, from the call to the return.
  void commit() {
    const std::uint32_t n = std::min<std::uint32_t>(2 + random_.below(8), options_.keys);
    const auto number = static_cast<std::uint32_t>(random_.below(options_.keys));
    WriteBatch batch;
    std::vector<HistoryOp> ops;
    for (std::uint32_t i = 0; i < n; ++i) {
      const std::uint32_t key = (number + i) % options_.keys;
      const bool erases = random_.one_in(3);
      const std::uint64_t id = next_value_++;
      if (erases) {
        batch.erase(map_, K(key_of<K>(key)));
      } else {
        batch.put(map_, K(key_of<K>(key)), V(value_of<V>(id)));
      }
      ops.push_back({.value = erases ? 0 : id,
                     .key = key,
                     .kind = erases ? HistoryKind::batch_erase : HistoryKind::batch_put});
    }
    const std::uint64_t call = history_call();
    const Status s = pool_.commit(batch);
    const std::uint64_t end = history_end();
    if (!s.ok()) return fail_with("commit", s);
    for (const HistoryOp& op : ops) record(op.kind, op.key, op.value, true, call, end);
  }

  void mutate_one(HistoryKind kind, std::uint32_t number) {
    const auto key = key_of<K>(number);
    const std::uint64_t id = next_value_++;
    const auto value = value_of<V>(id);
    const bool drop_update = kind == HistoryKind::update &&
                             options_.canary == Canary::lost_update && random_.one_in(100);
    const bool drop_erase =
        kind == HistoryKind::erase && options_.canary == Canary::lost_erase && random_.one_in(100);
    const std::uint64_t call = history_call();
    const Found found = drop_update || drop_erase     ? map_.contains(K(key))
                        : kind == HistoryKind::insert ? map_.insert(K(key), V(value))
                        : kind == HistoryKind::upsert ? map_.put(K(key), V(value))
                        : kind == HistoryKind::update ? map_.update(K(key), V(value))
                                                      : map_.erase(K(key));
    const std::uint64_t end = history_end();
    if (!found.ok()) return fail_with("a mutation", found.status());
    const bool inserts = kind == HistoryKind::insert || kind == HistoryKind::upsert;
    record(kind, number, kind == HistoryKind::erase ? 0 : id,
           inserts ? found.absent() : found.present(), call, end);
  }

  void record_find(std::uint32_t number, const std::optional<Owned<V>>& value, std::uint64_t call,
                   std::uint64_t end, Version version = 0) {
    record(version == 0 ? HistoryKind::find : HistoryKind::find_at, number,
           value ? number_of_value<V>(*value) : 0, value.has_value(), call, end, version);
  }

  void tag() {
    const std::uint64_t call = history_call();
    auto version = versioned_->tag();
    const std::uint64_t end = history_end();
    if (!version) return fail_with("tag", version.error());
    progress_.tagged.store(*version, std::memory_order_release);
    const bool early = options_.canary == Canary::early_tag && random_.one_in(20);
    record(HistoryKind::tag, kAllKeys, 0, true, call, end, *version - (early ? 1 : 0));
  }

  // Trims all but the last few versions, some of which are being read.
  void trim() {
    const Version tagged = progress_.tagged.load(std::memory_order_acquire);
    const Version kept = 4 + random_.below(60);
    if (tagged <= kept) return;
    const bool planted = random_.one_in(4);
    const Version below = tagged - kept;
    raise(progress_.trimming, below);
    const Version asked = below + (planted && options_.canary == Canary::early_trim ? 3 : 0);
    auto first = planted && options_.canary == Canary::lost_trim ? Expected<Version>(asked)
                                                                 : versioned_->trim(asked);
    if (!first) return fail_with("trim", first.error());
    if (*first < below) failure_ = "a trim returned a version below the one asked for";
    raise(progress_.trimmed, std::min(*first, progress_.trimming.load()));
    ++trims_;
  }

  // Whether to record a read at a version that began when versions below `trimmed` were forgotten.
  template <class Result>
  bool recordable(const Result& found, Version version, Version trimmed) {
    if (found) {
      if (version < trimmed) failure_ = "a version that had been trimmed was read";
      return version >= trimmed;
    }
    if (found.error() != StatusCode::invalid_argument || version >= progress_.trimming.load()) {
      fail_with("a read at a version that was not trimmed", found.error());
    }
    ++refused_;
    return false;
  }

  void find_at(std::uint32_t number, Version version) {
    const auto key = key_of<K>(number);
    const bool late = options_.canary == Canary::late_read && random_.one_in(100);
    const Version trimmed = progress_.trimmed.load();
    const std::uint64_t call = history_call();
    auto found = late ? map_.get(K(key)) : versioned_->get(K(key), version);
    const std::uint64_t end = history_end();
    if (late && found) return record_find(number, *found, call, end, version);
    if (recordable(found, version, trimmed)) record_find(number, *found, call, end, version);
  }

  // `value`: gets what was found.
  void find(std::uint32_t number, std::optional<Owned<V>>* value = nullptr) {
    const auto key = key_of<K>(number);
    const std::uint64_t call = history_call();
    auto found = map_.get(K(key));
    const std::uint64_t end = history_end();
    if (!found) return fail_with("find", found.error());
    if (value != nullptr) *value = *found;
    if (options_.canary == Canary::stale_read) {
      auto& seen = seen_[number];
      if (random_.one_in(400)) {
        std::swap(seen, *found);
      } else {
        seen = *found;
      }
    }
    record_find(number, *found, call, end);
  }

  void find_many(std::uint32_t first, std::uint32_t width) {
    std::vector<std::uint32_t> numbers(2 + random_.below(12));
    std::vector<OwnedKey<K>> owned;
    for (std::uint32_t& number : numbers) {
      number = static_cast<std::uint32_t>((first + random_.below(width)) % options_.keys);
      owned.push_back(key_of<K>(number));
    }
    const std::vector<K> keys(owned.begin(), owned.end());
    std::vector<std::optional<Owned<V>>> values(keys.size());
    const std::uint64_t call = history_call();
    auto found = map_.get_many(keys, values);
    const std::uint64_t end = history_end();
    if (!found) return fail_with("find_many", found.error());
    for (std::size_t i = 0; i < numbers.size(); ++i) record_find(numbers[i], values[i], call, end);
  }

  // Scans keys [first, last) at a version, or at present if it is 0. Records a key that the scan
  // passes over as absent, and nothing beyond the limit.
  void scan(std::uint32_t first, std::uint32_t last, bool reverse, std::uint64_t limit,
            Version version = 0) {
    std::vector<std::optional<Owned<V>>> found(last - first);
    const auto from = key_of<K>(first);
    const auto to = key_of<K>(last);
    ScanOptions<K> options;
    options.from = K(from);
    options.to = K(to);
    options.reverse = reverse;
    options.limit = limit;
    std::int64_t previous = reverse ? std::int64_t{last} : std::int64_t{first} - 1;
    const auto visit = [&](const K& key, const V& value) {
      const std::uint32_t number = number_of<K>(key);
      if (number < first || number >= last || (reverse ? number >= previous : number <= previous)) {
        failure_ = "a scan delivers a key that is foreign, out of bounds or out of order";
        return false;
      }
      previous = number;
      found[number - first].emplace(value);
      return true;
    };
    const Version trimmed = progress_.trimmed.load();
    const std::uint64_t call = history_call();
    auto visited = version == 0 ? ordered_->scan(options, visit)
                                : versioned_->scan_at(version, options, visit);
    const std::uint64_t end = history_end();
    if (version != 0 && !recordable(visited, version, trimmed)) return;
    if (!visited) return fail_with("scan", visited.error());
    if (*visited < limit) previous = reverse ? std::int64_t{first} : std::int64_t{last} - 1;
    for (std::uint32_t number = first; number < last; ++number) {
      if (reverse ? number < previous : number > previous) continue;
      record_find(number, found[number - first], call, end, version);
    }
  }

  // Visits every entry in the engine's order. A key that is erased and inserted may be delivered
  // again. Records a key that is not visited as absent.
  void visit_all() {
    std::vector<std::pair<std::uint32_t, Owned<V>>> found;
    std::vector<bool> there(options_.keys);
    const std::uint64_t call = history_call();
    auto visited = map_.for_each([&](const K& key, const V& value) {
      const std::uint32_t number = number_of<K>(key);
      if (number >= options_.keys) {
        failure_ = "for_each delivers a key that is foreign";
        return false;
      }
      found.emplace_back(number, value);
      there[number] = true;
      return true;
    });
    const std::uint64_t end = history_end();
    if (!visited) return fail_with("for_each", visited.error());
    for (const auto& [number, value] : found) record_find(number, value, call, end);
    for (std::uint32_t number = 0; number < options_.keys; ++number) {
      if (!there[number]) record_find(number, std::nullopt, call, end);
    }
  }

  const LinOptions& options_;
  Progress& progress_;
  Pool& pool_;
  Map<K, V> map_;
  std::optional<OrderedMap<K, V>> ordered_;
  std::optional<VersionedMap<K, V>> versioned_;
  Random random_;
  std::uint64_t next_value_;
  std::vector<std::optional<Owned<V>>> seen_;  // for the canary
  std::array<std::pair<std::uint32_t, Version>, 64> read_before_ = {};
  std::vector<HistoryOp> log_;
  std::uint64_t trims_ = 0;
  std::uint64_t refused_ = 0;
  std::string failure_;
};

template <class K, class V>
std::string run_map(const LinOptions& options, Pool& pool, LinRun& run) {
  const MapOptions small{.engine = options.engine, .capacity = 1};
  auto map = pool.map<K, V>("lin", small);
  if (!map) return std::string(map.error().message());
  Views<K, V> views{.pool = pool, .map = *map};
  if (options.ordered) {
    auto same = pool.ordered_map<K, V>("lin", small);
    if (!same) return std::string(same.error().message());
    views.ordered.emplace(std::move(*same));
  }
  if (options.versioned) {
    auto same = pool.versioned_map<K, V>("lin", small);
    if (!same) return std::string(same.error().message());
    views.versioned.emplace(std::move(*same));
  }
  Progress progress(options.threads);
  std::vector<Worker<K, V>> workers;
  workers.reserve(options.threads);
  for (std::uint32_t t = 0; t < options.threads; ++t) {
    workers.emplace_back(options, views, progress, t);
  }
  std::vector<std::thread> threads;
  for (Worker<K, V>& worker : workers) threads.emplace_back([&worker] { worker.run(); });
  for (std::thread& thread : threads) thread.join();
  workers[0].read_all();
  std::string failure;
  for (Worker<K, V>& worker : workers) {
    if (failure.empty()) failure = worker.failure();
    run.ops.insert(run.ops.end(), worker.log().begin(), worker.log().end());
    run.trims += worker.trims();
    run.refused += worker.refused();
  }
  const MapStats stats = map->stats();
  const auto shrinks = static_cast<std::uint64_t>(std::ranges::count_if(
      stats.resizes, [](const ResizeStats& resize) { return resize.shrink; }));
  run.divided = stats.leaves != 0 || !stats.levels.empty();
  run.grown = stats.splits + stats.resizes.size() - shrinks;
  run.shrunk = stats.merges + shrinks;
  return failure;
}

}  // namespace

std::string LinOptions::describe() const {
  return "seed " + std::to_string(seed) + ": " + std::to_string(threads) + " threads, " +
         std::to_string(keys) + (ranges ? " keys in waves, " : " hot keys, ") +
         (text_keys ? "text to " : "integers to ") + (text_values ? "text, " : "words, ") +
         std::string(durability_name(durability));
}

LinOptions lin_options(std::uint64_t seed) {
  static constexpr std::uint32_t kThreads[] = {2, 3, 4, 8};
  LinOptions options;
  options.seed = seed;
  options.text_keys = (seed & 1) != 0;
  options.text_values = (seed & 2) != 0;
  options.ranges = (seed & 4) != 0;
  options.durability = (seed & 8) != 0 ? Durability::emulated : Durability::process;
  options.threads = kThreads[seed / 16 % 4];
  options.keys = options.ranges ? 1'500 : 16 + static_cast<std::uint32_t>(seed % 5) * 16;
  return options;
}

LinRun run_concurrent(const LinOptions& options, const std::string& path) {
  LinRun run;
  unlink(path.c_str());
  auto pool =
      Pool::open(path, {.durability = options.durability, .max_size = std::uint64_t{64} << 20});
  if (!pool) {
    run.failure = std::string(pool.error().message());
    return run;
  }
  run.failure =
      options.text_keys
          ? (options.text_values ? run_map<std::string_view, std::string_view>(options, *pool, run)
                                 : run_map<std::string_view, std::uint64_t>(options, *pool, run))
          : (options.text_values ? run_map<std::uint64_t, std::string_view>(options, *pool, run)
                                 : run_map<std::uint64_t, std::uint64_t>(options, *pool, run));
  auto report = pool->check({.deep = true});
  if (run.failure.empty() && !report) run.failure = std::string(report.error().message());
  if (run.failure.empty() && !report->ok()) run.failure = "check: " + std::string(report->first());
  if (const Status s = pool->close({.sync = false}); !s.ok() && run.failure.empty()) {
    run.failure = "close: " + std::string(s.message());
  }
  unlink(path.c_str());
  return run;
}

}  // namespace perdure::testing
