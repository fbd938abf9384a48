// LeafTable: the DRAM side of PhaST's leaves: one descriptor per leaf, in an arena, by number.
//
// NUMBERS  The pool is cut into regions of 64 places for leaves. A region that holds leaves of the
//   map has a chunk of 64 descriptors, in the order of the places. So one word for 64 leaves tells
//   the places of all, and stays in the processor's cache: a lookup fetches a leaf's descriptor and
//   its entry at the same time.
// LAYOUT (default geometry; two adjacent lines, so a lookup misses once)
//   line 0   version | low | bound | order | next, leaf       read by all, seldom written
//            (byte strings only) the separators behind low and bound | behind, of splits
//   line 1   fingerprint of each slot, 0: nothing shown | 4 stripes
//   Apart, by number, for leaves that were scanned: the order of the slots, a line.
// INVARIANTS (DRAM)
//   phast.D1  A slot with a fingerprint is visible: it holds a durable entry (one in flight
//       excepted) of a key that has this fingerprint.
//   phast.D2  A stripe is 0 or held. The byte of a held stripe is kHeld, plus slot + 1 if its
//       holder is filling that slot. A slot is free if it is neither visible nor being filled. A
//       writer that has claimed a slot by CAS checks the slot's fingerprint again: the stripes may
//       have changed and changed back before the CAS.
//   phast.D3  The version is raised after an entry was removed and before its slot becomes free: by
//       kOneRemoved for each entry, or by kManyRemoved, which stands for more than a leaf has.
//   phast.D4  bound and next change with all stripes held, low with those of the left neighbours;
//       version rises after bound. Neither bound nor low ever rises. Bit 0 of version: the leaf is
//       unlinked for good.
//   phast.D6  A chunk belongs to one region or to none. A taken number and the place of its leaf
//       determine each other. A chunk without a taken number belongs to no region.
// Fingerprints and stripes are written as bytes. After its fence a writer needs no locked
// instruction, which would wait for the write-back and delay the misses of the next operation.
//   phast.D5  Hence an operation may have returned while its last bytes are still in its thread's
//       store buffer. The last of them is the release of its stripe. A reader that must see what
//       has returned checks the stripe first, and waits until a holder has released it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "index/phast/codec.h"
#include "index/phast/layout.h"
#include "index/traits.h"
#include "platform/platform.h"
#include "util/arena.h"

namespace perdure::phast {

inline constexpr std::uint32_t kNoSlot = ~0U;
inline constexpr std::uint32_t kHeld = 0x80;           // of a stripe's byte
inline constexpr std::uint32_t kAllHeld = 0x80808080;  // of all stripes
// phast.D3: by how much the version rises.
inline constexpr std::uint64_t kOneRemoved = 2;
inline constexpr std::uint64_t kManyRemoved = 64 * kOneRemoved;

// The home line of an entry is the line of its leaf, by number, in which it lies if there was room.
// A lookup can fetch it together with the descriptor. No invariant depends on it.
inline constexpr std::uint32_t kLineEntries = 64 / sizeof(layout::Entry);
template <class G>
[[gnu::always_inline]] inline std::uint32_t home_of(std::uint8_t fingerprint) {
  return fingerprint * (G::kLeafEntries / kLineEntries) >> 8;
}
// Returns the first of these slots in the fingerprint's home line, else the first of all. `slots`
// must not be 0.
template <class G>
[[gnu::always_inline]] inline std::uint32_t first_of(std::uint64_t slots,
                                                     std::uint8_t fingerprint) {
  const std::uint64_t line = (1ULL << kLineEntries) - 1;
  const std::uint64_t home = slots & (line << kLineEntries * home_of<G>(fingerprint));
  return static_cast<std::uint32_t>(__builtin_ctzll(home != 0 ? home : slots));
}

template <class T>
struct alignas(64) Descriptor {
  using P = typename T::Platform;
  using G = typename T::Geometry;
  template <class V>
  using Atomic = typename P::template Atomic<V>;
  static constexpr bool kBytes = T::Codec::kBytes;
  static constexpr std::uint64_t kSlots = (1ULL << G::kLeafEntries) - 1;

