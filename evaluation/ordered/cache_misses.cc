// Figure 11 d: searches for callgrind, which counts their cache misses; evaluation/cache_misses.py
// runs it. One thread.
#include "evaluation/ordered/figures.h"
#include "evaluation/ordered/measure.h"

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#endif

namespace perdure::paper {

#ifdef CALLGRIND_START_INSTRUMENTATION

void cache_misses(const OrderedOptions& options, Report&) {
  constexpr std::uint64_t kSearches = 50'000;  // cache_misses.py has it, too
  if (RUNNING_ON_VALGRIND == 0) return;
  for (const OrderedScheme& scheme : ordered_schemes()) {
    bench::MemoryHeap memory;
    open_for(memory, options.items);
    const std::unique_ptr<OrderedMap> map = scheme.make(memory);
    for (std::uint64_t n = 0; n < options.items; ++n) {
      require(insert_entry(*map, n), "a key was present before its insert");
    }
    const auto search = [&](std::uint64_t i) {
      return read_entry(*map, scatter(i, options.items));
    };
    CALLGRIND_START_INSTRUMENTATION;
    (void)measure(kSearches, search);  // the simulated caches are empty before
    CALLGRIND_ZERO_STATS;
    (void)measure(kSearches, [&](std::uint64_t i) { return search(kSearches + i); });
    CALLGRIND_DUMP_STATS_AT(scheme.name);
    CALLGRIND_STOP_INSTRUMENTATION;
  }
}

#else

void cache_misses(const OrderedOptions&, Report&) {}

#endif

}  // namespace perdure::paper
