// KeyHints: from the hash of a key to the number of its node, in DRAM. A lookup takes one cache
// miss; the way through the directory takes three.
//
// WHAT  Linear hashing (Litwin, VLDB 1980) over buckets of one line, in one array. As nodes come,
//   one bucket after the other is divided between itself and a new one at the end. There is no
//   pause that grows with the number of keys, and no second table.
//   No lookup reads the number of buckets, because each division would take that line from all
//   threads. As the clients of LH* (Litwin, Neimat, Schneider, TODS 1996), threads have an image of
//   it, which may be too small. A bucket that was divided knows its level, the number of bits of
//   the hash that its keys agree on, and so leads a thread on that comes by an old image.
// WHEN NOT  The hints may be incomplete. A full bucket takes no more nodes, and a lookup may miss
//   the nodes of a bucket while it is divided. A key that is not found here is looked up in the
//   directory. Keys that were chosen to collide lose their hints, and nothing else.
// INVARIANTS (DRAM)
//   pskiplist.H1  A node that is named here is listed in a leaf: it is named after it was listed,
//       and the name goes before the node leaves the leaf. So a node that a pinned thread has seen
//       here is not reused.
//   pskiplist.H2  A node is named in the bucket that its key has by the levels, or nowhere: the
//       first `level` bits of the hash are the bucket's number. A bucket and its level change with
//       its latch held. Every bucket below an image exists.
//   pskiplist.H3  A tag only says which nodes to compare. It may belong to the node that was there
//       before; the key of the node decides.
// ORDERING  Nodes, levels and images are stored release and loaded acquire. A thread that sees a
//   node sees its key, or where its record lies. A thread that sees a level sees the nodes of the
//   new bucket.
// PROGRESS  Lookups are wait-free: they are led on at most once per bit. A change waits for another
//   one in its bucket, or for a division, which hashes the keys of at most 12 nodes; they were
//   fetched before. There is one division at a time, and no thread waits to make one.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <string_view>

#include "index/ordered/probe.h"
#include "index/pskiplist/stashes.h"
#include "platform/platform.h"
#include "util/arena.h"
#include "util/hash.h"

namespace perdure::pskiplist {

template <Platform P>
class KeyHints {
 public:
  static constexpr std::uint32_t kNodes = 12;  // of a bucket
  // Keys per bucket on average. Buckets that are not divided yet in this round have up to twice as
  // many.
  static constexpr std::uint32_t kFill = 5;

  template <bool kBytes>
  static std::uint64_t hash(std::uint64_t word, std::string_view bytes) {
    return mix(kBytes ? std::hash<std::string_view>{}(bytes) : word);
  }

  // For node numbers up to `nodes`. Begins with one bucket.
  Status reserve(std::size_t nodes) {
    capacity_ = nodes / kFill + 1;
    if (Status s = images_.reserve(kThreadStripes); !s.ok()) return s;
    prepare(0);
    return table_.reserve(capacity_);
  }
  // Sets the number of buckets for so many keys. All buckets are empty.
  void prepare(std::size_t keys) {
    const std::uint64_t count = std::clamp<std::size_t>(keys / kFill, 1, capacity_);
    buckets_.store(count, std::memory_order_relaxed);
    for (std::uint32_t i = 0; i < kThreadStripes; ++i) {
      images_[i].last.store(count - 1, std::memory_order_release);
    }
  }

  [[gnu::always_inline]] void prefetch(std::uint64_t hash) const {
    __builtin_prefetch(&table_[by_image(hash)]);
  }
  // Returns the first node for which is_of(node) returns true, or 0. The caller is pinned.
  template <class F>
  [[gnu::always_inline]] std::uint32_t find(std::uint64_t hash, F&& is_of) const {
    for (std::uint64_t i = by_image(hash);;) {
      const Bucket& bucket = table_[i];
      std::uint64_t m = P::match_line(bucket.tags, tag_of(hash)) & ((1U << kNodes) - 1);
      for (; m != 0; m &= m - 1) {
        const std::uint32_t node =
            bucket.nodes[std::countr_zero(m)].load(std::memory_order_acquire);
        if (node != 0 && is_of(node)) return node;
      }
      if (!leads_on(i, hash)) [[likely]]
        return 0;
    }
  }

