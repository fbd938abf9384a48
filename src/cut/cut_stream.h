// CutStream: writes cuts of a pool to its log, one each interval and whenever a caller wants one.
//
// WHAT  A thread moves what writers have noted out of their rings every few milliseconds. Once an
//   interval it cuts the pool, if anything has changed, and writes the lines as an epoch. Callers
//   wait for the number of a cut; any number of them share one. The first of them makes it itself.
//   While nothing is stored, the gate of stores sleeps, and so does the thread, until the next cut
//   is due, if there is something to cut. After a second at rest the thread ends, and the keeper of
//   the process (keeper.h) tends the stream. The next store starts the thread again, or, if the
//   system refuses it, the keeper makes the cuts until it does not.
// INVARIANTS
//   stream.T1  A cut with a number of at least next() began after that call, so it has everything
//       that had been acknowledged before it.
//   stream.T2  reached() >= n only if a cut of at least that number, and all lines that changed
//       before it, are durable.
//   stream.T3  Lines are settled only after the watch knows the epoch that has them to be durable.
//       A kill in between makes them dirty once more than needed.
//   stream.T4  While the gate sleeps and `clean_` is set, everything that was stored is durable.
// FAILURE  After an error of the log nothing is written, and every call returns that error, until
//   resume(). The thread calls it each second, if the disk or the system may have been the cause.
//   What has changed stays dirty.
// PROGRESS  Writers wait for the gate (cut_gate.h). If the stream throttles, they also wait while a
//   cut is under way and the last durable one is older than two intervals and what that one has
//   taken (lets()). They wait in any case while the log is at its bound, until a fold has made it
//   shorter, and while what they have noted would bring it there: then a cut comes early. Those
//   that change more than their share wait before (cut_pace.h): a segment before the bound, and, if
//   the stream throttles, once more was noted since the last cut than one takes in an interval.
//   They see that themselves, because the thread may have no core.
//   A thread that is stopped within a store (by a debugger) keeps cuts from being made. After a
//   second the others wait no more: the log can get longer than its bound then.
// WITHOUT A THREAD  callers that wait make the cuts, and run_due() makes one if it is time. From
//   serve_callers() on, mutations call it: the brake stays on, and lets() is false when a cut is
//   due, or the last one was busy and the durable one is that old.
#pragma once

#include <algorithm>
#include <atomic>  // memory orders
#include <cstdint>
#include <utility>

#include "cut/cut_pace.h"
#include "cut/cutter.h"
#include "cut/epoch_log.h"
#include "perdure/options.h"
#include "platform/keeper.h"
#include "platform/storage.h"
#include "platform/work_thread.h"

namespace perdure {

class CutWatch {
 public:
  // Epochs up to this one may reach the disk from now on.
  virtual void on_writing(std::uint64_t epoch) noexcept = 0;
  // An epoch is durable; see stream.T3. `unix_ns`: everything that had been acknowledged then is in
  // it; 0: not known.
  virtual void on_durable(EpochId id, std::uint64_t unix_ns) noexcept = 0;
  // On: mutations ask lets() and failure() first.
  virtual void brake(bool on) noexcept = 0;
  // True: nothing has changed since the last cut. False: a store comes. Any thread.
  virtual void on_rest(bool rests) noexcept = 0;
  // That is so still. As verify_copy().
  virtual Status on_tend() noexcept = 0;
  // The thread with this slot has been in one store for a second, so that no cut can be made.
  virtual void on_held_up(std::uint32_t slot) noexcept = 0;
  // The log is so long that it should be folded.
  virtual void wants_fold() noexcept = 0;
  // What was copied out of the pool before the call can be used. An error says why not.
  virtual Status verify_copy() noexcept = 0;
  // The log has no space on its disk. Returns whether there may be some now, after a fold.
  virtual bool make_space() noexcept = 0;
  // Another process has removed the log. Returns whether there is a new one; then every line that
  // the base may lack is dirty.
  virtual bool begin_log_anew() noexcept = 0;

