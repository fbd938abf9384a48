// Forms: the two kinds of line (layout.h), the items in their slots, and the order of stores that
// makes an item count. A thread that stores holds the bucket's lock and writes the line back. A
// thread that loads without the lock validates the bucket's version.
#pragma once

#include <cstdint>

#include "index/level/layout.h"
#include "platform/platform.h"

namespace perdure::level {

// The words of a slot: a key and a value, or the offset of their record.
template <std::uint32_t Words>
struct ItemOf {
  std::uint64_t key[Words] = {};
  std::uint64_t value[Words] = {};
};

struct WordForm {
  using Line = layout::Line;
  using Item = ItemOf<1>;
  static constexpr bool kArrays = false;
  static constexpr std::uint32_t kSlots = Line::kSlots;
  static constexpr std::uint32_t kCoveredBytes = offsetof(Line, crc);

  template <Platform P>
  static std::uint64_t tokens(const P& platform, const Line& line) {
    return platform.load(line.tokens);
  }
  template <Platform P>
  static void set_tokens(P& platform, Line& line, std::uint64_t tokens) {
    platform.store(line.tokens, tokens);
  }
  // Returns whether the slot holds a key of these words.
  template <Platform P>
  static bool holds(const P& platform, const Line& line, std::uint32_t slot, std::uint64_t word,
                    std::uint64_t) {
    return platform.load(line.slots[slot].key) == word;
  }
  template <Platform P>
  static Item load(const P& platform, const Line& line, std::uint32_t slot) {
    return {{platform.load(line.slots[slot].key)}, {platform.load(line.slots[slot].value)}};
  }
  // Stores the words of an item, then its token.
  template <Platform P>
  static void put(P& platform, Line& line, std::uint32_t slot, const Item& item) {
    platform.store(line.slots[slot].value, item.value[0]);
    platform.store(line.slots[slot].key, item.key[0]);
    platform.store(line.tokens, platform.load(line.tokens) | 1ULL << slot);
  }
  // Returns the first word of a value.
  static std::uint64_t& head(Line& line, std::uint32_t slot) { return line.slots[slot].value; }
};

struct ArrayForm {
  using Line = layout::ArrayLine;
  using Item = ItemOf<2>;
  static constexpr bool kArrays = true;
  static constexpr std::uint32_t kSlots = Line::kSlots;
  static constexpr std::uint32_t kCoveredBytes = sizeof(Line);
  static constexpr std::uint32_t kTokens = 48;  // the first bit of the tokens in their word
  static constexpr std::uint64_t kValueBits = (1ULL << kTokens) - 1;
  static constexpr std::uint64_t kFirstTail = (1ULL << 56) - 1;

  template <Platform P>
  static std::uint64_t tokens(const P& platform, const Line& line) {
    return platform.load(line.tokens) >> kTokens;
  }
  template <Platform P>
  static void set_tokens(P& platform, Line& line, std::uint64_t tokens) {
    platform.store(line.tokens, (platform.load(line.tokens) & kValueBits) | tokens << kTokens);
  }
  template <Platform P>
  static bool holds(const P& platform, const Line& line, std::uint32_t slot, std::uint64_t word,
                    std::uint64_t second) {
    return platform.load(line.keys[slot][0]) == word && platform.load(line.keys[slot][1]) == second;
  }
  template <Platform P>
  static Item load(const P& platform, const Line& line, std::uint32_t slot) {
    const std::uint64_t tails = platform.load(line.tails);
    const std::uint64_t tail = slot == 0
                                   ? tails & kFirstTail
                                   : tails >> 56 | (platform.load(line.tokens) & kValueBits) << 8;
    return {{platform.load(line.keys[slot][0]), platform.load(line.keys[slot][1])},
            {platform.load(line.heads[slot]), tail}};
  }
  // `off`: tokens that the store which sets this one clears.
  template <Platform P>
  static void put(P& platform, Line& line, std::uint32_t slot, const Item& item,
                  std::uint64_t off = 0) {
    const std::uint64_t tail = item.value[1];
    const std::uint64_t tails = platform.load(line.tails);
    const std::uint64_t last = platform.load(line.tokens);
    const std::uint64_t tokens = ((last >> kTokens & ~off) | 1ULL << slot) << kTokens;
    platform.store(line.keys[slot][0], item.key[0]);
    platform.store(line.keys[slot][1], item.key[1]);
    platform.store(line.heads[slot], item.value[0]);
    platform.store(line.tails,
                   slot == 0 ? (tails & ~kFirstTail) | tail : (tails & kFirstTail) | tail << 56);
    platform.store(line.tokens, tokens | (slot == 0 ? last & kValueBits : tail >> 8));
  }
  static std::uint64_t& head(Line& line, std::uint32_t slot) { return line.heads[slot]; }
};

}  // namespace perdure::level