  // Names the node if its bucket has room. The node is listed, and stays so until this returns.
  void put(std::uint64_t hash, std::uint32_t node) {
    Bucket& bucket = lock(hash);
    put_locked(bucket, tag_of(hash), node);
    bucket.latch.unlock();
  }
  // Removes the name of the node, which has this hash.
  void remove(std::uint64_t hash, std::uint32_t node) {
    Bucket& bucket = lock(hash);
    for (auto& named : bucket.nodes) {
      if (named.load(std::memory_order_relaxed) == node) named.store(0, std::memory_order_release);
    }
    bucket.latch.unlock();
  }
  // Divides the next buckets in turn if so many nodes need more buckets and no other thread divides
  // some. For nodes that are named it calls fetch(node), which prefetches the node, fetch_key(node)
  // if keys are bytes, which prefetches what the node names, and hash_of(node). In a large table it
  // looks at every 32nd node only: threads take numbers in rows (NodeTable), each with one such.
  template <bool kBytes, class F, class Fetch, class FetchKey>
  [[gnu::always_inline]] void grow(std::uint32_t nodes, F&& hash_of, Fetch&& fetch,
                                   FetchKey&& fetch_key) {
    const std::uint64_t last = images_[own_stripe()].last.load(std::memory_order_relaxed);
    if (nodes <= kFill * (last + 1) || (last >= kLarge && nodes % kEvery != 0)) [[likely]]
      return;
    if (!growth_.try_lock()) return;
    const std::uint64_t count = buckets_.load(std::memory_order_relaxed);
    const std::uint64_t wanted = std::min<std::uint64_t>((nodes + kFill - 1) / kFill, capacity_);
    const std::uint64_t end = std::min(wanted, count + 2 * kEvery / kFill);
    fetch_named<kBytes>(count, end, fetch, fetch_key);
    for (std::uint64_t n = count; n < end; ++n) divide(n, hash_of);
    PERDURE_ASSERT(P, "pskiplist.H2", buckets_.load(std::memory_order_relaxed) == count);
    if (end > count) buckets_.store(end, std::memory_order_release);
    growth_.unlock();
    learn(std::max(count, end) - 1);
  }

  // Returns how many nodes are named. No change is in flight. O(buckets).
  std::uint64_t named() const {
    std::uint64_t count = 0;
    const std::uint64_t buckets = buckets_.load(std::memory_order_relaxed);
    for (std::uint64_t i = 0; i < buckets; ++i) {
      for (const auto& node : table_[i].nodes) count += node.load(std::memory_order_relaxed) != 0;
    }
    return count;
  }
  std::uint64_t dram_bytes() const {
    return buckets_.load(std::memory_order_relaxed) * sizeof(Bucket);
  }

 private:
  template <class T>
  using Atomic = typename P::template Atomic<T>;

  static constexpr std::uint64_t kLarge = 64;  // buckets
  static constexpr std::uint32_t kEvery = 32;

  struct alignas(64) Bucket {
    std::uint8_t tags[kNodes];
    typename P::Latch latch;
    Atomic<std::uint8_t> level{0};        // 0: it was not divided
    Atomic<std::uint32_t> nodes[kNodes];  // 0: none
  };
  static_assert(sizeof(Bucket) == 64);
  // Of a stripe of threads: the number of a bucket that exists, and all below it.
  struct alignas(kOwnLine) Image {
    Atomic<std::uint64_t> last{0};
  };

