// test: no asan
// YCSB's numbers: the vectors were computed from the code of YCSB 0.17.0.
#include "bench/workloads/ycsb.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/workloads/distributions.h"
#include "bench/workloads/keys.h"

namespace perdure::bench {
namespace {

std::string ycsb_key(std::uint64_t number) {
  const KeySpace keys(KeyScheme::ycsb, {.is_string = true, .length = kMaxYcsbKeyLength}, 1);
  std::string text(keys.max_length(), '\0');
  text.resize(keys.write(keys.word(number), text.data()));
  return text;
}

TEST(Ycsb, KeysAreYcsbsOwn) {
  EXPECT_EQ(ycsb_key(0), "user6284781860667377211");
  EXPECT_EQ(ycsb_key(1), "user8517097267634966620");
  EXPECT_EQ(ycsb_key(2), "user1820151046732198393");
  EXPECT_EQ(ycsb_key(3), "user4052466453699787802");
  EXPECT_EQ(ycsb_key(999), "user2071219101098386137");
  const KeySpace integers(KeyScheme::ycsb, {}, 1);
  EXPECT_EQ(integers.word(1), 8517097267634966620ULL);
}

TEST(Ycsb, RanksScatterAsInYcsb) {
  // Workloads A, B, C and F over 1000 records: 1000 + 0 + 1 items.
  const ScrambledZipfian plain(1001);
  // Workload E with 1000 operations: room for twice 5 % more.
  const ScrambledZipfian growing(1101);
  constexpr std::array<std::uint64_t, 5> kPlain = {144, 610, 213, 679, 10};
  constexpr std::array<std::uint64_t, 5> kGrowing = {903, 403, 802, 302, 660};
  for (std::uint64_t rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(plain.scatter(rank), kPlain[rank]);
    EXPECT_EQ(growing.scatter(rank), kGrowing[rank]);
  }
}

TEST(Ycsb, FirstRanksHaveTheirShares) {
  // 1 / zetan = 3.778 %, and 1.902 % for the next; a million draws stay within 5 sigma.
  const Zipfian zipfian(10'000'000'001ULL, 26.46902820178302);
  constexpr int kDraws = 1'000'000;
  Random random(11);
  std::array<int, 2> seen = {};
  for (int i = 0; i < kDraws; ++i) {
    const std::uint64_t rank = zipfian.next(random);
    if (rank < 2) ++seen[rank];
  }
  EXPECT_NEAR(seen[0] / static_cast<double>(kDraws), 0.03778, 0.001);
  EXPECT_NEAR(seen[1] / static_cast<double>(kDraws), 0.01902, 0.0007);
}

TEST(Ycsb, ZipfianStaysInRangeAndGrows) {
  Zipfian zipfian(10);
  EXPECT_EQ(zipfian.at(0), 0U);
  EXPECT_LT(zipfian.at(0.9999999999999999), 10U);
  zipfian.grow(1000);
  EXPECT_EQ(zipfian.items(), 1000U);
  EXPECT_LT(zipfian.at(0.9999999999999999), 1000U);
  // Growing step by step sums the same series as starting large.
  EXPECT_DOUBLE_EQ(zeta(0, 10, kZipfianConstant) + zeta(10, 1000, kZipfianConstant),
                   zeta(0, 1000, kZipfianConstant));
  for (const std::uint64_t items : {1, 2, 3}) {
    const Zipfian small(items);
    for (double u = 0; u < 1; u += 0.01) EXPECT_LT(small.at(u), items);
  }
}

std::map<YcsbOperation, double> shares(char letter) {
  constexpr int kOperations = 200'000;
  YcsbChooser chooser(letter, 1000, kOperations);
  chooser.restart(5);
  std::map<YcsbOperation, double> result;
  for (int i = 0; i < kOperations; ++i) result[chooser.next().operation] += 1.0 / kOperations;
  return result;
}

TEST(Ycsb, MixesHaveTheirShares) {
  using enum YcsbOperation;
  const std::vector<std::pair<char, std::map<YcsbOperation, double>>> expected = {
      {'a', {{read, 0.5}, {update, 0.5}}},
      {'b', {{read, 0.95}, {update, 0.05}}},
      {'c', {{read, 1}}},
      {'d', {{read, 0.95}, {insert, 0.05}}},
      {'e', {{scan, 0.95}, {insert, 0.05}}},
      {'f', {{read, 0.5}, {read_modify_write, 0.5}}}};
  for (const auto& [letter, mix] : expected) {
    const auto seen = shares(letter);
    EXPECT_EQ(seen.size(), mix.size()) << letter;
    for (const auto& [operation, share] : mix) {
      ASSERT_TRUE(seen.contains(operation)) << letter;
      EXPECT_NEAR(seen.at(operation), share, 0.006) << letter;
    }
  }
}

TEST(Ycsb, RequestsNameOnlyRecordsThatExist) {
  for (const char letter : {'a', 'd', 'e', 'f'}) {
    YcsbChooser chooser(letter, 50, 5000);
    chooser.restart(9);
    std::uint64_t longest = 0;
    for (int i = 0; i < 5000; ++i) {
      const std::uint64_t before = chooser.inserted();
      const YcsbRequest request = chooser.next();
      if (request.operation == YcsbOperation::insert) {
        EXPECT_EQ(request.position, 50 + before);
        continue;
      }
      EXPECT_LT(request.position, 50 + before);
      if (request.operation == YcsbOperation::scan) {
        EXPECT_GE(request.scan_length, 1U);
        EXPECT_LE(request.scan_length, kYcsbMaxScanLength);
        longest = std::max(longest, request.scan_length);
      }
    }
    EXPECT_EQ(longest, letter == 'e' ? kYcsbMaxScanLength : 0);
  }
}

TEST(Ycsb, LatestFavoursTheNewest) {
  YcsbChooser chooser('d', 1000, 10'000);
  chooser.restart(2);
  std::uint64_t reads = 0;
  std::uint64_t recent = 0;
  for (int i = 0; i < 10'000; ++i) {
    const YcsbRequest request = chooser.next();
    if (request.operation != YcsbOperation::read) continue;
    ++reads;
    recent += request.position + 100 >= 1000 + chooser.inserted() ? 1 : 0;
  }
  // The first 100 of about 1000 Zipfian ranks hold two thirds of the weight.
  EXPECT_GT(static_cast<double>(recent) / static_cast<double>(reads), 0.6);
}

TEST(Ycsb, RestartRepeatsTheStream) {
  YcsbChooser chooser('d', 1000, 1000);
  std::vector<std::uint64_t> first;
  for (int round = 0; round < 2; ++round) {
    chooser.restart(4);
    for (std::size_t i = 0; i < 1000; ++i) {
      const std::uint64_t position = chooser.next().position;
      if (round == 0) first.push_back(position);
      EXPECT_EQ(position, first[i]);
    }
  }
}

}  // namespace
}  // namespace perdure::bench
