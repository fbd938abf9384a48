// test: cross
// InnerIndex of byte strings. Prefixes of inner nodes (ordered.N5): keys with long common prefixes
// are searched by the words behind them. Runs of equal words, and the range that a search proves
// (ordered.N6). The shortcut, whose leaves no node delimits.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "index/ordered/inner.h"
#include "platform/real_platform.h"
#include "util/hash.h"

namespace perdure::ordered {
namespace {

constexpr std::uint32_t kMany = 4096;

// Leaves of byte strings; number 0 means none.
class Leaves {
 public:
  static constexpr bool kBytes = true;
  struct Desc {
    std::atomic<std::uint64_t> low{0};
    std::atomic<std::uint64_t> bound{~std::uint64_t{0}};
    std::atomic<std::uint32_t> next{kNoLeaf};
    Separators<RealPlatform, true> separators;
    bool below(const Probe& probe) const noexcept { return lies_below<true>(*this, probe); }
    bool above(const Probe& probe) const noexcept {
      ++compared;
      return lies_above<true>(*this, probe);
    }
    static inline std::uint64_t compared = 0;
  };
  Desc& operator[](std::uint32_t number) const noexcept { return leaves_[number]; }

 private:
  std::unique_ptr<Desc[]> leaves_ = std::make_unique<Desc[]>(kMany);
};

// One partition, whose leaves are split between the keys of a list.
class Prefixes : public ::testing::Test {
 protected:
  using Inner = InnerIndex<RealPlatform, Leaves, 16>;

  Prefixes() {
    EXPECT_TRUE(inner_.reserve({.bits = 0, .shift = 0}, kMany).ok());
    const std::uint32_t first[] = {1};
    EXPECT_TRUE(inner_.build(0, first, 1).ok());
  }
  ~Prefixes() override {
    for (std::uint32_t leaf = 1; leaf <= count_; ++leaf) {
      inner_.release(leaves_[leaf].separators.low.load());
      inner_.release(leaves_[leaf].separators.bound.load());
    }
    epochs_.drain_all();
  }

  std::uint32_t leaf_of(std::string_view key) const {
    std::uint32_t leaf = 1;
    while (leaves_[leaf].above(probe_of(key))) leaf = leaves_[leaf].next.load();
    return leaf;
  }
  // Ends a leaf behind the key.
  void split_behind(std::string_view key) {
    const std::uint32_t old = leaf_of(key);
    const std::uint32_t fresh = ++count_;
    auto& left = leaves_[old];
    auto& right = leaves_[fresh];
    Separator<RealPlatform>* middle = Separator<RealPlatform>::make(key, 0);
    Inner::share(middle);
    right.low.store(head_word(key));
    right.separators.low.store(middle);
    right.bound.store(left.bound.load());
    right.separators.bound.store(left.separators.bound.load());
    right.next.store(left.next.load());
    left.next.store(fresh);
    left.separators.bound.store(middle);
    left.bound.store(head_word(key));
    EXPECT_TRUE(inner_.insert_after(0, old, fresh).ok());
  }
  // As an engine unlinks a leaf that is not the first: its right neighbour takes the range over.
  void unlink(std::uint32_t leaf) {
    give_range(leaf);
    remove(leaf);
  }
  // The same, up to the moment at which the partition's latch is acquired.
  void give_range(std::uint32_t leaf) {
    auto& gone = leaves_[leaf];
    const std::uint32_t heir = gone.next.load();
    std::uint32_t left = 1;
    while (leaves_[left].next.load() != leaf) left = leaves_[left].next.load();
    inner_.release(leaves_[heir].separators.low.load());
    leaves_[heir].low.store(gone.low.load());
    leaves_[heir].separators.low.store(gone.separators.low.load());
    leaves_[left].next.store(heir);
  }
  void remove(std::uint32_t leaf) {
    inner_.remove(0, leaf, leaves_[leaf].next.load());
    leaves_[leaf].separators.low.store(nullptr);  // the heir has the reference
    inner_.release(leaves_[leaf].separators.bound.exchange(nullptr));
  }
  void expect_found(const std::vector<std::string>& keys) const {
    const EpochGuard<RealPlatform> guard(epochs_);
    for (const std::string& key : keys) {
      ASSERT_EQ(inner_.search(probe_of(key)), leaf_of(key)) << key;
    }
  }

