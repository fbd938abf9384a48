// test: tsan, cross
// PoolCore over a simulated machine: unusual shapes, a full root directory, a platform whose
// write-backs fail, and a sync with background work to do.
#include "format/pool_core.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "testing/sim/sim_memory.h"
#include "testing/sim/sim_pool.h"

namespace perdure::testing {
namespace {

constexpr std::uint64_t kCapacity = 2 << 20;

layout::Root line(const std::string& name) {
  layout::Root root{};
  std::strcpy(root.name, name.c_str());
  root.root = 4096;
  return root;
}

class Core : public ::testing::Test {
 protected:
  Core() : memory_(kCapacity) {
    EXPECT_TRUE(SimPool::create(memory_, kTinyShape).ok());
    open();
  }
  void open(bool poisoned = false) {
    pool_ = std::make_unique<SimPool>(memory_);
    if (poisoned) pool_->platform().poison();
    opened_ = pool_->open(1);
    if (opened_.ok()) opened_ = pool_->core().complete(true);
  }
  PoolCore<SimPlatform>& core() { return pool_->core(); }

  SimMemory memory_;
  std::unique_ptr<SimPool> pool_;
  Status opened_;
};

TEST(Shape, WhatCannotBeAPool) {
  layout::Header header{};
  const auto refused = [&](const PoolShape& shape) {
    SimMemory memory(kCapacity);
    EXPECT_FALSE(SimPool::create(memory, shape).ok());
    return shape_header(shape, header) == StatusCode::invalid_argument;
  };
  PoolShape shape = kTinyShape;
  shape.extent_bytes = kPage / 2;
  EXPECT_TRUE(refused(shape)) << "less than a page";
  shape.extent_bytes = 3 * kPage;
  EXPECT_TRUE(refused(shape)) << "no power of two";
  shape = kTinyShape;
  shape.max_bytes = 4 * kPage;
  EXPECT_TRUE(refused(shape)) << "no room for an extent";
  shape.max_bytes = kMaxPoolSize + kPage;
  EXPECT_TRUE(refused(shape)) << "too large";
}

TEST(Trust, OfAnUncleanPool) {
  layout::Header header{};
  layout::Identity here{};
  here.inode = header.identity.inode = 7;
  header.close_state = layout::CloseState::dirty;
  header.weakest = static_cast<std::uint32_t>(Durability::process);
  EXPECT_NE(std::string(distrust(header, here)).find("boot id cannot be read"), std::string::npos);
  here.boot_id[0] = 1;
  EXPECT_NE(std::string(distrust(header, here)).find("went down"), std::string::npos);
  header.identity.boot_id[0] = 1;
  EXPECT_EQ(distrust(header, here), nullptr) << "killed in this boot";
  here.device = 9;
  EXPECT_TRUE(is_copy(header, here)) << "the same inode on another device";
  header.identity.boot_id[0] = 2;
  EXPECT_FALSE(is_copy(header, here)) << "device numbers are of a boot";
  header.weakest = static_cast<std::uint32_t>(Durability::power);
  EXPECT_EQ(distrust(header, here), nullptr);
  header.close_state = layout::CloseState::sealed;
  EXPECT_EQ(distrust(header, here), nullptr);
}

TEST_F(Core, TheRootDirectoryIsFull) {
  ASSERT_TRUE(opened_.ok());
  for (std::uint32_t i = 0; i < core().root_slots(); ++i) {
    EXPECT_TRUE(core().add_root(line("map" + std::to_string(i))).ok());
    EXPECT_EQ(core().add_root(line("map" + std::to_string(i))), StatusCode::exists);
  }
  EXPECT_EQ(core().add_root(line("one more")), StatusCode::pool_full);
  EXPECT_TRUE(core().drop_root(3).ok());
  EXPECT_TRUE(core().add_root(line("one more")).ok());
  EXPECT_EQ(*core().find_root("one more"), 3U);
}

TEST_F(Core, ADamagedRootLineIsNamed) {
  ASSERT_TRUE(core().add_root(line("map")).ok());
  memory_.base()[layout::kDirectoryOffset + offsetof(layout::Root, name)] ^= std::byte{1};
  std::string found;
  core().verify([&](const char* what) { found += what; });
  EXPECT_NE(found.find("root directory"), std::string::npos);
  EXPECT_EQ(core().add_root(line("other")), StatusCode::corruption);
  EXPECT_EQ(core().find_root("other").error(), StatusCode::corruption);
  memory_.base()[0] ^= std::byte{1};
  memory_.base()[layout::kHeaderBytes] ^= std::byte{1};
  core().verify([&](const char* what) { found += what; });
  EXPECT_NE(found.find("header"), std::string::npos);
}

// An operation whose write-back failed is not acknowledged, wherever the failure is.
TEST_F(Core, AFailedWriteBackIsReportedEverywhere) {
  ASSERT_TRUE(core().add_root(line("map")).ok());
  pool_->platform().poison();
  EXPECT_EQ(core().add_root(line("other")), StatusCode::poisoned);
  EXPECT_EQ(core().drop_root(0), StatusCode::poisoned);
  EXPECT_EQ(core().sync(), StatusCode::poisoned);
  EXPECT_EQ(core().accept(core().header().identity), StatusCode::poisoned);
  EXPECT_EQ(core().close(true), StatusCode::poisoned);
  open(true);
  EXPECT_EQ(opened_, StatusCode::poisoned) << opened_.message();
  open();
  EXPECT_TRUE(opened_.ok());
  ASSERT_TRUE(core().close(true).ok());
  open(true);
  EXPECT_EQ(opened_, StatusCode::poisoned) << "a clean pool is made dirty";
}

TEST_F(Core, CloseOfWhatWasNotOpenedDoesNothing) {
  ASSERT_TRUE(core().close(true).ok());
  EXPECT_TRUE(core().close(true).ok());
  SimPool other(memory_);
  EXPECT_TRUE(other.core().close(true).ok());
}

class Steps final : public BackgroundWork<SimPlatform> {
 public:
  explicit Steps(int left) : left_(left) {}
  Step run_some() noexcept override { return --left_ > 0 ? Step::more : Step::rest; }
  int left() const { return left_; }

