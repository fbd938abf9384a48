// Ledger: the keys that must be present, and the update generation of each value.
//
// Keys are allocated by index from 0 upwards, and a deleted key is never used again. The ledger
// changes only between phases, after the work of a phase is known to be done. The driver compares
// the store with it at read-back. Thread safety: const methods from any number of threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace perdure::bench {

class Ledger {
 public:
  static constexpr std::uint8_t kGenerationMax = 250;

  // Keys allocated so far; the next fresh index.
  std::uint64_t used() const noexcept { return generations_.size(); }
  std::uint64_t present() const noexcept { return gaps_ ? present_.size() : generations_.size(); }
  bool gaps() const noexcept { return gaps_; }

  // The index of the `position`-th present key, in order of insertion.
  std::uint32_t index_at(std::uint64_t position) const noexcept {
    return gaps_ ? present_[position] : static_cast<std::uint32_t>(position);
  }
  std::uint8_t generation(std::uint32_t index) const noexcept { return generations_[index]; }
  // The newest generation any value may have.
  std::uint8_t newest() const noexcept { return newest_; }

  void add(std::uint64_t count);
  void update(std::span<const std::uint32_t> indexes, std::uint8_t generation);
  // Every index must be present, and given once.
  void erase(std::span<const std::uint32_t> indexes);

 private:
  static constexpr std::uint8_t kAbsent = 255;

  std::vector<std::uint8_t> generations_;  // by index
  std::vector<std::uint32_t> present_;     // by position, once there are gaps
  bool gaps_ = false;
  std::uint8_t newest_ = 0;
};

}  // namespace perdure::bench
