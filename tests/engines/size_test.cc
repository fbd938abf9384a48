// test: tsan
// Tally and size(): exact after every kind of mutation, after a reopen and a kill, beside threads.
#include <unistd.h>

#include <atomic>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "index/tally.h"
#include "perdure/versioned_map.h"
#include "perdure/write_batch.h"
#include "platform/real_platform.h"
#include "tests/support/engines.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

using Bytes = std::string_view;

class Size : public ::testing::TestWithParam<EngineInfo> {
 protected:
  Pool open() { return open_pool(path_, {.max_size = 256_MiB}); }
  template <class K, class V>
  Map<K, V> map(Pool& pool) {
    return must(pool.map<K, V>("m", {.engine = GetParam().engine}));
  }
  TempPath path_;
};
INSTANTIATE_TEST_SUITE_P(Engines, Size, ::testing::ValuesIn(kEngines), [](const auto& row) {
  return std::string(engine_name(row.param.engine));
});

TEST_P(Size, FollowsEveryKindOfMutation) {
  Pool pool = open();
  auto m = map<std::uint64_t, std::uint64_t>(pool);
  std::uint64_t n = 0;
  const auto expect = [&](std::int64_t change, const char* what) {
    n += static_cast<std::uint64_t>(change);
    EXPECT_EQ(must(m.size()), n) << what;
    EXPECT_EQ(m.stats().entries, n) << what;
  };
  expect(0, "empty");
  for (const std::uint64_t key : {0, 1}) {  // phast keeps 0 apart
    must(m.put(key, 1));
    expect(1, "put");
    must(m.put(key, 2));
    must(m.insert(key, 3));
    must(m.update(key, 4));
    expect(0, "put, insert and update of a key that is there");
    must(m.erase(key));
    expect(-1, "erase");
    must(m.erase(key));
    must(m.update(key, 4));
    expect(0, "erase and update of a key that is not there");
    must(m.insert(key, 5));
    expect(1, "insert");
    EXPECT_TRUE(m.compare_exchange(key, 6, std::nullopt).refused());
    expect(0, "exchange, refused");
    EXPECT_TRUE(m.compare_exchange(key, 5, std::nullopt).exchanged());
    expect(-1, "exchange that erases");
    EXPECT_TRUE(m.compare_exchange(key, std::nullopt, 7).exchanged());
    expect(1, "exchange that inserts");
    must(m.fetch_add(key, 1));
    expect(0, "fetch_add");
  }
  using M = Mutation<std::uint64_t, std::uint64_t>;
  std::vector<M> many;
  for (std::uint64_t i = 0; i < 200; ++i) {
    many.push_back({.kind = MutationKind::put, .key = i, .value = i});
  }
  must(m.write_many(many));
  expect(198, "write_many of puts");
  for (M& mutation : many) mutation.kind = MutationKind::insert;
  must(m.write_many(many));
  expect(0, "write_many of inserts");
  for (M& mutation : many) {
    mutation.kind = mutation.key % 2 == 0 ? MutationKind::erase : MutationKind::update;
  }
  must(m.write_many(many));
  expect(-100, "write_many of erases and updates");
  WriteBatch batch;
  for (std::uint64_t i = 0; i < 50; ++i) batch.put(m, 1'000 + i, i);
  for (std::uint64_t i = 0; i < 20; ++i) batch.erase(m, i);
  must(pool.commit(batch));
  expect(50 - 10, "batch");
}

TEST_P(Size, IsRightAfterACloseAndAfterAKill) {
  for (const bool closes : {true, false}) {
    const ChildEnd end = run_child([&] {
      Pool pool = open();
      auto m = map<Bytes, Bytes>(pool);
      for (int i = 0; i < 3'000; ++i) must(m.put("key " + std::to_string(i), "value"));
      for (int i = 0; i < 1'000; ++i) must(m.erase("key " + std::to_string(i)));
      if (!closes) ::_exit(0);
      must(pool.close());
    });
    ASSERT_TRUE(end.ok()) << end;
    Pool pool = open();
    auto m = map<Bytes, Bytes>(pool);
    must(m.put("before the first call", "value"));
    EXPECT_EQ(must(m.size()), 2'001U);
    must(m.put("after it", "value"));
    must(m.erase("before the first call"));
    EXPECT_EQ(must(m.size()), 2'001U);
    must(m.erase("after it"));
    must(pool.close());
  }
}

TEST_P(Size, IsExactBesideThreadsOnceTheyAreDone) {
  {
    Pool pool = open();
    map<std::uint64_t, std::uint64_t>(pool);
  }
  for (int round = 0; round < 5; ++round) {
    Pool pool = open();  // so that the first size() may come while threads write
    auto m = map<std::uint64_t, std::uint64_t>(pool);
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937_64 random(t + 10 * static_cast<std::uint64_t>(round));
        for (std::uint64_t i = 0; i < scaled(5'000, 500); ++i) {
          const std::uint64_t key = random() % 300;
          if (random() % 2 == 0) {
            (void)m.put(key, i);
          } else {
            (void)m.erase(key);
          }
          if (i % 512 == 0) (void)m.size();
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(must(m.size()), m.stats().entries);
    must(pool.close());
  }
}

TEST_P(Size, WorksInCallbacks) {
  {
    Pool pool = open();
    must(map<Bytes, Bytes>(pool).put("a", "1"));
    must(pool.close());
  }
  Pool pool = open();
  auto m = map<Bytes, Bytes>(pool);
  must(m.read("a", [&](Bytes) { EXPECT_EQ(must(m.size()), 1U); }));
  must(pool.read_batch([&] { EXPECT_EQ(must(m.size()), 1U); }));
  must(m.put("b", "2"));
  must(m.read("a", [&](Bytes) { EXPECT_EQ(must(m.size()), 2U); }));
  must(pool.close());
  Pool reader = open_pool(path_, {.mode = OpenMode::read_only});
  EXPECT_EQ(must(must(reader.map<Bytes, Bytes>("m")).size()), 2U);
}

TEST_P(Size, FollowsARollback) {
  if (!GetParam().versioned) return;
  Pool pool = open();
  auto m = must(pool.versioned_map<Bytes, Bytes>("m"));
  must(m.put("a", "1"));
  must(m.put("b", "1"));
  const Version version = must(m.tag());
  must(m.erase("a"));
  for (int i = 0; i < 10; ++i) must(m.put(std::to_string(i), "2"));
  EXPECT_EQ(must(m.size()), 11U);
  must(m.rollback(version));
  EXPECT_EQ(must(m.size()), 2U);
  must(m.put("c", "1"));
  EXPECT_EQ(must(m.size()), 3U);
  must(m.trim(must(m.tag())));
  EXPECT_EQ(must(m.size()), 3U);
}

TEST(Tally, IsExactBesideThreads) {
  Tally<RealPlatform> tally;
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> ready = 0;
  std::vector<std::vector<std::uint64_t>> turns(80);  // of several pieces
  for (std::size_t t = 0; t < turns.size(); ++t) {
    threads.emplace_back([&, t] {
      (void)RealPlatform::thread_slot();
      ++ready;
      while (ready < turns.size()) std::this_thread::yield();
      for (int n = 0; n < 1'000; ++n) {
        tally.add(std::int64_t{n % 4 == 0 ? -1 : 1}, std::int64_t{0}, std::int64_t{n});
        turns[t].push_back(tally.next(3));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(tally.sum(0), 500 * std::int64_t{80});
  EXPECT_EQ(tally.sum(1), 0);
  EXPECT_EQ(tally.sum(2), 999 * 500 * std::int64_t{80});
  std::set<std::uint64_t> all;
  for (const auto& some : turns) all.insert(some.begin(), some.end());
  EXPECT_EQ(all.size(), turns.size() * 1'000);
}

}  // namespace
}  // namespace perdure::test
