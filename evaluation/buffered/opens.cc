// Opens and closes of pools by their sizes and their ends, and restores.
#include <fmt/core.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "evaluation/buffered/figures.h"
#include "evaluation/buffered/pool_files.h"

namespace perdure::buffered {
namespace {

using paper::must;

constexpr const char* kNames[] = {"close, after all of the pool has changed", "open", "close",
                                  "open after a kill", "close after it"};
constexpr std::size_t kSteps = std::size(kNames);

struct Times {
  double open, close;
};

// One put before the end.
Times open_and_end(const PoolFiles& files, std::uint64_t records, bool killed) {
  return in_process<Times>([&](std::optional<Pool>& pool) {
    Times times{};
    Clock::time_point begin = Clock::now();
    pool.emplace(files.open());
    Records all(*pool, records);
    times.open = seconds_since(begin);
    all.put_random();
    if (killed) return times;
    begin = Clock::now();
    must(pool->close());
    times.close = seconds_since(begin);
    pool.reset();
    return times;
  });
}

double close_when_all_has_changed(const PoolFiles& files, std::uint64_t records) {
  return in_process<double>([&](std::optional<Pool>& pool) {
    pool.emplace(files.open());
    Records(*pool, records).load();
    const Clock::time_point begin = Clock::now();
    must(pool->close());
    pool.reset();
    return seconds_since(begin);
  });
}

}  // namespace

void opens(const Options& options, paper::Report& report) {
  constexpr std::pair<const char*, Durability> kModes[] = {{"process", Durability::process},
                                                           {"buffered", Durability::buffered}};
  std::vector<std::string> columns = {"ms"};
  std::vector<std::vector<std::vector<double>>> times;  // by column, step and run
  for (const std::uint64_t records : options.pools) {
    const std::size_t first = times.size();
    times.resize(first + std::size(kModes), std::vector<std::vector<double>>(kSteps));
    double bytes = 0;
    for (std::uint32_t run = 0; run < options.runs; ++run) {
      for (std::size_t mode = 0; mode < std::size(kModes); ++mode) {
        const PoolFiles files(options.folder, kModes[mode].second);
        auto& steps = times[first + mode];
        steps[0].push_back(close_when_all_has_changed(files, records));
        const Times clean = open_and_end(files, records, false);
        steps[1].push_back(clean.open);
        steps[2].push_back(clean.close);
        (void)open_and_end(files, records, true);
        const Times after = open_and_end(files, records, false);
        steps[3].push_back(after.open);
        steps[4].push_back(after.close);
        bytes = static_cast<double>(std::filesystem::file_size(files.path()));
      }
    }
    for (const auto& mode : kModes) {
      columns.push_back(fmt::format("`{}`, {:.1f} GB", mode.first, bytes / 1e9));
    }
  }
  report.heading("Opens and closes", columns);
  for (std::size_t step = 0; step < kSteps; ++step) {
    std::vector<std::string> cells = {kNames[step]};
    for (const auto& column : times) cells.push_back(spread(column[step], 1e-3, 0));
    report.row(cells);
  }
}

void restores(const Options& options, paper::Report& report) {
  std::vector<double> seconds, read, written, rates, disk, shares;
  double live = 0;
  double base = 0;
  double log = 0;
  for (std::uint32_t run = 0; run < options.runs; ++run) {
    const PoolFiles files(options.folder, Durability::buffered);
    files.fill(options.records);
    log = in_process<double>([&](std::optional<Pool>& pool) {
      pool.emplace(files.open(4 * options.log_mebibytes * 1_MiB));  // no fold comes before the kill
      Records all(*pool, options.records);
      std::uint64_t bytes = 0;
      while (bytes < options.log_mebibytes * 1_MiB) {
        for (int i = 0; i < 100'000; ++i) all.put_random();
        bytes = must(pool->stats()).log_bytes;
      }
      return static_cast<double>(bytes);
    });
    base = static_cast<double>(std::filesystem::file_size(files.path()));
    disk.push_back(files.disk_rate(static_cast<std::uint64_t>(base)));
    const PoolFiles::Restored restored = files.restore();
    seconds.push_back(restored.seconds);
    read.push_back(static_cast<double>(restored.device.read));
    written.push_back(static_cast<double>(restored.device.written));
    live = static_cast<double>(restored.live);
    rates.push_back((base + log + live) / seconds.back());
    shares.push_back(rates.back() / disk.back());
  }
  report.heading("After a power failure", {"", ""});
  report.row({"pool", fmt::format("{:.2f} GB", base / 1e9)});
  report.row({"log", fmt::format("{:.2f} GB", log / 1e9)});
  report.row({"restored in", spread(seconds, 1, 2) + " s"});
  report.row({"live image", fmt::format("{:.2f} GB", live / 1e9)});
  report.row({"the disk read meanwhile", spread(read, 1e9, 2) + " GB"});
  report.row({"the disk wrote meanwhile", spread(written, 1e9, 2) + " GB"});
  report.row({"base, log and image by the time", spread(rates, 1e9, 2) + " GB/s"});
  report.row({"the disk reads the first two and writes as much as the first",
              spread(disk, 1e9, 2) + " GB/s"});
  report.row({"by the disk's", spread(shares, 1, 2)});
}

}  // namespace perdure::buffered
