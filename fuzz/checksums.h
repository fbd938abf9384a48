// Checksums of a damaged pool made right again, so that what lies behind them is reached. What
// names no place inside the file is left alone.
#pragma once

#include <cstdint>
#include <string>

#include "perdure/options.h"
#include "pool/layout.h"

namespace perdure::fuzz {

// Extent table, root lines, root directory, headers.
void fix_pool(std::string& bytes);
// The metadata and the records of every map whose engine has a row in checksums.cc. Before
// fix_pool().
void fix_engines(std::string& bytes);

// Whether [offset, offset + n) lies in the file.
inline bool inside(const std::string& bytes, std::uint64_t offset, std::uint64_t n) noexcept {
  return offset <= bytes.size() && n <= bytes.size() - offset;
}

}  // namespace perdure::fuzz
