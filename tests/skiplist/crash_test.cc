// test: explores
// The skiplists under the crash explorer. A ids are those of docs/design/hazards.md, K ids those of
// docs/design/atomic_skiplists.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <set>

#include "testing/crash/workloads.h"
#include "testing/engines/skiplist_subject.h"
#include "testing/schedule/race_ops.h"
#include "tests/support/explorations.h"

namespace perdure::testing {
namespace {

const MapSetup kWords{.background_thread = false};
const MapSetup kRecords{.values = ValueKind::bytes, .background_thread = false};

std::vector<Op> inserts(std::uint64_t n) {  // n: no multiple of 5
  std::vector<Op> ops;
  for (std::uint64_t i = 0; i < n; ++i) ops.push_back(insert(i * 5 % n + 1, i));
  return ops;
}

template <class Kind>
class SkiplistCrash : public ::testing::Test {
 protected:
  using Words = SkiplistSubject<skiplist::IntegerCodec, Kind>;

  // Of ascs more is in flight at every moment: the links above level 0 never stop to be.
  static constexpr EnumerationLimits kLimits =
      Kind::kUpperDurable ? EnumerationLimits{.product = 4096, .random = 64, .sampled = 400}
                          : EnumerationLimits{.product = 256, .random = 16, .sampled = 60};

