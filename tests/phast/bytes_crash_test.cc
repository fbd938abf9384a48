// test: explores
// PhaST with byte-string keys under the crash explorer (hazard 1h).
#include <gtest/gtest.h>

#include "testing/crash/workloads.h"
#include "testing/engines/phast_subject.h"
#include "tests/support/explorations.h"

namespace perdure::testing {
namespace {

const MapSetup kBytes{.values = ValueKind::bytes};
const MapSetup kWords{.values = ValueKind::word};
constexpr EnumerationLimits kFew{.product = 64, .random = 12, .sampled = 60};

Op put(const std::string& key, const std::string& value) { return {OpKind::upsert, key, value}; }
Op erase(const std::string& key) { return {OpKind::erase, key, {}}; }

void explore_exactly(const std::vector<Op>& workload, const std::set<std::string>& sites) {
  ExploreOptions options = exact_options({.product = 512, .random = 32, .sampled = 150}, 80);
  options.second_in = 100;
  options.kill_in = 6;
  explore_workload(phast_subjects<phast::BytesCodec>(kBytes), bytes_op, options, workload, sites);
}

TEST(PhastBytesCrash, RandomWordValues) {
  explore(phast_subjects<phast::BytesCodec>(kWords), bytes_word_op,
          {.capacity = 2 << 20,
           .limits = kFew,
           .second_in = 100,
           .kill_in = 20,
           .explore_create = false},
          80, 2);
}

TEST(PhastBytesCrash, P13_CreateCrash) {
  explore(phast_subjects<phast::BytesCodec>(kBytes), bytes_op,
          {.capacity = 2 << 20, .limits = kFew, .battery = 60, .second_in = 60, .kill_in = 2}, 6,
          1);
}

// 1h (i), (iii): "" and NULs share a head with each other; many keys share 8 bytes and split all
// the same.
TEST(PhastBytesCrash, P1h_EqualHeadsSplit) {
  std::vector<Op> ops;
  for (const char* key : {"", "customer:1", "customer:2", "customer:3", "customer:4", "customer:5",
                          "customer:33", "customer:", "customer"}) {
    ops.push_back(put(key, std::string("v") + key));
  }
  ops.push_back(put(std::string(1, '\0'), "one"));
  ops.push_back(put(std::string(2, '\0'), "two"));
  ops.push_back(put(std::string("ab\0", 3), "ab0"));
  ops.push_back(put("ab", "ab"));
  explore_exactly(ops, {"phast.split.leaf", "phast.split.link", "phast.record.write"});
}

// Splits that move nothing, or have a separator that is the key of no entry.
TEST(PhastBytesCrash, P4_SplitsOfAscendingKeys) {
  for (const std::string text : {"", "customer:"}) {
    for (const std::string more : {"/0", ""}) {  // the separator: "b", or "a" and 0xFF
      std::vector<Op> ops;
      for (const char* key : {"a/10", "a/20"}) ops.push_back(put(text + key, key));
      ops.push_back(put(text + "b" + more, "b0"));
      ops.push_back(put(text + "b/1", "b1"));
      for (int i = 30; i < 85; i += 5) ops.push_back(put(text + "a/" + std::to_string(i), "v"));
      ops.push_back(erase(text + "b" + more));
      for (const char* key : {"b", "a\xFF", "a/99", "b/0"}) ops.push_back(put(text + key, "w"));
      explore_exactly(ops, {"phast.split.leaf", "phast.split.link", "phast.split.zero"});
    }
  }
}

// 1h (ii), 2b: the record is durable before its offset replaces the only pointer to the old one.
TEST(PhastBytesCrash, P1h_RecordsAreDurableBeforeTheyAreNamed) {
  std::vector<Op> ops;
  for (int i = 0; i < 8; ++i) {
    ops.push_back(put("k" + std::to_string(i % 3), std::string(10 + 60 * i, 'a' + i)));
  }
  explore_exactly(ops, {"phast.record.write", "phast.update.value", "phast.insert.entry"});
}

// 1h (iv): a moved entry is durably zero before its record can be freed and used again.
TEST(PhastBytesCrash, P1h_MovedEntriesDoNotDangle) {
  const ExploreReport report =
      explore_workload(phast_subjects<phast::BytesCodec, WideGeometry>(kBytes), dense_op,
                       {.capacity = 2 << 20,
                        .limits = kFew,
                        .battery = 80,
                        .second_in = 40,
                        .kill_in = 6,
                        .second_ops = 12,
                        .explore_create = false},
                       moved_entries(2));
  if (sanitized()) return;
  expect_crossed(report, {"phast.split.link", "phast.erase.entry", "phast.recover.zero"});
}

// A copy is durable before an entry names it, and an entry names it durably before the old record
// can be used again.
TEST(PhastBytesCrash, P1h_RecordsMoveOutOfThinExtents) {
  const ExploreReport report =
      explore_workload(phast_subjects<phast::BytesCodec, WideGeometry>(kBytes), large_op,
                       {.capacity = 2 << 20,
                        .limits = kFew,
                        .battery = 40,
                        .second_in = 40,
                        .kill_in = 6,
                        .second_ops = 12,
                        .explore_create = false},
                       moved_records(1));
  if (sanitized()) return;
  expect_crossed(report, {"phast.move.record", "phast.move.entry"});
}

// Leaves that empty are unlinked, durably, before their blocks serve again.
TEST(PhastBytesCrash, P1g_UnlinkedLeavesAreReused) {
  std::vector<Op> ops;
  for (int round = 0; round < 2; ++round) {
    const std::string value(30, static_cast<char>('a' + round));
    for (std::uint64_t i = 0; i < 14; ++i) ops.push_back(put(dense_key(i), value));
    for (std::uint64_t i = 3; i < 12; ++i) ops.push_back(erase(dense_key(i)));
  }
  explore_exactly(ops, {"phast.unlink.next", "phast.erase.entry"});
}

TEST(PhastBytesCrash, X1_KillThenPowerLoss) {
  const ExploreReport report =
      explore(phast_subjects<phast::BytesCodec>(kBytes), bytes_op,
              {.capacity = 2 << 20,
               .limits = {.product = 4, .random = 1, .sampled = 4},
               .second_limits = {.product = 16, .random = 6, .sampled = 16},
               .battery = 50,
               .kill_in = 1,
               .second_ops = 4,
               .explore_create = false,
               .close_at_end = false},
              24, 1);
  EXPECT_GE(report.kill_runs, at_least(10));
}

}  // namespace
}  // namespace perdure::testing
