// History: the values of a key of an ephemeral baseline by version, and the clock of the versions.
//
// It is the paper's vector with binary search, in segments: entries never move. It leaves out the
// paper's counters of started and finished operations. With them an insert is invisible until
// others come (hazards V1, V2), which would favour the baseline.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

#include "perdure/function_ref.h"

namespace perdure::paper::versions {

class History {
 public:
  History() = default;
  History(const History&) = delete;
  History& operator=(const History&) = delete;
  ~History() {
    for (auto& segment : segments_) delete[] segment.load(std::memory_order_relaxed);
  }

  // Draws the version from the clock while it holds the place. Entries are therefore in order.
  std::uint64_t append(std::atomic<std::uint64_t>& clock, std::uint64_t value, bool removed) {
    while (busy_.test_and_set(std::memory_order_acquire)) {
    }
    const std::uint32_t at = count_.load(std::memory_order_relaxed);
    const unsigned segment = segment_of(at);
    Entry* entries = segments_[segment].load(std::memory_order_relaxed);
    if (entries == nullptr) {
      entries = new Entry[1U << segment];
      segments_[segment].store(entries, std::memory_order_release);
    }
    const std::uint64_t version = clock.fetch_add(1, std::memory_order_seq_cst);  // the tag
    entries[at - first_of(segment)] = {version, value, removed};
    count_.store(at + 1, std::memory_order_release);
    busy_.clear(std::memory_order_release);
    return version;
  }
  // Returns whether the key was present.
  bool find(std::uint64_t version, std::uint64_t& value) const {
    std::uint32_t low = 0;
    std::uint32_t high = count_.load(std::memory_order_acquire);
    while (low < high) {
      const std::uint32_t middle = (low + high) / 2;
      if (entry(middle).version <= version) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    if (low == 0 || entry(low - 1).removed) return false;
    value = entry(low - 1).value;
    return true;
  }
  std::uint64_t visit(FunctionRef<void(std::uint64_t, std::uint64_t, bool)> visit) const {
    const std::uint32_t count = count_.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < count; ++i) {
      visit(entry(i).version, entry(i).value, entry(i).removed);
    }
    return count;
  }
  bool present() const {
    const std::uint32_t count = count_.load(std::memory_order_acquire);
    return count != 0 && !entry(count - 1).removed;
  }

 private:
  struct Entry {
    std::uint64_t version = 0;
    std::uint64_t value = 0;
    bool removed = false;
  };
  // Segment s holds 2^s entries.
  static unsigned segment_of(std::uint32_t at) {
    return static_cast<unsigned>(std::bit_width(at + 1)) - 1;
  }
  static std::uint32_t first_of(unsigned segment) { return (1U << segment) - 1; }
  const Entry& entry(std::uint32_t at) const {
    const unsigned segment = segment_of(at);
    return segments_[segment].load(std::memory_order_acquire)[at - first_of(segment)];
  }

  std::atomic<std::uint32_t> count_{0};
  std::atomic_flag busy_;
  std::atomic<Entry*> segments_[24] = {};
};

}  // namespace perdure::paper::versions
