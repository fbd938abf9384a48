// test: no asan, nightly
// Backups on a simulated disk: the owner of a small pool goes on between any two calls of the
// backup, and each epoch of the backup must be the pool as it was cut then.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <map>
#include <random>
#include <string>

#include "backup/backup_reader.h"
#include "backup/backup_writer.h"
#include "testing/disk/disk_explorer.h"
#include "testing/disk/forwarding_files.h"
#include "tests/cut/log_trials.h"

namespace perdure::disk {
namespace {

using test::scaled;

constexpr BackupShape kTiny{.piece_bytes = kPage, .poll_ns = 0};
constexpr std::size_t kFirst = 2;  // the first lines are those of a header, which has the uuid

constexpr auto no_progress = [](std::uint64_t, std::uint64_t) {};

// Calls step() before each call.
class Interleaved final : public disk::ForwardingFiles {
 public:
  Interleaved(FileSystem& files, std::function<void()> step)
      : ForwardingFiles(files), step_(std::move(step)) {}

  Expected<File> open(std::string_view path, Open how) noexcept override {
    step_();
    return files_.open(path, how);
  }
  Expected<std::size_t> read(File file, void* buffer, std::size_t n,
                             std::uint64_t offset) noexcept override {
    step_();
    return files_.read(file, buffer, n, offset);
  }
  Status write(File file, const void* bytes, std::size_t n,
               std::uint64_t offset) noexcept override {
    step_();
    return files_.write(file, bytes, n, offset);
  }
  Status sync(File file, AnySite site) noexcept override {
    step_();
    return files_.sync(file, site);
  }
  bool lock(File file, Lock how) noexcept override {
    step_();
    return files_.lock(file, how);
  }
  Status list(std::string_view path, FunctionRef<void(std::string_view)> visit) noexcept override {
    step_();
    return files_.list(path, visit);
  }

 private:
  std::function<void()> step_;
};

// An owner that does this and that, and what the pool was at each epoch.
class Busy {
 public:
  Busy(SimFileSystem& files, std::uint64_t seed, std::uint64_t keep = 0)
      : files_(files), random_(seed), keep_(keep) {
    create(files_);
    owner_ = std::make_unique<Owner>(files_, keep_);
    must(owner_->open());
    note();
  }

  void cut() {
    const std::uint64_t lines = random_() % 5 == 0 ? 14 : 3;  // perhaps more than a part has
    for (std::uint64_t i = 0; i < lines; ++i) put();
    must(owner_->cut(random_() % 4 == 0));
    note();
  }
  void fold() {
    must(owner_->fold());
    ++folds_;
  }
  // In the middle of it cuts are made.
  void slow_fold() {
    cut();
    must(owner_->slow_fold([&] {
      put();
      cut();
      return Status();
    }));
    ++folds_;
  }
  void kill() {
    const EpochId durable = owner_->log().durable();
    auto next = std::make_unique<Owner>(files_, keep_);
    next->inherit(*owner_);
    must(next->open(durable));
    owner_ = std::move(next);
    cut();
  }
  // A cut whose write fails, and the next one.
  void fail() {
    put();
    files_.fail_call(1 + random_() % 2);
    (void)owner_->cut(false);
    files_.fail_call(0);
    if (!owner_->log().failure().ok()) owner_->log().resume();
    must(owner_->cut(false));
    note();
  }
  void confirm() {
    if (!owner_->clean()) return;
    must(owner_->log().confirm(kClock));
    note();
  }
  void step() {
    switch (random_() % 12) {
      case 0:
        return fold();
      case 1:
        return slow_fold();
      case 2:
        return kill();
      case 3:
        return fail();
      case 4:
        return confirm();
      default:
        return cut();
    }
  }
  // Another process after a power failure.
  void restart() {
    std::vector<std::uint32_t> nothing(files_.undecided().size(), 0);
    files_ = files_.after_power_failure(nothing);
    owner_ = std::make_unique<Owner>(files_, keep_);
    must(owner_->open());
    must(owner_->cut(false));
    note();
  }
  Owner& owner() { return *owner_; }
  const std::map<std::uint64_t, Content>& at() const { return at_; }
  std::mt19937_64& random() { return random_; }
  int folds() const { return folds_; }

