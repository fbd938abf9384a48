#include "fuzz/target.h"

#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <string_view>

namespace perdure::fuzz {

namespace {

void out_of_time(int) {
  constexpr std::string_view kText = "an input takes too much processor time\n";
  (void)!::write(STDERR_FILENO, kText.data(), kText.size());
  std::abort();
}

}  // namespace

void limit_time() noexcept {
  static const bool installed = [] { return std::signal(SIGPROF, out_of_time) != SIG_ERR; }();
  PERDURE_EXPECT(installed, "SIGPROF cannot be caught");
  const itimerval timer{.it_interval = {}, .it_value = {.tv_sec = kSecondsPerInput, .tv_usec = 0}};
  PERDURE_EXPECT(setitimer(ITIMER_PROF, &timer, nullptr) == 0, "no timer");
}

}  // namespace perdure::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  perdure::fuzz::limit_time();
  perdure::fuzz::fuzz_one({data, size});
  return 0;
}
