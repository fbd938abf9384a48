// The mixes of searches and insertions of figures 16 and 17: searches choose zipfian among the
// records that were there before.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/workloads/distributions.h"
#include "bench/workloads/random.h"
#include "evaluation/table.h"

namespace perdure::paper {

// In percent. The paper's text names the last one only.
inline constexpr std::uint32_t kInsertShares[] = {10, 30, 50, 70, 90};
inline constexpr const char* kMixNames[] = {"90/10", "70/30", "50/50", "30/70", "10/90"};

// The load factor at first, and after the most insertions. The paper does not say it. A large table
// of level hashing as printed is full below 0.9.
inline constexpr double kFirstLoad = 0.6;
inline constexpr double kLastLoad = 0.85;

// The requests of one mix, drawn before the clock starts. Record n has the key mix64(n) and the
// value n.
class Mix {
 public:
  // For a table that holds `records`.
  Mix(std::uint64_t records, std::uint64_t requests, std::uint32_t insert_share)
      : records_(records) {
    const bench::ScrambledZipfian zipfian(records);
    bench::Random random(insert_share);
    for (std::uint64_t i = 0; i < requests; ++i) {
      const bool inserts = random.below(100) < insert_share;
      numbers_.push_back(inserts ? records + inserts_++ : zipfian.next(random));
    }
  }
  // For a table of so many slots: from the first load factor to the last one at most, with room for
  // more insertions than the largest share says.
  static Mix of_slots(std::uint64_t slots, std::uint32_t insert_share) {
    const auto all = static_cast<double>(slots);
    return {static_cast<std::uint64_t>(kFirstLoad * all),
            static_cast<std::uint64_t>((kLastLoad - kFirstLoad) / 0.95 * all), insert_share};
  }

  std::uint64_t records() const noexcept { return records_; }
  std::uint64_t requests() const noexcept { return numbers_.size(); }
  std::uint64_t items_after() const noexcept { return records_ + inserts_; }
  // Does request i. Returns whether the result is right.
  bool run(Table& table, std::uint64_t i) const {
    const std::uint64_t number = numbers_[i];
    const std::uint64_t key = bench::mix64(number);
    if (number >= records_) {
      auto inserted = table.insert(key, number);
      return inserted.has_value() && *inserted;
    }
    std::uint64_t value = 0;
    auto found = table.find(key, value);
    return found.has_value() && *found && value == number;
  }

 private:
  std::uint64_t records_;
  std::uint64_t inserts_ = 0;
  std::vector<std::uint64_t> numbers_;
};

}  // namespace perdure::paper
