// Keys of streams that ascend: a prefix for each stream, and a number.
#pragma once

#include <cstdint>
#include <string>

namespace perdure::test {

// Of stream `s`, the key with number i.
inline void make(std::uint64_t s, std::uint64_t i, std::uint64_t& key) { key = (s + 1) << 32 | i; }
inline void make(std::uint64_t s, std::uint64_t i, std::string& key) {
  std::string number = std::to_string(i);
  key = "tenant/" + std::to_string(1000 + s) + "/" + std::string(10 - number.size(), '0') + number;
}

}  // namespace perdure::test
