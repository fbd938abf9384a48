// Packer and Unpacker: keys and values in the bytes of a message. A word is 8 bytes; a byte string
// is its length as a word, then its bytes; a value that may be absent follows a byte, 0 or 1.
//
// The caller of a Packer makes room for size() bytes of each part. Views that an Unpacker returns
// point into the message. All ranks of a run have one byte order (the pools have it, too).
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>

#include "perdure/mpi_types.h"

namespace perdure::mpi::detail {

// A message of pieces ends once it has so many bytes. kPieceRoom bytes take an entry beyond that;
// only one that is longer needs more memory.
inline constexpr std::uint64_t kPieceBytes = 48 << 10;
inline constexpr std::uint64_t kPieceRoom = 64 << 10;

class Packer {
 public:
  // `bytes`: keys and values are byte strings.
  Packer(char* to, bool bytes) noexcept : to_(to), bytes_(bytes) {}

  static std::uint64_t size(const UntypedKey& key, bool bytes) noexcept {
    return sizeof(std::uint64_t) + (bytes ? key.bytes.size() : 0);
  }
  static std::uint64_t size(const UntypedValue& value, bool bytes) noexcept {
    return sizeof(std::uint64_t) + (bytes ? value.bytes.size() : 0);
  }
  static std::uint64_t size(const std::optional<UntypedValue>& value, bool bytes) noexcept {
    return 1 + (value ? size(*value, bytes) : 0);
  }

  void byte(std::uint8_t byte) noexcept { copy(&byte, 1); }
  void word(std::uint64_t word) noexcept { copy(&word, sizeof(word)); }
  void put(const UntypedKey& key) noexcept { put(key.word, key.bytes); }
  void put(const UntypedValue& value) noexcept { put(value.word, value.bytes); }
  void put(const std::optional<UntypedValue>& value) noexcept {
    byte(value ? 1 : 0);
    if (value) put(*value);
  }

 private:
  void put(std::uint64_t one, std::string_view many) noexcept {
    word(bytes_ ? many.size() : one);
    if (bytes_) copy(many.data(), many.size());
  }
  void copy(const void* from, std::uint64_t count) noexcept {
    if (count != 0) std::memcpy(to_, from, count);
    to_ += count;
  }

  char* to_;
  bool bytes_;
};

class Unpacker {
 public:
  Unpacker() noexcept = default;
  Unpacker(const char* from, std::uint64_t count, bool bytes) noexcept
      : at_(from), end_(from + count), bytes_(bytes) {}

  bool at_end() const noexcept { return at_ == end_; }
  std::uint8_t byte() noexcept { return static_cast<std::uint8_t>(*at_++); }
  std::uint64_t word() noexcept {
    std::uint64_t word = 0;
    std::memcpy(&word, at_, sizeof(word));
    at_ += sizeof(word);
    return word;
  }
  UntypedKey key() noexcept {
    const std::uint64_t first = word();
    return bytes_ ? UntypedKey{.bytes = view(first)} : UntypedKey{.word = first};
  }
  UntypedValue value() noexcept {
    const std::uint64_t first = word();
    if (bytes_) return {.bytes = view(first)};
    return {.word = first, .word_size = sizeof(first)};
  }
  std::optional<UntypedValue> optional_value() noexcept {
    return byte() != 0 ? std::optional(value()) : std::nullopt;
  }

 private:
  std::string_view view(std::uint64_t count) noexcept {
    at_ += count;
    return {at_ - count, count};
  }

  const char* at_ = nullptr;
  const char* end_ = nullptr;
  bool bytes_ = false;
};

}  // namespace perdure::mpi::detail
