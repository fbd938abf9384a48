// SQLiteReg over MPI (bench/mpi), which figures 6 and 7 of the paper need: it returns what the
// distributed store does, and what was put.
#include <gtest/gtest.h>

#include <map>

#include "evaluation/mpi/sqlite_ranks.h"
#include "tests/mpi/expect.h"

namespace perdure::mpi::test {
namespace {

using bench::SqliteRanks;

TEST(Sqlite, ReturnsWhatTheDistributedStoreDoes) {
  const SharedDirectory directory;
  auto ours = must(IntegerStore::open(MPI_COMM_WORLD, directory.store()));
  SqliteRanks sqlite(MPI_COMM_WORLD, directory.store());
  std::map<std::uint64_t, std::uint64_t> model;
  std::mt19937_64 random(1);
  constexpr int kPuts = 1'000;
  for (int i = 0; i < kPuts; ++i) {
    // Of both signs; some are overwritten.
    const std::uint64_t key = i % 8 == 7 ? model.begin()->first : random();
    const std::uint64_t value = random() >> 1;
    model[key] = value;
    if (ours.owner(key) == ours.rank()) must(ours.put(key, value));
    if (sqlite.owner(key) == sqlite.rank()) sqlite.put(key, value);
  }
  const Version version = must(ours.tag());

  for (int i = 0; i < 200; ++i) {
    const auto next = model.lower_bound(random());
    const std::uint64_t key = i % 4 == 0 || next == model.end() ? random() : next->first;
    const auto expected = must(ours.get(key, version));
    const auto found = sqlite.find(key);
    EXPECT_EQ(expected, model.contains(key) ? std::optional(model.at(key)) : std::nullopt);
    if (world_rank() == 0) {
      EXPECT_EQ(found, expected);
    }
  }
  for (const Merge merge : {Merge::recursive_doubling, Merge::naive}) {
    const auto expected = must(ours.extract_snapshot(version, merge));
    SnapshotTimes times;
    const auto found = sqlite.snapshot(merge, times);
    EXPECT_GT(times.extract_ns, 0U);
    ASSERT_EQ(found.size(), expected.size());
    ASSERT_EQ(found.size(), world_rank() == 0 ? model.size() : 0U);
    auto next = model.begin();
    for (std::size_t i = 0; i < found.size(); ++i, ++next) {
      ASSERT_EQ(found[i], expected[i]);
      ASSERT_EQ(found[i], SqliteRanks::Entry(*next));
    }
  }
  must(ours.close());
}

}  // namespace
}  // namespace perdure::mpi::test
