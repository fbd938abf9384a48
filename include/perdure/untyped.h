// Keys and values of maps whose types are known at run time only (untyped_map.h), in the form that
// engines take. They own nothing: `bytes` is borrowed.
#pragma once

#include <cstdint>
#include <string_view>

namespace perdure {

// An integer key is a word whose unsigned order is the order of the keys. Signed integers are
// widened to 64 bits, and their sign bit is flipped. Byte strings and arrays are in `bytes`; `word`
// is ignored.
struct UntypedKey {
  std::uint64_t word = 0;
  std::string_view bytes = {};
};

// If `word_size` is not 0, a word of that many bytes, little-endian in `word`. If it is 0, `bytes`.
struct UntypedValue {
  std::uint64_t word = 0;
  std::string_view bytes = {};
  std::uint32_t word_size = 0;
};

// What a mutation of write_many() does: the same as the call of that name (map.h).
enum class MutationKind : std::uint8_t { put, insert, update, erase };

// A mutation of UntypedMap::write_many().
struct UntypedMutation {
  MutationKind kind = MutationKind::put;
  UntypedKey key = {};
  UntypedValue value = {};  // erase does not read it
};

// The number of a version of a map (versioned_map.h).
using Version = std::uint64_t;

// The closed versions that can be read: first to last, both included. If last < first, there is
// none.
struct VersionRange {
  Version first = 0;
  Version last = 0;
};

}  // namespace perdure
