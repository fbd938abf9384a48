// test: tsan
// One thread that tends what has none of its own.
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "platform/keeper.h"
#include "tests/support/soon.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

constexpr std::uint64_t kHour = 3'600'000'000'000;

struct Object final : Kept {
  explicit Object(std::uint64_t ns) : period(ns) {}
  std::uint64_t tend() noexcept override {
    if (!there.load() || inside.exchange(true)) ++wrong;  // keeper.K1
    ++tended;
    inside.store(false);
    return period;
  }
  bool add() {
    there.store(true);
    return Keeper::of_process()->add(*this, period);
  }
  void remove() {
    Keeper::of_process()->remove(*this);
    there.store(false);
  }
  const std::uint64_t period;
  std::atomic<bool> there{false}, inside{false};
  std::atomic<std::uint64_t> tended{0}, wrong{0};
};

TEST(Keepers, TendWhatIsDue) {
  Object often(1'000'000), seldom(kHour);
  ASSERT_TRUE(often.add() && seldom.add());
  EXPECT_TRUE(soon([&] { return often.tended.load() > 5; }));
  EXPECT_EQ(seldom.tended.load(), 0U);
  Keeper::of_process()->poke();
  EXPECT_TRUE(soon([&] { return seldom.tended.load() > 0; }));
  often.remove();
  const std::uint64_t tended = often.tended.load();
  ::usleep(20'000);
  EXPECT_EQ(often.tended.load(), tended);
  seldom.remove();
  EXPECT_EQ(often.wrong.load() + seldom.wrong.load(), 0U);
}

// keeper.K2, keeper.K3
TEST(Keepers, HaveAThreadWhileTheyHaveAnObject) {
  std::thread([] {}).join();  // a sanitizer starts a thread of its own with the first
  const std::size_t before = threads_of_this_process();
  Object first(kHour), second(kHour);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(first.add() && second.add());
    EXPECT_EQ(threads_of_this_process(), before + 1);
    first.remove();
    EXPECT_EQ(threads_of_this_process(), before + 1);
    second.remove();
    // The kernel may list it for a moment after the join.
    EXPECT_TRUE(soon([&] { return threads_of_this_process() == before; }));
  }
}

TEST(Keepers, ThreadsAddAndRemove) {
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < scaled(2'000, 200); ++i) {
        Object object(1000);
        if (!object.add()) ++wrong;
        if (i % 3 == 0) Keeper::of_process()->poke();
        if (i % 16 == 0) ::usleep(200);
        object.remove();
        wrong += object.wrong.load();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0U);
}

#ifndef PERDURE_TSAN  // which allows no threads in such a child
TEST(Keepers, AChildOfForkHasItsOwn) {
  Object object(1'000'000);
  ASSERT_TRUE(object.add());
  const ChildEnd end = run_child([&] {
    const std::uint64_t before = object.tended.load();
    Object own(1'000'000);
    require(own.add(), "refused");
    require(soon([&] { return own.tended.load() > 3; }), "not tended");
    own.remove();
    require(object.tended.load() == before, "that of the parent was tended");
  });
  EXPECT_TRUE(end.ok()) << end;
  object.remove();
}
#endif

}  // namespace
}  // namespace perdure::test
