// test: no asan, tsan, nightly
// Threads and memory: objects that are unlinked, reused or dropped stay valid for their readers,
// and the remains of threads do not accumulate.
#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/threads.h"

namespace perdure::test {
namespace {

using Bytes = std::string_view;

INSTANTIATE_TEST_SUITE_P(Engines, Races, with_durabilities(all_engines()), race_name);
INSTANTIATE_TEST_SUITE_P(Engines, OrderedRaces, with_durabilities(ordered_engines()), race_name);

// 1g and P17: empties, unlinks and refills leaves under scans in both directions. Scans deliver
// resident keys exactly once and in order.
template <class K>
void unlinks_under_scans(AnyMap<K, std::uint64_t>& map, Violations& violations) {
  const std::uint64_t n = scaled(30'000, 15'000, 3'000);
  constexpr std::uint64_t kStay = 300;  // several leaves lie between two residents
  auto key_of = [](std::uint64_t i) {
    if constexpr (std::same_as<K, Bytes>) {
      char text[32];
      std::snprintf(text, sizeof text, "customer:%010llu", static_cast<unsigned long long>(i));
      return std::string(text);
    } else {
      return i + 1;
    }
  };
  for (std::uint64_t i = 0; i < n; ++i) must(map.insert(K(key_of(i)), i));
  std::atomic<int> sweeping{2};
  Team team(violations);
  for (std::uint64_t half = 0; half < 2; ++half) {
    team.start([&, half] {
      const std::uint64_t begin = half * n / 2;
      for (int round = 0; round < 4 && !violations.any(); ++round) {
        for (std::uint64_t i = begin; i < begin + n / 2; ++i) {
          if (i % kStay != 0 && !was_present(map.erase(K(key_of(i)))))
            violations.add("erase: absent");
        }
        for (std::uint64_t i = begin + n / 2; i-- > begin;) {
          if (i % kStay != 0 && !was_absent(map.insert(K(key_of(i)), i)))
            violations.add("insert: exists");
        }
      }
      --sweeping;
    });
  }
  for (int s = 0; s < 3; ++s) {
    team.start([&, s] {
      const bool reverse = s == 1;
      while (sweeping.load() > 0 && !violations.any()) {
        std::uint64_t expected = reverse ? (n - 1) / kStay * kStay : 0;  // the next resident
        std::uint64_t residents = 0;
        std::optional<std::uint64_t> previous;
        auto visit = [&](std::uint64_t value) {
          if (previous && (reverse ? value >= *previous : value <= *previous)) {
            violations.add("scan out of order or twice: " + std::to_string(value) + " after " +
                           std::to_string(*previous));
          }
          previous = value;
          if (value % kStay == 0) {
            if (value != expected) {
              violations.add("scan skipped resident " + std::to_string(expected) + ", gave " +
                             std::to_string(value));
            }
            ++residents;
            expected = reverse ? value - kStay : value + kStay;
          }
        };
        if (s == 2) {
          auto it = map.ordered()->scan(ScanOptions<K>{});
          for (; it.valid(); it.next()) {
            if (it.key() != key_of(it.value())) violations.add("value of another key");
            visit(it.value());
          }
          must(it.status());
        } else {
          must(map.ordered()->scan(ScanOptions<K>{.reverse = reverse},
                                   [&](const K& key, std::uint64_t value) {
                                     if (key != K(key_of(value)))
                                       violations.add("value of another key");
                                     visit(value);
                                     return !violations.any();
                                   }));
        }
        if (!violations.any() && residents != (n + kStay - 1) / kStay) {
          violations.add("scan ended early: " + std::to_string(residents) + " residents");
        }
      }
    });
  }
  team.join();
  EXPECT_EQ(map.count(), n);
  if (map.stats().engine == Engine::phast) {
    EXPECT_GT(map.stats().merges, 0U) << "the test is meant to unlink leaves";
  }
}

TEST_P(OrderedRaces, P1g_UnlinkUnderScans_P17_Integers) {
  PERDURE_TRACE_SEED();
  auto map = open_map<std::uint64_t, std::uint64_t>(1);
  unlinks_under_scans<std::uint64_t>(map, violations_);
}
TEST_P(OrderedRaces, P1g_UnlinkUnderScans_P17_Strings) {
  PERDURE_TRACE_SEED();
  auto map = open_map<Bytes, std::uint64_t>(7);
  unlinks_under_scans<Bytes>(map, violations_);
}

// 1b, driven by hand: k leaves its slot, k' takes it, k comes back elsewhere. A lookup of k may
// return v, v'' or absent, and no value of k'.
TEST_P(Races, P1b_SlotReuseAbaUnderLookups) {
  auto map = open_map<std::uint64_t, std::uint64_t>(0);
  const std::uint64_t rounds = scaled(150'000, 25'000, 5'000);
  std::atomic<bool> done{false};
  auto value_of = [](std::uint64_t key, std::uint64_t round) { return key << 32 | round; };
  must(map.insert(1, value_of(1, 0)));
  must(map.insert(3, value_of(3, 0)));
  Team team(violations_);
  team.start([&] {
    for (std::uint64_t round = 1; round <= rounds && !violations_.any(); ++round) {
      must(map.erase(1));
      must(map.insert(2, value_of(2, round)));
      must(map.erase(2));
      must(map.insert(1, value_of(1, round)));
    }
    done = true;
  });
  for (int r = 0; r < 3; ++r) {
    team.start([&, r] {
      const std::uint64_t keys[] = {1, 2, 3};
      std::optional<std::uint64_t> values[3];
      std::uint64_t newest = 0;
      while (!done.load() && !violations_.any()) {
        if (r == 2) {
          must(map.get_many(keys, values));
        } else {
          for (std::size_t i = 0; i < 2; ++i) values[i] = must(map.get(keys[i]));
          values[2] = must(map.get(3));
        }
        for (std::size_t i = 0; i < 3; ++i) {
          if (values[i] && *values[i] >> 32 != keys[i]) violations_.add("a value of another key");
        }
        if (!values[2]) violations_.add("a key that never left is absent");
        // For one observer, rounds only rise.
        if (values[0]) {
          const std::uint64_t round = *values[0] & 0xffff'ffff;
          if (round < newest) violations_.add("a value from the past");
          newest = round;
        }
      }
    });
  }
  team.join();
}

// A stalled reader keeps its view. Writers continue, blocks of its epoch are not reused, and stats
// report it.
TEST_P(Races, P18_StalledReaderKeepsItsView) {
  auto map = open_map<Bytes, Bytes>(7);
  const std::string kept(200, 'k');
  must(map.insert("key", kept));
  std::atomic<int> step{0};
  Team team(violations_);
  team.start([&] {
    const bool found = was_present(map.read("key", [&](Bytes value) {
      step = 1;
      while (step.load() != 2) std::this_thread::yield();
      if (value != kept) violations_.add("the view changed under its reader");
    }));
    if (!found) violations_.add("absent");
    step = 3;
  });
  team.start([&] {
    while (step.load() != 1) std::this_thread::yield();
    const std::uint64_t n = scaled(20'000, 8'000);
    try {
      for (std::uint64_t i = 0; i < n; ++i) {
        must(map.update("key", std::string(200, static_cast<char>('a' + i % 10))));
      }
      if (must(pool_.stats()).limbo_blocks == 0)
        violations_.add("nothing waits for a reader that does");
    } catch (...) {
      step = 2;
      throw;
    }
    step = 2;
  });
  team.join();
  EXPECT_EQ(step.load(), 3);
  // Once it has gone, the waiting blocks are reused.
  for (int i = 0; i < 6'000; ++i) must(map.update("key", std::string(200, 'z')));
  EXPECT_EQ(must(pool_.stats()).stalled_readers, 0U);
  // All of them, also those that an ended thread had retired; only the last updates may still wait.
  EXPECT_LT(must(pool_.stats()).limbo_blocks, 3'000U)
      << "blocks of the stalled time were never freed";
}

// A full pool must not fail because of blocks held by a reader that is only slow to leave its
// guard.
TEST_P(Races, AFullPoolWaitsForAReaderThatLeavesSoon) {
  TempPath path;
  Pool pool = open_pool(path, {.durability = durability(), .max_size = 8_MiB});
  AnyMap<std::uint64_t, Bytes> map(pool, "m", engine());
  const std::string value(100'000, 'v');
  std::uint64_t last = 0;
  while (map.put(last + 1, value).ok()) ++last;
  ASSERT_GT(last, 20U);
  std::atomic<int> step{0};
  Team team(violations_);
  team.start([&] {
    must(map.read(last, [&](Bytes) {
      step = 1;
      while (step.load() != 2) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }));
  });
  team.start([&] {
    while (step.load() != 1) std::this_thread::yield();
    const bool erased = was_present(map.erase(1));
    step = 2;
    if (!erased) violations_.add("absent");
    auto put = map.put(1, value);
    if (!put.ok()) violations_.add("refused: " + std::string(put.status().message()));
  });
  team.join();
}

// Threads come and go. Other threads take over their slots, caches and free lists: nothing
// accumulates.
TEST_P(Races, AThousandShortLivedThreads) {
  auto map = open_map<std::uint64_t, Bytes>(7);
  const std::uint64_t threads = scaled(1'000, 150);
  constexpr std::uint64_t kKeys = 40;
  std::uint64_t size_early = 0;
  for (std::uint64_t i = 0; i < threads; i += 4) {
    Team team(violations_);
    for (std::uint64_t t = i; t < i + 4; ++t) {
      team.start([&, t] {
        const std::string value(100 + t % 50, static_cast<char>('a' + t % 26));
        for (std::uint64_t k = 0; k < kKeys; ++k) must(map.put((t % 8) * 1'000 + k, value));
        for (std::uint64_t k = 0; k < kKeys; ++k) {
          if (must(map.get((t % 8) * 1'000 + k)) != std::optional(value)) {
            violations_.add("own write not read");
          }
          if (k % 2 == 0) must(map.erase((t % 8) * 1'000 + k));
        }
      });
    }
    team.join();
    if (i == threads / 4 / 4 * 4) size_early = std::filesystem::file_size(path_.str());
  }
  EXPECT_EQ(map.count(), 8 * kKeys / 2);
  EXPECT_LE(std::filesystem::file_size(path_.str()), 2 * size_early + 8_MiB)
      << "what dead threads held is never used again";
}

// All threads open one map and create several maps at once.
TEST_P(Races, MapsOpenedFromSeveralThreads) {
  constexpr int kThreads = 6;
  const std::uint64_t n = scaled(2'000, 200);
  Team team(violations_);
  for (int t = 0; t < kThreads; ++t) {
    team.start([&, t] {
      for (int round = 0; round < 8; ++round) {
        const std::string name = "map" + std::to_string(round);
        AnyMap<std::uint64_t, std::uint64_t> map(pool_, name, engine());
        for (std::uint64_t i = static_cast<std::uint64_t>(t); i < n; i += kThreads) {
          if (!was_absent(map.insert(i, i))) violations_.add("exists");
        }
        if (must(pool_.list()).empty()) violations_.add("list is empty while maps exist");
      }
    });
  }
  team.join();
  ASSERT_EQ(must(pool_.list()).size(), 8U) << "a name was created twice";
  for (int round = 0; round < 8; ++round) {
    AnyMap<std::uint64_t, std::uint64_t> map(pool_, "map" + std::to_string(round), engine());
    EXPECT_EQ(map.count(), n);
    for (std::uint64_t i = 0; i < n; ++i) ASSERT_EQ(must(map.get(i)), std::optional(i));
  }
}

// Any thread may call stats, list, info and sync at any time.
TEST_P(Races, ReportsWhileOthersWrite) {
  auto map = open_map<Bytes, Bytes>(7);
  std::atomic<bool> done{false};
  Team team(violations_);
  for (int t = 0; t < 2; ++t) {
    team.start([&, t] {
      for (std::uint64_t i = 0; i < scaled(20'000, 1'000); ++i) {
        const std::string key = std::to_string(t) + ":" + std::to_string(i);
        must(map.insert(key, key));
        if (i % 3 == 0) must(map.erase(key));
      }
      done = true;
    });
  }
  team.start([&] {
    while (!done.load()) {
      const PoolStats stats = must(pool_.stats());
      if (stats.file_bytes == 0 || stats.maps.size() != 1) violations_.add("implausible stats");
      if (must(pool_.info()).maps.size() != 1) violations_.add("implausible info");
      must(pool_.sync());
    }
  });
  team.join();
}

// A sync computes checksums over the pool, and gives up at a store, however far it has read.
TEST_P(Races, SyncBesideALateWriter) {
  auto map = open_map<Bytes, Bytes>(7);
  const std::string value(300, 'v');
  for (int i = 0; i < 500; ++i) must(map.insert(std::to_string(i), value));
  std::atomic<bool> done{false};
  Team team(violations_);
  team.start([&] {
    for (int i = 0; i < 50; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1 + i % 3));
      const std::string key = "late" + std::to_string(i);
      if (!was_absent(map.insert(key, value))) violations_.add("exists");
      if (!was_present(map.erase(std::to_string(i)))) violations_.add("a key is gone");
    }
    done = true;
  });
  team.start([&] {
    while (!done.load()) must(pool_.sync());
  });
  team.join();
  EXPECT_EQ(map.count(), 500U);
}

// Writers and a full pool: refusals are statuses, acknowledged entries stay, erases make room.
TEST_P(Races, WritersInAFullPool) {
  TempPath path;
  Pool pool = open_pool(path, {.durability = durability(), .max_size = scaled(8_MiB, 3_MiB)});
  AnyMap<std::uint64_t, Bytes> map(pool, "m", engine());
  const std::string value(300, 'v');
  constexpr std::uint64_t kThreads = 4;
  std::atomic<bool> was_full = false;  // for some thread; one that runs alone may find room
  Team team(violations_);
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    team.start([&, t] {
      std::vector<std::uint64_t> mine;
      Rng rng(seed() + t);
      for (std::uint64_t i = 0; i < scaled(30'000, 10'000, 5'000); ++i) {
        const std::uint64_t key = i * kThreads + t;
        const auto done = map.insert(key, value);
        if (done.ok()) {
          mine.push_back(key);
        } else if (code_of(done) == StatusCode::pool_full) {
          was_full = true;
          for (int n = 0; n < 50 && !mine.empty(); ++n) {
            std::swap(mine[rng.below(mine.size())], mine.back());
            if (!was_present(map.erase(mine.back()))) violations_.add("acknowledged key is absent");
            mine.pop_back();
          }
        } else {
          violations_.add(describe(done.status()));
        }
      }
      for (const std::uint64_t key : mine) {
        if (must(map.get(key)) != std::optional(value)) violations_.add("acknowledged key is lost");
      }
    });
  }
  team.join();
  EXPECT_TRUE(was_full) << "the test is meant to fill the pool";
  violations_.expect_none();
  expect_sound(pool);
}

}  // namespace
}  // namespace perdure::test
