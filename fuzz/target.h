// What the fuzz targets share. A target is one .cc that defines fuzz_one() and names itself; it is
// linked with libFuzzer (preset `fuzz`), and with replay_main.cc in every other build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

namespace perdure::fuzz {

using Input = std::span<const std::uint8_t>;

// Judges one input; whatever it finds ends the process.
void fuzz_one(Input input);

// PERDURE_FUZZ_PLANT: the target has a bug, in its own code, that an input can reach.
enum class Plant : char {
  memory = '1',
  answer = '2',  // of targets that compare answers
};
inline bool planted(Plant plant = Plant::memory) noexcept {
  static const char on = [] {
    const char* text = std::getenv("PERDURE_FUZZ_PLANT");
    return text != nullptr ? *text : '\0';
  }();
  return on == static_cast<char>(plant);
}

// A finding that is no signal by itself. Not assert(): release builds judge too.
#define PERDURE_EXPECT(condition, ...)                                             \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s: ", __FILE__, __LINE__, #condition); \
      std::fprintf(stderr, __VA_ARGS__);                                           \
      std::fputc('\n', stderr);                                                    \
      std::abort();                                                                \
    }                                                                              \
  } while (false)

// Ends the process, as a finding, if one input costs more than this processor time. Not wall time:
// a machine that is busy elsewhere is no bug.
inline constexpr int kSecondsPerInput = 10;
void limit_time() noexcept;

// Takes values off the front of an input; zeros when it is used up.
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