 protected:
  ~CutWatch() = default;
};

struct CutShape {
  std::uint64_t interval_ns = 100'000'000;
  bool throttles = true;
  bool refuses = true;          // mutations, after a failure
  bool behind = false;          // lines that a process before this one has changed may be in no cut
  std::uint64_t log_bytes = 0;  // bound of the log; 0: 1 GiB, or a quarter of a larger pool
  std::uint64_t lines_per_second = CutPace::kQuick;  // that cuts take, until they have shown it
};

struct CutFigures {
  std::uint64_t cuts = 0;     // that were made durable
  std::uint64_t shut_ns = 0;  // the longest time that the gate was shut
  std::uint64_t log_bytes = 0;
  std::uint64_t log_written_bytes = 0;
  std::uint64_t log_bound_bytes = 0;
  std::uint64_t failed_unix_ns = 0;
  // The slot of a thread that has been in one store for a second, so that no cut can be made.
  std::uint32_t holder = kMaxThreadSlots;  // none
};

template <class P>
class CutStream final : private GateWatch, private Kept {
 public:
  // Everything must stay valid. `pool`: its size is that of an epoch.
  CutStream(P& platform, StoreTracker<P>& tracker, EpochLog& log, const Storage& pool,
            CutWatch& watch, CutShape shape) noexcept
      : cutter_(platform, tracker),
        tracker_(tracker),
        log_(log),
        pool_(pool),
        watch_(watch),
        shape_(shape),
        pace_(shape.lines_per_second),
        durable_at_(shape.behind ? 0 : P::now_ns()),
        due_(P::now_ns() + (shape.behind ? 0 : shape.interval_ns)) {
    see_room();
    tracker_.gate().set_watch(*this);
  }
  CutStream(const CutStream&) = delete;
  CutStream& operator=(const CutStream&) = delete;
  ~CutStream() { stop(); }

  // Starts the thread. Without one, or if the system refuses it (false), callers make the cuts.
  bool start() noexcept {
    threaded_.store(true, std::memory_order_relaxed);
    if (work_.wake()) return true;
    threaded_.store(false, std::memory_order_relaxed);
    return false;
  }
  // Ends the thread. From here on callers make the cuts. Idempotent.
  void stop() noexcept {
    if (!threaded_.load(std::memory_order_relaxed)) return;
    work_.stop();
    leave_keeper();
    threaded_.store(false, std::memory_order_release);
    tell();
  }
  // There will be no thread. Before mutations.
  void serve_callers() noexcept {
    by_callers_ = true;
    put_brake(true);
  }
  bool serves_callers() const noexcept { return by_callers_; }
  // In a child of fork, which has no such thread.
  void abandon() noexcept { threaded_.store(false, std::memory_order_relaxed); }

  // --- any thread ---
  // The number of the next cut to begin.
  std::uint64_t next() const noexcept { return begun_.load(std::memory_order_seq_cst) + 1; }
  std::uint64_t reached() const noexcept { return reached_.load(std::memory_order_acquire); }
  // Returns when reached() >= cut. Errors: invalid_argument (next() never returned such a number),
  // and those of the log.
  Status wait(std::uint64_t cut) noexcept {
    waiting_.fetch_add(1, std::memory_order_relaxed);
    Status s = await(cut);
    waited_at_.store(P::now_ns(), std::memory_order_release);
    waiting_.fetch_sub(1, std::memory_order_relaxed);
    return s;
  }
  Status sync() noexcept { return wait(next()); }
  // Nanoseconds since a moment of which everything is durable.
  std::uint64_t lag_ns() const noexcept {
    if (is_clean()) return 0;
    const std::uint64_t at = durable_at_.load(std::memory_order_relaxed);
    return P::now_ns() - std::min(at, P::now_ns());
  }
  // Ok, or the error of the log.
  Status failure() const noexcept {
    if (!failed()) return {};
    LatchGuard guard(figures_latch_);
    return failure_;
  }
  // Goes on after a failure, and makes a cut; mutations are refused until it is durable. Errors:
  // those of the log.
  Status resume() noexcept {
    {
      LatchGuard guard(latch_);
      if (!failed()) return {};
      log_.resume();
    }
    for (unsigned spins = 0;; P::pause(spins++)) {
      LatchGuard guard(latch_);
      Status s = attempt_with_latch(true);
      if (s != StatusCode::busy) return s;
    }
  }
  CutFigures figures() const noexcept {
    CutFigures figures;
    {
      LatchGuard guard(figures_latch_);
      figures = figures_;
    }
    figures.log_bound_bytes = bound();
    return figures;
  }
  // Without a thread: makes a cut if it is time; of several callers one does. Returns whether this
  // one did.
  bool run_due() noexcept {
    if (threaded_.load(std::memory_order_relaxed) || failed()) return false;
    if (!is_due() || !latch_.try_lock()) return false;
    const bool done = is_due() && !rest_with_latch() && attempt_with_latch().ok();
    latch_.unlock();
    return done;
  }
  // The next one is due an interval from now, however long the work of the caller has taken.
  void put_off() noexcept {
    due_.store(P::now_ns() + shape_.interval_ns, std::memory_order_relaxed);
  }

