// test: explores
// The assertions of EpochDomain and Heap: each is violated once.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "heap/heap.h"
#include "reclaim/epoch.h"
#include "testing/sim/sim_memory.h"
#include "testing/sim/sim_pool.h"
#include "testing/sim/sites.h"
#include "tests/support/violates.h"

namespace perdure::testing {
namespace {

constexpr std::uint64_t kCapacity = 2 << 20;

class HeapAssertions : public ::testing::Test {
 protected:
  HeapAssertions() : memory_(kCapacity) {
    EXPECT_TRUE(SimPool::create(memory_, kTinyShape).ok());
    memory_.settle();
    memory_.set_mode(SimMode::recording);
    open(true);
    layout::Root line{};
    line.name[0] = 'm';
    line.root = 3 * kLine;
    EXPECT_TRUE(pool_->core().add_root(line).ok());
  }
  ~HeapAssertions() override { memory_.set_mode(SimMode::frozen); }
  void open(bool finish) {
    pool_ = std::make_unique<SimPool>(memory_);
    EXPECT_TRUE(pool_->open(1).ok());
    EXPECT_TRUE(!finish || pool_->core().complete(true).ok());
  }
  // As after a kill, of a pool whose maps restart at once.
  void open_at_once() {
    pool_ = std::make_unique<SimPool>(memory_);
    pool_->restart_at_once();
    EXPECT_TRUE(pool_->open(1).ok());
  }
  Heap<SimPlatform>& heap() { return pool_->heap(); }
  EpochDomain<SimPlatform>& epochs() { return pool_->epochs(); }
  std::uint64_t allocate(std::size_t bytes, BlockKind kind) {
    return heap().allocate(bytes, kind).value_or(0);
  }
  void store(std::uint64_t block, std::uint64_t value) {
    pool_->platform().store(*heap().at<std::uint64_t>(block), value);
  }
  void retire(std::uint64_t block) {
    const EpochGuard<SimPlatform> guard(epochs());
    heap().retire(block);
  }

  SimMemory memory_;
  std::unique_ptr<SimPool> pool_;
};

constexpr Reclaimer kNothing{nullptr, [](void*, std::uint64_t) {}};

TEST_F(HeapAssertions, TheEpochMovesBesideAPin) {
  EXPECT_VIOLATES("epoch.I1", {
    auto* slot = epochs().pin<false>();
    slot->pinned.store(0);  // the advancer does not see it
    epochs().drain_all();
    epochs().unpin(slot);
  });
}

// The holder of the gate does not see the mutation, and does not wait for it.
TEST_F(HeapAssertions, AMutationBehindAClosedGate) {
  EXPECT_VIOLATES("gate.G1", {
    MutationGuard<SimPlatform> guard(epochs());
    (void)guard.pass_gate();
    // Takes the bit away by which close() sees a mutation: it will not wait for this one.
    auto* slot = epochs().pin<false>();
    slot->pinned.store(slot->pinned.load() & ~std::uint64_t{2});
    epochs().unpin(slot);
    SimPlatform::world().thread = 1;
    epochs().gate().close();
    SimPlatform::world().thread = 0;
  });
}

TEST_F(HeapAssertions, WaitsAtTheGateInAGuard) {
  EXPECT_VIOLATES("gate.G2", {
    const EpochGuard<SimPlatform> guard(epochs());
    Gate<SimPlatform>::Waiting(epochs().gate()).wait();
  });
}

TEST_F(HeapAssertions, ABatchEndsBesideMutations) {
  EXPECT_VIOLATES("gate.G3", epochs().gate().set_pending(nullptr));
}

TEST_F(HeapAssertions, AnEpochThatWasNotYet) {
  EXPECT_VIOLATES("epoch.I2", {
    auto* slot = epochs().pin<false>();
    slot->pinned.store((epochs().epoch() + 1) << 2 | 1);
    epochs().retire(kNothing, nullptr, 0);
  });
}

TEST_F(HeapAssertions, LimboOutOfOrder) {
  EXPECT_VIOLATES("epoch.I2", {
    auto* slot = epochs().pin<false>();
    epochs().retire(kNothing, nullptr, 0);
    epochs().retire(kNothing, nullptr, 1);
    --slot->limbo[1].epoch;
    epochs().unpin(slot);
    epochs().drain_all();
  });
}

TEST_F(HeapAssertions, RetiredOutsideAGuard) {
  const std::uint64_t block = allocate(64, BlockKind::plain);
  EXPECT_VIOLATES("epoch.I2", heap().retire(block));
}

TEST_F(HeapAssertions, AnExtentWhoseWordIsNotDurable) {
  EXPECT_VIOLATES("heap.I1", {
    const ScopedMutant mutant("heap.extent.assign", Mutant::drop_fence);
    (void)allocate(64, BlockKind::plain);
  });
}

TEST_F(HeapAssertions, AnExtentThatIsNotDurablyZero) {
  const std::uint64_t run = allocate(2 * kPage, BlockKind::plain);
  store(run, 1);
  heap().free(run);
  EXPECT_VIOLATES("heap.I2", {
    const ScopedMutant mutant("heap.extent.zero", Mutant::drop_flush);
    (void)allocate(64, BlockKind::zero_on_free);
  });
}

TEST_F(HeapAssertions, AFreedBlockThatIsNotDurablyDead) {
  for (const BlockKind kind : {BlockKind::dead_on_free, BlockKind::zero_on_free}) {
    const std::uint64_t block = allocate(128, kind);
    store(block + 64, 1);
    store(block, 1);
    EXPECT_VIOLATES("heap.I2", heap().free(block));
    EXPECT_VIOLATES("heap.I2", {
      const ScopedMutant mutant("reclaim.batch.dead", Mutant::drop_fence);
      retire(block);
      epochs().drain_all();
    });
    retire(block);
    epochs().drain_all();
  }
}

// The owner has written the dead blocks back and not fenced yet. A fence of another thread does not
// cover that, so the other thread prepares them again. Otherwise heap.I2 is violated.
TEST_F(HeapAssertions, AnotherThreadFinishesWhatItsOwnerWroteBack) {
  for (std::uint32_t i = 0; i < 2000; ++i) {
    const std::uint64_t block = allocate(64, BlockKind::dead_on_free);
    store(block, 1);
    retire(block);
    if (i % 100 != 0) continue;
    SimPlatform::world().thread = 1;
    epochs().drain_all();
    SimPlatform::world().thread = 0;
  }
}

TEST_F(HeapAssertions, ABlockThatIsFree) {
  const std::uint64_t block = allocate(64, BlockKind::plain);
  EXPECT_VIOLATES("heap.I3", heap().free(block + 16));
  heap().free(block);
  heap().flush_caches();
  EXPECT_VIOLATES("heap.I3", heap().free(block));
}

TEST_F(HeapAssertions, ABlockTwiceInACache) {
  const std::uint64_t block = allocate(64, BlockKind::plain);
  heap().free(block);
  heap().free(block);
  EXPECT_VIOLATES("heap.I3", heap().flush_caches());
}

// The layers below Heap, and a list of their own.
class Lists : public heap::Audit<SimPlatform> {
 public:
  using Base = heap::Audit<SimPlatform>;
  using Base::Base;
  void begin() { extents_[0].place.store(Base::kNone); }
  void list_extent() { Base::link(list_, 0, SimPlatform::thread_slot()); }

