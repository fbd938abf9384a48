// Who owns a pool, when it is trusted, what happens on a full disk, which arguments are refused,
// and what the pool reports about itself.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/conformance/small_pool.h"

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
  EXPECT_EQ(wrong_content(pool), "") << "the refused open disturbed the owner";
  must(must(pool.map<std::uint64_t, std::uint64_t>("numbers")).insert(1, 1));
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
  }
  // A pool in use can be inspected, and says by whom.
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

// A dead owner's lock is nobody's lock.
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

// A child of fork may not use its parent's pool. Whatever the API answers it, a refusal or a
// signal, the parent's pool stays whole, owned by the parent, and unclean until the parent closes
// it.
TEST(Fork, TheChildCannotHarmTheParentsPool) {
  for (int deed = 0; deed < 6; ++deed) {
    SCOPED_TRACE("deed " + std::to_string(deed));
    TempPath path;
    std::optional<Pool> pool(open_pool(path, small_pool()));
    fill_pool(*pool);
    std::optional numbers(must(pool->map<std::uint64_t, std::uint64_t>("numbers")));
    std::optional texts(must(pool->map<Bytes, Bytes>("texts")));
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
    wait_child(child);  // exit or signal
    // Still owned: a third process is refused.
    const ChildEnd third = run_child([&] {
      require(code_of(Pool::open(path, small_pool())) == StatusCode::busy, "not busy any more");
    });
    EXPECT_TRUE(third.ok()) << third;
    EXPECT_FALSE(must(Pool::inspect(path)).clean) << "the child marked it clean";
    EXPECT_EQ(wrong_content(*pool), "");
    for (std::uint64_t i = 0; i < 500; ++i) {
      ASSERT_TRUE(must(numbers->insert(mix(i + 2'000'000), i)));
      ASSERT_TRUE(must(texts->insert("after" + std::to_string(i), "value")));
    }
    EXPECT_EQ(numbers->stats().entries, kEntries + 500);
    expect_sound(*pool);
    numbers.reset();
    texts.reset();
    must(pool->close());
    pool.reset();
    Pool again = open_pool(path, small_pool());
    EXPECT_EQ(wrong_content(again), "");
    EXPECT_EQ(must(again.map<std::uint64_t, std::uint64_t>("numbers")).stats().entries,
              kEntries + 500);
    expect_sound(again);
  }
}

