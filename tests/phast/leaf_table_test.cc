// test: tsan, cross
// Home lines, the slot of a new entry, and the line that a lookup prefetches; numbers of leaves;
// scan orders.
#include "index/phast/leaf_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "platform/real_platform.h"

namespace perdure::phast {
namespace {

using Default = Traits<RealPlatform, IntegerCodec, DefaultGeometry>;
using Desc = Descriptor<Default>;
constexpr std::uint32_t kLines = DefaultGeometry::kLeafEntries / kLineEntries;

TEST(HomeLine, EveryLineIsTheHomeOfAboutAsManyFingerprints) {
  std::uint32_t fingerprints[kLines] = {};
  for (unsigned f = 1; f < 256; ++f) {
    const std::uint32_t line = home_of<DefaultGeometry>(static_cast<std::uint8_t>(f));
    ASSERT_LT(line, kLines);
    ++fingerprints[line];
  }
  for (const std::uint32_t n : fingerprints) EXPECT_NEAR(n, 255.0 / kLines, 1.5);
}

TEST(HomeLine, IsFilledFirstThenAnyOther) {
  const auto desc = std::make_unique<Desc>();
  constexpr std::uint8_t kFingerprint = 200;
  const std::uint32_t home = home_of<DefaultGeometry>(kFingerprint) * kLineEntries;
  ASSERT_NE(home, 0U);
  for (std::uint32_t i = 0; i < kLineEntries; ++i) {
    const std::uint32_t slot = desc->free_slot(0, kFingerprint);
    EXPECT_EQ(slot, home + i);
    desc->set_fingerprint(slot, kFingerprint);
  }
  EXPECT_EQ(desc->free_slot(0, kFingerprint), 0U) << "the home line is full";
  desc->set_fingerprint(home + 1, 0);
  EXPECT_EQ(desc->free_slot(0, kFingerprint), home + 1);
  // A slot that another thread is filling counts as taken.
  EXPECT_EQ(desc->free_slot(kHeld | (home + 2), kFingerprint), 0U);
}

TEST(HomeLine, AFullLeafHasNoSlot) {
  const auto desc = std::make_unique<Desc>();
  for (std::uint32_t i = 0; i < DefaultGeometry::kLeafEntries; ++i) {
    const std::uint32_t slot = desc->free_slot(0, static_cast<std::uint8_t>(4 * i + 1));
    ASSERT_LT(slot, DefaultGeometry::kLeafEntries);
    ASSERT_TRUE(desc->is_free(slot));
    desc->set_fingerprint(slot, 1);
  }
  EXPECT_EQ(desc->free_slot(0, 77), kNoSlot);
}

TEST(LeafNumbers, APlaceFollowsFromTheNumber) {
  LeafTable<Default> table;
  ASSERT_TRUE(table.reserve(5000).ok());
  std::set<std::uint32_t> numbers;
  for (const std::uint32_t place : {4711U, 64U, 127U, 128U, 4735U, 0U, 5000U}) {
    const std::uint32_t number = table.take(place);
    ASSERT_NE(number, kNoLeaf) << place;
    EXPECT_TRUE(numbers.insert(number).second) << place;
    EXPECT_EQ(table.place(number), place);
    EXPECT_EQ(table[number].leaf.load(), place);
  }
  EXPECT_EQ(table.take(100'000), kNoLeaf) << "beyond the pool";
}

TEST(LeafNumbers, ARegionWithoutLeavesLendsItsDescriptors) {
  LeafTable<Default> table;
  ASSERT_TRUE(table.reserve(1'000'000).ok());
  const std::uint64_t before = table.dram_bytes();
  for (std::uint32_t region = 1; region < 1000; ++region) {
    const std::uint32_t a = table.take(region * 64);
    const std::uint32_t b = table.take(region * 64 + 63);
    table.give(a);
    EXPECT_EQ(table.place(b), region * 64 + 63) << "the other one is still taken";
    EXPECT_EQ(table.take(region * 64), a);
    table.give(b);
    table.give(a);
  }
  EXPECT_LE(table.dram_bytes() - before, 64 * sizeof(Desc) + 64) << "one chunk for all";
}

TEST(LeafNumbers, AFreeDescriptorKeepsItsVersion) {
  LeafTable<Default> table;
  ASSERT_TRUE(table.reserve(1000).ok());
  const std::uint32_t number = table.take(200);
  table[number].version.store(11);
  table.give(number);
  const std::uint32_t again = table.take(900 / 64 * 64 + 200 % 64);
  EXPECT_EQ(again, number);
  EXPECT_EQ(table[again].version.load(), 11U);
}

TEST(LeafNumbers, ThreadsOfARecoveryShareTheChunks) {
  constexpr std::uint32_t kThreads = 4;
  constexpr std::uint32_t kPlaces = 100 * 64;
  LeafTable<Default> table;
  ASSERT_TRUE(table.reserve(kPlaces).ok());
  const std::uint64_t before = table.dram_bytes();
  std::vector<std::uint32_t> numbers(kPlaces);
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint32_t place = t; place < kPlaces; place += kThreads) {
        table.prefetch(place);
        numbers[place] = table.take_found(place);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(table.dram_bytes() - before, 100 * (64 * sizeof(Desc) + 64)) << "a chunk per region";
  for (std::uint32_t place = 0; place < kPlaces; ++place) {
    ASSERT_NE(numbers[place], kNoLeaf);
    EXPECT_EQ(table.place(numbers[place]), place);
  }
  // All are counted: a chunk is free after the last of its numbers, and not before.
  for (const std::uint32_t number : numbers) {
    EXPECT_EQ(table.place(number), table[number].leaf.load());
    table.give(number);
  }
  for (std::uint32_t region = 0; region < 100; ++region) table.take(region * 64);
  EXPECT_LE(table.dram_bytes() - before, 100 * (64 * sizeof(Desc) + 64)) << "used again";
  EXPECT_EQ(table.take_found(200 * 64), kNoLeaf) << "beyond the pool";
}

TEST(ScanOrders, OneIsOfItsVersionAndWhole) {
  constexpr int kWriters = 3;
  constexpr std::uint64_t kVersions = 40'000;
  constexpr std::uint32_t kNumber = 64;
  LeafTable<Default> table;
  ASSERT_TRUE(table.reserve(1000).ok());
  const auto slot_in = [](std::uint64_t version, std::uint32_t count, std::uint32_t i) {
    return static_cast<std::uint8_t>((version / 2 * 7 + count * 3 + i) % 60);
  };
  std::atomic<std::uint64_t> newest{2};
  std::atomic<std::uint32_t> wrong{0};
  std::atomic<std::uint32_t> found{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kWriters; ++t) {
    threads.emplace_back([&, t] {
      std::uint8_t slots[64] = {};
      // Until the reader has come across one, too.
      for (std::uint64_t version = 2; version < kVersions || found == 0; version += 2) {
        // Also older ones, and of one version larger and smaller ones.
        const std::uint64_t of = t == 0 ? version : newest.load();
        const auto count = static_cast<std::uint32_t>(1 + (version / 2 + t) % 60);
        for (std::uint32_t i = 0; i < 60; ++i) slots[i] = slot_in(of, count, i);
        table.keep_order(kNumber, of, slots, count);
        if (t == 0) newest = version;
      }
    });
  }
  threads.emplace_back([&] {
    std::uint8_t slots[64] = {};
    while (newest < kVersions - 2 || found == 0) {
      const std::uint64_t version = newest;
      std::uint64_t removed = 0;
      const std::uint32_t count = table.order_of(kNumber, version, slots, removed);
      if (count != 0) ++found;
      for (std::uint32_t i = 0; i < count; ++i) {
        if (slots[i] != slot_in(version - removed * kOneRemoved, count, i)) ++wrong;
      }
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_GT(found, 0U);
}

TEST(ScanOrders, OnlyANewerOneIsKept) {
  LeafTable<Default> table;
  ASSERT_TRUE(table.reserve(1000).ok());
  std::uint8_t slots[64] = {3, 1, 2};
  std::uint8_t kept[64] = {};
  std::uint64_t removed = 0;
  EXPECT_EQ(table.order_of(70, 4, kept, removed), 0U);
  table.keep_order(70, 4, slots, 2);
  table.keep_order(70, 2, slots, 3);
  EXPECT_EQ(table.order_of(70, 4, kept, removed), 2U) << "of an older version";
  table.keep_order(70, 4, slots, 3);
  table.keep_order(70, 4, slots, 1);
  ASSERT_EQ(table.order_of(70, 4, kept, removed), 3U) << "of fewer entries";
  EXPECT_EQ(std::memcmp(kept, slots, 3), 0);
  EXPECT_EQ(table.order_of(71, 4, kept, removed), 0U);
}

TEST(ScanOrders, OneTellsHowManyEntriesWereRemovedSince) {
  LeafTable<Default> table;
  ASSERT_TRUE(table.reserve(1000).ok());
  std::uint8_t slots[64] = {3, 1, 2};
  std::uint64_t removed = 7;
  table.keep_order(70, 4, slots, 3);
  EXPECT_EQ(table.order_of(70, 4, slots, removed), 3U);
  EXPECT_EQ(removed, 0U);
  EXPECT_EQ(table.order_of(70, 4 + 3 * kOneRemoved, slots, removed), 3U);
  EXPECT_EQ(removed, 3U);
  EXPECT_EQ(table.order_of(70, 4 + kManyRemoved, slots, removed), 0U);
  EXPECT_EQ(table.order_of(70, 2, slots, removed), 0U) << "of a newer version";
}

}  // namespace
}  // namespace perdure::phast
