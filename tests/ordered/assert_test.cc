// test: explores
// The assertions of the levels above the leaves: each stops a call that would break its invariant.
#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

#include "index/ordered/inner.h"
#include "index/ordered/shortcut.h"
#include "testing/sim/sim_platform.h"
#include "tests/support/violates.h"

namespace perdure::ordered {
namespace {

using testing::SimMemory;
using testing::SimPlatform;
constexpr std::uint64_t kLast = ~std::uint64_t{0};

// Leaves of integer keys; number 0 means none.
class Leaves {
 public:
  static constexpr bool kBytes = false;
  struct Desc {
    SimPlatform::Atomic<std::uint64_t> low{0};
    SimPlatform::Atomic<std::uint64_t> bound{kLast};
    SimPlatform::Atomic<std::uint32_t> next{kNoLeaf};
    bool above(const Probe& probe) const noexcept { return lies_above<false>(*this, probe); }
  };
  Desc& operator[](std::uint32_t number) const noexcept { return leaves_[number]; }

 private:
  std::unique_ptr<Desc[]> leaves_ = std::make_unique<Desc[]>(16);
};

class InnerAssertions : public ::testing::Test {
 protected:
  using Inner = InnerIndex<SimPlatform, Leaves, 4>;

  InnerAssertions() : memory_(1 << 20), platform_(memory_), epochs_(platform_) {
    EXPECT_TRUE(inner_.reserve({.bits = 0, .shift = 0}, 64).ok());
  }
  // Makes leaves from 1 on, by their bounds: three to a node.
  void build(std::initializer_list<std::uint64_t> bounds) {
    std::vector<std::uint32_t> numbers;
    std::uint64_t low = 0;
    for (const std::uint64_t bound : bounds) {
      numbers.push_back(static_cast<std::uint32_t>(numbers.size() + 1));
      set(numbers.back(), low, bound);
      low = bound + 1;
    }
    EXPECT_TRUE(inner_.build(0, numbers.data(), numbers.size()).ok());
  }
  void set(std::uint32_t number, std::uint64_t low, std::uint64_t bound) {
    leaves_[number].low.store(low);
    leaves_[number].bound.store(bound);
  }
  void split(std::uint32_t old, std::uint64_t middle, std::uint32_t fresh) {
    set(fresh, middle + 1, leaves_[old].bound.load());
    leaves_[old].bound.store(middle);
    (void)inner_.insert_after(0, old, fresh);
  }

  SimMemory memory_;
  SimPlatform platform_;
  Leaves leaves_;
  EpochDomain<SimPlatform> epochs_;
  Inner inner_{leaves_, epochs_};
};

TEST_F(InnerAssertions, ALookupFindsALeaf) {
  const std::uint32_t none[] = {kNoLeaf};
  EXPECT_TRUE(inner_.build(0, none, 1).ok());
  const EpochGuard<SimPlatform> guard(epochs_);
  EXPECT_VIOLATES("ordered.N1", (void)inner_.search({.word = 5}));
}

TEST_F(InnerAssertions, ANewLeafBeginsWhereItsLeftNeighbourEnds) {
  build({100, kLast});
  const EpochGuard<SimPlatform> guard(epochs_);
  set(1, 0, 50);
  set(3, 50, 100);
  EXPECT_VIOLATES("ordered.N2", (void)inner_.insert_after(0, 1, 3));
}

TEST_F(InnerAssertions, TheMaximumOfANodeFalls) {
  build({100, 200, 300, 400, kLast});
  const EpochGuard<SimPlatform> guard(epochs_);
  split(1, 50, 6);  // 1, 6, 2, 3: full
  EXPECT_VIOLATES("ordered.N2", {
    leaves_[2].low.store(1000);
    split(6, 75, 7);
  });
  split(6, 75, 7);
  EXPECT_EQ(inner_.search({.word = 80}), 7U);
}

TEST_F(InnerAssertions, AnHeirHasTheRangeOfTheLeafThatGoes) {
  build({100, 200, 300, kLast});
  const EpochGuard<SimPlatform> guard(epochs_);
  EXPECT_VIOLATES("ordered.N3", inner_.remove(0, 2, 3));
}

TEST_F(InnerAssertions, TheLastNodeReachesAsFarAsThePartition) {
  build({100, 200});
  const EpochGuard<SimPlatform> guard(epochs_);
  EXPECT_VIOLATES("ordered.N4", (void)inner_.search({.word = 201}));
}

TEST_F(InnerAssertions, ALookupIsPinned) {
  build({100, kLast});
  EXPECT_VIOLATES("ordered.N4", (void)inner_.search({.word = 5}));
  EXPECT_VIOLATES("ordered.S2", (void)inner_.shortcut_to({.word = 5}));
}

// Leaves of byte strings.
class TextLeaves {
 public:
  static constexpr bool kBytes = true;
  struct Desc : Leaves::Desc {
    Separators<SimPlatform, true> separators;
    bool above(const Probe& probe) const noexcept { return lies_above<true>(*this, probe); }
  };
  Desc& operator[](std::uint32_t number) const noexcept { return leaves_[number]; }

