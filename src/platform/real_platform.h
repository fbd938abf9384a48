// RealPlatform: the machine itself. A pool has one object, because two pools of a process can lie
// on different media. Every call branches on the pool's mode; the branch predictor learns it.
//
// Thread safety: configure() must be called before the pool is shared. Any thread may call the
// rest.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "perdure/stats.h"
#include "perdure/status.h"
#include "platform/bus_errors.h"
#include "platform/machine.h"
#include "platform/platform.h"
#include "util/log.h"

namespace perdure {

template <class P>
class StoreTracker;

// What a write-back is on the medium of this pool.
enum class FlushMode : std::uint8_t {
  none,        // `process`: nothing
  fence_only,  // eADR: the caches survive a power loss
  cache_line,  // an instruction for each line, then one that waits (machine.h)
  page,        // msync of the page
};

// The thread's slot in the object that it has used last, by the object's number; 0: none. Ends with
// the thread.
struct OwnSlot {
  std::uint64_t of = 0;
  void* slot = nullptr;
};

namespace detail {
// The state of a thread, in one struct so that the hot path touches one TLS line.
struct alignas(64) ThreadState {
  Counters counters;
  std::uintptr_t last_line = 0;  // last persistent line stored to, for written_lines
  std::uint32_t slot = ~0U;      // dense thread number, ~0 until first use
  std::uint32_t page_count = 0;
  std::uint64_t pages_of = 0;  // the id of the RealPlatform that the pending pages belong to
  OwnSlot own;
  static constexpr std::uint32_t kMaxPages = 32;
  std::uintptr_t pages[kMaxPages] = {};  // page mode: written back at the next fence
};
extern thread_local constinit ThreadState thread_state [[gnu::tls_model("initial-exec")]];
std::uint32_t acquire_thread_slot() noexcept;
std::uint64_t next_number() noexcept;
}  // namespace detail

// A background thread of a pool. It blocks the application's signals.
class BackgroundThread {
 public:
  // Returns false if the thread could not be created. `run` must stay valid until join().
  bool start(FunctionRef<void()> run) noexcept;
  // Returns at once if no thread was started, or if it was joined.
  void join() noexcept;

 private:
  struct Body;
  Body* body_ = nullptr;
  pthread_t thread_{};
};

class RealPlatform {
 public:
  template <class T>
  using Atomic = machine::Atomic<T>;
  using Thread = BackgroundThread;

  // A test-and-set latch that yields under contention. The latches that operations on entries take
  // are not held across system calls, except msync, and in a `buffered` pool the copy of a chunk at
  // its first store, and the wake-up of a thread by the first store after a rest. The latch of
  // growth is also held while the file grows, that of the extents while it is punched, and the
  // pool's maintenance latch during sync, check and compact.
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
    Atomic<bool> taken_{false};
  };

  // Four latches in one word, a byte each. 0 is free; a holder may store a number in its byte.
  class ByteLatches {
   public:
    static constexpr unsigned kCount = 4;
    std::uint32_t load() const noexcept {
      return std::atomic_ref(const_cast<std::uint32_t&>(word_)).load(std::memory_order_acquire);
    }
    // Acquires latches. Acquire order.
    bool compare_exchange(std::uint32_t& expected, std::uint32_t desired) noexcept {
      return machine::exchange_latches(word_, expected, desired);
    }
    // Requires latch i. Release order.
    void release(unsigned i) noexcept {
#ifdef PERDURE_TSAN  // TSan knows accesses of one size to one address
      std::atomic_ref(word_).fetch_and(~(0xFFU << (8 * i)), std::memory_order_release);
#else
      std::atomic_ref(reinterpret_cast<std::uint8_t*>(&word_)[i])
          .store(0, std::memory_order_release);
#endif
    }
    // Requires all four latches, or that no other thread knows the word.
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
  // The path of the pool's file, for messages; it must stay valid.
  void name(const char* path) noexcept { name_ = path; }
  // The log gets one message when the pool is poisoned; it must stay valid. The handler of SIGBUS
  // does not log: the first call that finds the pool poisoned does.
  void set_log(const Log& log) noexcept { log_ = &log; }
  // SIGBUS in mappings that are registered with it (bus_errors.h) poisons the pool instead of
  // ending the process, until leave_mapping() or the end of this object.
  MappingState& mapping_state() noexcept { return state_; }
  // The message of failure() after that; static. By default that of a pool that is its file alone.
  void say_when_lost(const char* why) noexcept { why_lost_ = why; }
  // The handler calls it, too. Before the mapping is shared, and until leave_mapping().
  void on_lost_pages(void (*call)(void*), void* argument) noexcept {
    state_.argument = argument;
    state_.on_lost.store(call, std::memory_order_release);
  }
  // Call it before munmap. Ends the handling of SIGBUS, and drops the pages of this pool that
  // threads have noted for a fence that did not come.
  void leave_mapping() noexcept;
  // Called when a thread ends: writes back the pages that it has noted and not fenced, if their
  // pool is still mapped. Only on page media.
  static void write_back_noted() noexcept;
  FlushMode mode() const noexcept { return mode_; }
  FlushInstruction instruction() const noexcept { return instruction_; }

