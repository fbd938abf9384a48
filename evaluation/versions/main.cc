// perdure-paper-versions: the evaluation of the multi-version store's paper (section V, one node)
// with our engine and its baselines, in one run, as Markdown (docs/design/evaluation.md).
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "evaluation/program.h"
#include "evaluation/turns.h"
#include "evaluation/versions/store.h"

namespace perdure::paper::versions {

namespace {

struct StoreOptions {
  std::uint64_t keys = 1'000'000;
  std::uint32_t runs = 3;
  std::vector<unsigned> threads = {1, 2};
  std::string folder = "/dev/shm";
  std::vector<std::string> only;
};

struct Named {
  const char* name;
  std::unique_ptr<Store> (*make)(const std::string& path);
};
constexpr Named kStores[] = {
    {"pskiplist", &make_perdure},     {"LockedMap", &make_locked_map},
    {"ESkipList", &make_skip_list},
#ifdef PERDURE_HAVE_SQLITE
    {"SQLiteReg", &make_sqlite_file}, {"SQLiteMem", &make_sqlite_memory},
#endif
};

std::uint64_t value_of(std::uint64_t key) { return (key ^ 0x2545F4914F6CDD1D) >> 3; }

[[noreturn]] void wrong(const char* store, const char* what) {
  throw std::runtime_error(fmt::format("{}: {}", store, what));
}

// Returns the seconds that `threads` threads take for work(i), i < count, in even shares.
template <class F>
double timed(unsigned threads, std::uint64_t count, F&& work) {
  std::atomic<unsigned> ready{0};
  std::atomic<bool> go{false};
  std::exception_ptr failure;
  std::atomic_flag failed;
  std::vector<std::thread> workers;
  for (unsigned t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      ready.fetch_add(1);
      while (!go.load()) std::this_thread::yield();
      try {
        for (std::uint64_t i = count * t / threads; i < count * (t + 1) / threads; ++i) work(i, t);
      } catch (...) {
        if (!failed.test_and_set()) failure = std::current_exception();
      }
    });
  }
  while (ready.load() != threads) std::this_thread::yield();
  const auto begin = std::chrono::steady_clock::now();
  go.store(true);
  for (std::thread& worker : workers) worker.join();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  if (failure) std::rethrow_exception(failure);
  return took.count();
}

struct Workload {
  explicit Workload(std::uint64_t count) : keys(2 * count) {
    std::mt19937_64 random(20220530);
    for (std::uint64_t& key : keys) key = random() >> 2;
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    std::shuffle(keys.begin(), keys.end(), random);
    first = keys.size() / 2;
    shuffled.resize(first);
    std::iota(shuffled.begin(), shuffled.end(), std::uint64_t{0});
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    for (const std::uint64_t place : shuffled) removals.push_back(keys[place]);
  }
  std::vector<std::uint64_t> keys;      // the P keys of the paper
  std::uint64_t first = 0;              // N: inserted and removed; those behind are only inserted
  std::vector<std::uint64_t> shuffled;  // indexes of the first keys
  std::vector<std::uint64_t> removals;  // the keys at these indexes
};

struct Figures {
  double insert = 0, remove = 0, find = 0, history = 0;  // million a second
  double snapshot = 0;                                   // million keys a second
  double dead = 0;                      // million dead keys a second that a snapshot passes over
  double reopen = 0;                    // seconds; 0: the store does not survive
  double cold_find = 0, warm_find = 0;  // the first finds after it, and the same again
  double medium_bytes = 0, dram_bytes = 0;  // per key
};

class Run {
 public:
  Run(const Named& named, const std::string& path, const Workload& work, unsigned threads)
      : name_(named.name),
        work_(work),
        threads_(threads),
        store_(named.make(path)),
        inserted_(work.keys.size()),
        removed_(work.keys.size(), kNever) {}

  Figures all() {
    Figures out;
    const auto n = static_cast<double>(work_.first);
    const auto rate = [](double count, double seconds) { return count / seconds / 1e6; };
    out.insert = rate(n, inserts(0, work_.first));
    out.remove = rate(n, removals());
    out.medium_bytes = static_cast<double>(store_->medium_bytes()) / n;
    out.dram_bytes = static_cast<double>(store_->dram_bytes()) / n;
    last_ = *std::max_element(removed_.begin(), removed_.begin() + work_.shuffled.size());
    out.dead = rate(n, timed(1, 1, [&](std::uint64_t, unsigned) {
                      const std::uint64_t keys = store_->snapshot(last_, [](auto, auto) {});
                      if (keys != 0) wrong(name_, "snapshot: a removed key");
                    }));
    (void)inserts(work_.first, work_.keys.size());
    last_ = *std::max_element(inserted_.begin(), inserted_.end());
    out.find = rate(n, finds());
    out.history = rate(n, histories());
    out.snapshot = snapshots();
    const auto begin = std::chrono::steady_clock::now();
    if (store_->reopen(threads_)) {
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      out.reopen = took.count();
      out.cold_find = rate(n, finds());
      out.warm_find = rate(n, finds());
    }
    return out;
  }

