// test: explores
// The multi-version store beside others that use its pool: an owner that stores while a reader
// looks from outside, a seal, readers that keep what is dead.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "testing/engines/pskiplist_subject.h"

namespace perdure::testing {
namespace {

using pskiplist::BytesCodec;
using pskiplist::IntegerCodec;

// Small, so that what a map reserves is, and its nodes can be used up.
MapSetup words() {
  MapSetup setup{.background_thread = false};
  setup.shape.max_bytes = 256 << 10;
  return setup;
}

// ---- A look at a pool in use ----

// Counts what is read while this lives; from one of these reads on a word is another.
class OwnerStores {
 public:
  OwnerStores(std::uint64_t& word, std::uint64_t value, std::uint64_t at)
      : before_(word), unhook_(SimPlatform::step_hook) {
    reads_ = 0;
    at_ = at;
    word_ = &word;
    value_ = value;
    SimPlatform::step_hook = [](StepKind kind, const char*) {
      if (kind == StepKind::read && ++reads_ == at_) *word_ = value_;
    };
  }
  ~OwnerStores() {
    SimPlatform::step_hook = unhook_;
    *word_ = before_;
  }
  OwnerStores(const OwnerStores&) = delete;
  OwnerStores& operator=(const OwnerStores&) = delete;
  bool stored() const { return reads_ >= at_; }

 private:
  static inline std::uint64_t reads_ = 0;
  static inline std::uint64_t at_ = 0;
  static inline std::uint64_t* word_ = nullptr;
  static inline std::uint64_t value_ = 0;
  std::uint64_t before_;
  void (*unhook_)(StepKind kind, const char* site);
};

template <class Codec>
class Looked {
 public:
  using Map = pskiplist::PSkipList<SimPlatform, Codec, pskiplist::TinyGeometry>;
  using Chain = pskiplist::KeyChain<Traits<SimPlatform, Codec, pskiplist::TinyGeometry>>;

  Looked() {
    SimPlatform::seed(1);
    EXPECT_TRUE(subject_.create(memory_).ok());
    EXPECT_TRUE(subject_.open(memory_, 1).ok());
  }
  ~Looked() { memory_.set_mode(SimMode::frozen); }
  Looked(const Looked&) = delete;
  Looked& operator=(const Looked&) = delete;

  void put(const std::string& key, std::uint64_t value) {
    const std::string bytes(reinterpret_cast<const char*>(&value), sizeof(value));
    ASSERT_TRUE(subject_.apply({OpKind::upsert, key, bytes}).has_value());
  }
  void tag() { ASSERT_TRUE(subject_.versioned().tag().has_value()); }

  std::uint64_t root() {
    auto& core = subject_.pool().core();
    layout::Root line{};
    EXPECT_TRUE(core.read_root(*core.find_root("map0"), line).has_value());
    return line.root;
  }
  std::uint64_t& word(std::uint64_t offset) {
    return *reinterpret_cast<std::uint64_t*>(memory_.base() + offset);
  }
  // The slot of the n-th key.
  std::uint64_t slot(std::uint32_t n) {
    std::uint64_t block = word(root() + offsetof(pskiplist::layout::Root, chain));
    for (; n >= Chain::kSlots; n -= Chain::kSlots) block = word(block);
    return Chain::slot_in(block, n);
  }
  std::uint64_t size() const { return memory_.size(); }

  // Look after look, each of which meets that store of the owner a little later. What is seen is
  // served, or refused: nothing leads out of the pool.
  void expect_figures_or_an_error(std::uint64_t offset, std::uint64_t value,
                                  std::uint64_t stride = 1) {
    const std::uint64_t its_root = root();
    std::uint64_t served = 0;
    std::uint64_t refused = 0;
    for (std::uint64_t at = 1;; at += stride) {
      const OwnerStores store(word(offset), value, at);
      const Status s = look(its_root);
      ++(s.ok() ? served : refused);
      ASSERT_TRUE(s.ok() || s == StatusCode::corruption) << "at read " << at << ": " << s.message();
      if (!store.stored()) break;
    }
    EXPECT_NE(served, 0U);
    EXPECT_GT(served + refused, 20U);
  }

