#include "platform/real_platform.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <new>

#include "platform/shared_call.h"
#include "platform/store_tracker.h"

namespace perdure {

namespace detail {

thread_local constinit ThreadState thread_state;

namespace {

// A bitmap of the slots of live threads. Slots are dense and are reused when a thread ends.
std::atomic<std::uint64_t> slot_words[kMaxThreadSlots / 64];
std::atomic<std::int32_t> slot_threads[kMaxThreadSlots];  // that have had them last

// Frees the slot when the thread ends. Constructed only on a thread's first use of the library.
struct SlotReleaser {
  ~SlotReleaser() {
    const std::uint32_t slot = thread_state.slot;
    if (slot == ~0U) return;
    RealPlatform::write_back_noted();
    thread_state.slot = ~0U;
    thread_state.own = {};
    slot_words[slot / 64].fetch_and(~(1ULL << (slot % 64)), std::memory_order_release);
  }
};

}  // namespace

std::uint64_t next_number() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

std::uint32_t acquire_thread_slot() noexcept {
  for (unsigned round = 0;; ++round) {
    for (std::uint32_t w = 0; w < kMaxThreadSlots / 64; ++w) {
      std::uint64_t word = slot_words[w].load(std::memory_order_relaxed);
      while (~word != 0) {
        const auto bit = static_cast<std::uint32_t>(__builtin_ctzll(~word));
        if (slot_words[w].compare_exchange_weak(word, word | (1ULL << bit),
                                                std::memory_order_acquire)) {
          thread_state.slot = w * 64 + bit;
          slot_threads[thread_state.slot].store(::gettid(), std::memory_order_relaxed);
          static thread_local SlotReleaser releaser;
          asm volatile("" ::"r"(&releaser));  // an odr-use, which registers the destructor
          return thread_state.slot;
        }
      }
    }
    RealPlatform::pause(round);  // more threads than slots: waits until one ends
  }
}

}  // namespace detail

bool RealPlatform::is_living(std::uint32_t slot) noexcept {
  const std::uint64_t word = detail::slot_words[slot / 64].load(std::memory_order_relaxed);
  return (word >> (slot % 64) & 1) != 0;
}

std::int32_t RealPlatform::thread_of(std::uint32_t slot) noexcept {
  return detail::slot_threads[slot].load(std::memory_order_relaxed);
}

namespace {

// machine::ticks() per nanosecond, measured once over 2 ms.
double ticks_per_ns() noexcept {
  static const double value = [] {
    const std::uint64_t ns = RealPlatform::now_ns();
    const std::uint64_t ticks = machine::ticks();
    while (RealPlatform::now_ns() - ns < 2'000'000) {
    }
    return static_cast<double>(machine::ticks() - ticks) /
           static_cast<double>(RealPlatform::now_ns() - ns);
  }();
  return value;
}

}  // namespace

const bool RealPlatform::kAsymmetric =
    ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;

void RealPlatform::violated(const Assertion& assertion) noexcept {
  if (!ends_at_violation.load(std::memory_order_relaxed)) return;
  std::fprintf(stderr, "perdure: %s does not hold: %s (%s:%d)\n", assertion.id, assertion.condition,
               assertion.file, assertion.line);
  std::abort();
}

namespace {

// For SharedCall.
struct Membarrier {
  template <class T>
  using Atomic = machine::Atomic<T>;
  static void full_fence() noexcept { std::atomic_thread_fence(std::memory_order_seq_cst); }
  static bool call() noexcept {
    return ::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
  }
  // Does not give the core away: a thread that gets it may keep it for milliseconds.
  class Wait {
   public:
    bool over() noexcept {
      for (int i = 0; i < 16; ++i) machine::relax();
      return RealPlatform::now_ns() - begin_ >= kMostNs;
    }

