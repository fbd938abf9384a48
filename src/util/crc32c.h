// CRC32C (Castagnoli), by the instruction that every x86-64-v2 processor has. On media: never
// change.
#pragma once

#include <nmmintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace perdure {

// Continues `crc` (0 at the start) over n bytes.
inline std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t n) noexcept {
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::uint64_t state = ~crc;
  for (; n >= 8; n -= 8, bytes += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes, 8);
    state = _mm_crc32_u64(state, word);
  }
  for (; n > 0; --n, ++bytes) {
    state = _mm_crc32_u8(static_cast<std::uint32_t>(state), *bytes);
  }
  return ~static_cast<std::uint32_t>(state);
}

}  // namespace perdure
