// perdure-mpi: the distributed store as an example and as the benchmark of the paper's section V.H.
//
//   mpirun -np 4 perdure-mpi demo DIRECTORY      inserts, tags, finds, extracts; continues where
//                                                the last run ended
//   mpirun -np 4 perdure-mpi bench [DIRECTORY]   writes, tag, find, history, scan, diff; snapshots
//                                                by both merges, checked
//   mpirun -np 2 perdure-mpi routes [DIRECTORY]  routed calls of rank 0 for keys of the others
//
// perdure-paper-mpi is the same program with `bench --store sqlite`: SQLiteReg, of the paper.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "bench/mpi/bench.h"
#include "perdure/mpi.h"

namespace {

using perdure::Expected;
using perdure::Status;
using perdure::mpi::IntegerStore;
using perdure::mpi::Merge;
using perdure::mpi::Partition;
using perdure::mpi::bench::give_up;
using perdure::mpi::bench::mixed;
using perdure::mpi::bench::Printer;
using perdure::mpi::bench::Settings;
using perdure::mpi::bench::Timer;
using perdure::mpi::bench::Times;
using perdure::mpi::bench::wrong;

template <class T>
T must(Expected<T> done) {
  if (!done) give_up(done.error());
  return std::move(*done);
}
void must(const Status& status) {
  if (!status.ok()) give_up(status);
}
void must(const perdure::Found& found) { must(found.status()); }

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

class Bench {
 public:
  explicit Bench(const Settings& settings)
      : settings_(settings),
        store_(must(
            IntegerStore::open(MPI_COMM_WORLD, settings.directory,
                               {.partition = settings.by_range ? Partition::range : Partition::hash,
                                .merge_threads = settings.merge_threads,
                                .pool = {.durability = perdure::Durability::emulated}}))),
        printer_(store_.rank(), store_.ranks()) {}

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
    printer_.print(what, figure, unit);
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
      if (must(store_.get(mixed(n), version_)) != n) wrong("find");
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
    if (scanned != total_ || (store_.rank() == 0 && entries != total_)) wrong("a scan or a diff");
  }
  void snapshots() {
    printer_.snapshots(settings_.runs, [&](Merge how, Times& times) {
      const Timer timer;
      const auto all = must(store_.extract_snapshot(version_, how));
      times.add(timer.seconds(), all.times());
      if (all.total() != total_ ||
          (store_.rank() == 0 && !perdure::mpi::bench::is_oracle(all, total_))) {
        wrong("a snapshot differs from the oracle's");
      }
    });
  }

  Settings settings_;
  IntegerStore store_;
  Printer printer_;
  std::uint64_t total_ = 0;
  perdure::Version version_ = 0;
};

// Rank 0 calls, and the threads of the others answer. They wait in close().
class Routes {
 public:
  explicit Routes(const Settings& settings)
      : settings_(settings),
        store_(must(IntegerStore::open(MPI_COMM_WORLD, settings.directory, {.route = true}))),
        printer_(store_.rank(), store_.ranks()) {}

  void run() {
    if (store_.ranks() == 1) wrong("there is one rank, and it owns all keys; start more");
    for (std::uint64_t n = 0; keys_.size() < settings_.keys; ++n) {
      if (store_.owner(mixed(n)) != 0) keys_.push_back(mixed(n));
    }
    if (store_.rank() == 0) {
      one_at_a_time("put, new", [this](std::uint64_t key) { must(store_.put(key, key)); });
      one_at_a_time("put", [this](std::uint64_t key) { must(store_.put(key, key + 1)); });
      one_at_a_time("get_open", [this](std::uint64_t key) {
        if (must(store_.get_open(key)) != key + 1) wrong("a routed read");
      });
      for (std::uint64_t threads = 1; threads <= settings_.threads; threads *= 2) put_by(threads);
    }
    must(store_.close());
  }

 private:
  template <class Call>
  void one_at_a_time(const std::string& what, Call&& call) {
    std::vector<double> times;
    for (const std::uint64_t key : keys_) {
      const double begin = MPI_Wtime();
      call(key);
      times.push_back((MPI_Wtime() - begin) * 1e6);
    }
    std::sort(times.begin(), times.end());
    printer_.print((what + ", median").c_str(), times[times.size() / 2], "us");
    printer_.print((what + ", 99 of 100 within").c_str(), times[times.size() * 99 / 100], "us");
  }
  void put_by(std::uint64_t threads) {
    const double begin = MPI_Wtime();
    std::vector<std::thread> running;
    for (std::uint64_t t = 0; t < threads; ++t) {
      running.emplace_back([this, t, threads] {
        for (std::size_t i = t; i < keys_.size(); i += threads) must(store_.put(keys_[i], i));
      });
    }
    for (std::thread& thread : running) thread.join();
    printer_.print(("put, threads: " + std::to_string(threads)).c_str(),
                   static_cast<double>(keys_.size()) / (MPI_Wtime() - begin) / 1e6, "M/s");
  }

  Settings settings_;
  IntegerStore store_;
  Printer printer_;
  std::vector<std::uint64_t> keys_;  // of other ranks
};

// Without a directory, it makes a temporary one and removes it at the end.
template <class Run>
void in_directory(Settings settings, Run&& run) {
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
  run(settings);
  MPI_Barrier(MPI_COMM_WORLD);
  std::error_code ignored;
  if (own && rank == 0) std::filesystem::remove_all(settings.directory, ignored);
}
void bench(const Settings& settings) {
#ifdef PERDURE_HAVE_SQLITE
  if (settings.store == "sqlite") {
    perdure::mpi::bench::bench_sqlite(settings);
    return;
  }
#endif
  Bench(settings).run();
}

}  // namespace

int main(int argc, char** argv) {
  const bool routed = argc > 1 && std::strcmp(argv[1], "routes") == 0;
  int level = routed ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, level, &level);
  Settings settings;
  CLI::App app("A versioned store over the ranks of an MPI run");
  app.require_subcommand(1);
  auto* demo_command = app.add_subcommand("demo", "insert, tag, find and extract, once");
  demo_command->add_option("directory", settings.directory, "directory of the store")->required();
  auto* bench_command = app.add_subcommand("bench", "the paper's section V.H");
  bench_command->add_option("directory", settings.directory,
                            "a new directory; default: a temporary one");
#ifdef PERDURE_HAVE_SQLITE
  bench_command->add_option("--store", settings.store, "sqlite: inserts, finds and snapshots of it")
      ->check(CLI::IsMember({"perdure", "sqlite"}))
      ->capture_default_str();
#endif
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
  auto* routes_command = app.add_subcommand("routes", "calls of rank 0 for keys of other ranks");
  routes_command->add_option("directory", settings.directory,
                             "a new directory; default: a temporary one");
  routes_command->add_option("--keys", settings.keys, "keys of other ranks")
      ->check(CLI::PositiveNumber);
  routes_command->add_option("--threads", settings.threads, "the most threads that put at once");
  int status = 0;
  try {
    app.parse(argc, argv);
    if (*demo_command) demo(settings);
    if (*bench_command) in_directory(settings, bench);
    if (*routes_command) in_directory(settings, [](const Settings& s) { Routes(s).run(); });
  } catch (const CLI::ParseError& error) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    status = error.get_exit_code() == 0 ? 0 : 2;
    if (rank == 0) app.exit(error);
  }
  MPI_Finalize();
  return status;
}
