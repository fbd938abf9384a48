// A line on the terminal of standard error that is rewritten in place: bar, bytes, rate, time left.
// On anything else it prints nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

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
  // What a line shows, in the order of the line. If it is too long for the terminal, the part with
  // the highest rank is left out first.
  struct Part {
    int rank;
    std::string text;
  };
  double done(std::uint64_t bytes) const;  // from 0 to 1
  std::vector<Part> amount(std::uint64_t bytes) const;
  // Prints the parts, and a bar if they leave room for one.
  void print(std::vector<Part> parts, double done);

  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::uint64_t start_;  // bytes that an earlier run has loaded
  std::uint64_t total_;
  bool visible_;
  double shown_at_ = -1;  // seconds()
};

}  // namespace perdure::cli
