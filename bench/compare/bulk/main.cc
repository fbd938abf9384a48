// perdure-compare-bulk: the phases of bulk.h on perdure and other stores, which take turns. Each
// turn of a store is a process of its own, whose memory is measured.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/compare/bulk/bulk.h"
#include "bench/compare/foreign.h"
#include "bench/harness/options.h"

namespace perdure::bench {

void stop(int exit_status, std::string_view message) {
  fmt::print(stderr, "perdure-compare-bulk: {}\n", message);
  ::_exit(exit_status);
}

namespace {

struct Kind {
  std::string_view name;
  std::unique_ptr<BulkStore> (*make)(const std::string& folder);
};
constexpr Kind kKinds[] = {
    {"perdure", make_perdure_bulk},
#ifdef PERDURE_HAVE_LMDB
    {"lmdb", make_lmdb_bulk},
#endif
#ifdef PERDURE_HAVE_ROCKSDB
    {"rocksdb", make_rocksdb_bulk},
#endif
#ifdef PERDURE_HAVE_LEVELDB
    {"leveldb", make_leveldb_bulk},
#endif
#ifdef PERDURE_HAVE_SQLITE
    {"sqlite", make_sqlite_bulk},
#endif
};

struct BulkOptions {
  std::uint64_t records = 0;
  std::vector<std::string> engines;
  std::string folder = ".";
  unsigned turns = 3;
};

// The process of one turn: writes its figures to `result`.
[[noreturn]] void run_turn(const Kind& kind, const BulkOptions& options,
                           const std::filesystem::path& folder, int result) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a store must not go on alone
  std::signal(SIGINT, SIG_DFL);
  const std::unique_ptr<BulkStore> store = kind.make(folder.string());
  const BulkFigures figures = run_bulk(*store, folder, BulkCounts(options.records));
  const bool written = ::write(result, figures.data(), sizeof(figures)) == sizeof(figures);
  ::_exit(written ? 0 : kExitIo);
}

Result<BulkFigures> take_turn(const Kind& kind, const BulkOptions& options) {
  const StoreFolder folder(options.folder + "/perdure-bulk", std::string(kind.name));
  if (auto made = folder.create(); !made) return std::unexpected(made.error());
  int ends[2] = {};
  if (::pipe2(ends, O_CLOEXEC) != 0) return failure(kExitIo, "no pipe can be made");
  std::signal(SIGINT, SIG_IGN);  // the terminal sends it to the child, too; then the files go
  const pid_t child = ::fork();
  if (child == 0) run_turn(kind, options, folder.path(), ends[1]);
  ::close(ends[1]);
  BulkFigures figures = {};
  const bool whole = ::read(ends[0], figures.data(), sizeof(figures)) == sizeof(figures);
  ::close(ends[0]);
  int status = 0;
  const bool ended = child > 0 && ::waitpid(child, &status, 0) == child;
  std::signal(SIGINT, SIG_DFL);
  folder.remove();
  if (ended && whole && WIFEXITED(status) && WEXITSTATUS(status) == 0) return figures;
  const int exit_status = ended && WIFEXITED(status) ? WEXITSTATUS(status) : kExitIo;
  return failure(exit_status == 0 ? kExitIo : exit_status,
                 fmt::format("{}: the run has failed", kind.name));
}

// Three significant digits or a whole number.
std::string text_of(double figure, Unit unit) {
  if (unit == Unit::bytes) figure /= 1 << 20;
  if (figure >= 100) return fmt::format("{:.0f}", figure);
  return fmt::format("{:#.3g}", figure);
}

double median(std::vector<double> figures) {
  std::ranges::sort(figures);
  const std::size_t half = figures.size() / 2;
  return figures.size() % 2 != 0 ? figures[half] : (figures[half - 1] + figures[half]) / 2;
}

void print_table(const BulkOptions& options,
                 const std::map<std::string, std::vector<BulkFigures>>& results) {
  fmt::print(
      "{} records in the bulk load, keys of 24 bytes, values of 150; medians of {} turns; "
      "operations/s, unless the row has another unit.\n\n| phase | transactions |",
      options.records, options.turns);
  for (const std::string& name : options.engines) fmt::print(" {} |", name);
  fmt::print("\n| --- | --- |");
  for (std::size_t i = 0; i < options.engines.size(); ++i) fmt::print(" --- |");
  for (std::size_t row = 0; row < kBulkRows.size(); ++row) {
    fmt::print("\n| {} | {} |", kBulkRows[row].name, kBulkRows[row].commits);
    for (const std::string& name : options.engines) {
      std::vector<double> figures;
      for (const BulkFigures& turn : results.at(name)) figures.push_back(turn[row]);
      fmt::print(" {} |", text_of(median(figures), kBulkRows[row].unit));
    }
  }
  fmt::print("\n");
}

int compare(const BulkOptions& options) {
  std::map<std::string, std::vector<BulkFigures>> results;
  for (unsigned turn = 0; turn < options.turns; ++turn) {
    for (const std::string& name : options.engines) {
      auto figures = take_turn(*std::ranges::find(kKinds, name, &Kind::name), options);
      if (!figures) {
        fmt::print(stderr, "perdure-compare-bulk: {}\n", figures.error().message);
        return figures.error().exit_status;
      }
      results[name].push_back(*figures);
    }
  }
  print_table(options, results);
  return std::fflush(stdout) == 0 ? 0 : kExitIo;
}

int parse_and_compare(int argc, char** argv) {
  BulkOptions options;
  std::vector<std::string> known;
  for (const Kind& kind : kKinds) known.emplace_back(kind.name);
  options.engines = known;
  std::string records = "5M";
  CLI::App app("The workload of redb's comparison: transactions of byte strings.",
               "perdure-compare-bulk");
  app.add_option("--records", records, "entries of the bulk load (5M)");
  app.add_option("--engines", options.engines, "stores, separated by commas (all that are built)")
      ->delimiter(',')
      ->check(CLI::IsMember(known));
  app.add_option("--dir", options.folder, "the folder of the stores' files, on a disk (.)")
      ->check(CLI::ExistingDirectory);
  app.add_option("--turns", options.turns, "runs of each store (3)")->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  const auto count = parse_count(records);
  if (!count || *count < 1000) {
    fmt::print(stderr, "perdure-compare-bulk: --records {}: at least 1000\n", records);
    return kExitUsage;
  }
  options.records = *count;
  return compare(options);
}

}  // namespace
}  // namespace perdure::bench

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return perdure::bench::parse_and_compare(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "perdure-compare-bulk: %s\n", error.what());
    return perdure::bench::kExitIo;
  }
}
