// test: no asan, tsan, nightly
// Effects of returned calls are visible. Only a store buffer, or a slot that is reused at the wrong
// moment, could cause the wrong results tested here. The windows are a few hundred nanoseconds
// wide: many rounds, in step.
#include <atomic>
#include <vector>

#include "tests/support/threads.h"

namespace perdure::test {
namespace {

class Returned : public Races {
 protected:
  AnyMap<std::uint64_t, std::uint64_t> open_map() { return {pool_, "m", engine()}; }
};
class OrderedReturned : public Returned {};
INSTANTIATE_TEST_SUITE_P(Engines, Returned, with_durabilities(all_engines()), race_name);
INSTANTIATE_TEST_SUITE_P(Engines, OrderedReturned, with_durabilities(ordered_engines()), race_name);

// Starts two threads at the same moment, repeatedly.
class Pair {
 public:
  void meet() {
    const long mine = arrived_.fetch_add(1) / 2;
    for (int spins = 0; arrived_.load() < 2 * (mine + 1); ++spins) {
      if (spins > 20'000) std::this_thread::yield();
    }
  }

 private:
  alignas(64) std::atomic<long> arrived_{0};
};

// Two keys of different leaves. Each thread writes its own key, then reads the other's. At least
// one must see the other's write.
template <class Write, class Saw>
long neither_saw(std::uint64_t rounds, Violations& violations, Write write, Saw saw) {
  std::vector<char> seen[2] = {std::vector<char>(rounds), std::vector<char>(rounds)};
  Pair pair;
  Team team(violations);
  for (int t = 0; t < 2; ++t) {
    team.start([&, t] {
      for (std::uint64_t i = 1; i <= rounds; ++i) {
        pair.meet();
        write(t, i);
        seen[t][i - 1] = saw(1 - t, i);
        pair.meet();
      }
    });
  }
  team.join();
  long neither = 0;
  for (std::uint64_t i = 0; i < rounds; ++i) neither += !seen[0][i] && !seen[1][i];
  return neither;
}

constexpr std::uint64_t kKeys[] = {1ULL << 60 | 5, 9ULL << 60 | 7};

TEST_P(Returned, InsertsAreSeenByLookupsThatBeginLater) {
  auto map = open_map();
  const long neither = neither_saw(
      scaled(40'000, 16'000, 4'000), violations_,
      [&](int t, std::uint64_t i) {
        const std::uint64_t key = kKeys[t] + 16 * i;
        if (!was_absent(map.insert(key, i))) violations_.add("the key exists");
      },
      [&](int t, std::uint64_t i) { return was_present(map.contains(kKeys[t] + 16 * i)); });
  EXPECT_EQ(neither, 0);
}

TEST_P(OrderedReturned, InsertsAreSeenByScansThatBeginLater) {
  auto map = open_map();
  const long neither = neither_saw(
      scaled(20'000, 8'000, 2'000), violations_,
      [&](int t, std::uint64_t i) {
        const std::uint64_t key = kKeys[t] + 16 * i;
        if (!was_absent(map.insert(key, i))) violations_.add("the key exists");
      },
      [&](int t, std::uint64_t i) {
        const std::uint64_t key = kKeys[t] + 16 * i;
        return must(map.ordered()->scan(key, key + 1, [](std::uint64_t, std::uint64_t) {})) == 1;
      });
  EXPECT_EQ(neither, 0);
}

TEST_P(Returned, UpdatesAreSeenByLookupsThatBeginLater) {
  auto map = open_map();
  for (const std::uint64_t key : kKeys) must(map.insert(key, 0));
  const long neither = neither_saw(
      scaled(40'000, 16'000, 4'000), violations_,
      [&](int t, std::uint64_t i) { must(map.update(kKeys[t], i)); },
      [&](int t, std::uint64_t i) { return must(map.get(kKeys[t])) == std::optional(i); });
  EXPECT_EQ(neither, 0);
}

TEST_P(Returned, ErasesAreSeenByLookupsThatBeginLater) {
  auto map = open_map();
  const std::uint64_t rounds = scaled(20'000, 8'000, 2'000);
  for (const std::uint64_t key : kKeys) {
    for (std::uint64_t i = 1; i <= rounds; ++i) must(map.insert(key + 16 * i, i));
  }
  const long neither = neither_saw(
      rounds, violations_, [&](int t, std::uint64_t i) { must(map.erase(kKeys[t] + 16 * i)); },
      [&](int t, std::uint64_t i) { return !was_present(map.contains(kKeys[t] + 16 * i)); });
  EXPECT_EQ(neither, 0);
}

// 1b: inserts one key with a new value each time and erases it again, mostly in one slot. A value
// that was seen and then missed must not come back.
TEST_P(Returned, P1b_AnInsertIsNotSeenBeforeItCounts) {
  auto map = open_map();
  const std::uint64_t rounds = scaled(300'000, 120'000, 20'000);
  std::atomic<bool> stop{false};
  Team team(violations_);
  team.start([&] {
    for (std::uint64_t i = 1; i <= rounds; ++i) {
      must(map.insert(kKeys[0], i));
      must(map.erase(kKeys[0]));
    }
    stop = true;
  });
  team.start([&] {
    std::uint64_t last = 0;
    bool missed = false;
    while (!stop.load(std::memory_order_relaxed)) {
      const auto found = must(map.get(kKeys[0]));
      if (!found) {
        missed = true;
        continue;
      }
      if (missed && *found == last) violations_.add("a value came back: " + std::to_string(last));
      last = *found;
      missed = false;
    }
  });
  team.join();
}

}  // namespace
}  // namespace perdure::test
