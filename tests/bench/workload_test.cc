// test: no asan
// Keys, values and phases: distinct, repeatable; and the ledger has the effects of the phases.
#include "bench/workloads/work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "bench/workloads/keys.h"
#include "bench/workloads/ledger.h"

namespace perdure::bench {
namespace {

constexpr DataKind kString16 = {.is_string = true, .length = 16};

std::string text_of(const KeySpace& keys, std::uint64_t word) {
  std::string text(keys.max_length(), '\0');
  text.resize(keys.write(word, text.data()));
  return text;
}

TEST(Keys, MixIsABijectionOfEveryWidth) {
  for (const unsigned bits : {8U, 13U, 16U}) {
    std::vector<bool> seen(1ULL << bits);
    for (std::uint64_t i = 0; i < seen.size(); ++i) {
      const std::uint64_t x = mix_bits(i, bits);
      ASSERT_LT(x, seen.size());
      ASSERT_FALSE(seen[x]);
      seen[x] = true;
    }
  }
}

TEST(Keys, AreDistinctInEveryScheme) {
  for (const KeyScheme scheme : {KeyScheme::mixed, KeyScheme::sequential, KeyScheme::clustered}) {
    for (const std::uint32_t length : {15U, 16U, 40U}) {
      const KeySpace integers(scheme, {}, 1);
      const KeySpace strings(scheme, {.is_string = true, .length = length}, 1);
      std::set<std::uint64_t> words;
      std::set<std::string> texts;
      for (std::uint64_t i = 0; i < 5000; ++i) {
        EXPECT_TRUE(words.insert(integers.word(i)).second);
        EXPECT_TRUE(words.insert(integers.missing_word(i)).second);
        EXPECT_TRUE(texts.insert(text_of(strings, strings.word(i))).second);
        EXPECT_TRUE(texts.insert(text_of(strings, strings.missing_word(i))).second);
      }
      for (const std::string& text : texts) {
        ASSERT_EQ(text.size(), length);
        ASSERT_TRUE(std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; }));
      }
    }
  }
}

TEST(Keys, SequentialStringsKeepTheOrderOfTheirNumbers) {
  const KeySpace keys(KeyScheme::sequential, kString16, 1);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    EXPECT_LT(text_of(keys, keys.word(i)), text_of(keys, keys.missing_word(i)));
    EXPECT_LT(text_of(keys, keys.missing_word(i)), text_of(keys, keys.word(i + 1)));
  }
}

TEST(Keys, ClusteredKeysLieInOneHundredthOfTheSpace) {
  const KeySpace integers(KeyScheme::clustered, {}, 77);
  std::uint64_t low = ~0ULL;
  std::uint64_t high = 0;
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    low = std::min(low, integers.word(i));
    high = std::max(high, integers.word(i));
  }
  EXPECT_LE(high - low, ~0ULL / 100);
  EXPECT_GT(high - low, ~0ULL / 200);  // and fill it
}

TEST(Keys, HexDigitsComeLowNibbleFirst) {
  const auto digits = hex_low_first(0x123456789abcdef0ULL);
  EXPECT_EQ(std::string(digits.begin(), digits.end()), "0fedcba987654321");
}

TEST(Values, CarryKeyAndGeneration) {
  for (const std::uint32_t length : {0U, 2U, 8U, 15U, 16U, 17U, 100U}) {
    const DataKind kind = length == 0 ? DataKind{} : DataKind{.is_string = true, .length = length};
    const ValueCodec values(kind);
    std::string scratch = values.scratch();
    for (const std::uint64_t word : {0ULL, 1ULL, ~0ULL, 0x0123456789abcdefULL}) {
      for (const std::uint8_t generation : {0, 1, 250}) {
        const ValueRef value = values.make(word, generation, scratch);
        EXPECT_EQ(values.generation(word, value), generation) << length;
        if (length == 0 || length > 4) {
          EXPECT_FALSE(values.generation(word + 1, value).has_value()) << length;
        }
      }
    }
  }
}

