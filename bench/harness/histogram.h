// Histogram: counts of nanoseconds in log-linear buckets, as HdrHistogram keeps them.
//
// A value below 256 has its own bucket; above, every power of two is cut into 128 equal parts, so
// that a percentile is at most 1/128 (0.8 %) above the value it stands for, never below it. The
// maximum is kept exactly. Thread safety: none; one per thread, merged at the end.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace perdure::bench {

class Histogram {
 public:
  void record(std::uint64_t value) noexcept {
    ++counts_[bucket_of(value)];
    ++count_;
    if (value > max_) max_ = value;
  }
  void merge(const Histogram& other) noexcept;

  std::uint64_t count() const noexcept { return count_; }
  std::uint64_t max() const noexcept { return max_; }
  // The smallest bucket end that at least `quantile` of all values do not exceed; 0 if empty.
  std::uint64_t percentile(double quantile) const noexcept;

  static constexpr unsigned kPartBits = 7;
  static constexpr std::uint64_t kParts = 1ULL << kPartBits;
  // Shifts 0 to 63 - kPartBits, the first with a second half of its own below kParts.
  static constexpr std::size_t kBuckets = (64 - kPartBits + 1) * kParts;

  static constexpr std::size_t bucket_of(std::uint64_t value) noexcept {
    if (value < 2 * kParts) return static_cast<std::size_t>(value);
    const unsigned shift = static_cast<unsigned>(std::bit_width(value)) - (kPartBits + 1);
    return static_cast<std::size_t>(shift * kParts + (value >> shift));
  }
  // The largest value in the bucket.
  static constexpr std::uint64_t bucket_end(std::size_t bucket) noexcept {
    if (bucket < 2 * kParts) return bucket;
    const std::uint64_t shift = bucket / kParts - 1;
    const std::uint64_t part = bucket - shift * kParts;
    return ((part + 1) << shift) - 1;
  }

 private:
  std::array<std::uint64_t, kBuckets> counts_ = {};
  std::uint64_t count_ = 0;
  std::uint64_t max_ = 0;
};

}  // namespace perdure::bench
