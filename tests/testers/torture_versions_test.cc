// test: explores
// Each check of versions in the torture can fail: a map on top of a real one returns one kind of
// wrong result at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "testing/engines/engine_list.h"
#include "testing/torture/torture_model.h"
#include "tests/support/explorations.h"

namespace perdure::testing {
namespace {

// Returns the engine's own results, except those that a test replaces.
class Wrong : public TortureTarget {
 public:
  explicit Wrong(std::unique_ptr<TortureTarget> right) : right_(std::move(right)) {}

  Expected<bool> upsert(const std::string& key, const std::string& value) override {
    return right_->upsert(key, value);
  }
  Expected<bool> insert(const std::string& key, const std::string& value) override {
    return right_->insert(key, value);
  }
  Expected<bool> update(const std::string& key, const std::string& value) override {
    return right_->update(key, value);
  }
  Expected<bool> erase(const std::string& key) override { return right_->erase(key); }
  Expected<bool> update_if(const std::string& key, const std::string& expected,
                           const std::string& value) override {
    return right_->update_if(key, expected, value);
  }
  Expected<bool> erase_if(const std::string& key, const std::string& expected) override {
    return right_->erase_if(key, expected);
  }
  Expected<Text> modify(const std::string& key, const Next& next) override {
    return right_->modify(key, next);
  }
  void write_many(const std::vector<Write>& writes, const Done& done) override {
    right_->write_many(writes, done);
  }
  Expected<bool> commit(const std::vector<Write>& required,
                        const std::vector<Write>& writes) override {
    return right_->commit(required, writes);
  }
  Expected<bool> find(const std::string& key, std::string& value) override {
    return right_->find(key, value);
  }
  std::string check(std::uint64_t& entries) override { return right_->check(entries); }
  Status sync() override { return right_->sync(); }
  Status compact() override { return right_->compact(); }
  Status close() override { return right_->close(); }
  bool keeps_versions() const override { return true; }
  Expected<std::uint64_t> tag() override { return right_->tag(); }
  VersionRange versions() override { return right_->versions(); }
  Expected<bool> find_at(const std::string& key, std::uint64_t version,
                         std::string& value) override {
    return right_->find_at(key, version, value);
  }
  Expected<void> scan_at(std::uint64_t version, const VisitEntry& visit) override {
    return right_->scan_at(version, visit);
  }
  Expected<void> history(const std::string& key, const VisitVersion& visit) override {
    return right_->history(key, visit);
  }
  Expected<void> diff(std::uint64_t from, std::uint64_t to, const VisitDifference& visit) override {
    return right_->diff(from, to, visit);
  }
  Expected<std::uint64_t> trim(std::uint64_t version) override { return right_->trim(version); }
  Status rollback(std::uint64_t version) override { return right_->rollback(version); }

