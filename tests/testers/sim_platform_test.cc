// test: explores
// The crash model itself: right protocols must survive every image, and each wrong protocol must
// have an image that breaks it.
#include "testing/sim/sim_platform.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <vector>

#include "testing/mutants/mutants.h"

namespace perdure::testing {
namespace {

// All images of a memory in its present state, as the words that a reader would see.
std::set<std::vector<std::uint64_t>> states(SimMemory& memory, std::size_t words) {
  const auto pending = memory.pending();
  std::vector<std::uint32_t> choice(pending.size(), 0);
  std::set<std::vector<std::uint64_t>> result;
  SimMemory scratch(memory.capacity());
  for (;;) {
    scratch.load_image(memory, memory.image(pending, choice, true, false));
    const auto* base = reinterpret_cast<const std::uint64_t*>(scratch.base());
    result.insert(std::vector<std::uint64_t>(base, base + words));
    std::size_t i = 0;
    while (i < choice.size() && ++choice[i] == pending[i].choices.size()) choice[i++] = 0;
    if (i == choice.size()) return result;
  }
}

struct Rig {
  Rig() {
    EXPECT_TRUE(memory.allocate(0, 4096).ok());
    memory.sync(0, 4096, "test.size");
  }
  std::uint64_t& word(std::size_t i) { return reinterpret_cast<std::uint64_t*>(memory.base())[i]; }
  SimMemory memory{1 << 20};
  SimPlatform p{memory};
};

using Words = std::vector<std::uint64_t>;

TEST(SimMemory, SameLineStoresPersistAsAPrefix) {
  Rig rig;
  rig.p.store(rig.word(1), 7);
  rig.p.store(rig.word(0), 9);
  EXPECT_EQ(states(rig.memory, 2), (std::set<Words>{{0, 0}, {0, 7}, {9, 7}}));
}

TEST(SimMemory, DifferentLinesPersistInAnyOrder) {
  Rig rig;
  rig.p.store(rig.word(0), 1);
  rig.p.store(rig.word(8), 2);
  EXPECT_EQ(states(rig.memory, 9).size(), 4U);
}

TEST(SimMemory, FlushAloneGuaranteesNothing) {
  Rig rig;
  rig.p.store(rig.word(0), 1);
  rig.p.flush(&rig.word(0), 8, "sim_test.flush.alone"_site);
  EXPECT_EQ(states(rig.memory, 1).size(), 2U);
  rig.p.fence("sim_test.flush.fence"_site);
  EXPECT_EQ(states(rig.memory, 1), (std::set<Words>{{1}}));
}

TEST(SimMemory, FenceAloneGuaranteesNothing) {
  Rig rig;
  rig.p.store(rig.word(0), 1);
  rig.p.fence("sim_test.flush.fence"_site);
  EXPECT_EQ(states(rig.memory, 1).size(), 2U);
}

TEST(SimMemory, AStoreAfterTheFlushIsNotCovered) {
  Rig rig;
  rig.p.store(rig.word(0), 1);
  rig.p.flush(&rig.word(0), 8, "sim_test.flush.alone"_site);
  rig.p.store(rig.word(0), 2);
  rig.p.fence("sim_test.flush.fence"_site);
  EXPECT_EQ(states(rig.memory, 1), (std::set<Words>{{1}, {2}}));
}

TEST(SimMemory, AnotherThreadsFenceDoesNotCount) {
  Rig rig;
  rig.p.store(rig.word(0), 1);
  rig.p.flush(&rig.word(0), 8, "sim_test.flush.alone"_site);
  SimPlatform::world().thread = 1;
  rig.p.fence("sim_test.flush.fence"_site);
  EXPECT_EQ(states(rig.memory, 1).size(), 2U);
  SimPlatform::world().thread = 0;
  rig.p.fence("sim_test.flush.fence"_site);
  EXPECT_EQ(states(rig.memory, 1).size(), 1U);
}

TEST(SimMemory, CompareExchangeIsNoFence) {
  Rig rig;
  rig.p.store(rig.word(0), 1);
  rig.p.flush(&rig.word(0), 8, "sim_test.flush.alone"_site);
  std::uint64_t expected = 0;
  EXPECT_TRUE(rig.p.compare_exchange(rig.word(8), expected, 5));
  EXPECT_FALSE(rig.p.compare_exchange(rig.word(8), expected, 6));
  EXPECT_EQ(expected, 5U);
  EXPECT_EQ(states(rig.memory, 9).size(), 4U);
}

TEST(SimMemory, WholeLinesTearPartialOnesKeepTheirOrder) {
  Rig rig;
  const std::uint64_t source[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  rig.p.copy(&rig.word(0), source, 64);
  // none, 8 single words, 8 times all but one, all; 2 to 6 words from the start
  EXPECT_EQ(states(rig.memory, 8).size(), 23U);
  EXPECT_EQ(rig.memory.pending().front().states, 256U);
  EXPECT_EQ(rig.memory.pending(true).front().choices.size(), 256U);
  Rig partial;
  partial.p.copy(&partial.word(2), source, 24);
  EXPECT_EQ(states(partial.memory, 8).size(), 4U);
  Rig torn;
  torn.memory.set_tear_partial_copies(true);
  torn.p.copy(&torn.word(2), source, 24);
  EXPECT_EQ(states(torn.memory, 8).size(), 8U);
  Rig odd;  // the last word keeps the bytes beyond the copy
  odd.p.store(odd.word(0), ~0ULL);
  odd.p.copy(&odd.word(0), source, 4);
  EXPECT_EQ(odd.word(0), 0xFFFFFFFF00000001ULL);
}

TEST(SimMemory, ACommitWordAfterACopyImpliesTheCopy) {
  Rig rig;
  const std::uint64_t source[8] = {0, 2, 3, 4, 5, 6, 7, 8};
  rig.p.copy(&rig.word(0), source, 64);
  rig.p.store(rig.word(0), 99);
  for (const Words& words : states(rig.memory, 8)) {
    EXPECT_TRUE(words[0] != 99 || words == (Words{99, 2, 3, 4, 5, 6, 7, 8}));
  }
}

TEST(SimMemory, SizeIsDurableAfterSyncOnly) {
  SimMemory memory(1 << 20);
  ASSERT_TRUE(memory.allocate(0, 8192).ok());
  EXPECT_TRUE(memory.size_pending());
  SimMemory scratch(1 << 20);
  scratch.load_image(memory, memory.image({}, {}, false, false));
  EXPECT_EQ(scratch.size(), 0U);
  scratch.load_image(memory, memory.image({}, {}, true, false));
  EXPECT_EQ(scratch.size(), 8192U);
  memory.sync(0, 0, "test.size");
  EXPECT_FALSE(memory.size_pending());
  memory.set_disk_limit(8192);
  EXPECT_EQ(memory.allocate(8192, 4096), StatusCode::pool_full);
}

TEST(SimMemory, PunchIsDurableAfterSyncOnly) {
  Rig rig;
  rig.p.store(rig.word(0), 5);
  rig.p.flush(&rig.word(0), 8, "sim_test.flush.alone"_site);
  rig.p.fence("sim_test.flush.fence"_site);
  ASSERT_TRUE(rig.memory.punch(0, 4096).ok());
  EXPECT_EQ(rig.word(0), 0U);
  SimMemory scratch(1 << 20);
  const auto first = [&](bool punched) {
    scratch.load_image(rig.memory, rig.memory.image({}, {}, true, punched));
    return *reinterpret_cast<std::uint64_t*>(scratch.base());
  };
  EXPECT_EQ(first(false), 5U);
  EXPECT_EQ(first(true), 0U);
  rig.memory.sync(0, 4096, "test.size");
  EXPECT_EQ(first(false), 0U);
}

TEST(SimMemory, RepeatedLoadsRestoreWhatTheLastRunChanged) {
  Rig rig;
  rig.p.store(rig.word(0), 1);
  SimMemory scratch(1 << 20);
  SimPlatform p(scratch);
  for (int round = 0; round < 3; ++round) {
    scratch.load_image(rig.memory, rig.memory.image(rig.memory.pending(), {0}, true, false));
    auto* words = reinterpret_cast<std::uint64_t*>(scratch.base());
    EXPECT_EQ(words[0], round == 2 ? 1U : 0U);
    EXPECT_EQ(words[100], 0U);
    p.store(words[100], 77);
    p.zero(words, 8);
    if (round != 1) continue;
    // The source changes between two loads.
    rig.p.flush(&rig.word(0), 8, "sim_test.flush.alone"_site);
    rig.p.fence("sim_test.flush.fence"_site);
    rig.p.store(rig.word(0), 2);
  }
}

TEST(SimMemory, HashesTellImagesApartAndAgreeAcrossTime) {
  Rig rig;
  rig.p.store(rig.word(0), 1);
  rig.p.store(rig.word(8), 2);
  std::set<std::uint64_t> hashes;
  const auto pending = rig.memory.pending();
  for (std::uint32_t i = 0; i < 4; ++i) {
    hashes.insert(rig.memory.image(pending, {i & 1, i >> 1}, true, false).hash);
  }
  EXPECT_EQ(hashes.size(), 4U);
  const auto all = rig.memory.image(pending, {1, 1}, true, false).hash;
  rig.p.flush(&rig.word(0), 128, "sim_test.flush.alone"_site);
  rig.p.fence("sim_test.flush.fence"_site);
  EXPECT_EQ(rig.memory.image({}, {}, true, false).hash, all);
}

TEST(SimMemory, KilledProcessLeavesItsStoresPending) {
  Rig rig;
  rig.p.store(rig.word(0), 1);
  rig.p.flush(&rig.word(0), 8, "sim_test.flush.alone"_site);
  SimMemory next(1 << 20);
  next.load_killed(rig.memory);
  SimPlatform p(next);
  auto& word = *reinterpret_cast<std::uint64_t*>(next.base());
  EXPECT_EQ(p.load(word), 1U);
  p.fence("sim_test.flush.fence"_site);  // the dead thread's write-back is not covered
  EXPECT_EQ(states(next, 1).size(), 2U);
  p.flush(&word, 8, "sim_test.flush.alone"_site);
  p.fence("sim_test.flush.fence"_site);
  EXPECT_EQ(states(next, 1), (std::set<Words>{{1}}));
}

TEST(SimMemory, FrozenMemoryIgnoresStores) {
  Rig rig;
  rig.memory.set_mode(SimMode::frozen);
  rig.p.store(rig.word(0), 1);
  rig.p.zero(&rig.word(0), 64);
  EXPECT_EQ(rig.word(0), 0U);
}

TEST(SimMemory, StoresPastThePlatformAreNoticed) {  // G4
  Rig rig;
  rig.p.store(rig.word(3), 1);
  EXPECT_EQ(rig.memory.unexplained_lines(), 0U);
  rig.word(9) = 4;
  EXPECT_EQ(rig.memory.unexplained_lines(), 1U);
}

TEST(SimMemoryDeathTest, FlushOfAStackVariableAborts) {  // G3
  Rig rig;
  std::uint64_t local = 0;
  EXPECT_DEATH(rig.p.flush(&local, 8, "sim_test.flush.alone"_site), "outside the file");
}

TEST(SimPlatformDeathTest, SelfDeadlockIsReported) {
  SimPlatform::Latch latch;
  latch.lock();
  EXPECT_DEATH(latch.lock(), "no progress");
}

TEST(Sites, AreListedWithTheirUses) {
  SiteInfo* flush = find_site("sim_test.flush.alone");
  ASSERT_NE(flush, nullptr);
  EXPECT_TRUE(flush->flushes);
  EXPECT_FALSE(flush->fences);
  ASSERT_NE(find_site("sim_test.flush.fence"), nullptr);
  EXPECT_EQ(mutants_of(*find_site("sim_test.flush.fence")),
            std::vector<Mutant>{Mutant::drop_fence});
  EXPECT_EQ(find_site("no.such.site"), nullptr);
  EXPECT_FALSE(set_mutant("no.such.site:drop_flush"));
  EXPECT_FALSE(set_mutant("sim_test.flush.alone:no_such_mutant"));
}

// --- small protocols, right and wrong: payload in one line, commit word in another ---

template <FixedString Name>
void publish(Rig& rig, bool payload_flush, bool payload_fence) {
  const std::uint64_t payload[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  rig.p.copy(&rig.word(8), payload, 64);
  rig.p.copy(&rig.word(16), payload, 64);
  if (payload_flush) rig.p.flush(&rig.word(8), 128, Site<Name>{});
  if (payload_fence) rig.p.fence(Site<Name>{});
  rig.p.store(rig.word(0), 1);
  rig.p.flush(&rig.word(0), 8, "sim_test.publish.commit"_site);
}

bool holds(Rig& rig) {
  for (const Words& words : states(rig.memory, 24)) {
    if (words[0] == 1 && (words[8] != 1 || words[15] != 8 || words[23] != 8)) return false;
  }
  return true;
}

TEST(MiniProtocols, TheRightOneHolds) {
  Rig rig;
  publish<"sim_test.publish.payload">(rig, true, true);
  EXPECT_TRUE(holds(rig));
}

TEST(MiniProtocols, WithoutFlushOrFenceItBreaks) {
  for (const auto& [flush, fence] : {std::pair{false, true}, {true, false}, {false, false}}) {
    Rig rig;
    publish<"sim_test.publish.payload">(rig, flush, fence);
    EXPECT_FALSE(holds(rig)) << flush << fence;
  }
}

TEST(MiniProtocols, EveryMutantOfThePayloadSiteBreaksIt) {
  SiteInfo* site = find_site("sim_test.publish.payload");
  ASSERT_NE(site, nullptr);
  {
    Rig rig;  // several lines at once count
    publish<"sim_test.publish.payload">(rig, true, true);
  }
  EXPECT_EQ(mutants_of(*site).size(), 6U);
  for (const Mutant mutant : mutants_of(*site)) {
    ScopedMutant scoped("sim_test.publish.payload", mutant);
    reset_site_counts();
    Rig rig;
    publish<"sim_test.publish.payload">(rig, true, true);
    EXPECT_FALSE(holds(rig)) << mutant_name(mutant);
    EXPECT_GT(site->dropped_count, 0U);
  }
  Rig rig;
  publish<"sim_test.publish.payload">(rig, true, true);
  EXPECT_TRUE(holds(rig));
}

TEST(MiniProtocols, ALineWithoutOrderBreaks) {
  for (const Mutant mutant : {Mutant::none, Mutant::any_order}) {
    ScopedMutant scoped("sim_test.publish.ordered", mutant);
    Rig rig;
    rig.p.store(rig.word(0), 7);
    rig.p.store(rig.word(1), 1);  // this word says that the other one counts
    rig.p.flush(&rig.word(0), 16, "sim_test.publish.ordered"_site);
    bool broken = false;
    for (const Words& words : states(rig.memory, 2)) broken |= words[1] == 1 && words[0] != 7;
    EXPECT_EQ(broken, mutant == Mutant::any_order);
  }
}

// The next fence makes durable what a dropped fence left, and settled_by names it.
TEST(MiniProtocols, WhoSettlesIsSaid) {
  ScopedMutant scoped("sim_test.settle.first", Mutant::drop_fence);
  scoped.site()->settled_by.clear();
  Rig rig;
  rig.p.store(rig.word(0), 7);
  rig.p.flush(&rig.word(0), 8, "sim_test.settle.first"_site);
  rig.p.fence("sim_test.settle.first"_site);
  EXPECT_TRUE(scoped.site()->settled_by.empty());
  rig.p.fence("sim_test.settle.next"_site);
  EXPECT_EQ(scoped.site()->settled_by, std::set<std::string>{"sim_test.settle.next"});
}

}  // namespace
}  // namespace perdure::testing