 private:
  // The pool's sweep has ended: what is marked once more is marked.
  Status look(std::uint64_t its_root) {
    auto& pool = subject_.pool();
    const EngineContext<SimPlatform> context{.platform = pool.platform(),
                                             .heap = pool.heap(),
                                             .epochs = pool.epochs(),
                                             .background = pool.core().background(),
                                             .threads = 1,
                                             .read_only = true};
    auto map = Map::open(context, its_root);
    if (!map) return std::move(map.error());
    if (auto recovered = (*map)->recover(false); !recovered) return std::move(recovered.error());
    auto& versions = *(*map)->versioned();
    const auto ignore = [](std::span<const perdure::detail::Entry>) { return true; };
    auto done = versions.scan({}, ignore);
    if (done) done = versions.scan_at(versions.versions().last, {.reverse = true}, ignore);
    EngineStats stats;
    versions.stats(stats);
    return done ? Status() : std::move(done.error());
  }

  SimMemory memory_{2 << 20};
  PskiplistSubject<Codec, pskiplist::TinyGeometry> subject_{words()};
};

// Links that are stored under a look: out of the pool, behind what it knows, into the middle of a
// block, to a block of another kind.
TEST(PskiplistLook, LinksChangeUnderIt) {
  Looked<IntegerCodec> looked;
  for (std::uint64_t i = 0; i < 6; ++i) {
    looked.put(integer_key(1), i);
    looked.tag();
  }
  looked.put(integer_key(2), 7);
  const std::uint64_t more = looked.slot(0) + offsetof(pskiplist::layout::Slot, more);
  const std::uint64_t first = looked.word(more);
  ASSERT_NE(first, 0U);
  for (const std::uint64_t link : {more, first}) {
    for (const std::uint64_t value :
         {std::uint64_t{0x4141414141414140}, looked.size() + 64, first + 16, looked.root()}) {
      looked.expect_figures_or_an_error(link, value);
    }
  }
}

// Keys of which the first bytes decide nothing are compared where they lie: one of them rises, or
// falls, between two comparisons. It is in the middle, where a sort takes its pivot.
TEST(PskiplistLook, KeysChangeUnderIt) {
  constexpr std::uint32_t kKeys = 40;
  Looked<BytesCodec> looked;
  for (std::uint32_t i = 0; i < kKeys; ++i) {
    looked.put("customer:" + std::to_string(10 + i), i);
  }
  looked.tag();
  const std::uint64_t record = looked.word(looked.slot(kKeys / 2));
  const std::uint64_t behind_head = record + sizeof(RecordPrefix) + 8;
  ASSERT_EQ(std::memcmp(&looked.word(behind_head), ":30", 3), 0);
  for (const char* bytes : {"zzzzzzz", "\0\0\0\0\0\0\0"}) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes, sizeof(value));
    looked.expect_figures_or_an_error(behind_head, value, 5);
  }
}

// ---- Seals ----

// Each store asks whether its thread is in a guard: no epoch goes by twice then.
class InGuards final : public StoreWatch {
 public:
  explicit InGuards(SimPool& pool) : pool_(pool) { pool_.platform().watch_stores(this); }
  ~InGuards() { pool_.platform().watch_stores(nullptr); }
  InGuards(const InGuards&) = delete;
  InGuards& operator=(const InGuards&) = delete;
  void before_store() noexcept override {
    ++stores;
    const std::uint64_t before = pool_.epochs().epoch();
    pool_.epochs().drain_all();
    if (pool_.epochs().epoch() >= before + 2) ++outside;
  }
  std::uint64_t stores = 0;
  std::uint64_t outside = 0;

 private:
  SimPool& pool_;
};

