// The baselines of the atomic skiplists' evaluation: they return what a map does, and make the
// write-backs that their headers state.
#include <map>

#include "bench/harness/memory_heap.h"
#include "evaluation/skiplists/redo_list.h"
#include "tests/support/support.h"

namespace perdure::paper {
namespace {

using test::mix;
using test::must;

template <class List>
class PaperLists : public ::testing::Test {
 protected:
  PaperLists() {
    must(memory_.open(64_KiB, 256));
    memory_.platform().configure(FlushMode::cache_line, best_flush_instruction(), 0);
    must(list_.open());
  }
  static ListKey key(std::uint64_t n) { return {mix(n % 7), mix(n)}; }

  bench::MemoryHeap memory_;
  List list_{memory_.platform(), memory_.heap()};
};
using Lists =
    ::testing::Types<RedoList<RealPlatform, Log::words>, RedoList<RealPlatform, Log::record>,
                     RedoList<RealPlatform, Log::none>>;
struct Name {
  template <class List>
  static std::string GetName(int i) {
    static constexpr const char* kNames[] = {"words", "record", "none"};
    return kNames[i];
  }
};
TYPED_TEST_SUITE(PaperLists, Lists, Name);

TYPED_TEST(PaperLists, ReturnWhatAMapDoes) {
  PERDURE_TRACE_SEED();
  std::map<ListKey, std::uint64_t> model;
  test::Rng rng;
  for (int i = 0; i < 20'000; ++i) {
    const ListKey key = this->key(rng.below(400));
    const std::uint64_t value = rng();
    switch (rng.below(3)) {
      case 0:
        ASSERT_EQ(must(this->list_.insert(key, value)), model.try_emplace(key, value).second);
        break;
      case 1:
        ASSERT_EQ(must(this->list_.erase(key)), model.erase(key) == 1);
        break;
      default:
        std::uint64_t found = 0;
        const auto it = model.find(key);
        ASSERT_EQ(must(this->list_.find(key, found)), it != model.end());
        if (it != model.end()) {
          ASSERT_EQ(found, it->second);
        }
    }
  }
  Findings report;
  this->list_.check(report);
  EXPECT_TRUE(report.ok()) << report.first();
  EXPECT_EQ(report.entries, model.size());
}

// An insert of n words: 2 n + 2 write-backs with a log entry for each; with one record the lines of
// the log, the node and the links before it, and the mark; none without a log.
TYPED_TEST(PaperLists, WriteBackWhatTheyLog) {
  constexpr std::uint64_t kItems = 2'000;
  const Counters before = thread_counters();
  for (std::uint64_t i = 0; i < kItems; ++i) must(this->list_.insert(this->key(i), i));
  const Counters after = thread_counters();
  const double flushes = static_cast<double>(after.flushes - before.flushes) / kItems;
  const double fences = static_cast<double>(after.fences - before.fences) / kItems;
  if (std::is_same_v<TypeParam, RedoList<RealPlatform, Log::words>>) {
    EXPECT_NEAR(flushes, 2 * (4 + 2 * 2) + 2, 0.5);  // a node has a height of 2 on average
    EXPECT_EQ(fences, flushes);
  } else if (std::is_same_v<TypeParam, RedoList<RealPlatform, Log::record>>) {
    EXPECT_GT(flushes, 5.5);
    EXPECT_LT(flushes, 8);
    EXPECT_NEAR(fences, 3, 0.1);
  } else {
    EXPECT_LT(flushes + fences, 0.1);
  }
}

}  // namespace
}  // namespace perdure::paper
