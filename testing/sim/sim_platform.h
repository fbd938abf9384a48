// SimPlatform: the Platform over SimMemory, and SimStorage, the file of a pool in memory.
//
// WHAT  Persistent words go to a SimMemory, which records every state that a power failure could
//   leave. DRAM primitives are plain objects, because one thread runs at a time. Every persistent
//   access, latch and atomic operation calls step() before it takes effect. There the cooperative
//   scheduler (scheduler.h) may switch threads; without one, step() does nothing.
// ACCESSES  With access_hook set, every address that an engine reads or writes through the platform
//   is reported; costs.cc counts lines with it. It misses reads through plain pointers (the bytes
//   of records and keys, the header of a map) and prefetches.
// DETERMINISM  Clock and random source are counters. SimPlatform::world() saves and restores them:
//   a recovery in the middle of a workload leaves no trace in it.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#include "perdure/stats.h"
#include "platform/platform.h"
#include "platform/storage.h"
#include "platform/store_tracker.h"
#include "testing/sim/sim_memory.h"

namespace perdure::testing {

// The next step of a thread. All but `read` and `flush` can end another thread's wait.
enum class StepKind : std::uint8_t { read, write, latch, store, flush, fence, pause };

// Shared by all simulated pools of the process.
struct SimWorld {
  std::uint64_t random_state = 1;
  std::uint64_t clock_ns = 1'000'000'000;
  std::uint32_t thread = 0;
  std::uint64_t pauses = 0;  // since the last step that was not a pause
  Counters counters;
};

class SimPlatform {
 public:
  // std::atomic's interface over a plain object.
  template <class T>
  class Atomic {
   public:
    constexpr Atomic() noexcept : value_{} {}
    constexpr Atomic(T value) noexcept : value_(value) {}  // NOLINT: like std::atomic
    Atomic(const Atomic&) = delete;
    Atomic& operator=(const Atomic&) = delete;

    T load(std::memory_order = std::memory_order_seq_cst) const noexcept {
      step(StepKind::read);
      return value_;
    }
    void store(T value, std::memory_order = std::memory_order_seq_cst) noexcept {
      step(StepKind::write);
      value_ = value;
    }
    T exchange(T value, std::memory_order = std::memory_order_seq_cst) noexcept {
      step(StepKind::write);
      return std::exchange(value_, value);
    }
    bool compare_exchange_strong(T& expected, T desired,
                                 std::memory_order = std::memory_order_seq_cst,
                                 std::memory_order = std::memory_order_seq_cst) noexcept {
      step(StepKind::write);
      if (value_ == expected) {
        value_ = desired;
        return true;
      }
      expected = value_;
      return false;
    }
    bool compare_exchange_weak(T& expected, T desired,
                               std::memory_order success = std::memory_order_seq_cst,
                               std::memory_order failure = std::memory_order_seq_cst) noexcept {
      return compare_exchange_strong(expected, desired, success, failure);
    }
    template <class D>
    T fetch_add(D delta, std::memory_order = std::memory_order_seq_cst) noexcept {
      step(StepKind::write);
      return std::exchange(value_, static_cast<T>(value_ + delta));
    }
    template <class D>
    T fetch_sub(D delta, std::memory_order = std::memory_order_seq_cst) noexcept {
      step(StepKind::write);
      return std::exchange(value_, static_cast<T>(value_ - delta));
    }
    T fetch_or(T bits, std::memory_order = std::memory_order_seq_cst) noexcept {
      step(StepKind::write);
      return std::exchange(value_, static_cast<T>(value_ | bits));
    }
    T fetch_and(T bits, std::memory_order = std::memory_order_seq_cst) noexcept {
      step(StepKind::write);
      return std::exchange(value_, static_cast<T>(value_ & bits));
    }
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
    T value_;
  };

  class Latch {
   public:
    void lock() noexcept {
      step(StepKind::latch);
      for (unsigned spins = 0; taken_; ++spins) pause(spins);
      taken_ = true;
    }
    bool try_lock() noexcept {
      step(StepKind::latch);
      return !std::exchange(taken_, true);
    }
    void unlock() noexcept {
      step(StepKind::latch);
      taken_ = false;
    }

   private:
    bool taken_ = false;
  };

