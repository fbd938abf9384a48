// A line on the terminal of standard error that is rewritten in place: bar, bytes, rate, time left.
// On anything else it prints nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace perdure::cli {

class Progress {
 public:
  // In bytes. `total` is 0 if the size of the input is unknown.
  Progress(std::uint64_t start, std::uint64_t total);

  bool visible() const noexcept { return visible_; }
  void show(std::uint64_t bytes, std::uint64_t records, std::uint64_t acknowledged);
  // Shows bar, bytes and time left only. Prints at most ten times a second, so it may be called
  // often.
  void show_bytes(std::uint64_t bytes, std::uint64_t total);
  void clear();
  double seconds() const;

 private:
  std::string line(std::uint64_t bytes, std::uint64_t records, std::uint64_t acknowledged) const;
  std::string bar(std::uint64_t bytes) const;
  void print(const std::string& text);

  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::uint64_t start_;  // bytes that an earlier run has loaded
  std::uint64_t total_;
  bool visible_;
  double shown_at_ = -1;  // seconds()
};

}  // namespace perdure::cli
