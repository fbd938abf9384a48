// What an access to memory costs (table 1 and figure 2 a of PhaST's paper), in memory that is
// ordinary here. The paper does not say what a latency is. Here it is the time of an access that
// waits for the one before: an address depends on what was read, a write ends with a fence.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <string>
#include <vector>

#include "evaluation/ordered/figures.h"
#include "evaluation/ordered/measure.h"
#include "evaluation/parallel.h"

namespace perdure::paper {
namespace {

struct alignas(kLine) Line {
  Word words[8];
};

struct Access {
  const char* name;
  bool random, write, persist;
  const char* dram;  // GB/s and ns in the paper
  const char* pm;
};
constexpr Access kAccesses[] = {
    {"sequential read", false, false, false, "63.9, 30", "11.0, 172"},
    {"random read", true, false, false, "11.1, 172", "2.9, 635"},
    {"sequential write", false, true, false, "18.5, 103", "-"},
    {"random write", true, true, false, "13.4, 142", "-"},
    {"sequential write, written back", false, true, true, "-", "2.3, 847"},
    {"random write, written back", true, true, true, "-", "0.8, 2559"},
};

class Memory {
 public:
  explicit Memory(std::uint64_t lines) : lines_(std::bit_floor(lines)) {
    platform_.configure(FlushMode::cache_line, best_flush_instruction(), 0);
  }
  // Million accesses a second, `count` in all.
  double run(const Access& access, bool wait, std::uint64_t count) {
    const Figure figure = measure(count, RealPlatform::cores(), [&](std::uint64_t i) {
      thread_local Word last = 0;  // what was read: 0
      const std::uint64_t at = (access.random ? bench::mix64(i) : i) + (wait ? last : 0);
      Line& line = lines_[at & (lines_.size() - 1)];
      if (access.write) {
        for (Word& word : line.words) std::atomic_ref(word).store(0, std::memory_order_relaxed);
        if (access.persist) platform_.flush(&line, sizeof(Line), "bench.node"_site);
        if (wait && !access.persist) std::atomic_thread_fence(std::memory_order_seq_cst);
        if (wait && access.persist) (void)platform_.fence("bench.node"_site);
      } else {
        Word sum = 0;
        for (const Word& word : line.words) {
          sum += std::atomic_ref(const_cast<Word&>(word)).load(std::memory_order_relaxed);
        }
        last = sum;
      }
      return true;
    });
    return figure.mops;
  }

 private:
  std::vector<Line> lines_;
  RealPlatform platform_;
};

}  // namespace

void memory_costs(const OrderedOptions& options, Report& report) {
  Memory memory(8 * options.items);
  std::array<std::array<std::vector<double>, 2>, std::size(kAccesses)> found;
  for (std::uint32_t turn = 0; turn < options.runs; ++turn) {
    for (std::size_t a = 0; a < found.size(); ++a) {
      const double free = memory.run(kAccesses[a], false, 4 * options.items);
      const double waits = memory.run(kAccesses[a], true, 4 * options.items);
      found[a][0].push_back(free * sizeof(Line) / 1e3);
      found[a][1].push_back(RealPlatform::cores() * 1e3 / waits);
    }
  }
  report.heading(
      fmt::format("Accesses of 64 bytes, {} threads (table 1, figure 2 a)", RealPlatform::cores()),
      {"access", "GB/s", "ns", "DRAM in the paper, 32 threads", "PM in the paper"});
  for (std::size_t a = 0; a < found.size(); ++a) {
    std::vector<std::string> cells{kAccesses[a].name};
    for (const std::vector<double>& values : found[a]) {
      const auto [least, most] = std::ranges::minmax(values);
      cells.push_back(fmt::format("{:.1f} ({:.1f} to {:.1f})", median(values), least, most));
    }
    cells.insert(cells.end(), {kAccesses[a].dram, kAccesses[a].pm});
    report.row(cells);
  }
}

}  // namespace perdure::paper
