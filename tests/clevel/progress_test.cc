// test: explores
// Clevel hashing while one thread is stopped for ever: at each of its steps, outside of the heap
// and of reclamation, others finish what they do: on the same key, in the same stripe, and across
// expansions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "index/clevel/hash.h"
#include "testing/engines/clevel_subject.h"
#include "testing/sim/sites.h"
#include "tests/support/schedules.h"

namespace perdure::testing {
namespace {

using Words = ClevelSubject<clevel::IntegerCodec>;

// The memory of the map under the interleaver.
const SimMemory* memory_now = nullptr;

// Its threads have blocks of every size that they need, so that they do not meet in the heap.
class Provided : public Words {
 public:
  Status open(SimMemory& memory, std::uint64_t boot) override {
    if (boot == 1) memory_now = &memory;
    Status s = Words::open(memory, boot);
    const std::uint32_t self = SimPlatform::world().thread;
    for (std::uint32_t slot = 1; s.ok() && boot == 1 && slot <= 3; ++slot) {
      SimPlatform::world().thread = slot;
      take_blocks();
    }
    SimPlatform::world().thread = self;
    return s;
  }

 private:
  void take_blocks() {
    std::vector<std::uint64_t> blocks;
    for (std::size_t bytes = 512; bytes <= 2048; bytes *= 2) {
      for (int n = 0; n < 3; ++n) {
        blocks.push_back(pool().heap().allocate(bytes, BlockKind::plain).value_or(0));
      }
    }
    for (const std::uint64_t block : blocks) pool().heap().free(block);
    pool().heap().discard(pool().heap().allocate(32, BlockKind::dead_on_free).value_or(0));
  }
};

SubjectFactory words() {
  return [] { return std::make_unique<Provided>(); };
}
Ops steps_of_background(std::size_t n) { return Ops(n, background()); }

// The map that an Interleaver works on, driven from here: it has the same seed.
class Twin {
 public:
  Twin() {
    SimPlatform::seed(InterleaveOptions{}.seed);
    EXPECT_TRUE(subject_.create(memory_).ok() && subject_.open(memory_, 1).ok());
    EXPECT_TRUE(subject_.close().ok() && subject_.open(memory_, 1).ok());
    apply(steps_of_background(8));  // the walk of the open
  }
  void apply(Op op) {
    (void)subject_.apply(op);
    done_.push_back(std::move(op));
  }
  void apply(const Ops& ops) {
    for (const Op& op : ops) apply(op);
  }
  std::size_t levels() { return subject_.stats().levels.size(); }
  // The entries of the last level.
  std::uint64_t in_last() { return subject_.stats().levels[levels() - 1].entries; }
  std::uint64_t stripe(std::uint64_t key) const {
    const clevel::Root& root = *clevel_root(memory_);
    const clevel::Seed seed{.a = root.seed[0], .b = root.seed[1]};
    return clevel::Probe{.hash = clevel::hash_word(key, seed)}.stripe() % 4;
  }
  // Inserts of n new keys, all of the stripe of `like` if that is not 0.
  Ops new_keys(std::size_t n, std::uint64_t first, std::uint64_t like = 0) {
    Ops ops;
    for (std::uint64_t key = first; ops.size() < n; ++key) {
      if (like == 0 || stripe(key) == stripe(like)) ops.push_back(insert(key, key));
    }
    return ops;
  }
  const Ops& done() const { return done_; }

