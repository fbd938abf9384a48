// SQLiteReg over MPI, measured as the distributed store in main.cc: inserts, finds, snapshots.
#include <exception>
#include <filesystem>

#include "bench/mpi/bench.h"
#include "evaluation/mpi/sqlite_ranks.h"

namespace perdure::mpi::bench {

namespace {

void run(const Settings& settings) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) std::filesystem::create_directories(settings.directory);
  MPI_Barrier(MPI_COMM_WORLD);
  SqliteRanks store(MPI_COMM_WORLD, settings.directory, settings.merge_threads);
  const Printer printer(store.rank(), store.ranks());
  const std::uint64_t total = settings.keys * static_cast<std::uint64_t>(store.ranks());
  if (total == 0) return;

  const Timer inserting;
  for (std::uint64_t n = 0; n < total; ++n) {
    const std::uint64_t key = mixed(n);
    if (store.owner(key) == store.rank()) store.put(key, n);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  printer.print("insert, all ranks", static_cast<double>(total) / inserting.seconds() / 1e6, "M/s");

  const Timer finding;
  for (std::uint64_t i = 0; i < settings.finds; ++i) {
    const std::uint64_t n = mixed(i) % total;
    if (store.find(mixed(n)) != n && rank == 0) wrong("find");
  }
  printer.print("find, one at a time",
                finding.seconds() / static_cast<double>(settings.finds) * 1e6, "us");

  printer.snapshots(settings.runs, [&](Merge how, Times& times) {
    SnapshotTimes parts;
    const Timer timer;
    const auto entries = store.snapshot(how, parts);
    times.add(timer.seconds(), parts);
    if (rank == 0 && !is_oracle(entries, total)) wrong("a snapshot differs from the oracle's");
  });
}

}  // namespace

void bench_sqlite(const Settings& settings) {
  try {
    run(settings);
  } catch (const std::exception& error) {
    give_up(Status::format(StatusCode::io, "SQLite: %s", error.what()));
  }
}

}  // namespace perdure::mpi::bench