 private:
  int left_;
};

TEST_F(Core, SyncDoesTheBackgroundWorkThatIsLeft) {
  core().background().set_threads(0);
  Steps steps(5);
  core().background().add(steps);
  EXPECT_TRUE(core().sync().ok());
  EXPECT_EQ(steps.left(), 0);
  EXPECT_EQ(core().header().close_state, layout::CloseState::sealed);
  EXPECT_TRUE(core().sync().ok()) << "sealed already";
  core().background().remove(steps);
  core().background().remove(steps);  // not registered any more
}

// Endless work: the content is durable, but the pool is not sealed.
TEST_F(Core, SyncBesideEndlessWorkDoesNotSeal) {
  core().background().set_threads(0);
  Steps steps(1 << 30);
  core().background().add(steps);
  EXPECT_TRUE(core().sync().ok());
  EXPECT_EQ(core().header().close_state, layout::CloseState::dirty);
  core().background().remove(steps);
}

// A pool whose process was killed. The next process serves it at once.
class AfterAKill : public Core {
 protected:
  AfterAKill() : next_(kCapacity) {
    EXPECT_TRUE(core().add_root(line("map")).ok());
    block_ = pool_->heap().allocate(2 * kPage, BlockKind::plain).value_or(0);
    next_.load_killed(memory_);
    memory_.set_mode(SimMode::frozen);
    pool_ = std::make_unique<SimPool>(next_);
    pool_->restart_at_once();
    EXPECT_TRUE(pool_->open(1).ok() && core().complete(true).ok());
    EXPECT_FALSE(core().after_kill().done());
  }
  ~AfterAKill() override {
    next_.set_mode(SimMode::frozen);
    pool_.reset();  // before its memory
  }

