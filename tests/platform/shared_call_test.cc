// test: tsan
// Threads that share calls of membarrier(2): how many calls there are, and a caller that is stopped
// in the middle of one. The memory order is tested in relacy/kernels_test.
#include "platform/shared_call.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "platform/real_platform.h"

namespace perdure {
namespace {

// A call that a test holds up. Static, as SharedCall has no state but its numbers.
struct Held {
  template <class T>
  using Atomic = std::atomic<T>;
  static inline std::atomic<int> waiting;  // threads that have noted and wait
  static inline std::atomic<int> calls;
  static inline std::function<bool(int)> during;  // by the number of the call, from 1
  static inline int patience;                     // turns of a wait; 0: endless

  static void full_fence() noexcept { std::atomic_thread_fence(std::memory_order_seq_cst); }
  static bool call() noexcept { return during(++calls); }
  class Wait {
   public:
    Wait() { ++waiting; }
    ~Wait() { --waiting; }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;
    bool over() {
      std::this_thread::yield();
      return patience != 0 && ++turns_ >= patience;
    }

   private:
    int turns_ = 0;
  };
};

void until(const std::function<bool()>& condition) {
  while (!condition()) std::this_thread::yield();
}

class SharedCalls : public ::testing::Test {
 protected:
  SharedCalls() {
    Held::waiting = 0;
    Held::calls = 0;
    Held::patience = 0;
    Held::during = [](int) { return true; };
  }
  ~SharedCalls() override {
    for (std::thread& thread : threads_) thread.join();
  }
  void start(int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] {
        succeeded_ += shared_.run() ? 1 : 0;
        ++returned_;
      });
    }
  }
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  SharedCall<Held> shared_;
  std::vector<std::thread> threads_;
  std::atomic<int> succeeded_{0};
  std::atomic<int> returned_{0};
};

TEST_F(SharedCalls, AThreadAloneCallsEachTime) {
  for (int i = 1; i <= 10; ++i) {
    EXPECT_TRUE(shared_.run());
    EXPECT_EQ(Held::calls, i);
  }
}

// The call under way is too old for those that come during it. They share the next one.
TEST_F(SharedCalls, AllThatComeDuringACallShareTheNextOne) {
  constexpr int kThreads = 16;
  constexpr int kRounds = 5;
  for (int round = 0; round < kRounds; ++round) {
    Held::calls = 0;
    succeeded_ = returned_ = 0;
    std::atomic<bool> go{false};
    Held::during = [&](int number) {
      until([&] { return number == 1 ? go.load() : returned_ == 1; });
      return true;
    };
    start(1);
    until([] { return Held::calls == 1; });
    start(kThreads - 1);
    until([] { return Held::waiting == kThreads - 1; });
    EXPECT_EQ(returned_, 0);
    // Only the first thread returns with the first call: the second one waits for it, and would
    // wait for ever if it were not the only one.
    go = true;
    join();
    EXPECT_EQ(Held::calls, 2);
    EXPECT_EQ(succeeded_, kThreads);
  }
}

// The thread that calls is stopped. Others wait for a while, and one call of theirs makes them all
// independent of it.
TEST_F(SharedCalls, ACallerThatIsStoppedHoldsUpNoOther) {
  constexpr int kThreads = 8;
  std::atomic<bool> go{false};
  Held::patience = 100;
  Held::during = [&](int number) {
    until([&] { return number != 1 || go; });
    return true;
  };
  start(1);
  until([] { return Held::calls == 1; });
  start(kThreads);
  until([&] { return returned_ == kThreads; });
  EXPECT_EQ(succeeded_, kThreads);

  // From now on no thread waits for the stopped one.
  Held::patience = 0;
  const int before = Held::calls;
  for (int i = 1; i <= 10; ++i) {
    EXPECT_TRUE(shared_.run());
    EXPECT_EQ(Held::calls, before + i);
  }
  // Its late end does not lead back to an older number.
  go = true;
  join();
  EXPECT_EQ(succeeded_, kThreads + 1);
  EXPECT_TRUE(shared_.run());
  EXPECT_EQ(Held::calls, before + 11);
}

// No thread takes a call that failed for one that was made.
TEST_F(SharedCalls, ARefusedCallIsOfNoUseToOthers) {
  constexpr int kThreads = 8;
  std::atomic<bool> go{false};
  Held::patience = 100;
  Held::during = [&](int) {
    until([&] { return go.load(); });
    return false;
  };
  start(1);
  until([] { return Held::calls == 1; });
  start(kThreads - 1);
  until([] { return Held::waiting + Held::calls == kThreads; });
  go = true;
  join();
  EXPECT_EQ(succeeded_, 0);
  EXPECT_EQ(Held::calls, kThreads);
}

// The call of the system. Two threads that run at the same time may share a call, or make one each.
TEST(HeavyFences, EachSucceedsWithAtMostOneCall) {
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kEach = 2'000;
  if (RealPlatform::full_light_fences()) GTEST_SKIP() << "the system has no membarrier(2)";
  const std::uint64_t before = RealPlatform::heavy_fence_calls();
  EXPECT_TRUE(RealPlatform::heavy_fence());
  EXPECT_EQ(RealPlatform::heavy_fence_calls(), before + 1);
  std::atomic<std::uint64_t> made{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < kEach; ++i) made += RealPlatform::heavy_fence() ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, kThreads * kEach);
}

}  // namespace
}  // namespace perdure
