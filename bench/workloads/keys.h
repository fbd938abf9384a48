// KeySpace and ValueCodec: the i-th key, and the value of a key in a generation.
//
// Keys are a bijection of their index. Distinct indexes therefore have distinct keys.
//   mixed       u64: the splitmix64 finaliser of index + seed. Strings: a bijection of 60 bits, as
//               15 hexadecimal digits, low nibble first, padded to the given length.
//   sequential  2 * index; strings are its 15 hexadecimal digits, high nibble first. Their order
//               is the order of the numbers. Odd numbers are the missing keys.
//   clustered   a bijection into an aligned 1/128 of the key space; strings as for sequential.
//   ycsb        YCSB's hashed order: |FNV-1a-64(index)|; strings are "user" and its decimal digits,
//               in their natural length. A hash is no bijection: among 10^7 keys two collide with
//               probability 3 in 10^6.
//   real        keys as people have them: real_keys.h.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "bench/workloads/data.h"
#include "bench/workloads/random.h"
#include "bench/workloads/real_keys.h"

namespace perdure::bench {

enum class KeyScheme : std::uint8_t { mixed, sequential, clustered, ycsb, real };

// Fewer characters cannot hold the 60 bits that keep string keys distinct.
inline constexpr std::uint32_t kMinKeyLength = 15;
// "user" and 19 decimal digits.
inline constexpr std::uint32_t kMaxYcsbKeyLength = 23;

// A bijection of the `bits`-bit words, 8 <= bits <= 64.
std::uint64_t mix_bits(std::uint64_t x, unsigned bits) noexcept;

// 16 hexadecimal digits of `word`, low nibble first.
std::array<char, 16> hex_low_first(std::uint64_t word) noexcept;

class KeySpace {
 public:
  KeySpace(KeyScheme scheme, const DataKind& kind, std::uint64_t seed) noexcept;
  explicit KeySpace(const RealKeys& real) noexcept;

  const DataKind& kind() const noexcept { return kind_; }
  KeyScheme scheme() const noexcept { return scheme_; }

  // The key of `index`, index < 2^40.
  std::uint64_t word(std::uint64_t index) const noexcept;
  // A key that no index has; distinct for distinct indexes, except for real ids and lines.
  std::uint64_t missing_word(std::uint64_t index) const noexcept;
  // For string keys: writes the key of `word` and returns its length. May write up to max_length()
  // bytes.
  std::size_t write(std::uint64_t word, char* out) const noexcept;
  std::size_t max_length() const noexcept;
  // The mean length of the first `count` string keys, estimated from some of them.
  double mean_length(std::uint64_t count) const;
  // Whether new keys come in an order that all threads share: each goes to the next thread that
  // inserts.
  bool in_order() const noexcept { return real_ && real_->in_order(); }

 private:
  KeyScheme scheme_;
  DataKind kind_;
  unsigned bits_;  // width of the words: 64, or the 60 that 15 digits hold
  std::uint64_t offset_;
  std::optional<RealKeys> real_;  // exactly of the scheme `real`
};

// A value carries its key and its update generation: word(key) + generation, where word() is a
// bijection. A reader without further state can tell a right value from a wrong one, and an old one
// from a new one. Strings are its 16 digits, low nibble first, filled up to the length. Values
// shorter than 16 are cut off: they are still checked, but no longer distinct.
class ValueCodec {
 public:
  explicit ValueCodec(const DataKind& kind);

  const DataKind& kind() const noexcept { return kind_; }
  // The buffer that make() writes into: one per thread.
  std::string scratch() const { return filler_; }

  ValueRef make(std::uint64_t key_word, std::uint8_t generation,
                std::string& scratch) const noexcept {
    const std::uint64_t word = base(key_word) + generation;
    if (!kind_.is_string) return {.word = word};
    const std::array<char, 16> digits = hex_low_first(word);
    std::memcpy(scratch.data(), digits.data(), digits_);
    return {.bytes = scratch};
  }

  // The generation of a value of this key; nullopt if it is no value of this key.
  std::optional<std::uint8_t> generation(std::uint64_t key_word,
                                         const ValueRef& value) const noexcept;

  // Strings shorter than 2 cannot distinguish all generations.
  bool same_generation(std::uint8_t a, std::uint8_t b) const noexcept {
    return ((a ^ b) & mask_ & 0xff) == 0;
  }

 private:
  static std::uint64_t base(std::uint64_t key_word) noexcept {
    return mix64(key_word ^ 0x5555555555555555ULL);
  }

  DataKind kind_;
  std::size_t digits_;  // stored digits of the value's word
  std::uint64_t mask_;  // bits of the word that they hold
  std::string filler_;
};

}  // namespace perdure::bench
