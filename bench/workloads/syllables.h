// Words that are composed of syllables, with a letter distribution as skewed as that of English.
//
// A syllable is consonants, vowels and perhaps one of n, r, l, m. Only a word's first syllable may
// begin with a vowel, and no group of consonants begins with n, r, l or m. Every word can therefore
// be split in one way only: different sequences of syllables are different words.
#pragma once

#include <cstddef>
#include <cstdint>

namespace perdure::bench {

// The longest word, and what write_word() may write beyond it.
inline constexpr std::size_t kMaxWordLength = 40;

// Writes the word of `number`, number < 2^34, and returns its length: 3 to some 16 letters, in rare
// cases up to 25. Different numbers have different words of one `seed`. 2n and 2n + 1 have the same
// number of syllables.
std::size_t write_word(std::uint64_t number, std::uint64_t seed, char* out) noexcept;

}  // namespace perdure::bench
