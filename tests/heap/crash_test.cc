// The heap's rules for crashes, one by one. The synthetic engine's tests explore them together.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "testing/crash/heap_scenarios.h"
#include "testing/sim/sim_pool.h"

namespace perdure::testing {
namespace {

struct OpenPool {
  explicit OpenPool(SimMemory& memory, std::uint64_t boot = 1) : pool(memory) {
    EXPECT_TRUE(pool.open(boot).ok());
  }
  std::uint64_t* words(std::uint64_t offset) { return pool.heap().at<std::uint64_t>(offset); }
  std::uint64_t allocate(std::size_t n, BlockKind kind) {
    auto offset = pool.heap().allocate(n, kind);
    EXPECT_TRUE(offset.has_value());
    return offset.value_or(0);
  }
  SimPool pool;
};

void fill(OpenPool& p, std::uint64_t offset, std::size_t n) {
  std::vector<char> bytes(n, 'x');
  p.pool.platform().copy(p.words(offset), bytes.data(), n);
  p.pool.platform().flush(p.words(offset), n, "heap_test.fill.block"_site);
  p.pool.platform().fence("heap_test.fill.block"_site);
}

class HeapKinds : public ::testing::TestWithParam<BlockKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, HeapKinds,
                         ::testing::Values(BlockKind::dead_on_free, BlockKind::zero_on_free));

// 4b: the inner extents of a run hold user bytes, without a word in the table. After the run is
// released, no crash may leave an inner extent that looks unused.
TEST_P(HeapKinds, X2_ExtentsOfAReleasedRunAreNotVirgin) { EXPECT_EQ(released_run(GetParam()), ""); }

TEST_P(HeapKinds, X2_FreedBlocksAreDurablyDead) {
  EXPECT_EQ(freed_blocks(GetParam(), 64), "");
  EXPECT_EQ(freed_blocks(GetParam(), 192), "");
}

TEST_P(HeapKinds, X2_ExtentsThatChangeTheirKindAreZeroed) {
  EXPECT_EQ(changed_kind(GetParam(), 64), "");
  EXPECT_EQ(changed_kind(GetParam(), 192), "");
}

TEST_P(HeapKinds, X2_SweptBlocksAreDurablyDead) {
  EXPECT_EQ(swept_blocks(GetParam(), 64), "");
  EXPECT_EQ(swept_blocks(GetParam(), 192), "");
}

// 4b: no block is handed out before the word of its extent is durable.
TEST(HeapCrash, H4b_ExtentWordIsDurableBeforeItsFirstBlock) {
  SimMemory memory(2 << 20);
  ASSERT_TRUE(SimPool::create(memory, kTinyShape).ok());
  OpenPool p(memory);
  ASSERT_TRUE(p.pool.core().complete(true).ok());
  for (const std::size_t n : {16, 48, 64, 200, 1000, 5000, 13000}) {
    for (const BlockKind kind :
         {BlockKind::plain, BlockKind::dead_on_free, BlockKind::zero_on_free}) {
      const std::uint64_t block = p.allocate(n, kind);
      SimMemory scratch(2 << 20);
      scratch.load_image(memory, memory.image({}, {}, false, false));  // the guaranteed content
      SimPool after(scratch);
      ASSERT_TRUE(after.open(2).ok());
      EXPECT_TRUE(after.heap().mark(block).ok()) << n;
      EXPECT_TRUE(after.core().complete(true).ok());
    }
  }
  memory.set_mode(SimMode::frozen);
}

// 4a: a block deleted before the background sweep reached it is unmarked. It must not be freed
// twice, by the end of the sweep and by the end of its epochs.
TEST(HeapCrash, H4a_RetiredDuringTheSweepIsHandedOutOnce) {
  for (const bool plain : {true, false}) {
    const BlockKind kind = plain ? BlockKind::plain : BlockKind::dead_on_free;
    SimMemory memory(2 << 20);
    ASSERT_TRUE(SimPool::create(memory, kTinyShape).ok());
    std::vector<std::uint64_t> blocks;
    {
      OpenPool p(memory);
      ASSERT_TRUE(p.pool.core().complete(true).ok());
      for (int i = 0; i < 8; ++i) blocks.push_back(p.allocate(64, kind));
      memory.settle();
    }
    OpenPool p(memory, 2);
    auto& heap = p.pool.heap();
    for (std::size_t i = 1; i < blocks.size(); ++i) ASSERT_TRUE(heap.mark(blocks[i]).ok());
    {
      const EpochGuard<SimPlatform> guard(p.pool.epochs());
      heap.retire(blocks[0]);  // unlinked before the marker came
      ASSERT_TRUE(p.pool.core().complete(true).ok());
      // A reader may still hold it.
      std::set<std::uint64_t> handed_out;
      for (int i = 0; i < 60; ++i) handed_out.insert(p.allocate(64, kind));
      EXPECT_FALSE(handed_out.contains(blocks[0])) << "reused while a reader may hold it";
    }
    p.pool.epochs().drain_all();
    std::set<std::uint64_t> handed_out(blocks.begin() + 1, blocks.end());
    for (int i = 0; i < 200; ++i) {
      EXPECT_TRUE(handed_out.insert(p.allocate(64, kind)).second) << "handed out twice";
    }
    memory.set_mode(SimMode::frozen);
  }
}

// 4e: punched space gets its space back before use, also in a process that only knows the file.
TEST(HeapCrash, H4e_PunchedExtentsAreBackedAgainAfterAReopen) {
  SimMemory memory(2 << 20);
  ASSERT_TRUE(SimPool::create(memory, kTinyShape).ok());
  {
    OpenPool p(memory);
    ASSERT_TRUE(p.pool.core().complete(true).ok());
    std::vector<std::uint64_t> blocks;
    for (int i = 0; i < 200; ++i) blocks.push_back(p.allocate(1024, BlockKind::plain));
    for (const std::uint64_t block : blocks) p.pool.heap().free(block);
    const auto punched = p.pool.heap().punch_free();
    ASSERT_TRUE(punched.has_value());
    EXPECT_GT(*punched, 0U);
    for (int i = 0; i < 40; ++i) fill(p, p.allocate(1024, BlockKind::plain), 1024);
    EXPECT_EQ(memory.hole_stores(), 0U) << "in the process that punched";
    memory.settle();
  }
  OpenPool p(memory, 2);
  ASSERT_TRUE(p.pool.core().complete(true).ok());
  for (int i = 0; i < 200; ++i) fill(p, p.allocate(1024, BlockKind::plain), 1024);
  EXPECT_EQ(memory.hole_stores(), 0U) << "in the process after it: on a full disk a signal";
  memory.set_mode(SimMode::frozen);
}

// 4d: with every old extent touched, an allocation helps the sweep to its end before it returns
// pool_full.
TEST(HeapCrash, H4d_AllocationHelpsTheSweepBeforePoolFull) {
  SimMemory memory(2 << 20);
  ASSERT_TRUE(SimPool::create(memory, kTinyShape).ok());
  {
    OpenPool p(memory);
    ASSERT_TRUE(p.pool.core().complete(true).ok());
    memory.set_disk_limit(memory.size());
    while (p.pool.heap().allocate(64, BlockKind::plain)) {
    }
    memory.settle();
  }
  OpenPool p(memory, 2);  // nothing is reachable, nothing is untouched
  struct Sweep final : testing::PassingHost {
    using PassingHost::PassingHost;
    bool help_sweep() override {
      ++calls;
      return core_.complete(true).ok();
    }
    int calls = 0;
  } sweep(p.pool.core());
  EXPECT_TRUE(p.pool.heap().allocate(64, BlockKind::plain).has_value());
  EXPECT_EQ(sweep.calls, 1);
  while (p.pool.heap().allocate(64, BlockKind::plain)) {
  }
  EXPECT_EQ(p.pool.heap().allocate(64, BlockKind::plain).error(), StatusCode::pool_full);
  p.pool.heap().set_host(p.pool.core());  // before `sweep` goes
  memory.set_mode(SimMode::frozen);
}

// 4c: one map that cannot be enumerated forbids freeing anything in the pool.
TEST(HeapCrash, H4c_AnIncompleteEnumerationFreesNothing) {
  SimMemory memory(2 << 20);
  ASSERT_TRUE(SimPool::create(memory, kTinyShape).ok());
  std::set<std::uint64_t> blocks;
  {
    OpenPool p(memory);
    ASSERT_TRUE(p.pool.core().complete(true).ok());
    for (int i = 0; i < 40; ++i) {
      blocks.insert(p.allocate(64, BlockKind::dead_on_free));
      blocks.insert(p.allocate(200, BlockKind::plain));
      blocks.insert(p.allocate(5000, BlockKind::plain));
    }
    memory.settle();
  }
  OpenPool p(memory, 2);
  ASSERT_TRUE(p.pool.heap().mark(*blocks.begin()).ok());
  ASSERT_TRUE(p.pool.core().complete(false).ok());
  for (int i = 0; i < 40; ++i) {
    for (const auto& [n, kind] : {std::pair{64, BlockKind::dead_on_free},
                                  {200, BlockKind::plain},
                                  {5000, BlockKind::plain}}) {
      const auto block = p.pool.heap().allocate(static_cast<std::size_t>(n), kind);
      EXPECT_TRUE(!block || !blocks.contains(*block));
    }
  }
  memory.set_mode(SimMode::frozen);
}

}  // namespace
}  // namespace perdure::testing
