// Trials of the log of epochs on a simulated disk: a small pool whose owner makes cuts, folds, is
// killed, goes on and closes, and what a disk must have after a power failure.
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "cut/epoch_log.h"
#include "cut/folding.h"
#include "testing/disk/sim_files.h"
#include "testing/sim/sim_platform.h"
#include "testing/sim/sites.h"
#include "tests/support/support.h"

namespace perdure::disk {

using test::must;
using testing::SimPlatform;
using Log = EpochLog;
using Reader = LogReader;

// Lines of a small pool, also beside the marks. It grows from four pages to eight.
inline constexpr std::array<std::uint64_t, 17> kNumbers{0,   1,   47,  56,  63,  64,  111, 120, 128,
                                                        129, 130, 200, 255, 256, 300, 383, 511};
inline constexpr std::size_t kEarly = 13;  // of them in the first four pages
inline constexpr std::uint64_t kSmall = 4 * kPage;
inline constexpr std::uint64_t kClock = 0x1234;  // at every cut
inline constexpr std::uint64_t kLarge = 8 * kPage;
using Content = std::array<std::uint64_t, kNumbers.size()>;  // a value for each line

// 3 parts a segment, and 8 lines a part.
inline constexpr LogShape kShape{.segment_bytes = 4 * kPage, .batch = 4};
// One part, one, 3, then 7.
inline constexpr LogShape kGrowing{
    .segment_bytes = 8 * kPage, .first_bytes = 2 * kPage, .batch = 4};
inline LogShape shape_of_trials = kShape;
inline constexpr std::uint32_t kPiece = 2;  // pages

inline LineWords line_of(std::uint64_t value) {
  LineWords line{};
  for (std::size_t i = 0; i < std::size(line.words) && value != 0; ++i) line.words[i] = value + i;
  return line;
}

// A pool's owner, in memory: what is stored, and what is dirty.
class Owner {
 public:
  explicit Owner(FileSystem& files, std::uint64_t keep = 0) : files_(files) {
    shape_.keep_bytes = keep;
  }

  // Opens the base, and the log if the base is open. `after`: the last epoch that a killed process
  // knew to be durable; its content stays in memory. Else the pool becomes what the disk has.
  Status open(std::optional<EpochId> after = {}) {
    auto base = files_.open("base", FileSystem::Open::existing);
    if (!base) return base.error();
    log_.emplace(files_, *base, "log", ".", shape_);
    folding_.emplace(files_, *base, "base", "log", *log_, kPiece);
    if (Status s = log_->read_marks(); !s.ok()) return s;
    const layout::BaseMark mark = log_->marks().mark();
    if (!after) now_ = content_of(*base);
    if (mark.state != layout::BaseState::open) return log_->begin(fresh_id());
    Reader reader(files_, "log");
    if (Status s = reader.scan(mark); !s.ok()) return s;
    if (after) {
      return log_->go_on(reader, *after);
    }
    Status s =
        reader.replay([&](std::uint64_t line, const LineWords& content) { take(line, content); });
    if (!s.ok()) return s;
    const LogEnd& end = reader.end();
    large_ = end.pool_bytes > kSmall;
    const bool written = end.pool_bytes == (large_ ? kLarge : kSmall) && end.unix_ns == kClock;
    if (end.pool_bytes != 0 && !written) return {StatusCode::corruption};
    return log_->go_on(reader, {.epoch = mark.folded, .seal = mark.folded_seal});
  }
  void put(std::size_t i, std::uint64_t value) {
    if (i >= kEarly) large_ = true;
    now_[i] = value;
    dirty_.insert(i);
  }
  // A cut that has to try twice: what the first time copied is older.
  Status cut(bool twice) {
    for (int attempt = twice ? 0 : 1; attempt < 2; ++attempt) {
      std::uint32_t in_batch = 0;
      for (const std::size_t i : dirty_) {
        if (in_batch++ % kShape.batch == 0) {
          if (Status s = log_->make_room(); !s.ok()) return s;
        }
        log_->add(kNumbers[i], line_of(attempt == 0 ? now_[i] + 77 : now_[i]));
      }
    }
    Status s = log_->commit(large_ ? kLarge : kSmall, kClock);
    if (s.ok()) dirty_.clear();
    return s;
  }
  Status fold() { return folding_->fold_all(page_); }
  // A fold of which change() is called between the copy of a piece and its write: it returns ok
  // once a cut has all that was stored before. After an error this may be another owner.
  template <class F>
  Status slow_fold(F&& change) {
    Status s = folding_->begin();
    while (s.ok()) {
      auto copied = folding_->copy(page_);
      if (!copied || !*copied) break;
      if (s = change(); !s.ok()) return s;
      s = folding_->unread();
      if (s.ok()) s = folding_->read_back();
      if (s.ok()) s = folding_->allow();
      if (s.ok()) s = folding_->write();
    }
    if (s.ok()) s = folding_->end();
    if (!s.ok()) folding_->cancel();
    return s;
  }
  Status close() {
    Status s = folding_->fold_all(page_);
    return s.ok() ? log_->close() : s;
  }
  Log& log() { return *log_; }
  const Content& now() const { return now_; }
  bool clean() const { return dirty_.empty(); }

