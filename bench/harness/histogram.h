// Histogram: counts nanoseconds in log-linear buckets, as HdrHistogram does.
//
// A value below 256 has its own bucket. Above, every power of two is divided into 128 equal parts.
// A percentile is therefore never below its value, and at most 1/128 (0.8 %) above it. The maximum
// is exact. Not thread-safe: each thread has one, and the driver merges them at the end.
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
  // Returns the smallest bucket end that at least `quantile` of all values do not exceed; 0 if
  // empty.
  std::uint64_t percentile(double quantile) const noexcept;

  static constexpr unsigned kPartBits = 7;
  static constexpr std::uint64_t kParts = 1ULL << kPartBits;
  // Shifts 0 to 63 - kPartBits. The first also has a bucket for each value below kParts.
  static constexpr std::size_t kBuckets = (64 - kPartBits + 1) * kParts;

  static constexpr std::size_t bucket_of(std::uint64_t value) noexcept {
    if (value < 2 * kParts) return static_cast<std::size_t>(value);
    const unsigned shift = static_cast<unsigned>(std::bit_width(value)) - (kPartBits + 1);
    return static_cast<std::size_t>(shift * kParts + (value >> shift));
  }
  // The largest value of the bucket.
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
