#include "platform/forks.h"

#include <pthread.h>

namespace perdure {

bool at_forks(void (*before)(), void (*in_parent)(), void (*in_child)()) noexcept {
  return pthread_atfork(before, in_parent, in_child) == 0;
}

}  // namespace perdure
