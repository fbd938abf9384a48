// test: explores
// The multi-version store under the crash explorer. V ids are those of docs/design/hazards.md, W
// ids those of docs/design/pskiplist.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "testing/crash/workloads.h"
#include "testing/engines/pskiplist_subject.h"
#include "tests/support/explorations.h"

namespace perdure::testing {
namespace {

const MapSetup kWords{.background_thread = false};
const MapSetup kRecords{.values = ValueKind::bytes, .background_thread = false};

std::string word(std::uint64_t value) {
  return std::string(reinterpret_cast<const char*>(&value), 8);
}
std::string key_of(std::uint64_t key) { return kPresent + integer_key(key); }
Op put(std::uint64_t key, std::uint64_t value) {
  return {OpKind::upsert, key_of(key), word(value)};
}
Op erase(std::uint64_t key) { return {OpKind::erase, key_of(key), {}}; }
Op tag(char name) { return {OpKind::tag, std::string(1, name), {}}; }
Op trim(char name) { return {OpKind::trim, std::string(1, name), {}}; }
Op rollback(char name) { return {OpKind::rollback, std::string(1, name), {}}; }

// Every block that the pool has left, whatever its size.
class AllSpace {
 public:
  explicit AllSpace(SimPool& pool) : heap_(pool.heap()) {
    for (const BlockKind kind : {BlockKind::plain, BlockKind::zero_on_free}) {
      for (std::size_t size = kPage; size >= 16; size /= 2) take(size, kind);
      for (std::size_t size = 16; size <= kPage / 2; size += 16) take(size, kind);
    }
  }
  AllSpace(const AllSpace&) = delete;
  AllSpace& operator=(const AllSpace&) = delete;
  ~AllSpace() {
    for (const std::uint64_t block : blocks_) heap_.discard(block);
  }

  // One plain block of that size.
  bool give_back(std::size_t size) {
    const auto it = std::ranges::find_if(blocks_, [&](std::uint64_t block) {
      return heap_.is_plain(block) && heap_.block_bytes(block) == size;
    });
    if (it == blocks_.end()) return false;
    heap_.discard(*it);
    blocks_.erase(it);
    return true;
  }

