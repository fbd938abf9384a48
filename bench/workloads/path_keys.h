// Paths as in the file list of a Debian system.
//
// Of 256 successive numbers, eight packages have 2, 2, 3, 5, 9, 20, 55 and 160, in turn beginning
// with another one. The first two files of a package are in /usr/share/doc/PACKAGE. The others are
// in directories of the package with 1, 1, 2, 4, 8 .. files, or in directories that all packages
// share. A path tells its package, whose name is distinct, and the name of its file in the package.
#pragma once

#include <cstddef>
#include <cstdint>

namespace perdure::bench {

// The longest path, and what write_path() may write beyond it.
inline constexpr std::size_t kMaxPathLength = 224;

// Writes the path of `number`, number < 2^34, and returns its length. Different numbers have
// different paths of one `seed`. 2n and 2n + 1 are in the same directory.
std::size_t write_path(std::uint64_t number, std::uint64_t seed, char* out) noexcept;

}  // namespace perdure::bench
