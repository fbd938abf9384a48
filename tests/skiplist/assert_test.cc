// test: explores
// The assertions of the skiplists, and what check() verifies, each with a planted violation.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "testing/engines/skiplist_subject.h"
#include "testing/sim/sites.h"
#include "tests/support/violates.h"

namespace perdure::skiplist {

// Steps of an operation, one at a time and wrongly used.
struct Peek {
  template <class M>
  struct Way {
    typename M::Path path;
    Node* node = nullptr;
  };
  template <class M>
  static Way<M> way(M& map, std::uint64_t key) {
    Way<M> way;
    (void)map.template search<M::Reach::whole>({.word = key}, &way.path, way.node);
    return way;
  }
  template <class M>
  static std::uint64_t link(M& map, const Node* node) {
    return link_to(map.offset_of(node));
  }
  // As if the thread changed every node.
  template <class M>
  static void lock(M& map) {
    for (std::uint32_t i = 0; i < M::G::kStripes; ++i) map.stripes_[i].latch.lock();
  }

  // A node of height 1, behind the head.
  template <class M>
  static void link_behind_head(M& map, std::uint64_t key) {
    typename M::Fresh fresh;
    (void)map.make_node({.word = key}, {.word = 1, .word_size = 8}, 1, fresh);
    const Way<M> way = Peek::way(map, 0);
    lock(map);
    typename M::Hold hold(map.stripes_);
    (void)map.link(way.path, fresh, hold);
  }
  template <class M>
  static void link_upper_only(M& map, const Node* node, std::uint64_t key) {
    const Way<M> way = Peek::way(map, key);
    lock(map);
    (void)map.link_upper(way.path, link(map, node), 2);
  }
  // As if the node stood behind the head in level 1.
  template <class M>
  static void unlink_elsewhere(M& map, std::uint64_t key) {
    Way<M> way = Peek::way(map, key);
    way.path.before[1] = map.head();
    lock(map);
    typename M::Hold hold(map.stripes_);
    (void)map.unlink({.word = key}, way.path, way.node, hold);
  }
  // Whose finger is looked for at another word.
  template <class M>
  static void unlink_named(M& map, std::uint64_t key) {
    const Way<M> way = Peek::way(map, key);
    map.grow_fingers();
    lock(map);
    map.name(way.node);
    typename M::Hold hold(map.stripes_);
    (void)map.unlink({.word = ~std::uint64_t{0}}, way.path, way.node, hold);
  }
  template <class M>
  static void redirect_head(M& map, std::uint32_t level) {
    map.redirect(map.head(), level, map.load_link(map.head(), level));
  }
  template <class M>
  static void redirect_erased(M& map, Node* node) {
    lock(map);
    map.redirect(node, 1, 0);
  }
  template <class M>
  static void replace(M& map, std::uint64_t key) {
    const Way<M> way = Peek::way(map, key);
    typename M::Fresh fresh;
    (void)map.replace({.word = key}, way.node, {.word = 2, .word_size = 8}, fresh);
  }
  template <class M>
  static void make_node(M& map) {
    typename M::Fresh fresh;
    (void)map.make_node({.word = 1}, {.word = 1, .word_size = 8}, 1, fresh);
  }
  template <class M>
  static void make_blob(M& map) {
    (void)map.make_blob("value");
  }
  template <class M>
  static void retire(M& map, Node* node) {
    map.retire(map.offset_of(node), 0);
  }
  template <class M>
  static void discard(M& map) {
    map.discard({});
  }
  template <class M>
  static void confirm(M& map, std::uint64_t key) {
    Way<M> way = Peek::way(map, key);
    (void)map.confirm({.word = key}, way.path, way.node);
  }
  template <class M>
  static void announce(M& map, Node* node) {
    const std::uint64_t place = map.offset_of(node);
    map.stripes_.of(place).in_flight.announce(place, &node->value);
  }
  template <class M>
  static void leave_stale(M& map) {
    map.stale_ = true;
  }
  template <class M>
  static void name(M& map, std::uint64_t key) {
    map.name(way(map, key).node);
  }
  template <class M>
  static void misname(M& map, std::uint64_t word, std::uint64_t key) {
    map.fingers_.name(word, map.offset_of(way(map, key).node));
  }
};

}  // namespace perdure::skiplist

namespace perdure::testing {
namespace {

using skiplist::Node;
using skiplist::Peek;

// The last digit of a key says how high its node is, less one.
constexpr std::uint64_t kKeys[] = {0x100, 0x203, 0x300, 0x403, 0x500};

template <class Kind>
class SkiplistAsserts : public ::testing::Test {
 protected:
  using Map = typename TallSubject<Kind>::Map;