 private:
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  // With one thread, the versions of a key are those that its tags returned.
  bool known() const { return threads_ == 1; }
  bool there(std::uint64_t place, std::uint64_t version) const {
    return inserted_[place] <= version && version < removed_[place];
  }
  double inserts(std::uint64_t from, std::uint64_t to) {
    return timed(threads_, to - from, [&](std::uint64_t i, unsigned) {
      const std::uint64_t key = work_.keys[from + i];
      inserted_[from + i] = store_->insert(key, value_of(key));
    });
  }
  double removals() {
    std::vector<std::uint64_t> tags(work_.removals.size());
    const double seconds = timed(threads_, tags.size(), [&](std::uint64_t i, unsigned) {
      tags[i] = store_->remove(work_.removals[i]);
    });
    for (std::size_t i = 0; i < tags.size(); ++i) removed_[work_.shuffled[i]] = tags[i];
    return seconds;
  }

  // Queries are made before the clock starts, and results are checked after it stops, because both
  // miss caches, as the stores do.
  struct Query {
    std::uint64_t place, key, version;
  };
  std::vector<Query> queries() const {
    std::mt19937_64 random(1000);
    std::vector<Query> queries(work_.first);  // N of the P keys
    for (Query& query : queries) {
      const std::uint64_t place = random() % work_.keys.size();
      query = {place, work_.keys[place], 1 + random() % last_};
    }
    return queries;
  }

  double finds() {
    struct Result {
      std::uint64_t value = 0;
      bool found = false;
    };
    const std::vector<Query> asked = queries();
    std::vector<Result> results(asked.size());
    const double seconds = timed(threads_, asked.size(), [&](std::uint64_t i, unsigned) {
      Result& result = results[i];
      result.found = store_->find(asked[i].key, asked[i].version, result.value);
    });
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const auto& [value, found] = results[i];
      if (known() && found != there(asked[i].place, asked[i].version)) {
        wrong(name_, "find: a key comes or goes");
      }
      if (found && value != value_of(asked[i].key)) wrong(name_, "find: another value");
    }
    return seconds;
  }
  double histories() {
    struct Result {
      std::uint64_t inserted = 0, removed = 0, entries = 0;  // versions; number of entries
    };
    const std::vector<Query> asked = queries();
    std::vector<Result> results(asked.size());
    const double seconds = timed(threads_, asked.size(), [&](std::uint64_t i, unsigned) {
      Result& result = results[i];
      result.entries =
          store_->history(asked[i].key, [&](std::uint64_t version, std::uint64_t, bool removed) {
            (removed ? result.removed : result.inserted) = version;
          });
    });
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const Result& result = results[i];
      const std::uint64_t place = asked[i].place;
      const bool goes = place < work_.first;
      if (result.entries != (goes ? 2 : 1) || result.inserted == 0 ||
          (result.removed != 0) != goes) {
        wrong(name_, "history: not an insert, and a removal if there was one");
      }
      if (!known()) continue;
      if (result.inserted != inserted_[place] || (goes && result.removed != removed_[place])) {
        wrong(name_, "history: of other versions");
      }
    }
    return seconds;
  }
  // Million keys a second. Each thread takes one snapshot, as in the paper.
  double snapshots() {
    struct Taken {
      std::uint64_t version = 0, keys = 0;
      bool as_written = true;  // keys rise, and each has its value
    };
    std::vector<Taken> taken(threads_);
    const double seconds = timed(threads_, threads_, [&](std::uint64_t, unsigned t) {
      Taken& mine = taken[t];
      mine.version = last_ / 4 + std::mt19937_64(1000 + t)() % (last_ / 2);
      std::uint64_t before = 0;
      mine.keys = store_->snapshot(mine.version, [&](std::uint64_t key, std::uint64_t value) {
        mine.as_written = mine.as_written && before <= key && value == value_of(key);
        before = key;
      });
    });
    double keys = 0;
    for (const Taken& mine : taken) {
      std::uint64_t expected = 0;
      for (std::uint64_t i = 0; i < work_.keys.size(); ++i) {
        expected += there(i, mine.version) ? 1 : 0;
      }
      if (!mine.as_written || (known() && mine.keys != expected)) wrong(name_, "snapshot");
      keys += static_cast<double>(mine.keys);
    }
    return keys / seconds / 1e6;
  }

  const char* name_;
  const Workload& work_;
  unsigned threads_;
  std::unique_ptr<Store> store_;
  std::vector<std::uint64_t> inserted_, removed_;  // versions, by index in keys
  std::uint64_t last_ = 0;
};

