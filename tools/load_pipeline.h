// The workers of `load`: blocks of lines go in, "everything up to line N is durable" comes out.
// push, drain and finish are for one thread; acknowledged for any.
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

// How much of the input is durable: all lines 1..lines, which end at byte `offset`.
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

  // Waits until there is room. False: a worker failed or a signal came, no more is wanted.
  bool push(std::unique_ptr<Block> block);
  // Waits until everything that was pushed is done. False: as push.
  bool drain();
  // Ends the load, as a worker does that fails in this line.
  void fail_at(std::uint64_t line, Status status);
  // Waits until the workers have done everything, or, if `abandon`, their present line.
  void finish(bool abandon);

  Acknowledged acknowledged();
  std::uint64_t records() const noexcept { return records_.load(std::memory_order_relaxed); }
  // After finish().
  const std::optional<LoadFailure>& failure() const noexcept { return failure_; }

 private:
  void work(unsigned me);
  bool load_share(Block& block, unsigned me);
  // The first block from `number` on; moves `number` to it. Null: nothing will come any more.
  std::shared_ptr<Block> take(std::uint64_t& number);
  void retire_locked();
  bool stopped() const noexcept { return stop_.load(std::memory_order_relaxed) || interrupted(); }

  TextMap& map_;
  std::atomic<bool> stop_ = false;
  std::atomic<std::uint64_t> records_ = 0;

  std::mutex mutex_;  // guards all below
  std::condition_variable room_;
  std::condition_variable more_;
  std::deque<std::shared_ptr<Block>> blocks_;  // in input order; those done leave at the front
  std::uint64_t front_number_ = 0;             // of blocks_.front(), counted from the first push
  Acknowledged retired_;                       // what the blocks that left amount to
  bool ended_ = false;
  std::optional<LoadFailure> failure_;

  std::vector<std::thread> threads_;
};

}  // namespace perdure::cli
