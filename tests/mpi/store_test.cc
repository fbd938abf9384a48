// The distributed store compared with one std::map per version, on any number of ranks. All ranks
// draw the same numbers, and each knows the operations of the others.
#include <algorithm>
#include <numeric>

#include "mpi/merge.h"
#include "tests/mpi/expect.h"

namespace perdure::mpi::test {
namespace {

template <class Store>
void expect_refused(const Expected<Store>& store, StatusCode code) {
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code(), code) << store.error().message();
  expect_same_everywhere(store.error());
}

template <class Kind>
class Run {
 public:
  Run(std::string directory, Options options, std::uint64_t seed)
      : directory_(std::move(directory)), options_(options), random_(seed) {
    open();
    closed_[0] = {};
  }

  void step() {
    const std::uint64_t dice = random_() % 20;
    for (std::uint64_t i = random_() % 200; i > 0; --i) write();
    if (dice < 12) {
      tag();
    } else if (dice == 12) {
      roll_back();
    } else if (dice == 13) {
      trim();
    } else if (dice == 14) {
      must(store_->close());
      open();
    } else if (dice == 15) {
      open_without_close();
    } else {
      find_some();
    }
  }
  void check() {
    const VersionRange range = store_->versions();
    ASSERT_EQ(range.first, closed_.begin()->first);
    ASSERT_EQ(range.last, closed_.rbegin()->first);
    for (const auto& [version, state] : closed_) compare(version, state);
    for (const auto& [key, value] : open_) {
      if (store_->owner(key) != store_->rank()) continue;
      EXPECT_EQ(must(store_->get_own(key)), value);
    }
  }

 private:
  void open() {
    store_.reset();
    store_.emplace(must(Kind::Store::open(MPI_COMM_WORLD, directory_, options_)));
    if (options_.resume == Resume::last_version) open_ = closed_.rbegin()->second;
  }
  void open_without_close() {
    options_.resume = random_() % 2 == 0 ? Resume::last_version : Resume::keep_writes;
    open();
    options_.resume = Resume::keep_writes;
  }
  std::uint64_t any() { return random_() % 700; }

