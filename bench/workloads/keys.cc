#include "bench/workloads/keys.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <charconv>

#include "bench/workloads/random.h"
#include "bench/workloads/ycsb.h"
#include "perdure/options.h"

namespace perdure::bench {
namespace {

static_assert(std::endian::native == std::endian::little, "digits are packed little-endian");

constexpr std::uint64_t kMissing = 1ULL << 40;
constexpr unsigned kStringBits = 60;
constexpr unsigned kClusterBits = 7;              // 1/128 of the key space
constexpr std::uint64_t kLengthSample = 1 << 14;  // keys of mean_length()
constexpr char kPad = '.';

// Eight nibbles of the low half as hexadecimal digits, one per byte, low nibble in the first byte.
constexpr std::uint64_t eight_digits(std::uint64_t x) noexcept {
  x &= 0xffffffffULL;
  x = (x | (x << 16)) & 0x0000ffff0000ffffULL;
  x = (x | (x << 8)) & 0x00ff00ff00ff00ffULL;
  x = (x | (x << 4)) & 0x0f0f0f0f0f0f0f0fULL;
  const std::uint64_t letters = ((x + 0x0606060606060606ULL) >> 4) & 0x0101010101010101ULL;
  return x + 0x3030303030303030ULL + letters * ('a' - '0' - 10);
}

// The inverse. A character that is no digit gives some number; the caller's comparison then fails.
constexpr std::uint64_t eight_nibbles(std::uint64_t x) noexcept {
  const std::uint64_t letters = (x >> 6) & 0x0101010101010101ULL;
  x = (x & 0x0f0f0f0f0f0f0f0fULL) + letters * 9;
  x &= 0x0f0f0f0f0f0f0f0fULL;
  x = (x | (x >> 4)) & 0x00ff00ff00ff00ffULL;
  x = (x | (x >> 8)) & 0x0000ffff0000ffffULL;
  return (x | (x >> 16)) & 0xffffffffULL;
}
static_assert(eight_nibbles(eight_digits(0x89abcdefULL)) == 0x89abcdefULL);
static_assert(eight_nibbles(eight_digits(0x01234567ULL)) == 0x01234567ULL);

}  // namespace

Result<DataKind> parse_data_kind(std::string_view text) {
  if (text == "u64") return DataKind{};
  std::uint32_t length = 0;
  for (const std::string_view prefix : {"string:", "array:"}) {
    if (!text.starts_with(prefix)) continue;
    const std::string_view digits = text.substr(prefix.size());
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), length);
    if (error == std::errc{} && end == digits.data() + digits.size() && length > 0 &&
        length <= kMaxValueBytes) {
      return DataKind{.is_string = true, .length = length, .is_array = prefix == "array:"};
    }
  }
  return failure(kExitUsage,
                 fmt::format("'{}' is no data kind: use u64, string:LEN or array:LEN", text));
}

std::string to_string(const DataKind& kind) {
  if (!kind.is_string) return "u64";
  return fmt::format("{}:{}", kind.is_array ? "array" : "string", kind.length);
}

std::uint64_t mix_bits(std::uint64_t x, unsigned bits) noexcept {
  const std::uint64_t mask = ~0ULL >> (64 - bits);
  const unsigned shift = bits / 2;
  x &= mask;
  // Both steps are bijections of `bits`-bit words: xor with a right shift, and a product with an
  // odd number.
  x = ((x ^ (x >> shift)) * 0xbf58476d1ce4e5b9ULL) & mask;
  x = ((x ^ (x >> shift)) * 0x94d049bb133111ebULL) & mask;
  x = ((x ^ (x >> shift)) * 0x9e3779b97f4a7c15ULL) & mask;
  return x ^ (x >> shift);
}

std::array<char, 16> hex_low_first(std::uint64_t word) noexcept {
  const std::array<std::uint64_t, 2> halves = {eight_digits(word), eight_digits(word >> 32)};
  return std::bit_cast<std::array<char, 16>>(halves);
}

KeySpace::KeySpace(KeyScheme scheme, const DataKind& kind, std::uint64_t seed) noexcept
    : scheme_(scheme),
      kind_(kind),
      bits_(kind.is_string ? kStringBits : 64),
      offset_(mix64(seed)) {}

