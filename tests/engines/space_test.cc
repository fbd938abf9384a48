// test: nightly
// Space: full pools that continue, churn that must not grow the file, thousands of splits and
// unlinks.
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/model.h"

namespace perdure::test {
namespace {

using Bytes = std::string_view;

// ---- Full pools ----

struct FullCase {
  Durability durability;
  std::uint64_t max_size;
  std::size_t value_size;
};
using EngineFullCase = std::tuple<EngineInfo, FullCase>;
class FullPool : public ::testing::TestWithParam<EngineFullCase> {};
std::string full_name(const ::testing::TestParamInfo<EngineFullCase>& row) {
  const auto& [engine, parameters] = row.param;
  return name_of(engine) + "_" + std::string(durability_name(parameters.durability)) + "_" +
         std::to_string(parameters.max_size >> 20) + "MiB_values_of_" +
         std::to_string(parameters.value_size);
}
std::vector<FullCase> full_cases() {
  if (san()) {
    return {{Durability::emulated, 2_MiB, 0},
            {Durability::process, 2_MiB, 100},
            {Durability::process, 6_MiB, 5'000},
            {Durability::emulated, 12_MiB, 300'000}};
  }
  std::vector<FullCase> cases{{Durability::emulated, 4_MiB, 0},
                              {Durability::process, 8_MiB, 100},
                              {Durability::process, 16_MiB, 5'000},
                              {Durability::emulated, 24_MiB, 300'000},
                              {Durability::process, 64_MiB, 3'000'000}};
  if (at_length()) {
    cases.insert(cases.end(), {{Durability::process, 4_MiB, 0},
                               {Durability::emulated, 8_MiB, 100},
                               {Durability::process, 24_MiB, 300'000}});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Sizes, FullPool,
                         ::testing::Combine(::testing::ValuesIn(kEngines),
                                            ::testing::ValuesIn(full_cases())),
                         full_name);

// Fills until the first refusal. Acknowledged entries stay, reads and erases still work, and freed
// space takes new entries. Then all of it again after a reopen.
template <class V>
void fill_and_go_on(const EngineInfo& engine, const FullCase& parameters) {
  PERDURE_TRACE_SEED();
  TempPath path;
  const PoolOptions options{.durability = parameters.durability, .max_size = parameters.max_size};
  auto value_of = [&](std::uint64_t i) -> Owned<V> {
    if constexpr (std::same_as<V, Bytes>) {
      // All of one size: the space of one suits another.
      std::string value(parameters.value_size, static_cast<char>('a' + i % 26));
      value.replace(0, 20, std::to_string(10'000'000'000'000'000'000U + i));
      return value;
    } else {
      return mix(i);
    }
  };
  std::map<std::string, std::uint64_t> model;  // key -> number of its value
  Rng rng;
  std::uint64_t next = 0;
  std::uint64_t first_load = 0;
  for (int session = 0; session < (san() ? 2 : 3); ++session) {
    SCOPED_TRACE("session " + std::to_string(session));
    Pool pool = open_pool(path, options);
    AnyMap<Bytes, V> map(pool, "m", engine);
    auto verify = [&] {
      for (const auto& [key, number] : model) {
        ASSERT_TRUE(must(map.get(key)) == std::optional(value_of(number))) << key;
      }
      ASSERT_EQ(map.count(), model.size());
      ASSERT_NO_FATAL_FAILURE(expect_sound(pool));
    };
    ASSERT_NO_FATAL_FAILURE(verify());

    for (;; ++next) {
      const std::string key = "key" + std::to_string(mix(next));
      const auto done = map.insert(key, V(value_of(next)));
      if (!done.ok()) {
        ASSERT_EQ(code_of(done), StatusCode::pool_full) << describe(done.status());
        ASSERT_FALSE(was_present(map.contains(key))) << "a refused insert must not happen";
        break;
      }
      ASSERT_TRUE(done.absent());
      model[key] = next;
      ASSERT_LT(next, 5'000'000U) << "a pool of this size cannot hold so much";
    }
    if (session == 0) first_load = model.size();
    ASSERT_GT(model.size(), 10U) << "a pool of this size holds more";
    EXPECT_GE(model.size(), first_load * 6 / 10) << "space was lost over the sessions";
    EXPECT_LE(std::filesystem::file_size(path.str()), parameters.max_size);
    ASSERT_NO_FATAL_FAILURE(verify());

    // An update that finds no room leaves the old value.
    for (const std::string& key : {model.begin()->first, model.rbegin()->first}) {
      const std::uint64_t number = model[key];
      const auto updated = map.update(key, V(value_of(number + 26)));
      if (updated.ok()) {
        model[key] = number + 26;
      } else {
        EXPECT_EQ(code_of(updated), StatusCode::pool_full);
      }
      EXPECT_TRUE(must(map.get(key)) == std::optional(value_of(model[key])));
      const auto refused = map.put(key, V(value_of(number + 52)));
      if (refused.ok()) {
        model[key] = number + 52;
      } else {
        EXPECT_EQ(code_of(refused), StatusCode::pool_full);
      }
      EXPECT_TRUE(must(map.get(key)) == std::optional(value_of(model[key])));
    }

    // Erases half of the keys and reinserts half of those with other values. Their needs were just
    // freed: a slot in their leaf and a block of their size. New keys might need a new leaf.
    std::vector<std::string> keys;
    for (const auto& [key, number] : model) keys.push_back(key);
    std::shuffle(keys.begin(), keys.end(), rng);
    keys.resize(keys.size() / 2);
    for (const std::string& key : keys) {
      ASSERT_TRUE(was_present(map.erase(key))) << "erase works in a full pool";
      model.erase(key);
      ASSERT_FALSE(was_present(map.contains(key)));
    }
    for (std::size_t i = 0; i < keys.size() / 2; ++i) {
      const auto done = map.insert(keys[i], V(value_of(i)));
      ASSERT_TRUE(done.ok()) << "insert " << i << " of " << keys.size() / 2 << " after "
                             << keys.size() << " erases: " << describe(done.status());
      model[keys[i]] = i;
    }
    ASSERT_NO_FATAL_FAILURE(verify());
    if (session == 1) {
      must(pool.close({.sync = false}));
    } else {
      must(pool.close());
    }
  }
}

TEST_P(FullPool, LosesNothingAndGoesOn) {
  const auto& [engine, parameters] = GetParam();
  if (parameters.value_size == 0) {
    fill_and_go_on<std::uint64_t>(engine, parameters);
  } else {
    fill_and_go_on<Bytes>(engine, parameters);
  }
}

class FullPoolEdges : public ::testing::TestWithParam<EngineInfo> {};
INSTANTIATE_TEST_SUITE_P(Engines, FullPoolEdges, ::testing::ValuesIn(kEngines),
                         [](const auto& row) { return name_of(row.param); });

// The smallest legal pool opens, holds something, and is soon full, without harm.
TEST_P(FullPoolEdges, TheSmallestPoolWorks) {
  TempPath path;
  std::map<std::uint64_t, std::uint64_t> model;
  {
    Pool pool = open_pool(path, {.max_size = kMinPoolSize});
    AnyMap<std::uint64_t, std::uint64_t> map(pool, "m", GetParam(), {.capacity = 1});
    for (std::uint64_t i = 0;; ++i) {
      const auto done = map.insert(mix(i), i);
      if (!done.ok()) {
        EXPECT_EQ(code_of(done), StatusCode::pool_full);
        break;
      }
      model[mix(i)] = i;
      ASSERT_LT(i, kMinPoolSize / 16);
    }
    EXPECT_GT(model.size(), 1'000U);
    must(pool.close());
  }
  Pool pool = open_pool(path, {});
  AnyMap<std::uint64_t, std::uint64_t> map(pool, "m", GetParam());
  for (const auto& [key, value] : model) ASSERT_EQ(must(map.get(key)), std::optional(value));
  expect_sound(pool);
  while (!model.empty()) {
    ASSERT_TRUE(was_present(map.erase(model.begin()->first)));
    model.erase(model.begin());
  }
  EXPECT_EQ(map.count(), 0U);
  expect_sound(pool);
}

// More maps than fit: the refusal is a status, and the existing maps stay.
TEST_P(FullPoolEdges, MapsUntilFull) {
  TempPath path;
  std::size_t made = 0;
  {
    Pool pool = open_pool(path, {.max_size = 4_MiB});
    for (;; ++made) {
      const auto map = pool.map<std::uint64_t, std::uint64_t>("map" + std::to_string(made),
                                                              {.engine = GetParam().engine});
      if (!map) {
        EXPECT_EQ(map.error().code(), StatusCode::pool_full) << describe(map.error());
        break;
      }
      ASSERT_LT(made, 100'000U);
    }
    EXPECT_GT(made, 0U);
    EXPECT_EQ(must(pool.list()).size(), made);
    expect_sound(pool);
    must(pool.close());
  }
  Pool pool = open_pool(path, {});
  EXPECT_EQ(must(pool.list()).size(), made);
  must(pool.drop("map0"));
  expect_sound(pool);
}

// A writer is killed in a full pool.
TEST_P(FullPoolEdges, KilledWhenFull) {
  TempPath path;
  const PoolOptions options{.max_size = 8_MiB};
  std::uint64_t filled = 0;
  for (int round = 0; round < 3; ++round) {
    int pipe_fds[2];
    ASSERT_EQ(pipe(pipe_fds), 0);
    const pid_t child = start_child([&] {
      Pool pool = open_pool(path, options);
      AnyMap<std::uint64_t, Bytes> map(pool, "m", GetParam());
      const std::string value(500, 'v');
      std::uint64_t n = filled;
      while (map.insert(n, value).ok()) ++n;
      require(write(pipe_fds[1], &n, sizeof n) == sizeof n, "pipe");
      kill(getpid(), SIGKILL);
    });
    std::uint64_t n = 0;
    close(pipe_fds[1]);
    ASSERT_EQ(read(pipe_fds[0], &n, sizeof n), static_cast<ssize_t>(sizeof n));
    close(pipe_fds[0]);
    wait_child(child);
    Pool pool = open_pool(path, options);
    AnyMap<std::uint64_t, Bytes> map(pool, "m", GetParam());
    ASSERT_GT(n, filled) << "nothing fits after a kill in a full pool with erased entries";
    for (std::uint64_t i = 0; i < n; ++i) ASSERT_TRUE(was_present(map.contains(i)) == true) << i;
    ASSERT_NO_FATAL_FAILURE(expect_sound(pool));
    filled = n - n / 3;
    for (std::uint64_t i = filled; i < n; ++i) ASSERT_TRUE(was_present(map.erase(i)));
    must(pool.close());
  }
}

// ---- Churn ----

// Inserts ascending keys and deletes the oldest, 20 times the live set. The file ends no larger
// than twice its size after the first load.
template <class K, class V, class KeyOf, class ValueOf>
void churn(const EngineInfo& engine, std::uint64_t live, KeyOf key_of, ValueOf value_of) {
  for (const Durability durability : {Durability::emulated, Durability::process}) {
    if (durability == Durability::process && !at_length()) break;  // the same space
    SCOPED_TRACE(durability_name(durability));
    TempPath path;
    std::optional<Pool> session(open_pool(path, {.durability = durability, .max_size = 2_GiB}));
    std::optional<AnyMap<K, V>> view(std::in_place, *session, "m", engine);
    Pool& pool = *session;
    AnyMap<K, V>& map = *view;
    for (std::uint64_t i = 0; i < live; ++i) {
      ASSERT_TRUE(was_absent(map.insert(K(key_of(i)), V(value_of(i)))));
    }
    const std::uint64_t first = std::filesystem::file_size(path.str());
    for (std::uint64_t i = live; i < live * 20; ++i) {
      ASSERT_TRUE(was_absent(map.insert(K(key_of(i)), V(value_of(i))))) << i;
      ASSERT_TRUE(was_present(map.erase(K(key_of(i - live))))) << i;
    }
    EXPECT_LE(std::filesystem::file_size(path.str()), 2 * first);
    EXPECT_LE(must(pool.stats()).file_bytes, 2 * first);
    if (engine.engine == Engine::phast) {
      const MapStats stats = map.stats();
      EXPECT_GT(stats.splits, live * 20 / 56 / 4) << "the test is meant to split leaves";
      EXPECT_GT(stats.merges, live * 20 / 56 / 4) << "the test is meant to unlink leaves";
    }
    std::uint64_t expected = live * 19;
    EXPECT_EQ(map.count(), live);
    if (map.ordered() != nullptr) {
      must(map.ordered()->scan(ScanOptions<K>{}, [&](const K& key, const V& value) {
        ASSERT_TRUE(key == K(key_of(expected)));
        ASSERT_TRUE(value == V(value_of(expected)));
        ++expected;
      }));
      EXPECT_EQ(expected, live * 20);
    }
    ASSERT_NO_FATAL_FAILURE(expect_sound(pool));
    view.reset();  // a map must not outlive its pool
    must(pool.close());
    session.reset();
    session.emplace(open_pool(path, {}));
    view.emplace(*session, "m", engine);
    EXPECT_EQ(map.count(), live);
    ASSERT_TRUE(was_present(map.contains(K(key_of(live * 20 - 1)))));
    ASSERT_FALSE(was_present(map.contains(K(key_of(live * 19 - 1)))));
    ASSERT_NO_FATAL_FAILURE(expect_sound(pool));
  }
}

class Churn : public ::testing::TestWithParam<EngineInfo> {};
INSTANTIATE_TEST_SUITE_P(Engines, Churn, ::testing::ValuesIn(kEngines),
                         [](const auto& row) { return name_of(row.param); });

TEST_P(Churn, IntegersStayWithinTwiceTheFirstFile) {
  churn<std::uint64_t, std::uint64_t>(
      GetParam(), scaled(60'000, 2'500), [](std::uint64_t i) { return i + 1; },
      [](std::uint64_t i) { return mix(i); });
}

TEST_P(Churn, StringsStayWithinTwiceTheFirstFile) {
  churn<Bytes, Bytes>(
      GetParam(), scaled(12'000, 6'000, 1'000),
      [](std::uint64_t i) {
        char text[32];
        std::snprintf(text, sizeof text, "customer:%010llu", static_cast<unsigned long long>(i));
        return std::string(text);
      },
      [](std::uint64_t i) { return std::string(100 + i % 50, static_cast<char>('a' + i % 26)); });
}

// Splits and unlinks in random order: the map grows and is emptied again, from all ends.
TEST_P(Churn, GrowAndEmptyRepeatedly) {
  PERDURE_TRACE_SEED();
  TempPath path;
  const std::uint64_t n = scaled(60'000, 30'000, 4'000);
  Rng rng;
  std::uint64_t largest = 0;
  for (int round = 0; round < 6; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    Pool pool = open_pool(path, {.max_size = 1_GiB});
    AnyMap<std::uint64_t, std::uint64_t> map(pool, "m", GetParam());
    std::vector<std::uint64_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    if (round % 3 == 1) std::reverse(order.begin(), order.end());
    if (round % 3 == 2) std::shuffle(order.begin(), order.end(), rng);
    for (const std::uint64_t i : order) ASSERT_TRUE(was_absent(map.insert(i * 3, i)));
    if (round % 3 == 0) std::shuffle(order.begin(), order.end(), rng);
    for (std::size_t gone = 0; gone < order.size(); ++gone) {
      ASSERT_TRUE(was_present(map.erase(order[gone] * 3)));
      if (gone % 5'000 == 0) {
        ASSERT_EQ(map.count(), n - gone - 1);
      }
    }
    EXPECT_EQ(map.count(), 0U);
    ASSERT_NO_FATAL_FAILURE(expect_sound(pool));
    const std::uint64_t size = std::filesystem::file_size(path.str());
    if (round == 2) largest = size;  // after one round of each order
    if (round > 2) {
      EXPECT_LE(size, 2 * largest) << "an emptied map does not give its space back";
    }
    must(pool.close({.sync = round % 2 == 0}));
  }
}

}  // namespace
}  // namespace perdure::test
