// test: injects, ranks 1 3
// Errors of one rank inside the collectives: all ranks return an error, and the state is the one
// that the header documents. The last rank's calls fail: its write-backs (the pool is poisoned),
// its allocations, its space, MPI itself.
#include <algorithm>
#include <array>
#include <optional>

#include "tests/mpi/expect.h"
#include "tests/support/inject.h"

namespace {
bool all_reduce_fails = false;
}  // namespace

// MPI's profiling interface: this function replaces the library's. The reduction is done, and the
// other ranks know its result.
extern "C" int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op,
                             MPI_Comm comm) {
  const int done = PMPI_Allreduce(in, out, count, type, op, comm);
  return all_reduce_fails ? MPI_ERR_OTHER : done;
}

namespace perdure::mpi::test {
namespace {

using perdure::test::Failing;
using perdure::test::Fault;
using perdure::test::Pretence;
using perdure::test::Pretended;
using Words = State<Integers>;

constexpr std::uint64_t kKeys = 15;  // of all ranks
bool is_last() { return world_rank() == world_size() - 1; }
Options options(Durability durability) {
  return {.merge_threads = 1,
          .pool = {.durability = durability,
                   .max_size = 4_MiB,
                   .recovery_threads = 1,
                   .background_threads = 0}};
}
const Options kInMemory = options(Durability::process), kOnDisk = options(Durability::power);
// Cuts happen only where the store waits for one.
Options with_cuts() {
  Options out = options(Durability::buffered);
  out.pool.buffered.interval_ms = 3'600'000;
  return out;
}
const Pretence kDisk = {.file_system = perdure::test::kXfs, .disk = true};

enum class Do : std::uint8_t { tag, roll_back, trim };
// What each rank serves.
enum class Serves : std::uint8_t { pool, two_pools, pool_and_copy };

// A store with versions 0 to 2 and writes after them, and its expected content.
class Session {
 public:
  Session(const SharedDirectory& directory, const Options& options, Serves serves = Serves::pool)
      : path_(directory.store()), options_(options) {
    options_.copies = serves == Serves::pool_and_copy;
    const int pools_of_rank = serves == Serves::two_pools ? 2 : 1;
    // A run that was killed while it created the last pool has left it.
    if (pools_of_rank != 1 && world_rank() == 0) {
      std::filesystem::create_directories(path_);
      const std::string last = SharedDirectory::pool(path_, world_size() * pools_of_rank - 1);
      must(must(Pool::open(last, options.pool)).close());
    }
    barrier();
    open();
    EXPECT_EQ(store_->pools(), static_cast<std::uint64_t>(world_size() * pools_of_rank));
    closed_[0] = {};
    for (std::uint64_t version = 1; version <= 3; ++version) {
      for (std::uint64_t n = version; n <= kKeys; n += version) write(n, 100 * version + n);
      if (version == 3) break;
      EXPECT_EQ(must(store_->tag()), version);
      closed_[version] = open_;
    }
  }

