// ReadCounter: the platform of this machine, which counts the lines of the pool that a search
// reads, and those that a small simulated cache does not have. Lines that are only prefetched, and
// those of DRAM, do not count.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "platform/real_platform.h"

namespace perdure::paper {

// For one thread and one search at a time.
class ReadCounter : public RealPlatform {
 public:
  std::uint64_t load(const std::uint64_t& word) const noexcept {
    note(&word);
    return RealPlatform::load(word);
  }
  std::uint64_t peek(const std::uint64_t& word) const noexcept {
    note(&word);
    return RealPlatform::peek(word);
  }
  static std::uint32_t match_words(const std::uint64_t* line, std::uint32_t n,
                                   std::uint16_t tag) noexcept {
    note(line);
    return RealPlatform::match_words(line, n, tag);
  }

  // An empty cache of so many lines, a power of two, each of which has one place.
  static void begin(std::size_t cached) {
    cache_.assign(cached, 0);
    lines_ = misses_ = 0;
  }
  static void begin_search() noexcept { search_.clear(); }
  // Distinct lines, of each search, since begin().
  static std::uint64_t lines() noexcept { return lines_; }
  static std::uint64_t misses() noexcept { return misses_; }

 private:
  static void note(const void* p) noexcept {
    if (cache_.empty()) return;
    const std::uintptr_t line = reinterpret_cast<std::uintptr_t>(p) / kLine;
    if (std::ranges::find(search_, line) != search_.end()) return;
    search_.push_back(line);
    ++lines_;
    std::uintptr_t& place = cache_[line & (cache_.size() - 1)];
    if (place != line) ++misses_;
    place = line;
  }

  static inline std::vector<std::uintptr_t> cache_;
  static inline std::vector<std::uintptr_t> search_;
  static inline std::uint64_t lines_ = 0;
  static inline std::uint64_t misses_ = 0;
};

}  // namespace perdure::paper
