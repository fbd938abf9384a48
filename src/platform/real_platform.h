// RealPlatform: the machine itself. One object per pool, since two pools of a process can lie on
// different media; every call branches on the pool's mode, which a predictor learns.
//
// Thread safety: configure() before the pool is shared; everything else from any thread.
#pragma once

#ifndef __SSE2__
#error "perdure needs x86-64"
#endif
#include <emmintrin.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "perdure/stats.h"
#include "perdure/status.h"
#include "platform/bus_errors.h"
#include "platform/platform.h"
#include "util/log.h"

namespace perdure {

// What a write-back is on this pool's medium.
enum class FlushMode : std::uint8_t {
  none,        // `process`: nothing
  fence_only,  // eADR: the caches are in the power-fail domain
  cache_line,  // clwb, clflushopt or clflush, then sfence
  page,        // msync of the page
};
enum class FlushInstruction : std::uint8_t { clwb, clflushopt, clflush };

FlushInstruction best_flush_instruction() noexcept;  // by cpuid
const char* flush_instruction_name(FlushInstruction instruction) noexcept;

namespace detail {
// Per-thread state, in one place so that the hot path touches one TLS line.
struct alignas(64) ThreadState {
  Counters counters;
  std::uintptr_t last_line = 0;  // last persistent line stored to, for written_lines
  std::uint32_t slot = ~0U;      // dense thread number, ~0 until first use
  std::uint32_t page_count = 0;
  std::uint64_t pages_of = 0;  // the id of the RealPlatform that the pending pages belong to
  static constexpr std::uint32_t kMaxPages = 32;
  std::uintptr_t pages[kMaxPages] = {};  // page mode: written back at the next fence
};
extern thread_local constinit ThreadState thread_state [[gnu::tls_model("initial-exec")]];
std::uint32_t acquire_thread_slot() noexcept;
}  // namespace detail

// A background thread of a pool; signals of the application are handled elsewhere.
class BackgroundThread {
 public:
  // False if the thread could not be created. `run` must stay valid until join().
  bool start(FunctionRef<void()> run) noexcept;
  // At once if none was started, or it was joined already.
  void join() noexcept;

 private:
  struct Body;
  Body* body_ = nullptr;
  pthread_t thread_{};
};

class RealPlatform {
 public:
  template <class T>
  using Atomic = std::atomic<T>;
  using Thread = BackgroundThread;

  // A test-and-set latch that yields under contention; never held across a system call of ours but
  // msync.
  class Latch {
   public:
    void lock() noexcept {
      for (unsigned spins = 0; taken_.exchange(true, std::memory_order_acquire); ++spins) {
        while (taken_.load(std::memory_order_relaxed)) pause(spins++);
      }
    }
    bool try_lock() noexcept {
      return !taken_.load(std::memory_order_relaxed) &&
             !taken_.exchange(true, std::memory_order_acquire);
    }
    void unlock() noexcept { taken_.store(false, std::memory_order_release); }

   private:
    std::atomic<bool> taken_{false};
  };

  // Four latches in one word, a byte each: 0 is free, and who takes one may leave a number in it.
  class ByteLatches {
   public:
    static constexpr unsigned kCount = 4;
    std::uint32_t load() const noexcept {
      return std::atomic_ref(const_cast<std::uint32_t&>(word_)).load(std::memory_order_acquire);
    }
    // Takes latches: acquire.
    bool compare_exchange(std::uint32_t& expected, std::uint32_t desired) noexcept {
      return std::atomic_ref(word_).compare_exchange_strong(
          expected, desired, std::memory_order_acquire, std::memory_order_acquire);
    }
    // The caller holds latch i. Release.
    void release(unsigned i) noexcept {
#ifdef PERDURE_TSAN  // knows accesses of one size to one address
      std::atomic_ref(word_).fetch_and(~(0xFFU << (8 * i)), std::memory_order_release);
#else
      std::atomic_ref(reinterpret_cast<std::uint8_t*>(&word_)[i])
          .store(0, std::memory_order_release);
#endif
    }
    // The caller holds all of them, or nobody else knows the word.
    void store(std::uint32_t word) noexcept {
      std::atomic_ref(word_).store(word, std::memory_order_release);
    }