  static std::uint8_t tag_of(std::uint64_t hash) { return static_cast<std::uint8_t>(hash >> 56); }
  // Buckets that were divided in this round, and the new ones, are found by one bit more.
  static std::uint64_t index_of(std::uint64_t hash, std::uint64_t last) {
    const std::uint64_t mask = std::bit_ceil(last + 1) - 1;
    const std::uint64_t i = hash & mask;
    return i <= last ? i : hash & mask >> 1;
  }
  [[gnu::always_inline]] std::uint64_t by_image(std::uint64_t hash) const {
    return index_of(hash, images_[own_stripe()].last.load(std::memory_order_acquire));
  }
  static std::uint32_t own_stripe() { return P::thread_slot() % kThreadStripes; }
  void learn(std::uint64_t last) const {
    auto& known = images_[own_stripe()].last;
    if (known.load(std::memory_order_relaxed) < last) known.store(last, std::memory_order_release);
  }
  // A key with this hash was looked for in bucket i, where its ancestors were. If it moved on, sets
  // i to the bucket that it went to, perhaps not the last one, and returns true. A bucket that was
  // not divided leads nowhere: no image is older than the bucket.
  [[gnu::always_inline]] bool leads_on(std::uint64_t& i, std::uint64_t hash) const {
    const std::uint32_t level = table_[i].level.load(std::memory_order_acquire);
    const std::uint64_t difference = hash ^ i;
    if (((((std::uint64_t{1} << level) - 1) & difference)) == 0) [[likely]]
      return false;
    i = led_on(i, hash, level);
    return true;
  }
  [[gnu::noinline]] std::uint64_t led_on(std::uint64_t i, std::uint64_t hash,
                                         std::uint32_t level) const {
    learn(i + (std::uint64_t{1} << (level - 1)));  // the bucket that the last division made
    const std::uint64_t difference = hash ^ i;
    const std::uint64_t lowest = difference & -difference;
    return hash & (2 * lowest - 1);
  }
  Bucket& lock(std::uint64_t hash) {
    for (std::uint64_t i = by_image(hash);;) {
      Bucket& bucket = table_[i];
      bucket.latch.lock();
      if (!leads_on(i, hash)) return bucket;  // pskiplist.H2
      bucket.latch.unlock();
    }
  }
  // The bucket that is divided when the n-th one comes into being.
  Bucket& divided_for(std::uint64_t n) const { return table_[n - std::bit_floor(n)]; }
  static void put_locked(Bucket& bucket, std::uint8_t tag, std::uint32_t node) {
    for (std::uint32_t i = 0; i < kNodes; ++i) {
      if (bucket.nodes[i].load(std::memory_order_relaxed) != 0) continue;
      P::store_byte(bucket.tags[i], tag);
      bucket.nodes[i].store(node, std::memory_order_release);
      return;
    }
  }
  // In steps of one cache miss each; the misses of a step overlap.
  template <bool kBytes, class Fetch, class FetchKey>
  [[gnu::noinline]] void fetch_named(std::uint64_t begin, std::uint64_t end, Fetch& fetch,
                                     FetchKey& fetch_key) const {
    const auto for_each_named = [&](auto& visit) {
      for (std::uint64_t n = begin; n < end; ++n) {
        for (const auto& named : divided_for(n).nodes) {
          const std::uint32_t node = named.load(std::memory_order_acquire);
          if (node != 0) visit(node);
        }
      }
    };
    for (std::uint64_t n = begin; n < end; ++n) {
      __builtin_prefetch(&divided_for(n), 1);
      table_[n].level.store(0, std::memory_order_relaxed);  // may touch a new page
    }
    for_each_named(fetch);
    if constexpr (kBytes) for_each_named(fetch_key);
  }
  // Makes bucket n. The caller holds growth_.
  template <class F>
  [[gnu::noinline]] void divide(std::uint64_t n, F& hash_of) {
    Bucket& from = divided_for(n);
    const auto level = static_cast<std::uint8_t>(std::bit_width(n));
    from.latch.lock();
    for (auto& named : from.nodes) {
      const std::uint32_t node = named.load(std::memory_order_relaxed);
      if (node == 0) continue;
      const std::uint64_t hash = hash_of(node);
      if ((hash & (2 * std::bit_floor(n) - 1)) != n) continue;
      put_locked(table_[n], tag_of(hash), node);
      named.store(0, std::memory_order_release);
    }
    PERDURE_ASSERT(P, "pskiplist.H2", from.level.load(std::memory_order_relaxed) < level);
    from.level.store(level, std::memory_order_release);
    from.latch.unlock();
  }

  std::uint64_t capacity_ = 1;
  Arena<Bucket> table_;
  Arena<Image> images_;
  // Threads that divide write these.
  alignas(kOwnLine) typename P::Latch growth_;
  Atomic<std::uint64_t> buckets_{1};
};

}  // namespace perdure::pskiplist
