#include "testing/coherence/simulation.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <semaphore>
#include <set>
#include <span>
#include <thread>
#include <unordered_map>
#include <utility>

#include "perdure/perdure.h"
#include "testing/coherence/lines.h"
#include "testing/coherence/machine.h"
#include "testing/coherence/trace.h"
#include "util/hash.h"

namespace perdure::testing {
namespace {

constexpr std::uint32_t kBackgroundCores = 16;

[[noreturn]] void give_up(const char* what, const Status& status) {
  std::fprintf(stderr, "perdure-coherence: %s: %s\n", what, std::string(status.message()).c_str());
  std::exit(1);
}

// Threads of which one at a time runs.
class Baton {
 public:
  explicit Baton(std::uint32_t count) : runners_(count) {
    for (auto& runner : runners_) {
      runner = std::make_unique<Runner>();
      runner->thread = std::thread([this, r = runner.get()] { serve(*r); });
    }
  }
  ~Baton() {
    for (std::uint32_t i = 0; i < runners_.size(); ++i) {
      runners_[i]->stop = true;
      runners_[i]->go.release();
      runners_[i]->thread.join();
    }
  }
  Baton(const Baton&) = delete;
  Baton& operator=(const Baton&) = delete;
  void run(std::uint32_t thread, const std::function<void()>& work) {
    runners_[thread]->work = &work;
    runners_[thread]->go.release();
    done_.acquire();
  }

 private:
  struct Runner {
    std::thread thread;
    std::binary_semaphore go{0};
    const std::function<void()>* work = nullptr;
    bool stop = false;
  };
  void serve(Runner& runner) {
    exclude_thread();
    for (;;) {
      runner.go.acquire();
      if (runner.stop) return;
      (*runner.work)();
      done_.release();
    }
  }
  std::vector<std::unique_ptr<Runner>> runners_;
  std::binary_semaphore done_{0};
};

// The keys that are in the map.
class Keys {
 public:
  explicit Keys(std::uint64_t count) : present_(count), next_(count + 1) {
    for (std::uint64_t i = 0; i < count; ++i) present_[i] = mix(i + 1);
  }
  std::span<const std::uint64_t> all() const { return present_; }
  std::uint64_t any(std::mt19937_64& random) const { return present_[random() % present_.size()]; }
  std::uint64_t add() {
    present_.push_back(mix(next_++));
    return present_.back();
  }
  std::uint64_t remove(std::mt19937_64& random) {
    std::swap(present_[random() % present_.size()], present_.back());
    const std::uint64_t key = present_.back();
    present_.pop_back();
    return key;
  }

 private:
  std::vector<std::uint64_t> present_;
  std::uint64_t next_;
};

struct TakenLine {
  std::uint64_t count = 0;
  std::uint32_t queue = 0;
  std::map<std::uint64_t, std::uint64_t> writers;  // by code
  std::map<std::uint64_t, std::uint64_t> readers;
};

class Simulation {
 public:
  explicit Simulation(const SimulationOptions& options)
      : options_(options),
        machine_({.cores = options.threads + kBackgroundCores}),
        baton_(options.threads),
        keys_(options.records),
        random_(options.seed),
        cores_(options.threads) {}

  SimulationResult run() {
    PoolOptions pool_options;
    pool_options.mode = OpenMode::create_new;
    pool_options.durability = Durability::emulated;
    auto pool = Pool::open(options_.path, pool_options);
    if (!pool) give_up("open", pool.error());
    MapOptions map_options;
    map_options.engine = options_.engine;
    auto map = pool->map<std::uint64_t, std::uint64_t>("map", map_options);
    if (!map) give_up("map", map.error());
    map_ = &*map;
    name_memory_of_thread(false);
    load();
    trace_background(true);
    advance(options_.operations / 4);  // fills the caches
    result_ = {};
    taken_.clear();
    advance(options_.operations);
    trace_background(false);
    name_lines();
    map_ = nullptr;
    name_memory_of_thread(true);
    return std::move(result_);
  }

 private:
  struct Core {
    std::uint64_t time_ps = 0;
    Operation operation = Operation::find;
    std::vector<Access> accesses;
    std::size_t next = 0;
  };

  // Every thread inserts a share of the records, in turns, so that each has extents of its own.
  void load() {
    const auto keys = keys_.all();
    const std::size_t piece = std::max<std::size_t>(keys.size() / options_.threads / 16, 1);
    for (std::size_t begin = 0; begin < keys.size(); begin += piece) {
      const auto part = keys.subspan(begin, std::min(piece, keys.size() - begin));
      baton_.run(static_cast<std::uint32_t>(begin / piece % options_.threads), [&] {
        for (const std::uint64_t key : part) {
          const Found put = map_->insert(key, key);
          if (!put.ok()) give_up("insert", put.status());
        }
      });
    }
  }

  // Runs the operations of all cores, and their accesses on the machine.
  void advance(std::uint64_t operations) {
    using Turn = std::pair<std::uint64_t, std::uint32_t>;  // time, core
    std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns;
    for (std::uint32_t core = 0; core < options_.threads; ++core) {
      turns.emplace(cores_[core].time_ps, core);
    }
    for (std::uint64_t begun = 0; !turns.empty();) {
      const std::uint32_t number = turns.top().second;
      turns.pop();
      Core& core = cores_[number];
      if (core.next == core.accesses.size()) {
        if (begun++ >= operations) continue;
        begin_operation(core, number);
      } else {
        const Access& access = core.accesses[core.next++];
        OperationCost& cost = result_.costs[index(core.operation)];
        const std::uint64_t done_ps = step(number, access, core.time_ps, &cost);
        cost.time_ps += done_ps - core.time_ps;
        core.time_ps = done_ps;
      }
      turns.emplace(core.time_ps, number);
    }
  }
  static std::size_t index(Operation operation) { return static_cast<std::size_t>(operation); }

