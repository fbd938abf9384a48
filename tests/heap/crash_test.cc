// test: explores
// The heap's rules for crashes, one by one. The synthetic engine's tests explore them together.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "testing/crash/enumerate.h"
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

// A process is killed, and the next one serves at once. The power fails before each fence of that
// one, while it has read none of the extent table, a part, or all.
class UnreadTable : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kCapacity = 2 << 20;
  static constexpr PoolShape kShape{
      .max_bytes = 1 << 20, .extent_bytes = kPage, .root_slots = 2, .initial_extents = 48};

  struct Kept final : MarkingMap {
    explicit Kept(UnreadTable& of) : test(of) {}
    Expected<bool> mark_some(std::uint64_t) override {
      for (const auto& [block, bytes] : test.kept_) {
        if (Status s = test.next_->heap().mark_serving(block); !s.ok()) return fail(std::move(s));
      }
      return false;
    }
    UnreadTable& test;
  };

  UnreadTable() : before_(kCapacity), after_(kCapacity), medium_(kCapacity) {
    EXPECT_TRUE(SimPool::create(before_, kShape).ok());
    first_ = std::make_unique<SimPool>(before_);
    EXPECT_TRUE(first_->open_whole(1).ok());
    layout::Root line{};
    line.name[0] = 'm';
    line.root = 3 * kLine;
    EXPECT_TRUE(first_->core().add_root(line).ok());
  }
  ~UnreadTable() override {
    for (SimMemory* memory : {&before_, &after_, &medium_}) memory->set_mode(SimMode::frozen);
  }
  std::uint64_t keep(std::size_t n, BlockKind kind) {
    const std::uint64_t block = first_->heap().allocate(n, kind).value_or(0);
    EXPECT_NE(block, 0U);
    kept_[block] = first_->heap().block_bytes(block);
    first_->platform().store(*first_->heap().at<std::uint64_t>(block), block);
    first_->platform().flush(first_->heap().at<std::uint64_t>(block), 8, "table_test.fill"_site);
    first_->platform().fence("table_test.fill"_site);
    return block;
  }
  // Kills the first process before the first fence of the site that `run` passes.
  void killed_before(std::string_view site, const std::function<void()>& run) {
    bool killed = false;
    before_.before_fence = [&](const SiteInfo& next) {
      if (!killed && next.name == site) after_.load_killed(before_);
      killed = killed || next.name == site;
    };
    run();
    before_.before_fence = nullptr;
    EXPECT_TRUE(killed);
    next_ = std::make_unique<SimPool>(after_);
    next_->restart_at_once();
    EXPECT_TRUE(next_->open(1).ok());
    next_->core().sweep().add(marks_);
    EXPECT_TRUE(next_->core().complete(true).ok());
    EXPECT_FALSE(next_->heap().table_read());
    next_->core().serve();
  }
  bool overlaps(std::uint64_t block, std::uint64_t bytes) const {
    return std::ranges::any_of(kept_, [&](const auto& old) {
      return block < old.first + old.second && old.first < block + bytes;
    });
  }
  void allocate(SimPool& pool, std::size_t n, BlockKind kind) {
    auto block = pool.heap().allocate(n, kind);
    ASSERT_TRUE(block.has_value());
    EXPECT_FALSE(overlaps(*block, pool.heap().block_bytes(*block))) << n;
  }
  // What the third process finds.
  void judge() {
    const ScopedWorld world;
    const auto pending = after_.pending();
    const EnumerationLimits limits{.product = 64, .random = 8, .sampled = 24};
    for (const Combination& c : enumerate(after_, pending, limits, 1).combinations) {
      const CrashImage image = after_.image(pending, c.choice, c.new_size, c.punched);
      if (!seen_.insert(image.hash).second) continue;
      medium_.load_image(after_, image);
      SimPool third(medium_);
      if (images_++ % 2 == 0) third.restart_at_once();
      ASSERT_TRUE(third.open(2).ok());
      for (const auto& [block, bytes] : kept_) {
        ASSERT_TRUE(third.heap().mark(block).ok()) << block;
        ASSERT_EQ(*third.heap().at<std::uint64_t>(block), block);
      }
      const Status s = third.heap().end_sweep(true);
      ASSERT_TRUE(s.ok()) << s.message();
      for (const std::size_t n : {std::size_t{64}, std::size_t{3 * kPage}}) {
        allocate(third, n, BlockKind::zero_on_free);
      }
      medium_.set_mode(SimMode::frozen);
    }
  }

  SimMemory before_, after_, medium_;
  std::unique_ptr<SimPool> first_, next_;
  std::map<std::uint64_t, std::uint64_t> kept_;  // blocks that maps reach, and their bytes
  Kept marks_{*this};
  std::set<std::uint64_t> seen_;
  std::uint64_t images_ = 0;
};

TEST_F(UnreadTable, X1_APowerFailureBeforeTheTableIsRead) {
  std::vector<std::uint64_t> runs;
  for (const std::size_t n : {16, 200, 1000, 5000, 13000}) {
    for (const BlockKind kind :
         {BlockKind::plain, BlockKind::dead_on_free, BlockKind::zero_on_free}) {
      (void)keep(n, kind);
      runs.push_back(first_->heap().allocate(2 * kPage, kind).value_or(0));
    }
  }
  first_->heap().free(runs[0]);
  first_->heap().free(runs[3]);
  killed_before("heap.extent.release", [&] { first_->heap().free(runs[6]); });
  after_.before_fence = [&](const SiteInfo&) { judge(); };
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> old(kept_.begin(), kept_.end());
  std::size_t dropped = 0;
  bool unread = false;
  for (const std::size_t n : {64, 9000, 300, 16, 20000, 5000, 1000, 40000}) {
    unread = unread || !next_->heap().table_read();
    allocate(*next_, n, BlockKind::dead_on_free);
    {
      const EpochGuard<SimPlatform> guard(next_->epochs());
      kept_.erase(old[dropped].first);  // its unlink is durable
      next_->heap().retire(old[dropped].first);
      dropped += 2;
    }
    next_->epochs().drain_all();
    (void)next_->core().sweep().run_some();
  }
  EXPECT_TRUE(unread);
  EXPECT_TRUE(next_->core().sweep().finish());
  EXPECT_TRUE(next_->heap().punch_free().has_value());
  judge();
  after_.before_fence = nullptr;
  EXPECT_GT(images_, 50U);
}

}  // namespace
}  // namespace perdure::testing