  SimMemory next_;
  std::uint64_t block_ = 0;
};

TEST_F(AfterAKill, WhatCannotBeWrittenBackIsNotTold) {
  for (const bool served : {false, true}) {
    if (served) core().serve();
    pool_->platform().poison();
    EXPECT_FALSE(core().after_kill().settle(block_, kPage));
    EXPECT_FALSE(core().sweep().finish());
    EXPECT_EQ(core().sweep().failure(), StatusCode::poisoned);
    EXPECT_FALSE(core().sweep().finish()) << "again";
    EXPECT_TRUE(core().heap().sweeping());
  }
  EXPECT_EQ(core().sync(), StatusCode::poisoned);
  EXPECT_EQ(core().close(true), StatusCode::poisoned);
}

TEST_F(AfterAKill, CloseAndSyncSettleEverything) {
  EXPECT_TRUE(core().after_kill().settle(block_, kPage));
  EXPECT_FALSE(core().after_kill().done());
  EXPECT_TRUE(core().sync().ok());
  EXPECT_TRUE(core().after_kill().done());
  EXPECT_TRUE(core().close(true).ok());
}

// A sweep of maps without marks.
TEST_F(Core, ASweepWithoutMarksFreesEverything) {
  for (const bool poisoned : {false, true}) {
    ASSERT_TRUE(pool_->heap().allocate(64, BlockKind::dead_on_free).has_value());
    ASSERT_TRUE(core().close(true).ok());
    MarkingMap first, second;
    pool_ = std::make_unique<SimPool>(memory_);
    ASSERT_TRUE(pool_->open(1).ok());
    core().sweep().add(first);
    core().sweep().add(second);
    ASSERT_TRUE(core().complete(true).ok());
    EXPECT_TRUE(core().heap().sweeping());
    if (poisoned) pool_->platform().poison();
    // A block that looks alive is first made dead, and that may fail.
    auto* words = pool_->heap().at<std::uint64_t>(core().header().data_offset);
    pool_->platform().store(words[0], 1);
    EXPECT_EQ(core().sweep().finish(), !poisoned);
    EXPECT_EQ(core().sweep().failure(), poisoned ? StatusCode::poisoned : StatusCode::ok);
    EXPECT_EQ(core().heap().stats().assigned_extents, poisoned ? 1U : 0U);
  }
}

// The failure of a map that marks while it serves.
TEST_F(Core, ASweepNamesTheMapThatItCannotWalk) {
  struct Damaged final : MarkingMap {
    Expected<bool> mark_some(std::uint64_t) override {
      return fail(StatusCode::corruption, "the item at offset 64 is damaged");
    }
  } damaged;
  MarkingMap sound;
  ASSERT_TRUE(pool_->heap().allocate(64, BlockKind::plain).has_value());
  ASSERT_TRUE(core().close(true).ok());
  pool_ = std::make_unique<SimPool>(memory_);
  ASSERT_TRUE(pool_->open(1).ok());
  core().sweep().add(sound, "sound");
  core().sweep().add(damaged, "users");
  ASSERT_TRUE(core().complete(true).ok());
  (void)core().sweep().finish();
  EXPECT_EQ(core().sweep().failure(), StatusCode::corruption);
  EXPECT_EQ(core().sweep().failure().message(), "map users: the item at offset 64 is damaged");
  EXPECT_EQ(damaged.mark_failure().message(), core().sweep().failure().message());
  EXPECT_TRUE(sound.mark_failure().ok());
}

// The words of extents that did not exist yet were never read.
TEST_F(Core, AFlippedBitBehindTheEndIsNoDamageOnceThePoolHasGrown) {
  ASSERT_TRUE(core().close(true).ok());
  const layout::Header header = core().header();
  const std::uint64_t extents = (header.file_bytes - header.data_offset) / header.extent_bytes;
  pool_.reset();
  auto* words = reinterpret_cast<std::uint64_t*>(memory_.base() + header.table_offset);
  words[extents + 1] = std::uint64_t{1} << 42;
  open();
  ASSERT_TRUE(opened_.ok()) << opened_.message();
  const auto grown = core().grow(2);
  ASSERT_TRUE(grown);
  ASSERT_GT(*grown, extents + 1);
  EXPECT_EQ(words[extents + 1], ExtentWord{.state = ExtentState::free}.encode(extents + 1));
  ASSERT_TRUE(core().close(true).ok());
  open();
  EXPECT_TRUE(opened_.ok()) << opened_.message();
}

// A power failure has taken both headers of a growth, which were not written back. The extents that
// it had added are not as good as new.
TEST_F(Core, WhatLostHeadersHadGrownIsZeroWhenItIsUsedAgain) {
  const layout::Header before = core().header();
  const std::string headers(reinterpret_cast<const char*>(memory_.base()),
                            2 * layout::kHeaderBytes);
  const std::uint64_t extents = (before.file_bytes - before.data_offset) / before.extent_bytes;
  const std::uint64_t bytes = 3 * before.extent_bytes;
  const auto grow_for_a_run = [&]() -> std::uint64_t {
    while (core().heap().stats().assigned_extents < extents) {
      if (!core().heap().allocate(before.extent_bytes, BlockKind::plain)) return 0;
    }
    return core().heap().allocate(bytes, BlockKind::zero_on_free).value_or(0);
  };
  const std::uint64_t used = grow_for_a_run();
  ASSERT_EQ(used, before.file_bytes);
  for (std::uint64_t at = 0; at < bytes; at += 8) {
    pool_->platform().store(*core().heap().at<std::uint64_t>(used + at), 1);
  }
  pool_.reset();
  std::memcpy(memory_.base(), headers.data(), headers.size());
  open();
  ASSERT_TRUE(opened_.ok()) << opened_.message();
  ASSERT_EQ(core().header().file_bytes, before.file_bytes);
  ASSERT_EQ(grow_for_a_run(), used);
  for (std::uint64_t at = 0; at < bytes; at += 8) {
    ASSERT_EQ(*core().heap().at<std::uint64_t>(used + at), 0U) << at;
  }
}

// The next growth finds its space there. A crash before it leaves only a longer file.
TEST_F(Core, GrowthIsPreparedPieceByPiece) {
  const std::uint64_t before = core().header().file_bytes;
  int pieces = 0;
  while (core().prepare_growth(kPage)) ++pieces;
  EXPECT_GT(pieces, 0);
  EXPECT_GT(memory_.size(), before);
  EXPECT_EQ(core().header().file_bytes, before);
  open();
  ASSERT_TRUE(opened_.ok());
  EXPECT_EQ(core().header().file_bytes, before);
  const std::uint64_t longer = memory_.size();
  const auto extents = core().grow(1);
  ASSERT_TRUE(extents);
  EXPECT_EQ(core().header().file_bytes, longer);
  EXPECT_EQ(memory_.size(), longer) << "no more was asked of the medium";
  pool_->platform().poison();
  EXPECT_FALSE(core().prepare_growth(kPage));
}

// A process that was killed may have lengthened the file, and not got the space. So nothing that is
// behind the end of the pool at an open counts as prepared.
TEST_F(Core, SpaceBehindAPoolIsAskedForAgain) {
  for (const bool prepares : {false, true}) {
    const std::uint64_t before = core().header().file_bytes;
    while (core().prepare_growth(kPage)) {
    }
    const std::uint64_t after = memory_.size();
    ASSERT_GT(after, before);
    pool_.reset();
    ASSERT_TRUE(memory_.punch(before, after - before).ok());
    open();
    ASSERT_TRUE(opened_.ok());
    while (prepares && core().prepare_growth(kPage)) {
    }
    ASSERT_TRUE(core().grow(1));
    ASSERT_EQ(core().header().file_bytes, after);
    for (std::uint64_t at = before; at < after; at += kPage) {
      pool_->platform().store(*core().heap().at<std::uint64_t>(at), 1);
    }
    EXPECT_EQ(memory_.hole_stores(), 0U) << "prepares " << prepares;
  }
}

// A hint makes the growth larger, and is used up by it.
TEST_F(Core, WhatIsExpectedIsPrepared) {
  const std::uint64_t extent = core().header().extent_bytes;
  const std::uint64_t before = core().header().file_bytes;
  const std::uint64_t count = 3 * (before / extent);
  core().expect(count);
  while (core().prepare_growth(kPage)) {
  }
  EXPECT_EQ(memory_.size(), before + count * extent);
  ASSERT_TRUE(core().grow(count));
  EXPECT_EQ(memory_.size(), before + count * extent);
  while (core().prepare_growth(kPage)) {
  }
  EXPECT_LT(memory_.size(), before + 2 * count * extent);
}

TEST_F(Core, AFullMediumPreparesNothing) {
  memory_.set_disk_limit(memory_.size());
  EXPECT_FALSE(core().prepare_growth(kPage));
  EXPECT_EQ(core().grow(1).error(), StatusCode::pool_full);
  memory_.set_disk_limit(kCapacity);
  EXPECT_TRUE(core().grow(1));
}

// Sync waits for a reader that stays in its guard, but not for ever.
TEST_F(Core, SyncBesideAReaderThatStaysDoesNotSeal) {
  EpochGuard<SimPlatform> guard(core().epochs());
  EXPECT_TRUE(core().sync().ok());
  EXPECT_EQ(core().header().close_state, layout::CloseState::dirty);
}

}  // namespace
}  // namespace perdure::testing