  static void explore_exactly(const std::vector<Op>& workload, const std::set<std::string>& sites,
                              const MapSetup& setup = kWords) {
    explore_subjects(skiplist_subjects<Kind>(KeyKind::integer, setup),
                     setup.values == ValueKind::bytes ? integer_record_op : integer_op, workload,
                     sites);
  }
  static void explore_subjects(const SubjectFactory& subjects, const OpSource& source,
                               const std::vector<Op>& workload, const std::set<std::string>& sites,
                               const std::string& variant = "") {
    ExploreOptions options = exact_options(kLimits);
    options.name = test_name() + variant;
    std::set<std::string> full;
    for (const std::string& site : sites) {
      full.insert(std::string(engine_name(Kind::kEngine)) + "." + site);
    }
    explore_workload(subjects, source, options, workload, full);
  }
  // The head and the nodes of the only map, in order.
  static std::vector<skiplist::Node*> nodes_of(Words& subject, SimMemory& memory) {
    auto& core = subject.pool().core();
    layout::Root line{};
    EXPECT_TRUE(core.read_root(*core.find_root("map0"), line).has_value());
    auto* root = reinterpret_cast<skiplist::layout::Root*>(memory.base() + line.root);
    std::vector<skiplist::Node*> nodes{&root->head};
    for (std::uint64_t link; (link = skiplist::link_at(nodes.back(), 0)) != 0;) {
      nodes.push_back(
          reinterpret_cast<skiplist::Node*>(memory.base() + (link & skiplist::kOffsetMask)));
    }
    return nodes;
  }
  // The links of these nodes above level 0.
  static std::vector<std::uint64_t*> upper_links(const std::vector<skiplist::Node*>& nodes) {
    std::vector<std::uint64_t*> links;
    for (skiplist::Node* node : nodes) {
      const std::uint32_t height = node == nodes.front() ? skiplist::TinyGeometry::kMaxHeight
                                                         : skiplist::height_of(node->state);
      for (std::uint32_t level = 1; level < height; ++level) {
        links.push_back(&skiplist::link_at(node, level));
      }
    }
    return links;
  }
  static std::string violation_of(Words& subject) {
    std::vector<std::string> violations;
    subject.check(violations);
    return violations.empty() ? "" : violations.front();
  }
  static std::set<std::string> with_upper(std::set<std::string> sites) {
    if (Kind::kUpperDurable) sites.insert({"insert.upper", "erase.upper"});
    return sites;
  }
};
using Kinds = ::testing::Types<skiplist::As, skiplist::Ascs>;
struct KindName {
  template <class Kind>
  static std::string GetName(int) {
    return std::string(engine_name(Kind::kEngine));
  }
};
TYPED_TEST_SUITE(SkiplistCrash, Kinds, KindName);

// A2, A3: a node that is reached is whole: key, value, height and links.
TYPED_TEST(SkiplistCrash, A2_NodesAreWhole) {
  this->explore_exactly(inserts(12), {"insert.node", "insert.link"});
  // Nodes of several lines.
  std::vector<Op> ops;
  for (std::uint64_t i = 0; i < 4; ++i) {
    ops.push_back({OpKind::insert, dense_key(i * 3 % 4) + std::string(30 + 9 * i, 'k'),
                   std::string(70 + 20 * i, static_cast<char>('a' + i))});
  }
  this->explore_subjects(skiplist_subjects<TypeParam>(KeyKind::bytes, kRecords), bytes_op, ops,
                         {"insert.node", "insert.link"}, ".several_lines");
}

// A4, K1: towers of every height come and go beside each other; no level leads to what is not in
// the one below, which check() looks at in every image.
TYPED_TEST(SkiplistCrash, A4_TowersHaveNoGaps) {
  std::vector<Op> ops = inserts(14);
  for (std::uint64_t key = 2; key <= 14; key += 3) {
    ops.push_back(erase(key));
    ops.push_back(erase(key + 1));
    ops.push_back(insert(key, 7));
    ops.push_back(insert(100 + key, 8));
  }
  this->explore_exactly(ops, this->with_upper({"insert.node", "insert.link", "erase.link"}));
}

// A5, A7: the links above level 0 say nothing after an unclean stop: with all of them turned to
// garbage nothing is missed, and no level has a node twice.
using AscsCrash = SkiplistCrash<skiplist::Ascs>;
TEST_F(AscsCrash, A5_UpperLevelsAreNotTrusted) {
  SimPlatform::seed(1);
  SimMemory memory(2 << 20);
  Model model;
  auto subject = std::make_unique<Words>(kWords);
  ASSERT_TRUE(subject->create(memory).ok());
  ASSERT_TRUE(subject->open(memory, 1).ok());
  std::vector<Op> ops = inserts(41);
  for (std::uint64_t key = 1; key <= 41; key += 3) ops.push_back(erase(key));
  for (const Op& op : ops) {
    ASSERT_TRUE(subject->apply(op).has_value());
    apply_to(model, op);
  }
  const auto nodes = nodes_of(*subject, memory);
  memory.settle();
  memory.set_mode(SimMode::frozen);
  subject.reset();
  // Of each node in turn: another node of the map, what was erased, no node at all, or nothing.
  std::vector<std::uint64_t> links;
  for (const skiplist::Node* node : nodes) {
    if (skiplist::link_at(node, 0) != 0) links.push_back(skiplist::link_at(node, 0));
  }
  ASSERT_EQ(nodes.size(), model.size() + 1);
  std::uint64_t spoilt = 0;
  for (std::uint64_t* link : upper_links(nodes)) {
    const std::uint64_t garbage[] = {links[spoilt * 7 % links.size()], 0, ~0ULL,
                                     skiplist::link_to(spoilt * 32)};
    *link = garbage[spoilt++ % 4];
  }
  EXPECT_GT(spoilt, 10U);
  memory.set_mode(SimMode::plain);
  subject = std::make_unique<Words>(kWords);
  ASSERT_TRUE(subject->open(memory, 2).ok());
  EXPECT_EQ(compare(*subject, model), "");
  EXPECT_EQ(violation_of(*subject), "");
}

// A5: nor if the medium has kept the links of an earlier moment. They lead to nodes that were
// erased since, and these lead back into the list, or past its end.
TEST_F(AscsCrash, A5_UpperLevelsOfThePast) {
  constexpr std::uint64_t kKeys = 41;
  const std::function<bool(std::uint64_t)> erased[] = {
      [](std::uint64_t) { return true; },
      [](std::uint64_t key) { return key != 20; },
      [](std::uint64_t key) { return key % 2 == 0; },
      [](std::uint64_t key) { return key % 5 != 0; },
      [](std::uint64_t key) { return key < 20; },
      [](std::uint64_t key) { return key > 20; },
      [](std::uint64_t key) { return key > 10 && key < 30; },
  };
  for (std::size_t i = 0; i < 2 * std::size(erased); ++i) {
    SCOPED_TRACE(i);
    const auto& goes = erased[i / 2];
    const bool closed = i % 2 != 0;
    SimPlatform::seed(1);
    SimMemory memory(2 << 20);
    Model model;
    auto subject = std::make_unique<Words>(kWords);
    ASSERT_TRUE(subject->create(memory).ok());
    ASSERT_TRUE(subject->open(memory, 1).ok());
    const auto apply = [&](const Op& op) {
      apply_to(model, op);
      return subject->apply(op).has_value();
    };
    for (const Op& op : inserts(kKeys)) ASSERT_TRUE(apply(op));
    const auto nodes = nodes_of(*subject, memory);
    std::vector<std::pair<std::uint64_t*, std::uint64_t>> links;
    for (std::uint64_t* link : upper_links(nodes)) links.emplace_back(link, *link);
    for (std::uint64_t key = 1; key <= kKeys; ++key) {
      if (!goes(key)) continue;
      ASSERT_TRUE(apply(erase(key)));
    }
    ASSERT_TRUE(!closed || subject->close().ok());
    memory.settle();
    memory.set_mode(SimMode::frozen);
    subject.reset();
    for (const auto& [place, link] : links) *place = link;
    // Where a node was, there may be anything: here a height that no node has.
    for (std::uint64_t key = 1; closed && key <= kKeys; ++key) {
      if (goes(key)) nodes[key]->state = ~skiplist::kErased;
    }
    memory.set_mode(SimMode::plain);
    subject = std::make_unique<Words>(kWords);
    ASSERT_TRUE(subject->open(memory, 2).ok());
    EXPECT_EQ(compare(*subject, model), "");
    EXPECT_EQ(violation_of(*subject), "");
    memory.set_mode(SimMode::frozen);
  }
}

// A5: nor those of the head of a map that was emptied: of its links the medium keeps what it likes.
TEST_F(AscsCrash, A5_AnEmptiedMap) {
  constexpr std::uint64_t kKeys = 16;
  for (const std::uint32_t spoilt : {1U, 2U, 4U, 7U}) {  // bit i: the link of level i + 1
    SCOPED_TRACE(spoilt);
    SimPlatform::seed(1);
    SimMemory memory(2 << 20);
    Model model;
    auto subject = std::make_unique<Words>(kWords);
    ASSERT_TRUE(subject->create(memory).ok());
    ASSERT_TRUE(subject->open(memory, 1).ok());
    for (std::uint64_t key = 1; key <= kKeys; ++key) {
      ASSERT_TRUE(subject->apply(insert(key, key)).has_value());
    }
    const auto nodes = nodes_of(*subject, memory);
    ASSERT_EQ(nodes.size(), kKeys + 1);
    for (std::uint64_t key = 1; key <= kKeys; ++key) {
      ASSERT_TRUE(subject->apply(erase(key)).has_value());
    }
    memory.settle();
    memory.set_mode(SimMode::frozen);
    subject.reset();
    for (std::uint32_t level = 1; level < skiplist::TinyGeometry::kMaxHeight; ++level) {
      if ((spoilt >> (level - 1) & 1) == 0) continue;
      const auto offset = reinterpret_cast<std::byte*>(nodes[3 * level]) - memory.base();
      skiplist::link_at(nodes.front(), level) =
          skiplist::link_to(static_cast<std::uint64_t>(offset));
    }
    memory.set_mode(SimMode::plain);
    subject = std::make_unique<Words>(kWords);
    ASSERT_TRUE(subject->open(memory, 2).ok());
    EXPECT_EQ(violation_of(*subject), "");
    for (std::uint64_t key = 1; key <= kKeys; ++key) {
      const Op op = insert(key * 3, key);
      ASSERT_TRUE(subject->apply(op).value_or(false)) << "key " << key * 3;
      apply_to(model, op);
    }
    EXPECT_EQ(compare(*subject, model), "");
    EXPECT_EQ(violation_of(*subject), "");
    memory.set_mode(SimMode::frozen);
  }
}

// A4, A5: the links of the head, and of a tower, lie in two lines, of which a crash keeps either:
// beside each other, in a map that is emptied, in one that is filled again.
TYPED_TEST(SkiplistCrash, A4_A5_TowersOfTwoLines) {
  std::vector<Op> ops;
  const std::uint64_t first[] = {15, 5, 23, 2, 14};  // heights 8, 6, 8, 3, 7
  for (const std::uint64_t key : first) ops.push_back(insert(key, key));
  ops.push_back({OpKind::reopen, {}, {}});
  for (const std::uint64_t key : first) ops.push_back(erase(key));
  for (const std::uint64_t key : {7, 22, 13}) ops.push_back(insert(key, key));  // 8, 7, 6
  this->explore_subjects([] { return std::make_unique<TallSubject<TypeParam>>(kWords); },
                         integer_op, ops,
                         this->with_upper({"insert.node", "insert.link", "erase.link"}));
}

// K2: a thread links a tower and ends; another one that gets its slot unlinks what came behind it.
// The power fails: what no thread has fenced is lost.
TYPED_TEST(SkiplistCrash, K2_TheThreadOfATowerEnds) {
  using Subject = typename SkiplistCrash<TypeParam>::Words;
  constexpr std::uint32_t kSlot = 3;
  for (const SimMedium medium : {SimMedium::line, SimMedium::page}) {
    for (std::uint64_t n = 0; n < scaled(40); ++n) {
      const std::uint64_t key = 20 + n % 8 * 10;
      const ScopedWorld world;
      SimPlatform::seed(1);
      SimMemory memory(2 << 20);
      MapSetup setup = kWords;
      setup.medium = medium;
      auto subject = std::make_unique<Subject>(setup);
      ASSERT_TRUE(subject->create(memory).ok());
      ASSERT_TRUE(subject->open(memory, 1).ok());
      Model model;
      const auto apply = [&](const Op& op) {
        apply_to(model, op);
        return subject->apply(op).has_value();
      };
      for (std::uint64_t k = 10; k <= 100; k += 10) ASSERT_TRUE(apply(insert(k, k)));
      memory.settle();
      SimPlatform::world().thread = kSlot;
      for (const Op& op : {insert(key - 1 - n / 8, 1), erase(key)}) {
        ASSERT_TRUE(apply(op));
        memory.end_thread(kSlot);
      }
      const auto pending = memory.pending();
      SimMemory after(2 << 20);
      after.load_image(memory, memory.image(pending, std::vector<std::uint32_t>(pending.size(), 0),
                                            false, false));
      memory.set_mode(SimMode::frozen);
      auto survivor = std::make_unique<Subject>(setup);
      ASSERT_TRUE(survivor->open(after, 2).ok());
      EXPECT_EQ(compare(*survivor, model), "") << "key " << key << ", " << n;
      EXPECT_EQ(this->violation_of(*survivor), "") << "key " << key << ", " << n;
    }
  }
}

// An erase that trusted the height of a node that is damaged would leave it linked above.
TYPED_TEST(SkiplistCrash, A8_NothingIsErasedByADamagedHeight) {
  using Subject = typename SkiplistCrash<TypeParam>::Words;
  SimPlatform::seed(1);
  SimMemory memory(2 << 20);
  auto subject = std::make_unique<Subject>(kWords);
  ASSERT_TRUE(subject->create(memory).ok());
  ASSERT_TRUE(subject->open(memory, 1).ok());
  for (const Op& op : inserts(12)) ASSERT_TRUE(subject->apply(op).has_value());
  memory.set_mode(SimMode::plain);
  auto nodes = this->nodes_of(*subject, memory);
  nodes.erase(nodes.begin());
  for (skiplist::Node* node : nodes) {
    for (unsigned bit = 58; bit < 63; ++bit) {
      node->state ^= 1ULL << bit;
      const auto result = subject->apply(erase(node->key));
      ASSERT_FALSE(result.has_value()) << "key " << node->key << ", bit " << bit;
      EXPECT_EQ(result.error().code(), StatusCode::corruption);
      node->state ^= 1ULL << bit;
    }
  }
  EXPECT_EQ(this->violation_of(*subject), "");
  for (const skiplist::Node* node : nodes) ASSERT_TRUE(*subject->apply(erase(node->key)));
  memory.set_mode(SimMode::frozen);
}

// Counts what is read; at one of these reads, and no other, a node is of another height, as in a
// file that another program changes under it.
struct Reads {
  static inline std::uint64_t count = 0;
  static inline std::uint64_t at = 0;
  static inline skiplist::Node* node = nullptr;

