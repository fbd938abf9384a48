// Single puts: of a pool that has just been opened, and later; copies of chunks; memory.
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bench/harness/histogram.h"
#include "evaluation/buffered/figures.h"
#include "evaluation/buffered/pool_files.h"

namespace perdure::buffered {
namespace {

using bench::Histogram;
using paper::must;
using paper::require;

constexpr double kFirst = 10;                    // seconds after an open, or 0.4 of a shorter run
constexpr std::uint64_t kShortestCopy = 20'000;  // ns of a chunk

// Bytes of this process that are neither of a file nor of shared memory.
double own_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    unsigned long long kib = 0;
    if (std::sscanf(line.c_str(), "RssAnon: %llu kB", &kib) == 1)
      return static_cast<double>(kib) * 1024;
  }
  return 0;
}

double processor_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

double disk_bytes(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<double>(info.st_blocks) * 512 : 0;
}

// In `process` another thread takes as much of a processor as cuts and folds do in `buffered`:
// without it the kernel gives a thread that never waits other times.
class Beside {
 public:
  explicit Beside(bool runs) {
    if (runs) thread_ = std::thread([this] { run(); });
  }
  ~Beside() {
    stop_.store(true, std::memory_order_relaxed);
    if (thread_.joinable()) thread_.join();
  }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

 private:
  void run() {
    while (!stop_.load(std::memory_order_relaxed)) {
      const Clock::time_point begin = Clock::now();
      while (seconds_since(begin) < 0.006) {
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(4));
    }
  }

  std::atomic<bool> stop_{false};
  std::thread thread_;
};

struct Stretch {  // of puts
  double begin, end;
  std::uint64_t count = 0;
  Histogram times = {};
  double rate() const { return static_cast<double>(count) / (end - begin); }
};

struct PutFigures {
  double second, first, later;                             // puts per second
  double longest_first, most_99, most_9999, longest_stop;  // ns
  double memory, notes;
};

PutFigures put_for_a_while(const PoolFiles& files, const Options& options, bool beside) {
  return in_process<PutFigures>([&](std::optional<Pool>& pool) {
    const double all = options.seconds;
    const double first = std::min(kFirst, 0.4 * all);
    Stretch stretches[] = {
        {0, std::min(1.0, 0.04 * all)}, {std::min(1.0, 0.04 * all), first}, {first, all}};
    pool.emplace(files.open());
    Records records(*pool, options.records);
    const Beside load(beside);
    const Clock::time_point begin = Clock::now();
    Clock::time_point last = begin;
    for (Stretch& stretch : stretches) {
      for (;;) {
        records.put_random();
        ++stretch.count;
        const Clock::time_point now = Clock::now();
        stretch.times.record(static_cast<std::uint64_t>((now - last).count()));
        last = now;
        if (std::chrono::duration<double>(now - begin).count() >= stretch.end) break;
      }
    }
    const auto& [second, rest, later] = stretches;
    PutFigures out{};
    out.second = second.rate();
    out.first = static_cast<double>(second.count + rest.count) / first;
    out.later = later.rate();
    out.longest_first = static_cast<double>(std::max(second.times.max(), rest.times.max()));
    out.most_99 = static_cast<double>(later.times.percentile(0.99));
    out.most_9999 = static_cast<double>(later.times.percentile(0.9999));
    out.longest_stop = static_cast<double>(must(pool->stats()).longest_stop_ns);
    out.memory = own_memory();
    out.notes = disk_bytes(files.path() + "-live-dirty");
    must(pool->close());
    pool.reset();
    return out;
  });
}

}  // namespace

void puts(const Options& options, paper::Report& report) {
  std::vector<PutFigures> process, buffered;
  for (std::uint32_t run = 0; run < options.runs; ++run) {
    for (const bool cuts : {false, true}) {
      const PoolFiles files(options.folder, cuts ? Durability::buffered : Durability::process);
      files.fill(options.records);
      (cuts ? buffered : process).push_back(put_for_a_while(files, options, !cuts));
    }
  }
  report.heading("Puts of one thread", {"", "`process`", "`buffered`"});
  const auto row = [&](const std::string& name, double PutFigures::* figure, double unit,
                       int digits) {
    std::vector<std::string> cells = {name};
    for (const auto* runs : {&process, &buffered}) {
      std::vector<double> values;
      for (const PutFigures& one : *runs) values.push_back(one.*figure);
      cells.push_back(spread(values, unit, digits));
    }
    report.row(cells);
  };
  row("million a second, first second", &PutFigures::second, 1e6, 2);
  row("million a second, first 10 s", &PutFigures::first, 1e6, 2);
  row("million a second, later", &PutFigures::later, 1e6, 2);
  row("longest of the first 10 s, ms", &PutFigures::longest_first, 1e6, 1);
  row("99 % of the later, us", &PutFigures::most_99, 1e3, 1);
  row("99.99 % of the later, us", &PutFigures::most_9999, 1e3, 0);
  row("longest stop of all stores, us", &PutFigures::longest_stop, 1e3, 0);
  row("memory of the process, MB", &PutFigures::memory, 1e6, 0);
  row("notes of what has changed, MB", &PutFigures::notes, 1e6, 1);
}

