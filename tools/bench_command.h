// `perdure bench`; see docs/benchmarks.md.
#pragma once

namespace perdure::cli {

// argv[0] is "bench". Returns the exit status.
int run_bench(int argc, char** argv);

}  // namespace perdure::cli
