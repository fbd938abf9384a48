// test: no asan
// What the generators of keys draw, against the distributions that YCSB's generators define.
//
// YCSB computes a rank from one uniform number by the formula of Gray et al. Its distribution
// function has a closed form, YcsbZipfian::upto, which is derived here and shares no code with
// bench/. Each sample has a fixed seed and must pass two tests: Pearson's chi-square over the ranks
// and Kolmogorov and Smirnov's over the distribution function. Samples of wrong generators must
// fail both.
#include "bench/workloads/distributions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "bench/workloads/keys.h"
#include "bench/workloads/ledger.h"
#include "bench/workloads/work.h"
#include "bench/workloads/ycsb.h"

namespace perdure::bench {
namespace {

using Counts = std::vector<std::uint64_t>;  // by rank
using Function = std::vector<double>;       // by rank: the probability of this rank or a lower one

constexpr std::uint64_t kDraws = 400'000;
constexpr std::uint64_t kItems = 1000;
constexpr double kTheta = 0.99;  // YCSB's ZIPFIAN_CONSTANT

// A right generator fails one bound with this probability. The seeds are fixed, so a test that has
// passed once fails only after a change.
constexpr double kSignificance = 1e-4;
constexpr double kNormal = 3.7190165;  // the normal distribution exceeds it with kSignificance
// Kolmogorov's distribution exceeds it with kSignificance: sqrt(-ln(kSignificance / 2) / 2). With
// ranks in the place of real numbers the probability is smaller.
constexpr double kKolmogorov = 2.2252514;

// Wilson and Hilferty's approximation of the quantile of chi-square: the upper one of kSignificance
// for z = kNormal, the lower one for -kNormal.
double chi_square_quantile(double freedom, double z) {
  const double spread = 2 / (9 * freedom);
  return freedom * std::pow(1 - spread + z * std::sqrt(spread), 3);
}

double power_sum(std::uint64_t items, double theta) {
  double sum = 0;
  for (std::uint64_t i = items; i > 0; --i) sum += std::pow(static_cast<double>(i), -theta);
  return sum;
}

// The distribution of YCSB's ZipfianGenerator. With u uniform, it returns rank 0 if u * zetan < 1,
// rank 1 if u * zetan < 1 + 0.5^theta, and else floor(items * (eta * u - eta + 1)^alpha). The last
// is at most k where u < 1 - (1 - ((k + 1) / items)^(1 - theta)) / eta. `first` is the count of
// items at construction, which eta keeps.
struct YcsbZipfian {
  std::uint64_t first;
  std::uint64_t items;
  double theta;
  double zetan;

  static YcsbZipfian of(std::uint64_t items, double theta = kTheta) {
    return {items, items, theta, power_sum(items, theta)};
  }

  double upto(std::uint64_t rank) const {
    if (rank == 0) return 1 / zetan;
    const double zeta2 = 1 + std::pow(0.5, theta);
    const double eta = (1 - power(2, first)) / (1 - zeta2 / zetan);
    // Where the items have grown, the formula leaves out the first ranks after the second.
    const double shortcut = 1 - (1 - power(rank + 1, items)) / eta;
    return rank == 1 ? zeta2 / zetan : std::max(zeta2 / zetan, shortcut);
  }
  double below(std::uint64_t rank) const { return rank == 0 ? 0 : upto(rank - 1); }

  Function function() const {
    Function result(items);
    for (std::uint64_t rank = 0; rank < items; ++rank) result[rank] = upto(rank);
    return result;
  }

 private:
  double power(std::uint64_t part, std::uint64_t whole) const {
    return std::pow(static_cast<double>(part) / static_cast<double>(whole), 1 - theta);
  }
};

Function from_weights(const std::vector<double>& weights) {
  Function result(weights.size());
  std::partial_sum(weights.begin(), weights.end(), result.begin());
  const double sum = result.back();
  for (double& value : result) value /= sum;
  return result;
}

Function uniform(std::uint64_t items) { return from_weights(std::vector<double>(items, 1)); }

struct Verdict {
  double chi_square = 0;
  double freedom = -1;  // cells - 1
  double distance = 0;  // the largest of the distribution functions, times sqrt(draws)

