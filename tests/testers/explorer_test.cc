// test: explores
// The explorer itself, on a table small enough to be obviously right: it passes the right table and
// fails every planted bug.
#include "testing/crash/explorer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <utility>

#include "tests/support/explorations.h"

namespace perdure::testing {
namespace {

// The mistake of the table.
enum class Bug {
  none,
  no_flush,            // an insert is not written back
  no_fence,            // nor fenced
  commit_first,        // the key is stored before the value
  split_lines,         // value and key lie in different lines and share one fence
  unlogged_update,     // an update writes a two-word value in place
  magic_first,         // create commits before the table is empty
  size_not_synced,     // nor is the file's length on the medium
  no_write_back,       // X1: recovery trusts a killed process's stores in the cache
  raw_store,           // a store past the platform
  forgets_on_close,    // close drops the last entry
  erase_not_flushed,   // an erase does not reach the medium
  hot_flag,            // recovery trusts a flag that a kill between two stores leaves
  slow_repair,         // only the third process in a row fails
  one_of_old,          // an update ignores stores of earlier inserts that are still in the cache:
  all_but_one_of_old,  // fatal if one line of them is there alone, or is alone missing
};

constexpr std::size_t kSlots = 12;
constexpr std::uint64_t kTableMagic = 0x7461626C65;

// Line 0 is the header. Slot i is {value, key} in line i / 2 + 1; key 0 means empty, and the key
// commits.
class Table : public Subject {
 public:
  explicit Table(Bug bug) : bug_(bug) {}

  Status create(SimMemory& memory) override {
    attach(memory);
    if (Status s = memory.allocate(0, 8192); !s.ok()) return s;
    if (bug_ != Bug::size_not_synced) memory.sync(0, 8192, "table.create.size");
    if (bug_ == Bug::magic_first) platform_->store(word(9), 0x1111);
    platform_->store(word(0), kTableMagic);
    platform_->flush(&word(0), 128, "table.create.magic"_site);
    platform_->fence("table.create.magic"_site);
    if (bug_ == Bug::magic_first) {
      platform_->store(word(9), 0);
      platform_->flush(&word(0), 128, "table.create.magic"_site);
      platform_->fence("table.create.magic"_site);
    }
    return {};
  }
  Status open(SimMemory& memory, std::uint64_t) override {
    attach(memory);
    if (memory.size() < 8192 || platform_->load(word(0)) != kTableMagic) {
      return StatusCode::corruption;
    }
    if (torn_notes()) return StatusCode::corruption;
    if (bug_ == Bug::slow_repair && !repair()) return StatusCode::corruption;
    const bool skipped = bug_ == Bug::hot_flag && platform_->load(word(1)) != 0;
    if (bug_ != Bug::no_write_back && !skipped) {
      platform_->flush(memory.base(), 8192, "table.open.write_back"_site);
      platform_->fence("table.open.write_back"_site);
    }
    return {};
  }
  Expected<bool> apply(const Op& op) override {
    const std::uint64_t key = to_word(op.key);
    const std::size_t slot = find(key);
    const bool present = slot < kSlots;
    switch (op.kind) {
      case OpKind::find:
        return present;
      case OpKind::erase:
        if (!present) return false;
        platform_->store(key_word(slot), 0);
        if (bug_ != Bug::erase_not_flushed) persist(slot, true);
        return true;
      case OpKind::insert:
      case OpKind::upsert:
      case OpKind::update:
        if (present ? op.kind == OpKind::insert : op.kind == OpKind::update) return false;
        return present ? update(slot, to_word(op.value), op.kind == OpKind::update)
                       : insert(key, to_word(op.value));
      default:
        return false;
    }
  }
  Expected<bool> lookup(const std::string& key, std::string& value) override {
    const std::size_t slot = find(to_word(key));
    if (slot == kSlots) return false;
    value = to_text(platform_->load(value_word(slot)));
    return true;
  }
  Status contents(Contents& out) override {
    for (std::size_t i = 0; i < kSlots; ++i) {
      const std::uint64_t key = platform_->load(key_word(i));
      if (key != 0) out.emplace_back(to_text(key), to_text(platform_->load(value_word(i))));
    }
    return {};
  }
  bool ordered() const override { return false; }
  void check(std::vector<std::string>& violations) override {
    for (std::size_t i = 0; i < kSlots; ++i) {
      const std::uint64_t key = platform_->load(key_word(i));
      if (key != 0 && find(key) != i) violations.push_back("key twice");
    }
  }
  Status close() override {
    if (bug_ == Bug::forgets_on_close) {
      platform_->store(key_word(0), 0);
      persist(0, true);
    }
    platform_->fence("table.close.data"_site);
    return {};
  }

