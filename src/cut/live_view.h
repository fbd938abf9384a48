// LiveView: what an observer of a `buffered` pool sees: the live image where it is live, and the
// base elsewhere (live_chunks.h).
//
// WHAT  While the pool's owner uses it, chunks become live. A thread looks for them, and shows them
//   a short time later. Until then the observer sees such a chunk as it was when the owner opened
//   the pool, and, if a fold runs, in part as it is now. What an observer reads of a pool in use is
//   a mixture in any case.
// Thread safety: one thread opens and closes it, and starts and stops the thread.
#pragma once

#include <fcntl.h>

#include <atomic>  // memory orders
#include <cstdint>
#include <utility>

#include "cut/live_chunks.h"
#include "platform/timed_event.h"

namespace perdure {

class LiveView {
 public:
  // `image` is mapped, and must stay so.
  LiveView(FileStorage& image, const FileStorage& base) noexcept
      : chunks_(image, ::fcntl(base.descriptor(), F_DUPFD_CLOEXEC, 3)) {}
  LiveView(const LiveView&) = delete;
  LiveView& operator=(const LiveView&) = delete;
  ~LiveView() { stop(); }

  // Errors: corruption, out_of_memory, io.
  Status show() noexcept { return chunks_.go_on(); }
  // Without the thread: shows what became live.
  void refresh() noexcept {
    LatchGuard guard(latch_);
    if (!threaded_) chunks_.refresh();
  }
  // False: the system refuses the thread.
  bool start() noexcept {
    threaded_ = thread_.start(body_);
    return threaded_;
  }
  const LiveChunks& chunks() const noexcept { return chunks_; }
  void stop() noexcept {
    stopped_.store(true, std::memory_order_release);
    event_.signal();
    if (std::exchange(threaded_, false)) thread_.join();
  }
  void abandon() noexcept {  // in a child of fork
    threaded_ = false;
    chunks_.abandon();
  }

 private:
  static constexpr std::uint64_t kInterval = 20'000'000;  // nanoseconds

  struct Body {
    LiveView* view;
    void operator()() const { view->run(); }
  };
  void run() noexcept {
    for (;;) {
      const std::uint32_t seen = event_.seen();
      if (stopped_.load(std::memory_order_acquire)) return;
      chunks_.refresh();
      event_.wait(seen, kInterval);
    }
  }

  LiveChunks chunks_;
  RealPlatform::Atomic<bool> stopped_{false};
  TimedEvent event_;
  bool threaded_ = false;
  RealPlatform::Latch latch_;  // of refresh()
  Body body_{this};
  RealPlatform::Thread thread_;
};

}  // namespace perdure
