// Recipe: a pool file in a few bytes. It names one of the base pools that the process made at its
// start, and the changes to it. libFuzzer mutates the recipe. Inputs stay small, and most changes
// hit bytes in use.
//
//   0        base pool; kRaw: no base, the bytes after the flags are the file
//   1        flags
//   2        number of patches
//   3        patches, 12 bytes each: kind, region, index (2 bytes), operand (8 bytes)
//   ...      the rest belongs to the target
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fuzz/target.h"

namespace perdure::fuzz {

// The region that a patch applies to. `index` counts 8-byte words in it.
enum class Region : std::uint8_t {
  anywhere,  // of the file; `index` counts lines, the top 3 bits of `region` select the word
  headers,   // in both copies at once, because one intact copy hides the damage
  one_header,
  roots,
  table,
  data,  // nonzero words of the extents
  count,
};

enum class PatchKind : std::uint8_t {
  flip,       // the bit `operand`
  set,        // := operand
  add,        // += operand
  notable,    // := one of kNotable
  reference,  // := the operand-th nonzero word: another block, another key
  zero_line,
  swap_line,  // replaces the line with the operand-th base's: mixes two states
              // of a pool, as a power failure does
  copy_line,  // the line := another line of the file
  size,       // cuts or extends the file to `operand` bytes
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
  static constexpr std::uint8_t kVersions = 64;  // operations on versions are included
  // all operations are included
  static constexpr std::uint8_t kAllOperations = 128;

  std::uint8_t base = 0;
  std::uint8_t flags = 0;
  std::vector<Patch> patches;
  std::vector<std::uint8_t> rest;

  static Recipe parse(Input input);
  std::vector<std::uint8_t> encode() const;
};

// The largest file that a recipe makes.
inline constexpr std::size_t kMaxFile = 256 << 10;

// Returns the file that the recipe describes.
std::string expand(const Recipe& recipe, const std::vector<std::string>& bases);

}  // namespace perdure::fuzz