 private:
  void put() { owner_->put(kFirst + random_() % (kNumbers.size() - kFirst), random_() | 1); }
  void note() { at_[owner_->log().durable().epoch] = owner_->now(); }

  SimFileSystem& files_;
  std::mt19937_64 random_;
  std::uint64_t keep_;
  std::unique_ptr<Owner> owner_;
  std::map<std::uint64_t, Content> at_;
  int folds_ = 0;
};

// The content of a file that a backup was written to.
Content content_of(SimFileSystem& files, FileSystem::File file) {
  Content content{};
  for (std::size_t i = 0; i < content.size(); ++i) {
    LineWords line{};
    (void)must(files.read(file, &line, sizeof(line), kNumbers[i] * kLine));
    content[i] = line.words[0];
    if (std::memcmp(&line, line_of(content[i]).words, sizeof(line)) != 0) content[i] = ~0ULL;
  }
  return content;
}

std::string restore(SimFileSystem& files, BackupReader& backup, const layout::BackupEpoch& epoch,
                    const Content& expected) {
  (void)files.remove("out");
  const auto out = must(files.open("out", FileSystem::Open::fresh));
  Status s = backup.write_to(out, epoch, no_progress);
  if (!s.ok()) return "restore: " + std::string(s.message());
  if (content_of(files, out) != expected)
    return "epoch " + std::to_string(epoch.epoch) + " is another state";
  BaseMarks marks(files, out);
  must(marks.read());
  if (marks.mark().state != layout::BaseState::closed) return "it is not closed";
  return {};
}

// What is wrong with the backup, or nothing. `least`: an epoch that it must have.
std::string judge_backup(SimFileSystem& files, const std::map<std::uint64_t, Content>& at,
                         std::uint64_t least, std::uint64_t* epochs = nullptr) {
  BackupReader backup(files, "dir");
  if (Status s = backup.read(); !s.ok()) return "read: " + std::string(s.message());
  if (Status s = backup.scan(); !s.ok()) return "scan: " + std::string(s.message());
  if (backup.last().epoch < least) return "it is older than the call";
  const std::size_t stride = backup.count() / 24 + 1;
  for (std::size_t i = 0; i < backup.count(); ++i) {
    if (i % stride != 0 && i + 1 != backup.count()) continue;
    const layout::BackupEpoch& epoch = backup.epoch(i);
    const auto known = at.find(epoch.epoch);
    // An epoch whose cut returned an error may be durable; the next one has another number then.
    if (known == at.end()) continue;
    std::string wrong = restore(files, backup, epoch, known->second);
    if (!wrong.empty()) return wrong;
    if (epochs != nullptr) ++*epochs;
  }
  return {};
}

Status back_up(FileSystem& files, EpochId least = {}) {
  BackupWriter writer(files, {.base = "base", .log = "log", .least = least}, files, "dir",
                      no_progress, kTiny);
  return writer.run();
}

TEST(Backup, IsThePoolAtEachOfItsEpochs) {
  std::uint64_t epochs = 0, busy = 0, extended = 0, ended = 0, folds = 0;
  const std::uint64_t seeds = scaled(20'000, 600, 200);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SimFileSystem files;
    const bool keeps = seed % 3 == 0;  // most of the log
    Busy owner(files, seed, keeps ? 400 * kPage : 0);
    for (int i = 0; i < 5; ++i) owner.step();
    const int rarely = 5 + static_cast<int>(seed % 60);
    Interleaved interleaved(files, [&] {
      if (owner.random()() % rarely == 0) owner.step();
    });
    for (int addition = 0; addition < 3; ++addition) {
      const EpochId durable = owner.owner().log().durable();
      const int before = owner.folds();
      const Status s = back_up(interleaved, durable);
      folds += static_cast<std::uint64_t>(owner.folds() - before);
      const bool refused = addition > 0 && s == StatusCode::exists;
      ASSERT_TRUE(s.ok() || s == StatusCode::busy || refused)
          << "seed " << seed << ": " << s.message();
      busy += s == StatusCode::busy ? 1 : 0;
      const bool again = s.message().find("begun again") != std::string_view::npos;
      ASSERT_TRUE(s.ok() || !keeps || rarely < 20 || again)
          << "seed " << seed << ": " << s.message();
      ended += refused ? 1 : 0;
      extended += s.ok() && addition > 0 ? 1 : 0;
      if (addition == 0 && !s.ok()) break;
      const std::string wrong =
          judge_backup(files, owner.at(), s.ok() ? durable.epoch : 0, &epochs);
      ASSERT_EQ(wrong, "") << "seed " << seed << ", addition " << addition;
      for (int i = 0; i < 2; ++i) owner.step();
    }
  }
  EXPECT_GT(extended, seeds / 2);
  EXPECT_GT(ended, seeds / 20);
  EXPECT_LT(busy, seeds / 5);
  EXPECT_GT(folds, 10 * seeds);
  EXPECT_GT(epochs, 15 * seeds);
  std::printf(
      "%llu epochs restored; %llu additions, %llu refused; %llu backups gave up; %llu folds "
      "meanwhile\n",
      static_cast<unsigned long long>(epochs), static_cast<unsigned long long>(extended),
      static_cast<unsigned long long>(ended), static_cast<unsigned long long>(busy),
      static_cast<unsigned long long>(folds));
}

// --- power failures ------------------------------------------------------------------------------

// A backup and two additions, while the owner folds and makes cuts between their calls; the power
// fails at each call.
DiskReport explore() {
  std::unique_ptr<Busy> owner;
  std::uint64_t acknowledged = 0;  // the last epoch of the backup
  const bool length = test::at_length();
  return explore_disk(
      {.all_below = 16,
       .random = 4,
       .alone = length ? 24U : 4U,
       .second_failure = length ? 100U : 1'500U,
       .replay = replayed()},
      [&](SimFileSystem& files) {
        owner = std::make_unique<Busy>(files, 5, 32 * kPage);
        acknowledged = 0;
        for (int i = 0; i < 4; ++i) owner->cut();
        std::uint64_t calls = 0;
        Interleaved interleaved(files, [&] {
          if (++calls % 23 != 0) return;
          owner->cut();
          if (calls % 69 == 0) owner->fold();
        });
        for (int addition = 0; addition < 3; ++addition) {
          must(back_up(interleaved, owner->owner().log().durable()));
          BackupReader backup(files, "dir");
          must(backup.read());
          acknowledged = backup.head().last.epoch;
          owner->cut();
        }
        // Before it what the last addition has left is judged.
        must(files.sync_folder(".", kNoSite));
        owner.reset();  // before its files go
      },
      [&](SimFileSystem& image) -> std::string {
        if (owner == nullptr || owner->at().size() < 5) return {};
        BackupReader backup(image, "dir");
        const Status found = backup.read();
        if (found == StatusCode::not_found) {
          if (acknowledged != 0) return "the backup is gone";
        } else if (std::string wrong = judge_backup(image, owner->at(), acknowledged);
                   !wrong.empty()) {
          return wrong;
        }
        const Status next = back_up(image);
        if (!next.ok() && (!found.ok() || next != StatusCode::exists))
          return "next: " + std::string(next.message());
        return judge_backup(image, owner->at(), acknowledged);
      });
}

TEST(Backup, KeepsWhatItHasThroughPowerFailures) {
  const DiskReport report = explore();
  EXPECT_EQ(report.failures, 0) << report.first_failure;
  if (!replayed().empty()) return;
  EXPECT_GT(report.points, 100);
  EXPECT_GT(report.images, 2'000);
  std::printf("%llu points, %llu images\n", static_cast<unsigned long long>(report.points),
              static_cast<unsigned long long>(report.images));
}

// An addition whose n-th call fails, and then the pool goes on until the segment that it was about
// is used again. The next one must not count what the first has left, because that is not on the
// disk.
std::string after_failed_additions() {
  for (std::uint64_t call = 1; call < 60; ++call) {
    for (const bool killed : {false, true}) {
      SimFileSystem files;
      Busy owner(files, 9);
      for (int i = 0; i < 2; ++i) owner.cut();
      must(back_up(files));
      for (int i = 0; i < 2; ++i) owner.cut();
      (killed ? files.kill_at(call) : files.fail_call(call));
      const bool failed = !back_up(files).ok();
      files.fail_call(0);
      files.kill_at(0);
      files.next_process();
      if (!failed) return {};
      for (int i = 0; i < 3; ++i) {
        owner.cut();
        if (i == 0) owner.fold();
      }
      const Status next = back_up(files, owner.owner().log().durable());
      if (!next.ok() && next != StatusCode::exists) return "next: " + std::string(next.message());
      const std::uint64_t least = next.ok() ? owner.at().rbegin()->first : 0;
      for (const bool all : {false, true}) {
        std::vector<std::uint32_t> states = files.undecided();
        for (std::uint32_t& state : states) state = all ? state - 1 : 0;
        SimFileSystem image = files.after_power_failure(states);
        std::string wrong = judge_backup(image, owner.at(), least);
        if (!wrong.empty()) return "call " + std::to_string(call) + ": " + wrong;
      }
    }
  }
  return "no addition came to its end";
}

TEST(Backup, CountsNothingThatAFailedAdditionHasLeft) { EXPECT_EQ(after_failed_additions(), ""); }

// --- damage --------------------------------------------------------------------------------------

// The names of a backup's files.
std::vector<std::string> files_of(SimFileSystem& files) {
  std::vector<std::string> all{"dir/base", "dir/backup"};
  must(files.list("dir/log",
                  [&](std::string_view name) { all.push_back("dir/log/" + std::string(name)); }));
  return all;
}

// Damages a byte in `stride` of each file, and restores the last epoch.
std::string after_damage(std::uint64_t stride, std::uint64_t& refused) {
  SimFileSystem files;
  Busy owner(files, 3);
  for (int i = 0; i < 6; ++i) owner.cut();
  must(back_up(files));
  owner.cut();
  owner.confirm();
  must(back_up(files));
  for (const std::string& name : files_of(files)) {
    const auto size = must(files.size(must(files.open(name, FileSystem::Open::reading))));
    for (std::uint64_t at = 0; at < size; at += stride) {
      SimFileSystem damaged = files;
      const auto file = must(damaged.open(name, FileSystem::Open::existing));
      std::byte byte{};
      (void)must(damaged.read(file, &byte, 1, at));
      byte ^= std::byte{0x10};
      must(damaged.write(file, &byte, 1, at));
      const std::uint64_t last = owner.at().rbegin()->first;
      const std::string wrong = judge_backup(damaged, owner.at(), last);
      refused += wrong.find("use another backup") != std::string::npos ||
                         wrong.starts_with("scan: ") || wrong.starts_with("read: ")
                     ? 1
                     : 0;
      if (wrong.find("another state") != std::string::npos)
        return name + " at " + std::to_string(at) + ": " + wrong;
    }
  }
  return {};
}

TEST(Backup, IsRefusedOrWholeAfterDamage) {
  std::uint64_t refused = 0;
  EXPECT_EQ(after_damage(scaled(1, 7, 37), refused), "");
  EXPECT_GT(refused, 100);
}

TEST(Backup, RefusesAFolderThatItCannotGoOnWith) {
  SimFileSystem files;
  Busy owner(files, 3);
  owner.cut();
  must(files.make_folder("dir"));
  must(files.sync_folder(".", kNoSite));
  (void)must(files.open("dir/thesis.doc", FileSystem::Open::fresh));
  EXPECT_EQ(back_up(files), StatusCode::exists);
  EXPECT_TRUE(files.open("dir/thesis.doc", FileSystem::Open::reading).has_value());
  must(files.remove("dir/thesis.doc"));
  must(back_up(files));
  // After a restart what the backup has could be replaced.
  owner.cut();
  must(back_up(files));
  const std::map<std::uint64_t, Content> before = owner.at();
  owner.restart();
  const Status s = back_up(files);
  EXPECT_EQ(s, StatusCode::exists);
  EXPECT_NE(s.message().find("another folder"), std::string_view::npos) << s.message();
  EXPECT_EQ(judge_backup(files, before, 0), "");
}

TEST(Backup, FindsTheEpochOfATime) {
  SimFileSystem files;
  create(files);
  Owner owner(files);
  must(owner.open());
  const auto cut_at = [&](std::uint64_t unix_ns) {
    must(owner.log().make_room());
    owner.log().add(kNumbers[3], line_of(unix_ns));
    must(owner.log().commit(kSmall, unix_ns));
    return owner.log().durable().epoch;
  };
  const std::uint64_t first = cut_at(1'000);
  const std::uint64_t second = cut_at(2'000);
  const std::uint64_t third = cut_at(3'000);
  const std::uint64_t back = cut_at(2'500);
  const std::uint64_t last = cut_at(4'000);
  must(back_up(files, owner.log().durable()));
  BackupReader backup(files, "dir");
  must(backup.read());
  must(backup.scan());
  const std::uint64_t end = backup.head().ends_unix_ns;
  EXPECT_EQ(must(backup.at_time(1'000)).epoch, first);
  EXPECT_EQ(must(backup.at_time(1'999)).epoch, first);
  EXPECT_EQ(must(backup.at_time(2'400)).epoch, second);
  EXPECT_EQ(must(backup.at_time(4'000)).epoch, last);
  EXPECT_EQ(must(backup.at_time(end)).epoch, last);
  EXPECT_EQ(backup.at_time(999).error(), StatusCode::invalid_argument);
  EXPECT_EQ(backup.at_time(end + 1).error(), StatusCode::invalid_argument);
  const auto two = backup.at_time(2'600);  // the second, or the one after the clock was set back
  ASSERT_FALSE(two.has_value());
  const std::string names =
      "epochs " + std::to_string(second) + " and " + std::to_string(back) + " are both";
  EXPECT_NE(two.error().message().find(names), std::string_view::npos) << two.error().message();
  EXPECT_EQ(must(backup.at_epoch(third)).unix_ns, 3'000);
  EXPECT_EQ(backup.at_epoch(last + 1).error(), StatusCode::invalid_argument);
}

// --- planted bugs --------------------------------------------------------------------------------

std::string wrong_beside_folds() {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    SimFileSystem files;
    Busy owner(files, seed);
    for (int i = 0; i < 5; ++i) owner.step();
    Interleaved interleaved(files, [&] {
      if (owner.random()() % 9 == 0) owner.step();
    });
    if (!back_up(interleaved).ok()) continue;
    std::string wrong = judge_backup(files, owner.at(), 0);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

TEST(Backup, NoticesEachPlantedBug) {
  const auto power = [] { return explore().first_failure; };
  const auto damage = [] {
    std::uint64_t refused = 0;
    return after_damage(37, refused);
  };
  const Planted planted[] = {{"backup.folder.name", power},
                             {"backup.marker.sync", power},
                             {"backup.marker.name", power},
                             {"backup.base.sync", power},
                             {"backup.segment.sync", power},
                             {"backup.log.names", power},
                             {"backup.head.sync", power},
                             {"backup.names.sync", power},
                             {"backup.head.name", power},
                             {"backup.mark.folding", wrong_beside_folds},
                             {"backup.restore.mark", wrong_beside_folds},
                             {"backup.restore.both", wrong_beside_folds},
                             {"backup.base.sums", damage},
                             {"backup.trim.file", after_failed_additions},
                             {"backup.trim.sync", after_failed_additions}};
  expect_noticed(planted);
}

}  // namespace
}  // namespace perdure::disk
