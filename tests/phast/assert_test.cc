// test: explores
// PhaST's assertions: each stops what would break its invariant.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "testing/engines/phast_subject.h"
#include "testing/schedule/race_ops.h"
#include "testing/sim/sites.h"
#include "tests/support/violates.h"

namespace perdure::phast {

// Steps of an operation without those before them.
struct Peek {
  template <class M>
  static std::uint32_t leaf_of(M& map, const Probe& probe) {
    const EpochGuard<testing::SimPlatform> guard(map.context_.epochs);
    return map.enter(probe, map.inner_.locate_range(probe)).number;
  }
  template <class M>
  static auto& desc(M& map, std::uint32_t number) {
    return map.table_[number];
  }
  // Fills a slot; the stripes are what the caller has left there.
  template <class M>
  static void fill(M& map, std::uint32_t number, std::uint32_t slot, const Probe& probe) {
    std::uint64_t none = 0;
    (void)map.fill_slot(map.table_[number], slot, probe, {.word = 1, .word_size = 8}, none);
  }
  template <class M>
  static void split(M& map, std::uint32_t number, const Probe& probe) {
    typename M::SplitPlan plan;
    (void)map.plan_split(map.table_[number], probe, plan);
    auto block = map.allocate_structure(sizeof(typename M::Leaf));
    (void)map.split_latched(number, plan, block);
  }
  template <class M>
  static void split_in_a_batch(M& map, std::uint32_t number, const Probe& probe) {
    const GateHold<testing::SimPlatform> hold(map.context_.epochs);
    map.context_.epochs.gate().set_batch(true);
    (void)map.split(number, probe);
  }
  template <class M>
  static void set_pending(M& map, PendingBatch& batch) {
    const GateHold<testing::SimPlatform> hold(map.context_.epochs);
    map.context_.epochs.gate().set_pending(&batch);
  }
  template <class M>
  static void unlink(M& map, std::uint32_t left, std::uint32_t number) {
    for (std::uint32_t i = 0; i < M::kEntries; ++i) map.table_[number].set_fingerprint(i, 0);
    (void)map.unlink_latched(left, number);
  }
  template <class M>
  static void free(M& map, std::uint32_t number) {
    map.free_leaf(number);
  }
  template <class M>
  static void give(M& map, std::uint32_t number) {
    map.table_.give(number);
  }
  // The descriptor that the next split takes.
  template <class M>
  static auto& spare(M& map) {
    const std::uint64_t block =
        *map.context_.heap.allocate(sizeof(typename M::Leaf), phast::kStructureKind);
    const std::uint32_t number = map.table_.take(M::place_of(block));
    map.table_.give(number);
    map.context_.heap.free(block);
    return map.table_[number];
  }
};

}  // namespace perdure::phast

namespace perdure::testing {
namespace {

using phast::kHeld;
using phast::Peek;
using phast::Probe;

template <class Codec>
class Recorded {
 public:
  using Subject = PhastSubject<Codec>;
  using Map = typename Subject::Map;

  explicit Recorded(ValueKind values = ValueKind::word) : memory_(1 << 20), subject_({values}) {
    memory_.set_mode(SimMode::recording);
    EXPECT_TRUE(subject_.create(memory_).ok());
    EXPECT_TRUE(subject_.open(memory_, 1).ok());
  }
  void call(const Op& op) { EXPECT_TRUE(subject_.call(op)); }
  void put(std::uint64_t key, char value = 'a') {
    call({OpKind::upsert, name(key), std::string(8, value)});
  }
  void erase(std::uint64_t key) { call({OpKind::erase, name(key), {}}); }
  void scan() {
    const auto done = subject_.index().scan({}, [](auto) { return true; });
    EXPECT_TRUE(done);
  }
  Map& map() { return static_cast<Map&>(subject_.index()); }

