// BlockNeeds: the blocks that a batch of mutations will allocate. BlockStash: these blocks.
//
// Thread safety: for one thread at a time.
#pragma once

#include <cstdint>
#include <utility>

#include "heap/extent_table.h"
#include "heap/size_classes.h"
#include "platform/platform.h"
#include "util/containers.h"

namespace perdure {

// A block that has extents of its own.
struct BlockRun {
  std::uint64_t offset = 0;
  std::uint64_t extents = 0;
  BlockKind kind = BlockKind::plain;
};

class BlockNeeds {
 public:
  // Adds blocks of at least n bytes.
  [[nodiscard]] bool add(std::size_t n, BlockKind kind, std::uint64_t count = 1) {
    if (n <= kCounted) {
      counts_[static_cast<std::uint32_t>(kind)][class_of(n)] += count;
      return true;
    }
    for (; count > 0; --count) {
      if (!large_.push_back({n, kind})) return false;
    }
    return true;
  }
  // Calls visit(bytes, kind) for each block, until it returns false. Large ones come first: the
  // small ones may lie where a large one has no room.
  template <class F>
  bool for_each(F&& visit) const {
    for (const Large& large : large_) {
      if (!visit(large.bytes, large.kind)) return false;
    }
    for (std::uint32_t kind = 0; kind < kBlockKinds; ++kind) {
      for (std::uint32_t c = kClassCount; c-- > 0;) {
        for (std::uint64_t n = counts_[kind][c]; n > 0; --n) {
          if (!visit(kClassSizes[c], static_cast<BlockKind>(kind))) return false;
        }
      }
    }
    return true;
  }

 private:
  // Of larger blocks it depends on the pool's extents whether they have a class.
  static constexpr std::size_t kCounted = kPage / 2;
  struct Large {
    std::size_t bytes = 0;
    BlockKind kind = BlockKind::plain;
  };
  std::uint64_t counts_[kBlockKinds][kClassCount] = {};
  Array<Large> large_;
};

class BlockStash {
 public:
  // Before that take() finds nothing.
  void serve() { serves_ = true; }
  [[nodiscard]] bool put(const BlockRun& run) { return runs_.push_back(run); }
  [[nodiscard]] bool put(std::uint32_t size_class, BlockKind kind, std::uint64_t block) {
    return blocks_[static_cast<std::uint32_t>(kind)][size_class].push_back(block);
  }
  // Returns a block of this size or, if there is none, the smallest larger one with the same
  // alignment; 0 if there is none. `size_class`: kClassCount for a run of `extents`. The call that
  // needs the larger one finds another: there are as many blocks as needs, each at least as large
  // as its need.
  std::uint64_t take(std::uint32_t size_class, std::uint64_t extents, BlockKind kind) {
    if (!serves_) return 0;
    if (size_class != kClassCount) {
      const std::uint32_t alignment = kClassSizes[size_class] & -kClassSizes[size_class];
      for (std::uint32_t c = size_class; c < kClassCount; ++c) {
        Array<std::uint64_t>& blocks = blocks_[static_cast<std::uint32_t>(kind)][c];
        if (!blocks.empty() && kClassSizes[c] % alignment == 0) return blocks.pop_back();
      }
    }
    BlockRun* best = nullptr;
    for (BlockRun& run : runs_) {
      if (run.offset == 0 || run.kind != kind || run.extents < extents) continue;
      if (best == nullptr || run.extents < best->extents) best = &run;
    }
    return best != nullptr ? std::exchange(best->offset, 0) : 0;
  }
  // Calls visit(block) for each that is left.
  template <class F>
  void for_each(F&& visit) const {
    for (const BlockRun& run : runs_) {
      if (run.offset != 0) visit(run.offset);
    }
    for (const auto& row : blocks_) {
      for (const Array<std::uint64_t>& blocks : row) {
        for (const std::uint64_t block : blocks) visit(block);
      }
    }
  }
  // Of the runs, those that take() has returned have the offset 0.
  const Array<BlockRun>& runs() const { return runs_; }

 private:
  Array<std::uint64_t> blocks_[kBlockKinds][kClassCount];
  Array<BlockRun> runs_;
  bool serves_ = false;
};

}  // namespace perdure
