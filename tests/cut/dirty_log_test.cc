// The log of dirty lines by itself: rings that are full or have no space, the next process, and
// logs that are none.
#include "platform/dirty_log.h"

#include <cstring>
#include <set>
#include <vector>

#include "platform/real_platform.h"
#include "testing/cut/sparse_storage.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

using Log = DirtyLog<RealPlatform>;
using testing::SparseStorage;
using Lines = std::set<std::uint64_t>;

constexpr std::uint64_t kPool = 64 << 20;
constexpr std::uint64_t kPoolLines = kPool / kLine;

// All dirty lines. `room`: for how many at a time.
Lines taken(Log& log, std::uint64_t room = 4096) {
  Lines lines;
  std::vector<std::uint64_t> some(room);
  for (bool ended = false; !ended;) {
    const std::uint64_t count = log.take(some, ended);
    for (std::uint64_t i = 0; i < count; ++i) {
      EXPECT_TRUE(i == 0 || some[i] > some[i - 1]);
      EXPECT_TRUE(lines.insert(some[i]).second) << some[i];
    }
    EXPECT_TRUE(ended || count > 0);
  }
  return lines;
}

class DirtyLogTest : public ::testing::Test {
 protected:
  // What a thread has of its ring.
  struct Thread {
    Log::Word* ring = nullptr;
    std::uint64_t at = 0;
  };
  void note(Log& log, std::uint32_t slot, std::uint64_t line, std::uint64_t count) {
    Thread& thread = threads_[slot];
    log.note(thread.ring, thread.at, line, count);
  }
  void make_rings(Log& log, std::uint32_t slots) {
    for (std::uint32_t i = 0; i < slots; ++i) threads_[i] = {log.make_ring(i)};
  }
  DirtyLogTest() {
    must(log_.create());
    must(log_.cover(kPool));
    make_rings(log_, 2);
  }
  SparseStorage storage_{Log::bytes_for(kPool)};
  Log log_{storage_, kPool};
  Thread threads_[4];
};

TEST_F(DirtyLogTest, TakesEachLineOnce) {
  note(log_, 0, 7, 1);
  note(log_, 1, 7, 1);
  note(log_, 1, kPoolLines - 1, 1);
  note(log_, 0, 60, 64);  // of three words
  note(log_, 0, 0, 1);
  ASSERT_TRUE(log_.drain(2));
  Lines expected{0, 7, kPoolLines - 1};
  for (std::uint64_t line = 60; line < 124; ++line) expected.insert(line);
  EXPECT_EQ(taken(log_), expected);
  EXPECT_EQ(taken(log_), Lines());
  log_.again();
  EXPECT_EQ(taken(log_), expected);
  log_.settle();
  log_.again();
  EXPECT_EQ(taken(log_), Lines());
}

TEST_F(DirtyLogTest, ALineThatIsTakenCanBeDirtyAgain) {
  note(log_, 0, 5, 1);
  ASSERT_TRUE(log_.drain(1));
  EXPECT_EQ(taken(log_), Lines{5});
  note(log_, 0, 5, 1);
  ASSERT_TRUE(log_.drain(1));
  log_.settle();
  EXPECT_EQ(taken(log_), Lines{5});
}

TEST_F(DirtyLogTest, AFullRingLosesNothing) {
  Lines expected;
  for (std::uint64_t i = 0; i < Log::kRing + 1000; ++i) {
    note(log_, 0, 3 * i, 1);
    expected.insert(3 * i);
  }
  ASSERT_TRUE(log_.drain(1));
  note(log_, 0, 1, 1);  // the ring has room again
  expected.insert(1);
  ASSERT_TRUE(log_.drain(1));
  EXPECT_EQ(taken(log_), expected);
}

TEST_F(DirtyLogTest, WorksWithoutSpaceForRings) {
  storage_.set_full(true);
  note(log_, 3, 8, 1);  // the ring has not been made
  EXPECT_EQ(log_.make_ring(2), nullptr);
  note(log_, 2, 9, 3);
  EXPECT_EQ(taken(log_), (Lines{8, 9, 10, 11}));
}

TEST_F(DirtyLogTest, CoverFailsWithoutSpaceAndChangesNothing) {
  SparseStorage storage(Log::bytes_for(kPool));
  Log log(storage, kPool);
  must(log.create());
  must(log.cover(kPage));
  storage.set_full(true);
  EXPECT_EQ(log.cover(kPool).code(), StatusCode::pool_full);
  threads_[0] = {};
  note(log, 0, 1, 1);
  EXPECT_EQ(taken(log), Lines{1});
  storage.set_full(false);
  must(log.cover(kPool));
  note(log, 0, kPoolLines - 1, 1);
  EXPECT_EQ(taken(log), Lines{kPoolLines - 1});
}

