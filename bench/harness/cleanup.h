// An interrupted benchmark must not leave gigabytes in /dev/shm.
#pragma once

#include <array>
#include <string>

namespace perdure::bench {

// The pool's file, and those that durability `buffered` has beside it while the pool is open. The
// last one is a folder.
inline constexpr std::array kPoolParts = {"", "-live", "-live-dirty", "-log"};

// Removes the files of a pool of ours that is not open. Idempotent.
void remove_pool_files(const std::string& path);

// From now on SIGINT, SIGTERM and SIGHUP remove this pool before they end the process, with the
// files that durability `buffered` has beside it. "" removes none.
void remove_on_signal(const std::string& path);

}  // namespace perdure::bench
