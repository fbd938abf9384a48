// test: tsan
// Pools with durability `buffered` on a disk that is slow or full: what no engine changes.
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <string>
#include <string_view>
#include <thread>

#include "tests/cut/trouble.h"

namespace perdure::test {
namespace {

class OnOneEngine : public Trouble {};

// A caller of sync() makes its cut itself. The thread must not spin until the disk has it.
TEST_F(OnOneEngine, ACallerOfSyncKeepsNoOtherThreadBusy) {
  PoolOptions usual = larger();
  usual.buffered.interval_ms = 100;
  Pool pool = must(PoolImpl::open_in(disk_, path_, usual));
  auto map = later(pool);
  disk_.be_slow(5000);
  const std::clock_t before = std::clock();
  for (std::uint64_t i = 0; i < 100; ++i) {
    must(map.put(i, i));
    must(pool.sync());
  }
  EXPECT_LT(std::clock() - before, CLOCKS_PER_SEC / 5) << "of more than half a second";
  disk_.be_slow(0);
  must(pool.close());
}

// P14: a full disk overtakes the fold of compact, and its pages are left for the next one. What the
// base has given back stays given back.
TEST_F(OnOneEngine, CompactOnAFullDiskGivesSpaceBackForGood) {
  const auto space = [&] {
    struct stat info{};
    EXPECT_EQ(::stat(path_.c_str(), &info), 0);
    return static_cast<std::uint64_t>(info.st_blocks) * 512;
  };
  PoolOptions alone = larger();
  alone.background_threads = 0;
  alone.buffered.interval_ms = 3'600'000;
  Pool pool = must(PoolImpl::open_in(disk_, path_, alone));
  auto map = later(pool);
  const auto put_all = [&] {  // more than a segment of the log
    for (std::uint64_t i = 0; i < 300'000; ++i) must(map.put(i, i));
  };
  put_all();
  auto large = must(pool.map<std::uint64_t, std::string_view>("large"));
  const auto fill = [&](char c) {
    for (std::uint64_t i = 0; i < 400; ++i) must(large.put(i, std::string(30'000, c)));
  };
  fill('a');
  must(pool.fold_log());
  fill('b');
  must(pool.drop("large"));
  put_all();
  must(pool.sync());
  disk_.in_sync(3, [&] {  // after the fold has begun
    std::thread(put_all).join();
    disk_.be_full(true);
  });
  EXPECT_GT(must(pool.compact()), 10_MiB);
  disk_.be_full(false);
  const std::uint64_t small = space();
  must(pool.fold_log());
  EXPECT_LT(space(), small + 1_MiB);
  must(pool.close());
}

// The epoch that confirms the last one may be the one that finds no space.
TEST_F(OnOneEngine, AFullDiskIsEnoughForAPoolThatRests) {
  PoolOptions alone = larger();
  alone.background_threads = 0;
  alone.buffered.interval_ms = 1;
  Pool pool = must(PoolImpl::open_in(disk_, path_, alone));
  auto map = later(pool);
  // A second segment, so that a fold frees one.
  std::uint64_t n = put_until(map, 0, [&] { return must(pool.stats()).log_bytes > 4_MiB; });
  const std::uint64_t written = must(pool.stats()).log_written_bytes;
  // Each second segment ends with the epoch of the put.
  for (; must(pool.stats()).log_written_bytes < written + 18_MiB; ++n) {
    must(map.put(n % kMany, n));
    must(pool.sync());
    disk_.be_full(true);
    ::usleep(1100);
    must(pool.run_background());
    ASSERT_EQ(must(pool.stats()).log_failed_unix_ns, 0U);
    disk_.be_full(false);
  }
  close_and_expect(pool, n);
}

}  // namespace
}  // namespace perdure::test
