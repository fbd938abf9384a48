// The directory of the multi-version store: PhaST's inner nodes over leaves of its own.
#include "index/pskiplist/directory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>

#include "platform/real_platform.h"

namespace perdure::pskiplist {
namespace {

// Leaves of integer keys look at no record: the heap is never attached.
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
using Tiny = Directory<P, IntegerCodec, TinyGeometry>;

// Leaves split and are unlinked all the time. A shortcut that was rebuilt before a split was listed
// went on naming the left leaf for what the right one held, also when it was unlinked: finds there
// never ended.
TEST(Directory, SplitsAndUnlinksAgainstASet) {
  for (std::uint64_t seed = 1; seed < 200; ++seed) {
    P platform;
    NoStorage storage;
    EpochDomain<P> epochs(platform);
    const Heap<P> heap(platform, storage, epochs);
    NodeTable<P> nodes;
    ASSERT_TRUE(nodes.reserve(100).ok());
    Tiny directory(platform, heap, nodes, epochs);
    ASSERT_TRUE(directory.reserve(500).ok());
    ASSERT_TRUE(directory.build(nullptr, 0).ok());
    std::mt19937_64 random(seed);
    std::set<std::uint64_t> model;
    for (int i = 0; i < 400; ++i) {
      std::uint64_t key = random() % 36;
      if (random() % 3 == 0) key = ~key;
      const auto node = static_cast<std::uint32_t>(key % 64) + 1;
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
      }
      epochs.drain_all();
    }
    Tiny::Batch batch;
    std::set<std::uint64_t> seen;
    const EpochGuard<P> guard(epochs);
    Probe position{};
    for (bool end = false; !end; position = Tiny::behind(batch, false, end)) {
      directory.collect(position, batch);
      seen.insert(batch.words, batch.words + batch.count);
    }
    ASSERT_EQ(seen, model) << seed;
  }
}

}  // namespace
}  // namespace perdure::pskiplist
