// test: no asan, each engine
// Ownership of a pool, refused arguments, and the pool's reports about itself. It does not say
// `cross`: qemu-user 7.2 ignores MADV_DONTFORK.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/small_pool.h"

namespace perdure::test {
namespace {

// ---- Ownership ----

TEST(Busy, OpenedTwiceInOneProcess) {
  TempPath path;
  Pool pool = open_pool(path, small_pool());
  fill_pool(pool);
  const auto second = Pool::open(path, small_pool());
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), StatusCode::busy);
  EXPECT_NE(second.error().message().find(std::to_string(getpid())), Bytes::npos)
      << second.error().message();
  EXPECT_NE(second.error().message().find("this process"), Bytes::npos) << second.error().message();
  EXPECT_EQ(wrong_content(pool), "") << "the refused open disturbed the owner";
  must(must(pool.map<std::uint64_t, std::uint64_t>("numbers", small_map())).insert(1, 1));
  must(pool.close());
  Pool third = open_pool(path, small_pool());
  EXPECT_EQ(wrong_content(third), "");
}

TEST(Busy, OpenedByAnotherProcessWhichIsNamed) {
  TempPath path;
  int ready[2], finish[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(finish), 0);
  const pid_t owner = start_child([&] {
    close(finish[1]);
    Pool pool = open_pool(path, small_pool());
    fill_pool(pool);
    require(write(ready[1], "x", 1) == 1, "pipe");
    char c = 0;
    require(read(finish[0], &c, 1) == 0, "the parent closes the pipe");
    require(wrong_content(pool).empty(), "the content was disturbed");
    must(pool.close());
  });
  close(ready[1]);
  close(finish[0]);
  char c = 0;
  ASSERT_EQ(read(ready[0], &c, 1), 1);
  const auto second = Pool::open(path, small_pool());
  EXPECT_EQ(code_of(second), StatusCode::busy);
  if (!second) {
    EXPECT_NE(second.error().message().find(std::to_string(owner)), Bytes::npos)
        << second.error().message();
    EXPECT_NE(second.error().message().find("`buffered`"), Bytes::npos) << second.error().message();
  }
  // A pool in use can be inspected; the report names its owner.
  const PoolInfo info = must(Pool::inspect(path));
  EXPECT_TRUE(info.in_use);
  EXPECT_EQ(info.owner_pid, owner);
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  EXPECT_EQ(info.owner_host, host);
  EXPECT_EQ(info.maps.size(), 2U);
  EXPECT_FALSE(info.clean);
  close(finish[1]);
  close(ready[0]);
  const ChildEnd end = wait_child(owner);
  EXPECT_TRUE(end.ok()) << end;
  EXPECT_FALSE(must(Pool::inspect(path)).in_use);
  Pool pool = open_pool(path, small_pool());
  EXPECT_EQ(wrong_content(pool), "");
}