 private:
  const ScopedWorld world_;
  SimMemory memory_{InterleaveOptions{}.capacity};
  Words subject_;
  Ops done_;
};

// Thread 0 is stopped before each of its steps; then thread 1 runs to its end, or stops in the
// middle and thread 2 runs to its end before it. None of the two may wait. Alone, thread 0 reaches
// the site.
void expect_no_wait(const std::string& part, const Ops& setup, const std::vector<Ops>& threads,
                    const char* site, const std::vector<std::uint64_t>& second_stops = {}) {
  const auto options = [&](const std::string& name, bool crashes) {
    return InterleaveOptions{.name = test_name(name),
                             .setup = setup,
                             .threads = threads,
                             .crashes = crashes,
                             .limits = {.product = 16, .random = 2, .sampled = 6}};
  };
  Interleaver alone(words(), options(part + "_alone", false));
  expect_clean(alone.directed({{0, flush_of(site)}}));
  const auto sweep = [&](const std::string& name, const std::vector<Leg>& after, bool crashes) {
    Interleaver interleaver(words(), options(name, crashes));
    const auto report = interleaver.sweep({}, 0, after);
    expect_clean(report);
    EXPECT_EQ(report.blocked, 0U) << name << ": a thread waits for the one that is stopped";
    EXPECT_GT(report.schedules, 20U) << name;
  };
  sweep(part, {{1, done()}, {2, done()}, {0, done()}}, true);
  for (const std::uint64_t stop : second_stops) {
    sweep(part + "_" + std::to_string(stop),
          {{1, steps(stop)}, {2, done()}, {1, done()}, {0, done()}}, false);
  }
}
const std::vector<std::uint64_t> kSecondStops{100, 300, 500, 700, 900};

// What comes before the table has so many levels, and the insert that makes the last one.
struct Grown {
  Ops setup;
  Op grower;
};
Grown grown_to(Twin& twin, std::size_t levels) {
  for (std::uint64_t key = 1; twin.levels() < levels; ++key) twin.apply(insert(key, 100 + key));
  Grown grown{.setup = twin.done(), .grower = twin.done().back()};
  grown.setup.pop_back();
  return grown;
}
// Two threads that insert so many keys, and change some that are there.
std::vector<Ops> beside(Twin& twin, const Ops& stopped, std::size_t n) {
  return {stopped, twin.new_keys(n, 100),
          with(twin.new_keys(n, 200),
               {update(1, 7), find(1), erase(2), find(2), update(3, 8), erase(1), find(4)})};
}

// An insert that finds no slot: it makes a level, announces it, stores its word, publishes the
// list. Others need that level, too, and the next one.
TEST(ClevelProgress, AnInsertThatMakesALevel) {
  for (const std::size_t levels : {3U, 4U}) {
    Twin twin;
    const Grown grown = grown_to(twin, levels);
    expect_no_wait(std::to_string(levels), grown.setup, beside(twin, {grown.grower}, 14),
                   "clevel.ring.word", kSecondStops);
  }
}

// The unit that zeroes the next level, in the middle of it.
TEST(ClevelProgress, TheUnitThatZeroesTheNextLevel) {
  Twin twin;
  const Grown grown = grown_to(twin, 4);
  expect_no_wait({}, twin.done(), beside(twin, steps_of_background(3), 14), "clevel.ahead.zero",
                 kSecondStops);
}

// The rehash, and the drop of a level. Inserts cross two expansions meanwhile.
TEST(ClevelProgress, TheRehash) {
  Twin twin;
  (void)grown_to(twin, 3);
  expect_no_wait({}, twin.done(), beside(twin, steps_of_background(6), 14), "clevel.ring.word",
                 kSecondStops);
}

// Two threads drain one level, each another range of it. If the first is stopped for ever, the
// second drains the other ranges, and the level stays.
TEST(ClevelProgress, TwoThreadsRehash) {
  Twin twin;
  (void)grown_to(twin, 3);
  const Ops steps = steps_of_background(6);
  const std::string copies = "clevel.rehash.copy";
  for (const std::vector<Leg>& end :
       {std::vector<Leg>{{1, done()}, {0, done()}}, {{0, done()}, {1, done()}}}) {
    Interleaver interleaver(words(), {.name = test_name(std::to_string(end[0].thread)),
                                      .setup = twin.done(),
                                      .threads = {steps, steps}});
    std::vector<Leg> legs{{0, fence_of(copies)}, {1, fence_of(copies)}};
    legs.insert(legs.end(), end.begin(), end.end());
    const auto report = interleaver.directed(legs);
    expect_clean(report, {copies, "clevel.ring.word"});
    EXPECT_EQ(report.blocked, 0U);
  }
  Interleaver interleaver(words(), {.name = test_name("stopped"),
                                    .setup = twin.done(),
                                    .threads = {steps, with(steps, twin.new_keys(14, 100)),
                                                with(twin.new_keys(14, 200), steps)},
                                    .limits = {.product = 16, .random = 2, .sampled = 6}});
  const auto report = interleaver.sweep({}, 0, {{1, done()}, {2, done()}, {0, done()}});
  expect_clean(report);
}

// An insert that moves an item up.
TEST(ClevelProgress, AnInsertThatMovesAnItem) {
  const SiteInfo* moves = find_site("clevel.move.slot");
  ASSERT_NE(moves, nullptr);
  Twin twin;
  reset_site_counts();
  for (std::uint64_t key = 1; moves->flush_count.load() == 0; ++key) {
    ASSERT_LT(key, 100U);
    twin.apply(insert(key, 100 + key));
    twin.apply(steps_of_background(8));
  }
  Ops setup = twin.done();
  setup.resize(setup.size() - 9);
  const Op mover = twin.done()[setup.size()];
  expect_no_wait({}, setup, beside(twin, {mover}, 10), "clevel.move.slot", kSecondStops);
}

// Operations on a key that is there; the others change the same key.
TEST(ClevelProgress, OperationsOnOneKey) {
  Twin twin;
  (void)grown_to(twin, 3);
  const Ops all{insert(1, 2), update(1, 3), find(1), erase(1), insert(1, 4), upsert(1, 5)};
  for (const auto& [part, op, site] :
       {std::tuple{"update", update(1, 7), "clevel.update.word"},
        std::tuple{"erase", erase(1), "clevel.erase.state"},
        std::tuple{"many", many({update(1, 7), erase(2)}), "clevel.many.item"}}) {
    expect_no_wait(part, twin.done(),
                   {{op}, with(all, twin.new_keys(8, 100)), with(twin.new_keys(8, 200), all)},
                   site);
  }
}

// An insert. The others insert, change and erase the same key, also only if it has one value, and
// insert keys of its stripe; then the table grows. If two are stopped, both are in an insert: an
// erase_if waits for an update or erase.
TEST(ClevelProgress, AnInsert) {
  constexpr std::uint64_t kKey = 50;
  for (const std::size_t levels : {2U, 3U}) {
    Twin twin;
    (void)grown_to(twin, levels);
    const Ops of_stripe = twin.new_keys(3, 100, kKey);
    const std::uint64_t other = integer_of(of_stripe[0].key);
    const Ops all{insert(kKey, 2), find(kKey),  update(kKey, 3), erase_if(kKey, 3), insert(kKey, 4),
                  upsert(kKey, 5), erase(kKey), insert(kKey, 6), erase_if(kKey, 9)};
    const Ops second = with(of_stripe, twin.new_keys(8, 300));
    const Ops third = with(with(twin.new_keys(3, 200, kKey), {erase_if(other, other)}),
                           with(all, twin.new_keys(8, 400)));
    for (const auto& [name, op, site] :
         {std::tuple{"insert", insert(kKey, 1), "clevel.insert.slot"},
          std::tuple{"upsert", upsert(kKey, 1), "clevel.insert.slot"},
          std::tuple{"many", many({insert(kKey, 1), insert(51, 1)}), "clevel.many.slot"}}) {
      const std::string part = name + std::to_string(levels);
      expect_no_wait(part, twin.done(), {{op}, with(all, second), third}, site);
      expect_no_wait(part + "_two", twin.done(),
                     {{op}, with({insert(kKey, 2), upsert(52, 2)}, second), third}, site,
                     kSecondStops);
    }
  }
}

// The words of the ring, the last level first. Needs no lock and takes no step.
std::vector<std::uint64_t> ring_now() {
  const clevel::Root& root = *clevel_root(*memory_now);
  std::vector<std::uint64_t> words;
  const auto at = [&](std::uint32_t i) { return root.levels[i % clevel::kRing]; };
  std::uint32_t begin = 0;
  while (at(begin) == 0 || at(begin + clevel::kRing - 1) != 0) ++begin;
  for (; at(begin) != 0; ++begin) words.push_back(at(begin));
  return words;
}
bool has_levels(std::size_t n) { return ring_now().size() == n; }
// Whether a third level is there, and all but so many buckets of the last one are sealed.
bool drained_but(std::uint64_t buckets) {
  const auto words = ring_now();
  if (words.size() < 3) return false;
  const auto* level = reinterpret_cast<const clevel::Bucket*>(
      memory_now->base() + (words[0] & clevel::kOffsetMask & ~std::uint64_t{63}));
  for (std::uint64_t b = 0; b < std::uint64_t{1} << (words[0] & 63); ++b) {
    const auto& slots = level[b].slots;
    const bool sealed = slots[0] == clevel::kSealed && slots[1] == clevel::kSealed;
    if (!sealed && buckets-- == 0) return false;
  }
  return true;
}

// Thread 0 is stopped before each of its steps. Thread 1 makes a third level and drains the last
// one, until `goal` holds; then both end.
void expect_drain(const std::string& part, const Ops& setup, const std::vector<Ops>& threads,
                  const std::string& goal, const std::function<bool()>& reached,
                  const std::vector<Leg>& begin = {}) {
  for (std::uint64_t step = 0;; ++step) {
    Interleaver interleaver(words(), {.name = test_name(part + std::to_string(step)),
                                      .setup = setup,
                                      .threads = threads,
                                      .crashes = false,
                                      .quiet = true});
    std::vector<Leg> legs = begin;
    for (const Leg& leg : {Leg{0, steps(step)},
                           {1, holds("a third level", [] { return has_levels(3); })},
                           {1, holds(goal, reached)},
                           {1, done()},
                           {0, done()}}) {
      legs.push_back(leg);
    }
    const auto report = interleaver.directed(legs);
    ASSERT_EQ(report.legs.size(), legs.size());
    if (report.legs[begin.size()] != LegEnd::reached) {  // it has not so many steps
      EXPECT_GT(step, 20U);
      return;
    }
    expect_clean(report);
    for (std::size_t i = begin.size() + 1; i < begin.size() + 3; ++i) {
      EXPECT_EQ(report.legs[i], LegEnd::reached) << part << " step " << step << ": " << goal;
    }
    if (::testing::Test::HasFailure()) return;
  }
}
// Inserts after which there is a third level, also if an entry of the twin is not there, and steps
// that drain one.
Ops growth(Twin& twin) {
  const std::size_t begin = twin.done().size();
  std::uint64_t key = 100;
  for (; twin.levels() < 3; ++key) twin.apply(insert(key, key));
  Ops ops(twin.done().begin() + static_cast<std::ptrdiff_t>(begin), twin.done().end());
  for (int n = 0; n < 3; ++n, ++key) ops.push_back(insert(key, key));
  return with(ops, steps_of_background(60));
}

// An insert, whose item lies in the last level. The level drains and goes (44).
TEST(ClevelProgress, TheDrainGoesOnBesideAnInsert) {
  int keys = 0;
  for (std::uint64_t key = 50; keys < 3; ++key) {
    Twin twin;
    twin.apply({insert(1, 1), insert(2, 1), insert(3, 1)});
    const Ops setup = twin.done();
    const std::uint64_t before = twin.in_last();
    twin.apply(insert(key, 1));
    if (twin.in_last() == before) continue;
    ++keys;
    const Ops beside = growth(twin);
    for (const Op& op : {insert(key, 1), many({insert(key, 1), insert(60, 1)})}) {
      expect_drain(std::to_string(key) + (op.kind == OpKind::many ? "many" : ""), setup,
                   {{op}, beside}, "two levels again", [] { return has_levels(2); });
    }
  }
}

// An erase between death and slot, or an insert that moves an item up: the other ranges drain.
TEST(ClevelProgress, TheDrainGoesOnBesideAnEraseAndAMove) {
  Twin twin;
  const SiteInfo* moves = find_site("clevel.move.slot");
  reset_site_counts();
  for (std::uint64_t key = 1; moves->flush_count.load() == 0; ++key) {
    ASSERT_LT(key, 100U);
    twin.apply(insert(key, 100 + key));
    twin.apply(steps_of_background(8));
  }
  const Ops all = twin.done();
  const Op mover = all[all.size() - 9];
  const Ops setup(all.begin(), all.end() - 9);
  const Ops beside = growth(twin);
  expect_drain("move", setup, {{mover}, beside}, "all but two", [] { return drained_but(2); });
  for (std::uint64_t key = 1; key <= 3; ++key) {
    expect_drain("erase" + std::to_string(key), setup, {{erase(key)}, beside}, "all but one",
                 [] { return drained_but(1); });
  }
}

// A step of the rehash: the other ranges drain.
TEST(ClevelProgress, TheDrainGoesOnBesideARange) {
  Twin twin;
  (void)grown_to(twin, 2);
  const Ops setup = with(twin.done(), growth(twin));
  const Ops grown(setup.begin(), setup.end() - 60);
  expect_drain({}, grown, {steps_of_background(2), steps_of_background(60)}, "all but one",
               [] { return drained_but(1); }, {{0, flush_of("clevel.rehash.copy")}});
}

// A scan. It holds the rehash back, so that levels pile up.
TEST(ClevelProgress, AScan) {
  Twin twin;
  (void)grown_to(twin, 3);
  const Ops stopped{update(3, 9), scan()};
  expect_no_wait({}, twin.done(), beside(twin, stopped, 14), "clevel.update.word", kSecondStops);
}

}  // namespace
}  // namespace perdure::testing
