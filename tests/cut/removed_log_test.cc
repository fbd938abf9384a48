// test: injects
// Pools with durability `buffered` whose log another process has removed. Base and live image
// together are the pool, and a new log is begun from them.
#include <algorithm>
#include <vector>

#include "tests/support/buffered_files.h"
#include "tests/support/inject.h"

namespace perdure::test {
namespace {

constexpr std::uint32_t kSeldom = 3'600'000;
constexpr std::uint64_t kMany = 200'000;

class RemovedLogs : public BufferedFiles {
 protected:
  void remove_log() const { fs::remove_all(path("pool-log")); }
  void remove_segments() const {
    for (const auto& segment : fs::directory_iterator(path("pool-log"))) fs::remove(segment.path());
  }
  static void put_many(Pool& pool) {
    for (std::uint64_t key = 1; key <= kMany; ++key) must(later(pool).put(key, key));
  }
  // Ascending.
  std::vector<fs::path> segments() const {
    std::vector<fs::path> found;
    for (const auto& segment : fs::directory_iterator(path("pool-log"))) found.push_back(segment);
    std::ranges::sort(found);
    return found;
  }
  // The last put is in no durable cut, and the base has nothing of the log's segments.
  void kill_with_segments() {
    in_killed_process(
        [&](Pool& pool) {
          fill_pool(pool);
          for (std::uint64_t i = 0; segments().size() < 4; ++i) {
            for (std::uint64_t key = 3; key < kMany / 10; ++key) must(later(pool).put(key, i));
            must(later(pool).put(1, 1));
            must(pool.sync());
          }
          must(later(pool).put(2, 2));
        },
        buffered(kSeldom));
  }
  static PoolOptions accepting() {
    PoolOptions options = as_it_was();
    options.accept_untrusted = true;
    return options;
  }
  // sync() has returned for 1, and not for 2.
  void kill_after_the_removal() {
    in_killed_process(
        [&](Pool& pool) {
          fill_pool(pool);
          must(pool.sync());
          remove_log();
          must(later(pool).put(1, 1));
          must(pool.sync());
          must(later(pool).put(2, 2));
        },
        buffered(kSeldom));
  }
  void expect_later(std::uint64_t last, const PoolOptions& options = as_it_was()) {
    auto pool = Pool::open(path(), options);
    ASSERT_TRUE(pool) << describe(pool.error());
    EXPECT_EQ(wrong_content(*pool), "");
    for (std::uint64_t key = 1; key <= last; ++key)
      EXPECT_EQ(must(later(*pool).get(key)), std::optional(key)) << key;
    expect_sound(*pool);
  }
};

TEST_F(RemovedLogs, AKillLosesNothing) {
  kill_after_the_removal();
  expect_later(2);
}

// A log without its pool would be in the way of the next one with that name.
TEST_F(RemovedLogs, NoneIsBegunIfThePoolIsRemovedToo) {
  Pool pool = open_pool(path(), buffered(kSeldom));
  fill_pool(pool);
  must(pool.sync());
  fs::remove(path());
  remove_log();
  must(later(pool).put(1, 1));
  EXPECT_FALSE(pool.sync().ok());
  EXPECT_FALSE(fs::exists(path("pool-log")));
  (void)pool.close();
  EXPECT_FALSE(fs::exists(path("pool-log")));
  EXPECT_FALSE(fs::exists(path()));
}

// All lines are in the first epoch of the new log, but not those of the image's own head.
TEST_F(RemovedLogs, TheNewLogHasNoHeadOfAnImage) {
  kill_after_the_removal();
  std::size_t segments = 0;
  for (const auto& segment : fs::directory_iterator(path("pool-log"))) {
    EXPECT_EQ(read_bytes(segment.path()).find("PERLIVE"), std::string::npos) << segment.path();
    ++segments;
  }
  EXPECT_GT(segments, 0U);
}

TEST_F(RemovedLogs, APowerFailureLosesNothingThatSyncReturnedFor) {
  kill_after_the_removal();
  machine_restarts();
  expect_later(1);
}

// What the restore brings into the new image must not be the head of the old one.
TEST_F(RemovedLogs, ARestoredPoolThatIsKilledLosesNothing) {
  kill_after_the_removal();
  machine_restarts();
  in_killed_process([](Pool& pool) { must(later(pool).put(2, 2)); }, as_it_was());
  expect_later(2);
  machine_restarts();
  expect_later(2);
}

// Only the files, and what comes next does not fit into the segment.
TEST_F(RemovedLogs, TheEndOfASegmentIsNoEndOfTheSearch) {
  in_killed_process(
      [&](Pool& pool) {
        fill_pool(pool);
        must(pool.sync());
        remove_segments();
        put_many(pool);
        must(pool.sync());
      },
      buffered(kSeldom));
  machine_restarts();
  expect_later(kMany);
}

// The attempt to begin anew is repeated, and nothing is written before it has succeeded.
TEST_F(RemovedLogs, WhatCannotBeBegunAnewIsBegunLater) {
  in_killed_process(
      [&](Pool& pool) {
        fill_pool(pool);
        must(pool.sync());
        remove_segments();
        put_many(pool);
        {
          const Failing failing(Fault::fsync, 1, true);
          require(pool.sync() == StatusCode::io, "a folder cannot be synced");
          require(pool.resume_log() == StatusCode::io, "it cannot still");
        }
        must(pool.resume_log());
        must(pool.sync());
      },
      buffered(kSeldom));
  machine_restarts();
  expect_later(kMany);
}

// The fold is the first that finds nothing to read.
TEST_F(RemovedLogs, AFoldThatFindsNothingBeginsAnew) {
  in_killed_process(
      [&](Pool& pool) {
        fill_pool(pool);
        must(later(pool).put(1, 1));
        must(pool.sync());
        remove_segments();
        require(!pool.fold_log().ok(), "a fold reads the log back");
        must(pool.resume_log());
        must(later(pool).put(2, 2));
        must(pool.sync());
        must(pool.fold_log());
      },
      buffered(kSeldom));
  machine_restarts();
  expect_later(2);
}

// Each of them, and the whole log with them, as the message says.
TEST_F(RemovedLogs, WithoutASegmentTheAdviceLosesNothing) {
  for (std::size_t missing = 0; missing < 4; ++missing) {
    SCOPED_TRACE(missing);
    for (const auto& entry : fs::directory_iterator(folder_)) fs::remove_all(entry.path());
    kill_with_segments();
    fs::remove(segments()[missing]);
    for (const PoolOptions& options : {as_it_was(), accepting()}) {
      EXPECT_EQ(refused(options), StatusCode::untrusted) << message_;
      EXPECT_NE(message_.find("move the folder of the log away and accept"), std::string::npos)
          << message_;
    }
    fs::rename(path("pool-log"), path("away"));
    EXPECT_EQ(refused(), StatusCode::untrusted) << message_;
    EXPECT_EQ(message_.find("move the folder"), std::string::npos) << message_;
    EXPECT_NE(message_.find("accept base and live image"), std::string::npos) << message_;
    expect_later(2, accepting());
    expect_later(2);
  }
}

// Then the image is of no use, and only the missing segment helps.
TEST_F(RemovedLogs, AfterAPowerFailureEachSegmentIsNeeded) {
  kill_with_segments();
  machine_restarts();
  for (const fs::path& segment : segments()) {
    SCOPED_TRACE(segment);
    fs::rename(segment, path("segment"));
    for (const bool moved : {false, true}) {
      if (moved) fs::rename(path("pool-log"), path("away"));
      for (const PoolOptions& options : {as_it_was(), accepting()}) {
        EXPECT_EQ(refused(options), StatusCode::untrusted) << message_;
        EXPECT_EQ(message_.find("accept"), std::string::npos) << message_;
        EXPECT_NE(message_.find("a copy of the pool"), std::string::npos) << message_;
      }
      if (moved) {
        fs::remove(path("pool-log"));  // it may have been made again, and is empty
        fs::rename(path("away"), path("pool-log"));
      }
    }
    fs::rename(path("segment"), segment);
  }
  expect_later(1);
}

// A fold was under way: the base has lines of epochs that only the removed log had.
TEST_F(RemovedLogs, AfterAKillInAFoldThePoolGoesOn) {
  bool killed = true;
  int in_a_fold = 0;
  for (std::uint64_t k = 1; killed; ++k) {
    SCOPED_TRACE("killed in the flush " + std::to_string(k) + " of a fold");
    for (const auto& entry : fs::directory_iterator(folder_)) fs::remove_all(entry.path());
    const pid_t child = start_child([&] {
      Pool pool = must(Pool::open(path(), buffered(kSeldom)));
      fill_pool(pool);
      for (std::uint64_t i = 0; i < 10; ++i) {
        must(later(pool).put(1'000 + i, i));
        must(pool.sync());
      }
      set_deadly(true);
      const Failing failing(Fault::fdatasync, k, false);
      must(pool.fold_log());
      ::_exit(0);
    });
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    killed = WIFSIGNALED(status);
    if (!killed) break;
    remove_log();
    EXPECT_EQ(refused(), StatusCode::untrusted) << message_;
    in_killed_process(
        [](Pool& pool) {
          must(later(pool).put(1, 1));
          must(pool.fold_log());
        },
        accepting());
    ++in_a_fold;
    if (k % 2 == 0) machine_restarts();
    expect_later(1);
  }
  EXPECT_GT(in_a_fold, 3);
}

}  // namespace
}  // namespace perdure::test
