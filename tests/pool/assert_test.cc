// test: explores
// The assertions of PoolCore, its background service and the end of an open: each is violated once.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "format/pool_core.h"
#include "pool/batch.h"
#include "testing/sim/sim_memory.h"
#include "testing/sim/sim_pool.h"
#include "testing/sim/sites.h"
#include "tests/support/violates.h"

namespace perdure::testing {
namespace {

constexpr std::uint64_t kCapacity = 2 << 20;

layout::Root line(std::uint64_t root = 4096) {
  layout::Root line{};
  std::strcpy(line.name, "map");
  line.root = root;
  return line;
}

// A file that reports success without doing its work.
class Liar final : public SimStorage {
 public:
  explicit Liar(SimMemory& memory) : SimStorage(memory), memory_(memory) {}
  Status allocate(std::uint64_t offset, std::uint64_t length) noexcept override {
    return lies ? Status() : SimStorage::allocate(offset, length);
  }
  Status sync(std::uint64_t offset, std::uint64_t length) noexcept override {
    Status s = SimStorage::sync(offset, length);
    // A store past the platform.
    if (lies) memory_.store(reinterpret_cast<std::uint64_t*>(base() + size() - 8), 7);
    return s;
  }

  bool lies = false;

 private:
  SimMemory& memory_;
};

class PoolAssertions : public ::testing::Test {
 protected:
  PoolAssertions() : memory_(kCapacity), platform_(memory_), storage_(memory_) {
    EXPECT_TRUE(SimPool::create(memory_, kTinyShape).ok());
    memory_.settle();
    memory_.set_mode(SimMode::recording);
    core_ = std::make_unique<PoolCore<SimPlatform>>(platform_, storage_);
    core_->background().set_threads(0);
    OpenReport report;
    EXPECT_TRUE(core_->open({.mode = Durability::power}, report).ok());
  }
  ~PoolAssertions() override { memory_.set_mode(SimMode::frozen); }
  PoolCore<SimPlatform>& core() { return *core_; }
  Background<SimPlatform>& background() { return core_->background(); }
  void serve() {
    EXPECT_TRUE(core().complete(true).ok());
    core().serve();
  }

  SimMemory memory_;
  SimPlatform platform_;
  Liar storage_;
  std::unique_ptr<PoolCore<SimPlatform>> core_;
};

TEST_F(PoolAssertions, AHeaderBesideOneThatIsNotDurable) {
  serve();
  EXPECT_VIOLATES("pool.I1", {
    const ScopedMutant mutant("pool.header.write", Mutant::drop_sync);
    (void)core().close(true);
  });
}

TEST_F(PoolAssertions, AFileThatDidNotGrow) {
  serve();
  storage_.lies = true;
  EXPECT_VIOLATES("pool.I2", (void)core().grow(1));
}

TEST_F(PoolAssertions, ALineWithoutARoot) {
  serve();
  EXPECT_VIOLATES("pool.I3", (void)core().add_root(line(0)));
}

TEST_F(PoolAssertions, AStoreIntoAPoolThatIsClean) {
  EXPECT_VIOLATES("pool.I4", (void)core().add_root(line()));
  EXPECT_VIOLATES("pool.I4", (void)core().drop_root(0));
  EXPECT_VIOLATES("pool.I4", (void)core().grow(1));
}

TEST_F(PoolAssertions, ABatchBesideMutations) {
  serve();
  EXPECT_VIOLATES("batch.I1", (void)Batch<SimPlatform>(core()).commit({}, {}, {}));
}

TEST_F(PoolAssertions, ABatchWhileTheWordNamesAnother) {
  serve();
  ASSERT_TRUE(core().use_batches().ok());
  const std::uint64_t record = *core().heap().allocate(64, BlockKind::plain);
  ASSERT_TRUE(core().commit_batch(record, 0));
  EXPECT_VIOLATES("batch.J3", (void)core().commit_batch(record, 0));
  ASSERT_TRUE(core().clear_batch());
}

TEST_F(PoolAssertions, ABatchWhoseRecordIsNotDurable) {
  serve();
  ASSERT_TRUE(core().use_batches().ok());
  const std::uint64_t record = *core().heap().allocate(64, BlockKind::plain);
  platform_.store(*core().heap().at<std::uint64_t>(record), 1);
  EXPECT_VIOLATES("pool.L1", (void)core().commit_batch(record, 64));
}

TEST_F(PoolAssertions, ABatchThatIsOverForThisProcessOnly) {
  serve();
  ASSERT_TRUE(core().use_batches().ok());
  platform_.store(*reinterpret_cast<std::uint64_t*>(memory_.base() + layout::kBatchLog), 1);
  const ScopedMutant mutant("pool.batch.clear", Mutant::drop_fence);
  EXPECT_VIOLATES("pool.L2", (void)core().clear_batch());
}

TEST_F(PoolAssertions, AnOldBatchInAPoolThatGetsDirty) {
  serve();
  ASSERT_TRUE(core().use_batches().ok());
  platform_.store(*reinterpret_cast<std::uint64_t*>(memory_.base() + layout::kBatchLog), 1);
  ASSERT_TRUE(core().close(true).ok());
  core_ = std::make_unique<PoolCore<SimPlatform>>(platform_, storage_);
  core_->background().set_threads(0);
  OpenReport report;
  ASSERT_TRUE(core().open({.mode = Durability::power}, report).ok());
  const ScopedMutant mutant("pool.batch.forget", Mutant::skip_step);
  EXPECT_VIOLATES("pool.L3", (void)core().complete(true));
}

TEST_F(PoolAssertions, AStoreThatASealHasNotSeen) {
  serve();
  storage_.lies = true;
  EXPECT_VIOLATES("pool.S1", (void)core().sync());
}

TEST_F(PoolAssertions, ASealThatLastsInOneHeader) {
  serve();
  ASSERT_TRUE(core().sync().ok());
  ASSERT_EQ(core().header().close_state, layout::CloseState::sealed);
  EXPECT_VIOLATES("pool.S2", {
    const ScopedMutant mutant("pool.open.second_copy", Mutant::skip_step);
    platform_.store(*reinterpret_cast<std::uint64_t*>(memory_.base() + memory_.size() - 8), 1);
  });
}

// --- the end of an open ---

class Marking final : public MarkingMap {
 public:
  explicit Marking(std::function<void()> step) : step_(std::move(step)) {}
  Expected<bool> mark_some(std::uint64_t) noexcept override {
    step_();
    return false;
  }

