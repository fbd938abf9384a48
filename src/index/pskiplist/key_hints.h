// KeyHints: from the hash of a key to the number of its node, in DRAM. A lookup takes one cache
// miss; the way through the directory takes three. A key that is not named here is absent for
// certain, nearly always.
//
// WHAT  Linear hashing (Litwin, VLDB 1980) over buckets of one line, in one array. As nodes come,
//   one bucket after the other is divided between itself and a new one at the end. There is no
//   pause that grows with the number of keys, and no second table. Names for which a bucket has no
//   room lie in its chain: further buckets, linked behind it, from an arena of their own.
//   No lookup reads the number of buckets, because each division would take that line from all
//   threads. As the clients of LH* (Litwin, Neimat, Schneider, TODS 1996), threads have an image of
//   it, which may be too small. A bucket that was divided knows its level, the number of bits of
//   the hash that its keys agree on, and so leads a thread on that comes by an old image.
// WHEN NOT  An absence is not certain beside a division of the bucket. Then the key is looked up
//   in the directory. So it is for ever in a bucket that has once left out a name, and in those
//   that are divided from it: there were kMostLinked buckets in the chain, or no more of them. Keys
//   that were chosen to collide can bring that about, and nothing worse.
// INVARIANTS (DRAM)
//   pskiplist.H1  A node that is named here is listed in a leaf: it is named after it was listed,
//       and the name goes before the node leaves the leaf. So a node that a pinned thread has seen
//       here is not reused.
//   pskiplist.H2  A node is named in the bucket that its key has by the levels, or in its chain, or
//       nowhere: the first `level` bits of the hash are the bucket's number. A bucket, its chain
//       and its state change with its latch held. Every bucket below an image exists.
//   pskiplist.H3  A tag only says which nodes to compare. It may belong to the node that was there
//       before, and a linked bucket may be in another chain by now; the key of the node decides.
//   pskiplist.H4  A node is named from the end of its put() to the beginning of its remove(), if no
//       flag is set in the state of the bucket that its key has. The flag `incomplete` is set when
//       a name is left out, stays, and is passed on to the new bucket by a division. The flag
//       `dividing` is set before a division moves the first name; the level, which rises, takes its
//       place after the last one. Only a division moves names. A linked bucket leaves its chain
//       only if neither it nor those behind it have names.
// ABSENCE  A lookup loads the state of a bucket before and after it looks at the names. If both
//   are equal, without a flag, no division has moved a name in between, and the lookup has met
//   every node that was named throughout (pskiplist.H4). So if it returns "absent", the put() of
//   the key's node had not returned when the lookup began, or its remove() had begun when the
//   lookup returned. If it came into another chain, by a linked bucket that went there, it has
//   passed the last name that was there throughout, or a division has changed the state.
// ORDERING  Nodes, links, states and images are stored release and loaded acquire. A thread that
//   sees a node sees its key, or where its record lies. A thread that sees a level sees the nodes
//   of the new bucket. A thread that sees what a division, or the next user of a linked bucket, has
//   stored sees a flag or another level. Tags are loaded in this order, too (machine.h, M2).
//   The callers see to it that all threads see a name before its operation returns: the writer
//   exchanges the state of the node behind put() (write.h, stamp()), a full fence (M1), whatever
//   the durability.
// PROGRESS  Lookups are wait-free: they are led on at most once per bit, and leave a chain after
//   as many links as it may have. They store nothing but their thread's image. A change waits for
//   another one in its bucket, or for a division, which hashes the keys of the bucket's nodes; they
//   were fetched before. There is one division at a time. A thread waits to make one only if the
//   table has less than an eighth of the buckets that it should have. That is so if a thread lost
//   its processor while it divided a small table: without the wait, others would fill the buckets.
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

struct Peek;

// What the hints say of a key.
struct Hint {
  std::uint32_t node;  // 0: they name none
  bool absent;         // for certain: no node of the key was named throughout the call

  bool known() const { return node != 0 || absent; }
};

template <Platform P>
class KeyHints {
  friend struct Peek;  // of tests, to the linked buckets