 private:
  Base::List list_;
};

TEST_F(HeapAssertions, AnExtentInTwoLists) {
  struct NoHost : HeapHost {
    Expected<std::uint64_t> grow(std::uint64_t) override { return fail(StatusCode::pool_full); }
  } host;
  SimStorage storage(memory_);
  Lists lists(pool_->platform(), storage, epochs());
  const HeapGeometry geometry{.extent_bytes = kPage, .data_offset = kPage, .max_extents = 4};
  ASSERT_TRUE(lists.attach(geometry, 1, host).ok());
  lists.begin();
  lists.list_extent();
  EXPECT_VIOLATES("heap.I5", lists.list_extent());
}

TEST_F(HeapAssertions, AnUnmarkedBlockIsFreedDuringASweep) {
  const std::uint64_t block = allocate(64, BlockKind::plain);
  memory_.settle();
  open(false);
  ASSERT_TRUE(heap().sweeping());
  EXPECT_VIOLATES("heap.I4", heap().free(block));
  ASSERT_TRUE(heap().mark(block).ok());
  heap().free(block);
}

// A word of an unread extent changes between a mark and the reading of its chunk.
TEST_F(HeapAssertions, AnUnreadExtentThatChanges) {
  const std::uint64_t block = allocate(64, BlockKind::plain);
  const std::uint64_t number = (block - pool_->core().header().data_offset) / kPage;
  memory_.settle();
  open_at_once();
  ASSERT_FALSE(heap().table_read());
  ASSERT_TRUE(heap().mark(block).ok());
  auto* words = heap().at<std::uint64_t>(pool_->core().header().table_offset);
  EXPECT_VIOLATES("heap.I6", {
    pool_->platform().store(words[number],
                            ExtentWord{.state = ExtentState::slab, .size_class = 1}.encode(number));
    (void)heap().read_table();
  });
  EXPECT_VIOLATES("heap.I6", heap().for_each_assigned([](const std::byte*, std::uint64_t) {}));
  EXPECT_TRUE(heap().read_table().ok());
}

// A killed process has released an extent, and not fenced.
TEST_F(HeapAssertions, AFreeExtentWhoseWordIsNotDurable) {
  const std::uint64_t run = allocate(2 * kPage, BlockKind::plain);
  SimMemory after(kCapacity);
  memory_.before_fence = [&](const SiteInfo& site) {
    if (std::string_view(site.name) == "heap.extent.release") after.load_killed(memory_);
  };
  heap().free(run);
  memory_.before_fence = nullptr;
  SimPool next(after);
  next.restart_at_once();
  ASSERT_TRUE(next.open(1).ok());
  EXPECT_VIOLATES("heap.I7", {
    const ScopedMutant mutant("heap.table.settle", Mutant::drop_flush);
    (void)next.heap().read_table();
  });
  EXPECT_TRUE(next.heap().read_table().ok());
  after.set_mode(SimMode::frozen);
}

}  // namespace
}  // namespace perdure::testing