// S1 of format/seal.h.
TEST(PskiplistSeal, S1_ARollbackStoresInGuards) {
  SimMemory memory(2 << 20);
  PskiplistSubject<IntegerCodec> subject(words());
  ASSERT_TRUE(subject.create(memory).ok());
  ASSERT_TRUE(subject.open(memory, 1).ok());
  for (std::uint64_t i = 0; i < 5; ++i) {
    for (std::uint64_t key = 0; key < 3; ++key) {
      ASSERT_TRUE(subject.apply({OpKind::upsert, integer_key(key), std::string(8, 'v')}));
    }
    ASSERT_TRUE(subject.versioned().tag().has_value());
  }
  for (std::uint64_t version = 4; version > 1; --version) {  // with a new limit, and without
    subject.reclaim();
    InGuards watch(subject.pool());
    ASSERT_TRUE(subject.versioned().rollback(version).ok());
    EXPECT_GT(watch.stores, 4U);
    EXPECT_EQ(watch.outside, 0U) << "version " << version;
  }
  memory.set_mode(SimMode::frozen);
}

// ---- Guesses ----

// Keys that come one after the other have slots in a row, and an open gives their nodes in that
// order: so the slots of most are where those of their neighbours say.
TEST(PskiplistGuess, SlotsAreLikelyWhereTheirNeighboursSay) {
  using Geometry = pskiplist::DefaultGeometry;
  constexpr std::uint64_t kKeys = 1000;
  SimMemory memory(4 << 20);
  const auto likely = [&](auto& subject) {
    auto& map = static_cast<pskiplist::PSkipList<SimPlatform, IntegerCodec, Geometry>&>(
        subject.versioned());
    std::uint64_t count = 0;
    for (std::uint64_t key = 0; key < kKeys; ++key) {
      count += pskiplist::Peek::is_likely(map, {.word = key}) ? 1 : 0;
    }
    return count;
  };
  MapSetup setup = words();
  setup.shape.max_bytes = 2 << 20;
  {
    PskiplistSubject<IntegerCodec, Geometry> subject(setup);
    ASSERT_TRUE(subject.create(memory).ok());
    ASSERT_TRUE(subject.open(memory, 1).ok());
    for (std::uint64_t key = 0; key < kKeys; ++key) {
      ASSERT_TRUE(subject.apply({OpKind::insert, integer_key(key), std::string(8, 'v')}));
    }
    EXPECT_GE(likely(subject), kKeys * 9 / 10);
  }
  PskiplistSubject<IntegerCodec, Geometry> again(setup);
  ASSERT_TRUE(again.open(memory, 1).ok());
  EXPECT_GE(likely(again), kKeys * 9 / 10);
  memory.set_mode(SimMode::frozen);
}

// ---- Space ----

// Nodes of dead keys are in limbo while a thread reads; a write that finds none waits for them.
TEST(PskiplistSpace, NodesOfDeadKeysComeBack) {
  SimMemory memory(2 << 20);
  const MapSetup setup = words();
  PskiplistSubject<IntegerCodec> subject(setup);
  ASSERT_TRUE(subject.create(memory).ok());
  ASSERT_TRUE(subject.open(memory, 1).ok());
  const Op insert{OpKind::insert, integer_key(1), std::string(8, 'v')};
  const Op erase{OpKind::erase, integer_key(1), {}};
  {
    SimPlatform::world().thread = 5;
    const EpochGuard<SimPlatform> reader(subject.pool().epochs());
    SimPlatform::world().thread = 0;
    auto done = subject.call(insert);
    for (std::uint64_t i = 0; done && i < (setup.shape.max_bytes >> 4); ++i) {
      ASSERT_TRUE(*done);
      ASSERT_TRUE(subject.call(erase).has_value());
      done = subject.call(insert);
    }
    ASSERT_FALSE(done.has_value());
    EXPECT_EQ(done.error(), StatusCode::pool_full);
  }
  EXPECT_TRUE(subject.call(insert).has_value());
  memory.set_mode(SimMode::frozen);
}

}  // namespace
}  // namespace perdure::testing