  void write() {
    const typename Kind::Key key = Kind::key(any());
    const typename Kind::Key value = Kind::value(random_() % 100'000);
    const bool erase = random_() % 4 == 0;
    if (store_->owner(key) == store_->rank()) {
      if (erase) {
        EXPECT_EQ(store_->erase(key).present(), open_.contains(key));
      } else {
        EXPECT_EQ(store_->put(key, value).absent(), !open_.contains(key));
      }
    } else {
      EXPECT_EQ(store_->put(key, value).status(), StatusCode::invalid_argument);
    }
    if (erase) {
      open_.erase(key);
    } else {
      open_[key] = value;
    }
  }
  void tag() {
    const Version version = must(store_->tag());
    ASSERT_EQ(version, closed_.rbegin()->first + 1);
    closed_[version] = open_;
  }
  Version some_version() {
    auto it = closed_.begin();
    std::advance(it, random_() % closed_.size());
    return it->first;
  }
  void roll_back() {
    const Version version = some_version();
    must(store_->rollback(version));
    closed_.erase(closed_.upper_bound(version), closed_.end());
    open_ = closed_[version];
  }
  void trim() {
    const Version version = some_version();
    must(store_->trim(version));
    closed_.erase(closed_.begin(), closed_.lower_bound(version));
  }

  void find_some() {
    const typename Kind::Key key = Kind::key(any());
    const Version version = some_version();
    EXPECT_EQ(must(store_->get(key, version)), expected(key, version));
    const std::uint64_t counts[] = {0, 1, 14, 15, 16, 300};
    std::vector<typename Kind::Key> keys;
    for (std::uint64_t i = counts[random_() % std::size(counts)]; i > 0; --i) {
      keys.push_back(Kind::key(any()));
    }
    std::vector<typename Kind::Store::Query> queries;
    for (const auto& each : keys) queries.push_back({each, some_version()});
    // Only the queries of rank 0 count.
    const std::vector<typename Kind::Store::Query> asked = queries;
    if (store_->rank() != 0) queries.clear();
    const auto found = must(store_->get_many(queries));
    ASSERT_EQ(found.size(), asked.size());
    for (std::size_t i = 0; i < asked.size(); ++i) {
      EXPECT_EQ(found[i], expected(keys[i], asked[i].version));
    }
  }
  std::optional<typename Kind::Key> expected(const typename Kind::Key& key, Version version) {
    const auto& state = closed_[version];
    const auto it = state.find(key);
    return it != state.end() ? std::optional(it->second) : std::nullopt;
  }

  void compare(Version version, const State<Kind>& state) {
    for (const Merge how : {Merge::recursive_doubling, Merge::naive}) {
      const auto snapshot = must(store_->extract_snapshot(version, how));
      ASSERT_EQ(snapshot.total(), state.size());
      ASSERT_EQ(snapshot.size(), store_->rank() == 0 ? state.size() : 0);
      auto it = state.begin();
      snapshot.for_each([&](const auto& key, const auto& value) {
        EXPECT_EQ(key, it->first);
        EXPECT_EQ(value, it->second);
        ++it;
      });
    }
  }

  std::string directory_;
  Options options_;
  std::mt19937_64 random_;
  std::optional<typename Kind::Store> store_;
  std::map<Version, State<Kind>> closed_;
  State<Kind> open_;
};

template <class Kind>
void run_against_oracle(Options options, std::uint64_t seed) {
  SCOPED_TRACE(seed);
  const SharedDirectory directory;
  Run<Kind> run(directory.store(), options, seed);
  run.check();
  for (int i = 0; i < 25; ++i) run.step();
  run.check();
}

TEST(DistributedStore, IntegersByHashAreAsTheOracleSays) {
  run_against_oracle<Integers>({.merge_threads = 3}, 1);
}
TEST(DistributedStore, IntegersByRangeAreAsTheOracleSays) {
  run_against_oracle<Integers>({.partition = Partition::range}, 2);
}
TEST(DistributedStore, StringsByHashAreAsTheOracleSays) {
  run_against_oracle<Strings>({.merge_threads = 2}, 3);
}
TEST(DistributedStore, StringsByRangeAreAsTheOracleSays) {
  run_against_oracle<Strings>({.partition = Partition::range}, 4);
}
TEST(DistributedStore, MessagesInManyPiecesSayTheSame) {
  run_against_oracle<Integers>({.max_message = 64}, 5);
  run_against_oracle<Strings>({.max_message = 1000}, 6);
}

// Large enough for several shares, on ranks that have very different numbers of keys.
TEST(DistributedStore, LargeSnapshotsAreMergedInOrder) {
  const SharedDirectory directory;
  for (const Partition partition : {Partition::hash, Partition::range}) {
    const std::string path = directory.store(partition == Partition::hash ? "hash" : "range");
    auto store = must(
        IntegerStore::open(MPI_COMM_WORLD, path, {.partition = partition, .merge_threads = 4}));
    std::map<std::uint64_t, std::uint64_t> oracle;
    std::mt19937_64 random(7);
    for (int i = 0; i < 60'000; ++i) {
      // Half of the keys are very low. In a partition by range they belong to rank 0.
      const std::uint64_t key = i % 2 == 0 ? random() : random() >> 20;
      oracle[key] = static_cast<std::uint64_t>(i);
      if (store.owner(key) == store.rank()) must(store.put(key, static_cast<std::uint64_t>(i)));
    }
    const Version version = must(store.tag());
    for (const Merge how : {Merge::recursive_doubling, Merge::naive}) {
      const auto all = must(store.extract_snapshot(version, how));
      EXPECT_EQ(all.total(), oracle.size());
      auto it = oracle.begin();
      all.for_each([&](std::uint64_t key, std::uint64_t value) {
        EXPECT_EQ(key, it->first);
        EXPECT_EQ(value, it->second);
        ++it;
      });
      EXPECT_EQ(it, store.rank() == 0 ? oracle.end() : oracle.begin());
    }
  }
}

TEST(DistributedStore, EveryKeyHasOneOwner) {
  const SharedDirectory directory;
  for (const Partition partition : {Partition::hash, Partition::range}) {
    auto store = must(BytesStore::open(MPI_COMM_WORLD,
                                       directory.store(partition == Partition::hash ? "h" : "r"),
                                       {.partition = partition}));
    std::string owners;
    for (std::uint64_t n = 0; n < 200; ++n) {
      const int owner = store.owner(Strings::key(n));
      EXPECT_TRUE(owner >= 0 && owner < store.ranks());
      owners += std::to_string(owner) + " ";
    }
    expect_same_everywhere(std::hash<std::string>()(owners));
    EXPECT_EQ(store.owner(std::string(9, '\xFF')), partition == Partition::range
                                                       ? store.ranks() - 1
                                                       : store.owner(std::string(9, '\xFF')));
  }
}

TEST(DistributedStore, VersionsThatAreNotThereAreRefusedByAll) {
  const SharedDirectory directory;
  auto store = must(IntegerStore::open(MPI_COMM_WORLD, directory.store()));
  EXPECT_EQ(store.get(1, 1).error(), StatusCode::invalid_argument);
  EXPECT_EQ(store.extract_snapshot(1).error(), StatusCode::invalid_argument);
  EXPECT_EQ(store.rollback(1), StatusCode::invalid_argument);
  EXPECT_EQ(store.trim(1), StatusCode::invalid_argument);
  EXPECT_EQ(must(store.tag()), 1U);
  EXPECT_EQ(must(store.get(1, 1)), std::nullopt);
  must(store.trim(1));
  EXPECT_EQ(store.get(1, 0).error(), StatusCode::invalid_argument);
  must(store.close());
  EXPECT_EQ(store.tag().error(), StatusCode::invalid_argument);
}

// --- directories that do not fit; afterwards everything is as it was ---

class Refused : public testing::Test {
 protected:
  void SetUp() override {
    write(path_, {});
    write(other_, {});
  }
  static void write(const std::string& path, const Options& options) {
    auto store = must(IntegerStore::open(MPI_COMM_WORLD, path, options));
    for (std::uint64_t key = 0; key < 100; ++key) {
      if (store.owner(key) == store.rank()) must(store.put(key, key + 1));
    }
    must(store.tag());
    must(store.close());
  }
  static void expect_whole(const std::string& path) {
    auto store =
        must(IntegerStore::open(MPI_COMM_WORLD, path, {.pool = {.mode = OpenMode::existing}}));
    EXPECT_EQ(store.versions().last, 1U);
    const auto all = must(store.extract_snapshot(1));
    EXPECT_EQ(all.total(), 100U);
    must(store.close());
  }
  static std::uint64_t own_key(const IntegerStore& store) {
    std::uint64_t key = 0;
    while (store.owner(key) != store.rank()) ++key;
    return key;
  }
  static void swap_files(const std::string& a, const std::string& b) {
    barrier();
    if (world_rank() == 0) {
      std::filesystem::rename(a, a + ".aside");
      std::filesystem::rename(b, a);
      std::filesystem::rename(a + ".aside", b);
    }
    barrier();
  }

