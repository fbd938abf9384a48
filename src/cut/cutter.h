// Cutter: copies what has changed in a pool since the cut before, as it is at one moment, while
// threads use the pool.
//
// WHAT  A cut is a moment between two stores of every thread. A file that has the lines of every
//   cut is the pool at the moment of the last. As every moment between two stores is a state that
//   recovery accepts (a process can be killed there), it can be opened: it has every operation that
//   had ended before the cut began, and none that began after it ended.
// INVARIANTS
//   cut.C1  When cut() returns `done`, the copy has every line of the pool as it was at one moment
//       of the call.
//   cut.C2  No line is lost: what one cut does not deliver, as it is at its moment or later,
//       another one does.
//   cut.C3  What one cut has delivered is settled, or dirty again, before the next one begins.
// OPERATIONS
//   cut     Passes with the gate open: drain; then, while there are dirty lines: take some, next
//           round, copy them, and in the first pass drain again. A pass with few lines, or the last
//           that is allowed, is followed by the last round: shut, drain, take and copy one batch,
//           open. If a writer has opened the gate meanwhile, or has not left in time, or there was
//           more than a batch, the lines of the last round are dirty again, and passes follow. A
//           line may be copied several times, and the last copy counts.
// ORDERING
//   Between the take of a line and its copy, the number of the round rises and every store that
//   began before ends. A store of a later round notes the line again. So a copy has every store
//   that did not note the line after it was taken. If nothing is waited for between take and copy,
//   the line may be copied after its note and before its store, or between two stores of which only
//   the first notes. The last round does not wait, because no thread is inside; if a writer has
//   opened the gate, its lines count as not copied.
// LINEARIZATION  the compare-and-swap that opens the gate: no store from shut() to there.
// PROGRESS  A cut ends after its limit of tries, with `busy`.
// COSTS  Time grows with the lines that have changed; the time with the gate shut with those of the
//   last round, with the threads that have used the pool, and little with its size (a word for each
//   128 MiB).
// LIMITS  Space that was given back to the file system while it was dirty is read by the next copy.
//   On a file system in memory it takes space again; if there is none, the read faults.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <span>

#include "cut/log_format.h"
#include "perdure/function_ref.h"
#include "platform/store_tracker.h"

namespace perdure {

struct CutReport {
  std::uint64_t lines = 0;    // copied, with those that were copied again
  std::uint32_t rounds = 0;   // with the gate open
  std::uint32_t tries = 0;    // of the last round
  std::uint64_t shut_ns = 0;  // the longest time that the gate was shut
};

template <class P>
class Cutter {
 public:
  // Gets the number of a line of the pool, and its content.
  using Sink = FunctionRef<void(std::uint64_t line, const LineWords& content)>;

  Cutter(P& platform, StoreTracker<P>& tracker) noexcept
      : platform_(platform),
        tracker_(tracker),
        gate_(tracker.gate()),
        log_(tracker.log()),
        base_(tracker.base()) {}

  // Called with the gate open before lines are taken: the sink can make room for kBatch lines.
  using Between = FunctionRef<void()>;

  // One thread at a time. After `done`, call settle() once the copy is durable, or again() if it
  // cannot be, before the next cut. After any other result the copy is not the pool at one moment,
  // and its lines are dirty again.
  CutStep cut(Sink sink, Between between, CutReport& report) noexcept {
    PERDURE_ASSERT(P, "cut.C3", !open_);
    tracker_.make_rings();
    CutStep step = CutStep::busy;
    for (std::uint32_t i = 0; i < gate_.limits().tries && step == CutStep::busy; ++i) {
      step = open_rounds(sink, between, report);
      if (step == CutStep::done) {
        between();
        step = last_round(sink, report);
      }
      // The threads that are inside may need this core, and those that wait must get through.
      for (unsigned spins = 1; step == CutStep::busy && spins <= 64; ++spins) P::pause(spins);
    }
    open_ = step == CutStep::done;
    if (!open_) log_.again();
    return step;
  }
  CutStep cut(Sink sink, CutReport& report) noexcept {
    return cut(sink, [] {}, report);
  }
  // Moves what the threads have noted out of their rings. Without it a ring is full after some
  // thousand stores, and each store costs more.
  void drain() noexcept {
    tracker_.make_rings();
    (void)tracker_.drain();
  }
  // Waits until every store that has begun has ended, and its lines are dirty; while no cut is open
  // and the gate does not sleep. False: a store takes too long, or the log is damaged.
  bool end_stores() noexcept {
    PERDURE_ASSERT(P, "cut.C3", !open_);
    tracker_.make_rings();
    return gate_.next_round() == CutStep::done && tracker_.drain();
  }
  void settle() noexcept {
    open_ = false;
    log_.settle();
  }
  void again() noexcept {
    open_ = false;
    log_.again();
  }

