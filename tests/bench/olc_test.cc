// test: no asan
// The trees with optimistic lock coupling that perdure-compare measures: against std::map with one
// thread, and with threads that write the same nodes, and the same keys.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "bench/compare/olc/art.h"
#include "bench/compare/olc/btree.h"
#include "bench/workloads/random.h"

namespace perdure::bench::olc {
namespace {

using Word = std::uint64_t;
using Entries = std::vector<std::pair<Word, Word>>;

template <class Tree>
class OlcTree : public ::testing::Test {};
// Nodes of 128 bytes have few entries, so that a small test splits inner nodes.
using Trees = ::testing::Types<Btree<>, Btree<128>, Art>;
TYPED_TEST_SUITE(OlcTree, Trees);

template <class Tree>
Entries scan(const Tree& tree, Word from, std::uint64_t limit) {
  Entries entries;
  tree.scan(from, limit, [&](Word key, Word value) { entries.emplace_back(key, value); });
  return entries;
}
Entries scan(const std::map<Word, Word>& map, Word from, std::uint64_t limit) {
  Entries entries;
  for (auto it = map.lower_bound(from); it != map.end() && entries.size() < limit; ++it) {
    entries.emplace_back(*it);
  }
  return entries;
}

// Keys of different shapes: few bytes in common, all but the last bytes, and the extremes.
Word shaped(Word word, int shape) {
  constexpr Word kSparse = 0x0101010101010101;
  switch (shape) {
    case 0:
      return word % 5000;
    case 1:
      return word;
    case 2:
      return (word % 16) * kSparse + (word >> 40) % 16;
    case 3:
      return ~Word{0} - word % 300;
    default:
      return (word % 300) << 48 | (word >> 32) % 300;
  }
}

TYPED_TEST(OlcTree, DoesWhatAMapDoes) {
  TypeParam tree(0, 1);
  std::map<Word, Word> map;
  Random random(7);
  for (int i = 0; i < 60'000; ++i) {
    const Word key = shaped(random.next(), static_cast<int>(random.next() % 5));
    const Word value = random.next();
    switch (random.next() % 8) {
      case 0:
      case 1:
      case 2:
        ASSERT_EQ(tree.insert(key, value), map.try_emplace(key, value).second);
        break;
      case 3: {
        const auto it = map.find(key);
        ASSERT_EQ(tree.update(key, value), it != map.end());
        if (it != map.end()) it->second = value;
        break;
      }
      case 4:
        ASSERT_EQ(tree.erase(key), map.erase(key) == 1);
        break;
      case 5:
        ASSERT_EQ(scan(tree, key, value % 70), scan(map, key, value % 70));
        break;
      default: {
        Word found = 0;
        const auto it = map.find(key);
        ASSERT_EQ(tree.read(key, [&](Word v) { found = v; }), it != map.end());
        if (it != map.end()) {
          ASSERT_EQ(found, it->second);
        }
      }
    }
  }
  EXPECT_EQ(tree.size(), map.size());
  EXPECT_EQ(scan(tree, 0, ~Word{0} >> 32), scan(map, 0, ~Word{0} >> 32));
}

// Neighbours in each node belong to different threads. Each thread inserts, reads and updates its
// keys, and deletes half of them, while scans run.
TYPED_TEST(OlcTree, ThreadsLoseNothing) {
  constexpr Word kThreads = 4;
  constexpr Word kEach = 5000;
  TypeParam tree(0, kThreads);
  std::atomic<bool> done = false;
  std::thread scanner([&] {
    while (!done) {
      const Entries entries = scan(tree, 100, 500);
      for (std::size_t i = 1; i < entries.size(); ++i) {
        ASSERT_LT(entries[i - 1].first, entries[i].first);
      }
    }
  });
  std::vector<std::thread> threads;
  for (Word thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (Word i = 0; i < kEach; ++i) {
        const Word key = shaped((i * kThreads + thread) * 77, 0) + (i << 20) + thread;
        ASSERT_TRUE(tree.insert(key, i));
        ASSERT_FALSE(tree.insert(key, i + 1));
        ASSERT_TRUE(tree.update(key, key));
        if (i % 2 == 0) {
          ASSERT_TRUE(tree.erase(key));
        }
        Word found = 0;
        ASSERT_EQ(tree.read(key, [&](Word v) { found = v; }), i % 2 == 1);
        if (i % 2 == 1) {
          ASSERT_EQ(found, key);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  done = true;
  scanner.join();
  EXPECT_EQ(tree.size(), kThreads * kEach / 2);
  const Entries entries = scan(tree, 0, kThreads * kEach);
  ASSERT_EQ(entries.size(), kThreads * kEach / 2);
  for (const auto& [key, value] : entries) ASSERT_EQ(key, value);
}

// Of the inserts of one key exactly one returns true, and of the deletions too.
TYPED_TEST(OlcTree, OneThreadWins) {
  constexpr Word kThreads = 3;
  constexpr Word kKeys = 8000;
  TypeParam tree(0, kThreads);
  std::atomic<Word> inserted = 0;
  std::atomic<Word> erased = 0;
  const auto together = [&](auto each) {
    std::vector<std::thread> threads;
    for (Word thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&] {
        for (Word i = 0; i < kKeys; ++i) each(shaped(i * 0x9e3779b97f4a7c15, i % 2 == 0 ? 1 : 4));
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  together([&](Word key) { inserted += tree.insert(key, key) ? 1 : 0; });
  EXPECT_EQ(inserted, tree.size());
  together([&](Word key) { erased += tree.erase(key) ? 1 : 0; });
  EXPECT_EQ(erased, inserted);
  EXPECT_EQ(tree.size(), 0U);
}

}  // namespace
}  // namespace perdure::bench::olc
