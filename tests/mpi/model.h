// A model of a distributed store, and a store that does what the model does. Compared::step() draws
// writes, a tag, a rollback, a trim or an open; check() compares all reads, with any root.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/mpi/expect.h"

namespace perdure::mpi::test {

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

// A store beside its model. Every rank of the world draws the same numbers and has the model, also
// the ranks that do not open the store.
template <class Kind>
class Compared {
 public:
  using Key = typename Kind::Key;
  using Store = typename Kind::Store;

  Compared(const Options& options, std::uint64_t seed) : options_(options), random_(seed) {}

  // Of all ranks of the world: those that have MPI_COMM_NULL do not open the store. The paths of
  // the ranks may differ.
  void open(MPI_Comm comm, const std::string& path) {
    close();
    if (comm != MPI_COMM_NULL) store_.emplace(must(Store::open(comm, path, options_)));
    comm_ = comm;
    path_ = path;
  }
  void close() {
    store_.reset();
    barrier();
  }
  Store* store() { return store_ ? &*store_ : nullptr; }
  Options& options() { return options_; }  // of the next open
  void tag() {
    if (store_) {
      EXPECT_EQ(must(store_->tag()), model_.next());
    }
    model_.tag();
  }

  void step() {
    for (std::uint64_t i = random_() % 60; i > 0; --i) write();
    if (random_() % 2 == 0) write_many();
    const std::uint64_t dice = random_() % 12;
    if (dice == 0) {
      const Version version = some_version();
      if (store_) must(store_->rollback(version));
      model_.roll_back(version);
    } else if (dice == 1) {
      const Version version = some_version();
      if (store_) must(store_->trim(version));
      model_.trim(version);
    } else if (dice == 2) {
      // Without a tag: what is open lies in several versions of the pools from now on.
      open(comm_, path_);
    } else {
      tag();
    }
  }
  void check() {
    const std::uint64_t seed = random_();
    if (store_) check_store();
    random_.seed(seed);
  }

 private:
  static constexpr std::uint64_t kKeys = 40;