// A look at a pool while its owner writes: figures, or an error that says so; never a signal.
TEST(Busy, ObserversOfAPoolThatIsWrittenTo) {
  TempPath path;
  Pool pool = open_pool(path, {.max_size = 64_MiB});
  auto map = must(pool.map<std::uint64_t, Bytes>("m", {.phast = {.partition_bits = 2}}));
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t i = 0; !stop; ++i) {
      (void)map.upsert(mix(i % 20'000), std::string(i % 200, 'v'));
      if (i % 3 == 0) (void)map.erase(mix(i % 7'000));
    }
  });
  int seen = 0;
  for (int i = 0; i < 40; ++i) {
    auto look = Pool::open(path, {.create = false, .read_only = true});
    if (!look) {
      EXPECT_EQ(look.error().code(), StatusCode::corruption) << describe(look.error());
      continue;
    }
    seen += look->stats().maps.size() == 1 ? 1 : 0;
  }
  stop = true;
  writer.join();
  std::printf("%d of 40 looks saw the map\n", seen);
  // With nobody writing every look does.
  Pool look = open_pool(path, {.create = false, .read_only = true});
  EXPECT_EQ(look.stats().maps.size(), 1U);
  expect_sound(pool);
}

// ---- Trust ----

// An open that states no durability does not take the file's away.
TEST(Durabilities, AutomaticKeepsThatOfTheLastOpen) {
  TempPath path;
  for (const Durability stated : {Durability::emulated, Durability::process}) {
    must(open_pool(path, {.durability = stated, .max_size = 16_MiB}).close());
    Pool pool = open_pool(path, {});
    EXPECT_EQ(pool.info().durability, stated);
    must(pool.close());
  }
}

TEST(Trust, ACopyOfAClosedPoolIsAPool) {
  TempPath path, copy("copy");
  make_pool(path);
  write_bytes(copy, read_bytes(path));
  Pool pool = open_pool(copy, small_pool());
  EXPECT_EQ(wrong_content(pool), "");
  EXPECT_TRUE(pool.info().trusted);
}

TEST(Trust, ACopyOfAnOpenPoolIsUntrusted) {
  TempPath path, copy("copy");
  {
    Pool pool = open_pool(path, small_pool());
    fill_pool(pool);
    write_bytes(copy, read_bytes(path));
    EXPECT_EQ(wrong_content(pool), "");
  }
  expect_refused(copy, {StatusCode::untrusted});
  expect_refused(copy, {StatusCode::untrusted});  // a refusal does not clear it
  const PoolInfo info = must(Pool::inspect(copy));
  EXPECT_FALSE(info.trusted);
  EXPECT_FALSE(info.trust_note.empty());
  {
    // Nothing was written while it was copied, so a full check passes and the user may accept it.
    PoolOptions accept = small_pool();
    accept.accept_untrusted = true;
    Pool pool = open_pool(copy, accept);
    EXPECT_EQ(wrong_content(pool), "");
    expect_sound(pool);
    must(pool.close());
  }
  Pool pool = open_pool(copy, small_pool());
  EXPECT_EQ(wrong_content(pool), "");
  Pool original = open_pool(path, small_pool());
  EXPECT_EQ(wrong_content(original), "");
}

// Backups of a pool that stays open.
TEST(Trust, ACopyOfASyncedPoolIsAPool) {
  TempPath path, copy("copy"), late("late");
  Pool pool = open_pool(path, small_pool());
  EXPECT_FALSE(pool.info().synced);
  fill_pool(pool);
  must(pool.sync());
  EXPECT_TRUE(pool.info().synced);
  EXPECT_EQ(wrong_content(pool), "") << "reads leave the seal alone";
  must(pool.sync());
  write_bytes(copy, read_bytes(path));
  EXPECT_TRUE(must(Pool::inspect(copy)).synced);
  EXPECT_FALSE(must(Pool::inspect(copy)).clean);
  auto numbers = must(pool.map<std::uint64_t, std::uint64_t>("numbers"));
  ASSERT_TRUE(must(numbers.update(mix(3), 3)));  // the bytes stay what they were
  EXPECT_FALSE(pool.info().synced);
  write_bytes(late, read_bytes(path));
  expect_refused(late, {StatusCode::untrusted});
  {
    Pool backup = open_pool(copy, small_pool());
    EXPECT_EQ(wrong_content(backup), "");
    expect_sound(backup);
    must(backup.close());
  }
  // Every mutation that there is.
  auto texts = must(pool.map<Bytes, Bytes>("texts"));
  const std::function<void()> mutations[] = {
      [&] { (void)must(numbers.insert(mix(1'000'000), 1)); },
      [&] { (void)must(texts.upsert("k", "v")); },
      [&] { (void)must(texts.erase("k")); },
      [&] { (void)must(pool.map<Bytes, Bytes>("new", {.phast = {.partition_bits = 0}})); },
      [&] { must(pool.drop("new")); },
  };
  for (const auto& mutation : mutations) {
    must(pool.sync());
    EXPECT_TRUE(pool.info().synced);
    mutation();
    EXPECT_FALSE(pool.info().synced);
    write_bytes(late, read_bytes(path));
    expect_refused(late, {StatusCode::untrusted});
  }
}

// The caller let writers go on before the copy was made: old header, new pages.
TEST(Trust, ACopyThatAMutationRanIntoIsFoundOut) {
  TempPath path, copy("copy");
  Pool pool = open_pool(path, small_pool());
  fill_pool(pool);
  must(pool.sync());
  const std::string before = read_bytes(path);
  auto numbers = must(pool.map<std::uint64_t, std::uint64_t>("numbers"));
  ASSERT_TRUE(must(numbers.update(mix(3), 12'345)));
  write_bytes(copy, before.substr(0, 8'192) + read_bytes(path).substr(8'192));
  expect_refused(copy, {StatusCode::untrusted});
  PoolOptions accept = small_pool();
  accept.accept_untrusted = true;
  Pool backup = open_pool(copy, accept);
  EXPECT_EQ(must(must(backup.map<std::uint64_t, std::uint64_t>("numbers")).find(mix(3))), 12'345U);
}

// Writers all the time: sync makes durable, seals nothing, and nobody waits for anybody.
TEST(Trust, SyncUnderWriters) {
  TempPath path, copy("copy");
  Pool pool = open_pool(path, small_pool());
  auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", {.phast = {.partition_bits = 3}}));
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (std::uint64_t t = 0; t < 2; ++t) {
    writers.emplace_back([&, t] {
      for (std::uint64_t i = 0; !stop; ++i) (void)map.upsert(i % 3'000 * 2 + t, i);
    });
  }
  for (int i = 0; i < 20; ++i) {
    must(pool.sync());
    write_bytes(copy, read_bytes(path));
    // Whatever the moment was: trusted only if no store fell between seal and copy. (The file may
    // have grown while it was read: then the copy is shorter than its header says.)
    auto backup = Pool::open(copy, {.create = false});
    if (!backup) {
      EXPECT_TRUE(backup.error() == StatusCode::untrusted ||
                  backup.error() == StatusCode::corruption)
          << describe(backup.error());
    } else {
      expect_sound(*backup);
    }
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
  must(pool.sync());
  EXPECT_TRUE(pool.info().synced);
  expect_sound(pool);
}

TEST(Trust, AcceptingAnUntrustedPoolThatIsBrokenFails) {
  TempPath path, copy("copy");
  std::string bytes;
  {
    Pool pool = open_pool(path, small_pool());
    fill_pool(pool);
    bytes = read_bytes(path);
  }
  // Everything behind the headers and tables torn: alternating pages lost.
  for (std::size_t at = 64_KiB; at + 4'096 <= bytes.size(); at += 8'192) {
    std::memset(bytes.data() + at, 0, 4'096);
  }
  write_bytes(copy, bytes);
  PoolOptions accept = small_pool();
  accept.accept_untrusted = true;
  const ChildEnd end = run_child([&] {
    auto pool = Pool::open(copy, accept);
    if (!pool) {
      require(pool.error() == StatusCode::corruption || pool.error() == StatusCode::untrusted,
              describe(pool.error()));
      return;
    }
    require(wrong_content(*pool).empty(), "served although a full check cannot have passed");
  });
  EXPECT_TRUE(end.ok()) << end;
}

// Another boot, played in a mount namespace where the kernel's boot id reads differently. Needs the
// right to make one (root, or unprivileged user namespaces).
bool become_another_boot(const std::string& fake_id_file) {
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  return mount(fake_id_file.c_str(), "/proc/sys/kernel/random/boot_id", nullptr, MS_BIND,
               nullptr) == 0;
}

TEST(Trust, AnotherBoot) {
  TempPath id("boot_id");
  write_bytes(id, "11111111-2222-4333-8444-555555555555\n");
  const ChildEnd possible = run_child([&] { require(become_another_boot(id), "no namespace"); });
  if (!possible.ok()) GTEST_SKIP() << "this user cannot bind-mount a boot id in a namespace";
  const StatusCode refused = StatusCode::untrusted;
  struct Case {
    const char* name;
    bool killed;
    int syncs;  // 1: after everything; 2: and a mutation after it
    CloseOptions close;
    Durability durability;
    StatusCode expected;
  };
  const Case cases[] = {
      {"killed", true, 0, {}, Durability::process, refused},
      {"killed, synced", true, 1, {}, Durability::process, StatusCode::ok},
      {"killed, synced, mutated", true, 2, {}, Durability::process, refused},
      {"closed without sync", false, 0, {.sync = false}, Durability::process, refused},
      {"closed with sync", false, 0, {.sync = true}, Durability::process, StatusCode::ok},
      {"killed, emulated", true, 0, {}, Durability::emulated, refused},
      {"killed, emulated, synced", true, 1, {}, Durability::emulated, StatusCode::ok},
  };
  for (const Case& row : cases) {
    SCOPED_TRACE(row.name);
    TempPath path;
    PoolOptions options = small_pool();
    options.durability = row.durability;
    run_child([&] {
      Pool pool = open_pool(path, options);
      fill_pool(pool);
      if (row.syncs > 0) must(pool.sync());
      if (row.syncs > 1) {
        (void)must(must(pool.map<std::uint64_t, std::uint64_t>("numbers")).update(mix(3), 3));
      }
      if (row.killed) kill(getpid(), SIGKILL);
      must(pool.close(row.close));
    });
    const ChildEnd end = run_child([&] {
      require(become_another_boot(id), "no namespace");
      options.create = false;
      const std::string before = read_bytes(path);
      const auto info = must(Pool::inspect(path));
      require(info.trusted == (row.expected == StatusCode::ok), "inspect says otherwise");
      {
        auto pool = Pool::open(path, options);
        require(code_of(pool) == row.expected,
                "open answered " + (pool ? "ok" : describe(pool.error())));
        if (pool) {
          require(wrong_content(*pool).empty(), "content");
          return;
        }
      }
      require(read_bytes(path) == before, "a refused file was changed");
      options.accept_untrusted = true;
      Pool pool = open_pool(path, options);  // nothing was lost: tmpfs kept it all
      require(wrong_content(pool).empty(), "content after accept");
      must(pool.close());
      options.accept_untrusted = false;
      Pool again = open_pool(path, options);
      require(wrong_content(again).empty(), "content of the accepted pool");
    });
    EXPECT_TRUE(end.ok()) << end;
    if (row.killed) continue;
  }
  // In this boot the same unclean and unsynced files are fine.
  TempPath path;
  make_pool(path, {.sync = false});
  const PoolInfo info = must(Pool::inspect(path));
  EXPECT_TRUE(info.clean);
  EXPECT_TRUE(info.trusted);
  Pool pool = open_pool(path, small_pool());
  EXPECT_EQ(wrong_content(pool), "");
}

// ---- Full disks and files that shrink ----

// Fills until the disk or the limit says no; then what was acknowledged has to be there.
void fill_until_refused(const std::string& path, const PoolOptions& options) {
  std::uint64_t n = 0;
  {
    Pool pool = open_pool(path, options);
    auto map = must(pool.map<std::uint64_t, Bytes>("m"));
    const std::string value(2'000, 'v');
    for (;; ++n) {
      const auto done = map.insert(n, value);
      if (done) continue;
      require(done.error() == StatusCode::pool_full, "full disk: " + describe(done.error()));
      break;
    }
    require(n > 100, "nothing fitted");
    for (std::uint64_t i = 0; i < n; ++i) {
      require(must(map.find(i)) == std::optional(value), "acknowledged entry lost");
    }
    for (std::uint64_t i = 0; i < n / 2; ++i) require(must(map.erase(i)), "erase on a full disk");
    for (std::uint64_t i = 0; i < n / 4; ++i) {
      const auto again = map.insert(i, value);
      require(again.has_value() && *again, "space that was freed is not usable");
    }
    const auto report = must(pool.check({.deep = true}));
    require(report.ok() && report.leaked_blocks == 0, "check");
    must(pool.close());
  }
  Pool pool = open_pool(path, options);
  auto map = must(pool.map<std::uint64_t, Bytes>("m"));
  for (std::uint64_t i = 0; i < n; ++i) {
    require(must(map.contains(i)) == (i < n / 4 || i >= n / 2), "lost on reopen");
  }
}

TEST(FullDisk, FileSizeLimitIsPoolFullAndNoSignal) {
  for (const Durability durability : {Durability::process, Durability::emulated}) {
    TempPath path;
    const ChildEnd end = run_child([&] {
      // The kernel sends SIGXFSZ beyond the limit; a program that sets limits ignores it.
      signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{12_MiB, 12_MiB};
      require(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
      fill_until_refused(path, {.durability = durability, .max_size = 1_GiB});
    });
    EXPECT_TRUE(end.ok()) << end;
  }
}

TEST(FullDisk, CreatingBeyondTheLimitFailsWithoutAPool) {
  for (const rlim_t bytes : {rlim_t{0}, rlim_t{1}, rlim_t{4'096}, rlim_t{65'536}}) {
    TempPath path;
    const ChildEnd end = run_child([&] {
      signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{bytes, bytes};
      require(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
      const auto pool = Pool::open(path, small_pool());
      require(code_of(pool) == StatusCode::pool_full || code_of(pool) == StatusCode::io,
              "creation beyond the limit");
    });
    EXPECT_TRUE(end.ok()) << end << " with a limit of " << bytes;
    // Whatever is left of it is no pool, and does not stand in the way of a new one.
    if (std::filesystem::exists(path.str())) {
      EXPECT_FALSE(Pool::open(path, {.create = false}).has_value());
    }
    const auto pool = Pool::open(path, small_pool());
    EXPECT_TRUE(pool.has_value()) << "a failed creation blocks the path: "
                                  << (pool ? "" : describe(pool.error()));
  }
}

// A small tmpfs where one can be mounted; the limit on file sizes above covers the rest of the
// world.
TEST(FullDisk, SmallFileSystem) {
  TempPath dir("mount");
  std::filesystem::create_directory(dir.str());
  const ChildEnd end = run_child([&] {
    const bool mounted = (unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) &&
                         mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                         mount("none", dir.str().c_str(), "tmpfs", 0, "size=12m") == 0;
    if (!mounted) {
      signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{9_MiB, 9_MiB};
      require(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
    }
    fill_until_refused(dir.str() + "/pool", {.max_size = 1_GiB});
  });
  EXPECT_TRUE(end.ok()) << end;
}

TEST(Shrunk, TruncatedUnderItsOwnerIsReportedAtTheNextOpen) {
  TempPath path;
  const ChildEnd end = run_child([&] {
    Pool pool = open_pool(path, small_pool());
    fill_pool(pool);
    const auto size = std::filesystem::file_size(path.str());
    require(truncate(path.str().c_str(), static_cast<off_t>(size / 2)) == 0, "truncate");
    (void)wrong_content(pool);  // SIGBUS is what the kernel gives; an error is as good
    (void)pool.close();
  });
  EXPECT_TRUE(end.exited || end.signal == SIGBUS) << end;
  if (end.exited && end.code == 0) {
    // Closed without noticing: then the file is whole again, or refused.
    auto pool = Pool::open(path, small_pool());
    if (pool) {
      EXPECT_EQ(wrong_content(*pool), "");
    } else {
      EXPECT_EQ(pool.error().code(), StatusCode::corruption);
    }
    return;
  }
  expect_refused(path, {StatusCode::corruption});
}

TEST(Shrunk, RemovedUnderItsOwnerGoesOnUntilClose) {
  TempPath path;
  Pool pool = open_pool(path, small_pool());
  fill_pool(pool);
  ASSERT_EQ(unlink(path.str().c_str()), 0);
  EXPECT_EQ(wrong_content(pool), "");
  must(must(pool.map<std::uint64_t, std::uint64_t>("numbers")).insert(1, 1));
  (void)pool.close();
  EXPECT_FALSE(std::filesystem::exists(path.str()));
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
    EXPECT_LE(pool->info().max_bytes, size);
    EXPECT_LE(pool->info().file_bytes, size);
    auto map = must(pool->map<std::uint64_t, std::uint64_t>("m", {.phast = {.partition_bits = 0}}));
    must(map.insert(1, 2));
  }
}

// The maximum is fixed at creation: a later open with another one keeps it.
TEST(Arguments, MaxSizeIsThatOfTheCreation) {
  TempPath path;
  make_pool(path);
  const std::uint64_t made = must(Pool::inspect(path)).max_bytes;
  EXPECT_LE(made, small_pool().max_size);
  Pool pool = open_pool(path, {.max_size = 1_GiB});
  EXPECT_EQ(pool.info().max_bytes, made);
}

TEST(Arguments, Partitions) {
  TempPath path;
  Pool pool = open_pool(path, {.max_size = 1_GiB});
  auto open_with = [&](const char* name, PhastOptions phast) {
    return code_of(pool.map<std::uint64_t, std::uint64_t>(name, {.phast = phast}));
  };
  EXPECT_EQ(open_with("a", {.partition_bits = 17}), StatusCode::invalid_argument);
  EXPECT_EQ(open_with("a", {.partition_bits = ~0U}), StatusCode::invalid_argument);
  EXPECT_EQ(open_with("a", {.partition_shift = 64}), StatusCode::invalid_argument);
  EXPECT_TRUE(pool.list().empty());
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
  for (const std::uint64_t key : keys) EXPECT_TRUE(must(map.upsert(key, key))) << key;
  for (const std::uint64_t key : keys) EXPECT_EQ(must(map.find(key)), std::optional(key));
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
  EXPECT_TRUE(pool.list().empty());
}

TEST(Arguments, Durability) {
  TempPath path;
  EXPECT_EQ(code_of(Pool::open(path, {.durability = static_cast<Durability>(9)})),
            StatusCode::invalid_argument);
  // What the medium cannot give is said at open: memory that goes with the machine has no `power`.
  if (scratch_dir() == "/dev/shm") {
    const auto pool = Pool::open(path, {.durability = Durability::power});
    EXPECT_EQ(code_of(pool), StatusCode::unsupported) << (pool ? "" : describe(pool.error()));
    EXPECT_FALSE(std::filesystem::exists(path.str())) << "refused, but created";
  }
  Pool pool = open_pool(path, small_pool());
  EXPECT_EQ(pool.info().durability, Durability::process);
  EXPECT_TRUE(pool.info().medium == Medium::volatile_ram || scratch_dir() != "/dev/shm");
}

// ---- Reports and housekeeping ----

TEST(Housekeeping, InfoOfAnOpenAndAClosedPool) {
  TempPath path;
  std::string uuid;
  {
    Pool pool = open_pool(path, small_pool());
    fill_pool(pool);
    const PoolInfo info = pool.info();
    EXPECT_EQ(info.path, path.str());
    EXPECT_FALSE(info.uuid.empty());
    EXPECT_EQ(info.file_bytes, std::filesystem::file_size(path.str()));
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
  EXPECT_NE(pool.info().uuid, uuid);
}

TEST(Housekeeping, StatsAddUp) {
  TempPath path;
  Pool pool = open_pool(path, {.max_size = 256_MiB});
  auto map = must(pool.map<std::uint64_t, Bytes>("m"));
  for (std::uint64_t i = 0; i < 20'000; ++i) must(map.insert(i, std::string(100, 'v')));
  const PoolStats stats = pool.stats();
  EXPECT_EQ(stats.file_bytes, std::filesystem::file_size(path.str()));
  EXPECT_LE(stats.assigned_bytes + stats.free_bytes, stats.file_bytes);
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
  EXPECT_GT(stats.maps[0].leaves, 20'000U / 56);
  EXPECT_GE(stats.maps[0].height, 2U);
  const CheckReport report = must(pool.check({.deep = true}));
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.entries, 20'000U);
  EXPECT_GE(report.objects, 20'000U);
}

// A record is read by a deep check only; how far it is comes in ascending steps.
TEST(Housekeeping, CheckLooksAtStructureDeepCheckAtEverything) {
  TempPath path;
  const PoolOptions options{.durability = Durability::process, .max_size = 64_MiB};
  const std::string marked = "a value that is found in the file again";
  {
    Pool pool = open_pool(path, options);
    auto map = must(pool.map<Bytes, Bytes>("m", {.phast = {.partition_bits = 2}}));
    // Keys whose first bytes differ: only records at the edges of leaves are read by an open.
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
  EXPECT_NE(deep.violations[0].find("damaged record"), std::string::npos) << deep.violations[0];
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
    auto numbers = must(pool.map<std::uint64_t, std::uint64_t>("numbers"));
    const std::string value(1'500, 'v');
    for (std::uint64_t round = 0; round < 2; ++round) {
      for (std::uint64_t i = 0; i < n; ++i) {
        must(blobs.insert(i, value));
        must(numbers.insert(i + round * n, i));
      }
      must(blobs.upsert(n, std::string(8_MiB, 'b')));
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
        ASSERT_EQ(must(blobs.contains(i)), i % 1'000 == 0);
        ASSERT_EQ(must(numbers.find(i)), std::optional(i));
      }
      ASSERT_NO_FATAL_FAILURE(expect_sound(pool));
      // Punched space is used again, and survives a reopen.
      for (std::uint64_t i = 0; i < n; i += 1'000) must(blobs.erase(i));
    }
    must(pool.close());
  }
  Pool pool = open_pool(path, options);
  auto numbers = must(pool.map<std::uint64_t, std::uint64_t>("numbers"));
  EXPECT_EQ(numbers.stats().entries, 2 * n);
  expect_sound(pool);
}

TEST(Housekeeping, MovedPoolsStayOpen) {
  TempPath path, other("other");
  Pool first = open_pool(path, small_pool());
  fill_pool(first);
  std::optional map(must(first.map<std::uint64_t, std::uint64_t>("numbers")));
  Pool second = std::move(first);
  EXPECT_EQ(must(map->find(mix(1))), std::optional<std::uint64_t>(1)) << "maps stay, too";
  map.reset();
  EXPECT_EQ(wrong_content(second), "");
  Pool third = open_pool(other, small_pool());
  third = std::move(second);  // closes what `third` had
  EXPECT_EQ(wrong_content(third), "");
  Pool reopened = open_pool(other, small_pool());
  EXPECT_TRUE(reopened.list().empty());
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
  auto in_a = must(a.map<std::uint64_t, std::uint64_t>("numbers"));
  auto in_b = must(b.map<std::uint64_t, std::uint64_t>("numbers"));
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
