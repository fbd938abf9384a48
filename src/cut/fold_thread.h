// FoldThread: folds the log of a pool into its base when the log has become long (folding.h).
//
// WHAT  A thread waits until the stream of cuts wants a fold; after a second it ends, and it is
//   started again when one is wanted. It copies a piece of the pool, waits for a cut, writes the
//   piece to the base, and so on. The stream goes on meanwhile.
// INVARIANTS
//   thread.D1  The log is used under the latch of the stream only.
//   thread.D2  The watch knows the epoch that the base will have before a mark says so.
//   thread.D3  While with_base() calls its function, and in after_fold(), no fold is under way. The
//       base has every epoch that was durable before with_base(), or before_fold().
// FAILURE  The stream fails with the error (CutStream::on_fold_failed()). After its resume() the
//   next fold writes all pages again. If memory is short, the fold is tried again a second later.
// WITHOUT A THREAD  run_due() makes a step: a fold begins, a piece, or its end; fold() makes all.
#pragma once

#include <atomic>  // memory orders
#include <cstdint>
#include <utility>

#include "cut/cut_stream.h"
#include "cut/folding.h"
#include "platform/work_thread.h"

namespace perdure {

class FoldWatch {
 public:
  // Before the base is changed. An error: it must not be.
  virtual Status on_folding(std::uint64_t epoch) noexcept = 0;
  virtual void on_folded(std::uint64_t epoch) noexcept = 0;
  // A fold begins. It will have every store that came before this call.
  virtual void before_fold() noexcept = 0;
  // The base has everything from before the last before_fold(), and no fold is under way.
  virtual void after_fold() noexcept = 0;
  virtual Expected<bool> copy_page(std::uint64_t page, std::byte* to) noexcept = 0;  // PageContent

 protected:
  ~FoldWatch() = default;
};

struct FoldFigures {
  std::uint64_t folds = 0;
  std::uint64_t written_bytes = 0;  // to the base
};

template <class P>
class FoldThread {
 public:
  // Everything must stay valid.
  FoldThread(CutStream<P>& stream, Folding& folding, EpochLog& log, FoldWatch& watch) noexcept
      : stream_(stream),
        folding_(folding),
        log_(log),
        watch_(watch),
        folded_(log.marks().mark().folded) {}
  FoldThread(const FoldThread&) = delete;
  FoldThread& operator=(const FoldThread&) = delete;
  ~FoldThread() { stop(); }

  // Returns false if the system refuses the thread.
  bool start() noexcept {
    has_threads_ = work_.wake();
    threaded_.store(has_threads_, std::memory_order_relaxed);
    return has_threads_;
  }
  // Ends the thread; a fold that has begun is given up. Idempotent.
  void stop() noexcept {
    if (abandoned_) return;
    work_.stop();
    threaded_.store(false, std::memory_order_relaxed);
    stream_.with_log([&] { folding_.cancel(); });
  }
  // In a child of fork. The parent may have had the latches.
  void abandon() noexcept {
    threaded_.store(false, std::memory_order_relaxed);
    has_threads_ = false;
    abandoned_ = true;
  }

