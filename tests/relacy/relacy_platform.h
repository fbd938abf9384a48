// RelacyPlatform: the platform of the library's lock-free kernels under Relacy, a simulator of the
// C++ memory model and race detector. Every load may return any value that the model allows.
//
// MODEL  Loads and stores have the orders that the code gives them, which are weaker than on x86.
//   Three things are not C++, but guarantees of src/platform on x86 and Linux:
//     locked instruction  every exchange, compare-exchange and fetch-and-op is also a full fence
//     byte stores, match_line   release and acquire: no store passes a store, no load a load. A
//                         byte of a ByteLatches word is released without a full fence, but a
//                         compare-exchange of another thread sees it at once
//     membarrier(2)       heavy_fence() ends after every other thread has done a full fence at some
//                         point between two of its operations; light_fence() does nothing
//   Persistence is not modelled: the interleaver tests crashes inside schedules.
// PLANTED  Each member of `planted` removes one of these.
//
// Thread safety: all simulated threads may use it; one simulation at a time in a process.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>

#include "perdure/stats.h"
#include "platform/platform.h"

// Renames parts of the language and of POSIX: include this header after all others.
#include <relacy/relacy.hpp>
#undef new
#undef delete
#undef malloc
#undef calloc
#undef realloc
#undef free
#undef assert
#undef errno
#undef memory_order_relaxed
#undef memory_order_consume
#undef memory_order_acquire
#undef memory_order_release
#undef memory_order_acq_rel
#undef memory_order_seq_cst
#undef VAR
#define errno (*__errno_location())

namespace perdure::testing {

struct RelacyPlanted {
  bool heavy_fence = false;  // makes no other thread fence
  bool bytes = false;        // byte stores are relaxed
  bool release = false;      // a byte latch is released relaxed
  bool recheck = false;      // for the tests' own code: a recheck is skipped
  bool order = false;        // for the tests' own code: a weaker order, or the wrong one
  bool weak = false;         // acquire and release are relaxed
};

class RelacyPlatform {
 public:
  static constexpr std::uint32_t kThreads = 3;
  static constexpr std::uint32_t kBytes = 4;  // modelled bytes of a search line

  static inline RelacyPlanted planted;
  static inline unsigned heavy_fences;  // in this execution

  // Call it before each execution, and when a simulated thread ends.
  static void begin(std::uint32_t threads) noexcept {
    requested_ = acknowledged_ = {};
    heavy_fences = 0;
    for (std::uint32_t t = 0; t < kThreads; ++t) ended_[t] = t >= threads;
  }
  static void leave() noexcept {
    full_fence();
    ended_[rl::thread_index()] = true;
  }
  // Suspends the thread for a while, at random. Random scheduling rarely does so.
  static void stall() noexcept {
    for (unsigned i = rl::rand(5) * 20; i > 0; --i) pause(0);
  }
  static void full_fence() noexcept { rl::atomic_thread_fence(rl::mo_seq_cst, RL_INFO); }

  template <class T>
  class Word {
   public:
    explicit(false) Word(T value = {}) : initial_(value) {
      value_.store(value, rl::mo_relaxed, RL_INFO);
    }
    T load(std::memory_order order = std::memory_order_seq_cst) const noexcept {
      serve();
      if (!written_) return initial_;  // the only value: no choice, no step
      return value_.load(of(order), RL_INFO);
    }
    void store(T value, std::memory_order order = std::memory_order_seq_cst) noexcept {
      serve();
      written_ = true;
      value_.store(value, of(order), RL_INFO);
    }
    T exchange(T value, std::memory_order order = std::memory_order_seq_cst) noexcept {
      return locked([&] { return proxy().exchange(value, of(order)); });
    }
    bool compare_exchange_strong(T& expected, T desired,
                                 std::memory_order order = std::memory_order_seq_cst) noexcept {
      return locked([&] { return proxy().compare_exchange_strong(expected, desired, of(order)); });
    }
    T fetch_add(T value, std::memory_order order = std::memory_order_seq_cst) noexcept {
      return locked([&] { return proxy().fetch_add(value, of(order)); });
    }
    T fetch_sub(T value, std::memory_order order = std::memory_order_seq_cst) noexcept {
      return locked([&] { return proxy().fetch_sub(value, of(order)); });
    }
    T fetch_and(T bits, std::memory_order order = std::memory_order_seq_cst) noexcept {
      return locked([&] { return proxy().fetch_and(bits, of(order)); });
    }
    T fetch_or(T bits, std::memory_order order = std::memory_order_seq_cst) noexcept {
      return locked([&] { return proxy().fetch_or(bits, of(order)); });
    }
    // Not a locked instruction.
    void take_away(T bits, std::memory_order order) noexcept {
      serve();
      written_ = true;
      proxy().fetch_and(static_cast<T>(~bits), of(order));
    }

