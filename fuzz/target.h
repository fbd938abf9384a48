// Shared by the fuzz targets. A target is one .cc that defines fuzz_one(). The preset `fuzz` links
// it with libFuzzer; every build links it with replay_main.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

namespace perdure::fuzz {

using Input = std::span<const std::uint8_t>;

// Judges one input. Aborts on a finding.
void fuzz_one(Input input);

// PERDURE_FUZZ_PLANT enables a bug in the target's own code that an input can reach.
enum class Plant : char {
  memory = '1',
  result = '2',  // in targets that compare results
};
inline bool planted(Plant plant = Plant::memory) noexcept {
  static const char on = [] {
    const char* text = std::getenv("PERDURE_FUZZ_PLANT");
    return text != nullptr ? *text : '\0';
  }();
  return on == static_cast<char>(plant);
}

// Reports a finding that raises no signal. Not assert(), because release builds judge too.
#define PERDURE_EXPECT(condition, ...)                                              \
  do {                                                                              \
    if (!(condition)) {                                                             \
      std::fprintf(stderr, "%s:%d: expected %s: ", __FILE__, __LINE__, #condition); \
      std::fprintf(stderr, __VA_ARGS__);                                            \
      std::fputc('\n', stderr);                                                     \
      std::abort();                                                                 \
    }                                                                               \
  } while (false)

// Aborts, as a finding, if one input takes more processor time than this. Wall time would depend on
// the load of the machine.
inline constexpr int kSecondsPerInput = 10;
void limit_time() noexcept;

// Takes values off the front of an input. Returns zeros when it is used up.
class Reader {
 public:
  explicit Reader(Input input) noexcept : rest_(input) {}
  bool empty() const noexcept { return rest_.empty(); }
  Input rest() const noexcept { return rest_; }
  std::uint8_t byte() noexcept { return static_cast<std::uint8_t>(number(1)); }
  // Little-endian.
  std::uint64_t number(std::size_t bytes) noexcept {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes && i < rest_.size(); ++i) {
      value |= std::uint64_t{rest_[i]} << 8 * i;
    }
    rest_ = rest_.subspan(bytes < rest_.size() ? bytes : rest_.size());
    return value;
  }

 private:
  Input rest_;
};

}  // namespace perdure::fuzz