  // Leaves the gate shut until a thread stores. `before` is called in a moment when nothing is
  // stored, and every line that has changed is dirty. False: a thread may have stored since.
  template <class F>
  bool sleep(F&& before) noexcept {
    if (gate_.shut() != CutStep::done) return false;
    const bool drained = !P::runs("cut.sleep.drain"_site) || tracker_.drain();
    if (drained && !platform_.poisoned()) {
      before();
      if (gate_.sleep()) return true;
    }
    (void)gate_.open();
    return false;
  }

  static constexpr std::uint64_t kBatch = 8192;  // lines between two rounds

 private:
  static constexpr std::uint64_t kFew = 512;  // lines: they are copied within 20 microseconds
  static constexpr std::uint32_t kPasses = 8;

  std::span<const std::uint64_t> batch(std::uint64_t count) const noexcept {
    return {lines_.data(), count};
  }

  void copy(std::uint64_t count, Sink sink, CutReport& report) noexcept {
    constexpr std::uint64_t kAhead = 16;
    for (std::uint64_t i = 0; i < count; ++i) {
      if (i + kAhead < count) __builtin_prefetch(base_ + lines_[i + kAhead] * kLine);
      const auto* words = reinterpret_cast<const std::uint64_t*>(base_ + lines_[i] * kLine);
      LineWords content;
      for (std::size_t w = 0; w < std::size(content.words); ++w) {
        content.words[w] = platform_.peek(words[w]);
      }
      sink(lines_[i], content);
    }
    report.lines += count;
  }
  CutStep open_round(Sink sink, CutReport& report, std::uint64_t& lines, bool& ended) noexcept {
    std::uint64_t count = 0;
    if (P::runs("cut.round.order"_site)) {
      count = log_.take(lines_, ended);
      if (count == 0) return CutStep::done;
    }
    const CutStep step = gate_.next_round();
    if (!P::runs("cut.round.order"_site)) {
      (void)tracker_.drain();
      count = log_.take(lines_, ended);
    }
    if (step != CutStep::done) {
      if (P::runs("cut.round.give_back"_site)) log_.give_back(batch(count));
      return step;
    }
    ++report.rounds;
    copy(count, sink, report);
    lines += count;
    return CutStep::done;
  }
  CutStep open_rounds(Sink sink, Between between, CutReport& report) noexcept {
    for (std::uint32_t pass = 0; pass < kPasses; ++pass) {
      if (!tracker_.drain()) return CutStep::damaged;
      std::uint64_t lines = 0;
      for (bool ended = false; !ended;) {
        between();
        // Otherwise the rings of fast writers are full before the pass ends.
        if (pass == 0 && lines != 0 && !tracker_.drain()) return CutStep::damaged;
        const CutStep step = open_round(sink, report, lines, ended);
        if (step != CutStep::done) return step;
      }
      if (lines <= kFew) break;
    }
    return CutStep::done;
  }
  CutStep last_round(Sink sink, CutReport& report) noexcept {
    ++report.tries;
    shut_ns_ = P::now_ns();
    CutStep step = gate_.shut();
    opened_ns_ = P::now_ns();
    if (step == CutStep::done) step = copy_last(sink, report);
    if (step == CutStep::damaged) (void)gate_.open();
    report.shut_ns = std::max(report.shut_ns, opened_ns_ - shut_ns_);
    return step;
  }
  // What is dirty while the gate is shut: one batch at most, so that it is not shut for long.
  CutStep copy_last(Sink sink, CutReport& report) noexcept {
    if (!tracker_.drain()) return CutStep::damaged;
    bool ended = false;
    const std::uint64_t count = log_.take(lines_, ended);
    if (ended) copy(count, sink, report);
    if (platform_.poisoned()) return CutStep::damaged;  // a part of the pool may read as zeros
    const bool still_shut = gate_.open();
    opened_ns_ = P::now_ns();
    // If a writer has opened the gate, this thread may know it late.
    if (!still_shut) opened_ns_ = std::min(opened_ns_, shut_ns_ + gate_.limits().writer_ns);
    if (still_shut && ended) return CutStep::done;
    // They were not copied, or a writer may have noted them and stored to them after they were.
    if (P::runs("cut.last.give_back"_site)) log_.give_back(batch(count));
    return CutStep::busy;
  }

  P& platform_;
  StoreTracker<P>& tracker_;
  CutGate<P>& gate_;
  DirtyLog<P>& log_;
  const std::byte* base_;
  std::uint64_t shut_ns_ = 0, opened_ns_ = 0;  // of the last round
  bool open_ = false;                          // a cut is neither settled nor dirty again
  std::array<std::uint64_t, kBatch> lines_;
};

}  // namespace perdure
