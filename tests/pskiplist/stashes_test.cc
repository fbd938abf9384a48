// test: tsan
// Stashes of free items, and the numbers of nodes that go through them: each item is in one place.
#include "index/pskiplist/stashes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "index/pskiplist/key_node.h"
#include "platform/real_platform.h"

namespace perdure::pskiplist {
namespace {

using P = RealPlatform;
using Subject = Stashes<P, std::uint32_t, 4>;

// What the owner of the stashes keeps in common.
class Owner {
 public:
  explicit Owner(std::uint32_t items) : common_(items) {
    (void)P::thread_slot();  // so that no other thread gets this one's
    std::iota(common_.rbegin(), common_.rend(), 1);
    EXPECT_TRUE(stashes_.reserve().ok());
  }
  // Returns 0 if there is none.
  std::uint32_t take() {
    std::uint32_t item = 0;
    return stashes_.take(item,
                         [&](std::uint32_t* items) {
                           const std::lock_guard guard(latch_);
                           std::uint32_t n = 0;
                           for (; n < Subject::kBatch && !common_.empty(); common_.pop_back()) {
                             items[n++] = common_.back();
                           }
                           return n;
                         })
               ? item
               : 0;
  }
  void give(std::uint32_t item) {
    stashes_.give(item, [&](const std::uint32_t* items, std::uint32_t n) { keep(items, n); });
  }
  void give_back_all() {
    stashes_.give_back_all([&](const std::uint32_t* items, std::uint32_t n) { keep(items, n); });
  }
  Subject& stashes() { return stashes_; }
  std::vector<std::uint32_t>& common() { return common_; }

 private:
  void keep(const std::uint32_t* items, std::uint32_t n) {
    const std::lock_guard guard(latch_);
    common_.insert(common_.end(), items, items + n);
  }
  std::mutex latch_;
  std::vector<std::uint32_t> common_;
  Subject stashes_;
};

TEST(Stashes, InOrderAndTheLastGivenFirst) {
  Owner owner(10);
  for (std::uint32_t item = 1; item <= 5; ++item) EXPECT_EQ(owner.take(), item);
  EXPECT_EQ(owner.stashes().count(), 3U);
  owner.give(2);
  EXPECT_EQ(owner.take(), 2U);
  for (std::uint32_t item = 6; item <= 10; ++item) EXPECT_EQ(owner.take(), item);
  EXPECT_EQ(owner.take(), 0U);
}

// A full stash gives back the items that have been there longest.
TEST(Stashes, AFullOneGivesHalfBack) {
  Owner owner(20);
  for (std::uint32_t item = 1; item <= 20; ++item) ASSERT_EQ(owner.take(), item);
  for (std::uint32_t item = 1; item <= Subject::kMost; ++item) owner.give(item);
  EXPECT_TRUE(owner.common().empty());
  owner.give(20);
  EXPECT_EQ(owner.common(), (std::vector<std::uint32_t>{1, 2, 3, 4}));
  EXPECT_EQ(owner.stashes().count(), Subject::kMost - Subject::kBatch + 1);
  EXPECT_EQ(owner.take(), 20U);
  EXPECT_EQ(owner.take(), Subject::kMost);
}

// The next thread, and any other one, gets what a thread has left that ended.
TEST(Stashes, AThreadEnds) {
  Owner owner(8);
  std::thread([&] { EXPECT_EQ(owner.take(), 1U); }).join();
  EXPECT_EQ(owner.stashes().count(), 3U);
  std::thread([&] { EXPECT_EQ(owner.take(), 2U); }).join();  // it has the first one's slot number
  for (std::uint32_t item = 5; item <= 8; ++item) EXPECT_EQ(owner.take(), item);
  EXPECT_EQ(owner.take(), 0U);
  std::uint32_t stolen = 0;
  EXPECT_TRUE(owner.stashes().steal(stolen));
  EXPECT_EQ(stolen, 3U);
  owner.give_back_all();
  EXPECT_EQ(owner.common(), (std::vector<std::uint32_t>{4}));
  EXPECT_EQ(owner.stashes().count(), 0U);
  EXPECT_FALSE(owner.stashes().steal(stolen));
}

// Threads take, give, steal and empty. No item is in two places, and none is lost.
TEST(Stashes, Threads) {
  constexpr std::uint32_t kItems = 60;
  constexpr int kThreads = 4;
  Owner owner(kItems);
  std::vector<std::uint32_t> holder(kItems + 1);  // plain: TSan sees two holders
  const auto run = [&](std::uint32_t id) {
    std::vector<std::uint32_t> mine;
    std::uint32_t seed = id;
    for (int i = 0; i < 20'000; ++i) {
      seed = seed * 1'664'525 + 1'013'904'223;
      std::uint32_t item = 0;
      if (seed >> 16 & 1 && !mine.empty()) {
        item = mine.back();
        mine.pop_back();
        EXPECT_EQ(holder[item], id);
        holder[item] = 0;
        owner.give(item);
        continue;
      }
      item = owner.take();
      if (item == 0 && !owner.stashes().steal(item)) continue;
      EXPECT_EQ(holder[item], 0U);
      holder[item] = id;
      mine.push_back(item);
      if (i % 1000 == 0) owner.give_back_all();
    }
    for (const std::uint32_t item : mine) {
      holder[item] = 0;
      owner.give(item);
    }
  };
  std::vector<std::thread> threads;
  for (std::uint32_t id = 1; id <= kThreads; ++id) threads.emplace_back(run, id);
  for (auto& thread : threads) thread.join();
  owner.give_back_all();
  auto& all = owner.common();
  std::sort(all.begin(), all.end());
  std::vector<std::uint32_t> expected(kItems);
  std::iota(expected.begin(), expected.end(), 1);
  EXPECT_EQ(all, expected);
}

// All numbers of a table can be taken, also those that another thread has given back.
TEST(NodeTable, EachNumberOnce) {
  constexpr std::uint32_t kNodes = 1000;
  NodeTable<P> nodes;
  ASSERT_TRUE(nodes.reserve(kNodes).ok());
  for (int round = 0; round < 3; ++round) {
    std::vector<std::uint32_t> taken;
    for (std::uint32_t number = nodes.take(); number != 0; number = nodes.take()) {
      taken.push_back(number);
    }
    std::vector<std::uint32_t> sorted = taken;
    std::sort(sorted.begin(), sorted.end());
    ASSERT_EQ(sorted.size(), kNodes);
    for (std::uint32_t i = 0; i < kNodes; ++i) ASSERT_EQ(sorted[i], i + 1);
    std::thread([&] {
      for (const std::uint32_t number : taken) nodes.give(number);
    }).join();
  }
}

}  // namespace
}  // namespace perdure::pskiplist
