// test: no asan, each engine
// The conditions for trusting a pool: copies, other boots, syncs with and without writers; and the
// durability of an open.
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/small_pool.h"

namespace perdure::test {
namespace {

// An open without a durability keeps the file's.
TEST(Durabilities, AutomaticKeepsThatOfTheLastOpen) {
  TempPath path;
  for (const Durability stated : {Durability::emulated, Durability::process}) {
    must(open_pool(path, {.durability = stated, .max_size = 16_MiB}).close());
    Pool pool = open_pool(path, {});
    EXPECT_EQ(must(pool.info()).durability, stated);
    must(pool.close());
  }
}

TEST(Trust, ACopyOfAClosedPoolIsAPool) {
  TempPath path, copy("copy");
  make_pool(path);
  write_bytes(copy, read_bytes(path));
  Pool pool = open_pool(copy, small_pool());
  EXPECT_EQ(wrong_content(pool), "");
  EXPECT_TRUE(must(pool.info()).trusted);
}

TEST(Trust, ACopyOfAnOpenPoolIsUntrusted) {
  TempPath path, copy("copy");
  {
    Pool pool = open_pool(path, small_pool());
    fill_pool(pool);
    std::string bytes = read_bytes(path);
    // waits until the pool's own thread rests
    for (std::string again; bytes != again; again.swap(bytes)) {
      again = read_bytes(path);
    }
    write_bytes(copy, bytes);
    EXPECT_EQ(wrong_content(pool), "");
  }
  expect_refused(copy, {StatusCode::untrusted});
  expect_refused(copy, {StatusCode::untrusted});  // a refusal does not clear it
  const PoolInfo info = must(Pool::inspect(copy));
  EXPECT_FALSE(info.trusted);
  EXPECT_FALSE(info.trust_note.empty());
  {
    // Nothing was written during the copy. A full check passes, and the user may accept the copy.
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
  EXPECT_FALSE(must(pool.info()).synced);
  fill_pool(pool);
  must(pool.sync());
  EXPECT_TRUE(must(pool.info()).synced);
  EXPECT_EQ(wrong_content(pool), "") << "reads leave the seal alone";
  must(pool.sync());
  write_bytes(copy, read_bytes(path));
  EXPECT_TRUE(must(Pool::inspect(copy)).synced);
  EXPECT_FALSE(must(Pool::inspect(copy)).clean);
  auto numbers = must(pool.map<std::uint64_t, std::uint64_t>("numbers", small_map()));
  ASSERT_TRUE(was_present(numbers.update(mix(3), 3)));  // the bytes stay the same
  EXPECT_FALSE(must(pool.info()).synced);
  // The file may grow in the background during the copy.
  const auto expect_late_refused = [&] {
    write_bytes(late, read_bytes(path));
    expect_refused(late, {StatusCode::untrusted, StatusCode::corruption});
  };
  expect_late_refused();
  {
    Pool backup = open_pool(copy, small_pool());
    EXPECT_EQ(wrong_content(backup), "");
    expect_sound(backup);
    must(backup.close());
  }
  // Every kind of mutation.
  auto texts = must(pool.map<Bytes, Bytes>("texts", small_map()));
  const std::function<void()> mutations[] = {
      [&] { (void)must(numbers.insert(mix(1'000'000), 1)); },
      [&] { (void)must(texts.put("k", "v")); },
      [&] { (void)must(texts.erase("k")); },
      [&] { (void)must(pool.map<Bytes, Bytes>("new", {.phast = {.partition_bits = 0}})); },
      [&] { must(pool.drop("new")); },
  };
  for (const auto& mutation : mutations) {
    must(pool.sync());
    EXPECT_TRUE(must(pool.info()).synced);
    mutation();
    EXPECT_FALSE(must(pool.info()).synced);
    expect_late_refused();
  }
}

// Writers continued before the copy was made: it has an old header and new pages.
TEST(Trust, ACopyThatAMutationRanIntoIsFoundOut) {
  TempPath path, copy("copy");
  Pool pool = open_pool(path, small_pool());
  fill_pool(pool);
  must(pool.sync());
  const std::string before = read_bytes(path);
  auto numbers = must(pool.map<std::uint64_t, std::uint64_t>("numbers", small_map()));
  ASSERT_TRUE(was_present(numbers.update(mix(3), 12'345)));
  write_bytes(copy, before.substr(0, 8'192) + read_bytes(path).substr(8'192));
  expect_refused(copy, {StatusCode::untrusted});
  PoolOptions accept = small_pool();
  accept.accept_untrusted = true;
  Pool backup = open_pool(copy, accept);
  EXPECT_EQ(
      must(must(backup.map<std::uint64_t, std::uint64_t>("numbers", small_map())).get(mix(3))),
      12'345U);
}

// With writers all the time, sync makes stores durable, seals nothing, and blocks no thread.
TEST(Trust, SyncUnderWriters) {
  TempPath path, copy("copy");
  Pool pool = open_pool(path, small_pool());
  auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", {.phast = {.partition_bits = 3}}));
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (std::uint64_t t = 0; t < 2; ++t) {
    writers.emplace_back([&, t] {
      for (std::uint64_t i = 0; !stop; ++i) (void)map.put(i % 3'000 * 2 + t, i);
    });
  }
  for (int i = 0; i < 20; ++i) {
    must(pool.sync());
    write_bytes(copy, read_bytes(path));
    // The copy is trusted only if no store fell between seal and copy. The file may have grown
    // while it was read: the copy is then shorter than its header says.
    auto backup = Pool::open(copy, {.mode = OpenMode::existing});
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
  EXPECT_TRUE(must(pool.info()).synced);
  expect_sound(pool);
}

// Copies of an open pool and of a closed one, with lost pages. A full check of the first cannot say
// which entries are missing (docs/durability.md), but the entries that it serves are right. In the
// second one every loss is noticed.
TEST(Trust, AcceptingAnUntrustedPoolThatIsBrokenFails) {
  TempPath path, copy("copy");
  std::string copies[2];
  {
    Pool pool = open_pool(path, small_pool());
    fill_pool(pool);
    copies[0] = read_bytes(path);
    must(pool.close());
    copies[1] = read_bytes(path);
  }
  // Alternating pages behind the headers and tables are lost first, which breaks every chain of
  // leaves. Later rounds lose fewer, and root blocks remain.
  for (std::size_t round = 0; round < scaled(32, 8); ++round) {
    for (const bool closed : {false, true}) {
      std::string bytes = copies[closed ? 1 : 0];
      const std::size_t first = 64_KiB + round * 4'096;
      const std::size_t stride = round == 0 ? 8'192 : 16 * round * 4'096;
      for (std::size_t at = first; at + 4'096 <= bytes.size(); at += stride) {
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
        if (closed) {  // trusted, and therefore not checked yet
          const auto report = pool->check({.deep = true});
          if (!report || !report->ok()) return;
        }
        const bool may_lack = !closed && (round > 0 || !chosen_engine().ordered);
        require(wrong_content(*pool, nullptr, may_lack).empty(),
                "served although a full check cannot have passed");
      });
      EXPECT_TRUE(end.ok()) << end << ", round " << round << (closed ? ", closed" : ", open");
    }
  }
}

// Simulates another boot in a mount namespace with another boot id. Needs the right to make one:
// root, or unprivileged user namespaces.
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
    int syncs;  // 1: after everything; 2: with a mutation after it
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
        (void)must(
            must(pool.map<std::uint64_t, std::uint64_t>("numbers", small_map())).update(mix(3), 3));
      }
      if (row.killed) kill(getpid(), SIGKILL);
      must(pool.close(row.close));
    });
    const ChildEnd end = run_child([&] {
      require(become_another_boot(id), "no namespace");
      options.mode = OpenMode::existing;
      const std::string before = read_bytes(path);
      const auto info = must(Pool::inspect(path));
      require(info.trusted == (row.expected == StatusCode::ok), "inspect says otherwise");
      {
        auto pool = Pool::open(path, options);
        require(code_of(pool) == row.expected,
                "open returned " + (pool ? "ok" : describe(pool.error())));
        if (pool) {
          require(wrong_content(*pool).empty(), "content");
          return;
        }
      }
      require(read_bytes(path) == before, "a refused file was changed");
      options.accept_untrusted = true;
      Pool pool = open_pool(path, options);  // nothing was lost: tmpfs kept it
      require(wrong_content(pool).empty(), "content after accept");
      must(pool.close());
      options.accept_untrusted = false;
      Pool again = open_pool(path, options);
      require(wrong_content(again).empty(), "content of the accepted pool");
    });
    EXPECT_TRUE(end.ok()) << end;
    if (row.killed) continue;
  }
  // In this boot the same unclean and unsynced files are trusted.
  TempPath path;
  make_pool(path, {.sync = false});
  const PoolInfo info = must(Pool::inspect(path));
  EXPECT_TRUE(info.clean);
  EXPECT_TRUE(info.trusted);
  Pool pool = open_pool(path, small_pool());
  EXPECT_EQ(wrong_content(pool), "");
}

}  // namespace
}  // namespace perdure::test