 private:
  std::unique_ptr<Desc[]> leaves_ = std::make_unique<Desc[]>(16);
};

class TextAssertions : public ::testing::Test {
 protected:
  TextAssertions() { EXPECT_TRUE(inner_.reserve({.bits = 0, .shift = 0}, 64).ok()); }
  ~TextAssertions() override {
    for (std::uint32_t leaf = 1; leaf <= 3; ++leaf) {
      inner_.release(leaves_[leaf].separators.bound.exchange(nullptr));
    }
  }
  void build(std::initializer_list<const char*> bounds) {
    std::vector<std::uint32_t> numbers;
    for (const char* bound : bounds) {
      numbers.push_back(static_cast<std::uint32_t>(numbers.size() + 1));
      auto& leaf = leaves_[numbers.back()];
      auto* separator = Separator<SimPlatform>::make(bound, 0);
      inner_.release(leaf.separators.bound.exchange(separator));
      leaf.bound.store(head_word(bound));
      leaves_[numbers.back() + 1].separators.low.store(separator);
    }
    (void)inner_.build(0, numbers.data(), numbers.size());
  }

  SimMemory memory_{1 << 20};
  SimPlatform platform_{memory_};
  TextLeaves leaves_;
  EpochDomain<SimPlatform> epochs_{platform_};
  InnerIndex<SimPlatform, TextLeaves, 16> inner_{leaves_, epochs_};
};

TEST_F(TextAssertions, TheKeysOfANodeBeginWithItsPrefix) {
  const EpochGuard<SimPlatform> guard(epochs_);
  EXPECT_VIOLATES("ordered.N5", build({"pagea", "x", "pagec"}));
  build({"pa", "pb", "pc"});
}

TEST_F(TextAssertions, ASearchKnowsBetweenWhichSeparatorsTheProbeLies) {
  const EpochGuard<SimPlatform> guard(epochs_);
  build({"pa", "pb", "pc"});
  leaves_[2].separators.bound.load()->bytes()[1] = 'z';  // the node has its old words
  EXPECT_VIOLATES("ordered.N6", (void)inner_.search(probe_of("pbb")));
}

class ShortcutAssertions : public ::testing::Test {
 protected:
  using Subject = Shortcut<SimPlatform>;
  struct Free {
    void operator()(Subject* shortcut) const noexcept { Subject::free(shortcut); }
  };
  // Leaves 1 to 3 of 100 words each, from word 0 on.
  ShortcutAssertions() : shortcut_(Subject::make(0, 299, 3)) {
    shortcut_->fill(1, true, 0, 99, 100);
    shortcut_->fill(2, false, 99, 199, 100);
    shortcut_->fill(3, false, 199, 299, 100);
  }
  std::unique_ptr<Subject, Free> shortcut_;
};

TEST_F(ShortcutAssertions, ALeafEndsBehindItsBeginning) {
  EXPECT_VIOLATES("ordered.S1", (void)shortcut_->fill(2, false, 199, 99, 100));
  EXPECT_VIOLATES("ordered.S1", shortcut_->split(2, 99, 250, 4, 199));
  EXPECT_VIOLATES("ordered.S1", shortcut_->split(2, 99, 50, 4, 199));
}

TEST_F(ShortcutAssertions, AnUnlinkedLeafIsNamedNowhere) {
  EXPECT_VIOLATES("ordered.S2", shortcut_->forget(2, 120, 140));
  EXPECT_VIOLATES("ordered.S2", shortcut_->forget(2, 180, 199));
}

}  // namespace
}  // namespace perdure::ordered
