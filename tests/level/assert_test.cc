// test: explores
// Planted violations of level hashing's invariants: each one runs into its assertion.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "testing/engines/level_subject.h"
#include "testing/sim/sites.h"
#include "tests/support/violates.h"

namespace perdure::level {

using testing::Mutant;
using testing::ScopedMutant;
using testing::SimMemory;
using testing::SimMode;
using testing::SimPlatform;
using testing::SimPool;

// Steps of an operation, without what comes before them there.
struct Peek {
  using T = Traits<SimPlatform, IntegerCodec, TinyGeometry>;
  using Map = LevelMap<T>;
  using Place = level::Place<T>;
  using Locks = level::Locks<T>;

  static Probe probe(const Map& map, std::uint64_t key) {
    return IntegerCodec::probe({.word = key}, map.seeds_);
  }
  static View<T>& view(const Map& map) { return *map.current(); }
  // In the larger level, whose two buckets are empty.
  static void set_item(Map& map, std::uint64_t key, std::uint64_t bucket, bool locks_it = true) {
    Locks locks;
    if (locks_it) locks.lock(view(map).upper(), bucket);
    map.set_item({&view(map).upper(), bucket, 0}, {.key = {key}});
  }
  // A key that lies in the first bucket of the larger level, whichever hash places it.
  static std::uint64_t key_of_first_bucket(const Map& map) {
    std::uint64_t key = 1;
    while (((probe(map, key).hashes[0] | probe(map, key).hashes[1]) & 1) != 0) ++key;
    return key;
  }
  static void show(Map& map) { map.show({&view(map).upper(), 0, 0}, 1); }
  static void hide(Map& map) { map.hide({&view(map).upper(), 0, 0}); }
  static void set_item_twice(Map& map) {
    const std::uint64_t key = key_of_first_bucket(map);
    set_item(map, key, 0);
    set_item(map, key, 0);
  }
  static void lock_in_wrong_order(Map& map) {
    Locks locks;
    locks.lock(view(map).upper(), 1);
    locks.lock(view(map).upper(), 0);
  }
  static void lock_a_larger_level_last(Map& map) {
    Locks locks;
    locks.lock(view(map).lower(), 0);
    locks.lock(view(map).upper(), 0);
  }
  static void change_without_lock(Map& map) {
    Locks locks;
    locks.changed(&view(map).upper(), 0);
  }
  static void insert_under_one_lock(Map& map) {
    const Probe p = probe(map, key_of_first_bucket(map));
    Locks locks;
    locks.lock(view(map).upper(), 0);
    (void)map.insert_locked(view(map), p, {.key = {p.word}}, true, locks);
  }
  static void fill_upper(Map& map) {
    for (std::uint64_t bucket = 0; bucket < 2; ++bucket) {
      for (std::uint32_t slot = 0; slot < Map::kSlots; ++slot) {
        view(map).upper().metas[bucket].set_print(slot, 1);
      }
    }
  }
  static void copy_bucket(Map& map, bool locks_it) {
    View<T>& v = view(map);
    Locks locks;
    if (locks_it) locks.lock(v.source(), 0);
    Map::Copied copied;
    Probe stuck;
    (void)map.copy_bucket(v, 0, locks, copied, &copied.slots[0], stuck);
  }
  static void move_without_lock(Map& map) {
    const std::uint64_t key = key_of_first_bucket(map);
    set_item(map, key, 0);
    Locks locks;
    locks.lock(view(map).upper(), 0);
    const Place victim{&view(map).upper(), 0, 0};
    const Place goal{&view(map).lower(), 0, 0};
    (void)map.move_and_put(victim, goal, probe(map, key), {.key = {key}}, locks);
  }
  static void relocate(Map& map, std::uint64_t key) {
    View<T>& v = view(map);
    for (const std::uint64_t hash : probe(map, key).hashes) {
      (void)map.relocate(v, v.source().index(hash), probe(map, key));
    }
  }
  static void store_into_a_level_that_left(Map& map, std::uint64_t key) {
    Tier<T> tier;  // in no view
    tier.log = 0;
    EXPECT_TRUE(tier.metas.reserve(1).ok());
    layout::Line line{};
    tier.lines = &line;
    tier.metas[0].lock();
    map.set_item({&tier, 0, 0}, {.key = {key}});
  }
  // The list of levels changes between the look at the bucket and its lock.
  static void lock_in_a_level_that_left(Map& map, std::uint64_t key) {
    static Map* map_now = nullptr;
    static View<T> other;
    map_now = &map;
    SimPlatform::step_hook = [](testing::StepKind kind, const char*) {
      if (kind != testing::StepKind::write) return;
      SimPlatform::step_hook = nullptr;
      map_now->view_.store(&other, std::memory_order_release);
    };
    Locks locks;
    Place place;
    (void)map.lock_item(probe(map, key), locks, place);
  }
};

namespace {

constexpr MapKinds kWords{KeyKind::integer, ValueKind::word, 8, 8};
constexpr MapKinds kRecords{KeyKind::integer, ValueKind::bytes, 8, 0};
constexpr MapKinds kArrays{KeyKind::array, ValueKind::array, 16, 15};

// A map of three buckets in a pool of its own; mutations do the background work.
template <class Codec, class Geometry = TinyGeometry>
class Table {
 public:
  using Subject = testing::LevelTraits<Codec, Geometry>;
  using Map = Level<SimPlatform, Codec, Geometry>;

