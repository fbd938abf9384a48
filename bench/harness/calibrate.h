// Calibration: what this machine's memory costs beside a given file, so that figures from different
// machines can be put side by side.
#pragma once

#include <optional>
#include <string>

#include "bench/harness/progress.h"
#include "bench/workloads/data.h"

namespace perdure::bench {

// Nanoseconds each, medians of 5; all but the last over 1 GiB of a file beside `path`, all pages
// touched before: first with 4 KiB pages (huge pages refused), then with huge pages.
struct Calibration {
  double persist_ns = 0;  // 8-byte store, write-back and fence of a random line
  double load_ns = 0;     // load of a random line, each address taken from the line before
  double cas_ns = 0;      // uncontended compare-and-swap on a random line
  // The same with huge pages of 2 MiB, where the system gives them for the whole area.
  std::optional<double> persist_huge_ns;
  std::optional<double> load_huge_ns;
  std::optional<double> cas_huge_ns;
  // A line that one thread has written, until another sees it: tells processors that share a cache
  // from those that do not. 0 on a machine of one processor.
  double transfer_ns = 0;
};

// The file is removed afterwards, also on failure.
Result<Calibration> calibrate(const std::string& path, Progress& progress);

}  // namespace perdure::bench