TEST(Values, DamageIsSeen) {
  const ValueCodec values({.is_string = true, .length = 100});
  std::string scratch = values.scratch();
  (void)values.make(42, 3, scratch);
  for (std::size_t i = 1; i < scratch.size(); ++i) {  // the first digit is the generation's
    std::string damaged = scratch;
    damaged[i] ^= 0x08;
    const auto generation = values.generation(42, {.bytes = damaged});
    EXPECT_TRUE(!generation || *generation != 3) << i;
  }
  EXPECT_FALSE(values.generation(42, {.bytes = std::string_view(scratch).substr(1)}).has_value());
}

struct Maker {
  explicit Maker(const WorkOptions& options, const DataKind& kind = {})
      : keys(KeyScheme::mixed, kind, options.seed), maker(options, keys) {}

  Phase step(Workload workload) {
    Phase phase = maker.make(workload, ledger);
    WorkMaker::commit(phase, ledger);
    return phase;
  }

  KeySpace keys;
  WorkMaker maker;
  Ledger ledger;
};

std::multiset<std::uint64_t> all_words(const Phase& phase) {
  std::multiset<std::uint64_t> words;
  for (const WorkBlock& block : phase.blocks) words.insert(block.words.begin(), block.words.end());
  return words;
}

TEST(Work, ThreadsShareTheSameWorkInContiguousBlocks) {
  const WorkOptions options{.records = 1001, .operations = 500, .threads = 3, .seed = 2};
  WorkOptions alone = options;
  alone.threads = 1;
  Maker three(options);
  Maker one(alone);
  for (const Workload workload : {Workload::load, Workload::insert, Workload::read,
                                  Workload::update, Workload::erase, Workload::scan}) {
    const Phase split = three.step(workload);
    const Phase whole = one.step(workload);
    ASSERT_EQ(split.blocks.size(), 3U);
    std::vector<std::uint64_t> joined;
    for (const WorkBlock& block : split.blocks) {
      joined.insert(joined.end(), block.words.begin(), block.words.end());
    }
    EXPECT_EQ(joined, whole.blocks[0].words);
    EXPECT_EQ(split.operations, joined.size());
  }
}

TEST(Work, SharingThreadsTakeTheSameKeysInOrdersOfTheirOwn) {
  Maker maker({.records = 50, .operations = 150, .threads = 3, .shared = true, .seed = 4});
  maker.step(Workload::load);
  const Phase updates = maker.step(Workload::update);
  ASSERT_EQ(updates.blocks.size(), 3U);
  std::vector<std::uint64_t> first = updates.blocks[0].words;
  std::vector<std::uint64_t> second = updates.blocks[1].words;
  EXPECT_NE(first, second);
  std::ranges::sort(first);
  std::ranges::sort(second);
  EXPECT_EQ(first.size(), 50U);
  EXPECT_EQ(first, second);
  // A key has one insert and one delete, so those stay apart.
  for (const Workload workload : {Workload::insert, Workload::erase}) {
    const auto words = all_words(maker.step(workload));
    EXPECT_EQ(std::set<std::uint64_t>(words.begin(), words.end()).size(), 150U);
  }
}

TEST(Work, UniformReadsVisitEveryKeyOncePerRound) {
  Maker maker({.records = 100, .operations = 250, .seed = 5});
  maker.step(Workload::load);
  const auto words = all_words(maker.step(Workload::read));
  for (std::uint64_t i = 0; i < 100; ++i) {
    const std::size_t times = words.count(maker.keys.word(i));
    EXPECT_TRUE(times == 2 || times == 3);
  }
}