  void begin_operation(Core& core, std::uint32_t number) {
    constexpr Operation kMix[8] = {Operation::find,   Operation::find,   Operation::find,
                                   Operation::find,   Operation::update, Operation::update,
                                   Operation::insert, Operation::erase};
    core.operation = kMix[random_() % 8];
    const std::uint64_t key = core.operation == Operation::insert  ? keys_.add()
                              : core.operation == Operation::erase ? keys_.remove(random_)
                                                                   : keys_.any(random_);
    const std::uint64_t value = random_();
    bool done = false;
    baton_.run(number, [&] {
      begin_trace();
      done = call(core.operation, key, value);
      end_trace(core.accesses);
    });
    if (!done) {
      std::fprintf(stderr, "perdure-coherence: %s of a key: wrong result\n",
                   kOperationNames[index(core.operation)]);
      std::exit(1);
    }
    core.next = 0;
    ++result_.costs[index(core.operation)].operations;
    add_background(core.time_ps);
  }
  // Returns whether the result is right.
  bool call(Operation operation, std::uint64_t key, std::uint64_t value) {
    switch (operation) {
      case Operation::find:
        return map_->contains(key).present();
      case Operation::update:
        return map_->update(key, value).present();
      case Operation::insert:
        return map_->insert(key, value).absent();
      case Operation::erase:
        return map_->erase(key).present();
    }
    return false;
  }
  // What the background threads did since the last operation happens now, at once.
  void add_background(std::uint64_t now_ps) {
    std::uint32_t core = options_.threads;
    for (const auto& accesses : take_background()) {
      for (const Access& access : accesses) step(core, access, now_ps, nullptr);
      core += core + 1 < options_.threads + kBackgroundCores ? 1 : 0;
    }
  }
  std::uint64_t step(std::uint32_t core, const Access& access, std::uint64_t now_ps,
                     OperationCost* cost) {
    const Machine::Result done = machine_.access(core, access.line, access.writes, now_ps);
    if (!done.taken_over) return done.done_ps;
    TakenLine& line = taken_[access.line];
    ++line.count;
    line.queue = std::max(line.queue, done.queue);
    ++(access.writes ? line.writers : line.readers)[access.code];
    if (cost == nullptr) return done.done_ps;
    ++(is_content(access.line) ? cost->content : cost->infrastructure);
    cost->queue = std::max(cost->queue, done.queue);
    return done.done_ps;
  }
  bool is_content(std::uint64_t line) {
    const auto [it, fresh] = content_.try_emplace(line, false);
    if (fresh) it->second = lines_.name_of(line).content;
    return it->second;
  }

  // Lines of one name count together: an array has many.
  void name_lines() {
    struct Named {
      HotLine hot;
      TakenLine sum;
    };
    std::map<std::string, Named> by_name;
    for (const auto& [number, line] : taken_) {
      LineName name = lines_.name_of(number);
      Named& named = by_name[name.name];
      named.hot.content = name.content;
      named.sum.count += line.count;
      named.sum.queue = std::max(named.sum.queue, line.queue);
      for (const auto& [code, count] : line.writers) named.sum.writers[code] += count;
      for (const auto& [code, count] : line.readers) named.sum.readers[code] += count;
    }
    std::set<std::uint64_t> codes;
    for (auto& [name, named] : by_name) {
      named.hot.name = name;
      named.hot.taken_over = named.sum.count;
      named.hot.queue = named.sum.queue;
      for (const auto* sides : {&named.sum.writers, &named.sum.readers}) {
        if (!sides->empty()) codes.insert(most(*sides));
      }
    }
    const Frames frames = frames_of(codes);
    for (auto& [name, named] : by_name) {
      named.hot.writer = describe(named.sum.writers, frames);
      named.hot.reader = describe(named.sum.readers, frames);
      result_.hottest.push_back(std::move(named.hot));
    }
    std::ranges::sort(result_.hottest, std::greater{}, &HotLine::taken_over);
  }
  static std::uint64_t most(const std::map<std::uint64_t, std::uint64_t>& codes) {
    using Entry = std::pair<const std::uint64_t, std::uint64_t>;
    return std::ranges::max_element(codes, {}, &Entry::second)->first;
  }
  // The innermost function that is not a seam, such as "Write::insert (write.h:12)".
  static std::string describe(const std::map<std::uint64_t, std::uint64_t>& codes,
                              const Frames& frames) {
    if (codes.empty()) return "";
    const auto it = frames.find(most(codes));
    if (it == frames.end() || it->second.empty()) return "?";
    for (const Frame& frame : it->second) {
      constexpr const char* kSeams[] = {"std::", "RealPlatform::", "operator", "__"};
      const bool seam =
          std::ranges::any_of(kSeams, [&](const char* s) { return frame.function.starts_with(s); });
      if (!seam) return frame.function + " (" + frame.place + ")";
    }
    return it->second.back().function + " (" + it->second.back().place + ")";
  }

  SimulationOptions options_;
  Machine machine_;
  Baton baton_;
  Keys keys_;
  std::mt19937_64 random_;
  Map<std::uint64_t, std::uint64_t>* map_ = nullptr;
  std::vector<Core> cores_;
  Lines lines_{options_.engine};
  std::unordered_map<std::uint64_t, bool> content_;
  std::unordered_map<std::uint64_t, TakenLine> taken_;
  SimulationResult result_;
};

}  // namespace

SimulationResult simulate(const SimulationOptions& options) {
  auto simulation = std::make_unique<Simulation>(options);
  SimulationResult result = simulation->run();
  std::remove(options.path.c_str());
  return result;
}

}  // namespace perdure::testing