 private:
  static std::uint8_t (&fresh_id())[16] {
    static std::uint64_t last = 0;
    static std::uint8_t id[16];
    ++last;
    std::memcpy(id, &last, sizeof(last));
    return id;
  }
  Content content_of(FileSystem::File base) {
    Content content{};
    for (std::size_t i = 0; i < content.size(); ++i) {
      LineWords line{};
      (void)must(files_.read(base, &line, sizeof(line), kNumbers[i] * kLine));
      content[i] = line.words[0];
    }
    return content;
  }
  void take(std::uint64_t line, const LineWords& content) {
    const auto* found = std::ranges::find(kNumbers, line);
    ASSERT_NE(found, kNumbers.end());
    const auto i = static_cast<std::size_t>(found - kNumbers.begin());
    now_[i] = content.words[0];
    ASSERT_EQ(std::memcmp(&content, line_of(now_[i]).words, sizeof(content)), 0);
    dirty_.insert(i);
  }
  Expected<bool> copy_page(std::uint64_t page, std::byte* to) {
    std::memset(to, 0, kPage);
    for (std::size_t i = 0; i < now_.size(); ++i) {
      if (kNumbers[i] * kLine / kPage != page) continue;
      const LineWords line = line_of(now_[i]);
      std::memcpy(to + kNumbers[i] * kLine % kPage, &line, sizeof(line));
    }
    return true;
  }

  FileSystem& files_;
  LogShape shape_ = shape_of_trials;
  std::optional<Log> log_;
  std::optional<Folding> folding_;
  std::function<Expected<bool>(std::uint64_t, std::byte*)> copy_ =
      [this](std::uint64_t page, std::byte* to) { return copy_page(page, to); };
  PageContent page_{copy_};
  Content now_{};
  std::set<std::size_t> dirty_;
  bool large_ = false;