TEST(Busy, AnOpenWaitsAsLongAsItIsTold) {
  TempPath path;
  Pool pool = open_pool(path, small_pool());
  const auto milliseconds_since = [](auto begin) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                                 begin)
        .count();
  };
  PoolOptions options = small_pool();
  options.open_timeout_ms = 60;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(code_of(Pool::open(path, options)), StatusCode::busy);
  EXPECT_GE(milliseconds_since(begin), 60);
  std::thread closer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    must(pool.close());
  });
  options.open_timeout_ms = 60'000;
  const auto second = Pool::open(path, options);
  EXPECT_TRUE(second.has_value()) << describe(second.error());
  EXPECT_LT(milliseconds_since(begin), 30'000);
  closer.join();
  // What no wait can mend is told at once.
  options.mode = OpenMode::create_new;
  const auto third = std::chrono::steady_clock::now();
  EXPECT_FALSE(Pool::open(path, options).has_value());
  options.mode = OpenMode::existing;
  EXPECT_EQ(code_of(Pool::open(path.str() + "-none", options)), StatusCode::not_found);
  EXPECT_LT(milliseconds_since(third), 30'000);
}

// The lock of a dead owner is free.
TEST(Busy, AKilledOwnerDoesNotKeepThePool) {
  TempPath path;
  const ChildEnd end = run_child([&] {
    Pool pool = open_pool(path, small_pool());
    fill_pool(pool);
    kill(getpid(), SIGKILL);
  });
  ASSERT_EQ(end.signal, SIGKILL);
  const PoolInfo info = must(Pool::inspect(path));
  EXPECT_FALSE(info.in_use);
  EXPECT_FALSE(info.clean);
  EXPECT_TRUE(info.trusted) << "killed in this boot: nothing is lost";
  Pool pool = open_pool(path, small_pool());
  EXPECT_EQ(wrong_content(pool), "");
  expect_sound(pool);
}

// What the message says: the parent closes it, then the child opens it, and then the parent again.
TEST(Fork, TheChildKeepsNoLock) {
  TempPath path;
  Pool pool = open_pool(path, small_pool());
  fill_pool(pool);
  int closed[2];
  ASSERT_EQ(pipe(closed), 0);
  const pid_t child = start_child([&] {
    close(closed[1]);
    char c = 0;
    require(read(closed[0], &c, 1) == 0, "the parent closes the pipe");
    Pool own = open_pool(path, small_pool());
    require(wrong_content(own).empty(), "the content");
    must(own.close());
  });
  close(closed[0]);
  must(pool.close());
  close(closed[1]);
  EXPECT_TRUE(wait_child(child).ok());
  Pool again = open_pool(path, small_pool());
  EXPECT_EQ(wrong_content(again), "");
}

// A child of fork must not use its parent's pool. Its calls may fail or raise a signal. The
// parent's pool stays whole and owned by the parent, and unclean until the parent closes it.
TEST(Fork, TheChildCannotHarmTheParentsPool) {
  for (int deed = 0; deed < 6; ++deed) {
    SCOPED_TRACE("deed " + std::to_string(deed));
    TempPath path;
    std::optional<Pool> pool(open_pool(path, small_pool()));
    fill_pool(*pool);
    must(pool->map<std::uint64_t, std::uint64_t>("dropped"));
    must(pool->drop("dropped"));  // stays until the close; the child must not touch it
    std::optional numbers(must(pool->map<std::uint64_t, std::uint64_t>("numbers", small_map())));
    std::optional texts(must(pool->map<Bytes, Bytes>("texts", small_map())));
    const pid_t child = start_child([&] {
      alarm(20);
      switch (deed) {
        case 0:
          for (std::uint64_t i = 0; i < 1'000; ++i) (void)numbers->insert(mix(i + 1'000'000), i);
          break;
        case 1:
          for (std::uint64_t i = 0; i < kEntries; ++i) (void)texts->erase(text_of(i));
          break;
        case 2:
          (void)pool->close();
          break;
        case 3:
          pool.reset();
          break;
        case 4:
          (void)pool->drop("texts");
          break;
        case 5:
          (void)pool->sync();
          (void)pool->compact();
          (void)pool->check({.deep = true});
          break;
      }
    });
    wait_child(child);  // by exit or signal
    // Still owned: a third process is refused.
    const ChildEnd third = run_child([&] {
      require(code_of(Pool::open(path, small_pool())) == StatusCode::busy, "not busy any more");
    });
    EXPECT_TRUE(third.ok()) << third;
    EXPECT_FALSE(must(Pool::inspect(path)).clean) << "the child marked it clean";
    EXPECT_EQ(wrong_content(*pool), "");
    for (std::uint64_t i = 0; i < 500; ++i) {
      ASSERT_TRUE(was_absent(numbers->insert(mix(i + 2'000'000), i)));
      ASSERT_TRUE(was_absent(texts->insert("after" + std::to_string(i), "value")));
    }
    EXPECT_EQ(numbers->stats().entries, kEntries + 500);
    expect_sound(*pool);
    numbers.reset();
    texts.reset();
    must(pool->close());
    pool.reset();
    Pool again = open_pool(path, small_pool());
    EXPECT_EQ(wrong_content(again), "");
    EXPECT_EQ(must(again.map<std::uint64_t, std::uint64_t>("numbers", small_map())).stats().entries,
              kEntries + 500);
    expect_sound(again);
  }
}

// ---- Arguments ----

TEST(Arguments, PoolSizes) {
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{1}, kMinPoolSize - 1,
                                   kMaxPoolSize + 1, ~std::uint64_t{0}}) {
    TempPath path;
    EXPECT_EQ(code_of(Pool::open(path, {.max_size = size})), StatusCode::invalid_argument) << size;
    EXPECT_FALSE(std::filesystem::exists(path.str())) << "refused, but created";
  }
  for (const std::uint64_t size : {kMinPoolSize, kMinPoolSize + 1, 3_MiB - 7, 100_GiB}) {
    TempPath path;
    auto pool = Pool::open(path, {.max_size = size});
    ASSERT_TRUE(pool.has_value()) << size << ": " << describe(pool.error());
    EXPECT_LE(must(pool->info()).max_bytes, size);
    EXPECT_LE(must(pool->info()).file_bytes, size);
    auto map = must(pool->map<std::uint64_t, std::uint64_t>("m", {.phast = {.partition_bits = 0}}));
    must(map.insert(1, 2));
  }
}