  void SetUp() override {
    ASSERT_TRUE(subject_.create(memory_).ok());
    ASSERT_TRUE(subject_.open(memory_, 1).ok());
    for (const std::uint64_t key : kKeys) ASSERT_TRUE(apply(OpKind::insert, key));
  }
  void TearDown() override { memory_.set_mode(SimMode::frozen); }

  Map& map() { return static_cast<Map&>(subject_.index()); }
  SimPlatform& platform() { return subject_.pool().platform(); }
  auto result_of(OpKind kind, std::uint64_t key) {
    const std::string value(8, kind == OpKind::update ? 'w' : 'v');
    return subject_.apply({kind, integer_key(key), value});
  }
  bool apply(OpKind kind, std::uint64_t key) { return result_of(kind, key).value_or(false); }
  // Of nodes in different stripes.
  void insert_some() {
    for (std::uint64_t key = 0x600; key < 0x700; key += 8) (void)apply(OpKind::insert, key);
  }
  Node* node(std::uint64_t key) { return Peek::way(map(), key).node; }
  void mutated(const std::string& site, OpKind kind, std::uint64_t key) {
    const ScopedMutant mutant(std::string(engine_name(Kind::kEngine)) + "." + site,
                              Mutant::drop_fence);
    (void)apply(kind, key);
  }
  void set_erased(std::uint64_t key) {
    Node* node = this->node(key);
    platform().store(node->state, node->state | skiplist::kErased);
  }
  // What check() reports once `damage` was done.
  template <class F>
  std::string report(F&& damage) {
    damage();
    Findings report;
    subject_.index().check({.deep = true}, report);
    std::string all;
    for (const auto& line : report.violations) all += std::string(line) + "\n";
    return all;
  }

