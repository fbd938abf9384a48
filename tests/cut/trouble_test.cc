// test: injects, three engines
// Pools with durability `buffered` on a disk that is slow, or on which a call fails. Each engine.
#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/cut/trouble.h"
#include "tests/support/engines.h"
#include "tests/support/inject.h"
#include "tests/support/other_boot.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

// Writers wait, and go on when there is nothing left to write, too.
TEST_F(Trouble, ASlowDiskSlowsMutationsDown) {
  Pool pool = must(PoolImpl::open_in(disk_, path_, options(2)));
  auto map = later(pool);
  disk_.be_slow(20'000);
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> most{0};
  for (std::uint64_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < scaled(600, 100); ++i) {
        must(map.put(t << 32 | i % 50, i));
        const std::uint64_t lag = must(pool.stats()).lag_ns;
        if (lag > most.load()) most.store(lag);
        if (i % 20 == 0) ::usleep(1000);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  disk_.be_slow(0);
  must(pool.sync());
  EXPECT_GT(must(pool.stats()).cuts, 1U);
  must(pool.close());
}

TEST_F(Trouble, WithServeMutationsGoOnAfterAFailure) {
  PoolOptions serving = options(2);
  serving.buffered.on_log_failure = OnLogFailure::serve;
  Pool pool = must(PoolImpl::open_in(disk_, path_, serving));
  auto map = later(pool);
  disk_.be_slow(20'000);
  disk_.fail_at(1, true);
  must(map.put(0, 0));
  EXPECT_EQ(pool.sync().code(), StatusCode::io);
  for (std::uint64_t i = 0; i < 1000; ++i) must(map.put(i, i));
  disk_.be_slow(0);
  disk_.fail_at(0, false);
  must(pool.resume_log());
  must(pool.close());
  Pool again = must(Pool::open(path_, {}));
  for (std::uint64_t i = 0; i < 1000; ++i) ASSERT_EQ(must(later(again).get(i)), std::optional(i));
}

// Of tests on a disk without space, where no pool can grow.
void skip_if_versions_are_kept() {
  if (chosen_engine().engine == Engine::pskiplist) GTEST_SKIP() << "every update takes space";
}
// The log is folded before it comes to its bound, while mutations go on. A process that goes on
// after a power failure has little to read.
TEST_F(Trouble, TheLogStaysWithinItsBound) {
  std::uint64_t n = 0;
  {
    Pool pool = must(PoolImpl::open_in(disk_, path_, larger(32_MiB)));
    auto map = later(pool);
    std::uint64_t most = 0;
    const std::uint64_t folds = scaled(8, 2, 1);
    n = put_until(map, 0, [&] {
      const PoolStats stats = must(pool.stats());
      most = std::max(most, stats.log_bytes);
      return stats.folds >= folds && stats.cuts > 3;
    });
    const PoolStats stats = must(pool.stats());
    EXPECT_EQ(stats.log_bound_bytes, 32_MiB);
    EXPECT_LE(most, 32_MiB + 8_MiB) << "a free segment is kept";
    EXPECT_GT(stats.log_written_bytes, folds * 8_MiB);
    EXPECT_GT(stats.fold_written_bytes, 0U);
    must(pool.fold_log());
    EXPECT_LE(must(pool.stats()).log_bytes, 8_MiB);
    n = put_until(map, n, [] { return true; });
    must(pool.sync());
    fs::copy(folder_, folder_ + "-later", fs::copy_options::recursive);
    must(pool.close());
  }
  fs::remove_all(folder_);
  fs::rename(folder_ + "-later", folder_);
  fs::remove(path_ + "-live");
  fs::remove(path_ + "-live-dirty");
  restart_machine(path_);
  PoolOptions accept = options();
  accept.accept_untrusted = true;  // the copy has another inode
  Pool pool = must(Pool::open(path_, accept));
  auto map = later(pool);
  expect_last_of(map, n);
  expect_sound(pool);
}

// What changes within an interval would be longer than the log: 25,000 values, by single puts or a
// batch. Mutations wait for early cuts, and folds, or do them.
TEST_F(Trouble, AnIntervalStaysWithinTheBound) {
  for (const std::uint32_t threads : {1U, 0U}) {
    for (const bool batched : {false, true}) {
      SCOPED_TRACE(std::to_string(threads) + (batched ? " threads, a batch" : " threads"));
      PoolOptions bounded = larger(32_MiB);
      bounded.max_size = 256_MiB;
      bounded.background_threads = threads;
      bounded.buffered.interval_ms = 3000;
      Pool pool = must(PoolImpl::open_in(disk_, path_, bounded));
      auto map = must(pool.map<std::uint64_t, std::string_view>("large", small_map()));
      std::atomic<bool> over{false};
      std::uint64_t most = 0;
      std::thread looks([&] {
        for (; !over.load(); ::usleep(1000)) most = std::max(most, log_size());
      });
      const std::string value(2'000, static_cast<char>('a' + 2 * threads + (batched ? 1 : 0)));
      WriteBatch batch;
      for (std::uint64_t i = 0; i < 25'000; ++i) {
        batched ? batch.put(map, i, value) : must(map.put(i, value));
      }
      must(pool.commit(batch));
      must(pool.sync());
      over.store(true);
      looks.join();
      EXPECT_GT(must(pool.stats()).log_written_bytes, 48_MiB);
      EXPECT_LE(std::max(most, log_size()), 32_MiB + 16_MiB);
      must(pool.close());
    }
  }
}

// A base that takes nothing: writers wait before the bound or at it, whatever on_lag says, and then
// go on.
TEST_F(Trouble, AtTheBoundMutationsWaitForAFold) {
  PoolOptions bounded = larger(32_MiB);
  bounded.buffered.on_lag = OnLag::report;
  Pool pool = must(PoolImpl::open_in(disk_, path_, bounded));
  auto map = later(pool);
  put_until(map, 0, [] { return true; });
  must(pool.sync());
  disk_.hold_file(path_);
  std::atomic<std::uint64_t> n{1};
  std::atomic<bool> over{false};
  std::thread writer([&] {
    while (!over.load()) must(map.put(n.load() % kMany, n.load())), ++n;
  });
  // It waits if it makes no progress for a while.
  std::uint64_t before = 0;
  for (int i = 0; i < 300; ++i) {
    before = n.load();
    ::usleep(100'000);
    if (before == n.load() && must(pool.stats()).log_bytes >= 32_MiB - 4_MiB) break;
  }
  EXPECT_EQ(n.load(), before);
  EXPECT_GE(must(pool.stats()).log_bytes, 32_MiB - 4_MiB);
  EXPECT_LE(must(pool.stats()).log_bytes, 32_MiB + 12_MiB);
  disk_.hold_file("");
  for (int i = 0; i < 3000 && n.load() < before + 1000; ++i) ::usleep(10'000);
  EXPECT_GE(n.load(), before + 1000);
  over.store(true);
  writer.join();
  must(pool.close());
}

// Nothing is cut and folded where nothing changes, in a pool of the usual size, too.
TEST_F(Trouble, APoolThatRestsDoesNothing) {
  Pool pool =
      must(Pool::open(path_, {.durability = Durability::buffered, .buffered = {.interval_ms = 5}}));
  auto map = later(pool);
  must(map.put(1, 1));
  must(pool.sync());
  // On a slow disk a cut may still be under way.
  const auto makes_cuts = [&](useconds_t us) {
    const std::uint64_t before = must(pool.stats()).cuts;
    ::usleep(us);
    return must(pool.stats()).cuts != before;
  };
  for (int i = 0; i < 100 && makes_cuts(50'000); ++i) continue;
  EXPECT_FALSE(makes_cuts(200'000));
  // A power failure would undo nothing: not what was there at the last cut, but what is there now.
  bool rests = false;
  for (int i = 0; i < 100 && !rests; ++i) {
    const std::uint64_t before = RealPlatform::unix_ns();
    const std::uint64_t durable = must(Pool::inspect(path_)).durable_unix_ns;
    rests = durable >= before && durable <= RealPlatform::unix_ns();
    if (!rests) ::usleep(50'000);
  }
  EXPECT_TRUE(rests);
  EXPECT_EQ(must(pool.stats()).lag_ns, 0U);
  EXPECT_EQ(must(pool.stats()).folds, 0U);
  must(pool.fold_log());
  ::usleep(50'000);
  EXPECT_EQ(must(pool.stats()).folds, 1U);
  must(pool.close());
}

// Without threads run_background() folds, piece by piece.
TEST_F(Trouble, WithoutThreadsRunBackgroundFolds) {
  PoolOptions alone = larger(32_MiB);
  alone.background_threads = 0;
  alone.buffered.interval_ms = 3'600'000;  // mutations do it only at the bound
  Pool pool = must(PoolImpl::open_in(disk_, path_, alone));
  auto map = later(pool);
  std::uint64_t steps = 0;
  const std::uint64_t n = put_until(map, 0, [&] {
    must(pool.sync());
    while (must(pool.run_background())) ++steps;
    return must(pool.stats()).folds != 0;
  });
  EXPECT_GE(steps, 3U) << "its begin, a piece, its end";
  close_and_expect(pool, n);
}

// P18: nor does it need that, or any call but mutations.
TEST_F(Trouble, WithoutThreadsMutationsFold) {
  PoolOptions alone = larger(32_MiB);
  alone.background_threads = 0;
  alone.buffered.interval_ms = 1;
  Pool pool = must(PoolImpl::open_in(disk_, path_, alone));
  auto map = later(pool);
  std::uint64_t most = 0;
  const std::uint64_t n = put_until(map, 0, [&] {
    const PoolStats stats = must(pool.stats());
    most = std::max(most, stats.log_bytes);
    return stats.folds >= 2 && stats.log_written_bytes > 40_MiB;
  });
  EXPECT_LE(most, 32_MiB + 8_MiB);
  close_and_expect(pool, n);
}

// A log without space for an epoch is folded by itself, and nothing else is noticed.
TEST_F(Trouble, AFullDiskIsEnoughForALogThatCanBeFolded) {
  skip_if_versions_are_kept();
  if (IsSkipped()) return;
  Pool pool = must(PoolImpl::open_in(disk_, path_, larger()));
  auto map = later(pool);
  std::uint64_t n = put_until(map, 0, [&] { return must(pool.stats()).log_bytes >= 12_MiB; });
  disk_.be_full(true);
  const std::uint64_t written = must(pool.stats()).log_written_bytes;
  n = put_until(map, n, [&] {
    return must(pool.stats()).log_written_bytes > written + scaled(64_MiB, 10_MiB, 10_MiB);
  });
  EXPECT_GT(must(pool.stats()).folds, 0U);
  EXPECT_LE(must(pool.stats()).log_bytes, 16_MiB);
  close_and_expect(pool, n);
}

// With one segment there is nothing to fold.
TEST_F(Trouble, WithoutSpaceMutationsAreRefusedUntilThereIsSome) {
  skip_if_versions_are_kept();
  if (IsSkipped()) return;
  Pool pool = must(PoolImpl::open_in(disk_, path_, larger()));
  auto map = later(pool);
  constexpr std::uint64_t kFew = 1000;  // keys
  std::uint64_t n = 0;
  while (n < kFew) must(map.put(n++, 0));
  must(pool.sync());
  disk_.be_full(true);
  while (map.put(n % kFew, n).ok()) ++n;
  EXPECT_EQ(pool.sync().code(), StatusCode::pool_full);
  EXPECT_FALSE(pool.resume_log().ok());
  EXPECT_FALSE(map.put(n % kFew, n).ok());
  disk_.be_full(false);
  must(pool.resume_log());
  EXPECT_EQ(must(map.get((n - 1) % kFew)), std::optional(n - 1));
  must(map.put(n % kFew, n));
  must(pool.close());
  Pool again = must(Pool::open(path_, {}));
  EXPECT_EQ(must(later(again).get((n - 1) % kFew)), std::optional(n - 1));
  EXPECT_EQ(must(later(again).get(n % kFew)), std::optional(n));
}

// Without a call of resume_log().
TEST_F(Trouble, ALogThatFailedGoesOnByItself) {
  Pool pool = must(PoolImpl::open_in(disk_, path_, options(2)));
  auto map = later(pool);
  must(map.put(0, 0));
  disk_.fail_at(1, true);
  EXPECT_EQ(pool.sync().code(), StatusCode::io);
  ::usleep(1'200'000);
  EXPECT_EQ(map.put(0, 1).status(), StatusCode::io) << "the disk still fails";
  disk_.fail_at(0, false);
  for (int i = 0; i < 500 && !map.put(0, 2).ok(); ++i) ::usleep(10'000);
  must(pool.sync());
  must(pool.close());
  Pool again = must(Pool::open(path_, {}));
  EXPECT_EQ(must(later(again).get(0)), std::optional<std::uint64_t>(2));
}

// A base that cannot be written stops the log, too: resume_log() tries again.
TEST_F(Trouble, AFoldThatFailsIsRepeated) {
  Pool pool = must(PoolImpl::open_in(disk_, path_, larger()));
  auto map = later(pool);
  std::uint64_t n = put_until(map, 0, [] { return true; });
  disk_.break_file(path_);
  EXPECT_EQ(pool.fold_log().code(), StatusCode::io);
  EXPECT_EQ(map.put(1, 1).status(), StatusCode::io);
  must(pool.resume_log());
  n = put_until(map, n, [] { return true; });
  EXPECT_EQ(pool.fold_log().code(), StatusCode::io);
  EXPECT_EQ(must(pool.stats()).folds, 0U);
  disk_.break_file("");
  must(pool.resume_log());
  must(pool.fold_log());
  EXPECT_GT(must(pool.stats()).folds, 0U);
  n = put_until(map, n, [] { return true; });
  close_and_expect(pool, n);
}

// Their writes of the log come behind those of a piece.
TEST_F(Trouble, AFoldWritesLittleAtATimeWhileOthersWaitForCuts) {
  PoolOptions roomy = larger();
  roomy.max_size = 256_MiB;
  Pool pool = must(PoolImpl::open_in(disk_, path_, roomy));
  auto map = must(pool.map<std::uint64_t, std::string_view>("large", small_map()));
  for (const bool waits : {false, true}) {
    const std::string value(2'000, waits ? 'w' : 'v');
    for (std::uint64_t i = 0; i < 4'000; ++i) must(map.put(i, value));
    must(pool.fold_log());
    for (std::uint64_t i = 0; i < 4'000; ++i) must(map.put(i, value + 'x'));
    std::atomic<bool> over{false};
    std::atomic<std::uint64_t> syncs{0};
    std::thread other([&] {
      for (; waits && !over.load(); ++syncs) must(pool.sync());
    });
    while (waits && syncs.load() == 0) ::usleep(100);
    disk_.watch_file(path_);
    must(pool.fold_log());
    const std::uint64_t most = disk_.most_unsynced();
    over.store(true);
    other.join();
    EXPECT_GT(most, 0U);
    EXPECT_EQ(most > 64 * kPage, !waits) << most;
  }
  must(pool.close());
}

// The pool is created, used, and closed. A call fails, once or from there on; then a second process
// goes on, whose calls may fail as well; a third one must find everything that was acknowledged.
TEST_F(Trouble, AnyCallMayFail) {
  std::uint64_t failed = 0;
  std::uint64_t calls = 0;
  const auto use = [&](std::uint64_t failing, bool for_good, std::uint64_t value) {
    disk_.fail_at(failing, for_good);
    std::uint64_t stored = 0;
    if (auto pool = PoolImpl::open_in(disk_, path_, options())) {
      auto map = pool->map<std::uint64_t, std::uint64_t>("later", small_map());
      if (map && map->put(1, value).ok()) stored = value;
      (void)pool->sync();
      if (map && map->put(1, value + 1).ok()) stored = value + 1;
      (void)pool->fold_log();
      if (map && map->put(1, value + 2).ok()) stored = value + 2;
      (void)pool->close();
    }
    calls = disk_.calls();
    failed += disk_.has_failed() ? 1 : 0;
    disk_.fail_at(0, false);
    return stored;
  };
  EXPECT_EQ(use(0, false, 1), 3U);
  const std::uint64_t most = calls;
  // The calls are the same with each engine.
  const std::uint64_t step = scaled(1, chosen_engine().engine == Engine::phast ? 3 : 10, 9);
  std::uint64_t last = 3;
  for (std::uint64_t k = 1; k <= most + 20; k += step) {
    for (const bool for_good : {false, true}) {
      SCOPED_TRACE("call " + std::to_string(k) + (for_good ? " and all after it" : ""));
      for (const std::uint64_t second : {std::uint64_t{0}, k / 2 + 3}) {
        if (const std::uint64_t stored = use(k, for_good, 10 * k)) last = stored;
        if (second != 0) {
          if (const std::uint64_t stored = use(second, true, 10 * k + 5)) last = stored;
        }
        auto pool = Pool::open(path_, {.mode = OpenMode::existing});
        ASSERT_TRUE(pool.has_value()) << describe(pool.error());
        ASSERT_EQ(must(later(*pool).get(1)), std::optional(last));
        expect_sound(*pool);
        must(pool->close());
      }
    }
  }
  EXPECT_GT(failed, 15U);
}

// A copy of an open pool is not trusted. If the open that accepts it is interrupted, the next one
// does not trust it either.
TEST_F(Trouble, AnInterruptedAcceptAcceptsNothing) {
  {
    PoolOptions alone = small_pool();
    alone.background_threads = 0;  // the file does not grow while it is copied
    Pool pool = must(Pool::open(folder_ + "/other", alone));
    fill_pool(pool);
    fs::copy_file(folder_ + "/other", path_);
    must(pool.close());
  }
  PoolOptions accept = options();
  accept.accept_untrusted = true;
  bool refused = false;
  for (std::uint64_t k = 1; k < 60; ++k) {
    disk_.fail_at(k, true);
    auto pool = PoolImpl::open_in(disk_, path_, accept);
    const bool opened = pool.has_value();
    if (opened) must(std::move(pool)).close().ok();
    disk_.fail_at(0, false);
    layout::BaseMark mark;
    std::memcpy(&mark, read_bytes(path_).data() + layout::kMarkOffset, sizeof(mark));
    const bool begun = mark.state == layout::BaseState::open && mark.live.unverified == 1;
    auto plain = Pool::open(path_, {.mode = OpenMode::existing});
    if (plain) {  // the last call has failed: that of the mark which says that the check passed
      EXPECT_TRUE(refused);
      EXPECT_EQ(wrong_content(*plain), "");
      break;
    }
    ASSERT_FALSE(opened) << "call " << k;
    refused = refused || (begun && plain.error() == StatusCode::untrusted);
  }
  EXPECT_TRUE(refused);
  Pool pool = must(Pool::open(path_, accept));
  EXPECT_EQ(wrong_content(pool), "");
}

}  // namespace
}  // namespace perdure::test
