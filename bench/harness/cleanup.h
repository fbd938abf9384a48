// An interrupted benchmark must not leave gigabytes in /dev/shm.
#pragma once

#include <string>

namespace perdure::bench {

// From now on SIGINT, SIGTERM and SIGHUP remove this file before they end the process. "" removes
// none.
void remove_on_signal(const std::string& path);

}  // namespace perdure::bench
