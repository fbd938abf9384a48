// Recipe: a pool file in a few bytes: one of the pools that the process made when it started, and
// what is then done to it. What libFuzzer mutates is the recipe, so an input stays small and every
// change hits something that is in use.
//
//   0        base pool; kRaw: no pool, all that follows the flags are the bytes of the file
//   1        flags
//   2        number of patches
//   3        patches, 12 bytes each: kind, region, index (2 bytes), operand (8 bytes)
//   ...      whatever follows belongs to the target
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fuzz/target.h"

namespace perdure::fuzz {

// Where a patch applies; `index` counts 8-byte words there.
enum class Region : std::uint8_t {
  anywhere,  // of the file; the index counts lines, the region byte's upper bits words in it
  headers,   // in both copies at once, so that the other copy does not hide it
  one_header,
  roots,
  table,
  data,  // words of the extents that are not zero
  count,
};

enum class PatchKind : std::uint8_t {
  flip,       // the bit `operand`
  set,        // := operand
  add,        // += operand
  notable,    // := one of some notable numbers
  reference,  // := the operand-th word that is not zero: another block, another key
  zero_line,
  swap_line,  // takes the line from the operand-th base pool: two states of a pool mixed, as after
              // a power failure
  copy_line,  // the line := another line of the file
  size,       // the file is cut or lengthened to `operand` bytes
  count,
};

struct Patch {
  PatchKind kind = PatchKind::flip;
  std::uint8_t region = 0;
  std::uint16_t index = 0;
  std::uint64_t operand = 0;
};

struct Recipe {
  static constexpr std::uint8_t kRaw = 255;
  static constexpr std::size_t kMaxPatches = 24;
  // Flags.
  static constexpr std::uint8_t kFixPool = 1;    // checksums of headers, root lines, extent table
  static constexpr std::uint8_t kFixEngine = 2;  // checksums of the engine's metadata and records
  static constexpr std::uint8_t kReadOnly = 4;
  static constexpr std::uint8_t kAccept = 8;     // accept_untrusted
  static constexpr std::uint8_t kEmulated = 16;  // durability
  static constexpr std::uint8_t kPower = 32;
  static constexpr std::uint8_t kVersions = 64;  // operations on versions are among the others

  std::uint8_t base = 0;
  std::uint8_t flags = 0;
  std::vector<Patch> patches;
  std::vector<std::uint8_t> rest;

  static Recipe parse(Input input);
  std::vector<std::uint8_t> encode() const;
};

// The largest file a recipe makes.
inline constexpr std::size_t kMaxFile = 256 << 10;

// Bytes of the file that the recipe stands for, over the given base pools.
std::string expand(const Recipe& recipe, const std::vector<std::string>& bases);

}  // namespace perdure::fuzz
