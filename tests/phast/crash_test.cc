// test: explores
// PhaST with integer keys under the crash explorer. The ids are those of docs/design/hazards.md.
#include <gtest/gtest.h>

#include "testing/crash/workloads.h"
#include "testing/engines/phast_subject.h"
#include "testing/schedule/race_ops.h"
#include "tests/support/explorations.h"

namespace perdure::testing {
namespace {

const MapSetup kWords{};
const MapSetup kRecords{.values = ValueKind::bytes};

void explore_exactly(const std::vector<Op>& workload, const std::set<std::string>& sites,
                     const MapSetup& setup = kWords) {
  explore_workload(phast_subjects<phast::IntegerCodec>(setup), integer_op, exact_options(),
                   workload, sites);
}

// 1a: an entry is absent, or whole; a reused slot never pairs an old key with a new value.
TEST(PhastCrash, P1a_SlotReuse) {
  explore_exactly({insert(5, 1), insert(6, 2), erase(5), insert(7, 3), erase(6), insert(5, 4),
                   update(7, 9), erase(7), insert(8, 5)},
                  {"phast.insert.entry", "phast.erase.entry", "phast.update.value"});
}

// Mutations of one call reach the medium in any subset until their fence, each whole or absent.
TEST(PhastCrash, MutationsOfOneCall) {
  explore_exactly({many({insert(5, 1), insert(6, 2), insert(7, 3), insert(8, 4)}),
                   many({update(5, 5), erase(6), insert(9, 6), update(10, 7)}),
                   many({erase(5), insert(6, 8), erase(7), update(8, 9)}),
                   many({erase(6), erase(8), erase(9), insert(5, 10)})},
                  {"phast.many.entry"});
}

// 1d, P3: the new leaf's block was a leaf before; every line of it is durable before the link.
TEST(PhastCrash, P3_NewLeafWholeLines) {
  std::vector<Op> ops = churn(12, 2);
  for (std::uint64_t key = 20; key > 0; --key) ops.push_back(insert(key, key));
  explore_exactly(ops, {"phast.split.leaf", "phast.split.link", "phast.unlink.next"});
}

// 1e, P4, P5, G7: nothing, next, next and bound: each state of a split recovers, and recovers
// again.
TEST(PhastCrash, P4_HalfSplitRecovery) {
  explore_exactly({insert(10, 1), insert(20, 2), insert(30, 3), insert(40, 4), insert(25, 5),
                   insert(22, 6), insert(23, 7), insert(5, 8), insert(6, 9), insert(50, 10)},
                  {"phast.split.leaf", "phast.split.link"});
}

// The same for splits that move nothing, or leave a bound that is no key: keys ascend at the end,
// and below the keys of another stream, which have a leaf of their own then.
TEST(PhastCrash, P4_SplitsOfAscendingKeys) {
  std::vector<Op> ops;
  for (const std::uint64_t key : {10, 20, 100, 110}) ops.push_back(insert(key, key));
  for (std::uint64_t key = 30; key < 100; key += 5) ops.push_back(insert(key, key));
  ops.push_back(insert(99, 1));  // the bound
  ops.push_back(erase(100));
  ops.push_back(insert(98, 2));
  ops.push_back(insert(100, 3));
  explore_exactly(ops, {"phast.split.leaf", "phast.split.link"});
}

// 1f: the range of an emptied leaf goes to its right neighbour, so no stale entry of the left one
// revives.
TEST(PhastCrash, P1f_StaleEntriesStayDead) {
  std::vector<Op> ops;
  for (std::uint64_t key = 10; key <= 140; key += 10) ops.push_back(insert(key, key));
  ops.push_back(insert(25, 1));  // splits the first leaf in the middle: stale entries stay in it
  ops.push_back(update(30, 99));
  for (const std::uint64_t key : {30, 40, 50, 60, 70, 80}) ops.push_back(erase(key));
  ops.push_back(insert(35, 2));
  ops.push_back(insert(30, 3));
  ops.push_back(erase(30));
  explore_exactly(ops, {"phast.unlink.next", "phast.erase.entry"});
}

// The integer key 0 has a slot of its own: {value, present}, present stored last.
TEST(PhastCrash, G9_KeyZeroAndTheLargestKey) {
  explore_exactly({insert(0, 1), update(0, 2), erase(0), insert(0, 3), insert(~0ULL, 4),
                   update(~0ULL, 5), erase(~0ULL), erase(0), insert(0, 0)},
                  {"phast.zero.write", "phast.zero.erase"});
}

// P18: a record is durable before the word that names it, and lives as long as it is named.
TEST(PhastCrash, P18_RecordsBeforeTheirLink) {
  std::vector<Op> ops;
  for (std::uint64_t i = 0; i < 10; ++i) {
    ops.push_back(
        {OpKind::upsert, integer_key(i % 4), std::string(20 + 37 * i, static_cast<char>('a' + i))});
  }
  ops.push_back(erase(1));
  ops.push_back({OpKind::upsert, integer_key(1), std::string(300, 'z')});
  explore_exactly(ops, {"phast.record.write", "phast.update.value"}, kRecords);
}

// 4g: entries outside their leaf's range name records that were freed and hold another key's by
// now; recovery does not follow them.
TEST(PhastCrash, H4g_StaleEntriesAreNotFollowed) {
  const auto put = [](std::uint64_t key, char letter) {
    return Op{OpKind::upsert, integer_key(key), std::string(30, letter)};
  };
  std::vector<Op> ops;
  for (const std::uint64_t key : {10, 20, 30, 40, 25}) ops.push_back(put(key, 'a'));  // 30, 40 move
  ops.push_back(erase(30));
  ops.push_back(erase(40));
  for (const std::uint64_t key : {11, 12, 50}) ops.push_back(put(key, 'b'));
  explore_exactly(ops, {"phast.split.link", "phast.record.write"}, kRecords);
}

// P19: fingerprints only say where to compare, and are there again after a recovery. Four keys of
// one fingerprint.
TEST(PhastCrash, P19_EqualFingerprints) {
  std::vector<std::uint64_t> keys;
  for (std::uint64_t key = 1; keys.size() < 4; ++key) {
    if (phast::IntegerCodec::fingerprint(key) == phast::IntegerCodec::fingerprint(1)) {
      keys.push_back(key);
    }
  }
  std::vector<Op> ops;
  for (std::size_t i = 0; i < 3; ++i) ops.push_back(insert(keys[i], i + 1));
  ops.push_back({OpKind::find, integer_key(keys[3]), {}});
  ops.push_back(update(keys[1], 9));
  ops.push_back(erase(keys[0]));
  ops.push_back({OpKind::find, integer_key(keys[0]), {}});
  ops.push_back(insert(keys[3], 4));
  ops.push_back({OpKind::reopen, {}, {}});
  for (const std::uint64_t key : keys) ops.push_back({OpKind::find, integer_key(key), {}});
  explore_exactly(ops, {"phast.insert.entry", "phast.update.value", "phast.erase.entry"});
}

TEST(PhastCrash, PoolFullIsNoCrashState) {
  const ExploreReport report =
      explore(phast_subjects<phast::IntegerCodec>(kRecords), large_record_op,
              {.capacity = 2 << 20,
               .disk_limit = 60 << 10,
               .limits = {.product = 16, .random = 8, .sampled = 30},
               .explore_create = false},
              60, 2);
  EXPECT_GE(report.refused, at_least(1)) << "the pool was never full";
}

}  // namespace
}  // namespace perdure::testing