  // Expects that the search ends at the key's leaf or left of it (ordered.N2). Returns whether it
  // proves that this is the leaf.
  bool expect_proved(std::string_view key) const {
    const Probe probe = probe_of(key);
    const auto found = inner_.search_range(probe);
    std::uint32_t leaf = found.leaf;
    while (leaves_[leaf].above(probe)) leaf = leaves_[leaf].next.load();
    EXPECT_EQ(leaf, leaf_of(key)) << key;
    if (!found.proves(leaves_[found.leaf])) return false;
    EXPECT_EQ(leaf, found.leaf) << key;
    EXPECT_GT(compare(probe, found.low->view()), 0) << key;
    EXPECT_LE(compare(probe, found.bound->view()), 0) << key;
    return true;
  }

  RealPlatform platform_;
  Leaves leaves_;
  mutable EpochDomain<RealPlatform> epochs_{platform_};
  Inner inner_{leaves_, epochs_};
  std::uint32_t count_ = 1;
};

std::vector<std::string> articles(int count) {
  std::vector<std::string> keys;
  for (int i = 0; i < count; ++i) {
    keys.push_back("https://www.example.org/articles/" + std::to_string(10'000'000 + i * 7));
  }
  return keys;
}

TEST_F(Prefixes, KeysWithOnePrefixAreFoundByWords) {
  const EpochGuard<RealPlatform> guard(epochs_);
  const auto keys = articles(1000);
  for (const std::string& key : keys) split_behind(key);
  expect_found(keys);
  // The last key has the separator of no leaf behind it, and the first node has no prefix yet.
  Leaves::Desc::compared = 0;
  for (const std::string& key : keys) (void)inner_.search(probe_of(key));
  EXPECT_LT(Leaves::Desc::compared, 2 * keys.size());  // one where the word is that of the bound
}

TEST_F(Prefixes, AKeyWithoutThePrefixChangesIt) {
  const EpochGuard<RealPlatform> guard(epochs_);
  auto keys = articles(200);
  for (const std::string& key : keys) split_behind(key);
  for (const char* key : {"", "a", "https://", "https://www.example.org", "http", "https://z", "z",
                          "https://www.example.org/articles/10000", "https://www.example.org/b",
                          "https://www.example.org/articles/99999999999"}) {
    keys.emplace_back(key);
    expect_found(keys);  // not yet a bound
    split_behind(key);
    expect_found(keys);
  }
}

// Beside a list of all keys: splits, unlinks and lookups of keys of few letters.
TEST_F(Prefixes, SplitsAndUnlinksOfAnyKeys) {
  const EpochGuard<RealPlatform> guard(epochs_);
  std::set<std::string> bounds;
  std::vector<std::string> keys;
  std::uint64_t draw = 1;
  for (int i = 0; i < 1500; ++i) {
    draw = mix(draw + static_cast<std::uint64_t>(i));
    std::string key(draw % 3 == 0 ? 0 : 9 + draw % 4, 'p');
    for (std::uint64_t n = draw >> 8 & 15, left = draw >> 16; n > 0; --n, left >>= 1) {
      key += static_cast<char>('a' + left % 2);
    }
    keys.push_back(key);
    if (bounds.insert(key).second) split_behind(key);
    if (draw >> 60 != 0) continue;
    const std::uint32_t leaf = leaf_of(key);
    if (leaf == 1 || leaves_[leaf].next.load() == kNoLeaf) continue;
    unlink(leaf);
    bounds.erase(key);
  }
  expect_found(keys);
}

// Few words and long runs of them: what follows differs within the tail, behind it, or in length
// and zeros only.
TEST_F(Prefixes, RunsOfEqualWords) {
  const EpochGuard<RealPlatform> guard(epochs_);
  const std::string_view hosts[] = {"https://www.a.org/", "https://www.example.org/articles/",
                                    "https://www.b.org/", "http"};
  const std::string_view middles[] = {"", "news/2025/", "news/2025/12/alpha-beta-gamma-delta-"};
  const std::string_view ends[] = {"", "a", "ab", "abcdefgh", "abcdefghi"};
  std::set<std::string> bounds;
  std::vector<std::string> keys;
  std::uint64_t proved = 0;
  std::uint64_t draw = 1;
  for (int i = 0; i < 3000; ++i) {
    draw = mix(draw + static_cast<std::uint64_t>(i));
    std::string key(hosts[draw & 3]);
    key += middles[(draw >> 2) % 3];
    key += ends[(draw >> 8) % 5];
    key.append(draw >> 16 & 3, (draw >> 18 & 1) != 0 ? '\0' : '\xff');
    key += std::to_string(draw >> 20 & 1023);
    keys.push_back(key);
    if (bounds.insert(key).second) split_behind(key);
    proved += expect_proved(keys[(draw >> 30) % keys.size()]) ? 1 : 0;
    if (draw >> 61 != 0) continue;
    const std::uint32_t leaf = leaf_of(keys[(draw >> 40) % keys.size()]);
    if (leaf == 1 || leaves_[leaf].next.load() == kNoLeaf) continue;
    unlink(leaf);
  }
  for (const std::string& key : keys) (void)expect_proved(key);
  EXPECT_GT(proved, 2000U);  // not at the first leaf of a node
}

// A leaf that was split, or lost its left neighbour, since its node was searched has other
// separators.
TEST_F(Prefixes, AnOldRangeProvesNothing) {
  const EpochGuard<RealPlatform> guard(epochs_);
  for (const std::string& key : articles(12)) split_behind(key);
  const std::string key = articles(6).back() + "5";
  const auto before = inner_.search_range(probe_of(key));
  EXPECT_TRUE(before.proves(leaves_[before.leaf]));
  split_behind(key + "1");
  EXPECT_FALSE(before.proves(leaves_[before.leaf]));
  const auto after = inner_.search_range(probe_of(key));
  EXPECT_TRUE(after.proves(leaves_[after.leaf]));
  unlink(leaf_of(articles(6).back()));
  EXPECT_FALSE(after.proves(leaves_[after.leaf]));
  EXPECT_TRUE(expect_proved(key));
}

// The shortcut. A leaf ends behind the key of a word.
class StringShortcut : public Prefixes {
 protected:
  static std::string key(std::uint64_t word) {
    word = __builtin_bswap64(word);
    return {reinterpret_cast<const char*>(&word), sizeof(word)};
  }
  void split_at(std::uint64_t word) { split_behind(key(word)); }
  // Expects that the shortcut names linked leaves, each at or before the word's leaf. Returns how
  // many of the words up to `end` have a name.
  int named(std::uint64_t step, std::uint64_t end) const {
    std::set<std::uint32_t> linked;
    for (std::uint32_t leaf = 1; leaf != kNoLeaf; leaf = leaves_[leaf].next.load()) {
      linked.insert(leaf);
    }
    int count = 0;
    for (std::uint64_t word = 0; word < end; word += step) {
      const std::string text = key(word);
      const std::uint32_t leaf = inner_.shortcut_to(probe_of(text));
      if (leaf == kNoLeaf) continue;
      ++count;
      EXPECT_TRUE(linked.contains(leaf)) << "word " << word << " begins at leaf " << leaf;
      EXPECT_FALSE(leaves_[leaf].below(probe_of(text))) << "begins at leaf " << leaf;
    }
    return count;
  }
};

// ordered.S2: a node keeps its maximum when its last leaf goes. A shortcut that is built then does
// not name the leaf before for the range of the one that went. No unlink would look there.
TEST_F(StringShortcut, AfterTheLastLeavesOfNodesWent) {
  const EpochGuard<RealPlatform> guard(epochs_);
  constexpr std::uint64_t kWidth = 1 << 20;
  constexpr std::uint32_t kLeaves = 64;
  for (std::uint32_t leaf = 1; leaf <= kLeaves; ++leaf) split_at(leaf * kWidth);
  // Ascending splits have left 8 leaves in each node: 1 to 8, 9 to 16.
  for (std::uint32_t leaf = 8; leaf < kLeaves; leaf += 8) unlink(leaf);
  // Divides others until the shortcut has been built anew.
  for (std::uint32_t leaf = 1; leaf < kLeaves; ++leaf) {
    if (leaf % 8 == 7 || leaf % 8 == 0) continue;
    for (std::uint64_t n = 1; n < 4; ++n) split_at((leaf - 1) * kWidth + n * kWidth / 4);
  }
  EXPECT_GT(named(kWidth / 16, kLeaves * kWidth), 512);
  for (std::uint32_t leaf = 7; leaf < kLeaves; leaf += 8) unlink(leaf);
  EXPECT_GT(named(kWidth / 16, kLeaves * kWidth), 256);
}

// ordered.S2: the range of a leaf is named in steps. Between them the leaf gives it up, and its
// removal waits for the latch.
TEST_F(StringShortcut, WhileTheRemovalOfALongLeafWaits) {
  const EpochGuard<RealPlatform> guard(epochs_);
  constexpr std::uint64_t kEnd = 1 << 24;
  constexpr std::uint64_t kLong = kEnd / 16 * 15;  // leaf 2 ends there
  split_at(1);
  split_at(kLong);
  split_at(kEnd);
  const auto divide = [&] { split_at(kLong + (kEnd - kLong) / 4096 * (4096 - count_)); };
  while (count_ < 2048) divide();  // the shortcut is built anew, and leaf 2 named in part
  give_range(2);
  divide();
  remove(2);
  while (count_ < 2500) divide();
  EXPECT_GT(named(kEnd / 4096, kEnd), 2048);
}

// The words behind a prefix order as the keys do.
TEST(WordBehind, OrdersAsKeysDo) {
  const std::string_view parts[] = {"", "a", "b", "ab", "\0", "abcdefgh", "abcdefgi", "\xff"};
  std::vector<std::string> keys;
  for (const auto a : parts) {
    for (const auto b : parts) {
      for (const auto c : parts) keys.push_back(std::string(a) + std::string(b) + std::string(c));
    }
  }
  std::sort(keys.begin(), keys.end());
  for (const std::string& prefix : keys) {
    std::uint64_t before = 0;
    for (const std::string& key : keys) {
      const std::uint64_t word = word_behind(prefix, probe_of(key));
      ASSERT_LE(before, word) << prefix << " " << key;
      before = word;
      if (key.starts_with(prefix)) {
        ASSERT_EQ(word, head_word(std::string_view(key).substr(prefix.size())));
      } else {
        ASSERT_EQ(word, key < prefix ? 0 : ~std::uint64_t{0}) << prefix << " " << key;
      }
    }
  }
}

// A position has a word, and no bytes: the first or the last key of that word.
TEST(WordBehind, PositionsHaveNoBytes) {
  const std::uint64_t word = head_word("abcdefgh");
  EXPECT_EQ(word_behind("abcdefgh/", {.word = word}), 0U);
  EXPECT_EQ(word_behind("abcdefgh/", {.word = word, .after = true, .last = true}),
            ~std::uint64_t{0});
  EXPECT_EQ(word_behind("abcdefgh/", {.word = word + 1}), ~std::uint64_t{0});
  EXPECT_EQ(word_behind("abcdefgh/", {.word = word - 1, .after = true, .last = true}), 0U);
}

}  // namespace
}  // namespace perdure::ordered
