// Section 4.1 says of threads that rehash: with one beside 35 threads that insert, `clevel` has at
// most three levels. Here: by one, two and four of them.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "evaluation/engine_table.h"
#include "evaluation/growing/measure.h"
#include "evaluation/growing/table_growing.h"

namespace perdure::paper {
namespace {

constexpr std::uint32_t kRehashing[] = {1, 2, 4};

std::unique_ptr<ClevelTable> make(bench::MemoryHeap& memory, std::uint32_t rehashing) {
  return must(ClevelTable::make(memory, kFirstItems, rehashing));
}

Figure inserts(const GrowingOptions& options, std::uint32_t rehashing) {
  bench::MemoryHeap memory;
  open_for(memory, options.items);
  const auto table = make(memory, rehashing);
  return measure(options.items, options.threads,
                 [&](std::uint64_t i) { return must(table->insert(key_of(i), i)); });
}

// The most levels that are there after a hundredth of the inserts each. Not in the runs whose rate
// counts: a look takes time.
std::size_t most_levels(const GrowingOptions& options, std::uint32_t rehashing) {
  bench::MemoryHeap memory;
  open_for(memory, options.items);
  const auto table = make(memory, rehashing);
  const std::uint64_t step = std::max<std::uint64_t>(options.items / 100, 1);
  std::atomic<std::size_t> most = 0;
  (void)measure(options.items, options.threads, [&](std::uint64_t i) {
    const bool inserted = must(table->insert(key_of(i), i));
    if (i % step == 0) {
      const std::size_t levels = table->stats().levels.size();
      for (std::size_t seen = most; seen < levels && !most.compare_exchange_weak(seen, levels);) {
      }
    }
    return inserted;
  });
  table->settle();
  must_be_sound(*table);
  return most;
}

}  // namespace

void rehash_threads(const GrowingOptions& options, Report& report) {
  std::vector<std::vector<double>> rates(std::size(kRehashing));
  for (std::uint32_t turn = 0; turn < options.runs; ++turn) {
    for (std::size_t r = 0; r < rates.size(); ++r) {
      rates[r].push_back(inserts(options, kRehashing[r]).mops);
    }
  }
  report.heading(fmt::format("Inserts of `clevel` by threads that rehash, {} that insert "
                             "(beside section 4.1)",
                             of_threads(options.threads)),
                 {"threads that rehash", "million inserts a second", "most levels"});
  for (std::size_t r = 0; r < rates.size(); ++r) {
    const auto [least, most] = std::ranges::minmax(rates[r]);
    report.row({fmt::format("{}", kRehashing[r]),
                fmt::format("{:.2f} ({:.2f} to {:.2f})", median(rates[r]), least, most),
                fmt::format("{}", most_levels(options, kRehashing[r]))});
  }
}

}  // namespace perdure::paper
