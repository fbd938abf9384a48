// test: ranks 1 2 3 4 5
// Reads of many keys or versions over all ranks, compared with one std::map per version: history,
// scan_at, diff.
// All ranks draw the same numbers, and each knows the operations of the others.
#include <algorithm>

#include "tests/mpi/expect.h"

namespace perdure::mpi::test {
namespace {

// What a store should have.
template <class Kind>
struct Model {
  using Key = typename Kind::Key;
  using Written = std::map<Key, std::optional<Key>>;

  void write(const Key& key, const std::optional<Key>& value) {
    if (!value && !open.contains(key)) return;
    written[next()][key] = value;
    if (value) {
      open[key] = *value;
    } else {
      open.erase(key);
    }
  }
  void tag() { closed[next()] = open; }
  void roll_back(Version version) {
    closed.erase(closed.upper_bound(version), closed.end());
    written.erase(written.upper_bound(version), written.end());
    open = closed[version];
  }
  void trim(Version version) { closed.erase(closed.begin(), closed.lower_bound(version)); }

  Version first() const { return closed.begin()->first; }
  Version last() const { return closed.rbegin()->first; }
  Version next() const { return last() + 1; }
  std::vector<std::pair<Version, std::optional<Key>>> history(const Key& key) const {
    std::vector<std::pair<Version, std::optional<Key>>> out;
    const State<Kind>& oldest = closed.begin()->second;
    if (oldest.contains(key)) out.emplace_back(first(), oldest.at(key));
    for (auto it = written.upper_bound(first()); it != written.end(); ++it) {
      const auto entry = it->second.find(key);
      if (entry == it->second.end()) continue;
      const bool present = !out.empty() && out.back().second;
      if (entry->second || present) out.emplace_back(it->first, entry->second);
    }
    return out;
  }

  State<Kind> open;
  std::map<Version, State<Kind>> closed = {{0, {}}};
  std::map<Version, Written> written;
};

template <class Kind>
class Reads {
 public:
  using Key = typename Kind::Key;

  Reads(const SharedDirectory& directory, Options options, std::uint64_t seed)
      : path_(directory.store()), options_(options), random_(seed) {
    open();
  }

  void step() {
    for (std::uint64_t i = random_() % 60; i > 0; --i) write();
    const std::uint64_t dice = random_() % 12;
    if (dice == 0) {
      const Version version = some_version();
      must(store_->rollback(version));
      model_.roll_back(version);
    } else if (dice == 1) {
      const Version version = some_version();
      must(store_->trim(version));
      model_.trim(version);
    } else if (dice == 2) {
      // Without a tag: what is open lies in several versions of the pools from now on.
      store_.reset();
      open();
    } else {
      EXPECT_EQ(must(store_->tag()), model_.next());
      model_.tag();
    }
  }
  void check() {
    ASSERT_EQ(store_->versions().first, model_.first());
    ASSERT_EQ(store_->versions().last, model_.last());
    for (std::uint64_t i = 0; i < kKeys; i += 1 + random_() % 8) expect_history(Kind::key(i));
    for (int i = 0; i < 12; ++i) expect_scan(some_version(), some_range());
    for (int i = 0; i < 12; ++i) expect_diff(some_version(), some_version(), some_range());
  }

 private:
  static constexpr std::uint64_t kKeys = 40;

