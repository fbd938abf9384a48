// test: cross
// The steps of one change of the levels above the leaves, which hold the partition's latch: as many
// in a large partition as in a small one. A step is a load or a store of shared DRAM.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include "index/ordered/inner.h"
#include "testing/sim/sim_platform.h"
#include "util/hash.h"

namespace perdure::ordered {
namespace {

using testing::SimMemory;
using testing::SimPlatform;
constexpr std::uint32_t kMost = 1 << 15;  // leaves

class Leaves {
 public:
  static constexpr bool kBytes = false;
  struct Desc {
    SimPlatform::Atomic<std::uint64_t> low{0};
    SimPlatform::Atomic<std::uint64_t> bound{~std::uint64_t{0}};
    SimPlatform::Atomic<std::uint32_t> next{kNoLeaf};
    bool above(const Probe& probe) const noexcept { return lies_above<false>(*this, probe); }
  };
  Desc& operator[](std::uint32_t number) const noexcept { return leaves_[number]; }

 private:
  std::unique_ptr<Desc[]> leaves_ = std::make_unique<Desc[]>(kMost + 2);
};

class Steps : public ::testing::Test {
 protected:
  using Inner = InnerIndex<SimPlatform, Leaves, 16>;

  Steps() : memory_(1 << 20), platform_(memory_), epochs_(platform_) {
    EXPECT_TRUE(inner_.reserve({.bits = 0, .shift = 0}, kMost).ok());
    const std::uint32_t first[] = {1};
    EXPECT_TRUE(inner_.build(0, first, 1).ok());
    SimPlatform::step_hook = [](testing::StepKind, const char*) { ++steps_; };
  }
  ~Steps() override {
    SimPlatform::step_hook = nullptr;
    epochs_.drain_all();
  }

  // Splits a leaf. Returns the steps.
  std::uint64_t split(std::uint32_t old, std::uint64_t middle) {
    auto& left = leaves_[old];
    const std::uint32_t fresh = ++count_;
    auto& right = leaves_[fresh];
    right.low.store(middle + 1);
    right.bound.store(left.bound.load());
    right.next.store(left.next.load());
    left.next.store(fresh);
    left.bound.store(middle);
    EpochGuard<SimPlatform> guard(epochs_);
    steps_ = 0;
    EXPECT_TRUE(inner_.insert_after(0, old, fresh).ok());
    return steps_;
  }
  // Unlinks the leaf behind this one.
  std::uint64_t unlink_behind(std::uint32_t left) {
    const std::uint32_t leaf = leaves_[left].next.load();
    const std::uint32_t heir = leaves_[leaf].next.load();
    leaves_[heir].low.store(leaves_[leaf].low.load());
    leaves_[left].next.store(heir);
    EpochGuard<SimPlatform> guard(epochs_);
    steps_ = 0;
    inner_.remove(0, leaf, heir);
    return steps_;
  }
  // Expects of most[k], the most steps of a change while there were 2^k to 2^(k+1) leaves, that
  // they do not rise with k.
  static void expect_flat(const std::vector<std::uint64_t>& most) {
    for (std::size_t k = 0; k < most.size(); ++k) {
      std::printf("from %u leaves: %llu steps\n", 1U << k,
                  static_cast<unsigned long long>(most[k]));
    }
    EXPECT_LE(most.back(), 2 * most[8]);
  }
  static void note(std::vector<std::uint64_t>& most, std::uint32_t leaves, std::uint64_t steps) {
    const auto k = static_cast<std::size_t>(std::bit_width(leaves)) - 1;
    most.resize(std::max(most.size(), k + 1));
    most[k] = std::max(most[k], steps);
  }

  inline static std::uint64_t steps_ = 0;
  SimMemory memory_;
  SimPlatform platform_;
  Leaves leaves_;
  EpochDomain<SimPlatform> epochs_{platform_};
  Inner inner_{leaves_, epochs_};
  std::uint32_t count_ = 1;
};

// Ids and times: the last leaf splits.
TEST_F(Steps, OfAscendingKeys) {
  std::vector<std::uint64_t> most;
  while (count_ < kMost - 1) note(most, count_, split(count_, std::uint64_t{count_} * 1000));
  expect_flat(most);
}

// Hashed keys: any leaf splits.
TEST_F(Steps, OfRandomKeys) {
  std::vector<std::uint64_t> most;
  for (std::uint64_t n = 0; count_ < kMost - 1; ++n) {
    const auto leaf = static_cast<std::uint32_t>(1 + mix(n) % count_);
    const std::uint64_t low = leaves_[leaf].low.load();
    const std::uint64_t width = leaves_[leaf].bound.load() - low;
    if (width > 1024) note(most, count_, split(leaf, low + width / 2));
  }
  expect_flat(most);
}

// Two dense clusters: the leaf between them has nearly all words.
TEST_F(Steps, OfClusters) {
  std::vector<std::uint64_t> most;
  split(1, std::uint64_t{1} << 40);
  std::uint32_t lower = 1;
  std::uint32_t upper = 2;
  for (std::uint64_t n = 1; count_ < kMost - 1; ++n) {
    const bool low = n % 2 == 0;
    std::uint32_t& leaf = low ? lower : upper;
    const std::uint64_t begin = low ? 0 : std::uint64_t{1} << 60;
    note(most, count_, split(leaf, begin + n * 1000));
    leaf = count_;
  }
  expect_flat(most);
}

// A range of keys goes, leaf by leaf.
TEST_F(Steps, OfErases) {
  std::vector<std::uint64_t> most;
  // Fewer, because an assertion looks at the whole range of the leaf.
  while (count_ < kMost / 4) split(count_, std::uint64_t{count_} * 1000);
  for (std::uint32_t left = count_ - 10; left > 1; --left) note(most, left, unlink_behind(1));
  expect_flat(most);
}

}  // namespace
}  // namespace perdure::ordered
