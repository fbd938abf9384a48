// The measurements of the atomic skiplists' evaluation (paper, section IV), and its data sets.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "bench/harness/memory_heap.h"
#include "evaluation/figures.h"
#include "evaluation/skiplists/list.h"

namespace perdure::paper {

struct ListOptions {
  std::uint64_t items = 1'000'000;   // in the largest list; the others have a half and a quarter
  std::uint64_t sample = 10'000;     // operations per latency
  std::uint64_t stream = 1'000'000;  // zipfian keys per throughput; half as many once each
  std::uint32_t runs = 5;            // of each list, in turns, of which the median counts
  std::string folder = "/dev/shm";   // of the pools of table 2
};

struct ListScheme {
  const char* name;
  std::unique_ptr<List> (*make)(bench::MemoryHeap& memory);
};
inline constexpr std::size_t kListSchemeCount = 7;
std::span<const ListScheme, kListSchemeCount> list_schemes();

// Distinct keys by number. The data sets of which the paper gives only the names are made up: words
// of documents are pairs of a document's and a word's number, in the order of documents; a
// fingerprint is 16 bytes of a hash.
struct DataSet {
  const char* name;
  ListKey (*key)(std::uint64_t n);
  bool all_latencies = false;  // figure 9 has it
};
inline constexpr std::size_t kDataSetCount = 4;
std::span<const DataSet, kDataSetCount> data_sets();

inline constexpr std::uint32_t kWriteLatencies[] = {300, 600, 900, 1200};

void list_figures(const ListOptions& options, Report& report);  // figures 6 to 10
void openings(const ListOptions& options, Report& report);      // beside table 2

}  // namespace perdure::paper
