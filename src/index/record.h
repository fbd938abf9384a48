// Record: a key and a value of any size in one heap block, for phast, level and pskiplist.
//
// LAYOUT  0   state   bits 0..31 CRC32C; 32..47 key bytes; 48..51 value size if it is a word
//                     (1..8), 0 if it is bytes; 52 live. Never 0 in a written record
//         8   value   the word, or the length of the value in bytes
//        16   key bytes, padded to 8
//         .   value bytes
//   The CRC covers lengths, key and value bytes. A word value is updated in place and not covered.
// Same-line order: state is stored last into the first line. So if the other lines of a record are
// durable, it is whole if and only if its state is.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "perdure/index.h"
#include "platform/platform.h"
#include "util/crc32c.h"
#include "util/same_bytes.h"

namespace perdure {

// On media; format version 0.
struct RecordPrefix {
  std::uint64_t state;
  std::uint64_t value;
};
static_assert(sizeof(RecordPrefix) == 16);

class RecordView {
 public:
  static constexpr std::uint64_t kLive = 1ULL << 52;

  RecordView(const void* p, std::uint64_t state, std::uint64_t value) noexcept
      : bytes_(static_cast<const char*>(p)), state_(state), value_(value) {}

  template <Platform P>
  static RecordView read(const P& platform, const RecordPrefix* prefix) noexcept {
    const std::uint64_t state = platform.load(prefix->state);
    return {prefix, state, platform.load(prefix->value)};
  }
  static std::size_t bytes_needed(std::string_view key, const detail::Value& value) noexcept {
    return key_end(key.size()) + (value.word_size == 0 ? value.bytes.size() : 0);
  }
  // Where the value of a record begins, in bytes.
  static std::size_t key_end(std::size_t key_bytes) noexcept {
    return sizeof(RecordPrefix) + (key_bytes + 7) / 8 * 8;
  }

  std::size_t key_size() const noexcept { return (state_ >> 32) & 0xFFFF; }
  std::uint32_t word_size() const noexcept { return (state_ >> 48) & 15; }
  bool has_key(std::string_view other) const noexcept {
    return key_size() == other.size() &&
           same_bytes(bytes_ + sizeof(RecordPrefix), other.data(), other.size());
  }
  std::string_view key() const noexcept { return {bytes_ + sizeof(RecordPrefix), key_size()}; }
  detail::Value value() const noexcept {
    if (word_size() != 0) return {.word = value_, .word_size = word_size()};
    return {.bytes = {bytes_ + key_end(key_size()), value_}};
  }
  std::size_t size() const noexcept {
    return key_end(key_size()) + (word_size() == 0 ? value_ : 0);
  }
  // True if the record is live and its lengths fit a block of n bytes.
  [[gnu::always_inline]] bool plausible(std::size_t n) const noexcept {
    const std::size_t end = key_end(key_size());
    if ((state_ & kLive) == 0 || end > n) return false;
    return word_size() == 0 ? value_ <= n - end : word_size() <= 8;
  }
  bool intact() const noexcept {
    return static_cast<std::uint32_t>(state_) ==
           checksum(key(), state_ >> 32, value_, value().bytes);
  }

  // Writes a record into an unpublished block of at least bytes_needed(). Writes nothing back.
  template <Platform P>
  static void write(P& platform, void* block, std::string_view key,
                    const detail::Value& value) noexcept {
    auto* prefix = static_cast<RecordPrefix*>(block);
    auto* bytes = static_cast<char*>(block);
    const std::uint64_t word = value.word_size != 0 ? value.word : value.bytes.size();
    const std::uint64_t shape = key.size() | std::uint64_t{value.word_size} << 16 | kLive >> 32;
    if (!key.empty()) platform.copy(bytes + sizeof(*prefix), key.data(), key.size());
    if (value.word_size == 0 && !value.bytes.empty()) {
      platform.copy(bytes + key_end(key.size()), value.bytes.data(), value.bytes.size());
    }
    platform.store(prefix->value, word);
    platform.store(prefix->state, shape << 32 | checksum(key, shape, word, value.bytes));
  }

 private:
  static std::uint32_t checksum(std::string_view key, std::uint64_t shape, std::uint64_t value,
                                std::string_view bytes) noexcept {
    const bool word = ((shape >> 16) & 15) != 0;
    const std::uint64_t lengths[2] = {shape, word ? 0 : value};
    std::uint32_t crc = crc32c(0, lengths, sizeof(lengths));
    crc = crc32c(crc, key.data(), key.size());
    return word ? crc : crc32c(crc, bytes.data(), bytes.size());
  }

  const char* bytes_;
  std::uint64_t state_;
  std::uint64_t value_;
};

}  // namespace perdure