  IntegerStore& store() { return *store_; }
  void open() { store_.emplace(must(IntegerStore::open(MPI_COMM_WORLD, path_, options_))); }
  void reopen() {
    (void)store_->close();
    open_anew();
  }
  void open_anew() {
    store_.reset();
    barrier();  // a rank on which MPI failed does not wait for the others
    open();
  }
  void write(std::uint64_t n, std::uint64_t value) {
    const std::uint64_t key = Integers::key(n);
    open_[key] = value;
    if (store_->owner(key) == store_->rank()) must(store_->put(key, value));
  }
  // Of the keys of rank 0, nothing is written.
  void write_elsewhere(std::uint64_t n, std::uint64_t value) {
    if (store_->owner(Integers::key(n)) != 0) write(n, value);
  }
  void accept_untrusted() { options_.pool.accept_untrusted = true; }
  Status perform(Do what) {
    if (what == Do::tag) return status_of(store_->tag());
    return what == Do::roll_back ? store_->rollback(1) : store_->trim(2);
  }
  void done(Do what) {
    if (what == Do::tag) closed_[closed_.rbegin()->first + 1] = open_;
    if (what == Do::roll_back) {
      closed_.erase(closed_.upper_bound(1), closed_.end());
      open_ = closed_[1];
    }
    if (what == Do::trim) {  // all, or with an error some of the versions to forget
      const Version first = std::min<Version>(store_->versions().first, 2);
      closed_.erase(closed_.begin(), closed_.find(first));
    }
  }
  bool has_versions() const {
    return store_->versions().first == closed_.begin()->first &&
           store_->versions().last == closed_.rbegin()->first;
  }
  // Whether collectives and writes still work. The result must be the same on every rank.
  bool usable() {
    const Status status = status_of(store_->get(1, store_->versions().last));
    expect_same_everywhere(status);
    std::uint64_t n = 1;
    while (store_->owner(Integers::key(n)) != store_->rank()) ++n;
    const Status read = status_of(store_->get_own(Integers::key(n)));
    const Status wrote = status_of(store_->put(Integers::key(n), 1));
    if (status == StatusCode::io) {
      EXPECT_EQ(read, StatusCode::io);
      EXPECT_EQ(wrote, StatusCode::io);
      return false;
    }
    if (wrote.ok()) must(store_->put(Integers::key(n), open_[Integers::key(n)]));
    return true;
  }
  // Reads must return the expected content. A poisoned pool returns errors.
  void expect_versions() {
    EXPECT_TRUE(has_versions()) << store_->versions().first << " to " << store_->versions().last;
    for (const auto& [version, state] : closed_) {
      const auto all = must(store_->extract_snapshot(version));
      EXPECT_EQ(all.total(), state.size()) << version;
      auto it = state.begin();
      all.for_each([&](std::uint64_t key, std::uint64_t value) {
        EXPECT_EQ(std::pair(key, value), std::pair(it->first, it->second)) << version;
        ++it;
      });
    }
    for (const auto& [key, value] : open_) {
      if (store_->owner(key) != store_->rank()) continue;
      EXPECT_EQ(must(store_->get_own(key)), value);
    }
  }
  // All calls succeed, and a tag closes the open version.
  void expect_whole() {
    expect_versions();
    EXPECT_EQ(must(store_->tag()), closed_.rbegin()->first + 1);
    done(Do::tag);
    expect_versions();
  }

 private:
  std::string path_;
  Options options_;
  std::optional<IntegerStore> store_;
  std::map<Version, Words> closed_;
  Words open_;
};

class Injected : public testing::TestWithParam<std::tuple<Do, Serves>> {
 protected:
  static Do what() { return std::get<0>(GetParam()); }

  // Every k-th write-back of the last rank and all later ones fail.
  static void fail_each(const Options& options, Fault write_back, StatusCode code) {
    std::uint64_t k = 1, unusable = 0;
    while (fails(options, write_back, code, k, unusable)) ++k;
    EXPECT_GT(k, 1U);
    // The write in progress at the failure is in doubt.
    EXPECT_GT(unusable, 0U);
  }