  bool chi_passes() const { return chi_square < chi_square_quantile(freedom, kNormal); }
  // Independent draws are not more even than this.
  bool too_even() const { return chi_square < chi_square_quantile(freedom, -kNormal); }
  bool distance_passes() const { return distance < kKolmogorov; }
};

Verdict judge(const Counts& counts, const Function& upto) {
  constexpr double kLeastExpected = 20;  // of a cell: ranks are joined until they have so many
  Verdict verdict;
  const auto draws = static_cast<double>(std::reduce(counts.begin(), counts.end()));
  double seen = 0;
  double cell_seen = 0;
  double cell_begin = 0;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    seen += static_cast<double>(counts[rank]);
    cell_seen += static_cast<double>(counts[rank]);
    const double off = std::abs(seen / draws - upto[rank]);
    verdict.distance = std::max(verdict.distance, off * std::sqrt(draws));
    const double expected = draws * (upto[rank] - cell_begin);
    const bool last = rank + 1 == counts.size();
    if (!last && (expected < kLeastExpected || draws * (1 - upto[rank]) < kLeastExpected)) continue;
    verdict.chi_square += (cell_seen - expected) * (cell_seen - expected) / expected;
    verdict.freedom += 1;
    cell_seen = 0;
    cell_begin = upto[rank];
  }
  return verdict;
}

void expect_fits(const Counts& counts, const Function& upto) {
  const Verdict verdict = judge(counts, upto);
  EXPECT_TRUE(verdict.chi_passes()) << verdict.chi_square << " of " << verdict.freedom;
  EXPECT_FALSE(verdict.too_even()) << verdict.chi_square << " of " << verdict.freedom;
  EXPECT_TRUE(verdict.distance_passes()) << verdict.distance;
}

void expect_refused(const Counts& counts, const Function& upto) {
  const Verdict verdict = judge(counts, upto);
  EXPECT_FALSE(verdict.chi_passes()) << verdict.chi_square << " of " << verdict.freedom;
  EXPECT_FALSE(verdict.distance_passes()) << verdict.distance;
}

template <class Next>
Counts sample(std::uint64_t items, std::uint64_t seed, Next&& next) {
  Counts counts(items);
  Random random(seed);
  for (std::uint64_t i = 0; i < kDraws; ++i) ++counts.at(next(random));
  return counts;
}

// Draws from any distribution by bisection in its function.
Counts sample_of(const Function& upto, std::uint64_t seed) {
  return sample(upto.size(), seed, [&](Random& random) {
    const auto at = std::ranges::upper_bound(upto, random.unit()) - upto.begin();
    return std::min(static_cast<std::uint64_t>(at), upto.size() - 1);
  });
}

// Counts values of [0, 1) in equal cells.
struct Cells {
  Counts counts = Counts(100);

