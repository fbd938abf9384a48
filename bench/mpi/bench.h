// What the benchmarks of both stores share: settings, time, and what they print of snapshots.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "perdure/mpi.h"

namespace perdure::mpi::bench {

struct Settings {
  std::string directory;
  std::string store = "perdure";
  std::uint64_t keys = 100'000;  // per rank, as in the paper
  std::uint64_t finds = 10'000;
  std::uint64_t bulk = 1000;
  std::uint64_t runs = 7;
  std::uint32_t merge_threads = 0;
  std::uint64_t threads = 4;
  bool by_range = false;
};

// An error of one rank is an error of all: all ranks end here together. Errors of MPI are the
// exception.
[[noreturn]] inline void give_up(const Status& status) {
  fmt::print(stderr, "perdure-mpi: {}\n", status.message());
  MPI_Abort(MPI_COMM_WORLD, 3);
  std::abort();
}
[[noreturn]] inline void wrong(const char* what) {
  give_up(Status::format(StatusCode::corruption, "%s", what));
}

inline std::uint64_t mixed(std::uint64_t n) {
  n = (n + 1) * 0x9E3779B97F4A7C15;
  n = (n ^ (n >> 30)) * 0xBF58476D1CE4E5B9;
  return n ^ (n >> 27);
}

class Timer {
 public:
  Timer() {
    MPI_Barrier(MPI_COMM_WORLD);
    begin_ = MPI_Wtime();
  }
  double seconds() const { return MPI_Wtime() - begin_; }

 private:
  double begin_;
};

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}
inline double fastest(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

// Of snapshots, in ms; `behind`: everything after the own scan, in which the merges differ.
struct Times {
  std::vector<double> whole, behind, extract, transfer, merge;

  void add(double seconds, const SnapshotTimes& parts) {
    whole.push_back(seconds * 1e3);
    extract.push_back(static_cast<double>(parts.extract_ns) / 1e6);
    transfer.push_back(static_cast<double>(parts.transfer_ns) / 1e6);
    merge.push_back(static_cast<double>(parts.merge_ns) / 1e6);
    behind.push_back(transfer.back() + merge.back());
  }
};

// The functions below print on rank 0.
class Printer {
 public:
  Printer(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

  void print(const char* what, double figure, const char* unit) const {
    if (rank_ == 0) fmt::print("{:2} ranks  {:32} {:10.3f} {}\n", ranks_, what, figure, unit);
  }
  void report(const char* name, const Times& times) const {
    if (rank_ != 0) return;
    fmt::print(
        "{:2} ranks  {:10} {:8.2f} ms (fastest {:.2f}); of rank 0, median (fastest): scan {:.2f} "
        "({:.2f}), waits and transfers {:.2f} ({:.2f}), merges {:.2f} ({:.2f})\n",
        ranks_, name, median(times.whole), fastest(times.whole), median(times.extract),
        fastest(times.extract), median(times.transfer), fastest(times.transfer),
        median(times.merge), fastest(times.merge));
  }
  // Above 1 OptMerge is faster.
  void compare(const char* what, const std::vector<double>& naive,
               const std::vector<double>& optimized) const {
    if (rank_ != 0) return;
    std::vector<double> pairs;
    for (std::size_t i = 0; i < naive.size(); ++i) pairs.push_back(naive[i] / optimized[i]);
    fmt::print(
        "{:2} ranks  NaiveMerge / OptMerge, {}: of the medians {:.3f}, of the fastest {:.3f}, "
        "median of {} pairs {:.3f}\n",
        ranks_, what, median(naive) / median(optimized), fastest(naive) / fastest(optimized),
        pairs.size(), median(pairs));
  }
  // The two merges alternate, and other load on the machine affects both.
  template <class Snapshot>
  void snapshots(std::uint64_t runs, Snapshot&& snapshot) const {
    Times optimized, naive;
    for (std::uint64_t i = 0; i < runs; ++i) {
      if (i % 2 == 0) snapshot(Merge::recursive_doubling, optimized);
      snapshot(Merge::naive, naive);
      if (i % 2 != 0) snapshot(Merge::recursive_doubling, optimized);
    }
    report("OptMerge", optimized);
    report("NaiveMerge", naive);
    compare("whole snapshots", naive.whole, optimized.whole);
    compare("after the scan", naive.behind, optimized.behind);
  }

 private:
  int rank_;
  int ranks_;
};

// The snapshot must have as many keys as were inserted, rising, each with its value. That is the
// oracle's state.
template <class Entries>
bool is_oracle(const Entries& entries, std::uint64_t total) {
  bool right = entries.size() == total;
  for (std::uint64_t j = 0; j < entries.size(); ++j) {
    const auto [key, value] = entries[j];
    right = right && value < total && key == mixed(value) &&
            (j == 0 || std::get<0>(entries[j - 1]) < key);
  }
  return right;
}

// SQLite in the place of our pools; only in perdure-paper-mpi.
void bench_sqlite(const Settings& settings);

}  // namespace perdure::mpi::bench
