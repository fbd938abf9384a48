// in_process(): a use of a pool in a process of its own, which ends properly or is killed.
#pragma once

#include <cstddef>
#include <optional>
#include <type_traits>

#include "perdure/function_ref.h"
#include "perdure/pool.h"

namespace perdure::bench {

void run_process(FunctionRef<void(std::optional<Pool>&, void*)> use, void* result,
                 std::size_t bytes);

// Calls use(pool) in a new process, and returns what it returns. If it leaves the pool open, the
// process is killed. Other threads must not run. Throws if the process fails; what() of an
// exception of use() goes to stderr.
template <class T, class F>
T in_process(F use) {
  static_assert(std::is_trivially_copyable_v<T>);
  T result{};
  run_process([&](std::optional<Pool>& pool, void* out) { *static_cast<T*>(out) = use(pool); },
              &result, sizeof(result));
  return result;
}

}  // namespace perdure::bench