   private:
    alignas(4) std::uint32_t word_ = 0;
  };

  RealPlatform() = default;
  ~RealPlatform() { leave_mapping(); }
  RealPlatform(const RealPlatform&) = delete;
  RealPlatform& operator=(const RealPlatform&) = delete;

  void configure(FlushMode mode, FlushInstruction instruction,
                 std::uint32_t write_latency_ns) noexcept;
  // The pool's file, for messages; must stay valid.
  void name(const char* path) noexcept { name_ = path; }
  // Is told once that the pool is poisoned; must stay valid. Not from the handler of SIGBUS, but
  // by the first call that finds it.
  void set_log(const Log& log) noexcept { log_ = &log; }
  // From now on SIGBUS in the pool's mapping poisons the pool instead of ending the process. False:
  // the system refused. Until leave_mapping(), or the end of this object.
  bool handle_lost_pages(const void* base, std::size_t bytes) noexcept {
    return watch_bus_errors(base, bytes, state_);
  }
  // Before the mapping goes: nobody looks after it any more, and what a thread has noted of it for
  // a fence that did not come is dropped.
  void leave_mapping() noexcept;
  // On a thread that ends: what it has written back and not fenced, on media that pages are written
  // back to, if the pool is still mapped.
  static void write_back_noted() noexcept;
  FlushMode mode() const noexcept { return mode_; }
  FlushInstruction instruction() const noexcept { return instruction_; }

  // --- persistent words ---
  std::uint64_t load(const std::uint64_t& word) const noexcept {
    return std::atomic_ref(const_cast<std::uint64_t&>(word)).load(std::memory_order_acquire);
  }
  // In C++ copy() races with any other access, atomic or not; here nothing depends on what is read.
  __attribute__((no_sanitize("thread"))) std::uint64_t peek(
      const std::uint64_t& word) const noexcept {
    return *static_cast<const volatile std::uint64_t*>(&word);
  }
  void store(std::uint64_t& word, std::uint64_t value) noexcept {
    announce_store();
    count_word(&word);
    std::atomic_ref(word).store(value, std::memory_order_release);
  }
  bool compare_exchange(std::uint64_t& word, std::uint64_t& expected,
                        std::uint64_t desired) noexcept {
    announce_store();
    count_word(&word);
    return std::atomic_ref(word).compare_exchange_strong(expected, desired,
                                                         std::memory_order_acq_rel);
  }
  void copy(void* dst, const void* src, std::size_t n) noexcept {
    announce_store();
    count_range(dst, n);
    // memcpy into memory nobody else can reach yet; the publishing store orders it.
    std::memcpy(dst, src, n);
  }
  void zero(void* dst, std::size_t n) noexcept {
    announce_store();
    count_range(dst, n);
    std::memset(dst, 0, n);
  }

  // --- persistence ---
  template <FixedString Name>
  void flush(const void* p, std::size_t n, Site<Name>) noexcept {
    if (mode_ == FlushMode::none) return;
    write_back(p, n);
  }
  template <class T, FixedString Name>
  void flush(T* const* p, std::size_t n,
             Site<Name>) = delete;  // the address of a pointer variable (G3)
  template <FixedString Name>
  bool fence(Site<Name>) noexcept {
    if (mode_ != FlushMode::none) store_fence();
    return !poisoned();
  }
  template <FixedString Name>
  bool sync(const void* p, std::size_t n, Site<Name>) noexcept {
    return sync_range(p, n);
  }
  template <FixedString Name>
  static constexpr bool runs(Site<Name>) noexcept {
    return true;
  }
  template <FixedString Name>
  static constexpr bool verifies(Site<Name>) noexcept {
    return true;
  }
#ifdef NDEBUG
  static constexpr bool kAsserts = false;
#else
  static constexpr bool kAsserts = true;
#endif
  struct Unobserved {};
  static bool persisted(const void*, std::size_t) noexcept { return true; }
  [[noreturn, gnu::cold]] static void violated(const Assertion& assertion) noexcept;
  bool durable() const noexcept { return mode_ != FlushMode::none; }
  bool poisoned() const noexcept { return state_.poisoned.load(std::memory_order_relaxed); }
  void poison() noexcept;
  // Part of the mapping is no longer the file's: what is read may be wrong.
  bool lost() const noexcept { return state_.lost.load(std::memory_order_relaxed); }
  // Why a poisoned pool answers nothing any more; names the file.
  Status failure() const noexcept;
  void watch_stores(StoreWatch* watch) noexcept { watch_.store(watch); }