  Atomic<std::uint64_t> version{0};
  Atomic<std::uint64_t> low{0};    // inclusive word, if there is no separator
  Atomic<std::uint64_t> bound{0};  // inclusive
  Atomic<std::uint64_t> order{0};  // what the scan order is valid for; see LeafTable
  Atomic<std::uint32_t> next{kNoLeaf};
  Atomic<std::uint32_t> leaf{0};  // offset in the pool / sizeof(Leaf)
  [[no_unique_address]] ordered::Separators<P, kBytes> separators;
  // How many entries were behind the new key when a split in the middle made this leaf what it is;
  // 0: the key went elsewhere, or the split was another one. For splits, with all stripes held.
  std::uint32_t behind = 0;

  // Read as words, written as bytes, both atomically.
  struct alignas(64) SearchLine {
    std::uint8_t fingerprints[60] = {};
    typename P::ByteLatches stripes;
  };
  static_assert(sizeof(SearchLine) == 64 && G::kLeafEntries <= 60);
  static_assert(kManyRemoved > G::kLeafEntries * kOneRemoved);
  SearchLine search;

  bool below(const Probe& probe) const { return ordered::lies_below<kBytes>(*this, probe); }
  bool above(const Probe& probe) const { return ordered::lies_above<kBytes>(*this, probe); }

  void set_fingerprint(std::uint32_t slot, std::uint8_t fingerprint) {
    P::store_byte(search.fingerprints[slot], fingerprint);
  }
  // Returns the visible slots with this fingerprint, which must not be 0.
  std::uint64_t matches(std::uint8_t fingerprint) const { return equal_to(fingerprint) & kSlots; }
  std::uint64_t visible() const { return ~equal_to(0) & kSlots; }

  // Acquires every stripe in ascending order. A writer that holds one waits for none; the holder of
  // those of a batch may wait for the word of batches, whose holder waits for none.
  void latch_all() {
    for (std::uint32_t i = 0; i < P::ByteLatches::kCount; ++i) {
      std::uint32_t word = search.stripes.load();
      for (unsigned spins = 0;;) {
        if ((word >> 8 * i & 0xFF) != 0) {
          P::pause(spins++);
          word = search.stripes.load();
        } else if (search.stripes.compare_exchange(word, word | kHeld << 8 * i)) {
          break;
        }
      }
    }
  }
  // Returns the byte of a stripe: 0 if the stripe is free.
  std::uint32_t holder(unsigned stripe) const { return search.stripes.load() >> 8 * stripe & 0xFF; }
  // phast.D5: afterwards the effects of all operations that had returned before are visible.
  void let_go(unsigned stripe) const {
    const std::uint32_t before = holder(stripe);
    if (before == 0) [[likely]]
      return;
    for (unsigned spins = 0; holder(stripe) == before; ++spins) {
      // The holder may have lost its core. A heavy fence then empties its store buffer. If it still
      // holds the stripe, it had not returned.
      if (spins >= P::kPatience && P::heavy_fence()) return;
      P::pause(spins);
    }
  }
  void unlatch_all() {
    PERDURE_ASSERT(P, "phast.D2", all_held());
    search.stripes.store(0);
  }
  // For assertions: whether the caller holds all stripes.
  bool all_held() const { return search.stripes.load() == kAllHeld; }
  bool linked() const { return (version.load(std::memory_order_acquire) & 1) == 0; }

  bool is_free(std::uint32_t slot) const { return P::load_byte(search.fingerprints[slot]) == 0; }
  // Returns a slot that is free by the fingerprints and by this word of the stripes, in the
  // fingerprint's home line if possible; or kNoSlot.
  std::uint32_t free_slot(std::uint32_t word, std::uint8_t fingerprint) const {
    std::uint64_t taken = ~equal_to(0);
    for (; word != 0; word >>= 8) {
      if ((word & 0x7F) != 0) taken |= 1ULL << ((word & 0x7F) - 1);
    }
    const std::uint64_t free = ~taken & kSlots;
    return free != 0 ? first_of<G>(free, fingerprint) : kNoSlot;
  }

