// test: ranks 1 2 3 4 5
// Reads of many keys or versions over all ranks, compared with one std::map per version: history,
// scan_at, diff, and snapshots.
#include <algorithm>

#include "tests/mpi/model.h"

namespace perdure::mpi::test {
namespace {

template <class Kind>
void run_against_model(Options options, std::uint64_t seed) {
  SCOPED_TRACE(seed);
  const SharedDirectory directory;
  Compared<Kind> run(options, seed);
  run.open(MPI_COMM_WORLD, directory.store());
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
