// perdure-mpi: the distributed store as an example and as the benchmark of the paper's section V.H.
//
//   mpirun -np 4 perdure-mpi demo DIRECTORY      inserts, tags, finds, extracts; continues where
//                                                the last run ended
//   mpirun -np 4 perdure-mpi bench [DIRECTORY]   writes, tag, find, history, scan, diff; snapshots
//                                                by both merges, checked
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "perdure/mpi.h"

namespace {

using perdure::Expected;
using perdure::Status;
using perdure::mpi::IntegerStore;
using perdure::mpi::Merge;
using perdure::mpi::Partition;

struct Settings {
  std::string directory;
  std::uint64_t keys = 100'000;  // per rank, as in the paper
  std::uint64_t finds = 10'000;
  std::uint64_t bulk = 1000;
  std::uint64_t runs = 7;
  std::uint32_t merge_threads = 0;
  bool by_range = false;
};

// An error of one rank is an error of all: all ranks end here together. Errors of MPI are the
// exception.
[[noreturn]] void give_up(const Status& status) {
  fmt::print(stderr, "perdure-mpi: {}\n", status.message());
  MPI_Abort(MPI_COMM_WORLD, 3);
  std::abort();
}
template <class T>
T must(Expected<T> done) {
  if (!done) give_up(done.error());
  return std::move(*done);
}
void must(const Status& status) {
  if (!status.ok()) give_up(status);
}
void must(const perdure::Found& found) { must(found.status()); }

std::uint64_t mixed(std::uint64_t n) {
  n = (n + 1) * 0x9E3779B97F4A7C15;
  n = (n ^ (n >> 30)) * 0xBF58476D1CE4E5B9;
  return n ^ (n >> 27);
}

void demo(const Settings& settings) {
  auto store = must(IntegerStore::open(MPI_COMM_WORLD, settings.directory));
  const auto before = store.versions().last;
  for (std::uint64_t n = 0; n < 1000; ++n) {
    const std::uint64_t key = mixed(before * 1000 + n);
    if (store.owner(key) == store.rank()) must(store.put(key, before + 1));
  }
  const auto version = must(store.tag());
  const auto found = must(store.get(mixed(before * 1000), version));
  const auto all = must(store.extract_snapshot(version));
  if (store.rank() == 0) {
    fmt::print("{} ranks, version {}: {} keys; the first of this run was written in version {}\n",
               store.ranks(), version, all.size(), found.value_or(0));
  }
  must(store.close());
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

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  explicit Bench(const Settings& settings)
      : settings_(settings),
        store_(must(
            IntegerStore::open(MPI_COMM_WORLD, settings.directory,
                               {.partition = settings.by_range ? Partition::range : Partition::hash,
                                .merge_threads = settings.merge_threads,
                                .pool = {.durability = perdure::Durability::emulated}}))) {}

  void run() {
    const auto ranks = static_cast<std::uint64_t>(store_.ranks());
    total_ = settings_.keys * ranks;
    const Timer inserting;
    for (std::uint64_t n = 0; n < total_; ++n) {
      const std::uint64_t key = mixed(n);
      if (store_.owner(key) == store_.rank()) must(store_.put(key, n));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    print("insert, all ranks", static_cast<double>(total_) / inserting.seconds() / 1e6, "M/s");
    writes();
    tags();
    finds();
    scans();
    snapshots();
    must(store_.close());
  }

 private:
  void print(const char* what, double figure, const char* unit) const {
    if (store_.rank() == 0)
      fmt::print("{:2} ranks  {:32} {:10.3f} {}\n", store_.ranks(), what, figure, unit);
  }
  // Writes what is there already. Each rank has keys of all owners.
  void writes() {
    const auto ranks = static_cast<std::uint64_t>(store_.ranks());
    std::vector<IntegerStore::Mutation> mutations;
    const Timer timer;
    for (std::uint64_t n = 0; n < total_; n += settings_.bulk * ranks) {
      mutations.clear();
      for (std::uint64_t i = 0; i < settings_.bulk; ++i) {
        const std::uint64_t mine = n + i * ranks + static_cast<std::uint64_t>(store_.rank());
        if (mine < total_) mutations.push_back({perdure::MutationKind::put, mixed(mine), mine});
      }
      must(store_.write_many(mutations));
    }
    print("write_many, all ranks", static_cast<double>(total_) / timer.seconds() / 1e6, "M/s");
  }
  void tags() {
    constexpr int kTags = 1000;
    const Timer timer;
    for (int i = 0; i < kTags; ++i) version_ = must(store_.tag());
    print("tag", timer.seconds() / kTags * 1e6, "us");
  }
  void finds() {
    const Timer one;
    for (std::uint64_t i = 0; i < settings_.finds; ++i) {
      const std::uint64_t n = mixed(i) % total_;
      if (must(store_.get(mixed(n), version_)) != n)
        give_up(Status::format(perdure::StatusCode::corruption, "find"));
    }
    print("find, one at a time", one.seconds() / static_cast<double>(settings_.finds) * 1e6, "us");
    std::vector<IntegerStore::Query> queries;
    for (std::uint64_t i = 0; i < settings_.bulk; ++i)
      queries.push_back({mixed(mixed(i) % total_), version_});
    constexpr int kBulks = 20;
    const Timer bulk;
    for (int i = 0; i < kBulks; ++i) must(store_.get_many(queries));
    print("find, in bulk", bulk.seconds() / kBulks / static_cast<double>(settings_.bulk) * 1e6,
          "us");
  }
  void scans() {
    std::uint64_t entries = 0;
    const auto visit = [&](const auto&...) { ++entries; };
    const Timer history;
    for (std::uint64_t i = 0; i < settings_.finds; ++i) {
      if (auto done = store_.history(mixed(i % total_), visit); !done) give_up(done.error());
    }
    print("history", history.seconds() / static_cast<double>(settings_.finds) * 1e6, "us");
    const Timer scan;
    const std::uint64_t scanned = must(store_.scan_at(version_, {}, visit));
    print("scan_at", static_cast<double>(total_) / scan.seconds() / 1e6, "M/s");
    entries = 0;
    const Timer diff;
    if (auto done = store_.diff(0, version_, {}, visit); !done) give_up(done.error());
    print("diff", static_cast<double>(total_) / diff.seconds() / 1e6, "M/s");
    if (scanned != total_ || (store_.rank() == 0 && entries != total_))
      give_up(Status::format(perdure::StatusCode::corruption, "a scan or a diff"));
  }
  struct Times {  // in ms; `behind`: everything after the own scan, in which the merges differ
    std::vector<double> whole, behind, extract, transfer, merge;
  };
  // The two merges alternate, and other load on the machine affects both.
  void snapshots() {
    Times optimized, naive;
    for (std::uint64_t i = 0; i < settings_.runs; ++i) {
      if (i % 2 == 0) snapshot(Merge::recursive_doubling, optimized);
      snapshot(Merge::naive, naive);
      if (i % 2 != 0) snapshot(Merge::recursive_doubling, optimized);
    }
    report("OptMerge", optimized);
    report("NaiveMerge", naive);
    compare("whole snapshots", naive.whole, optimized.whole);
    compare("after the scan", naive.behind, optimized.behind);
  }
  // Above 1 OptMerge is faster.
  void compare(const char* what, const std::vector<double>& naive,
               const std::vector<double>& optimized) const {
    if (store_.rank() != 0) return;
    std::vector<double> pairs;
    for (std::size_t i = 0; i < naive.size(); ++i) pairs.push_back(naive[i] / optimized[i]);
    fmt::print(
        "{:2} ranks  NaiveMerge / OptMerge, {}: of the medians {:.3f}, of the fastest {:.3f}, "
        "median of {} pairs {:.3f}\n",
        store_.ranks(), what, median(naive) / median(optimized),
        fastest(naive) / fastest(optimized), pairs.size(), median(pairs));
  }
  void snapshot(Merge how, Times& times) {
    const Timer timer;
    const auto all = must(store_.extract_snapshot(version_, how));
    times.whole.push_back(timer.seconds() * 1e3);
    times.extract.push_back(static_cast<double>(all.times().extract_ns) / 1e6);
    times.transfer.push_back(static_cast<double>(all.times().transfer_ns) / 1e6);
    times.merge.push_back(static_cast<double>(all.times().merge_ns) / 1e6);
    times.behind.push_back(times.transfer.back() + times.merge.back());
    // The snapshot must have as many keys as were inserted, rising, each with its value. That is
    // the oracle's state.
    bool right = all.total() == total_ && (store_.rank() != 0 || all.size() == total_);
    for (std::uint64_t j = 0; j < all.size(); ++j) {
      const auto [key, value] = all[j];
      right = right && value < total_ && key == mixed(value) && (j == 0 || all[j - 1].first < key);
    }
    if (!right)
      give_up(
          Status::format(perdure::StatusCode::corruption, "a snapshot differs from the oracle's"));
  }
  static double fastest(const std::vector<double>& values) {
    return *std::min_element(values.begin(), values.end());
  }
  void report(const char* name, const Times& times) const {
    if (store_.rank() != 0) return;
    fmt::print(
        "{:2} ranks  {:10} {:8.2f} ms (fastest {:.2f}); of rank 0, median (fastest): scan {:.2f} "
        "({:.2f}), waits and transfers {:.2f} ({:.2f}), merges {:.2f} ({:.2f})\n",
        store_.ranks(), name, median(times.whole), fastest(times.whole), median(times.extract),
        fastest(times.extract), median(times.transfer), fastest(times.transfer),
        median(times.merge), fastest(times.merge));
  }

  Settings settings_;
  IntegerStore store_;
  std::uint64_t total_ = 0;
  perdure::Version version_ = 0;
};

// Without a directory, it makes a temporary one and removes it at the end.
void bench(Settings settings) {
  const bool own = settings.directory.empty();
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (own) {
    char text[256] = {};
    const std::string name = "perdure-mpi." + std::to_string(getpid());
    (std::filesystem::temp_directory_path() / name).string().copy(text, sizeof(text) - 1);
    MPI_Bcast(text, sizeof(text), MPI_CHAR, 0, MPI_COMM_WORLD);
    settings.directory = text;
  }
  Bench(settings).run();
  MPI_Barrier(MPI_COMM_WORLD);
  std::error_code ignored;
  if (own && rank == 0) std::filesystem::remove_all(settings.directory, ignored);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  Settings settings;
  CLI::App app("A versioned store over the ranks of an MPI run");
  app.require_subcommand(1);
  auto* demo_command = app.add_subcommand("demo", "insert, tag, find and extract, once");
  demo_command->add_option("directory", settings.directory, "directory of the store")->required();
  auto* bench_command = app.add_subcommand("bench", "the paper's section V.H");
  bench_command->add_option("directory", settings.directory,
                            "a new directory; default: a temporary one");
  bench_command->add_option("--keys", settings.keys, "keys per rank");
  bench_command->add_option("--finds", settings.finds, "finds, one at a time");
  bench_command
      ->add_option("--bulk", settings.bulk, "queries or mutations of a rank in one collective")
      ->check(CLI::PositiveNumber);
  bench_command
      ->add_option("--runs", settings.runs, "snapshots of each kind; the median is printed")
      ->check(CLI::PositiveNumber);
  bench_command->add_option("--merge-threads", settings.merge_threads,
                            "threads of a merge; 0: cores divided by ranks");
  bench_command->add_flag("--range", settings.by_range, "partition by range, not by hash");
  int status = 0;
  try {
    app.parse(argc, argv);
    if (*demo_command) demo(settings);
    if (*bench_command) bench(settings);
  } catch (const CLI::ParseError& error) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    status = error.get_exit_code() == 0 ? 0 : 2;
    if (rank == 0) app.exit(error);
  }
  MPI_Finalize();
  return status;
}
