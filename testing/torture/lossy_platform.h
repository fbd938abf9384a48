// LossyPlatform: power loss at full speed, with real threads and real kills.
//
// WHAT  A plain SIGKILL cannot show a missing write-back, because stores outlive the process. Here
//   the pool is mapped MAP_PRIVATE. A second, shared map of the same file, the medium, receives a
//   line only when it is written back: at a flush or at the fence after it, at random, or by an
//   evictor thread at any time. After a SIGKILL the file holds what would have survived a power
//   failure.
// HOW   A line is copied under its latch. Every store to the line acquires it too, so that the
//   medium receives a prefix of the line's stores. A kill in the middle of a copy would tear it.
//   Therefore each copy is first noted in a journal in memory shared with the parent, and finished
//   from there.
// LIMITS  The file's size and holes take effect at once. Bulk copies reach the medium line by line.
//
// Thread safety: as RealPlatform. Set mutants (testing/sim/sites.h) before the pool is opened.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "platform/platform.h"
#include "platform/real_platform.h"
#include "platform/storage.h"
#include "testing/sim/sites.h"

namespace perdure::testing {

// Line copies in flight, in memory that outlives the process.
struct LossyJournal {
  static constexpr std::uint32_t kSlots = 256;  // by thread slot
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> offset;  // + 1; 0: nothing in flight
    std::uint64_t words[8];
  };
  Slot slots[kSlots];

  static LossyJournal* make();  // shared with children; never freed
  void clear();
};

// The file, mapped twice.
class LossyStorage : public Storage {
 public:
  LossyStorage() = default;
  ~LossyStorage() override;
  LossyStorage(const LossyStorage&) = delete;
  LossyStorage& operator=(const LossyStorage&) = delete;

  // Opens or makes the file, and finishes the copies that a dead process left in the journal.
  // `lossless`: one shared map; a kill then loses nothing, as without a power failure.
  Status open(const std::string& path, std::uint64_t capacity, LossyJournal* journal,
              bool lossless = false);

  std::byte* base() const noexcept override { return visible_; }
  std::uint64_t size() const noexcept override { return size_.load(std::memory_order_acquire); }
  std::uint64_t capacity() const noexcept override { return capacity_; }
  Status allocate(std::uint64_t offset, std::uint64_t length) noexcept override;
  Status punch(std::uint64_t offset, std::uint64_t length) noexcept override;
  Status sync(std::uint64_t offset, std::uint64_t length) noexcept override;

  // Copies one whole line to the medium.
  void write_back(std::uint64_t line) noexcept;
  std::atomic_flag& latch_of(std::uint64_t line) noexcept { return latches_[line % kLatches]; }
  void lock(std::uint64_t line) noexcept {
    for (unsigned spins = 0; latch_of(line).test_and_set(std::memory_order_acquire);) {
      RealPlatform::pause(spins++);
    }
  }
  void unlock(std::uint64_t line) noexcept { latch_of(line).clear(std::memory_order_release); }
  std::uint64_t line_of(const void* p) const noexcept {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(p) - visible_) / kLine;
  }

 private:
  static constexpr std::size_t kLatches = 1 << 14;
  int fd_ = -1;
  std::byte* visible_ = nullptr;
  std::byte* medium_ = nullptr;
  std::uint64_t capacity_ = 0;
  std::atomic<std::uint64_t> size_{0};
  LossyJournal* journal_ = nullptr;
  std::unique_ptr<std::atomic_flag[]> latches_;
};

class LossyPlatform {
 public:
  template <class T>
  using Atomic = std::atomic<T>;
  using Latch = RealPlatform::Latch;
  using ByteLatches = RealPlatform::ByteLatches;
  using Thread = RealPlatform::Thread;

  LossyPlatform(LossyStorage& storage, std::uint64_t seed);
  ~LossyPlatform();
  LossyPlatform(const LossyPlatform&) = delete;
  LossyPlatform& operator=(const LossyPlatform&) = delete;

  std::uint64_t load(const std::uint64_t& word) const noexcept {
    return std::atomic_ref(const_cast<std::uint64_t&>(word)).load(std::memory_order_acquire);
  }
  std::uint64_t peek(const std::uint64_t& word) const noexcept { return load(word); }
  void store(std::uint64_t& word, std::uint64_t value) noexcept {
    const std::uint64_t line = begin_store(&word);
    std::atomic_ref(word).store(value, std::memory_order_release);
    storage_.unlock(line);
  }
  bool compare_exchange(std::uint64_t& word, std::uint64_t& expected,
                        std::uint64_t desired) noexcept {
    const std::uint64_t line = begin_store(&word);
    const bool done =
        std::atomic_ref(word).compare_exchange_strong(expected, desired, std::memory_order_acq_rel);
    storage_.unlock(line);
    return done;
  }
  void copy(void* dst, const void* src, std::size_t n) noexcept;
  void zero(void* dst, std::size_t n) noexcept;