 public:
  // A process that goes on after a kill: what is in memory stays.
  void inherit(const Owner& killed) {
    now_ = killed.now_;
    dirty_ = killed.dirty_;
    large_ = killed.large_;
  }
};

// A bug, and a trial that notices it.
struct Planted {
  const char* site;
  std::function<std::string()> trial;
};
inline void expect_noticed(std::span<const Planted> planted) {
  for (const Planted& each : planted) {
    const testing::SiteInfo& site = testing::step_site(each.site);
    const std::uint64_t dropped = site.dropped_count;
    const testing::ScopedMutant mutant(each.site, testing::Mutant::skip_step);
    const std::string wrong = each.trial();
    EXPECT_NE(wrong, "") << each.site;
    EXPECT_GT(site.dropped_count, dropped) << each.site << ": no call has this site";
    std::printf("%s: %s\n", each.site, wrong.c_str());
  }
}

struct Trial {
  std::uint64_t failing_call = 0;  // of those after the creation
  bool forgets = false;            // what was written before it
  std::uint64_t again = 0;         // if a cut has failed: a call of the next two tries, too
  std::uint64_t killed_at = 0;     // a call, too
  bool second_failure = false;
};

struct History {
  std::vector<Content> cuts;  // that may be on the disk
  std::size_t durable = 0;    // the last that is known to be
  bool created = false;
  std::uint64_t calls = 0;
  std::string stuck;  // what the pool could not do although at most one call failed
};

// A pool of zeros without a log.
inline void create(SimFileSystem& files) {
  auto base = must(files.open("base", FileSystem::Open::fresh));
  must(files.allocate(base, 0, kSmall));
  must(files.sync(base, kNoSite));
  must(files.sync_folder(".", kNoSite));
}

class Work {
 public:
  Work(SimFileSystem& files, History& history) : files_(files), history_(history) {
    history_.cuts.emplace_back();
  }
  void run(const Trial& trial) {
    create(files_);
    history_.created = true;
    const std::uint64_t before = files_.changes();
    files_.fail_call(trial.failing_call, trial.forgets);
    files_.kill_at(trial.killed_at);
    again_ = trial.again;
    forgets_ = trial.forgets;
    try {
      steps();
    } catch (const std::runtime_error& stuck) {
      history_.stuck = stuck.what();
    }
    history_.calls = files_.changes() - before;
    files_.fail_call(0);
    files_.kill_at(0);
  }
  // Some epochs and a fold. `before_fold` may damage the log. Only the last epoch has some of the
  // lines, and the call `failing` of it fails.
  template <class F>
  void run_fold(std::uint64_t failing, F&& before_fold) {
    create(files_);
    history_.created = true;
    open();
    epochs(3, 5);
    files_.fail_call(failing);
    for (std::size_t i = 4; i < kEarly - 1; ++i) owner_->put(i, random_() | 1);
    cut(false, kEarly - 1);
    files_.fail_call(0);
    before_fold();
    folded_ = owner_->fold();
  }
  Owner& owner() { return *owner_; }
  const Status& folded() const { return folded_; }

 private:
  void steps() {
    open();
    epochs(3, kEarly);
    fold();
    epochs(2, kNumbers.size());
    kill();
    epochs(3, kNumbers.size());
    slow_fold();
    kill();
    epochs(2, kNumbers.size());
    restart();
    epochs(2, kNumbers.size());
    kill();
    epochs(1, 3);
    slow_fold();
    epochs(1, 5);
    close();
    open();
    epochs(1, kNumbers.size());
    kill();
    epochs(1, 3);
    restart();
    epochs(1, 9);
    kill();
    epochs(1, 3);
    for (int attempt = 0; attempt < 3; ++attempt) {
      if (owner_->log().confirm(kClock).ok()) return;
      recover();
      cut(false);
    }
  }
  // One call fails at most, or the process is killed once. Then the next attempt finds what the
  // first has left.
  void open() {
    Status last;
    for (int attempt = 0; attempt < 3; ++attempt) {
      files_.next_process();
      auto next = std::make_unique<Owner>(files_);
      last = next->open();
      owner_ = std::move(next);
      if (last.ok()) return;
    }
    throw std::runtime_error("open: " + std::string(last.message()));
  }
  void kill() {
    const EpochId durable = owner_->log().durable();
    Status last;
    for (int attempt = 0; attempt < 3; ++attempt) {
      files_.next_process();
      auto next = std::make_unique<Owner>(files_);
      next->inherit(*owner_);
      last = next->open(durable);
      if (!last.ok()) continue;
      owner_ = std::move(next);
      return;
    }
    throw std::runtime_error("inherit: " + std::string(last.message()));
  }
  // A process that has only the files.
  void restart() {
    open();
    const std::span cuts(history_.cuts);
    if (std::ranges::find(cuts.subspan(history_.durable), owner_->now()) == cuts.end())
      throw std::runtime_error("older after a restart");
    cut(true);  // over two segments
  }
  void recover() {
    if (files_.killed()) {
      kill();
    } else {
      // As if its disk had no space.
      if (random_() % 2 == 0) (void)owner_->log().fold_durable();
      owner_->log().resume();
      if (again_ != 0 && tries_++ < 2) files_.fail_call(again_, forgets_);
    }
  }
  void epochs(int count, std::size_t lines) {
    for (int epoch = 0; epoch < count; ++epoch) {
      for (int i = 0; i < 7; ++i) owner_->put(random_() % lines, random_() | 1);
      cut(epoch % 2 == 1);
    }
  }
  // `another`: it and the line before it are stored to before the next attempt.
  void cut(bool twice, std::optional<std::size_t> another = {}) {
    for (int attempt = 0; attempt < 4; ++attempt) {
      history_.cuts.push_back(owner_->now());
      if (owner_->cut(twice).ok()) {
        history_.durable = history_.cuts.size() - 1;
        return;
      }
      recover();
      owner_->put(another.value_or(random_() % kEarly), random_() | 1);
      if (another) owner_->put(*another - 1, random_() | 1);
    }
    throw std::runtime_error("no cut is possible");
  }
  // A fold that failed is made up for by the next.
  void fold() {
    if (!owner_->fold().ok() && files_.killed()) kill();
  }
  // The pool is changed meanwhile. A call that fails in a cut ends the fold.
  void slow_fold() {
    bool failed = false;
    const std::shared_ptr<Owner> folds = owner_;  // a kill ends it
    const auto change = [&] {
      for (int i = 0; i < 4; ++i) owner_->put(random_() % kNumbers.size(), random_() | 1);
      if (!SimPlatform::runs("log.fold.cut"_site)) return Status();
      cut(random_() % 2 == 0);
      failed = owner_ != folds;
      return failed ? Status(StatusCode::busy) : Status();
    };
    // A fold begins after a cut.
    cut(false);
    if (owner_ != folds) return;
    const Status done = folds->slow_fold(change);
    if (!failed && !done.ok() && files_.killed()) kill();
  }
  void close() {
    for (int attempt = 0; attempt < 3; ++attempt) {
      last_close_ = owner_->close();
      if (last_close_.ok()) return;
      if (!files_.killed()) continue;
      // The base may be closed.
      const Content content = owner_->now();
      open();
      if (owner_->now() != content) throw std::runtime_error("lost by a close");
      if (!owner_->clean()) cut(false);
    }
    throw std::runtime_error("close: " + std::string(last_close_.message()));
  }

