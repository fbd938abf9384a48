// test: no asan
// The explorer of power failures of a disk: it accepts a log that is right and notices each bug
// that is planted in it.
#include "testing/disk/disk_explorer.h"

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "testing/disk/toy_log.h"
#include "tests/support/support.h"

namespace perdure::disk {
namespace {

using test::must;

struct Trial {
  ToyBug bug = ToyBug::none;
  std::uint64_t failing_call = 0;  // of those after the creation
  bool forgets = false;            // what was written before it
  bool damages = false;            // a byte of each segment, before the recovery
  bool second_failure = false;
};

// Of the words: what each cut was to make durable, and which one is known to be.
struct History {
  std::vector<ToyLog::Words> cuts;
  std::size_t durable = 0;
  bool created = false;
  std::uint64_t calls = 0;  // after the creation
  mutable std::uint64_t recovered = 0;
};

void work(SimFileSystem& files, const Trial& trial, History& history) {
  std::mt19937_64 random(7);
  ToyLog log(files, trial.bug);
  history.cuts.push_back(log.words());
  must(log.create());
  history.created = true;
  const std::uint64_t before = files.changes();
  files.fail_call(trial.failing_call, trial.forgets);
  for (int epoch = 1; epoch <= 9; ++epoch) {
    for (int i = 0; i < 3; ++i) log.put(random() % ToyLog::kWords, random());
    for (int attempt = 0; attempt < 3; ++attempt) {
      history.cuts.push_back(log.words());
      if (log.cut().ok()) {
        history.durable = history.cuts.size() - 1;
        break;
      }
      log.put(random() % ToyLog::kWords, random());
    }
    if (epoch % 3 == 0) (void)log.fold();  // a fold that failed is made up for by the next
  }
  history.calls = files.changes() - before;
}

// Changes a byte of the first record of each segment.
void damage(SimFileSystem& files) {
  std::vector<std::string> names;
  if (!files.list("log", [&](std::string_view name) { names.emplace_back(name); }).ok()) return;
  for (const std::string& name : names) {
    auto file = must(files.open("log/" + name, FileSystem::Open::existing));
    std::byte byte{};
    if (must(files.read(file, &byte, 1, 40)) != 1) continue;
    byte ^= std::byte{1};
    must(files.write(file, &byte, 1, 40));
    must(files.sync(file, kNoSite));
  }
}

std::string verdict(SimFileSystem& files, const Trial& trial, const History& history) {
  if (trial.damages) damage(files);
  ToyLog log(files, trial.bug);
  const Status recovered = log.recover();
  if (!history.created && recovered == StatusCode::not_found) return {};
  // What a damage takes away may be refused or be older, but it is never a mixture.
  if (trial.damages && recovered == StatusCode::untrusted) return {};
  if (!recovered.ok()) return "recover: " + std::string(recovered.message());
  ++history.recovered;
  const std::size_t first = trial.damages ? 0 : history.durable;
  for (std::size_t i = first; i < history.cuts.size(); ++i) {
    if (log.words() != history.cuts[i]) continue;
    // It goes on from there.
    SimFileSystem further = files;
    ToyLog next(further, trial.bug);
    if (!next.recover().ok()) return "a second recovery fails";
    next.put(3, 99);
    if (Status cut = next.cut(); !cut.ok()) return "cut: " + std::string(cut.message());
    ToyLog again(further, trial.bug);
    if (!again.recover().ok() || again.words() != next.words()) return "lost after a recovery";
    return {};
  }
  return "the words are of no cut from " + std::to_string(first) + " on";
}

DiskReport explore(const Trial& trial, History& history, const std::string& replay = replayed()) {
  history = {};
  // After a failure the same images as without one are of less interest.
  const DiskExploration exploration{.all_below = trial.failing_call != 0 ? 16U : 64U,
                                    .random = trial.failing_call != 0 ? 4U : 12U,
                                    .second_failure = trial.second_failure ? 5U : 0U,
                                    .replay = replay};
  return explore_disk(
      exploration, [&](SimFileSystem& files) { work(files, trial, history); },
      [&](SimFileSystem& image) { return verdict(image, trial, history); });
}

TEST(DiskExplorer, AcceptsALogThatIsRight) {
  History history;
  const DiskReport report = explore({.second_failure = true}, history);
  EXPECT_EQ(report.failures, 0) << report.first_failure;
  if (!replayed().empty()) return;
  EXPECT_GT(report.points, 60);
  EXPECT_GT(report.images, 1'000);
  EXPECT_GT(report.second_images, 500);
}

TEST(DiskExplorer, AcceptsItAfterAFailureOfEachCall) {
  History history;
  std::uint64_t images = explore({}, history).images;
  const std::uint64_t calls = history.calls;
  EXPECT_GT(calls, 80);
  for (std::uint64_t call = 1; call <= calls; ++call) {
    for (const bool forgets : {false, true}) {
      if (forgets && call % 3 != 0) continue;
      const DiskReport report = explore({.failing_call = call, .forgets = forgets}, history);
      EXPECT_EQ(report.failures, 0) << "call " << call << ": " << report.first_failure;
      images += report.images;
    }
  }
  if (replayed().empty()) {
    EXPECT_GT(images, 20'000);
  }
}

TEST(DiskExplorer, AcceptsItWithADamagedLog) {
  History history;
  const DiskReport report = explore({.damages = true}, history);
  EXPECT_EQ(report.failures, 0) << report.first_failure;
  if (!replayed().empty()) return;
  EXPECT_GT(history.recovered, 30);                  // to a state, older or not
  EXPECT_LT(history.recovered, report.images - 30);  // and some are refused
}

TEST(DiskExplorer, ReplaysOneImage) {
  const Trial trial{.bug = ToyBug::acknowledges_before_sync};
  History history;
  const DiskReport report = explore(trial, history, "");
  ASSERT_EQ(report.failures, 1) << "nothing is judged after it";
  const std::string image = report.first_failure.substr(0, report.first_failure.find(':'));
  const DiskReport again = explore(trial, history, image);
  EXPECT_EQ(again.images, 1);
  EXPECT_EQ(again.first_failure, report.first_failure);
}

// Each bug shows in one of these trials.
bool noticed(ToyBug bug) {
  History history;
  const auto fails = [&](const Trial& trial) { return explore(trial, history, "").failures != 0; };
  if (fails({.bug = bug}) || fails({.bug = bug, .damages = true})) return true;
  for (std::uint64_t call = 1; call <= 30; ++call) {
    if (fails({.bug = bug, .failing_call = call})) return true;
  }
  return false;
}

TEST(DiskExplorer, NoticesEachPlantedBug) {
  for (int bug = 1; bug <= static_cast<int>(kLastToyBug); ++bug)
    EXPECT_TRUE(noticed(static_cast<ToyBug>(bug))) << "bug " << bug;
}

}  // namespace
}  // namespace perdure::disk
