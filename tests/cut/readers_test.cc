// test: tsan
// Readers of a pool: beside its owner, beside each other, and before an owner comes.
#include <unistd.h>

#include <array>
#include <chrono>
#include <set>
#include <string>
#include <utility>

#include "tests/support/any_map.h"
#include "tests/support/buffered_files.h"

namespace perdure::test {
namespace {

constexpr std::uint64_t kStill = 500;  // keys that stay
constexpr std::uint64_t kBatch = 10'000, kBatchKeys = 64;
constexpr std::uint64_t kChurn = 20'000, kChurnKeys = 6'000;

PoolOptions looking() { return {.mode = OpenMode::read_only, .recovery_threads = 1}; }

std::string value_of(std::uint64_t key, std::uint64_t round) {
  return std::to_string(key) + ":" + std::to_string(round) + ":" +
         std::string(mix(key + round) % 300, 'v');
}
// What a value says of itself: its key and its round.
std::pair<std::uint64_t, std::uint64_t> parts_of(const std::string& value) {
  const std::size_t colon = value.find(':');
  if (colon == std::string::npos) return {~std::uint64_t{0}, 0};
  return {std::stoull(value), std::stoull(value.substr(colon + 1))};
}

// A process with work to do until it is told to end.
class Process {
 public:
  template <class F>
  explicit Process(const F& body) {
    EXPECT_EQ(::pipe(ready_.data()), 0);
    EXPECT_EQ(::pipe(end_.data()), 0);
    pid_ = start_child([&] {
      ::close(end_[1]);
      body(*this);
    });
    ::close(end_[0]);
    ::close(ready_[1]);
    char byte = 0;
    EXPECT_EQ(::read(ready_[0], &byte, 1), 1);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (pid_ > 0) (void)end();
    ::close(ready_[0]);
  }
  pid_t pid() const { return pid_; }
  ChildEnd end() {
    ::close(end_[1]);
    return wait_child(std::exchange(pid_, 0));
  }
  ChildEnd kill() {
    ::kill(pid_, SIGKILL);
    return end();
  }
  // In the process:
  void say_ready() const { require(::write(ready_[1], "x", 1) == 1, "write"); }
  bool goes_on() const {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(end_[0], &set);
    timeval at_once{};
    return ::select(end_[0] + 1, &set, nullptr, nullptr, &at_once) == 0;
  }
  void wait_for_the_end() const {
    char byte = 0;
    (void)!::read(end_[0], &byte, 1);
  }

