// test: cross
// The contract of Map and OrderedMap, for every engine, durability, key kind and value kind, and
// for the std::map oracle. Names with an id (P2, P12, ...) are the regression tests of
// docs/design/hazards.md.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/subjects.h"

namespace perdure::test {
namespace {

// Shared by the typed suites: keys and values by number, and checked results.
template <class S, class MapType>
class Fixture : public MapTest<S> {
 protected:
  using KeyType = typename S::K;
  using ValueType = typename S::V;
  using OwnedK = OwnedKey<KeyType>;
  using OwnedV = Owned<ValueType>;

  static OwnedK key(std::uint64_t i) { return key_at<KeyType>(i); }
  static OwnedV value(std::uint64_t i) { return value_at<ValueType>(i); }

  bool insert(std::uint64_t k, std::uint64_t v) {
    return was_absent(map_->insert(KeyType(key(k)), ValueType(value(v))));
  }
  bool upsert(std::uint64_t k, std::uint64_t v) {
    return was_absent(map_->put(KeyType(key(k)), ValueType(value(v))));
  }
  bool update(std::uint64_t k, std::uint64_t v) {
    return was_present(map_->update(KeyType(key(k)), ValueType(value(v))));
  }
  bool erase(std::uint64_t k) { return was_present(map_->erase(KeyType(key(k)))); }
  std::optional<OwnedV> find(std::uint64_t k) { return must(map_->get(KeyType(key(k)))); }
  // Whether key k has value number v.
  bool holds(std::uint64_t k, std::uint64_t v) { return find(k) == std::optional(value(v)); }

  void fill(std::uint64_t n, std::uint64_t step = 1) {
    std::vector<std::uint64_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), Rng());
    for (const std::uint64_t i : order) {
      ASSERT_TRUE(insert(i * step, i * step)) << "key number " << i * step;
    }
  }

  std::optional<MapType> map_;
};

template <class S>
class PointTest : public Fixture<S, Map<typename S::K, typename S::V>> {
 protected:
  void SetUp() override {
    this->map_ = this->backend_.template map<typename S::K, typename S::V>("map");
  }
};
using PointTestKinds = AllKinds;

