// Facts about sites and mutants of pool and heap: the sites that rely on the order of stores to one
// line, the mutants that survive and why, and published bugs with their mutants. An engine's are in
// its row.
#include <algorithm>
#include <iterator>

#include "testing/engines/engine_list.h"
#include "testing/mutants/mutants.h"

namespace perdure::testing {

namespace {

constexpr std::string_view kOrderedSites[] = {
    "pool.root.add",   // pool.I3: `root` is stored last
    "pool.root.drop",  // pool.I3: `root` is stored first
};

constexpr Argument kArguments[] = {
    {"pool.open.sync:skip_step", "",
     "the write-back of every assigned line comes before it and the sync of the headers after it; "
     "the scenario nothing_left_to_sync, which runs first, is red where a line is still pending. "
     "What is left to it, blocks of a DAX file that a map without MAP_SYNC has allocated, the "
     "simulated medium does not have"},
};

// Witcher: the numbers of its authors' list (bugs/sosp21-correctness-bugs.md). #: issues of the
// named projects. Hexadecimal: a commit of PMDK. The last rows are patterns without a source.
constexpr HistoricalBug kHistorical[] = {
    {"Witcher 1, PMDK #4945", "heap.extent.assign:drop_flush",
     "a block is in use before the allocator durably says so"},
    {"Witcher 17, Level Hashing", "storage.sync:drop_sync",
     "expand: the new size is durable, the space behind it is not"},
    {"Witcher 18, Level Hashing", "heap.run.release:drop_fence",
     "shrink: the head of a range is given up before its parts"},
    {"Witcher 27, P-ART", "pool.root.add:any_order",
     "key, child and counts of one line in the wrong order"},
    {"Witcher 28, P-BwTree", "heap.extent.assign:delay_flush",
     "the allocator's tail is not written back"},
    {"Witcher 32, P-CLHT-Aga", "pool.root.add:drop_flush",
     "resize: the new root is not written back (place only)"},
    {"Witcher 40-46, PMDK examples", nullptr, "ranges missing from an undo log; there is no log"},
    {"Witcher 47, memcached", nullptr, "a cache's item list; there is none"},
    {"SEPH #2, CCEH", "pool.root.add:drop_fence", "a new directory is used before it is durable"},
    {"PMDK #5461", "reclaim.batch.dead:drop_fence",
     "what is past the size of one batch is not fenced with it"},
    {"PMDK dd5001272", "heap.sweep.dead:drop_fence", "a missing drain after the log was cleared"},
    {"descriptor not cleared", "pool.open.dirty:skip_step",
     "a pool in use still says that it is clean"},
    {"stale header copy", "pool.open.second_copy:skip_step",
     "one of two copies still says what was true before"},
    {"reused block not dead", "heap.free.dead:drop_flush",
     "a block is handed out while the medium holds what it was"},
    {"reused block not dead", "heap.sweep.dead:skip_step", "the same after a crash"},
    {"new structure not persisted", "pool.create.header:drop_sync",
     "creation is acknowledged before it is durable"},
};

template <class T>
std::vector<T> joined(std::span<const T> common, std::span<const T> own) {
  std::vector<T> all(common.begin(), common.end());
  all.insert(all.end(), own.begin(), own.end());
  return all;
}

}  // namespace

bool relies_on_order(std::string_view site) {
  if (std::ranges::find(kOrderedSites, site) != std::end(kOrderedSites)) return true;
  return std::ranges::any_of(engines_under_test(), [&](const EngineUnderTest* row) {
    return std::ranges::find(row->ordered_sites, site) != row->ordered_sites.end();
  });
}

std::vector<Mutant> mutants_of(const SiteInfo& site) {
  std::vector<Mutant> mutants;
  if (site.flushes) mutants.push_back(Mutant::drop_flush);
  if (site.fences) mutants.push_back(Mutant::drop_fence);
  if (site.multi_line_count > 0) {
    mutants.push_back(Mutant::first_line_only);
    mutants.push_back(Mutant::all_but_last);
  }
  if (site.flushes) mutants.push_back(Mutant::delay_flush);
  if (site.flushes && site.fences) mutants.push_back(Mutant::publish_first);
  if (site.ordered_count > 0 && relies_on_order(site.name)) mutants.push_back(Mutant::any_order);
  if (site.syncs) mutants.push_back(Mutant::drop_sync);
  if (site.steps) mutants.push_back(Mutant::skip_step);
  if (site.checks) mutants.push_back(Mutant::skip_check);
  return mutants;
}

std::vector<Argument> arguments(const EngineUnderTest& engine) {
  return joined<Argument>(kArguments, engine.arguments);
}

std::vector<HistoricalBug> historical_bugs(const EngineUnderTest& engine) {
  return joined<HistoricalBug>(kHistorical, engine.historical);
}

}  // namespace perdure::testing
