// Keys and values of maps whose types are known at run time only (untyped_map.h), as the engines
// have them. Views: they own nothing.
#pragma once

#include <cstdint>
#include <string_view>

namespace perdure {

// An integer is a word whose unsigned order is that of the keys: signed integers are widened to 64
// bits, and their sign bit is flipped. Byte strings and arrays are `bytes`, and `word` is not read.
struct UntypedKey {
  std::uint64_t word = 0;
  std::string_view bytes = {};
};

// A word of `word_size` bytes, little-endian in `word`; or, with `word_size` 0, bytes.
struct UntypedValue {
  std::uint64_t word = 0;
  std::string_view bytes = {};
  std::uint32_t word_size = 0;
};

using Version = std::uint64_t;

// The closed versions that can be read: [first, last]; none if last < first.
struct VersionRange {
  Version first = 0;
  Version last = 0;
};

}  // namespace perdure