 private:
  std::function<void()> step_;
};

TEST_F(PoolAssertions, AMapThatComesTooLate) {
  Marking late([] {});
  serve();
  EXPECT_VIOLATES("pool.W1", core().sweep().add(late));
}

TEST_F(PoolAssertions, AMapThatComesWhileThePoolServes) {
  Marking early([] {}), late([] {});
  core().sweep().add(early);
  serve();
  EXPECT_VIOLATES("pool.W1", core().sweep().add(late));
}

TEST_F(PoolAssertions, AMapThatIsMarkedTwiceAtATime) {
  Marking map([this] { (void)core().sweep().run_some(); });
  core().sweep().add(map);
  EXPECT_VIOLATES("pool.W3", serve(); (void)core().sweep().finish());
}

TEST_F(PoolAssertions, PendingExtentsBehindTheSweep) {
  AfterKill<SimPlatform> after_kill(platform_, core().heap());
  ASSERT_TRUE(after_kill.begin().ok());
  EXPECT_VIOLATES("pool.K3", (void)after_kill.begin());
  serve();
  AfterKill<SimPlatform> late(platform_, core().heap());
  EXPECT_VIOLATES("pool.K2", (void)late.begin());
}

// --- background work ---

class Unit final : public BackgroundWork<SimPlatform> {
 public:
  explicit Unit(std::function<Step()> step) : step_(std::move(step)) {}
  Step run_some() noexcept override { return step_(); }

 private:
  std::function<Step()> step_;
};

TEST_F(PoolAssertions, AStepThatEndsOnAnotherThread) {
  Unit unit([] {
    ++SimPlatform::world().thread;
    return Step::rest;
  });
  background().add(unit);
  EXPECT_VIOLATES("pool.B1", (void)background().run_some());
  background().remove(unit);
}

TEST_F(PoolAssertions, AUnitThatIsAddedInAStep) {
  Unit unit([&] {
    background().add(unit);
    return Step::rest;
  });
  background().add(unit);
  EXPECT_VIOLATES("pool.B1", (void)background().run_some());
  background().remove(unit);
}

TEST_F(PoolAssertions, AStepThatHoldsTheBackground) {
  Unit unit([this] {
    const BackgroundHold<SimPlatform> hold(background());
    return Step::rest;
  });
  background().add(unit);
  EXPECT_VIOLATES("pool.B3", (void)background().run_some());
  background().remove(unit);
}

// The other service does not know that the unit is blocked, and would never report space to it.
TEST_F(PoolAssertions, AUnitOfTwoServices) {
  Unit unit([] { return Step::blocked; });
  background().add(unit);
  (void)background().run_some();
  background().wake(unit);
  Background<SimPlatform> other;
  EXPECT_VIOLATES("pool.B4", (void)other.help(unit));
  background().remove(unit);
}

}  // namespace
}  // namespace perdure::testing
