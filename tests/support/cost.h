// The costs of an operation, counted by the platform: F write-backs, S fences.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>

#include "perdure/pool.h"

namespace perdure::test {

struct Cost {
  std::uint64_t flushes, fences;
  friend auto operator<=>(const Cost&, const Cost&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Cost& cost) {
    return out << cost.flushes << "F " << cost.fences << "S";
  }
};

inline Cost cost_of(const std::function<void()>& operation) {
  const Counters before = thread_counters();
  operation();
  const Counters after = thread_counters();
  return {after.flushes - before.flushes, after.fences - before.fences};
}

}  // namespace perdure::test