 private:
  void attach(SimMemory& memory) {
    memory_ = &memory;
    platform_ = std::make_unique<SimPlatform>(memory);
  }
  static std::uint64_t to_word(const std::string& text) {
    std::uint64_t value = 0;
    std::memcpy(&value, text.data(), std::min<std::size_t>(text.size(), 8));
    return value;
  }
  static std::string to_text(std::uint64_t value) {
    return std::string(reinterpret_cast<const char*>(&value), 8);
  }
  std::uint64_t& word(std::size_t i) {
    return reinterpret_cast<std::uint64_t*>(memory_->base())[i];
  }
  std::uint64_t& value_word(std::size_t slot) { return word(8 + slot * 4); }
  std::uint64_t& key_word(std::size_t slot) {
    return bug_ == Bug::split_lines ? word(256 + slot * 8) : word(8 + slot * 4 + 1);
  }
  std::size_t find(std::uint64_t key) {
    std::size_t slot = 0;
    while (slot < kSlots && platform_->load(key_word(slot)) != key) ++slot;
    return slot;
  }
  void persist(std::size_t slot, bool fence) {
    platform_->flush(&value_word(slot), 16, "table.slot.persist"_site);
    if (bug_ == Bug::split_lines) platform_->flush(&key_word(slot), 8, "table.slot.persist"_site);
    if (fence) platform_->fence("table.slot.persist"_site);
  }
  bool takes_notes() const { return bug_ == Bug::one_of_old || bug_ == Bug::all_but_one_of_old; }
  // Every insert leaves a note in a line of its own. The first update relies on them.
  std::uint64_t& note(std::size_t slot) { return word(512 + slot * 8); }
  bool torn_notes() {
    if (!takes_notes() || platform_->load(word(3)) == 0) return false;
    std::size_t there = 0;
    for (std::size_t slot = 0; slot < kSlots; ++slot) there += platform_->load(note(slot));
    return there == (bug_ == Bug::one_of_old ? 1 : kSlots - 1);
  }
  // Counts the opens that a crash cut short. The third one fails.
  bool repair() {
    const std::uint64_t began = platform_->load(word(2));
    if (began >= 2) return false;
    platform_->store(word(2), began + 1);
    platform_->flush(&word(2), 8, "table.open.repair"_site);
    platform_->fence("table.open.repair"_site);
    platform_->store(word(2), 0);
    platform_->flush(&word(2), 8, "table.open.repair"_site);
    platform_->fence("table.open.repair"_site);
    return true;
  }
  Expected<bool> insert(std::uint64_t key, std::uint64_t value) {
    const std::size_t slot = find(0);
    if (slot == kSlots) return fail(StatusCode::pool_full);
    if (bug_ == Bug::raw_store) {
      value_word(slot) = value;
    } else if (bug_ == Bug::commit_first) {
      platform_->store(key_word(slot), key);
      platform_->store(value_word(slot), value);
    } else {
      platform_->store(value_word(slot), value);
    }
    platform_->store(key_word(slot), key);
    if (bug_ == Bug::hot_flag) {  // set and cleared without a fence in between
      platform_->store(word(1), 1);
      platform_->store(word(1), 0);
    }
    if (bug_ != Bug::no_flush) persist(slot, bug_ != Bug::no_fence);
    if (takes_notes()) platform_->store(note(slot), 1);
    return true;
  }
  Expected<bool> update(std::size_t slot, std::uint64_t value, bool result) {
    if (takes_notes()) {
      platform_->store(word(3), 1);
      platform_->flush(&word(3), 8, "table.update.notes"_site);
      platform_->fence("table.update.notes"_site);
    }
    if (bug_ == Bug::unlogged_update) {  // in two halves
      platform_->store(value_word(slot), value & 0xFFFFFFFF);
      persist(slot, true);
    }
    platform_->store(value_word(slot), value);
    persist(slot, true);
    return result;
  }

