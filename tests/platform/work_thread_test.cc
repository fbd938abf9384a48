// A thread that ends when there is nothing to do, and is there again when there is.
#include <atomic>
#include <cstdint>

#include "platform/real_platform.h"
#include "platform/work_thread.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

// Does what it is asked for, and ends as soon as that is done.
struct Worker {
  void operator()() {
    ++begun;
    while (!thread.stopped()) {
      const std::uint32_t seen = thread.seen();
      if (done.exchange(asked.load()) != asked.load()) continue;
      thread.wait(seen, 1000);
      if (asked.load() == done.load() && thread.end(seen)) return;
    }
  }
  std::atomic<std::uint64_t> asked{0}, done{0}, begun{0};
  WorkThread<RealPlatform> thread{*this};
};

// work.W1
TEST(WorkThreads, NoCallIsLost) {
  Worker worker;
  const std::uint64_t calls = scaled(1000, 200);
  for (std::uint64_t i = 1; i <= calls; ++i) {
    worker.asked.store(i);
    ASSERT_TRUE(worker.thread.wake());
    for (int n = 0; n < 100'000 && worker.done.load() < i; ++n) ::usleep(10);
    ASSERT_EQ(worker.done.load(), i);
    if (i % 3 == 0) ::usleep(100);  // it may end meanwhile
  }
  EXPECT_GT(worker.begun.load(), 1U);
  worker.thread.stop();
  const std::uint64_t begun = worker.begun.load();
  EXPECT_FALSE(worker.thread.wake());
  EXPECT_EQ(worker.begun.load(), begun);
}

TEST(WorkThreads, MayBeStoppedBeforeTheyBegin) {
  Worker worker;
  worker.thread.stop();
  EXPECT_FALSE(worker.thread.wake());
  EXPECT_EQ(worker.begun.load(), 0U);
}

}  // namespace
}  // namespace perdure::test
