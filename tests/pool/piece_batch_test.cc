// test: tsan
// Large batches beside mutations of other threads: each is whole, and takes back nothing that was
// acknowledged. Every schedule of small ones is in testing/schedule/gate_races.h.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <string>
#include <string_view>

#include "perdure/write_batch.h"
#include "tests/support/support.h"
#include "tests/support/tracked.h"

namespace perdure::test {
namespace {

using Bytes = std::string_view;

constexpr std::uint64_t kKeys = 2500;  // of a batch, in each map: more than are done as a whole

class PieceBatches : public ::testing::Test {
 protected:
  struct Maps {
    Map<Bytes, Bytes> texts;
    Map<std::uint64_t, std::uint64_t> numbers;
    Map<Bytes, std::uint64_t> words;  // in records
  };
  Pool open() const { return open_pool(path_, {.max_size = 256_MiB}); }
  static Maps maps_of(Pool& pool) {
    return {must(pool.map<Bytes, Bytes>("texts")),
            must(pool.map<std::uint64_t, std::uint64_t>("numbers")),
            must(pool.map<Bytes, std::uint64_t>("words"))};
  }
  static std::string key_of(std::uint64_t i) { return "key" + std::to_string(mix(i)); }
  static std::string text_of(std::uint64_t round) {
    return std::to_string(round) + std::string(round % 50, '.');
  }
  // Keys with a number that 3 divides are erased in odd rounds, and put again in even ones.
  static bool has(std::uint64_t i, std::uint64_t round) { return i % 3 != 0 || round % 2 == 0; }
  static Status commit(Pool& pool, const Maps& maps, std::uint64_t round) {
    WriteBatch batch;
    for (std::uint64_t i = 0; i < kKeys; ++i) {
      const std::string key = key_of(i);
      if (has(i, round)) {
        batch.put(maps.texts, key, text_of(round));
        batch.put(maps.numbers, 2 * i, round);
        batch.put(maps.words, key, round);
      } else {
        batch.erase(maps.texts, key);
        batch.erase(maps.numbers, 2 * i);
        batch.erase(maps.words, key);
      }
    }
    return pool.commit(batch);
  }
  // Returns what is wrong: all keys are of one round, but for those of `except`.
  template <class Except>
  static std::string wrong(Maps& maps, Except&& except) {
    const std::uint64_t round = must(maps.words.get(key_of(1))).value_or(0);
    for (std::uint64_t i = 0; i < kKeys; ++i) {
      if (except(i)) continue;
      const bool there = round != 0 && has(i, round);
      const auto number = must(maps.numbers.get(2 * i));
      const auto text = must(maps.texts.get(key_of(i)));
      const auto word = must(maps.words.get(key_of(i)));
      if (number.value_or(0) != (there ? round : 0) || word.value_or(0) != (there ? round : 0) ||
          text.value_or("") != (there ? text_of(round) : "")) {
        return "round " + std::to_string(round) + ", key " + std::to_string(i) + ": " +
               std::to_string(number.value_or(0)) + ", " + text.value_or("none") + ", " +
               std::to_string(word.value_or(0));
      }
    }
    return "";
  }
  static std::string wrong(Maps& maps) {
    return wrong(maps, [](std::uint64_t) { return false; });
  }

