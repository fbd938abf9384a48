// PoolOfProcesses: a pool file that processes open one after the other.
#pragma once

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include "bench/harness/in_process.h"
#include "evaluation/figures.h"
#include "perdure/pool.h"

namespace perdure::paper {

enum class End : std::uint8_t { killed, closed };

class PoolOfProcesses {
 public:
  PoolOfProcesses(const std::string& folder, const char* program)
      : path_(fmt::format("{}/{}.{}.pool", folder, program, ::getpid())) {}
  ~PoolOfProcesses() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  PoolOfProcesses(const PoolOfProcesses&) = delete;
  PoolOfProcesses& operator=(const PoolOfProcesses&) = delete;

  // Opens the pool in a process of its own, which calls use(), and ends as `end` says. Returns the
  // seconds of the open.
  template <class F>
  double open(const PoolOptions& options, End end, F use) const {
    return bench::in_process<double>([&](std::optional<Pool>& pool) {
      using Clock = std::chrono::steady_clock;
      const Clock::time_point begin = Clock::now();
      pool.emplace(must(Pool::open(path_, options)));
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      use(*pool);
      if (end == End::closed) {
        must(pool->close());
        pool.reset();
      }
      return seconds;
    });
  }

 private:
  std::string path_;
};

}  // namespace perdure::paper