  void check_store() {
    ASSERT_EQ(store_->versions().first, model_.first());
    ASSERT_EQ(store_->versions().last, model_.last());
    for (std::uint64_t i = 0; i < kKeys; i += 1 + random_() % 8) expect_history(Kind::key(i));
    for (int i = 0; i < 12; ++i) expect_scan(some_version(), some_range());
    for (int i = 0; i < 12; ++i) expect_diff(some_version(), some_version(), some_range());
    for (int i = 0; i < 4; ++i) expect_snapshot(some_version());
    for (int i = 0; i < 4; ++i) expect_values();
    for (const auto& [key, value] : model_.open) {
      if (store_->owner(key) != store_->rank()) continue;
      EXPECT_EQ(must(store_->get_own(key)), value);
    }
  }
  std::optional<Key> some_value() {
    if (random_() % 4 == 0) return std::nullopt;
    return Kind::value(random_() % 100'000);
  }
  void write() {
    const Key key = Kind::key(random_() % kKeys);
    const std::optional<Key> value = some_value();
    if (store_ && store_->owner(key) == store_->rank())
      must(value ? store_->put(key, *value) : store_->erase(key));
    model_.write(key, value);
  }
  // Each rank passes a part, in order.
  void write_many() {
    const std::uint64_t count = random_() % 200;
    std::vector<std::pair<Key, std::optional<Key>>> mine;
    std::vector<bool> present;
    for (std::uint64_t i = 0; i < count; ++i) {
      const Key key = Kind::key(random_() % kKeys);
      const std::optional<Key> value = some_value();
      if (store_ && i * std::uint64_t(store_->ranks()) / count == std::uint64_t(store_->rank())) {
        mine.emplace_back(key, value);
        present.push_back(model_.open.contains(key));
      }
      model_.write(key, value);
    }
    if (!store_) return;
    std::vector<typename Store::Mutation> mutations;
    for (const auto& [key, value] : mine) {
      mutations.push_back({value ? MutationKind::put : MutationKind::erase, key, {}});
      if (value) mutations.back().value = *value;
    }
    must(store_->write_many(mutations, [&](std::size_t i, const Found& found) {
      EXPECT_EQ(found.present(), present[i]);
    }));
  }
  Version some_version() {
    auto it = model_.closed.begin();
    std::advance(it, random_() % model_.closed.size());
    return it->first;
  }
  int some_root() { return static_cast<int>(random_() % std::uint64_t(store_->ranks())); }
  bool is(int root) { return store_->rank() == root; }
  // Only the key of the root counts.
  Key asked(const Key& key, int root) { return is(root) ? key : Kind::key(kKeys + 1); }

  void expect_history(const Key& key) {
    std::vector<std::pair<Version, std::optional<Key>>> got;
    // One rank ends its calls early.
    const bool ends = random_() % 4 == 0 && is(some_root());
    const int root = some_root();
    must(store_->history(
        asked(key, root),
        [&](Version version, const auto& value) {
          got.emplace_back(version, value ? std::optional<Key>(*value) : std::nullopt);
          return !ends;
        },
        root));
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
  Range asked(const Range& range, int root) { return is(root) ? range : Range{.limit = 1}; }
  // One that is visited last, if the callback ends the scan; or none.
  std::uint64_t some_end() { return random_() % 3 == 0 ? random_() % kKeys : ~std::uint64_t{0}; }

  void expect_scan(Version version, const Range& range) {
    std::vector<std::pair<Key, Key>> got;
    const std::uint64_t end = some_end();
    const int root = some_root();
    const std::uint64_t visited = must(store_->scan_at(
        is(root) ? version : 999, asked(range, root).options(),
        [&](const auto& key, const auto& value) {
          got.emplace_back(key, value);
          return got.size() <= end;
        },
        root));
    const State<Kind>& state = model_.closed[version];
    auto expected = range.of(std::vector<std::pair<Key, Key>>(state.begin(), state.end()));
    if (expected.size() > end) expected.resize(end + 1);
    EXPECT_EQ(visited, expected.size());
    if (!is(root)) expected.clear();
    EXPECT_TRUE(got == expected) << got.size() << " " << expected.size();
  }
  void expect_diff(Version from, Version to, const Range& range) {
    using Difference = std::tuple<Key, std::optional<Key>, std::optional<Key>>;
    std::vector<Difference> got, all;
    const std::uint64_t end = some_end();
    const auto copy = [](const auto& value) {
      return value ? std::optional<Key>(*value) : std::nullopt;
    };
    const int root = some_root();
    must(store_->diff(
        from, to, asked(range, root).options(),
        [&](const auto& key, const auto& before, const auto& after) {
          got.emplace_back(key, copy(before), copy(after));
          return got.size() <= end;
        },
        root));
    State<Kind> keys = model_.closed[from];
    keys.insert(model_.closed[to].begin(), model_.closed[to].end());
    for (const auto& [key, value] : keys) {
      const auto before = value_in(from, key), after = value_in(to, key);
      if (before != after) all.emplace_back(key, before, after);
    }
    auto expected = range.of(all);
    if (expected.size() > end) expected.resize(end + 1);
    if (!is(root)) expected.clear();
    EXPECT_TRUE(got == expected) << got.size() << " " << expected.size();
  }
  void expect_snapshot(Version version) {
    const int root = some_root();
    const Merge how = random_() % 2 == 0 ? Merge::recursive_doubling : Merge::naive;
    const auto all = must(store_->extract_snapshot(version, how, root));
    const State<Kind>& state = model_.closed[version];
    EXPECT_EQ(all.total(), state.size());
    ASSERT_EQ(all.size(), is(root) ? state.size() : 0);
    auto it = state.begin();
    all.for_each([&](const auto& key, const auto& value) {
      EXPECT_TRUE(key == it->first && value == it->second);
      ++it;
    });
  }
  void expect_values() {
    const int root = some_root();
    std::vector<std::pair<Key, Version>> asked;
    for (std::uint64_t i = random_() % 2 == 0 ? 1 : random_() % 40; i > 0; --i)
      asked.emplace_back(Kind::key(random_() % kKeys), some_version());
    std::vector<typename Store::Query> queries;
    for (const auto& [key, version] : asked) queries.push_back({key, version});
    const auto found = must(store_->get_many(is(root) ? queries : decltype(queries)(), root));
    ASSERT_EQ(found.size(), asked.size());
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const auto& [key, version] = asked[i];
      EXPECT_EQ(found[i], value_in(version, key));
      if (i == 0) {
        EXPECT_EQ(must(store_->get(key, is(root) ? version : 999, root)), found[i]);
      }
    }
  }
  std::optional<Key> value_in(Version version, const Key& key) {
    const auto it = model_.closed[version].find(key);
    return it != model_.closed[version].end() ? std::optional(it->second) : std::nullopt;
  }

  Options options_;
  std::mt19937_64 random_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::string path_;
  std::optional<Store> store_;
  Model<Kind> model_;
};

}  // namespace perdure::mpi::test
