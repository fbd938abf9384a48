// test: cross
// InnerIndex when its inner nodes are used up: leaves that no node lists, and where lookups begin;
// and without its upper levels.
#include "index/ordered/inner.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "platform/real_platform.h"

namespace perdure::ordered {
namespace {

constexpr std::uint64_t kLast = ~std::uint64_t{0};
constexpr std::uint32_t kMany = 4096;

// Leaves of integer keys; number 0 means none.
class Leaves {
 public:
  static constexpr bool kBytes = false;
  struct Desc {
    std::atomic<std::uint64_t> low{0};
    std::atomic<std::uint64_t> bound{kLast};
    std::atomic<std::uint32_t> next{kNoLeaf};
    bool above(const Probe& probe) const noexcept { return lies_above<false>(*this, probe); }
  };
  Desc& operator[](std::uint32_t number) const noexcept { return leaves_[number]; }

 private:
  std::unique_ptr<Desc[]> leaves_ = std::make_unique<Desc[]>(kMany);
};

// One partition. Leaf 1 is the first one.
class InnerNodes : public ::testing::Test {
 protected:
  using Inner = InnerIndex<RealPlatform, Leaves, 4>;

  InnerNodes() {
    EXPECT_TRUE(inner_.reserve({.bits = 0, .shift = 0}, 4).ok());  // 72 inner nodes
    const std::uint32_t first[] = {1};
    EXPECT_TRUE(inner_.build(0, first, 1).ok());
  }
  ~InnerNodes() override { epochs_.drain_all(); }

  // As an engine splits a leaf: the upper half is a new leaf. Returns whether a node lists it.
  bool split(std::uint32_t old, std::uint64_t middle) {
    return inner_.insert_after(0, old, divide(old, middle)).ok();
  }
  // The same, up to the moment at which the new leaf is listed.
  std::uint32_t divide(std::uint32_t old, std::uint64_t middle) {
    const std::uint32_t fresh = ++count_;
    auto& left = leaves_[old];
    auto& right = leaves_[fresh];
    right.low.store(middle + 1);
    right.bound.store(left.bound.load());
    right.next.store(left.next.load());
    left.next.store(fresh);
    left.bound.store(middle);
    return fresh;
  }
  // As an engine unlinks one: the right neighbour takes the range over.
  void unlink(std::uint32_t leaf) {
    const std::uint32_t heir = leaves_[leaf].next.load();
    leaves_[heir].low.store(leaves_[leaf].low.load());
    leaves_[left_of(leaf)].next.store(heir);
    inner_.remove(0, leaf, heir);
    unlinked_.insert(leaf);
  }
  std::uint32_t left_of(std::uint32_t leaf) const {
    std::uint32_t left = 1;
    while (leaves_[left].next.load() != leaf) left = leaves_[left].next.load();
    return left;
  }
  // Makes leaves of equal width from word 0 on until the inner nodes are used up, then divides one
  // of them further: its middle and a part behind that are not listed. Returns what is left of it.
  std::uint32_t use_up() {
    while (split(count_, leaves_[count_].low.load() + kWidth - 1)) {
    }
    end_ = leaves_[count_].low.load() + kWidth;
    const std::uint32_t leaf = count_ / 2;
    while (split(leaf, leaves_[leaf].bound.load() - kWidth / 32)) {
    }
    EXPECT_FALSE(split(leaf, leaves_[leaf].low.load() + kWidth / 8 - 1));
    EXPECT_GT(leaves_[count_].bound.load() - leaves_[count_].low.load(), kWidth / 2);
    return leaf;
  }
  // Where lookups begin, with the shortcut and without it: at or before the word's leaf, in a leaf
  // that is linked.
  void expect_places() {
    const EpochGuard<RealPlatform> guard(epochs_);
    for (std::uint64_t word = 0; word < end_; word += kWidth / 16) {
      for (const std::uint32_t leaf :
           {inner_.shortcut_to({.word = word}), inner_.search({.word = word})}) {
        if (leaf == kNoLeaf) continue;  // the shortcut names none
        ASSERT_FALSE(unlinked_.contains(leaf)) << "word " << word << " begins at leaf " << leaf;
        ASSERT_LE(leaves_[leaf].low.load(), word) << "begins at leaf " << leaf;
      }
    }
  }