TEST(Work, DeletesAreDistinctAndLeaveTheLedgerRight) {
  for (const Distribution distribution :
       {Distribution::uniform, Distribution::zipfian, Distribution::sequential}) {
    Maker maker({.records = 100, .operations = 60, .distribution = distribution, .seed = 5});
    maker.step(Workload::load);
    const Phase erased = maker.step(Workload::erase);
    const auto words = all_words(erased);
    EXPECT_EQ(std::set<std::uint64_t>(words.begin(), words.end()).size(), 60U);
    ASSERT_EQ(maker.ledger.present(), 40U);
    for (std::uint64_t i = 0; i < 40; ++i) {
      EXPECT_EQ(words.count(maker.keys.word(maker.ledger.index_at(i))), 0U);
    }
    const Phase fresh = maker.step(Workload::insert);
    EXPECT_EQ(maker.ledger.present(), 100U);
    EXPECT_EQ(fresh.blocks[0].indexes.front(), 100U);  // deleted keys do not come back
  }
}

TEST(Work, UpdatesRaiseTheGenerationOfWhatTheyTouch) {
  Maker maker({.records = 100, .operations = 30, .seed = 5});
  maker.step(Workload::load);
  const Phase first = maker.step(Workload::update);
  const Phase second = maker.step(Workload::update);
  EXPECT_EQ(second.generation, first.generation + 1);
  for (const std::uint32_t index : second.blocks[0].indexes) {
    EXPECT_EQ(maker.ledger.generation(index), second.generation);
  }
  EXPECT_EQ(maker.ledger.newest(), second.generation);
}

TEST(Work, ChurnDeletesTheOldest) {
  Maker maker({.records = 10, .operations = 50, .distribution = Distribution::sequential});
  maker.step(Workload::load);
  maker.step(Workload::churn);
  ASSERT_EQ(maker.ledger.present(), 10U);
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_EQ(maker.ledger.index_at(i), 25 + i);
}

TEST(Work, EveryTenthMixedScanIsAnInsert) {
  Maker maker({.records = 100, .operations = 203, .threads = 3});
  maker.step(Workload::load);
  const Phase phase = maker.step(Workload::scan_mixed);
  std::vector<std::uint32_t> inserted;
  std::size_t scans = 0;
  for (const WorkBlock& block : phase.blocks) {
    for (std::size_t i = 0; i < block.size(); ++i) {
      if (block.kinds[i] == OpKind::insert) {
        inserted.push_back(block.indexes[i]);
        continue;
      }
      ASSERT_EQ(block.kinds[i], OpKind::scan);
      EXPECT_EQ(block.lengths[i], kScanLength);
      EXPECT_LT(block.indexes[i], 100U) << "the key may be inserted later";
      ++scans;
    }
  }
  EXPECT_EQ(scans, 183U);
  ASSERT_EQ(inserted.size(), 20U);
  for (std::uint32_t i = 0; i < 20; ++i) EXPECT_EQ(inserted[i], 100 + i);
  EXPECT_EQ(maker.ledger.present(), 120U);
}

TEST(Work, MissingKeysAreNeverPresentOnes) {
  Maker maker({.records = 1000, .operations = 1000}, kString16);
  maker.step(Workload::load);
  std::set<std::uint64_t> present;
  for (std::uint64_t i = 0; i < 1000; ++i) present.insert(maker.keys.word(i));
  for (const std::uint64_t word : all_words(maker.step(Workload::read_missing))) {
    EXPECT_FALSE(present.contains(word));
  }
}

TEST(Work, YcsbThreadsInsertDistinctKeys) {
  Maker maker({.records = 1000, .operations = 4000, .threads = 4});
  maker.step(Workload::load);
  const Phase phase = maker.step(Workload::ycsb_e);
  std::set<std::uint32_t> inserted;
  for (const WorkBlock& block : phase.blocks) {
    for (std::size_t i = 0; i < block.size(); ++i) {
      if (block.kinds[i] != OpKind::insert) continue;
      EXPECT_TRUE(inserted.insert(block.indexes[i]).second);
    }
  }
  EXPECT_EQ(maker.ledger.present(), 1000 + inserted.size());
  EXPECT_EQ(*inserted.begin(), 1000U);
  EXPECT_EQ(*inserted.rbegin(), 1000 + inserted.size() - 1);
}

