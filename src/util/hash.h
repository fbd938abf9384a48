// Building blocks of hashes. Engines keep such hashes on media: never change.
#pragma once

#include <cstdint>

namespace perdure {

// A bijection in which each bit of the result depends on all bits of x.
inline std::uint64_t mix(std::uint64_t x) noexcept {
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93ULL;
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93ULL;
  return x ^ (x >> 32);
}

// Multiplies and folds, as wyhash does.
inline std::uint64_t fold(std::uint64_t a, std::uint64_t b) noexcept {
  __extension__ typedef unsigned __int128 Wide;  // NOLINT(modernize-use-using)
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

}  // namespace perdure