// The creation sets the maximum. A later open with another one keeps it.
TEST(Arguments, MaxSizeIsThatOfTheCreation) {
  TempPath path;
  make_pool(path);
  const std::uint64_t made = must(Pool::inspect(path)).max_bytes;
  EXPECT_LE(made, small_pool().max_size);
  Pool pool = open_pool(path, {.max_size = 1_GiB});
  EXPECT_EQ(must(pool.info()).max_bytes, made);
}

TEST(Arguments, Partitions) {
  TempPath path;
  Pool pool = open_pool(path, {.max_size = 1_GiB});
  auto open_with = [&](const char* name, PhastOptions phast) {
    return code_of(pool.map<std::uint64_t, std::uint64_t>(name, {.phast = phast}));
  };
  EXPECT_EQ(open_with("a", {.partition_bits = 17}), StatusCode::invalid_argument);
  EXPECT_EQ(open_with("a", {.partition_bits = PhastOptions::kAuto - 1}),
            StatusCode::invalid_argument);
  EXPECT_EQ(open_with("a", {.partition_shift = 64}), StatusCode::invalid_argument);
  EXPECT_TRUE(must(pool.list()).empty());
  EXPECT_EQ(open_with("a", {.partition_bits = 0}), StatusCode::ok);
  EXPECT_EQ(open_with("b", {.partition_bits = 16}), StatusCode::ok);
  EXPECT_EQ(open_with("c", {.partition_bits = 8, .partition_shift = 16}), StatusCode::ok);
  // Keys on both sides of the configured bits.
  auto map = must(pool.ordered_map<std::uint64_t, std::uint64_t>("c"));
  std::vector<std::uint64_t> keys;
  for (std::uint64_t i = 0; i < 600; ++i) keys.push_back(i << 13);
  for (const std::uint64_t high :
       {std::uint64_t{1} << 24, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    keys.insert(keys.end(), {high - 1, high});
  }
  for (const std::uint64_t key : keys) EXPECT_TRUE(was_absent(map.put(key, key))) << key;
  for (const std::uint64_t key : keys) EXPECT_EQ(must(map.get(key)), std::optional(key));
  std::vector<std::uint64_t> seen;
  must(map.scan(ScanOptions<std::uint64_t>{},
                [&](std::uint64_t key, std::uint64_t) { seen.push_back(key); }));
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(seen, keys);
  expect_sound(pool);
}

TEST(Arguments, EnginesThatAreOnlyPlanned) {
  TempPath path;
  Pool pool = open_pool(path, small_pool());
  for (const Engine engine : {static_cast<Engine>(0), static_cast<Engine>(77)}) {
    const auto map = pool.map<std::uint64_t, std::uint64_t>("m", {.engine = engine});
    EXPECT_TRUE(code_of(map) == StatusCode::unsupported ||
                code_of(map) == StatusCode::invalid_argument)
        << int(engine);
  }
  EXPECT_TRUE(must(pool.list()).empty());
}

TEST(Arguments, Durability) {
  TempPath path;
  EXPECT_EQ(code_of(Pool::open(path, {.durability = static_cast<Durability>(9)})),
            StatusCode::invalid_argument);
  // Open reports what the medium cannot guarantee: memory that goes with the machine has no
  // `power`.
  if (scratch_dir() == "/dev/shm") {
    const auto pool = Pool::open(path, {.durability = Durability::power});
    EXPECT_EQ(code_of(pool), StatusCode::unsupported) << (pool ? "" : describe(pool.error()));
    EXPECT_FALSE(std::filesystem::exists(path.str())) << "refused, but created";
  }
  Pool pool = open_pool(path, small_pool());
  EXPECT_EQ(must(pool.info()).durability, Durability::process);
  EXPECT_TRUE(must(pool.info()).medium == Medium::volatile_ram || scratch_dir() != "/dev/shm");
}

TEST(Arguments, ThatNoPoolCanHave) {
  TempPath path;
  PoolOptions slow = small_pool();
  slow.write_latency_ns = 100;
  EXPECT_EQ(code_of(Pool::open(path, slow)), StatusCode::invalid_argument) << "not emulated";
  EXPECT_EQ(code_of(Pool::open(path, {.mode = static_cast<OpenMode>(4)})),
            StatusCode::invalid_argument);
  EXPECT_EQ(code_of(Pool::open(path, {.background_threads = kMaxBackgroundThreads + 1})),
            StatusCode::invalid_argument);
  EXPECT_FALSE(std::filesystem::exists(path.str())) << "refused, but created";
  slow.durability = Durability::emulated;
  must(open_pool(path, slow).close());
}

// ---- Reports and housekeeping ----

TEST(Housekeeping, InfoOfAnOpenAndAClosedPool) {
  TempPath path;
  std::string uuid;
  {
    Pool pool = open_pool(path, small_pool());
    fill_pool(pool);
    PoolInfo info = must(pool.info());
    const auto size = [&] { return std::filesystem::file_size(path.str()); };
    for (int i = 0; i < 1000 && info.file_bytes != size(); ++i) {  // clevel may be growing
      usleep(1000);
      info = must(pool.info());
    }
    EXPECT_EQ(info.path, path.str());
    EXPECT_FALSE(info.uuid.empty());
    EXPECT_EQ(info.file_bytes, size());
    EXPECT_EQ(info.maps.size(), 2U);
    EXPECT_GT(info.extent_bytes, 0U);
    EXPECT_FALSE(info.filesystem.empty());
    EXPECT_FALSE(info.flush_instruction.empty());
    EXPECT_EQ(info.owner_pid, getpid());
    uuid = info.uuid;
    must(pool.close());
    EXPECT_TRUE(pool.close().ok()) << "close is idempotent";
  }
  const PoolInfo info = must(Pool::inspect(path));
  EXPECT_EQ(info.uuid, uuid);
  EXPECT_TRUE(info.clean);
  EXPECT_TRUE(info.synced);
  EXPECT_TRUE(info.trusted);
  EXPECT_FALSE(info.in_use);
  EXPECT_EQ(info.maps.size(), 2U);
  TempPath other("other");
  Pool pool = open_pool(other, small_pool());
  EXPECT_NE(must(pool.info()).uuid, uuid);
}

TEST(Housekeeping, StatsAddUp) {
  TempPath path;
  Pool pool = open_pool(path, {.max_size = 256_MiB});
  auto map = must(pool.map<std::uint64_t, Bytes>("m"));
  for (std::uint64_t i = 0; i < 20'000; ++i) must(map.insert(i, std::string(100, 'v')));
  const PoolStats stats = must(pool.stats());
  EXPECT_EQ(stats.file_bytes, std::filesystem::file_size(path.str()));
  EXPECT_LE(stats.assigned_bytes + stats.free_bytes, stats.file_bytes);
  EXPECT_EQ(stats.used_bytes + stats.free_bytes, stats.file_bytes);
  EXPECT_EQ(stats.max_bytes, 256_MiB);
  EXPECT_GE(stats.disk_bytes, stats.allocated_bytes);
  EXPECT_LE(stats.allocated_bytes, stats.assigned_bytes);
  EXPECT_GE(stats.allocated_bytes, 20'000U * 116);
  EXPECT_GE(stats.fragmentation, 0.0);
  EXPECT_LT(stats.fragmentation, 1.0);
  ASSERT_EQ(stats.maps.size(), 1U);
  EXPECT_EQ(stats.maps[0].name, "m");
  EXPECT_EQ(stats.maps[0].entries, 20'000U);
  EXPECT_GE(stats.maps[0].pm_bytes, 20'000U * 116);
  EXPECT_LE(stats.maps[0].pm_bytes, stats.assigned_bytes);
  EXPECT_GT(stats.maps[0].load_factor, 0.2);
  EXPECT_LE(stats.maps[0].load_factor, 1.0);
  EXPECT_GE(stats.maps[0].leaves, 20'000U / 60);
  EXPECT_GE(stats.maps[0].height, 2U);
  const CheckReport report = must(pool.check({.deep = true}));
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.entries, 20'000U);
  EXPECT_GE(report.objects, 20'000U);
}

// Only a deep check reads records. It reports its progress in ascending steps.
TEST(Housekeeping, CheckLooksAtStructureDeepCheckAtEverything) {
  TempPath path;
  const PoolOptions options{.durability = Durability::process, .max_size = 64_MiB};
  const std::string marked = "a value that is found in the file again";
  {
    Pool pool = open_pool(path, options);
    auto map = must(pool.map<Bytes, Bytes>("m", {.phast = {.partition_bits = 2}}));
    // The first bytes of the keys differ: an open reads only records at the edges of leaves.
    for (std::uint64_t i = 0; i < 10'000; ++i) {
      must(map.insert(std::to_string(mix(i)), std::string(100, 'v')));
    }
    must(map.insert(std::to_string(mix(77'777)), marked));
    must(pool.close());
  }
  std::string bytes = read_bytes(path);
  bytes[bytes.find(marked) + 3] ^= 1;
  write_bytes(path, bytes);
  Pool pool = open_pool(path, options);
  struct Steps {
    std::uint64_t calls = 0;
    std::uint64_t done = 0;
    std::uint64_t total = 0;
  } steps;
  CheckOptions check{.progress = [](void* context, std::uint64_t done, std::uint64_t total) {
    auto& s = *static_cast<Steps*>(context);
    EXPECT_GE(done, s.done);
    EXPECT_LE(done, total);
    s = {s.calls + 1, done, total};
  }};
  check.progress_context = &steps;
  const CheckReport quick = must(pool.check(check));
  EXPECT_TRUE(quick.ok()) << quick.violations.front();
  EXPECT_EQ(quick.entries, 10'001U);
  steps = {};
  check.deep = true;
  const CheckReport deep = must(pool.check(check));
  ASSERT_EQ(deep.violations.size(), 1U);
  EXPECT_NE(deep.first().find("damaged record"), std::string::npos) << deep.violations[0];
  EXPECT_TRUE(deep.first().starts_with("map m: ")) << deep.violations[0];
  EXPECT_GT(steps.calls, 1U);
  EXPECT_GT(steps.total, 1'000'000U);
  EXPECT_GT(deep.bytes, quick.bytes);
  EXPECT_GT(deep.objects, quick.objects);
}

std::uint64_t disk_bytes(const std::string& path) {
  struct stat info{};
  if (stat(path.c_str(), &info) != 0) throw std::runtime_error("stat");
  return static_cast<std::uint64_t>(info.st_blocks) * 512;
}

TEST(Housekeeping, CompactGivesSpaceBack) {
  TempPath path;
  const PoolOptions options{.max_size = 512_MiB};
  const std::uint64_t n = scaled(20'000, 4'000);
  {
    Pool pool = open_pool(path, options);
    auto blobs = must(pool.map<std::uint64_t, Bytes>("blobs"));
    auto numbers = must(pool.map<std::uint64_t, std::uint64_t>("numbers", small_map()));
    const std::string value(1'500, 'v');
    for (std::uint64_t round = 0; round < 2; ++round) {
      for (std::uint64_t i = 0; i < n; ++i) {
        must(blobs.insert(i, value));
        must(numbers.insert(i + round * n, i));
      }
      must(blobs.put(n, std::string(8_MiB, 'b')));
      const std::uint64_t full = disk_bytes(path);
      for (std::uint64_t i = 0; i < n; ++i) {
        if (i % 1'000 != 0) must(blobs.erase(i));
      }
      must(blobs.erase(n));
      const std::uint64_t given = must(pool.compact());
      const std::uint64_t after = disk_bytes(path);
      // Records of 1.5 KB in 20 survivors cannot hold more than a third of it.
      EXPECT_LE(after, full - full / 3) << "from " << full << ", said to have given " << given;
      EXPECT_GE(given, full / 3);
      for (std::uint64_t i = 0; i < n; ++i) {
        ASSERT_EQ(was_present(blobs.contains(i)), i % 1'000 == 0);
        ASSERT_EQ(must(numbers.get(i)), std::optional(i));
      }
      ASSERT_NO_FATAL_FAILURE(expect_sound(pool));
      // Punched space is used again, and survives a reopen.
      for (std::uint64_t i = 0; i < n; i += 1'000) must(blobs.erase(i));
    }
    must(pool.close());
  }
  Pool pool = open_pool(path, options);
  auto numbers = must(pool.map<std::uint64_t, std::uint64_t>("numbers", small_map()));
  EXPECT_EQ(numbers.stats().entries, 2 * n);
  expect_sound(pool);
  must(pool.compact());
  must(pool.close());
  Pool again = open_pool(path, options);
  EXPECT_EQ(must(again.compact()), 0U) << "the space was given back before";
}

TEST(Housekeeping, ReadBatchNeedsAnOpenPool) {
  TempPath path;
  Pool pool = open_pool(path, small_pool());
  auto map = must(pool.map<std::uint64_t, std::uint64_t>("numbers", small_map()));
  must(map.put(1, 7));
  std::uint64_t seen = 0;
  must(pool.read_batch([&] { seen = must(map.get(1)).value_or(0); }));
  EXPECT_EQ(seen, 7U);
  // What would wait for itself is refused.
  must(pool.read_batch([&] {
    EXPECT_EQ(map.put(1, 9).status().code(), StatusCode::invalid_argument);
    EXPECT_EQ(map.erase(1).status().code(), StatusCode::invalid_argument);
    EXPECT_EQ(pool.sync().code(), StatusCode::invalid_argument);
    EXPECT_EQ(pool.read_batch([] {}).code(), StatusCode::invalid_argument);
    EXPECT_EQ((pool.map<std::uint64_t, std::uint64_t>("other").error().code()),
              StatusCode::invalid_argument);
  }));
  must(map.put(1, 8));  // the gate is open again
  must(pool.close());
  EXPECT_EQ(pool.read_batch([&] { seen = 0; }).code(), StatusCode::invalid_argument);
  EXPECT_EQ(seen, 7U) << "called in a closed pool";
  Pool reader = open_pool(path, {.mode = OpenMode::read_only});
  map = must(reader.map<std::uint64_t, std::uint64_t>("numbers", small_map()));
  must(reader.read_batch([&] { seen = must(map.get(1)).value_or(0); }));
  EXPECT_EQ(seen, 8U);
}

TEST(Housekeeping, MovedPoolsStayOpen) {
  TempPath path, other("other");
  Pool first = open_pool(path, small_pool());
  fill_pool(first);
  std::optional map(must(first.map<std::uint64_t, std::uint64_t>("numbers", small_map())));
  Pool second = std::move(first);
  EXPECT_EQ(must(map->get(mix(1))), std::optional<std::uint64_t>(1)) << "maps stay, too";
  map.reset();
  EXPECT_EQ(wrong_content(second), "");
  Pool third = open_pool(other, small_pool());
  third = std::move(second);  // closes the pool that `third` had
  EXPECT_EQ(wrong_content(third), "");
  Pool reopened = open_pool(other, small_pool());
  EXPECT_TRUE(must(reopened.list()).empty());
}

TEST(Housekeeping, TwoPoolsOfDifferentModesInOneProcess) {
  TempPath first("first"), second("second");
  PoolOptions emulated = small_pool();
  emulated.durability = Durability::emulated;
  Pool a = open_pool(first, small_pool());
  Pool b = open_pool(second, emulated);
  fill_pool(a);
  fill_pool(b);
  const auto flushes = [] { return thread_counters().flushes; };
  auto in_a = must(a.map<std::uint64_t, std::uint64_t>("numbers", small_map()));
  auto in_b = must(b.map<std::uint64_t, std::uint64_t>("numbers", small_map()));
  const std::uint64_t before = flushes();
  must(in_a.update(mix(1), 1));
  EXPECT_EQ(flushes(), before);
  must(in_b.update(mix(1), 1));
  EXPECT_GT(flushes(), before);
  EXPECT_EQ(wrong_content(a), "");
  EXPECT_EQ(wrong_content(b), "");
}

}  // namespace
}  // namespace perdure::test
