// What is known about sites and mutants: who relies on the order of stores to one line, which
// mutants survive and why, and the bugs of others with the mutant that is theirs.
#include <algorithm>
#include <iterator>

#include "testing/mutants.h"

namespace perdure::testing {

bool relies_on_order(std::string_view site) {
  static constexpr std::string_view kSites[] = {
      "pool.root.add",       // I3: `root` last
      "pool.root.drop",      // I3: `root` first
      "phast.insert.entry",  // the commit word last
      "phast.split.link",    // next before bound
      "phast.zero.write",    // the value before its presence
  };
  return std::ranges::find(kSites, site) != std::end(kSites);
}

const std::vector<Argument>& arguments() {
  static const std::vector<Argument> all{
      {"pool.open.sync:skip_step", "",
       "the write-back of every assigned line comes before it and the sync of the headers after "
       "it; "
       "what is left to it, blocks of a DAX file that a map without MAP_SYNC has allocated, the "
       "simulated medium does not have"},
  };
  return all;
}

// Witcher: the list of its authors (bugs/sosp21-correctness-bugs.md), by its numbers; #: issues of
// the projects named; a hash: a commit of PMDK. The last rows are patterns without an address.
const std::vector<HistoricalBug>& historical_bugs() {
  static const std::vector<HistoricalBug> all{
      {"Witcher 1, PMDK #4945", "heap.extent.assign:drop_flush",
       "a block is in use before the allocator durably says so"},
      {"Witcher 2, WOART", "phast.split.link:any_order",
       "a link and the prefix that goes with it are persisted apart"},
      {"Witcher 3, FAST_FAIR", "phast.erase.entry:drop_flush",
       "a removal writes back the wrong line"},
      {"Witcher 4, FAST_FAIR", "phast.recover.range:skip_step",
       "what a half-done change left behind is believed by later operations"},
      {"Witcher 5, FAST_FAIR", "phast.recover.split:skip_step",
       "a sibling is linked, the rest of the split is lost, nobody repairs it"},
      {"Witcher 6, FAST_FAIR", "phast.unlink.next:drop_flush",
       "a merge is not atomic: the link to the empty node stays"},
      {"Witcher 7, Level Hashing", "phast.record.write:drop_fence",
       "token before item: first bucket"},
      {"Witcher 8, Level Hashing", "phast.record.write:publish_first",
       "token before item: second bucket"},
      {"Witcher 9, Level Hashing", "phast.record.write:drop_flush",
       "token before item: update, first bucket"},
      {"Witcher 10, Level Hashing", "phast.split.leaf:drop_flush",
       "token before item: the item that is moved away"},
      {"Witcher 11, Level Hashing", "phast.insert.entry:any_order",
       "token before item: the item that takes its place"},
      {"Witcher 12, Level Hashing", "phast.split.leaf:drop_fence",
       "token before item: moved to the top level, first bucket"},
      {"Witcher 13, Level Hashing", "phast.split.leaf:publish_first",
       "token before item: moved to the top level, second bucket"},
      {"Witcher 14, Level Hashing", "phast.insert.entry:drop_fence",
       "token before item: after a movement, first bucket"},
      {"Witcher 15, Level Hashing", "phast.insert.entry:delay_flush",
       "token before item: after a movement, second bucket"},
      {"Witcher 16, Level Hashing", "phast.record.write:delay_flush",
       "token before item: update, second bucket"},
      {"Witcher 17, Level Hashing", "storage.sync:drop_sync",
       "expand: the new size is durable, the space behind it is not"},
      {"Witcher 18, Level Hashing", "heap.run.release:drop_fence",
       "shrink: the head of a range is given up before its parts"},
      {"Witcher 19, Level Hashing", "phast.split.zero:drop_flush",
       "a moved entry stays where it was"},
      {"Witcher 20, Level Hashing", "phast.recover.zero:skip_step",
       "a moved entry stays where it was: after a crash"},
      {"Witcher 21, Level Hashing", "phast.recover.zero:drop_flush",
       "a moved entry stays where it was: the repair is not durable"},
      {"Witcher 22, Level Hashing", nullptr,
       "an update frees the old slot before the new one counts; ours is one word in one slot"},
      {"Witcher 23, Level Hashing", nullptr, "the same in the second bucket"},
      {"Witcher 24, CCEH", "phast.split.link:publish_first",
       "a split's parts (depth, pattern, directory) are durable in any combination"},
      {"Witcher 25, CCEH", nullptr,
       "a claimed slot stays claimed after a crash; our claims are in DRAM"},
      {"Witcher 26, P-ART", "phast.zero.write:any_order",
       "an entry and the count that makes it visible are persisted apart"},
      {"Witcher 27, P-ART", "pool.root.add:any_order",
       "key, child and counts of one line in the wrong order"},
      {"Witcher 28, P-BwTree", "heap.extent.assign:delay_flush",
       "the allocator's tail is not written back"},
      {"Witcher 29, P-BwTree", "phast.create.leaf:drop_flush", "a new chunk is not written back"},
      {"Witcher 30, P-CLHT", "phast.split.leaf:first_line_only",
       "only the first line of what is flushed is right"},
      {"Witcher 31, P-CLHT-Aga", "phast.split.leaf:all_but_last",
       "the flush of a new table misses a line (place only in the list)"},
      {"Witcher 32, P-CLHT-Aga", "pool.root.add:drop_flush",
       "resize: the new root is not written back (place only)"},
      {"Witcher 33, P-CLHT-Aga", "phast.create.root:publish_first",
       "resize: the new root is durable before the table (place only)"},
      {"Witcher 34, P-CLHT-Aga-TX", "phast.create.root:drop_flush",
       "resize: the table is not written back (place only)"},
      {"Witcher 35, P-CLHT-Aga-TX", "phast.create.root:drop_fence",
       "resize: the table is not fenced (place only)"},
      {"Witcher 36, P-HOT", "phast.split.link:drop_fence", "a new root is shown before its fence"},
      {"Witcher 37, P-HOT", "phast.split.leaf:delay_flush",
       "a new child is linked before its fence"},
      {"Witcher 38, P-HOT", "phast.split.link:drop_flush",
       "the write-back of a link goes to another address"},
      {"Witcher 39, P-Masstree", "phast.recover.split:drop_flush",
       "as 5, and the repair is not durable"},
      {"Witcher 40-46, PMDK examples", nullptr, "ranges missing from an undo log; there is no log"},
      {"Witcher 47, memcached", nullptr, "a cache's item list; there is none"},
      {"RECIPE #24, P-CLHT", "phast.unlink.next:publish_first",
       "freed before the reference to it is durably gone: freed twice"},
      {"SEPH #1, Level Hashing", "phast.help.entry:drop_fence",
       "another thread answers by what is not durable yet"},
      {"SEPH #2, CCEH", "pool.root.add:drop_fence", "a new directory is used before it is durable"},
      {"SEPH #3, CCEH", "phast.help.entry:drop_flush",
       "a lookup returns a value that is not durable"},
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
  return all;
}

}  // namespace perdure::testing
