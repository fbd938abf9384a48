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

  // The position of the first leaf. Integers: only words are copied, here and in pass(). A copy of
  // a whole probe would wait for the stores of its small members.
  Probe start(bool reverse) const noexcept {
    if (reverse && !has_to) return {.word = ~std::uint64_t{0}, .after = true, .last = true};
    const Probe& first = reverse ? to : from;
    if constexpr (Codec::kBytes) return first;
    return {.word = first.word};
  }
  // Shrinks the range behind a visited leaf. Otherwise an unlink could give the visited range to
  // the next leaf. `position`: behind the leaf; `low`: of the leaf.
  void pass(const Probe& position, std::uint64_t low, bool reverse) noexcept {
    (reverse ? has_to : has_from) = true;
    if constexpr (!Codec::kBytes) {
      (reverse ? to : from) = {.word = reverse ? low : position.word};
    } else if (reverse) {
      to = position;
      to.after = true;
    } else {
      from = position;
    }
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

// The position just behind a leaf. Sets `end` if the key space ends there.
template <class Codec, class Batch>
Probe behind(const Batch& batch, bool reverse, bool& end) noexcept {
  if constexpr (Codec::kBytes) {
    if (!reverse && batch.bound_separator != nullptr) {
      return {.word = batch.bound, .bytes = batch.bound_separator->view(), .after = true};
    }
    if (reverse && batch.low_separator != nullptr) {
      return {.word = batch.low, .bytes = batch.low_separator->view()};
    }
  }
  end = reverse ? batch.low == 0 : batch.bound == ~std::uint64_t{0};
  if (!reverse) return {.word = batch.bound + 1};
  return {.word = batch.low - 1, .after = Codec::kBytes, .last = Codec::kBytes};
}

}  // namespace perdure::ordered
