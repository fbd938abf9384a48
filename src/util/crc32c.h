// CRC32C (Castagnoli), by the instruction that every x86-64-v2 processor has, and every aarch64 one
// that this library is compiled for. On media: never change.
#pragma once

#if defined(__x86_64__)
#include <nmmintrin.h>
#else
#include <arm_acle.h>
#endif

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
}  // namespace detail

// Continues `crc` (0 at the start) over n bytes.
inline std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t n) noexcept {
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::uint64_t state = ~crc;
  for (; n >= 8; n -= 8, bytes += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes, 8);
    state = detail::crc32c_word(state, word);
  }
  for (; n > 0; --n, ++bytes) {
    state = detail::crc32c_byte(static_cast<std::uint32_t>(state), *bytes);
  }
  return ~static_cast<std::uint32_t>(state);
}

}  // namespace perdure
