// test: tsan
// Growth beside other threads: what an allocation may have to wait for. The space comes from a
// storage in memory that calls the test while it gets space, as a thread of the system would be
// interrupted there.
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>

#include "platform/real_platform.h"
#include "pool/opening.h"
#include "tests/support/support.h"

namespace perdure {
namespace {

using Core = PoolCore<RealPlatform>;
constexpr std::uint64_t kExtent = 64_KiB;
constexpr std::uint64_t kPiece = GrowthAhead<Core, RealPlatform>::kPiece;

class Space final : public Storage {
 public:
  explicit Space(std::uint64_t capacity) : capacity_(capacity) {
    base_ = static_cast<std::byte*>(::mmap(nullptr, capacity, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  }
  ~Space() override { ::munmap(base_, capacity_); }
  std::byte* base() const noexcept override { return base_; }
  std::uint64_t size() const noexcept override { return size_; }
  std::uint64_t capacity() const noexcept override { return capacity_; }
  Status allocate(std::uint64_t offset, std::uint64_t length) noexcept override {
    std::uint64_t before = size_;
    while (before < offset + length && !size_.compare_exchange_weak(before, offset + length)) {
    }
    if (length < kExtent) return {};  // words of the table
    if (asked + length > limit) return StatusCode::pool_full;
    asked += length;
    const auto call = std::exchange(while_allocating, nullptr);
    if (call) call();
    return {};
  }
  Status punch(std::uint64_t, std::uint64_t length) noexcept override {
    asked -= length;
    return {};
  }
  Status sync(std::uint64_t, std::uint64_t) noexcept override { return {}; }

  std::atomic<std::uint64_t> asked{0};  // bytes
  std::atomic<std::uint64_t> limit{~std::uint64_t{0}};
  std::function<void()> while_allocating;  // called once

 private:
  std::byte* base_;
  std::uint64_t capacity_;
  std::atomic<std::uint64_t> size_{0};
};

struct NoMaps final : PoolMaps {
  Status recover(const OpenReport&, bool&) override { return {}; }
  Status complete() override { return {}; }
  void serve() override {}
};

class Growth : public ::testing::Test {
 protected:
  Growth() : core_(platform_, space_) {
    const PoolShape shape{.max_bytes = kMost};
    const layout::Identity identity{};
    const std::uint8_t uuid[16] = {1};
    core_.background().set_threads(0);
    OpenReport report;
    EXPECT_TRUE(Core::create(platform_, space_, shape, identity, uuid, Durability::process).ok());
    EXPECT_TRUE(
        open_pool(core_, {.identity = identity, .mode = Durability::process}, report, maps_).ok());
  }
  std::uint64_t bytes() { return core_.header().file_bytes; }
  void grow_to(std::uint64_t least) {
    while (bytes() < least) ASSERT_TRUE(core_.grow(1));
  }
  // Another thread takes extents until the pool grows. Whether it need not wait.
  bool another_can_allocate() {
    auto done = std::async(std::launch::async, [this] {
      for (const std::uint64_t before = bytes(); bytes() == before;) {
        if (!core_.heap().allocate(kExtent / 2, BlockKind::plain)) return false;
      }
      return true;
    });
    const bool soon = done.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
    waiting_ = std::move(done);
    return soon && waiting_.get();
  }

  static constexpr std::uint64_t kMost = 1_GiB;
  RealPlatform platform_;
  Space space_{kMost};
  NoMaps maps_;
  Core core_;
  std::future<bool> waiting_;  // its destructor waits
};

TEST_F(Growth, OthersDoNotWaitForTheSpaceOfALargeRun) {
  bool could = false;
  space_.while_allocating = [&] { could = another_can_allocate(); };
  const std::uint64_t before = space_.asked;
  ASSERT_TRUE(core_.heap().allocate(10 * kPiece, BlockKind::zero_on_free));
  EXPECT_TRUE(could);
  EXPECT_LT(space_.asked - before, 12 * kPiece) << "space was asked for twice";
}

TEST_F(Growth, OthersDoNotWaitForTheSpaceThatIsPrepared) {
  grow_to(64_MiB);
  ASSERT_TRUE(core_.prepare_growth(kPiece));
  bool could = false;
  space_.while_allocating = [&] { could = another_can_allocate(); };
  ASSERT_TRUE(core_.prepare_growth(kPiece));
  EXPECT_TRUE(could) << "a growth whose space is there waits for other space";
}

TEST_F(Growth, OfALargePoolTakesWhatIsThere) {
  grow_to(128_MiB);
  std::uint64_t before = bytes();
  std::uint64_t asked = space_.asked;
  ASSERT_TRUE(core_.grow(1));
  EXPECT_EQ(bytes() - before, kPiece) << "nothing was prepared: no more than a piece";
  EXPECT_EQ(space_.asked - asked, kPiece);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(core_.prepare_growth(kPiece));
  before = bytes();
  asked = space_.asked;
  ASSERT_TRUE(core_.grow(1));
  EXPECT_GT(bytes() - before, kPiece);
  EXPECT_LE(bytes() - before, 2 * kPiece);
  EXPECT_EQ(space_.asked, asked) << "prepared space is not asked for again";
  before = bytes();
  ASSERT_TRUE(core_.grow(20 * kPiece / kExtent));
  EXPECT_EQ(bytes() - before, 20 * kPiece) << "what was wanted";
}

// What was prepared for it is given back, and asked for again when it is needed.
TEST_F(Growth, ARunThatIsRefusedKeepsNoSpace) {
  grow_to(64_MiB);
  const std::uint64_t before = space_.asked;
  EXPECT_EQ(core_.heap().allocate(kMost, BlockKind::plain).error(), StatusCode::pool_full);
  EXPECT_EQ(space_.asked, before) << "more than the maximum of the pool";
  space_.limit = 512_MiB;
  EXPECT_EQ(core_.heap().allocate(800_MiB, BlockKind::plain).error(), StatusCode::pool_full);
  EXPECT_LE(space_.asked, before + kPiece + 8_MiB);
  while (core_.prepare_growth(kPiece)) {
  }
  EXPECT_LE(space_.asked, before + 2 * kPiece) << "the background tries no more";
  const std::uint64_t asked = space_.asked;
  const std::uint64_t was = bytes();
  ASSERT_TRUE(core_.heap().allocate(256_MiB, BlockKind::plain));
  EXPECT_GE(space_.asked - asked + 2 * kPiece, bytes() - was);
}

// Beside a thread that prepares: its piece does not count, as what lies before it was given back.
TEST_F(Growth, APieceBehindWhatWasGivenBackDoesNotCount) {
  grow_to(64_MiB);
  space_.limit = 512_MiB;
  core_.expect(800_MiB / kExtent);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(core_.prepare_growth(kPiece));
  space_.while_allocating = [&] {
    EXPECT_EQ(core_.grow(800_MiB / kExtent).error(), StatusCode::pool_full);
  };
  ASSERT_TRUE(core_.prepare_growth(kPiece));
  const std::uint64_t asked = space_.asked;
  const std::uint64_t before = bytes();
  ASSERT_TRUE(core_.grow(20 * kPiece / kExtent));
  EXPECT_GE(space_.asked - asked + 2 * kPiece, bytes() - before);
}

// A hint comes from a mutation; others must not wait while the host grows.
TEST_F(Growth, AHintHoldsNoLatchOfTheHeap) {
  struct Host final : HeapHost {
    Host(Core& pool, std::function<bool()> call) : core(pool), hinted(std::move(call)) {}
    Expected<std::uint64_t> grow(std::uint64_t extents) override { return core.grow(extents); }
    void expect(std::uint64_t) override { could = hinted(); }
    Core& core;
    std::function<bool()> hinted;
    bool could = false;
  };
  Host host(core_, [this] { return another_can_allocate(); });
  core_.heap().set_host(host);
  core_.heap().expect(10 * kPiece);
  EXPECT_TRUE(host.could);
  core_.heap().set_host(core_);
}

}  // namespace
}  // namespace perdure
