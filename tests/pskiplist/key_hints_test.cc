// test: tsan
// Hints from keys to nodes: they name the nodes that are there, and say for certain that others are
// not there.
#include "index/pskiplist/key_hints.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

#include "platform/real_platform.h"

namespace perdure::pskiplist {
namespace {

using P = RealPlatform;
using Subject = KeyHints<P>;

constexpr std::uint32_t kMostNamed = Subject::kNodes * (1 + Subject::kMostLinked);  // by a bucket

// The key of a node is its number.
std::uint64_t hash(std::uint64_t node) { return Subject::hash<false>(node, {}); }
void grow(Subject& hints, std::uint32_t nodes) {
  hints.grow<true>(
      nodes, [](std::uint32_t named) { return hash(named); }, [](std::uint32_t) {},
      [](std::uint32_t) {});
}
void put(Subject& hints, std::uint32_t node) {
  hints.put(hash(node), node);
  grow(hints, node);
}
void remove(Subject& hints, std::uint32_t node) { hints.remove(hash(node), node); }
Hint look(const Subject& hints, std::uint32_t node) {
  return hints.find(hash(node), [&](std::uint32_t named) { return named == node; });
}
bool knows(const Subject& hints, std::uint32_t node) { return look(hints, node).node == node; }
// Of the nodes from..to, how many are known, and how many are certainly absent.
struct Shares {
  std::uint32_t known = 0, absent = 0;
  friend bool operator==(const Shares&, const Shares&) = default;
};
Shares shares(const Subject& hints, std::uint32_t from, std::uint32_t to) {
  Shares out;
  for (std::uint32_t node = from; node <= to; ++node) {
    const Hint hint = look(hints, node);
    out.known += hint.node == node ? 1 : 0;
    out.absent += hint.absent ? 1 : 0;
  }
  return out;
}
// Nodes 1 to `nodes` are named, and no others.
void expect_just(const Subject& hints, std::uint32_t nodes) {
  ASSERT_EQ(shares(hints, 1, nodes), (Shares{.known = nodes, .absent = 0}));
  ASSERT_EQ(shares(hints, nodes + 1, 2 * nodes), (Shares{.known = 0, .absent = nodes}));
  ASSERT_EQ(hints.named(), nodes);
}

TEST(KeyHints, KnowAllNodesWhileTheyGrow) {
  constexpr std::uint32_t kNodes = 200'000;
  Subject hints;
  ASSERT_TRUE(hints.reserve(kNodes).ok());
  double most = 0;  // bytes of linked buckets, as a share of the others
  std::uint32_t next_look = 1;
  for (std::uint32_t node = 1; node <= kNodes; ++node) {
    put(hints, node);
    if (node < next_look) continue;
    expect_just(hints, node);
    next_look += 1 + next_look / 8;
    const double buckets = 1.0 + node / Subject::kFill;
    most = std::max(most, static_cast<double>(hints.dram_bytes()) / (64 * buckets) - 1);
  }
  EXPECT_LE(most, 0.05);
  std::printf("most bytes of linked buckets: %.4f of the others\n", most);
}

TEST(KeyHints, AsManyBucketsAsTheKeysOfABuild) {
  constexpr std::uint32_t kNodes = 100'000;
  Subject hints;
  ASSERT_TRUE(hints.reserve(kNodes).ok());
  hints.prepare(kNodes);
  EXPECT_EQ(hints.dram_bytes(), 64 * (kNodes / Subject::kFill));
  for (std::uint32_t node = 1; node <= kNodes; ++node) hints.put(hash(node), node);
  expect_just(hints, kNodes);
}

// A name that finds no room is not certainly absent. Those that found room are known.
TEST(KeyHints, NoMoreBucketsThanThereIsRoomFor) {
  constexpr std::uint32_t kNodes = 3000;
  Subject hints;
  ASSERT_TRUE(hints.reserve(100).ok());
  for (std::uint32_t node = 1; node <= kNodes; ++node) put(hints, node);
  const Shares all = shares(hints, 1, kNodes);
  EXPECT_EQ(all.known, hints.named());
  EXPECT_EQ(all.absent, 0);
  const std::uint64_t bytes = hints.dram_bytes();
  EXPECT_EQ(all.known, bytes / 64 * Subject::kNodes);  // no bucket has room
  EXPECT_LT(all.known, kNodes);
  for (std::uint32_t node = 1; node <= kNodes; ++node) remove(hints, node);
  EXPECT_EQ(hints.named(), 0);
  EXPECT_EQ(shares(hints, 1, kNodes).known, 0);
  EXPECT_EQ(hints.dram_bytes(), bytes);
}

// A full bucket has others linked behind it. They go when they are empty, and are used again.
TEST(KeyHints, AFullBucket) {
  constexpr std::uint32_t kNodes = 2 * Subject::kNodes + 1;
  Subject hints;
  ASSERT_TRUE(hints.reserve(100).ok());
  for (int round = 0; round < 5; ++round) {
    for (std::uint32_t node = 1; node <= kNodes; ++node) hints.put(hash(node), node);
    expect_just(hints, kNodes);
    EXPECT_EQ(hints.dram_bytes(), 3 * 64);
    remove(hints, kNodes + 1);  // removes nothing
    expect_just(hints, kNodes);
    remove(hints, 1);  // makes room
    EXPECT_TRUE(look(hints, 1).absent);
    hints.put(hash(50), 50);
    EXPECT_TRUE(knows(hints, 50));
    EXPECT_EQ(hints.dram_bytes(), 3 * 64);
    remove(hints, 50);
    for (std::uint32_t node = 2; node <= kNodes; ++node) {
      remove(hints, node);
      ASSERT_EQ(shares(hints, node + 1, kNodes), (Shares{.known = kNodes - node, .absent = 0}));
      ASSERT_EQ(shares(hints, 1, node), (Shares{.known = 0, .absent = node}));
    }
  }
}

// More names than a bucket may have: it is incomplete, and so is each that is divided from it.
TEST(KeyHints, TooManyForABucket) {
  Subject hints;
  ASSERT_TRUE(hints.reserve(1000).ok());
  for (std::uint32_t node = 1; node <= kMostNamed; ++node) hints.put(hash(node), node);
  expect_just(hints, kMostNamed);
  hints.put(hash(kMostNamed + 1), kMostNamed + 1);
  const auto expect_incomplete = [&] {
    EXPECT_EQ(shares(hints, 1, kMostNamed), (Shares{.known = kMostNamed, .absent = 0}));
    EXPECT_EQ(shares(hints, kMostNamed + 1, 1000), Shares());
    EXPECT_EQ(hints.named(), kMostNamed);
  };
  expect_incomplete();
  for (std::uint32_t nodes = 10; nodes <= 1000; nodes += 10) grow(hints, nodes);
  expect_incomplete();
}

// One bucket has as many names as it may have, then the table grows.
TEST(KeyHints, DivisionsOfLongChains) {
  Subject hints;
  ASSERT_TRUE(hints.reserve(1000).ok());
  for (std::uint32_t node = 1; node <= kMostNamed; ++node) hints.put(hash(node), node);
  const std::uint64_t linked = hints.dram_bytes() - 64;
  for (std::uint32_t nodes = 1; nodes <= 1000; ++nodes) {
    grow(hints, nodes);
    expect_just(hints, kMostNamed);
  }
  // A division takes linked buckets before it gives others.
  EXPECT_LE(hints.dram_bytes(), 64 * (1000 / Subject::kFill) + 2 * linked);
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
      remove(hints, node);
    } else {
      put(hints, node);
    }
    there[node] = !there[node];
    named += there[node] ? 1 : ~0ULL;
    if (i % 1000 != 0) continue;
    ASSERT_EQ(hints.named(), named);
    for (std::uint32_t n = 1; n <= 5000; ++n) {
      ASSERT_EQ(knows(hints, n), there[n]);
      ASSERT_EQ(look(hints, n).absent, !there[n]);
    }
  }
}