TEST_F(DirtyLogTest, TheNextProcessFindsWhatIsNotSettled) {
  note(log_, 0, 1, 1);
  ASSERT_TRUE(log_.drain(1));
  EXPECT_EQ(taken(log_), Lines{1});
  log_.settle();
  note(log_, 0, 2, 1);
  ASSERT_TRUE(log_.drain(1));
  EXPECT_EQ(taken(log_), Lines{2});  // and not settled
  note(log_, 1, 3, 1);
  ASSERT_TRUE(log_.drain(2));
  note(log_, 1, 4, 2);  // in the ring
  Log next(storage_, kPool);
  must(next.inherit());
  EXPECT_EQ(taken(next), (Lines{2, 3, 4, 5}));
  next.settle();
  make_rings(next, 1);
  note(next, 0, 6, 1);
  ASSERT_TRUE(next.drain(1));
  EXPECT_EQ(taken(next), Lines{6});
}

TEST_F(DirtyLogTest, TakesAFewAtATime) {
  Lines expected;
  for (std::uint64_t line = 0; line < kPoolLines; line += 37) {
    note(log_, 0, line, 1);
    expected.insert(line);
  }
  ASSERT_TRUE(log_.drain(1));
  EXPECT_EQ(taken(log_, Log::kLeast), expected);
  log_.again();
  EXPECT_EQ(taken(log_, 3 * Log::kLeast), expected);
  const std::vector<std::uint64_t> back{37, 74};
  log_.give_back(back);
  EXPECT_EQ(taken(log_), (Lines{37, 74}));
}

// Lines that come behind the pass are for the next one, however many there are.
TEST_F(DirtyLogTest, APassEndsBesideThreadsThatGoOn) {
  const auto first_lines = [&] {
    for (std::uint64_t line = 0; line < 2 * Log::kLeast; ++line)
      log_.note(nullptr, threads_[3].at, line, 1);
  };
  Lines expected;
  for (std::uint64_t line = 0; line < 32 * Log::kLeast; ++line) {
    log_.note(nullptr, threads_[3].at, line, 1);
    expected.insert(line);
  }
  Lines lines;
  std::vector<std::uint64_t> some(Log::kLeast);
  int calls = 0;
  for (bool ended = false; !ended; ++calls) {
    ASSERT_LT(calls, 100);
    const std::uint64_t count = log_.take(some, ended);
    lines.insert(some.begin(), some.begin() + static_cast<std::ptrdiff_t>(count));
    first_lines();
  }
  EXPECT_EQ(lines, expected);
  EXPECT_EQ(taken(log_).size(), 2 * Log::kLeast);
}

TEST_F(DirtyLogTest, RefusesARingThatIsDamaged) {
  note(log_, 0, 1, 1);
  SparseStorage storage(Log::bytes_for(kPool));
  storage.load(storage_);
  std::uint64_t* ring = reinterpret_cast<std::uint64_t*>(storage.base() + Log::bytes_for(kPool)) -
                        kMaxThreadSlots * Log::kRing;
  ASSERT_EQ(*ring, 1U << 7 | 1U);
  for (const std::uint64_t entry :
       {kPoolLines << 7 | 1, std::uint64_t{1} << 7, std::uint64_t{127}}) {
    *ring = entry;  // beyond the pool, no line, too many
    EXPECT_EQ(Log(storage, kPool).inherit().code(), StatusCode::corruption);
  }
  *ring = 1U << 7 | 1U;
  must(Log(storage, kPool).inherit());
}

TEST_F(DirtyLogTest, RefusesWhatIsNoLogOfThePool) {
  SparseStorage storage(Log::bytes_for(2 * kPool));
  EXPECT_EQ(Log(storage, kPool).inherit().code(), StatusCode::corruption);  // empty
  storage.load(storage_);
  must(Log(storage, kPool).inherit());
  EXPECT_EQ(Log(storage, 2 * kPool).inherit().code(), StatusCode::corruption);
  for (std::uint64_t word = 0; word < 5; ++word) {
    storage.load(storage_);
    std::memset(storage.base() + 8 * word, 0xFF, 8);
    EXPECT_EQ(Log(storage, kPool).inherit().code(), StatusCode::corruption) << word;
  }
}

}  // namespace
}  // namespace perdure::test