  explicit Reads(skiplist::Node* changed = nullptr, std::uint64_t when = 0) {
    count = 0;
    at = when;
    node = changed;
    SimPlatform::step_hook = [](StepKind kind, const char*) {
      if (kind != StepKind::read) return;
      ++count;
      if (node != nullptr && (count == at || count == at + 1)) node->state ^= kHeights;
    };
  }
  ~Reads() {
    SimPlatform::step_hook = nullptr;
    if (node != nullptr && count == at) node->state ^= kHeights;
  }
  Reads(const Reads&) = delete;
  Reads& operator=(const Reads&) = delete;

 private:
  static constexpr std::uint64_t kHeights = 31ULL << 58;
};

// Whatever height a node has had when it was found whole is the one that its links are made for.
TYPED_TEST(SkiplistCrash, A5_AHeightIsReadOnce) {
  using Subject = typename SkiplistCrash<TypeParam>::Words;
  SimPlatform::seed(1);
  SimMemory memory(2 << 20);
  Model model;
  std::vector<skiplist::Node*> nodes;
  {
    Subject subject(kWords);
    ASSERT_TRUE(subject.create(memory).ok());
    ASSERT_TRUE(subject.open(memory, 1).ok());
    for (const Op& op : inserts(6)) {
      ASSERT_TRUE(subject.apply(op).has_value());
      apply_to(model, op);
    }
    nodes = this->nodes_of(subject, memory);
    ASSERT_TRUE(subject.close().ok());
  }
  memory.settle();
  SimMemory scratch(2 << 20);
  const auto open = [&](skiplist::Node* node, std::uint64_t at) {
    scratch.load_image(memory, {.size = memory.size(), .lines = {}, .bytes = {}});
    if (node != nullptr) {
      node = reinterpret_cast<skiplist::Node*>(
          scratch.base() + (reinterpret_cast<std::byte*>(node) - memory.base()));
    }
    Subject subject(kWords);
    const Status opened = [&] {
      const Reads reads(node, at);
      return subject.open(scratch, 1);
    }();
    if (opened.ok()) {
      EXPECT_EQ(compare(subject, model), "");
      EXPECT_EQ(this->violation_of(subject), "");
    } else {
      EXPECT_EQ(opened.code(), StatusCode::corruption);
    }
    scratch.set_mode(SimMode::frozen);
  };
  open(nullptr, 0);
  const std::uint64_t reads = Reads::count;
  ASSERT_GT(reads, 20U);
  for (std::uint64_t at = 1; at <= reads; ++at) open(nodes[3], at);
}

// Keys in a cluster share an interval of the fingers, whose node may lie before all of them.
TYPED_TEST(SkiplistCrash, AFingerFarAwayIsLeft) {
  using Subject = typename SkiplistCrash<TypeParam>::Words;
  constexpr std::uint64_t kKeys = 401;
  constexpr std::uint64_t kMost = 1'400;  // reads; through all nodes it would be about 2,800
  SimPlatform::seed(1);
  SimMemory memory(2 << 20);
  memory.set_mode(SimMode::plain);
  Subject subject(kWords);
  ASSERT_TRUE(subject.create(memory).ok());
  ASSERT_TRUE(subject.open(memory, 1).ok());
  ASSERT_TRUE(subject.apply(insert(~std::uint64_t{0}, 1)).has_value());
  for (const Op& op : inserts(kKeys)) ASSERT_TRUE(subject.apply(op).has_value());
  ASSERT_TRUE(subject.apply(erase(1)).has_value());
  ASSERT_TRUE(subject.apply(insert(1, 1)).has_value());  // the node of their interval
  std::uint64_t most = 0;
  for (std::uint64_t key = 1; key <= kKeys; ++key) {
    const Reads reads;
    std::string value;
    ASSERT_TRUE(subject.lookup(integer_key(key), value).value_or(false));
    most = std::max(most, Reads::count);
  }
  EXPECT_LT(most, kMost);
  perdure::detail::Key keys[16];
  for (std::uint64_t i = 0; i < 16; ++i) keys[i] = {.word = kKeys - 10 * i};
  {
    const Reads reads;
    auto found = subject.index().read_many(keys, [](std::size_t, const perdure::detail::Value&) {});
    EXPECT_EQ(found.value_or(0), 16U);
    EXPECT_LT(Reads::count, 16 * kMost);
  }
  {
    const Reads reads;
    EXPECT_TRUE(subject.call(erase(kKeys)).value_or(false));
    EXPECT_LT(Reads::count, 2 * kMost);
  }
  std::printf("reads of a lookup: at most %llu\n", static_cast<unsigned long long>(most));
  memory.set_mode(SimMode::frozen);
}

// A6: a clean close vouches for nothing that is not durable, however the power fails afterwards.
TYPED_TEST(SkiplistCrash, A6_CleanCloseThenPowerFailure) {
  std::vector<Op> ops;
  for (std::uint64_t round = 0; round < 3; ++round) {
    for (std::uint64_t key = 1; key <= 6; ++key) ops.push_back(insert(key * 3 + round, key));
    ops.push_back(update(3 + round, 99));
    ops.push_back({OpKind::reopen, {}, {}});
    ops.push_back(erase(6 + round));
    ops.push_back(update(9 + round, 77));
    ops.push_back({OpKind::reopen, {}, {}});
  }
  const std::set<std::string> sites{"insert.node", "insert.link", "erase.link", "update.value"};
  this->explore_exactly(ops, sites);
  // A close that syncs has written everything back; this one marks the pool as clean all the same.
  this->explore_exactly(ops, sites, {.sync_at_close = false, .background_thread = false});
}

// A8, A9: blocks come back while what named them is durably elsewhere; nothing leaks.
TYPED_TEST(SkiplistCrash, A8_A9_BlocksAreReused) {
  std::vector<Op> ops = inserts(8);
  for (std::uint64_t round = 0; round < 3; ++round) {
    for (std::uint64_t key = 1; key <= 8; key += 2) ops.push_back(erase(key));
    for (std::uint64_t key = 1; key <= 8; key += 2) ops.push_back(insert(key, 10 * round + key));
  }
  this->explore_exactly(ops, {"insert.node", "erase.link"});
}

// A10, 2b: a value is the old one or the new one: words in place, bytes by a blob that is durable
// before it is named.
TYPED_TEST(SkiplistCrash, A10_Updates) {
  this->explore_exactly({insert(5, 1), insert(6, 2), update(5, 7), update(6, 9), update(5, 8)},
                        {"update.value"});
  const auto value = [](std::uint64_t key, std::size_t n, char c) {
    return Op{OpKind::upsert, integer_key(key), std::string(n, c)};
  };
  this->explore_exactly({value(5, 30, 'a'), value(6, 1100, 'b'), value(5, 100, 'c'),
                         value(6, 20, 'd'), value(5, 0, 'e'), erase(5), value(5, 1200, 'f')},
                        {"update.value", "blob.write"}, kRecords);
}

}  // namespace
}  // namespace perdure::testing