// Two threads put in and take out nodes of their own, which come in rows, while the buckets are
// divided. At the end just the nodes that are there are named.
TEST(KeyHints, ThreadsBesideDivisions) {
  constexpr std::uint32_t kNodes = 40'000;
  for (int round = 0; round < 5; ++round) {
    Subject hints;
    ASSERT_TRUE(hints.reserve(kNodes).ok());
    const auto run = [&](std::uint32_t own) {
      for (std::uint32_t node = 1; node <= kNodes; ++node) {
        if (node / 32 % 2 != own) continue;
        put(hints, node);
        if (node > 64 && node % 8 < 6) remove(hints, node - 64);
        (void)knows(hints, node / 2);
      }
    };
    std::thread other(run, 1);
    run(0);
    other.join();
    std::uint64_t found = 0;
    for (std::uint32_t node = 1; node <= kNodes; ++node) {
      const bool out = node + 64 <= kNodes && node % 8 < 6;
      ASSERT_EQ(knows(hints, node), !out) << node;
      ASSERT_EQ(look(hints, node).absent, out) << node;
      found += out ? 0 : 1;
    }
    ASSERT_EQ(hints.named(), found);
  }
}

// In the middle of a division, and in that of a lookup, no node is absent.
TEST(KeyHints, ADivisionBetweenTwoSteps) {
  Subject hints;
  ASSERT_TRUE(hints.reserve(1000).ok());
  for (std::uint32_t node = 1; node <= kMostNamed; ++node) hints.put(hash(node), node);
  std::uint32_t unknown = 0;
  const auto look_and_hash = [&](std::uint32_t named) {
    const Shares all = shares(hints, 1, kMostNamed);
    EXPECT_EQ(all.absent, 0);
    unknown = std::max(unknown, kMostNamed - all.known);
    return hash(named);
  };
  const auto nothing = [](std::uint32_t) {};
  for (std::uint32_t nodes = 1; nodes <= 300; ++nodes) {
    hints.grow<true>(nodes, look_and_hash, nothing, nothing);
  }
  EXPECT_GT(unknown, 0);  // those that the new bucket has already
  expect_just(hints, kMostNamed);
}