  SharedDirectory directory_;
  std::string path_ = directory_.store();
  std::string other_ = directory_.store("other");
  int last_ = world_size() - 1;
};

TEST_F(Refused, AnotherPartitionOrKind) {
  expect_refused(IntegerStore::open(MPI_COMM_WORLD, path_, {.partition = Partition::range}),
                 StatusCode::invalid_argument);
  expect_refused(BytesStore::open(MPI_COMM_WORLD, path_), StatusCode::invalid_argument);
  expect_whole(path_);
}

TEST_F(Refused, DifferentOptions) {
  if (last_ == 0) return;
  Options options;
  if (world_rank() == last_) options.partition = Partition::range;
  expect_refused(IntegerStore::open(MPI_COMM_WORLD, path_, options), StatusCode::invalid_argument);
  options = {.max_message = 64U + static_cast<std::uint64_t>(world_rank())};
  expect_refused(IntegerStore::open(MPI_COMM_WORLD, path_, options), StatusCode::invalid_argument);
  expect_whole(path_);
}

// This program has no MPI_THREAD_MULTIPLE.
TEST_F(Refused, RoutedCallsWithoutThreadsInMpi) {
  const auto store = IntegerStore::open(MPI_COMM_WORLD, path_, {.route = true});
  expect_refused(store, StatusCode::invalid_argument);
  EXPECT_NE(store.error().message().find("MPI_Init_thread"), std::string_view::npos);
  expect_whole(path_);
}

TEST_F(Refused, AMissingDirectoryThatIsNotToBeMade) {
  expect_refused(IntegerStore::open(MPI_COMM_WORLD, directory_.store("absent"),
                                    {.pool = {.mode = OpenMode::existing}}),
                 StatusCode::not_found);
  EXPECT_FALSE(std::filesystem::exists(directory_.store("absent")));
}

TEST_F(Refused, AMissingPool) {
  if (last_ == 0) return;
  const std::string pool = SharedDirectory::pool(path_, last_);
  barrier();
  if (world_rank() == 0) std::filesystem::rename(pool, pool + ".aside");
  barrier();
  expect_refused(IntegerStore::open(MPI_COMM_WORLD, path_), StatusCode::not_found);
  EXPECT_FALSE(std::filesystem::exists(pool));
  barrier();
  if (world_rank() == 0) std::filesystem::rename(pool + ".aside", pool);
  barrier();
  expect_whole(path_);
}

TEST_F(Refused, PoolsThatHaveChangedPlaces) {
  if (last_ == 0) return;
  const std::string a = SharedDirectory::pool(path_, 0), b = SharedDirectory::pool(path_, last_);
  swap_files(a, b);
  expect_refused(IntegerStore::open(MPI_COMM_WORLD, path_), StatusCode::invalid_argument);
  swap_files(a, b);
  expect_whole(path_);
}

TEST_F(Refused, APoolOfAnotherRun) {
  if (last_ == 0) return;
  const std::string a = SharedDirectory::pool(path_, last_);
  const std::string b = SharedDirectory::pool(other_, last_);
  swap_files(a, b);
  expect_refused(IntegerStore::open(MPI_COMM_WORLD, path_), StatusCode::invalid_argument);
  swap_files(a, b);
  expect_whole(path_);
  expect_whole(other_);
}

// Of one rank. The others go back to what it has, if it has some of their versions.
class OlderPool : public Refused {
 protected:
  // All ranks but the last have the pools of after work(store), the last one that of before.
  template <class F>
  void make_older(F&& work) {
    const std::string pool = SharedDirectory::pool(path_, last_);
    if (world_rank() == last_) std::filesystem::copy_file(pool, other_ + "/older");
    auto store = must(IntegerStore::open(MPI_COMM_WORLD, path_));
    must(store.tag());
    work(store);
    must(store.close());
    swap_files(pool, other_ + "/older");
  }
  void expect_refused_by_its_age() {
    auto store = IntegerStore::open(MPI_COMM_WORLD, path_);
    ASSERT_FALSE(store);
    const std::string message(store.error().message());
    EXPECT_EQ(store.error(), StatusCode::corruption) << message;
    expect_same_everywhere(store.error());
    for (const int rank : {0, last_}) {
      EXPECT_NE(message.find(SharedDirectory::pool("", rank).substr(1)), std::string::npos)
          << message;
    }
    // What the message says to do.
    swap_files(SharedDirectory::pool(path_, last_), other_ + "/older");
    must(IntegerStore::open(MPI_COMM_WORLD, path_));
  }
};

TEST_F(OlderPool, WithoutTheLastVersion) {
  if (last_ == 0) return;
  make_older([](IntegerStore& store) { must(store.put(own_key(store), 7)); });
  std::string said;
  Options options;
  options.pool.log_context = &said;
  options.pool.log = [](void* context, LogLevel level, std::string_view message) {
    if (level == LogLevel::warning) *static_cast<std::string*>(context) += message;
  };
  auto store = must(IntegerStore::open(MPI_COMM_WORLD, path_, options));
  EXPECT_EQ(store.versions().last, 1U);
  EXPECT_EQ(must(store.extract_snapshot(1)).total(), 100U);
  const std::string expected =
      "above 1 are taken back: " + SharedDirectory::pool("", last_).substr(1);
  EXPECT_EQ(said.find(expected) != std::string::npos, store.rank() != last_) << said;
  const bool newer = store.rank() != last_;
  EXPECT_EQ(must(store.get_own(own_key(store))) == 7U, newer);
}

TEST_F(OlderPool, WithoutAVersionInCommon) {
  if (last_ == 0) return;
  make_older([](IntegerStore& store) { must(store.trim(2)); });
  expect_refused_by_its_age();
}

// It has version 1, and so have the others: another one.
TEST_F(OlderPool, WithoutARollback) {
  if (last_ == 0) return;
  make_older([](IntegerStore& store) {
    must(store.rollback(0));
    must(store.tag());
  });
  expect_refused_by_its_age();
}

TEST_F(Refused, AFileThatIsAnotherProgrammes) {
  const std::string path = directory_.store("foreign");
  if (world_rank() == last_) {
    std::filesystem::create_directories(path);
    auto pool = must(Pool::open(SharedDirectory::pool(path, last_)));
    auto users = must(pool.map<std::uint64_t, std::uint64_t>("users"));
    must(users.insert(1, 2));
    must(pool.close());
  }
  barrier();
  expect_refused(IntegerStore::open(MPI_COMM_WORLD, path), StatusCode::invalid_argument);
  if (world_rank() != last_) return;
  auto pool = must(Pool::open(SharedDirectory::pool(path, last_)));
  auto users = must(pool.map<std::uint64_t, std::uint64_t>("users"));
  EXPECT_EQ(must(users.get(1)), 2U);
}

// --- merges ---

TEST(Merge, TwoRunsByAnyNumberOfThreads) {
  std::mt19937_64 random(8);
  for (const std::uint64_t n : {0, 1, 5, 9000, 40'000}) {
    for (const std::uint64_t m : {0, 1, 4096, 30'000}) {
      std::vector<std::uint64_t> all(n + m);
      std::iota(all.begin(), all.end(), std::uint64_t{0});
      std::shuffle(all.begin(), all.end(), random);
      const auto middle = all.begin() + static_cast<std::ptrdiff_t>(n);
      std::sort(all.begin(), middle);
      std::sort(middle, all.end());
      for (const std::uint64_t threads : {1, 2, 3, 8}) {
        std::vector<std::uint64_t> out(n + m);
        const std::span<const std::uint64_t> runs(all);
        detail::merge_two(runs.first(n), runs.subspan(n), out.data(), threads, std::less<>());
        for (std::uint64_t i = 0; i < n + m; ++i) ASSERT_EQ(out[i], i);
      }
    }
  }
}

TEST(Merge, ManyRuns) {
  std::mt19937_64 random(9);
  for (const std::uint64_t count : {0, 1, 2, 3, 8, 13}) {
    std::vector<std::vector<std::uint64_t>> runs(count);
    for (std::uint64_t i = 0; i < 1000 && count > 0; ++i) runs[random() % count].push_back(i);
    std::vector<detail::RunCursor<std::uint64_t>> cursors;
    for (const auto& run : runs) cursors.push_back({run.data(), run.data() + run.size()});
    std::vector<std::uint64_t> out(count > 0 ? 1000 : 0);
    detail::merge_many(std::span(cursors), out.data(), std::less<>());
    EXPECT_TRUE(std::is_sorted(out.begin(), out.end()));
    for (std::uint64_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], i);
  }
}

}  // namespace
}  // namespace perdure::mpi::test
