#include "bench/harness/progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

namespace perdure::bench {

void Progress::start(std::string_view what, std::uint64_t total) {
  what_ = what;
  total_ = total;
  show(0);
}

void Progress::show(std::uint64_t done) {
  if (!enabled_) return;
  constexpr std::uint64_t kWidth = 30;
  const std::uint64_t filled = total_ == 0 ? 0 : std::min(done, total_) * kWidth / total_;
  const std::uint64_t percent = total_ == 0 ? 0 : std::min(done, total_) * 100 / total_;
  fmt::print(stderr, "\r\033[K{:<24} [{:<{}}] {:3} %", what_, std::string(filled, '#'), kWidth,
             percent);
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace perdure::bench
