// Shadow: the copy of a pool that cuts keep up to date, as the disk will have it.
#pragma once

#include <cstring>
#include <vector>

#include "cut/cutter.h"

namespace perdure::testing {

class Shadow {
 public:
  explicit Shadow(std::uint64_t bytes) : bytes_(bytes) {}

  // Becomes a copy of the pool.
  void load(const std::byte* pool, std::uint64_t bytes) { std::memcpy(bytes_.data(), pool, bytes); }
  // The sink of a Cutter.
  void operator()(std::uint64_t line, const LineWords& content) {
    std::memcpy(bytes_.data() + line * kLine, content.words, kLine);
    ++lines_;
  }
  // The first line in which it differs from the pool, or the number of lines.
  std::uint64_t differs(const std::byte* pool, std::uint64_t bytes) const {
    if (std::memcmp(bytes_.data(), pool, bytes) == 0) return bytes / kLine;
    std::uint64_t line = 0;
    while (std::memcmp(bytes_.data() + line * kLine, pool + line * kLine, kLine) == 0) ++line;
    return line;
  }
  const std::byte* data() const { return bytes_.data(); }
  std::uint64_t lines() const { return lines_; }

 private:
  std::vector<std::byte> bytes_;
  std::uint64_t lines_ = 0;  // received
};

}  // namespace perdure::testing
