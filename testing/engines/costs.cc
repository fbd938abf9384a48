// perdure-costs: counts the costs of one operation of each engine in the simulator. Prints
// ENGINE.OPERATION.FIGURE=value, each an average over all operations of a fixed workload, with the
// nodes and tables of the real engines. Every run prints the same.
//
// FIGURES
//   writebacks, fences, allocations   as the platform and the heap count them
//   lines                             distinct 64-byte lines of the pool that one operation loads
//                                     or stores
// They include background work: no background thread runs, and mutations do its work.
//
// NOT IN `lines`: DRAM (phast's descriptors, pskiplist's nodes, locks, counters), lines that are
// only prefetched, and reads through a plain pointer: a map's header, and the bytes of string keys
// and values. Keys and values here are integers, whose records have no such bytes.
//
// tests/budgets/costs.txt holds the figures; tests/testers/costs_test.py compares them.
#include "testing/engines/costs.h"

#include <cstdio>

int main(int argc, char**) {
  using namespace perdure::testing;
  if (argc > 1) {
    std::fputs(
        "usage: perdure-costs\n"
        "Prints the costs of one operation of each engine: write-backs, fences, allocations and\n"
        "lines of the pool. Every run prints the same. Exit status 1: an operation failed.\n",
        stderr);
    return 2;
  }
  std::puts(
      "# What one operation costs, counted by the simulator (testing/engines/costs.cc says how).\n"
      "# Rewrite with: build/release/testing/perdure-costs > tests/budgets/costs.txt");
#define PERDURE_ENGINE(name) costs_of::name();
#include "index/engines.def"
}
