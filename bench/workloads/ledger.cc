#include "bench/workloads/ledger.h"

#include <algorithm>
#include <numeric>

namespace perdure::bench {

void Ledger::add(std::uint64_t count) {
  const std::uint64_t first = used();
  generations_.resize(first + count, 0);
  if (!gaps_) return;
  const std::size_t old = present_.size();
  present_.resize(old + count);
  std::iota(present_.begin() + static_cast<std::ptrdiff_t>(old), present_.end(),
            static_cast<std::uint32_t>(first));
}

void Ledger::update(std::span<const std::uint32_t> indexes, std::uint8_t generation) {
  for (const std::uint32_t index : indexes) generations_[index] = generation;
  newest_ = std::max(newest_, generation);
}

void Ledger::erase(std::span<const std::uint32_t> indexes) {
  if (indexes.empty()) return;
  if (!gaps_) {
    present_.resize(generations_.size());
    std::iota(present_.begin(), present_.end(), 0U);
    gaps_ = true;
  }
  for (const std::uint32_t index : indexes) generations_[index] = kAbsent;
  std::erase_if(present_, [&](std::uint32_t index) { return generations_[index] == kAbsent; });
}

}  // namespace perdure::bench
