// merge_sort: sorts, and stays in bounds also if the comparison is inconsistent.
//
// WHEN  The items may change while they are compared, so that the comparison is no order.
//   std::sort() relies on an order and otherwise leaves its range. This one ends with some
//   permutation. It needs fewer comparisons than std::sort(), and DRAM for a second array.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <type_traits>
#include <utility>

namespace perdure {

// Returns false, and changes nothing, if DRAM is short.
template <class T, class Before>
bool merge_sort(T* items, std::size_t count, Before before) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  if (count < 2) return true;
  auto* spare = static_cast<T*>(std::malloc(count * sizeof(T)));
  if (spare == nullptr) return false;
  T* from = items;
  T* to = spare;
  for (std::size_t width = 1; width < count; width *= 2) {
    for (std::size_t begin = 0; begin < count; begin += 2 * width) {
      const std::size_t middle = std::min(begin + width, count);
      const std::size_t end = std::min(begin + 2 * width, count);
      std::merge(from + begin, from + middle, from + middle, from + end, to + begin, before);
    }
    std::swap(from, to);
  }
  if (from != items) std::copy(from, from + count, items);
  std::free(spare);
  return true;
}

}  // namespace perdure
