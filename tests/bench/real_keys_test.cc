// test: no asan
// Keys as people have them: distinct, repeatable, with the shape of the real thing; and threads
// that insert ordered keys in turn.
#include "bench/workloads/real_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <regex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/harness/driver.h"
#include "bench/workloads/keys.h"
#include "bench/workloads/ledger.h"
#include "bench/workloads/work.h"
#include "perdure/options.h"

namespace perdure::bench {
namespace {

constexpr std::uint64_t kMillion = 1'000'000;
constexpr std::uint64_t kMostIndexes = std::uint64_t{1} << 32;
constexpr std::array kComputed = {RealKind::ids,  RealKind::times, RealKind::paths,
                                  RealKind::urls, RealKind::uuid,  RealKind::words};

std::string text_of(const KeySpace& keys, std::uint64_t word) {
  constexpr std::size_t kGuard = 16;
  std::string text(keys.max_length() + kGuard, '#');
  const std::size_t length = keys.write(word, text.data());
  EXPECT_LE(length, keys.max_length());
  EXPECT_EQ(text.substr(keys.max_length()), std::string(kGuard, '#')) << "beyond max_length()";
  text.resize(length);
  return text;
}

std::vector<std::string> texts(RealKind kind, std::uint64_t count, bool missing = false,
                               std::uint64_t seed = 1) {
  const KeySpace keys(RealKeys(kind, seed));
  std::vector<std::string> all;
  for (std::uint64_t i = 0; i < count; ++i) {
    all.push_back(text_of(keys, missing ? keys.missing_word(i) : keys.word(i)));
  }
  return all;
}

std::vector<std::uint64_t> words(RealKind kind, std::uint64_t count, std::uint64_t seed = 1) {
  const KeySpace keys(RealKeys(kind, seed));
  std::vector<std::uint64_t> all;
  for (std::uint64_t i = 0; i < count; ++i) all.push_back(keys.word(i));
  return all;
}

std::string up_to_last(const std::string& text, char c) { return text.substr(0, text.rfind(c)); }

// The key, or a hash of 64 bits: keys whose hashes differ are distinct.
std::uint64_t key_hash(const KeySpace& keys, std::uint64_t word, std::string& buffer) {
  if (!keys.kind().is_string) return word;
  return std::hash<std::string_view>()({buffer.data(), keys.write(word, buffer.data())});
}

class RealKeysOf : public testing::TestWithParam<RealKind> {};
INSTANTIATE_TEST_SUITE_P(All, RealKeysOf, testing::ValuesIn(kComputed), [](const auto& test) {
  return std::string(RealKeys(test.param, 1).name());
});

// The first and the last of the possible indexes, and the missing keys of some.
TEST_P(RealKeysOf, AreDistinctAndMissingOnesAreNotAmongThem) {
  const KeySpace keys(RealKeys(GetParam(), 1));
  std::string buffer(keys.max_length(), '\0');
  std::vector<std::uint64_t> present;
  std::vector<std::uint64_t> missing;
  for (std::uint64_t i = 0; i < kMillion; ++i) {
    const std::uint64_t index = i < kMillion / 2 ? i : kMostIndexes - 1 - i;
    present.push_back(key_hash(keys, keys.word(index), buffer));
    if (i % 4 == 0) missing.push_back(key_hash(keys, keys.missing_word(index), buffer));
  }
  std::ranges::sort(present);
  std::ranges::sort(missing);
  EXPECT_EQ(std::ranges::adjacent_find(present), present.end());
  EXPECT_EQ(std::ranges::adjacent_find(missing) == missing.end(), GetParam() != RealKind::ids);
  std::vector<std::uint64_t> both;
  std::ranges::set_intersection(present, missing, std::back_inserter(both));
  EXPECT_EQ(both.size(), 0U);
}

TEST_P(RealKeysOf, DependOnTheSeedOnly) {
  if (!RealKeys(GetParam(), 1).is_string()) {
    EXPECT_EQ(words(GetParam(), 1000, 7), words(GetParam(), 1000, 7));
    EXPECT_NE(words(GetParam(), 1000, 7), words(GetParam(), 1000, 8));
    return;
  }
  EXPECT_EQ(texts(GetParam(), 1000, false, 7), texts(GetParam(), 1000, false, 7));
  const std::vector<std::string> seventh = texts(GetParam(), 1000, false, 7);
  const std::vector<std::string> eighth = texts(GetParam(), 1000, false, 8);
  const std::set<std::string> known(seventh.begin(), seventh.end());
  const auto shared =
      std::ranges::count_if(eighth, [&](const auto& t) { return known.contains(t); });
  EXPECT_LE(shared, 20) << "short words may occur in both";
}

TEST(RealKeys, IdsAscendFromASmallOneAndAreDense) {
  const auto ids = words(RealKind::ids, kMillion);
  EXPECT_LT(ids.front(), 2000U);
  for (std::size_t i = 1; i < ids.size(); ++i) {
    ASSERT_GT(ids[i], ids[i - 1]);
    ASSERT_LE(ids[i], ids[i - 1] + 3);
  }
  EXPECT_NEAR(static_cast<double>(ids.back() - ids.front()), 1e6 * 16 / 15, 20);
  const RealKeys keys(RealKind::ids, 1);
  EXPECT_LT(keys.word(4'000'000'000), kMostIndexes);
  // A missing one lies among its neighbours.
  for (std::uint64_t i = 15; i < 1000; ++i) {
    EXPECT_NEAR(static_cast<double>(keys.missing_word(i)), static_cast<double>(keys.word(i)), 16);
  }
}

TEST(RealKeys, TimesAreOf2026AndComeInBursts) {
  constexpr std::uint64_t kBegin = 1'767'225'600'000'000'000;
  constexpr std::uint64_t kYear = 365ULL * 24 * 3600 * 1'000'000'000;
  const auto times = words(RealKind::times, kMillion);
  EXPECT_GE(times.front(), kBegin);
  EXPECT_LT(times.back(), kBegin + kYear);
  const RealKeys keys(RealKind::times, 1);
  double squares = 0;
  std::uint64_t short_ones = 0;
  for (std::size_t i = 1; i < times.size(); ++i) {
    ASSERT_GE(times[i], times[i - 1] + 2) << i;
    const auto gap = static_cast<double>(times[i] - times[i - 1]);
    squares += gap * gap;
    short_ones += gap < 1e4 ? 1 : 0;
    const std::uint64_t missing = keys.missing_word(i - 1);
    ASSERT_TRUE(missing > times[i - 1] && missing < times[i]) << i;
  }
  const double mean = static_cast<double>(times.back() - times.front()) / 1e6;
  EXPECT_NEAR(mean, 1e5, 1e3);
  // Of exponential gaps without bursts 9.5 % would be so short, and the quotient would be 2.
  EXPECT_GT(short_ones, kMillion * 15 / 100);
  EXPECT_GT(squares / 1e6 / (mean * mean), 2.5);
}

std::size_t common_prefix(const std::string& a, const std::string& b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

TEST(RealKeys, PathsFillDirectoriesUnevenly) {
  constexpr std::uint64_t kCount = 200'000;
  std::vector<std::string> paths = texts(RealKind::paths, kCount);
  std::map<std::string, std::uint64_t> folders;
  double bytes = 0;
  for (const std::string& path : paths) {
    ASSERT_TRUE(path.starts_with("/usr/")) << path;
    ++folders[up_to_last(path, '/')];
    bytes += static_cast<double>(path.size());
  }
  EXPECT_TRUE(bytes / kCount > 45 && bytes / kCount < 80) << bytes / kCount;
  EXPECT_TRUE(std::ranges::any_of(paths, [](const std::string& path) {
    return path.starts_with("/usr/share/doc/lib") && path.ends_with("-dev/changelog.Debian.gz");
  }));
  std::vector<std::uint64_t> sizes;
  for (const auto& [folder, size] : folders) sizes.push_back(size);
  std::ranges::sort(sizes);
  const double mean = static_cast<double>(kCount) / static_cast<double>(sizes.size());
  EXPECT_TRUE(mean > 4 && mean < 16) << mean;
  EXPECT_LE(sizes[sizes.size() / 2], 4U);
  EXPECT_GT(sizes.back(), 1000U);
  // They come directory by directory, except for the shared ones.
  std::uint64_t changes = 0;
  for (std::size_t i = 1; i < paths.size(); ++i) {
    changes += up_to_last(paths[i], '/') != up_to_last(paths[i - 1], '/') ? 1 : 0;
  }
  EXPECT_LT(changes, kCount / 4);
  for (const std::string& path : texts(RealKind::paths, 20'000, true)) {
    ASSERT_TRUE(folders.contains(up_to_last(path, '/'))) << path;
  }
  std::ranges::sort(paths);
  double common = 0;
  for (std::size_t i = 1; i < paths.size(); ++i) {
    common += static_cast<double>(common_prefix(paths[i], paths[i - 1]));
  }
  EXPECT_GT(common / bytes, 0.6);
}

TEST(RealKeys, UrlsHaveFrequentHosts) {
  constexpr std::uint64_t kCount = 100'000;
  const std::regex form(
      R"((https://www\.example-\d{1,4}\.org)/[a-z]+/20(1\d|2[0-5])/(0[1-9]|1[0-2])/([a-z]+-){2,5}\d{5,6}\?)"
      R"(((id|ref|page)|utm_source=newsletter&id)=\d{1,6})");
  const auto host = [](const std::string& url) { return url.substr(0, url.find('/', 8)); };
  std::map<std::string, std::uint64_t> hosts;
  const std::vector<std::string> urls = texts(RealKind::urls, kCount);
  for (std::size_t i = 0; i < urls.size(); ++i) {
    ++hosts[host(urls[i])];
    if (i % 50 == 0) {
      ASSERT_TRUE(std::regex_match(urls[i], form)) << urls[i];
    }
  }
  EXPECT_TRUE(hosts.size() > 3000 && hosts.size() <= 4096) << hosts.size();
  const std::uint64_t most =
      std::ranges::max_element(hosts, {}, [](const auto& h) { return h.second; })->second;
  EXPECT_NEAR(static_cast<double>(most) / kCount, 0.125, 0.01);
  const std::vector<std::string> missing = texts(RealKind::urls, 1000, true);
  for (std::size_t i = 0; i < missing.size(); ++i) {
    ASSERT_TRUE(std::regex_match(missing[i], form)) << missing[i];
    ASSERT_EQ(host(missing[i]), host(urls[i]));
  }
}

TEST(RealKeys, UuidsAreOfVersionFour) {
  const std::regex form("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}");
  std::array<std::set<char>, 36> seen;
  for (const bool missing : {false, true}) {
    for (const std::string& uuid : texts(RealKind::uuid, 1000, missing)) {
      ASSERT_TRUE(std::regex_match(uuid, form)) << uuid;
      for (std::size_t i = 0; i < uuid.size(); ++i) seen[i].insert(uuid[i]);
    }
  }
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    EXPECT_EQ(seen[i].size(), dash || i == 14 ? 1U : i == 19 ? 4U : 16U) << i;
  }
}

TEST(RealKeys, WordsHaveFrequentLettersAndUnequalLengths) {
  constexpr std::uint64_t kCount = 200'000;
  std::map<char, std::uint64_t> letters;
  std::map<std::size_t, std::uint64_t> lengths;
  double bytes = 0;
  for (const bool missing : {false, true}) {
    for (const std::string& word : texts(RealKind::words, kCount, missing)) {
      for (const char c : word) ++letters[c];
      ++lengths[word.size()];
      bytes += static_cast<double>(word.size());
    }
  }
  EXPECT_TRUE(letters.begin()->first == 'a' && letters.rbegin()->first <= 'z');
  EXPECT_GT(letters['e'], 5 * letters['v']);
  EXPECT_EQ(lengths.begin()->first, 3U);
  EXPECT_LE(lengths.rbegin()->first, 18U);
  EXPECT_LT(lengths[17] + lengths[18], kCount / 1000);
  EXPECT_NEAR(bytes / (2 * kCount), 9.5, 0.5);
}

// The words of two and of three syllables run out; the same place in both then has two words.
TEST(RealKeys, LongerWordsReplaceThoseThatRunOut) {
  const KeySpace keys(RealKeys(RealKind::words, 1));
  std::set<std::string> seen;
  for (std::uint64_t place = 1 << 24; place < (1 << 24) + 1000; ++place) {
    const std::uint64_t two = place / 4 * 64 + place % 4;
    const std::uint64_t three = place / 28 * 64 + 4 + place % 28;
    ASSERT_TRUE(two < kMostIndexes && three < kMostIndexes);
    EXPECT_TRUE(seen.insert(text_of(keys, keys.word(two))).second);
    EXPECT_TRUE(seen.insert(text_of(keys, keys.word(three))).second);
  }
}

TEST(RealKeys, MeanLengthIsThatOfAllKeys) {
  for (const RealKind kind : {RealKind::paths, RealKind::urls, RealKind::words}) {
    constexpr std::uint64_t kCount = 1 << 18;  // a multiple of everything that repeats
    double bytes = 0;
    for (const std::string& text : texts(kind, kCount)) bytes += static_cast<double>(text.size());
    const KeySpace keys(RealKeys(kind, 1));
    EXPECT_NEAR(keys.mean_length(kCount), bytes / kCount, 0.4) << keys.max_length();
  }
}

RealKeys keys_of_file(const std::string& text) {
  return {RealKind::file, 1, *KeyFile::parse(text)};
}

TEST(RealKeysOfAFile, AreItsDistinctLinesInOrder) {
  const RealKeys real = keys_of_file("b\n\na\nb\nc c\r\n\na\nlast");
  ASSERT_EQ(real.most_keys(), 4U);
  const KeySpace keys(real);
  std::vector<std::string> lines;
  for (std::uint64_t i = 0; i < 4; ++i) lines.push_back(text_of(keys, keys.word(i)));
  EXPECT_EQ(lines, (std::vector<std::string>{"b", "a", "c c\r", "last"}));
  EXPECT_EQ(keys.mean_length(4), 2.5);
}

// All lines of one letter: only longer text is absent.
TEST(RealKeysOfAFile, MissingOnesAreNoLinesOfIt) {
  std::string letters;
  for (char c = 'a'; c <= 'z'; ++c) letters += std::string(1, c) + "\n";
  std::string numbers;
  for (int i = 0; i < 2000; ++i) numbers += "item-" + std::to_string(i) + ".txt\n";
  const std::string longest(kMaxKeyBytes, 'x');
  for (const std::string& text : {letters, numbers, longest}) {
    const auto file = *KeyFile::parse(text);
    const KeySpace keys(RealKeys(RealKind::file, 1, file));
    for (std::uint64_t i = 0; i < file->lines(); ++i) {
      const std::string missing = text_of(keys, keys.missing_word(i));
      ASSERT_FALSE(file->contains(missing)) << missing;
      // So are the keys of the process that is killed.
      ASSERT_FALSE(file->contains(text_of(keys, keys.word(file->lines() + i))));
      if (text == numbers) {
        ASSERT_TRUE(missing.starts_with("item-") || missing.size() <= 12) << missing;
      }
    }
    ASSERT_TRUE(file->contains(file->line(0)));
  }
}

TEST(RealKeysOfAFile, LongLinesAreRefused) {
  ASSERT_TRUE(KeyFile::parse("a\n" + std::string(kMaxKeyBytes, 'x')).has_value());
  const auto refused = KeyFile::parse("a\nb\n" + std::string(kMaxKeyBytes + 1, 'x'));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "line 3 has 65536 bytes; keys have up to 65535");
}

TEST(RealKeys, UnknownOnesAndUnreadableFilesAreRefused) {
  for (const auto* const name : {"", "id", "file", "file:"}) {
    const auto refused = make_real_keys(name, 1);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().exit_status, kExitUsage);
  }
  for (const auto* const name : {"file:/no/such/file", "file:/"}) {
    const auto refused = make_real_keys(name, 1);
    ASSERT_FALSE(refused.has_value()) << name;
    EXPECT_EQ(refused.error().exit_status, kExitIo);
  }
  for (const auto* const name : {"ids", "times", "paths", "urls", "uuid", "words"}) {
    EXPECT_EQ(make_real_keys(name, 1)->name(), name);
  }
}

TEST(RealKeys, NewKeysAreCounted) {
  using enum Workload;
  const auto count = [](const std::vector<Workload>& list) {
    return new_keys({.records = 1000, .operations = 105}, list);
  };
  EXPECT_EQ(count({load, read, read_missing, update, erase, scan}), 1000U);
  EXPECT_EQ(count({load, insert, insert_many, tag}), 1315U);
  EXPECT_EQ(count({load, churn}), 1053U);
  EXPECT_EQ(count({load, scan_mixed}), 1010U);
}

// What each session inserts, in the order of all. The first session is slow.
struct Log {
  std::mutex mutex;
  std::vector<std::uint64_t> words;
  std::size_t sessions = 0;
};

class LogSession : public Session {
 public:
  explicit LogSession(Log& log) : log_(log) {
    const std::scoped_lock lock(log.mutex);
    slow_ = log.sessions++ == 0;
  }
  Outcome insert(const KeyRef& key, const ValueRef& value) override {
    return write_many(OpKind::insert, {&key, 1}, {&value, 1});
  }
  Outcome write_many(OpKind, std::span<const KeyRef> keys, std::span<const ValueRef>) override {
    {
      const std::scoped_lock lock(log_.mutex);
      for (const KeyRef& key : keys) log_.words.push_back(key.word);
    }
    if (slow_) std::this_thread::sleep_for(std::chrono::microseconds(50));
    return Outcome::yes;
  }
  Outcome update(const KeyRef&, const ValueRef&) override { return Outcome::yes; }
  Outcome erase(const KeyRef&) override { return Outcome::yes; }
  Outcome read(const KeyRef&, FunctionRef<void(const ValueRef&)>) override { return Outcome::no; }
  Outcome scan(const KeyRef&, std::uint64_t, ScanTally&) override { return Outcome::yes; }
  Outcome tag() override { return Outcome::yes; }

 private:
  Log& log_;
  bool slow_;
};

class LogSubject : public Subject {
 public:
  std::string name() const override { return "log"; }
  std::string medium() const override { return ""; }
  std::string durability() const override { return ""; }
  std::string version() const override { return ""; }
  Result<void> create() override { return {}; }
  Result<void> reopen() override { return {}; }
  Result<void> close() override { return {}; }
  void remove() override {}
  std::unique_ptr<Session> session() override { return std::make_unique<LogSession>(log); }
  Footprint footprint() override { return {}; }

  Log log;
};

// A thread that is slow holds back no keys but the one that it inserts.
TEST(RealKeys, ThreadsInsertOrderedKeysInTurn) {
  const ValueCodec values{DataKind{}};
  for (const RealKind kind : {RealKind::ids, RealKind::times, RealKind::uuid}) {
    for (const Workload workload : {Workload::load, Workload::insert_many, Workload::tag}) {
      const KeySpace keys(RealKeys(kind, 1));
      WorkMaker maker({.records = 2001, .operations = 2001, .threads = 3, .together = 5}, keys);
      LogSubject subject;
      Progress progress{false};
      Ledger ledger;
      const Phase phase = maker.make(workload, ledger);
      ASSERT_TRUE(Driver(subject, keys, values, progress).run(phase, ledger).has_value());
      WorkMaker::commit(phase, ledger);
      EXPECT_EQ(ledger.used(), 2001U);
      const std::vector<std::uint64_t>& inserted = subject.log.words;
      std::vector<std::uint64_t> sorted = inserted;
      std::ranges::sort(sorted);
      EXPECT_EQ(sorted, words(kind, 2001));
      std::uint64_t far = 0;
      for (std::size_t i = 0; i < inserted.size(); ++i) {
        const auto rank = std::ranges::lower_bound(sorted, inserted[i]) - sorted.begin();
        far += std::abs(rank - static_cast<std::ptrdiff_t>(i)) > 200 ? 1 : 0;
      }
      // The system may stop a thread between its turn and its insertion.
      if (keys.in_order()) {
        EXPECT_LT(far, 40U);
      } else {
        EXPECT_GT(far, 400U);
      }
    }
  }
}

TEST(RealKeys, MixedScansInsertOrderedKeysInTurn) {
  const KeySpace keys(RealKeys(RealKind::ids, 1));
  WorkMaker maker({.records = 100, .operations = 203, .threads = 3}, keys);
  Ledger ledger;
  WorkMaker::commit(maker.make(Workload::load, ledger), ledger);
  const Phase phase = maker.make(Workload::scan_mixed, ledger);
  std::vector<std::vector<std::uint32_t>> inserted;
  for (const WorkBlock& block : phase.blocks) {
    std::vector<std::uint32_t>& mine = inserted.emplace_back();
    for (std::size_t i = 0; i < block.size(); ++i) {
      if (block.kinds[i] != OpKind::insert) continue;
      mine.push_back(block.indexes[i]);
      EXPECT_EQ(block.words[i], keys.word(block.indexes[i]));
    }
  }
  EXPECT_EQ(inserted[0], (std::vector<std::uint32_t>{100, 103, 106, 109, 112, 115}));
  std::vector<std::uint32_t> all;
  for (const auto& mine : inserted) all.insert(all.end(), mine.begin(), mine.end());
  std::ranges::sort(all);
  ASSERT_EQ(all.size(), 20U);
  EXPECT_TRUE(all.front() == 100 && all.back() == 119);
  EXPECT_EQ(std::ranges::adjacent_find(all), all.end());
}

// Keys of unequal lengths lie in one piece of memory, which grows if later ones are longer.
TEST(RealKeys, BlocksHaveTheirKeys) {
  std::string lines;
  for (int i = 0; i < 200; ++i) {
    lines += std::to_string(i) + (i < 100 ? "" : std::string(500, 'z')) + "\n";
  }
  for (const RealKeys& real : {RealKeys(RealKind::paths, 3), keys_of_file(lines)}) {
    const KeySpace keys(real);
    WorkMaker maker({.records = 200, .operations = 200, .threads = 2}, keys);
    Ledger ledger;
    for (const Workload workload : {Workload::load, Workload::read_missing}) {
      const Phase phase = maker.make(workload, ledger);
      for (const WorkBlock& block : phase.blocks) {
        ASSERT_EQ(block.size(), 100U);
        for (std::size_t i = 0; i < block.size(); ++i) {
          ASSERT_EQ(block.key(i).bytes, text_of(keys, block.words[i]));
        }
      }
      WorkMaker::commit(phase, ledger);
    }
  }
}

}  // namespace
}  // namespace perdure::bench
