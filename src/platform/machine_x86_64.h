// Machine (machine.h) of x86-64: its memory order meets M1 to M3 by itself, and the order of its
// caches M5. Read-modify-writes are locked instructions. Loads and stores are plain instructions.
#pragma once

#include <smmintrin.h>

#include <atomic>
#include <cstdint>

namespace perdure {

enum class FlushInstruction : std::uint8_t { clwb, clflushopt, clflush };

namespace machine {

template <class T>
using Atomic = std::atomic<T>;

__attribute__((no_sanitize("thread"))) inline std::uint64_t peek(
    const std::uint64_t& word) noexcept {
  return *static_cast<const volatile std::uint64_t*>(&word);
}
[[gnu::always_inline]] inline bool exchange_word(std::uint64_t& word, std::uint64_t& expected,
                                                 std::uint64_t desired) noexcept {
  return std::atomic_ref(word).compare_exchange_strong(expected, desired,
                                                       std::memory_order_acq_rel);
}
[[gnu::always_inline]] inline bool exchange_latches(std::uint32_t& word, std::uint32_t& expected,
                                                    std::uint32_t desired) noexcept {
  return std::atomic_ref(word).compare_exchange_strong(expected, desired, std::memory_order_acquire,
                                                       std::memory_order_acquire);
}
inline std::uint8_t load_byte(const std::uint8_t& byte) noexcept {
  return std::atomic_ref(const_cast<std::uint8_t&>(byte)).load(std::memory_order_relaxed);
}
inline void store_byte(std::uint8_t& byte, std::uint8_t value) noexcept {
  std::atomic_ref(byte).store(value, std::memory_order_relaxed);
}

[[gnu::always_inline]] inline __m128i load_part(const std::uint8_t* part) noexcept {
#ifdef PERDURE_TSAN
  auto* words = reinterpret_cast<std::uint64_t*>(const_cast<std::uint8_t*>(part));
  const std::uint64_t low = std::atomic_ref(words[0]).load(std::memory_order_relaxed);
  const std::uint64_t high = std::atomic_ref(words[1]).load(std::memory_order_relaxed);
  return _mm_set_epi64x(static_cast<long long>(high), static_cast<long long>(low));
#else
  // A vector load. Each byte is read whole, which is enough here. Earlier loads are acquire;
  // later loads must not be hoisted.
  const __m128i value = _mm_load_si128(reinterpret_cast<const __m128i*>(part));
  std::atomic_signal_fence(std::memory_order_acquire);
  return value;
#endif
}
[[gnu::always_inline]] inline std::uint64_t match_line(const std::uint8_t* line,
                                                       std::uint8_t byte) noexcept {
  const __m128i wanted = _mm_set1_epi8(static_cast<char>(byte));
  std::uint64_t mask = 0;
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m128i equal = _mm_cmpeq_epi8(load_part(line + 16 * i), wanted);
    mask |= std::uint64_t{static_cast<std::uint32_t>(_mm_movemask_epi8(equal))} << (16 * i);
  }
  return mask;
}
[[gnu::always_inline]] inline std::uint32_t match_bytes(std::uint64_t word,
                                                        std::uint8_t byte) noexcept {
  const __m128i bytes = _mm_cvtsi64_si128(static_cast<long long>(word));
  const __m128i equal = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(static_cast<char>(byte)));
  return static_cast<std::uint32_t>(_mm_movemask_epi8(equal)) & 0xFF;
}
[[gnu::always_inline]] inline std::uint32_t match_words(const std::uint64_t* line, std::uint32_t n,
                                                        std::uint16_t tag) noexcept {
  // The upper halves of four words, then their upper halves.
  const auto uppers = [&](int first) {
    const auto* part = reinterpret_cast<const std::uint8_t*>(line + first);
    const __m128 a = _mm_castsi128_ps(load_part(part));
    const __m128 b = _mm_castsi128_ps(load_part(part + 16));
    const __m128 halves = _mm_shuffle_ps(a, b, _MM_SHUFFLE(3, 1, 3, 1));
    return _mm_srli_epi32(_mm_castps_si128(halves), 16);
  };
  const __m128i tags = _mm_packus_epi32(uppers(0), uppers(4));
  const __m128i equal = _mm_cmpeq_epi16(tags, _mm_set1_epi16(static_cast<short>(tag)));
  const __m128i bytes = _mm_packs_epi16(equal, _mm_setzero_si128());
  return static_cast<std::uint32_t>(_mm_movemask_epi8(bytes)) & ((1U << n) - 1);
}

[[gnu::always_inline]] inline void write_back(FlushInstruction instruction,
                                              std::uintptr_t line) noexcept {
  auto* target = reinterpret_cast<volatile char*>(line);
  if (instruction == FlushInstruction::clwb) [[likely]] {
    asm volatile("clwb %0" : "+m"(*target) : : "memory");
  } else if (instruction == FlushInstruction::clflushopt) {
    asm volatile("clflushopt %0" : "+m"(*target) : : "memory");
  } else {
    asm volatile("clflush %0" : "+m"(*target) : : "memory");
  }
}
[[gnu::always_inline]] inline void drain() noexcept { asm volatile("sfence" ::: "memory"); }
inline void relax() noexcept { _mm_pause(); }
inline std::uint64_t ticks() noexcept { return __builtin_ia32_rdtsc(); }
inline void loads_before() noexcept {}
// As wait_for_loads.h says.
inline void wait_for_loads() noexcept { _mm_lfence(); }

}  // namespace machine
}  // namespace perdure