  template <FixedString Name>
  void flush(const void* p, std::size_t n, Site<Name>) noexcept {
    start_flush(p, n, site_detail::SiteRecord<Name, site_detail::SiteUse::flush>::info);
  }
  template <class T, FixedString Name>
  void flush(T* const* p, std::size_t n, Site<Name>) = delete;
  template <FixedString Name>
  bool fence(Site<Name>) noexcept {
    finish_flushes(site_detail::SiteRecord<Name, site_detail::SiteUse::fence>::info);
    return true;
  }
  template <FixedString Name>
  bool sync(const void* p, std::size_t n, Site<Name>) noexcept {
    sync_range(p, n, site_detail::SiteRecord<Name, site_detail::SiteUse::sync>::info);
    return true;
  }
  // Before about every n-th write-back or fence the thread sleeps for up to 1 ms; 0: never. Other
  // threads then meet its stores before they are durable. Call it before other threads start.
  void stall_one_in(std::uint32_t n) noexcept { stall_one_in_ = n; }
  // Corresponds to FlushMode::none of RealPlatform. Call it before other threads start.
  void set_durable(bool durable) noexcept { durable_ = durable; }
  template <FixedString Name>
  static bool runs(Site<Name>) noexcept {
    return step_runs(site_detail::SiteRecord<Name, site_detail::SiteUse::step>::info);
  }
  template <FixedString Name>
  static bool verifies(Site<Name>) noexcept {
    return step_runs(site_detail::SiteRecord<Name, site_detail::SiteUse::check>::info);
  }
  static constexpr bool kAsserts = true;
  using Unobserved = RealPlatform::Unobserved;
  static bool persisted(const void*, std::size_t) noexcept { return true; }
  [[gnu::cold]] static void violated(const Assertion& assertion) noexcept {
    RealPlatform::violated(assertion);
  }
  bool durable() const noexcept { return durable_; }
  bool poisoned() const noexcept { return false; }
  Status failure() const noexcept { return StatusCode::poisoned; }
  void poison() noexcept {}
  void watch_stores(StoreWatch* watch) noexcept { watch_.store(watch); }

  static std::uint64_t match_line(const std::uint8_t* line, std::uint8_t byte) noexcept {
    return RealPlatform::match_line(line, byte);
  }
  static std::uint32_t match_words(const std::uint64_t* line, std::uint32_t n,
                                   std::uint16_t tag) noexcept {
    return RealPlatform::match_words(line, n, tag);
  }
  static std::uint8_t load_byte(const std::uint8_t& byte) noexcept {
    return RealPlatform::load_byte(byte);
  }
  static void store_byte(std::uint8_t& byte, std::uint8_t value) noexcept {
    RealPlatform::store_byte(byte, value);
  }
  static void light_fence() noexcept { RealPlatform::light_fence(); }
  static bool heavy_fence() noexcept { return RealPlatform::heavy_fence(); }
  static constexpr unsigned kPatience = 0;
  static bool full_light_fences() noexcept { return RealPlatform::full_light_fences(); }
  static std::uint32_t thread_slot() noexcept { return RealPlatform::thread_slot(); }
  static bool is_living(std::uint32_t slot) noexcept { return RealPlatform::is_living(slot); }
  static Counters& counters() noexcept { return RealPlatform::counters(); }
  static void pause(unsigned spins) noexcept { RealPlatform::pause(spins); }
  static std::uint64_t now_ns() noexcept { return RealPlatform::now_ns(); }
  static std::uint64_t random() noexcept { return RealPlatform::random(); }
  static unsigned cores() noexcept { return RealPlatform::cores(); }
  static void parallel(std::size_t n, FunctionRef<void(std::size_t)> task) noexcept {
    RealPlatform::parallel(n, task);
  }
  static void park(const std::atomic<std::uint32_t>& word, std::uint32_t seen) noexcept {
    RealPlatform::park(word, seen);
  }
  static void unpark(std::atomic<std::uint32_t>& word) noexcept { RealPlatform::unpark(word); }

 private:
  static constexpr std::size_t kRecent = 256;

  // Latches the line and announces it to the evictor.
  std::uint64_t begin_store(const void* p) noexcept {
    if (StoreWatch* watch = watch_.load(std::memory_order_acquire)) watch->before_store();
    const std::uint64_t line = storage_.line_of(p);
    recent_[recent_next_.fetch_add(1, std::memory_order_relaxed) % kRecent].store(
        line, std::memory_order_relaxed);
    storage_.lock(line);
    return line;
  }
  void start_flush(const void* p, std::size_t n, SiteInfo& site) noexcept;
  void finish_flushes(SiteInfo& site) noexcept;
  void sync_range(const void* p, std::size_t n, SiteInfo& site) noexcept;
  void evict() noexcept;
  void stall() noexcept;

  LossyStorage& storage_;
  std::uint64_t seed_;
  std::uint32_t stall_one_in_ = 0;
  bool durable_ = true;
  std::atomic<std::uint64_t> recent_next_{0};
  std::atomic<std::uint64_t> recent_[kRecent] = {};
  std::atomic<bool> stop_{false};
  std::atomic<StoreWatch*> watch_{nullptr};
  std::thread evictor_;
};

static_assert(Platform<LossyPlatform>);

}  // namespace perdure::testing
