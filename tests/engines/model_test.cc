// test: nightly, starts first
// Long random operation sequences compared with std::map, with every way of ending a session
// between them.
#include <sys/mman.h>

#include <memory>
#include <tuple>

#include "tests/support/model.h"

namespace perdure::test {
namespace {

using Bytes = std::string_view;
constexpr std::uint64_t kUniverse = 6'000;

// The end of a session.
enum class End { close, close_unsynced, destructor };

using Parameters = std::tuple<EngineInfo, Durability, Distribution>;

class ModelTest : public ::testing::TestWithParam<Parameters> {
 protected:
  Durability durability() const { return std::get<1>(GetParam()); }
  Distribution distribution() const { return std::get<2>(GetParam()); }
  PoolOptions pool_options() const {
    return {.durability = durability(), .max_size = 256_MiB, .recovery_threads = 2};
  }
  const EngineInfo& engine() const { return std::get<0>(GetParam()); }
  template <class K, class V>
  AnyMap<K, V> open_map(Pool& pool) const {
    // The number of partitions varies, too, without more runs.
    const std::uint32_t bits = distribution() == Distribution::uniform ? 3 : 7;
    return {pool, "map", engine(), {.phast = {.partition_bits = bits}}};
  }
  static Mix mix_of(std::uint64_t session) {
    constexpr unsigned kErase[] = {5, 25, 50, 10};
    return {.erase_percent = kErase[session % 4]};
  }

  template <class K, class V>
  void run_sessions() {
    PERDURE_TRACE_SEED();
    SCOPED_TRACE(distribution_name(distribution()));
    TempPath path;
    Model<K, V> model(distribution(), engine().ordered);
    KeyNumbers numbers(distribution(), kUniverse);
    Rng rng(seed());
    const std::uint64_t operations = scaled(5'000, 2'500, 400);
    for (std::uint64_t session = 0; session < scaled(4, 4); ++session) {
      SCOPED_TRACE("session " + std::to_string(session));
      Pool pool = open_pool(path, pool_options());
      auto map = open_map<K, V>(pool);
      ASSERT_EQ(model.difference(map), "") << "after reopen";
      ASSERT_NO_FATAL_FAILURE(expect_sound(pool));
      for (std::uint64_t i = 0; i < operations; ++i) {
        const Op op = draw_op(rng, numbers, mix_of(session));
        const std::uint64_t expected = model.apply(op);
        ASSERT_EQ(model.apply(op, map), expected)
            << "operation " << i << " of kind " << int(op.kind) << " on key number " << op.key;
      }
      ASSERT_EQ(model.difference(map), "") << "before the end of the session";
      switch (static_cast<End>(session % 3)) {
        case End::close:
          must(pool.close());
          break;
        case End::close_unsynced:
          must(pool.close({.sync = false}));
          break;
        case End::destructor:
          break;
      }
    }
    Pool pool = open_pool(path, pool_options());
    auto map = open_map<K, V>(pool);
    ASSERT_EQ(model.difference(map), "");
    expect_sound(pool);
  }