TEST(KeyHints, ADivisionInALookup) {
  std::uint32_t missed = 0;
  for (std::uint32_t node = 1; node <= kMostNamed; ++node) {
    Subject hints;
    ASSERT_TRUE(hints.reserve(1000).ok());
    for (std::uint32_t other = 1; other <= kMostNamed; ++other) hints.put(hash(other), other);
    const Hint hint = hints.find(hash(node), [&](std::uint32_t named) {
      if (named == node) return true;
      for (std::uint32_t nodes = 1; nodes <= 300; ++nodes) grow(hints, nodes);
      return false;
    });
    ASSERT_FALSE(hint.absent) << node;
    missed += hint.node == 0 ? 1 : 0;
  }
  EXPECT_GT(missed, 0);
}

// Looks up nodes 1 to `nodes`, which are named throughout, until `done`. None is absent.
void look_up(const Subject& hints, std::uint32_t nodes, const std::atomic<bool>& done,
             std::atomic<bool>& begun, std::uint64_t& wrong) {
  do {
    for (std::uint32_t node = 1; node <= nodes; ++node) {
      wrong += look(hints, node).absent ? 1 : 0;
    }
    begun = true;
  } while (!done.load());
}
// Returns how often a node was absent while change() ran.
template <class F>
std::uint64_t absent_beside(const Subject& hints, std::uint32_t nodes, F&& change) {
  std::atomic<bool> done{false};
  std::atomic<bool> begun{false};
  std::uint64_t wrong = 0;
  std::thread reader([&] { look_up(hints, nodes, done, begun, wrong); });
  while (!begun.load()) std::this_thread::yield();
  change();
  done = true;
  reader.join();
  return wrong;
}

TEST(KeyHints, NoNodeIsAbsentBesideDivisions) {
  for (int round = 0; round < 400; ++round) {
    Subject hints;
    ASSERT_TRUE(hints.reserve(2000).ok());
    const std::uint32_t there = round % 4 == 0 ? 16 : kMostNamed;  // in long chains
    for (std::uint32_t node = 1; node <= there; ++node) hints.put(hash(node), node);
    const std::uint64_t wrong = absent_beside(hints, there, [&] {
      for (std::uint32_t node = there + 1; node <= there + 300; ++node) {
        hints.put(hash(node), node);
        if (node % 4 != 0) remove(hints, node);
        grow(hints, node - there);
      }
    });
    ASSERT_EQ(wrong, 0) << round;
  }
}

// Linked buckets go from one chain to another all the time, with the lookups that are in them.
TEST(KeyHints, NoNodeIsAbsentBesideLinkedBuckets) {
  constexpr std::uint32_t kBuckets = 8;
  for (int round = 0; round < 40; ++round) {
    Subject hints;
    ASSERT_TRUE(hints.reserve(2000).ok());
    hints.prepare(kBuckets * Subject::kFill);
    const std::uint32_t there = kBuckets * (5 + 10 * (static_cast<std::uint32_t>(round) % 2));
    for (std::uint32_t node = 1; node <= there; ++node) hints.put(hash(node), node);
    const std::uint64_t wrong = absent_beside(hints, there, [&] {
      std::mt19937_64 random(static_cast<std::uint64_t>(round));
      for (int i = 0; i < 200; ++i) {
        const auto from = there + 1 + static_cast<std::uint32_t>(random() % 1000);
        const std::uint32_t to = from + kBuckets * 8;
        for (std::uint32_t node = from; node < to; ++node) hints.put(hash(node), node);
        for (std::uint32_t node = from; node < to; ++node) remove(hints, node);
      }
    });
    ASSERT_EQ(wrong, 0) << round;
    ASSERT_EQ(hints.named(), there);
  }
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
      expect_just(hints, kNodes);
      for (std::uint32_t node = 1; node < kNodes; node += 2) remove(hints, node);
    });
    for (std::uint32_t node = 1; node <= kNodes; ++node) put(hints, node);
    expect_just(hints, kNodes);
    grown = true;
    other.join();
    for (std::uint32_t node = 1; node <= kNodes; ++node) {
      ASSERT_EQ(knows(hints, node), node % 2 == 0) << node;
      ASSERT_EQ(look(hints, node).absent, node % 2 != 0) << node;
    }
    EXPECT_EQ(hints.named(), kNodes / 2);
  }
}

}  // namespace
}  // namespace perdure::pskiplist
