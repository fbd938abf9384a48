// The baselines of PhaST's evaluation: they return what a map does, and make the write-backs and
// fences that their headers state.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/harness/memory_heap.h"
#include "evaluation/ordered/fast_fair.h"
#include "evaluation/ordered/fptree.h"
#include "evaluation/ordered/nv_skiplist.h"
#include "evaluation/ordered/shared_fast_fair.h"
#include "evaluation/ordered/skip_list.h"
#include "evaluation/ordered/wb_tree.h"
#include "evaluation/ordered/wort.h"
#include "perdure/pool.h"
#include "tests/support/support.h"

namespace perdure::paper {
namespace {

using test::mix;
using test::must;
using Entries = std::vector<std::pair<Word, Word>>;

// Write-backs and fences of a mutation that meets no split.
struct Cost {
  double insert, update, erase;
};

template <class Map>
struct Known;
template <>
struct Known<FastFair<RealPlatform>> {
  static constexpr const char* kName = "FastFair";
  static constexpr Cost kCost{4.5, 1, 4.5};  // at most: half of the lines of a node, and splits
  static constexpr bool kExact = false;
};
template <>
struct Known<SharedFastFair<RealPlatform>> : Known<FastFair<RealPlatform>> {
  static constexpr const char* kName = "SharedFastFair";
};
template <>
struct Known<FpTree<RealPlatform>> {
  static constexpr const char* kName = "FpTree";
  static constexpr Cost kCost{3, 3, 1};
  static constexpr bool kExact = true;
};
template <>
struct Known<NvSkiplist<RealPlatform>> {
  static constexpr const char* kName = "NvSkiplist";
  static constexpr Cost kCost{2, 1, 1};
  static constexpr bool kExact = true;
};
template <>
struct Known<SkipList<RealPlatform>> {
  static constexpr const char* kName = "SkipList";
  static constexpr Cost kCost{3.5, 1, 2.2};  // at most: two links, and the lines of a node
  static constexpr bool kExact = false;
};
template <>
struct Known<WbTree<RealPlatform>> {
  static constexpr const char* kName = "WbTree";
  static constexpr Cost kCost{2, 1, 1};
  static constexpr bool kExact = true;
};
template <>
struct Known<Wort<RealPlatform>> {
  static constexpr const char* kName = "Wort";
  static constexpr Cost kCost{2, 1, 1};
  static constexpr bool kExact = true;
};

template <class Map>
class PaperOrdered : public ::testing::Test {
 protected:
  PaperOrdered() {
    memory_.platform().configure(FlushMode::cache_line, best_flush_instruction(), 0);
    must(memory_.open(64_KiB, 2048));
    must(map_.open());
  }
  Entries scan(Word from, std::uint64_t limit) {
    Entries entries;
    map_.scan(from, limit, [&](Word key, Word value) { entries.emplace_back(key, value); });
    return entries;
  }

