#include "platform/forks.h"

#include <pthread.h>

namespace perdure {

std::uint32_t detail::fork_count = 0;

bool count_forks() noexcept {
  static const int failure = pthread_atfork(nullptr, nullptr, [] { ++detail::fork_count; });
  return failure == 0;
}

}  // namespace perdure
