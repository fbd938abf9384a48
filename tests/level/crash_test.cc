// test: explores
// Level hashing with integer keys under the crash explorer. L ids are those of
// docs/design/hazards.md, E ids those of docs/design/level.md.
#include <gtest/gtest.h>

#include "testing/crash/workloads.h"
#include "testing/engines/level_subject.h"
#include "testing/schedule/race_ops.h"
#include "tests/support/explorations.h"

namespace perdure::testing {
namespace {

// Mutations do the background work, so that what a workload reaches is in its operations.
const MapSetup kWords{.background_thread = false};
const MapSetup kRecords{.values = ValueKind::bytes, .background_thread = false};

template <class Geometry = level::TinyGeometry>
void explore_exactly(const std::vector<Op>& workload, const std::set<std::string>& sites,
                     const std::vector<Op>& prepare = {}) {
  ExploreOptions options = exact_options();
  options.prepare = prepare;
  explore_workload(level_subjects<level::IntegerCodec, Geometry>(kWords), integer_op, options,
                   workload, sites);
}

std::vector<Op> inserts(std::uint64_t n) {
  std::vector<Op> ops;
  for (std::uint64_t key = 1; key <= n; ++key) ops.push_back(insert(key, key));
  return ops;
}

// L1, L2, L6, 3a: item and token in one line; an update is the old value or the new one.
TEST(LevelCrash, L1_L6_OneLine) {
  explore_exactly({insert(5, 1), insert(6, 2), update(5, 7), erase(5), insert(7, 3), erase(6),
                   insert(5, 4), update(7, 9), erase(7), insert(0, 5), insert(~0ULL, 6)},
                  {"level.insert.line", "level.erase.token", "level.update.value"});
}

// Mutations of one call reach the medium in any subset until their fence, each whole or absent.
TEST(LevelCrash, MutationsOfOneCall) {
  explore_exactly({many({insert(5, 1), insert(6, 2), insert(7, 3), insert(8, 4)}),
                   many({update(5, 5), erase(6), insert(9, 6), update(10, 7)}),
                   many({erase(5), insert(6, 8), erase(7), update(8, 9)}),
                   many({erase(6), erase(8), erase(9), insert(5, 10)})},
                  {"level.many.line"});
}

// L3, 3b: two copies after a crash in a movement are one after the next open: erased is erased, and
// updated is updated.
TEST(LevelCrash, L3_MovedThenErasedOrUpdated) {
  std::vector<Op> ops;
  for (std::uint64_t round = 0; round < 3; ++round) {
    for (std::uint64_t key = 1; key <= 9; ++key) ops.push_back(insert(key + 20 * round, key));
    for (std::uint64_t key = 1; key <= 9; key += 2) ops.push_back(erase(key + 20 * round));
    for (std::uint64_t key = 2; key <= 9; key += 2) ops.push_back(update(key + 20 * round, 99));
    for (std::uint64_t key = 2; key <= 9; key += 2) ops.push_back(erase(key + 20 * round));
  }
  explore_exactly(ops, {"level.move.record", "level.move.copy", "level.move.replace"});
}

// L7, L8: every image of expansions, and of operations while their level is drained.
TEST(LevelCrash, L7_Expand) {
  std::vector<Op> ops = inserts(30);
  for (std::uint64_t key = 1; key <= 30; key += 3) ops.push_back(update(key, 100 + key));
  explore_exactly(ops, {"level.resize.descriptor", "level.resize.root", "level.drain.copy",
                        "level.drain.clear"});
}

// The operations of a workload as they are chosen, by what the table looks like after each.
class Course {
 public:
  Course() {
    SimPlatform::seed(1);  // as the explorer does: the table's seeds are the same there
    memory_.set_mode(SimMode::plain);
    EXPECT_TRUE(subject_.create(memory_).ok());
    EXPECT_TRUE(subject_.open(memory_, 1).ok());
  }
  void run(const Op& op) {
    ops_.push_back(op);
    const auto done = subject_.apply(op);
    ASSERT_TRUE(done && *done);
  }
  EngineStats stats() { return subject_.stats(); }
  level::Seeds seeds() const {
    const level::layout::Root* root = level_root(memory_);
    EXPECT_NE(root, nullptr);
    return root == nullptr ? level::Seeds{} : level::Seeds{{root->seeds[0], root->seeds[1]}};
  }
  // Crash points begin with the last operation.
  void begin() { begin_ = ops_.end() - ops_.begin() - 1; }
  std::vector<Op> before() const { return {ops_.begin(), ops_.begin() + begin_}; }
  std::vector<Op> ops() const { return {ops_.begin() + begin_, ops_.end()}; }

  // One bucket is drained by each mutation: slow enough to be overtaken.