 private:
  [[gnu::always_inline]] std::uint64_t equal_to(std::uint8_t byte) const {
    return P::match_line(reinterpret_cast<const std::uint8_t*>(&search), byte);
  }
};

// The slots of a leaf in key order: a byte each, eight in a word. A line, by the leaf's number: a
// scan prefetches it with the leaf.
template <class T>
struct ScanOrder {
  static constexpr std::uint32_t kWords = (T::Geometry::kLeafEntries + 7) / 8;
  typename T::Platform::template Atomic<std::uint64_t> words[kWords];
};

template <class T>
class LeafTable {
  using P = typename T::Platform;

 public:
  using Desc = Descriptor<T>;
  using Order = ScanOrder<T>;
  static constexpr bool kBytes = T::Codec::kBytes;

  // `places`: how many leaves the pool would hold if it held nothing else. At most 2^32 - 128 of
  // them can be named.
  Status reserve(std::uint64_t places) {
    const std::uint64_t regions = std::min<std::uint64_t>(places / kChunk + 1, ~0U / kChunk - 1);
    if (Status s = descriptors_.reserve((regions + 1) * kChunk); !s.ok()) return s;
    if (Status s = chunks_.reserve(regions); !s.ok()) return s;
    if (Status s = regions_.reserve(regions + 1); !s.ok()) return s;
    if (Status s = taken_.reserve(regions + 1); !s.ok()) return s;
    return orders_.reserve((regions + 1) * kChunk);
  }

  Desc& operator[](std::uint32_t number) const { return descriptors_[number]; }
  // Returns the place of the leaf without a look at its descriptor: a hint, for prefetches.
  [[gnu::always_inline]] std::uint32_t place(std::uint32_t number) const {
    return regions_[number / kChunk].load(std::memory_order_relaxed) * kChunk + number % kChunk;
  }

  // Returns the number of the free descriptor for the leaf at this place, or kNoLeaf. Its version
  // starts above any version that this number had before.
  std::uint32_t take(std::uint32_t place) {
    std::uint32_t chunk = 0;
    {
      LatchGuard guard(latch_);
      chunk = chunk_for(place);
      count_in(chunk);
    }
    return name(chunk, place);  // the first of a page waits for the system
  }
  // take() for a recovery, while no thread gives: a region keeps its chunk. So the latch is needed
  // for the region's first leaf only.
  std::uint32_t take_found(std::uint32_t place) {
    const std::uint32_t chunk = chunk_of(place);
    if (chunk == 0) return take(place);
    count_in(chunk);
    return name(chunk, place);
  }
  // Prefetches what take_found() and the load of the leaf write.
  void prefetch(std::uint32_t place) const {
    const std::uint32_t chunk = chunk_of(place);
    const char* desc = reinterpret_cast<const char*>(&descriptors_[number_of(chunk, place)]);
    __builtin_prefetch(desc, 1);
    __builtin_prefetch(desc + kLine, 1);
    __builtin_prefetch(&taken_[chunk], 1);
  }
  // No thread may hold the number any more.
  void give(std::uint32_t number) {
    LatchGuard guard(latch_);
    const std::uint32_t chunk = number / kChunk;
    PERDURE_ASSERT(
        P, "phast.D6",
        taken_[chunk].load(std::memory_order_relaxed) != 0 && chunk_of(place(number)) == chunk);
    if (taken_[chunk].fetch_sub(1, std::memory_order_relaxed) != 1) return;
    chunks_[place(number) / kChunk].store(0, std::memory_order_relaxed);
    regions_[chunk].store(free_chunk_, std::memory_order_relaxed);
    free_chunk_ = chunk;
  }

  // --- scan orders ---
  // The words of an order change in place. The stamp in the descriptor is kOrderBusy meanwhile, and
  // stamps only rise. So a reader that finds a stamp before and after it has copied the words has
  // copied what was kept with that stamp.

