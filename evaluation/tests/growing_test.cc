// The baselines of clevel hashing's evaluation: they return what a map does, also while threads
// make them grow.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "bench/harness/memory_heap.h"
#include "evaluation/growing/cceh.h"
#include "evaluation/growing/cmap.h"
#include "evaluation/growing/pclht.h"
#include "evaluation/growing/slot_level.h"
#include "perdure/pool.h"
#include "tests/support/support.h"

namespace perdure::paper {
namespace {

using test::mix;
using test::must;

template <class Table>
class PaperGrowing : public ::testing::Test {
 protected:
  PaperGrowing() {
    memory_.platform().configure(FlushMode::cache_line, best_flush_instruction(), 0);
    must(memory_.open(64_KiB, 1024));
    must(table_.open());
  }

  bench::MemoryHeap memory_;
  Table table_{memory_.platform(), memory_.heap()};
};
using Tables =
    ::testing::Types<Cceh<RealPlatform, false>, Cceh<RealPlatform, true>, Cmap<RealPlatform>,
                     Pclht<RealPlatform>, Cceh<RealPlatform, false, true>,
                     Pclht<RealPlatform, true>, SlotLevel<RealPlatform>>;
struct Name {
  template <class Table>
  static std::string GetName(int i) {
    static constexpr const char* kNames[] = {"Cceh",         "CcehCopies",    "Cmap",     "Pclht",
                                             "CcehPointers", "PclhtPointers", "SlotLevel"};
    return kNames[i];
  }
};
TYPED_TEST_SUITE(PaperGrowing, Tables, Name);

TYPED_TEST(PaperGrowing, ReturnsWhatAMapDoes) {
  PERDURE_TRACE_SEED();
  std::map<Word, Word> model;
  test::Rng rng;
  for (int i = 0; i < 80'000; ++i) {
    const Word key = mix(rng.below(20'000)) | 1;
    const Word value = rng();
    const auto at = model.find(key);
    switch (rng.below(6)) {
      case 0:
      case 1:
      case 2:
        ASSERT_EQ(must(this->table_.insert(key, value)), model.try_emplace(key, value).second);
        break;
      case 3:
        ASSERT_EQ(must(this->table_.update(key, value)), at != model.end());
        if (at != model.end()) at->second = value;
        break;
      case 4:
        ASSERT_EQ(must(this->table_.erase(key)), model.erase(key) == 1);
        break;
      default: {
        Word found = 0;
        ASSERT_EQ(this->table_.find(key, found), at != model.end());
        if (at != model.end()) {
          ASSERT_EQ(found, at->second);
        }
      }
    }
  }
  for (const auto& [key, value] : model) {
    Word found = 0;
    ASSERT_TRUE(this->table_.find(key, found));
    ASSERT_EQ(found, value);
  }
}

// The largest load factor of a table that is no longer small is the one that clevel hashing's paper
// states beside figure 6: up to 0.45 for CCEH, up to 0.84 for P-CLHT. cmap has no slots.
TYPED_TEST(PaperGrowing, IsAsFullAsThePaperSays) {
  double most = 0;
  Word slots = 0;
  for (Word i = 0; i < 100'000; ++i) {
    ASSERT_TRUE(must(this->table_.insert(mix(i) | 1, i)));
    if (i < 20'000 || i % 64 != 0) continue;
    slots = this->table_.slots();
    most = std::max(most, static_cast<double>(i) / static_cast<double>(slots));
  }
  if (std::is_same_v<TypeParam, Cmap<RealPlatform>>) {
    EXPECT_EQ(slots, 0U);
  } else if (std::is_same_v<TypeParam, Pclht<RealPlatform>> ||
             std::is_same_v<TypeParam, Pclht<RealPlatform, true>>) {
    EXPECT_NEAR(most, 0.84, 0.02);
  } else if (std::is_same_v<TypeParam, SlotLevel<RealPlatform>>) {
    EXPECT_NEAR(most, 0.90, 0.04);
  } else {
    EXPECT_NEAR(most, 0.45, 0.05);
  }
}

// Threads insert, update and delete their own keys, and meet at each other's buckets, in a table
// that doubles many times. Of an insert that all try, one returns true.
TYPED_TEST(PaperGrowing, ThreadsLoseNothingWhileItGrows) {
  constexpr Word kThreads = 4;
  constexpr Word kEach = 8000;
  std::atomic<Word> won = 0;
  std::vector<std::thread> threads;
  for (Word t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (Word i = 0; i < kEach; ++i) {
        const Word key = mix(i * kThreads + t) | 1;
        ASSERT_TRUE(must(this->table_.insert(key, i)));
        Word found = 0;
        ASSERT_TRUE(this->table_.find(key, found));
        ASSERT_EQ(found, i);
        ASSERT_TRUE(must(this->table_.update(key, i + 1)));
        if (i % 4 == 0) {
          ASSERT_TRUE(must(this->table_.erase(key)));
        }
        if (must(this->table_.insert(mix(~i) | 1, t))) ++won;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(won, kEach);
  for (Word n = 0; n < kThreads * kEach; ++n) {
    Word found = 0;
    const Word i = n / kThreads;
    ASSERT_EQ(this->table_.find(mix(n) | 1, found), i % 4 != 0);
    if (i % 4 != 0) {
      ASSERT_EQ(found, i + 1);
    }
  }
}

}  // namespace
}  // namespace perdure::paper