 protected:
  std::unique_ptr<TortureTarget> right_;
};

struct TagsReturnTwice : Wrong {
  using Wrong::Wrong;
  std::uint64_t tags = 0, last = 0;
  Expected<std::uint64_t> tag() override {
    if (++tags % 8 != 0) last = *right_->tag();
    return last;
  }
};
struct TagsOutOfOrder : Wrong {
  using Wrong::Wrong;
  std::uint64_t kept = 0;
  Expected<std::uint64_t> tag() override {
    if (kept != 0) return std::exchange(kept, 0);
    kept = *right_->tag();
    return right_->tag();
  }
};
struct TagsBeginAgain : Wrong {
  using Wrong::Wrong;
  const std::uint64_t before = right_->versions().last;
  Expected<std::uint64_t> tag() override { return *right_->tag() - before; }
};
struct TagsAreLost : Wrong {
  using Wrong::Wrong;
  const std::uint64_t last = right_->versions().last;
  VersionRange versions() override { return {right_->versions().first, last / 2}; }
};
struct TrimsAreLost : Wrong {
  using Wrong::Wrong;
  Expected<std::uint64_t> trim(std::uint64_t version) override { return version; }
};
struct TrimsGoTooFar : Wrong {
  using Wrong::Wrong;
  Expected<std::uint64_t> trim(std::uint64_t version) override { return right_->trim(version + 1); }
};
struct TrimsFallShort : Wrong {
  using Wrong::Wrong;
  Expected<std::uint64_t> trim(std::uint64_t version) override { return right_->trim(version - 1); }
};
struct TrimmedOnesAreRead : Wrong {
  using Wrong::Wrong;
  Expected<bool> find_at(const std::string& key, std::uint64_t version,
                         std::string& value) override {
    if (version < right_->versions().first) return false;
    return right_->find_at(key, version, value);
  }
};
struct ReadsAreRefused : Wrong {
  using Wrong::Wrong;
  std::uint64_t reads = 0;
  Expected<bool> find_at(const std::string& key, std::uint64_t version,
                         std::string& value) override {
    if (++reads % 16 == 0) return fail(StatusCode::invalid_argument);
    return right_->find_at(key, version, value);
  }
};
struct ReadsAreOfThePresent : Wrong {
  using Wrong::Wrong;
  Expected<bool> find_at(const std::string& key, std::uint64_t version,
                         std::string& value) override {
    if (version < right_->versions().first) return fail(StatusCode::invalid_argument);
    return right_->find(key, value);
  }
};
struct ScansLeaveOut : Wrong {
  using Wrong::Wrong;
  Expected<void> scan_at(std::uint64_t version, const VisitEntry& visit) override {
    bool first = true;
    return right_->scan_at(version, [&](std::string_view key, std::string_view value) {
      if (!std::exchange(first, false)) visit(key, value);
    });
  }
};
struct ScansAdd : Wrong {
  using Wrong::Wrong;
  Expected<void> scan_at(std::uint64_t version, const VisitEntry& visit) override {
    visit("foreign", "value");
    return right_->scan_at(version, visit);
  }
};
struct HistoriesLeaveOut : Wrong {  // without the removals
  using Wrong::Wrong;
  Expected<void> history(const std::string& key, const VisitVersion& visit) override {
    return right_->history(key, [&](std::uint64_t version, const Text& value) {
      if (value) visit(version, value);
    });
  }
};
struct HistoriesAreShort : Wrong {  // without the entries that are in no version yet
  using Wrong::Wrong;
  Expected<void> history(const std::string& key, const VisitVersion& visit) override {
    const std::uint64_t last = right_->versions().last;
    return right_->history(key, [&](std::uint64_t version, const Text& value) {
      if (version <= last) visit(version, value);
    });
  }
};
struct DifferencesLeaveOut : Wrong {  // without new keys
  using Wrong::Wrong;
  Expected<void> diff(std::uint64_t from, std::uint64_t to, const VisitDifference& visit) override {
    return right_->diff(from, to, [&](std::string_view key, const Text& before, const Text& after) {
      if (before) visit(key, before, after);
    });
  }
};
struct DifferencesAreReversed : Wrong {
  using Wrong::Wrong;
  Expected<void> diff(std::uint64_t from, std::uint64_t to, const VisitDifference& visit) override {
    return right_->diff(to, from, visit);
  }
};
struct RollbacksAreLost : Wrong {
  using Wrong::Wrong;
  Status rollback(std::uint64_t) override { return {}; }
};
struct RollbacksFail : Wrong {
  using Wrong::Wrong;
  Status rollback(std::uint64_t) override { return StatusCode::pool_full; }
};

template <class W>
TortureReport torture(std::uint32_t threads, std::uint64_t cycles) {
  const TortureOptions options{.engine = "pskiplist",
                               .mode = "plain",
                               .keys = "integer",
                               .path = torture_folder(),
                               .cycles = cycles,
                               .seed = 5,
                               .threads = threads,
                               .max_work_us = sanitized() ? 20'000U : 3'000U,
                               .create_every = 40};
  const TortureOpen open = plain_target();
  return run_torture(
      options,
      [&](const TortureOptions& o,
          const std::string& file) -> Expected<std::unique_ptr<TortureTarget>> {
        auto right = open(o, file);
        if (!right) return right;
        return std::unique_ptr<TortureTarget>(std::make_unique<W>(std::move(*right)));
      });
}
// What the torture finds first depends on the moment of the kill: `said` has every possibility. The
// torture ends with the first finding. A finding needs 15 kills in the mean where it depends on the
// key whose history is verified: 400 kills miss it once in 10^11 runs.
template <class W>
void expect_red(std::initializer_list<std::string_view> said) {
  const TortureReport report = torture<W>(1, 400);
  std::printf("red after %llu kills: %s\n", static_cast<unsigned long long>(report.kills),
              report.failure.c_str());
  EXPECT_FALSE(report.ok());
  EXPECT_TRUE(std::ranges::any_of(said, [&](std::string_view text) {
    return report.failure.find(text) != std::string::npos;
  })) << report.failure;
}

TEST(TortureVersions, TheWrapperItselfIsRight) {
  const TortureReport report = torture<Wrong>(2, 60);
  EXPECT_TRUE(report.ok()) << report.failure;
  EXPECT_GT(report.versions_verified, 0U);
  EXPECT_GT(report.reads_at_versions, 0U);
}
TEST(TortureVersions, TagsThatReturnTwice) { expect_red<TagsReturnTwice>({"the same version"}); }
TEST(TortureVersions, TagsOutOfOrder) { expect_red<TagsOutOfOrder>({"another order"}); }
TEST(TortureVersions, TagsThatBeginAgain) {
  expect_red<TagsBeginAgain>({"had been returned or seen"});
}
TEST(TortureVersions, TagsThatAreLost) {
  expect_red<TagsAreLost>({"was acknowledged and is lost"});
}
TEST(TortureVersions, TrimsThatAreLost) {
  expect_red<TrimsAreLost>({"were trimmed, and no others"});
}
TEST(TortureVersions, TrimsThatGoTooFar) { expect_red<TrimsGoTooFar>({"were trimmed, and no"}); }
TEST(TortureVersions, TrimsThatFallShort) { expect_red<TrimsFallShort>({"trim"}); }
TEST(TortureVersions, TrimmedVersionsThatAreRead) {
  expect_red<TrimmedOnesAreRead>({"was trimmed and is back"});
}
TEST(TortureVersions, ReadsThatAreRefused) {
  expect_red<ReadsAreRefused>({": invalid_argument", ": refused"});
}
TEST(TortureVersions, ReadsOfThePresent) { expect_red<ReadsAreOfThePresent>({"not "}); }
TEST(TortureVersions, ScansThatLeaveOut) {
  expect_red<ScansLeaveOut>({" is lost, not what it was"});
}
TEST(TortureVersions, ScansThatAdd) { expect_red<ScansAdd>({" entries, not "}); }
TEST(TortureVersions, HistoriesWithoutRemovals) {
  expect_red<HistoriesLeaveOut>({"the history of "});
}
TEST(TortureVersions, HistoriesThatEndEarly) { expect_red<HistoriesAreShort>({"the history of "}); }
TEST(TortureVersions, DifferencesWithoutNewKeys) {
  expect_red<DifferencesLeaveOut>({"the difference of versions "});
}
TEST(TortureVersions, DifferencesTheOtherWayRound) {
  expect_red<DifferencesAreReversed>({"the difference of versions "});
}
TEST(TortureVersions, RollbacksThatAreLost) { expect_red<RollbacksAreLost>({""}); }
TEST(TortureVersions, RollbacksThatFail) { expect_red<RollbacksFail>({"rollback to "}); }

// --- the model ---

const TortureOptions kIntegers{.keys = "integer"};

LogEntry entry_of(OpKind kind, std::uint32_t key, std::uint64_t value = 0) {
  return {.key = key, .kind = kind, .value = value};
}
KeyValue read(std::uint64_t value) { return digest_of(kIntegers, value); }

// Key 8 is 1, then 2, then absent. Key 16 is 5 from the third operation on.
ThreadModel worked() {
  ThreadModel model;
  model.keep_history();
  EXPECT_TRUE(model.apply(entry_of(OpKind::insert, 8, 1)));
  EXPECT_FALSE(model.apply(entry_of(OpKind::insert, 8, 7)));
  EXPECT_TRUE(model.apply(entry_of(OpKind::upsert, 16, 5)));
  EXPECT_FALSE(model.apply(entry_of(OpKind::upsert, 8, 2)));
  EXPECT_TRUE(model.apply(entry_of(OpKind::erase, 8)));
  return model;
}

TEST(TortureModel, AReadNarrowsACut) {
  const ThreadModel model = worked();
  Cut cut{0, 5};
  EXPECT_TRUE(model.narrow(kIntegers, 8, read(1), cut));
  EXPECT_EQ(cut.from, 1U);
  EXPECT_EQ(cut.to, 3U);
  EXPECT_TRUE(model.narrow(kIntegers, 16, read(5), cut));
  EXPECT_EQ(cut.from, 3U);
  EXPECT_EQ(cut.to, 3U);
  EXPECT_FALSE(model.narrow(kIntegers, 8, read(2), cut));
  EXPECT_FALSE(model.narrow(kIntegers, 8, std::nullopt, cut));
  EXPECT_FALSE(model.narrow(kIntegers, 24, read(1), cut)) << "a key that never was";
}

TEST(TortureModel, KeysOfAVersionAreOfOneMoment) {
  const ThreadModel model = worked();
  const auto judge = [&](KeyValue first, KeyValue second) {
    Cut cut{0, 5};
    return model.narrow_to_all(
        kIntegers, [&](std::uint32_t key) { return key == 8 ? first : second; }, cut);
  };
  EXPECT_EQ(judge(read(1), std::nullopt), "");
  EXPECT_EQ(judge(read(1), read(5)), "");
  EXPECT_EQ(judge(std::nullopt, read(5)), "");
  EXPECT_NE(judge(read(2), std::nullopt), "") << "of different moments";
  EXPECT_NE(judge(read(7), read(5)), "") << "a value that the key never had";
}

// Each of two keys was absent at two moments, never both at once.
TEST(TortureModel, KeysThatWereNeverAbsentTogether) {
  ThreadModel model;
  model.keep_history();
  for (const auto& [kind, key] : {std::pair{OpKind::insert, 16U},
                                  {OpKind::insert, 8U},
                                  {OpKind::erase, 16U},
                                  {OpKind::insert, 16U},
                                  {OpKind::erase, 8U},
                                  {OpKind::insert, 8U},
                                  {OpKind::erase, 16U}}) {
    EXPECT_TRUE(model.apply(entry_of(kind, key, 5)));
  }
  Cut cut{1, 7};
  const auto nothing = [](std::uint32_t) { return KeyValue(); };
  EXPECT_EQ(model.narrow_to_all(kIntegers, nothing, cut),
            "keys are of different moments of one thread");
}

TEST(TortureModel, WhatWasInFlightHasHappenedOrNot) {
  for (const Outcome outcome : {Outcome::done, Outcome::undone}) {
    ThreadModel model = worked();
    model.begin(entry_of(OpKind::upsert, 8, 3));
    EXPECT_FALSE(model.value_of(8).has_value());
    model.pending()[0].outcome = outcome;
    model.end_pending();
    const KeyValue expected = outcome == Outcome::done ? KeyValue(3) : std::nullopt;
    EXPECT_EQ(model.value_of(8), expected);
    EXPECT_EQ(model.value_at(8, 6), expected);
    EXPECT_FALSE(model.value_at(8, 5).has_value());
  }
}

// Of the mutations of one write_many(), any may have happened.
TEST(TortureModel, EachOfSeveralInFlightHasHappenedOrNot) {
  ThreadModel model = worked();
  const std::uint64_t before = model.operations();
  const KeyValue other = model.value_of(16);
  model.begin(entry_of(OpKind::upsert, 16, 30));
  model.begin(entry_of(OpKind::upsert, 24, 40));
  ASSERT_EQ(model.pending().size(), 2U);
  EXPECT_EQ(model.operations(), before + 2);
  model.pending()[0].outcome = Outcome::undone;
  model.pending()[1].outcome = Outcome::done;
  model.end_pending();
  EXPECT_TRUE(model.pending().empty());
  EXPECT_EQ(model.value_of(16), other);
  EXPECT_EQ(model.value_of(24), KeyValue(40));
  EXPECT_EQ(model.value_at(16, before + 2), other);
  EXPECT_EQ(model.value_at(24, before + 2), KeyValue(40));
  EXPECT_FALSE(model.value_at(24, before + 1).has_value());
}

// A conditional operation changes only a key that has what it expects.
TEST(TortureModel, ConditionalOperations) {
  ThreadModel model;
  const auto on = [](OpKind kind, std::uint64_t expected, std::uint64_t value) {
    LogEntry entry = entry_of(kind, 8, value);
    entry.expected = expected;
    return entry;
  };
  EXPECT_FALSE(model.apply(on(OpKind::update_if, 1, 2))) << "the key is absent";
  EXPECT_FALSE(model.value_of(8).has_value());
  EXPECT_TRUE(model.apply(entry_of(OpKind::insert, 8, 1)));
  EXPECT_FALSE(model.apply(on(OpKind::update_if, 2, 3)));
  EXPECT_EQ(model.value_of(8), KeyValue(1));
  EXPECT_TRUE(model.apply(on(OpKind::update_if, 1, 2)));
  EXPECT_EQ(model.value_of(8), KeyValue(2));
  EXPECT_FALSE(model.apply(on(OpKind::erase_if, 1, 0)));
  EXPECT_TRUE(model.apply(on(OpKind::erase_if, 2, 0)));
  EXPECT_FALSE(model.value_of(8).has_value());
}

TEST(TortureModel, ARollbackIsAnOperationAndATrimForgets) {
  ThreadModel model = worked();
  EXPECT_TRUE(model.differs_from(3));
  model.roll_back(3);
  EXPECT_FALSE(model.differs_from(3));
  EXPECT_EQ(model.value_of(8), KeyValue(1));
  EXPECT_EQ(model.value_at(8, 4), KeyValue(2));
  model.forget_before(5);
  EXPECT_FALSE(model.value_at(8, 5).has_value());
  EXPECT_EQ(model.value_at(8, 6), KeyValue(1));
  EXPECT_EQ(model.history().at(8).size(), 1U);
  EXPECT_EQ(model.entries_at(6), 2U);
}

// The neighbours of a version that no tag has returned bound what it can hold.
TEST(TortureModel, NeighboursBoundAVersion) {
  TortureModel model(1);
  model.threads[0] = worked();
  model.kept = {{.number = 4, .cuts = {{{1, 2}}}}, {.number = 9, .cuts = {{{3, 4}}}}};
  EXPECT_EQ(model.between(2).cuts[0].from, 0U);
  EXPECT_EQ(model.between(2).cuts[0].to, 2U);
  EXPECT_EQ(model.between(6).cuts[0].from, 1U);
  EXPECT_EQ(model.between(6).cuts[0].to, 4U);
  EXPECT_EQ(model.between(12).cuts[0].from, 3U);
  EXPECT_EQ(model.between(12).cuts[0].to, 5U);
  model.trim(9);
  EXPECT_EQ(model.find(4), nullptr);
  EXPECT_NE(model.find(9), nullptr);
}

}  // namespace
}  // namespace perdure::testing
