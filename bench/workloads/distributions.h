// Zipfian, ScrambledZipfian and Latest, number for number as YCSB computes them (Gray et al.,
// "Quickly generating billion-record synthetic databases"). The caller supplies the randomness.
#pragma once

#include <cstdint>

#include "bench/workloads/random.h"

namespace perdure::bench {

inline constexpr double kZipfianConstant = 0.99;

// The sum of 1 / (i + 1)^theta for i in [from, to).
double zeta(std::uint64_t from, std::uint64_t to, double theta) noexcept;

// Ranks [0, items). Ranks 0 and 1 have the probability 1 / (r + 1)^theta / zetan. Later ranks have
// it only roughly: the formula replaces a sum by an integral.
class Zipfian {
 public:
  explicit Zipfian(std::uint64_t items);  // O(items) to compute zetan
  Zipfian(std::uint64_t items, double zetan) noexcept;

  // The rank at quantile u in [0, 1).
  std::uint64_t at(double u) const noexcept;
  std::uint64_t next(Random& random) const noexcept { return at(random.unit()); }

  // Extends the ranks to [0, items); items must not shrink. As in YCSB, the shape parameter keeps
  // the first item count.
  void grow(std::uint64_t items) noexcept;
  std::uint64_t items() const noexcept { return items_; }

 private:
  void update_eta() noexcept;

  std::uint64_t items_;
  std::uint64_t first_items_;
  double zetan_;
  double zeta2_;
  double eta_ = 0;
};

// Ranks of a Zipfian over 10^10 + 1 items, scattered over [0, items) by a hash.
class ScrambledZipfian {
 public:
  explicit ScrambledZipfian(std::uint64_t items) noexcept;

  std::uint64_t next(Random& random) const noexcept { return scatter(zipfian_.next(random)); }
  std::uint64_t scatter(std::uint64_t rank) const noexcept;

 private:
  Zipfian zipfian_;
  std::uint64_t items_;
};

// Positions [1, last]. The distance from `last` is Zipfian over `last` items.
class Latest {
 public:
  explicit Latest(std::uint64_t last) : zipfian_(last < 1 ? 1 : last) {}

  std::uint64_t next(std::uint64_t last, Random& random) noexcept {
    if (last > zipfian_.items()) zipfian_.grow(last);
    return last - zipfian_.next(random);
  }

 private:
  Zipfian zipfian_;
};

}  // namespace perdure::bench
