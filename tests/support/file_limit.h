// FileLimit: no file of this process can become longer, as with `ulimit -f`.
#pragma once

#include <sys/resource.h>

#include <cstdint>

#include "tests/support/support.h"

namespace perdure::test {

class FileLimit {
 public:
  explicit FileLimit(std::uint64_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace perdure::test
