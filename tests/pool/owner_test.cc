// test: no asan
// The lock of a pool's owner: an open returns `busy`, or it waits for a process that has ended.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>

#include "tests/support/support.h"

namespace perdure::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kHeld = std::chrono::milliseconds(300);

class Owner : public ::testing::Test {
 protected:
  Owner() { must(open_pool(path_, {.max_size = 16_MiB}).close()); }
  // Kills an owner. Its lock lasts for kHeld longer, as that of a process whose memory is freed
  // slowly: a child has inherited the descriptor.
  pid_t killed_owner() {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    const pid_t owner = start_child([&] {
      Pool pool = open_pool(path_, {});
      if (::fork() == 0) {
        ::usleep(std::chrono::microseconds(kHeld).count());
        ::_exit(0);
      }
      (void)!::write(ready[1], "x", 1);
      ::pause();
    });
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
    ::kill(owner, SIGKILL);
    return owner;
  }
  void expect_opened_after_a_while(OpenMode mode = OpenMode::existing) {
    const auto start = Clock::now();
    auto pool = Pool::open(path_, {.mode = mode});
    EXPECT_TRUE(pool.has_value()) << pool.error().message();
    EXPECT_GT(Clock::now() - start, kHeld / 10) << "nothing held the lock: the test is void";
  }
  TempPath path_;
};

TEST_F(Owner, TheLockOfAKilledProcessIsWaitedFor) {
  wait_child(killed_owner());
  expect_opened_after_a_while();
}

TEST_F(Owner, AReaderWaitsForItToo) {
  wait_child(killed_owner());
  expect_opened_after_a_while(OpenMode::read_only);
}

TEST_F(Owner, ItsParentMayNotHaveBeenToldYet) {
  const pid_t owner = killed_owner();
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(owner), &ended, WEXITED | WNOWAIT), 0);
  expect_opened_after_a_while();
  wait_child(owner);
}

TEST_F(Owner, ALivingOwnerIsNamedAtOnce) {
  Pool pool = open_pool(path_, {});
  const auto start = Clock::now();
  const ChildEnd end = run_child([&] {
    auto other = Pool::open(path_);
    const bool named =
        !other && other.error() == StatusCode::busy &&
        other.error().message().find("in use by process " + std::to_string(::getppid())) !=
            std::string_view::npos;
    ::_exit(named ? 0 : 1);
  });
  EXPECT_TRUE(end.ok()) << end;
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(2));
  auto again = Pool::open(path_);
  ASSERT_FALSE(again.has_value());
  EXPECT_NE(again.error().message().find("has it open already"), std::string_view::npos);
}

}  // namespace
}  // namespace perdure::test