  // Copies the order of the leaf and returns how many slots it has. 0: none is kept, or it is of a
  // newer version, or of one that tells nothing about this one. `removed`: gets how many entries
  // have been removed since it was kept. `slots`: has room for 64.
  [[gnu::always_inline]] std::uint32_t order_of(std::uint32_t number, std::uint64_t version,
                                                std::uint8_t* slots, std::uint64_t& removed) const {
    const Desc& desc = descriptors_[number];
    const std::uint64_t stamp = desc.order.load(std::memory_order_acquire);
    const std::uint64_t risen = version - (stamp >> kCountBits);
    if (risen >= kManyRemoved) return 0;
    removed = risen / kOneRemoved;
    for (std::uint32_t i = 0; i < Order::kWords; ++i) {
      const std::uint64_t word = orders_[number].words[i].load(std::memory_order_acquire);
      std::memcpy(slots + 8 * i, &word, 8);
    }
    const bool whole = desc.order.load(std::memory_order_relaxed) == stamp;
    return whole ? stamp & ((1U << kCountBits) - 1) : 0;
  }
  // Keeps an order, unless a newer one is kept or is being kept. `slots`: of 64.
  void keep_order(std::uint32_t number, std::uint64_t version, const std::uint8_t* slots,
                  std::uint32_t count) {
    Desc& desc = descriptors_[number];
    const std::uint64_t stamp = version << kCountBits | count;
    std::uint64_t before = desc.order.load(std::memory_order_relaxed);
    if (before >= stamp ||
        !desc.order.compare_exchange_strong(before, kOrderBusy, std::memory_order_acquire)) {
      return;
    }
    for (std::uint32_t i = 0; i < Order::kWords; ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, slots + 8 * i, 8);
      orders_[number].words[i].store(word, std::memory_order_release);  // after kOrderBusy
    }
    desc.order.store(stamp, std::memory_order_release);
  }
  [[gnu::always_inline]] void prefetch_order(std::uint32_t number) const {
    __builtin_prefetch(&orders_[number]);
  }

  bool empty() const { return high_chunk_ == 0; }
  // Without orders.
  std::uint64_t dram_bytes() {
    LatchGuard guard(latch_);
    constexpr std::uint64_t kOfChunk = kChunk * sizeof(Desc) + 3 * sizeof(std::uint32_t);
    return high_chunk_ * kOfChunk;
  }

 private:
  static constexpr std::uint32_t kChunk = 64;
  using Number = typename P::template Atomic<std::uint32_t>;
  // A stamp: the version, then the number of entries. 0: none was kept.
  static constexpr std::uint32_t kCountBits = 6;
  static constexpr std::uint64_t kOrderBusy = ~std::uint64_t{0};

  // The chunk of a place's region; 0: none.
  std::uint32_t chunk_of(std::uint32_t place) const {
    const std::uint32_t region = place / kChunk;
    return region < chunks_.capacity() ? chunks_[region].load(std::memory_order_acquire) : 0;
  }
  static std::uint32_t number_of(std::uint32_t chunk, std::uint32_t place) {
    return chunk * kChunk + place % kChunk;
  }
  // The same, with the latch held. Takes a chunk if there is none. 0: the place is too high.
  std::uint32_t chunk_for(std::uint32_t place) {
    const std::uint32_t region = place / kChunk;
    std::uint32_t chunk = chunk_of(place);
    if (chunk != 0 || region >= chunks_.capacity()) return chunk;
    chunk = free_chunk_ != 0 ? free_chunk_ : ++high_chunk_;
    if (free_chunk_ != 0) free_chunk_ = regions_[chunk].load(std::memory_order_relaxed);
    regions_[chunk].store(region, std::memory_order_relaxed);
    chunks_[region].store(chunk, std::memory_order_release);
    return chunk;
  }
  void count_in(std::uint32_t chunk) {
    if (chunk != 0) taken_[chunk].fetch_add(1, std::memory_order_relaxed);
  }
  // Of a number that is counted in.
  std::uint32_t name(std::uint32_t chunk, std::uint32_t place) {
    if (chunk == 0) return kNoLeaf;
    const std::uint32_t number = number_of(chunk, place);
    PERDURE_ASSERT(P, "phast.D6", this->place(number) == place);
    descriptors_[number].leaf.store(place, std::memory_order_relaxed);
    return number;
  }

  Arena<Desc> descriptors_;
  Arena<Number> regions_;                      // by chunk; of a free one: the next
  Arena<Order> orders_;                        // by number
  alignas(kOwnLine) typename P::Latch latch_;  // of changes of the next four; see take_found()
  Arena<Number> chunks_;                       // by region; 0: none
  Arena<Number> taken_;                        // by chunk: how many of its numbers
  std::uint32_t free_chunk_ = 0;
  std::uint32_t high_chunk_ = 0;
};

}  // namespace perdure::phast
