// test: ranks 7
// A store that is opened by other numbers of ranks than created it.
#include <algorithm>
#include <fstream>

#include "tests/mpi/model.h"

namespace perdure::mpi::test {
namespace {

// The first `count` ranks of the world, or the last ones in reverse order: then every pool goes to
// another process.
class Ranks {
 public:
  explicit Ranks(int count, bool reversed = false) {
    const int rank = reversed ? world_size() - 1 - world_rank() : world_rank();
    MPI_Comm_split(MPI_COMM_WORLD, rank < count ? 0 : MPI_UNDEFINED, rank, &comm_);
  }
  ~Ranks() {
    if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  MPI_Comm comm() const { return comm_; }
  bool in() const { return comm_ != MPI_COMM_NULL; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

// --- what the others have written is there, and everything works ---

template <class Kind>
void expect_the_same(const Options& options, std::uint64_t seed, const std::vector<int>& numbers) {
  SCOPED_TRACE(seed);
  const SharedDirectory directory;
  Compared<Kind> run(options, seed);
  bool reversed = false;
  for (const int number : numbers) {
    SCOPED_TRACE(number);
    const Ranks ranks(number, reversed);
    reversed = !reversed;
    run.open(ranks.comm(), directory.store());
    if (run.store() != nullptr) {
      EXPECT_EQ(run.store()->pools(), static_cast<std::uint64_t>(numbers[0]));
    }
    run.check();
    for (int i = 0; i < 12; ++i) run.step();
    run.check();
    run.close();
  }
}

TEST(AnotherNumber, OfIntegersByHash) { expect_the_same<Integers>({}, 1, {4, 1, 7, 2, 3, 4}); }
TEST(AnotherNumber, OfIntegersByRange) {
  expect_the_same<Integers>({.partition = Partition::range}, 2, {4, 2, 1, 3, 7, 4});
}
TEST(AnotherNumber, OfStringsByHash) {
  expect_the_same<Strings>({.max_message = 1000}, 3, {3, 4, 1, 2, 3});
}
TEST(AnotherNumber, OfStringsByRange) {
  expect_the_same<Strings>({.partition = Partition::range, .max_message = 64}, 4, {4, 3, 7, 1, 4});
}
TEST(AnotherNumber, OfOnePool) { expect_the_same<Integers>({}, 5, {1, 3, 1}); }

// Every pool has several pieces and some a value that is larger than a piece.
TEST(AnotherNumber, ReadsInPieces) {
  const SharedDirectory directory;
  for (const Partition partition : {Partition::hash, Partition::range}) {
    const std::string path = directory.store(partition == Partition::hash ? "h" : "r");
    State<Strings> state;
    for (std::uint64_t n = 1; n < 2000; ++n) {
      const std::string key = Strings::key(n * 0x9E3779B97F4A7C15) + "/" + std::to_string(n);
      state[key] = std::string(n % 600 == 0 ? 200'000 : n % 300, 'v');
    }
    for (const int number : {4, 2}) {
      const Ranks ranks(number);
      if (!ranks.in()) {
        barrier();
        continue;
      }
      auto store = must(BytesStore::open(ranks.comm(), path, {.partition = partition}));
      for (const auto& [key, value] : state) {
        if (number == 4 && store.owner(key) == store.rank()) must(store.put(key, value));
      }
      const Version version = must(store.tag());
      for (const bool reverse : {false, true}) {
        std::vector<std::pair<std::string, std::string>> got, differs, expected;
        expected.assign(state.begin(), state.end());
        if (reverse) std::reverse(expected.begin(), expected.end());
        const int root = number - 1;
        must(store.scan_at(
            version, {.reverse = reverse},
            [&](auto key, auto value) { got.emplace_back(key, value); }, root));
        must(store.diff(
            0, version, {.reverse = reverse},
            [&](auto key, const auto&, const auto& after) {
              differs.emplace_back(key, after.value_or("removed"));
            },
            root));
        if (store.rank() != root) expected.clear();
        EXPECT_TRUE(got == expected) << got.size();
        EXPECT_TRUE(differs == expected) << differs.size();
      }
      must(store.close());
      barrier();
    }
  }
}

// More ranks than pools.
TEST(AnotherNumber, LeavesRanksWithoutPools) {
  const SharedDirectory directory;
  {
    const Ranks ranks(2);
    if (ranks.in()) must(must(IntegerStore::open(ranks.comm(), directory.store())).close());
    barrier();
  }
  auto store = must(IntegerStore::open(MPI_COMM_WORLD, directory.store()));
  std::vector<bool> owns(static_cast<std::size_t>(store.ranks()));
  for (std::uint64_t key = 0; key < 100; ++key) {
    const int owner = store.owner(key);
    ASSERT_TRUE(owner >= 0 && owner < store.ranks());
    owns[static_cast<std::size_t>(owner)] = true;
    const Status put = status_of(store.put(key, key));
    EXPECT_EQ(put, owner == store.rank() ? StatusCode::ok : StatusCode::invalid_argument);
  }
  EXPECT_EQ(std::count(owns.begin(), owns.end(), true), 2);
  EXPECT_EQ(must(store.tag()), 1U);
  for (const int root : {-1, store.ranks()}) {
    EXPECT_EQ(status_of(store.get(1, 1, root)), StatusCode::invalid_argument);
    EXPECT_EQ(status_of(store.extract_snapshot(1, {}, root)), StatusCode::invalid_argument);
  }
  EXPECT_FALSE(std::filesystem::exists(SharedDirectory::pool(directory.store(), 2)));
}

// --- ranks that do not share a file system: each has a directory of its own ---

template <class Kind>
void expect_the_same_apart(const Options& options, std::uint64_t seed) {
  const SharedDirectory directory;
  const auto machine = [&](int number) {
    return directory.store(("machine-" + std::to_string(number)).c_str());
  };
  Compared<Kind> run(options, seed);
  const auto open = [&](int number) {
    const Ranks ranks(number);
    run.open(ranks.comm(), machine(world_rank()));
    run.check();
    for (int i = 0; i < 8; ++i) run.step();
    run.check();
    run.close();
  };
  const auto move = [&](int pool, int from, int to) {
    if (world_rank() == 0) {
      std::filesystem::create_directories(machine(to));
      std::filesystem::rename(SharedDirectory::pool(machine(from), pool),
                              SharedDirectory::pool(machine(to), pool));
    }
    barrier();
  };
  open(4);
  // Not in the order of the keys.
  move(2, 2, 0);
  move(3, 3, 1);
  move(1, 1, 0);
  open(2);
  move(0, 0, 5);
  move(2, 0, 6);
  open(7);
  // The others refuse to go on.
  const Ranks two(2);
  if (two.in()) {
    auto store = Kind::Store::open(two.comm(), machine(world_rank()), options);
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error(), StatusCode::not_found);
    EXPECT_NE(store.error().message().find("rank-00000.perdure"), std::string_view::npos);
  }
  barrier();
}

TEST(FileSystemsThatAreNotShared, HaveIntegersByRange) {
  expect_the_same_apart<Integers>({.partition = Partition::range}, 6);
}
TEST(FileSystemsThatAreNotShared, HaveStringsByHash) { expect_the_same_apart<Strings>({}, 7); }

// --- directories that do not fit; afterwards everything is as it was ---

class RefusedByAnotherNumber : public testing::Test {
 protected:
  void SetUp() override {
    for (const std::string& path : {path_, other_}) {
      const Ranks ranks(4);
      if (ranks.in()) {
        auto store = must(IntegerStore::open(ranks.comm(), path));
        for (std::uint64_t key = 0; key < 100; ++key) {
          if (store.owner(key) == store.rank()) must(store.put(key, key + 1));
        }
        must(store.tag());
        must(store.close());
      }
      barrier();
    }
  }
  // By fewer ranks than pools, and by more.
  void expect_refused(StatusCode code, std::string_view named, const Options& options = {}) {
    for (const int number : {1, 3, 7}) {
      const Ranks ranks(number);
      if (ranks.in()) {
        const auto store = IntegerStore::open(ranks.comm(), path_, options);
        ASSERT_FALSE(store);
        EXPECT_EQ(store.error(), code) << store.error().message();
        EXPECT_NE(store.error().message().find(named), std::string_view::npos)
            << store.error().message();
      }
      barrier();
    }
  }
  void expect_whole(const std::string& path) {
    for (const int number : {2, 4}) {
      const Ranks ranks(number);
      if (ranks.in()) {
        auto store = must(IntegerStore::open(ranks.comm(), path));
        EXPECT_EQ(store.versions().last, 1U);
        EXPECT_EQ(store.pools(), 4U);
        EXPECT_EQ(must(store.extract_snapshot(1)).total(), 100U);
        must(store.close());
      }
      barrier();
    }
  }
  static void move(const std::string& from, const std::string& to) {
    barrier();
    if (world_rank() == 0) std::filesystem::rename(from, to);
    barrier();
  }
  static void swap(const std::string& a, const std::string& b) {
    move(a, a + ".aside");
    move(b, a);
    move(a + ".aside", b);
  }
  std::string pool(int number) const { return SharedDirectory::pool(path_, number); }

  SharedDirectory directory_;
  std::string path_ = directory_.store();
  std::string other_ = directory_.store("other");
};

TEST_F(RefusedByAnotherNumber, AMissingPool) {
  for (const int number : {0, 2, 3}) {
    move(pool(number), pool(number) + ".aside");
    expect_refused(StatusCode::not_found, SharedDirectory::pool("", number));
    EXPECT_FALSE(std::filesystem::exists(pool(number)));
    move(pool(number) + ".aside", pool(number));
    expect_whole(path_);
  }
}
TEST_F(RefusedByAnotherNumber, PoolsThatHaveChangedPlaces) {
  swap(pool(1), pool(3));
  expect_refused(StatusCode::invalid_argument, "rank-0000");
  swap(pool(1), pool(3));
  expect_whole(path_);
}
TEST_F(RefusedByAnotherNumber, APoolOfAnotherRun) {
  swap(pool(3), SharedDirectory::pool(other_, 3));
  expect_refused(StatusCode::invalid_argument, "run of the other pools");
  swap(pool(3), SharedDirectory::pool(other_, 3));
  expect_whole(path_);
  expect_whole(other_);
}
TEST_F(RefusedByAnotherNumber, AnotherPartition) {
  expect_refused(StatusCode::invalid_argument, "partition", {.partition = Partition::range});
  expect_whole(path_);
}
TEST_F(RefusedByAnotherNumber, AnOlderCopyWithoutARollback) {
  if (world_rank() == 0) std::filesystem::copy_file(pool(2), other_ + "/older");
  barrier();
  {
    const Ranks ranks(2);
    if (ranks.in()) {
      auto store = must(IntegerStore::open(ranks.comm(), path_));
      must(store.rollback(0));
      must(store.close());
    }
  }
  swap(pool(2), other_ + "/older");
  expect_refused(StatusCode::corruption, "rank-00002.perdure");
}

// --- a run that was killed while it created the directory ---

void make_empty_pool(const std::string& path) { must(must(Pool::open(path)).close()); }

// It has left pools that are empty. A run of fewer ranks creates as many.
TEST(IncompleteDirectory, IsCreatedAnewWithItsPools) {
  const SharedDirectory directory;
  if (world_rank() == 0) {
    std::filesystem::create_directories(directory.store());
    for (const int number : {1, 4})
      make_empty_pool(SharedDirectory::pool(directory.store(), number));
  }
  barrier();
  Compared<Integers> run({}, 8);
  for (const int number : {2, 5, 3}) {
    const Ranks ranks(number);
    run.open(ranks.comm(), directory.store());
    if (run.store() != nullptr) {
      EXPECT_EQ(run.store()->pools(), 5U);
    }
    run.step();
    run.check();
    run.close();
  }
}

// An earlier release created it anew with fewer pools, and left the others. What is in them does
// not count.
TEST(IncompleteDirectory, MayHavePoolsBehindThoseOfTheStore) {
  const SharedDirectory directory;
  for (const int number : {2, 7, 1}) {
    const Ranks ranks(number);
    if (ranks.in()) {
      auto store = must(IntegerStore::open(ranks.comm(), directory.store()));
      EXPECT_EQ(store.pools(), 2U);
      must(store.tag());
      must(store.close());
    }
    barrier();
    if (number == 2 && world_rank() == 0) {
      make_empty_pool(SharedDirectory::pool(directory.store(), 3));
      std::ofstream(SharedDirectory::pool(directory.store(), 4)) << "no pool";
    }
    barrier();
  }
}

TEST(IncompleteDirectory, MayHaveTheFileOfAnotherProgramme) {
  const SharedDirectory directory;
  const std::string path = SharedDirectory::pool(directory.store(), 5);
  if (world_rank() == 0) {
    std::filesystem::create_directories(directory.store());
    auto pool = must(Pool::open(path));
    auto users = must(pool.map<std::uint64_t, std::uint64_t>("users"));
    must(users.insert(1, 2));
    must(pool.close());
  }
  barrier();
  const Ranks ranks(2);
  if (ranks.in()) {
    EXPECT_EQ(status_of(IntegerStore::open(ranks.comm(), directory.store())),
              StatusCode::invalid_argument);
  }
  barrier();
  EXPECT_FALSE(std::filesystem::exists(SharedDirectory::pool(directory.store(), 0)));
}

}  // namespace
}  // namespace perdure::mpi::test