  Bug bug_;
  SimMemory* memory_ = nullptr;
  std::unique_ptr<SimPlatform> platform_;
};

std::string eight(const std::string& text) { return (text + "--------").substr(0, 8); }

Op random_op(Random& random) {
  static constexpr OpKind kKinds[] = {OpKind::insert, OpKind::insert, OpKind::upsert,
                                      OpKind::update, OpKind::erase,  OpKind::find};
  return {kKinds[random.below(6)], eight("key" + std::to_string(random.below(10))),
          eight(std::to_string(random.next() % 1'000'000'000))};
}

ExploreReport explore(Bug bug, std::uint64_t seed = 1, std::uint32_t second_in = 20) {
  Explorer explorer([bug] { return std::make_unique<Table>(bug); }, random_op,
                    {.name = "explorer_test",
                     .seed = seed,
                     .capacity = 1 << 16,
                     .battery = 30,
                     .second_in = second_in,
                     .kill_in = 2});
  return explorer.run(random_workload(random_op, seed, 40));
}

TEST(Explorer, TheRightTableIsGreen) {
  std::uint64_t images = 0;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const ExploreReport report = explore(Bug::none, seed);
    EXPECT_TRUE(report.ok());
    EXPECT_GE(report.images, at_least(40));
    EXPECT_GE(report.second_images, at_least(20));
    EXPECT_GE(report.kill_runs, at_least(5));
    EXPECT_TRUE(sanitized() || report.truncated == 0);
    images += report.images;
    std::printf("%s\n", report.summary().c_str());
  }
  EXPECT_GE(images, at_least(100));
}

class ExplorerBugs : public ::testing::TestWithParam<Bug> {};

TEST_P(ExplorerBugs, IsRed) {
  ::testing::internal::CaptureStderr();
  const ExploreReport report = explore(GetParam());
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_FALSE(report.ok());
  ASSERT_FALSE(report.failures.empty());
  EXPECT_NE(said.find(report.failures.front()), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Planted, ExplorerBugs,
                         ::testing::Values(Bug::no_flush, Bug::no_fence, Bug::commit_first,
                                           Bug::split_lines, Bug::unlogged_update, Bug::magic_first,
                                           Bug::size_not_synced, Bug::no_write_back, Bug::raw_store,
                                           Bug::forgets_on_close, Bug::erase_not_flushed));

TEST(Explorer, EveryMutantOfTheTablesSitesIsRed) {
  for (const char* name : {"table.slot.persist", "table.open.write_back"}) {
    for (const Mutant mutant : {Mutant::drop_flush, Mutant::drop_fence}) {
      EXPECT_TRUE(fails_in_child(
          [&] {
            const ScopedMutant scoped(name, mutant);
            return !scoped.matched() || explore(Bug::none).ok();
          },
          20))
          << name << ":" << mutant_name(mutant);
    }
  }
  EXPECT_FALSE(fails_in_child([] { return explore(Bug::none).ok(); }, 20));
}

// A flag is set and cleared before the next fence. Only a process killed between the two stores
// leaves it set while its other stores are not durable.
TEST(Explorer, APointAfterEveryStoreShowsWhatNoFenceDoes) {
  ::testing::internal::CaptureStderr();
  const auto explore_points = [](bool store_points) {
    Explorer explorer([] { return std::make_unique<Table>(Bug::hot_flag); }, random_op,
                      {.name = "explorer_stores",
                       .capacity = 1 << 16,
                       .battery = 0,
                       .kill_in = 1,
                       .second_ops = 0,
                       .store_points = store_points,
                       .explore_create = false});
    return explorer.run({{OpKind::insert, eight("key1"), eight("value")}});
  };
  EXPECT_TRUE(sanitized() || explore_points(false).ok());
  EXPECT_TRUE(sanitized() || !explore_points(true).ok());
  (void)::testing::internal::GetCapturedStderr();
}

TEST(Explorer, AThirdCrashShowsWhatASecondDoesNot) {
  ::testing::internal::CaptureStderr();
  const auto explore_depth = [](std::uint32_t third_in) {
    Explorer explorer([] { return std::make_unique<Table>(Bug::slow_repair); }, random_op,
                      {.name = "explorer_third",
                       .capacity = 1 << 16,
                       .battery = 4,
                       .second_in = 1,
                       .third_in = third_in,
                       .second_ops = 0,
                       .explore_create = false,
                       .close_at_end = false});
    return explorer.run({{OpKind::insert, eight("key1"), eight("value")}});
  };
  EXPECT_TRUE(explore_depth(0).ok());
  const ExploreReport report = explore_depth(1);
  (void)::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(sanitized() || !report.ok());
  EXPECT_TRUE(sanitized() || report.third_images > 0);
}

// Twelve lines stay pending since earlier operations, with 4,096 states. The images of a point that
// is not enumerated in full include each line alone, and all but each.
TEST(Explorer, AForgottenWriteBackOfAnOlderOperationIsRed) {
  ::testing::internal::CaptureStderr();
  for (const Bug bug : {Bug::one_of_old, Bug::all_but_one_of_old}) {
    std::vector<Op> ops;
    for (std::size_t i = 0; i < kSlots; ++i) {
      ops.push_back({OpKind::insert, eight("key" + std::to_string(i)), eight("value")});
    }
    ops.push_back({OpKind::update, eight("key1"), eight("other")});
    Explorer explorer([bug] { return std::make_unique<Table>(bug); }, random_op,
                      {.name = "explorer_old",
                       .capacity = 1 << 16,
                       .limits = {.product = 64, .random = 0, .sampled = 16},
                       .battery = 0,
                       .explore_create = false,
                       .close_at_end = false});
    const ExploreReport report = explorer.run(ops);
    EXPECT_TRUE(sanitized() || !report.ok());
    EXPECT_TRUE(sanitized() || report.truncated > 0);
    EXPECT_TRUE(sanitized() || report.bounded == 0);
  }
  (void)::testing::internal::GetCapturedStderr();
}

// Of many lines: none, all, each alone and all but each, including old ones, whatever the limits
// for the rest. Beyond the bound, recent lines come first, and the result says so.
TEST(Enumeration, EachLineAloneIsNeverLeftOut) {
  constexpr std::size_t kOld = 30, kRecent = 20;
  SimMemory memory(1 << 20);
  ASSERT_TRUE(memory.allocate(0, 1 << 16).ok());
  memory.sync(0, 1 << 16, "test");
  SimPlatform platform(memory);
  auto* words = reinterpret_cast<std::uint64_t*>(memory.base());
  for (std::size_t i = 0; i < kOld + kRecent; ++i) {
    if (i == kOld) memory.mark_recent();
    platform.store(words[i * 8], 1);
    platform.store(words[i * 8], 2);
  }
  const auto pending = memory.pending();
  ASSERT_EQ(pending.size(), kOld + kRecent);
  const auto singles = [&](std::uint32_t bound, bool& bounded) {
    const EnumerationLimits limits{.product = 4096, .random = 64, .sampled = bound};
    const Enumeration all = enumerate(memory, pending, limits, 7);
    EXPECT_FALSE(all.exhaustive);
    bounded = all.bounded;
    std::set<std::pair<std::size_t, bool>> seen;
    for (const Combination& c : all.combinations) {
      for (std::size_t i = 0; i < pending.size(); ++i) {
        auto hot = std::vector<std::uint32_t>(pending.size(), 0);
        auto cold = std::vector<std::uint32_t>(pending.size(), 2);
        hot[i] = 2;
        cold[i] = 0;
        if (c.choice == hot) seen.emplace(i, true);
        if (c.choice == cold) seen.emplace(i, false);
      }
    }
    return seen;
  };
  bool bounded = true;
  EXPECT_EQ(singles(60, bounded).size(), 2 * (kOld + kRecent));
  EXPECT_FALSE(bounded);
  const auto some = singles(kRecent + 4, bounded);
  EXPECT_TRUE(bounded);
  EXPECT_GE(some.size(), 2 * (kRecent + 4));
  for (std::size_t i = kOld; i < kOld + kRecent; ++i) {
    EXPECT_TRUE(some.contains({i, true}) && some.contains({i, false})) << i;
  }
}

// The skipped points are counted. With the judged ones they make up all points.
TEST(Explorer, SkippedPointsAreCounted) {
  const auto explore_every = [](std::uint32_t n) {
    Explorer explorer([] { return std::make_unique<Table>(Bug::none); }, random_op,
                      {.name = "explorer_skipped",
                       .capacity = 1 << 16,
                       .battery = 4,
                       .points_in = n,
                       .explore_create = false});
    return explorer.run(random_workload(random_op, 3, 40));
  };
  const ExploreReport all = explore_every(1);
  const ExploreReport some = explore_every(5);
  EXPECT_EQ(all.skipped, 0U);
  EXPECT_LT(some.points, all.points);
  EXPECT_EQ(some.points + some.skipped, all.points);
}

TEST(Explorer, SequencesShareWhatTheyHaveJudged) {
  Explorer explorer([] { return std::make_unique<Table>(Bug::none); }, random_op,
                    {.name = "explorer_sequences",
                     .capacity = 1 << 16,
                     .prepare = {{OpKind::insert, eight("key0"), eight("before")}},
                     .explore_create = false});
  const std::vector<Op> once{{OpKind::insert, eight("key1"), eight("value")}};
  const std::vector<Op> twice{once[0], {OpKind::erase, eight("key0"), {}}};
  const ExploreReport first = explorer.run(once);
  const ExploreReport both = explorer.run_all({once, twice});
  EXPECT_TRUE(first.ok() && both.ok());
  EXPECT_GT(first.verdicts, 0U);
  EXPECT_GT(both.verdicts, 0U) << "what the longer one adds";
  EXPECT_EQ(explorer.run_all({once, twice}).verdicts, 0U);
}

TEST(Explorer, AHangingRecoveryEndsTheProcess) {
  class Hanging : public Table {
   public:
    Hanging() : Table(Bug::none) {}
    Status open(SimMemory& memory, std::uint64_t boot) override {
      for (volatile bool forever = boot != 1; forever;) {
      }
      return Table::open(memory, boot);
    }
  };
  if (sanitized()) GTEST_SKIP() << "takes the whole timeout";
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(fails_in_child(
      [] {
        Explorer explorer([] { return std::make_unique<Hanging>(); }, random_op,
                          {.name = "explorer_hang", .capacity = 1 << 16, .verdict_seconds = 1});
        return explorer.run({}).ok();
      },
      600));
  (void)::testing::internal::GetCapturedStderr();
}

TEST(Explorer, AReplayJudgesOneImageAndFindsTheSameFailure) {
  ::testing::internal::CaptureStderr();
  const ExploreReport report = explore(Bug::no_flush);
  ASSERT_FALSE(report.ok());
  const std::string& text = report.failures.front();
  const std::size_t begin = text.find("PERDURE_REPLAY='") + std::strlen("PERDURE_REPLAY='");
  const std::string replay = text.substr(begin, text.find('\'', begin) - begin);
  setenv("PERDURE_REPLAY", replay.c_str(), 1);
  const ExploreReport again = explore(Bug::no_flush);
  unsetenv("PERDURE_REPLAY");
  (void)::testing::internal::GetCapturedStderr();
  EXPECT_EQ(again.violations, 1U);
  EXPECT_LE(again.verdicts, 1U);
  ASSERT_FALSE(again.failures.empty());
  EXPECT_EQ(again.failures.front(), text);
}

TEST(Explorer, EveryFenceOfTheTableIsCrossed) {
  const ExploreReport report = explore(Bug::none);
  for (const char* name : {"table.create.magic", "table.slot.persist"}) {
    EXPECT_TRUE(report.sites_crossed.contains(name)) << name;
  }
}

}  // namespace
}  // namespace perdure::testing
