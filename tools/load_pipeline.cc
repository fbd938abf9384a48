#include "load_pipeline.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "tsv.h"

namespace perdure::cli {

namespace {

// Enough to keep the workers busy while the reader waits for the disk.
constexpr std::size_t kMaxBlocks = 32;
// Waits end after this time, because a signal wakes no thread.
constexpr auto kPatience = std::chrono::milliseconds(50);

}  // namespace

LoadPipeline::LoadPipeline(TextMap& map, unsigned threads, Acknowledged start)
    : map_(map), retired_(start) {
  threads_.reserve(threads);
  for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this, i] { work(i); });
}

LoadPipeline::~LoadPipeline() { finish(true); }

bool LoadPipeline::push(std::unique_ptr<Block> block) {
  std::unique_lock lock(mutex_);
  while (blocks_.size() >= kMaxBlocks && !stopped()) room_.wait_for(lock, kPatience);
  if (stopped()) return false;
  blocks_.push_back(std::move(block));
  more_.notify_all();
  return true;
}

bool LoadPipeline::drain() {
  std::unique_lock lock(mutex_);
  while (!blocks_.empty() && !stopped()) room_.wait_for(lock, kPatience);
  return !stopped();
}

void LoadPipeline::fail_at(std::uint64_t line, Status status) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_.emplace(line, std::move(status));
  stop_ = true;
}

void LoadPipeline::finish(bool abandon) {
  if (abandon) stop_ = true;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    more_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

Acknowledged LoadPipeline::acknowledged() {
  const std::lock_guard lock(mutex_);
  retire_locked();
  if (blocks_.empty()) return retired_;
  const Block& block = *blocks_.front();
  const std::uint32_t done = block.done_lines();
  return {block.lines_before + done, block.end_of(done)};
}

void LoadPipeline::work(unsigned me) {
  for (std::uint64_t number = 0;; ++number) {
    const std::shared_ptr<Block> block = take(number);
    if (!block || !load_share(*block, me)) return;
    const std::lock_guard lock(mutex_);
    retire_locked();
  }
}

bool LoadPipeline::load_share(Block& block, unsigned me) {
  std::string key_storage;
  std::string value_storage;
  const std::string_view text = block.text;
  const std::vector<std::uint32_t>& share = block.shares[me];
  for (std::size_t i = 0; i < share.size(); ++i) {
    if (stopped()) return false;
    const Line& line = block.lines[share[i]];
    const Bytes key = unescape(text.substr(line.begin, line.tab - line.begin), key_storage);
    const Bytes value = unescape(text.substr(line.tab + 1, line.end - line.tab - 1), value_storage);
    if (auto put = map_.put(key, value); !put.ok()) {
      fail_at(block.lines_before + share[i] + 1, std::move(put).status());
      return false;
    }
    records_.fetch_add(1, std::memory_order_relaxed);
    const bool last = i + 1 == share.size();
    const auto next = last ? static_cast<std::uint32_t>(block.lines.size()) : share[i + 1];
    block.next[me].store(next, std::memory_order_release);
  }
  return true;
}

std::shared_ptr<Block> LoadPipeline::take(std::uint64_t& number) {
  std::unique_lock lock(mutex_);
  for (;;) {
    // A block in which this worker has no line may have left already.
    number = std::max(number, front_number_);
    if (number - front_number_ < blocks_.size()) return blocks_[number - front_number_];
    if (ended_ || stopped()) return nullptr;
    more_.wait_for(lock, kPatience);
  }
}

void LoadPipeline::retire_locked() {
  while (!blocks_.empty()) {
    const Block& block = *blocks_.front();
    const auto lines = static_cast<std::uint32_t>(block.lines.size());
    if (block.done_lines() < lines) break;
    retired_ = {block.lines_before + lines, block.end_of(lines)};
    blocks_.pop_front();
    ++front_number_;
    room_.notify_one();
  }
}

}  // namespace perdure::cli