 private:
  static std::string name(std::uint64_t key) {
    return Codec::kBytes ? "customer:" + std::to_string(key) : integer_key(key);
  }
  SimMemory memory_;
  Subject subject_;
};
using Words = Recorded<phast::IntegerCodec>;
using Strings = Recorded<phast::BytesCodec>;

Probe probe(std::uint64_t key) { return phast::IntegerCodec::probe({.word = key}); }
std::uint32_t held(const Probe& p, std::uint32_t byte) {
  return byte << 8 * (p.fingerprint % SimPlatform::ByteLatches::kCount);
}

// Three leaves of up to four entries: 10 to 40, 50 to 80, 90.
class PhastAssertions : public ::testing::Test {
 protected:
  PhastAssertions() {
    for (std::uint64_t key = 10; key <= 90; key += 10) words_.put(key);
    left_ = Peek::leaf_of(map(), probe(10));
    number_ = Peek::leaf_of(map(), probe(50));
    last_ = Peek::leaf_of(map(), probe(90));
    EXPECT_EQ(Peek::desc(map(), left_).next.load(), number_);
    EXPECT_EQ(Peek::desc(map(), number_).next.load(), last_);
  }
  Words::Map& map() { return words_.map(); }
  auto& left() { return Peek::desc(map(), left_); }
  auto& desc() { return Peek::desc(map(), number_); }
  auto& last() { return Peek::desc(map(), last_); }
  void split() { Peek::split(map(), number_, probe(65)); }
  void unlink() { Peek::unlink(map(), left_, number_); }
  // Into the last leaf, which has a free slot 3 if no other.
  void fill(std::uint64_t key, std::uint32_t slot, std::uint32_t byte) {
    last().search.stripes.store(held(probe(key), byte));
    Peek::fill(map(), last_, slot, probe(key));
  }
  std::uint32_t free_slot() { return last().free_slot(0, probe(95).fingerprint); }

  Words words_;
  std::uint32_t left_ = 0, number_ = 0, last_ = 0;
};

void mutated(const char* site, Mutant mutant, auto&& operation) {
  const ScopedMutant scoped(site, mutant);
  operation();
}

TEST_F(PhastAssertions, BoundsRiseFromLeafToLeaf) {
  desc().latch_all();
  EXPECT_VIOLATES("phast.I1", {
    desc().low.store(1000);
    split();
  });
}

TEST_F(PhastAssertions, AnEntryLiesInTheRangeOfItsLeaf) {
  EXPECT_VIOLATES("phast.I2", fill(5, free_slot(), kHeld | (free_slot() + 1)));
}

TEST_F(PhastAssertions, AMutationOfABatchSplitsNoLeaf) {
  EXPECT_VIOLATES("batch.I4", Peek::split_in_a_batch(map(), number_, probe(65)));
}

// A batch that has more puts for a leaf than it has slots.
class TooMany final : public PendingBatch {
 public:
  bool names(std::uint64_t) const noexcept override { return true; }
  bool is_due(std::uint64_t, const perdure::detail::Key&) const noexcept override { return false; }
  Status finish(std::uint64_t, const perdure::detail::Key&) noexcept override { return {}; }
  std::size_t first_put(std::uint64_t, const perdure::detail::Key&) const noexcept override {
    return kPuts;
  }
  const perdure::detail::Mutation* put(std::uint64_t, std::size_t number) const noexcept override {
    mutation_.key.word = 91 + number;
    return number < kPuts ? &mutation_ : nullptr;
  }
  bool needs_room(std::uint64_t, std::size_t) const noexcept override { return true; }

