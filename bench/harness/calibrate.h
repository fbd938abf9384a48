// Calibration: measures this machine's memory at the place of a given file. Figures of different
// machines can then be compared.
#pragma once

#include <optional>
#include <string>

#include "bench/harness/progress.h"
#include "bench/workloads/data.h"

namespace perdure::bench {

// Nanoseconds, each a median of 5 runs unless said otherwise. The first six use 1 GiB of a file
// beside `path`, with every page touched before: first with 4 KiB pages (huge pages refused), then
// with huge pages.
struct Calibration {
  double persist_ns = 0;  // 8-byte store, write-back and fence of a random line
  double load_ns = 0;     // load of a random line, whose address the previous line holds
  double cas_ns = 0;      // uncontended compare-and-swap on a random line
  // With huge pages of 2 MiB, if the system gives them for the whole area.
  std::optional<double> persist_huge_ns;
  std::optional<double> load_huge_ns;
  std::optional<double> cas_huge_ns;
  // Time until a second thread sees a line that the first has written. Processors that share a
  // cache differ from others here. 0 on a machine of one processor.
  double transfer_ns = 0;
  // A write of a page of the file and its fdatasync; the median of 201. The disk of a virtual
  // machine may not flush its cache: it is then faster, and a failure of the host's power costs
  // more.
  double sync_ns = 0;
};

// Removes the file afterwards, also on failure.
Result<Calibration> calibrate(const std::string& path, Progress& progress);

}  // namespace perdure::bench
