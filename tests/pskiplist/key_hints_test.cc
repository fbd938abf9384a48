// test: tsan
// Hints from keys to nodes: they find the known nodes and name no others.
#include "index/pskiplist/key_hints.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "platform/real_platform.h"

namespace perdure::pskiplist {
namespace {

using P = RealPlatform;
using Subject = KeyHints<P>;

// The key of a node is its number.
std::uint64_t hash(std::uint64_t node) { return Subject::hash<false>(node, {}); }
void put(Subject& hints, std::uint32_t node) {
  hints.put(hash(node), node);
  hints.grow<true>(
      node, [](std::uint32_t named) { return hash(named); }, [](std::uint32_t) {},
      [](std::uint32_t) {});
}
bool knows(const Subject& hints, std::uint32_t node) {
  return hints.find(hash(node), [&](std::uint32_t named) { return named == node; }) == node;
}
double share_known(const Subject& hints, std::uint32_t nodes) {
  std::uint32_t known = 0;
  for (std::uint32_t node = 1; node <= nodes; ++node) known += knows(hints, node) ? 1 : 0;
  return static_cast<double>(known) / nodes;
}

TEST(KeyHints, KnowMostNodesWhileTheyGrow) {
  constexpr std::uint32_t kNodes = 200'000;
  Subject hints;
  ASSERT_TRUE(hints.reserve(kNodes).ok());
  double least = 1;
  std::uint32_t next_look = 1;
  for (std::uint32_t node = 1; node <= kNodes; ++node) {
    put(hints, node);
    if (node < next_look) continue;
    least = std::min(least, share_known(hints, node));
    next_look += 1 + next_look / 8;
    EXPECT_LE(hints.dram_bytes(), 64 + 64 * (node / Subject::kFill));
  }
  EXPECT_GE(least, 0.97);
  std::printf("least share of nodes known: %.4f\n", least);
  // A node that was not put in is not known.
  for (std::uint32_t node = kNodes + 1; node < 2 * kNodes; ++node) ASSERT_FALSE(knows(hints, node));
}

TEST(KeyHints, AsManyBucketsAsTheKeysOfABuild) {
  constexpr std::uint32_t kNodes = 100'000;
  Subject hints;
  ASSERT_TRUE(hints.reserve(kNodes).ok());
  hints.prepare(kNodes);
  for (std::uint32_t node = 1; node <= kNodes; ++node) hints.put(hash(node), node);
  EXPECT_GE(share_known(hints, kNodes), 0.97);
  EXPECT_EQ(hints.dram_bytes(), 64 * (kNodes / Subject::kFill));
}

TEST(KeyHints, NoMoreBucketsThanThereIsRoomFor) {
  Subject hints;
  ASSERT_TRUE(hints.reserve(100).ok());
  for (std::uint32_t node = 1; node <= 1000; ++node) put(hints, node);
  EXPECT_EQ(hints.dram_bytes(), 64 * (100 / Subject::kFill + 1));
  EXPECT_LE(hints.named(), Subject::kNodes * (100 / Subject::kFill + 1));
}

// A full bucket takes no more; a removal makes room.
TEST(KeyHints, AFullBucket) {
  Subject hints;
  ASSERT_TRUE(hints.reserve(100).ok());
  for (std::uint32_t node = 1; node <= 2 * Subject::kNodes; ++node) hints.put(hash(node), node);
  EXPECT_EQ(hints.named(), Subject::kNodes);
  EXPECT_FALSE(knows(hints, 2 * Subject::kNodes));
  hints.remove(hash(2 * Subject::kNodes), 2 * Subject::kNodes);  // removes nothing
  EXPECT_EQ(hints.named(), Subject::kNodes);
  hints.remove(hash(1), 1);
  hints.put(hash(50), 50);
  EXPECT_TRUE(knows(hints, 50));
  EXPECT_FALSE(knows(hints, 1));
}

TEST(KeyHints, NamesWhatIsThere) {
  std::mt19937_64 random(7);
  Subject hints;
  ASSERT_TRUE(hints.reserve(5000).ok());
  std::vector<bool> there(5001);
  std::uint64_t named = 0;
  for (int i = 0; i < 200'000; ++i) {
    const std::uint32_t node = 1 + static_cast<std::uint32_t>(random() % (1 + i / 40));
    if (there[node]) {
      named -= knows(hints, node) ? 1 : 0;
      hints.remove(hash(node), node);
    } else {
      put(hints, node);
      named += knows(hints, node) ? 1 : 0;
    }
    there[node] = !there[node];
    if (i % 1000 != 0) continue;
    ASSERT_EQ(hints.named(), named);
    for (std::uint32_t n = 1; n <= 5000; ++n) ASSERT_TRUE(there[n] || !knows(hints, n));
  }
}

// Two threads put in and take out nodes of their own, which come in rows, while the buckets are
// divided. A removed node is not named, and a known node can be found. Returns how many are known.
std::uint64_t put_beside_divisions(std::uint32_t nodes) {
  Subject hints;
  EXPECT_TRUE(hints.reserve(nodes).ok());
  const auto run = [&](std::uint32_t own) {
    for (std::uint32_t node = 1; node <= nodes; ++node) {
      if (node / 32 % 2 != own) continue;
      put(hints, node);
      if (node > 64 && node % 8 < 6) hints.remove(hash(node - 64), node - 64);
      (void)knows(hints, node / 2);
    }
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  std::uint64_t found = 0;
  for (std::uint32_t node = 1; node <= nodes; ++node) {
    const bool out = node + 64 <= nodes && node % 8 < 6;
    const bool known = knows(hints, node);
    EXPECT_FALSE(out && known) << node;
    found += known ? 1 : 0;
  }
  EXPECT_EQ(hints.named(), found);
  return found;
}

TEST(KeyHints, ThreadsBesideDivisions) {
  constexpr std::uint32_t kNodes = 40'000;
  // A thread that loses its processor during a division lets the other one fill the buckets. So
  // only the best of some rounds knows most nodes.
  std::uint64_t most = 0;
  for (int round = 0; round < 20 && (round == 0 || most < kNodes / 4 * 9 / 10); ++round) {
    most = std::max(most, put_beside_divisions(kNodes));
  }
  EXPECT_GE(most, kNodes / 4 * 9 / 10);
}

// A thread that has seen none of the divisions is led from bucket to bucket: it knows what the
// others know, and its changes come into the right buckets.
TEST(KeyHints, AnOldImageLeadsOn) {
  constexpr std::uint32_t kNodes = 20'000;
  for (const std::uint32_t at_opening : {0U, 700U, 1280U}) {
    Subject hints;
    ASSERT_TRUE(hints.reserve(kNodes).ok());
    hints.prepare(at_opening);
    std::atomic<bool> grown{false};
    std::thread other([&] {
      while (!grown.load()) std::this_thread::yield();
      for (std::uint32_t node = 1; node < kNodes; node += 2) {
        if (knows(hints, node)) hints.remove(hash(node), node);
      }
    });
    for (std::uint32_t node = 1; node <= kNodes; ++node) put(hints, node);
    EXPECT_GE(share_known(hints, kNodes), 0.97);
    grown = true;
    other.join();
    for (std::uint32_t node = 1; node < kNodes; node += 2) ASSERT_FALSE(knows(hints, node)) << node;
    EXPECT_GE(share_known(hints, kNodes), 0.97 / 2);
    std::uint64_t known = 0;
    for (std::uint32_t node = 1; node <= kNodes; ++node) known += knows(hints, node) ? 1 : 0;
    EXPECT_EQ(hints.named(), known);
  }
}

}  // namespace
}  // namespace perdure::pskiplist
