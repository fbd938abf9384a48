// test: cross
// Iterators compared with std::map: random walks of first, last, seek, next and prev in ranges of
// every kind, for every engine with order; at the latest state, and at a version.
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/any_map.h"
#include "tests/support/subjects.h"

namespace perdure::test {
namespace {

// An iterator over a std::map: one position among the entries in the range, in scan direction.
template <class K, class V>
class Reference {
 public:
  using Content = std::map<OwnedKey<K>, Owned<V>>;

  Reference(const Content& content, const ScanOptions<K>& options) : options_(options) {
    for (const auto& [key, value] : content) {
      const K view(key);
      if (options.from && view < *options.from) continue;
      if (options.to && !(view < *options.to)) continue;
      if constexpr (std::same_as<K, std::string_view>) {
        if (!view.starts_with(options.prefix)) continue;
      }
      entries_.emplace_back(key, value);
    }
    if (options.reverse) std::reverse(entries_.begin(), entries_.end());
    first();
  }

  bool valid() const { return at_ < entries_.size(); }
  const auto& entry() const { return entries_[at_]; }
  void first() { place(0); }
  void last() { place(entries_.empty() ? 0 : entries_.size() - 1); }
  void seek(const K& key) {
    std::size_t i = 0;
    const auto before = [&](const K& other) {
      return options_.reverse ? key < other : other < key;
    };
    while (i < entries_.size() && before(K(entries_[i].first))) ++i;
    place(i);
  }
  void next() { step(1); }
  void prev() { step(-1); }

 private:
  void place(std::size_t i) {
    left_ = options_.limit;
    at_ = left_ == 0 ? entries_.size() : i;
    --left_;
  }
  void step(int by) {
    if (!valid()) return;
    const bool leaves = (by < 0 && at_ == 0) || left_ == 0;
    at_ = leaves ? entries_.size() : at_ + static_cast<std::size_t>(by);
    --left_;
  }

  ScanOptions<K> options_;
  std::vector<std::pair<OwnedKey<K>, Owned<V>>> entries_;
  std::size_t at_ = 0;
  std::uint64_t left_ = 0;
};

template <class It, class K, class V>
void expect_same(const It& it, const Reference<K, V>& reference, const char* call) {
  ASSERT_EQ(it.valid(), reference.valid()) << "after " << call << ", " << it.status().message();
  ASSERT_TRUE(it.status().ok()) << it.status().message();
  if (!it.valid()) return;
  ASSERT_TRUE(it.key() == K(reference.entry().first)) << "after " << call;
  ASSERT_TRUE(it.value() == V(reference.entry().second)) << "after " << call;
}

// Walks `steps` calls. `key_of` makes a key to seek.
template <class It, class K, class V, class KeyOf>
void walk(It it, Reference<K, V> reference, Rng& rng, std::uint64_t steps, KeyOf&& key_of) {
  ASSERT_NO_FATAL_FAILURE(expect_same(it, reference, "scan()"));
  std::uint64_t run = 0;  // steps left in the chosen direction
  bool forward = true;
  for (std::uint64_t i = 0; i < steps; ++i) {
    if (run == 0 || (!it.valid() && rng.one_in(3))) {
      run = 1 + rng.below(rng.one_in(4) ? 300 : 5);
      forward = rng.one_in(2);
      const std::uint64_t choice = rng.below(6);
      if (choice == 0) {
        it.first();
        reference.first();
      } else if (choice == 1) {
        it.last();
        reference.last();
      } else if (choice == 2) {
        const auto key = key_of(rng);
        it.seek(K(key));
        reference.seek(K(key));
      } else if (choice == 3 && it.valid()) {  // its own key, which lies in its batch
        it.seek(it.key());
        reference.seek(K(reference.entry().first));
      }
      ASSERT_NO_FATAL_FAILURE(expect_same(it, reference, "first, last or seek"));
    }
    --run;
    if (forward) {
      it.next();
      reference.next();
    } else {
      it.prev();
      reference.prev();
    }
    ASSERT_NO_FATAL_FAILURE(expect_same(it, reference, forward ? "next" : "prev"));
  }
}

template <class KindsT>
class IteratorTest : public MapTest<KindsT> {
 public:
  using K = typename KindsT::K;
  using V = typename KindsT::V;
  static bool takes(const Place& place) {
    return place.ordered() && place.durability == Durability::process;
  }