   private:
    rl::atomic_proxy<T> proxy() { return value_(RL_INFO); }
    template <class F>
    auto locked(F&& operation) {
      serve();
      written_ = true;
      full_fence();
      const auto result = operation();
      full_fence();
      return result;
    }
    rl::atomic<T> value_;
    T initial_;
    bool written_ = false;
  };
  // Pointers only lead to objects that exist before the threads begin.
  template <class T>
  using Atomic = std::conditional_t<std::is_pointer_v<T>, std::atomic<T>, Word<T>>;

  class Latch {
   public:
    void lock() noexcept {
      while (taken_.exchange(1, std::memory_order_acquire) != 0) pause(0);
    }
    void unlock() noexcept { taken_.store(0, std::memory_order_release); }

   private:
    Word<std::uint32_t> taken_;
  };
  // The only search line of a test. A real one is too small for the words of the model.
  struct Line {
    Word<std::uint8_t> bytes[kBytes];
    Word<std::uint32_t> stripes;
  };
  static inline Line* line = nullptr;

  class ByteLatches {
   public:
    static constexpr unsigned kCount = 4;
    static std::uint32_t load() noexcept { return line->stripes.load(std::memory_order_acquire); }
    static bool compare_exchange(std::uint32_t& expected, std::uint32_t desired) noexcept {
      return line->stripes.compare_exchange_strong(expected, desired, std::memory_order_acquire);
    }
    static void release(unsigned i) noexcept {
      line->stripes.take_away(0xFFU << (8 * i), planted.release ? std::memory_order_relaxed
                                                                : std::memory_order_release);
    }
    static void store(std::uint32_t word) noexcept {
      line->stripes.store(word, std::memory_order_release);
    }
    std::uint32_t unused = 0;  // for the size
  };
  struct Thread {
    static bool start(FunctionRef<void()>) noexcept { return false; }
    static void join() noexcept {}
  };

  static std::uint64_t match_line(const std::uint8_t*, std::uint8_t byte) noexcept {
    std::uint64_t mask = 0;
    for (std::uint32_t i = 0; i < kBytes; ++i) {
      mask |= std::uint64_t{line->bytes[i].load(std::memory_order_acquire) == byte} << i;
    }
    return mask;
  }
  static std::uint8_t load_byte(const std::uint8_t& byte) noexcept {
    return line->bytes[reinterpret_cast<std::uintptr_t>(&byte) % kLine].load(
        std::memory_order_acquire);
  }
  static void store_byte(std::uint8_t& byte, std::uint8_t value) noexcept {
    line->bytes[reinterpret_cast<std::uintptr_t>(&byte) % kLine].store(
        value, planted.bytes ? std::memory_order_relaxed : std::memory_order_release);
  }