MAP_TEST(PointTest, EmptyMapHasNothing) {
  for (const std::uint64_t i : {0, 1, 17, 59'999}) {
    EXPECT_FALSE(this->find(i).has_value());
    EXPECT_FALSE(was_present(this->map_->contains(typename TestFixture::KeyType(this->key(i)))));
    EXPECT_FALSE(this->erase(i));
    EXPECT_FALSE(this->update(i, 1));
    EXPECT_FALSE(this->find(i).has_value()) << "a refused update must not insert";
  }
  EXPECT_EQ(this->map_->stats().entries, 0U);
}

MAP_TEST(PointTest, InsertOfAnExistingKeyReturnsFalseAndChangesNothing) {
  EXPECT_TRUE(this->insert(7, 1));
  EXPECT_TRUE(this->holds(7, 1));
  EXPECT_FALSE(this->insert(7, 2));
  EXPECT_TRUE(this->holds(7, 1));
  EXPECT_EQ(this->map_->stats().entries, 1U);
}

MAP_TEST(PointTest, UpsertInsertsThenReplaces) {
  EXPECT_TRUE(this->upsert(7, 1));
  EXPECT_TRUE(this->holds(7, 1));
  EXPECT_FALSE(this->upsert(7, 2));
  EXPECT_TRUE(this->holds(7, 2));
  EXPECT_FALSE(this->upsert(7, 2)) << "the same value again is a replacement too";
  EXPECT_TRUE(this->holds(7, 2));
}

MAP_TEST(PointTest, UpdateReplacesOnlyPresentKeys) {
  EXPECT_FALSE(this->update(7, 1));
  EXPECT_TRUE(this->insert(7, 1));
  EXPECT_TRUE(this->update(7, 2));
  EXPECT_TRUE(this->holds(7, 2));
  EXPECT_FALSE(this->find(6).has_value());
  EXPECT_FALSE(this->find(8).has_value());
}

MAP_TEST(PointTest, EraseRemovesOnce) {
  EXPECT_TRUE(this->insert(7, 1));
  EXPECT_TRUE(this->insert(8, 2));
  EXPECT_TRUE(this->erase(7));
  EXPECT_FALSE(this->find(7).has_value());
  EXPECT_FALSE(this->erase(7));
  EXPECT_TRUE(this->holds(8, 2));
  EXPECT_EQ(this->map_->stats().entries, 1U);
}

MAP_TEST(PointTest, CompareExchangeNeedsWhatItExpects) {
  using K = typename TestFixture::KeyType;
  using V = typename TestFixture::ValueType;
  const auto key = this->key(7);
  const auto one = this->value(1);
  const auto two = this->value(2);
  const std::optional<V> absent;
  const auto exchange = [&](const std::optional<V>& expected, const std::optional<V>& desired) {
    const Exchanged done = this->map_->compare_exchange(K(key), expected, desired);
    EXPECT_TRUE(done.ok()) << done.status().message();
    EXPECT_NE(done.exchanged(), done.refused());
    return done.exchanged();
  };
  EXPECT_TRUE(exchange(absent, absent));
  EXPECT_FALSE(exchange(V(one), V(two)));
  EXPECT_FALSE(exchange(V(one), absent));
  EXPECT_FALSE(this->find(7).has_value());
  EXPECT_TRUE(exchange(absent, V(one)));
  EXPECT_TRUE(this->holds(7, 1));
  EXPECT_FALSE(exchange(absent, V(two)));
  EXPECT_FALSE(exchange(absent, absent));
  EXPECT_FALSE(exchange(V(two), V(one)));
  EXPECT_FALSE(exchange(V(two), absent));
  EXPECT_TRUE(this->holds(7, 1));
  EXPECT_TRUE(exchange(V(one), V(two)));
  EXPECT_TRUE(this->holds(7, 2));
  EXPECT_TRUE(exchange(V(two), V(two)));
  EXPECT_TRUE(exchange(V(two), absent));
  EXPECT_FALSE(this->find(7).has_value());
  EXPECT_EQ(this->map_->stats().entries, 0U);
}

MAP_TEST(PointTest, ModifyWritesWhatItsFunctionReturns) {
  using K = typename TestFixture::KeyType;
  using V = typename TestFixture::ValueType;
  const auto key = this->key(7);
  const auto one = this->value(1);
  const auto two = this->value(2);
  const auto modify = [&](const std::optional<typename TestFixture::OwnedV>& seen,
                          const std::optional<V>& wanted) {
    const Found found = this->map_->modify(K(key), [&](const std::optional<V>& before) {
      EXPECT_EQ(before.has_value(), seen.has_value());
      if (before && seen) {
        EXPECT_TRUE(*before == V(*seen));
      }
      return wanted;
    });
    EXPECT_TRUE(found.ok()) << found.status().message();
    EXPECT_EQ(found.present(), seen.has_value());
  };
  modify(std::nullopt, std::nullopt);
  modify(std::nullopt, V(one));
  EXPECT_TRUE(this->holds(7, 1));
  modify(one, V(one));
  modify(one, V(two));
  EXPECT_TRUE(this->holds(7, 2));
  modify(two, std::nullopt);
  EXPECT_FALSE(this->find(7).has_value());
}

// Each mutation of a call has the result of its single call, also where one key occurs several
// times, and the map has the same content afterwards.
MAP_TEST(PointTest, WriteManyIsTheSingleCallsInTheirOrder) {
  using K = typename TestFixture::KeyType;
  using V = typename TestFixture::ValueType;
  constexpr std::uint64_t kKeys = 300;
  std::map<std::uint64_t, std::uint64_t> model;
  Rng random;
  for (const std::size_t n : {1UL, 2UL, 16UL, 17UL, 64UL, 65UL, 1000UL, 1000UL, 1000UL}) {
    std::vector<std::uint64_t> numbers(n);
    std::vector<typename TestFixture::OwnedK> keys(n);
    std::vector<typename TestFixture::OwnedV> values(n);
    std::vector<Mutation<K, V>> mutations(n);
    std::vector<bool> wanted(n);
    for (std::size_t i = 0; i < n; ++i) {
      numbers[i] = i % 7 == 3 && i > 0 ? numbers[i - 1] : random() % kKeys;
      const std::uint64_t value = random() % 1000;
      keys[i] = this->key(numbers[i]);
      values[i] = this->value(value);
      mutations[i] = {.kind = static_cast<MutationKind>(random() % 4),
                      .key = K(keys[i]),
                      .value = V(values[i])};
      wanted[i] = model.contains(numbers[i]);
      switch (mutations[i].kind) {
        case MutationKind::put:
          model[numbers[i]] = value;
          break;
        case MutationKind::insert:
          model.try_emplace(numbers[i], value);
          break;
        case MutationKind::update:
          if (wanted[i]) model[numbers[i]] = value;
          break;
        case MutationKind::erase:
          model.erase(numbers[i]);
          break;
      }
    }
    std::size_t ended = 0;
    const Status s = this->map_->write_many(mutations, [&](std::size_t i, const Found& found) {
      EXPECT_EQ(i, ended++);
      EXPECT_TRUE(found.ok()) << found.status().message();
      EXPECT_EQ(found.present(), wanted[i]) << i;
    });
    EXPECT_TRUE(s.ok()) << s.message();
    EXPECT_EQ(ended, n);
    for (std::uint64_t i = 0; i < kKeys; ++i) {
      const auto found = model.find(i);
      const auto seen = this->find(i);
      ASSERT_EQ(seen.has_value(), found != model.end()) << i;
      if (seen) {
        ASSERT_TRUE(this->holds(i, found->second)) << i;
      }
    }
  }
  EXPECT_TRUE(this->map_->write_many({}).ok());
}

// One mutation that is refused does not stop the others.
MAP_TEST(PointTest, WriteManyReportsTheFirstError) {
  using K = typename TestFixture::KeyType;
  using V = typename TestFixture::ValueType;
  if constexpr (std::same_as<K, std::string_view>) {
    const std::string huge(kMaxKeyBytes + 1, 'k');
    const auto first = this->key(1);
    const auto last = this->key(2);
    const auto value = this->value(1);
    const Mutation<K, V> mutations[] = {{.key = K(first), .value = V(value)},
                                        {.key = huge, .value = V(value)},
                                        {.key = K(last), .value = V(value)}};
    std::vector<StatusCode> codes;
    const Status s = this->map_->write_many(mutations, [&](std::size_t, const Found& found) {
      codes.push_back(found.status().code());
    });
    EXPECT_EQ(s, StatusCode::invalid_argument);
    EXPECT_EQ(codes, (std::vector{StatusCode::ok, StatusCode::invalid_argument, StatusCode::ok}));
    EXPECT_TRUE(this->holds(1, 1));
    EXPECT_TRUE(this->holds(2, 1));
  }
}

MAP_TEST(PointTest, ReadCallsBackOnceWithTheValueAndNeverForAbsentKeys) {
  using K = typename TestFixture::KeyType;
  using V = typename TestFixture::ValueType;
  ASSERT_TRUE(this->insert(7, 1));
  int calls = 0;
  EXPECT_TRUE(was_present(this->map_->read(K(this->key(7)), [&](const V& seen) {
    ++calls;
    EXPECT_TRUE(seen == V(this->value(1)));
  })));
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(was_present(this->map_->read(K(this->key(8)), [&](const V&) { ++calls; })));
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(was_present(this->map_->contains(K(this->key(7)))));
  EXPECT_FALSE(was_present(this->map_->contains(K(this->key(8)))));
}

MAP_TEST(PointTest, FindManyFillsEachPosition) {
  using K = typename TestFixture::KeyType;
  PERDURE_TRACE_SEED();
  this->fill(500, 2);  // even key numbers are present
  Rng rng;
  // Around possible batch sizes of an implementation, and beyond.
  for (const std::size_t size : {0, 1, 2, 7, 8, 15, 16, 17, 63, 64, 65, 128, 129, 1000}) {
    std::vector<std::uint64_t> numbers(size);
    for (auto& number : numbers) number = rng.below(1'000);
    if (size > 3) numbers[3] = numbers[0];  // duplicates, adjacent and apart
    if (size > 8) numbers[size - 1] = numbers[size - 2];
    std::vector<typename TestFixture::OwnedK> owned;
    for (const std::uint64_t number : numbers) owned.push_back(this->key(number));
    const std::vector<K> keys(owned.begin(), owned.end());
    // Stale values must not survive, and places beyond the keys must not be touched.
    std::vector<std::optional<typename TestFixture::OwnedV>> values(size + 2, this->value(77));
    const std::uint64_t present = must(this->map_->get_many(keys, values));
    std::uint64_t expected = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const bool there = numbers[i] % 2 == 0;
      expected += there ? 1 : 0;
      ASSERT_EQ(values[i].has_value(), there) << "position " << i << " of " << size;
      if (there) {
        ASSERT_TRUE(*values[i] == this->value(numbers[i])) << "position " << i;
      }
    }
    EXPECT_EQ(present, expected);
    EXPECT_TRUE(values[size] == std::optional(this->value(77)));
    EXPECT_TRUE(values[size + 1] == std::optional(this->value(77)));
  }
}

MAP_TEST(PointTest, FindManyRefusesTooFewPlaces) {
  using K = typename TestFixture::KeyType;
  const auto a = this->key(1);
  const auto b = this->key(2);
  const std::vector<K> keys = {K(a), K(b)};
  std::vector<std::optional<typename TestFixture::OwnedV>> values(1);
  EXPECT_EQ(code_of(this->map_->get_many(keys, values)), StatusCode::invalid_argument);
}

// A thread that finds a leaf full must split and insert. Random order and both sorted orders.
MAP_TEST(PointTest, P1_NoInsertIsLostAtFullLeaves) {
  PERDURE_TRACE_SEED();
  const std::uint64_t n = scaled(12'000, 2'000);
  for (std::uint64_t i = 0; i < n / 3; ++i) ASSERT_TRUE(this->insert(i, i));
  for (std::uint64_t i = n; i-- > 2 * n / 3;) ASSERT_TRUE(this->insert(i, i));
  std::vector<std::uint64_t> middle(2 * n / 3 - n / 3);
  std::iota(middle.begin(), middle.end(), n / 3);
  std::shuffle(middle.begin(), middle.end(), Rng());
  for (const std::uint64_t i : middle) ASSERT_TRUE(this->insert(i, i));
  for (std::uint64_t i = 0; i < n; ++i) ASSERT_TRUE(this->holds(i, i)) << "key number " << i;
  EXPECT_EQ(this->map_->stats().entries, n);
}

// One entry per key, however often it is inserted: an erase leaves no other entry that could
// reappear.
MAP_TEST(PointTest, P2_DuplicateKeys) {
  const std::uint64_t n = scaled(3'000, 600);
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t i = 0; i < n; ++i) {
      ASSERT_TRUE(this->insert(i, i)) << "round " << round << " key number " << i;
      ASSERT_FALSE(this->insert(i, i + 1));
      ASSERT_FALSE(this->upsert(i, i + 2));
      ASSERT_FALSE(this->insert(i / 2, i + 3)) << "an older key, perhaps in another leaf by now";
    }
    EXPECT_EQ(this->map_->stats().entries, n);
    for (std::uint64_t i = 0; i < n; ++i) {
      ASSERT_TRUE(this->holds(i, i + 2));
      ASSERT_TRUE(this->erase(i));
      ASSERT_FALSE(this->find(i).has_value());
      ASSERT_FALSE(this->erase(i));
    }
    EXPECT_EQ(this->map_->stats().entries, 0U);
  }
}

