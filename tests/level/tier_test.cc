// test: cross
// Fingerprints of level hashing's buckets.
#include <gtest/gtest.h>

#include <cstdint>

#include "index/level/tier.h"
#include "platform/real_platform.h"

namespace perdure::level {
namespace {

// A byte that differs in its lowest bit must not match because its lower neighbour does: an erased
// key was found again, in the empty slot above a key of fingerprint 1.
TEST(LevelMeta, MatchesExactly) {
  for (unsigned print = 1; print < 256; ++print) {
    for (unsigned other = 0; other < 256; ++other) {
      for (unsigned slots = 0; slots < 256; ++slots) {  // bit i: byte i is `print`
        std::uint64_t prints = 0;
        std::uint32_t expected = 0;
        for (unsigned i = 0; i < 8; ++i) {
          const bool same = (slots >> i & 1) != 0;
          prints |= std::uint64_t{same ? print : other} << 8 * i;
          if (same || other == print) expected |= 1U << i;
        }
        ASSERT_EQ(Meta<RealPlatform>::match(prints, static_cast<std::uint8_t>(print)), expected)
            << print << " " << other << " " << slots;
      }
    }
  }
}

}  // namespace
}  // namespace perdure::level
