// test: tsan
// The stream of cuts of a pool: numbers, failures, and what a kill between two steps would leave.
#include <atomic>
#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "cut/cut_stream.h"
#include "platform/real_platform.h"
#include "testing/cut/sparse_storage.h"
#include "testing/disk/sim_files.h"
#include "tests/support/soon.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

using disk::SimFileSystem;
using testing::SparseStorage;
using Dirty = DirtyLog<RealPlatform>;

constexpr std::uint64_t kBytes = 1 << 20;
constexpr std::uint64_t kSegment = 4 << 20;
constexpr std::uint64_t kHour = 3'600'000'000'000;

class Stream : public ::testing::Test, protected CutWatch {
 protected:
  class Stopped;

  Stream() {
    must(pool_.allocate(0, kBytes));
    must(dirty_.create());
    must(dirty_.cover(kBytes));
    if (!tracker_.make()) throw std::bad_alloc();
    platform_.track_stores(tracker_);
    const auto base = must(files_.open("base", FileSystem::Open::fresh));
    must(files_.allocate(base, 0, kBytes));
    must(files_.sync(base, kNoSite));
    log_.emplace(files_, base, "log", ".", LogShape{.segment_bytes = kSegment});
    must(log_->read_marks());
    const std::uint8_t id[16] = {7};
    must(log_->begin(id));
  }
  void TearDown() override { stream_.reset(); }  // while the watch is whole
  void begin(const CutShape& shape = {.interval_ns = kHour}) {
    stream_.emplace(platform_, tracker_, *log_, pool_, static_cast<CutWatch&>(*this), shape);
  }
  void store(std::uint64_t line, std::uint64_t value) {
    platform_.store(*reinterpret_cast<std::uint64_t*>(pool_.base() + line * kLine), value);
  }
  // What the next process would find if this one was killed now.
  std::set<std::uint64_t> left_by_a_kill() {
    Dirty next(dirty_file_, kBytes);
    must(next.inherit());
    std::set<std::uint64_t> lines;
    std::vector<std::uint64_t> some(Dirty::kLeast);
    for (bool ended = false; !ended;) {
      const std::uint64_t n = next.take(some, ended);
      lines.insert(some.begin(), some.begin() + static_cast<std::ptrdiff_t>(n));
    }
    return lines;
  }

  void on_durable(EpochId id, std::uint64_t /*unix_ns*/) noexcept override {
    durable_ = id;
    if (at_durable_) at_durable_();
  }
  void brake(bool on) noexcept override { braked_ = on; }
  void on_writing(std::uint64_t) noexcept override {}
  bool begin_log_anew() noexcept override { return false; }
  Status verify_copy() noexcept override { return lost_ ? StatusCode::poisoned : StatusCode::ok; }
  void on_rest(bool rests) noexcept override { rests_ = rests; }
  Status on_tend() noexcept override { return {}; }
  void wants_fold() noexcept override {}
  void on_held_up(std::uint32_t slot) noexcept override {
    holder_ = slot;
    ++held_up_;
  }
  bool make_space() noexcept override { return false; }

  SparseStorage pool_{kBytes};
  SparseStorage dirty_file_{Dirty::bytes_for(kBytes)};
  Dirty dirty_{dirty_file_, kBytes};
  RealPlatform platform_;
  StoreTracker<RealPlatform> tracker_{pool_.base(), dirty_};
  SimFileSystem files_;
  std::optional<EpochLog> log_;
  EpochId durable_;
  std::atomic<bool> braked_{false};
  std::atomic<bool> rests_{false};
  std::atomic<bool> lost_{false};  // a part of the image, or of the log of dirty lines
  std::atomic<std::uint32_t> holder_{0};
  std::atomic<int> held_up_{0};
  std::function<void()> at_durable_;
  std::optional<CutStream<RealPlatform>> stream_;  // its thread uses the others
};