  // The child sends a digest per acknowledged operation. The parent kills it after a random number
  // of them, repeats them on the model, and allows the operation in flight to have happened or not.
  template <class K, class V>
  void run_killed_sessions() {
    PERDURE_TRACE_SEED();
    SCOPED_TRACE(distribution_name(distribution()));
    TempPath path;
    Model<K, V> model(distribution(), engine().ordered);
    KeyNumbers numbers(distribution(), kUniverse);
    Rng rng(seed());
    Rng chance(seed() + 1);
    const std::uint64_t sessions = scaled(6, 4, 2);
    for (std::uint64_t session = 0; session < sessions; ++session) {
      SCOPED_TRACE("killed session " + std::to_string(session));
      const Mix share = mix_of(session);
      const std::uint64_t target = 1 + chance.below(scaled(6'000, 3'000, 400));
      int pipe_fds[2];
      ASSERT_EQ(pipe(pipe_fds), 0);
      const pid_t child = start_child([&] {
        close(pipe_fds[0]);
        Pool pool = open_pool(path, pool_options());
        auto map = open_map<K, V>(pool);
        for (;;) {  // until killed
          const std::uint64_t digest = model.apply(draw_op(rng, numbers, share), map);
          if (write(pipe_fds[1], &digest, sizeof digest) != sizeof digest) return;
        }
      });
      close(pipe_fds[1]);
      std::vector<std::uint64_t> digests;
      std::uint64_t buffer[64];
      bool killed = false;
      for (ssize_t got = 0; (got = read(pipe_fds[0], buffer, sizeof buffer)) > 0;) {
        ASSERT_EQ(got % 8, 0) << "8-byte writes to a pipe are atomic";
        digests.insert(digests.end(), buffer, buffer + got / 8);
        if (!killed && digests.size() >= target) {
          kill(child, SIGKILL);
          killed = true;
        }
      }
      close(pipe_fds[0]);
      const ChildEnd end = wait_child(child);
      ASSERT_TRUE(!end.exited && end.signal == SIGKILL) << end;

      for (std::size_t i = 0; i < digests.size(); ++i) {
        const Op op = draw_op(rng, numbers, share);
        ASSERT_EQ(digests[i], model.apply(op)) << "operation " << i << " of kind " << int(op.kind);
      }
      const Op in_flight = draw_op(rng, numbers, share);
      Model<K, V> finished = model;
      finished.apply(in_flight);

      Pool pool = open_pool(path, pool_options());
      auto map = open_map<K, V>(pool);
      const std::string before = model.difference(map);
      if (!before.empty()) {
        ASSERT_EQ(finished.difference(map), "")
            << "nor is it the state before the operation in flight: " << before;
        model = finished;
      }
      ASSERT_NO_FATAL_FAILURE(expect_sound(pool));
      // The recovered map must also work: some operations before the next kill.
      for (std::uint64_t i = 0; i < scaled(500, 100); ++i) {
        const Op op = draw_op(rng, numbers, share);
        const std::uint64_t expected = model.apply(op);
        ASSERT_EQ(model.apply(op, map), expected) << "operation " << i << " after recovery";
      }
      ASSERT_EQ(model.difference(map), "");
      must(pool.close({.sync = session % 2 == 0}));
    }
  }
};

std::string parameter_name(const ::testing::TestParamInfo<Parameters>& row) {
  const auto& [engine, durability, distribution] = row.param;
  return name_of(engine) + "_" + std::string(durability_name(durability)) + "_" +
         distribution_name(distribution);
}

std::vector<Parameters> all_parameters() {
  std::vector<Parameters> out;
  for (std::size_t e = 0; e < std::size(kEngines); ++e) {
    for (std::size_t i = 0; i < std::size(kDistributions); ++i) {
      // Each distribution under both durabilities; each engine under one of them, except at night.
      const bool even = (e + i) % 2 == 0;
      if (at_length() || even)
        out.emplace_back(kEngines[e], Durability::process, kDistributions[i]);
      if (at_length() || !even)
        out.emplace_back(kEngines[e], Durability::emulated, kDistributions[i]);
    }
  }
  return out;
}
INSTANTIATE_TEST_SUITE_P(All, ModelTest, ::testing::ValuesIn(all_parameters()), parameter_name);

TEST_P(ModelTest, IntegersToIntegers) { run_sessions<std::uint64_t, std::uint64_t>(); }
TEST_P(ModelTest, SignedToNarrow) { run_sessions<std::int32_t, std::uint16_t>(); }
TEST_P(ModelTest, StringsToStrings) { run_sessions<Bytes, Bytes>(); }
TEST_P(ModelTest, StringsToIntegers) { run_sessions<Bytes, std::uint64_t>(); }
TEST_P(ModelTest, IntegersToStrings) { run_sessions<std::uint64_t, Bytes>(); }

TEST_P(ModelTest, KilledIntegersToIntegers) { run_killed_sessions<std::uint64_t, std::uint64_t>(); }
TEST_P(ModelTest, KilledStringsToStrings) { run_killed_sessions<Bytes, Bytes>(); }
TEST_P(ModelTest, KilledStringsToIntegers) { run_killed_sessions<Bytes, std::uint64_t>(); }
TEST_P(ModelTest, KilledIntegersToStrings) { run_killed_sessions<std::uint64_t, Bytes>(); }

class Killed : public ::testing::TestWithParam<EngineInfo> {};
INSTANTIATE_TEST_SUITE_P(Engines, Killed, ::testing::ValuesIn(kEngines),
                         [](const auto& row) { return name_of(row.param); });

// A kill in the middle of an open, which is recovery, or of the first creation. The next open finds
// everything, or nothing, and never a file that it cannot open.
TEST_P(Killed, DuringOpen) {
  PERDURE_TRACE_SEED();
  Rng rng;
  for (const bool created : {false, true}) {
    for (std::uint64_t round = 0; round < scaled(60, 24, 8); ++round) {
      SCOPED_TRACE("round " + std::to_string(round) + (created ? " reopening" : " creating"));
      TempPath path;
      const PoolOptions options{
          .durability = round % 2 == 0 ? Durability::process : Durability::emulated,
          .max_size = 64_MiB};
      std::uint64_t entries = 0;
      if (created) {
        entries = scaled(3'000, 500);
        const ChildEnd end = run_child([&] {
          Pool pool = open_pool(path, options);
          AnyMap<std::uint64_t, std::uint64_t> map(pool, "m", GetParam());
          for (std::uint64_t i = 0; i < entries; ++i) must(map.insert(mix(i), i));
          kill(getpid(), SIGKILL);  // unclean: the next open recovers
        });
        ASSERT_EQ(end.signal, SIGKILL);
      }
      for (int kills = 0; kills < 3; ++kills) {
        const pid_t child = start_child([&] {
          Pool pool = open_pool(path, options);
          pause();
        });
        usleep(static_cast<useconds_t>(rng.below(created ? 6'000 : 3'000)));
        kill(child, SIGKILL);
        ASSERT_EQ(wait_child(child).signal, SIGKILL);
      }
      Pool pool = open_pool(path, options);
      AnyMap<std::uint64_t, std::uint64_t> map(pool, "m", GetParam());
      for (std::uint64_t i = 0; i < entries; ++i) {
        ASSERT_EQ(must(map.get(mix(i))), std::optional(i)) << i;
      }
      EXPECT_EQ(map.count(), entries);
      expect_sound(pool);
    }
  }
}

// A kill during a close leaves the pool clean or not, but whole.
TEST_P(Killed, DuringClose) {
  PERDURE_TRACE_SEED();
  Rng rng;
  TempPath path;
  const PoolOptions options{.max_size = 64_MiB};
  std::uint64_t next = 0;
  for (std::uint64_t round = 0; round < scaled(40, 20, 8); ++round) {
    int pipe_fds[2];
    ASSERT_EQ(pipe(pipe_fds), 0);
    const std::uint64_t first = next;
    next += 200;
    const pid_t child = start_child([&] {
      Pool pool = open_pool(path, options);
      AnyMap<Bytes, Bytes> map(pool, "m", GetParam());
      for (std::uint64_t i = first; i < next; ++i) {
        const std::string text = std::to_string(mix(i));
        must(map.insert(text, text + text));
      }
      require(write(pipe_fds[1], "x", 1) == 1, "pipe");
      must(pool.close({.sync = round % 2 == 0}));
    });
    close(pipe_fds[1]);
    char ready = 0;
    ASSERT_EQ(read(pipe_fds[0], &ready, 1), 1);
    close(pipe_fds[0]);
    usleep(static_cast<useconds_t>(rng.below(2'000)));
    kill(child, SIGKILL);
    wait_child(child);  // killed, or done before
    Pool pool = open_pool(path, options);
    AnyMap<Bytes, Bytes> map(pool, "m", GetParam());
    for (std::uint64_t i = 0; i < next; ++i) {
      const std::string text = std::to_string(mix(i));
      ASSERT_EQ(must(map.get(text)), std::optional(text + text)) << "round " << round;
    }
    expect_sound(pool);
    must(pool.close());
  }
}

}  // namespace
}  // namespace perdure::test
