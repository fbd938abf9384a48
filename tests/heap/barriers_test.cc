// How often the epoch domain and the heap call for a barrier (membarrier(2)), which interrupts each
// core that runs a thread of the process.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "platform/real_platform.h"
#include "reclaim/epoch.h"

namespace perdure {
namespace {

// A thread that is pinned, idle, and has something in limbo.
class LaggingReader {
 public:
  template <class P>
  explicit LaggingReader(EpochDomain<P>& epochs) {
    thread_ = std::thread([&] {
      static constexpr Reclaimer kNothing{nullptr, [](void*, std::uint64_t) {}};
      const EpochGuard<P> guard(epochs);
      for (int i = 0; i < 100; ++i) epochs.retire(kNothing, nullptr, 1);
      pinned_ = true;
      while (!leave_) std::this_thread::yield();
    });
    while (!pinned_) std::this_thread::yield();
  }
  ~LaggingReader() {
    leave_ = true;
    thread_.join();
  }
  LaggingReader(const LaggingReader&) = delete;
  LaggingReader& operator=(const LaggingReader&) = delete;

 private:
  std::atomic<bool> pinned_{false};
  std::atomic<bool> leave_{false};
  std::thread thread_;
};

// While a reader prevents every advance, no barrier can help: neither for an advance, nor to take
// what the reader has retired.
TEST(Epochs, NoBarrierIsWastedOnALaggingReader) {
  using Domain = EpochDomain<RealPlatform>;
  if (RealPlatform::full_light_fences()) GTEST_SKIP() << "the system has no membarrier(2)";
  static constexpr Reclaimer kNothing{nullptr, [](void*, std::uint64_t) {}};
  RealPlatform platform;
  Domain epochs(platform);
  const LaggingReader reader(epochs);
  epochs.drain_all();  // takes the epoch as far as the reader lets it
  std::uint64_t calls = RealPlatform::heavy_fence_calls();
  for (int i = 0; i < 50'000; ++i) {
    const EpochGuard<RealPlatform> guard(epochs);
    epochs.retire(kNothing, nullptr, 1);
  }
  EXPECT_EQ(RealPlatform::heavy_fence_calls(), calls);
  epochs.drain_for_room();  // tries for kBriefPatienceNs
  EXPECT_EQ(RealPlatform::heavy_fence_calls(), calls);
}

// Counts the loads of slots by which an advance begins.
struct CountsLoads : RealPlatform {
  static inline std::uint64_t loads;
  template <class T>
  struct Atomic : RealPlatform::Atomic<T> {
    using RealPlatform::Atomic<T>::Atomic;
    T load(std::memory_order order = std::memory_order_seq_cst) const noexcept {
      loads += order == std::memory_order_seq_cst ? 1 : 0;
      return RealPlatform::Atomic<T>::load(order);
    }
  };
};

TEST(Epochs, AnAdvanceThatAReaderPreventsIsTriedLessOften) {
  using Domain = EpochDomain<CountsLoads>;
  static constexpr Reclaimer kNothing{nullptr, [](void*, std::uint64_t) {}};
  constexpr std::uint64_t kRetired = 50'000;
  CountsLoads platform;
  Domain epochs(platform);
  const auto retire = [&](std::uint64_t n) {
    for (; n > 0; --n) {
      const EpochGuard<CountsLoads> guard(epochs);
      epochs.retire(kNothing, nullptr, 1);
    }
  };
  retire(1);
  std::uint64_t epoch = 0;
  {
    const LaggingReader reader(epochs);
    epochs.drain_all();
    epoch = epochs.epoch();
    CountsLoads::loads = 0;
    retire(kRetired);
    // A retirement loads the epoch. Each attempt to advance loads it too, and one or two slots.
    const std::uint64_t by_attempts = CountsLoads::loads - kRetired;
    EXPECT_LE(by_attempts, (kRetired / Domain::kAdvanceEvery + 8) * 3);
    EXPECT_GE(by_attempts, kRetired / Domain::kAdvanceEvery * 2);
    EXPECT_EQ(epochs.epoch(), epoch);
  }
  // The reader has left: it is noticed soon enough for the bound of limbo.
  retire(Domain::kAdvanceEvery);
  EXPECT_GT(epochs.epoch(), epoch);
}

}  // namespace
}  // namespace perdure