  static void light_fence() noexcept {}
  static bool heavy_fence() noexcept {
    if (planted.heavy_fence) return true;
    full_fence();
    const unsigned self = rl::thread_index();
    std::array<std::uint32_t, kThreads + 1> ticket{};
    for (unsigned t = 0; t < kThreads; ++t) ticket[t] = ++requested_[t];
    for (unsigned t = 0; t < kThreads; ++t) {
      while (t != self && !ended_[t] && acknowledged_[t] < ticket[t]) pause(0);
    }
    full_fence();
    ++heavy_fences;
    return true;
  }
  static bool full_light_fences() noexcept { return false; }
  static constexpr unsigned kPatience = 0;
  static std::uint32_t thread_slot() noexcept { return rl::thread_index(); }
  static bool is_living(std::uint32_t /*slot*/) noexcept { return true; }
  static void pause(unsigned) noexcept {
    serve();
    rl::yield(1, RL_INFO);
    serve();
  }

  // --- what the kernels do not use ---
  static std::uint64_t load(const std::uint64_t& word) noexcept { return word; }
  static std::uint64_t peek(const std::uint64_t& word) noexcept { return word; }
  static void store(std::uint64_t& word, std::uint64_t value) noexcept { word = value; }
  static bool compare_exchange(std::uint64_t&, std::uint64_t&, std::uint64_t) noexcept {
    return false;
  }
  static void copy(void* dst, const void* src, std::size_t n) noexcept { std::memcpy(dst, src, n); }
  static void zero(void* dst, std::size_t n) noexcept { std::memset(dst, 0, n); }
  template <FixedString Name>
  static void flush(const void*, std::size_t, Site<Name>) noexcept {}
  template <FixedString Name>
  static bool fence(Site<Name>) noexcept {
    return true;
  }
  template <FixedString Name>
  static bool sync(const void*, std::size_t, Site<Name>) noexcept {
    return true;
  }
  template <FixedString Name>
  static bool runs(Site<Name>) noexcept {
    return true;
  }
  template <FixedString Name>
  static bool verifies(Site<Name>) noexcept {
    return true;
  }
  static constexpr bool kAsserts = true;
  struct Unobserved {};
  static bool persisted(const void*, std::size_t) noexcept { return true; }
  static void violated(const Assertion& assertion) noexcept {
    std::fprintf(stderr, "%s does not hold: %s (%s:%d)\n", assertion.id, assertion.condition,
                 assertion.file, assertion.line);
    RL_ASSERT(false);
  }
  static Status failure() noexcept { return StatusCode::poisoned; }
  static void watch_stores(StoreWatch*) noexcept {}
  static bool durable() noexcept { return false; }
  static bool poisoned() noexcept { return false; }
  static std::uint64_t now_ns() noexcept { return 0; }
  static std::uint64_t random() noexcept { return 0; }
  static void parallel(std::size_t n, FunctionRef<void(std::size_t)> task) noexcept {
    for (std::size_t i = 0; i < n; ++i) task(i);
  }
  static void park(const Word<std::uint32_t>&, std::uint32_t) noexcept {}
  static void unpark(Word<std::uint32_t>&) noexcept {}

 private:
  static rl::memory_order of(std::memory_order order) noexcept {
    if (planted.weak && order != std::memory_order_seq_cst) return rl::mo_relaxed;
    switch (order) {
      case std::memory_order_relaxed:
        return rl::mo_relaxed;
      case std::memory_order_acquire:
        return rl::mo_acquire;
      case std::memory_order_release:
        return rl::mo_release;
      case std::memory_order_acq_rel:
        return rl::mo_acq_rel;
      default:
        return rl::mo_seq_cst;
    }
  }
  // The interrupt of a membarrier arrives.
  static void serve() noexcept {
    const unsigned self = rl::thread_index();
    if (self >= kThreads || acknowledged_[self] == requested_[self]) return;
    const std::uint32_t until = requested_[self];
    full_fence();
    acknowledged_[self] = until;
  }
  // Plain memory, because simulated threads are fibers of one thread.
  static inline std::array<std::uint32_t, kThreads> requested_, acknowledged_;
  static inline std::array<bool, kThreads> ended_;
};

static_assert(Platform<RelacyPlatform>);

}  // namespace perdure::testing
