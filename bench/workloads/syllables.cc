#include "bench/workloads/syllables.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "bench/workloads/keys.h"

namespace perdure::bench {
namespace {

struct Part {
  std::string_view text;
  std::uint32_t weight;
};

// The weights are roughly those of English.
constexpr std::array<Part, 29> kOnsets = {
    {{"", 10},  {"t", 9},  {"s", 9},  {"r", 8},  {"n", 8},  {"l", 7},  {"m", 6},  {"d", 6},
     {"c", 6},  {"p", 6},  {"b", 4},  {"g", 4},  {"f", 3},  {"h", 3},  {"v", 2},  {"k", 2},
     {"w", 2},  {"j", 1},  {"z", 1},  {"st", 4}, {"tr", 3}, {"pr", 3}, {"ch", 3}, {"th", 3},
     {"sh", 2}, {"br", 2}, {"gr", 2}, {"pl", 2}, {"cl", 2}}};
constexpr std::array<Part, 9> kVowels = {
    {{"e", 9}, {"a", 8}, {"i", 7}, {"o", 7}, {"u", 3}, {"io", 2}, {"ea", 1}, {"ou", 1}, {"ai", 1}}};
constexpr std::array<Part, 5> kCodas = {{{"", 8}, {"n", 3}, {"r", 3}, {"l", 2}, {"m", 1}}};

struct Syllable {
  std::array<char, 7> text{};
  std::uint8_t length = 0;

  constexpr void append(std::string_view part) noexcept {
    for (const char c : part) text[length++] = c;
  }
};

// The 256 heaviest syllables. A common letter is in more of them than a rare one, so an even choice
// among them is skewed by letters.
using Syllables = std::array<Syllable, 256>;
constexpr Syllables heaviest(bool first) {
  struct Candidate {
    std::uint32_t weight = 0;
    std::uint32_t place = 0;
    Syllable syllable;
  };
  std::array<Candidate, kOnsets.size() * kVowels.size() * kCodas.size()> all{};
  std::size_t n = 0;
  for (const Part& onset : kOnsets) {
    if (onset.text.empty() && !first) continue;
    for (const Part& vowel : kVowels) {
      for (const Part& coda : kCodas) {
        Candidate& candidate = all[n];
        candidate.weight = onset.weight * vowel.weight * coda.weight;
        candidate.place = static_cast<std::uint32_t>(n++);
        candidate.syllable.append(onset.text);
        candidate.syllable.append(vowel.text);
        candidate.syllable.append(coda.text);
      }
    }
  }
  std::sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n),
            [](const Candidate& a, const Candidate& b) {
              return a.weight != b.weight ? a.weight > b.weight : a.place < b.place;
            });
  Syllables syllables{};
  for (std::size_t i = 0; i < syllables.size(); ++i) syllables[i] = all[i].syllable;
  return syllables;
}
constexpr Syllables kFirst = heaviest(true);
constexpr Syllables kLater = heaviest(false);

// Of 64 words in turn, how many have so many syllables. More than the words of a length that exist
// get kSpillSyllables.
struct Share {
  std::uint64_t begin;
  std::uint64_t end;
  unsigned syllables;
};
constexpr std::uint64_t kRound = 64;
constexpr std::array<Share, 3> kShares = {{{0, 4, 2}, {4, 32, 3}, {32, kRound, 4}}};
constexpr unsigned kSpillSyllables = 5;
constexpr unsigned kBits = 8;  // of a syllable
static_assert(kMaxWordLength >= kSpillSyllables * sizeof(Syllable));

}  // namespace

std::size_t write_word(std::uint64_t number, std::uint64_t seed, char* out) noexcept {
  const std::uint64_t pair = number / 2;
  const std::uint64_t slot = pair % kRound;
  const Share& share = kShares[slot < kShares[0].end ? 0 : slot < kShares[1].end ? 1 : 2];
  unsigned syllables = share.syllables;
  std::uint64_t place =
      2 * (pair / kRound * (share.end - share.begin) + slot - share.begin) + number % 2;
  if (place >> (kBits * syllables) != 0) {
    syllables = kSpillSyllables;
    place = number;
  }
  std::uint64_t digits = mix_bits(place + seed, kBits * syllables);
  char* at = out;
  for (unsigned i = 0; i < syllables; ++i, digits >>= kBits) {
    const Syllable& syllable = (i == 0 ? kFirst : kLater)[digits & 0xff];
    std::memcpy(at, syllable.text.data(), sizeof(syllable.text));
    at += syllable.length;
  }
  return static_cast<std::size_t>(at - out);
}

}  // namespace perdure::bench
