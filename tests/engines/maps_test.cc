// test: cross
// Several maps in one pool: names, kinds, engines, drop and create again, the results of list and
// stats; and that all of it survives a reopen.
#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/engines.h"
#include "tests/support/subjects.h"

namespace perdure::test {
namespace {

using Bytes = std::string_view;

class MapsTest : public ::testing::TestWithParam<EngineInfo> {
 protected:
  MapsTest() { reopen(); }
  void reopen() {
    if (pool_) must(pool_->close());
    pool_.reset();
    pool_.emplace(open_pool(path_, {.max_size = 1_GiB}));
  }
  MapOptions engine() const { return {.engine = GetParam().engine}; }

  TempPath path_;
  std::optional<Pool> pool_;
};
std::string engine_of(const ::testing::TestParamInfo<EngineInfo>& row) {
  return std::string(engine_name(row.param.engine));
}
INSTANTIATE_TEST_SUITE_P(Engines, MapsTest, ::testing::ValuesIn(kEngines), engine_of);

// Of this process: what is not a page of a file.
std::uint64_t own_memory() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word && word != "RssAnon:") {
  }
  std::uint64_t kib = 0;
  status >> kib;
  return kib << 10;
}

TEST_P(MapsTest, AThousandMapsOfOneEntryTakeLittleMemory) {
  const std::uint64_t n = scaled(1'000, 100);
  const std::uint64_t before = own_memory();
  for (const bool again : {false, true}) {
    if (again) reopen();
    std::vector<Map<Bytes, Bytes>> maps;
    for (std::uint64_t i = 0; i < n; ++i) {
      maps.push_back(must(pool_->map<Bytes, Bytes>(std::to_string(i), engine())));
      EXPECT_EQ(was_absent(maps.back().put("key", std::to_string(i))), !again);
    }
    for (std::uint64_t i = 0; i < n; ++i) {
      ASSERT_EQ(must(maps[i].get("key")), std::optional(std::to_string(i)));
    }
    if (!san()) {
      EXPECT_LE((own_memory() - before) / n, 128_KiB);
    }
  }
  EXPECT_EQ(must(pool_->list()).size(), n);
}

TEST_P(MapsTest, MapsOfAllKindsShareAPoolAndStayApart) {
  const std::uint64_t n = scaled(3'000, 500);
  for (const bool again : {false, true}) {
    if (again) reopen();
    auto numbers = must(pool_->map<std::uint64_t, std::uint64_t>("numbers", engine()));
    auto texts = must(pool_->map<Bytes, Bytes>("texts", engine()));
    auto counts = must(pool_->map<Bytes, std::uint64_t>("counts", engine()));
    auto blobs = must(pool_->map<std::int64_t, Bytes>("blobs", engine()));
    for (std::uint64_t i = 0; !again && i < n; ++i) {
      const std::string text = std::to_string(i);
      ASSERT_TRUE(was_absent(numbers.insert(i, i)));
      ASSERT_TRUE(was_absent(texts.insert(text, text + "!")));
      ASSERT_TRUE(was_absent(counts.insert(text, i * 2)));
      ASSERT_TRUE(was_absent(blobs.insert(-static_cast<std::int64_t>(i), text + "?")));
      if (i % 2 == 0) {
        ASSERT_TRUE(was_present(counts.erase(text)));
      }
    }
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::string text = std::to_string(i);
      ASSERT_EQ(must(numbers.get(i)), std::optional(i));
      ASSERT_EQ(must(texts.get(text)), std::optional(text + "!"));
      ASSERT_EQ(must(counts.get(text)).has_value(), i % 2 == 1);
      ASSERT_EQ(must(blobs.get(-static_cast<std::int64_t>(i))), std::optional(text + "?"));
    }
    EXPECT_EQ(numbers.stats().entries, n);
    EXPECT_EQ(counts.stats().entries, n / 2);
    expect_sound(*pool_);
  }
}

// A read may deliver a short word as one of 8 bytes.
TEST_P(MapsTest, AnUntypedMapExpectsWhatItHasDelivered) {
  auto typed = must(pool_->map<std::uint64_t, std::uint32_t>("m", engine()));
  must(typed.insert(1, 7));
  UntypedMap map = must(pool_->untyped_map("m", {.mode = OpenMode::existing}));
  UntypedValue seen;
  must(map.read({.word = 1}, [&](const UntypedValue& value) { seen = value; }));
  const UntypedValue next{.word = 8, .word_size = 4};
  const Exchanged done = map.compare_exchange({.word = 1}, seen, next);
  EXPECT_TRUE(done.exchanged()) << done.status().message();
  EXPECT_EQ(must(typed.get(1)), std::optional(8U));
  const UntypedValue large{.word = 1ULL << 32 | 8, .word_size = 8};
  EXPECT_EQ(map.compare_exchange({.word = 1}, large, next).status(), StatusCode::invalid_argument);
  must(pool_->map<std::uint64_t, Bytes>("texts", engine()));
  UntypedMap texts = must(pool_->untyped_map("texts", {.mode = OpenMode::existing}));
  const UntypedValue zero{.word = 0, .word_size = 8};
  EXPECT_EQ(texts.compare_exchange({.word = 1}, zero, std::nullopt).status(),
            StatusCode::invalid_argument);
}

TEST_P(MapsTest, HandlesOfOneMapSeeEachOther) {
  auto first = must(pool_->map<std::uint64_t, std::uint64_t>("m", engine()));
  auto second = must(pool_->map<std::uint64_t, std::uint64_t>("m", engine()));
  EXPECT_TRUE(was_absent(first.insert(1, 10)));
  EXPECT_FALSE(was_absent(second.insert(1, 11)));
  EXPECT_EQ(must(second.get(1)), std::optional<std::uint64_t>(10));
  EXPECT_TRUE(was_present(second.erase(1)));
  EXPECT_FALSE(was_present(first.contains(1)));
}

TEST_P(MapsTest, ForEachVisitsEveryEntryOnce) {
  auto map = must(pool_->map<std::uint64_t, std::uint64_t>("m", engine()));
  constexpr std::uint64_t kCount = 300;
  for (std::uint64_t k = 0; k < kCount; ++k) ASSERT_TRUE(was_absent(map.insert(k, k * 7)));
  std::vector<bool> seen(kCount);
  EXPECT_EQ(must(map.for_each([&](std::uint64_t key, std::uint64_t value) {
              ASSERT_LT(key, kCount);
              EXPECT_FALSE(seen[key]) << key;
              EXPECT_EQ(value, key * 7);
              seen[key] = true;
            })),
            kCount);
  std::uint64_t calls = 0;
  EXPECT_EQ(must(map.for_each([&](std::uint64_t, std::uint64_t) { return ++calls < 5; })), 5U);
}

// A capacity is a hint: a map made for a few entries holds many.
TEST_P(MapsTest, CapacityIsAHint) {
  for (const std::uint64_t capacity : {1ULL, 1000ULL, 1ULL << 40}) {
    MapOptions options = engine();
    options.capacity = capacity;
    auto map = must(pool_->map<std::uint64_t, std::uint64_t>(std::to_string(capacity), options));
    for (std::uint64_t k = 0; k < 3000; ++k) ASSERT_TRUE(was_absent(map.insert(k << 48 | k, k)));
    EXPECT_EQ(map.stats().entries, 3000U);
  }
}

TEST_P(MapsTest, OtherKindsAreRefusedAndChangeNothing) {
  must(must(pool_->map<std::uint64_t, std::uint64_t>("m", engine())).insert(1, 2));
  auto must_refuse = [&](const auto& result) {
    EXPECT_EQ(code_of(result), StatusCode::invalid_argument);
  };
  for (const bool again : {false, true}) {
    if (again) reopen();
    must_refuse(pool_->map<Bytes, std::uint64_t>("m", engine()));
    must_refuse(pool_->map<std::uint64_t, Bytes>("m", engine()));
    must_refuse(pool_->map<std::int64_t, std::uint64_t>("m", engine()));
    must_refuse(pool_->map<Bytes, Bytes>("m", engine()));
    // Another width is another kind: a narrower view would truncate keys or values.
    must_refuse(pool_->map<std::uint32_t, std::uint64_t>("m", engine()));
    must_refuse(pool_->map<std::uint64_t, std::uint32_t>("m", engine()));
    const auto refused = pool_->map<std::int32_t, Bytes>("m", engine());
    EXPECT_NE(refused.error().message().find(
                  "'m' was created with u64 keys and 8-byte values, not i32 keys and byte-string"),
              Bytes::npos)
        << refused.error().message();
    auto map = must(pool_->map<std::uint64_t, std::uint64_t>("m", engine()));
    EXPECT_EQ(must(map.get(1)), std::optional<std::uint64_t>(2));
    EXPECT_EQ(must(pool_->list()).size(), 1U);
  }
}

// Without an engine in the options an existing map keeps its own. Another engine is refused with
// both names.
TEST_P(MapsTest, AnotherEngineIsRefused) {
  must(pool_->map<std::uint64_t, std::uint64_t>("m", engine()));
  const auto own = std::string(engine_name(GetParam().engine));
  const Engine other = GetParam().engine == Engine::phast ? Engine::level : Engine::phast;
  const auto refused = pool_->map<std::uint64_t, std::uint64_t>("m", {.engine = other});
  EXPECT_EQ(code_of(refused), StatusCode::invalid_argument);
  const std::string said(refused.error().message());
  EXPECT_NE(said.find("of engine " + own + ", not " + std::string(engine_name(other))),
            std::string::npos)
      << said;
  must(pool_->map<std::uint64_t, std::uint64_t>("m"));
  must(pool_->map<std::uint64_t, std::uint64_t>("m", {.capacity = 1000}));
  EXPECT_EQ(must(pool_->list())[0].engine, GetParam().engine);
}

TEST_P(MapsTest, ModesSayWhetherAMapMayBeMade) {
  MapOptions existing = engine();
  existing.mode = OpenMode::existing;
  MapOptions fresh = engine();
  fresh.mode = OpenMode::create_new;
  EXPECT_EQ(code_of(pool_->map<std::uint64_t, std::uint64_t>("m", existing)),
            StatusCode::not_found);
  EXPECT_TRUE(must(pool_->list()).empty());
  must(must(pool_->map<std::uint64_t, std::uint64_t>("m", fresh)).insert(1, 2));
  EXPECT_EQ(code_of(pool_->map<std::uint64_t, std::uint64_t>("m", fresh)), StatusCode::exists);
  auto map = must(pool_->map<std::uint64_t, std::uint64_t>("m", existing));
  EXPECT_EQ(must(map.get(1)), std::optional<std::uint64_t>(2));
}

// A map is read-only if and only if its pool is.
TEST_P(MapsTest, AReadOnlyMapIsOneOfAReadOnlyPool) {
  must(must(pool_->map<std::uint64_t, std::uint64_t>("m", engine())).insert(1, 2));
  MapOptions look = engine();
  look.mode = OpenMode::read_only;
  EXPECT_EQ(code_of(pool_->map<std::uint64_t, std::uint64_t>("m", look)),
            StatusCode::invalid_argument);
  must(pool_->close());
  pool_.emplace(open_pool(path_, {.mode = OpenMode::read_only}));
  for (const OpenMode mode : {OpenMode::read_only, OpenMode::existing, OpenMode::open_or_create}) {
    auto map = must(pool_->map<std::uint64_t, std::uint64_t>("m", {.mode = mode}));
    EXPECT_EQ(must(map.get(1)), std::optional<std::uint64_t>(2));
    EXPECT_EQ(code_of(map.insert(2, 3)), StatusCode::read_only);
  }
  EXPECT_EQ(code_of(pool_->map<std::uint64_t, std::uint64_t>("absent", look)),
            StatusCode::not_found);
  EXPECT_EQ(code_of(pool_->map<std::uint64_t, std::uint64_t>("absent")), StatusCode::read_only);
}

// The engine of a new map whose options name none.
TEST(NaturalEngine, IsThatOfTheView) {
  TempPath path;
  Pool pool = open_pool(path, {.max_size = 64_MiB});
  must(pool.map<std::uint64_t, std::uint64_t>("plain", {.capacity = 100}));
  must(pool.ordered_map<std::uint64_t, std::uint64_t>("ordered", {.capacity = 100}));
  auto versioned =
      must(pool.versioned_map<std::uint64_t, std::uint64_t>("versioned", {.capacity = 100}));
  must(versioned.tag());
  for (const MapInfo& map : must(pool.list())) {
    const bool keeps_versions = map.name == std::string_view("versioned");
    EXPECT_EQ(map.engine, keeps_versions ? Engine::pskiplist : Engine::phast);
  }
}

TEST_P(MapsTest, OrderedViewsFailAtOpenWhereTheEngineKeepsNoOrder) {
  const auto ordered = pool_->ordered_map<std::uint64_t, std::uint64_t>("m", engine());
  EXPECT_EQ(code_of(ordered), GetParam().ordered ? StatusCode::ok : StatusCode::unsupported);
}

TEST_P(MapsTest, NamesOfEveryLegalShape) {
  const std::vector<std::string> legal = {"m",
                                          " ",
                                          "default",
                                          "a/b",
                                          "with space",
                                          std::string(kMaxMapNameBytes, 'x'),
                                          "\xc3\xa4\xff",
                                          std::string(kMaxMapNameBytes - 1, 'x'),
                                          "M"};
  for (const std::string& name : legal) {
    ASSERT_EQ(code_of(pool_->map<std::uint64_t, std::uint64_t>(name, engine())), StatusCode::ok)
        << ::testing::PrintToString(name);
  }
  const std::vector<std::string> illegal = {"",
                                            std::string(kMaxMapNameBytes + 1, 'x'),
                                            std::string(1'000, 'x'),
                                            std::string("a\0b", 3),
                                            std::string("\0", 1),
                                            std::string("m\0", 2)};
  for (const std::string& name : illegal) {
    EXPECT_EQ(code_of(pool_->map<std::uint64_t, std::uint64_t>(name, engine())),
              StatusCode::invalid_argument)
        << ::testing::PrintToString(name);
  }
  for (const bool again : {false, true}) {
    if (again) reopen();
    std::vector<std::string> listed;
    for (const MapInfo& info : must(pool_->list())) listed.push_back(info.name);
    EXPECT_TRUE(std::is_permutation(listed.begin(), listed.end(), legal.begin(), legal.end()));
  }
}

TEST_P(MapsTest, ListSaysWhatEachMapIs) {
  must(pool_->map<std::uint64_t, std::uint64_t>("unsigned", engine()));
  must(pool_->map<std::int64_t, Bytes>("signed", engine()));
  must(pool_->map<Bytes, std::uint64_t>("bytes", engine()));
  for (const bool again : {false, true}) {
    if (again) reopen();
    std::map<std::string, MapInfo> by_name;
    for (const MapInfo& info : must(pool_->list())) by_name[info.name] = info;
    ASSERT_EQ(by_name.size(), 3U);
    for (const auto& [name, info] : by_name) {
      EXPECT_EQ(info.engine, GetParam().engine);
      EXPECT_EQ(info.key_kind, name == "bytes" ? KeyKind::bytes : KeyKind::integer);
      EXPECT_EQ(info.value_kind, name == "signed" ? ValueKind::bytes : ValueKind::word);
      EXPECT_EQ(info.is_signed, name == "signed");
    }
    EXPECT_EQ(must(pool_->info()).maps.size(), 3U);
  }
}

TEST_P(MapsTest, DropRemovesAndTheNameIsFreeForOtherKinds) {
  EXPECT_EQ(pool_->drop("m").code(), StatusCode::not_found);
  for (int round = 0; round < 5; ++round) {
    {
      auto numbers = must(pool_->map<std::uint64_t, std::uint64_t>("m", engine()));
      EXPECT_EQ(numbers.stats().entries, 0U);
      for (std::uint64_t i = 0; i < 500; ++i) ASSERT_TRUE(was_absent(numbers.insert(i, i)));
    }
    must(pool_->drop("m"));
    EXPECT_TRUE(must(pool_->list()).empty());
    EXPECT_EQ(pool_->drop("m").code(), StatusCode::not_found);
    {
      auto texts = must(pool_->map<Bytes, Bytes>("m", engine()));
      EXPECT_FALSE(was_present(texts.contains(std::string(8, '\0'))));
      for (std::uint64_t i = 0; i < 500; ++i) {
        ASSERT_TRUE(was_absent(texts.insert(std::to_string(i), "text")));
      }
    }
    if (round % 2 == 1) reopen();
    expect_sound(*pool_);
    must(pool_->drop("m"));
    if (round % 2 == 0) reopen();
    EXPECT_TRUE(must(pool_->list()).empty());
    expect_sound(*pool_);
  }
}

// Moving a store into another one first closes the other's map, then its pool.
TEST_P(MapsTest, StoresCanBeMoved) {
  TempPath first_path("first"), second_path("second");
  auto first = must(Store::open(first_path, {.map = {.engine = GetParam().engine}}));
  must(first.put("a", "1"));
  auto second = must(Store::open(second_path, {.map = {.engine = GetParam().engine}}));
  must(second.put("b", "2"));
  second = std::move(first);
  EXPECT_EQ(must(second.get("a")), std::optional<std::string>("1"));
  EXPECT_EQ(must(second.get("b")), std::nullopt);
  auto reopened = must(Store::open(second_path, {.map = {.engine = GetParam().engine}}));
  EXPECT_EQ(must(reopened.get("b")), std::optional<std::string>("2"));
}

// "its blocks are free after the next open or compact": a pool that holds one load at a time takes
// many.
TEST_P(MapsTest, DroppedSpaceIsUsedAgain) {
  TempPath small("small");
  for (const bool by_compact : {false, true}) {
    std::optional<Pool> pool(open_pool(small, {.max_size = 24_MiB}));
    const std::string value(1'000, 'v');
    for (int round = 0; round < 6; ++round) {
      SCOPED_TRACE("round " + std::to_string(round) + (by_compact ? " compact" : " reopen"));
      {
        auto map = must(pool->map<std::uint64_t, Bytes>("m", engine()));
        for (std::uint64_t i = 0; i < 10'000; ++i) ASSERT_TRUE(was_absent(map.insert(i, value)));
        ASSERT_EQ(must(map.get(9'999)), std::optional(value));
      }
      must(pool->drop("m"));
      if (by_compact) {
        must(pool->compact());
      } else {
        must(pool->close());
        pool.reset();
        pool.emplace(open_pool(small, {.max_size = 24_MiB}));
      }
    }
    expect_sound(*pool);
    must(pool->close());
  }
}

TEST_P(MapsTest, ManyMaps) {
  const int n = 40;
  for (int i = 0; i < n; ++i) {
    auto map = must(pool_->map<std::uint64_t, std::uint64_t>("map" + std::to_string(i), engine()));
    for (std::uint64_t k = 0; k < 50; ++k) ASSERT_TRUE(was_absent(map.insert(k, k * 100 + i)));
  }
  reopen();
  EXPECT_EQ(must(pool_->list()).size(), static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) {
    auto map = must(pool_->map<std::uint64_t, std::uint64_t>("map" + std::to_string(i), engine()));
    for (std::uint64_t k = 0; k < 50; ++k) {
      ASSERT_EQ(must(map.get(k)), std::optional<std::uint64_t>(k * 100 + i));
    }
  }
  expect_sound(*pool_);
}

// "Figures of structures that an engine does not have are 0, or empty": a table has levels and
// resizes, and only leaves split and merge. An ordered engine has no table, and one or the other
// has a load factor.
TEST_P(MapsTest, StatsHaveWhatTheEngineHas) {
  auto map = must(pool_->map<std::uint64_t, std::uint64_t>("m", engine()));
  const std::uint64_t n = 5'000;
  for (std::uint64_t i = 0; i < n; ++i) ASSERT_TRUE(was_absent(map.insert(i, i)));
  for (std::uint64_t i = 0; i < n; ++i) ASSERT_TRUE(was_present(map.erase(i)));
  for (std::uint64_t i = 0; i < 100; ++i) ASSERT_TRUE(was_absent(map.insert(i, i)));
  const MapStats stats = map.stats();
  EXPECT_EQ(stats.entries, 100U);
  const bool table = !stats.levels.empty();
  const bool grows = stats.levels.size() != 1;  // a table of one level has one size
  EXPECT_EQ(stats.height > 1, grows);
  const bool leaves = stats.leaves > 0;
  EXPECT_FALSE(table && (leaves || GetParam().ordered));
  EXPECT_EQ(stats.load_factor > 0, table || leaves);
  EXPECT_TRUE(leaves || stats.splits + stats.merges == 0);
  EXPECT_EQ(stats.resizes.empty(), !table || !grows);
}

// The options of a store apply to the map that it makes.
TEST_P(MapsTest, AStoreMakesItsMapAsAsked) {
  TempPath small("store"), large("store-large");
  const auto levels = [&](const std::string& path, std::uint64_t capacity) {
    auto store =
        must(Store::open(path, {.map = {.engine = GetParam().engine, .capacity = capacity}}));
    EXPECT_EQ(must(store.pool().list())[0].engine, GetParam().engine);
    std::uint64_t slots = 0;
    for (const LevelStats& level : store.map().stats().levels) slots += level.slots;
    return slots;
  };
  if (GetParam().ordered) {
    EXPECT_EQ(levels(small, 0), 0U);
  } else {
    EXPECT_GE(levels(large, 100'000), 100'000U);
    EXPECT_LT(levels(small, 0), 10'000U);
  }
}

TEST_P(MapsTest, StoreIsAByteStringMap) {
  TempPath path("store");
  {
    auto store = must(Store::open(path, {.map = {.engine = GetParam().engine}}));
    must(store.put("apple", "3"));
    must(store.put("apple", "4"));
    EXPECT_TRUE(was_absent(store.insert("pear", "1")));
    EXPECT_FALSE(was_absent(store.insert("pear", "2")));
    EXPECT_EQ(must(store.get("apple")), std::optional<std::string>("4"));
    EXPECT_EQ(must(store.get("absent")), std::nullopt);
    EXPECT_TRUE(was_present(store.erase("pear")));
    EXPECT_FALSE(was_present(store.erase("pear")));
    must(store.put("", std::string("\0x", 2)));
    must(store.close());
  }
  // An existing map keeps its own engine; the file is an ordinary pool.
  auto store = must(Store::open(path));
  EXPECT_EQ(must(store.get("apple")), std::optional<std::string>("4"));
  EXPECT_EQ(must(store.get("")), std::optional(std::string("\0x", 2)));
  std::string seen;
  EXPECT_TRUE(was_present(store.read("apple", [&](Bytes value) { seen = value; })));
  EXPECT_EQ(seen, "4");
  EXPECT_EQ(code_of(store.ordered()),
            GetParam().ordered ? StatusCode::ok : StatusCode::unsupported);
  auto versioned = store.versioned();
  if (GetParam().versioned) {
    const Version version = must(must(std::move(versioned)).tag());
    must(store.put("apple", "5"));
    EXPECT_EQ(must(must(store.versioned()).get("apple", version)), std::optional<std::string>("4"));
  } else {
    EXPECT_EQ(code_of(versioned), StatusCode::unsupported);
  }
  ASSERT_EQ(must(store.pool().list()).size(), 1U);
  EXPECT_EQ(must(store.pool().list())[0].name, "default");
  must(store.sync());
  EXPECT_EQ(code_of(Store::open(path, {.map_name = "other", .map = {.mode = OpenMode::existing}})),
            StatusCode::busy);
  must(store.close());
  EXPECT_EQ(code_of(Store::open(path, {.map_name = "other", .map = {.mode = OpenMode::existing}})),
            StatusCode::not_found);
}

}  // namespace
}  // namespace perdure::test