  SimFileSystem& files_;
  History& history_;
  std::shared_ptr<Owner> owner_;
  Status folded_;
  Status last_close_;
  std::uint64_t again_ = 0;
  bool forgets_ = false;
  int tries_ = 0;  // that have failed
  std::mt19937_64 random_{7};
};

// What is wrong with a disk. `from`: the oldest cut that it may have.
inline std::string judge(SimFileSystem& files, const History& history, std::size_t from) {
  Owner owner(files);
  const Status opened = owner.open();
  if (!history.created && opened == StatusCode::not_found) return {};
  if (!opened.ok()) return "open: " + std::string(opened.message());
  const std::span cuts(history.cuts.begin() + static_cast<std::ptrdiff_t>(from),
                       history.cuts.end());
  if (std::ranges::find(cuts, owner.now()) == cuts.end())
    return "the pool is of no cut from " + std::to_string(from) + " on";
  // What was replayed becomes one epoch.
  if (owner.clean()) return {};
  const Status cut = owner.cut(false);
  return cut.ok() ? "" : "cut: " + std::string(cut.message());
}

// It goes on from there, and closes.
inline std::string go_on(SimFileSystem files) {
  Owner owner(files);
  if (Status s = owner.open(); !s.ok())
    return "a second recovery fails: " + std::string(s.message());
  if (!owner.clean() && owner.close() != StatusCode::invalid_argument)
    return "it closes without the lines that were replayed";
  owner.put(3, 99);
  if (Status cut = owner.cut(true); !cut.ok()) return "cut: " + std::string(cut.message());
  Owner again(files);
  if (!again.open().ok() || again.now() != owner.now()) return "lost after a recovery";
  if (!again.clean() && !again.cut(false).ok()) return "the second cut fails";
  if (Status s = again.close(); !s.ok()) return "close: " + std::string(s.message());
  Owner closed(files);
  if (!closed.open().ok() || closed.now() != owner.now()) return "lost by the close";
  std::size_t names = 0;
  // A file whose head could not be written gets a name that is none of a segment.
  must(files.list("log", [&](std::string_view name) {
    names += segment_number(name) != 0 || name == kUnnamedSegment ? 1 : 0;
  }));
  return names == 0 ? "" : "the log is there after a close and an open";
}

}  // namespace perdure::disk