  class ByteLatches {
   public:
    static constexpr unsigned kCount = 4;
    std::uint32_t load() const noexcept {
      step(StepKind::read);
      return word_;
    }
    bool compare_exchange(std::uint32_t& expected, std::uint32_t desired) noexcept {
      step(StepKind::latch);
      if (latches_stuck) return true;
      const bool same = word_ == expected;
      (same ? word_ : expected) = same ? desired : word_;
      return same;
    }
    void release(unsigned i) noexcept {
      step(StepKind::latch);
      word_ &= ~(0xFFU << (8 * i));
    }
    void store(std::uint32_t word) noexcept {
      step(StepKind::latch);
      word_ = word;
    }

   private:
    std::uint32_t word_ = 0;
  };

  // Starts no thread. The driver itself runs background work (Background::run_some) in a slot of
  // its own. Therefore no mutator fences the write-backs of such a step.
  class Thread {
   public:
    static bool start(FunctionRef<void()>) noexcept { return true; }
    static void join() noexcept {}
  };
  static void park(const Atomic<std::uint32_t>&, std::uint32_t) noexcept { step(StepKind::read); }
  static void unpark(Atomic<std::uint32_t>&) noexcept { step(StepKind::read); }

  explicit SimPlatform(SimMemory& memory) : memory_(memory), tracker_(tracks_new) {}
  SimPlatform(const SimPlatform&) = delete;
  SimPlatform& operator=(const SimPlatform&) = delete;

  SimMemory& memory() noexcept { return memory_; }
  // `process` durability: flush and fence do nothing.
  void set_durable(bool durable) noexcept { durable_ = durable; }

  // --- persistent words ---
  std::uint64_t load(const std::uint64_t& word) const noexcept {
    step(StepKind::read);
    access(&word, sizeof(word));
    return word;
  }
  std::uint64_t peek(const std::uint64_t& word) const noexcept { return load(word); }
  void store(std::uint64_t& word, std::uint64_t value) noexcept {
    const Tracked tracked(*this, &word, sizeof(word));
    step(StepKind::store);
    access(&word, sizeof(word));
    tracked.before_store();
    memory_.store(&word, value);
  }
  bool compare_exchange(std::uint64_t& word, std::uint64_t& expected,
                        std::uint64_t desired) noexcept {
    const Tracked tracked(*this, &word, sizeof(word));
    step(StepKind::store);
    access(&word, sizeof(word));
    if (word != expected) {
      expected = word;
      return false;
    }
    tracked.before_store();
    memory_.store(&word, desired);
    return true;
  }
  void copy(void* dst, const void* src, std::size_t n) noexcept {
    in_pieces(dst, n, [&](std::size_t at, std::size_t piece) {
      const auto* from = static_cast<const std::byte*>(src) + at;
      auto* to = static_cast<std::byte*>(dst) + at;
      access(from, piece);
      access(to, piece);
      memory_.copy(to, from, piece);
    });
  }
  void zero(void* dst, std::size_t n) noexcept {
    in_pieces(dst, n, [&](std::size_t at, std::size_t piece) {
      auto* to = static_cast<std::byte*>(dst) + at;
      access(to, piece);
      memory_.zero(to, piece);
    });
  }
  // As RealPlatform::track_stores().
  void track_stores(StoreTracker<SimPlatform>& tracker) noexcept { tracker_ = &tracker; }
  // The tracker of platforms that are made from now on; null: none.
  static inline StoreTracker<SimPlatform>* tracks_new = nullptr;

  // --- persistence ---
  template <FixedString Name>
  void flush(const void* p, std::size_t n, Site<Name>) noexcept {
    step(StepKind::flush, Name.text);
    if (!durable_) return;
    world_.counters.flushes += lines_of(p, n);
    memory_.flush(p, n, world_.thread,
                  site_detail::SiteRecord<Name, site_detail::SiteUse::flush>::info);
  }
  template <class T, FixedString Name>
  void flush(T* const* p, std::size_t n, Site<Name>) = delete;  // the address of a pointer variable
  template <FixedString Name>
  bool fence(Site<Name>) noexcept {
    step(StepKind::fence, Name.text);
    if (!durable_) return !poisoned_;
    ++world_.counters.fences;
    memory_.fence(world_.thread, site_detail::SiteRecord<Name, site_detail::SiteUse::fence>::info);
    return !poisoned_;
  }
  template <FixedString Name>
  bool sync(const void* p, std::size_t n, Site<Name>) noexcept {
    step(StepKind::fence, Name.text);
    sync_range(p, n, site_detail::SiteRecord<Name, site_detail::SiteUse::sync>::info);
    return !poisoned_;
  }
  template <FixedString Name>
  static bool runs(Site<Name>) noexcept {
    return step_runs(site_detail::SiteRecord<Name, site_detail::SiteUse::step>::info);
  }
  template <FixedString Name>
  static bool verifies(Site<Name>) noexcept {
    return step_runs(site_detail::SiteRecord<Name, site_detail::SiteUse::check>::info);
  }
  static constexpr bool kAsserts = true;
  // Within its scope there are no steps and no reported accesses.
  class Unobserved {
   public:
    Unobserved() noexcept
        : step_hook_(std::exchange(step_hook, nullptr)),
          access_hook_(std::exchange(access_hook, nullptr)) {}
    ~Unobserved() {
      step_hook = step_hook_;
      access_hook = access_hook_;
    }
    Unobserved(const Unobserved&) = delete;
    Unobserved& operator=(const Unobserved&) = delete;

