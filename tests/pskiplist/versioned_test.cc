// test: tsan, cross
// VersionedMap compared with a list of std::map. V ids: docs/design/hazards.md and
// docs/design/pskiplist.md.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/support.h"

namespace perdure::test {
namespace {

using Numbers = VersionedMap<std::uint64_t, std::uint64_t>;
using State = std::map<std::uint64_t, std::uint64_t>;

// The entries that scan_at() and diff() visit in a range, in their order.
template <class K, class V>
using Visited = std::vector<std::pair<K, V>>;
template <class V>
using Sides = std::pair<std::optional<V>, std::optional<V>>;

template <class K, class V>
std::map<K, Sides<V>> difference(const std::map<K, V>& before, const std::map<K, V>& after) {
  std::map<K, Sides<V>> out;
  for (const auto& [key, value] : before) out[key].first = value;
  for (const auto& [key, value] : after) out[key].second = value;
  std::erase_if(out, [](const auto& item) { return item.second.first == item.second.second; });
  return out;
}

template <class K, class V, class Options>
Visited<K, V> within(const std::map<K, V>& all, const Options& range) {
  Visited<K, V> out;
  for (const auto& [key, value] : all) {
    if ((range.from && key < *range.from) || (range.to && key >= *range.to)) continue;
    if constexpr (requires { range.prefix; }) {
      if (!key.starts_with(range.prefix)) continue;
    }
    out.emplace_back(key, value);
  }
  if (range.reverse) std::ranges::reverse(out);
  if (out.size() > range.limit) out.resize(range.limit);
  return out;
}

// Compares both at versions that a tag returned, with every kind of bound. K: the type of the
// model's keys.
template <class K, class Layers, class Model, class Options>
void expect_ranges(Layers& map, const std::pair<Version, Model>& before,
                   const std::pair<Version, Model>& after, const Options& range) {
  Visited<K, std::uint64_t> seen;
  must(map.scan_at(after.first, range,
                   [&](auto key, std::uint64_t value) { seen.emplace_back(key, value); }));
  EXPECT_EQ(seen, within(after.second, range)) << "version " << after.first;
  Visited<K, Sides<std::uint64_t>> differs;
  must(map.diff(before.first, after.first, range, [&](auto key, const auto& was, const auto& is) {
    differs.emplace_back(key, Sides<std::uint64_t>(was, is));
  }));
  EXPECT_EQ(differs, within(difference(before.second, after.second), range))
      << "versions " << before.first << ", " << after.first;
}

class Versioned : public ::testing::Test {
 protected:
  Numbers numbers() { return must(pool_.versioned_map<std::uint64_t, std::uint64_t>("m")); }
  void reopen() {
    ASSERT_TRUE(pool_.close().ok());
    pool_ = open_pool(path_, kOptions);
  }
  static State at(Numbers& map, Version version, const ScanOptions<std::uint64_t>& options = {}) {
    State state;
    must(map.scan_at(version, options, [&](std::uint64_t key, std::uint64_t value) {
      EXPECT_TRUE(state.empty() || options.reverse || state.rbegin()->first < key);
      state.emplace(key, value);
    }));
    return state;
  }
  static State now(Numbers& map) {
    State state;
    must(map.for_each([&](std::uint64_t key, std::uint64_t value) { state.emplace(key, value); }));
    return state;
  }

