// KeyHints: from the hash of a key to the number of its node, in DRAM. A lookup takes one cache
// miss; the way through the directory takes three.
//
// WHAT  Linear hashing (Litwin, VLDB 1980) over buckets of one line, in one array. As nodes come,
//   one bucket after the other is divided between itself and a new one at the end. There is no
//   pause that grows with the number of keys, and no second table.
// WHEN NOT  The hints may be incomplete. A full bucket takes no more nodes, and a lookup may miss
//   the nodes of a bucket while it is divided. A key that is not found here is looked up in the
//   directory. Keys that were chosen to collide lose their hints, and nothing else.
// INVARIANTS (DRAM)
//   pskiplist.H1  A node that is named here is listed in a leaf: it is named after it was listed,
//       and the name goes before the node leaves the leaf. So a node that a pinned thread has seen
//       here is not reused.
//   pskiplist.H2  A node is named in the bucket that its key has by the number of buckets, or
//       nowhere. A bucket changes with its latch held. The number of buckets changes with the latch
//       of the divided bucket held. So a thread that holds a latch, and finds that the number still
//       leads to that bucket, holds the right one.
//   pskiplist.H3  A tag only says which nodes to compare. It may belong to the node that was there
//       before; the key of the node decides.
// ORDERING  nodes and buckets_ are stored release and loaded acquire. A thread that sees a node
//   sees its key, or where its record lies. A thread that sees a new bucket sees its nodes.
// PROGRESS  Lookups are wait-free. A change waits for another one in its bucket. A division
//   compares the keys of at most 12 nodes meanwhile: cache misses, and all bytes of strings. There
//   is one division at a time, and no thread waits to make one.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <string_view>

#include "index/ordered/probe.h"
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
    buckets_.store(1, std::memory_order_relaxed);
    return table_.reserve(capacity_);
  }
  // Sets the number of buckets for so many keys. All buckets are empty.
  void prepare(std::size_t keys) {
    buckets_.store(std::clamp<std::size_t>(keys / kFill, 1, capacity_), std::memory_order_relaxed);
  }

  [[gnu::always_inline]] void prefetch(std::uint64_t hash) const {
    __builtin_prefetch(&bucket_of(hash));
  }
  // Returns the first node for which is_of(node) returns true, or 0. The caller is pinned.
  template <class F>
  [[gnu::always_inline]] std::uint32_t find(std::uint64_t hash, F&& is_of) const {
    const Bucket& bucket = bucket_of(hash);
    std::uint64_t m = P::match_line(bucket.tags, tag_of(hash)) & ((1U << kNodes) - 1);
    for (; m != 0; m &= m - 1) {
      const std::uint32_t node = bucket.nodes[std::countr_zero(m)].load(std::memory_order_acquire);
      if (node != 0 && is_of(node)) return node;
    }
    return 0;
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
  // Divides the next bucket in turn if so many nodes need more buckets and no other thread divides
  // one. hash_of(node) is called for nodes that are named. Nodes come one by one, so this
  // prefetches some nodes ahead for a division: its buckets, then the lines at place_of(node) of
  // each node.
  template <class F, class Place>
  [[gnu::always_inline]] void grow(std::uint32_t nodes, F&& hash_of, Place&& place_of) {
    const std::uint64_t count = buckets_.load(std::memory_order_relaxed);
    const std::uint64_t bound = kFill * count;
    if (nodes + 2 == bound && count < capacity_) {
      for (const auto& named : next_in_turn(count).nodes) {
        __builtin_prefetch(place_of(named.load(std::memory_order_relaxed)));
      }
    }
    if (nodes > bound && count < capacity_ && growth_.try_lock()) {
      if (buckets_.load(std::memory_order_relaxed) == count) divide(count, hash_of);
      growth_.unlock();
    }
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

  struct alignas(64) Bucket {
    std::uint8_t tags[kNodes];
    typename P::Latch latch;
    Atomic<std::uint32_t> nodes[kNodes];  // 0: none
  };
  static_assert(sizeof(Bucket) == 64);

  static std::uint8_t tag_of(std::uint64_t hash) { return static_cast<std::uint8_t>(hash >> 56); }
  // Buckets that were divided in this round, and the new ones, are found by one bit more.
  static std::uint64_t index_of(std::uint64_t hash, std::uint64_t count) {
    const std::uint64_t mask = std::bit_ceil(count) - 1;
    const std::uint64_t i = hash & mask;
    return i < count ? i : hash & mask >> 1;
  }
  [[gnu::always_inline]] Bucket& bucket_of(std::uint64_t hash) const {
    return table_[index_of(hash, buckets_.load(std::memory_order_acquire))];
  }
  Bucket& lock(std::uint64_t hash) {
    for (;;) {
      Bucket& bucket = bucket_of(hash);
      bucket.latch.lock();
      if (&bucket == &bucket_of(hash)) return bucket;  // pskiplist.H2
      bucket.latch.unlock();
    }
  }
  Bucket& next_in_turn(std::uint64_t count) const { return table_[count - std::bit_floor(count)]; }
  static void put_locked(Bucket& bucket, std::uint8_t tag, std::uint32_t node) {
    for (std::uint32_t i = 0; i < kNodes; ++i) {
      if (bucket.nodes[i].load(std::memory_order_relaxed) != 0) continue;
      P::store_byte(bucket.tags[i], tag);
      bucket.nodes[i].store(node, std::memory_order_release);
      return;
    }
  }
  template <class F>
  void divide(std::uint64_t count, F& hash_of) {
    Bucket& from = next_in_turn(count);
    Bucket& fresh = table_[count];
    fresh.latch.lock();  // no thread comes here yet; the lock may touch a new page
    from.latch.lock();
    for (auto& named : from.nodes) {
      const std::uint32_t node = named.load(std::memory_order_relaxed);
      if (node == 0) continue;
      const std::uint64_t hash = hash_of(node);
      if (index_of(hash, count + 1) != count) continue;
      put_locked(fresh, tag_of(hash), node);
      named.store(0, std::memory_order_release);
    }
    PERDURE_ASSERT(P, "pskiplist.H2", buckets_.load(std::memory_order_relaxed) == count);
    buckets_.store(count + 1, std::memory_order_release);
    from.latch.unlock();
    fresh.latch.unlock();
    __builtin_prefetch(&next_in_turn(count + 1), 1);
    __builtin_prefetch(&table_[count + 1], 1);
  }

  Arena<Bucket> table_;
  std::uint64_t capacity_ = 1;
  typename P::Latch growth_;
  alignas(64) Atomic<std::uint64_t> buckets_{1};
};

}  // namespace perdure::pskiplist
