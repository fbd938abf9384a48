// test: explores
// The pool's own protocols under the crash explorer: create, growth, roots, drop, close, trust.
#include <gtest/gtest.h>

#include "testing/crash/heap_scenarios.h"
#include "testing/crash/pool_scenarios.h"
#include "testing/crash/workloads.h"
#include "testing/engines/phast_subject.h"
#include "tests/support/explorations.h"

namespace perdure::testing {
namespace {

constexpr EnumerationLimits kFew{.product = 128, .random = 16, .sampled = 32};

// For workloads that make the file grow again and again.
ExploreOptions growing_options() {
  return {.capacity = 2 << 20,
          .limits = kFew,
          .battery = 40,
          .second_in = 100,
          .kill_in = 4,
          .explore_create = false};
}

const MapSetup kThreeMaps{.values = ValueKind::bytes, .maps = 3};
Op pool_op(Random& random) {
  static const OpSource source = pool_ops(3, 24);
  return source(random);
}

TEST(PoolCrash, RandomPoolOperations) {
  explore(phast_subjects<phast::IntegerCodec>(kThreeMaps), pool_op,
          {.capacity = 2 << 20,
           .limits = kFew,
           .second_in = 150,
           .kill_in = 15,
           .explore_create = false},
          60, 3);
}

// 4f: a root line commits by its last word; a drop takes the whole map or nothing.
TEST(PoolCrash, H4f_CreateAndDropMaps) {
  std::vector<Op> ops;
  for (int round = 0; round < 2; ++round) {
    for (char map = 0; map < 3; ++map) {
      ops.push_back({OpKind::upsert, std::string(1, map) + integer_key(7),
                     std::string(40, static_cast<char>('a' + map))});
    }
    for (char map = 0; map < 3; ++map) ops.push_back({OpKind::drop, std::string(1, map), {}});
    ops.push_back({OpKind::reopen, {}, {}});
  }
  explore_workload(
      phast_subjects<phast::IntegerCodec>(kThreeMaps), pool_op,
      {.capacity = 2 << 20, .limits = kFew, .battery = 60, .second_in = 200, .kill_in = 6}, ops,
      {"pool.root.add", "pool.root.drop", "pool.header.write"});
}

// P13: after a crash anywhere in create there is no pool, or a whole one.
TEST(PoolCrash, P13_CreateCrash) {
  const ExploreReport report = explore(phast_subjects<phast::IntegerCodec>(kThreeMaps), pool_op,
                                       {.capacity = 2 << 20,
                                        .limits = {.product = 4096, .random = 200, .sampled = 400},
                                        .battery = 40,
                                        .second_in = 100,
                                        .kill_in = 1,
                                        .close_at_end = false},
                                       0, 1);
  expect_crossed(report, {"storage.sync", "pool.create.header", "pool.root.add"});
}

// 4e: space, then table, then the header's size. A crash in between leaves a longer file, never a
// shorter one.
TEST(PoolCrash, H4e_Growth) {
  std::vector<Op> ops;
  for (std::uint64_t i = 0; i < 24; ++i) {
    ops.push_back({OpKind::upsert, integer_key(i), std::string(1500, static_cast<char>('a' + i))});
  }
  explore_workload(phast_subjects<phast::IntegerCodec>({.values = ValueKind::bytes}),
                   integer_record_op, growing_options(), ops,
                   {"storage.sync", "heap.extent.assign"});
}

// X1, G7 for the headers: a kill inside a header write, a reopen, and a power failure inside the
// next write.
TEST(PoolCrash, X1_KilledWhileClosing) {
  std::vector<Op> ops;
  for (std::uint64_t i = 1; i < 5; ++i) {
    ops.push_back({OpKind::upsert, integer_key(i), std::string(8, 'x')});
    ops.push_back({OpKind::reopen, {}, {}});
  }
  explore_workload(phast_subjects<phast::IntegerCodec>({}), integer_op,
                   {.capacity = 2 << 20,
                    .limits = {.product = 64, .random = 8, .sampled = 30},
                    .second_limits = {.product = 1024, .random = 60, .sampled = 120},
                    .battery = 30,
                    .second_in = 10,
                    .kill_in = 1,
                    .second_ops = 1,
                    .explore_create = false},
                   ops);
}

TEST(PoolCrash, H4f_RootsAreDurableWhenAcknowledged) { EXPECT_EQ(durable_roots(), ""); }

TEST(PoolCrash, X1_OpenWritesBackEveryLineAfterAKill) { EXPECT_EQ(killed_pool(), ""); }

TEST(PoolOpen, StoresThatARestartMayHaveLostAreNotServed) { EXPECT_EQ(untrusted(), ""); }
TEST(PoolOpen, TheSyncForPowerFindsNothingPending) { EXPECT_EQ(nothing_left_to_sync(), ""); }

// A pool serves at once after a kill. Its own structures are durable by then, and the rest when it
// is settled.
TEST(PoolCrash, X1_ServedAtOnceAfterAKill) {
  EXPECT_EQ(killed_dropping(), "");
  EXPECT_EQ(killed_releasing(), "");
  EXPECT_EQ(killed_releasing_resized(), "");
  EXPECT_EQ(killed_storing(), "");
}

// A resize is one header. What it replaces may not be durable yet.
TEST(PoolCrash, X1_ResizedAfterAKillDuringGrowth) { EXPECT_EQ(killed_growing_resized(), ""); }

// The pool fills up, is resized, and fills up over its second extent table.
TEST(PoolCrash, ResizeAndGrowth) {
  MapSetup small{.values = ValueKind::bytes};
  small.shape.max_bytes = 96 << 10;
  std::vector<Op> ops;
  for (std::uint64_t i = 0; i < 24; ++i) {
    if (i == 11 || i == 19) ops.push_back({OpKind::resize, {}, {}});
    ops.push_back({OpKind::upsert, integer_key(i), std::string(6000, static_cast<char>('a' + i))});
  }
  explore_workload(phast_subjects<phast::IntegerCodec>(small), integer_record_op, growing_options(),
                   ops, {"pool.resize.headers", "pool.header.write"});
}

// pool.I1: a damaged header copy does not weaken the guarantees of the other one.
TEST(PoolCrash, EitherHeaderVouchesForAClosedPool) { EXPECT_EQ(either_header_closed(), ""); }
TEST(PoolCrash, EitherHeaderVouchesForASealedPool) { EXPECT_EQ(either_header_sealed(), ""); }
TEST(PoolCrash, EitherHeaderHasTheNewMaximum) { EXPECT_EQ(either_header_resized(), ""); }
TEST(PoolCrash, EitherHeaderCountsWhatThePoolHasGrown) { EXPECT_EQ(either_header_grown(), ""); }

// 5a: in `process` mode a power failure loses data. A later open must not serve the rest as if it
// were whole: it fails, or every entry is present.
TEST(PoolCrash, H5a_ProcessModeIsNeverServedSilently) {
  for (const bool sync_at_close : {true, false}) {
    MapSetup setup{.values = ValueKind::bytes, .mode = Durability::process};
    setup.sync_at_close = sync_at_close;
    std::vector<Op> ops;
    Random random(5);
    for (int i = 0; i < 30; ++i) {
      ops.push_back(i % 8 == 7   ? Op{OpKind::reopen, {}, {}}
                    : i % 5 == 3 ? Op{OpKind::sync, {}, {}}
                                 : integer_record_op(random));
    }
    explore_workload(phast_subjects<phast::IntegerCodec>(setup), integer_record_op,
                     {.capacity = 2 << 20,
                      .limits = {.product = 64, .random = 40, .sampled = 80},
                      .battery = 20,
                      .explore_create = false,
                      .process_mode = true},
                     ops);
  }
}

// 5c: acknowledged operations of a `process` session without a flush are durable once a `power`
// session serves them.
TEST(PoolCrash, H5c_APowerSessionVouchesForWeakOnes) {
  for (const bool killed : {true, false}) {
    const MapSetup weak{.mode = Durability::process, .sync_at_close = false};
    const MapSetup strong{};
    SimMemory memory(2 << 20), next(2 << 20), medium(2 << 20);
    Model model;
    const auto put = [&](Subject& subject, std::uint64_t key) {
      const Op op{OpKind::upsert, integer_key(key), std::string(8, static_cast<char>('a' + key))};
      apply_to(model, op);
      return subject.apply(op).has_value();
    };
    {
      PhastSubject<phast::IntegerCodec> first(weak);
      ASSERT_TRUE(first.create(memory).ok());
      ASSERT_TRUE(first.open(memory, 1).ok());
      for (std::uint64_t key = 1; key < 20; ++key) ASSERT_TRUE(put(first, key));
      ASSERT_TRUE(killed || first.close().ok());
      EXPECT_GT(memory.pending_lines(), 0U) << "nothing is at stake";
      next.load_killed(memory);
      memory.set_mode(SimMode::frozen);
    }
    PhastSubject<phast::IntegerCodec> second(strong);
    ASSERT_TRUE(second.open(next, 1).ok());
    ASSERT_TRUE(put(second, 20));
    // The power fails, and only lines that had to have reached the medium.
    medium.load_image(next, next.image({}, {}, false, false));
    next.set_mode(SimMode::frozen);
    PhastSubject<phast::IntegerCodec> third(strong);
    const Status s = third.open(medium, 2);
    ASSERT_TRUE(s.ok()) << s.message();
    EXPECT_EQ(compare(third, model), "");
    medium.set_mode(SimMode::frozen);
  }
}

// 5d: a failing write-back poisons the pool. From then on every call fails, and the next open has
// everything acknowledged before.
TEST(PoolCrash, H5d_APoisonedPoolRefusesEverything) {
  SimMemory memory(2 << 20), next(2 << 20);
  Model model;
  PhastSubject<phast::IntegerCodec> subject;
  ASSERT_TRUE(subject.create(memory).ok());
  ASSERT_TRUE(subject.open(memory, 1).ok());
  for (std::uint64_t key = 1; key < 9; ++key) {
    const Op op{OpKind::insert, integer_key(key), std::string(8, 'v')};
    apply_to(model, op);
    ASSERT_TRUE(subject.apply(op).has_value());
  }
  subject.pool().platform().poison();
  for (const OpKind kind : {OpKind::insert, OpKind::upsert, OpKind::update, OpKind::erase}) {
    for (const std::uint64_t key : {std::uint64_t{3}, std::uint64_t{0}, std::uint64_t{30}}) {
      const auto result = subject.apply({kind, integer_key(key), std::string(8, 'w')});
      ASSERT_FALSE(result.has_value());
      EXPECT_EQ(result.error(), StatusCode::poisoned);
    }
  }
  std::string value;
  const auto found = subject.lookup(integer_key(3), value);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error(), StatusCode::poisoned);
  Contents contents;
  EXPECT_EQ(subject.contents(contents), StatusCode::poisoned);
  EXPECT_FALSE(subject.close().ok());
  next.load_killed(memory);
  memory.set_mode(SimMode::frozen);
  PhastSubject<phast::IntegerCodec> after;
  ASSERT_TRUE(after.open(next, 1).ok());
  EXPECT_EQ(compare(after, model), "");
  next.set_mode(SimMode::frozen);
}

// A synced pool is trusted after a power failure in every mode until the next store. That store
// waits for a durable header that ends the trust.
TEST(PoolCrash, H5a_ASealLastsUntilTheNextStore) {
  const std::vector<Op> mutations = {{OpKind::insert, integer_key(9), std::string(8, 'n')},
                                     {OpKind::update, integer_key(1), std::string(8, 'u')},
                                     {OpKind::erase, integer_key(2), {}},
                                     {OpKind::upsert, integer_key(0), std::string(8, 'z')},
                                     {OpKind::find, integer_key(1), {}},
                                     {OpKind::compact, {}, {}},
                                     {OpKind::sync, {}, {}}};
  for (const Durability mode : {Durability::process, Durability::emulated, Durability::power}) {
    for (const Op& mutation : mutations) {
      SCOPED_TRACE(std::string(durability_name(mode)) + ", " + describe(mutation));
      SimMemory memory(2 << 20);
      PhastSubject<phast::IntegerCodec> subject({.mode = mode});
      Model model;
      ASSERT_TRUE(subject.create(memory).ok());
      ASSERT_TRUE(subject.open(memory, 1).ok());
      for (std::uint64_t k = 1; k < 6; ++k) {
        const Op op{OpKind::insert, integer_key(k), std::string(8, static_cast<char>('a' + k))};
        (void)apply_to(model, op);
        ASSERT_TRUE(subject.apply(op).has_value());
      }
      // After the machine went down, the medium has only what is guaranteed.
      const auto after_power_failure = [&] {
        SimMemory medium(2 << 20);
        medium.load_image(memory, memory.image({}, {}, false, false));
        PhastSubject<phast::IntegerCodec> again({.mode = mode});
        const Status s = again.open(medium, 2);
        const std::string wrong = s.ok() ? compare(again, model) : std::string();
        EXPECT_EQ(wrong, "");
        medium.set_mode(SimMode::frozen);
        return s.code();
      };
      const bool durable = mode == Durability::power;
      EXPECT_EQ(after_power_failure(), durable ? StatusCode::ok : StatusCode::untrusted);
      ASSERT_TRUE(subject.apply({OpKind::sync, {}, {}}).has_value());
      EXPECT_EQ(after_power_failure(), StatusCode::ok);
      (void)apply_to(model, mutation);
      ASSERT_TRUE(subject.apply(mutation).has_value());
      const bool stores = mutation.kind < OpKind::find;
      EXPECT_EQ(after_power_failure(), durable || !stores ? StatusCode::ok : StatusCode::untrusted);
      memory.set_mode(SimMode::frozen);
    }
  }
}

// Nothing relies on the order of a copy's stores within a line: memcpy guarantees none.
TEST(PoolCrash, X5_CopiesInAnyOrder) {
  explore(phast_subjects<phast::IntegerCodec>(kThreeMaps), pool_op,
          {.capacity = 2 << 20,
           .limits = kFew,
           .second_in = 150,
           .kill_in = 15,
           .tear_partial_copies = true},
          20, 1);
}

// A map's root block must be usable at any place in the heap, with any number of partitions.
template <std::uint32_t Bits>
struct WithPartitions : PhastTraits<phast::IntegerCodec, phast::TinyGeometry> {
  static Expected<std::uint64_t> create(const EngineContext<SimPlatform>& context,
                                        const MapKinds& kinds, const MapSetup&) {
    return Map::create(context, kinds, {.partition_bits = Bits});
  }
};
template <std::uint32_t Bits>
void open_with_partitions() {
  SimMemory memory(4 << 20);
  MapSubject<WithPartitions<Bits>> subject({.maps = 3});
  ASSERT_TRUE(subject.create(memory).ok());
  const Status s = subject.open(memory, 1);
  EXPECT_TRUE(s.ok()) << "partition_bits " << Bits << ": " << s.message();
  memory.set_mode(SimMode::frozen);
}
TEST(PoolCrash, RootBlocksOfEverySize) {
  [&]<std::uint32_t... Bits>(std::integer_sequence<std::uint32_t, Bits...>) {
    (open_with_partitions<Bits>(), ...);
  }(std::make_integer_sequence<std::uint32_t, 6>());
}

}  // namespace
}  // namespace perdure::testing
