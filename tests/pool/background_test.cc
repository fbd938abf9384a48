// test: tsan
// The pool's background service: with threads and without; units that come, rest, block, wake and
// go.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "background/background.h"
#include "perdure/pool.h"
#include "platform/real_platform.h"
#include "pool/pool_impl.h"
#include "tests/support/soon.h"

namespace perdure {
namespace {

// A machine that cannot start a thread.
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
  Step run_some() noexcept override {
    if (inside_.exchange(true)) overlapped = true;
    last = std::this_thread::get_id();
    ++done;
    const bool more = left_ > 0 && --left_ > 0;
    inside_ = false;
    return more ? Step::more : Step::rest;
  }
  void give(std::uint64_t steps) { left_ += steps; }

  std::atomic<std::uint64_t> done{0};
  std::atomic<bool> overlapped{false};
  std::atomic<std::thread::id> last{};

 private:
  std::atomic<std::uint64_t> left_;
  std::atomic<bool> inside_{false};
};

using test::soon;
using test::threads_of_this_process;

TEST(Background, TheFirstUnitStartsTheThread) {
  std::thread([] {}).join();  // a sanitizer starts a thread of its own with the first
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

// A wake that comes while the step before it is still running, or just before the thread sleeps, is
// not lost.
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

TEST(Background, OneStepAtATimeInAnyThread) {
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
TEST(Background, FinishFromWithinAStepReturnsFalse) {
  struct Impatient final : BackgroundWork<NoThreads> {
    explicit Impatient(Background<NoThreads>& s) : service(s) {}
    Step run_some() noexcept override {
      refused = !service.finish(*this) && !service.help(*this);
      return Step::rest;
    }
    Background<NoThreads>& service;
    bool refused = false;
  };
  Background<NoThreads> service;
  Impatient work(service);
  service.add(work);
  EXPECT_TRUE(service.run_some());
  EXPECT_TRUE(work.refused);
  service.remove(work);
}

// A unit whose step runs until it is told to end.
class Blocking final : public BackgroundWork<RealPlatform> {
 public:
  Step run_some() noexcept override {
    inside = true;
    while (!go_on) std::this_thread::yield();
    inside = false;
    return Step::rest;
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
  background.remove(work);  // not registered any more
  background.stop();
  other.go_on = true;
  background.add(other);  // no thread runs it
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

TEST(Background, SaysThatTheSystemRefusesThreads) {
  std::string said;
  const Log log(
      [](void* text, LogLevel level, std::string_view message) {
        EXPECT_EQ(level, LogLevel::warning);
        *static_cast<std::string*>(text) += message;
      },
      &said, "pool");
  Background<NoThreads> background;
  background.set_threads(3);
  background.set_log(log);
  Counting<NoThreads> work(1);
  background.add(work);
  EXPECT_EQ(said,
            "pool: the system refused 3 of 3 background threads; mutations and "
            "Pool::run_background do their work");
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

// ---- several threads ----

// A number of parts, each done once, by any thread.
template <class P>
class Parts final : public BackgroundWork<P> {
 public:
  explicit Parts(std::uint64_t parts, unsigned ms = 0) : parts_(parts), ms_(ms) {}
  Step run_some() noexcept override {
    const int now = ++inside_;
    for (int most = widest; now > most && !widest.compare_exchange_weak(most, now);) {
    }
    if (ms_ != 0) std::this_thread::sleep_for(std::chrono::milliseconds(ms_));
    if (take()) ++done;
    --inside_;
    return next_ < parts_ ? Step::more : Step::rest;
  }
  void give(std::uint64_t parts) { parts_ += parts; }

  std::atomic<std::uint64_t> done{0};
  std::atomic<int> widest{0};

 private:
  // A step that finds none must not use up a part that is given later.
  bool take() {
    std::uint64_t part = next_;
    while (part < parts_) {
      if (next_.compare_exchange_weak(part, part + 1)) return true;
    }
    return false;
  }

  std::atomic<std::uint64_t> parts_;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<int> inside_{0};
  unsigned ms_;
};

TEST(BackgroundThreads, AsManyAreInsideAUnitAsItAllows) {
  Background<RealPlatform> service;
  service.set_threads(4);
  Parts<RealPlatform> narrow(60, 2);
  Parts<RealPlatform> wide(60, 2);
  service.add(narrow);
  service.add(wide, 3);
  EXPECT_TRUE(soon([&] { return narrow.done == 60 && wide.done == 60; }));
  EXPECT_EQ(narrow.widest, 1);
  EXPECT_GE(wide.widest, 2);
  EXPECT_LE(wide.widest, 3);
  service.remove(narrow);
  service.remove(wide);
}

TEST(BackgroundThreads, NoMoreThanTheMaximum) {
  std::thread([] {}).join();
  const std::size_t before = threads_of_this_process();
  Background<RealPlatform> service;
  service.set_threads(1000);
  Counting<RealPlatform> work(1);
  service.add(work);
  EXPECT_EQ(threads_of_this_process(), before + kMaxBackgroundThreads);
  service.stop();
  EXPECT_EQ(threads_of_this_process(), before);
}

// The first step finds nothing, because the second one has it, and ends after that, which has left
// it for a third one.
class Left : public BackgroundWork<RealPlatform> {
 public:
  Step run_some() noexcept override {
    const int step = ++steps;
    while (step == 1 && !second_has_left) std::this_thread::yield();
    return step == 2 ? Step::more : Step::rest;
  }
  std::atomic<int> steps{0};
  std::atomic<bool> second_has_left{false};
};

TEST(BackgroundThreads, WhatAStepLeavesIsDoneThoughAnotherOneRests) {
  Background<RealPlatform> service;
  service.set_threads(0);
  Left work;
  service.add(work, 2);
  std::thread first([&] { (void)service.run_some(); });
  while (work.steps != 1) std::this_thread::yield();
  (void)service.run_some();
  ASSERT_EQ(work.steps, 2);
  work.second_has_left = true;
  first.join();
  (void)service.run_some();
  EXPECT_EQ(work.steps, 3);
  service.remove(work);
}

// All parts are done, whichever threads give, help, wait or run.
TEST(BackgroundThreads, NothingIsLostAmongThem) {
  Background<RealPlatform> service;
  service.set_threads(3);
  Parts<RealPlatform> wide(0);
  Counting<RealPlatform> narrow(0);
  service.add(wide, 3);
  service.add(narrow);
  constexpr std::uint64_t kRounds = 500;
  std::vector<std::thread> givers;
  for (int t = 0; t < 2; ++t) {
    givers.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < kRounds; ++i) {
        wide.give(3);
        service.wake(wide);
        service.wake(narrow);
        if (t == 0) {
          (void)service.help(wide);
        } else if (i % 8 == 0) {
          EXPECT_TRUE(service.finish(narrow));
        }
      }
    });
  }
  for (std::thread& giver : givers) giver.join();
  service.settle();
  EXPECT_EQ(wide.done, 2 * 3 * kRounds);
  EXPECT_FALSE(narrow.overlapped);
  service.remove(wide);
  service.remove(narrow);
}

TEST(Background, HelpRunsThisUnitAndNoOther) {
  Background<RealPlatform> service;
  service.set_threads(0);
  Counting<RealPlatform> mine(3);
  Counting<RealPlatform> other(3);
  service.add(mine);
  service.add(other);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(service.help(mine));
  EXPECT_FALSE(service.help(mine)) << "it rests";
  EXPECT_EQ(mine.done, 3U);
  EXPECT_EQ(other.done, 0U);
  service.remove(mine);
  service.remove(other);
}

// Also with a background thread: a mutation that waits for a rehash helps.
TEST(Background, HelpWorksBesideAThread) {
  Background<RealPlatform> service;
  Parts<RealPlatform> wide(200, 1);
  service.add(wide, 2);
  ASSERT_TRUE(soon([&] { return wide.done > 0; }));
  bool helped = false;
  while (wide.done < 200) helped |= service.help(wide);
  EXPECT_TRUE(helped);
  EXPECT_EQ(wide.widest, 2);
  service.remove(wide);
}

// ---- blocked ----

template <class P>
class Hungry final : public BackgroundWork<P> {
 public:
  Step run_some() noexcept override {
    ++looks;
    if (on_look) on_look();
    return food > 0 && --food > 0 ? Step::more : (fed ? Step::rest : Step::blocked);
  }
  std::atomic<int> looks{0};
  std::atomic<int> food{0};
  std::atomic<bool> fed{false};
  std::function<void()> on_look;
};

TEST(BackgroundBlocked, GoesOnWhenSpaceIsFreed) {
  Background<NoThreads> service;
  Hungry<NoThreads> work;
  service.add(work);
  EXPECT_TRUE(service.run_some());
  EXPECT_FALSE(service.run_some()) << "nothing has changed";
  EXPECT_TRUE(service.at_rest());
  EXPECT_FALSE(service.finish(work)) << "it cannot be finished";
  service.space_freed();
  EXPECT_FALSE(service.at_rest());
  EXPECT_TRUE(service.run_some());
  EXPECT_EQ(work.looks, 2);
  service.wake(work);
  EXPECT_TRUE(service.run_some());
  work.fed = true;
  service.space_freed();
  EXPECT_TRUE(service.finish(work));
  service.space_freed();
  EXPECT_FALSE(service.run_some()) << "it rests, it was not blocked";
  service.remove(work);
}

// B4: space is freed between the failed allocation and the step's return.
TEST(BackgroundBlocked, SpaceThatIsFreedDuringTheStepIsNotMissed) {
  Background<NoThreads> service;
  Hungry<NoThreads> work;
  work.on_look = [&] {
    if (work.looks == 1) service.space_freed();
  };
  service.add(work);
  EXPECT_TRUE(service.run_some());
  EXPECT_TRUE(service.run_some()) << "B4";
  EXPECT_FALSE(service.run_some());
  service.remove(work);
}

TEST(BackgroundBlocked, NothingIsMissedBesideThreads) {
  Background<RealPlatform> service;
  service.set_threads(2);
  Hungry<RealPlatform> work;
  service.add(work);
  for (int i = 1; i <= 2000; ++i) {
    const int looks = work.looks;
    service.space_freed();
    ASSERT_TRUE(soon([&] { return work.looks > looks || !service.at_rest(); })) << i;
  }
  service.remove(work);
}

// ---- held ----

TEST(BackgroundHeld, NoStepRunsOrBegins) {
  Background<RealPlatform> service;
  service.set_threads(2);
  Counting<RealPlatform> endless(~std::uint64_t{0});
  service.add(endless);
  ASSERT_TRUE(soon([&] { return endless.done > 10; }));
  for (int i = 0; i < 50; ++i) {
    const BackgroundHold<RealPlatform> hold(service);
    const std::uint64_t done = endless.done;
    EXPECT_FALSE(service.run_some());
    EXPECT_FALSE(service.help(endless));
    EXPECT_FALSE(service.finish(endless)) << "the holder cannot wait for it";
    std::this_thread::sleep_for(std::chrono::milliseconds(i % 5));
    EXPECT_EQ(endless.done, done);
  }
  const std::uint64_t done = endless.done;
  EXPECT_TRUE(soon([&] { return endless.done > done; })) << "it goes on";
  service.remove(endless);
}

// A step that the hold waits for needs a step of another unit.
TEST(BackgroundHeld, AStepUnderWayMayFinishAnother) {
  struct Needy final : BackgroundWork<RealPlatform> {
    Needy(Background<RealPlatform>& s, Counting<RealPlatform>& o) : service(s), other(o) {}
    Step run_some() noexcept override {
      begun = true;
      while (!go) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      finished = service.finish(other);
      return Step::rest;
    }
    Background<RealPlatform>& service;
    Counting<RealPlatform>& other;
    std::atomic<bool> begun{false}, go{false}, finished{false};
  };
  Background<RealPlatform> service;
  Counting<RealPlatform> other(3);
  Needy needy(service, other);
  service.add(needy);
  ASSERT_TRUE(soon([&] { return needy.begun.load(); }));
  service.add(other);
  needy.go = true;
  {
    const BackgroundHold<RealPlatform> hold(service);
    EXPECT_TRUE(needy.finished);
    EXPECT_EQ(other.done, 3U);
  }
  service.remove(needy);
  service.remove(other);
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
    auto pool = Pool::open(path, {.durability = Durability::process, .max_size = 16_MiB});
    ASSERT_TRUE(pool.has_value());
    auto map = pool->map<std::uint64_t, std::uint64_t>("m", {.phast = {.partition_bits = 2}});
    ASSERT_TRUE(map.has_value());
    for (std::uint64_t k = 0; k < 1000; ++k) ASSERT_TRUE(map->put(k, k).ok());
    EXPECT_EQ(threads_of_this_process(), before);
    EXPECT_FALSE(pool->run_background().value_or(true));
    ASSERT_TRUE(pool->close().ok());
    EXPECT_FALSE(pool->run_background().has_value());
  }
  ::unlink(path.c_str());
}

TEST(BackgroundOfAPool, CloseStopsIt) {
  const std::string path = pool_path();
  for (const std::uint32_t threads : {0U, 1U, 3U}) {
    Counting<RealPlatform> endless(~std::uint64_t{0});
    auto pool = Pool::open(path, {.max_size = 16_MiB, .background_threads = threads});
    ASSERT_TRUE(pool.has_value());
    detail::PoolImpl::of(*pool).background().add(endless);
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
  EXPECT_EQ(Pool::open(path, {.background_threads = kMaxBackgroundThreads + 1}).error().code(),
            StatusCode::invalid_argument);
  EXPECT_TRUE(Pool::open(path, {.background_threads = kMaxBackgroundThreads}).has_value());
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace perdure