  bench::MemoryHeap memory_;
  Map map_{memory_.platform(), memory_.heap()};
};
using Maps = ::testing::Types<FastFair<RealPlatform>, SharedFastFair<RealPlatform>,
                              FpTree<RealPlatform>, NvSkiplist<RealPlatform>,
                              SkipList<RealPlatform>, WbTree<RealPlatform>, Wort<RealPlatform>>;
struct Name {
  template <class Map>
  static std::string GetName(int) {
    return Known<Map>::kName;
  }
};
TYPED_TEST_SUITE(PaperOrdered, Maps, Name);

// Dense keys, random ones, ones that differ in a high digit only, and the extremes.
Word shaped(Word n) {
  switch (n % 4) {
    case 0:
      return n;
    case 1:
      return mix(n);
    case 2:
      return (n % 64) << 56 | 7;
    default:
      return ~Word{0} - n % 100;
  }
}

TYPED_TEST(PaperOrdered, ReturnsWhatAMapDoes) {
  PERDURE_TRACE_SEED();
  std::map<Word, Word> model;
  test::Rng rng;
  for (int i = 0; i < 60'000; ++i) {
    const Word key = shaped(rng.below(6000));
    const Word value = rng();
    const auto at = model.find(key);
    switch (rng.below(8)) {
      case 0:
      case 1:
      case 2:
      case 3:
        ASSERT_EQ(must(this->map_.insert(key, value)), model.try_emplace(key, value).second);
        break;
      case 4:
        ASSERT_EQ(must(this->map_.update(key, value)), at != model.end());
        if (at != model.end()) at->second = value;
        break;
      case 5:
        ASSERT_EQ(must(this->map_.erase(key)), model.erase(key) == 1);
        break;
      case 6: {
        Entries expected;
        for (auto it = model.lower_bound(key); it != model.end() && expected.size() < 30; ++it) {
          expected.emplace_back(*it);
        }
        ASSERT_EQ(this->scan(key, 30), expected);
        break;
      }
      default: {
        Word found = 0;
        ASSERT_EQ(this->map_.find(key, found), at != model.end());
        if (at != model.end()) {
          ASSERT_EQ(found, at->second);
        }
      }
    }
  }
  EXPECT_EQ(this->scan(0, model.size() + 1), Entries(model.begin(), model.end()));
}

TYPED_TEST(PaperOrdered, CostsWhatItsHeaderStates) {
  constexpr Word kKeys = 4000;
  constexpr Word kMeasured = 2000;
  constexpr Cost kCost = Known<TypeParam>::kCost;
  for (Word n = 0; n < kKeys; ++n) must(this->map_.insert(mix(n), n + 1));
  const auto cost = [&](auto operation) {
    std::vector<double> fences;
    std::uint64_t flushes = 0;
    for (Word n = 0; n < kMeasured; ++n) {
      const Counters before = thread_counters();
      EXPECT_TRUE(operation(n));
      flushes += thread_counters().flushes - before.flushes;
      fences.push_back(static_cast<double>(thread_counters().fences - before.fences));
    }
    std::ranges::nth_element(fences, fences.begin() + kMeasured / 2);
    return std::pair(static_cast<double>(flushes) / kMeasured, fences[kMeasured / 2]);
  };
  const auto judge = [&](const char* what, std::pair<double, double> measured, double stated) {
    SCOPED_TRACE(what);
    if (Known<TypeParam>::kExact) {
      EXPECT_EQ(measured.second, stated);  // the median meets no split
      EXPECT_GE(measured.first, stated);
    } else {
      EXPECT_GE(measured.first, 1);
      EXPECT_LE(measured.first, stated);
    }
  };
  judge("update", cost([&](Word n) { return must(this->map_.update(mix(n), n + 2)); }),
        kCost.update);
  judge("insert", cost([&](Word n) { return must(this->map_.insert(mix(kKeys + n), n + 3)); }),
        kCost.insert);
  judge("erase", cost([&](Word n) { return must(this->map_.erase(mix(n))); }), kCost.erase);
}

// Threads insert into the nodes that the others read. An entry is found from its insert on, with
// one of its own values.
using SharedFastFairThreads = PaperOrdered<SharedFastFair<RealPlatform>>;
TEST_F(SharedFastFairThreads, MissNoEntryBesideInserts) {
  constexpr Word kThreads = 4;
  constexpr Word kEach = 20'000;
  // Ascending keys, which are appended, and random ones, which shift others.
  const auto key_of = [](Word thread, Word n) {
    const Word number = n * kThreads + thread + 1;
    return n % 2 == 0 ? number : mix(number) >> 24;
  };
  const auto is_of = [](Word value, Word key) { return value - key * 2 <= 1; };
  std::atomic<Word> missed = 0;
  std::atomic<Word> wrong = 0;
  std::atomic<Word> inserted = 0;
  {
    std::vector<std::jthread> workers;
    for (Word t = 0; t < kThreads; ++t) {
      workers.emplace_back([&, t] {
        test::Rng rng(t);
        for (Word n = 0; n < kEach; ++n) {
          const Word key = key_of(t, n);
          inserted += must(map_.insert(key, key * 2)) ? 1 : 0;
          Word value = 0;
          for (const Word old : {n, rng.below(n + 1)}) {
            const Word own = key_of(t, old);
            if (!map_.find(own, value)) ++missed;
            if (!is_of(value, own)) ++wrong;
          }
          const Word other = key_of(rng.below(kThreads), rng.below(kEach));
          if (map_.find(other, value) && !is_of(value, other)) ++wrong;
          if (n % 4 == 0 && !must(map_.update(key, key * 2 + 1))) ++missed;
        }
      });
    }
  }
  EXPECT_EQ(missed, 0U);
  EXPECT_EQ(wrong, 0U);
  const Entries all = scan(0, ~Word{0});
  EXPECT_EQ(all.size(), inserted);
  EXPECT_TRUE(std::ranges::is_sorted(all));
  for (const auto& [key, value] : all) EXPECT_TRUE(is_of(value, key));
}

}  // namespace
}  // namespace perdure::paper