 private:
  void take(std::size_t size, BlockKind kind) {
    for (auto block = heap_.allocate(size, kind); block; block = heap_.allocate(size, kind)) {
      blocks_.push_back(*block);
    }
  }
  Heap<SimPlatform>& heap_;
  std::vector<std::uint64_t> blocks_;
};

// One workload of versions.
void explore_exactly(const std::vector<Op>& workload, const std::set<std::string>& sites,
                     const std::vector<Op>& prepare = {}) {
  ExploreOptions options = exact_options({.product = 1024, .random = 32, .sampled = 200}, 60);
  options.prepare = prepare;
  explore_workload(versioned_subjects(kWords), versioned_op, options, workload, sites);
}

// V5, V6: what a tag has named reads the same after every crash; what is written after it does not
// reach it. Tags, trims and rollbacks at random.
TEST(PskiplistCrash, V5_V6_RandomVersions) {
  explore(versioned_subjects(kWords), versioned_op, random_options(40, 10), 80, 2);
}

// The same with records, which each version has its own of: replaced, dropped, voided, given back.
TEST(PskiplistCrash, V5_V16_W13_RandomVersionsOfRecords) {
  explore(versioned_subjects(kRecords), versioned_record_op, random_options(60, 12), 60, 1);
}
TEST(PskiplistCrash, V5_V16_W13_RandomVersionsOfByteStrings) {
  explore(versioned_subjects<pskiplist::BytesCodec>(kRecords), versioned_bytes_op,
          random_options(60, 12), 60, 1);
  explore(versioned_subjects<pskiplist::BytesCodec>(kWords), reopening(versioned_bytes_word_op),
          random_options(60, 12), 60, 1);
}

// V1, V6: nothing depends on how far other operations have come: a version and what came after it,
// with the limit written in between.
TEST(PskiplistCrash, V1_V6_TagsAreDurable) {
  std::vector<Op> ops;
  for (char i = 0; i < 5; ++i) {
    ops.push_back(put(1, 10 + static_cast<std::uint64_t>(i)));
    ops.push_back(tag(static_cast<char>('0' + i)));
  }
  explore_exactly(ops, {"pskiplist.tag.limit", "pskiplist.append.entry", "pskiplist.append.link"});
}

// V7, V8: blocks of the chain fill, and holes in them are taken again.
TEST(PskiplistCrash, V7_V8_ChainWithHoles) {
  std::vector<Op> ops;
  for (std::uint64_t key = 0; key < 9; ++key) ops.push_back(put(key, key));
  for (std::uint64_t key = 1; key < 9; key += 2) ops.push_back(erase(key));
  for (std::uint64_t key = 20; key < 23; ++key) ops.push_back(put(key, key));
  for (std::uint64_t key = 0; key < 23; ++key) ops.push_back(erase(key));
  explore_exactly(ops, {"pskiplist.insert.slot", "pskiplist.erase.slot", "pskiplist.chain.link",
                        "pskiplist.chain.unlink"});
}

// V9, V10, X2: histories of several segments; their blocks are given back and used again.
TEST(PskiplistCrash, V9_V10_X2_H6_Segments) {
  std::vector<Op> ops;
  for (std::uint64_t round = 0; round < 2; ++round) {
    for (std::uint64_t i = 0; i < 6; ++i) {
      ops.push_back(i % 4 == 3 ? erase(1) : put(1, 100 * round + i));
      ops.push_back(tag('0'));
    }
    ops.push_back(erase(1));
    ops.push_back(tag('1'));
    ops.push_back(trim('1'));
  }
  explore_exactly(ops, {"pskiplist.append.link", "pskiplist.trim.horizon"});
}

// V16, W12: of a history each step of a trim leaves every version that can be read.
TEST(PskiplistCrash, V16_W12_H6_Trim) {
  std::vector<Op> prepare;
  for (std::uint64_t i = 0; i < 6; ++i) {
    prepare.push_back(put(1, i));
    prepare.push_back(i == 3 ? erase(2) : put(2, i));
    if (i == 4) prepare.push_back(put(3, i));
    prepare.push_back(tag(static_cast<char>('0' + i)));
  }
  explore_exactly({trim('1'), trim('3'), put(1, 70), trim('5'), erase(2), tag('6'), trim('6')},
                  {"pskiplist.trim.horizon", "pskiplist.trim.segment", "pskiplist.trim.link",
                   "pskiplist.trim.first"},
                  prepare);
}

// 4d: in a full pool an erase that has to append takes a segment of the reserve, while there is
// one; then it is told `pool_full`, and works again once there is room.
TEST(PskiplistCrash, H4d_AFullPoolErases) {
  SimMemory memory(2 << 20), next(2 << 20);
  PskiplistSubject<pskiplist::IntegerCodec> subject(kWords);
  ASSERT_TRUE(subject.create(memory).ok());
  ASSERT_TRUE(subject.open(memory, 1).ok());
  Model model;
  const auto apply = [&](OpKind kind, std::uint64_t key) {
    const Op op{kind, integer_key(key), word(key)};
    const auto done = subject.apply(op);
    if (done) apply_to(model, op);
    return done ? StatusCode::ok : done.error().code();
  };
  for (std::uint64_t key = 0; key < 8; ++key) {
    ASSERT_EQ(apply(OpKind::insert, key), StatusCode::ok);
  }
  const auto version = subject.versioned().tag();
  ASSERT_TRUE(version.has_value());
  {
    const AllSpace taken(subject.pool());
    constexpr std::uint64_t kReserve = pskiplist::TinyGeometry::kReservedSegments;
    EXPECT_EQ(apply(OpKind::upsert, 7), StatusCode::pool_full);
    for (std::uint64_t key = 0; key < kReserve; ++key) {
      EXPECT_EQ(apply(OpKind::erase, key), StatusCode::ok) << key;
    }
    EXPECT_EQ(apply(OpKind::erase, kReserve), StatusCode::pool_full);
    EXPECT_EQ(compare(subject, model), "");
  }
  for (std::uint64_t key = 3; key < 6; ++key) {
    EXPECT_EQ(apply(OpKind::erase, key), StatusCode::ok) << key;
  }
  for (std::uint64_t key = 0; key < 8; ++key) {
    const auto found = subject.versioned().read_at({.word = key}, *version, [](const auto&) {});
    EXPECT_TRUE(found.has_value() && *found) << key;
  }
  std::vector<std::string> violations;
  subject.check(violations);
  EXPECT_TRUE(violations.empty()) << violations.front();
  next.load_killed(memory);
  memory.set_mode(SimMode::frozen);
  PskiplistSubject<pskiplist::IntegerCodec> after(kWords);
  ASSERT_TRUE(after.open(next, 1).ok());
  EXPECT_EQ(compare(after, model), "");
  next.set_mode(SimMode::frozen);
}

// 4d: without room for a copy a trim drops what ends with a segment; every version that it leaves
// reads as before, and a trim that finds room drops the rest.
TEST(PskiplistCrash, H4d_AFullPoolTrims) {
  SimMemory memory(2 << 20), next(2 << 20);
  PskiplistSubject<pskiplist::IntegerCodec> subject(kWords);
  ASSERT_TRUE(subject.create(memory).ok());
  ASSERT_TRUE(subject.open(memory, 1).ok());
  constexpr std::uint64_t kRounds = 12;
  std::vector<std::uint64_t> versions;
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    const OpKind kind = i % 5 == 4 ? OpKind::erase : OpKind::upsert;
    ASSERT_TRUE(subject.apply({OpKind::upsert, integer_key(1), word(i)}).has_value());
    ASSERT_TRUE(subject.apply({kind, integer_key(2), word(i)}).has_value());
    versions.push_back(*subject.versioned().tag());
  }
  const auto expect_from = [&](auto& looked_at, std::uint64_t first) {
    for (std::uint64_t i = 0; i < kRounds; ++i) {
      for (const std::uint64_t key : {1, 2}) {
        std::uint64_t value = ~std::uint64_t{0};
        const auto found = looked_at.versioned().read_at({.word = key}, versions[i],
                                                         [&](const auto& v) { value = v.word; });
        ASSERT_EQ(found.has_value(), i >= first) << i;
        if (i < first) continue;
        EXPECT_EQ(*found, key == 1 || i % 5 != 4) << i;
        EXPECT_EQ(value, *found ? i : ~std::uint64_t{0});
      }
    }
  };
  const std::uint64_t before = subject.stats().pm_bytes;
  std::uint64_t entries = 0;
  const auto count = [&] {
    entries = 0;
    (void)subject.versioned().history({.word = 1}, [&](const auto&) { return ++entries != 0; });
    return entries;
  };
  {
    const AllSpace taken(subject.pool());
    for (const std::uint64_t first : {1, 6}) {
      EXPECT_EQ(subject.versioned().trim(versions[first]), versions[first]);
      expect_from(subject, first);
    }
    // Segments of 1, 2, 4 .. entries behind the first: rounds 1 to 3 are whole segments.
    EXPECT_EQ(count(), kRounds - 4);
  }
  EXPECT_EQ(subject.versioned().trim(versions[6]), versions[6]);
  EXPECT_EQ(count(), kRounds - 6);
  expect_from(subject, 6);
  subject.reclaim();
  EXPECT_LT(subject.stats().pm_bytes, before);
  std::vector<std::string> violations;
  subject.check(violations);
  EXPECT_TRUE(violations.empty()) << violations.front();
  next.load_killed(memory);
  memory.set_mode(SimMode::frozen);
  PskiplistSubject<pskiplist::IntegerCodec> after(kWords);
  ASSERT_TRUE(after.open(next, 1).ok());
  expect_from(after, 6);
  next.set_mode(SimMode::frozen);
}

// W13: a rollback is one step, also if recovery has to finish it, and is interrupted.
TEST(PskiplistCrash, W13_H6_RollbackIsOneStep) {
  std::vector<Op> prepare;
  for (std::uint64_t i = 0; i < 4; ++i) {
    for (std::uint64_t key = 0; key < 4; ++key) prepare.push_back(put(key + i, 10 * i + key));
    if (i == 2) prepare.push_back(erase(3));
    prepare.push_back(tag(static_cast<char>('0' + i)));
  }
  explore_exactly({put(1, 99), rollback('1'), put(2, 98), tag('4'), put(2, 97), rollback('4')},
                  {"pskiplist.rollback.root", "pskiplist.rollback.entry"}, prepare);
}

// What the root block of a pool that was not closed says of versions is checked before anything is
// done by it: one bit of the limit, and what is acknowledged next would be of a version that is
// none, or that no later open takes.
TEST(PskiplistCrash, V6_W13_VersionsThatWereNeverStored) {
  SimMemory memory(2 << 20), next(2 << 20);
  PskiplistSubject<pskiplist::IntegerCodec> subject(kWords);
  ASSERT_TRUE(subject.create(memory).ok());
  ASSERT_TRUE(subject.open(memory, 1).ok());
  const auto write = [&](std::uint64_t versions) {
    for (std::uint64_t i = 0; i < versions; ++i) {
      ASSERT_TRUE(subject.apply({OpKind::upsert, integer_key(i % 2), word(i)}).has_value());
      ASSERT_TRUE(subject.versioned().tag().has_value());
    }
  };
  // A rollback, which leaves nothing that one bit would make a rollback again.
  write(4);
  ASSERT_TRUE(subject.versioned().rollback(2).ok());
  write(3);
  // What a history may not lead to, nor the chain: zero, large enough, and of another kind.
  const std::vector<std::byte> zeros(256);
  const auto plain = subject.pool().heap().allocate(zeros.size(), BlockKind::plain);
  ASSERT_TRUE(plain.has_value());
  subject.pool().platform().copy(memory.base() + *plain, zeros.data(), zeros.size());
  auto& core = subject.pool().core();
  layout::Root line{};
  ASSERT_TRUE(core.read_root(*core.find_root("map0"), line).has_value());
  using Root = pskiplist::layout::Root;
  struct Damage {
    std::size_t field;
    std::uint64_t value;
    bool refused;
  };
  const Damage all[] = {{offsetof(Root, limit), ~std::uint64_t{0}, true},
                        {offsetof(Root, limit), std::uint64_t{1} << 61 | 5, true},
                        {offsetof(Root, limit), 1, true},
                        {offsetof(Root, limit), std::uint64_t{1} << 40, false},
                        {offsetof(Root, horizon), 0, true},
                        {offsetof(Root, horizon), 99, true},
                        {offsetof(Root, horizon), 3, false},
                        {offsetof(Root, rollback_to), 4, true},
                        {offsetof(Root, rollback_to), 8, true},
                        {offsetof(Root, rollback_to), 99, true},
                        {offsetof(Root, rollback_to), std::uint64_t{1} << 62, true},
                        {offsetof(Root, rollback_from), 2, false},  // cleared, but for this
                        {offsetof(Root, chain), *plain, true}};
  for (const Damage& damage : all) {
    next.load_killed(memory);
    std::memcpy(next.base() + line.root + damage.field, &damage.value, 8);
    PskiplistSubject<pskiplist::IntegerCodec> after(kWords);
    const Status s = after.open(next, 1);
    EXPECT_EQ(s.ok(), !damage.refused) << damage.field << ": " << damage.value;
    if (damage.refused) {
      EXPECT_EQ(s, StatusCode::corruption);
    }
    next.set_mode(SimMode::frozen);
  }
  memory.set_mode(SimMode::frozen);
}

// Root lines of two maps of the same kinds that have changed places: each would serve the other's
// keys.
TEST(PskiplistCrash, ClosedRootLinesBelongToTheirMaps) {
  SimMemory memory(2 << 20), next(2 << 20);
  VersionedSubject<pskiplist::IntegerCodec> subject(kWords);
  ASSERT_TRUE(subject.create(memory).ok());
  ASSERT_TRUE(subject.open(memory, 1).ok());
  for (const Op& op : {put(1, 10), tag('0'), put(1, 11)}) {
    ASSERT_TRUE(subject.apply(op).has_value());
  }
  ASSERT_TRUE(subject.close().ok());
  memory.settle();
  std::vector<std::uint32_t> lines;
  for (std::uint64_t at = 0; at < memory.size(); at += kLine) {
    const auto* root = reinterpret_cast<const pskiplist::layout::Root*>(memory.base() + at);
    if (root->magic != pskiplist::layout::kRootMagic) continue;
    lines.push_back(static_cast<std::uint32_t>(at / kLine) + 1);
  }
  ASSERT_EQ(lines.size(), 2U);
  CrashImage image{.size = memory.size(), .lines = lines, .bytes = {}};
  image.bytes.resize(2);
  for (std::size_t i = 0; i < 2; ++i) {
    std::memcpy(&image.bytes[i], memory.base() + std::uint64_t{lines[1 - i]} * kLine, kLine);
  }
  next.load_image(memory, image);
  VersionedSubject<pskiplist::IntegerCodec> after(kWords);
  EXPECT_EQ(after.open(next, 1), StatusCode::corruption);
  next.set_mode(SimMode::frozen);
}

// G6: an insert that finds no room has listed its key: the record stays while readers may compare
// with it.
TEST(PskiplistCrash, G6_AFailedInsertKeepsItsRecord) {
  SimMemory memory(2 << 20);
  PskiplistSubject<pskiplist::BytesCodec> subject(kWords);
  ASSERT_TRUE(subject.create(memory).ok());
  ASSERT_TRUE(subject.open(memory, 1).ok());
  const std::string name(16, 'n');
  const auto put = [&](char last) {
    return subject.apply({OpKind::insert, name.substr(1) + last, word(7)});
  };
  for (const char last : {'a', 'b'}) ASSERT_TRUE(put(last).has_value());
  auto& heap = subject.pool().heap();
  AllSpace taken(subject.pool());
  constexpr std::size_t kRecord = 32;
  for (const char last : {'c', 'd'}) {  // the last slots: no block can be linked ahead
    ASSERT_TRUE(taken.give_back(kRecord));
    ASSERT_TRUE(put(last).has_value());
  }
  ASSERT_TRUE(taken.give_back(kRecord));
  std::optional<EpochGuard<SimPlatform>> reader;
  SimPlatform::world().thread = 1;
  reader.emplace(subject.pool().epochs());
  SimPlatform::world().thread = 0;
  const auto done = subject.call({OpKind::insert, name.substr(1) + 'z', word(7)});
  EXPECT_TRUE(!done.has_value() && done.error() == StatusCode::pool_full);
  EXPECT_FALSE(heap.allocate(kRecord, BlockKind::plain).has_value()) << "it is used again";
  reader.reset();
  subject.reclaim();
  const auto block = heap.allocate(kRecord, BlockKind::plain);
  ASSERT_TRUE(block.has_value());
  heap.discard(*block);
}

// X1: killed at every crash point, the machine goes on, and loses power during recovery or after.
TEST(PskiplistCrash, X1_KillThenPowerLoss) {
  const ExploreReport report =
      explore(versioned_subjects(kWords), versioned_op, kill_options(), 30, 2);
  EXPECT_GE(report.kill_runs, at_least(20));
}

// G11: power fails again inside recovery, and recovery starts once more.
TEST(PskiplistCrash, G11_SecondCrashInsideRecovery) {
  const ExploreReport report =
      explore(versioned_subjects(kWords), versioned_op, recovery_options(), 60, 2);
  EXPECT_GE(report.second_images, at_least(100));
}

}  // namespace
}  // namespace perdure::testing