// Erased entries must neither hide a later insert of their key nor influence where a leaf splits.
// Most of a leaf is erased, then it is filled beyond its capacity.
MAP_TEST(PointTest, P10_EraseThenInsertAgainAndSplitsOfMostlyErasedLeaves) {
  const std::uint64_t n = 56;
  for (std::uint64_t keep = 0; keep < 8; ++keep) {
    for (std::uint64_t i = 0; i < n; ++i) ASSERT_TRUE(this->upsert(i * 4, 1));
    for (std::uint64_t i = 0; i < n; ++i) {
      if (i % 8 != keep) {
        ASSERT_TRUE(this->erase(i * 4));
      }
    }
    for (std::uint64_t i = 0; i < n * 4; ++i) {
      const bool was_kept = i % 4 == 0 && (i / 4) % 8 == keep;
      ASSERT_EQ(this->insert(i, 2), !was_kept) << i;
    }
    for (std::uint64_t i = 0; i < n * 4; ++i) {
      const bool was_kept = i % 4 == 0 && (i / 4) % 8 == keep;
      ASSERT_TRUE(this->holds(i, was_kept ? 1 : 2)) << i;
      ASSERT_TRUE(this->erase(i));
      ASSERT_FALSE(this->find(i).has_value());
    }
  }
}