// The puts of a pool that has just been opened, of which some copy a chunk.
void chunk_copies(const Options& options, paper::Report& report) {
  struct Copies {
    double chunk, count, middle, most, longest;
  };
  std::vector<double> counts, middle, most, longest;
  double chunk = 0;
  for (std::uint32_t run = 0; run < options.runs; ++run) {
    const PoolFiles files(options.folder, Durability::buffered);
    files.fill(options.records);
    const Copies copies = in_process<Copies>([&](std::optional<Pool>& pool) {
      pool.emplace(files.open());
      Records records(*pool, options.records);
      struct Slow {
        std::uint64_t ns;
        double bytes;
      };
      std::vector<Slow> slow;
      const std::string live_image = files.path() + "-live";
      double live = disk_bytes(live_image);
      for (std::uint64_t i = 0; i < options.records; ++i) {
        const Clock::time_point begin = Clock::now();
        records.put_random();
        const auto ns = static_cast<std::uint64_t>((Clock::now() - begin).count());
        if (ns < kShortestCopy) continue;
        const double now = disk_bytes(live_image);
        if (now != live) slow.push_back({ns, now - live});
        live = now;
      }
      require(!slow.empty(), "no put has copied a chunk");
      const double least = std::ranges::min(slow, {}, &Slow::bytes).bytes;
      Histogram times;
      for (const Slow& put : slow) times.record(put.ns * least / put.bytes);
      must(pool->close());
      pool.reset();
      return Copies{.chunk = static_cast<double>(least),
                    .count = static_cast<double>(times.count()),
                    .middle = static_cast<double>(times.percentile(0.5)),
                    .most = static_cast<double>(times.percentile(0.99)),
                    .longest = static_cast<double>(times.max())};
    });
    chunk = copies.chunk;
    counts.push_back(copies.count);
    middle.push_back(copies.middle);
    most.push_back(copies.most);
    longest.push_back(copies.longest);
  }
  report.heading("Puts that copy chunks, for each chunk", {"", ""});
  report.row({"chunk", fmt::format("{:.0f} KiB", chunk / 1024)});
  report.row({"such puts", spread(counts, 1, 0)});
  report.row({"middle, ms", spread(middle, 1e6, 2)});
  report.row({"99 %, ms", spread(most, 1e6, 2)});
  report.row({"longest, ms", spread(longest, 1e6, 2)});
}

void pools_at_rest(const Options& options, paper::Report& report) {
  constexpr std::uint32_t kSeconds = 10;
  std::vector<double> seconds;
  for (std::uint32_t run = 0; run < options.runs; ++run) {
    std::vector<std::unique_ptr<PoolFiles>> files;
    for (std::uint32_t i = 0; i < options.at_rest; ++i) {
      files.push_back(std::make_unique<PoolFiles>(options.folder, Durability::buffered, i));
    }
    seconds.push_back(in_process<double>([&](std::optional<Pool>&) {
      std::vector<Pool> pools;
      for (const auto& one : files) {
        pools.push_back(one->open());
        Records(pools.back(), 1).load();
      }
      std::this_thread::sleep_for(std::chrono::seconds(1));
      const double before = processor_seconds();
      std::this_thread::sleep_for(std::chrono::seconds(kSeconds));
      const double used = processor_seconds() - before;
      for (Pool& pool : pools) must(pool.close());
      return used;
    }));
  }
  report.heading("Pools at rest", {"", ""});
  report.row({fmt::format("{} pools, processor time in {} s", options.at_rest, kSeconds),
              spread(seconds, 1, 2) + " s"});
}

}  // namespace perdure::buffered
