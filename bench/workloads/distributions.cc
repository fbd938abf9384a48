#include "bench/workloads/distributions.h"

#include <cmath>

#include "bench/workloads/ycsb.h"

namespace perdure::bench {
namespace {

// ScrambledZipfianGenerator's fixed item count (0 to 10^10 inclusive) and its zeta.
constexpr std::uint64_t kScrambledItems = 10'000'000'001ULL;
constexpr double kScrambledZetan = 26.46902820178302;

}  // namespace

double zeta(std::uint64_t from, std::uint64_t to, double theta) noexcept {
  double sum = 0;
  for (std::uint64_t i = from; i < to; ++i) sum += 1 / std::pow(static_cast<double>(i + 1), theta);
  return sum;
}

Zipfian::Zipfian(std::uint64_t items) : Zipfian(items, zeta(0, items, kZipfianConstant)) {}

Zipfian::Zipfian(std::uint64_t items, double zetan) noexcept
    : items_(items), first_items_(items), zetan_(zetan), zeta2_(zeta(0, 2, kZipfianConstant)) {
  update_eta();
}

void Zipfian::update_eta() noexcept {
  const double ratio = 2.0 / static_cast<double>(first_items_);
  eta_ = (1 - std::pow(ratio, 1 - kZipfianConstant)) / (1 - zeta2_ / zetan_);
}

void Zipfian::grow(std::uint64_t items) noexcept {
  zetan_ += zeta(items_, items, kZipfianConstant);
  items_ = items;
  update_eta();
}

std::uint64_t Zipfian::at(double u) const noexcept {
  const double uz = u * zetan_;
  if (uz < 1 || items_ < 2) return 0;
  if (uz < 1 + std::pow(0.5, kZipfianConstant)) return 1;
  const double share = std::pow(eta_ * u - eta_ + 1, 1 / (1 - kZipfianConstant));
  const auto rank = static_cast<std::uint64_t>(static_cast<double>(items_) * share);
  // With two items the shape parameter is nearly 0/0, and rounding can reach the end, as in YCSB.
  return rank < items_ ? rank : items_ - 1;
}

ScrambledZipfian::ScrambledZipfian(std::uint64_t items) noexcept
    : zipfian_(kScrambledItems, kScrambledZetan), items_(items) {}

std::uint64_t ScrambledZipfian::scatter(std::uint64_t rank) const noexcept {
  return ycsb_hash(rank) % items_;
}

}  // namespace perdure::bench
