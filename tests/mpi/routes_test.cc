// test: injects, ranks 1 2 3
// Calls of one key from any rank (Options::route). A caller is one thread of one rank. It has keys
// of its own, which any rank may own, so a map says what each of its calls finds. Every rank knows
// the maps of all callers.
#include <algorithm>
#include <optional>
#include <thread>

#include "tests/mpi/expect.h"
#include "tests/support/inject.h"

int level_of_threads() { return MPI_THREAD_MULTIPLE; }

namespace perdure::mpi::test {
namespace {

using perdure::test::Failing;
using perdure::test::Fault;
using perdure::test::Pretence;
using perdure::test::Pretended;

constexpr Options kRouted = {.route = true};
bool is_last() { return world_rank() == world_size() - 1; }

template <class Kind>
class Caller {
 public:
  using Key = typename Kind::Key;
  using Store = typename Kind::Store;

  // Of so many callers.
  Caller(std::uint64_t number, std::uint64_t count)
      : number_(number), count_(count), random_(number + 1) {}

  // Without a store: only the map learns what the caller does.
  void step(Store* store) {
    const Key key = Kind::key(number_ + count_ * (random_() % kKeys));
    const Key value = Kind::value(random_() % 1000);
    const auto was = state_.find(key);
    const bool present = was != state_.end();
    const std::uint64_t what = random_() % 6;
    if (what >= 4) {
      if (store == nullptr) return;
      EXPECT_EQ(must(store->get_open(key)), present ? std::optional(was->second) : std::nullopt);
      return;
    }
    const auto kind = static_cast<MutationKind>(what);
    if (store != nullptr) {
      const Found found = call(*store, kind, key, value);
      must(found);
      EXPECT_EQ(found.present(), present);
    }
    if (kind == MutationKind::erase) {
      state_.erase(key);
    } else if (kind == MutationKind::put || present == (kind == MutationKind::update)) {
      state_[key] = value;
    }
  }
  const State<Kind>& state() const { return state_; }

 private:
  static constexpr std::uint64_t kKeys = 12;

  static Found call(Store& store, MutationKind kind, const Key& key, const Key& value) {
    switch (kind) {
      case MutationKind::put:
        return store.put(key, value);
      case MutationKind::insert:
        return store.insert(key, value);
      case MutationKind::update:
        return store.update(key, value);
      case MutationKind::erase:
        break;
    }
    return store.erase(key);
  }

  std::uint64_t number_, count_;
  std::mt19937_64 random_;
  State<Kind> state_;
};

// All threads of all ranks at once.
template <class Kind>
class Routes {
 public:
  using Store = typename Kind::Store;

  Routes(const Options& options, std::uint64_t threads) : options_(options), threads_(threads) {
    const std::uint64_t count = threads * static_cast<std::uint64_t>(world_size());
    for (std::uint64_t n = 0; n < count; ++n) callers_.emplace_back(n, count);
    open();
  }
  void open() {
    store_.reset();
    store_.emplace(must(Store::open(MPI_COMM_WORLD, directory_.store(), options_)));
  }
  Store& store() { return *store_; }

  // Beside it, this thread calls `meanwhile`.
  template <class Meanwhile>
  void round(int steps, Meanwhile&& meanwhile) {
    const auto rank = static_cast<std::size_t>(world_rank());
    std::vector<std::thread> running;
    for (std::size_t n = 0; n < callers_.size(); ++n) {
      const auto run = [this, n, steps, own = n / threads_ == rank] {
        for (int i = 0; i < steps; ++i) callers_[n].step(own ? &*store_ : nullptr);
      };
      if (n / threads_ == rank && threads_ != 1) {
        running.emplace_back(run);
      } else {
        run();
      }
    }
    meanwhile();
    for (std::thread& thread : running) thread.join();
  }
  // A tag has what any rank did before it called it. The ranks do not meet before.
  void check() {
    const Version version = must(store_->tag());
    State<Kind> all;
    for (const auto& caller : callers_) all.insert(caller.state().begin(), caller.state().end());
    std::uint64_t same = 0;
    const auto visited = must(store_->scan_at(version, {}, [&](const auto& key, const auto& value) {
      const auto it = all.find(typename Kind::Key(key));
      same += it != all.end() && it->second == value;
    }));
    EXPECT_EQ(visited, all.size());
    if (world_rank() == 0) {
      EXPECT_EQ(same, all.size());
    }
    for (const auto& [key, value] : all) EXPECT_EQ(must(store_->get_open(key)), value);
    barrier();
  }

