// Machine (machine.h) of aarch64. Built and tested in an emulator; not tested on hardware.
//
//   M1  A full fence (dmb ish) follows each read-modify-write.
//   M2  Loads of words and bytes are load-acquire and their stores store-release, whatever order
//       the caller names: so neither passes an earlier one. A load-acquire does not wait for
//       earlier plain loads, such as those of a key or a value; loads_before() does. Lines are
//       searched word by word.
//   M3  Compare-and-swap and byte stores are single-copy atomic, and a byte store ends another
//       core's exclusive access to the word.
//   M4  The kernel has membarrier(2).
//   M5  Stores of words are store-release, so they become part of the line in their order, and
//       after what copy() and zero() have stored before. Cores write lines back whole.
//   M6  DC CVAP cleans a line to the point of persistence, and DSB SY waits for it. Processors
//       before ARMv8.2 have DC CVAC only, which need not reach the medium.
//   M7  A kernel may have pages of 16 or 64 KiB. Such a machine is refused (pool_impl.cc).
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>

namespace perdure {

enum class FlushInstruction : std::uint8_t { dc_cvap, dc_cvac };

namespace machine {

inline void full_fence() noexcept { std::atomic_thread_fence(std::memory_order_seq_cst); }

template <class T>
class Atomic {
 public:
  constexpr Atomic() noexcept : value_{} {}
  constexpr Atomic(T value) noexcept : value_(value) {}  // NOLINT: like std::atomic
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  T load(std::memory_order order = std::memory_order_seq_cst) const noexcept {
    return value_.load(order == std::memory_order_seq_cst ? order : std::memory_order_acquire);
  }
  void store(T value, std::memory_order order = std::memory_order_seq_cst) noexcept {
    value_.store(value, order == std::memory_order_seq_cst ? order : std::memory_order_release);
  }
  T exchange(T value, std::memory_order = std::memory_order_seq_cst) noexcept {
    return fenced(value_.exchange(value));
  }
  bool compare_exchange_strong(T& expected, T desired,
                               std::memory_order = std::memory_order_seq_cst,
                               std::memory_order = std::memory_order_seq_cst) noexcept {
    return fenced(value_.compare_exchange_strong(expected, desired));
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order = std::memory_order_seq_cst,
                             std::memory_order = std::memory_order_seq_cst) noexcept {
    return fenced(value_.compare_exchange_weak(expected, desired));
  }
  template <class D>
  T fetch_add(D delta, std::memory_order = std::memory_order_seq_cst) noexcept {
    return fenced(value_.fetch_add(delta));
  }
  template <class D>
  T fetch_sub(D delta, std::memory_order = std::memory_order_seq_cst) noexcept {
    return fenced(value_.fetch_sub(delta));
  }
  T fetch_or(T bits, std::memory_order = std::memory_order_seq_cst) noexcept {
    return fenced(value_.fetch_or(bits));
  }
  T fetch_and(T bits, std::memory_order = std::memory_order_seq_cst) noexcept {
    return fenced(value_.fetch_and(bits));
  }
  void wait(T seen, std::memory_order = std::memory_order_seq_cst) const noexcept {
    value_.wait(seen);
  }
  void notify_all() noexcept { value_.notify_all(); }
  T operator=(T value) noexcept {  // NOLINT: like std::atomic
    store(value);
    return value;
  }
  operator T() const noexcept { return load(); }  // NOLINT: like std::atomic
  T operator++() noexcept { return static_cast<T>(fetch_add(1) + 1); }
  T operator++(int) noexcept { return fetch_add(1); }
  T operator--() noexcept { return static_cast<T>(fetch_sub(1) - 1); }
  T operator--(int) noexcept { return fetch_sub(1); }

 private:
  template <class R>
  static R fenced(R result) noexcept {
    full_fence();
    return result;
  }
  std::atomic<T> value_;
};

inline std::uint64_t peek(const std::uint64_t& word) noexcept {
  return std::atomic_ref(const_cast<std::uint64_t&>(word)).load(std::memory_order_acquire);
}
inline bool exchange_word(std::uint64_t& word, std::uint64_t& expected,
                          std::uint64_t desired) noexcept {
  const bool done = std::atomic_ref(word).compare_exchange_strong(expected, desired);
  full_fence();
  return done;
}
inline bool exchange_latches(std::uint32_t& word, std::uint32_t& expected,
                             std::uint32_t desired) noexcept {
  const bool done = std::atomic_ref(word).compare_exchange_strong(expected, desired);
  full_fence();
  return done;
}
inline std::uint8_t load_byte(const std::uint8_t& byte) noexcept {
  return std::atomic_ref(const_cast<std::uint8_t&>(byte)).load(std::memory_order_acquire);
}
inline void store_byte(std::uint8_t& byte, std::uint8_t value) noexcept {
  std::atomic_ref(byte).store(value, std::memory_order_release);
}
inline std::uint32_t match_bytes(std::uint64_t word, std::uint8_t byte) noexcept {
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  constexpr std::uint64_t kLow = 0x7F * kOnes;
  word ^= byte * kOnes;
  // The upper bit of each byte that is 0, and no other bit.
  const std::uint64_t zeros = ~(((word & kLow) + kLow) | word | kLow);
  // Bit 8j of the factor moves to bit 56 + j; no two of the products share a bit.
  return static_cast<std::uint32_t>((zeros >> 7) * 0x0102040810204080 >> 56);
}
inline std::uint64_t match_line(const std::uint8_t* line, std::uint8_t byte) noexcept {
  auto* words = reinterpret_cast<std::uint64_t*>(const_cast<std::uint8_t*>(line));
  std::uint64_t mask = 0;
  for (int i = 0; i < 8; ++i) {
    const std::uint64_t word = std::atomic_ref(words[i]).load(std::memory_order_acquire);
    mask |= std::uint64_t{match_bytes(word, byte)} << (8 * i);
  }
  return mask;
}
inline std::uint32_t match_words(const std::uint64_t* line, std::uint32_t n,
                                 std::uint16_t tag) noexcept {
  std::uint32_t mask = 0;
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::uint64_t word =
        std::atomic_ref(const_cast<std::uint64_t&>(line[i])).load(std::memory_order_acquire);
    mask |= static_cast<std::uint32_t>(word >> 48 == tag) << i;
  }
  return mask;
}

inline void write_back(FlushInstruction instruction, std::uintptr_t line) noexcept {
  if (instruction == FlushInstruction::dc_cvap) {
    asm volatile("sys #3, c7, c12, #1, %0" : : "r"(line) : "memory");  // dc cvap
  } else {
    asm volatile("dc cvac, %0" : : "r"(line) : "memory");
  }
}
inline void drain() noexcept { asm volatile("dsb sy" ::: "memory"); }
inline void relax() noexcept { asm volatile("yield" ::: "memory"); }
inline std::uint64_t ticks() noexcept {
  std::uint64_t value = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
}
inline void loads_before() noexcept { std::atomic_thread_fence(std::memory_order_acquire); }
inline void wait_for_loads() noexcept { asm volatile("dsb ld\n\tisb" ::: "memory"); }

}  // namespace machine
}  // namespace perdure
