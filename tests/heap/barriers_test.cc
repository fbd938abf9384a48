// test: tsan, cross
// How often the epoch domain and the heap call for a barrier (membarrier(2)), which interrupts each
// core that runs a thread of the process.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "heap/heap.h"
#include "platform/real_platform.h"
#include "reclaim/epoch.h"
#include "tests/support/memory_heap.h"

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

// A thread that pauses keeps what it has retired for a while: it may only have lost its core.
TEST(Epochs, OnlyALongPauseHasItsLimboInherited) {
  using Domain = EpochDomain<RealPlatform>;
  if (RealPlatform::full_light_fences()) GTEST_SKIP() << "the system has no membarrier(2)";
  static constexpr Reclaimer kNothing{nullptr, [](void*, std::uint64_t) {}};
  RealPlatform platform;
  Domain epochs(platform);
  std::atomic<bool> paused{false};
  std::atomic<bool> ends{false};
  std::jthread other([&] {
    {
      const EpochGuard<RealPlatform> guard(epochs);
      for (int i = 0; i < 100; ++i) epochs.retire(kNothing, nullptr, 1);
    }
    paused = true;
    while (!ends) std::this_thread::yield();
  });
  while (!paused) std::this_thread::yield();
  const std::uint64_t calls = RealPlatform::heavy_fence_calls();
  const std::uint64_t epoch = epochs.epoch();
  const auto retire_until = [&](std::uint64_t advances) {
    while (epochs.epoch() - epoch < advances) {
      const EpochGuard<RealPlatform> guard(epochs);
      epochs.retire(kNothing, nullptr, 1);
    }
    return RealPlatform::heavy_fence_calls() - calls - advances;  // other calls
  };
  EXPECT_EQ(retire_until(Domain::kIdleEpochs - 1), 0U);
  EXPECT_EQ(retire_until(Domain::kIdleEpochs * 3), 1U);
  ends = true;
  other.join();
  EXPECT_LE(epochs.limbo_count(), (Domain::kGrace + 2) * Domain::kAdvanceEvery);
  epochs.drain_all();
  EXPECT_EQ(epochs.limbo_count(), 0U);
}

// What another thread has taken from its ring is no longer in limbo, but not yet free either. A
// thread that drains before it frees what the reclaimers use, or to find room, waits for it.
TEST(Epochs, ADrainWaitsForWhatAnotherThreadFinishes) {
  using Domain = EpochDomain<RealPlatform>;
  struct Slow {
    std::atomic<bool> began{false};
    bool ended = false;  // no atomic: ThreadSanitizer then notices if the wait orders nothing
  };
  static constexpr Reclaimer kSlow{nullptr, [](void* context, std::uint64_t) {
                                     auto& slow = *static_cast<Slow*>(context);
                                     slow.began = true;
                                     std::this_thread::sleep_for(std::chrono::milliseconds(50));
                                     slow.ended = true;
                                   }};
  RealPlatform platform;
  Domain epochs(platform);
  Slow slow;
  std::jthread other([&] {
    {
      const EpochGuard<RealPlatform> guard(epochs);
      epochs.retire(kSlow, &slow, 1);
    }
    epochs.drain_all();
  });
  while (!slow.began) std::this_thread::yield();
  EXPECT_EQ(epochs.limbo_count(), 0U);
  epochs.drain_for_room();
  EXPECT_TRUE(slow.ended);
}

// A thread that needs an extent takes none from threads that have only the one that they use.
TEST(Heap, NoBarrierIsWastedOnThreadsWithoutASpareExtent) {
  if (RealPlatform::full_light_fences()) GTEST_SKIP() << "the system has no membarrier(2)";
  constexpr int kOthers = 8;
  test::HeapFixture f(64);
  ASSERT_TRUE(f.heap->end_sweep(true).ok());
  std::atomic<int> ready{0};
  std::atomic<bool> ends{false};
  std::vector<std::jthread> others;
  for (int i = 0; i < kOthers; ++i) {
    others.emplace_back([&] {
      EXPECT_TRUE(f.heap->allocate(256, BlockKind::plain));
      ++ready;
      while (!ends) std::this_thread::yield();
    });
  }
  while (ready != kOthers) std::this_thread::yield();
  const std::uint64_t calls = RealPlatform::heavy_fence_calls();
  const std::uint64_t before = f.heap->extent_count();
  for (std::uint64_t i = 0; i < 16 * test::kExtent / 256; ++i) {
    EXPECT_TRUE(f.heap->allocate(256, BlockKind::plain));
  }
  EXPECT_GE(f.heap->extent_count(), before + 15);
  EXPECT_EQ(RealPlatform::heavy_fence_calls(), calls);
  ends = true;
}

}  // namespace
}  // namespace perdure