  // --- persistent words ---
  std::uint64_t load(const std::uint64_t& word) const noexcept {
    return std::atomic_ref(const_cast<std::uint64_t&>(word)).load(std::memory_order_acquire);
  }
  // In C++, copy() races with any other access, atomic or not. Here no result depends on the value
  // read.
  std::uint64_t peek(const std::uint64_t& word) const noexcept { return machine::peek(word); }
  void store(std::uint64_t& word, std::uint64_t value) noexcept {
    announce_store();
    count_word(&word);
    if (tracker_ != nullptr) [[unlikely]]
      return store_tracked(word, value);
    std::atomic_ref(word).store(value, std::memory_order_release);
  }
  [[gnu::always_inline]] bool compare_exchange(std::uint64_t& word, std::uint64_t& expected,
                                               std::uint64_t desired) noexcept {
    announce_store();
    count_word(&word);
    if (tracker_ != nullptr) [[unlikely]]
      return exchange_tracked(word, expected, desired);
    return machine::exchange_word(word, expected, desired);
  }
  void copy(void* dst, const void* src, std::size_t n) noexcept {
    announce_store();
    count_range(dst, n);
    if (tracker_ != nullptr) [[unlikely]]
      return copy_tracked(dst, src, n);
    // No other thread can reach this memory yet; the publishing store orders the copy.
    std::memcpy(dst, src, n);
  }
  void zero(void* dst, std::size_t n) noexcept {
    announce_store();
    count_range(dst, n);
    if (tracker_ != nullptr) [[unlikely]]
      return zero_tracked(dst, n);
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
  [[gnu::cold]] static void violated(const Assertion& assertion) noexcept;
  // For fuzzers: false while a pool with forged checksums is open, which may break any invariant.
  static inline std::atomic<bool> ends_at_violation{true};
  bool durable() const noexcept { return mode_ != FlushMode::none; }
  bool poisoned() const noexcept {
    machine::loads_before();  // what was read before may be of a page that was lost
    return state_.poisoned.load(std::memory_order_relaxed);
  }
  void poison() noexcept {
    mark_poisoned(nullptr);
    tell_poisoned();
  }
  // The two steps of it. `why`: null: a write-back failed, or the file became shorter. The first
  // `why` counts. The log may call the application.
  void mark_poisoned(const char* why) noexcept;
  void tell_poisoned() noexcept { (void)tell_failure(); }
  // True if a part of the mapping is no longer backed by the file, so that reads may be wrong.
  bool lost() const noexcept {
    machine::loads_before();
    return state_.lost.load(std::memory_order_relaxed);
  }
  // The error of every call on a poisoned pool; it names the file.
  Status failure() const noexcept;
  void watch_stores(StoreWatch* watch) noexcept { watch_.store(watch); }
  // From now on every store, copy, zero and compare_exchange is tracked. Call it before the pool is
  // shared. The tracker must stay valid.
  void track_stores(StoreTracker<RealPlatform>& tracker) noexcept { tracker_ = &tracker; }
  // No thread may be in a store.
  void end_tracking() noexcept { tracker_ = nullptr; }

  // --- DRAM side ---
  // Returns a bit for each byte of a line that equals `byte`. Other threads write
  // the bytes one by one.
  [[gnu::always_inline]] static std::uint64_t match_line(const std::uint8_t* line,
                                                         std::uint8_t byte) noexcept {
    return machine::match_line(line, byte);
  }
  // Returns a bit for each of the first `n` words of a line whose upper 16 bits are `tag`. Other
  // threads store the words whole. Acquire order, like loads of the words one by one.
  [[gnu::always_inline]] static std::uint32_t match_words(const std::uint64_t* line,
                                                          std::uint32_t n,
                                                          std::uint16_t tag) noexcept {
    return machine::match_words(line, n, tag);
  }
  static std::uint8_t load_byte(const std::uint8_t& byte) noexcept {
    return machine::load_byte(byte);
  }
  static void store_byte(std::uint8_t& byte, std::uint8_t value) noexcept {
    machine::store_byte(byte, value);
  }
  // An asymmetric barrier (membarrier(2)). One thread stores, calls light_fence() and loads;
  // another stores, calls heavy_fence() and loads: at least one of them sees the other's store. If
  // the kernel refused it at the start, light fences are full ones. heavy_fence() returns whether
  // every thread of the process has executed a full fence during the call. Then it also holds for
  // plain stores of others that no light_fence() follows. Threads that need one at the same time
  // share a call of the system (shared_call.h).
  [[gnu::always_inline]] static void light_fence() noexcept {
    if (kAsymmetric) [[likely]] {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
  }
  static bool heavy_fence() noexcept;
  // For tests: how often membarrier(2) was called.
  static std::uint64_t heavy_fence_calls() noexcept;
  static constexpr unsigned kPatience = 200;  // longer than a write-back
  static bool full_light_fences() noexcept { return !kAsymmetric; }
  // The system's number of the thread that has, or had, the slot.
  static std::int32_t thread_of(std::uint32_t slot) noexcept;
  // Whether a thread has the slot.
  static bool is_living(std::uint32_t slot) noexcept;
  static std::uint32_t thread_slot() noexcept {
    const std::uint32_t slot = detail::thread_state.slot;
    return slot != ~0U ? slot : detail::acquire_thread_slot();
  }
  static OwnSlot& own_slot() noexcept { return detail::thread_state.own; }
  // Returns a number that no other call returns, and not 0.
  static std::uint64_t next_number() noexcept { return detail::next_number(); }
  static Counters& counters() noexcept { return detail::thread_state.counters; }
  // Backs off in a spin loop: pauses, and yields the core at every 64th call.
  static void pause(unsigned spins) noexcept;
  static std::uint64_t now_ns() noexcept;
  static std::uint64_t unix_ns() noexcept;  // the clock of the machine
  static std::uint64_t random() noexcept;
  static unsigned cores() noexcept;
  // Runs task(0) .. task(n-1) on up to n threads, or fewer if the system refuses threads. Returns
  // when all are done.
  static void parallel(std::size_t n, FunctionRef<void(std::size_t)> task) noexcept;
  static void park(const Atomic<std::uint32_t>& word, std::uint32_t seen) noexcept {
    word.wait(seen, std::memory_order_acquire);
  }
  static void unpark(Atomic<std::uint32_t>& word) noexcept { word.notify_all(); }

 private:
  void announce_store() noexcept {
    // Acquire: if it is null again, what had to be durable first is durable.
    if (StoreWatch* watch = watch_.load(std::memory_order_acquire)) [[unlikely]]
      watch->before_store();
  }
  // Out of line: pools that are not cut must not pay for them.
  void store_tracked(std::uint64_t& word, std::uint64_t value) noexcept;
  bool exchange_tracked(std::uint64_t& word, std::uint64_t& expected,
                        std::uint64_t desired) noexcept;
  void copy_tracked(void* dst, const void* src, std::size_t n) noexcept;
  void zero_tracked(void* dst, std::size_t n) noexcept;
  // Consecutive words of one line count once.
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
      machine::write_back(instruction_, line);
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
    machine::drain();
  }
  void write_back_slow(std::uintptr_t line, std::uintptr_t end) noexcept;
  void msync_pending() noexcept;
  bool sync_range(const void* p, std::size_t n) noexcept;
  static void spin_ticks(std::uint64_t ticks) noexcept;

  static const bool kAsymmetric;  // set before main; until then both fences are full

  // The list of mapped pools whose write-back is msync, under a latch.
  struct PagePools;
  static PagePools page_pools;
  void enter_page_pools() noexcept;
  const char* tell_failure() const noexcept;

  std::atomic<StoreWatch*> watch_{nullptr};  // beside tracker_: every store reads both
  StoreTracker<RealPlatform>* tracker_ = nullptr;
  FlushMode mode_ = FlushMode::none;
  FlushInstruction instruction_{};
  std::uint64_t latency_ticks_ = 0;
  MappingState state_;
  std::uint64_t id_ = 0;  // unique for the life of the process; 0: no page media
  RealPlatform* next_page_pool_ = nullptr;
  const char* name_ = "";
  const Log* log_ = &kSilent;
  std::atomic<bool> why_taken_{false};
  char why_text_[256] = {};
  std::atomic<const char*> why_{nullptr};
  const char* why_lost_ =
      "the file became shorter or its medium failed while it was mapped (SIGBUS); close the pool, "
      "then restore a copy of the file, or run `perdure check` on it";
  mutable std::atomic<bool> told_{false};  // the log has the message that the pool is poisoned
};

static_assert(Platform<RealPlatform>);

}  // namespace perdure
