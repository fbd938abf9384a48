// Item: a key and its value in one block, which a slot names.
//
// Bits of the state:
//   0..31   CRC32C of the rest of the state, the key and the inline value
//   32..47  bytes of the key
//   48..58  bytes of the inline value
//   59      live
//   60      dead: bits 0..38 are then the offset / 8 of the slot that named the item when it died
//   61      closed: bits 0..31 are then xor-ed with the CRC of the value word
//   62      pending, instead of live: a slot names the item, and its insert has not taken effect.
//           With dead: withdrawn by the rehash; the insert makes another item
// Closing the map closes its items. An update opens a closed item before it changes the value word,
// which lies in the same line.
// Same-line order: the state is stored last into the first line. An item whose other lines are
// durable is therefore whole if and only if its state is. A block is durably dead (state 0) before
// it is reused. After a crash an item that is pending never was one.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "index/clevel/hash.h"
#include "index/clevel/layout.h"
#include "perdure/index.h"
#include "perdure/options.h"
#include "util/crc32c.h"

namespace perdure::clevel {

inline constexpr std::uint64_t kLive = 1ULL << 59;
inline constexpr std::uint64_t kDead = 1ULL << 60;
inline constexpr std::uint64_t kClosed = 1ULL << 61;
inline constexpr std::uint64_t kPending = 1ULL << 62;
inline constexpr std::uint64_t kGone = 1;          // value word of a dead item whose value is bytes
inline constexpr std::size_t kInlineValue = 1024;  // a longer value lies in a blob from the start

struct IntegerCodec {
  static constexpr bool kBytes = false;
};
struct BytesCodec {
  static constexpr bool kBytes = true;
};

inline std::size_t padded(std::size_t n) { return (n + 7) / 8 * 8; }
inline std::size_t key_bytes(std::uint64_t state) { return (state >> 32) & 0xFFFF; }
inline std::size_t inline_bytes(std::uint64_t state) { return (state >> 48) & 0x7FF; }
inline std::size_t item_bytes(std::uint64_t state) {
  return sizeof(Item) + padded(key_bytes(state)) + inline_bytes(state);
}
inline std::uint64_t item_shape(std::size_t key, std::size_t value) {
  return std::uint64_t{key} << 32 | std::uint64_t{value} << 48 | kLive;
}
inline std::uint64_t dead_state(std::uint64_t slot) { return kDead | slot >> 3; }
inline std::uint64_t slot_of_dead(std::uint64_t state) { return (state & ((1ULL << 39) - 1)) << 3; }
inline bool is_live(std::uint64_t state) { return (state & (kLive | kDead)) == kLive; }
inline bool is_pending(std::uint64_t state) {
  return (state & (kLive | kDead | kPending)) == kPending;
}
// The rehash has killed the item while it was pending.
inline std::uint64_t withdrawn_state(std::uint64_t slot) { return dead_state(slot) | kPending; }
inline bool is_withdrawn(std::uint64_t state) {
  return (state & (kLive | kDead | kPending)) == (kDead | kPending);
}
// Makes a pending state live and a live one pending. The CRC is that of the live one.
inline std::uint64_t toggle_pending(std::uint64_t state) { return state ^ (kLive | kPending); }

inline const char* key_of(const Item* item) { return reinterpret_cast<const char*>(item + 1); }
inline const char* value_of(const Item* item, std::uint64_t state) {
  return key_of(item) + padded(key_bytes(state));
}
inline std::uint32_t item_crc(std::uint64_t shape, const char* key, const char* value) {
  const std::uint64_t lengths = (shape & ~kClosed) >> 32;
  std::uint32_t crc = crc32c(0, &lengths, sizeof(lengths));
  crc = crc32c(crc, key, key_bytes(shape));
  return crc32c(crc, value, inline_bytes(shape));
}
inline bool is_closed(std::uint64_t state) { return (state & kClosed) != 0; }
// Closes an open state and opens a closed one. `value` is the value word that the CRC covers.
inline std::uint64_t toggle_closed(std::uint64_t state, std::uint64_t value) {
  return state ^ kClosed ^ crc32c(0, &value, sizeof(value));
}
// Whether the item is live, fits its block of `room` bytes, and matches its checksum.
inline bool is_whole(const Item* item, std::uint64_t state, std::uint64_t value, std::size_t room) {
  if (!is_live(state) || item_bytes(state) > room) return false;
  const std::uint64_t open = is_closed(state) ? toggle_closed(state, value) : state;
  return static_cast<std::uint32_t>(open) == item_crc(open, key_of(item), value_of(item, open));
}

}  // namespace perdure::clevel
