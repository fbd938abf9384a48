// Size classes of the heap. On media (the extent table names classes by number): never renumber.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace perdure {

inline constexpr std::array<std::uint32_t, 46> kClassSizes = {
    16,   32,   48,   64,    80,    96,    112,   128,   144,   160,   176,  192,
    224,  256,  288,  320,   384,   448,   512,   576,   640,   768,   896,  1024,
    1152, 1280, 1536, 1792,  2048,  2304,  2560,  3072,  3584,  4096,  4672, 5440,
    6528, 8192, 9344, 10880, 13056, 16384, 21824, 32768, 65536, 131072};
inline constexpr std::uint32_t kClassCount = kClassSizes.size();

// The smallest class that holds n bytes, or kClassCount if none does.
inline std::uint32_t class_of(std::size_t n) {
  static constexpr auto kSmall = [] {
    std::array<std::uint8_t, 65> table{};  // by 16-byte steps up to 1024
    for (std::uint32_t step = 0; step <= 64; ++step) {
      std::uint8_t c = 0;
      while (kClassSizes[c] < step * 16) ++c;
      table[step] = c;
    }
    return table;
  }();
  if (n <= 1024) return kSmall[(n + 15) / 16];
  std::uint32_t c = kSmall[64];
  while (c < kClassCount && kClassSizes[c] < n) ++c;
  return c;
}

}  // namespace perdure