 private:
  const ScopedWorld world_;
  SimMemory memory_{2 << 20};
  LevelSubject<level::IntegerCodec, SlowGeometry> subject_{kWords};
  std::vector<Op> ops_;
  std::ptrdiff_t begin_ = 0;
};

bool ended(const ResizeStats& resize, bool undone) {
  return resize.shrink && resize.end_ns != 0 &&
         (resize.slots_after == resize.slots_before) == undone;
}

// Grows a few times; is emptied until it shrinks, and filled until that has ended; is emptied until
// a shrink has ended well. True: that happened, and the first was undone.
bool shrinks_and_undoes(Course& course, std::uint64_t growths, std::uint64_t stride) {
  std::uint64_t made = 0;
  std::uint64_t gone = 0;
  const auto make = [&] {
    ++made;
    course.run(insert(made * stride, made));
  };
  const auto unmake = [&] {
    ++gone;
    course.run(erase(gone * stride));
  };
  const auto last = [&] {
    const EngineStats stats = course.stats();
    return stats.resizes.empty() ? ResizeStats{} : stats.resizes[stats.resizes.size() - 1];
  };
  while (course.stats().resizes.size() < growths) make();
  while (!last().shrink && gone < made) unmake();
  course.begin();
  while (last().shrink && last().end_ns == 0) make();
  const bool undone = ended(last(), true);
  while (!ended(last(), false) && gone < made) unmake();
  return undone && ended(last(), false);
}

// L9, L12, E2, E3. Which keys are overtaken by a drain, and do not fit, is tried out.
TEST(LevelCrash, L9_ShrinkAndUndo) {
  for (std::uint64_t i = 0; i < 600; ++i) {
    Course course;
    if (!shrinks_and_undoes(course, 3 + i / 200, 1 + i % 200)) continue;
    return explore_exactly<SlowGeometry>(
        course.ops(), {"level.resize.root", "level.drain.copy", "level.drain.clear"},
        course.before());
  }
  FAIL() << "no shrink was undone";
}

// Keys whose two buckets are the same two in every level of at most this many.
std::vector<std::uint64_t> alike(const level::Seeds& seeds, std::uint64_t buckets, std::size_t n) {
  std::vector<std::uint64_t> keys;
  for (std::uint64_t key = 1; keys.size() < n; ++key) {
    const level::Probe probe = level::place(key, seeds);
    const std::uint64_t low = std::min(probe.hashes[0] % buckets, probe.hashes[1] % buckets);
    const std::uint64_t high = std::max(probe.hashes[0] % buckets, probe.hashes[1] % buckets);
    if (low == 0 && high == 1) keys.push_back(key);
  }
  return keys;
}

// L9, E3: four buckets of three slots take the first twelve keys; the thirteenth adds a level, of
// which the keys find two buckets again, so that one of those drained has no place.
TEST(LevelCrash, L9_ExpansionIsExtended) {
  Course course;
  const std::vector<std::uint64_t> keys = alike(course.seeds(), 8, 16);
  std::size_t most = 0;
  std::size_t made = 0;
  const auto look = [&] { most = std::max(most, course.stats().levels.size()); };
  for (; made < 12; ++made) course.run(insert(keys[made], made));
  ASSERT_EQ(course.stats().levels.size(), 2U);
  const std::size_t before = course.stats().resizes.size();
  for (; made < keys.size(); ++made, look()) {
    course.run(insert(keys[made], made));
    if (made == 12) course.begin();
  }
  EXPECT_EQ(most, 4U);
  for (std::uint64_t i = 0; course.stats().levels.size() > 2 && i < 40; ++i) {
    course.run(update(keys[i % made], 100 + i));
  }
  // Both came to their end.
  const EngineStats stats = course.stats();
  EXPECT_EQ(stats.levels.size(), 2U);
  ASSERT_EQ(stats.resizes.size(), before + 2);
  for (const ResizeStats& resize : stats.resizes) {
    EXPECT_FALSE(resize.shrink);
    EXPECT_NE(resize.end_ns, 0U);
  }
  EXPECT_EQ(stats.entries, made);
  explore_exactly<SlowGeometry>(course.ops(),
                                {"level.resize.root", "level.drain.copy", "level.drain.clear"},
                                course.before());
}

// L9, E16: keys of one hash. More than the table takes are refused, and it does not grow for them.
struct FirstByteCodec : level::BytesCodec {
  static level::Probe probe(const perdure::detail::Key& key, const level::Seeds& seeds) noexcept {
    level::Probe probe = level::place(static_cast<unsigned char>(key.bytes[0]), seeds);
    probe.bytes = key.bytes;
    return probe;
  }
};
TEST(LevelCrash, L9_E16_CollidingKeysAreRefused) {
  const ScopedWorld world;
  SimMemory memory(2 << 20);
  memory.set_mode(SimMode::plain);
  LevelSubject<FirstByteCodec> subject(kRecords);
  ASSERT_TRUE(subject.create(memory).ok());
  ASSERT_TRUE(subject.open(memory, 1).ok());
  const auto key = [](char first, int i) { return std::string(1, first) + std::to_string(i); };
  const auto put = [&](char first, int i) {
    return subject.apply({OpKind::insert, key(first, i), "value"});
  };
  int taken = 0;
  auto done = put('a', taken);
  for (; done && taken < 100; done = put('a', taken)) ++taken;
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error(), StatusCode::hash_overflow) << done.error().message();
  EXPECT_EQ(taken, 6);  // 3 slots in a bucket of each of two levels
  const std::size_t resizes = subject.stats().resizes.size();
  EXPECT_LE(resizes, 2U);
  for (int i = 0; i < 20; ++i) ASSERT_FALSE(put('a', taken + i));
  EXPECT_EQ(subject.stats().resizes.size(), resizes);
  // Others go on, and so do those that are there.
  for (char first = 'b'; first <= 'z'; ++first) ASSERT_TRUE(put(first, 0));
  for (int i = 0; i < taken; ++i) {
    std::string value;
    ASSERT_TRUE(*subject.lookup(key('a', i), value)) << i;
    ASSERT_EQ(value, "value");
  }
  ASSERT_TRUE(*subject.apply({OpKind::erase, key('a', 3), {}}));
  EXPECT_TRUE(put('a', 50));
  std::vector<std::string> violations;
  subject.check(violations);
  EXPECT_TRUE(violations.empty()) << violations.front();
}

}  // namespace
}  // namespace perdure::testing