 private:
  // Checks the state after that. Returns false if there are fewer.
  static bool fails(const Options& options, Fault write_back, StatusCode code, std::uint64_t k,
                    std::uint64_t& unusable) {
    const Pretended pretended(kDisk);
    const SharedDirectory directory;
    Session session(directory, options, std::get<1>(GetParam()));
    Status status;
    std::uint64_t fired = 0;
    {
      std::optional<Failing> failing;
      if (is_last()) failing.emplace(write_back, k, true);
      status = session.perform(what());
      if (is_last()) fired = perdure::test::faults_fired();
    }
    fired = reduced(fired, MPI_MAX);
    expect_same_everywhere(status);
    if (status.ok()) {
      session.done(what());
      EXPECT_EQ(session.store().versions().first, what() == Do::trim ? 2U : 0U);
      session.expect_whole();
      return fired != 0;
    }
    EXPECT_NE(fired, 0U);
    EXPECT_NE(status.message().find("rank " + std::to_string(world_size() - 1)),
              std::string_view::npos)
        << status.message();
    EXPECT_EQ(status, code) << status.message();
    const bool usable = session.usable();
    if (!usable) ++unusable;
    if (usable) {
      // Nothing has happened. Only a trim may have forgotten the versions.
      if (what() == Do::trim && session.store().versions().first == 2) session.done(Do::trim);
      EXPECT_TRUE(session.has_versions());
    }
    session.reopen();
    if (!session.has_versions()) {
      EXPECT_FALSE(usable) << "it was not done, and is now";
      session.done(what());
    }
    session.expect_whole();
    return true;
  }
};

TEST_P(Injected, APoolThatIsPoisoned) { fail_each(kOnDisk, Fault::msync, StatusCode::poisoned); }
TEST_P(Injected, ALogThatCannotBeWritten) {
  fail_each(with_cuts(), Fault::fdatasync, StatusCode::io);
}
std::string name_of(const testing::TestParamInfo<std::tuple<Do, Serves>>& info) {
  const auto [what, serves] = info.param;
  const std::string name = what == Do::tag ? "Tag" : what == Do::trim ? "Trim" : "Rollback";
  return name + (serves == Serves::pool        ? "OfAPool"
                 : serves == Serves::two_pools ? "OfTwoPools"
                                               : "OfAPoolAndACopy");
}
INSTANTIATE_TEST_SUITE_P(Collective, Injected,
                         testing::Combine(testing::Values(Do::tag, Do::roll_back, Do::trim),
                                          testing::Values(Serves::pool, Serves::two_pools,
                                                          Serves::pool_and_copy)),
                         name_of);

// Some tags need memory: the rank's table of versions grows.
TEST(OneRank, HasNoMemory) {
  const SharedDirectory directory;
  Session session(directory, kInMemory);
  Status status;
  {
    std::optional<Failing> failing;
    if (is_last()) failing.emplace(Fault::nothrow_new, 1, true);
    for (int i = 0; i < 1000 && status.ok(); ++i) {
      status = session.perform(Do::tag);
      if (status.ok()) session.done(Do::tag);
    }
  }
  // on all ranks; the last has no memory for the message
  EXPECT_EQ(status, StatusCode::out_of_memory);
  EXPECT_TRUE(session.usable());
  session.expect_whole();
  session.reopen();
  session.expect_whole();
}

// While the store is made, each rank with a directory of its own. The next open makes it.
TEST(OneRank, CannotSyncItsNames) {
  const Pretended pretended(kDisk);
  const SharedDirectory directory;
  std::string said;
  std::uint64_t fired = 1;
  for (std::uint64_t k = 1; fired != 0; ++k) {
    const std::string path =
        directory.store(std::to_string(100 * k).c_str()) + std::to_string(world_rank());
    std::optional<Failing> failing;
    if (is_last()) failing.emplace(Fault::fsync, k, true);
    auto store = IntegerStore::open(MPI_COMM_WORLD, path, with_cuts());
    fired = reduced(is_last() ? perdure::test::faults_fired() : 0, MPI_MAX);
    failing.reset();
    const Status status = status_of(store);
    expect_same_everywhere(status);
    EXPECT_EQ(status, fired != 0 ? StatusCode::io : StatusCode::ok) << status.message();
    said += status.message();
    if (!store) must(IntegerStore::open(MPI_COMM_WORLD, path, with_cuts()));
  }
  EXPECT_NE(said.find("/..: "), std::string::npos) << said;
}

// All ranks take a version back, and tag again. The power of rank 0 fails before it has a cut of
// that: its pool is a copy of base and log from before. The version must not be a mixture.
TEST(OneRank, FallsBackToATagThatWasTakenBack) {
  if (world_size() == 1) return;
  const Pretended pretended(kDisk);
  const SharedDirectory directory;
  Session session(directory, with_cuts());
  const std::string pool = SharedDirectory::pool(directory.store(), 0),
                    copy = directory.store("cut");
  Status status;
  while (status.ok()) {
    std::optional<Failing> failing;
    if (is_last()) failing.emplace(Fault::nothrow_new, 1, true);
    status = session.perform(Do::tag);  // fails once the table of versions has to grow
    if (status.ok()) session.done(Do::tag);
  }
  EXPECT_EQ(status, StatusCode::out_of_memory);
  if (world_rank() == 0) {
    std::filesystem::copy_file(pool, copy);
    std::filesystem::copy(pool + "-log", copy + "-log", std::filesystem::copy_options::recursive);
  }
  for (std::uint64_t n = 1; n <= kKeys; ++n) session.write_elsewhere(n, 1000 + n);
  must(session.store().tag());
  must(session.store().close());
  barrier();
  if (world_rank() == 0) {
    std::filesystem::remove_all(pool + "-log");
    std::filesystem::rename(copy, pool);
    std::filesystem::rename(copy + "-log", pool + "-log");
  }
  session.accept_untrusted();
  session.open_anew();
  session.expect_whole();
}

// The pools have closed a version that the store took back. What was written before and after is in
// one version of the store, and has one entry.
TEST(OneRank, LetsATagBeTakenBackBetweenTwoWrites) {
  const SharedDirectory directory;
  Session session(directory, kInMemory);
  std::vector<std::pair<Version, std::uint64_t>> expected = {{1, 101}}, got;
  Status status;
  for (std::uint64_t value = 1; status.ok(); ++value) {
    session.write(1, value);
    std::optional<Failing> failing;
    if (is_last()) failing.emplace(Fault::nothrow_new, 1, true);
    status = session.perform(Do::tag);  // fails once the table of versions has to grow
    if (!status.ok()) break;
    session.done(Do::tag);
    expected.emplace_back(session.store().versions().last, value);
  }
  session.write(1, 1000);
  must(session.store().tag());
  session.done(Do::tag);
  expected.emplace_back(session.store().versions().last, 1000);
  session.write(1, 1001);
  expected.emplace_back(session.store().versions().last + 1, 1001);
  must(session.store().history(Integers::key(1), [&](Version version, const auto& value) {
    got.emplace_back(version, value.value_or(0));
  }));
  EXPECT_EQ(got, expected);
  session.expect_versions();
}

// Some tags need space, and only one rank has none.
TEST(OneRank, HasNoSpace) {
  const SharedDirectory directory;
  Session session(directory, kInMemory);
  IntegerStore& store = session.store();
  const Version before = store.versions().last;
  if (is_last()) {
    Status status;
    for (std::uint64_t n = 1000; status.ok(); ++n) {
      if (store.owner(Integers::key(n)) != store.rank()) continue;
      status = status_of(store.put(Integers::key(n), n));
    }
    EXPECT_EQ(status, StatusCode::pool_full);
  }
  Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) status = status_of(store.tag());
  expect_same_everywhere(status);
  ASSERT_EQ(status, StatusCode::pool_full);
  const Version last = store.versions().last;
  EXPECT_EQ(reduced(last, MPI_MIN), reduced(last, MPI_MAX));
  EXPECT_GT(last, before);
  EXPECT_EQ(must(store.get(Integers::key(6), 2)), 206U);
  EXPECT_EQ(must(store.get(Integers::key(6), last)), 306U);
  EXPECT_EQ(status_of(store.tag()), StatusCode::pool_full);
  EXPECT_EQ(store.versions().last, last);
  must(store.trim(last));
  EXPECT_EQ(must(store.tag()), last + 1);
  must(store.rollback(last));
  EXPECT_EQ(must(store.get(Integers::key(6), last)), 306U);
}

// The k-th allocation of a rank and all later ones fail in a call, for every k that it reaches.
// after(status) looks at the state.
template <class Call, class After>
void fail_allocations(int rank, Call&& call, After&& after) {
  std::uint64_t fired = 1;
  for (std::uint64_t k = 1; fired != 0; ++k) {
    Status status;
    {
      std::optional<Failing> failing;
      if (world_rank() == rank) failing.emplace(Fault::nothrow_new, k, true);
      status = call();
      fired = reduced(world_rank() == rank ? perdure::test::faults_fired() : 0, MPI_MAX);
    }
    // The rank may have no memory for the message.
    expect_same_everywhere(static_cast<std::uint64_t>(status.code()));
    EXPECT_EQ(status, fired != 0 ? StatusCode::out_of_memory : StatusCode::ok) << k;
    EXPECT_TRUE(fired != 0 || k > 1);
    after(status);
  }
}

TEST(OneRank, HasNoMemoryToRead) {
  const SharedDirectory directory;
  auto store = must(BytesStore::open(MPI_COMM_WORLD, directory.store(), kInMemory));
  for (const std::size_t size : {90'000, 100'000}) {  // each entry is a piece of its own
    for (const char name : {'a', 'b', 'c', 'd', 'e', 'f'}) {
      const std::string key(100, name);
      if (store.owner(key) == store.rank()) must(store.put(key, std::string(size, name)));
    }
    must(store.tag());
  }
  const auto ignore = [](const auto&...) {};
  const auto unchanged = [&](const Status&) { EXPECT_EQ(store.versions().last, 2U); };
  const std::string key(100, 'c'), bound(300, 'z');
  for (const int rank : {0, world_size() - 1}) {
    fail_allocations(rank, [&] { return status_of(store.history(key, ignore)); }, unchanged);
    fail_allocations(
        rank, [&] { return status_of(store.scan_at(2, {.to = bound}, ignore)); }, unchanged);
    fail_allocations(rank, [&] { return status_of(store.diff(1, 2, {}, ignore)); }, unchanged);
  }
}

// A version that a copy does not get is not closed.
TEST(OneRank, HasNoMemoryToCopy) {
  const SharedDirectory directory;
  Session session(directory, kInMemory, Serves::pool_and_copy);
  std::uint64_t value = 1;
  for (const int rank : {0, world_size() - 1}) {
    fail_allocations(
        rank, [&] { return session.perform(Do::tag); },
        [&](const Status& status) {
          if (status.ok()) session.done(Do::tag);
          session.expect_versions();
          ++value;
          for (std::uint64_t n = 1; n <= kKeys; ++n) session.write(n, value);
        });
  }
  session.expect_whole();
  session.reopen();
  session.expect_whole();
}

// Either nothing was written, or the results say what.
TEST(OneRank, HasNoMemoryToWrite) {
  const SharedDirectory directory;
  auto store = must(IntegerStore::open(MPI_COMM_WORLD, directory.store(), kInMemory));
  constexpr std::uint64_t kEach = 3;
  std::array<std::uint64_t, kEach> state{};
  std::uint64_t round = 0;
  for (const int rank : {0, world_size() - 1}) {
    std::uint64_t results = 0;
    const auto key = [](int of, std::uint64_t i) {
      return Integers::key(static_cast<std::uint64_t>(of) * kEach + i);
    };
    fail_allocations(
        rank,
        [&] {
          std::array<IntegerStore::Mutation, kEach> all;
          ++round;
          for (std::uint64_t i = 0; i < kEach; ++i) {
            all[i] = {MutationKind::put, key(world_rank(), i), round};
          }
          results = 0;
          return store.write_many(all, [&](std::size_t i, const Found& found) {
            ++results;
            if (found.ok()) state[i] = round;
          });
        },
        [&](const Status& status) {
          expect_same_everywhere(results);
          EXPECT_EQ(results, status.ok() ? kEach : results);
          const Version version = must(store.tag());
          for (int of = 0; of < world_size(); ++of) {
            for (std::uint64_t i = 0; i < kEach; ++i) {
              std::uint64_t expected = state[i];
              MPI_Bcast(&expected, 1, MPI_UINT64_T, of, MPI_COMM_WORLD);
              EXPECT_EQ(must(store.get(key(of, i), version)).value_or(0), expected);
            }
          }
        });
  }
}

TEST(OneRank, HasNoSpaceForTheWritesOfOthers) {
  const SharedDirectory directory;
  auto store = must(IntegerStore::open(MPI_COMM_WORLD, directory.store(), kInMemory));
  const int last = world_size() - 1;
  std::uint64_t n = 0;
  const auto next_key = [&](int owner) {
    while (store.owner(Integers::key(++n)) != owner) continue;
    return Integers::key(n);
  };
  const std::uint64_t first = next_key(last);
  if (is_last()) {
    must(store.put(first, 7));
    Status status;
    while (status.ok()) status = status_of(store.put(next_key(last), 1));
    EXPECT_EQ(status, StatusCode::pool_full);
  }
  const std::uint64_t room = next_key(0);
  std::uint64_t at_last = 1;  // not one of those that were put
  while (store.owner(at_last) != last) ++at_last;
  const std::array<IntegerStore::Mutation, 3> mutations = {{{MutationKind::insert, at_last, 1},
                                                            {MutationKind::put, room, 2},
                                                            {MutationKind::insert, first, 3}}};
  std::vector<StatusCode> codes;
  const Status status = store.write_many(
      mutations, [&](std::size_t, const Found& found) { codes.push_back(found.status().code()); });
  expect_same_everywhere(status);
  EXPECT_EQ(status, StatusCode::pool_full);
  EXPECT_NE(status.message().find("rank " + std::to_string(last)), std::string_view::npos);
  const StatusCode elsewhere = last != 0 ? StatusCode::ok : StatusCode::pool_full;
  EXPECT_EQ(codes, (std::vector{StatusCode::pool_full, elsewhere, StatusCode::ok}));
  // The store continues.
  if (store.rank() == 0 && last != 0) {
    EXPECT_EQ(must(store.get_own(room)), 2U);
  }
  if (is_last()) {
    EXPECT_EQ(must(store.get_own(at_last)), std::nullopt);
    EXPECT_EQ(must(store.get_own(first)), 7U);
  }
  must(store.write_many(std::array{IntegerStore::Mutation{MutationKind::insert, first, 3}}));
}

// Its file is cut short, and its data cannot be read.
TEST(OneRank, HasLostItsFile) {
  const SharedDirectory directory;
  Options options = kInMemory;
  options.pool.handle_sigbus = true;
  Session session(directory, options);
  IntegerStore& store = session.store();
  const int last = world_size() - 1;
  barrier();
  if (is_last()) {
    std::filesystem::resize_file(SharedDirectory::pool(directory.store(), last), 4096);
  }
  barrier();
  // If a key was written again, only the file has its older value.
  for (std::uint64_t n = 2; n <= kKeys; n += 2) {
    const std::uint64_t key = Integers::key(n);
    const Status status = status_of(store.get(key, 1));
    expect_same_everywhere(status);
    if (store.owner(key) != last) {
      EXPECT_TRUE(status.ok()) << status.message();
    } else {
      EXPECT_EQ(status, StatusCode::poisoned);
      EXPECT_NE(status.message().find("rank " + std::to_string(last)), std::string_view::npos)
          << status.message();
    }
  }
  EXPECT_EQ(status_of(store.extract_snapshot(2)), StatusCode::poisoned);
  const auto ignore = [](const auto&...) {};
  std::uint64_t n = 2;
  while (store.owner(Integers::key(n)) != last) n += 2;
  for (const Status& status :
       {status_of(store.scan_at(1, {}, ignore)), status_of(store.diff(1, 2, {}, ignore)),
        status_of(store.history(Integers::key(n), ignore)),
        store.write_many(std::array{IntegerStore::Mutation{{}, Integers::key(n), 1}})}) {
    expect_same_everywhere(status);
    EXPECT_EQ(status, StatusCode::poisoned);
    EXPECT_NE(status.message().find("rank " + std::to_string(last)), std::string_view::npos);
  }
  EXPECT_EQ(status_of(store.tag()), StatusCode::poisoned);
  EXPECT_EQ(store.versions().last, 2U);
}

// The others have the result of the all-reduce, and know that the version exists.
TEST(OneRank, HasAnErrorOfMpiWhileItTags) {
  const SharedDirectory directory;
  Session session(directory, kInMemory);
  all_reduce_fails = is_last();
  const Status status = session.perform(Do::tag);
  all_reduce_fails = false;
  EXPECT_EQ(status.code(), is_last() ? StatusCode::io : StatusCode::ok);
  if (is_last()) {
    const IntegerStore& store = session.store();
    EXPECT_EQ(status_of(session.store().tag()), StatusCode::io);
    std::uint64_t n = 1;
    while (store.owner(Integers::key(n)) != store.rank()) ++n;
    EXPECT_EQ(status_of(session.store().put(Integers::key(n), 1)), StatusCode::io);
  }
  session.done(Do::tag);
  session.open_anew();
  session.expect_whole();
}

}  // namespace
}  // namespace perdure::mpi::test
