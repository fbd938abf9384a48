// test: explores
// WriteBatch: all of it or nothing, over maps of all kinds, under threads, in a full pool, and the
// calls that it refuses. Crashes: testing/crash/explored.cc.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "perdure/write_batch.h"
#include "tests/support/threads.h"

namespace perdure::test {
namespace {

using Bytes = std::string_view;

class BatchTest : public ::testing::TestWithParam<EngineInfo> {
 protected:
  BatchTest() { reopen(); }
  void TearDown() override { expect_sound(*pool_); }
  void reopen() {
    if (pool_) must(pool_->close());
    pool_.reset();
    pool_.emplace(open_pool(path_, {.max_size = 1_GiB}));
  }
  // Instead of the pool, an empty one.
  void renew(std::uint64_t max_size) {
    must(pool_->close());
    pool_.reset();
    std::remove(path_.c_str());
    pool_.emplace(open_pool(path_, {.max_size = max_size}));
  }
  template <class K, class V>
  Map<K, V> open(std::string_view name) {
    return must(pool_->map<K, V>(name, {.engine = GetParam().engine}));
  }

  TempPath path_;
  std::optional<Pool> pool_;
};
std::string engine_of(const ::testing::TestParamInfo<EngineInfo>& row) {
  return name_of(row.param);
}
INSTANTIATE_TEST_SUITE_P(Engines, BatchTest, ::testing::ValuesIn(kEngines), engine_of);

TEST_P(BatchTest, MutationsOfMapsOfAllKinds) {
  auto numbers = open<std::uint64_t, std::uint64_t>("numbers");
  auto texts = open<Bytes, Bytes>("texts");
  auto blobs = open<std::int64_t, Bytes>("blobs");
  must(numbers.put(1, 1));
  must(texts.put("gone", "x"));
  WriteBatch batch;
  batch.put(numbers, 1, 2);
  batch.put(numbers, 3, 4);
  batch.put(texts, "a", std::string(3000, 'a'));
  batch.erase(texts, "gone");
  batch.erase(texts, "never");
  batch.put(blobs, -5, "five");
  EXPECT_EQ(batch.size(), 6U);
  must(pool_->commit(batch));
  for (const bool again : {false, true}) {
    if (again) reopen();
    numbers = open<std::uint64_t, std::uint64_t>("numbers");
    texts = open<Bytes, Bytes>("texts");
    blobs = open<std::int64_t, Bytes>("blobs");
    EXPECT_EQ(must(numbers.get(1)), 2U);
    EXPECT_EQ(must(numbers.get(3)), 4U);
    EXPECT_EQ(must(texts.get("a")), std::string(3000, 'a'));
    EXPECT_FALSE(must(texts.get("gone")));
    EXPECT_EQ(must(blobs.get(-5)), "five");
  }
}

TEST_P(BatchTest, TheLastMutationOfAKeyCounts) {
  auto map = open<std::uint64_t, std::uint64_t>("m");
  WriteBatch batch;
  batch.put(map, 1, 1);
  batch.erase(map, 1);
  batch.put(map, 2, 1);
  batch.put(map, 2, 7);
  batch.erase(map, 3);
  batch.put(map, 3, 9);
  must(pool_->commit(batch));
  EXPECT_FALSE(must(map.get(1)));
  EXPECT_EQ(must(map.get(2)), 7U);
  EXPECT_EQ(must(map.get(3)), 9U);
  must(pool_->commit(batch));  // again: nothing changes
  EXPECT_EQ(must(map.get(2)), 7U);
  batch.clear();
  EXPECT_EQ(batch.size(), 0U);
  must(pool_->commit(batch));
}

TEST_P(BatchTest, ARequirementThatIsNotMet) {
  auto map = open<Bytes, Bytes>("m");
  must(map.put("a", "1"));
  const auto refused = [&](auto require) {
    WriteBatch batch;
    require(batch);
    batch.put(map, "b", "2");
    batch.erase(map, "a");
    const Status s = pool_->commit(batch);
    EXPECT_EQ(s.code(), StatusCode::conflict) << s.message();
    EXPECT_EQ(must(map.get("a")), "1");
    EXPECT_FALSE(must(map.get("b")));
  };
  refused([&](WriteBatch& batch) { batch.require(map, "a", "2"); });
  refused([&](WriteBatch& batch) { batch.require(map, "c", "1"); });
  refused([&](WriteBatch& batch) { batch.require_absent(map, "a"); });
  WriteBatch batch;
  batch.require(map, "a", "1");
  batch.require_absent(map, "b");
  batch.put(map, "b", "2");
  must(pool_->commit(batch));
  EXPECT_EQ(must(map.get("b")), "2");
}

TEST_P(BatchTest, ManyMutationsIntoAnEmptyMap) {
  auto map = open<std::uint64_t, std::uint64_t>("m");
  const std::uint64_t n = scaled(50'000, 5000);
  WriteBatch batch;
  for (std::uint64_t i = 0; i < n; ++i) batch.put(map, mix(i), i);
  must(pool_->commit(batch));
  batch.clear();
  for (std::uint64_t i = 0; i < n; ++i) {
    ASSERT_EQ(must(map.get(mix(i))), i);
    if (i % 3 == 0) batch.erase(map, mix(i));
  }
  must(pool_->commit(batch));
  reopen();
  map = open<std::uint64_t, std::uint64_t>("m");
  for (std::uint64_t i = 0; i < n; ++i) ASSERT_EQ(map.contains(mix(i)).present(), i % 3 != 0);
}

// Into a pool that gets full: a batch that fails has changed nothing.
TEST_P(BatchTest, AFullPool) {
  renew(2_MiB);
  auto map = open<std::uint64_t, Bytes>("m");
  std::uint64_t committed = 0;
  for (std::uint64_t i = 0;; ++i) {
    WriteBatch batch;
    for (std::uint64_t k = 0; k < 20; ++k) batch.put(map, i * 20 + k, std::string(200, 'v'));
    const Status s = pool_->commit(batch);
    if (s == StatusCode::pool_full) break;
    ASSERT_TRUE(s.ok()) << s.message();
    committed = (i + 1) * 20;
  }
  EXPECT_GT(committed, 1000U);
  for (std::uint64_t i = 0; i < committed + 20; ++i) {
    ASSERT_EQ(map.contains(i).present(), i < committed) << i;
  }
  // A batch needs space for its record, and single erases make some.
  for (std::uint64_t i = 0; i < 100; ++i) ASSERT_TRUE(map.erase(i).present());
  for (std::uint64_t i = 100; i + 20 <= committed; i += 20) {
    WriteBatch batch;
    for (std::uint64_t k = 0; k < 20; ++k) batch.erase(map, i + k);
    must(pool_->commit(batch));
    ASSERT_TRUE(map.contains(i).absent());
  }
}

// Small and large values side by side, into pools without room to spare: a batch that is accepted
// is done, and one that is refused has changed nothing.
TEST_P(BatchTest, FullPoolsOfMixedSizes) {
  static constexpr std::size_t kBytes[] = {8, 60, 112, 700, 3000, 9000, 40'000, 100'000};
  for (std::uint64_t seed = 1; seed <= scaled(30, 10, 3); ++seed) {
    renew(3_MiB);
    auto left = open<Bytes, Bytes>("left");
    auto right = open<std::uint64_t, Bytes>("right");
    std::map<std::uint64_t, std::string> content;  // of both maps
    std::uint64_t refused = 0;
    for (std::uint64_t round = 0; round < 60; ++round) {
      auto draw = [&, n = std::uint64_t{0}](std::uint64_t below) mutable {
        return mix(seed * 1'000'003 + round * 1009 + n++) % below;
      };
      WriteBatch batch;
      auto after = content;
      for (std::uint64_t i = draw(30); i > 0; --i) {
        const std::uint64_t key = draw(120);
        const std::string text = "key" + std::string(key % 50, 'k') + std::to_string(key);
        if (draw(3) == 0) {
          batch.erase(left, text);
          batch.erase(right, key);
          after.erase(key);
        } else {
          const std::string value(kBytes[draw(8)], static_cast<char>('a' + draw(26)));
          batch.put(left, text, value);
          batch.put(right, key, value);
          after[key] = value;
        }
      }
      const Status s = pool_->commit(batch);
      ASSERT_TRUE(s.ok() || s == StatusCode::pool_full) << s.message();
      refused += s.ok() ? 0 : 1;
      if (s.ok()) content = after;
      if (round % 10 != 9) continue;
      for (std::uint64_t key = 0; key < 120; ++key) {
        const std::string text = "key" + std::string(key % 50, 'k') + std::to_string(key);
        const auto is = content.find(key);
        const std::optional<std::string> value =
            is == content.end() ? std::nullopt : std::optional(is->second);
        ASSERT_EQ(must(left.get(text)), value);
        ASSERT_EQ(must(right.get(key)), value);
      }
    }
    EXPECT_GT(refused, 0U);
    expect_sound(*pool_);
  }
}

// Keys that ascend below those of other streams, until the pool is full: what a batch allocates was
// planned, wherever leaves split.
TEST_P(BatchTest, FullPoolsOfStreams) {
  constexpr std::uint64_t kStreams = 7;
  const auto key = [](std::uint64_t stream, std::uint64_t i) {
    return "stream " + std::to_string(stream) + "/" + std::to_string(1'000'000 + i);
  };
  for (std::uint64_t seed = 1; seed <= scaled(30, 10, 3); ++seed) {
    renew(2_MiB);
    auto map = open<Bytes, Bytes>("m");
    std::uint64_t next[kStreams] = {};
    for (std::uint64_t round = 0;; ++round) {
      auto draw = [&, n = std::uint64_t{0}](std::uint64_t below) mutable {
        return mix(seed * 1'000'003 + round * 1009 + n++) % below;
      };
      WriteBatch batch;
      std::uint64_t added[kStreams] = {};
      for (std::uint64_t i = draw(100) + 1; i > 0; --i) {
        const std::uint64_t stream = draw(kStreams);
        batch.put(map, key(stream, next[stream] + added[stream]++), std::string(seed * 5, 'v'));
      }
      const Status s = pool_->commit(batch);
      if (s == StatusCode::pool_full) break;
      ASSERT_TRUE(s.ok()) << s.message();
      for (std::uint64_t stream = 0; stream < kStreams; ++stream) next[stream] += added[stream];
    }
    for (std::uint64_t stream = 0; stream < kStreams; ++stream) {
      for (std::uint64_t i = 0; i <= next[stream]; ++i) {
        ASSERT_EQ(map.contains(key(stream, i)).present(), i < next[stream]);
      }
    }
    expect_sound(*pool_);
  }
}

TEST_P(BatchTest, RefusedBatches) {
  auto map = open<Bytes, Bytes>("m");
  TempPath other_path;
  Pool other = open_pool(other_path, {.max_size = 64_MiB});
  auto foreign = must(other.map<Bytes, Bytes>("m", {.engine = GetParam().engine}));
  WriteBatch batch;
  batch.put(map, "a", "1");
  batch.put(foreign, "a", "1");
  EXPECT_EQ(pool_->commit(batch).code(), StatusCode::invalid_argument);
  EXPECT_FALSE(must(map.get("a")));
  batch.clear();
  batch.put(map, std::string(kMaxKeyBytes + 1, 'k'), "1");
  batch.put(map, "a", "1");
  EXPECT_EQ(pool_->commit(batch).code(), StatusCode::invalid_argument);
  EXPECT_FALSE(must(map.get("a")));
  batch.clear();
  batch.put(map, "a", "1");
  must(map.put("there", "1"));
  Status inside;
  must(map.for_each([&](Bytes, Bytes) { inside = pool_->commit(batch); }));
  EXPECT_EQ(inside.code(), StatusCode::invalid_argument) << inside.message();
  must(pool_->read_batch([&] { inside = pool_->commit(batch); }));
  EXPECT_EQ(inside.code(), StatusCode::invalid_argument) << inside.message();
  EXPECT_FALSE(must(map.get("a")));
  must(pool_->close());
  EXPECT_EQ(pool_->commit(batch).code(), StatusCode::invalid_argument);
  pool_.emplace(open_pool(path_, {.mode = OpenMode::read_only}));
  map = open<Bytes, Bytes>("m");
  batch.clear();
  batch.put(map, "a", "1");
  EXPECT_EQ(pool_->commit(batch).code(), StatusCode::read_only);
}

// The batch as a reader of its own writes.
TEST_P(BatchTest, GetSeesWhatTheBatchHas) {
  auto numbers = open<std::uint64_t, std::uint64_t>("numbers");
  auto texts = open<Bytes, Bytes>("texts");
  must(numbers.put(1, 1));
  must(numbers.put(2, 2));
  must(texts.put("a", "of the map"));
  WriteBatch batch;
  EXPECT_EQ(must(batch.get(numbers, 1)), 1U);
  batch.put(numbers, 1, 10);
  batch.erase(numbers, 2);
  batch.put(numbers, 3, 30);
  batch.put(texts, "", "empty");
  batch.put(texts, "b", "1");
  batch.put(texts, "b", std::string(5000, 'b'));
  EXPECT_EQ(must(batch.get(numbers, 1)), 10U);
  EXPECT_FALSE(must(batch.get(numbers, 2)));
  EXPECT_EQ(must(batch.get(numbers, 3)), 30U);
  EXPECT_FALSE(must(batch.get(numbers, 4)));
  EXPECT_EQ(must(batch.get(texts, "a")), "of the map");
  EXPECT_EQ(must(batch.get(texts, "")), "empty");
  EXPECT_EQ(must(batch.get(texts, "b")), std::string(5000, 'b'));
  EXPECT_EQ(must(numbers.get(1)), 1U);  // nothing was committed
  must(pool_->commit(batch));
  EXPECT_EQ(must(batch.get(numbers, 3)), 30U);
  batch.clear();
  EXPECT_EQ(must(batch.get(numbers, 1)), 10U);
  batch.put(numbers, 9, 9);
  must(pool_->close());
  EXPECT_EQ(batch.get(numbers, 9).error().code(), StatusCode::invalid_argument);
  pool_.reset();
  reopen();
}

TEST_P(BatchTest, KeysThatAscendAtFirst) {
  auto numbers = open<std::uint64_t, std::uint64_t>("numbers");
  auto texts = open<Bytes, Bytes>("texts");
  const auto text_of = [](std::uint64_t i) { return "key " + std::to_string(1000 + i); };
  WriteBatch batch;
  for (std::uint64_t i = 0; i < 100; ++i) batch.put(numbers, 10 * i, i);
  for (std::uint64_t i = 0; i < 100; ++i) batch.put(texts, text_of(2 * i), "a");
  const auto expect = [&](std::uint64_t end, std::uint64_t first, Bytes text) {
    EXPECT_FALSE(must(batch.get(numbers, end)));
    EXPECT_EQ(must(batch.get(numbers, 0)), first);
    EXPECT_EQ(must(batch.get(numbers, 990)), 99U);
    EXPECT_FALSE(must(batch.get(numbers, 11)));
    EXPECT_EQ(must(batch.get(texts, text_of(0))), "a");
    EXPECT_FALSE(must(batch.get(texts, text_of(1))));
    EXPECT_EQ(must(batch.get(texts, text_of(198))), text);
  };
  expect(991, 0, "a");
  batch.put(texts, text_of(198), "b");  // the last one again
  expect(991, 0, "b");
  batch.put(numbers, 0, 7);
  batch.erase(numbers, 20);
  expect(20, 7, "b");
  EXPECT_EQ(batch.size(), 203U);
  must(pool_->commit(batch));
  EXPECT_EQ(must(numbers.size()), 99U);
  EXPECT_EQ(must(texts.size()), 100U);
  EXPECT_EQ(must(numbers.get(0)), 7U);
  EXPECT_EQ(must(texts.get(text_of(198))), "b");
}

// What a call of an untyped map ignores makes no second key, and no other value.
TEST_P(BatchTest, UntypedKeysAndValuesWithIgnoredBits) {
  auto texts = open<Bytes, std::uint16_t>("texts");
  auto map = must(pool_->untyped_map("texts"));
  WriteBatch batch;
  batch.put(map, {.word = 1, .bytes = ""}, {.word = 0xABC0001, .word_size = 2});
  batch.put(map, {.word = 2, .bytes = ""}, {.word = 0xABC0002, .word_size = 2});
  std::uint64_t seen = 0;
  const auto note = [&](const UntypedValue& value) {
    batch.put(map, {.bytes = "b"}, {.word = 7, .word_size = 2});  // may move what the batch holds
    seen = value.word;
  };
  EXPECT_TRUE(batch.read(map, {.word = 3, .bytes = ""}, note).present());
  EXPECT_EQ(seen, 2U);
  must(pool_->commit(batch));
  EXPECT_EQ(must(texts.get("")), 2U);
  EXPECT_EQ(must(texts.get("b")), 7U);
}

TEST_P(BatchTest, ABatchWithAnErrorReadsNothing) {
  auto map = open<Bytes, Bytes>("m");
  WriteBatch batch;
  batch.put(map, "a", "1");
  batch.put(map, std::string(kMaxKeyBytes + 1, 'k'), "1");
  EXPECT_EQ(batch.get(map, "a").error().code(), StatusCode::invalid_argument);
  EXPECT_EQ(batch.get(map, "b").error().code(), StatusCode::invalid_argument);
  batch.clear();
  EXPECT_FALSE(must(batch.get(map, "a")));
}

// Maps and batches of some hundred mutations of few keys, against std::map.
TEST_P(BatchTest, ScanSeesWhatTheBatchHas) {
  const MapOptions options{.engine = GetParam().engine};
  if (!GetParam().ordered) {
    auto refused = pool_->ordered_map<Bytes, std::uint64_t>("m", options);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), StatusCode::unsupported);
    return;
  }
  auto map = must(pool_->ordered_map<Bytes, std::uint64_t>("m", options));
  std::map<std::string, std::uint64_t> model;
  std::uint64_t random = 7;
  const auto next = [&](std::uint64_t n) { return (random = mix(random + 1)) % n; };
  const auto name = [&] { return std::string(next(3), 'k') + std::to_string(next(90)); };
  for (int round = 0; round < 40; ++round) {
    WriteBatch batch;
    auto after = model;
    for (std::uint64_t n = next(60); n > 0; --n) {
      const std::string key = next(20) == 0 ? "" : name();
      if (next(3) == 0) {
        batch.erase(map, key);
        after.erase(key);
      } else {
        batch.put(map, key, n);
        after[key] = n;
      }
    }
    const std::string from = name(), to = name();
    const std::uint64_t limit = next(3) == 0 ? next(20) : ~std::uint64_t{0};
    for (const bool reverse : {false, true}) {
      std::vector<std::pair<std::string, std::uint64_t>> expected, seen;
      for (auto it = after.lower_bound(from); it != after.end() && it->first < to; ++it) {
        expected.emplace_back(*it);
      }
      if (reverse) std::reverse(expected.begin(), expected.end());
      expected.resize(std::min<std::uint64_t>(expected.size(), limit));
      const auto visited =
          must(batch.scan(map, {.from = from, .to = to, .limit = limit, .reverse = reverse},
                          [&](Bytes key, std::uint64_t value) { seen.emplace_back(key, value); }));
      EXPECT_EQ(seen, expected) << "round " << round;
      EXPECT_EQ(visited, expected.size());
    }
    must(pool_->commit(batch));
    model = std::move(after);
    std::uint64_t entries = 0;
    must(batch.scan(map, {}, [&](Bytes key, std::uint64_t value) {
      EXPECT_EQ(model.at(std::string(key)), value);
      ++entries;
      return entries < 50;
    }));
    EXPECT_EQ(entries, std::min<std::uint64_t>(model.size(), 50));
  }
}

// Threads move coins between accounts of two maps by batches, others add to them by fetch_add, and
// a reader finds every sum right.
TEST_P(BatchTest, SumsUnderTransfers) {
  constexpr std::uint64_t kAccounts = 6, kCoins = 1000;
  const std::uint64_t rounds = scaled(3000, 600, 100);
  auto left = open<std::uint64_t, std::uint64_t>("left");
  auto right = open<std::uint64_t, std::uint64_t>("right");
  for (std::uint64_t i = 0; i < kAccounts; ++i) {
    must(left.put(i, kCoins));
    must(right.put(i, kCoins));
  }
  Violations violations;
  std::atomic<int> moving{3};
  Team team(violations);
  for (std::uint64_t t = 0; t < 3; ++t) {
    team.start([&, t] {
      for (std::uint64_t round = 0; round < rounds; ++round) {
        const std::uint64_t a = mix(round * 3 + t) % kAccounts;
        const std::uint64_t b = mix(round * 7 + t) % kAccounts;
        for (;;) {
          const std::uint64_t from = must(left.get(a)).value();
          const std::uint64_t to = must(right.get(b)).value();
          WriteBatch batch;
          batch.require(left, a, from);
          batch.require(right, b, to);
          batch.put(left, a, from - 1);
          batch.put(right, b, to + 1);
          const Status s = pool_->commit(batch);
          if (s.ok()) break;
          if (s != StatusCode::conflict) violations.add(std::string(s.message()));
        }
      }
      --moving;
    });
  }
  team.start([&] {
    while (moving != 0) {
      std::uint64_t sum = 0;
      must(pool_->read_batch([&] {
        for (std::uint64_t i = 0; i < kAccounts; ++i) {
          sum += must(left.get(i)).value() + must(right.get(i)).value();
        }
      }));
      if (sum != 2 * kAccounts * kCoins) violations.add("the sum is " + std::to_string(sum));
    }
  });
  team.join();
  violations.expect_none();
}

}  // namespace
}  // namespace perdure::test