// A thread that is within a store until go_on().
class Stream::Stopped {
 public:
  explicit Stopped(Stream& stream)
      : thread_([this, &stream] {
          auto& word = *reinterpret_cast<std::uint64_t*>(stream.pool_.base() + 2 * kLine);
          auto& slot = stream.tracker_.begin(&word, sizeof(word));
          slot_ = RealPlatform::thread_slot();
          step_ = 1;
          while (step_ != 2) ::usleep(100);
          stream.tracker_.end(slot, &word, sizeof(word));
        }) {
    while (step_ != 1) ::usleep(100);
  }
  void go_on() {
    step_ = 2;
    thread_.join();
  }
  std::uint32_t slot() const { return slot_; }

 private:
  std::atomic<int> step_{0};
  std::atomic<std::uint32_t> slot_{0};
  std::thread thread_;
};

// stream.T3: after a kill at that moment the next process goes on after this epoch, or the one
// before; so the lines have to be dirty still.
TEST_F(Stream, LinesAreDirtyUntilTheirEpochIsKnownToBeDurable) {
  begin();
  store(5, 1);
  store(700, 2);
  std::set<std::uint64_t> left;
  at_durable_ = [&] { left = left_by_a_kill(); };
  must(stream_->sync());
  EXPECT_EQ(left, (std::set<std::uint64_t>{5, 700}));
  EXPECT_EQ(durable_.epoch, 1U);
}

TEST_F(Stream, NumbersAreThoseOfCuts) {
  begin();
  EXPECT_EQ(stream_->next(), 1U);
  EXPECT_EQ(stream_->wait(2), StatusCode::invalid_argument);
  store(1, 1);
  must(stream_->wait(1));
  EXPECT_EQ(stream_->reached(), 1U);
  must(stream_->wait(1));  // makes no other one
  EXPECT_EQ(stream_->reached(), 1U);
  const std::uint64_t written = log_->written();
  must(stream_->sync());  // with nothing to write
  EXPECT_EQ(stream_->reached(), 2U);
  EXPECT_EQ(log_->written(), written);
  EXPECT_FALSE(braked_);
}

TEST_F(Stream, AfterAFailureNothingIsReachedBeforeANewCutIsDurable) {
  begin();
  store(1, 1);
  must(stream_->sync());
  store(2, 2);
  files_.fail_call(1);
  EXPECT_EQ(stream_->sync(), StatusCode::io);
  EXPECT_TRUE(braked_);
  EXPECT_EQ(stream_->refusal(), StatusCode::io);
  EXPECT_EQ(stream_->sync(), StatusCode::io);
  EXPECT_NE(stream_->figures().failed_unix_ns, 0U);
  files_.fail_call(2);  // the first one does not matter: a sync of the base
  EXPECT_EQ(stream_->resume(), StatusCode::io);
  EXPECT_TRUE(braked_) << "as long as no cut is durable";
  EXPECT_EQ(stream_->reached(), 1U);
  must(stream_->resume());
  EXPECT_FALSE(braked_);
  EXPECT_TRUE(stream_->refusal().ok());
  EXPECT_EQ(stream_->figures().failed_unix_ns, 0U);
  LogReader reader(files_, "log");
  must(reader.scan(log_->marks().mark()));
  std::set<std::uint64_t> lines;
  must(reader.replay([&](std::uint64_t line, const LineWords&) { lines.insert(line); }));
  EXPECT_EQ(lines, (std::set<std::uint64_t>{1, 2}));
}

TEST_F(Stream, WithoutAThreadACutIsMadeWhenItIsDue) {
  begin({.interval_ns = 1'000'000});
  store(1, 1);
  for (int i = 0; i < 100 && !stream_->run_due(); ++i) ::usleep(100);
  EXPECT_EQ(stream_->reached(), 1U);
  ::usleep(2000);
  EXPECT_FALSE(stream_->run_due()) << "nothing has changed";
  EXPECT_EQ(log_->durable().epoch, 2U) << "the last one is confirmed";
}

// A thread that the system has stopped inside a store: the others must not go on without cuts.
TEST_F(Stream, WithoutAThreadMutationsWaitForACutThatIsBusy) {
  begin({.interval_ns = 1'000'000});
  stream_->serve_callers();
  store(1, 1);
  Stopped other(*this);
  ::usleep(5000);
  EXPECT_FALSE(stream_->run_due());
  EXPECT_FALSE(stream_->lets());
  other.go_on();
  EXPECT_TRUE(stream_->run_due()) << "at once";
  // On a busy machine the next one is due already.
  for (int i = 0; i < 1000 && !stream_->lets(); ++i) (void)stream_->run_due();
  EXPECT_TRUE(stream_->lets());
}