  // --- a fold ---
  // As sync(), but it is in no hurry.
  Status make_cut() noexcept { return await(next()); }
  // Whether callers wait for cuts. At the bound of the log they wait for the fold, as mutations do.
  bool is_awaited() const noexcept {
    if (used_.load(std::memory_order_relaxed) >= bound() / 8 * 7) return false;
    const std::uint64_t at = waited_at_.load(std::memory_order_acquire);  // before now
    return waiting_.load(std::memory_order_relaxed) != 0 || P::now_ns() - at < kRecent;
  }
  // Calls f() while nothing else uses the log.
  template <class F>
  auto with_log(F&& f) noexcept {
    users_.fetch_add(1, std::memory_order_relaxed);
    LatchGuard guard(latch_);
    users_.fetch_sub(1, std::memory_order_relaxed);
    return f();
  }
  // Within with_log(): as Cutter::end_stores().
  bool end_stores() noexcept {
    rouse();
    return cutter_.end_stores();
  }
  bool wants_fold() const noexcept {
    return !failed() && used_.load(std::memory_order_relaxed) >= fold_at();
  }
  // Whether a thread that has stopped in a store keeps cuts from being made.
  bool held_up() const noexcept { return held_up_.load(std::memory_order_relaxed); }
  // Whether a cut would have nothing to write.
  bool rests() const noexcept { return tracker_.log().empty() && log_.empty(); }
  // A fold has ended; within with_log().
  void on_folded() noexcept {
    see_log();
    {
      LatchGuard figures(figures_latch_);
      figures_.log_bytes = log_.bytes();
    }
    put_brake(!refusal().ok() || full());
    tell();
  }
  // It has failed: as if a cut had.
  void on_fold_failed(Status s) noexcept {
    LatchGuard guard(latch_);
    if (!failed()) (void)fail_with(std::move(s));
    put_brake(!refusal().ok());
  }

  // --- mutations ---
  bool lets(bool batch = false) noexcept {
    if (failed()) return true;
    if (by_callers_) return !full() && !is_due();
    return !threaded_.load(std::memory_order_relaxed) || !stops(fill(P::now_ns()), batch);
  }
  Status refusal() const noexcept { return shape_.refuses ? failure() : Status(); }
  void wait_for_cut() noexcept {
    const std::uint32_t seen = done_.load(std::memory_order_acquire);
    const Fill fill = look(P::now_ns());  // what another thread has seen may be older
    if (failed() || !stops(fill, false) || !refusal().ok()) return;
    if (fill != Fill::little) wake();  // for a cut before its time
    P::park(done_, seen);
  }

 private:
  static constexpr std::uint64_t kLeastNap = 2'000'000;    // a ring lasts for that long
  static constexpr std::uint64_t kMostNap = 64'000'000;    // after a failure
  static constexpr std::uint32_t kQuiet = 16;              // looks; then the gate sleeps
  static constexpr std::uint64_t kLinger = 1'000'000'000;  // until it ends
  static constexpr std::uint64_t kTend = 10'000'000'000;   // of a pool that rests
  static constexpr std::uint64_t kMostSlack = 100'000'000;
  static constexpr std::uint64_t kAgain = 1'000'000;       // after a cut that did not succeed
  static constexpr std::uint64_t kRetry = 1'000'000'000;   // after a failure of the log
  static constexpr std::uint64_t kHeldUp = 1'000'000'000;  // by one store
  static constexpr std::uint64_t kHeldUpAgain = 50'000'000;
  static constexpr std::uint64_t kLook = 1'000'000;  // between two sums of what was noted
  static constexpr std::uint64_t kRecent = 250'000'000;
  static constexpr std::uint64_t kNoCut = UINT64_MAX;
  static constexpr std::uint64_t kNoBound = UINT64_MAX;

