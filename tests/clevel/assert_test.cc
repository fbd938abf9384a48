// test: explores
// Planted violations of clevel hashing's invariants: each one runs into its assertion.
#include <cstdint>
#include <memory>
#include <stdexcept>

#include "testing/engines/clevel_subject.h"
#include "testing/schedule/race_ops.h"
#include "testing/sim/sites.h"
#include "tests/support/violates.h"

namespace perdure::testing {
namespace {

using Subject = ClevelSubject<clevel::IntegerCodec>;

// Of a pool that is closed or killed and opened again. The background goes on in background() only.
class Table {
 public:
  Table() {
    SimPlatform::seed(1);
    memory_.set_mode(SimMode::recording);
    EXPECT_TRUE(subject_->create(memory_).ok());
    EXPECT_TRUE(subject_->open(memory_, 1).ok());
  }
  void insert(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t key = first; key <= last; ++key) apply(testing::insert(key, key));
  }
  void apply(const Op& op) { (void)subject_->apply(op); }
  void background(int steps) {
    for (int i = 0; i < steps; ++i) subject_->background();
  }
  Status close() { return subject_->close(); }
  // After a power failure that has lost nothing, unless it was closed.
  Status reopen() {
    memory_.set_mode(SimMode::frozen);
    subject_ = std::make_unique<Subject>();
    memory_.set_mode(SimMode::recording);
    return subject_->open(memory_, 2);
  }
  std::uint64_t levels() { return subject_->stats().levels.size(); }
  // The first that a slot names.
  clevel::layout::Item& item() {
    const clevel::layout::Root& root = *clevel_root(memory_);
    for (const std::uint64_t level : root.levels) {
      if (level == 0) continue;
      const std::uint64_t buckets = level & clevel::kOffsetMask & ~std::uint64_t{63};
      for (std::uint64_t n = 0; n < std::uint64_t{8} << (level & 63); ++n) {
        const std::uint64_t word = *at<std::uint64_t>(buckets + n * 8);
        if (word > clevel::kSealed) return *at<clevel::layout::Item>(word & clevel::kOffsetMask);
      }
    }
    throw std::runtime_error("no item");
  }

 private:
  template <class T>
  T* at(std::uint64_t offset) {
    return reinterpret_cast<T*>(memory_.base() + offset);
  }

  const ScopedWorld world_;
  SimMemory memory_{2 << 20};
  std::unique_ptr<Subject> subject_ = std::make_unique<Subject>();
};

// Grows and is rehashed, loses what it holds, and grows again.
void work_under(const char* site, Mutant mutant) {
  const ScopedMutant scoped(site, mutant);
  ASSERT_TRUE(scoped.matched());
  Table table;
  table.insert(1, 14);
  table.background(40);
  table.insert(15, 20);
  for (std::uint64_t key = 1; key <= 20; ++key) table.apply(erase(key));
  table.apply({OpKind::compact, {}, {}});  // where levels lay that are gone
  table.insert(1, 20);
}

// A step of the rehash before the walk has been through the table.
void rehash_early(bool clean) {
  Table table;
  table.insert(1, 14);
  ASSERT_GT(table.levels(), 2U);
  ASSERT_TRUE(!clean || table.close().ok());
  ASSERT_TRUE(table.reopen().ok());
  const ScopedMutant scoped("clevel.rehash.wait", Mutant::skip_step);
  ASSERT_TRUE(scoped.matched());
  table.background(40);
}

TEST(ClevelAssert, I1) {
  EXPECT_VIOLATES("clevel.I1", work_under("clevel.ahead.zero", Mutant::drop_flush));
}

TEST(ClevelAssert, I4) {
  EXPECT_VIOLATES("clevel.I4", work_under("clevel.rehash.seal", Mutant::drop_fence));
  EXPECT_VIOLATES("clevel.I4", work_under("heap.free.dead", Mutant::drop_flush));
}

TEST(ClevelAssert, I5) {
  EXPECT_VIOLATES("clevel.I5", work_under("clevel.insert.item", Mutant::drop_flush));
  EXPECT_VIOLATES("clevel.I5", work_under("clevel.erase.state", Mutant::drop_fence));
}

TEST(ClevelAssert, I6) {
  EXPECT_VIOLATES("clevel.I6", work_under("clevel.ring.word", Mutant::drop_fence));
}

TEST(ClevelAssert, I7) { EXPECT_VIOLATES("clevel.I7", rehash_early(false)); }

TEST(ClevelAssert, I8) {
  EXPECT_VIOLATES("clevel.I8", {
    Table table;
    table.insert(1, 3);
    table.item().state = 0;
    (void)table.close();
  });
}

TEST(ClevelAssert, I9) { EXPECT_VIOLATES("clevel.I9", rehash_early(true)); }

TEST(ClevelAssert, I10) {
  EXPECT_VIOLATES("clevel.I10", {
    Table table;
    table.insert(1, 3);
    EXPECT_TRUE(table.close().ok());
    table.item().state ^= 1;
    EXPECT_TRUE(table.reopen().ok());
    const ScopedMutant scoped("clevel.mark.slot", Mutant::drop_fence);
    table.background(40);
  });
}

// The same without a plant.
TEST(ClevelAssert, SoundOperationsViolateNothing) {
  work_under("clevel.ring.word", Mutant::none);
  Table table;
  table.insert(1, 14);
  EXPECT_TRUE(table.close().ok());
  EXPECT_TRUE(table.reopen().ok());
  table.background(40);
  EXPECT_TRUE(table.reopen().ok());
  table.background(40);
}

}  // namespace
}  // namespace perdure::testing