   private:
    void (*step_hook_)(StepKind kind, const char* site);
    void (*access_hook_)(const void* p, std::size_t n);
  };
  // Does nothing while a mutant or latches_stuck is set, because the effects of a mutant must be
  // noticed. `planted` is the exception.
  static void violated(const Assertion& assertion) noexcept;
  static inline bool planted = false;
  bool persisted(const void* p, std::size_t n) const noexcept {
    return !durable_ || memory_.mode() == SimMode::frozen || memory_.guaranteed(p, n);
  }
  bool durable() const noexcept { return durable_; }
  bool poisoned() const noexcept { return poisoned_; }
  Status failure() const noexcept { return StatusCode::poisoned; }
  void poison() noexcept { poisoned_ = true; }
  void watch_stores(StoreWatch* watch) noexcept { watch_ = watch; }

  // --- DRAM side ---
  static std::uint64_t match_line(const std::uint8_t* line, std::uint8_t byte) noexcept {
    step(StepKind::read);
    access(line, kLine);
    std::uint64_t mask = 0;
    for (std::uint64_t i = 0; i < kLine; ++i) mask |= std::uint64_t{line[i] == byte} << i;
    return mask;
  }
  static std::uint32_t match_words(const std::uint64_t* line, std::uint32_t n,
                                   std::uint16_t tag) noexcept {
    std::uint32_t mask = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      step(StepKind::read);
      access(line + i, sizeof(line[i]));
      mask |= std::uint32_t{line[i] >> 48 == tag} << i;
    }
    return mask;
  }
  static std::uint8_t load_byte(const std::uint8_t& byte) noexcept {
    step(StepKind::read);
    return byte;
  }
  static void store_byte(std::uint8_t& byte, std::uint8_t value) noexcept {
    step(StepKind::write);
    byte = value;
  }
  static void light_fence() noexcept {}  // one thread runs at a time: every store is visible
  static bool heavy_fence() noexcept { return true; }
  static bool full_light_fences() noexcept { return false; }
  static constexpr unsigned kPatience = 0;  // the code after the wait is the part under test
  static std::uint32_t thread_slot() noexcept { return world_.thread; }
  static bool is_living(std::uint32_t /*slot*/) noexcept { return true; }
  static Counters& counters() noexcept { return world_.counters; }
  static void pause(unsigned) noexcept {
    step(StepKind::pause);
    if (step_hook != nullptr) return;  // the scheduler counts waits itself
    // With one thread no other thread can end a wait: this is a deadlock, or a loop in a damaged
    // structure.
    if (++world_.pauses > kMaxPauses) stuck();
  }
  static std::uint64_t now_ns() noexcept { return world_.clock_ns += 1000; }
  static std::uint64_t unix_ns() noexcept { return now_ns(); }
  static std::uint64_t random() noexcept;
  static unsigned cores() noexcept { return 2; }
  // Runs the tasks in sequence, but as different threads: one does not fence another's write-backs.
  static void parallel(std::size_t n, FunctionRef<void(std::size_t)> task) noexcept {
    const std::uint32_t self = world_.thread;
    for (std::size_t i = 0; i < n; ++i) {
      world_.thread = kFirstWorker + static_cast<std::uint32_t>(i % 8);
      task(i);
    }
    world_.thread = self;
  }