 public:
  static constexpr std::uint32_t kNodes = 11;       // of a bucket
  static constexpr std::uint32_t kMostLinked = 16;  // behind a bucket
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
    if (Status s = linked_.reserve(capacity_ / kLinkedShare + kLarge); !s.ok()) return s;
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
  // Returns the first node for which is_of(node) returns true. The caller is pinned.
  template <class F>
  [[gnu::always_inline]] Hint find(std::uint64_t hash, F&& is_of) const {
    std::uint64_t i = by_image(hash);
    std::uint8_t state = 0;
    do {
      state = table_[i].state.load(std::memory_order_acquire);
    } while (leads_on(i, hash, state));
    const Bucket& first = table_[i];
    std::uint32_t node = look(first, tag_of(hash), is_of);
    if (node == 0) {
      const std::uint32_t link = first.link.load(std::memory_order_acquire);
      if (link != 0) [[unlikely]]
        node = look_behind(link, tag_of(hash), is_of);
    }
    if (node != 0) return {node, false};
    return {0, first.state.load(std::memory_order_acquire) == state && state <= kLevel};
  }

  // Names the node. It is listed, and stays so until this returns.
  void put(std::uint64_t hash, std::uint32_t node) {
    Bucket& first = lock(hash);
    put_locked(first, tag_of(hash), node);
    first.latch.unlock();
  }
  // Removes the name of the node, which has this hash.
  void remove(std::uint64_t hash, std::uint32_t node) {
    Bucket& first = lock(hash);
    (void)any_of(first, [&](Bucket& bucket) {
      for (auto& named : bucket.nodes) {
        if (named.load(std::memory_order_relaxed) != node) continue;
        named.store(0, std::memory_order_release);
        return true;
      }
      return false;
    });
    unlink_empty(first);
    first.latch.unlock();
  }
  // Divides the next buckets in turn if so many nodes need more buckets. If another thread divides
  // some, it waits only if the table is kBehind times too small. For nodes that are named it calls
  // fetch(node), which prefetches the node, fetch_key(node) if keys are bytes, which prefetches
  // what the node names, and hash_of(node). In a large table it looks at every 32nd node only:
  // threads take numbers in rows (NodeTable), each with one such.
  template <bool kBytes, class F, class Fetch, class FetchKey>
  [[gnu::always_inline]] void grow(std::uint32_t nodes, F&& hash_of, Fetch&& fetch,
                                   FetchKey&& fetch_key) {
    const std::uint64_t last = images_[own_stripe()].last.load(std::memory_order_relaxed);
    if (nodes <= kFill * (last + 1) || (last >= kLarge && nodes % kEvery != 0)) [[likely]]
      return;
    if (nodes > kBehind * kFill * buckets_.load(std::memory_order_relaxed)) [[unlikely]] {
      growth_.lock();
    } else if (!growth_.try_lock()) {
      return;
    }
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
      (void)any_of(table_[i], [&](const Bucket& bucket) {
        for (const auto& node : bucket.nodes) count += node.load(std::memory_order_relaxed) != 0;
        return false;
      });
    }
    return count;
  }
  std::uint64_t dram_bytes() {
    LatchGuard guard(linked_latch_);
    return (buckets_.load(std::memory_order_relaxed) + high_) * sizeof(Bucket);
  }

 private:
  template <class T>
  using Atomic = typename P::template Atomic<T>;

  static constexpr std::uint64_t kLarge = 64;  // buckets
  static constexpr std::uint32_t kEvery = 32;
  static constexpr std::uint64_t kBehind = 8;
  // Buckets of the table per linked one that there is room for.
  static constexpr std::uint64_t kLinkedShare = 4;

  // The state: a level, 0 if the bucket was not divided, and flags (pskiplist.H4).
  static constexpr std::uint8_t kLevel = 0x3F;
  static constexpr std::uint8_t kDividing = 0x40;
  static constexpr std::uint8_t kIncomplete = 0x80;

  // A linked one has no use for latch and state.
  struct alignas(64) Bucket {
    std::uint8_t tags[kNodes];
    typename P::Latch latch;
    Atomic<std::uint8_t> state{0};
    Atomic<std::uint32_t> link{0};        // the number of a linked bucket, 0: none
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
  // A key with this hash is looked for in bucket i, which has this state and has had the key's
  // ancestors. If it moved on, sets i to the bucket that it went to, perhaps not the last one, and
  // returns true. A bucket that was not divided leads nowhere: no image is older than the bucket.
  [[gnu::always_inline]] bool leads_on(std::uint64_t& i, std::uint64_t hash,
                                       std::uint8_t state) const {
    const std::uint32_t level = state & kLevel;
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
      const std::uint8_t state = bucket.state.load(std::memory_order_relaxed);
      if (!leads_on(i, hash, state)) return bucket;  // pskiplist.H2
      bucket.latch.unlock();
    }
  }
  // The bucket that is divided when the n-th one comes into being.
  Bucket& divided_for(std::uint64_t n) const { return table_[n - std::bit_floor(n)]; }
  // Calls visit(bucket) for the bucket and those linked behind it, until it returns true. Returns
  // whether it did. Without the latch it may come into the chain of another bucket.
  template <class F>
  bool any_of(Bucket& first, F&& visit) const {
    Bucket* bucket = &first;
    for (std::uint32_t links = 0; !visit(*bucket); ++links) {
      const std::uint32_t link = bucket->link.load(std::memory_order_acquire);
      if (link == 0 || links == kMostLinked) return false;
      bucket = &linked_[link];
    }
    return true;
  }
  template <class F>
  [[gnu::always_inline]] static std::uint32_t look(const Bucket& bucket, std::uint8_t tag,
                                                   F& is_of) {
    std::uint64_t m = P::match_line(bucket.tags, tag) & ((1U << kNodes) - 1);
    for (; m != 0; m &= m - 1) {
      const std::uint32_t node = bucket.nodes[std::countr_zero(m)].load(std::memory_order_acquire);
      if (node != 0 && is_of(node)) return node;
    }
    return 0;
  }
  template <class F>
  [[gnu::noinline]] std::uint32_t look_behind(std::uint32_t link, std::uint8_t tag,
                                              F& is_of) const {
    std::uint32_t node = 0;
    (void)any_of(linked_[link],
                 [&](const Bucket& bucket) { return (node = look(bucket, tag, is_of)) != 0; });
    return node;
  }

  static bool put_into(Bucket& bucket, std::uint8_t tag, std::uint32_t node) {
    for (std::uint32_t i = 0; i < kNodes; ++i) {
      if (bucket.nodes[i].load(std::memory_order_relaxed) != 0) continue;
      P::store_byte(bucket.tags[i], tag);
      bucket.nodes[i].store(node, std::memory_order_release);
      return true;
    }
    return false;
  }
  void put_locked(Bucket& first, std::uint8_t tag, std::uint32_t node) {
    Bucket* last = nullptr;
    std::uint32_t buckets = 0;
    const bool done = any_of(first, [&](Bucket& bucket) {
      last = &bucket;
      ++buckets;
      return put_into(bucket, tag, node);
    });
    if (done) [[likely]]
      return;
    const std::uint32_t fresh = buckets <= kMostLinked ? take() : 0;
    if (fresh == 0) {
      const std::uint8_t state = first.state.load(std::memory_order_relaxed);
      first.state.store(state | kIncomplete, std::memory_order_release);  // pskiplist.H4
      return;
    }
    (void)put_into(linked_[fresh], tag, node);
    last->link.store(fresh, std::memory_order_release);
  }
  static bool has_names(const Bucket& bucket) {
    return std::ranges::any_of(
        bucket.nodes, [](const auto& node) { return node.load(std::memory_order_relaxed) != 0; });
  }
  // The latch is held. Names stay where they are: a lookup may have passed the place to which one
  // would move. So a bucket without names stays before one that has some.
  void unlink_empty(Bucket& first) {
    if (first.link.load(std::memory_order_relaxed) == 0) [[likely]]
      return;
    Bucket* last = &first;
    (void)any_of(first, [&](Bucket& bucket) {
      if (has_names(bucket)) last = &bucket;
      return false;
    });
    std::uint32_t link = last->link.load(std::memory_order_relaxed);
    last->link.store(0, std::memory_order_release);
    while (link != 0) {
      const std::uint32_t next = linked_[link].link.load(std::memory_order_relaxed);
      give(link);
      link = next;
    }
  }
  // Returns the number of a bucket without names and link, or 0.
  [[gnu::noinline]] std::uint32_t take() {
    LatchGuard guard(linked_latch_);
    if (free_ == 0) return high_ + 1 < linked_.capacity() ? ++high_ : 0;
    const std::uint32_t number = free_;
    free_ = linked_[number].link.load(std::memory_order_relaxed);
    linked_[number].link.store(0, std::memory_order_relaxed);
    return number;
  }
  [[gnu::noinline]] void give(std::uint32_t number) {
    PERDURE_ASSERT(P, "pskiplist.H4", !has_names(linked_[number]));
    LatchGuard guard(linked_latch_);
    linked_[number].link.store(free_, std::memory_order_relaxed);
    free_ = number;
  }

  // In steps of one cache miss each; the misses of a step overlap.
  template <bool kBytes, class Fetch, class FetchKey>
  [[gnu::noinline]] void fetch_named(std::uint64_t begin, std::uint64_t end, Fetch& fetch,
                                     FetchKey& fetch_key) const {
    const auto for_each_named = [&](auto& visit) {
      for (std::uint64_t n = begin; n < end; ++n) {
        (void)any_of(divided_for(n), [&](const Bucket& bucket) {
          for (const auto& named : bucket.nodes) {
            const std::uint32_t node = named.load(std::memory_order_acquire);
            if (node != 0) visit(node);
          }
          return false;
        });
      }
    };
    for (std::uint64_t n = begin; n < end; ++n) {
      __builtin_prefetch(&divided_for(n), 1);
      table_[n].state.store(0, std::memory_order_relaxed);  // may touch a new page
    }
    for_each_named(fetch);
    if constexpr (kBytes) for_each_named(fetch_key);
  }
  // Makes bucket n. The caller holds growth_. Names that stay move to the front of the chain.
  template <class F>
  [[gnu::noinline]] void divide(std::uint64_t n, F& hash_of) {
    Bucket& from = divided_for(n);
    Bucket& to = table_[n];
    const auto level = static_cast<std::uint8_t>(std::bit_width(n));
    from.latch.lock();
    const std::uint8_t state = from.state.load(std::memory_order_relaxed);
    PERDURE_ASSERT(P, "pskiplist.H2", (state & kLevel) < level);
    from.state.store(state | kDividing, std::memory_order_release);  // pskiplist.H4
    to.state.store(state & kIncomplete, std::memory_order_relaxed);
    (void)any_of(from, [&](Bucket& bucket) {
      for (auto& named : bucket.nodes) {
        const std::uint32_t node = named.load(std::memory_order_relaxed);
        if (node == 0) continue;
        const std::uint64_t hash = hash_of(node);
        const bool moves = (hash & (2 * std::bit_floor(n) - 1)) == n;
        if (!moves && &bucket == &from) continue;
        named.store(0, std::memory_order_release);
        put_locked(moves ? to : from, tag_of(hash), node);
      }
      return false;
    });
    unlink_empty(from);
    from.state.store(level | (state & kIncomplete), std::memory_order_release);
    from.latch.unlock();
  }

  std::uint64_t capacity_ = 1;
  Arena<Bucket> table_;
  Arena<Bucket> linked_;  // 0 is none
  Arena<Image> images_;
  // Threads that divide write these.
  alignas(kOwnLine) typename P::Latch growth_;
  Atomic<std::uint64_t> buckets_{1};
  // Threads that link or unlink a bucket write these.
  alignas(kOwnLine) typename P::Latch linked_latch_;
  std::uint32_t free_ = 0;  // the first free one
  std::uint32_t high_ = 0;  // none above it was ever used
};

}  // namespace perdure::pskiplist
