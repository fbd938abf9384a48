// test: tsan
// Small batches of several threads, of the same keys and beside other mutations: each is whole.
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

constexpr std::uint64_t kGroups = 16;
constexpr std::uint64_t kOfGroup = 8;  // keys in each map

class LatchedBatches : public ::testing::Test {
 protected:
  struct Maps {
    Map<Bytes, Bytes> texts;
    Map<std::uint64_t, std::uint64_t> numbers;
  };
  Pool open() const { return open_pool(path_, {.max_size = 64_MiB}); }
  static Maps maps_of(Pool& pool) {
    return {must(pool.map<Bytes, Bytes>("texts")),
            must(pool.map<std::uint64_t, std::uint64_t>("numbers"))};
  }
  // The keys of a group are in several leaves, beside those of other groups.
  static std::string text_key(std::uint64_t group, std::uint64_t i) {
    return "key" + std::to_string(i) + "/" + std::to_string(group);
  }
  static std::uint64_t number_key(std::uint64_t group, std::uint64_t i) {
    return (i + 1) << 32 | group << 8;
  }
  static std::string text_of(std::uint64_t value) {
    return std::to_string(value) + std::string(value % 50, '.');
  }
  // All keys of the group get the value, or are erased if it is 0. `turned`: the maps are named in
  // the other order.
  static Status commit(Pool& pool, Maps& maps, std::uint64_t group, std::uint64_t value,
                       bool turned) {
    WriteBatch batch;
    const auto add_texts = [&] {
      for (std::uint64_t i = 0; i < kOfGroup; ++i) {
        const std::string key = text_key(group, i);
        value != 0 ? batch.put(maps.texts, key, text_of(value)) : batch.erase(maps.texts, key);
      }
    };
    if (!turned) add_texts();
    for (std::uint64_t i = 0; i < kOfGroup; ++i) {
      const std::uint64_t key = number_key(group, i);
      value != 0 ? batch.put(maps.numbers, key, value) : batch.erase(maps.numbers, key);
    }
    if (turned) add_texts();
    return pool.commit(batch);
  }
  // Returns what is wrong: the keys of each group have one value, or are not there.
  static std::string wrong_group(Maps& maps) {
    for (std::uint64_t group = 0; group < kGroups; ++group) {
      const std::uint64_t value = must(maps.numbers.get(number_key(group, 0))).value_or(0);
      for (std::uint64_t i = 0; i < kOfGroup; ++i) {
        const std::uint64_t number = must(maps.numbers.get(number_key(group, i))).value_or(0);
        const auto text = must(maps.texts.get(text_key(group, i)));
        const std::string wanted = value != 0 ? text_of(value) : "";
        if (number != value || text.value_or("") != wanted) {
          return "group " + std::to_string(group) + ": " + std::to_string(value) + ", key " +
                 std::to_string(i) + ": " + std::to_string(number) + ", " + text.value_or("none");
        }
      }
    }
    return "";
  }
  // Random batches of one thread.
  static Status commit_some(Pool& pool, Maps& maps, std::uint64_t thread, std::uint64_t rounds) {
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      const std::uint64_t random = mix(round << 8 | thread);
      const std::uint64_t value = random % 4 == 0 ? 0 : round << 4 | thread;
      Status s = commit(pool, maps, random / 4 % kGroups, value, thread % 2 != 0);
      if (!s.ok()) return s;
    }
    return {};
  }

  TempPath path_;
};

TEST_F(LatchedBatches, ThreadsThatShareKeys) {
  Pool pool = open();
  Maps maps = maps_of(pool);
  const std::uint64_t rounds = scaled(5000, 1000, 100);
  Violations violations;
  std::atomic<int> busy{4};
  Team team(violations);
  for (std::uint64_t t = 0; t < 4; ++t) {
    team.start([&, t] {
      if (Status s = commit_some(pool, maps, t, rounds); !s.ok()) {
        violations.add(std::string(s.message()));
      }
      --busy;
    });
  }
  // Splits the leaves of the groups, and makes them empty.
  team.start([&] {
    for (std::uint64_t round = 0; busy != 0; ++round) {
      for (std::uint64_t n = 0; n < 200; ++n) {
        const std::uint64_t key = (1 + n % kOfGroup) << 32 | (1 + n);
        if (round % 2 == 0 && key % 256 != 0) must(maps.numbers.put(key, n));
        if (round % 2 != 0 && key % 256 != 0) must(maps.numbers.erase(key));
      }
    }
  });
  team.start([&] {
    while (busy != 0) {
      std::string wrong;
      must(pool.read_batch([&] { wrong = wrong_group(maps); }));
      if (!wrong.empty()) violations.add(wrong);
    }
  });
  team.join();
  violations.expect_none();
  EXPECT_EQ(wrong_group(maps), "");
  expect_sound(pool);
}

TEST_F(LatchedBatches, AKillLeavesEachOfThemWhole) {
  for (std::uint64_t turn = 0; turn < 10; ++turn) {
    const pid_t child = start_child([&] {
      Pool pool = open();
      Maps maps = maps_of(pool);
      Violations violations;
      Team team(violations);
      for (std::uint64_t t = 0; t < 3; ++t) {
        team.start([&, t] { (void)commit_some(pool, maps, t + 3 * turn, ~std::uint64_t{0}); });
      }
      team.join();
    });
    ::usleep(static_cast<useconds_t>(20'000 + mix(turn) % 60'000));
    ::kill(child, SIGKILL);
    wait_child(child);
    Pool pool = open();
    Maps maps = maps_of(pool);
    ASSERT_EQ(wrong_group(maps), "") << turn;
    expect_sound(pool);
  }
}

}  // namespace
}  // namespace perdure::test
