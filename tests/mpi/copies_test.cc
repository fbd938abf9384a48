// test: ranks 1 3 4
// A store whose pools have copies: a lost pool is made from its copy, a lost copy from its pool,
// and an older file of either is told from the one that the store has.
#include <algorithm>

#include "tests/mpi/model.h"

namespace {
int ranks_of_machine = 0;  // 0: as it is
}  // namespace

// MPI's profiling interface: this function replaces the library's.
extern "C" int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* out) {
  if (ranks_of_machine == 0) return PMPI_Comm_split_type(comm, type, key, info, out);
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return MPI_Comm_split(comm, rank / ranks_of_machine, key, out);
}

namespace perdure::mpi::test {
namespace {

namespace fs = std::filesystem;

// A pool's file and what lies beside it.
std::vector<fs::path> files_of(const fs::path& pool) {
  std::vector<fs::path> files;
  for (const auto& file : fs::directory_iterator(pool.parent_path())) {
    if (file.path().string().starts_with(pool.string())) files.push_back(file.path());
  }
  return files;
}
void remove(const fs::path& pool) {
  for (const fs::path& file : files_of(pool)) fs::remove_all(file);
}
void move(const fs::path& pool, const fs::path& folder) {
  fs::create_directories(folder);
  for (const fs::path& file : files_of(pool)) fs::rename(file, folder / file.filename());
}
// Of rank 0, while the others wait.
template <class F>
void alone(F&& f) {
  barrier();
  if (world_rank() == 0) f();
  barrier();
}

// A store with copies and some versions.
template <class Kind>
class Copied : public Compared<Kind> {
 public:
  Copied(std::uint64_t seed, Options options = {})
      : Compared<Kind>(with_copies(options), seed), path_(directory_.store()) {
    open();
    run();
  }
  void open() { Compared<Kind>::open(MPI_COMM_WORLD, path_); }
  // The writes of the open version would be lost with a pool.
  void run() {
    for (int i = 0; i < 10; ++i) this->step();
    this->tag();
  }
  // What an open returns, which must not change anything.
  Status refused() {
    auto store = Kind::Store::open(MPI_COMM_WORLD, path_, this->options());
    return store ? Status() : std::move(store.error());
  }
  void restore() {
    this->options().restore_lost = true;
    open();
    this->options().restore_lost = false;
  }
  const std::string& folder() const { return path_; }
  std::string shelf() const { return path_ + "-aside"; }
  std::string pool(int number) const { return SharedDirectory::pool(path_, number); }
  std::string copy(int number) const { return SharedDirectory::copy(path_, number); }

 private:
  static Options with_copies(Options options) {
    options.copies = true;
    return options;
  }