  TempPath path_;
};

TEST_F(PieceBatches, OtherKeysGoOn) {
  Pool pool = open();
  Maps maps = maps_of(pool);
  auto apart = must(pool.map<Bytes, Bytes>("apart"));
  Violations violations;
  std::atomic<bool> busy{true};
  Team team(violations);
  team.start([&] {
    for (std::uint64_t round = 1; round <= scaled(40, 6, 2); ++round) {
      if (Status s = commit(pool, maps, round); !s.ok()) violations.add(std::string(s.message()));
    }
    busy = false;
  });
  // Fill, split and empty the leaves of the batch, and of a map that it does not change.
  for (std::uint64_t t = 0; t < 3; ++t) {
    team.start([&, t] {
      const auto other = [&](std::uint64_t i) {
        return "key" + std::to_string(mix(i)) + "/" + std::to_string(t);
      };
      for (std::uint64_t round = 0; busy; ++round) {
        for (std::uint64_t i = 0; i < 500 && busy; ++i) {
          const std::uint64_t number = 2 * (mix(round) % kKeys + i) + 1;
          if (round % 2 == 0) {
            must(maps.texts.put(other(i), text_of(i)));
            must(apart.put(other(i), text_of(i)));
            if (t == 0) must(maps.numbers.put(number, i));
          } else {
            if (!maps.texts.erase(other(i)).present())
              violations.add("a key of another thread is gone");
            must(apart.erase(other(i)));
            if (t == 0) must(maps.numbers.erase(number));
          }
        }
        // The next round erases what this one has put.
        if (round % 2 == 0) {
          for (std::uint64_t i = 0; i < 500; ++i) must(maps.texts.put(other(i), text_of(i)));
        }
      }
    });
  }
  team.start([&] {
    while (busy) {
      std::string bad;
      must(pool.read_batch([&] { bad = wrong(maps); }));
      if (!bad.empty()) violations.add(bad);
    }
  });
  team.join();
  violations.expect_none();
  EXPECT_EQ(wrong(maps), "");
  expect_sound(pool);
}

// A thread that has seen a round of a key of the batch puts its own value: that round must not come
// back, whatever the kill has left of the batch.
TEST_F(PieceBatches, AKillTakesNothingBack) {
  struct Seen {
    std::atomic<std::uint64_t> round;  // seen before the put that has returned last
    std::atomic<std::uint64_t> put;    // by that; 0: a put is under way
  };
  constexpr std::uint64_t kOwn = 16;
  constexpr std::uint64_t kMine = 1'000'000;
  const auto number_of = [](std::uint64_t n) { return n * (kKeys / kOwn) / 3 * 3 + 1; };
  auto* seen = static_cast<Seen*>(::mmap(nullptr, sizeof(Seen) * kOwn, PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(seen, MAP_FAILED);
  std::uint64_t acknowledged = 0;
  for (std::uint64_t turn = 0; turn < scaled(40, 20, 4); ++turn) {
    for (std::uint64_t n = 0; n < kOwn; ++n) seen[n].put = 0;
    const pid_t child = start_child([&] {
      Pool pool = open();
      Maps maps = maps_of(pool);
      Violations violations;
      Team team(violations);
      team.start([&] {
        for (std::uint64_t round = 1000 * (turn + 1);; ++round) (void)commit(pool, maps, round);
      });
      for (std::uint64_t t = 0; t < 2; ++t) {
        team.start([&, t] {
          for (std::uint64_t i = 1;; ++i) {
            const std::uint64_t n = mix(i) % (kOwn / 2) * 2 + t;
            const std::uint64_t key = 2 * number_of(n);
            const std::uint64_t round = must(maps.numbers.get(key)).value_or(0);
            if (round >= kMine) continue;
            seen[n].put = 0;
            must(maps.numbers.put(key, kMine + i));
            seen[n].round = round;
            seen[n].put = kMine + i;
          }
        });
      }
      team.join();
    });
    ::usleep(static_cast<useconds_t>(20'000 + mix(turn) % 60'000));
    ::kill(child, SIGKILL);
    wait_child(child);
    Pool pool = open();
    Maps maps = maps_of(pool);
    const auto own = [&](std::uint64_t i) {
      for (std::uint64_t n = 0; n < kOwn; ++n) {
        if (number_of(n) == i) return true;
      }
      return false;
    };
    ASSERT_EQ(wrong(maps, own), "") << turn;
    for (std::uint64_t n = 0; n < kOwn; ++n) {
      if (seen[n].put == 0) continue;
      ++acknowledged;
      const std::uint64_t value = must(maps.numbers.get(2 * number_of(n))).value_or(0);
      EXPECT_TRUE(value == seen[n].put || (value < kMine && value > seen[n].round))
          << turn << ", key " << n << ": " << value << ", put " << seen[n].put << " over "
          << seen[n].round;
    }
    expect_sound(pool);
  }
  EXPECT_GT(acknowledged, 0U);
  ::munmap(seen, sizeof(Seen) * kOwn);
}

// What it erases does not stay as empty leaves.
TEST_F(PieceBatches, GiveTheirLeavesBack) {
  Pool pool = open();
  auto map = must(pool.map<std::uint64_t, std::uint64_t>("numbers"));
  const std::uint64_t before = must(pool.stats()).allocated_bytes;
  WriteBatch fill;
  WriteBatch empty;
  for (std::uint64_t i = 1; i <= 50'000; ++i) {
    fill.put(map, mix(i), i);
    empty.erase(map, mix(i));
  }
  must(pool.commit(fill));
  EXPECT_EQ(must(map.size()), 50'000U);
  const std::uint64_t full = must(pool.stats()).allocated_bytes;
  must(pool.commit(empty));
  EXPECT_EQ(must(map.size()), 0U);
  expect_sound(pool);
  EXPECT_LT(must(pool.stats()).allocated_bytes - before, (full - before) / 20);
}

TEST_F(PieceBatches, AnUnmetRequirementChangesNothing) {
  Pool pool = open();
  Maps maps = maps_of(pool);
  must(commit(pool, maps, 2));
  WriteBatch batch;
  batch.require(maps.numbers, 4, 3);
  for (std::uint64_t i = 0; i < kKeys; ++i) batch.put(maps.numbers, 2 * i, 4);
  EXPECT_EQ(pool.commit(batch), StatusCode::conflict);
  EXPECT_EQ(wrong(maps), "");
  WriteBatch right;
  right.require(maps.numbers, 4, 2);
  for (std::uint64_t i = 0; i < kKeys; ++i) right.put(maps.numbers, 2 * i, 4);
  must(pool.commit(right));
  EXPECT_EQ(must(maps.numbers.get(2 * kKeys - 2)), 4U);
  expect_sound(pool);
}

TEST_F(PieceBatches, AFullPoolChangesNothing) {
  Pool pool = open_pool(path_, {.max_size = 16_MiB});
  Maps maps = maps_of(pool);
  must(commit(pool, maps, 2));
  WriteBatch batch;
  const std::string large(20'000, 'x');
  for (std::uint64_t i = 0; i < kKeys; ++i) batch.put(maps.texts, key_of(i), large);
  EXPECT_EQ(pool.commit(batch), StatusCode::pool_full);
  EXPECT_EQ(wrong(maps), "");
  must(commit(pool, maps, 3));
  EXPECT_EQ(wrong(maps), "");
  expect_sound(pool);
}

}  // namespace
}  // namespace perdure::test