  // If the system refuses a thread, callers make the steps until the next one that it grants.
  void wake() noexcept {
    if (has_threads_) threaded_.store(work_.wake(), std::memory_order_relaxed);
  }
  bool has_thread() const noexcept { return threaded_.load(std::memory_order_relaxed); }
  // A fold is due, however short the log is, but not more often than one a second. Any thread; does
  // not wait for the fold.
  void ask() noexcept {
    wanted_.store(true, std::memory_order_release);
    wake();
  }
  // Of a log that has failed for want of space; the caller has its latch. Returns whether segments
  // are free now. A piece that is written later finds that the log has failed, and is not written.
  bool make_space() noexcept {
    LatchGuard guard(base_latch_);
    const std::uint64_t epoch = log_.durable().epoch;
    if (!watch_.on_folding(epoch).ok()) return false;
    const auto done = log_.fold_durable();
    if (!done || !*done) return false;
    spaces_.fetch_add(1, std::memory_order_relaxed);  // before the release of set_folded()
    set_folded(epoch);
    return true;
  }
  // Without a thread: a step, if a fold is wanted or has begun. Returns whether it did something.
  bool run_due() noexcept {
    if (has_thread() || !step_latch_.try_lock()) return false;
    const bool done = !stream_.held_up() && due() && does_step();
    step_latch_.unlock();
    return done;
  }
  // Returns when the base has everything that was acknowledged before the call. Errors: those of
  // the log, out_of_memory.
  Status fold() noexcept {
    if (Status s = stream_.make_cut(); !s.ok()) return s;
    const std::uint64_t wanted = stream_.with_log([&] { return log_.durable().epoch; });
    const std::uint64_t before = short_.load(std::memory_order_acquire);
    for (;;) {
      const std::uint32_t seen = done_.load(std::memory_order_acquire);
      if (folded_.load(std::memory_order_acquire) >= wanted) return {};
      if (Status s = stream_.failure(); !s.ok()) return s;
      if (short_.load(std::memory_order_acquire) != before) return StatusCode::out_of_memory;
      std::uint64_t asked = asked_.load(std::memory_order_relaxed);
      while (asked < wanted &&
             !asked_.compare_exchange_weak(asked, wanted, std::memory_order_seq_cst)) {
      }
      wake();
      if (has_thread()) {
        P::park(done_, seen);
      } else {
        LatchGuard guard(step_latch_);
        (void)step();
      }
    }
  }
  // Folds, also for ask(), and calls f(), which may change what is free in the base, within
  // alone(). Errors: as fold().
  template <class F>
  Status with_base(F&& f) noexcept {
    for (unsigned folds = 1;; ++folds) {
      const std::uint64_t before = spaces_.load(std::memory_order_relaxed);
      if (Status s = fold(); !s.ok()) return s;
      LatchGuard guard(step_latch_);
      while (folding_.active() || wanted_.load(std::memory_order_acquire)) {  // another one
        if (auto done = step(); !done) return std::move(done.error());
      }
      // After a fold that was given up the next one still writes what is free by now.
      if (spaces_.load(std::memory_order_relaxed) == before || folds == kMostFolds) return f();
    }
  }
  // Calls f() while nothing else writes to the base.
  template <class F>
  auto alone(F&& f) noexcept {
    LatchGuard guard(base_latch_);
    return f();
  }
  FoldFigures figures() const noexcept {
    return {.folds = folds_.load(std::memory_order_relaxed),
            .written_bytes = written_.load(std::memory_order_relaxed)};
  }

 private:
  static constexpr std::uint64_t kNap = 1'000'000'000;
  static constexpr unsigned kMostFolds = 3;  // of with_base(), on a full disk
  // Pages, while callers wait for cuts: the disk has the log's writes behind those of a piece.
  static constexpr std::uint32_t kSmallPiece = 64;

  struct Body {
    FoldThread* thread;
    void operator()() const { thread->run(); }
  };

  // By a caller of fold().
  bool is_awaited() const noexcept {
    return asked_.load(std::memory_order_acquire) > folded_.load(std::memory_order_relaxed);
  }
  // The caller has the latch of steps.
  bool due() const noexcept {
    return folding_.active() || stream_.wants_fold() || is_awaited() ||
           (wanted_.load(std::memory_order_acquire) &&
            P::now_ns() - begun_ns_.load(std::memory_order_relaxed) >= kNap &&
            stream_.failure().ok());
  }
  // The caller has the latch of steps. False: there is nothing to fold.
  Expected<bool> step() noexcept {
    Expected<bool> done = try_step();
    if (done) return done;
    Status s = std::move(done.error());
    const bool again = s == StatusCode::busy || folding_.stale();
    stream_.with_log([&] { folding_.cancel(); });
    if (serves_asked_) wanted_.store(true, std::memory_order_relaxed);
    if (again && !folding_.active()) return true;
    asked_.store(0, std::memory_order_relaxed);  // every caller gets the error, or asks again
    if (s == StatusCode::out_of_memory) {
      short_.fetch_add(1, std::memory_order_release);  // the log is well: later
    } else {
      stream_.on_fold_failed(Status(s));
    }
    tell();
    return fail(std::move(s));
  }
  bool does_step() noexcept {
    const auto done = step();
    return done && *done;
  }
  Expected<bool> try_step() noexcept {
    if (!folding_.active()) return begin();
    const auto content = [this](std::uint64_t page, std::byte* to) {
      return watch_.copy_page(page, to);
    };
    auto copied = folding_.copy(content, stream_.is_awaited() ? kSmallPiece : UINT32_MAX);
    if (!copied) return copied;
    if (Status s = *copied ? write_piece() : end(); !s.ok()) return fail(std::move(s));
    if (!*copied) base_is_current();
    return true;
  }
  void base_is_current() noexcept {
    serves_asked_ = false;
    watch_.after_fold();
  }
  // The caller has the latch of the stream.
  void set_folded(std::uint64_t epoch) noexcept {
    watch_.on_folded(epoch);
    folds_.fetch_add(1, std::memory_order_relaxed);
    folded_.store(epoch, std::memory_order_release);
    tell();
  }
  void tell() noexcept {
    done_.fetch_add(1, std::memory_order_release);
    P::unpark(done_);
  }

