// A benchmark that is interrupted must not leave gigabytes in /dev/shm.
#pragma once

#include <string>

namespace perdure::bench {

// From here on SIGINT, SIGTERM and SIGHUP remove this file before they end the process; "" for
// none.
void remove_on_signal(const std::string& path);

}  // namespace perdure::bench