  // --- the driver's side ---
  static SimWorld& world() noexcept { return world_; }
  // The slot of background work beside a workload of one thread, which has slot 0.
  static constexpr std::uint32_t kBackgroundSlot = 1;
  static void seed(std::uint64_t seed) noexcept { world_.random_state = seed * 2 + 1; }
  // Called at every step, with the site of a flush or fence; null: no call.
  static inline void (*step_hook)(StepKind kind, const char* site) = nullptr;
  static void step(StepKind kind, const char* site = nullptr) noexcept {
    if (step_hook != nullptr) [[unlikely]]
      step_hook(kind, site);
  }
  // Called with every range that is read or written, in a pool or in DRAM; null: no call.
  static inline void (*access_hook)(const void* p, std::size_t n) = nullptr;
  static void access(const void* p, std::size_t n) noexcept {
    if (access_hook != nullptr) [[unlikely]]
      access_hook(p, n);
  }
  // A planted logical bug: acquiring a ByteLatch succeeds, but does not set it.
  static inline bool latches_stuck = false;
  // Returns the replay command, which is printed when the simulation is stuck.
  static inline const char* (*describe_context)() = nullptr;

 private:
  static constexpr std::uint32_t kFirstWorker = 32;
  static constexpr std::uint64_t kMaxPauses = 1'000'000;
  // Within its scope the store of a tracked pool takes place. A watch has stored before, because
  // stores do not nest.
  class Tracked {
   public:
    Tracked(SimPlatform& platform, const void* p, std::size_t n) noexcept
        : platform_(platform), tracker_(platform.tracker_), p_(p), n_(n) {
      if (tracker_ == nullptr) return;
      platform_.before_store();
      slot_ = &tracker_->begin(p, n);
    }
    ~Tracked() {
      if (tracker_ != nullptr) tracker_->end(*slot_, p_, n_);
    }
    void before_store() const noexcept {
      if (tracker_ == nullptr) platform_.before_store();
    }
    Tracked(const Tracked&) = delete;
    Tracked& operator=(const Tracked&) = delete;

   private:
    SimPlatform& platform_;
    StoreTracker<SimPlatform>* tracker_;
    StoreTracker<SimPlatform>::Slot* slot_ = nullptr;
    const void* p_;
    std::size_t n_;
  };
  template <class F>
  void in_pieces(void* dst, std::size_t n, F&& write) noexcept {
    if (tracker_ == nullptr) {
      step(StepKind::store);
      before_store();
      return write(0, n);
    }
    before_store();
    tracker_->in_pieces(dst, n, [&](std::size_t at, std::size_t piece) {
      step(StepKind::store);
      write(at, piece);
    });
  }
  void before_store() noexcept {
    if (watch_ != nullptr) watch_->before_store();
  }
  [[noreturn]] static void stuck() noexcept;
  void sync_range(const void* p, std::size_t n, SiteInfo& site) noexcept;

  static inline constinit SimWorld world_{};
  SimMemory& memory_;
  bool durable_ = true;
  bool poisoned_ = false;
  StoreWatch* watch_ = nullptr;
  StoreTracker<SimPlatform>* tracker_;
};

static_assert(Platform<SimPlatform>);

// A pool's file in memory.
class SimStorage : public Storage {
 public:
  explicit SimStorage(SimMemory& memory) : memory_(memory) {}

  std::byte* base() const noexcept override { return memory_.base(); }
  std::uint64_t size() const noexcept override { return memory_.size(); }
  std::uint64_t capacity() const noexcept override { return memory_.capacity(); }
  Status allocate(std::uint64_t offset, std::uint64_t length) noexcept override {
    return memory_.allocate(offset, length);
  }
  Status punch(std::uint64_t offset, std::uint64_t length) noexcept override {
    return memory_.punch(offset, length);
  }
  Status sync(std::uint64_t offset, std::uint64_t length) noexcept override;
  // As FileStorage::publish(): on a page medium a new file gets its name durably once it is a pool.
  Status publish() noexcept;

 private:
  SimMemory& memory_;
};

// Restores clock, random state and thread at the end of a scope.
class ScopedWorld {
 public:
  ScopedWorld() : saved_(SimPlatform::world()) {}
  ~ScopedWorld() { SimPlatform::world() = saved_; }
  ScopedWorld(const ScopedWorld&) = delete;
  ScopedWorld& operator=(const ScopedWorld&) = delete;

 private:
  SimWorld saved_;
};

}  // namespace perdure::testing