  SharedDirectory directory_;
  std::string path_;
};

template <class Kind>
void expect_restored(std::uint64_t seed, Options options) {
  Copied<Kind> store(seed, options);
  for (int lost = 0; lost < world_size(); ++lost) {
    SCOPED_TRACE(lost);
    store.close();
    alone([&] { remove(store.pool(lost)); });
    const Status refused = store.refused();
    EXPECT_EQ(refused.code(), StatusCode::not_found) << refused.message();
    EXPECT_NE(refused.message().find("restore_lost"), std::string_view::npos) << refused.message();
    store.restore();
    store.check();
    store.run();
    store.check();
  }
}

TEST(LostPool, OfIntegers) { expect_restored<Integers>(1, {}); }
TEST(LostPool, OfIntegersByRange) {
  expect_restored<Integers>(2, {.partition = Partition::range, .max_message = 64});
}
TEST(LostPool, OfStrings) { expect_restored<Strings>(3, {}); }

TEST(LostPool, AllOfThem) {
  Copied<Integers> store(4);
  store.close();
  alone([&] {
    for (int i = 0; i < world_size(); ++i) remove(store.pool(i));
  });
  EXPECT_EQ(store.refused().code(), StatusCode::not_found);
  store.restore();
  store.check();
}

// The next version has what the lost pool had when it was lost.
TEST(LostPool, WritesAfterTheLastVersionAreLost) {
  const SharedDirectory directory;
  Options options{.copies = true};
  const auto open = [&] {
    return must(IntegerStore::open(MPI_COMM_WORLD, directory.store(), options));
  };
  const auto put = [](IntegerStore& store, std::uint64_t value) {
    for (std::uint64_t i = 0; i < 100; ++i) {
      if (store.owner(Integers::key(i)) == store.rank()) must(store.put(Integers::key(i), value));
    }
  };
  {
    auto store = open();
    put(store, 1);
    must(store.tag());
    put(store, 2);
    must(store.close());
  }
  alone([&] { remove(SharedDirectory::pool(directory.store(), 0)); });
  options.restore_lost = true;
  auto store = open();
  for (std::uint64_t i = 0; i < 100; ++i) {
    const std::uint64_t key = Integers::key(i);
    if (store.owner(key) != store.rank()) continue;
    EXPECT_EQ(must(store.get_own(key)), store.rank() == 0 ? 1 : 2);
  }
  EXPECT_EQ(must(store.tag()), 2U);
}

TEST(LostCopy, IsMadeAgain) {
  Copied<Strings> store(5);
  const int last = world_size() - 1;
  store.close();
  alone([&] { remove(store.copy(last)); });
  store.open();
  store.check();
  store.run();
  store.close();
  alone([&] { remove(store.pool(last)); });
  store.restore();
  store.check();
}

// --- a disk comes back with what it had when it was lost ---

TEST(OlderFile, IsRefusedAsAPool) {
  Copied<Integers> store(6);
  store.close();
  alone([&] { move(store.pool(0), store.shelf()); });
  store.restore();
  store.check();
  store.close();
  alone([&] {
    move(store.pool(0), store.shelf() + "/new");
    move(store.shelf() + "/rank-00000.perdure", store.folder());
  });
  const Status refused = store.refused();
  EXPECT_EQ(refused.code(), StatusCode::corruption) << refused.message();
  EXPECT_NE(refused.message().find("older"), std::string_view::npos) << refused.message();
  alone([&] {
    remove(store.pool(0));
    move(store.shelf() + "/new/rank-00000.perdure", store.folder());
  });
  store.open();
  store.check();
}

TEST(OlderFile, IsFilledAnewAsACopy) {
  Copied<Integers> store(7);
  store.close();
  alone([&] { move(store.copy(0), store.shelf()); });
  store.open();
  store.run();
  store.close();
  alone([&] {
    remove(store.copy(0));
    move(store.shelf() + "/copy-00000.perdure", store.folder());
  });
  store.open();
  store.check();
  store.close();
  alone([&] { remove(store.pool(0)); });
  store.restore();
  store.check();
}

// What a kill leaves of a file: it has recorded a rollback that the others have not. `members`: one
// that removes nothing.
void record_rollback(const fs::path& pool, bool members) {
  constexpr std::uint64_t kRollback = 8, kRollbackVersion = 9, kRollbackBefore = 11;
  auto opened = must(Pool::open(pool.string(), {.mode = OpenMode::existing}));
  auto fields = must(opened.map<std::uint64_t, std::uint64_t>("mpi.manifest"));
  const std::uint64_t finished = must(fields.get(kRollback)).value_or(0) / 2;
  must(fields.put(kRollbackBefore, finished));
  must(fields.put(kRollbackVersion, members ? ~std::uint64_t{0} - 1 : 1));
  must(fields.put(kRollback, 2 * (finished + 1000) + 1));
  must(opened.close());
}

// It would roll all back, or take versions back, if it had part in the store again.
TEST(OlderFile, WithARollbackThatTheOthersHaveNot) {
  for (const bool members : {false, true}) {
    for (const bool is_pool : {true, false}) {
      SCOPED_TRACE(members);
      SCOPED_TRACE(is_pool);
      Copied<Integers> store(20);
      store.close();
      const std::string file = is_pool ? store.pool(0) : store.copy(0);
      alone([&] {
        record_rollback(file, members);
        move(file, store.shelf());
      });
      store.restore();
      store.run();
      store.close();
      alone([&] {
        move(file, store.shelf() + "/new");
        move(store.shelf() + "/" + fs::path(file).filename().string(), store.folder());
      });
      const Status refused = store.refused();
      EXPECT_EQ(refused, is_pool ? StatusCode::corruption : StatusCode::ok) << refused.message();
      if (is_pool) {
        alone([&] {
          remove(file);
          move(store.shelf() + "/new/" + fs::path(file).filename().string(), store.folder());
        });
      }
      store.open();
      store.check();
    }
  }
}

// From a backup, with versions that the store has, too.
TEST(OlderFile, FromABackup) {
  for (const bool is_pool : {true, false}) {
    SCOPED_TRACE(is_pool);
    Copied<Integers> store(21);
    store.close();
    const std::string file = is_pool ? store.pool(0) : store.copy(0);
    alone([&] {
      fs::create_directories(store.shelf());
      fs::copy(file, store.shelf() + "/backup");
    });
    store.open();
    store.tag();
    store.tag();
    store.close();
    alone([&] {
      remove(file);
      fs::rename(store.shelf() + "/backup", file);
    });
    if (is_pool) {
      const Status refused = store.refused();
      EXPECT_EQ(refused, StatusCode::corruption) << refused.message();
      EXPECT_NE(refused.message().find("restore_lost"), std::string_view::npos);
      alone([&] { remove(file); });
      store.restore();
    } else {
      store.open();
    }
    store.check();
    store.run();
    store.check();
  }
}

// All pools are, so only their copies tell.
TEST(OlderFile, EachPool) {
  Copied<Integers> store(22);
  store.close();
  const auto each_pool = [&](auto&& step) {
    alone([&] {
      for (int i = 0; i < world_size(); ++i) step(store.pool(i));
    });
  };
  each_pool([&](const std::string& pool) { move(pool, store.shelf()); });
  store.restore();
  store.run();
  store.close();
  each_pool([&](const std::string& pool) {
    move(pool, store.shelf() + "/new");
    move(store.shelf() + "/" + fs::path(pool).filename().string(), store.folder());
  });
  EXPECT_EQ(store.refused(), StatusCode::corruption);
  each_pool([&](const std::string& pool) { remove(pool); });
  store.restore();
  store.check();
}

// It is not taken for the pool.
TEST(OlderFile, IsNoCopyOfALostPool) {
  if (world_size() == 1) GTEST_SKIP() << "the only copy is the newest";
  Copied<Integers> store(8);
  store.close();
  alone([&] { move(store.copy(0), store.shelf()); });
  store.open();
  store.close();
  alone([&] {
    remove(store.copy(0));
    move(store.pool(0), store.shelf() + "/new");
    move(store.shelf() + "/copy-00000.perdure", store.folder());
  });
  store.options().restore_lost = true;
  const Status refused = store.refused();
  EXPECT_EQ(refused.code(), StatusCode::not_found) << refused.message();
  EXPECT_NE(refused.message().find("copy-00000.perdure"), std::string_view::npos);
  store.options().restore_lost = false;
  alone([&] { move(store.shelf() + "/new/rank-00000.perdure", store.folder()); });
  store.open();
  store.check();
}

// Its message says what to do, and that works.
TEST(LostPool, CannotBeRead) {
  if (world_size() == 1) return;  // no other pool says that there are copies
  Copied<Integers> store(26);
  store.close();
  alone([&] { fs::resize_file(store.pool(0), 100); });
  const Status refused = store.refused();
  EXPECT_FALSE(refused.ok());
  EXPECT_NE(refused.message().find("restore_lost"), std::string_view::npos) << refused.message();
  alone([&] { remove(store.pool(0)); });
  store.restore();
  store.check();
}

// A pool and its copy are away, and the others have recorded a rollback: the open that refuses must
// not carry it out.
TEST(LostPool, WithItsCopy) {
  if (world_size() == 1) return;
  Copied<Integers> store(23);
  store.close();
  alone([&] {
    for (int i = 1; i < world_size(); ++i) record_rollback(store.pool(i), false);
    move(store.pool(0), store.shelf());
    move(store.copy(0), store.shelf());
  });
  store.options().restore_lost = true;
  EXPECT_EQ(store.refused(), StatusCode::not_found);
  store.options().restore_lost = false;
  alone([&] {
    move(store.shelf() + "/rank-00000.perdure", store.folder());
    move(store.shelf() + "/copy-00000.perdure", store.folder());
  });
  store.open();
  store.check();
}

// --- a store begins and ends to keep copies ---

// A run was killed when it had said so in one pool.
TEST(Copies, BegunInOnePool) {
  Copied<Integers> store(24);
  store.close();
  alone([&] {
    for (int i = 1; i < world_size(); ++i) {
      auto pool = must(Pool::open(store.pool(i), {.mode = OpenMode::existing}));
      auto fields = must(pool.map<std::uint64_t, std::uint64_t>("mpi.manifest"));
      must(fields.put(10, 0));
      must(pool.close());
    }
  });
  store.options().copies.reset();
  store.open();
  store.run();
  store.close();
  alone([&] { remove(store.pool(0)); });
  store.restore();
  store.check();
}

// An empty directory became a store of its own while the others were away.
TEST(Copies, OfAnotherStoreAreKept) {
  Copied<Integers> store(25);
  store.close();
  alone([&] {
    for (int i = 0; i < world_size(); ++i) {
      move(store.pool(i), store.shelf());
      move(store.copy(i), store.shelf());
    }
  });
  Options options;
  {
    auto other = must(IntegerStore::open(MPI_COMM_WORLD, store.folder(), options));
    must(other.close());
  }
  alone([&] { move(store.shelf() + "/copy-00000.perdure", store.folder()); });
  EXPECT_EQ(store.refused(), StatusCode::invalid_argument);
  alone([&] {
    for (int i = 0; i < world_size(); ++i) {
      remove(store.pool(i));
      move(store.shelf() + "/copy-0000" + std::to_string(i) + ".perdure", store.folder());
    }
  });
  store.restore();
  store.check();
}

TEST(Copies, AreMadeAndGivenUp) {
  Copied<Strings> store(9);
  store.close();
  store.options().copies = false;
  store.open();
  store.run();
  store.close();
  store.options().copies.reset();
  if (world_size() != 1) {  // it would be taken for a new store
    alone([&] { move(store.pool(0), store.shelf()); });
    store.options().restore_lost = true;
    EXPECT_EQ(store.refused().code(), StatusCode::not_found);
    store.options().restore_lost = false;
    alone([&] { move(store.shelf() + "/rank-00000.perdure", store.folder()); });
  }
  // What the copies have is of no use any more.
  store.options().copies = true;
  store.open();
  store.check();
  store.run();
  store.close();
  store.options().copies.reset();
  alone([&] { remove(store.pool(0)); });
  store.restore();
  store.check();
}

TEST(Copies, OfAnotherStoreAreRefused) {
  Copied<Integers> store(10), other(11);
  store.close();
  other.close();
  alone([&] {
    move(store.copy(0), store.shelf());
    move(other.copy(0), store.folder());
  });
  const Status refused = store.refused();
  EXPECT_EQ(refused.code(), StatusCode::invalid_argument) << refused.message();
  alone([&] { remove(store.copy(0)); });
  store.open();
  store.check();
}

// --- no rank sees what another one has ---

// Loses the directories of a machine. `places`: of the copies, by rank.
void expect_kept_apart(std::uint64_t seed, const std::vector<int>& lost,
                       const std::vector<int>& places) {
  const SharedDirectory directory;
  Compared<Strings> run({.copies = true}, seed);
  const auto path = [&](int rank) { return directory.store() + std::to_string(rank); };
  const auto run_some = [&] {
    run.check();
    for (int i = 0; i < 10; ++i) run.step();
    run.tag();
    run.close();
    for (int rank = 0; rank < world_size(); ++rank) {
      EXPECT_TRUE(fs::exists(SharedDirectory::pool(path(rank), rank))) << rank;
      EXPECT_TRUE(
          fs::exists(SharedDirectory::copy(path(places[static_cast<std::size_t>(rank)]), rank)))
          << rank;
    }
  };
  run.open(MPI_COMM_WORLD, path(world_rank()));
  run_some();
  alone([&] {
    for (const int rank : lost) fs::remove_all(path(rank));
  });
  run.options().restore_lost = true;
  run.open(MPI_COMM_WORLD, path(world_rank()));
  run.options().restore_lost = false;
  run_some();
}

TEST(Copies, LieAtTheNextRank) {
  std::vector<int> places;
  for (int rank = 0; rank < world_size(); ++rank) places.push_back((rank + 1) % world_size());
  expect_kept_apart(12, world_size() == 1 ? std::vector<int>() : std::vector{1}, places);
}
TEST(Copies, LieOnTheNextMachine) {
  if (world_size() < 3) GTEST_SKIP() << "one machine";
  ranks_of_machine = 2;
  expect_kept_apart(13, {0, 1}, world_size() == 3 ? std::vector{2, 2, 0} : std::vector{2, 3, 0, 1});
  ranks_of_machine = 0;
}

// The rank that would serve the lost pool has its copy.
TEST(Copies, StayApartOnFewerRanks) {
  if (world_size() < 3) return;
  const SharedDirectory directory;
  Compared<Integers> run({.copies = true}, 14);
  const auto path = [&](int rank) { return directory.store() + std::to_string(rank); };
  run.open(MPI_COMM_WORLD, path(world_rank()));
  for (int i = 0; i < 10; ++i) run.step();
  run.tag();
  run.close();
  alone([&] { fs::remove_all(path(0)); });
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, world_rank() == 0 ? MPI_UNDEFINED : 0, world_rank(), &comm);
  run.options().restore_lost = true;
  run.open(comm, path(world_rank()));
  run.check();
  run.close();
  EXPECT_TRUE(fs::exists(SharedDirectory::copy(path(1), 0)));
  EXPECT_TRUE(fs::exists(SharedDirectory::pool(path(2), 0)));
  if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
}

}  // namespace
}  // namespace perdure::mpi::test
