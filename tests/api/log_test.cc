// test: no asan, cross
// PoolOptions::log: the messages to an operator. Without it no pool prints anything.
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/support.h"

namespace perdure::test {
namespace {

using Bytes = std::string_view;

// Any thread may log.
class Lines {
 public:
  struct Line {
    LogLevel level;
    std::string text;
  };

  PoolOptions with(PoolOptions options) {
    options.log = [](void* self, LogLevel level, std::string_view text) {
      auto& lines = *static_cast<Lines*>(self);
      const std::lock_guard guard(lines.latch_);
      lines.all_.push_back({level, std::string(text)});
    };
    options.log_context = this;
    return options;
  }
  std::size_t count(LogLevel level, std::string_view part) {
    const std::lock_guard guard(latch_);
    return static_cast<std::size_t>(std::ranges::count_if(all_, [&](const Line& line) {
      return line.level == level && line.text.find(part) != std::string::npos;
    }));
  }
  std::string all() {
    const std::lock_guard guard(latch_);
    std::string text;
    for (const Line& line : all_) text += line.text + "\n";
    return text;
  }
  bool all_name(const std::string& path) {
    const std::lock_guard guard(latch_);
    return std::ranges::all_of(
        all_, [&](const Line& line) { return line.text.starts_with(path + ": "); });
  }

 private:
  std::mutex latch_;
  std::vector<Line> all_;
};

void fill(Pool& pool, Engine engine, std::uint64_t entries) {
  auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", {.engine = engine}));
  for (std::uint64_t i = 0; i < entries; ++i) must(map.put(mix(i), i));
}

TEST(Log, SaysHowAPoolWasOpened) {
  for (const Engine engine : {Engine::phast, Engine::clevel}) {
    TempPath path;
    Lines fresh, again, killed;
    must(open_pool(path, fresh.with({.max_size = 16_MiB})).close());
    EXPECT_EQ(fresh.count(LogLevel::info, "new; 0 maps"), 1U) << fresh.all();
    {
      Pool pool = open_pool(path, again.with({}));
      fill(pool, engine, 100);
    }
    EXPECT_EQ(again.count(LogLevel::info, "closed properly"), 1U) << again.all();
    const ChildEnd end = run_child([&] {
      Pool pool = open_pool(path, {});
      fill(pool, engine, 1'000);
      _exit(0);
    });
    ASSERT_TRUE(end.ok()) << end;
    Pool pool = open_pool(path, killed.with({}));
    EXPECT_EQ(killed.count(LogLevel::info, "not closed: recovered; 1 maps"), 1U) << killed.all();
    must(pool.check());  // waits for the work that open left
    const std::size_t beside = engine == Engine::clevel ? 1 : 0;
    EXPECT_EQ(killed.count(LogLevel::info, "recovery beside the service ended"), beside)
        << killed.all();
    must(pool.close());
    EXPECT_TRUE(fresh.all_name(path.str()) && again.all_name(path.str()) &&
                killed.all_name(path.str()));
  }
}

TEST(Log, SaysThatATableWasResized) {
  for (const Engine engine : {Engine::level, Engine::clevel}) {
    TempPath path;
    Lines lines;
    // Without a thread of the pool. At close a step of one could still be running, and close would
    // then leave the resize to the next open.
    Pool pool = open_pool(path, lines.with({.max_size = 64_MiB, .background_threads = 0}));
    fill(pool, engine, 20'000);
    while (must(pool.run_background())) {
    }
    must(pool.close());
    const auto map = std::string("map m: its table grew from");
    EXPECT_GE(lines.count(LogLevel::info, map), 1U) << lines.all();
    EXPECT_TRUE(lines.all_name(path.str())) << lines.all();
  }
}

TEST(Log, SaysThatATableShrankAndWhatWasWrittenBack) {
  TempPath path;
  Lines lines;
  Pool pool = open_pool(path, lines.with({.max_size = 64_MiB}));
  fill(pool, Engine::level, 20'000);
  auto map = must(pool.map<std::uint64_t, std::uint64_t>("m"));
  for (std::uint64_t i = 0; i < 19'900; ++i) must(map.erase(mix(i)));
  must(pool.compact());
  must(pool.sync());
  EXPECT_GE(lines.count(LogLevel::info, "map m: its table shrank from"), 1U) << lines.all();
  EXPECT_EQ(lines.count(LogLevel::info, "compacted in"), 1U) << lines.all();
  EXPECT_EQ(lines.count(LogLevel::info, "synced in"), 1U) << lines.all();
}

// One message, not one per insert; another one after the next growth.
TEST(Log, SaysThatGrowthWasRefused) {
  TempPath path;
  Lines lines;
  Pool pool = open_pool(path, lines.with({.max_size = 1_MiB}));
  auto map = must(pool.map<std::uint64_t, Bytes>("m"));
  const std::string value(1'000, 'v');
  std::uint64_t refused = 0;
  for (std::uint64_t i = 0; i < 5'000 && refused < 20; ++i) {
    refused += code_of(map.insert(i, value)) == StatusCode::pool_full ? 1 : 0;
  }
  ASSERT_EQ(refused, 20U);
  EXPECT_EQ(lines.count(LogLevel::warning, "growth was refused: the pool is full"), 1U)
      << lines.all();
}

TEST(Log, SaysThatAnUntrustedPoolIsAccepted) {
  TempPath path, copy("copy");
  {
    Pool pool = open_pool(path, {.max_size = 4_MiB, .background_threads = 0});
    fill(pool, Engine::phast, 300);
    write_bytes(copy, read_bytes(path));
  }
  Lines refusal, acceptance;
  EXPECT_EQ(code_of(Pool::open(copy, refusal.with({}))), StatusCode::untrusted);
  EXPECT_EQ(refusal.all(), "") << "the status says it";
  Pool pool = open_pool(copy, acceptance.with({.accept_untrusted = true}));
  EXPECT_EQ(acceptance.count(LogLevel::warning, "was not trusted (the file is a copy"), 1U)
      << acceptance.all();
  EXPECT_EQ(acceptance.count(LogLevel::warning, "found nothing"), 1U) << acceptance.all();
}

TEST(Log, SaysOnceThatAPoolIsPoisoned) {
  TempPath path;
  Lines lines;
  Pool pool = open_pool(path, lines.with({.handle_sigbus = true, .max_size = 64_MiB}));
  fill(pool, Engine::phast, 20'000);
  ASSERT_EQ(truncate(path.str().c_str(), 8192), 0);
  auto map = must(pool.map<std::uint64_t, std::uint64_t>("m"));
  std::uint64_t failures = 0;
  for (std::uint64_t i = 0; i < 20'000; ++i) failures += map.get(mix(i)).has_value() ? 0 : 1;
  EXPECT_GT(failures, 1U);
  EXPECT_EQ(lines.count(LogLevel::error, "the file became shorter"), 1U) << lines.all();
}

TEST(Log, LevelsHaveNames) {
  EXPECT_EQ(log_level_name(LogLevel::info), "info");
  EXPECT_EQ(log_level_name(LogLevel::warning), "warning");
  EXPECT_EQ(log_level_name(LogLevel::error), "error");
}

}  // namespace
}  // namespace perdure::test
