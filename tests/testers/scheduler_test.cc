// test: explores
// The scheduler on small structures with one planted mistake each. The right structure passes. The
// strategies that can find a mistake find it, and its replay line finds it again.
#include <gtest/gtest.h>

#include <memory>

#include "tests/support/schedules.h"

namespace perdure::testing {
namespace {

enum class Mistake {
  none,
  no_latch,          // two writers change one cell at once
  no_help,           // a reader returns a value that is not durable
  exists_unfenced,   // an insert returns "exists" for a value that is not durable
  no_version_check,  // a reader pairs one value's first half with another's second
  lost_wakeup,       // a waiter is never released
  two_latches,       // taken in opposite orders
  commit_first,      // the commit word is stored before the value
};

// Cells of one key each: {present, value} in a line of its own, and a copy of the value in DRAM. A
// latch per cell is held across the fence; readers are optimistic and help.
class Cells : public Subject {
 public:
  static constexpr std::size_t kCells = 4;

  explicit Cells(Mistake mistake) : mistake_(mistake) {}

  Status create(SimMemory& memory) override { return memory.allocate(0, 4096); }
  Status open(SimMemory& memory, std::uint64_t) override {
    platform_ = std::make_unique<SimPlatform>(memory);
    words_ = reinterpret_cast<std::uint64_t*>(memory.base());
    for (std::uint64_t i = 0; i < kCells; ++i) cells_[i].copy.store(platform_->load(at(i, 1)));
    return {};
  }
  Expected<bool> apply(const Op& op) override {
    const std::uint64_t number = integer_of(op.key);
    Cell& cell = cells_[number];
    const bool both = mistake_ == Mistake::two_latches;
    Cell& other = cells_[number ^ 1];
    if (mistake_ != Mistake::no_latch) cell.latch.lock();
    if (both) other.latch.lock();
    const bool result = change(number, op);
    if (both) other.latch.unlock();
    const bool forgets = mistake_ == Mistake::lost_wakeup && op.kind == OpKind::erase && !result;
    if (mistake_ != Mistake::no_latch && !forgets) cell.latch.unlock();
    return result;
  }
  Expected<bool> lookup(const std::string& key, std::string& value) override {
    const std::uint64_t number = integer_of(key);
    for (unsigned spins = 0;; ++spins) {
      const std::uint64_t version = cells_[number].version.load();
      const bool present = platform_->load(at(number, 0)) != 0;
      const std::uint64_t first = platform_->load(at(number, 1));
      const std::uint64_t second = cells_[number].copy.load();
      const bool checks = mistake_ != Mistake::no_version_check;
      if (checks && ((version & 1) != 0 || cells_[number].version.load() != version)) {
        SimPlatform::pause(spins);
        continue;
      }
      if (mistake_ != Mistake::no_help) persist(number);
      value = word(first) == word(second) ? word(first) : "torn";
      return present;
    }
  }
  Status contents(Contents& out) override {
    for (std::uint64_t i = 0; i < kCells; ++i) {
      if (platform_->load(at(i, 0)) != 0) {
        out.emplace_back(integer_key(i), word(platform_->load(at(i, 1))));
      }
    }
    return {};
  }
  void check(std::vector<std::string>&) override {}
  Status close() override { return {}; }

 private:
  struct Cell {
    SimPlatform::Latch latch;
    SimPlatform::Atomic<std::uint64_t> version{0};
    SimPlatform::Atomic<std::uint64_t> copy{0};
  };
  std::uint64_t& at(std::uint64_t cell, std::uint64_t i) const { return words_[cell * 8 + i]; }
  void persist(std::uint64_t number) {
    platform_->flush(&at(number, 0), 16, "cells.cell"_site);
    platform_->fence("cells.cell"_site);
  }
  bool change(std::uint64_t number, const Op& op) {
    const bool present = platform_->load(at(number, 0)) != 0;
    if (op.kind == OpKind::insert && present) return false;
    if (op.kind == OpKind::update && !present) return false;
    if (op.kind == OpKind::erase && !present) return false;
    Cell& cell = cells_[number];
    cell.version.fetch_add(1);
    if (op.kind == OpKind::erase) {
      platform_->store(at(number, 0), 0);
    } else {
      std::uint64_t value = 0;
      std::memcpy(&value, op.value.data(), 8);
      if (mistake_ == Mistake::commit_first) platform_->store(at(number, 0), 1);
      platform_->store(at(number, 1), value);
      cell.copy.store(value);
      platform_->store(at(number, 0), 1);
    }
    cell.version.fetch_add(1);
    if (mistake_ == Mistake::exists_unfenced) {
      cells_[number].latch.unlock();
      persist(number);
      cells_[number].latch.lock();
    } else {
      persist(number);
    }
    return op.kind != OpKind::upsert || !present;
  }

