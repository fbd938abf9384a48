// test: cross
// The directory of the multi-version store: PhaST's inner nodes over leaves of its own.
#include "index/pskiplist/directory.h"
#include "index/ordered/scan_range.h"
#include "index/traits.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>

#include "platform/real_platform.h"

namespace perdure::pskiplist {
namespace {

// Leaves of integer keys read no record: the heap is never attached.
class NoStorage final : public Storage {
 public:
  std::byte* base() const noexcept override { return nullptr; }
  std::uint64_t size() const noexcept override { return 0; }
  std::uint64_t capacity() const noexcept override { return 0; }
  Status allocate(std::uint64_t, std::uint64_t) noexcept override { return {}; }
  Status punch(std::uint64_t, std::uint64_t) noexcept override { return {}; }
  Status sync(std::uint64_t, std::uint64_t) noexcept override { return {}; }
};

using P = RealPlatform;
using Tiny = Directory<Traits<P, IntegerCodec, TinyGeometry>>;

// Leaves split and are unlinked all the time. A shortcut that was rebuilt before a split was listed
// used to name the left leaf for keys of the right one, even after it was unlinked. Finds there
// never ended.
TEST(Directory, SplitsAndUnlinksAgainstASet) {
  for (std::uint64_t seed = 1; seed < 200; ++seed) {
    P platform;
    NoStorage storage;
    EpochDomain<P> epochs(platform);
    const Heap<P> heap(platform, storage, epochs);
    NodeTable<P> nodes;
    ASSERT_TRUE(nodes.reserve(200).ok());
    Tiny directory(platform, heap, nodes, epochs);
    ASSERT_TRUE(directory.reserve(500).ok());
    ASSERT_TRUE(directory.build(nullptr, 0, 1).ok());
    std::mt19937_64 random(seed);
    std::set<std::uint64_t> model;
    for (int i = 0; i < 400; ++i) {
      std::uint64_t key = random() % 36;
      if (random() % 3 == 0) key = ~key;
      const auto node = static_cast<std::uint32_t>(key < 36 ? 1 + key : 101 + ~key);
      nodes[node].key = key;
      const Probe probe = IntegerCodec::probe({.word = key});
      {
        const EpochGuard<P> guard(epochs);
        if (random() % 2 == 0) {
          const auto there = directory.put(probe, node);
          ASSERT_TRUE(there);
          ASSERT_EQ(*there == 0, model.insert(key).second);
        } else if (model.erase(key) != 0) {
          directory.remove(probe, node);
        }
        ASSERT_EQ(directory.find(probe), model.contains(key) ? node : 0);
        ASSERT_EQ(directory.find_listed(probe), model.contains(key) ? node : 0);
        const Hint hint = directory.find_hinted(probe);
        ASSERT_EQ(hint.node, model.contains(key) ? node : 0);
        ASSERT_EQ(hint.absent, !model.contains(key));
        ASSERT_EQ(directory.hints(), model.size());
      }
      epochs.drain_all();
    }
    Tiny::Batch batch;
    std::set<std::uint64_t> seen;
    const EpochGuard<P> guard(epochs);
    Probe position{};
    for (bool end = false; !end; position = ordered::behind<IntegerCodec>(batch, false, end)) {
      directory.collect(position, batch);
      seen.insert(batch.words, batch.words + batch.count);
    }
    ASSERT_EQ(seen, model) << seed;
  }
}

// Keys are inserted in order, left of some others, and most are erased again. A leaf of each inner
// node stays until there is no memory for further nodes. Leaves are then listed nowhere, nor are
// the remaining ones after their left neighbours go. Finds there never ended.
TEST(Directory, InnerNodesAreUsedUp) {
  using Wide = Directory<Traits<P, IntegerCodec, Geometry<4, 1, 4, 16, 1, 2, 2>>>;
  P platform;
  NoStorage storage;
  EpochDomain<P> epochs(platform);
  const Heap<P> heap(platform, storage, epochs);
  NodeTable<P> nodes;
  ASSERT_TRUE(nodes.reserve(5000).ok());
  Wide directory(platform, heap, nodes, epochs);
  constexpr std::size_t kLeaves = 400;  // 172 inner nodes of up to 16 leaves
  ASSERT_TRUE(directory.reserve(kLeaves).ok());
  ASSERT_TRUE(directory.build(nullptr, 0, 1).ok());
  std::set<std::uint64_t> model;
  const auto node_of = [](std::uint64_t key) {
    return static_cast<std::uint32_t>(key < 4500 ? 1 + key : 4501 + key % 64);
  };
  const auto put = [&](std::uint64_t key) {
    const EpochGuard<P> guard(epochs);
    nodes[node_of(key)].key = key;
    ASSERT_TRUE(directory.put(IntegerCodec::probe({.word = key}), node_of(key)));
    model.insert(key);
  };
  const auto remove = [&](std::uint64_t key) {
    const EpochGuard<P> guard(epochs);
    if (model.erase(key) != 0) directory.remove(IntegerCodec::probe({.word = key}), node_of(key));
  };
  const auto expect_all = [&](std::uint64_t below) {
    const EpochGuard<P> guard(epochs);
    for (std::uint64_t key = 0; key < below; ++key) {
      const Probe probe = IntegerCodec::probe({.word = key});
      ASSERT_EQ(directory.find_listed(probe), model.contains(key) ? node_of(key) : 0U) << key;
      ASSERT_EQ(directory.find(probe), model.contains(key) ? node_of(key) : 0U) << key;
    }
  };
  constexpr std::uint64_t kStride = 16;  // leaves of two keys, eight to a node
  constexpr std::uint64_t kKeys = 240 * kStride;
  for (std::uint64_t i = 0; i < 12; ++i) put((1ULL << 40) + i);
  for (std::uint64_t key = 0; key < kKeys; ++key) {
    put(key);
    // Far enough behind that the node has been split.
    if (key >= 40 && (key - 40) % kStride != 0) remove(key - 40);
    epochs.drain_all();
  }
  expect_all(kKeys + 10);
  // All remaining keys go, also those of leaves that are not listed.
  for (std::uint64_t key = 0; key < kKeys; ++key) {
    remove(key);
    epochs.drain_all();
    if (key % 499 == 0) expect_all(kKeys);
  }
  for (std::uint64_t key = 0; key < 40; ++key) put(kKeys / 2 + key * 7);
  expect_all(kKeys);
}

}  // namespace
}  // namespace perdure::pskiplist