MAP_TEST(PointTest, EraseEverythingInEveryOrderAndUseTheMapAgain) {
  PERDURE_TRACE_SEED();
  const std::uint64_t n = scaled(4'000, 800);
  for (int order = 0; order < 3; ++order) {
    this->fill(n);
    std::vector<std::uint64_t> victims(n);
    std::iota(victims.begin(), victims.end(), 0);
    if (order == 1) std::reverse(victims.begin(), victims.end());
    if (order == 2) std::shuffle(victims.begin(), victims.end(), Rng());
    for (std::size_t gone = 0; gone < victims.size(); ++gone) {
      ASSERT_TRUE(this->erase(victims[gone]));
      // Looks up both neighbours of the erased key, where a neighbouring leaf may begin.
      for (const std::uint64_t near : {victims[gone] + 1, victims[gone] - 1}) {
        if (near >= n) continue;
        const bool there = order == 0   ? near > victims[gone]
                           : order == 1 ? near < victims[gone]
                                        : this->find(near).has_value();
        ASSERT_EQ(this->find(near).has_value(), there) << near;
      }
    }
    EXPECT_EQ(this->map_->stats().entries, 0U);
    for (std::uint64_t i = 0; i < n; i += 37) ASSERT_FALSE(this->find(i).has_value());
  }
}

MAP_TEST(PointTest, ManyUpdatesOfOneKeyKeepTheLast) {
  const std::uint64_t n = scaled(5'000, 500);
  ASSERT_TRUE(this->insert(3, 0));
  ASSERT_TRUE(this->insert(4, 0));
  for (std::uint64_t i = 1; i <= n; ++i) {
    ASSERT_TRUE(this->update(3, i));
    ASSERT_TRUE(this->holds(3, i));
  }
  EXPECT_TRUE(this->holds(4, 0));
  EXPECT_EQ(this->map_->stats().entries, 2U);
}

template <class S>
class OrderedTest : public Fixture<S, OrderedMap<typename S::K, typename S::V>> {
 public:
  static bool takes(const Place& place) { return place.ordered(); }

 protected:
  using typename Fixture<S, OrderedMap<typename S::K, typename S::V>>::KeyType;
  using typename Fixture<S, OrderedMap<typename S::K, typename S::V>>::ValueType;
  using Options = ScanOptions<KeyType>;

  void SetUp() override {
    this->map_ = this->backend_.template ordered_map<KeyType, ValueType>("map");
  }

  // Bounds by key number. from_ and to_ own the memory of the options.
  Options bounds(std::optional<std::uint64_t> from, std::optional<std::uint64_t> to) {
    Options options;
    if (from) {
      from_ = this->key(*from);
      options.from = KeyType(from_);
    }
    if (to) {
      to_ = this->key(*to);
      options.to = KeyType(to_);
    }
    return options;
  }
  // Key numbers first, first+step, ... below last, with the values that fill() gave. A scan with
  // the options must deliver them, by callback and by iterator.
  void expect_scan(Options options, std::vector<std::uint64_t> expected) {
    if (options.reverse) std::reverse(expected.begin(), expected.end());
    if (expected.size() > options.limit) expected.resize(options.limit);
    std::size_t at = 0;
    const std::uint64_t visited =
        must(this->map_->scan(options, [&](const KeyType& k, const ValueType& v) {
          ASSERT_LT(at, expected.size()) << "more entries than expected";
          ASSERT_TRUE(k == KeyType(this->key(expected[at]))) << "key of entry " << at;
          ASSERT_TRUE(v == ValueType(this->value(expected[at]))) << "value of entry " << at;
          ++at;
        }));
    EXPECT_EQ(at, expected.size());
    EXPECT_EQ(visited, expected.size());
    at = 0;
    auto it = this->map_->scan(options);
    for (; it.valid(); it.next(), ++at) {
      ASSERT_LT(at, expected.size()) << "more entries than expected";
      ASSERT_TRUE(it.key() == this->key(expected[at])) << "key of entry " << at;
      ASSERT_TRUE(it.value() == this->value(expected[at])) << "value of entry " << at;
    }
    EXPECT_TRUE(it.status().ok()) << describe(it.status());
    EXPECT_EQ(at, expected.size());
  }
  static std::vector<std::uint64_t> numbers(std::uint64_t first, std::uint64_t last,
                                            std::uint64_t step = 1) {
    std::vector<std::uint64_t> out;
    for (std::uint64_t i = first; i < last; i += step) out.push_back(i);
    return out;
  }

 private:
  typename Fixture<S, OrderedMap<typename S::K, typename S::V>>::OwnedK from_{}, to_{};
};
using OrderedTestKinds = AllKinds;

MAP_TEST(OrderedTest, ScanOfAnEmptyMap) {
  this->expect_scan({}, {});
  auto reverse = this->bounds({}, {});
  reverse.reverse = true;
  this->expect_scan(reverse, {});
  this->expect_scan(this->bounds(5, 10), {});
}

MAP_TEST(OrderedTest, ScansInBothDirectionsWithinBounds) {
  PERDURE_TRACE_SEED();
  // Few leaves, then many.
  std::uint64_t filled = 0;
  for (const std::uint64_t n : {std::uint64_t{3}, std::uint64_t{56}, scaled(3'000, 300)}) {
    for (; filled < n; ++filled) ASSERT_TRUE(this->insert(filled * 2, filled * 2));
    const std::uint64_t end = n * 2;  // even numbers below end are present
    Rng rng;
    for (const bool reverse : {false, true}) {
      auto run = [&](typename TestFixture::Options options, std::vector<std::uint64_t> expected) {
        options.reverse = reverse;
        this->expect_scan(options, std::move(expected));
      };
      run({}, this->numbers(0, end, 2));
      run(this->bounds(0, end), this->numbers(0, end, 2));
      run(this->bounds(0, 0), {});
      run(this->bounds(end, {}), {});
      run(this->bounds({}, 0), {});
      run(this->bounds({}, 1), {0});
      run(this->bounds(end - 2, {}), {end - 2});
      run(this->bounds(end - 1, {}), {});
      if (n > 3) run(this->bounds(5, 2), {});  // an inverted range is empty
      for (int round = 0; round < static_cast<int>(scaled(20, 3)); ++round) {
        // Bounds that are present, and bounds that are absent.
        const std::uint64_t from = rng.below(end);
        const std::uint64_t to = from + rng.below(end - from);
        auto options = this->bounds(from, to);
        run(options, this->numbers(from + from % 2, to, 2));
        run(this->bounds(from, {}), this->numbers(from + from % 2, end, 2));
        run(this->bounds({}, to), this->numbers(0, to, 2));
      }
    }
  }
}

MAP_TEST(OrderedTest, LimitsStopExactly) {
  PERDURE_TRACE_SEED();
  const std::uint64_t n = scaled(1'500, 400);
  this->fill(n);
  for (const std::uint64_t limit : {0, 1, 2, 55, 56, 57, 63, 64, 65, 127, 128, 129, 399, 400}) {
    for (const bool reverse : {false, true}) {
      auto options = this->bounds({}, {});
      options.limit = limit;
      options.reverse = reverse;
      this->expect_scan(options, this->numbers(0, n));
      options = this->bounds(100, n - 100);
      options.limit = limit;
      options.reverse = reverse;
      this->expect_scan(options, this->numbers(100, n - 100));
    }
  }
}

// Groups have 64 keys.
MAP_TEST(OrderedTest, EraseRangeErasesWhatTheScanDelivers) {
  const std::uint64_t n = 400;
  this->fill(n);
  std::uint64_t first = 0;
  std::uint64_t end = n;
  const auto erase = [&](std::optional<std::uint64_t> from, std::optional<std::uint64_t> to,
                         std::uint64_t limit, bool reverse) {
    auto options = this->bounds(from, to);
    options.limit = limit;
    options.reverse = reverse;
    const std::uint64_t there = std::min(limit, must(this->map_->count(options)));
    EXPECT_EQ(must(this->map_->erase_range(options)), there);
    return there;
  };
  constexpr auto kAll = ~std::uint64_t{0};
  EXPECT_EQ(erase({}, {}, 0, false), 0U);
  EXPECT_EQ(erase(n, {}, kAll, false), 0U);
  EXPECT_EQ(erase(200, 100, kAll, false), 0U);
  for (const std::uint64_t limit : {1, 63, 64, 65}) {
    first += erase({}, {}, limit, false);
    end -= erase({}, {}, limit, true);
    this->expect_scan({}, this->numbers(first, end));
  }
  EXPECT_EQ(first, 193U);
  EXPECT_EQ(end, n - 193);
  EXPECT_EQ(erase(195, 204, kAll, false), 9U);
  EXPECT_EQ(must(this->map_->count()), end - first - 9);
  EXPECT_EQ(erase({}, {}, kAll, true), end - first - 9);
  this->expect_scan({}, {});
}

MAP_TEST(OrderedTest, EraseRangeOfAPrefix) {
  using K = typename TestFixture::KeyType;
  using V = typename TestFixture::ValueType;
  if constexpr (std::same_as<K, std::string_view>) {
    const auto value = this->value(1);
    for (const K key : {"a", "ab", "ab\xff", "abc", "ac", "b"}) {
      must(this->map_->insert(key, V(value)));
    }
    EXPECT_EQ(must(this->map_->count({.prefix = "ab"})), 3U);
    EXPECT_EQ(must(this->map_->erase_range({.prefix = "ab"})), 3U);
    EXPECT_EQ(must(this->map_->count()), 3U);
    EXPECT_TRUE(was_present(this->map_->contains("ac")));
  }
}

MAP_TEST(OrderedTest, CallbackThatReturnsFalseEndsTheScan) {
  using K = typename TestFixture::KeyType;
  using V = typename TestFixture::ValueType;
  PERDURE_TRACE_SEED();
  this->fill(300);
  for (const std::uint64_t stop : {1, 2, 28, 56, 57, 200, 300}) {
    std::uint64_t calls = 0;
    const std::uint64_t visited = must(this->map_->scan(
        typename TestFixture::Options{}, [&](const K&, const V&) { return ++calls < stop; }));
    EXPECT_EQ(calls, stop);
    EXPECT_EQ(visited, stop) << "the entry that ended the scan was visited";
  }
  const auto from = this->key(10);
  const auto to = this->key(20);
  std::uint64_t calls = 0;
  EXPECT_EQ(must(this->map_->scan(K(from), K(to), [&](const K&, const V&) { ++calls; })), 10U);
  EXPECT_EQ(calls, 10U);
}

MAP_TEST(OrderedTest, ScansStayRightWhileTheMapChangesBetweenThem) {
  PERDURE_TRACE_SEED();
  // Engines may cache sorted orders per leaf: every kind of mutation must show in the next scan.
  this->fill(200, 3);
  std::map<std::uint64_t, std::uint64_t> model;
  for (std::uint64_t i = 0; i < 600; i += 3) model[i] = i;
  Rng rng;
  using K = typename TestFixture::KeyType;
  using V = typename TestFixture::ValueType;
  for (std::uint64_t round = 0; round < scaled(1'000, 200); ++round) {
    const std::uint64_t k = rng.below(600);
    const std::uint64_t v = rng.below(1'000);
    switch (rng.below(4)) {
      case 0:
        ASSERT_EQ(this->insert(k, v), model.try_emplace(k, v).second);
        break;
      case 1:
        ASSERT_EQ(this->upsert(k, v), model.insert_or_assign(k, v).second);
        break;
      case 2:
        ASSERT_EQ(this->erase(k), model.erase(k) != 0);
        break;
      case 3:
        ASSERT_EQ(this->update(k, v), model.contains(k));
        if (model.contains(k)) model[k] = v;
        break;
    }
    const bool reverse = rng.one_in(2);
    auto options = this->bounds(k, k + 40 < 600 ? std::optional(k + 40) : std::nullopt);
    options.reverse = reverse;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> expected(model.lower_bound(k),
                                                                  model.lower_bound(k + 40));
    if (k + 40 >= 600) expected.assign(model.lower_bound(k), model.end());
    if (reverse) std::reverse(expected.begin(), expected.end());
    std::size_t at = 0;
    must(this->map_->scan(options, [&](const K& seen_key, const V& seen_value) {
      ASSERT_LT(at, expected.size());
      ASSERT_TRUE(seen_key == K(this->key(expected[at].first)));
      ASSERT_TRUE(seen_value == V(this->value(expected[at].second)));
      ++at;
    }));
    ASSERT_EQ(at, expected.size()) << "round " << round;
  }
}

// An iterator holds no guard. Entries ahead may change; resident keys are delivered exactly once.
MAP_TEST(OrderedTest, IteratorSurvivesMutationsBetweenSteps) {
  PERDURE_TRACE_SEED();
  const std::uint64_t n = scaled(2'000, 500);
  for (const bool reverse : {false, true}) {
    for (std::uint64_t i = 0; i < n; ++i) this->upsert(i * 4, i * 4);
    auto options = this->bounds({}, {});
    options.reverse = reverse;
    Rng rng;
    std::vector<std::uint64_t> seen;
    // Multiples of 8 stay. The rest come and go, ahead of, behind and under the iterator.
    std::uint64_t position = reverse ? n * 4 : 0;
    for (auto it = this->map_->scan(options); it.valid(); it.next()) {
      const std::uint64_t expected_next = reverse ? (position - 1) / 8 * 8 : (position + 7) / 8 * 8;
      // Finds the number of the key from both sides of the next resident.
      std::optional<std::uint64_t> number;
      for (std::uint64_t i = 0; i <= 8 && !number; ++i) {
        const std::uint64_t candidate = reverse ? expected_next + 8 - i : expected_next - 8 + i;
        if (candidate < n * 4 + 8 && candidate < kMaxKeyIndex && it.key() == this->key(candidate)) {
          number = candidate;
        }
      }
      ASSERT_TRUE(number.has_value()) << "skipped a key that never left, near " << position;
      ASSERT_TRUE(it.value() == this->value(*number));
      position = reverse ? *number : *number + 1;
      if (*number % 8 == 0) seen.push_back(*number);
      for (int change = 0; change < 3; ++change) {
        const std::uint64_t k = rng.below(n * 4);
        if (k % 8 == 0) continue;
        if (rng.one_in(2)) {
          this->erase(k);
        } else {
          this->insert(k, k);
        }
      }
      if (*number % 8 != 0) this->erase(*number);
    }
    std::vector<std::uint64_t> residents = this->numbers(0, n * 4, 8);
    if (reverse) std::reverse(residents.begin(), residents.end());
    EXPECT_EQ(seen, residents);
    for (std::uint64_t i = 0; i < n * 4; ++i) this->erase(i);
  }
}

MAP_TEST(OrderedTest, IteratorOutlivesTheKeysItWasGiven) {
  using K = typename TestFixture::KeyType;
  this->fill(300);
  auto it = [&] {
    auto from = this->key(10);
    auto to = this->key(290);
    typename TestFixture::Options options;
    options.from = K(from);
    options.to = K(to);
    return this->map_->scan(options);
  }();
  std::uint64_t expected = 10;
  for (; it.valid(); it.next(), ++expected) ASSERT_TRUE(it.key() == this->key(expected));
  EXPECT_EQ(expected, 290U);
}

}  // namespace
}  // namespace perdure::test