  Expected<bool> begin() noexcept {
    begun_ns_.store(P::now_ns(), std::memory_order_relaxed);
    serves_asked_ = wanted_.exchange(false, std::memory_order_acq_rel) || serves_asked_;
    watch_.before_fold();
    // It knows nothing of lines that threads have noted and no cut has gathered.
    const auto nothing = [&] {
      return stream_.rests() && log_.durable().epoch == log_.marks().mark().folded;
    };
    if (!serves_asked_ && stream_.with_log(nothing)) return false;
    Expected<bool> begun = begin_after_cut();
    if (begun && !*begun) base_is_current();
    return begun;
  }
  // False: the base has everything from before the call.
  Expected<bool> begin_after_cut() noexcept {
    // An attempt of a cut that did not succeed may have left a part of an epoch.
    if (Status s = stream_.make_cut(); !s.ok()) return fail(std::move(s));
    return stream_.with_log([&]() -> Expected<bool> {
      if (log_.durable().epoch == log_.marks().mark().folded) return false;
      if (!log_.empty()) return fail(StatusCode::busy);
      Status s = folding_.begin();
      if (s.ok()) s = watch_.on_folding(folding_.end_epoch());
      if (!s.ok()) return fail(std::move(s));
      return true;
    });
  }
  // A piece was copied.
  Status write_piece() noexcept {
    if (Status s = stream_.make_cut(); !s.ok()) return s;
    if (Status s = stream_.with_log([&] { return folding_.unread(); }); !s.ok()) return s;
    if (Status s = folding_.read_back(); !s.ok()) return s;
    if (Status s = stream_.with_log([&] { return folding_.allow(); }); !s.ok()) return s;
    const auto write = [&] {
      LatchGuard guard(base_latch_);
      Status s = folding_.write();
      written_.store(folding_.written(), std::memory_order_relaxed);
      return s;
    };
    return folding_.shares_base() ? stream_.with_log(write) : write();
  }
  Status end() noexcept {
    const std::uint64_t epoch = folding_.end_epoch();
    return stream_.with_log([&] {
      Status ended = folding_.end();
      if (!ended.ok()) return ended;
      stream_.on_folded();
      set_folded(epoch);
      return ended;
    });
  }
  void run() noexcept {
    while (!work_.stopped()) {
      std::uint32_t seen = work_.seen();
      {
        LatchGuard guard(step_latch_);  // a caller of with_base() makes steps, too
        if (due()) {
          if (does_step() || is_awaited()) continue;  // after an error no caller waits
          seen = work_.seen();                        // its own cut may have wanted a fold
        }
      }
      work_.wait(seen, kNap);
      if (!is_due() && !wanted_.load(std::memory_order_acquire) && work_.end(seen)) return;
    }
  }
  bool is_due() noexcept {
    LatchGuard guard(step_latch_);
    return due();
  }

  CutStream<P>& stream_;
  Folding& folding_;
  EpochLog& log_;
  FoldWatch& watch_;
  typename P::template Atomic<std::uint64_t> folded_;     // epoch that the base has
  typename P::template Atomic<std::uint64_t> asked_{0};   // for it
  typename P::template Atomic<std::uint64_t> spaces_{0};  // times that make_space() made some
  typename P::template Atomic<std::uint64_t> short_{0};   // attempts without enough memory
  typename P::template Atomic<std::uint32_t> done_{0};    // changes with folded_ and failures
  typename P::template Atomic<std::uint64_t> folds_{0};
  typename P::template Atomic<std::uint64_t> written_{0};
  typename P::template Atomic<bool> wanted_{false};         // by ask()
  typename P::template Atomic<bool> threaded_{false};       // it is there, or wake() starts it
  typename P::template Atomic<std::uint64_t> begun_ns_{0};  // of the last fold
  typename P::template Atomic<bool> has_threads_{false};
  bool abandoned_ = false;
  bool serves_asked_ = false;     // under step_latch_: ask() came before the fold under way
  typename P::Latch step_latch_;  // of a step; before the latch of the stream
  typename P::Latch base_latch_;  // of a write to the base; after it
  Body body_{this};
  WorkThread<P> work_{body_};
};

}  // namespace perdure
