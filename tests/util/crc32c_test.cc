// test: cross
// crc32c() against the definition of CRC32C, for lengths with and without the three lanes.
#include "util/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace perdure {
namespace {

std::uint32_t bit_by_bit(std::uint32_t crc, const unsigned char* bytes, std::size_t n) {
  crc = ~crc;
  for (std::size_t i = 0; i < n; ++i) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82F63B78 : 0);
  }
  return ~crc;
}

TEST(Crc32c, IsThatOfTheStandard) {
  EXPECT_EQ(crc32c(0, "123456789", 9), 0xE3069283);
  EXPECT_EQ(crc32c(0, "", 0), 0U);
}

TEST(Crc32c, AnyLengthAndPlace) {
  constexpr std::size_t kBlock = 3 * detail::kCrcLane;
  std::vector<unsigned char> bytes(3 * kBlock + 64);
  std::mt19937_64 random(1);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  std::vector<std::size_t> lengths;
  for (std::size_t n = 0; n < 40; ++n) lengths.push_back(n);
  for (const std::size_t blocks : {1, 2, 3}) {
    for (std::size_t n = 0; n < 20; ++n) lengths.push_back(blocks * kBlock - 10 + n);
  }
  for (const std::size_t n : lengths) {
    const std::size_t at = n % 9;
    const auto start = static_cast<std::uint32_t>(random());
    EXPECT_EQ(crc32c(start, &bytes[at], n), bit_by_bit(start, &bytes[at], n)) << n;
  }
}

TEST(Crc32c, GoesOnFromWhatCameBefore) {
  std::vector<unsigned char> bytes(5 * detail::kCrcLane, 0xA5);
  const std::uint32_t whole = crc32c(3, bytes.data(), bytes.size());
  for (const std::size_t n : {std::size_t{1}, detail::kCrcLane, bytes.size() - 1}) {
    EXPECT_EQ(crc32c(crc32c(3, bytes.data(), n), &bytes[n], bytes.size() - n), whole) << n;
  }
}

}  // namespace
}  // namespace perdure