  explicit Table(const MapKinds& kinds) {
    SimPlatform::seed(1);
    memory_.set_mode(SimMode::recording);
    EXPECT_TRUE(SimPool::create(memory_, testing::kTinyShape).ok());
    pool_ = std::make_unique<SimPool>(memory_);
    pool_->core().background().set_threads(0);
    EXPECT_TRUE(pool_->open(1).ok());
    EXPECT_TRUE(pool_->core().complete(true).ok());
    pool_->core().serve();
    const EngineContext<SimPlatform> context{.platform = pool_->platform(),
                                             .heap = pool_->heap(),
                                             .epochs = pool_->epochs(),
                                             .background = pool_->core().background()};
    const auto root = Subject::create(context, kinds, {});
    EXPECT_TRUE(root);
    auto map = Subject::open(context, *root);
    EXPECT_TRUE(map);
    map_ = std::move(*map);
    EXPECT_TRUE(map_->recover(false));
    map_->start();
  }
  Map& map() { return static_cast<Map&>(*map_); }
  detail::Index& index() { return map_->index(); }
  SimMemory& memory() { return memory_; }
  EpochDomain<SimPlatform>& epochs() { return pool_->epochs(); }

 private:
  const testing::ScopedWorld world_;
  SimMemory memory_{2 << 20};
  std::unique_ptr<SimPool> pool_;  // outlives the map
  std::unique_ptr<EngineInstance> map_;
};

using Words = Table<IntegerCodec>;

// `prepare` makes calls of the map, and `plant` runs in a guard.
template <class Prepare, class Plant>
void on_words(Prepare&& prepare, Plant&& plant) {
  Words table(kWords);
  prepare(table.map());
  EpochGuard<SimPlatform> guard(table.epochs());
  plant(table.map());
}
template <class Plant>
void on_words(Plant&& plant) {
  on_words([](Peek::Map&) {}, plant);
}

bool put(detail::Index& map, std::uint64_t key, std::uint64_t value) {
  const auto done = map.put({.word = key}, {.word = value, .word_size = 8});
  return done && *done;
}

// Grows through several resizes, with movements; then shrinks.
void work_under(const char* site, Mutant mutant) {
  const ScopedMutant scoped(site, mutant);
  ASSERT_TRUE(scoped.matched());
  Words table(kWords);
  for (std::uint64_t key = 1; key <= 60; ++key) put(table.map(), key, key);
  for (std::uint64_t key = 1; key <= 60; ++key) put(table.map(), key, ~key);
  for (std::uint64_t key = 1; key <= 60; ++key) (void)table.index().erase({.word = key});
}

void records_under(const char* site, Mutant mutant, bool updates) {
  const ScopedMutant scoped(site, updates ? Mutant::none : mutant);
  ASSERT_TRUE(scoped.matched());
  Table<IntegerCodec> table(kRecords);
  (void)table.index().insert({.word = 1}, {.bytes = "one"});
  scoped.site()->mutant = mutant;
  if (updates) (void)table.index().update({.word = 1}, {.bytes = "another"});
}

// Values whose second words differ: with the line's other slot free, then taken, then most of the
// bucket.
template <class Geometry = TinyGeometry>
void arrays_under(const char* site, Mutant mutant) {
  const ScopedMutant scoped(site, mutant);
  ASSERT_TRUE(scoped.matched());
  Table<ArrayCodec, Geometry> table(kArrays);
  for (const char last : {'a', 'f', 'j'}) {
    for (char round = 'a'; round <= 'c'; ++round) {
      for (char key = 'a'; key <= last; ++key) {
        (void)table.index().put({.bytes = std::string(16, key)}, {.bytes = std::string(15, round)});
      }
    }
  }
}

// A store into the new level that nothing writes back, while its descriptor is.
void publish_a_dirty_level() {
  static std::uint64_t level = 0;  // lies there again
  {
    Words table(kWords);
    put(table.map(), 1, 1);
    EXPECT_TRUE(table.map().expand().ok());
    level = Peek::view(table.map()).upper().offset;
  }
  static SimMemory* memory = nullptr;
  Words table(kWords);
  put(table.map(), 1, 1);
  memory = &table.memory();
  SimPlatform::step_hook = [](testing::StepKind, const char* site) {
    if (site == nullptr || std::string_view(site) != "level.resize.descriptor") return;
    SimPlatform::step_hook = nullptr;
    memory->store(reinterpret_cast<std::uint64_t*>(memory->base() + level), 1);
  };
  (void)table.map().expand();
}

void work() { work_under("level.insert.line", Mutant::none); }

TEST(LevelAssert, I1) {
  EXPECT_VIOLATES("level.I1", on_words([](Peek::Map& map) {
                    Peek::set_item(map, Peek::key_of_first_bucket(map), 1);
                  }));
  EXPECT_VIOLATES("level.I1", on_words(Peek::set_item_twice));
}

TEST(LevelAssert, I2) {
  EXPECT_VIOLATES("level.I2", work_under("level.move.record", Mutant::drop_fence));
  // No level is being drained.
  EXPECT_VIOLATES("level.I2", on_words(
                                  [](Peek::Map& map) {
                                    Peek::fill_upper(map);
                                    put(map, 1, 1);
                                  },
                                  [](Peek::Map& map) { Peek::copy_bucket(map, true); }));
}

TEST(LevelAssert, I3) {
  for (const char* site : {"level.resize.descriptor", "level.resize.root"}) {
    EXPECT_VIOLATES("level.I3", work_under(site, Mutant::drop_fence)) << site;
  }
  EXPECT_VIOLATES("level.I3", publish_a_dirty_level());
  EXPECT_VIOLATES("level.I3", records_under("level.record.write", Mutant::drop_fence, false));
  EXPECT_VIOLATES("level.I3", records_under("level.record.write", Mutant::drop_fence, true));
  EXPECT_VIOLATES("level.I3", arrays_under("level.update.record", Mutant::drop_fence));
  // A level leaves although an item is still counted in it.
  EXPECT_VIOLATES("level.I3", {
    Words table(kWords);
    Peek::view(table.map()).lower().add(1);
    for (std::uint64_t key = 1; key <= 60; ++key) put(table.map(), key, key);
  });
}

TEST(LevelAssert, I4) {
  for (const char* site :
       {"level.insert.line", "level.update.value", "level.erase.token", "level.move.copy",
        "level.move.replace", "level.drain.copy", "level.drain.clear"}) {
    EXPECT_VIOLATES("level.I4", work_under(site, Mutant::drop_fence)) << site;
  }
  for (const char* site : {"level.update.slot", "level.update.array", "level.update.clear"}) {
    EXPECT_VIOLATES("level.I4", arrays_under(site, Mutant::drop_fence)) << site;
  }
  for (const char* site : {"level.update.copy", "level.update.old"}) {
    EXPECT_VIOLATES("level.I4", arrays_under<testing::TwoLineGeometry>(site, Mutant::drop_fence))
        << site;
  }
  EXPECT_VIOLATES("level.I4", {
    Words table(kWords);
    Peek::fill_upper(table.map());
    put(table.map(), 1, 1);
    EXPECT_TRUE(table.map().expand().ok());
    const ScopedMutant scoped("level.drain.clear", Mutant::drop_fence);
    Peek::relocate(table.map(), 1);
  });
  EXPECT_VIOLATES("level.I4", Meta<SimPlatform>().unlock(true));
  EXPECT_VIOLATES("level.I4", on_words(Peek::show));
  EXPECT_VIOLATES("level.I4", on_words(Peek::hide));
  EXPECT_VIOLATES("level.I4", on_words([](Peek::Map& map) {
                    Peek::set_item(map, Peek::key_of_first_bucket(map), 0, false);
                  }));
}

TEST(LevelAssert, I5) {
  EXPECT_VIOLATES("level.I5", on_words(Peek::lock_in_wrong_order));
  EXPECT_VIOLATES("level.I5", on_words(Peek::lock_a_larger_level_last));
  EXPECT_VIOLATES("level.I5", on_words(Peek::change_without_lock));
  EXPECT_VIOLATES("level.I5", on_words(Peek::insert_under_one_lock));
}

TEST(LevelAssert, I6) {
  EXPECT_VIOLATES("level.I6",
                  on_words([](Peek::Map& map) { Peek::store_into_a_level_that_left(map, 1); }));
  EXPECT_VIOLATES("level.I6",
                  on_words([](Peek::Map& map) { put(map, 1, 1); },
                           [](Peek::Map& map) { Peek::lock_in_a_level_that_left(map, 1); }));
}

TEST(LevelAssert, I7) {
  EXPECT_VIOLATES("level.I7", on_words(Peek::move_without_lock));
  EXPECT_VIOLATES("level.I7", on_words(
                                  [](Peek::Map& map) {
                                    put(map, 1, 1);
                                    EXPECT_TRUE(map.expand().ok());
                                    for (std::uint64_t key = 2;
                                         Peek::view(map).source().items() == 0; ++key) {
                                      put(map, key, 1);
                                    }
                                  },
                                  [](Peek::Map& map) { Peek::copy_bucket(map, false); }));
}

// The same without a plant.
TEST(LevelAssert, SoundOperationsViolateNothing) {
  work();
  records_under("level.record.write", Mutant::none, true);
  arrays_under("level.update.slot", Mutant::none);
  arrays_under<testing::TwoLineGeometry>("level.update.copy", Mutant::none);
}

}  // namespace
}  // namespace perdure::level