 private:
  static constexpr std::size_t kPuts = 8;
  mutable perdure::detail::Mutation mutation_;
};

TEST_F(PhastAssertions, ALeafHasRoomForAPendingBatch) {
  TooMany batch;
  EXPECT_VIOLATES("batch.K2", {
    Peek::set_pending(map(), batch);
    words_.put(99);
  });
}

TEST_F(PhastAssertions, WhatALinkReachesIsDurable) {
  EXPECT_VIOLATES("phast.I3",
                  mutated("phast.split.leaf", Mutant::drop_fence, [&] { words_.put(65); }));
  EXPECT_VIOLATES("phast.I3",
                  mutated("phast.split.leaf", Mutant::first_line_only, [&] { words_.put(65); }));
  Strings strings;
  for (std::uint64_t key = 10; key <= 30; key += 10) strings.put(key);
  EXPECT_VIOLATES("phast.I3",
                  mutated("phast.record.write", Mutant::drop_flush, [&] { strings.put(40); }));
  strings.put(40);
  EXPECT_VIOLATES("phast.I3",
                  mutated("phast.split.separator", Mutant::drop_flush, [&] { strings.put(50); }));
}

TEST_F(PhastAssertions, MovedEntriesAreZeroBeforeTheNewLeafMayChange) {
  for (const Mutant mutant : {Mutant::drop_fence, Mutant::drop_flush}) {
    Strings strings;
    for (std::uint64_t key = 10; key <= 40; key += 10) strings.put(key);
    EXPECT_VIOLATES("phast.I6", mutated("phast.split.zero", mutant, [&] { strings.put(25); }));
  }
}

TEST_F(PhastAssertions, WhatAnOperationDidIsDurableBeforeItLetsGo) {
  EXPECT_VIOLATES("phast.I4",
                  mutated("phast.update.value", Mutant::drop_fence, [&] { words_.put(10, 'b'); }));
  EXPECT_VIOLATES("phast.I4",
                  mutated("phast.erase.entry", Mutant::drop_flush, [&] { words_.erase(10); }));
  EXPECT_VIOLATES("phast.I4",
                  mutated("phast.zero.write", Mutant::drop_flush, [&] { words_.put(0); }));
  words_.put(0);
  EXPECT_VIOLATES("phast.I4",
                  mutated("phast.zero.erase", Mutant::drop_fence, [&] { words_.erase(0); }));
}

TEST_F(PhastAssertions, AWriterHoldsTheStripeOfItsKey) {
  EXPECT_VIOLATES("phast.I5", {
    SimPlatform::latches_stuck = true;
    words_.put(95);
  });
  EXPECT_VIOLATES("phast.I5", {
    SimPlatform::latches_stuck = true;
    words_.put(10);
  });
  EXPECT_VIOLATES("phast.I5", {
    SimPlatform::latches_stuck = true;
    words_.erase(10);
  });
  EXPECT_VIOLATES("phast.I5", {
    last().version.fetch_add(1);
    fill(95, free_slot(), kHeld | (free_slot() + 1));
  });
}

TEST_F(PhastAssertions, WhatChangesALeafHoldsAllItsStripes) {
  EXPECT_VIOLATES("phast.I5", split());
  EXPECT_VIOLATES("phast.I5", unlink());
  left().latch_all();
  EXPECT_VIOLATES("phast.I5", unlink());
}

TEST_F(PhastAssertions, AShownEntryIsDurable) {
  EXPECT_VIOLATES("phast.D1",
                  mutated("phast.insert.entry", Mutant::drop_fence, [&] { words_.put(95); }));
}

TEST_F(PhastAssertions, AFilledSlotIsClaimedAndFree) {
  EXPECT_VIOLATES("phast.D2", fill(95, free_slot(), kHeld));
  const auto shown = static_cast<std::uint32_t>(__builtin_ctzll(last().visible()));
  EXPECT_VIOLATES("phast.D2", fill(95, shown, kHeld | (shown + 1)));
}

TEST_F(PhastAssertions, OnlyHeldStripesAreReleased) {
  EXPECT_VIOLATES("phast.D2", desc().unlatch_all());
}

TEST_F(PhastAssertions, OneVersionHasOneSetOfSlots) {
  words_.erase(60);  // 50, 70 and 80 are left
  words_.scan();
  const auto shown = static_cast<std::uint32_t>(__builtin_ctzll(desc().visible()));
  const auto hidden = static_cast<std::uint32_t>(__builtin_ctzll(~desc().visible()));
  EXPECT_VIOLATES("phast.D3", {
    desc().set_fingerprint(hidden, 1);
    desc().set_fingerprint(shown, 0);
    words_.scan();
  });
}

TEST_F(PhastAssertions, AVersionCountsTheRemovedEntries) {
  words_.scan();  // 50, 60, 70 and 80 fill the leaf
  EXPECT_VIOLATES("phast.D3", {
    words_.erase(80);
    words_.put(55);  // in its slot
    words_.erase(50);
    desc().version.fetch_sub(phast::kOneRemoved);
    words_.scan();
  });
}

TEST_F(PhastAssertions, ARangeGrowsToTheLeftOnly) {
  left().latch_all();
  desc().latch_all();
  EXPECT_VIOLATES("phast.D4", {
    desc().bound.store(55);
    split();
  });
  EXPECT_VIOLATES("phast.D4", {
    last().low.store(5);
    unlink();
  });
}

TEST_F(PhastAssertions, OnlyTakenNumbersAreGivenBack) {
  EXPECT_VIOLATES("phast.D6", Peek::give(map(), 64 * 100));
}

TEST_F(PhastAssertions, ADeadLeafIsNeverLinkedAgain) {
  left().latch_all();
  desc().latch_all();
  EXPECT_VIOLATES("phast.D4", {
    left().version.fetch_add(1);
    unlink();
  });
  EXPECT_VIOLATES("phast.D4", {
    last().version.fetch_add(1);
    unlink();
  });
  EXPECT_VIOLATES("phast.D4", Peek::free(map(), number_));
  EXPECT_VIOLATES("phast.D4", {
    Peek::spare(map()).version.store(2);
    split();
  });
}

TEST_F(PhastAssertions, KeyZeroIsHeldUntilItsWriterLetsGo) {
  phast::ZeroLatch<SimPlatform> latch;
  latch.lock();
  latch.unlock();
  EXPECT_VIOLATES("phast.D7", latch.unlock());
}

}  // namespace
}  // namespace perdure::testing