   private:
    static constexpr std::uint64_t kMostNs = 50'000;  // a call beside running threads takes 3 to 40
    std::uint64_t begin_ = RealPlatform::now_ns();
  };
};
// Of the process, as the call is.
constinit SharedCall<Membarrier> membarrier;

}  // namespace

bool RealPlatform::heavy_fence() noexcept {
  if (kAsymmetric) [[likely]]
    return membarrier.run();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return false;
}

std::uint64_t RealPlatform::heavy_fence_calls() noexcept { return membarrier.calls(); }

void RealPlatform::configure(FlushMode mode, FlushInstruction instruction,
                             std::uint32_t write_latency_ns) noexcept {
  if (mode == FlushMode::page && id_ == 0) enter_page_pools();
  mode_ = mode;
  instruction_ = instruction;
  latency_ticks_ =
      write_latency_ns == 0 ? 0 : static_cast<std::uint64_t>(write_latency_ns * ticks_per_ns());
}

void RealPlatform::mark_poisoned(const char* why) noexcept {
  if (why != nullptr && !why_taken_.exchange(true, std::memory_order_relaxed)) {
    std::snprintf(why_text_, sizeof(why_text_), "%s", why);
    why_.store(why_text_, std::memory_order_release);
  }
  state_.poisoned.store(true, std::memory_order_relaxed);
}

// Returns why the pool is poisoned, and logs it the first time.
const char* RealPlatform::tell_failure() const noexcept {
  const char* why = why_.load(std::memory_order_acquire);
  if (lost()) {
    why = why_lost_;
  } else if (why == nullptr) {
    why =
        "a write-back failed or the file became shorter, and nothing is acknowledged any more; "
        "close the pool, check the disk and the kernel's log; in mode `power` then open it "
        "again, in another mode treat it as damaged and restore a copy";
  }
  if (!told_.exchange(true, std::memory_order_relaxed)) log_->say(LogLevel::error, "%s", why);
  return why;
}

Status RealPlatform::failure() const noexcept {
  return Status::format(StatusCode::poisoned, "%s: %s", name_, tell_failure());
}

void RealPlatform::spin_ticks(std::uint64_t ticks) noexcept {
  const std::uint64_t end = machine::ticks() + ticks;
  while (machine::ticks() < end) machine::relax();
}

// A thread notes the pages of one pool at a time. Before a fence it may continue with another pool,
// or end. Meanwhile another thread may close the first pool. Then its object and its mapping are
// gone, or others have taken their places. So every pool has an id, and a thread that finds pages
// of another id looks it up here.
struct RealPlatform::PagePools {
  Latch latch;  // held during a write-back of pages, so that the mapping stays
  RealPlatform* first = nullptr;
  std::uint64_t last_id = 0;
};
constinit RealPlatform::PagePools RealPlatform::page_pools;

void RealPlatform::store_tracked(std::uint64_t& word, std::uint64_t value) noexcept {
  auto& slot = tracker_->begin(&word, sizeof(word));
  std::atomic_ref(word).store(value, std::memory_order_release);
  tracker_->end(slot, &word, sizeof(word));
}

bool RealPlatform::exchange_tracked(std::uint64_t& word, std::uint64_t& expected,
                                    std::uint64_t desired) noexcept {
  auto& slot = tracker_->begin(&word, sizeof(word));
  const bool same = machine::exchange_word(word, expected, desired);
  tracker_->end(slot, &word, sizeof(word));
  return same;
}

void RealPlatform::copy_tracked(void* dst, const void* src, std::size_t n) noexcept {
  tracker_->in_pieces(dst, n, [&](std::size_t at, std::size_t piece) {
    std::memcpy(static_cast<std::byte*>(dst) + at, static_cast<const std::byte*>(src) + at, piece);
  });
}

void RealPlatform::zero_tracked(void* dst, std::size_t n) noexcept {
  tracker_->in_pieces(dst, n, [&](std::size_t at, std::size_t piece) {
    std::memset(static_cast<std::byte*>(dst) + at, 0, piece);
  });
}

void RealPlatform::enter_page_pools() noexcept {
  // A child of fork owns no pool, and no thread of it could release the latch.
  static const int once = pthread_atfork(nullptr, nullptr, [] {
    detail::thread_state.page_count = 0;
    page_pools.first = nullptr;
    page_pools.latch.unlock();
  });
  (void)once;
  const LatchGuard guard(page_pools.latch);
  id_ = ++page_pools.last_id;
  next_page_pool_ = page_pools.first;
  page_pools.first = this;
}

void RealPlatform::leave_mapping() noexcept {
  ignore_bus_errors_of(state_);
  if (id_ == 0) return;
  const LatchGuard guard(page_pools.latch);
  RealPlatform** link = &page_pools.first;
  while (*link != nullptr && *link != this) link = &(*link)->next_page_pool_;
  if (*link != nullptr) *link = next_page_pool_;
}

void RealPlatform::write_back_noted() noexcept {
  auto& state = detail::thread_state;
  if (state.page_count == 0) return;
  const LatchGuard guard(page_pools.latch);
  RealPlatform* pool = page_pools.first;
  while (pool != nullptr && pool->id_ != state.pages_of) pool = pool->next_page_pool_;
  if (pool != nullptr) pool->msync_pending();
  state.page_count = 0;
}

void RealPlatform::write_back_slow(std::uintptr_t line, std::uintptr_t end) noexcept {
  if (mode_ != FlushMode::page) return;  // eADR: the caches are durable
  auto& state = detail::thread_state;
  if (state.pages_of != id_) write_back_noted();
  state.pages_of = id_;
  for (std::uintptr_t page = line & ~(kPage - 1); page < end; page += kPage) {
    bool known = false;
    for (std::uint32_t i = 0; i < state.page_count; ++i) known |= state.pages[i] == page;
    if (known) continue;
    ++state.counters.flushes;
    if (state.page_count == detail::ThreadState::kMaxPages) msync_pending();
    state.pages[state.page_count++] = page;
  }
}

void RealPlatform::msync_pending() noexcept {
  auto& state = detail::thread_state;
  for (std::uint32_t i = 0; i < state.page_count; ++i) {
    if (msync(reinterpret_cast<void*>(state.pages[i]), kPage, MS_SYNC) != 0) poison();
  }
  state.page_count = 0;
}

bool RealPlatform::sync_range(const void* p, std::size_t n) noexcept {
  if (tracker_ != nullptr) return !poisoned();  // a cut makes it durable
  const auto begin = reinterpret_cast<std::uintptr_t>(p) & ~(kPage - 1);
  const auto end = reinterpret_cast<std::uintptr_t>(p) + n;
  if (msync(reinterpret_cast<void*>(begin), end - begin, MS_SYNC) != 0) poison();
  return !poisoned();
}

void RealPlatform::pause(unsigned spins) noexcept {
  if (spins % 64 == 63) {
    sched_yield();  // the holder may have been preempted
  } else {
    machine::relax();
  }
}

namespace {

std::uint64_t read_clock(clockid_t clock) noexcept {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

std::uint64_t RealPlatform::now_ns() noexcept { return read_clock(CLOCK_MONOTONIC); }
std::uint64_t RealPlatform::unix_ns() noexcept { return read_clock(CLOCK_REALTIME); }

std::uint64_t RealPlatform::random() noexcept {
  std::uint64_t value = 0;
  if (getrandom(&value, sizeof(value), 0) != sizeof(value)) value = now_ns() ^ machine::ticks();
  return value;
}

unsigned RealPlatform::cores() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  const int count = CPU_COUNT(&set);
  return count < 1 ? 1U : static_cast<unsigned>(count);
}

namespace {

struct ParallelWork {
  FunctionRef<void(std::size_t)> task;
  std::atomic<std::size_t> next{0};
  std::size_t count;
};

void* parallel_worker(void* argument) {
  auto& work = *static_cast<ParallelWork*>(argument);
  for (;;) {
    const std::size_t i = work.next.fetch_add(1, std::memory_order_relaxed);
    if (i >= work.count) return nullptr;
    work.task(i);
  }
}

}  // namespace

void RealPlatform::parallel(std::size_t n, FunctionRef<void(std::size_t)> task) noexcept {
  constexpr std::size_t kMaxWorkers = 64;
  ParallelWork work{.task = task, .count = n};
  pthread_t threads[kMaxWorkers];
  std::size_t started = 0;
  while (started + 1 < n && started < kMaxWorkers &&
         pthread_create(&threads[started], nullptr, parallel_worker, &work) == 0) {
    ++started;
  }
  parallel_worker(&work);
  for (std::size_t i = 0; i < started; ++i) pthread_join(threads[i], nullptr);
}

struct BackgroundThread::Body {
  FunctionRef<void()> run;
};

bool BackgroundThread::start(FunctionRef<void()> run) noexcept {
  body_ = new (std::nothrow) Body{run};
  if (body_ == nullptr) return false;
  const auto entry = [](void* body) -> void* {
    static_cast<Body*>(body)->run();
    return nullptr;
  };
  // The application's handlers must not run on this thread. Signals that the thread itself raises
  // must reach them.
  sigset_t all{};
  sigset_t before{};
  sigfillset(&all);
  for (const int own : {SIGBUS, SIGSEGV, SIGFPE, SIGILL}) sigdelset(&all, own);
  const bool masked = pthread_sigmask(SIG_SETMASK, &all, &before) == 0;
  const bool started = pthread_create(&thread_, nullptr, entry, body_) == 0;
  if (masked) pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (started) return true;
  delete body_;
  body_ = nullptr;
  return false;
}

void BackgroundThread::join() noexcept {
  if (body_ == nullptr) return;
  pthread_join(thread_, nullptr);
  delete body_;
  body_ = nullptr;
}

}  // namespace perdure
