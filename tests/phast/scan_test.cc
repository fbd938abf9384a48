// Scans of PhaST's leaves of 60 entries beside std::map: how a leaf is sorted depends on how its
// words are spread, on what was inserted since the last scan, and on what was erased.
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/subjects.h"

namespace perdure::test {
namespace {

template <class K, class Made>
void compare_scans(OrderedMap<K, K>& map, const std::vector<Made>& keys, unsigned seed) {
  std::mt19937_64 random(seed);
  std::map<Made, Made> model;
  const auto check = [&](const Made& from, bool has_from, std::uint64_t limit, bool reverse) {
    ScanOptions<K> options{.limit = limit, .reverse = reverse};
    if (has_from) (reverse ? options.to : options.from) = from;
    std::vector<Made> wanted;
    const auto begin = has_from ? model.lower_bound(from) : model.begin();
    const auto end = has_from ? model.lower_bound(from) : model.end();
    if (reverse) {
      for (auto it = end; it != model.begin() && wanted.size() < limit;) {
        wanted.push_back((--it)->first);
      }
    } else {
      for (auto it = begin; it != model.end() && wanted.size() < limit; ++it) {
        wanted.push_back(it->first);
      }
    }
    std::vector<Made> seen;
    must(map.scan(options, [&](const K& key, const K& value) {
      seen.emplace_back(key);
      EXPECT_EQ(Made(value), model.at(Made(key)));
    }));
    EXPECT_EQ(seen, wanted);
  };
  for (int round = 0; round < 12 && !::testing::Test::HasFailure(); ++round) {
    for (std::size_t i = 0; i < keys.size() / 8; ++i) {
      const Made& key = keys[random() % keys.size()];
      if (random() % 4 == 0) {
        EXPECT_EQ(map.erase(key).present(), model.erase(key) == 1);
      } else {
        must(map.put(key, key));
        model[key] = key;
      }
      if (random() % 4 == 0) {
        check(keys[random() % keys.size()], true, random() % 100, random() % 3 == 0);
      }
    }
    check({}, false, ~std::uint64_t{0}, false);
    check({}, false, ~std::uint64_t{0}, true);
  }
}

// Numbers of which leaves have: neighbours; evenly spread ones; groups far apart; some that differ
// in their last bits only.
std::vector<std::vector<std::uint64_t>> number_sets() {
  std::mt19937_64 random(7);
  std::vector<std::vector<std::uint64_t>> sets(4);
  for (std::uint64_t i = 0; i < 800; ++i) {
    sets[0].push_back(i);
    sets[1].push_back(random());
    sets[2].push_back((i % 5 << 60) + i / 5);
    sets[3].push_back((random() % 400 << 40) + i % 2);
  }
  return sets;
}

TEST(PhastScans, OfNumbers) {
  unsigned seed = 0;
  for (const auto& keys : number_sets()) {
    const TempPath path;
    Pool pool = open_pool(path, {.durability = Durability::process, .max_size = 256_MiB});
    auto map = must(pool.ordered_map<std::uint64_t, std::uint64_t>("m"));
    compare_scans<std::uint64_t>(map, keys, ++seed);
    EXPECT_EQ(must(pool.check({.deep = true})).first(), "");
  }
}

TEST(PhastScans, OfStrings) {
  unsigned seed = 0;
  for (const std::string prefix : {"", "a/long/prefix/"}) {
    for (const auto& numbers : number_sets()) {
      std::vector<std::string> keys;
      for (const std::uint64_t n : numbers) keys.push_back(prefix + std::to_string(n));
      const TempPath path;
      Pool pool = open_pool(path, {.durability = Durability::process, .max_size = 256_MiB});
      auto map = must(pool.ordered_map<std::string_view, std::string_view>("m"));
      compare_scans<std::string_view>(map, keys, ++seed);
      EXPECT_EQ(must(pool.check({.deep = true})).first(), "");
    }
  }
}

// One full leaf of keys 10 to 600, whose slots are in no order. Then entries come and go between
// scans, and the order that the last one has kept may be used again or not.
class FullLeaf {
 public:
  FullLeaf() {
    for (std::uint64_t i = 0; i < 60; ++i) put(10 * (i * 37 % 60) + 10);
    compare();
  }
  ~FullLeaf() { EXPECT_EQ(must(pool_.check({.deep = true})).first(), ""); }
  FullLeaf(const FullLeaf&) = delete;
  FullLeaf& operator=(const FullLeaf&) = delete;

  void put(std::uint64_t key) {
    must(map_.put(key, key));
    model_.insert(key);
  }
  void erase(std::uint64_t key) {
    EXPECT_TRUE(map_.erase(key).present());
    model_.erase(key);
  }
  std::uint64_t least() const { return *model_.begin(); }
  // Scans for one entry from both ends, and for all.
  void compare() {
    std::vector<std::uint64_t> seen;
    const auto add = [&](std::uint64_t key, std::uint64_t) { seen.push_back(key); };
    must(map_.scan({.limit = 1}, add));
    must(map_.scan({.limit = 1, .reverse = true}, add));
    must(map_.scan({}, add));
    std::vector<std::uint64_t> wanted;
    if (!model_.empty()) wanted = {*model_.begin(), *model_.rbegin()};
    wanted.insert(wanted.end(), model_.begin(), model_.end());
    EXPECT_EQ(seen, wanted);
  }

 private:
  TempPath path_;
  Pool pool_ = open_pool(path_, {.durability = Durability::process, .max_size = 256_MiB});
  OrderedMap<std::uint64_t, std::uint64_t> map_ =
      must(pool_.ordered_map<std::uint64_t, std::uint64_t>("m", {.phast = {.partition_bits = 0}}));
  std::set<std::uint64_t> model_;
};

TEST(PhastOrders, OneOutlivesErases) {
  FullLeaf leaf;
  for (std::uint64_t i = 0; i < 60; ++i) {
    leaf.erase(10 * (i * 23 % 60) + 10);
    if (i % 4 != 1) leaf.compare();
  }
}

TEST(PhastOrders, OneIsVoidWhereASlotIsFilledAgain) {
  for (std::uint64_t erased = 1; erased < 20; ++erased) {
    FullLeaf leaf;
    for (std::uint64_t i = 0; i < erased; ++i) leaf.erase(leaf.least());
    for (std::uint64_t i = 1; i < erased; ++i) leaf.put(600 + i);  // one slot stays free
    leaf.compare();
    leaf.erase(leaf.least());
    leaf.compare();
  }
}

TEST(PhastOrders, OneIsVoidAfterASplit) {
  for (std::uint64_t added = 20; added < 30; ++added) {
    FullLeaf leaf;
    // The first one splits the leaf behind 300, and all fill slots that the split has emptied.
    for (std::uint64_t i = 0; i < added; ++i) leaf.put(295 - 10 * i);
    leaf.compare();
  }
}

}  // namespace
}  // namespace perdure::test