 protected:
  // Even numbers are keys; odd ones lie between them. 0 and the greatest number are keys, too.
  static OwnedKey<K> key(std::uint64_t i) {
    if constexpr (std::same_as<K, std::uint64_t>) {
      if (i == 0) return 0;
      if (i >= 2 * kKeys - 2) return ~std::uint64_t{0};
    }
    if constexpr (std::same_as<K, std::string_view>) {
      if (i == 0) return "";
      if (i % 10 == 4) return key_at<K>(i - 2) + '\0';  // the least key above the one before
    }
    return key_at<K>(i);
  }
  void fill(OrderedMap<K, V>& map, std::uint64_t keys) {
    for (std::uint64_t i = 0; i < keys; ++i) {
      const auto k = key(2 * i);
      const auto v = value_at<V>(i);
      ASSERT_TRUE(was_absent(map.insert(K(k), V(v)))) << i;
      content_[k] = v;
    }
  }
  // `from` and `to` own the memory of the options.
  ScanOptions<K> options(Rng& rng) {
    ScanOptions<K> out;
    if (rng.one_in(2)) {
      from_ = key(rng.below(2 * kKeys));
      out.from = K(from_);
    }
    if (rng.one_in(2)) {
      to_ = key(rng.below(2 * kKeys));
      out.to = K(to_);
    }
    if constexpr (std::same_as<K, std::string_view>) {
      prefix_ = "k000" + std::to_string(rng.below(5));
      if (rng.one_in(3)) out.prefix = prefix_;
    }
    out.reverse = rng.one_in(2);
    if (rng.one_in(4)) out.limit = rng.below(40);
    return out;
  }