  // What was noted since the last cut.
  enum class Fill : std::uint8_t {
    little,
    much,  // for an interval, or for the log: those wait that have used their shares
    all,   // for the log
  };

  struct Body {
    CutStream* stream;
    void operator()() const { stream->run(); }
  };

  // --- GateWatch ---
  void on_wake() noexcept override {
    const std::uint64_t now = P::now_ns();
    if (clean_.load(std::memory_order_seq_cst)) {
      durable_at_.store(now, std::memory_order_relaxed);
      clean_.store(false, std::memory_order_seq_cst);
    }
    watch_.on_rest(false);  // also if another thread does it: the store that comes is of this one
    if (threaded_.load(std::memory_order_relaxed)) wake();
  }
  void on_many() noexcept override {
    if (threaded_.load(std::memory_order_relaxed) && look(P::now_ns()) != Fill::little)
      put_brake(true);
  }

  // Of any thread that stores, or wants a cut.
  void wake() noexcept {
    if (work_.wake()) return;
    if (Keeper* const keeper = keeper_.load(std::memory_order_acquire)) keeper->poke();
  }

  void run() noexcept {
    leave_keeper();
    std::uint32_t quiet = 0;   // looks that have moved none
    std::uint64_t before = 0;  // notes that were moved until the last look
    while (!work_.stopped()) {
      // A writer that was stopped before it could open the gate must find it in another state.
      rouse();
      const std::uint32_t seen = work_.seen();
      if (caller_cuts_.load(std::memory_order_relaxed)) {  // it has emptied the rings
        work_.wait(seen, kLeastNap);
        continue;
      }
      if (!make_due_cut()) continue;
      {
        LatchGuard guard(latch_);
        cutter_.drain();
        const std::uint64_t moved = tracker_.log().drained();
        quiet = moved != std::exchange(before, moved) ? 0 : quiet + 1;
      }
      const bool asleep = quiet >= kQuiet && fall_asleep();
      if (asleep) quiet = 0;
      const std::uint64_t due = due_.load(std::memory_order_relaxed);
      const std::uint64_t now = P::now_ns();
      if (asleep && is_clean()) {
        if (rest_until_woken(seen)) return;
      } else if (failed()) {
        work_.wait(seen, kMostNap);  // the rings are emptied all the same
      } else if (due > now) {
        work_.wait(seen, asleep ? due - now : std::min(kLeastNap, due - now));
      }
    }
  }
  // Of the thread, or of the keeper's. False: a caller may want another one.
  bool make_due_cut() noexcept {
    const bool asked = wanted_.load(std::memory_order_seq_cst) > reached() &&
                       (!held_up() || P::now_ns() >= due_.load(std::memory_order_relaxed));
    if (failed()) {
      retry();
    } else if (asked || (is_time() && !rest())) {
      // Otherwise this thread could have the latch again and again.
      for (unsigned spins = 0; users_.load(std::memory_order_relaxed) != 0;) P::pause(spins++);
      retry_at_ = 0;
      const std::uint64_t cut = asked ? wanted_.load(std::memory_order_relaxed) : kNoCut;
      if (attempt_unless(cut).ok() && asked) return false;
    }
    return true;
  }
  // After a failure the thread has to try again.
  bool fall_asleep() noexcept {
    LatchGuard guard(latch_);
    if (failed()) return false;
    const bool asleep = cutter_.sleep([this] {
      // In this order: a lost page of the log of dirty lines says that nothing is dirty.
      const bool clean = rests() && log_.is_confirmed() && watch_.verify_copy().ok();
      if (clean) watch_.on_rest(true);
      clean_.store(clean, std::memory_order_seq_cst);
    });
    if (!asleep && clean_.exchange(false)) watch_.on_rest(false);
    return asleep;
  }
  // No thread stores. Returns true if the thread has ended.
  bool rest_until_woken(std::uint32_t seen) noexcept {
    work_.wait(seen, kLinger);
    if (work_.seen() != seen) return false;
    Keeper* const keeper = Keeper::of_process();
    if (keeper != nullptr && keeper->add(*this, kTend)) {
      keeper_.store(keeper, std::memory_order_release);
      if (work_.end(seen)) return true;
      leave_keeper();
      return false;
    }
    while (is_well()) {
      work_.wait(seen, kTend);
      if (work_.seen() != seen) break;
    }
    return false;
  }
  void leave_keeper() noexcept {
    if (Keeper* const keeper = keeper_.exchange(nullptr, std::memory_order_acq_rel))
      keeper->remove(*this);
  }
  // At rest. The kernel may tell that it could not write a part of the live image.
  bool is_well() noexcept {
    LatchGuard guard(latch_);
    return is_clean() && watch_.on_tend().ok();
  }
  std::uint64_t tend() noexcept override {
    if (is_well() || work_.wake()) return kTend;
    rouse();
    (void)make_due_cut();
    return kLeastNap;
  }
  // stream.T4. In this order: while the gate sleeps, clean_ is not that of a sleep before.
  bool is_clean() const noexcept {
    return tracker_.gate().sleeps() && clean_.load(std::memory_order_seq_cst);
  }
  void rouse() noexcept {
    if (!tracker_.gate().sleeps()) return;
    on_wake();
    tracker_.gate().wake();
  }
  // Makes a cut; the caller has the latch. busy: try again.
  Status attempt_with_latch(bool resumes = false) noexcept {
    if (failed() && !resumes) return failure();
    const std::uint64_t number = begun_.fetch_add(1, std::memory_order_seq_cst) + 1;
    const std::uint64_t began = P::now_ns();
    const std::uint64_t unix_ns = P::unix_ns();
    rouse();
    const std::uint64_t noted = tracker_.noted();
    const std::uint64_t before = taken_.exchange(noted, std::memory_order_release);
    due_.store(began + shape_.interval_ns, std::memory_order_relaxed);
    put_brake(true);
    watch_.on_writing(log_.next_end());
    const auto add = [this](std::uint64_t line, const LineWords& content) {
      log_.add(line, content);
    };
    CutReport report;
    const CutStep step = cutter_.cut(add, [this] { (void)log_.make_room(); }, report);
    Status s;
    switch (step) {
      case CutStep::done:
        s = write(began, unix_ns);
        if (!s.ok()) cutter_.again();
        if (mends(s)) s = StatusCode::busy;
        break;
      case CutStep::busy:
        s = StatusCode::busy;
        break;
      case CutStep::refused:
        s = Status::format(StatusCode::unsupported, "the system refuses membarrier(2)");
        break;
      case CutStep::damaged:
        s = Status::format(StatusCode::poisoned,
                           "the pool, or its log of dirty lines, is damaged; close the pool");
        break;
    }
    busy_.store(s == StatusCode::busy, std::memory_order_relaxed);
    see_holder(step);
    if (s == StatusCode::busy) {
      due_.store(P::now_ns() + (held_up() ? kHeldUpAgain : kAgain), std::memory_order_relaxed);
    } else if (!s.ok()) {
      (void)fail_with(s);
    } else {
      reached_.store(number, std::memory_order_release);
      pace_.learn(noted - before, P::now_ns() - began);
      see_written(noted);
      slack_.store(std::min(P::now_ns() - began, kMostSlack), std::memory_order_relaxed);
      forget_failure();
    }
    {
      LatchGuard figures(figures_latch_);
      figures_.cuts += s.ok() ? 1 : 0;
      figures_.log_bytes = log_.bytes();
      figures_.log_written_bytes = log_.written();
      figures_.shut_ns = std::max(figures_.shut_ns, report.shut_ns);
    }
    see_log();
    put_brake(!refusal().ok() || full() || wants_early() || (s == StatusCode::busy && !lets()));
    tell();
    return s;
  }
  Status await(std::uint64_t cut) noexcept {
    if (cut > next()) {
      return Status::format(StatusCode::invalid_argument, "there is no cut %lu yet", cut);
    }
    std::uint64_t wanted = wanted_.load(std::memory_order_relaxed);
    while (wanted < cut &&
           !wanted_.compare_exchange_strong(wanted, cut, std::memory_order_seq_cst)) {
    }
    bool tries = true;
    for (unsigned spins = 0;;) {
      const std::uint32_t seen = done_.load(std::memory_order_acquire);
      if (reached() >= cut) return {};
      if (is_clean()) {
        LatchGuard guard(latch_);
        return watch_.verify_copy();
      }
      // It may have been forgotten meanwhile.
      if (Status s = failure(); !s.ok()) return s;
      if (threaded_.load(std::memory_order_acquire)) {
        if (tries && attempt_now(cut, tries)) continue;
        wake();
        P::park(done_, seen);
      } else if (Status s = attempt_unless(cut); !s.ok() && s != StatusCode::busy) {
        return s;
      } else {
        P::pause(spins++);
      }
    }
  }
  // Another caller may have made that cut while this one waited for the latch.
  Status attempt_unless(std::uint64_t cut) noexcept {
    LatchGuard guard(latch_);
    return reached() >= cut ? Status() : attempt_with_latch();
  }
  // Makes a cut, unless another thread uses the log, or a fold waits for it. For a caller that
  // waits: two switches between threads cost more than a cut of a few lines. If the cut fails, the
  // thread of the stream makes the next one, and `tries` becomes false.
  bool attempt_now(std::uint64_t cut, bool& tries) noexcept {
    if (users_.load(std::memory_order_relaxed) != 0 || !latch_.try_lock()) return false;
    caller_cuts_.store(true, std::memory_order_relaxed);
    tries = reached() >= cut || attempt_with_latch().ok();
    caller_cuts_.store(false, std::memory_order_relaxed);
    latch_.unlock();
    return tries;
  }
  // The last cut is in memory: makes it durable.
  Status write(std::uint64_t began, std::uint64_t unix_ns) noexcept {
    if (!log_.failure().ok()) return Status(log_.failure());
    // After the copy, and before an epoch, or the piece of a fold that waits for this cut, counts.
    Status s = watch_.verify_copy();
    if (!s.ok()) return s;
    if (!log_.empty()) s = log_.commit(pool_.size(), unix_ns);
    // stream.T3; an epoch may count also after an error
    watch_.on_durable(log_.durable(), s.ok() ? unix_ns : 0);
    if (!s.ok()) return s;
    cutter_.settle();
    durable_at_.store(began, std::memory_order_relaxed);
    return {};
  }
  bool rest() noexcept {
    LatchGuard guard(latch_);
    return rest_with_latch();
  }
  // Moves what writers have noted, and returns whether there is nothing to cut. Then the last epoch
  // is confirmed (epoch_log.h).
  bool rest_with_latch() noexcept {
    const std::uint64_t now = P::now_ns();
    const std::uint64_t unix_ns = P::unix_ns();
    const std::uint64_t noted = tracker_.noted();
    cutter_.drain();
    if (failed() || !rests()) return false;
    taken_.store(noted, std::memory_order_release);
    see_written(noted);
    due_.store(now + shape_.interval_ns, std::memory_order_relaxed);
    watch_.on_writing(log_.next_end());
    Status s = watch_.verify_copy();
    if (s.ok()) s = log_.confirm(unix_ns);
    if (s.ok()) {
      watch_.on_durable(log_.durable(), unix_ns);
      durable_at_.store(now, std::memory_order_relaxed);
    } else if (mends(s)) {
      due_.store(now + kAgain, std::memory_order_relaxed);
    } else {
      (void)fail_with(std::move(s));
    }
    see_log();
    // Mutations may have waited since the last cut, and only a fold is left to wait for.
    put_brake(!refusal().ok() || full());
    tell();
    return true;
  }
  // After an error of the log: whether it can go on, since it was removed, or found no space.
  bool mends(const Status& s) noexcept {
    if (!s.ok() && log_.is_removed()) return watch_.begin_log_anew();
    if (s != StatusCode::pool_full || !watch_.make_space()) return false;
    log_.resume();
    return true;
  }
  Status fail_with(Status s) noexcept {
    {
      LatchGuard guard(figures_latch_);
      failure_ = s;
      figures_.failed_unix_ns = P::unix_ns();
    }
    failed_.store(true, std::memory_order_release);
    rouse();  // the thread tries it again
    tell();
    return s;
  }
  void forget_failure() noexcept {
    if (!failed()) return;
    failed_.store(false, std::memory_order_release);
    LatchGuard figures(figures_latch_);
    failure_ = {};
    figures_.failed_unix_ns = 0;
  }
  // Of the thread: tries it again, if `retry_at_` has come.
  void retry() noexcept {
    const std::uint64_t now = P::now_ns();
    if (retry_at_ != 0 && now >= retry_at_) {
      const Status s = failure();
      const bool may_pass = s == StatusCode::io || s == StatusCode::pool_full ||
                            s == StatusCode::out_of_memory || s == StatusCode::not_found;
      if (may_pass) (void)resume();
      retry_at_ = 0;
    }
    if (retry_at_ == 0) retry_at_ = P::now_ns() + kRetry;
  }
  void tell() noexcept {
    done_.fetch_add(1, std::memory_order_release);
    P::unpark(done_);
  }
  // Without a thread mutations always ask.
  void put_brake(bool on) noexcept { watch_.brake(on || by_callers_); }
  // After an attempt of a cut.
  void see_holder(CutStep step) noexcept {
    const auto& holder = tracker_.gate().holder();
    const bool holds = step == CutStep::busy && tracker_.gate().holds() &&
                       P::now_ns() - holder.since_ns >= kHeldUp;
    if (held_up_.exchange(holds, std::memory_order_relaxed) == holds) return;
    {
      LatchGuard guard(figures_latch_);
      figures_.holder = holds ? holder.slot : kMaxThreadSlots;
    }
    if (holds) watch_.on_held_up(holder.slot);
  }
  // Whether a mutation of the calling thread waits. With a thread of the stream. That a batch waits
  // helps no other thread.
  bool stops(Fill fill, bool batch) noexcept {
    if (fill == Fill::all || lags()) return true;
    return ((fill == Fill::much && !batch) || full()) && !has_share();
  }
  bool has_share() noexcept {
    auto& slot = tracker_.gate().slot(P::thread_slot());
    return pace_.has_share(slot.account, slot.lines.load(std::memory_order_relaxed),
                           tracker_.gate().slots_used(), P::now_ns());
  }
  // Mutations must not go on before the next cut.
  bool lags() const noexcept {
    return shape_.throttles && !held_up() &&
           lag_ns() > 2 * shape_.interval_ns + slack_.load(std::memory_order_relaxed);
  }
  bool is_time() noexcept {
    return P::now_ns() >= due_.load(std::memory_order_relaxed) || wants_early();
  }
  bool is_due() noexcept { return is_time() || (busy_.load(std::memory_order_relaxed) && lags()); }
  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  std::uint64_t bound() const noexcept {
    return shape_.log_bytes != 0 ? shape_.log_bytes : std::max(1_GiB, pool_.size() / 4);
  }
  // A fold writes at most the pool. So it pays once the log is as long, and needs time until the
  // bound: of a pool that is larger than the log, less of it, so that it writes less for each line.
  // It does not free the segment that is written.
  std::uint64_t fold_at() const noexcept {
    const std::uint64_t latest = pool_.size() <= bound() ? bound() / 2 : bound() / 4 * 3;
    return std::min(latest, std::max(pool_.size(), 4 * log_.segment_bytes()));
  }
  // Whether the log has no room. No cut makes any, nor a fold, while a thread holds them up.
  bool full() const noexcept {
    return !held_up() && used_.load(std::memory_order_relaxed) >= soft_bound();
  }
  // The last segment is for those that change little.
  std::uint64_t soft_bound() const noexcept { return bound() - log_.segment_bytes(); }
  // Whether a cut is made before its time. At the bound none makes room.
  bool wants_early() noexcept {
    return fill(P::now_ns()) != Fill::little && all_.load(std::memory_order_relaxed) != 0;
  }
  // A sum over all threads, so not for every mutation.
  Fill fill(std::uint64_t now) noexcept {
    const bool is_new = now - std::min(now, looked_at_.load(std::memory_order_acquire)) < kLook;
    return is_new ? fill_.load(std::memory_order_relaxed) : look(now);
  }
  Fill look(std::uint64_t now) noexcept {
    looked_at_.store(now, std::memory_order_relaxed);
    const std::uint64_t written = written_.load(std::memory_order_acquire);  // before noted()
    const std::uint64_t taken = taken_.load(std::memory_order_acquire);
    const std::uint64_t noted = tracker_.noted();
    Fill fill = Fill::little;
    if (noted - taken >= each_.load(std::memory_order_relaxed)) fill = Fill::much;
    if (noted - written >= soft_.load(std::memory_order_relaxed)) fill = Fill::much;
    if (noted - written >= all_.load(std::memory_order_relaxed)) fill = Fill::all;
    if (held_up()) fill = Fill::little;  // as full()
    fill_.store(fill, std::memory_order_relaxed);
    return fill;
  }
  // `noted`: what the log has of what was noted.
  void see_written(std::uint64_t noted) noexcept {
    written_.store(noted, std::memory_order_release);
  }
  void see_room() noexcept {
    const std::uint64_t filled = log_.filled_bytes();
    const auto until = [&](std::uint64_t bound) {
      return (bound - std::min(bound, filled)) / CutPace::kLogged;
    };
    const std::uint64_t soft = until(soft_bound());
    soft_.store(soft != 0 ? soft : kNoBound, std::memory_order_relaxed);
    all_.store(until(bound()), std::memory_order_relaxed);
    const bool throttles = shape_.throttles && !by_callers_;
    each_.store(throttles ? pace_.lines_in(shape_.interval_ns) : kNoBound,
                std::memory_order_relaxed);
    looked_at_.store(0, std::memory_order_release);
  }
  void see_log() noexcept {
    used_.store(log_.used_bytes(), std::memory_order_relaxed);
    see_room();
    if (wants_fold()) watch_.wants_fold();
  }

