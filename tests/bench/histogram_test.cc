// test: no asan
// The histogram compared with sorted values: never below the true percentile, at most 1/128 above.
#include "bench/harness/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "bench/workloads/random.h"

namespace perdure::bench {
namespace {

TEST(Histogram, IsEmptyAtFirst) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0U);
  EXPECT_EQ(histogram.max(), 0U);
  EXPECT_EQ(histogram.percentile(0.5), 0U);
}

TEST(Histogram, KeepsSmallValuesExactly) {
  Histogram histogram;
  for (std::uint64_t value = 1; value <= 200; ++value) histogram.record(value);
  EXPECT_EQ(histogram.percentile(0.5), 100U);
  EXPECT_EQ(histogram.percentile(0.99), 198U);
  EXPECT_EQ(histogram.percentile(1), 200U);
  EXPECT_EQ(histogram.percentile(0), 1U);
}

TEST(Histogram, BucketsFollowEachOtherWithoutGaps) {
  EXPECT_EQ(Histogram::bucket_of(0), 0U);
  std::uint64_t begin = 0;
  for (std::size_t bucket = 0; bucket < Histogram::kBuckets; ++bucket) {
    const std::uint64_t end = Histogram::bucket_end(bucket);
    ASSERT_GE(end, begin);
    ASSERT_EQ(Histogram::bucket_of(begin), bucket);
    ASSERT_EQ(Histogram::bucket_of(end), bucket);
    ASSERT_LE(static_cast<double>(end - begin), static_cast<double>(begin) / 128);
    begin = end + 1;
  }
  // The last bucket ends with the largest value.
  EXPECT_EQ(begin, 0U);
  EXPECT_EQ(Histogram::bucket_of(std::numeric_limits<std::uint64_t>::max()),
            Histogram::kBuckets - 1);
}

TEST(Histogram, AgreesWithSortedValues) {
  Random random(7);
  std::vector<std::uint64_t> values(50'000);
  Histogram histogram;
  for (std::uint64_t& value : values) {
    value = random.next() >> (20 + random.below(40));  // many magnitudes
    histogram.record(value);
  }
  std::ranges::sort(values);
  for (const double quantile : {0.01, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const auto rank =
        static_cast<std::size_t>(std::ceil(quantile * static_cast<double>(values.size())));
    const std::uint64_t exact = values[std::max<std::size_t>(rank, 1) - 1];
    EXPECT_GE(histogram.percentile(quantile), exact) << quantile;
    EXPECT_LE(static_cast<double>(histogram.percentile(quantile)),
              static_cast<double>(exact) * (1 + 1.0 / 128))
        << quantile;
  }
  EXPECT_EQ(histogram.max(), values.back());
  EXPECT_EQ(histogram.percentile(1), values.back());
}

TEST(Histogram, MergesWhatThreadsCounted) {
  Random random(3);
  Histogram whole;
  Histogram parts[2];
  for (int i = 0; i < 10'000; ++i) {
    const std::uint64_t value = random.below(1'000'000);
    whole.record(value);
    parts[i % 2].record(value);
  }
  parts[0].merge(parts[1]);
  EXPECT_EQ(parts[0].count(), whole.count());
  EXPECT_EQ(parts[0].max(), whole.max());
  for (const double quantile : {0.1, 0.5, 0.99}) {
    EXPECT_EQ(parts[0].percentile(quantile), whole.percentile(quantile));
  }
}

}  // namespace
}  // namespace perdure::bench
