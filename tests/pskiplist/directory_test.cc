// test: cross
// The directory of the multi-version store: PhaST's inner nodes over leaves of its own.
#include "index/pskiplist/directory.h"
#include "index/ordered/scan_range.h"
#include "index/traits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <ranges>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

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

template <class D>
Status build(D& directory, std::span<const Run> runs = std::array<Run, 1>{}) {
  return directory.build(runs, 1, [] { return Status(StatusCode::corruption); });
}

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
    ASSERT_TRUE(build(directory).ok());
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
    ordered::Limits<IntegerCodec> limits({});
    for (bool more = true; more; more = limits.pass(batch, false, position)) {
      directory.collect(position, batch);
      seen.insert(batch.words, batch.words + batch.count);
    }
    ASSERT_EQ(seen, model) << seed;
  }
}

// Where byte strings lie: a file in memory, for records only.
class Buffer final : public Storage, public HeapHost {
 public:
  std::byte* base() const noexcept override { return bytes_.get(); }
  std::uint64_t size() const noexcept override { return kBytes; }
  std::uint64_t capacity() const noexcept override { return kBytes; }
  Status allocate(std::uint64_t, std::uint64_t) noexcept override { return {}; }
  Status punch(std::uint64_t, std::uint64_t) noexcept override { return {}; }
  Status sync(std::uint64_t, std::uint64_t) noexcept override { return {}; }
  Expected<std::uint64_t> grow(std::uint64_t) override { return fail(StatusCode::pool_full); }

  static constexpr std::uint64_t kBytes = 1 << 20;
  static constexpr std::uint64_t kExtent = 1 << 16;

 private:
  std::unique_ptr<std::byte[]> bytes_ = std::make_unique<std::byte[]>(kBytes);
};

// Keys with common beginnings of many lengths, some of which are keys themselves. The leaves get
// longer prefixes as they are split, and lose them when they take a left neighbour's range over.
TEST(Directory, PrefixesAgainstASet) {
  using Strings = Directory<Traits<P, BytesCodec, TinyGeometry>>;
  std::uint64_t with_prefix = 0;
  for (std::uint64_t seed = 1; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    P platform;
    Buffer storage;
    EpochDomain<P> epochs(platform);
    Heap<P> heap(platform, storage, epochs);
    const HeapGeometry geometry{.extent_bytes = Buffer::kExtent,
                                .data_offset = Buffer::kExtent,
                                .max_extents = Buffer::kBytes / Buffer::kExtent - 1};
    ASSERT_TRUE(heap.attach(geometry, geometry.max_extents, storage).ok());
    NodeTable<P> nodes;
    ASSERT_TRUE(nodes.reserve(500).ok());
    Strings directory(platform, heap, nodes, epochs);
    ASSERT_TRUE(directory.reserve(500).ok());
    ASSERT_TRUE(build(directory).ok());
    std::vector<std::string> keys(300);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      std::string key(1, random() % 8 == 0 ? 'a' : 'h');
      for (std::uint64_t part = random() % 5; part > 0; --part) {
        key += random() % 3 == 0 ? std::string(random() % 12, '\0') : "ttps://w";
        if (random() % 2 == 0) key += static_cast<char>(random() % 4 == 0 ? 0xFF : random() % 4);
      }
      keys[i] = std::move(key);
      const std::uint64_t offset = Buffer::kExtent + 512 * i;
      RecordView::write(platform, heap.at<void>(offset), keys[i], {.word = 1, .word_size = 8});
      nodes[1 + i].key = offset;
    }
    std::map<std::string, std::uint32_t> model;
    for (int i = 0; i < 1200; ++i) {
      // For a while only some are removed, so that leaves become empty.
      const std::size_t n = random() % keys.size();
      const Probe probe = BytesCodec::probe({.bytes = keys[n]});
      const auto node = static_cast<std::uint32_t>(1 + n);
      {
        const EpochGuard<P> guard(epochs);
        const auto known = model.find(keys[n]);
        if (known == model.end() && i % 400 < 250) {
          const auto there = directory.put(probe, node);
          ASSERT_TRUE(there);
          ASSERT_EQ(*there, 0U);
          model.emplace(keys[n], node);
        } else if (known != model.end() && i % 400 >= 200) {
          directory.remove(probe, known->second);
          model.erase(known);
        }
        for (const std::size_t looked : {n, random() % keys.size()}) {
          const auto there = model.find(keys[looked]);
          const std::uint32_t expected = there != model.end() ? there->second : 0;
          const Probe other = BytesCodec::probe({.bytes = keys[looked]});
          ASSERT_EQ(directory.find_listed(other), expected) << seed << ' ' << i;
          ASSERT_EQ(directory.find(other), expected);
        }
      }
      epochs.drain_all();
      if (i % 50 != 0) continue;
      const EpochGuard<P> guard(epochs);
      Strings::Batch batch;
      std::vector<std::string> seen;
      Probe position{};
      ordered::Limits<BytesCodec> limits({});
      for (bool more = true; more; more = limits.pass(batch, false, position)) {
        directory.collect(position, batch);
        with_prefix += batch.prefix != 0 ? 1 : 0;
        for (std::uint32_t k = 0; k < batch.count; ++k) {
          seen.emplace_back(directory.key_of(batch.nodes[k]));
          EXPECT_EQ(batch.words[k], batch.word_in(BytesCodec::probe({.bytes = seen.back()})));
        }
      }
      ASSERT_TRUE(std::ranges::equal(seen, model | std::views::keys));
    }
  }
  EXPECT_GE(with_prefix, 1000U);
}

