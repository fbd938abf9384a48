// test: explores
// Page media under the crash explorer: sectors, the file's size and its name, each on the medium or
// not.
#include <gtest/gtest.h>

#include <set>

#include "testing/crash/workloads.h"
#include "testing/engines/phast_subject.h"
#include "tests/support/explorations.h"

namespace perdure::testing {
namespace {

constexpr EnumerationLimits kFew{.product = 128, .random = 16, .sampled = 80};

MapSetup paged(ValueKind values = ValueKind::word) {
  return {.values = values, .medium = SimMedium::page};
}

// A page medium with two pages in the file.
struct Rig {
  Rig() {
    memory.set_medium(SimMedium::page);
    EXPECT_TRUE(memory.allocate(0, 2 * kPage).ok());
    memory.sync_file(0, 2 * kPage, "test");
  }
  std::uint64_t& word(std::size_t i) { return reinterpret_cast<std::uint64_t*>(memory.base())[i]; }
  // The contents of two words in all images.
  std::set<std::pair<std::uint64_t, std::uint64_t>> states(std::size_t a, std::size_t b) {
    std::set<std::pair<std::uint64_t, std::uint64_t>> result;
    SimMemory scratch(memory.capacity());
    const auto pending = memory.pending();
    for (const Combination& c : enumerate(memory, pending, {.product = 4096}, 1).combinations) {
      scratch.load_image(memory, memory.image(pending, c.choice, c.new_size, c.punched));
      const auto* words = reinterpret_cast<const std::uint64_t*>(scratch.base());
      result.emplace(words[a], words[b]);
    }
    return result;
  }
  SimMemory memory{1 << 20};
  SimPlatform p{memory};
};
using States = std::set<std::pair<std::uint64_t, std::uint64_t>>;

TEST(PageMedium, ASectorIsWrittenAsItWasAtSomeMoment) {
  Rig rig;
  rig.p.store(rig.word(0), 1);
  rig.p.store(rig.word(63), 2);  // the last word of the same sector
  EXPECT_EQ(rig.states(0, 63), (States{{0, 0}, {1, 0}, {1, 2}}));
  Rig apart;
  apart.p.store(apart.word(0), 1);
  apart.p.store(apart.word(64), 2);  // the next sector
  EXPECT_EQ(apart.states(0, 64), (States{{0, 0}, {1, 0}, {0, 2}, {1, 2}}));
}

TEST(PageMedium, AWriteBackTakesTheWholePageAndNoOther) {
  Rig rig;
  rig.p.store(rig.word(0), 1);
  rig.p.store(rig.word(511), 2);
  rig.p.store(rig.word(512), 3);
  rig.p.flush(&rig.word(100), 8, "page_test.flush.page"_site);
  EXPECT_EQ(rig.states(0, 511).size(), 4U) << "not before the fence";
  EXPECT_EQ(rig.memory.awaited_sites().size(), 1U);
  rig.p.fence("page_test.flush.page"_site);
  EXPECT_TRUE(rig.memory.awaited_sites().empty());
  EXPECT_EQ(rig.states(0, 511), (States{{1, 2}}));
  EXPECT_EQ(rig.states(0, 512), (States{{1, 0}, {1, 3}}));
}

TEST(PageMedium, SizeAndNameAreStatesOfTheirOwn) {
  Rig rig;
  ASSERT_TRUE(rig.memory.allocate(2 * kPage, kPage).ok());
  rig.memory.sync(0, 3 * kPage, "test");  // msync: the pages, not the size
  EXPECT_TRUE(rig.memory.size_pending());
  rig.memory.link();
  EXPECT_TRUE(rig.memory.name_pending());
  std::set<std::pair<std::uint64_t, bool>> files;
  std::set<std::uint64_t> hashes;
  for (const Combination& c : enumerate(rig.memory, {}, {}, 1).combinations) {
    const CrashImage image = rig.memory.image({}, c.choice, c.new_size, c.punched, c.new_name);
    files.emplace(image.size, image.named);
    hashes.insert(image.hash);
  }
  EXPECT_EQ(files.size(), 4U);
  EXPECT_EQ(hashes.size(), 4U);
  rig.memory.sync_file(0, 3 * kPage, "test");
  rig.memory.sync_directory();
  EXPECT_FALSE(rig.memory.size_pending() || rig.memory.name_pending());
}

// One file has one hash, independent of its history.
TEST(PageMedium, EqualFilesHaveEqualHashes) {
  Rig rig;
  rig.p.store(rig.word(0), 1);
  const auto pending = rig.memory.pending();
  const CrashImage image = rig.memory.image(pending, {1}, true, false);
  SimMemory again(rig.memory.capacity());
  again.load_image(rig.memory, image);
  again.settle();
  EXPECT_EQ(again.image({}, {}, true, false).hash, image.hash);
  rig.p.flush(&rig.word(0), 8, "page_test.flush.page"_site);
  rig.p.fence("page_test.flush.page"_site);
  EXPECT_EQ(rig.memory.image({}, {}, true, false).hash, image.hash);
}

TEST(PageCrash, CreateGrowCloseWithWords) {
  const ExploreReport report =
      explore(phast_subjects<phast::IntegerCodec>(paged()), integer_op,
              {.capacity = 2 << 20, .limits = kFew, .second_in = 20, .kill_in = 4}, 40, 2);
  expect_crossed(report,
                 {"pool.create.header", "storage.publish", "storage.sync", "phast.insert.entry"});
}

TEST(PageCrash, Records) {
  explore(phast_subjects<phast::BytesCodec>(paged(ValueKind::bytes)), bytes_op,
          {.capacity = 2 << 20,
           .limits = kFew,
           .second_in = 80,
           .kill_in = 12,
           .store_points = true,
           .explore_create = false},
          40, 1);
}

// Only page media can lose the name of a new pool, and the size of one that grew.
TEST(PageCrash, ALostNameOrSizeIsRed) {
  for (const char* site : {"storage.publish", "storage.sync", "pool.header.write"}) {
    EXPECT_TRUE(fails_in_child(
        [&] {
          const ScopedMutant scoped(site, Mutant::drop_sync);
          Explorer explorer(phast_subjects<phast::IntegerCodec>(paged(ValueKind::bytes)),
                            integer_record_op,
                            {.name = "page_mutant", .capacity = 2 << 20, .limits = kFew});
          std::vector<Op> ops;
          for (std::uint64_t i = 0; i < 24; ++i) {
            ops.push_back({OpKind::upsert, integer_key(i), std::string(1500, 'g')});
          }
          return !scoped.matched() || explorer.run(ops).ok();
        },
        120))
        << site;
  }
}

}  // namespace
}  // namespace perdure::testing
