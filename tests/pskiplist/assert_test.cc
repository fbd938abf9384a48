// test: explores
// Assertions of the multi-version store: each test plants what breaks an invariant.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "testing/engines/pskiplist_subject.h"
#include "testing/sim/sites.h"
#include "tests/support/violates.h"

namespace perdure::pskiplist {

using testing::integer_key;
using testing::MapSetup;
using testing::Mutant;
using testing::Op;
using testing::OpKind;
using testing::PskiplistSubject;
using testing::ScopedMutant;
using testing::SimMemory;
using testing::SimMode;
using testing::SimPlatform;
using testing::StepKind;

// The state to damage, and the private functions to call where their caller may not.
struct Peek::Plant {
  using P = SimPlatform;
  using Map = PSkipList<P, IntegerCodec, TinyGeometry>;
  using Leaves = Map::DirectoryT;

  static KeyNode<P>& node(Map& map, std::uint64_t key) { return map.nodes_[number(map, key)]; }
  static std::uint32_t number(Map& map, std::uint64_t key) {
    return map.directory_.find({.word = key});
  }
  static Map::DirectoryT& directory(Map& map) { return map.directory_; }
  static void take_hint(Map& map, std::uint64_t key) {
    map.directory_.hints_.remove(KeyHints<P>::hash<false>(key, {}), number(map, key));
  }
  static void give_linked(KeyHints<P>& hints) { hints.give(1); }
  static void give_node(Map& map, std::uint64_t key) { map.nodes_.give(number(map, key)); }

  // The number of the first leaf of the first partition.
  static std::uint32_t first_leaf(Leaves& leaves) { return leaves.inner_.first_leaf(0); }
  static Leaves::LeafT& leaf(Leaves& leaves, std::uint32_t number) {
    return leaves.leaves_[number];
  }
  // Byte strings: the only leaf of the first partition, which has no bound.
  template <class Strings>
  static auto& last_leaf(Strings& map) {
    return map.directory_.leaves_[map.directory_.inner_.first_leaf(0)];
  }
  static void lock(Leaves::LeafT& leaf) { EXPECT_TRUE(leaf.try_lock(leaf.version.load())); }
  static void split(Leaves& leaves, std::uint32_t number) { (void)leaves.split(number, 2); }
  static void unlink(Leaves& leaves, std::uint32_t left, std::uint32_t number) {
    (void)leaves.unlink_locked(leaf(leaves, left), number);
  }

  static void write_in_place(Map& map, std::uint64_t key, std::uint64_t version) {
    (void)map.write_in_place(node(map, key), State::of(Phase::held, 0), version, 7, false);
  }
  static void append(Map& map, std::uint64_t key, std::uint64_t version) {
    Fresh fresh;
    (void)map.append(node(map, key), State::of(Phase::held, 0), version, 7, false, fresh);
  }
  static void write_first(Map& map, std::uint64_t key) {
    Fresh fresh;
    (void)map.write_first(node(map, key), State::of(Phase::held, 0), 1, {.word = key}, 7, fresh);
  }
  static void give_back(Map& map, std::uint64_t key) {
    (void)map.give_back(number(map, key), {.word = key});
  }
  static void bury(Map& map, std::uint64_t key) { map.bury(number(map, key), {.word = key}); }
  static void let_go(Map& map, std::uint64_t key, State held) {
    Map::let_go(node(map, key), held, false);
  }
  static void stamp(Map& map, std::uint64_t key, State held) {
    (void)map.stamp(node(map, key), held);
  }
  // Trims this key alone. The test has set the node's state.
  static void trim(Map& map, std::uint64_t key, std::uint64_t horizon) {
    Map::Progress progress{.horizon = horizon};
    bool gone = false;
    (void)map.trim_key(number(map, key), {.word = key}, progress, gone);
  }
  static void release(Map& map, std::uint64_t key) {
    const KeyNode<P>& its = node(map, key);
    map.chain_.release({its.slot.load(), its.block});
  }
  static void unlink_block(Map& map, std::uint64_t key) { map.chain_.unlink(node(map, key).block); }
};

namespace {

using Plant = Peek::Plant;

class PskiplistAssert : public ::testing::Test {
 protected:
  explicit PskiplistAssert(ValueKind values = ValueKind::word) : subject_(setup(values)) {
    SimPlatform::seed(1);
    EXPECT_TRUE(subject_.create(memory_).ok());
    EXPECT_TRUE(subject_.open(memory_, 1).ok());
    put(1);
    put(2);
  }
  ~PskiplistAssert() override { memory_.set_mode(SimMode::frozen); }