  Mistake mistake_;
  std::unique_ptr<SimPlatform> platform_;
  std::uint64_t* words_ = nullptr;
  Cell cells_[kCells];
};

struct Case {
  Mistake mistake;
  Ops setup;
  std::vector<Ops> threads;
  std::uint32_t preemptions;  // this many find it, one fewer do not
};
std::vector<Case> cases() {
  std::vector<Case> all;
  all.push_back({Mistake::no_latch, {}, {{insert(1, 1)}, {insert(1, 2)}}, 1});
  all.push_back({Mistake::no_help, {insert(1, 1)}, {{erase(1)}, {find(1), find(1)}}, 1});
  all.push_back({Mistake::exists_unfenced, {}, {{insert(1, 1)}, {insert(1, 2)}}, 1});
  all.push_back({Mistake::no_version_check, {insert(1, 1)}, {{update(1, 2)}, {find(1)}}, 1});
  all.push_back({Mistake::lost_wakeup, {}, {{erase(1)}, {insert(1, 1)}}, 0});
  all.push_back({Mistake::two_latches, {}, {{insert(0, 1)}, {insert(1, 1)}}, 1});
  all.push_back({Mistake::commit_first, {}, {{insert(1, 1)}, {find(2)}}, 0});
  return all;
}

Interleaver cells(const Case& c, Mistake mistake) {
  return Interleaver([mistake] { return std::make_unique<Cells>(mistake); },
                     {.name = test_name(std::to_string(static_cast<int>(c.mistake))),
                      .setup = c.setup,
                      .threads = c.threads,
                      .capacity = 64 << 10,
                      .quiet = mistake != Mistake::none});
}

TEST(Scheduler, EachMistakeIsFoundWithItsPreemptions) {
  for (const Case& c : cases()) {
    const auto with = cells(c, c.mistake).exhaustive(c.preemptions);
    EXPECT_FALSE(with.ok()) << with.summary();
    if (c.preemptions == 0) continue;
    const auto fewer = cells(c, c.mistake).exhaustive(c.preemptions - 1);
    EXPECT_TRUE(fewer.ok()) << fewer.summary();
  }
}

TEST(Scheduler, TheSoundOneStaysGreen) {
  for (const Case& c : cases()) {
    const auto report = cells(c, Mistake::none).exhaustive(2);
    expect_clean(report);
    EXPECT_GT(report.histories, 1U);
    EXPECT_FALSE(report.capped);
  }
}

TEST(Scheduler, EachMistakeIsFoundByRandomPriorities) {
  for (const Case& c : cases()) {
    const auto report = cells(c, c.mistake).pct(2000, 3);
    EXPECT_FALSE(report.ok()) << report.summary();
    expect_clean(cells(c, Mistake::none).pct(300, 3));
  }
}

// The replay line of a failure finds the same failure, and runs nothing else.
TEST(Scheduler, AFailureReplays) {
  for (const Case& c : cases()) {
    const auto found = cells(c, c.mistake).exhaustive(2);
    ASSERT_FALSE(found.ok());
    const std::string& text = found.failures.front();
    const std::size_t from = text.find("PERDURE_REPLAY='") + 16;
    ::setenv("PERDURE_REPLAY", text.substr(from, text.find('\'', from) - from).c_str(), 1);
    const auto again = cells(c, c.mistake).pct(50, 3);
    ::unsetenv("PERDURE_REPLAY");
    EXPECT_EQ(again.schedules, 1U);
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.failures.front(), text);
  }
}

TEST(Scheduler, ADirectedScheduleGoesWhereItIsTold) {
  const Case c{Mistake::none, {insert(1, 1)}, {{update(1, 2)}, {find(1), update(1, 3)}}, 0};
  auto sound = cells(c, Mistake::none);
  const auto report = sound.directed({{0, fence_of("cells.cell")}, {1, done()}, {0, done()}});
  expect_clean(report);
  // The find helps; the update waits for the latch.
  const std::vector<LegEnd> ends{LegEnd::reached, LegEnd::blocked, LegEnd::reached};
  EXPECT_EQ(report.legs, ends);
  auto lost = cells(c, Mistake::no_help);
  EXPECT_FALSE(lost.directed({{0, fence_of("cells.cell")}, {1, mark_of("return")}}).ok());
  auto nowhere = cells(c, Mistake::no_latch);
  EXPECT_FALSE(nowhere.directed({{0, fence_of("cells.nowhere")}}).ok()) << "the leg has no end";
}

// A find beside an update and an erase of PhaST, in all schedules with one preemption.
InterleaveReport phast_writers_and_readers() {
  Interleaver interleaver(phast_subjects<phast::IntegerCodec>({}),
                          {.name = test_name(),
                           .setup = {insert(5, 1), insert(6, 1)},
                           .threads = {{update(5, 2), erase(6)}, {find(5), find(6), update(5, 3)}},
                           .quiet = true});
  return interleaver.exhaustive(1);
}

// The canary: mistakes of a real engine are found in less than ten seconds.
TEST(Scheduler, PlantedBugsOfPhastAreFound) {
  const InterleaveReport sound = phast_writers_and_readers();
  expect_clean(sound);
  for (const Mutant mutant : {Mutant::drop_flush, Mutant::drop_fence}) {
    const ScopedMutant scoped("phast.help.entry", mutant);
    EXPECT_FALSE(phast_writers_and_readers().ok()) << mutant_name(mutant);
  }
  // Latch stripes that are never set: writers do not exclude each other, and readers see no
  // operation in flight.
  SimPlatform::latches_stuck = true;
  const InterleaveReport unlatched = phast_writers_and_readers();
  SimPlatform::latches_stuck = false;
  EXPECT_FALSE(unlatched.ok());
  EXPECT_LT(sound.seconds + unlatched.seconds, sanitized() ? 60 : 10);
}

}  // namespace
}  // namespace perdure::testing
