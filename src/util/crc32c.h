// CRC32C (Castagnoli), by the instruction that every x86-64-v2 processor has, and every aarch64 one
// that this library is compiled for. On media: never change.
#pragma once

#if defined(__x86_64__)
#include <nmmintrin.h>
#else
#include <arm_acle.h>
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace perdure {

namespace detail {
#if defined(__x86_64__)
inline std::uint64_t crc32c_word(std::uint64_t state, std::uint64_t word) noexcept {
  return _mm_crc32_u64(state, word);
}
inline std::uint32_t crc32c_byte(std::uint32_t state, unsigned char byte) noexcept {
  return _mm_crc32_u8(state, byte);
}
#else
inline std::uint64_t crc32c_word(std::uint64_t state, std::uint64_t word) noexcept {
  return __crc32cd(static_cast<std::uint32_t>(state), word);
}
inline std::uint32_t crc32c_byte(std::uint32_t state, unsigned char byte) noexcept {
  return __crc32cb(state, byte);
}
#endif
inline std::uint64_t crc32c_next(std::uint64_t state, const unsigned char* bytes) noexcept {
  std::uint64_t word;
  std::memcpy(&word, bytes, 8);
  return crc32c_word(state, word);
}

// A long piece is read in three lanes, because an instruction waits three cycles for the one
// before.
inline constexpr std::size_t kCrcLane = 1024;
// What a lane of zeros makes of each byte of a state. A state changes by zeros as a linear map.
inline constexpr auto kCrcZeros = [] {
  std::array<std::array<std::uint32_t, 256>, 4> table{};
  // A bit becomes bit 0 after as many steps as its number. So one chain of steps has all of them.
  std::uint32_t state = 1;
  for (std::size_t left = 8 * kCrcLane; left > 0; --left) {
    if (left < 32) {
      for (std::uint32_t byte = 0; byte < 256; ++byte) {
        if ((byte >> left % 8 & 1) != 0) table[left / 8][byte] ^= state;
      }
    }
    state = state >> 1 ^ ((state & 1) != 0 ? 0x82F63B78 : 0);
  }
  for (std::uint32_t byte = 1; byte < 256; byte += 2) table[0][byte] ^= state;
  return table;
}();
constexpr std::uint32_t crc32c_lane_of_zeros(std::uint32_t state) noexcept {
  return kCrcZeros[0][state & 255] ^ kCrcZeros[1][state >> 8 & 255] ^
         kCrcZeros[2][state >> 16 & 255] ^ kCrcZeros[3][state >> 24];
}
// Three lanes.
inline std::uint32_t crc32c_lanes(std::uint32_t state, const unsigned char* bytes) noexcept {
  std::uint64_t first = state, second = 0, third = 0;
  for (std::size_t i = 0; i < kCrcLane; i += 8) {
    first = crc32c_next(first, bytes + i);
    second = crc32c_next(second, bytes + kCrcLane + i);
    third = crc32c_next(third, bytes + 2 * kCrcLane + i);
  }
  const auto both =
      crc32c_lane_of_zeros(static_cast<std::uint32_t>(first)) ^ static_cast<std::uint32_t>(second);
  return crc32c_lane_of_zeros(both) ^ static_cast<std::uint32_t>(third);
}
}  // namespace detail

// Continues `crc` (0 at the start) over n bytes.
inline std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t n) noexcept {
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::uint64_t state = ~crc;
  for (; n >= 3 * detail::kCrcLane; n -= 3 * detail::kCrcLane, bytes += 3 * detail::kCrcLane) {
    state = detail::crc32c_lanes(static_cast<std::uint32_t>(state), bytes);
  }
  for (; n >= 8; n -= 8, bytes += 8) state = detail::crc32c_next(state, bytes);
  for (; n > 0; --n, ++bytes) {
    state = detail::crc32c_byte(static_cast<std::uint32_t>(state), *bytes);
  }
  return ~static_cast<std::uint32_t>(state);
}

}  // namespace perdure