 private:
  std::array<int, 2> ready_{}, end_{};
  pid_t pid_ = 0;
};

using Texts = AnyMap<std::uint64_t, Bytes>;

void write_batch(Pool& pool, Texts& map, std::uint64_t round) {
  WriteBatch batch;
  for (std::uint64_t i = 0; i < kBatchKeys; ++i)
    batch.put(map, kBatch + i, value_of(kBatch + i, round));
  must(pool.commit(batch));
}

void churn(const std::string& path, const EngineInfo& engine, const Process& process) {
  PoolOptions options = buffered(5);
  options.max_size = 256_MiB;
  Pool pool = must(Pool::open(path, options));
  Texts map(pool, "m", engine);
  for (std::uint64_t i = 0; i < kStill; ++i) must(map.put(i, value_of(i, 0)));
  write_batch(pool, map, 0);
  must(pool.sync());
  process.say_ready();
  for (std::uint64_t round = 1; process.goes_on(); ++round) {
    write_batch(pool, map, round);
    for (std::uint64_t i = 0; i < 100; ++i) {
      const std::uint64_t key = kChurn + mix(round * 100 + i) % std::min(kChurnKeys, 20 * round);
      if (i % 5 < 3) {
        must(map.put(key, value_of(key, round)));
      } else {
        (void)must(map.erase(key));
      }
    }
    if (round % 50 == 0) must(pool.fold_log());
    if (round % 400 == 0) (void)must(pool.compact());
  }
  must(pool.close());
}

// Looks at everything, and returns the round of the batch.
std::uint64_t look(Pool& pool, const EngineInfo& engine) {
  Texts map(pool, "m", engine);
  for (std::uint64_t i = 0; i < kStill; ++i) {
    EXPECT_EQ(must(map.get(i)), std::optional(value_of(i, 0))) << i;
  }
  const std::uint64_t round = parts_of(must(map.get(kBatch)).value_or("")).second;
  for (std::uint64_t i = 0; i < kBatchKeys; ++i) {
    EXPECT_EQ(must(map.get(kBatch + i)), std::optional(value_of(kBatch + i, round))) << i;
  }
  for (std::uint64_t i = 0; i < kChurnKeys; ++i) {
    const auto got = must(map.get(kChurn + i));
    if (!got) continue;
    EXPECT_EQ(*got, value_of(kChurn + i, parts_of(*got).second));
    EXPECT_LE(parts_of(*got).second, round + 1) << "of a later moment than the batch";
  }
  std::set<std::uint64_t> seen;
  must(map.for_each([&](std::uint64_t key, std::string_view text) {
    const std::string value(text);
    EXPECT_TRUE(seen.insert(key).second) << key << " comes twice";
    EXPECT_EQ(value, value_of(key, parts_of(value).second));
  }));
  const auto missing = [&](std::uint64_t from, std::uint64_t count) {
    std::uint64_t n = 0;
    for (std::uint64_t i = from; i < from + count; ++i) n += seen.contains(i) ? 0 : 1;
    return n;
  };
  EXPECT_EQ(missing(0, kStill) + missing(kBatch, kBatchKeys), 0U);
  return round;
}

class Readers : public BufferedFiles {};
class ReadersOf : public BufferedFiles, public ::testing::WithParamInterface<EngineInfo> {};

TEST_P(ReadersOf, APoolInUseIsSeenAsItWasAtOneMoment) {
  const EngineInfo engine = GetParam();
  Process owner([&](const Process& process) { churn(path(), engine, process); });
  std::uint64_t last = 0;
  int opens = 0;
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(scaled(5'000, 500, 1'200));
  for (; std::chrono::steady_clock::now() < until && !HasFailure(); ++opens) {
    auto pool = Pool::open(path(), looking());
    ASSERT_TRUE(pool.has_value()) << pool.error().message();
    EXPECT_TRUE(must(pool->info()).in_use);
    const std::uint64_t round = look(*pool, engine);
    EXPECT_GE(round, last) << "an older moment than the open before has shown";
    last = round;
    if (opens % 8 == 0) expect_sound(*pool);
  }
  EXPECT_GT(opens, 2);
  EXPECT_GT(last, 0U);
  const ChildEnd end = owner.end();
  EXPECT_TRUE(end.ok()) << end;
}
INSTANTIATE_TEST_SUITE_P(Engines, ReadersOf, ::testing::ValuesIn(all_engines()),
                         [](const auto& engine) { return name_of(engine.param); });

// What sync() has returned for is in what a reader sees. Later changes are not, until it opens the
// pool again.
TEST_F(Readers, AnOpenSeesWhatWasSynced) {
  Pool pool = must(Pool::open(path(), buffered(3'600'000)));
  auto map = later(pool);
  for (std::uint64_t i = 1; i <= 3; ++i) {
    must(map.put(1, i));
    must(pool.sync());
    if (i == 2) must(pool.fold_log());
    must(map.put(1, 100));
    Pool reader = must(Pool::open(path(), looking()));
    EXPECT_EQ(must(later(reader).get(1)), std::optional(i));
    must(map.put(1, 200));
    must(pool.sync());
    EXPECT_EQ(must(later(reader).get(1)), std::optional(i));
    EXPECT_TRUE(must(reader.check({.deep = true})).ok());
    EXPECT_EQ(later(reader).put(1, 1).status().code(), StatusCode::read_only);
  }
  must(pool.close());
}

// The message says that the map may come, and that is so.
TEST_F(Readers, AMapThatNoCutHasYetIsNotFound) {
  Pool pool = must(Pool::open(path(), buffered(3'600'000)));
  must(must(pool.map<std::uint64_t, std::uint64_t>("fresh")).put(1, 7));
  const auto find = [&](OpenMode mode) {
    Pool reader = must(Pool::open(path(), looking()));
    const auto map = reader.map<std::uint64_t, std::uint64_t>("fresh", {.mode = mode});
    return map ? std::string() : std::string(map.error().message());
  };
  for (const OpenMode mode : {OpenMode::existing, OpenMode::open_or_create}) {
    const std::string message = find(mode);
    EXPECT_NE(message.find("in its last durable cut"), std::string::npos) << message;
  }
  must(pool.sync());
  EXPECT_EQ(find(OpenMode::existing), "");
  must(pool.close());
}

// The owner neither waits for a reader of its cuts, nor is it refused anything.
TEST_F(Readers, AReaderOfACutIsInNoOwnersWay) {
  std::optional<Pool> pool = must(Pool::open(path(), buffered(5)));
  must(later(*pool).put(1, 1));
  must(pool->sync());
  Pool reader = must(Pool::open(path(), looking()));
  must(later(*pool).put(1, 2));
  must(pool->sync());
  must(pool->fold_log());
  must(pool->close());
  pool = must(Pool::open(path(), as_it_was()));
  must(pool->close());
  EXPECT_EQ(must(later(reader).get(1)), std::optional<std::uint64_t>(1));
}

TEST_F(Readers, WithoutCutsAPoolInUseIsBusy) {
  PoolOptions options = buffered();
  for (const Durability durability : {Durability::process, Durability::emulated}) {
    options.durability = durability;
    Pool pool = must(Pool::open(path(), options));
    must(later(pool).put(1, 1));
    const ChildEnd end = run_child([&] {
      require(refused(looking()) == StatusCode::busy, "not refused");
      for (const std::string& word : {"process " + std::to_string(::getppid()),
                                      std::string("close it there"), std::string("`buffered`")}) {
        require(message_.find(word) != std::string::npos, message_);
      }
    });
    EXPECT_TRUE(end.ok()) << end;
    EXPECT_TRUE(must(Pool::inspect(path())).in_use);
    must(pool.close());
    Pool reader = must(Pool::open(path(), looking()));
    EXPECT_EQ(must(later(reader).get(1)), std::optional<std::uint64_t>(1));
  }
}

// Its stores would change what the readers see.
TEST_F(Readers, AnOwnerThatComesLaterIsRefused) {
  PoolOptions options = buffered();
  for (const Durability durability : {Durability::process, Durability::buffered}) {
    options.durability = durability;
    {
      Pool pool = must(Pool::open(path(), options));
      must(later(pool).put(1, 1));
      must(pool.close());
    }
    Process reader([&](const Process& process) {
      Pool looked = must(Pool::open(path(), looking()));
      process.say_ready();
      process.wait_for_the_end();
      require(must(later(looked).get(1)) == std::optional<std::uint64_t>(1), "it has changed");
    });
    Pool beside = must(Pool::open(path(), looking()));
    EXPECT_EQ(must(later(beside).get(1)), std::optional<std::uint64_t>(1));
    EXPECT_FALSE(must(beside.info()).in_use);
    EXPECT_FALSE(must(Pool::inspect(path())).in_use);
    EXPECT_EQ(refused(options), StatusCode::busy);
    EXPECT_NE(message_.find("being read by this process"), std::string::npos) << message_;
    must(beside.close());
    EXPECT_EQ(refused(options), StatusCode::busy);
    EXPECT_NE(message_.find("process " + std::to_string(reader.pid()) + " with read_only"),
              std::string::npos)
        << message_;
    const ChildEnd end = reader.end();
    EXPECT_TRUE(end.ok()) << end;
    EXPECT_EQ(refused(options), StatusCode::ok) << message_;
  }
}

// An open that comes while the owner opens or closes the pool waits for that.
TEST_F(Readers, OpensBesideAnOwnerThatComesAndGoes) {
  {
    Pool pool = must(Pool::open(path(), buffered()));
    must(later(pool).put(1, 1));
  }
  Process owner([&](const Process& process) {
    process.say_ready();
    for (std::uint64_t i = 1; process.goes_on(); ++i) {
      auto pool = Pool::open(path(), buffered(5));
      if (!pool && pool.error() == StatusCode::busy) continue;  // it is being read
      must(later(pool.value()).put(1, i));
    }
  });
  std::uint64_t last = 0;
  int in_use = 0;
  for (int i = 0; (i < 100 || in_use < 10) && i < 3000 && !HasFailure(); ++i) {
    ::usleep(1000);  // the owner's turn
    auto reader = Pool::open(path(), looking());
    ASSERT_TRUE(reader.has_value()) << reader.error().message();
    in_use += must(reader->info()).in_use ? 1 : 0;
    const std::uint64_t value = must(later(*reader).get(1)).value_or(0);
    EXPECT_GE(value, last);
    last = value;
  }
  EXPECT_GE(in_use, 10);
  EXPECT_TRUE(owner.end().ok());
}

TEST_F(Readers, AKilledReaderIsInNoOwnersWay) {
  must(must(Pool::open(path(), buffered())).close());
  Process reader([&](const Process& process) {
    Pool looked = must(Pool::open(path(), looking()));
    process.say_ready();
    process.wait_for_the_end();
  });
  EXPECT_EQ(reader.kill().signal, SIGKILL);
  EXPECT_EQ(refused(), StatusCode::ok) << message_;
}

// A child has the descriptor, and so the lock.
TEST_F(Readers, TheLockIsThatOfTheProcessThatOpenedThePool) {
  must(must(Pool::open(path(), buffered())).close());
  Pool pool = must(Pool::open(path(), looking()));
  Process child([&](const Process& process) {
    {
      const Pool closed = std::move(pool);
    }
    process.say_ready();
    process.wait_for_the_end();
  });
  Process second([&](const Process& process) {
    process.say_ready();
    process.wait_for_the_end();
  });
  EXPECT_EQ(refused(), StatusCode::busy) << "the child has let go of its parent's lock";
  must(pool.close());
  EXPECT_EQ(refused(), StatusCode::ok) << message_;
}

// A kill has left image and base. They stay as they are while readers have them.
TEST_F(Readers, WhatAKilledProcessHasLeftIsSeenWhole) {
  kill_after_a_sync();
  {
    Pool reader = must(Pool::open(path(), looking()));
    EXPECT_EQ(must(later(reader).get(1)), std::optional<std::uint64_t>(1)) << "in no cut";
    EXPECT_EQ(wrong_content(reader), "");
    EXPECT_EQ(refused(), StatusCode::busy);
  }
  EXPECT_EQ(refused(), StatusCode::ok) << message_;
}

TEST_F(Readers, AfterAPowerFailureTheLastCutIsSeen) {
  kill_after_a_sync();
  machine_restarts();
  const std::string before = read_bytes(path());
  {
    Pool reader = must(Pool::open(path(), looking()));
    EXPECT_EQ(must(reader.list()).size(), 2U) << "the map `later` is in no cut";
    EXPECT_EQ(wrong_content(reader), "");
    expect_sound(reader);
    EXPECT_EQ(read_bytes(path()), before);
    // What it has is a copy, so it is in no owner's way.
    in_killed_process([](Pool& pool) { must(pool.drop("numbers")); }, as_it_was());
    EXPECT_EQ(wrong_content(reader), "");
    machine_restarts();
  }
  // The log says what is wrong with it.
  fs::remove_all(path("pool-log"));
  EXPECT_EQ(refused(looking()), StatusCode::untrusted) << message_;
}

}  // namespace
}  // namespace perdure::test
