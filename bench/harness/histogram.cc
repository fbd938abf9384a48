#include "bench/harness/histogram.h"

#include <algorithm>
#include <cmath>

namespace perdure::bench {

void Histogram::merge(const Histogram& other) noexcept {
  for (std::size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  max_ = std::max(max_, other.max_);
}

std::uint64_t Histogram::percentile(double quantile) const noexcept {
  if (count_ == 0) return 0;
  const double wanted = std::ceil(quantile * static_cast<double>(count_));
  const auto rank = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(wanted), 1, count_);
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    seen += counts_[i];
    if (seen >= rank) return std::min(bucket_end(i), max_);
  }
  return max_;
}

}  // namespace perdure::bench