KeySpace::KeySpace(const RealKeys& real) noexcept
    : KeySpace(KeyScheme::real, {.is_string = real.is_string()}, 0) {
  real_ = real;
}

std::uint64_t KeySpace::word(std::uint64_t index) const noexcept {
  switch (scheme_) {
    case KeyScheme::mixed:
      return bits_ == 64 ? mix64(index + offset_) : mix_bits(index + offset_, bits_);
    case KeyScheme::sequential:
      return 2 * index;
    case KeyScheme::clustered: {
      const unsigned low_bits = bits_ - kClusterBits;
      const std::uint64_t cluster = offset_ >> (64 - kClusterBits);
      return (cluster << low_bits) | mix_bits(index + offset_, low_bits);
    }
    case KeyScheme::real:
      return real_->word(index);
    case KeyScheme::ycsb:
      break;
  }
  return ycsb_hash(index);
}

std::uint64_t KeySpace::missing_word(std::uint64_t index) const noexcept {
  if (real_) return real_->missing_word(index);
  return scheme_ == KeyScheme::sequential ? 2 * index + 1 : word(index + kMissing);
}

double KeySpace::mean_length(std::uint64_t count) const {
  if (scheme_ != KeyScheme::real || !kind_.is_string) return static_cast<double>(max_length());
  const std::uint64_t sample = std::clamp<std::uint64_t>(count, 1, kLengthSample);
  std::string bytes(max_length(), '\0');
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < sample; ++i) {
    // At random: keys at equal distances could all be of one directory or length.
    const std::uint64_t index = sample == count ? i : mix64(i) % std::max<std::uint64_t>(count, 1);
    sum += write(word(index), bytes.data());
  }
  return static_cast<double>(sum) / static_cast<double>(sample);
}

std::size_t KeySpace::max_length() const noexcept {
  if (real_) return real_->max_length();
  return scheme_ == KeyScheme::ycsb ? kMaxYcsbKeyLength : kind_.length;
}

std::size_t KeySpace::write(std::uint64_t word, char* out) const noexcept {
  if (real_) return real_->write(word, out);
  if (scheme_ == KeyScheme::ycsb) {
    std::memcpy(out, "user", 4);
    return static_cast<std::size_t>(std::to_chars(out + 4, out + kMaxYcsbKeyLength, word).ptr -
                                    out);
  }
  std::array<char, 16> digits = hex_low_first(word);
  if (scheme_ != KeyScheme::mixed) std::reverse(digits.begin(), digits.begin() + kMinKeyLength);
  std::memcpy(out, digits.data(), kMinKeyLength);
  std::memset(out + kMinKeyLength, kPad, kind_.length - kMinKeyLength);
  return kind_.length;
}

ValueCodec::ValueCodec(const DataKind& kind)
    : kind_(kind),
      digits_(kind.is_string ? std::min<std::size_t>(kind.length, 16) : 16),
      mask_(~0ULL >> (64 - 4 * digits_)) {
  if (!kind.is_string) return;
  filler_.resize(kind.length);
  for (std::size_t i = 0; i < filler_.size(); ++i) filler_[i] = static_cast<char>('a' + i % 26);
}

std::optional<std::uint8_t> ValueCodec::generation(std::uint64_t key_word,
                                                   const ValueRef& value) const noexcept {
  std::uint64_t word = value.word;
  if (kind_.is_string) {
    if (value.bytes.size() != kind_.length) return std::nullopt;
    std::array<std::uint64_t, 2> halves = {};
    std::memcpy(halves.data(), value.bytes.data(), digits_);
    word = (eight_nibbles(halves[0]) | (eight_nibbles(halves[1]) << 32)) & mask_;
    const std::array<char, 16> digits = hex_low_first(word);
    if (std::memcmp(digits.data(), value.bytes.data(), digits_) != 0) return std::nullopt;
    if (std::memcmp(filler_.data() + digits_, value.bytes.data() + digits_,
                    kind_.length - digits_) != 0) {
      return std::nullopt;
    }
  }
  const std::uint64_t generation = (word - base(key_word)) & mask_;
  if (generation > 0xff) return std::nullopt;
  return static_cast<std::uint8_t>(generation);
}

}  // namespace perdure::bench