  static constexpr std::uint64_t kKeys = 400;
  typename Reference<K, V>::Content content_;
  OwnedKey<K> from_{}, to_{};
  std::string prefix_;
};
using IteratorTestKinds = AllKinds;

MAP_TEST(IteratorTest, WalksAsAMapDoes) {
  using Key = typename KindsT::K;
  using Value = typename KindsT::V;
  PERDURE_TRACE_SEED();
  auto map = this->backend_.template ordered_map<Key, Value>("map");
  Rng rng;
  for (const std::uint64_t keys : {std::uint64_t{0}, std::uint64_t{1}, this->kKeys}) {
    for (auto& [key, value] : this->content_) must(map.erase(Key(key)));
    this->content_.clear();
    ASSERT_NO_FATAL_FAILURE(this->fill(map, keys));
    for (int round = 0; round < (keys > 1 ? 24 : 3); ++round) {
      const auto options = this->options(rng);
      ASSERT_NO_FATAL_FAILURE(
          walk(map.scan(options), Reference<Key, Value>(this->content_, options), rng,
               scaled(400, 150), [&](Rng& r) { return this->key(r.below(2 * this->kKeys)); }))
          << "round " << round << " of " << keys << " keys";
    }
  }
}

using Numbers = OrderedMap<std::uint64_t, std::uint64_t>;

class OrderedEngine : public ::testing::TestWithParam<EngineInfo> {
 protected:
  Numbers map() {
    return must(
        pool_.ordered_map<std::uint64_t, std::uint64_t>("m", {.engine = GetParam().engine}));
  }
  TempPath path_;
  Pool pool_ = open_pool(path_, {.max_size = 256_MiB});
};
INSTANTIATE_TEST_SUITE_P(All, OrderedEngine, ::testing::ValuesIn(ordered_engines()),
                         [](const auto& one) { return name_of(one.param); });

// An iterator that pointed to its map would read freed memory after its first batch.
TEST_P(OrderedEngine, OutlivesTheMapObject) {
  {
    Numbers numbers = map();
    for (std::uint64_t i = 0; i < 1'000; ++i) must(numbers.put(i, i));
  }
  const auto all = [&] { return std::make_unique<Numbers>(map())->scan({.from = 10}); };
  std::uint64_t expected = 10;
  auto it = all();
  for (; it.valid(); it.next()) ASSERT_EQ(it.key(), expected++);
  EXPECT_EQ(expected, 1'000U);
  it.last();
  for (; it.valid(); it.prev()) ASSERT_EQ(it.key(), --expected);
  EXPECT_EQ(expected, 10U);
}

// With entries that come and go meanwhile: in order, inside the range, and resident keys once.
TEST_P(OrderedEngine, WalksBesideChanges) {
  PERDURE_TRACE_SEED();
  Numbers numbers = map();
  constexpr std::uint64_t kLast = 3'000;
  Rng rng;
  for (std::uint64_t i = 0; i <= kLast; i += 10) must(numbers.put(i, i));  // these stay
  for (int round = 0; round < 20; ++round) {
    const bool reverse = rng.one_in(2);
    const std::uint64_t from = rng.below(kLast);
    const std::uint64_t to = from + rng.below(kLast - from + 1);
    auto it = numbers.scan({.from = from, .to = to, .reverse = reverse});
    const bool against = rng.one_in(2);
    if (against) it.last();
    const bool descends = reverse != against;
    std::vector<std::uint64_t> seen;
    for (; it.valid(); against ? it.prev() : it.next()) {
      ASSERT_TRUE(it.key() >= from && it.key() < to);
      ASSERT_TRUE(seen.empty() || (descends ? it.key() < seen.back() : it.key() > seen.back()));
      seen.push_back(it.key());
      for (int change = 0; change < 4; ++change) {
        const std::uint64_t key = from + rng.below(200);
        if (key % 10 != 0) must(rng.one_in(2) ? numbers.erase(key) : numbers.put(key, key));
      }
    }
    ASSERT_TRUE(it.status().ok());
    std::erase_if(seen, [](std::uint64_t key) { return key % 10 != 0; });
    const std::uint64_t stay = (to + 9) / 10 - (from + 9) / 10;
    EXPECT_EQ(seen.size(), stay) << from << " to " << to;
  }
}

// A batch ends early if values are large.
TEST_P(OrderedEngine, WalksOverLargeValues) {
  auto texts =
      must(pool_.ordered_map<std::uint64_t, std::string_view>("t", {.engine = GetParam().engine}));
  const auto text = [](std::uint64_t i) { return std::string(i % 7 * 20'000, 'a' + i % 26); };
  for (std::uint64_t i = 0; i < 60; ++i) must(texts.put(i, text(i)));
  auto it = texts.scan();
  for (std::uint64_t i = 0; i < 60; ++i, it.next())
    ASSERT_TRUE(it.valid() && it.value() == text(i));
  EXPECT_FALSE(it.valid());
  it.last();
  for (std::uint64_t i = 60; i-- > 0; it.prev()) ASSERT_TRUE(it.valid() && it.value() == text(i));
}

// --- versions ---

class SnapshotTest : public ::testing::Test {
 protected:
  using Layers = VersionedMap<std::uint64_t, std::uint64_t>;
  Layers layers() { return must(pool_.versioned_map<std::uint64_t, std::uint64_t>("v")); }
  TempPath path_;
  Pool pool_ = open_pool(path_, {.max_size = 64_MiB});
};

TEST_F(SnapshotTest, ReadsItsVersion) {
  Layers map = layers();
  EXPECT_EQ(code_of(map.snapshot()), StatusCode::invalid_argument) << "no version is closed";
  for (std::uint64_t i = 0; i < 300; ++i) must(map.put(i, i));
  const Version first = must(map.tag());
  for (std::uint64_t i = 0; i < 300; i += 3) must(map.erase(i));
  for (std::uint64_t i = 1; i < 300; i += 3) must(map.put(i, i + 1'000));
  must(map.tag());
  must(map.put(900, 1));

  auto before = must(map.snapshot(first));
  auto after = must(map.snapshot());
  EXPECT_EQ(before.version(), first);
  EXPECT_GT(after.version(), first);
  EXPECT_EQ(must(before.get(3)), std::optional<std::uint64_t>(3));
  EXPECT_EQ(must(after.get(3)), std::nullopt);
  EXPECT_TRUE(before.contains(3).present());
  EXPECT_TRUE(after.contains(3).absent());
  EXPECT_TRUE(after.contains(900).absent()) << "of the open version";
  std::uint64_t value = 0;
  EXPECT_TRUE(after.read(4, [&](std::uint64_t v) { value = v; }).present());
  EXPECT_EQ(value, 1'004U);
  const std::vector<std::uint64_t> keys{3, 4, 5};
  std::vector<std::optional<std::uint64_t>> values(3);
  EXPECT_EQ(must(after.get_many(keys, values)), 2U);
  EXPECT_EQ(values, (std::vector<std::optional<std::uint64_t>>{std::nullopt, 1'004, 5}));
  EXPECT_EQ(code_of(after.get_many(keys, std::span(values).first(2))),
            StatusCode::invalid_argument);

  std::uint64_t differences = 0;
  must(before.diff(after, {}, [&](std::uint64_t, const auto& was, const auto& is) {
    EXPECT_TRUE(was.has_value());
    differences += was != is ? 1 : 0;
  }));
  EXPECT_EQ(differences, 200U);
  differences = 0;
  must(before.diff(after, {.limit = 7},
                   [&](std::uint64_t, const auto&, const auto&) { ++differences; }));
  EXPECT_EQ(differences, 7U);
  std::uint64_t entries = 0;
  must(before.history(3, [&](Version, const std::optional<std::uint64_t>&) { ++entries; }));
  EXPECT_EQ(entries, 1U);
  must(after.history(3, [&](Version, const std::optional<std::uint64_t>&) { ++entries; }));
  EXPECT_EQ(entries, 3U) << "inserted, and removed";
}

TEST_F(SnapshotTest, RangeBasedForWalksFromWhereItIs) {
  Layers map = layers();
  for (std::uint64_t i = 0; i < 300; ++i) must(map.put(i, i + 1));
  auto some = map.scan({.from = 100, .to = 200});
  static_assert(std::input_iterator<decltype(some.begin())>);
  std::uint64_t next = 100;
  for (auto [key, value] : some) {
    EXPECT_EQ(key, next++);
    EXPECT_EQ(value, key + 1);
    if (key == 150) break;
  }
  next = 150;  // the walk was left on it
  for (auto [key, value] : some) EXPECT_EQ(key, next++);
  EXPECT_EQ(next, 200U);
  EXPECT_TRUE(some.status().ok());
  auto none = map.scan_at(1'000'000);
  for (auto [key, value] : none) ADD_FAILURE() << key;
  EXPECT_EQ(none.status().code(), StatusCode::invalid_argument);
}

TEST_F(SnapshotTest, IteratesAtItsVersion) {
  PERDURE_TRACE_SEED();
  using Content = Reference<std::uint64_t, std::uint64_t>::Content;
  Layers map = layers();
  Content content;
  for (std::uint64_t i = 0; i < 300; ++i) {
    must(map.put(2 * i, i));
    content[2 * i] = i;
  }
  const Version version = must(map.tag());
  Rng rng;
  for (int round = 0; round < 20; ++round) {
    ScanOptions<std::uint64_t> options{.reverse = rng.one_in(2)};
    if (rng.one_in(2)) options.from = rng.below(600);
    if (rng.one_in(2)) options.to = rng.below(600);
    for (int i = 0; i < 30; ++i) must(map.erase(rng.below(600)));
    // The snapshot is destroyed first: the iterator holds the version itself.
    auto it = std::make_unique<Layers::Snapshot>(must(map.snapshot(version)))->scan(options);
    EXPECT_EQ(must(map.trim(must(map.tag()))), version) << "it is held";
    ASSERT_NO_FATAL_FAILURE(walk(std::move(it),
                                 Reference<std::uint64_t, std::uint64_t>(content, options), rng,
                                 200, [](Rng& r) { return r.below(620); }));
  }
  const Version last = must(map.tag());
  EXPECT_EQ(must(map.trim(last)), last) << "it is held no longer";
  EXPECT_EQ(map.scan_at(version).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(code_of(map.snapshot(version)), StatusCode::invalid_argument);
}

}  // namespace
}  // namespace perdure::test