 private:
  SharedDirectory directory_;
  Options options_;
  std::uint64_t threads_;
  std::vector<Caller<Kind>> callers_;
  std::optional<Store> store_;
};

template <class Kind>
void run_against_model(const Options& options, std::uint64_t threads) {
  Routes<Kind> routes(options, threads);
  for (int i = 0; i < 4; ++i) {
    routes.round(60, [] {});
    routes.check();
    if (i == 1) routes.open();  // not closed before
    if (i == 2) {
      must(routes.store().close());
      routes.open();
    }
  }
}

TEST(Routes, OfIntegersByHashAreAsTheModelSays) { run_against_model<Integers>(kRouted, 1); }
TEST(Routes, OfIntegersByRangeAreAsTheModelSays) {
  run_against_model<Integers>({.partition = Partition::range, .max_message = 64, .route = true}, 3);
}
TEST(Routes, OfStringsByHashAreAsTheModelSays) { run_against_model<Strings>(kRouted, 3); }
TEST(Routes, OfStringsByRangeAreAsTheModelSays) {
  run_against_model<Strings>({.partition = Partition::range, .max_message = 1000, .route = true},
                             2);
}

TEST(Routes, GoOnBesideCollectives) {
  Routes<Integers> routes(kRouted, 3);
  for (int i = 0; i < 3; ++i) {
    routes.round(150, [&] {
      IntegerStore& store = routes.store();
      for (int j = 0; j < 5; ++j) {
        const Version version = must(store.tag());
        (void)must(store.get(Integers::key(1), version));
        must(store.history(Integers::key(1), [](Version, const auto&) {}));
        must(store.write_many({}));
        (void)must(store.extract_snapshot(version));
        must(store.trim(version));
      }
    });
    routes.check();
  }
}

// More threads than slots, and more than the cores.
TEST(Routes, OfManyThreadsAllReturn) {
  Routes<Integers> routes(kRouted, world_size() <= 3 ? 80 : 8);
  routes.round(10, [] {});
  routes.check();
}

// A key that this rank owns, or the next one.
template <class Kind>
typename Kind::Key key_of(const typename Kind::Store& store, int rank, std::uint64_t n = 1) {
  while (store.owner(Kind::key(n)) != rank) ++n;
  return Kind::key(n);
}
int next_rank() { return (world_rank() + 1) % world_size(); }

TEST(Routes, OfLongValuesGoInPieces) {
  for (const std::uint64_t max_message : {64_KiB, 64UL, 5000UL, 1_GiB}) {
    const SharedDirectory directory;
    auto store = must(BytesStore::open(MPI_COMM_WORLD, directory.store(),
                                       {.max_message = max_message, .route = true}));
    const std::uint64_t piece = std::min(max_message, 64_KiB);
    std::string key = std::to_string(world_rank()) + "/";
    while (store.owner(key) != next_rank()) key += "k";
    // Around what fits into one, two and three pieces, with the head and the lengths.
    std::vector<std::uint64_t> sizes = {0, 1, 300'000, 3'000'000};
    for (std::uint64_t less = 0; less < 60; less += 3) {
      for (std::uint64_t pieces = 1; pieces <= 3; ++pieces) {
        if (pieces * piece > less) sizes.push_back(pieces * piece - less);
      }
    }
    for (const std::uint64_t size : sizes) {
      const std::string value(size, static_cast<char>('a' + size % 26));
      must(store.put(key, value));
      EXPECT_TRUE(must(store.get_open(key)) == value) << size;
    }
    EXPECT_TRUE(store.erase(key).present());
    EXPECT_EQ(must(store.get_open(key)), std::nullopt);
    must(store.close());
  }
}

// A tag, and a history, have what another rank wrote before it called them, without a meeting of
// the ranks.
TEST(Routes, ComeBeforeTheNextCollective) {
  const SharedDirectory directory;
  auto store = must(IntegerStore::open(MPI_COMM_WORLD, directory.store(), kRouted));
  const std::uint64_t key = key_of<Integers>(store, 0);
  for (std::uint64_t n = 1; n <= 100; ++n) {
    if (is_last()) must(store.put(key, 2 * n));
    std::uint64_t newest = 0;
    must(store.history(key, [&](Version, const auto& value) { newest = value.value_or(0); }));
    EXPECT_EQ(newest, 2 * n);
    barrier();
    if (is_last()) must(store.put(key, 2 * n + 1));
    EXPECT_EQ(must(store.get(key, must(store.tag()))), 2 * n + 1);
    barrier();
  }
  // Nor does a rollback leave any.
  must(store.put(key_of<Integers>(store, next_rank(), 1000), 1));
  must(store.rollback(100));
  EXPECT_EQ(must(store.get_open(key_of<Integers>(store, next_rank(), 1000))), std::nullopt);
}

// The owner calls no function of MPI meanwhile.
TEST(Routes, NeedNoCallOfTheOwner) {
  const SharedDirectory directory;
  auto store = must(IntegerStore::open(MPI_COMM_WORLD, directory.store(), kRouted));
  const std::uint64_t key = key_of<Integers>(store, world_size() - 1);
  if (world_rank() == 0) {
    usleep(50'000);  // the service thread naps
    must(store.put(key, 1));
  }
  if (is_last()) {
    while (must(store.get_own(key)) != 1U) usleep(100);
  }
  const Status status = status_of(store.get_own(key));
  EXPECT_EQ(status, is_last() ? StatusCode::ok : StatusCode::invalid_argument);
}

TEST(Routes, OfRanksWithoutPoolsWork) {
  const SharedDirectory directory;
  MPI_Comm two = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, world_rank() < 2 ? 0 : MPI_UNDEFINED, 0, &two);
  if (two != MPI_COMM_NULL) {
    must(must(BytesStore::open(two, directory.store())).close());
    MPI_Comm_free(&two);
  }
  barrier();
  auto store = must(BytesStore::open(MPI_COMM_WORLD, directory.store(), kRouted));
  EXPECT_EQ(store.pools(), static_cast<std::uint64_t>(std::min(world_size(), 2)));
  for (int i = 0; i < 50; ++i) {
    const std::string key = std::to_string(i) + " of " + std::to_string(world_rank());
    EXPECT_TRUE(store.insert(key, key).absent());
    EXPECT_EQ(must(store.get_open(key)), key);
  }
  const auto all = must(store.extract_snapshot(must(store.tag())));
  EXPECT_EQ(all.total(), 50U * static_cast<unsigned>(world_size()));
}

// --- errors: the caller gets that of the owner, and the store continues ---

void expect_error(const Status& status, StatusCode code, int owner) {
  EXPECT_EQ(status, code) << status.message();
  if (owner == world_rank()) return;
  const std::string named = "rank " + std::to_string(owner) + " of " + std::to_string(world_size());
  EXPECT_NE(status.message().find(named), std::string_view::npos) << status.message();
}

TEST(RouteErrors, OfKeysAndValuesThatDoNotFit) {
  for (const std::uint64_t max_message : {64UL, 1_GiB}) {
    const SharedDirectory directory;
    auto store = must(BytesStore::open(MPI_COMM_WORLD, directory.store(),
                                       {.max_message = max_message,
                                        .route = true,
                                        .pool = {.max_size = 8_MiB, .background_threads = 0}}));
    const std::string too_long(kMaxKeyBytes + 1, static_cast<char>('a' + world_rank()));
    const int owner = store.owner(too_long);
    expect_error(store.put(too_long, "1").status(), StatusCode::invalid_argument, owner);
    EXPECT_EQ(must(store.get_open(too_long)), std::nullopt);
    const std::string key = key_of<Strings>(store, next_rank());
    const std::string too_large(10'000'000, 'v');
    expect_error(store.put(key, too_large).status(), StatusCode::pool_full, next_rank());
    must(store.put(key, "3"));
    EXPECT_EQ(must(store.get_open(key)), "3");
  }
}

TEST(RouteErrors, OfAPoolThatIsFull) {
  const SharedDirectory directory;
  auto store = must(
      IntegerStore::open(MPI_COMM_WORLD, directory.store(),
                         {.route = true, .pool = {.max_size = 4_MiB, .background_threads = 0}}));
  const int last = world_size() - 1;
  Status status;
  std::uint64_t n = 1;
  if (world_rank() == 0) {
    for (; status.ok(); ++n) {
      if (store.owner(n) == last) status = status_of(store.insert(n, n));
    }
    expect_error(status, StatusCode::pool_full, last);
    std::uint64_t present = 1;
    while (store.owner(present) != last) ++present;
    EXPECT_TRUE(store.erase(present).present());
    EXPECT_EQ(must(store.get_open(present)), std::nullopt);
  }
  must(store.tag());
}

// Each k-th allocation of the owner fails, then each of the caller.
TEST(RouteErrors, OfMemoryThatIsShort) {
  const SharedDirectory directory;
  auto store = must(BytesStore::open(MPI_COMM_WORLD, directory.store(), kRouted));
  if (world_size() == 1) return;
  const int last = world_size() - 1;
  const std::string key = key_of<Strings>(store, last), value(200'000, 'v');
  for (const int failing_rank : {0, last}) {
    for (std::uint64_t k = 1; k <= 6; ++k) {
      std::optional<Failing> failing;
      barrier();
      if (world_rank() == failing_rank) failing.emplace(Fault::nothrow_new, k, true);
      barrier();
      Status put, read;
      bool same = true;
      if (world_rank() == 0) {
        put = store.put(key, value).status();
        const auto got = store.get_open(key);
        read = status_of(got);
        same = !got || *got == std::nullopt || *got == value;
      }
      barrier();
      failing.reset();
      if (world_rank() != 0) continue;
      EXPECT_TRUE(same);
      for (const Status* status : {&put, &read}) {
        EXPECT_TRUE(status->ok() || *status == StatusCode::out_of_memory) << status->message();
      }
      EXPECT_TRUE(k > 1 || !put.ok());
      must(store.put(key, value));
      EXPECT_TRUE(must(store.get_open(key)) == value);
      EXPECT_TRUE(store.erase(key).present());
    }
  }
}

// A write-back of the last rank fails in a tag. Afterwards it is poisoned; or the store must be
// opened again, and all ranks refuse.
TEST(RouteErrors, OfAStoreThatMustBeReopened) {
  const Pretence disk = {.file_system = perdure::test::kXfs, .disk = true};
  const int last = world_size() - 1;
  bool poisoned = false, broken = false;
  for (std::uint64_t k = 1; !(poisoned && broken) && k < 20; ++k) {
    const Pretended pretended(disk);
    const SharedDirectory directory;
    auto store = must(IntegerStore::open(
        MPI_COMM_WORLD, directory.store(),
        {.route = true,
         .pool = {.durability = Durability::power, .max_size = 4_MiB, .background_threads = 0}}));
    const std::uint64_t key = key_of<Integers>(store, last);
    must(store.put(key, 1));
    barrier();  // only writes of the tag fail
    Status tag;
    {
      std::optional<Failing> failing;
      if (is_last()) failing.emplace(Fault::msync, k, true);
      tag = status_of(store.tag());
    }
    barrier();
    const Status status = store.put(key, 2).status();
    if (tag.ok()) {
      must(status);
    } else if (status == StatusCode::io) {
      broken = true;
      EXPECT_EQ(status_of(store.get_open(key)), StatusCode::io);
    } else {
      poisoned = true;
      expect_error(status, StatusCode::poisoned, last);
    }
    (void)store.close();
  }
  EXPECT_TRUE(broken);
}

TEST(RouteErrors, OfRanksThatDifferOrDoNotRoute) {
  const SharedDirectory directory;
  if (world_size() > 1) {
    const auto store =
        IntegerStore::open(MPI_COMM_WORLD, directory.store(), {.route = world_rank() == 0});
    EXPECT_EQ(status_of(store), StatusCode::invalid_argument);
  }
  auto store = must(IntegerStore::open(MPI_COMM_WORLD, directory.store()));
  const std::uint64_t key = key_of<Integers>(store, next_rank());
  const StatusCode code = world_size() == 1 ? StatusCode::ok : StatusCode::invalid_argument;
  EXPECT_EQ(store.put(key, 1).status(), code);
  EXPECT_EQ(status_of(store.get_open(key)), code);
  EXPECT_EQ(status_of(store.get_own(key)), code);
}

TEST(RouteErrors, OfAStoreThatIsClosed) {
  const SharedDirectory directory;
  auto store = must(IntegerStore::open(MPI_COMM_WORLD, directory.store(), kRouted));
  must(store.close());
  EXPECT_EQ(status_of(store.put(1, 1)), StatusCode::invalid_argument);
  EXPECT_EQ(status_of(store.tag()), StatusCode::invalid_argument);
  must(store.close());
}

}  // namespace
}  // namespace perdure::mpi::test
