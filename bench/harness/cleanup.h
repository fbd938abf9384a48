// An interrupted benchmark must not leave gigabytes in /dev/shm.
#pragma once

#include <string>

namespace perdure::bench {

// From now on SIGINT, SIGTERM and SIGHUP remove this pool before they end the process, with the files
// that durability `buffered` has beside it. "" removes none.
void remove_on_signal(const std::string& path);

}  // namespace perdure::bench
