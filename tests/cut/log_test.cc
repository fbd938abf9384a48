// test: explores, nightly
// The log of epochs on a simulated disk: after a power failure at any call, also while it recovers
// or after a failed call, the pool is as at one of its cuts, and no older than the last commit().
#include "tests/cut/log_trials.h"

#include <cstdio>

#include "testing/disk/disk_explorer.h"
#include "tests/support/violates.h"

namespace perdure::disk {
namespace {

using test::scaled;

DiskReport explore(const Trial& trial, History& history) {
  history = {};
  const bool fails = trial.failing_call != 0 || trial.killed_at != 0;
  const bool both = trial.failing_call != 0 && trial.killed_at != 0;
  const std::uint64_t trouble =
      both ? std::min(trial.failing_call, trial.killed_at) : trial.failing_call + trial.killed_at;
  // Before the call that fails all is as without it.
  constexpr std::uint64_t kCallsOfCreate = 4;
  const DiskExploration exploration{.all_below = fails ? 4U : 64U,
                                    .random = fails ? 3U : 12U,
                                    .second_failure = trial.second_failure ? 40U : 0U,
                                    .first_point = fails ? trouble + kCallsOfCreate : 0,
                                    .replay = replayed()};
  DiskReport report = explore_disk(
      exploration, [&](SimFileSystem& files) { Work(files, history).run(trial); },
      [&](SimFileSystem& image) {
        std::string wrong = judge(image, history, history.durable);
        return wrong.empty() && history.created ? go_on(image) : wrong;
      });
  if (history.stuck.empty() || report.failures != 0) return report;
  report.failures = 1;
  report.first_failure = history.stuck;
  return report;
}

TEST(Log, KeepsEveryCommitThroughPowerFailures) {
  shape_of_trials = kGrowing;
  History of_growing;
  const DiskReport growing = explore({}, of_growing);
  EXPECT_EQ(growing.failures, 0) << growing.first_failure;
  shape_of_trials = kShape;
  History history;
  const DiskReport report = explore({.second_failure = true}, history);
  EXPECT_EQ(report.failures, 0) << report.first_failure;
  if (!replayed().empty()) return;
  EXPECT_GT(report.points, 150);
  EXPECT_GT(report.images, 1'500);
  EXPECT_GT(report.second_images, 500);
  std::printf("%llu points, %llu images, %llu of them of a second failure\n",
              static_cast<unsigned long long>(report.points),
              static_cast<unsigned long long>(report.images),
              static_cast<unsigned long long>(report.second_images));
}

TEST(Log, KeepsThemAfterAFailureOfEachCall) {
  History history;
  (void)explore({}, history);
  const std::uint64_t calls = history.calls;
  EXPECT_GT(calls, 120);
  std::uint64_t images = 0;
  for (std::uint64_t call = 1; call <= calls; call += scaled(1, 40, 120)) {
    for (const bool forgets : {false, true}) {
      const DiskReport report = explore({.failing_call = call, .forgets = forgets}, history);
      ASSERT_EQ(report.failures, 0) << "call " << call << ": " << report.first_failure;
      images += report.images;
    }
  }
  if (replayed().empty()) {
    EXPECT_GT(images, scaled(150'000, 10'000, 1'000));
  }
  std::printf("%llu calls, %llu images\n", static_cast<unsigned long long>(calls),
              static_cast<unsigned long long>(images));
}

// A try has the segments of the one before. One that was begun, and has no mark, is finished.
TEST(Log, KeepsThemAfterTriesThatFailAgain) {
  History history;
  (void)explore({}, history);
  const std::uint64_t calls = history.calls;
  std::mt19937_64 random(13);
  std::uint64_t images = 0;
  for (std::uint64_t i = 0; i < scaled(300, 5, 2); ++i) {
    shape_of_trials = i % 2 == 0 ? kShape : kGrowing;
    const Trial trial{
        .failing_call = 1 + random() % calls, .forgets = i % 3 == 0, .again = 1 + random() % 14};
    const DiskReport report = explore(trial, history);
    ASSERT_EQ(report.failures, 0) << "call " << trial.failing_call << ", again " << trial.again
                                  << ": " << report.first_failure;
    images += report.images;
  }
  std::printf("%llu images\n", static_cast<unsigned long long>(images));
  shape_of_trials = kShape;
}

TEST(Log, KeepsThemIfTheProcessIsKilledBeforeACall) {
  History history;
  (void)explore({}, history);
  const std::uint64_t calls = history.calls;
  std::uint64_t images = 0;
  for (std::uint64_t call = 1; call <= calls; call += scaled(1, 90, 120)) {
    const DiskReport report = explore({.killed_at = call}, history);
    ASSERT_EQ(report.failures, 0) << "call " << call << ": " << report.first_failure;
    images += report.images;
  }
  std::printf("%llu images\n", static_cast<unsigned long long>(images));
}

TEST(Log, KeepsThemAfterAKillAndAFailure) {
  History history;
  (void)explore({}, history);
  const std::uint64_t calls = history.calls;
  std::mt19937_64 random(11);
  std::uint64_t images = 0;
  for (std::uint64_t i = 0; i < scaled(1'000, 9, 4); ++i) {
    shape_of_trials = i % 2 == 0 ? kShape : kGrowing;
    const Trial trial{.failing_call = 1 + random() % calls,
                      .forgets = i % 3 == 0,
                      .killed_at = 1 + random() % calls};
    const DiskReport report = explore(trial, history);
    ASSERT_EQ(report.failures, 0) << "call " << trial.failing_call << ", kill " << trial.killed_at
                                  << ": " << report.first_failure;
    images += report.images;
  }
  std::printf("%llu images\n", static_cast<unsigned long long>(images));
  shape_of_trials = kShape;
}

// --- damage --------------------------------------------------------------------------------------

struct Damage {
  std::string file;
  std::uint64_t offset = 0;  // of the byte that is changed; SIZE_MAX: the file goes
};

std::vector<Damage> all_damage(SimFileSystem& files) {
  std::vector<Damage> all;
  for (const std::uint64_t copy : {0, 1}) {
    for (std::uint64_t i = 0; i < sizeof(layout::BaseMark); ++i)
      all.push_back(
          {.file = "base", .offset = copy * layout::kMarkStride + layout::kMarkOffset + i});
  }
  const Status listed = files.list("log", [&](std::string_view name) {
    const std::string file = "log/" + std::string(name);
    all.push_back({.file = file, .offset = SIZE_MAX});
    for (std::uint64_t at = 0; at < kShape.segment_bytes; at += at % kPage < 256 ? 1 : 37)
      all.push_back({.file = file, .offset = at});
  });
  if (listed != StatusCode::not_found) must(listed);
  return all;
}

void damage(SimFileSystem& files, const Damage& damage) {
  if (damage.offset == SIZE_MAX) return must(files.remove(damage.file));
  auto file = must(files.open(damage.file, FileSystem::Open::existing));
  std::byte byte{};
  (void)must(files.read(file, &byte, 1, damage.offset));
  byte ^= std::byte{0x10};
  must(files.write(file, &byte, 1, damage.offset));
}

// Returns what is wrong after any one damage, or nothing.
std::string after_damage(const SimFileSystem& files, const History& history, std::uint64_t& refused,
                         std::size_t from, std::size_t stride = 1) {
  SimFileSystem source = files;
  const std::vector<Damage> all = all_damage(source);
  for (std::size_t i = 0; i < all.size(); i += stride) {
    const Damage& each = all[i];
    SimFileSystem damaged = files;
    damage(damaged, each);
    const std::string wrong = judge(damaged, history, from);
    refused += wrong.starts_with("open: ") ? 1 : 0;
    if (wrong.empty() || wrong.starts_with("open: log") || wrong.starts_with("open: both"))
      continue;
    return each.file + " at " + std::to_string(each.offset) + ": " + wrong;
  }
  return {};
}

TEST(Log, IsNeverSilentlyShorterAfterDamage) {
  SimFileSystem files;
  History history;
  Work work(files, history);
  work.run({});
  std::uint64_t refused = 0;
  EXPECT_EQ(after_damage(files, history, refused, history.durable), "");
  EXPECT_GT(refused, 500);
  must(work.owner().close());
  refused = 0;
  EXPECT_EQ(after_damage(files, history, refused, history.durable), "");
  EXPECT_EQ(refused, 0);  // one copy of the mark is enough
}

// The first byte of the last part of the last epoch.
Damage last_part(SimFileSystem& files) {
  Damage last;
  layout::PartHead greatest{};
  must(files.list("log", [&](std::string_view name) {
    const std::string path = "log/" + std::string(name);
    const auto file = must(files.open(path, FileSystem::Open::existing));
    for (std::uint64_t at = kPage; at < kShape.segment_bytes; at += kPage) {
      layout::PartHead head{};
      (void)must(files.read(file, &head, sizeof(head), at));
      const bool later = head.epoch > greatest.epoch ||
                         (head.epoch == greatest.epoch && head.part > greatest.part);
      if (head.magic != layout::kPartMagic || !later) continue;
      greatest = head;
      last = {.file = path, .offset = at};
    }
  }));
  return last;
}

// A power failure while it folds, and then a damage: the base may have lines of all epochs.
// `failing`: a call of the last epoch; 0: none.
std::string wrong_after_half_a_fold(std::uint64_t failing) {
  std::uint64_t refused = 0;
  History history;
  const DiskReport report = explore_disk(
      {.all_below = 16, .random = 3},
      [&](SimFileSystem& files) { Work(files, history).run_fold(failing, [] {}); },
      [&](SimFileSystem& image) {
        const bool folds = history.cuts.size() > 4 && history.durable + 1 == history.cuts.size();
        // Without the last epoch it is older, if the base has nothing of it.
        return folds ? after_damage(image, history, refused, 0, 31) : std::string();
      });
  if (report.failures != 0) return report.first_failure;
  return refused > 100 ? "" : "nothing was refused";
}

// An epoch cannot be read any more, so nothing is folded.
std::string wrong_fold_of_damage() {
  History history;
  bool folded = false;
  const DiskReport report = explore_disk(
      {.random = 4},
      [&](SimFileSystem& files) {
        Work work(files, history);
        work.run_fold(0, [&] {
          Damage last = last_part(files);
          last.offset += sizeof(layout::PartHead);
          damage(files, last);
        });
        folded = work.folded().ok();
      },
      [&](SimFileSystem& image) {
        if (history.cuts.size() < 5) return std::string();
        return judge(image, history, 0);
      });
  if (report.failures != 0) return report.first_failure;
  return folded ? "it says that it has folded" : "";
}

// What replaces the log after a restart is damaged: then the log is still there.
std::string wrong_after_restart() {
  SimFileSystem files;
  History history;
  Work(files, history).run({});
  if (std::string wrong = judge(files, history, history.durable); !wrong.empty()) return wrong;
  std::uint64_t refused = 0;
  return after_damage(files, history, refused, history.durable, test::at_length() ? 3 : 7);
}

// The same if the power fails again before the first epoch of the restart is whole.
std::string wrong_within_restart() {
  const std::size_t stride = test::at_length() ? 5 : 11;
  for (std::uint64_t call = 1; call < 30; call += 2) {
    SimFileSystem files;
    History history;
    Work(files, history).run({});
    files.kill_at(call);
    (void)judge(files, history, history.durable);
    files.kill_at(0);
    files.next_process();
    for (const bool all : {false, true}) {
      std::vector<std::uint32_t> states = files.undecided();
      for (std::uint32_t& state : states) state = all ? state - 1 : 0;
      std::uint64_t refused = 0;
      const SimFileSystem image = files.after_power_failure(states);
      const std::string wrong = after_damage(image, history, refused, history.durable, stride);
      if (!wrong.empty()) return "call " + std::to_string(call) + ": " + wrong;
    }
  }
  return {};
}

TEST(Log, KeepsWhatARestartReplaces) {
  EXPECT_EQ(wrong_after_restart(), "");
  EXPECT_EQ(wrong_within_restart(), "");
}
TEST(Log, NeedsItsEpochsAfterHalfAFold) {
  for (const std::uint64_t failing : {0, 1, 2}) {  // none; the write; the sync
    if (failing == 1 && !test::at_length()) continue;
    EXPECT_EQ(wrong_after_half_a_fold(failing), "");
  }
}
TEST(Log, FoldsNothingThatItCannotRead) { EXPECT_EQ(wrong_fold_of_damage(), ""); }

TEST(Log, LeavesTheLogOfAnotherPoolAlone) {
  SimFileSystem files;
  History history;
  Work work(files, history);
  work.run({});
  must(files.rename("base", "elsewhere"));
  create(files);
  Owner owner(files);
  const Status opened = owner.open();
  EXPECT_EQ(opened, StatusCode::exists);
  EXPECT_NE(opened.message().find("log/0000"), std::string_view::npos) << opened.message();
  must(files.remove("base"));
  must(files.rename("elsewhere", "base"));
  EXPECT_EQ(judge(files, history, history.durable), "");
}

// --- planted bugs --------------------------------------------------------------------------------

// A damage after a call has failed, perhaps with a kill soon after it, and all went on.
std::string wrong_after_failure(const Trial& trial) {
  SimFileSystem files;
  History history;
  Work(files, history).run(trial);
  std::uint64_t refused = 0;
  std::string wrong = history.stuck;
  // What the disk may have besides what a process reads: nothing of it, or all.
  for (const bool all : {false, true}) {
    std::vector<std::uint32_t> states = files.undecided();
    for (std::uint32_t& state : states) state = all ? state - 1 : 0;
    const SimFileSystem image = files.after_power_failure(states);
    if (wrong.empty()) wrong = after_damage(image, history, refused, history.durable, 11);
  }
  if (wrong.empty() && refused == 0) wrong = "nothing was refused";
  return wrong.empty() ? "" : "call " + std::to_string(trial.failing_call) + " failed; " + wrong;
}

TEST(Log, IsNeverSilentlyShorterAfterAFailureAndDamage) {
  History history;
  (void)explore({}, history);
  const std::uint64_t calls = history.calls;
  for (std::uint64_t call = 1; call <= calls; call += scaled(1, 29, 90)) {
    EXPECT_EQ(wrong_after_failure({.failing_call = call}), "");
    const std::uint64_t later = call + 1 + call % 3;
    EXPECT_EQ(wrong_after_failure({.failing_call = call, .forgets = true, .killed_at = later}), "");
  }
}

std::string wrong_of(const Trial& trial) {
  History history;
  return explore(trial, history).first_failure;
}
std::string wrong_of_damage() {
  SimFileSystem files;
  History history;
  Work(files, history).run({});
  std::uint64_t refused = 0;
  return after_damage(files, history, refused, history.durable);
}
std::string wrong_of_damage_when_closed() {
  SimFileSystem files;
  History history;
  Work work(files, history);
  work.run({});
  must(work.owner().close());
  std::uint64_t refused = 0;
  const std::string wrong = after_damage(files, history, refused, history.durable);
  return refused != 0 ? "a damaged mark refuses a closed pool" : wrong;
}
// The process is killed while it closes, and the next one while it begins a new log. Then one
// damaged byte of a mark does no harm to the base, which is complete.
std::string wrong_after_half_a_close() {
  for (std::uint64_t closing = 1; closing < 30; ++closing) {
    for (std::uint64_t beginning = 1; beginning < 12; ++beginning) {
      SimFileSystem files;
      History history;
      Work work(files, history);
      work.run({});
      files.kill_at(closing);
      (void)work.owner().close();
      files.next_process();
      BaseMarks marks(files, must(files.open("base", FileSystem::Open::existing)));
      must(marks.read());
      if (marks.mark().state != layout::BaseState::closed) continue;
      files.kill_at(beginning);
      Owner next(files);
      (void)next.open();
      files.kill_at(0);
      files.next_process();
      std::uint64_t refused = 0;
      std::string wrong = after_damage(files, history, refused, history.durable, 97);
      if (wrong.empty() && refused != 0) wrong = "refused";
      if (!wrong.empty()) return "close " + std::to_string(closing) + ": " + wrong;
    }
  }
  return {};
}
TEST(Log, NeedsOneMarkAfterHalfAClose) { EXPECT_EQ(wrong_after_half_a_close(), ""); }

std::vector<Planted> planted() {
  const auto power = [] { return wrong_of({}); };
  const auto power_twice = [] { return wrong_of({.second_failure = true}); };
  const auto call = [](std::uint64_t n) { return [n] { return wrong_of({.failing_call = n}); }; };
  const auto kill = [](std::uint64_t n) { return [n] { return wrong_of({.killed_at = n}); }; };
  const auto half_a_fold = [](std::uint64_t n) {
    return [n] { return wrong_after_half_a_fold(n); };
  };
  return {{"log.begin.mark", power},
          {"log.begin.names", power_twice},
          {"log.start.mark", kill(4)},
          {"log.start.other", wrong_after_half_a_close},
          {"log.mark.sync", power},
          {"log.folder.name", power},
          {"log.segment.sync", power},
          {"log.segment.head", power},
          {"log.segment.name", power},
          {"log.segment.newest", wrong_of_damage},
          {"log.segment.tried", call(12)},
          {"log.epoch.sync", power},
          {"log.resume.term", call(14)},
          {"log.restart.mark", wrong_within_restart},
          {"log.fold.read_back", wrong_fold_of_damage},
          {"log.fold.cut", power},
          {"log.part.pages", power},
          {"log.restart.pages", power},
          {"log.fold.folding", half_a_fold(0)},
          {"log.fold.sync", power},
          {"log.fold.folded", power},
          {"log.fold.durable", call(71)},
          {"log.close.mark", wrong_of_damage_when_closed},
          {"log.close.both", wrong_of_damage_when_closed},
          {"log.part.head", wrong_of_damage},
          {"log.part.body", power},
          {"log.scan.newest", wrong_of_damage},
          {"log.scan.replaced", wrong_within_restart},
          {"log.scan.known", wrong_of_damage},
          {"log.scan.folding", half_a_fold(0)}};
}

TEST(Assertions, log_E6) {
  SimFileSystem files;
  create(files);
  Owner owner(files);
  must(owner.open());
  const auto fill = [&] {
    for (int i = 0; i < 9; ++i) owner.log().add(0, line_of(1));
  };
  EXPECT_VIOLATES("log.E6", fill());
}

TEST(Assertions, fold_F1_and_F2) {
  SimFileSystem files;
  create(files);
  Owner owner(files);
  must(owner.open());
  owner.put(3, 5);
  must(owner.cut(false));
  Folding folding(files, must(files.open("base", FileSystem::Open::existing)), "base", "log",
                  owner.log(), kPiece);
  const auto zeros = [](std::uint64_t, std::byte* to) {
    std::memset(to, 0, kPage);
    return Expected<bool>(true);
  };
  must(folding.begin());
  EXPECT_TRUE(must(folding.copy(zeros)));
  EXPECT_VIOLATES("fold.F1", (void)folding.write());
  EXPECT_VIOLATES("fold.F2", (void)folding.end());
}

TEST(Log, NoticesEachPlantedBug) { expect_noticed(planted()); }

}  // namespace
}  // namespace perdure::disk