TEST(Work, SameSeedSameWork) {
  const WorkOptions options{.records = 500, .operations = 500, .seed = 42};
  WorkOptions other = options;
  other.seed = 43;
  Maker a(options);
  Maker b(options);
  Maker c(other);
  for (const Workload workload : {Workload::load, Workload::read, Workload::update}) {
    const Phase first = a.step(workload);
    EXPECT_EQ(first.blocks[0].words, b.step(workload).blocks[0].words);
    EXPECT_NE(first.blocks[0].words, c.step(workload).blocks[0].words);
  }
}

TEST(Work, ImpossibleListsAreRefused) {
  using enum Workload;
  const WorkOptions options{.records = 10, .operations = 10};
  const auto refused = [&](const std::vector<Workload>& list) {
    return !validate_work(options, list).has_value();
  };
  EXPECT_FALSE(refused({load, read, erase}));
  EXPECT_TRUE(refused({read}));
  EXPECT_TRUE(refused({load, erase, erase}));
  EXPECT_TRUE(refused({load, churn, ycsb_a}));
  EXPECT_FALSE(refused({load, insert, erase, erase}));
  EXPECT_TRUE(refused({scan_mixed}));
  EXPECT_TRUE(refused({load, scan_mixed, erase, erase}));
  EXPECT_FALSE(refused({load, scan_mixed, ycsb_a}));
  EXPECT_FALSE(parse_workloads("load,,read").has_value());
  ASSERT_TRUE(parse_workloads("load,delete,ycsb_f").has_value());
  EXPECT_TRUE(refused({load, read_version, tag}));
  EXPECT_TRUE(refused({load, snapshot}));
  EXPECT_TRUE(refused({history}));
  EXPECT_FALSE(refused({tag, history, read_version, snapshot}));
}

TEST(Work, KeysThatAreTaggedAreNew) {
  Maker maker({.records = 100, .operations = 50, .threads = 2});
  maker.step(Workload::load);
  const Phase tagged = maker.step(Workload::tag);
  std::set<std::uint32_t> indexes;
  for (const WorkBlock& block : tagged.blocks) {
    for (const std::uint32_t index : block.indexes) indexes.insert(index);
  }
  EXPECT_EQ(indexes.size(), 50U);
  EXPECT_EQ(*indexes.begin(), 100U);
  EXPECT_EQ(maker.ledger.used(), 150U);
}

// The basis of checks of versions: the keys that each version must have, and how many it can have.
TEST(Work, VersionsAreDrawnAmongAllAndHaveTheOldKeys) {
  Maker maker({.records = 100, .operations = 40, .threads = 2});
  maker.step(Workload::load);
  maker.step(Workload::tag);
  maker.step(Workload::tag);
  const Phase reads = maker.step(Workload::read_version);
  EXPECT_EQ(reads.untagged, 100U);
  for (const WorkBlock& block : reads.blocks) {
    EXPECT_EQ(block.draws.size(), block.indexes.size());
    EXPECT_LT(std::ranges::min(block.draws), 1U << 30);
    EXPECT_GT(std::ranges::max(block.draws), 3U << 30);
  }
  maker.step(Workload::erase);
  const Phase snapshots = maker.step(Workload::snapshot);
  std::uint64_t old = 0;
  for (std::uint64_t i = 0; i < maker.ledger.present(); ++i) {
    old += maker.ledger.index_at(i) < 100 ? 1 : 0;
  }
  EXPECT_LT(old, 100U);
  EXPECT_EQ(snapshots.least_keys, old);
  EXPECT_EQ(snapshots.most_keys, 180U);
  EXPECT_EQ(snapshots.blocks[0].size() + snapshots.blocks[1].size(), 2U);
}

}  // namespace
}  // namespace perdure::bench