  static constexpr PoolOptions kOptions{.durability = Durability::emulated, .max_size = 256_MiB};
  TempPath path_;
  Pool pool_ = open_pool(path_, kOptions);
};

// V2, V3, V4: a model with a tag after every few operations. Reads random versions, also after a
// restart, and writes on after it (V14).
TEST_F(Versioned, V2_V3_V4_V14_AgainstAModel) {
  std::vector<std::pair<Version, State>> tagged;
  State model;
  std::uint64_t seed = 7;
  const auto draw = [&](std::uint64_t n) {
    seed = mix(seed + 1);
    return seed % n;
  };
  for (int round = 0; round < 4; ++round) {
    auto map = numbers();
    for (std::uint64_t i = 0; i < scaled(1'000, 300); ++i) {
      const std::uint64_t key = draw(40);
      if (draw(3) == 0) {
        EXPECT_EQ(was_present(map.erase(key)), model.erase(key) != 0);
      } else {
        EXPECT_EQ(was_absent(map.put(key, i)), !model.contains(key));
        model[key] = i;
      }
      if (draw(3) != 0) continue;
      const Version version = must(map.tag());
      EXPECT_TRUE(tagged.empty() || tagged.back().first < version);
      tagged.emplace_back(version, model);
    }
    EXPECT_EQ(now(map), model);
    for (int i = 0; i < 100; ++i) {
      const auto& [version, state] = tagged[draw(tagged.size())];
      EXPECT_EQ(at(map, version), state) << version;
      const std::uint64_t key = draw(42);
      const auto found = must(map.get(key, version));
      EXPECT_EQ(found.has_value(), state.contains(key));
      if (found) {
        EXPECT_EQ(*found, state.at(key));
      }
      ScanOptions<std::uint64_t> range{.reverse = draw(2) == 0};
      if (draw(2) == 0) range.from = draw(42);
      if (draw(2) == 0) range.to = draw(42);
      if (draw(2) == 0) range.limit = draw(12);
      expect_ranges<std::uint64_t>(map, tagged[draw(tagged.size())], tagged[draw(tagged.size())],
                                   range);
    }
    EXPECT_TRUE(must(pool_.check({.deep = true})).ok());
    reopen();
  }
}

// The same for byte strings, including prefixes; some keys have equal first bytes, and some are
// prefixes of others.
TEST_F(Versioned, RangesOfByteStringsAgainstAModel) {
  auto map = must(pool_.versioned_map<std::string_view, std::uint64_t>("s"));
  std::uint64_t seed = 3;
  const auto draw = [&](std::uint64_t n) {
    seed = mix(seed + 1);
    return seed % n;
  };
  const auto text = [&] {
    std::string key = draw(2) == 0 ? "customer" : "";
    for (std::uint64_t n = draw(4); n > 0; --n) key += static_cast<char>('a' + draw(3));
    return key;
  };
  std::map<std::string, std::uint64_t> model;
  std::vector<std::pair<Version, std::map<std::string, std::uint64_t>>> tagged;
  for (std::uint64_t i = 0; i < 400; ++i) {
    const std::string key = text();
    if (draw(3) == 0) {
      EXPECT_EQ(was_present(map.erase(key)), model.erase(key) != 0);
    } else {
      must(map.put(key, i));
      model[key] = i;
    }
    if (i % 20 == 19) tagged.emplace_back(must(map.tag()), model);
  }
  for (int i = 0; i < 300; ++i) {
    const std::string from = text();
    const std::string to = text();
    const std::string prefix = text();
    ScanOptions<std::string_view> range{.reverse = draw(2) == 0};
    if (draw(3) == 0) range.from = from;
    if (draw(3) == 0) range.to = to;
    if (draw(2) == 0) range.prefix = prefix;
    if (draw(3) == 0) range.limit = draw(12);
    expect_ranges<std::string>(map, tagged[draw(tagged.size())], tagged[draw(tagged.size())],
                               range);
  }
}

// V13: with any number of threads that rebuild the index, one thread rebuilds each block of the key
// chain.
TEST_F(Versioned, V13_EveryBlockIsRebuiltOnce) {
  State model;
  {
    auto map = numbers();
    for (std::uint64_t key = 0; key < 1'000; ++key) {  // eight blocks
      was_absent(map.insert(key * 7, key));
      model.emplace(key * 7, key);
    }
    must(map.tag());
    for (std::uint64_t key = 0; key < 1'000; key += 3) {
      must(map.erase(key * 7));
      model.erase(key * 7);
    }
  }
  for (const std::uint32_t threads : {1U, 2U, 3U, 5U, 8U, 16U}) {
    ASSERT_TRUE(pool_.close().ok());
    PoolOptions options = kOptions;
    options.recovery_threads = threads;
    pool_ = open_pool(path_, options);
    auto map = numbers();
    EXPECT_EQ(now(map), model) << threads << " threads";
    EXPECT_EQ(must(map.scan_at(map.versions().last, {}, [](auto, auto) {})), 1'000U);
    EXPECT_TRUE(must(pool_.check({.deep = true})).ok()) << threads << " threads";
  }
}

// pool.h: those of a closed pool may be destroyed. ASan finds what they touch.
TEST_F(Versioned, SnapshotsAndIteratorsMayOutliveTheirPool) {
  auto map = numbers();
  must(map.put(1, 2));
  const Version version = must(map.tag());
  auto kept = std::make_optional(must(map.snapshot()));
  auto moved = std::make_optional(must(map.snapshot(version)));
  auto iterator = std::make_optional(kept->scan());
  EXPECT_TRUE(iterator->valid());
  ASSERT_TRUE(pool_.close().ok());
  auto target = std::move(*moved);
  moved.reset();
  iterator.reset();
  kept.reset();
  // The versions of the next open are held by nothing.
  pool_ = open_pool(path_, kOptions);
  auto again = numbers();
  EXPECT_EQ(must(again.trim(version)), version);
}

TEST_F(Versioned, SnapshotsEndBesideTheClose) {
  for (int i = 0; i < 10; ++i) {
    auto map = numbers();
    must(map.tag());
    std::vector<Snapshot<std::uint64_t, std::uint64_t>> snapshots;
    for (int s = 0; s < 200; ++s) snapshots.push_back(must(map.snapshot()));
    std::thread releases([&] {
      while (!snapshots.empty()) snapshots.pop_back();
    });
    must(pool_.close());
    releases.join();
    pool_ = open_pool(path_, kOptions);
  }
}

// A trim waits for the read_batch() of a thread that tries to trim.
TEST_F(Versioned, TrimInAReadBatchBesideATrim) {
  auto map = numbers();
  must(map.put(1, 1));
  must(map.tag());
  std::atomic<bool> reads{false};
  std::thread trims([&] {
    while (!reads) std::this_thread::yield();
    must(map.trim(1));
  });
  must(pool_.read_batch([&] {
    reads = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(code_of(map.trim(1)), StatusCode::invalid_argument);
    EXPECT_EQ(map.rollback(1).code(), StatusCode::invalid_argument);
  }));
  trims.join();
}

TEST_F(Versioned, HistoryHasAnEntryPerVersion) {
  auto map = numbers();
  std::vector<std::pair<Version, std::optional<std::uint64_t>>> expected;
  for (std::uint64_t i = 0; i < 40; ++i) {
    must(map.put(5, 1000));  // changed again below
    if (i % 4 == 3) {
      must(map.erase(5));
      expected.emplace_back(map.versions().last + 1, std::nullopt);
    } else {
      must(map.put(5, i));
      expected.emplace_back(map.versions().last + 1, i);
    }
    must(map.put(6, i));
    if (i != 39) must(map.tag());
  }
  decltype(expected) history;
  const auto collect = [&](Version version, const std::optional<std::uint64_t>& value) {
    history.emplace_back(version, value);
  };
  must(map.history(5, collect));
  EXPECT_EQ(history, expected);
  history.clear();
  must(map.history(7, collect));
  EXPECT_TRUE(history.empty());
}

// V17: an open version could still change.
TEST_F(Versioned, V17_OpenAndUnknownVersionsAreRefused) {
  auto map = numbers();
  must(map.insert(1, 1));
  const VersionRange none = map.versions();
  EXPECT_LT(none.last, none.first);
  for (const Version version : {Version{0}, none.last + 1, none.last + 2, ~Version{0}}) {
    EXPECT_EQ(map.get(1, version).error(), StatusCode::invalid_argument) << version;
    EXPECT_EQ(map.snapshot(version).error(), StatusCode::invalid_argument) << version;
    EXPECT_EQ(map.rollback(version), StatusCode::invalid_argument) << version;
    EXPECT_EQ(map.scan_at(version, {}, [](auto, auto) {}).error(), StatusCode::invalid_argument);
    // A limit of 0 visits nothing, but is no excuse.
    EXPECT_EQ(map.scan_at(version, {.limit = 0}, [](auto, auto) {}).error(),
              StatusCode::invalid_argument);
    EXPECT_EQ(map.diff(version, version, {.limit = 0}, [](auto, auto, auto) {}).error(),
              StatusCode::invalid_argument);
  }
  const Version version = must(map.tag());
  EXPECT_EQ(must(map.get(1, version)), 1U);
  EXPECT_EQ(map.get(1, version + 1).error(), StatusCode::invalid_argument);
  const std::string said(map.get(1, version + 1).error().message());
  EXPECT_NE(
      said.find("readable versions: " + std::to_string(version) + " to " + std::to_string(version)),
      said.npos)
      << said;
  EXPECT_EQ(map.trim(version + 2).error(), StatusCode::invalid_argument);
  const std::string refused(map.trim(version + 2).error().message());
  EXPECT_NE(refused.find("versions that exist: " + std::to_string(version) + " to " +
                         std::to_string(version + 1)),
            refused.npos)
      << refused;
}

// V15: no value is a mark. An absent key is not removed again.
TEST_F(Versioned, V15_NoValueIsAMark) {
  auto map = numbers();
  for (const std::uint64_t value : {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    must(map.put(value, value));
    const Version version = must(map.tag());
    EXPECT_TRUE(was_present(map.erase(value)));
    EXPECT_FALSE(was_present(map.erase(value)));
    EXPECT_EQ(must(map.get(value, version)), value);
    EXPECT_EQ(must(map.get(value)), std::nullopt);
  }
}

TEST_F(Versioned, BoundsPrefixAndLimit) {
  auto map = numbers();
  for (std::uint64_t i = 0; i < 500; ++i) must(map.insert(i * 2, i));
  const Version version = must(map.tag());
  for (std::uint64_t i = 0; i < 500; i += 3) must(map.erase(i * 2));
  EXPECT_EQ(at(map, version, {.from = 100, .to = 200}).size(), 50U);
  EXPECT_EQ(at(map, version, {.from = 101, .to = 201, .reverse = true}).size(), 50U);
  EXPECT_EQ(at(map, version, {.limit = 7}).size(), 7U);
  auto strings = must(pool_.versioned_map<std::string_view, std::string_view>("s"));
  for (const char* key : {"a", "ab", "abc", "abd", "b"}) must(strings.insert(key, key));
  const Version tagged = must(strings.tag());
  must(strings.erase("abc"));
  std::string seen;
  must(strings.scan_at(tagged, {.prefix = "ab"}, [&](std::string_view key, std::string_view value) {
    EXPECT_EQ(key, value);
    seen += key;
  }));
  EXPECT_EQ(seen, "ababcabd");
}

TEST_F(Versioned, DiffIsWhatDiffers) {
  auto map = numbers();
  for (std::uint64_t i = 0; i < 200; ++i) must(map.insert(i, i));
  const Version before = must(map.tag());
  must(map.put(10, 11));
  must(map.erase(20));
  must(map.insert(1000, 1));
  must(map.put(30, 31));
  must(map.tag());
  must(map.put(30, 30));  // as it was
  const Version after = must(map.tag());
  std::string seen;
  const auto text = [](const std::optional<std::uint64_t>& value) {
    return value ? std::to_string(*value) : std::string("-");
  };
  must(map.diff(before, after, {}, [&](std::uint64_t key, const auto& was, const auto& is) {
    seen += std::to_string(key) + ":" + text(was) + ">" + text(is) + " ";
  }));
  EXPECT_EQ(seen, "10:10>11 20:20>- 1000:->1 ");
}

// V16: trim frees what only trimmed versions needed, down to nothing.
TEST_F(Versioned, V16_TrimGivesSpaceBack) {
  auto map = must(pool_.versioned_map<std::uint64_t, std::string_view>("m"));
  const auto bytes = [&] { return map.stats().pm_bytes; };
  const std::uint64_t empty = bytes();
  std::vector<Version> versions;
  const std::uint64_t keys = scaled(300, 60);
  for (std::uint64_t round = 0; round < 20; ++round) {
    for (std::uint64_t key = 0; key < keys; ++key) {
      must(map.put(key, std::string(200, static_cast<char>('a' + round))));
    }
    versions.push_back(must(map.tag()));
  }
  const std::uint64_t full = bytes();
  EXPECT_GT(full, keys * 20 * 200);
  auto held = must(map.snapshot(versions[10]));
  EXPECT_EQ(must(map.trim(versions[15])), versions[10]);
  EXPECT_EQ(*must(map.get(3, versions[10])), std::string(200, 'k'));
  EXPECT_EQ(*must(map.get(3, versions[19])), std::string(200, 't'));
  EXPECT_EQ(map.get(3, versions[9]).error(), StatusCode::invalid_argument);
  EXPECT_LT(bytes(), full * 6 / 10);
  {
    const auto gone = std::move(held);
  }
  for (std::uint64_t key = 0; key < keys; ++key) must(map.erase(key));
  const Version last = must(map.tag());
  EXPECT_EQ(must(map.trim(last)), last);
  EXPECT_EQ(must(map.for_each([](auto, auto) {})), 0U);
  EXPECT_LE(bytes(), empty + 16_KiB);
  EXPECT_TRUE(must(pool_.check({.deep = true})).ok());
  reopen();
  EXPECT_TRUE(must(pool_.check({.deep = true})).ok());
}

// States that no version can see take no space: a map that is never tagged is a plain one.
TEST_F(Versioned, V16_UntaggedMapsKeepNothing) {
  auto map = numbers();
  for (std::uint64_t round = 0; round < 50; ++round) {
    for (std::uint64_t key = 0; key < 500; ++key) must(map.put(key + round * 500, round));
    for (std::uint64_t key = 0; key < 500; ++key) must(map.update(key + round * 500, round + 1));
    for (std::uint64_t key = 0; key < 500; ++key) must(map.erase(key + round * 500));
  }
  EXPECT_LE(map.stats().pm_bytes, 64_KiB);
  EXPECT_EQ(map.stats().entries, 0U);
}

TEST_F(Versioned, RollbackIsWhatWasTagged) {
  auto map = must(pool_.versioned_map<std::string_view, std::string_view>("m"));
  const auto put = [&](std::string_view key, std::string_view value) { must(map.put(key, value)); };
  put("a", "1");
  put("b", "1");
  const Version first = must(map.tag());
  put("a", "2");
  put("c", "2");
  must(map.erase("b"));
  const Version second = must(map.tag());
  put("a", "3");
  put("d", std::string(5000, 'd'));
  {
    auto held = must(map.snapshot(second));
    EXPECT_EQ(map.rollback(first), StatusCode::busy);
  }
  ASSERT_TRUE(map.rollback(first).ok());
  const auto text = [&] {
    std::string all;
    must(map.for_each([&](auto key, auto value) { all += std::string(key) + std::string(value); }));
    return all;
  };
  EXPECT_EQ(text(), "a1b1");
  EXPECT_EQ(must(map.get("c", second)), std::nullopt);
  put("b", "4");
  const Version third = must(map.tag());
  put("b", "5");
  EXPECT_EQ(*must(map.get("b", third)), "4");
  EXPECT_EQ(*must(map.get("b", first)), "1");
  EXPECT_TRUE(must(pool_.check({.deep = true})).ok());
  EXPECT_EQ(must(pool_.check()).leaked_blocks, 0U);
}

// A reader of a pool in use may find any word in a history's links. It must never crash.
TEST_F(Versioned, ALookSurvivesWhatTheOwnerStores) {
  constexpr std::uint64_t kKey = 0x4B45594B45594B45, kValue = 0x56414C5556414C55;
  {
    auto map = numbers();
    must(map.insert(kKey, kValue));
    for (std::uint64_t i = 0; i < 9; ++i) {
      must(map.tag());
      must(map.put(kKey, i));
    }
    ASSERT_TRUE(pool_.close().ok());
  }
  const std::string bytes = read_bytes(path_.str());
  const std::uint64_t key = kKey;
  const std::size_t slot = bytes.find(std::string_view(reinterpret_cast<const char*>(&key), 8));
  ASSERT_NE(slot, std::string::npos);
  std::uint64_t segment = 0;
  std::memcpy(&segment, bytes.data() + slot + 8, 8);
  PoolOptions look = kOptions;
  look.mode = OpenMode::read_only;
  // Links to nowhere, into the middle of an object, and in a circle.
  for (const std::uint64_t link : {std::uint64_t{0x4141414141414141}, segment + 16, segment}) {
    write_bytes(path_.str(), bytes);
    {
      Pool pool = open_pool(path_, look);
      auto map = must(pool.versioned_map<std::uint64_t, std::uint64_t>(
          "m", {.engine = Engine::pskiplist, .mode = OpenMode::existing}));
      const std::size_t at = link == segment ? segment : slot + 8;
      const int fd = ::open(path_.str().c_str(), O_WRONLY);
      ASSERT_EQ(::pwrite(fd, &link, 8, static_cast<off_t>(at)), 8);
      ::close(fd);
      for (Version version = map.versions().first; version <= map.versions().last; ++version) {
        (void)map.get(kKey, version);
        (void)map.scan_at(version, {}, [](auto, auto) {});
      }
      (void)map.history(kKey, [](auto, const auto&) {});
      (void)map.stats();
    }
  }
  write_bytes(path_.str(), bytes);
  pool_ = open_pool(path_, kOptions);
}

// An entry that names no record because its word reads 0, as a lost line does: every call that
// comes upon it reports it, and none passes it over.
TEST_F(Versioned, AnEntryWithoutItsRecordIsReported) {
  constexpr std::uint64_t kKey = 0x4B45594B45594B45;
  using Bytes = std::string_view;
  auto map = must(pool_.versioned_map<std::uint64_t, Bytes>("m"));
  for (const std::uint64_t key : {std::uint64_t{1}, kKey, ~std::uint64_t{1}}) {
    must(map.insert(key, "old"));
  }
  const Version before = must(map.tag());
  must(map.put(kKey, "new"));
  const Version after = must(map.tag());
  const std::string bytes = read_bytes(path_.str());
  const std::uint64_t key = kKey;
  const std::size_t slot = bytes.find(Bytes(reinterpret_cast<const char*>(&key), 8));
  ASSERT_NE(slot, std::string::npos);
  const std::size_t entry = slot + 16;  // the first one: its value word, then its stamp
  const auto set_word = [&](std::uint64_t word) {
    const int fd = ::open(path_.str().c_str(), O_WRONLY);
    ASSERT_EQ(::pwrite(fd, &word, 8, static_cast<off_t>(entry)), 8);
    ::close(fd);
  };
  const auto ignore = [](auto, const auto&) {};
  const auto expect = [&](StatusCode code) {
    EXPECT_EQ(code_of(map.get(kKey, before)), code);
    for (const bool reverse : {false, true}) {
      EXPECT_EQ(code_of(map.scan_at(before, {.reverse = reverse}, ignore)), code);
    }
    EXPECT_EQ(code_of(map.diff(before, after, {}, [](auto, const auto&, const auto&) {})), code);
    EXPECT_EQ(code_of(map.diff(after, before, {}, [](auto, const auto&, const auto&) {})), code);
    EXPECT_EQ(code_of(map.history(kKey, ignore)), code);
    EXPECT_EQ(code_of(map.scan_at(after, {}, ignore)), StatusCode::ok);
  };
  std::uint64_t record = 0;
  std::memcpy(&record, bytes.data() + entry, 8);
  expect(StatusCode::ok);
  set_word(0);
  expect(StatusCode::corruption);
  set_word(record);
  expect(StatusCode::ok);
}

TEST_F(Versioned, OtherEnginesAreRefused) {
  const MapOptions options{.engine = Engine::phast};
  const auto map = pool_.versioned_map<std::uint64_t, std::uint64_t>("p", options);
  ASSERT_FALSE(map);
  EXPECT_EQ(map.error(), StatusCode::unsupported);
}

}  // namespace
}  // namespace perdure::test