// A debugger may have stopped it, for ever.
TEST_F(Stream, OneThatIsStoppedInAStoreDoesNotStopTheOthers) {
  begin({.interval_ns = 20'000'000});
  ASSERT_TRUE(stream_->start());
  must(stream_->sync());
  Stopped other(*this);
  ::usleep(200'000);
  EXPECT_FALSE(stream_->lets()) << "it may be about to go on";
  EXPECT_EQ(held_up_, 0);
  ASSERT_TRUE(soon([&] { return stream_->lets() && held_up_ != 0; }));  // the watch is told later
  EXPECT_EQ(held_up_, 1);
  EXPECT_EQ(holder_, other.slot());
  EXPECT_EQ(stream_->figures().holder, other.slot());
  EXPECT_GT(stream_->lag_ns(), 900'000'000U);
  store(3, 3);
  EXPECT_TRUE(soon([&] { return !braked_; }));  // it is on while a cut is tried
  std::thread waits([&] { must(stream_->sync()); });
  ::usleep(100'000);
  other.go_on();
  waits.join();
  EXPECT_EQ(stream_->figures().holder, kMaxThreadSlots);
  EXPECT_EQ(held_up_, 1);
  stream_->stop();
}

TEST_F(Stream, WhatAProcessBeforeHasLeftIsBehind) {
  begin({.interval_ns = kHour, .behind = true});
  EXPECT_GT(stream_->lag_ns(), std::uint64_t{1'000'000'000}) << "nothing is known of it";
  store(1, 1);
  ASSERT_TRUE(stream_->start());
  for (int i = 0; i < 5000 && stream_->reached() == 0; ++i) ::usleep(1000);
  EXPECT_EQ(stream_->reached(), 1U) << "at once";
  EXPECT_LT(stream_->lag_ns(), std::uint64_t{60'000'000'000});
}

void wait_until(const std::function<bool()>& so) {
  for (int i = 0; i < 20'000 && !so(); ++i) ::usleep(1000);
  EXPECT_TRUE(so());
}

// stream.T4
TEST_F(Stream, AThreadWithNothingToDoSleepsAndAStoreWakesIt) {
  begin({.interval_ns = 5'000'000});
  ASSERT_TRUE(stream_->start());
  for (std::uint64_t i = 1; i < 4; ++i) {
    wait_until([&] { return rests_ && stream_->lag_ns() == 0; });  // the watch is told first
    const std::uint64_t reached = stream_->reached();
    must(stream_->sync());
    EXPECT_EQ(stream_->reached(), reached) << "there is nothing to cut";
    store(300, i);
    EXPECT_FALSE(rests_);
    wait_until([&] { return stream_->reached() > reached; });
  }
  LogReader reader(files_, "log");
  must(reader.scan(log_->marks().mark()));
  std::uint64_t last = 0;
  must(reader.replay([&](std::uint64_t, const LineWords& content) { last = content.words[0]; }));
  EXPECT_EQ(last, 3U);
}

// What says that nothing is dirty may be lost itself.
TEST_F(Stream, AfterALossNothingIsSaidToBeDurable) {
  begin({.interval_ns = 20'000'000});
  store(300, 1);
  must(stream_->sync());
  const std::uint64_t began = RealPlatform::now_ns();
  lost_ = true;
  for (int i = 0; i < 1000 && stream_->failure().ok(); ++i) {
    ::usleep(1000);
    (void)stream_->run_due();
  }
  EXPECT_EQ(stream_->failure(), StatusCode::poisoned);
  const std::uint64_t now = RealPlatform::now_ns();
  EXPECT_GE(stream_->lag_ns(), now - began);
}

// A fold has failed, while the thread of cuts slept.
TEST_F(Stream, AFailureWakesTheThread) {
  begin({.interval_ns = 5'000'000});
  ASSERT_TRUE(stream_->start());
  wait_until([&] { return rests_.load(); });
  stream_->on_fold_failed(Status(StatusCode::io));
  EXPECT_EQ(stream_->sync(), StatusCode::io);
  wait_until([&] { return stream_->failure().ok(); });
}

// The bound of the log also holds while the thread has no core.
TEST_F(Stream, ManyNotesPutTheBrakeOn) {
  constexpr std::uint64_t kBound = 8 << 20;
  constexpr std::uint64_t kSoft = (kBound - kSegment) / CutPace::kLogged;  // lines
  constexpr std::uint64_t kFull = kBound / CutPace::kLogged;
  begin({.interval_ns = kHour, .log_bytes = kBound});
  ASSERT_TRUE(stream_->start());
  stream_->with_log([&] {  // the thread waits
    std::uint64_t noted = 0;
    const auto store_up_to = [&](std::uint64_t lines) {
      for (; noted < lines; ++noted) store(noted % (kBytes / kLine), noted);
    };
    store_up_to(kSoft - CutGate<RealPlatform>::kMany);
    EXPECT_FALSE(braked_);
    store_up_to(kSoft + CutGate<RealPlatform>::kMany);
    EXPECT_TRUE(braked_);
    store_up_to(kFull + CutGate<RealPlatform>::kMany);
    EXPECT_FALSE(stream_->lets());
  });
  for (int i = 0; i < 1000 && braked_; ++i) ::usleep(10'000);
  EXPECT_FALSE(braked_) << "a cut makes room";
  EXPECT_TRUE(stream_->lets());
}

// More was noted than a cut takes in an interval: a thread waits that has used its share.
TEST_F(Stream, AThreadThatStoresLittleGoesOnBesideOneThatStoresMuch) {
  constexpr std::uint64_t kRate = 100'000;
  begin({.interval_ns = 1'000'000'000, .lines_per_second = kRate});
  ASSERT_TRUE(stream_->start());
  stream_->with_log([&] {  // no cut helps
    for (std::uint64_t i = 0; i < kRate + CutGate<RealPlatform>::kMany; ++i) {
      store(i % (kBytes / kLine), i);
    }
    EXPECT_TRUE(braked_);
    EXPECT_FALSE(stream_->lets());
    EXPECT_TRUE(stream_->lets(true)) << "a batch";
    std::thread([&] { EXPECT_TRUE(stream_->lets()); }).join();
  });
  for (int i = 0; i < 1000 && braked_; ++i) ::usleep(10'000);
  EXPECT_TRUE(stream_->lets()) << "after a cut";
}

// Builds of 2026-11-28 could write such lines.
TEST_F(Stream, AReplayLeavesOutTheMarks) {
  begin();
  const std::uint64_t mark = layout::kMarkOffset / kLine;
  for (const std::uint64_t line : {mark - 1, mark, mark + layout::kMarkStride / kLine, mark + 8})
    store(line, 1);
  must(stream_->sync());
  LogReader reader(files_, "log");
  must(reader.scan(log_->marks().mark()));
  std::vector<std::uint64_t> lines;
  must(reader.replay([&](std::uint64_t line, const LineWords&) { lines.push_back(line); }));
  const std::vector<std::uint64_t> both{mark - 1, mark + 8};
  EXPECT_EQ(lines, both);
  lines.clear();
  must(reader.replay_back(
      [&](std::uint64_t, std::uint64_t line, const LineWords&) { lines.push_back(line); }));
  EXPECT_EQ(lines, std::vector<std::uint64_t>(both.rbegin(), both.rend()));
}

TEST_F(Stream, ThreadsShareCuts) {
  begin();
  ASSERT_TRUE(stream_->start());
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 50; ++i) {
        store(200 + t * 1000 + i, i + 1);  // behind the marks
        must(stream_->sync());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  stream_->stop();
  EXPECT_LE(stream_->reached(), 201U);
  LogReader reader(files_, "log");
  must(reader.scan(log_->marks().mark()));
  std::set<std::uint64_t> lines;
  must(reader.replay([&](std::uint64_t line, const LineWords&) { lines.insert(line); }));
  EXPECT_EQ(lines.size(), 200U);
}

}  // namespace
}  // namespace perdure::test