  void open() { store_.emplace(must(Kind::Store::open(MPI_COMM_WORLD, path_, options_))); }
  void write() {
    const Key key = Kind::key(random_() % kKeys);
    std::optional<Key> value;
    if (random_() % 4 != 0) value = Kind::value(random_() % 100'000);
    if (store_->owner(key) == store_->rank())
      must(value ? store_->put(key, *value) : store_->erase(key));
    model_.write(key, value);
  }
  Version some_version() {
    auto it = model_.closed.begin();
    std::advance(it, random_() % model_.closed.size());
    return it->first;
  }
  // Only the key of rank 0 counts.
  Key asked(const Key& key) { return store_->rank() == 0 ? key : Kind::key(kKeys + 1); }

  void expect_history(const Key& key) {
    std::vector<std::pair<Version, std::optional<Key>>> got;
    // One rank ends its calls early.
    const bool ends = random_() % 4 == 0 && random_() % world_size() == std::uint64_t(world_rank());
    must(store_->history(asked(key), [&](Version version, const auto& value) {
      got.emplace_back(version, value ? std::optional<Key>(*value) : std::nullopt);
      return !ends;
    }));
    auto expected = model_.history(key);
    if (ends && expected.size() > 1) expected.resize(1);
    EXPECT_EQ(got, expected);
  }

  // With text of its own, because options have views.
  struct Range {
    std::optional<Key> from, to;
    Key prefix{};
    std::uint64_t limit = ~std::uint64_t{0};
    bool reverse = false;

    auto options() const {
      if constexpr (std::same_as<Kind, Strings>) {
        ScanOptions<std::string_view> out{.prefix = prefix, .limit = limit, .reverse = reverse};
        if (from) out.from = *from;
        if (to) out.to = *to;
        return out;
      } else {
        return ScanOptions<Key>{.from = from, .to = to, .limit = limit, .reverse = reverse};
      }
    }
    bool has(const Key& key) const {
      if constexpr (std::same_as<Kind, Strings>) {
        if (!key.starts_with(prefix)) return false;
      }
      return (!from || key >= *from) && (!to || key < *to);
    }
    // What a scan of all these entries visits.
    template <class Entry>
    std::vector<Entry> of(std::vector<Entry> all) const {
      std::erase_if(all, [&](const Entry& entry) { return !has(std::get<0>(entry)); });
      if (reverse) std::reverse(all.begin(), all.end());
      if (all.size() > limit) all.resize(limit);
      return all;
    }
  };
  Range some_range() {
    Range range{.reverse = random_() % 2 == 0};
    if (random_() % 3 == 0) range.from = Kind::key(random_() % kKeys);
    if (random_() % 3 == 0) range.to = Kind::key(random_() % kKeys);
    if (random_() % 3 == 0) range.limit = random_() % kKeys;
    if constexpr (std::same_as<Kind, Strings>) {
      if (random_() % 4 == 0) range.prefix = "the same";
      if (random_() % 8 == 0) range.to = std::string(300, '~');  // does not fit the first message
    }
    return range;
  }
  Range asked(const Range& range) { return store_->rank() == 0 ? range : Range{.limit = 1}; }
  // One that is visited last, if the callback ends the scan; or none.
  std::uint64_t some_end() { return random_() % 3 == 0 ? random_() % kKeys : ~std::uint64_t{0}; }

  void expect_scan(Version version, const Range& range) {
    std::vector<std::pair<Key, Key>> got;
    const std::uint64_t end = some_end();
    const std::uint64_t visited =
        must(store_->scan_at(store_->rank() == 0 ? version : 999, asked(range).options(),
                             [&](const auto& key, const auto& value) {
                               got.emplace_back(key, value);
                               return got.size() <= end;
                             }));
    const State<Kind>& state = model_.closed[version];
    auto expected = range.of(std::vector<std::pair<Key, Key>>(state.begin(), state.end()));
    if (expected.size() > end) expected.resize(end + 1);
    EXPECT_EQ(visited, expected.size());
    if (store_->rank() != 0) expected.clear();
    EXPECT_TRUE(got == expected) << got.size() << " " << expected.size();
  }
  void expect_diff(Version from, Version to, const Range& range) {
    using Difference = std::tuple<Key, std::optional<Key>, std::optional<Key>>;
    std::vector<Difference> got, all;
    const std::uint64_t end = some_end();
    const auto copy = [](const auto& value) {
      return value ? std::optional<Key>(*value) : std::nullopt;
    };
    must(store_->diff(from, to, asked(range).options(),
                      [&](const auto& key, const auto& before, const auto& after) {
                        got.emplace_back(key, copy(before), copy(after));
                        return got.size() <= end;
                      }));
    State<Kind> keys = model_.closed[from];
    keys.insert(model_.closed[to].begin(), model_.closed[to].end());
    for (const auto& [key, value] : keys) {
      const auto before = value_in(from, key), after = value_in(to, key);
      if (before != after) all.emplace_back(key, before, after);
    }
    auto expected = range.of(all);
    if (expected.size() > end) expected.resize(end + 1);
    if (store_->rank() != 0) expected.clear();
    EXPECT_TRUE(got == expected) << got.size() << " " << expected.size();
  }
  std::optional<Key> value_in(Version version, const Key& key) {
    const auto it = model_.closed[version].find(key);
    return it != model_.closed[version].end() ? std::optional(it->second) : std::nullopt;
  }

  std::string path_;
  Options options_;
  std::mt19937_64 random_;
  std::optional<typename Kind::Store> store_;
  Model<Kind> model_;
};

template <class Kind>
void run_against_model(Options options, std::uint64_t seed) {
  SCOPED_TRACE(seed);
  const SharedDirectory directory;
  Reads<Kind> run(directory, options, seed);
  for (int i = 0; i < 25; ++i) run.step();
  run.check();
}

TEST(Reads, OfIntegersByHashAreAsTheModelSays) { run_against_model<Integers>({}, 1); }
TEST(Reads, OfIntegersByRangeAreAsTheModelSays) {
  run_against_model<Integers>({.partition = Partition::range}, 2);
}
TEST(Reads, OfStringsByHashAreAsTheModelSays) {
  run_against_model<Strings>({.max_message = 64}, 3);
}
TEST(Reads, OfStringsByRangeAreAsTheModelSays) {
  run_against_model<Strings>({.partition = Partition::range, .max_message = 1000}, 4);
}

// Several pieces, one of them larger than the others.
TEST(History, IsDeliveredInPieces) {
  const SharedDirectory directory;
  auto store = must(BytesStore::open(MPI_COMM_WORLD, directory.store()));
  const std::string key = "weights";
  const std::size_t sizes[] = {30'000, 30'000, 0, 200'000, 1, 47'000, 2'000, 90'000};
  std::vector<std::pair<Version, std::string>> expected;
  for (const std::size_t size : sizes) {
    expected.emplace_back(expected.size() + 1, std::string(size, char('a' + expected.size())));
    if (store.owner(key) == store.rank()) must(store.put(key, expected.back().second));
    if (expected.size() < std::size(sizes)) must(store.tag());
  }
  std::vector<std::pair<Version, std::string>> got;
  must(store.history(key, [&](Version version, const std::optional<std::string_view>& value) {
    got.emplace_back(version, value.value_or("removed"));
  }));
  EXPECT_TRUE(got == expected) << got.size();
  EXPECT_EQ(store.versions().last + 1, got.back().first);
}

// Every rank has several pieces, and some a value that is larger than a piece.
TEST(Scan, IsDeliveredInPieces) {
  const SharedDirectory directory;
  for (const Partition partition : {Partition::hash, Partition::range}) {
    auto store = must(BytesStore::open(MPI_COMM_WORLD,
                                       directory.store(partition == Partition::hash ? "h" : "r"),
                                       {.partition = partition}));
    State<Strings> state;
    for (std::uint64_t n = 1; n < 2500; ++n) {
      // The first bytes differ: a partition by range gives some to every rank.
      const std::string key = Strings::key(n * 0x9E3779B97F4A7C15) + "/" + std::to_string(n);
      state[key] = std::string(n % 800 == 0 ? 200'000 : n % 300, 'v');
      if (store.owner(key) == store.rank()) must(store.put(key, state[key]));
    }
    const Version version = must(store.tag());
    for (const bool reverse : {false, true}) {
      std::vector<std::pair<std::string, std::string>> got, differs;
      const auto expected =
          reverse ? std::vector<std::pair<std::string, std::string>>(state.rbegin(), state.rend())
                  : std::vector<std::pair<std::string, std::string>>(state.begin(), state.end());
      EXPECT_EQ(must(store.scan_at(version, {.reverse = reverse},
                                   [&](auto key, auto value) { got.emplace_back(key, value); })),
                expected.size());
      must(store.diff(0, version, {.reverse = reverse},
                      [&](auto key, const auto& before, const auto& after) {
                        if (!before) differs.emplace_back(key, after.value_or("removed"));
                      }));
      if (store.rank() != 0) continue;
      EXPECT_TRUE(got == expected) << got.size();
      EXPECT_TRUE(differs == expected) << differs.size();
    }
  }
}

}  // namespace
}  // namespace perdure::mpi::test