  Cutter<P> cutter_;
  StoreTracker<P>& tracker_;
  EpochLog& log_;
  const Storage& pool_;
  CutWatch& watch_;
  const CutShape shape_;
  CutPace pace_;

  typename P::Latch latch_;  // of a cut, with its write: one thread at a time
  typename P::template Atomic<std::uint32_t> users_{0};      // of the log, that wait for the latch
  typename P::template Atomic<std::uint32_t> waiting_{0};    // callers
  typename P::template Atomic<std::uint64_t> waited_at_{0};  // the last that has
  typename P::template Atomic<std::uint64_t> begun_{0};
  typename P::template Atomic<std::uint64_t> reached_{0};
  typename P::template Atomic<std::uint64_t> wanted_{0};
  typename P::template Atomic<std::uint64_t> durable_at_;
  typename P::template Atomic<std::uint64_t> due_;
  // What the last cut took: a disk whose writes take longer than an interval must not stop
  // mutations most of the time.
  typename P::template Atomic<std::uint64_t> slack_{0};
  typename P::template Atomic<std::uint64_t> used_{0};  // bytes of the log that are needed
  // Lines that may be noted: for a cut, and until the bounds of the log.
  typename P::template Atomic<std::uint64_t> each_{kNoBound};
  typename P::template Atomic<std::uint64_t> soft_{kNoBound};
  typename P::template Atomic<std::uint64_t> all_{kNoBound};
  // Of the lines that were noted: in the log, and before the last cut.
  typename P::template Atomic<std::uint64_t> written_{0};
  typename P::template Atomic<std::uint64_t> taken_{0};
  typename P::template Atomic<std::uint64_t> looked_at_{0};
  typename P::template Atomic<Fill> fill_{Fill::little};
  typename P::template Atomic<std::uint32_t> done_{0};  // changes with reached_ and failed_
  typename P::template Atomic<bool> failed_{false};
  typename P::template Atomic<bool> busy_{false};         // the last cut has to be tried again
  typename P::template Atomic<bool> held_up_{false};      // by a thread that has stopped in a store
  typename P::template Atomic<bool> caller_cuts_{false};  // with the latch, until the disk has it
  typename P::template Atomic<bool> threaded_{false};
  typename P::template Atomic<bool> clean_{false};
  bool by_callers_ = false;
  std::uint64_t retry_at_ = 0;  // after a failure; 0: it has just come
  typename P::template Atomic<Keeper*> keeper_{nullptr};
  mutable typename P::Latch figures_latch_;
  CutFigures figures_;
  Status failure_;  // under figures_latch_

  Body body_{this};
  WorkThread<P> work_{body_};
};

}  // namespace perdure