Figures measure(const StoreOptions& options, const Named& named, const Workload& work,
                unsigned threads) {
  const std::string path = fmt::format("{}/perdure-paper-versions.{}", options.folder, ::getpid());
  const auto remove_files = [&] {
    for (const char* suffix : {"", "-wal", "-shm"}) ::unlink((path + suffix).c_str());
  };
  remove_files();
  const Figures figures = Run(named, path, work, threads).all();
  remove_files();
  return figures;
}

// What a reopen takes: the medians. The rate of finds before it by that after it is of one turn.
// The memory is that of the last turn.
void print_reopens(const std::string& title, const std::vector<Named>& stores,
                   const std::vector<std::vector<Figures>>& runs, Report& report) {
  report.heading(title, {"store", "reopen, s", "finds before ÷ after", "÷ the second after",
                         "medium, B/key", "DRAM, B/key"});
  for (std::size_t s = 0; s < stores.size(); ++s) {
    std::vector<double> reopen, cold, warm;
    for (const Figures& figures : runs[s]) {
      if (figures.reopen == 0) continue;
      reopen.push_back(figures.reopen);
      cold.push_back(figures.find / figures.cold_find);
      warm.push_back(figures.find / figures.warm_find);
    }
    if (reopen.empty()) continue;
    const Figures& last = runs[s].back();
    const auto bytes = [](double per_key) {
      return per_key == 0 ? std::string("-") : fmt::format("{:.0f}", per_key);
    };
    report.row({stores[s].name, fmt::format("{:.3f}", median(reopen)),
                fmt::format("{:.2f}", median(cold)), fmt::format("{:.2f}", median(warm)),
                bytes(last.medium_bytes), bytes(last.dram_bytes)});
  }
}

void figures(const StoreOptions& options) {
  const Workload work(options.keys);
  std::vector<Named> stores;
  for (const Named& named : kStores) {
    if (options.only.empty() || std::ranges::count(options.only, std::string(named.name)) != 0) {
      stores.push_back(named);
    }
  }
  for (const unsigned threads : options.threads) {
    Turns turns{.kind = "store",
                .schemes = names_of(stores),
                .phases = {"insert", "remove", "find", "history", "snapshot", "dead keys",
                           "find after a reopen", "the same again"}};
    std::vector<std::vector<Figures>> runs(stores.size());
    turns.take(options.runs, [&](std::size_t s) {
      const Figures& f = runs[s].emplace_back(measure(options, stores[s], work, threads));
      std::vector<Figure> figures;
      for (const double mops :
           {f.insert, f.remove, f.find, f.history, f.snapshot, f.dead, f.cold_find, f.warm_find}) {
        figures.push_back({.mops = mops});
      }
      return figures;
    });
    Report report;
    const std::string title = fmt::format("threads: {}", threads);
    turns.print_rates(fmt::format("Million operations or keys/s, {}", title), report);
    turns.print_ratios(fmt::format("`{}` by the others, {}", stores.front().name, title), report);
    print_reopens(fmt::format("Reopening and memory, {}", title), stores, runs, report);
    fmt::print("{}", report.text);
    std::fflush(stdout);
  }
}

int run(int argc, char** argv) {
  StoreOptions options;
  CLI::App app(
      "Measures section V (one node) of the multi-version store's paper and prints Markdown:\n"
      "N inserts and N removals in another order, with a tag after each; a snapshot in which all\n"
      "keys are dead; N inserts of other keys; N finds and N histories of the 2N keys, at random\n"
      "versions; a snapshot per thread; close, and open with as many threads; N finds twice. The\n"
      "unit is a million operations a second, for snapshots a million keys. With one thread all\n"
      "results are checked.",
      "perdure-paper-versions");
  declare_count(app, "--keys", options.keys, "number of keys, N", 1'000);
  declare_runs(app, options.runs);
  app.add_option("--threads", options.threads, "numbers of threads")->delimiter(',');
  app.add_option("--folder", options.folder, "folder for files")->capture_default_str();
  std::vector<std::string> known;
  for (const Named& named : kStores) known.emplace_back(named.name);
  app.add_option("--only", options.only, "stores, by name; the first is compared with the others")
      ->delimiter(',')
      ->check(CLI::IsMember(known));
  CLI11_PARSE(app, argc, argv);
  figures(options);
  return 0;
}

}  // namespace
}  // namespace perdure::paper::versions

int main(int argc, char** argv) {
  try {
    return perdure::paper::versions::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "perdure-paper-versions: %s\n", error.what());
    return 3;
  }
}
