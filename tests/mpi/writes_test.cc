// test: ranks 1 2 3 4 5
// write_many of all ranks, compared with one std::map. All ranks draw the same batches, and each
// passes its own.
#include <algorithm>

#include "tests/mpi/expect.h"

namespace perdure::mpi::test {
namespace {

template <class Kind>
class Writes {
 public:
  using Key = typename Kind::Key;
  using Store = typename Kind::Store;
  struct Write {
    MutationKind kind;
    Key key;
    Key value;
  };

  Writes(const SharedDirectory& directory, const Options& options, std::uint64_t seed)
      : random_(seed), store_(must(Store::open(MPI_COMM_WORLD, directory.store(), options))) {}

  void round() {
    std::vector<Write> mine;
    std::vector<bool> present;
    for (int rank = 0; rank < world_size(); ++rank) {
      // Many keys are in several batches, and several times in one. Some batches are empty.
      for (std::uint64_t i = random_() % 3 == 0 ? 0 : random_() % 150; i > 0; --i) {
        const Write write{static_cast<MutationKind>(random_() % 4), Kind::key(random_() % kKeys),
                          Kind::value(random_() % 1000)};
        const bool was_present = apply(write);
        if (rank != world_rank()) continue;
        mine.push_back(write);
        present.push_back(was_present);
      }
    }
    std::vector<typename Store::Mutation> mutations;
    for (const Write& write : mine) mutations.push_back({write.kind, write.key, write.value});
    std::size_t next = 0;
    must(store_.write_many(mutations, [&](std::size_t i, const Found& found) {
      ASSERT_EQ(i, next++);
      EXPECT_EQ(found.present(), present[i]);
      EXPECT_EQ(found.absent(), !present[i]);
    }));
    EXPECT_EQ(next, mine.size());
  }
  void check() {
    for (std::uint64_t n = 0; n < kKeys; ++n) {
      const Key key = Kind::key(n);
      if (store_.owner(key) != store_.rank()) continue;
      const auto it = state_.find(key);
      EXPECT_EQ(must(store_.get_own(key)),
                it != state_.end() ? std::optional(it->second) : std::nullopt);
    }
    // A tag has the writes of all ranks.
    const Version version = must(store_.tag());
    EXPECT_EQ(must(store_.scan_at(version, {}, [](const auto&, const auto&) {})), state_.size());
  }

 private:
  static constexpr std::uint64_t kKeys = 40;

  // Returns whether the key was present.
  bool apply(const Write& write) {
    const bool present = state_.contains(write.key);
    const bool changes = write.kind == MutationKind::put || write.kind == MutationKind::erase ||
                         present == (write.kind == MutationKind::update);
    if (changes && write.kind == MutationKind::erase) {
      state_.erase(write.key);
    } else if (changes) {
      state_[write.key] = write.value;
    }
    return present;
  }

  std::mt19937_64 random_;
  Store store_;
  State<Kind> state_;
};

template <class Kind>
void run_against_model(const Options& options, std::uint64_t seed) {
  SCOPED_TRACE(seed);
  const SharedDirectory directory;
  Writes<Kind> run(directory, options, seed);
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 3; ++j) run.round();
    run.check();
  }
}

TEST(Writes, OfIntegersByHashAreAsTheModelSays) {
  run_against_model<Integers>({.max_message = 64}, 1);
}
TEST(Writes, OfIntegersByRangeAreAsTheModelSays) {
  run_against_model<Integers>({.partition = Partition::range}, 2);
}
TEST(Writes, OfStringsByHashAreAsTheModelSays) {
  run_against_model<Strings>({.max_message = 10'000}, 3);
}
TEST(Writes, OfStringsByRangeAreAsTheModelSays) {
  run_against_model<Strings>({.partition = Partition::range}, 4);
}

// One mutation that the owner refuses: all ranks return its error, and the others are done.
TEST(Writes, ThatAnOwnerRefusesFailAlone) {
  const SharedDirectory directory;
  auto store = must(BytesStore::open(MPI_COMM_WORLD, directory.store()));
  const int last = world_size() - 1;
  const std::string mine = "of rank " + std::to_string(world_rank());
  const std::string too_long(kMaxKeyBytes + 1, 'k');
  std::vector<BytesStore::Mutation> mutations = {{MutationKind::put, mine, "1"}};
  if (world_rank() == last) {
    mutations.push_back({MutationKind::put, too_long, "2"});
    mutations.push_back({MutationKind::put, "behind it", "3"});
  }
  std::vector<StatusCode> codes;
  const Status status = store.write_many(
      mutations, [&](std::size_t, const Found& found) { codes.push_back(found.status().code()); });
  EXPECT_EQ(status, StatusCode::invalid_argument);
  expect_same_everywhere(status);
  std::vector<StatusCode> expected = {StatusCode::ok};
  if (world_rank() == last)
    expected = {StatusCode::ok, StatusCode::invalid_argument, StatusCode::ok};
  EXPECT_EQ(codes, expected);
  const Version version = must(store.tag());
  for (int r = 0; r < world_size(); ++r) {
    EXPECT_EQ(must(store.get("of rank " + std::to_string(r), version)), "1");
  }
  EXPECT_EQ(must(store.get("behind it", version)), "3");
  // No rank has any.
  must(store.write_many({}));
}

}  // namespace
}  // namespace perdure::mpi::test