// A key that was damaged after the open is no bound of a leaf: it would hide the others.
TEST(Directory, ADamagedKeyBoundsNoLeaf) {
  using Strings = Directory<Traits<P, BytesCodec, TinyGeometry>>;
  P platform;
  Buffer storage;
  EpochDomain<P> epochs(platform);
  Heap<P> heap(platform, storage, epochs);
  const HeapGeometry geometry{.extent_bytes = Buffer::kExtent,
                              .data_offset = Buffer::kExtent,
                              .max_extents = Buffer::kBytes / Buffer::kExtent - 1};
  ASSERT_TRUE(heap.attach(geometry, geometry.max_extents, storage).ok());
  NodeTable<P> nodes;
  ASSERT_TRUE(nodes.reserve(500).ok());
  Strings directory(platform, heap, nodes, epochs);
  ASSERT_TRUE(directory.reserve(500).ok());
  ASSERT_TRUE(build(directory).ok());
  const EpochGuard<P> guard(epochs);
  // The last one comes between two others, so the second is the middle of the full leaf.
  const std::string keys[] = {"https://a/0", "https://a/1", "https://a/2", "https://a/4",
                              "https://a/3"};
  const auto put = [&](std::uint32_t node) {
    const std::uint64_t offset = Buffer::kExtent + 512 * node;
    RecordView::write(platform, heap.at<void>(offset), keys[node - 1], {.word = 1, .word_size = 8});
    nodes[node].key = offset;
    return directory.put(BytesCodec::probe({.bytes = keys[node - 1]}), node);
  };
  static_assert(Strings::kKeys == 4);
  for (std::uint32_t node = 1; node <= 4; ++node) ASSERT_TRUE(put(node));
  char* const byte = heap.at<char>(nodes[2].key + sizeof(RecordPrefix));
  *byte ^= 1;
  const auto refused = put(5);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), StatusCode::corruption);
  for (const std::uint32_t node : {1U, 3U, 4U}) {
    EXPECT_EQ(directory.find_listed(BytesCodec::probe({.bytes = keys[node - 1]})), node);
  }
  *byte ^= 1;
  ASSERT_TRUE(put(5));
  for (std::uint32_t node = 1; node <= 5; ++node) {
    EXPECT_EQ(directory.find_listed(BytesCodec::probe({.bytes = keys[node - 1]})), node);
  }
}

// The runs of an open: some are empty, partitions have no key or many, and a key comes twice.
TEST(Directory, BuildOfRuns) {
  for (std::uint64_t seed = 1; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    P platform;
    NoStorage storage;
    EpochDomain<P> epochs(platform);
    const Heap<P> heap(platform, storage, epochs);
    NodeTable<P> nodes;
    ASSERT_TRUE(nodes.reserve(700).ok());
    Tiny directory(platform, heap, nodes, epochs);
    ASSERT_TRUE(directory.reserve(500).ok());
    std::vector<std::vector<Listed>> lists(1 + random() % 6);
    std::set<std::uint64_t> model;
    std::size_t twice = 0;
    const std::size_t keys = random() % 4 == 0 ? random() % 8 : random() % 600;
    const std::uint64_t high = random() % 2 == 0 ? 0 : ~std::uint64_t{0};
    for (std::size_t i = 0; i < keys; ++i) {
      const auto node = static_cast<std::uint32_t>(1 + i);
      std::uint64_t key = random() % (seed % 3 == 0 ? 900 : 1 << 20);
      if (random() % 2 == 0) key ^= high;
      twice += model.insert(key).second ? 0 : 1;
      nodes[node].key = key;
      lists[random() % lists.size()].push_back({key, node});
    }
    std::vector<pskiplist::Run> runs;
    directory.expect(keys);
    for (auto& list : lists) {
      directory.name(list);
      std::ranges::sort(list, {}, &Listed::word);
      runs.emplace_back(list);
    }
    std::size_t left_out = 0;
    ASSERT_TRUE(directory
                    .build(runs, 1,
                           [&] {
                             ++left_out;
                             return Status();
                           })
                    .ok());
    ASSERT_EQ(left_out, twice);
    Tiny::Batch batch;
    std::vector<std::uint64_t> seen;
    const EpochGuard<P> guard(epochs);
    Probe position{};
    ordered::Limits<IntegerCodec> limits({});
    for (bool more = true; more; more = limits.pass(batch, false, position)) {
      directory.collect(position, batch);
      seen.insert(seen.end(), batch.words, batch.words + batch.count);
    }
    ASSERT_TRUE(std::ranges::equal(seen, model)) << seed;
    for (const std::uint64_t key : model) {
      const Probe probe = IntegerCodec::probe({.word = key});
      const std::uint32_t node = directory.find_listed(probe);
      ASSERT_EQ(nodes[node].key, key);
      ASSERT_EQ(directory.find(probe), node);
    }
    ASSERT_EQ(directory.hints(), model.size());
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
  ASSERT_TRUE(build(directory).ok());
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
