// Limits: the rest of the range of a scan that goes from leaf to leaf. `Batch` is an engine's copy
// of a leaf: its range low < key <= bound and the separators, null where the word alone decides.
#pragma once

#include <cstdint>

#include "index/ordered/probe.h"
#include "perdure/index.h"

namespace perdure::ordered {

template <class Codec>
struct Limits {
  Probe from, to;  // to is exclusive
  bool has_from = false, has_to = false;

  explicit Limits(const detail::ScanRange& range) noexcept
      : has_from(range.from.has_value()), has_to(range.to.has_value()) {
    if (has_from) from = Codec::probe(*range.from);
    if (has_to) to = Codec::probe(*range.to);
  }

  // The position of the first leaf. Integers: only words are copied. A copy of a whole probe would
  // wait for the stores of its small members.
  Probe start(bool reverse) const noexcept {
    if (reverse && !has_to) return {.word = ~std::uint64_t{0}, .after = true, .last = true};
    if (!reverse && !has_from) return {};
    const Probe& first = reverse ? to : from;
    if constexpr (Codec::kBytes) return first;
    return {.word = first.word};
  }
  // Moves the position behind a visited leaf, and shrinks the range to what is left. Otherwise an
  // unlink could give the visited range to the next leaf. Returns false if the key space ends
  // there. No probe is copied: see start().
  template <class Batch>
  bool pass(const Batch& batch, bool reverse, Probe& position) noexcept {
    Probe& edge = reverse ? to : from;
    const std::uint64_t word = reverse ? batch.low : batch.bound;
    if constexpr (Codec::kBytes) {
      const auto* separator = reverse ? batch.low_separator : batch.bound_separator;
      if (separator != nullptr) {
        (reverse ? has_to : has_from) = true;
        position = {.word = word, .bytes = separator->view(), .after = !reverse};
        edge = {.word = word, .bytes = separator->view(), .after = true};
        return true;
      }
    }
    if (word == (reverse ? 0 : ~std::uint64_t{0})) return false;
    (reverse ? has_to : has_from) = true;
    const bool last = Codec::kBytes && reverse;
    position = {.word = reverse ? word - 1 : word + 1, .after = last, .last = last};
    edge = {.word = Codec::kBytes || !reverse ? position.word : word, .after = last, .last = last};
    return true;
  }
  // True if the range ends before the position.
  bool end_before(const Probe& position, bool reverse) const noexcept {
    if (reverse) {
      if (!has_from) return false;
      if (!Codec::kBytes || position.word != from.word) return position.word < from.word;
      return !position.last && compare(from, position.bytes) > 0;
    }
    if (!has_to) return false;
    if (!Codec::kBytes) return position.word >= to.word;
    return position.word == to.word ? compare(position, to.bytes) >= 0 : position.word > to.word;
  }
};

}  // namespace perdure::ordered