  static constexpr std::uint64_t kWidth = 1 << 10;
  RealPlatform platform_;
  Leaves leaves_;
  EpochDomain<RealPlatform> epochs_{platform_};
  Inner inner_{leaves_, epochs_};
  std::uint32_t count_ = 1;
  std::uint64_t end_ = 0;  // of the words that are looked up
  std::set<std::uint32_t> unlinked_;
};

// ordered.S2: a shortcut that is built while a leaf is not listed does not name the left neighbour
// of that leaf in its place. No unlink would look for the name there.
TEST_F(InnerNodes, AShortcutBesideLeavesThatAreNotListed) {
  const EpochGuard<RealPlatform> guard(epochs_);
  const std::uint32_t left = use_up();
  expect_places();
  // Divides the others until the shortcut has been built anew.
  for (std::uint32_t leaf = 1, end = left; leaf < end; ++leaf) {
    for (int n = 0; n < 4; ++n) {
      split(leaf, (leaves_[leaf].low.load() + leaves_[leaf].bound.load()) / 2);
    }
    expect_places();
  }
  unlink(left);
  expect_places();
}

// ordered.S1: the same while a new leaf waits for the latch, and once it is listed.
TEST_F(InnerNodes, AShortcutBesideALeafThatWaits) {
  const EpochGuard<RealPlatform> guard(epochs_);
  for (std::uint32_t n = 0; n < 20; ++n) split(count_, leaves_[count_].low.load() + kWidth - 1);
  end_ = leaves_[count_].low.load();
  for (const std::uint32_t waits : {5U, 9U, 14U}) {
    const std::uint32_t fresh =
        divide(waits, (leaves_[waits].low.load() + leaves_[waits].bound.load()) / 2);
    // Divides others until the shortcut has been built anew.
    for (std::uint32_t leaf = 1; leaf < 20; ++leaf) {
      if (leaf != waits) split(leaf, (leaves_[leaf].low.load() + leaves_[leaf].bound.load()) / 2);
    }
    EXPECT_TRUE(inner_.insert_after(0, waits, fresh).ok());
    expect_places();
  }
}

// ordered.N3: if no node lists the heir of a leaf that goes, the heir takes its place. Otherwise
// every later lookup in its range would begin right of it.
TEST_F(InnerNodes, AHeirThatIsNotListedTakesThePlace) {
  const EpochGuard<RealPlatform> guard(epochs_);
  std::uint32_t leaf = use_up();
  for (int n = 0; n < 4; ++n) {
    const std::uint32_t heir = leaves_[leaf].next.load();
    unlink(leaf);
    expect_places();
    leaf = heir;
  }
}

// A search that skips the upper levels finds the same leaves.
template <Start kStart>
void expect_leaves_without_upper_levels() {
  constexpr std::uint32_t kLeaves = 100;
  constexpr std::uint64_t kWidth = 1 << 10;
  RealPlatform platform;
  Leaves leaves;
  EpochDomain<RealPlatform> epochs(platform);
  InnerIndex<RealPlatform, Leaves, 4, kStart> inner(leaves, epochs);
  std::vector<std::uint32_t> numbers;
  for (std::uint32_t leaf = 1; leaf <= kLeaves; ++leaf) {
    numbers.push_back(leaf);
    leaves[leaf].low.store((leaf - 1) * kWidth);
    if (leaf == kLeaves) break;
    leaves[leaf].bound.store(leaf * kWidth - 1);
    leaves[leaf].next.store(leaf + 1);
  }
  ASSERT_TRUE(inner.reserve({.bits = 0, .shift = 0}, kLeaves).ok());
  ASSERT_TRUE(inner.build(0, numbers.data(), numbers.size()).ok());
  {
    const EpochGuard<RealPlatform> guard(epochs);
    for (std::uint32_t leaf = 1; leaf <= kLeaves; ++leaf) {
      const Probe probe{.word = (leaf - 1) * kWidth};
      EXPECT_EQ(inner.shortcut_to(probe), kStart == Start::shortcut ? leaf : kNoLeaf);
      EXPECT_EQ(inner.search(probe), leaf);
      EXPECT_EQ(inner.locate(probe), leaf);
    }
  }
  epochs.drain_all();
}
TEST(InnerLevels, ASearchStartsWhereItIsTold) {
  expect_leaves_without_upper_levels<Start::shortcut>();
  expect_leaves_without_upper_levels<Start::index_cache>();
  expect_leaves_without_upper_levels<Start::first_node>();
}

}  // namespace
}  // namespace perdure::ordered
