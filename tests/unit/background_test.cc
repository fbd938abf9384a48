// The pool's background service: one thread, or none; units that come, rest, wake and go.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "perdure/pool.h"
#include "platform/real_platform.h"
#include "pool/background.h"
#include "store/pool_impl.h"

namespace perdure {
namespace {

// A machine that has no thread to spare.
struct NoThreads : RealPlatform {
  struct Thread {
    static bool start(FunctionRef<void()>) noexcept { return false; }
    static void join() noexcept {}
  };
};

template <class P>
class Counting final : public BackgroundWork<P> {
 public:
  explicit Counting(std::uint64_t steps) : left_(steps) {}
  bool run_some() noexcept override {
    if (inside_.exchange(true)) overlapped = true;
    last = std::this_thread::get_id();
    ++done;
    const bool more = left_ > 0 && --left_ > 0;
    inside_ = false;
    return more;
  }
  void give(std::uint64_t steps) { left_ += steps; }

  std::atomic<std::uint64_t> done{0};
  std::atomic<bool> overlapped{false};
  std::atomic<std::thread::id> last{};

 private:
  std::atomic<std::uint64_t> left_;
  std::atomic<bool> inside_{false};
};

template <class F>
bool soon(F&& what) {
  for (int i = 0; i < 5000; ++i) {
    if (what()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

std::size_t threads_of_this_process() {
  std::size_t n = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    (void)task;
    ++n;
  }
  return n;
}

TEST(Background, TheFirstUnitStartsTheThread) {
  std::thread([] {}).join();  // a sanitizer starts one of its own with the first
  const std::size_t before = threads_of_this_process();
  Background<RealPlatform> service;
  EXPECT_EQ(threads_of_this_process(), before);
  Counting<RealPlatform> work(100);
  service.add(work);
  EXPECT_TRUE(soon([&] { return work.done == 100; }));
  EXPECT_EQ(threads_of_this_process(), before + 1);
  EXPECT_NE(work.last.load(), std::this_thread::get_id());
  EXPECT_FALSE(service.driven());
  service.remove(work);
  service.stop();
  EXPECT_EQ(threads_of_this_process(), before);
}

// A wake that comes while the step before it is still running, or just before the thread sleeps,
// is not lost.
TEST(Background, NoWakeIsLost) {
  Background<RealPlatform> service;
  Counting<RealPlatform> work(1);
  service.add(work);
  for (std::uint64_t n = 1; n <= 3000; ++n) {
    ASSERT_TRUE(soon([&] { return work.done >= n; })) << n;
    work.give(1);
    service.wake(work);
  }
  service.remove(work);
  EXPECT_FALSE(work.overlapped);
}

TEST(Background, UnitsTakeTurns) {
  Background<NoThreads> service;
  Counting<NoThreads> a(1000);
  Counting<NoThreads> b(1000);
  service.add(a);
  service.add(b);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(service.run_some());
  EXPECT_EQ(a.done, 5U);
  EXPECT_EQ(b.done, 5U);
  service.remove(a);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(service.run_some());
  EXPECT_EQ(a.done, 5U);
  EXPECT_EQ(b.done, 15U);
  service.settle();
  EXPECT_EQ(b.done, 1000U);
  EXPECT_FALSE(service.run_some());
  service.remove(b);
}

TEST(Background, WithoutAThreadMutationsDoTheWork) {
  Background<NoThreads> refused;
  Counting<NoThreads> work(3);
  EXPECT_FALSE(refused.driven());
  refused.add(work);
  EXPECT_TRUE(refused.driven());
  for (int i = 0; i < 5; ++i) refused.help();
  EXPECT_EQ(work.done, 3U);
  EXPECT_EQ(work.last.load(), std::this_thread::get_id());
  refused.remove(work);

  Background<RealPlatform> unwanted;
  unwanted.set_threads(0);
  Counting<RealPlatform> other(3);
  const std::size_t before = threads_of_this_process();
  unwanted.add(other);
  EXPECT_EQ(threads_of_this_process(), before);
  for (int i = 0; i < 5; ++i) unwanted.help();
  EXPECT_EQ(other.done, 3U);
  unwanted.remove(other);
}

TEST(Background, OneStepAtATimeWhoeverRunsIt) {
  Background<RealPlatform> service;
  Counting<RealPlatform> work(200'000);
  service.add(work);
  std::vector<std::thread> helpers;
  for (int t = 0; t < 3; ++t) {
    helpers.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) (void)service.run_some();
    });
  }
  EXPECT_TRUE(service.finish(work));
  EXPECT_EQ(work.done, 200'000U);
  for (std::thread& helper : helpers) helper.join();
  EXPECT_FALSE(work.overlapped);
  service.remove(work);
}

// A step that needs its own result cannot wait for it.
TEST(Background, FinishFromWithinAStepAnswersFalse) {
  struct Impatient final : BackgroundWork<NoThreads> {
    explicit Impatient(Background<NoThreads>& s) : service(s) {}
    bool run_some() noexcept override {
      answered = !service.finish(*this);
      return false;
    }
    Background<NoThreads>& service;
    bool answered = false;
  };
  Background<NoThreads> service;
  Impatient work(service);
  service.add(work);
  EXPECT_TRUE(service.run_some());
  EXPECT_TRUE(work.answered);
  service.remove(work);
}

// A unit whose step takes until it is told to end.
class Blocking final : public BackgroundWork<RealPlatform> {
 public:
  bool run_some() noexcept override {
    inside = true;
    while (!go_on) std::this_thread::yield();
    inside = false;
    return false;
  }
  std::atomic<bool> inside{false};
  std::atomic<bool> go_on{false};
};

TEST(Background, SettleAndRemoveWaitForAStepUnderWay) {
  Background<RealPlatform> background;
  background.set_threads(1);
  Blocking work;
  Blocking other;
  background.add(work);
  ASSERT_TRUE(soon([&] { return work.inside.load(); }));
  EXPECT_FALSE(background.at_rest());
  std::atomic<bool> settled{false}, removed{false};
  std::thread settles([&] {
    background.settle();
    settled = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(settled) << "a step is under way";
  std::thread removes([&] {
    background.remove(work);
    removed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(removed) << "its step is still under way";
  work.go_on = true;
  settles.join();
  removes.join();
  EXPECT_TRUE(background.at_rest());
  background.remove(work);  // is not there any more
  background.stop();
  other.go_on = true;
  background.add(other);  // nothing runs it
  EXPECT_FALSE(background.run_some());
  background.remove(other);
  EXPECT_FALSE(other.inside);
}

TEST(Background, StoppedBeforeItsFirstUnit) {
  Background<RealPlatform> background;
  background.set_threads(1);
  background.stop();
  Blocking work;
  work.go_on = true;
  background.add(work);
  EXPECT_FALSE(background.run_some());
  EXPECT_TRUE(background.at_rest());
  background.remove(work);
}

TEST(Background, StopEndsBusyWork) {
  Background<RealPlatform> service;
  Counting<RealPlatform> endless(~std::uint64_t{0});
  service.add(endless);
  ASSERT_TRUE(soon([&] { return endless.done > 100; }));
  service.stop();
  const std::uint64_t done = endless.done;
  EXPECT_FALSE(service.run_some());
  EXPECT_FALSE(service.finish(endless));
  service.settle();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(endless.done, done);
  service.remove(endless);
  service.stop();
}

// ---- in a pool ----

std::string pool_path() {
  return (std::filesystem::temp_directory_path() /
          ("perdure-background-" + std::to_string(::getpid())))
      .string();
}

TEST(BackgroundOfAPool, APoolOfPhastMapsHasNoThread) {
  const std::string path = pool_path();
  const std::size_t before = threads_of_this_process();
  for (int open = 0; open < 2; ++open) {
    auto pool = Pool::open(path, {.max_size = 16_MiB});
    ASSERT_TRUE(pool.has_value());
    auto map = pool->map<std::uint64_t, std::uint64_t>("m", {.phast = {.partition_bits = 2}});
    ASSERT_TRUE(map.has_value());
    for (std::uint64_t k = 0; k < 1000; ++k) ASSERT_TRUE(map->upsert(k, k).has_value());
    EXPECT_EQ(threads_of_this_process(), before);
    EXPECT_FALSE(pool->run_background().value_or(true));
    ASSERT_TRUE(pool->close().ok());
    EXPECT_FALSE(pool->run_background().has_value());
  }
  ::unlink(path.c_str());
}

TEST(BackgroundOfAPool, CloseStopsIt) {
  const std::string path = pool_path();
  for (const std::uint32_t threads : {0U, 1U}) {
    Counting<RealPlatform> endless(~std::uint64_t{0});
    auto pool = Pool::open(path, {.max_size = 16_MiB, .background_threads = threads});
    ASSERT_TRUE(pool.has_value());
    pool->impl().background().add(endless);
    if (threads == 0) {
      EXPECT_EQ(endless.done, 0U);
      EXPECT_TRUE(pool->run_background().value_or(false));
    }
    ASSERT_TRUE(soon([&] { return endless.done > 0; }));
    ASSERT_TRUE(pool->close().ok());
    const std::uint64_t done = endless.done;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_EQ(endless.done, done);
  }
  EXPECT_EQ(Pool::open(path, {.background_threads = 2}).error().code(),
            StatusCode::invalid_argument);
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace perdure
