// test: no asan, tsan, cross, nightly
// Races with a known outcome: of N threads that make the same call, exactly one succeeds; and a
// split never hides the keys that it moves.
#include <algorithm>
#include <barrier>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/threads.h"

namespace perdure::test {
namespace {

using Bytes = std::string_view;

INSTANTIATE_TEST_SUITE_P(Engines, Races, with_durabilities(all_engines()), race_name);

// All threads call `action(thread, key)` for the same keys in the same order, in step. `tally`
// receives the number of calls that returned true for each key.
template <class Action, class Tally>
void in_step(int threads, std::uint64_t rounds, Violations& violations, Action action,
             Tally tally) {
  std::atomic<int> successes{0};
  std::uint64_t round = 0;
  std::barrier turn(threads, [&]() noexcept {
    // Two barriers per round: odd completions are ends of a round.
    if (round++ % 2 == 1) {
      tally(round / 2 - 1, successes.load());
      successes = 0;
    }
  });
  Team team(violations);
  for (int t = 0; t < threads; ++t) {
    team.start([&, t] {
      for (std::uint64_t i = 0; i < rounds; ++i) {
        turn.arrive_and_wait();
        try {
          if (action(t, i)) ++successes;
        } catch (const std::exception& error) {
          violations.add(error.what());
        }
        turn.arrive_and_wait();
      }
    });
  }
  team.join();
}

template <class K>
OwnedKey<K> race_key(std::uint64_t i) {
  if constexpr (std::same_as<K, Bytes>) {
    return "customer:" + std::to_string(mix(i) % 100'000'000);
  } else {
    return static_cast<K>(mix(i));
  }
}

template <class K>
void same_key_races(AnyMap<K, std::uint64_t>& map, Violations& violations) {
  constexpr int kThreads = 4;
  const std::uint64_t rounds = scaled(4'000, 2'000, 300);
  std::vector<std::uint64_t> winner(rounds, ~std::uint64_t{0});
  auto once = [&](const char* what) {
    return [&violations, what](std::uint64_t i, int successes) {
      if (successes != 1) {
        violations.add(std::string(what) + " succeeded " + std::to_string(successes) +
                       " times for key number " + std::to_string(i));
      }
    };
  };
  // Inserts: one wins, and its value stays.
  in_step(
      kThreads, rounds, violations,
      [&](int t, std::uint64_t i) {
        const auto key = race_key<K>(i);
        const bool won = was_absent(map.insert(K(key), static_cast<std::uint64_t>(t)));
        if (won) winner[i] = static_cast<std::uint64_t>(t);
        if (!was_present(map.contains(K(key))))
          violations.add("absent right after insert returned");
        return won;
      },
      once("insert"));
  for (std::uint64_t i = 0; i < rounds; ++i) {
    const auto key = race_key<K>(i);
    if (must(map.get(K(key))) != std::optional(winner[i])) {
      violations.add("the winner's value is not there, key number " + std::to_string(i));
    }
  }
  EXPECT_EQ(map.count(), rounds);
  // Erases.
  in_step(
      kThreads, rounds, violations,
      [&](int, std::uint64_t i) {
        const auto key = race_key<K>(i);
        const bool won = was_present(map.erase(K(key)));
        if (was_present(map.contains(K(key)))) violations.add("present right after erase returned");
        return won;
      },
      once("erase"));
  EXPECT_EQ(map.count(), 0U);
  // Upserts: one finds the key absent.
  in_step(
      kThreads, rounds, violations,
      [&](int t, std::uint64_t i) {
        const auto key = race_key<K>(i);
        return was_absent(map.put(K(key), static_cast<std::uint64_t>(t)));
      },
      once("upsert of a new key"));
  EXPECT_EQ(map.count(), rounds);
  // Insert against erase: the sum of the results gives the presence at the end.
  std::vector<std::atomic<int>> balance(rounds);
  in_step(
      kThreads, rounds, violations,
      [&](int t, std::uint64_t i) {
        const auto key = race_key<K>(i);
        if (t % 2 == 0) {
          if (was_absent(map.insert(K(key), 7))) ++balance[i];
        } else {
          if (was_present(map.erase(K(key)))) --balance[i];
        }
        return false;
      },
      [](std::uint64_t, int) {});
  std::uint64_t left = 0;
  for (std::uint64_t i = 0; i < rounds; ++i) {
    const auto key = race_key<K>(i);
    const int present = 1 + balance[i].load();
    if (present != 0 && present != 1) violations.add("results of insert and erase do not add up");
    if (was_present(map.contains(K(key))) != (present == 1))
      violations.add("presence contradicts results");
    left += present == 1 ? 1 : 0;
  }
  EXPECT_EQ(map.count(), left);
  // Erase against update: an update that returns true found the key.
  in_step(
      kThreads, rounds, violations,
      [&](int t, std::uint64_t i) {
        const auto key = race_key<K>(i);
        if (t == 0) return was_present(map.erase(K(key))) && false;
        must(map.update(K(key), 9));
        return false;
      },
      [](std::uint64_t, int) {});
  EXPECT_EQ(map.count(), 0U) << "an update resurrected an erased key";
  for (std::uint64_t i = 0; i < rounds; ++i) {
    if (was_present(map.contains(K(race_key<K>(i))))) violations.add("resurrected by update");
  }
}

TEST_P(Races, P2_DuplicateKeys_P9_TwoErasers_Integers) {
  PERDURE_TRACE_SEED();
  auto map = open_map<std::uint64_t, std::uint64_t>(7);
  same_key_races<std::uint64_t>(map, violations_);
}
TEST_P(Races, P2_DuplicateKeys_P9_TwoErasers_Strings) {
  PERDURE_TRACE_SEED();
  auto map = open_map<Bytes, std::uint64_t>(7);
  same_key_races<Bytes>(map, violations_);
}

// P1: distinct keys, one leaf: the loser of the race for its last slot must still insert.
TEST_P(Races, P1_LastSlotOfALeaf) {
  auto map = open_map<std::uint64_t, std::uint64_t>(0);
  constexpr int kThreads = 4;
  const std::uint64_t rounds = scaled(200, 100, 20);
  const std::uint64_t per_thread = 30;  // 120 keys: two leaves' worth; some splits race
  for (std::uint64_t round = 0; round < rounds; ++round) {
    Team team(violations_);
    for (int t = 0; t < kThreads; ++t) {
      team.start([&, t] {
        for (std::uint64_t i = 0; i < per_thread; ++i) {
          const std::uint64_t key = i * kThreads + static_cast<std::uint64_t>(t);
          if (!was_absent(map.insert(key, key)))
            violations_.add("insert of a new key returned exists");
        }
      });
    }
    team.join();
    for (std::uint64_t key = 0; key < per_thread * kThreads; ++key) {
      ASSERT_EQ(must(map.get(key)), std::optional(key)) << "round " << round;
    }
    // All threads empty it at once: unlinks race, too.
    Team erasers(violations_);
    for (int t = 0; t < kThreads; ++t) {
      erasers.start([&, t] {
        for (std::uint64_t i = 0; i < per_thread; ++i) {
          const std::uint64_t key = i * kThreads + static_cast<std::uint64_t>(t);
          if (!was_present(map.erase(key)))
            violations_.add("erase of a present key returned absent");
        }
      });
    }
    erasers.join();
    ASSERT_EQ(map.count(), 0U);
  }
}

// P6, P7, P8: inserts split leaves and index nodes while readers look up acknowledged keys.
template <class K>
void readers_never_miss(AnyMap<K, std::uint64_t>& map, bool descending, Violations& violations) {
  const std::uint64_t n = scaled(200'000, 8'000);
  auto key_of = [&](std::uint64_t i) {
    const std::uint64_t at = descending ? n - 1 - i : i;
    if constexpr (std::same_as<K, Bytes>) {
      char text[32];
      std::snprintf(text, sizeof text, "customer:%010llu", static_cast<unsigned long long>(at));
      return std::string(text);
    } else {
      return at;
    }
  };
  std::atomic<std::uint64_t> acknowledged{0};
  std::atomic<bool> done{false};
  Team team(violations);
  team.start([&] {
    for (std::uint64_t i = 0; i < n && !violations.any(); ++i) {
      if (!was_absent(map.insert(K(key_of(i)), i))) violations.add("insert returned exists");
      acknowledged.store(i + 1);
    }
    done = true;
  });
  for (int r = 0; r < 3; ++r) {
    team.start([&, r] {
      Rng rng(seed() + static_cast<std::uint64_t>(r));
      while (!done.load() && !violations.any()) {
        const std::uint64_t there = acknowledged.load();
        if (there == 0) continue;
        // Mostly the newest, which a split has just moved.
        const std::uint64_t i = rng.one_in(3)
                                    ? rng.below(there)
                                    : there - 1 - rng.below(std::min(there, std::uint64_t{150}));
        const auto owned = key_of(i);
        if (r == 2 && map.ordered() != nullptr && rng.one_in(8)) {
          std::uint64_t seen = 0;
          must(map.ordered()->scan(ScanOptions<K>{.limit = 1, .reverse = !descending},
                                   [&](const K&, std::uint64_t v) { seen = v; }));
          if (seen + 1 < there)
            violations.add("the last entry is older than the last acknowledged");
          continue;
        }
        const auto found = must(map.get(K(owned)));
        if (!found) {
          violations.add("wrong absent: key number " + std::to_string(i) + " of " +
                         std::to_string(there) + " acknowledged");
        } else if (*found != i) {
          violations.add("wrong value for key number " + std::to_string(i));
        }
      }
    });
  }
  team.join();
  EXPECT_EQ(map.count(), n);
}

TEST_P(Races, P6_StaleInode_Ascending) {
  PERDURE_TRACE_SEED();
  auto map = open_map<std::uint64_t, std::uint64_t>(7);
  readers_never_miss<std::uint64_t>(map, false, violations_);
}
TEST_P(Races, P6_StaleInode_Descending) {
  PERDURE_TRACE_SEED();
  auto map = open_map<std::uint64_t, std::uint64_t>(0);
  readers_never_miss<std::uint64_t>(map, true, violations_);
}
TEST_P(Races, P6_StaleInode_Strings) {
  PERDURE_TRACE_SEED();
  auto map = open_map<Bytes, std::uint64_t>(7);
  readers_never_miss<Bytes>(map, false, violations_);
}

// P9: updates of resident keys while inserts around them split their leaf. None may be lost.
TEST_P(Races, P9_UpdatesDuringSplits) {
  auto map = open_map<std::uint64_t, std::uint64_t>(0);
  const std::uint64_t residents = scaled(400, 60);
  constexpr std::uint64_t kGap = 128;  // keys inserted between two residents: more than a leaf
  for (std::uint64_t i = 0; i < residents; ++i) ASSERT_TRUE(was_absent(map.insert(i * kGap, 0)));
  std::atomic<bool> done{false};
  std::vector<std::uint64_t> last(residents, 0);
  Team team(violations_);
  team.start([&] {
    for (std::uint64_t i = 0; i < residents * kGap; ++i) {
      if (i % kGap != 0) must(map.insert(i, i));
    }
    done = true;
  });
  team.start([&] {
    for (std::uint64_t round = 1; !done.load() && !violations_.any(); ++round) {
      for (std::uint64_t i = 0; i < residents && !done.load(); ++i) {
        if (!was_present(map.update(i * kGap, round)))
          violations_.add("update missed a resident key");
        last[i] = round;
        if (must(map.get(i * kGap)) != std::optional(round)) violations_.add("update was lost");
      }
    }
  });
  team.join();
  for (std::uint64_t i = 0; i < residents; ++i) {
    ASSERT_EQ(must(map.get(i * kGap)), std::optional(last[i])) << "key " << i * kGap;
  }
}

// Threads change the same keys by write_many(), each in an order of its own, so that a group of one
// thread meets locks of another. Of the inserts of a key exactly one succeeds, and of its erases.
TEST_P(Races, WriteManyOfTheSameKeys) {
  PERDURE_TRACE_SEED();
  auto map = open_map<std::uint64_t, std::uint64_t>(0);
  constexpr int kThreads = 4;
  constexpr std::uint64_t kKeys = 96;  // a few leaves
  const std::uint64_t rounds = scaled(600, 100, 40);
  std::vector<std::atomic<int>> changed(kKeys);
  std::barrier turn(kThreads, [&]() noexcept {
    for (std::uint64_t key = 0; key < kKeys; ++key) {
      if (changed[key].exchange(0) != 1)
        violations_.add("not changed once: " + std::to_string(key));
    }
  });
  Team team(violations_);
  for (int t = 0; t < kThreads; ++t) {
    team.start([&, t] {
      std::vector<Mutation<std::uint64_t, std::uint64_t>> mutations(kKeys);
      for (std::uint64_t round = 0; round < 2 * rounds; ++round) {
        const bool inserts = round % 2 == 0;
        for (std::uint64_t i = 0; i < kKeys; ++i) {
          const std::uint64_t step = 2 * (round + static_cast<std::uint64_t>(t)) + 1;
          mutations[i] = {.kind = inserts ? MutationKind::insert : MutationKind::erase,
                          .key = i * (step % 3 == 0 ? step + 2 : step) % kKeys,
                          .value = round};
        }
        const Status s = map.write_many(mutations, [&](std::size_t i, const Found& found) {
          if (inserts ? found.absent() : found.present()) ++changed[mutations[i].key];
        });
        if (!s.ok()) violations_.add(std::string(s.message()));
        turn.arrive_and_wait();
      }
    });
  }
  team.join();
  EXPECT_EQ(map.count(), 0U);
}

// A writer gives a key of one map, then one of another map, the next number. Between the two, and
// only there, the first is ahead by one. Without the gate, a reader that is slow enough between its
// two reads finds the second ahead.
TEST_P(Races, ReadBatchSeesOneMoment) {
  constexpr std::uint64_t kWriters = 2;
  const std::uint64_t rounds = scaled(20'000, 4000, 800);
  auto first = open_map<std::uint64_t, std::uint64_t>(0);
  AnyMap<std::uint64_t, std::uint64_t> second{pool_, "second", engine()};
  std::atomic<std::uint64_t> writing{kWriters};
  std::uint64_t reads = 0;
  Team team(violations_);
  for (std::uint64_t key = 0; key < kWriters; ++key) {
    must(first.put(key, 0));
    must(second.put(key, 0));
    team.start([&, key] {
      for (std::uint64_t i = 1; i <= rounds; ++i) {
        must(first.put(key, i));
        must(second.put(key, i));
      }
      --writing;
    });
  }
  team.start([&] {
    do {
      must(pool_.read_batch([&] {
        for (std::uint64_t key = 0; key < kWriters; ++key) {
          const std::uint64_t a = must(first.get(key)).value();
          const std::uint64_t again = must(first.get(key)).value();
          const std::uint64_t b = must(second.get(key)).value();
          if (a != again || (a != b && a != b + 1)) {
            violations_.add("read " + std::to_string(a) + ", " + std::to_string(again) + " and " +
                            std::to_string(b));
          }
        }
      }));
      ++reads;
    } while (writing != 0);
  });
  team.join();
  EXPECT_GT(reads, 0U);
}

// No increment is lost, whichever thread inserts the key; and the results are all different.
TEST_P(Races, FetchAddLosesNothing) {
  auto map = open_map<std::uint64_t, std::uint64_t>(0);
  constexpr std::uint64_t kThreads = 8, kCounters = 3;
  const std::uint64_t rounds = scaled(4000, 1000, 300);
  std::vector<std::vector<bool>> seen(kCounters, std::vector<bool>(kThreads * rounds));
  std::mutex latch;
  Team team(violations_);
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    team.start([&] {
      for (std::uint64_t i = 0; i < rounds * kCounters; ++i) {
        const std::uint64_t before = must(map.fetch_add(i % kCounters, 1));
        const std::scoped_lock guard(latch);
        if (before >= kThreads * rounds || seen[i % kCounters][before]) {
          violations_.add("two increments returned " + std::to_string(before));
        } else {
          seen[i % kCounters][before] = true;
        }
      }
    });
  }
  team.join();
  for (std::uint64_t i = 0; i < kCounters; ++i) {
    EXPECT_EQ(must(map.get(i)), std::optional(kThreads * rounds));
  }
}

// Coins move between keys: a thread takes one with modify(), which erases the last, and gives it to
// another key. Others change the same keys by compare_exchange() and erase nothing that they do not
// replace.
TEST_P(Races, ModifyMovesEveryCoin) {
  PERDURE_TRACE_SEED();
  auto map = open_map<std::uint64_t, std::uint64_t>(0);
  constexpr std::uint64_t kThreads = 4, kPurses = 6, kCoins = 4;
  const std::uint64_t rounds = scaled(20'000, 4000, 600);
  for (std::uint64_t key = 1; key <= kPurses; ++key) must(map.insert(key, kCoins));
  using Value = std::optional<std::uint64_t>;
  Team team(violations_);
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    team.start([&, t] {
      Rng random(t);
      const auto purse = [&] { return 1 + random() % kPurses; };
      for (std::uint64_t i = 0; i < rounds; ++i) {
        bool took = false;
        must(map.modify(purse(), [&](const Value& coins) -> Value {
          took = coins.has_value();
          if (!coins || *coins == 1) return std::nullopt;
          return *coins - 1;
        }));
        if (!took) continue;
        const std::uint64_t to = purse();
        for (bool given = false; !given;) {
          const Value coins = must(map.get(to));
          const Exchanged done = map.compare_exchange(to, coins, coins.value_or(0) + 1);
          must(done.status());
          given = done.exchanged();
        }
      }
    });
  }
  team.join();
  std::uint64_t coins = 0;
  must(map.for_each([&](std::uint64_t, std::uint64_t value) { coins += value; }));
  EXPECT_EQ(coins, kPurses * kCoins);
}

// The same for byte strings: each thread adds its letters to one value.
TEST_P(Races, ModifyOfStringsLosesNothing) {
  auto map = open_map<Bytes, Bytes>(0);
  constexpr std::uint64_t kThreads = 4;
  const std::uint64_t rounds = scaled(500, 150, 40);
  Team team(violations_);
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    team.start([&, t] {
      std::string longer;
      for (std::uint64_t i = 0; i < rounds; ++i) {
        must(map.modify("letters", [&](const std::optional<Bytes>& before) {
          longer = std::string(before.value_or("")) + static_cast<char>('a' + t);
          return std::optional<Bytes>(longer);
        }));
      }
    });
  }
  team.join();
  const std::string all = must(map.get("letters")).value_or("");
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    EXPECT_EQ(std::ranges::count(all, static_cast<char>('a' + t)), std::ptrdiff_t(rounds));
  }
}

}  // namespace
}  // namespace perdure::test
