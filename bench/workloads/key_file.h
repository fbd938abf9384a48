// KeyFile: the lines of a file as keys, for `--keys file:F`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/workloads/data.h"

namespace perdure::bench {

class KeyFile {
 public:
  // Reads the file. Fails if that is impossible, or a line is longer than a key may be.
  static Result<std::shared_ptr<const KeyFile>> read(const std::string& path);
  // Keeps the first of equal lines, and no empty ones.
  static Result<std::shared_ptr<const KeyFile>> parse(std::string text);

  std::uint64_t lines() const noexcept { return lines_.size(); }
  std::string_view line(std::uint64_t number) const noexcept { return lines_[number]; }
  bool contains(std::string_view line) const noexcept;

  // The longest line, or text of write_absent().
  std::size_t max_length() const noexcept;
  // Writes text that resembles the line and is no line of the file; returns its length. Lines that
  // differ little may get the same text.
  std::size_t write_absent(std::uint64_t number, char* out) const noexcept;

 private:
  KeyFile() = default;
  Result<void> add_lines();
  // The slot that has this line, or the free one for it.
  std::size_t slot(std::string_view line) const noexcept;

  static constexpr std::uint32_t kFree = ~std::uint32_t{0};

  std::string text_;
  std::vector<std::string_view> lines_;
  std::vector<std::uint32_t> slots_;  // an open hash table of numbers of lines
  std::size_t longest_ = 0;
};

}  // namespace perdure::bench
