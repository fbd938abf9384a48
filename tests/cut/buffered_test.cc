// test: injects, each engine
// Pools with durability `buffered` in real files: close, kill, power failure, and files that were
// moved, copied, restored, removed or damaged. Each engine.
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "pool/pool_impl.h"
#include "tests/support/buffered_files.h"
#include "tests/support/inject.h"
#include "tests/support/soon.h"

namespace perdure::test {
namespace {

namespace fs = std::filesystem;

using Buffered = BufferedFiles;

TEST_F(Buffered, AfterACloseThereIsOneFile) {
  {
    Pool pool = must(Pool::open(path(), buffered()));
    fill_pool(pool);
    EXPECT_TRUE(exists("pool-live"));
    EXPECT_TRUE(exists("pool-log"));
    EXPECT_EQ(must(pool.info()).durability, Durability::buffered);
    must(pool.close());
  }
  EXPECT_EQ(files(), 1U);
  fs::copy_file(path(), path("copy"));
  for (const char* name : {"pool", "copy"}) {
    Pool pool = must(Pool::open(path(name), as_it_was()));
    EXPECT_EQ(must(pool.info()).durability, Durability::buffered) << "the last mode stays";
    EXPECT_EQ(wrong_content(pool), "");
    expect_sound(pool);
    must(pool.close());
  }
  EXPECT_EQ(files(), 2U);
  // Another mode, and back.
  for (const Durability mode : {Durability::process, Durability::buffered}) {
    Pool pool = must(Pool::open(path(), {.durability = mode}));
    EXPECT_EQ(exists("pool-live"), mode == Durability::buffered);
    EXPECT_EQ(wrong_content(pool), "");
    must(pool.close());
  }
}

// The image is unlinked by the close, and still open here.
TEST_F(Buffered, TheBaseIsTheImageAfterAClose) {
  std::ifstream image;
  {
    Pool pool = must(Pool::open(path(), buffered(1)));
    image.open(path("pool-live"), std::ios::binary);
    fill_pool(pool);
    auto map = later(pool);
    for (std::uint64_t i = 0; i < 5000; ++i) must(map.put(i % 700, i));
    must(pool.close());
  }
  std::string live((std::istreambuf_iterator<char>(image)), {});
  std::string base = read_bytes(path());
  ASSERT_GE(base.size(), must(Pool::inspect(path())).file_bytes);
  const std::size_t size = std::min(base.size(), live.size());
  layout::LiveHead head;
  std::memcpy(&head, live.data() + layout::kMarkOffset, sizeof(head));
  for (std::uint64_t chunk = 0; chunk * head.chunk_bytes < head.covered; ++chunk) {
    if ((head.live[chunk / 64] >> chunk % 64 & 1) != 0) continue;
    const std::uint64_t at = chunk * head.chunk_bytes;
    const std::uint64_t n = std::min(head.chunk_bytes, head.covered - at);
    std::memcpy(live.data() + at, base.data() + at, n);
  }
  for (const std::size_t at : {layout::kMarkOffset, layout::kMarkStride + layout::kMarkOffset}) {
    std::memset(live.data() + at, 0, sizeof(layout::BaseMark));
    std::memset(base.data() + at, 0, sizeof(layout::BaseMark));
  }
  EXPECT_TRUE(std::memcmp(live.data(), base.data(), size) == 0);
}

TEST_F(Buffered, AKillLosesNothing) {
  for (std::uint64_t round = 0; round < 3; ++round) {
    in_killed_process([&](Pool& pool) {
      if (round == 0) fill_pool(pool);
      require(wrong_content(pool).empty(), "content");
      auto map = later(pool);
      for (std::uint64_t i = 0; i < 2000; ++i) must(map.put(round * 10'000 + i, i));
    });
  }
  Pool pool = must(Pool::open(path(), as_it_was()));
  EXPECT_EQ(wrong_content(pool), "");
  auto map = later(pool);
  for (std::uint64_t round = 0; round < 3; ++round) {
    for (std::uint64_t i = 0; i < 2000; ++i) {
      ASSERT_EQ(must(map.get(round * 10'000 + i)), std::optional(i)) << round;
    }
  }
  expect_sound(pool);
  must(pool.close());
  EXPECT_EQ(files(), 1U);
}

TEST_F(Buffered, APowerFailureLosesNothingThatSyncReturnedFor) {
  for (std::uint64_t round = 0; round < 3; ++round) {
    in_killed_process(
        [&](Pool& pool) {
          if (round == 0) fill_pool(pool);
          require(wrong_content(pool).empty(), "content");
          auto map = later(pool);
          for (std::uint64_t i = 0; i < 500; ++i) must(map.put(round, i));
          must(pool.sync());
          for (std::uint64_t i = 500; i < 600; ++i) must(map.put(round, i));
        },
        buffered(3'600'000));
    machine_restarts();
  }
  Pool pool = must(Pool::open(path(), as_it_was()));
  EXPECT_EQ(wrong_content(pool), "");
  auto map = later(pool);
  for (std::uint64_t round = 0; round < 3; ++round) {
    EXPECT_EQ(must(map.get(round)), std::optional<std::uint64_t>(499)) << round;
  }
  expect_sound(pool);
  must(pool.close());
  EXPECT_EQ(files(), 1U);
}

TEST_F(Buffered, ACutComesWithoutASync) {
  in_killed_process(
      [&](Pool& pool) {
        const std::uint64_t cut = must(pool.epoch());
        fill_pool(pool);
        const std::uint64_t filled = RealPlatform::now_ns();
        // Nothing asks for it. Until the last durable cut is younger than the content:
        const auto behind = [&] {
          const std::uint64_t since = RealPlatform::now_ns() - filled;
          return must(pool.stats()).lag_ns >= since;
        };
        for (int i = 0; i < 10'000 && behind(); ++i) ::usleep(1000);
        require(!behind() && must(pool.epoch()) > cut, "no cut");
        for (int i = 0; i < 10'000 && must(pool.stats()).cuts == 0; ++i) ::usleep(1000);
        require(must(pool.stats()).cuts > 0, "no figure");
      },
      buffered(20));
  machine_restarts();
  Pool pool = must(Pool::open(path(), as_it_was()));
  EXPECT_EQ(wrong_content(pool), "");
}

TEST_F(Buffered, ManyThreadsShareACut) {
  Pool pool = must(Pool::open(path(), buffered(3'600'000)));
  EXPECT_EQ(must(pool.stats()).log_bound_bytes, 1_GiB) << "before the first cut, too";
  auto map = later(pool);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 25; ++i) {
        must(map.put(t << 32 | i, i));
        const std::uint64_t cut = must(pool.epoch());
        must(pool.wait_durable(cut));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.wait_durable(must(pool.epoch()) + 1).code(), StatusCode::invalid_argument);
  EXPECT_LT(must(pool.stats()).cuts, 8 * 25U + 2);
  must(pool.close());
}

// The parent's threads may have the latches of cuts and folds.
TEST_F(Buffered, AChildLeavesThePoolToItsParent) {
  Pool pool = must(Pool::open(path(), buffered(1)));
  fill_pool(pool);
  std::atomic<bool> over{false};
  std::thread folds([&] {
    while (!over.load()) must(pool.fold_log());
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = start_child([&] {
      ::alarm(20);  // kills a child that hangs
      {
        const Pool gone = std::move(pool);
      }
      ::_exit(0);
    });
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  over.store(true);
  folds.join();
  must(pool.close());
  Pool again = must(Pool::open(path(), as_it_was()));
  EXPECT_EQ(wrong_content(again), "");
}

TEST_F(Buffered, WithoutAThreadCallersMakeTheCuts) {
  PoolOptions options = buffered(1);
  options.background_threads = 0;
  Pool pool = must(Pool::open(path(), options));
  fill_pool(pool);
  const std::uint64_t cuts = must(pool.stats()).cuts;
  ::usleep(5000);
  EXPECT_TRUE(must(pool.run_background()));
  EXPECT_EQ(must(pool.stats()).cuts, cuts + 1);
  auto map = must(pool.map<std::uint64_t, std::uint64_t>("later", small_map()));
  must(map.put(1, 1));
  must(pool.sync());
  EXPECT_GE(must(pool.stats()).cuts, cuts + 2);
  must(pool.close());
}

// P18: a program that only stores has its cuts, too. Each is older than what is stored after it.
TEST_F(Buffered, WithoutAThreadMutationsMakeTheCuts) {
  PoolOptions options = buffered(1);
  options.background_threads = 0;
  Pool pool = must(Pool::open(path(), options));
  auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", small_map()));
  const std::uint64_t epoch = must(pool.epoch());
  std::uint64_t n = 0;
  while (must(pool.stats()).cuts < 3 && n < 10'000'000) must(map.put(n++ % 1000, n));
  EXPECT_GE(must(pool.stats()).cuts, 3U) << "of " << n << " puts";
  EXPECT_GE(must(pool.epoch()), epoch + 3);
  // A batch makes one, too.
  ::usleep(2000);
  const std::uint64_t before = must(pool.stats()).cuts;
  WriteBatch batch;
  batch.put(map, 1, 1);
  const std::uint64_t began = RealPlatform::now_ns();
  must(pool.commit(batch));
  const std::uint64_t intervals = (RealPlatform::now_ns() - began) / 1'000'000;
  EXPECT_GT(must(pool.stats()).cuts, before);
  EXPECT_LE(must(pool.stats()).cuts, before + 1 + intervals);
  must(pool.close());
}

TEST_F(Buffered, OtherModesHaveNoEpochs) {
  Pool pool = must(Pool::open(path(), {.durability = Durability::process, .max_size = 4_MiB}));
  EXPECT_EQ(pool.epoch().error().code(), StatusCode::unsupported);
  EXPECT_EQ(pool.wait_durable(1).code(), StatusCode::unsupported);
  must(pool.resume_log());
}

TEST_F(Buffered, AReaderSeesThePoolInUse) {
  Pool pool = must(Pool::open(path(), buffered()));
  fill_pool(pool);
  must(pool.sync());  // ends the resizes, which move what the reader looks for
  {
    Pool reader = must(Pool::open(path(), {.mode = OpenMode::read_only}));
    EXPECT_EQ(wrong_content(reader), "");
  }
  EXPECT_EQ(refused(), StatusCode::busy);
  const PoolInfo info = must(Pool::inspect(path()));
  EXPECT_TRUE(info.in_use);
  EXPECT_EQ(info.maps.size(), 2U);
  must(pool.close());
}

// --- files that are not where they were --------------------------------------------------------

TEST_F(Buffered, WithoutItsLiveImageItIsRefused) {
  kill_after_a_sync();
  fs::rename(path("pool-live"), path("away"));
  const std::string before = read_bytes(path());
  EXPECT_EQ(refused(), StatusCode::live_missing);
  EXPECT_NE(message_.find("pool-live"), std::string::npos) << message_;
  EXPECT_EQ(refused({.mode = OpenMode::read_only}), StatusCode::live_missing);
  EXPECT_EQ(read_bytes(path()), before);
  fs::rename(path("away"), path("pool-live"));
  {  // back where it was: nothing is lost
    Pool pool = must(Pool::open(path(), as_it_was()));
    EXPECT_EQ(must(later(pool).get(1)), std::optional<std::uint64_t>(1));
    EXPECT_EQ(wrong_content(pool), "");
  }
}

TEST_F(Buffered, TheLossOfTheLiveImageCanBeAccepted) {
  kill_after_a_sync();
  fs::remove(path("pool-live"));
  EXPECT_EQ(refused(), StatusCode::live_missing);
  PoolOptions accept = as_it_was();
  accept.accept_untrusted = true;
  Pool pool = must(Pool::open(path(), accept));
  EXPECT_EQ(wrong_content(pool), "");
  EXPECT_FALSE(must(later(pool).get(1)).has_value());
  expect_sound(pool);
}

TEST_F(Buffered, ACopyOfAnOpenPoolIsRefused) {
  {
    Pool pool = must(Pool::open(path(), buffered()));
    fill_pool(pool);
    must(pool.sync());
    fs::copy_file(path(), path("copy"));
    EXPECT_EQ(refused(as_it_was(), "copy"), StatusCode::untrusted) << message_;
    EXPECT_EQ(refused({.mode = OpenMode::read_only}, "copy"), StatusCode::untrusted) << message_;
    machine_restarts("copy");
    EXPECT_EQ(refused(as_it_was(), "copy"), StatusCode::untrusted) << "its log is missing";
    must(pool.close());
  }
  Pool pool = must(Pool::open(path(), as_it_was()));
  EXPECT_EQ(wrong_content(pool), "");
}

TEST_F(Buffered, AMovedBaseWithoutItsLogIsRefused) {
  in_killed_process([&](Pool& pool) {
    fill_pool(pool);
    must(pool.sync());
  });
  fs::create_directory(path("other"));
  fs::rename(path(), path("other/pool"));
  EXPECT_EQ(refused(as_it_was(), "other/pool"), StatusCode::live_missing);
  fs::rename(path("pool-live"), path("other/pool-live"));
  fs::rename(path("pool-live-dirty"), path("other/pool-live-dirty"));
  EXPECT_EQ(refused(as_it_was(), "other/pool"), StatusCode::untrusted);
  fs::rename(path("pool-log"), path("other/pool-log"));
  Pool pool = must(Pool::open(path("other/pool"), as_it_was()));
  EXPECT_EQ(wrong_content(pool), "");
}

// P10: a backup copied over the base, which was left open. The newer live image must lose, and
// stays under another name.
TEST_F(Buffered, ABackupOverTheBaseWins) {
  {
    Pool pool = must(Pool::open(path(), buffered()));
    fill_pool(pool);
  }
  const std::string backup = read_bytes(path());
  in_killed_process([&](Pool& pool) { must(later(pool).put(1, 1)); });
  write_bytes(path(), backup);  // the same inode
  const std::uint64_t before = RealPlatform::unix_ns();
  {
    Pool pool = must(Pool::open(path(), as_it_was()));
    EXPECT_EQ(wrong_content(pool), "");
    EXPECT_EQ(must(pool.list()).size(), 2U);
  }
  std::size_t aside = 0;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    aside += entry.path().filename().string().starts_with("pool-live.unknown-") ? 1 : 0;
  }
  EXPECT_EQ(aside, 2U);
  const PoolInfo info = must(Pool::inspect(path()));
  ASSERT_EQ(info.aside_images.size(), 1U);
  const AsideImage& image = info.aside_images[0];
  EXPECT_EQ(fs::path(image.path).parent_path(), fs::canonical(folder_));
  EXPECT_TRUE(fs::exists(image.path) && fs::exists(image.path + "-dirty"));
  EXPECT_LE(image.durable_unix_ns, before);
  EXPECT_GT(image.durable_unix_ns, before - 60'000'000'000);
}

TEST_F(Buffered, ALinkIsAsGoodAsTheFile) {
  fs::create_directory(path("links"));
  fs::create_symlink(fs::absolute(path()), path("links/pool"));
  {
    Pool pool = must(Pool::open(path(), buffered()));
    fill_pool(pool);
    must(pool.close());
  }
  {
    Pool pool = must(Pool::open(path("links/pool"), as_it_was()));
    EXPECT_TRUE(exists("pool-live"));
    EXPECT_EQ(wrong_content(pool), "");
  }
  fs::create_hard_link(path(), path("links/hard"));
  EXPECT_EQ(refused(), StatusCode::invalid_argument);
  EXPECT_NE(message_.find("hard links"), std::string::npos) << message_;
  EXPECT_NE(message_.find("open it for reading"), std::string::npos) << message_;
  {
    Pool pool = must(Pool::open(path("links/hard"), {.mode = OpenMode::read_only}));
    EXPECT_EQ(wrong_content(pool), "");
  }
  fs::remove(path("links/hard"));
  EXPECT_EQ(refused(), StatusCode::ok);
}

TEST_F(Buffered, AHalfMadeImageIsNone) {
  {
    Pool pool = must(Pool::open(path(), buffered()));
    fill_pool(pool);
  }
  write_bytes(path("pool-live.creating"), "half");
  Pool pool = must(Pool::open(path(), as_it_was()));
  EXPECT_EQ(wrong_content(pool), "");
  must(pool.close());
  EXPECT_EQ(files(), 1U);
}

TEST_F(Buffered, TheImageCanBeInAnotherFolder) {
  fs::create_directory(path("memory"));
  const std::string memory = fs::absolute(path("memory")).string();
  PoolOptions options = buffered();
  options.buffered.memory_directory = memory;
  in_killed_process([&](Pool& pool) { fill_pool(pool); }, options);
  EXPECT_FALSE(exists("pool-live"));
  EXPECT_FALSE(fs::is_empty(memory));
  {  // it is found without the option
    Pool pool = must(Pool::open(path(), as_it_was()));
    EXPECT_EQ(wrong_content(pool), "");
  }
  EXPECT_TRUE(fs::is_empty(memory));
  options.buffered.memory_directory = "memory";
  EXPECT_EQ(refused(options), StatusCode::invalid_argument);
  options.buffered.memory_directory = "/nowhere/at/all";
  EXPECT_NE(refused(options), StatusCode::ok);
  EXPECT_EQ(refused(), StatusCode::ok) << message_;
}

// Each attempt has the name of the one before, whose image is of no use.
TEST_F(Buffered, KilledRestoresLeaveOneImage) {
  fs::create_directory(path("memory"));
  const std::string memory = fs::absolute(path("memory")).string();
  PoolOptions options = buffered(3'600'000);
  options.buffered.memory_directory = memory;
  in_killed_process(
      [&](Pool& pool) {
        fill_pool(pool);
        must(pool.sync());
      },
      options);
  machine_restarts();
  const std::size_t before = entries_of(memory.c_str());
  const auto killed_at = [&](std::uint64_t k) {
    const pid_t child = start_child([&] {
      set_deadly(true);
      const Failing failing(Fault::fsync, k, false);
      Pool pool = must(Pool::open(path(), options));
      ::_exit(0);
    });
    int status = 0;
    require(::waitpid(child, &status, 0) == child, "waitpid");
    return WIFSIGNALED(status);
  };
  int killed = 0;
  for (std::uint64_t k = 1; killed_at(k); ++k) {
    for (int again = 0; again < 3; ++again) killed += killed_at(k) ? 1 : 0;
    EXPECT_LE(entries_of(memory.c_str()), before + 3) << k;
  }
  EXPECT_GT(killed, 2);
  Pool pool = must(Pool::open(path(), options));
  EXPECT_EQ(wrong_content(pool), "");
  must(pool.close());
  EXPECT_LE(entries_of(memory.c_str()), before);
}

// P14. What is used again has its space in the base, before it has some in the image.
TEST_F(Buffered, CompactMakesTheBaseSmaller) {
  const auto space = [&] {
    struct stat info{};
    EXPECT_EQ(::stat(path().c_str(), &info), 0);
    return static_cast<std::uint64_t>(info.st_blocks) * 512;
  };
  PoolOptions options = buffered(3'600'000);
  options.max_size = 64_MiB;
  const auto fill = [](Pool& pool, char c) {
    auto map = must(pool.map<std::uint64_t, std::string_view>("large", small_map()));
    for (std::uint64_t i = 0; i < 400; ++i) must(map.put(i, std::string(30'000, c)));
    return map;
  };
  {
    Pool pool = must(Pool::open(path(), options));
    fill(pool, 'a');
    must(pool.close());
  }
  const std::uint64_t full = space();
  ASSERT_GT(full, 12_MiB);
  bool refills = false;
  const auto shrink = [&](Pool& pool) {
    fill(pool, 'b');
    must(pool.sync());
    must(pool.drop("large"));
    require(must(pool.compact()) > 10_MiB, "it says so");
    require(space() < full - 10_MiB, "it is so");
    require(must(pool.compact()) == 0, "once");
    if (!refills) return;
    const std::uint64_t small = space();
    fill(pool, 'c');
    require(space() > small + 10_MiB, "before a fold");
    must(pool.sync());
  };
  in_killed_process(shrink, options);
  {  // The log has what the base has given back.
    Pool pool = must(Pool::open(path(), options));
    must(pool.fold_log());
    must(pool.close());
    EXPECT_LT(space(), full - 10_MiB);
    Pool again = must(Pool::open(path(), options));
    fill(again, 'd');
    must(again.close());
  }
  refills = true;
  in_killed_process(shrink, options);
  machine_restarts();
  Pool pool = must(Pool::open(path(), as_it_was()));
  auto map = must(pool.map<std::uint64_t, std::string_view>("large", small_map()));
  for (std::uint64_t i = 0; i < 400; ++i) {
    ASSERT_TRUE(must(map.get(i)) == std::string(30'000, 'c')) << i;
  }
  expect_sound(pool);
}

// A refused open leaves nothing.
TEST_F(Buffered, WithoutItsFolderForTheImageNothingIsMade) {
  PoolOptions options = buffered();
  options.buffered.memory_directory = "/there/is/no/such/folder";
  EXPECT_FALSE(Pool::open(path(), options).has_value());
  EXPECT_FALSE(fs::exists(path()));
  EXPECT_FALSE(fs::exists(path() + "-log"));
  {
    Pool pool = must(Pool::open(path(), buffered()));
    fill_pool(pool);
  }
  EXPECT_FALSE(Pool::open(path(), options).has_value());
  EXPECT_TRUE(fs::exists(path()));
}

TEST_F(Buffered, OptionsAreVerified) {
  for (const std::uint32_t interval : {0U, 3'600'001U}) {
    EXPECT_EQ(refused(buffered(interval)), StatusCode::invalid_argument);
  }
  TempPath memory;
  EXPECT_EQ(Pool::open(memory, buffered()).error().code(), StatusCode::unsupported);
}

// --- damage --------------------------------------------------------------------------------------

TEST_F(Buffered, AShortImageIsRefused) {
  in_killed_process([&](Pool& pool) {
    fill_pool(pool);
    must(pool.sync());
  });
  fs::resize_file(path("pool-live"), 8192);
  EXPECT_NE(refused(), StatusCode::ok);
  fs::remove(path("pool-live-dirty"));
  EXPECT_EQ(refused(), StatusCode::live_missing) << message_;
  PoolOptions accept = as_it_was();
  accept.accept_untrusted = true;
  Pool pool = must(Pool::open(path(), accept));
  EXPECT_EQ(wrong_content(pool), "");
}

TEST_F(Buffered, AShortBaseIsRefused) {
  in_killed_process([&](Pool& pool) {
    fill_pool(pool);
    must(pool.sync());
  });
  {
    Pool pool = must(Pool::open(path(), as_it_was()));
  }
  in_killed_process([&](Pool& pool) { must(later(pool).put(1, 1)); });
  fs::resize_file(path(), fs::file_size(path()) / 2);
  machine_restarts();
  EXPECT_EQ(refused(), StatusCode::corruption) << message_;
}

TEST_F(Buffered, AForeignLogIsRefusedAndStays) {
  {
    Pool pool = must(Pool::open(path("other"), buffered()));
    fill_pool(pool);
    must(pool.sync());
    fs::copy(path("other-log"), path("pool-log"), fs::copy_options::recursive);
  }
  EXPECT_EQ(refused(buffered()), StatusCode::exists);
  EXPECT_NE(message_.find("pool-log"), std::string::npos) << message_;
  EXPECT_FALSE(fs::is_empty(path("pool-log")));
  fs::remove_all(path("pool-log"));
  EXPECT_EQ(refused(buffered()), StatusCode::ok) << message_;
}

// --- errors of the disk ------------------------------------------------------------------------

TEST_F(Buffered, AfterAnErrorOfTheLogMutationsFailUntilItGoesOn) {
  PoolOptions options = buffered(3'600'000);
  options.background_threads = 0;
  Pool pool = must(Pool::open(path(), options));
  fill_pool(pool);
  auto map = later(pool);
  must(map.put(1, 1));
  Status s;
  {
    const Armed armed;
    set_fault(Fault::fdatasync, 1, false);
    s = pool.sync();
  }
  EXPECT_EQ(s.code(), StatusCode::io) << describe(s);
  EXPECT_NE(must(pool.stats()).log_failed_unix_ns, 0U);
  const Found put = map.put(2, 2);
  ASSERT_FALSE(put.ok());
  EXPECT_EQ(put.status().code(), StatusCode::io);
  EXPECT_NE(put.status().message().find("resume_log"), std::string::npos);
  EXPECT_EQ(pool.drop("later").code(), StatusCode::io);
  EXPECT_EQ(pool.sync().code(), StatusCode::io);
  EXPECT_EQ(must(map.get(1)), std::optional<std::uint64_t>(1)) << "reads go on";
  must(pool.resume_log());
  must(map.put(2, 2));
  must(pool.close());
  Pool again = must(Pool::open(path(), as_it_was()));
  EXPECT_EQ(wrong_content(again), "");
  EXPECT_EQ(must(later(again).get(2)), std::optional<std::uint64_t>(2));
}

}  // namespace
}  // namespace perdure::test
