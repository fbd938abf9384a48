// Random: the only source of randomness of the benchmarks. A seed gives the same stream on every
// machine.
#pragma once

#include <cstdint>

namespace perdure::bench {

// The splitmix64 finaliser: a bijection of 64-bit words.
constexpr std::uint64_t mix64(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// The splitmix64 generator. Streams that must differ need seeds that went through mix64.
class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) noexcept : state_(mix64(seed)) {}

  constexpr std::uint64_t next() noexcept {
    state_ += 0x9e3779b97f4a7c15ULL;
    return mix64(state_);
  }
  // Uniform in [0, n), n > 0; the bias of the modulo is below n / 2^64.
  constexpr std::uint64_t below(std::uint64_t n) noexcept { return next() % n; }
  // Uniform in [0, 1), 53 bits.
  constexpr double unit() noexcept { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  std::uint64_t state_;
};

}  // namespace perdure::bench