  // --- DRAM side ---
  // The bytes of a line, which others write one by one, that equal `byte`, as bits.
  static std::uint64_t match_line(const std::uint8_t* line, std::uint8_t byte) noexcept {
    const __m128i wanted = _mm_set1_epi8(static_cast<char>(byte));
    std::uint64_t mask = 0;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m128i equal = _mm_cmpeq_epi8(load_part(line + 16 * i), wanted);
      mask |= std::uint64_t{static_cast<std::uint32_t>(_mm_movemask_epi8(equal))} << (16 * i);
    }
    return mask;
  }
  // Those of the first `n` words of a line, which others store whole, whose upper 16 bits are
  // `tag`, as bits. Acquire, as loads of the words one by one.
  static std::uint32_t match_words(const std::uint64_t* line, std::uint32_t n,
                                   std::uint16_t tag) noexcept {
    const __m128i wanted = _mm_set1_epi16(static_cast<short>(tag));
    std::uint32_t mask = 0;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const auto* part = reinterpret_cast<const std::uint8_t*>(line + 2 * i);
      const __m128i equal = _mm_cmpeq_epi16(load_part(part), wanted);
      mask |= static_cast<std::uint32_t>(_mm_movemask_pd(_mm_castsi128_pd(equal))) << (2 * i);
    }
    return mask & ((1U << n) - 1);
  }
  static std::uint8_t load_byte(const std::uint8_t& byte) noexcept {
    return std::atomic_ref(const_cast<std::uint8_t&>(byte)).load(std::memory_order_relaxed);
  }
  static void store_byte(std::uint8_t& byte, std::uint8_t value) noexcept {
    std::atomic_ref(byte).store(value, std::memory_order_relaxed);
  }
  // Asymmetric barrier (membarrier(2)): of two threads, one of which stores, does light_fence() and
  // loads, the other stores, does heavy_fence() and loads, at least one sees the other's store.
  // Where the kernel has refused from the start, light fences are full ones. heavy_fence answers
  // whether every thread of the process has done a full fence within it; then it holds for plain
  // stores of others too, that no light_fence() follows.
  static void light_fence() noexcept {
    if (kAsymmetric) [[likely]] {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
  }
  static bool heavy_fence() noexcept;
  static constexpr unsigned kPatience = 200;  // more than a write-back takes
  static bool full_light_fences() noexcept { return !kAsymmetric; }
  static std::uint32_t thread_slot() noexcept {
    const std::uint32_t slot = detail::thread_state.slot;
    return slot != ~0U ? slot : detail::acquire_thread_slot();
  }
  static Counters& counters() noexcept { return detail::thread_state.counters; }
  // Backs off in a spin loop: pause first, give the core away after a while.
  static void pause(unsigned spins) noexcept;
  static std::uint64_t now_ns() noexcept;
  static std::uint64_t random() noexcept;
  static unsigned cores() noexcept;
  // Runs task(0) .. task(n-1), on up to n threads; on fewer where threads cannot be had. Returns
  // when all are done.
  static void parallel(std::size_t n, FunctionRef<void(std::size_t)> task) noexcept;
  static void park(const std::atomic<std::uint32_t>& word, std::uint32_t seen) noexcept {
    word.wait(seen, std::memory_order_acquire);
  }
  static void unpark(std::atomic<std::uint32_t>& word) noexcept { word.notify_all(); }

 private:
  static __m128i load_part(const std::uint8_t* part) noexcept {
#ifdef PERDURE_TSAN
    auto* words = reinterpret_cast<std::uint64_t*>(const_cast<std::uint8_t*>(part));
    const std::uint64_t low = std::atomic_ref(words[0]).load(std::memory_order_relaxed);
    const std::uint64_t high = std::atomic_ref(words[1]).load(std::memory_order_relaxed);
    return _mm_set_epi64x(static_cast<long long>(high), static_cast<long long>(low));
#else
    // A vector load: each byte is whole, which is all that is needed; the loads before it are
    // acquire, and those after it must not be hoisted.
    const __m128i value = _mm_load_si128(reinterpret_cast<const __m128i*>(part));
    std::atomic_signal_fence(std::memory_order_acquire);
    return value;
#endif
  }
  void announce_store() noexcept {
    // Acquire: null again means that what had to be durable first is.
    if (StoreWatch* watch = watch_.load(std::memory_order_acquire)) [[unlikely]]
      watch->before_store();
  }
  // Word after word of a line counts once.
  static void count_word(const void* word) noexcept {
    auto& state = detail::thread_state;
    const std::uintptr_t line = reinterpret_cast<std::uintptr_t>(word) / kLine;
    state.counters.written_lines += line != state.last_line ? 1 : 0;
    state.last_line = line;
  }
  static void count_range(const void* p, std::size_t n) noexcept {
    auto& state = detail::thread_state;
    state.counters.written_lines += lines_of(p, n);
    state.last_line = reinterpret_cast<std::uintptr_t>(p) / kLine;
  }
  void write_back(const void* p, std::size_t n) noexcept {
    auto line = reinterpret_cast<std::uintptr_t>(p) & ~(kLine - 1);
    const auto end = reinterpret_cast<std::uintptr_t>(p) + n;
    if (mode_ != FlushMode::cache_line) return write_back_slow(line, end);
    detail::thread_state.counters.flushes += (end - line + kLine - 1) / kLine;
    for (; line < end; line += kLine) {
      auto* target = reinterpret_cast<volatile char*>(line);
      if (instruction_ == FlushInstruction::clwb) [[likely]] {
        asm volatile("clwb %0" : "+m"(*target) : : "memory");
      } else if (instruction_ == FlushInstruction::clflushopt) {
        asm volatile("clflushopt %0" : "+m"(*target) : : "memory");
      } else {
        asm volatile("clflush %0" : "+m"(*target) : : "memory");
      }
      if (latency_ticks_ != 0) [[unlikely]]
        spin_ticks(latency_ticks_);
    }
  }
  void store_fence() noexcept {
    ++detail::thread_state.counters.fences;
    if (mode_ == FlushMode::page) [[unlikely]] {
      if (detail::thread_state.pages_of == id_) msync_pending();
      return;
    }
    asm volatile("sfence" ::: "memory");
  }
  void write_back_slow(std::uintptr_t line, std::uintptr_t end) noexcept;
  void msync_pending() noexcept;
  bool sync_range(const void* p, std::size_t n) noexcept;
  static void spin_ticks(std::uint64_t ticks) noexcept;

  static const bool kAsymmetric;  // set before main; until then both are full fences

  // Those that write pages back, while they are mapped: a list, under the latch.
  struct PagePools;
  static PagePools page_pools;
  void enter_page_pools() noexcept;
  const char* tell_failure() const noexcept;

  FlushMode mode_ = FlushMode::none;
  FlushInstruction instruction_ = FlushInstruction::clwb;
  std::uint64_t latency_ticks_ = 0;
  MappingState state_;
  std::uint64_t id_ = 0;  // of no other pool, ever; 0: pages are not written back
  RealPlatform* next_page_pool_ = nullptr;
  const char* name_ = "";
  const Log* log_ = &kSilent;
  mutable std::atomic<bool> told_{false};  // that it is poisoned
  std::atomic<StoreWatch*> watch_{nullptr};
};

static_assert(Platform<RealPlatform>);

}  // namespace perdure
