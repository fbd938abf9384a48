// The workers of `load`. They take blocks of lines and report up to which line everything is
// durable. One thread may call push, drain and finish; any thread may call acknowledged.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "commands.h"
#include "load_input.h"

namespace perdure::cli {

// The durable part of the input: lines 1 to `lines`, which end at byte `offset`.
struct Acknowledged {
  std::uint64_t lines = 0;
  std::uint64_t offset = 0;
};

struct LoadFailure {
  std::uint64_t line;
  Status status;
};

class LoadPipeline {
 public:
  LoadPipeline(TextMap& map, unsigned threads, Acknowledged start);
  ~LoadPipeline();
  LoadPipeline(const LoadPipeline&) = delete;
  LoadPipeline& operator=(const LoadPipeline&) = delete;

  // Waits until there is room. Returns false if a worker failed or a signal came; push no more
  // then.
  bool push(std::unique_ptr<Block> block);
  // Waits until all blocks that were pushed are done. Returns false as push() does.
  bool drain();
  // Ends the load with a failure of this line.
  void fail_at(std::uint64_t line, Status status);
  // Waits until the workers have done all blocks or, with `abandon`, their present line.
  void finish(bool abandon);

  Acknowledged acknowledged();
  std::uint64_t records() const noexcept { return records_.load(std::memory_order_relaxed); }
  // Valid after finish().
  const std::optional<LoadFailure>& failure() const noexcept { return failure_; }

 private:
  void work(unsigned me);
  bool load_share(Block& block, unsigned me);
  // Returns the first block from `number` on, and moves `number` to it. Returns null if no block
  // follows.
  std::shared_ptr<Block> take(std::uint64_t& number);
  void retire_locked();
  bool stopped() const noexcept { return stop_.load(std::memory_order_relaxed) || interrupted(); }

  TextMap& map_;
  std::atomic<bool> stop_ = false;
  std::atomic<std::uint64_t> records_ = 0;

  std::mutex mutex_;  // guards all members below
  std::condition_variable room_;
  std::condition_variable more_;
  std::deque<std::shared_ptr<Block>>
      blocks_;                      // in input order; blocks that are done leave at the front
  std::uint64_t front_number_ = 0;  // the number of blocks_.front(), counted from the first push
  Acknowledged retired_;            // the durable part that the blocks that left make up
  bool ended_ = false;
  std::optional<LoadFailure> failure_;

  std::vector<std::thread> threads_;
};

}  // namespace perdure::cli
