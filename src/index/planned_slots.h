// PlannedSlots: how many slots of each bucket of a hash table the inserts of a batch will take.
//
// Thread safety: for one thread at a time.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace perdure {

class PlannedSlots {
 public:
  // Makes room for so many inserts. Returns false if memory is short.
  [[nodiscard]] bool reset(std::size_t inserts) {
    mask_ = std::bit_ceil(2 * inserts + 1) - 1;
    lines_.reset(new (std::nothrow) Line[mask_ + 1]{});
    return lines_ != nullptr;
  }
  // Of the bucket with this number, any but 0.
  std::uint32_t taken(std::uint64_t bucket) const { return line_of(bucket).taken; }
  void take(std::uint64_t bucket) {
    Line& line = lines_[number_of(bucket)];
    line.bucket = bucket;
    ++line.taken;
  }

 private:
  struct Line {
    std::uint64_t bucket = 0;  // 0: unused
    std::uint32_t taken = 0;
  };
  std::size_t number_of(std::uint64_t bucket) const {
    std::size_t i = (bucket * 0x9E3779B97F4A7C15ULL >> 20) & mask_;
    while (lines_[i].bucket != 0 && lines_[i].bucket != bucket) i = (i + 1) & mask_;
    return i;
  }
  const Line& line_of(std::uint64_t bucket) const { return lines_[number_of(bucket)]; }

  std::unique_ptr<Line[]> lines_;  // open addressing, at most half full
  std::size_t mask_ = 0;
};

}  // namespace perdure
