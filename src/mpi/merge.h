// Merges of sorted runs: of two by several threads, and of many by one thread.
//
// merge_two    The paper's (section IV.A). Each thread takes an even share of the longer run and
//              finds its share of the shorter run by binary search. So every thread knows where its
//              part of the result begins. O((n + m) / threads + log m) for each. No key is in both
//              runs.
// merge_many   The baseline: a heap of the runs. O(n log runs).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "platform/real_platform.h"

namespace perdure::mpi::detail {

// The items of a share below which another thread does not pay.
inline constexpr std::uint64_t kLeastShare = 4096;

template <class T, class Before>
void merge_two(std::span<const T> a, std::span<const T> b, T* out, std::uint64_t threads,
               Before before) noexcept {
  const std::span<const T> longer = a.size() >= b.size() ? a : b;
  const std::span<const T> shorter = a.size() >= b.size() ? b : a;
  const std::uint64_t shares =
      std::clamp<std::uint64_t>((a.size() + b.size()) / kLeastShare, 1, std::max(threads, 1UL));
  // Where the share begins, in the longer run and in the shorter one.
  const auto begins = [&](std::uint64_t share) -> std::pair<std::uint64_t, std::uint64_t> {
    const std::uint64_t i =
        longer.size() / shares * share + std::min(longer.size() % shares, share);
    if (share == 0) return {0, 0};
    if (share == shares) return {longer.size(), shorter.size()};
    const auto at = std::lower_bound(shorter.begin(), shorter.end(), longer[i], before);
    return {i, static_cast<std::uint64_t>(at - shorter.begin())};
  };
  RealPlatform::parallel(shares, [&](std::size_t share) {
    const auto [l, s] = begins(share);
    const auto [l_end, s_end] = begins(share + 1);
    std::merge(longer.data() + l, longer.data() + l_end, shorter.data() + s, shorter.data() + s_end,
               out + l + s, before);
  });
}

template <class T>
struct RunCursor {
  const T* next;
  const T* end;
};

// No run may be empty. Consumes them.
template <class T, class Before>
void merge_many(std::span<RunCursor<T>> runs, T* out, Before before) noexcept {
  // A heap: the first run has the lowest item.
  std::size_t count = runs.size();
  const auto sift = [&](std::size_t place) {
    const RunCursor<T> moved = runs[place];
    for (std::size_t child = 2 * place + 1; child < count; child = 2 * place + 1) {
      if (child + 1 < count && before(*runs[child + 1].next, *runs[child].next)) ++child;
      if (!before(*runs[child].next, *moved.next)) break;
      runs[place] = runs[child];
      place = child;
    }
    runs[place] = moved;
  };
  for (std::size_t place = count / 2; place-- > 0;) sift(place);
  while (count > 0) {
    *out++ = *runs[0].next++;
    if (runs[0].next == runs[0].end) runs[0] = runs[--count];
    if (count > 0) sift(0);
  }
}

}  // namespace perdure::mpi::detail