  SimMemory memory_{2 << 20};
  TallSubject<Kind> subject_;
};
using Kinds = ::testing::Types<skiplist::As, skiplist::Ascs>;
struct KindName {
  template <class Kind>
  static std::string GetName(int) {
    return std::string(engine_name(Kind::kEngine));
  }
};
TYPED_TEST_SUITE(SkiplistAsserts, Kinds, KindName);

TYPED_TEST(SkiplistAsserts, I1_ANodeIsDurableAndInItsPlace) {
  EXPECT_VIOLATES("skiplist.I1", this->mutated("insert.node", OpKind::insert, 0x250));
  EXPECT_VIOLATES("skiplist.I1", Peek::link_behind_head(this->map(), 0x250));
}

TYPED_TEST(SkiplistAsserts, I2_LevelsAreDurableOneAfterTheOther) {
  if (!TypeParam::kUpperDurable) GTEST_SKIP() << "of as";
  EXPECT_VIOLATES("skiplist.I2", this->mutated("insert.upper", OpKind::insert, 0x253));
  EXPECT_VIOLATES("skiplist.I2", this->mutated("erase.upper", OpKind::erase, 0x203));
}

TYPED_TEST(SkiplistAsserts, I3_StaleLinksAreNotFollowed) {
  Peek::leave_stale(this->map());
  EXPECT_VIOLATES("skiplist.I3", this->apply(OpKind::find, 0x100));
}

TYPED_TEST(SkiplistAsserts, I4_TowersAreLinkedFromBelowAndUnlinkedWhole) {
  Node* node = this->node(0x203);
  EXPECT_VIOLATES("skiplist.I4", Peek::link_upper_only(this->map(), node, 0x350));
  EXPECT_VIOLATES("skiplist.I4", Peek::unlink_elsewhere(this->map(), 0x403));
}

TYPED_TEST(SkiplistAsserts, I5_StoresAreOfTheHolderOfTheStripe) {
  EXPECT_VIOLATES("skiplist.I5", Peek::redirect_head(this->map(), 1));
  const ScopedMutant mutant(std::string(engine_name(TypeParam::kEngine)) + ".hold.fresh",
                            Mutant::skip_step);
  EXPECT_VIOLATES("skiplist.I5", this->insert_some());
  EXPECT_VIOLATES("skiplist.I5", Peek::replace(this->map(), 0x100));
}

TYPED_TEST(SkiplistAsserts, I5_NothingIsAllocatedOrFreedWithAStripeHeld) {
  Node* node = this->node(0x100);
  Peek::lock(this->map());
  EXPECT_VIOLATES("skiplist.I5", Peek::retire(this->map(), node));
  EXPECT_VIOLATES("skiplist.I5", Peek::make_node(this->map()));
  EXPECT_VIOLATES("skiplist.I5", Peek::make_blob(this->map()));
  EXPECT_VIOLATES("skiplist.I5", Peek::discard(this->map()));
}

TYPED_TEST(SkiplistAsserts, I6_ANodeInTheListIsNotErased) {
  EXPECT_VIOLATES("skiplist.I6", Peek::confirm(this->map(), 0x100));
  if (TypeParam::kUpperDurable) return;  // the bit may be the medium's
  this->set_erased(0x300);
  for (const OpKind kind : {OpKind::upsert, OpKind::erase}) {
    const auto result = this->result_of(kind, 0x300);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error(), StatusCode::corruption);
  }
}

TYPED_TEST(SkiplistAsserts, I7_AWordIsAnnouncedUntilItIsDurable) {
  EXPECT_VIOLATES("skiplist.I7", this->mutated("insert.link", OpKind::insert, 0x250));
  EXPECT_VIOLATES("skiplist.I7", this->mutated("erase.link", OpKind::erase, 0x300));
  EXPECT_VIOLATES("skiplist.I7", this->mutated("update.value", OpKind::update, 0x300));
  Node* node = this->node(0x100);
  Peek::announce(this->map(), node);
  EXPECT_VIOLATES("skiplist.I7", Peek::announce(this->map(), node));
  Peek::lock(this->map());
  EXPECT_VIOLATES("skiplist.I7", Peek::redirect_head(this->map(), 0));
}

TYPED_TEST(SkiplistAsserts, I8_TheLinksOfAnErasedNodeStay) {
  Node* node = this->node(0x203);
  ASSERT_TRUE(this->apply(OpKind::erase, 0x203));
  EXPECT_VIOLATES("skiplist.I8", Peek::redirect_erased(this->map(), node));
}

TYPED_TEST(SkiplistAsserts, F1_AFingerIsReadPinnedAndNamedByTheHolder) {
  SimPlatform& platform = this->platform();
  EpochDomain<SimPlatform> epochs(platform);
  skiplist::Fingers<SimPlatform> fingers(epochs);
  std::uint64_t places[skiplist::Fingers<SimPlatform>::kNear];
  EXPECT_VIOLATES("skiplist.F1", fingers.near(1, places));
  EXPECT_VIOLATES("skiplist.F1", Peek::name(this->map(), 0x100));
  EXPECT_VIOLATES("skiplist.F1", Peek::unlink_named(this->map(), 0x100));
}

TYPED_TEST(SkiplistAsserts, F2_ANodeIsNamedInItsOwnInterval) {
  if (TypeParam::kUpperDurable) GTEST_SKIP() << "its words may be the medium's";
  // The eighth entry begins the next table.
  for (const std::uint64_t key : {0x600, 0x700}) {
    ASSERT_TRUE(this->apply(OpKind::insert, key));
  }
  Peek::misname(this->map(), kKeys[0], 0x500);
  EXPECT_VIOLATES("skiplist.F2", this->apply(OpKind::insert, 0x800));
}

TYPED_TEST(SkiplistAsserts, CheckNamesWhatItVerifies) {
  EXPECT_EQ(this->report([] {}), "");
  SimPlatform& platform = this->platform();
  const auto names = [&](const char* id, auto&& damage, auto&& repair) {
    EXPECT_NE(this->report(damage).find(std::string("(") + id + ")"), std::string::npos) << id;
    repair();
    EXPECT_EQ(this->report([] {}), "") << id;
  };
  const auto spoil = [&](const char* id, std::uint64_t& word, std::uint64_t wrong) {
    const std::uint64_t right = word;
    names(id, [&] { platform.store(word, wrong); }, [&] { platform.store(word, right); });
  };
  Node* low = this->node(0x300);
  Node* high = this->node(0x203);
  spoil("skiplist.I1", low->key, 0x50);
  spoil("skiplist.I1", low->state, low->state ^ 1);
  spoil(TypeParam::kUpperDurable ? "skiplist.I2" : "skiplist.I4", skiplist::link_at(high, 1),
        Peek::link(this->map(), low));
  spoil("skiplist.I6", low->state, low->state | skiplist::kErased);
  spoil("skiplist.I9", skiplist::link_at(high, 0), skiplist::link_at(low, 0));
  Peek::announce(this->map(), low);
  EXPECT_NE(this->report([] {}).find("(skiplist.I7)"), std::string::npos);
}

}  // namespace
}  // namespace perdure::testing