  // A rank becomes a point between the two values of the distribution function beside it. These
  // points are uniform if, and only if, the function is that of the ranks.
  void add(const YcsbZipfian& zipfian, std::uint64_t rank, Random& random) {
    const double low = zipfian.below(rank);
    const double point = low + random.unit() * (zipfian.upto(rank) - low);
    ++counts.at(std::min<std::size_t>(99, static_cast<std::size_t>(point * 100)));
  }
};

TEST(Tests, CriticalValuesAreThoseOfTables) {
  // Quantiles of chi-square at 1e-4 and 1 - 1e-4, from the incomplete gamma function.
  constexpr std::array<std::array<double, 3>, 4> kTable = {{{20, 52.386, 4.395},
                                                            {99, 160.056, 54.987},
                                                            {500, 626.243, 390.852},
                                                            {999, 1173.850, 841.251}}};
  for (const auto& [freedom, upper, lower] : kTable) {
    EXPECT_GE(chi_square_quantile(freedom, kNormal), upper);
    EXPECT_NEAR(chi_square_quantile(freedom, kNormal), upper, 0.3);
    EXPECT_LE(chi_square_quantile(freedom, -kNormal), lower);
    EXPECT_NEAR(chi_square_quantile(freedom, -kNormal), lower, 0.3);
  }
  EXPECT_NEAR(std::erfc(kNormal / std::sqrt(2)) / 2, kSignificance, 1e-10);
  EXPECT_NEAR(2 * std::exp(-2 * kKolmogorov * kKolmogorov), kSignificance, 1e-10);
}

TEST(Zipfian, DrawsYcsbsDistribution) {
  for (const std::uint64_t items : {3ULL, 10ULL, 1000ULL, 50'000ULL}) {
    const Zipfian zipfian(items);
    expect_fits(sample(items, items, [&](Random& random) { return zipfian.next(random); }),
                YcsbZipfian::of(items).function());
  }
}

// Each rank begins and ends where the distribution function says; chance plays no part.
TEST(Zipfian, RanksBeginAndEndWhereYcsbsDo) {
  constexpr double kNear = 1e-9;
  for (const std::uint64_t items : {2ULL, 3ULL, 10ULL, 1000ULL, 50'000ULL}) {
    const Zipfian zipfian(items);
    const YcsbZipfian ycsb = YcsbZipfian::of(items);
    for (std::uint64_t rank = 0; rank < items; ++rank) {
      ASSERT_EQ(zipfian.at(ycsb.below(rank) + kNear), rank) << items;
      ASSERT_EQ(zipfian.at(ycsb.upto(rank) - kNear), rank) << items;
    }
  }
}

TEST(Zipfian, WrongGeneratorsAreRefused) {
  const Function right = YcsbZipfian::of(kItems).function();
  expect_fits(sample_of(right, 1), right);
  expect_refused(sample_of(YcsbZipfian::of(kItems, 0.9).function(), 1), right);
  expect_refused(sample_of(YcsbZipfian::of(kItems, 0.98).function(), 1), right);
  const Zipfian zipfian(kItems);
  expect_refused(
      sample(kItems, 1,
             [&](Random& random) { return std::min(zipfian.next(random) + 1, kItems - 1); }),
      right);
  expect_refused(
      sample(kItems, 1,
             [&](Random& random) { return std::max<std::uint64_t>(zipfian.next(random), 1) - 1; }),
      right);
  expect_refused(sample_of(uniform(kItems), 1), right);
}

// The shortcut that eta and alpha are makes YCSB's distribution another one than Zipf's.
TEST(Zipfian, TheExactZipfDistributionIsRefused) {
  std::vector<double> weights(kItems);
  for (std::uint64_t i = 0; i < kItems; ++i) {
    weights[i] = std::pow(static_cast<double>(i + 1), -kTheta);
  }
  const Function zipf = from_weights(weights);
  const Function ycsb = YcsbZipfian::of(kItems).function();
  expect_refused(sample_of(zipf, 1), ycsb);
  EXPECT_NEAR(ycsb[0], zipf[0], 1e-12);
  EXPECT_NEAR(ycsb[1], zipf[1], 1e-12);
  EXPECT_NEAR((ycsb[2] - ycsb[1]) / (zipf[2] - zipf[1]), 1.17, 0.005);
}

TEST(Zipfian, GrowsAsYcsbsDoes) {
  Zipfian zipfian(kItems);
  zipfian.grow(2 * kItems);
  const YcsbZipfian ycsb{kItems, 2 * kItems, kTheta, power_sum(2 * kItems, kTheta)};
  const Counts counts = sample(2 * kItems, 2, [&](Random& random) { return zipfian.next(random); });
  expect_fits(counts, ycsb.function());
  EXPECT_EQ(counts[2] + counts[3], 0U);
  expect_refused(counts, YcsbZipfian::of(2 * kItems).function());
}

// ScrambledZipfianGenerator's ranks, before they are scattered. Its constant zetan is checked by
// the Euler-Maclaurin formula, because a sum of 10^10 terms takes too long.
constexpr double kItemCount = 1e10;
constexpr double kZetan = 26.46902820178302;

TEST(Scrambled, TheConstantZetanIsTheSum) {
  constexpr std::uint64_t kSummed = 100'000;
  const double rest =
      (std::pow(kItemCount, 1 - kTheta) - std::pow(kSummed, 1 - kTheta)) / (1 - kTheta) +
      (std::pow(kItemCount, -kTheta) - std::pow(kSummed, -kTheta)) / 2;
  EXPECT_NEAR(power_sum(kSummed, kTheta) + rest, kZetan, 1e-8);
}

TEST(Scrambled, RanksAreYcsbsBeforeTheyAreScattered) {
  constexpr auto kAll = static_cast<std::uint64_t>(kItemCount) + 1;
  const Zipfian zipfian(kAll, kZetan);
  const YcsbZipfian ycsb{kAll, kAll, kTheta, kZetan};
  const YcsbZipfian other{kAll, kAll, 0.9, kZetan};
  Cells right;
  Cells wrong;
  Random random(3);
  Random within(4);
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const std::uint64_t rank = zipfian.next(random);
    right.add(ycsb, rank, within);
    wrong.add(other, rank, within);
  }
  expect_fits(right.counts, uniform(100));
  expect_refused(wrong.counts, uniform(100));
}

// The probability of each of `items` places: the sum over the ranks that the hash puts there. The
// ranks after the first million are spread evenly. Such a rank is so rare that this changes
// chi-square by less than 4 in the mean.
std::vector<double> scattered(std::uint64_t items) {
  constexpr std::uint64_t kSummed = 1'000'000;
  constexpr auto kAll = static_cast<std::uint64_t>(kItemCount) + 1;
  const YcsbZipfian ycsb{kAll, kAll, kTheta, kZetan};
  std::vector<double> weights(items, (1 - ycsb.upto(kSummed - 1)) / static_cast<double>(items));
  double low = 0;
  for (std::uint64_t rank = 0; rank < kSummed; ++rank) {
    const double high = ycsb.upto(rank);
    weights[ycsb_hash(rank) % items] += high - low;
    low = high;
  }
  return weights;
}

// One phase of reads over kItems loaded keys: the counts of the positions that `place` makes of
// the indexes.
template <class Place>
Counts phase_counts(Distribution distribution, std::uint64_t seed, Place&& place) {
  const KeySpace keys(KeyScheme::mixed, {}, seed);
  WorkMaker maker(
      {.records = kItems, .operations = kDraws, .distribution = distribution, .seed = seed}, keys);
  Ledger ledger;
  WorkMaker::commit(maker.make(Workload::load, ledger), ledger);
  Counts counts(kItems);
  for (const WorkBlock& block : maker.make(Workload::read, ledger).blocks) {
    for (const std::uint32_t index : block.indexes) ++counts.at(place(index));
  }
  return counts;
}

TEST(Scrambled, PhasesDrawTheHashedRanks) {
  const Counts counts =
      phase_counts(Distribution::zipfian, 5, [](std::uint32_t index) { return index; });
  expect_fits(counts, from_weights(scattered(kItems)));
  // With another item count, other keys are the frequent ones.
  std::vector<double> other = scattered(kItems + 1);
  other.pop_back();
  expect_refused(counts, from_weights(other));
}

TEST(Scrambled, YcsbCRepeatsADrawBeyondTheRecords) {
  YcsbChooser chooser('c', kItems, kDraws);
  chooser.restart(6);
  std::vector<double> weights = scattered(kItems + 1);
  weights.pop_back();
  expect_fits(sample(kItems, 6, [&](Random&) { return chooser.next().position; }),
              from_weights(weights));
}

TEST(LatestKeys, PhasesDrawTheZipfianDistanceFromTheNewest) {
  const Counts counts =
      phase_counts(Distribution::latest, 7, [](std::uint32_t index) { return kItems - 1 - index; });
  expect_fits(counts, YcsbZipfian::of(kItems).function());
  expect_refused(counts, YcsbZipfian::of(kItems, 0.9).function());
}

TEST(LatestKeys, YcsbDFollowsTheInsertions) {
  constexpr std::uint64_t kOperations = 60'000;
  YcsbChooser chooser('d', kItems, kOperations);
  chooser.restart(8);
  YcsbZipfian ycsb = YcsbZipfian::of(kItems - 1);
  Cells right;
  Cells wrong;
  Random within(9);
  for (std::uint64_t i = 0; i < kOperations; ++i) {
    const YcsbRequest request = chooser.next();
    const std::uint64_t newest = kItems + chooser.inserted() - 1;
    if (request.operation == YcsbOperation::insert) continue;
    while (ycsb.items < newest) ycsb.zetan += std::pow(static_cast<double>(++ycsb.items), -kTheta);
    right.add(ycsb, newest - request.position, within);
    // YCSB's shape parameter does not follow the insertions.
    const YcsbZipfian other{ycsb.items, ycsb.items, kTheta, ycsb.zetan};
    wrong.add(other, newest - request.position, within);
  }
  EXPECT_GT(chooser.inserted(), 2 * kItems);
  expect_fits(right.counts, uniform(100));
  expect_refused(wrong.counts, uniform(100));
}

TEST(Uniform, NumbersBelowABoundAreUniform) {
  for (const std::uint64_t bound : {10ULL, 100ULL, 1000ULL}) {
    expect_fits(sample(bound, bound, [&](Random& random) { return random.below(bound); }),
                uniform(bound));
  }
  expect_refused(sample(100, 1, [](Random& random) { return random.below(99); }), uniform(100));
}

// Counts how often each key has each place of a permutation. Of m permutations of n keys, (n - 1) /
// n times Pearson's sum over the n * n cells has the distribution of chi-square with (n - 1)^2
// degrees of freedom.
template <class Permute>
double permutation_chi_square(Permute&& permute) {
  constexpr std::uint64_t kKeys = 10;
  constexpr std::uint64_t kRounds = 20'000;
  std::array<std::array<double, kKeys>, kKeys> counts = {};
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const std::vector<std::uint32_t> order = permute(kKeys);
    for (std::uint64_t place = 0; place < kKeys; ++place) ++counts.at(place).at(order.at(place));
  }
  constexpr double kExpected = static_cast<double>(kRounds) / kKeys;
  double sum = 0;
  for (const auto& row : counts) {
    for (const double count : row) sum += (count - kExpected) * (count - kExpected) / kExpected;
  }
  return sum * (kKeys - 1) / kKeys;
}

TEST(Uniform, EveryKeyHasEveryPlaceOfAPhaseEquallyOften) {
  const double least = chi_square_quantile(81, -kNormal);
  const double most = chi_square_quantile(81, kNormal);
  const KeySpace keys(KeyScheme::mixed, {}, 1);
  WorkMaker maker({.records = 10, .operations = 10, .seed = 10}, keys);
  Ledger ledger;
  WorkMaker::commit(maker.make(Workload::load, ledger), ledger);
  const double phases = permutation_chi_square(
      [&](std::uint64_t) { return maker.make(Workload::read, ledger).blocks.front().indexes; });
  EXPECT_GT(phases, least);
  EXPECT_LT(phases, most);
  // A shuffle that swaps each key with any other does not make every order equally often.
  Random random(11);
  EXPECT_GT(permutation_chi_square([&](std::uint64_t count) {
              std::vector<std::uint32_t> order(count);
              std::iota(order.begin(), order.end(), 0U);
              for (std::uint32_t& key : order) std::swap(key, order[random.below(count)]);
              return order;
            }),
            most);
}

// YCSB draws each key anew. Phases here repeat permutations, which is more even than chance.
TEST(Uniform, PhasesAreMoreEvenThanYcsbs) {
  const auto same = [](std::uint32_t index) { return index; };
  const Verdict phase = judge(phase_counts(Distribution::uniform, 12, same), uniform(kItems));
  EXPECT_LT(phase.chi_square, 1e-9);
  EXPECT_TRUE(phase.too_even());
  EXPECT_TRUE(phase.distance_passes());
}

}  // namespace
}  // namespace perdure::bench