  void put(std::uint64_t key, char value = 'v') {
    EXPECT_TRUE(subject_.call({OpKind::upsert, integer_key(key), std::string(8, value)}));
  }
  void erase(std::uint64_t key) {
    EXPECT_TRUE(subject_.call({OpKind::erase, integer_key(key), {}}));
  }
  void tag() { EXPECT_TRUE(subject_.versioned().tag()); }
  Plant::Map& map() { return static_cast<Plant::Map&>(subject_.versioned()); }
  KeyNode<SimPlatform>& node(std::uint64_t key) { return Plant::node(map(), key); }
  // Runs the operation with the mutant set.
  template <class F>
  static void mutated(const char* site, Mutant mutant, F&& operation) {
    const ScopedMutant m(site, mutant);
    EXPECT_TRUE(m.matched());
    operation();
  }

 private:
  static MapSetup setup(ValueKind values) {
    MapSetup setup{.values = values, .background_thread = false};
    setup.shape.max_bytes = 256 << 10;
    return setup;
  }

  SimMemory memory_{2 << 20};
  PskiplistSubject<IntegerCodec> subject_;

 protected:
  PskiplistSubject<IntegerCodec>& subject() { return subject_; }
};

class PskiplistRecordsAssert : public PskiplistAssert {
 protected:
  PskiplistRecordsAssert() : PskiplistAssert(ValueKind::bytes) {}
};

// ---- Histories ----

TEST_F(PskiplistAssert, VersionsRise) {
  node(1).stamp.store(9 << layout::kStampShift);
  EXPECT_VIOLATES("pskiplist.I1", put(1));
}

TEST_F(PskiplistAssert, AKeyWithEntriesHasASlot) {
  node(1).slot.store(0);
  EXPECT_VIOLATES("pskiplist.I2", put(1));
}

// The hook changes the state between the exchange and the compare-and-swap of a stamp.
TEST_F(PskiplistAssert, AStampStays) {
  static KeyNode<SimPlatform>* broken = nullptr;
  broken = &node(1);
  const auto stamp_broken = [&] {
    SimPlatform::step_hook = [](StepKind, const char*) {
      auto* hook = std::exchange(SimPlatform::step_hook, nullptr);
      if (broken->load().phase() == Phase::unstamped) broken->set(State::of(Phase::idle, 5));
      SimPlatform::step_hook = hook;
    };
    put(1);
  };
  EXPECT_VIOLATES("pskiplist.I3", stamp_broken());
}

TEST_F(PskiplistAssert, EntriesChangeStamped) {
  EXPECT_VIOLATES("pskiplist.I4", Plant::write_in_place(map(), 1, 1));
  node(1).set(State::of(Phase::stamped, 2));
  EXPECT_VIOLATES("pskiplist.I4", Plant::write_in_place(map(), 1, 2));
  EXPECT_VIOLATES("pskiplist.I4", Plant::give_back(map(), 1));
  node(1).set(State::of(Phase::idle, 1));
}

TEST_F(PskiplistAssert, DeadNodesHaveNoSlot) {
  EXPECT_VIOLATES("pskiplist.I5", Plant::bury(map(), 1));
  EXPECT_VIOLATES("pskiplist.I5",
                  mutated("pskiplist.erase.slot", Mutant::drop_fence, [&] { erase(1); }));
  EXPECT_VIOLATES("pskiplist.I5", Plant::give_node(map(), 1));
}

TEST_F(PskiplistAssert, TheHorizonComesFirst) {
  tag();
  tag();
  EXPECT_VIOLATES("pskiplist.I6", mutated("pskiplist.trim.horizon", Mutant::drop_fence,
                                          [&] { (void)subject().versioned().trim(2); }));
  node(1).set(State::of(Phase::held, 1));
  EXPECT_VIOLATES("pskiplist.I6", Plant::trim(map(), 1, 2));
  node(1).set(State::of(Phase::idle, 1));
}

TEST_F(PskiplistAssert, ARollbackIsSaidFirst) {
  tag();
  put(1);
  tag();
  EXPECT_VIOLATES("pskiplist.I7", mutated("pskiplist.rollback.root", Mutant::drop_fence,
                                          [&] { (void)subject().versioned().rollback(1); }));
}

TEST_F(PskiplistAssert, TheLimitComesFirst) {
  EXPECT_VIOLATES("pskiplist.I8",
                  mutated("pskiplist.tag.limit", Mutant::drop_flush, [&] { tag(); }));
}

TEST_F(PskiplistRecordsAssert, RecordsAreWhole) {
  EXPECT_VIOLATES("pskiplist.I9",
                  mutated("pskiplist.record.write", Mutant::drop_flush, [&] { put(1); }));
}

TEST_F(PskiplistAssert, SegmentsAreWhole) {
  for (int i = 0; i < 4; ++i) {
    tag();
    put(1);
  }
  EXPECT_VIOLATES("pskiplist.I9", mutated("pskiplist.trim.segment", Mutant::drop_fence,
                                          [&] { (void)subject().versioned().trim(3); }));
  EXPECT_VIOLATES("pskiplist.N3", mutated("pskiplist.trim.link", Mutant::drop_fence,
                                          [&] { (void)subject().versioned().trim(3); }));
}

// ---- Nodes ----

TEST_F(PskiplistAssert, NumbersComeOnce) {
  EXPECT_VIOLATES("pskiplist.N1", Plant::let_go(map(), 1, State::of(Phase::held, 1)));
  EXPECT_VIOLATES("pskiplist.N1", Plant::stamp(map(), 1, State::of(Phase::held, 1)));
}

TEST_F(PskiplistAssert, EndsChangeStamped) {
  EXPECT_VIOLATES("pskiplist.N2", Plant::write_first(map(), 1));
  EXPECT_VIOLATES("pskiplist.N2", Plant::trim(map(), 1, 1));
  tag();
  put(1);
  EXPECT_VIOLATES("pskiplist.N2", Plant::append(map(), 1, 3));
}

TEST_F(PskiplistAssert, WhatANodeSaysIsDurable) {
  EXPECT_VIOLATES("pskiplist.N3",
                  mutated("pskiplist.update.entry", Mutant::drop_flush, [&] { put(1, 'w'); }));
  EXPECT_VIOLATES("pskiplist.N3",
                  mutated("pskiplist.insert.slot", Mutant::drop_fence, [&] { put(3); }));
  tag();
  EXPECT_VIOLATES("pskiplist.N3",
                  mutated("pskiplist.append.entry", Mutant::drop_flush, [&] { put(1); }));
  EXPECT_VIOLATES("pskiplist.N3",
                  mutated("pskiplist.append.entry", Mutant::drop_flush, [&] { erase(1); }));
}

// ---- The chain ----

TEST_F(PskiplistAssert, BlocksAreLinkedWhole) {
  // One slot is left: the next block is linked.
  EXPECT_VIOLATES("pskiplist.K1",
                  mutated("pskiplist.chain.link", Mutant::drop_fence, [&] { put(3); }));
  EXPECT_VIOLATES("pskiplist.K3", Plant::unlink_block(map(), 1));
}

TEST_F(PskiplistAssert, SlotsAreFreeOnce) {
  EXPECT_VIOLATES("pskiplist.K2", Plant::release(map(), 1));
}

// ---- The directory ----

TEST_F(PskiplistAssert, LeavesChangeLocked) {
  auto& directory = Plant::directory(map());
  const std::uint32_t first = Plant::first_leaf(directory);
  auto& leaf = Plant::leaf(directory, first);
  EXPECT_VIOLATES("pskiplist.D1", leaf.unlock());
  EXPECT_VIOLATES("pskiplist.D1", leaf.unlock_gone());
  EXPECT_VIOLATES("pskiplist.D1", Plant::split(directory, first));
  LeafArena<Traits<SimPlatform, IntegerCodec, TinyGeometry>> arena;
  ASSERT_TRUE(arena.reserve(4).ok());
  const std::uint32_t taken = arena.take();
  EXPECT_VIOLATES("pskiplist.D1", arena.give(taken));
}

TEST(PskiplistStrings, KeysHaveThePrefix) {
  SimMemory memory(2 << 20);
  SimPlatform::seed(1);
  MapSetup setup{.background_thread = false};
  setup.shape.max_bytes = 256 << 10;
  PskiplistSubject<BytesCodec> subject(setup);
  ASSERT_TRUE(subject.create(memory).ok());
  ASSERT_TRUE(subject.open(memory, 1).ok());
  EXPECT_TRUE(subject.call({OpKind::upsert, "first", std::string(8, 'v')}));
  auto& map = static_cast<PSkipList<SimPlatform, BytesCodec, TinyGeometry>&>(subject.versioned());
  Plant::last_leaf(map).prefix.store(3);
  EXPECT_VIOLATES("pskiplist.D5", (void)subject.call({OpKind::upsert, "second", "value"}));
  Plant::last_leaf(map).prefix.store(0);
  memory.set_mode(SimMode::frozen);
}

// Four keys fill a leaf; the fifth splits it.
TEST_F(PskiplistAssert, RangesAdjoin) {
  for (std::uint64_t key = 3; key <= 5; ++key) put(key);
  auto& directory = Plant::directory(map());
  const std::uint32_t first = Plant::first_leaf(directory);
  auto& left = Plant::leaf(directory, first);
  const std::uint32_t second = left.next.load();
  ASSERT_NE(second, kNoLeaf);
  auto& right = Plant::leaf(directory, second);
  Plant::lock(left);
  Plant::lock(right);
  const std::uint64_t bound = left.bound.exchange(1);
  EXPECT_VIOLATES("pskiplist.D2", Plant::split(directory, first));
  left.bound.store(bound);
  // An unlink of the first leaf; of a leaf whose right neighbour lies elsewhere.
  left.count.store(0);
  EXPECT_VIOLATES("pskiplist.D3", Plant::unlink(directory, second, first));
  left.next.store(kNoLeaf);
  right.next.store(first);
  right.count.store(0);
  EXPECT_VIOLATES("pskiplist.D2", Plant::unlink(directory, first, second));
}

// A node is removed under a key that is not its own, whose hint lies in another bucket.
TEST_F(PskiplistAssert, HintsGoFirst) {
  for (std::uint64_t key = 3; key <= 20; ++key) put(key);
  const auto remove_wrong = [&] {
    for (std::uint64_t key = 2; key <= 20; ++key) {
      Plant::directory(map()).remove({.word = key}, Plant::number(map(), 1));
    }
  };
  EXPECT_VIOLATES("pskiplist.D4", remove_wrong());
}

// A name is missing, and its bucket does not say that it is incomplete.
TEST_F(PskiplistAssert, ListedKeysAreHinted) {
  std::vector<std::string> violations;
  subject().check(violations);
  EXPECT_EQ(violations, std::vector<std::string>());
  Plant::take_hint(map(), 1);
  subject().check(violations);
  ASSERT_EQ(violations.size(), 1);
  EXPECT_NE(violations[0].find("pskiplist.H4"), std::string::npos) << violations[0];
}

TEST(KeyHintsAssert, BucketsWithNamesStayLinked) {
  KeyHints<SimPlatform> hints;
  ASSERT_TRUE(hints.reserve(100).ok());
  for (std::uint32_t node = 1; node <= KeyHints<SimPlatform>::kNodes + 1; ++node) {
    hints.put(node, node);
  }
  EXPECT_VIOLATES("pskiplist.H4", Plant::give_linked(hints));
}

TEST(KeyHintsAssert, BucketsComeOneByOne) {
  KeyHints<SimPlatform> hints;
  ASSERT_TRUE(hints.reserve(100).ok());
  hints.put(1, 1);
  const auto grow = [&] {
    hints.grow<false>(
        6,
        [&](std::uint32_t) {
          hints.prepare(100);
          return std::uint64_t{1};
        },
        [](std::uint32_t) {}, [](std::uint32_t) {});
  };
  EXPECT_VIOLATES("pskiplist.H2", grow());
}

}  // namespace
}  // namespace perdure::pskiplist
