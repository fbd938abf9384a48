// Progress: shows on standard error, if it is a terminal, how far a phase is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace perdure::bench {

class Progress {
 public:
  // If disabled, every call does nothing.
  explicit Progress(bool enabled) noexcept : enabled_(enabled) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  bool enabled() const noexcept { return enabled_; }
  void start(std::string_view what, std::uint64_t total);
  void show(std::uint64_t done);
  void clear();

 private:
  bool enabled_;
  bool shown_ = false;
  std::string what_;
  std::uint64_t total_ = 0;
};

}  // namespace perdure::bench
