// LeafTable: the DRAM side of PhaST's leaves: one descriptor per leaf, in an arena, by number.
//
// LAYOUT (default geometry; two lines, adjacent, so that a lookup misses once)
//   line 0   version | low | bound | order | next, leaf       read by all, seldom written
//   line 1   fingerprint of each slot, 0: nothing shown | 4 stripes
//   line 2   (byte strings only) the separators behind low and bound
// INVARIANTS (DRAM)
//   phast.D1  A slot with a fingerprint holds a durable entry (one in flight excepted) of a key
//       that has this fingerprint: it is visible.
//   phast.D2  A stripe is 0, or held: kHeld, plus slot + 1 if its holder is filling that slot. A
//       slot is free if it is neither visible nor being filled. Who claimed one by CAS on the
//       stripes looks at its fingerprint again: the stripes may have changed and changed back
//       before the CAS.
//   phast.D3  A slot does not become free before the version was raised after its entry went away.
//   phast.D4  bound and next change with all stripes held, low with those of the left neighbours;
//       version rises after bound. Neither bound nor low ever rises. Bit 0 of version: unlinked for
//       good.
// Fingerprints and stripes are written as bytes: after its fence a writer needs no locked
// instruction, which would wait for the write-back and keep the next operation's misses waiting.
//   phast.D5  So an operation may have returned while its last bytes are still in its thread's
//       store buffer, the release of its stripe the last of them. Who is to see what has returned
//       looks at the stripe first, and lets whoever holds it go.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "index/phast/codec.h"
#include "index/phast/layout.h"
#include "platform/platform.h"
#include "util/arena.h"

namespace perdure::phast {

inline constexpr std::uint32_t kNoSlot = ~0U;
inline constexpr std::uint32_t kHeld = 0x80;           // of a stripe's byte
inline constexpr std::uint32_t kAllHeld = 0x80808080;  // of all stripes

// The home line of an entry is the one of its leaf, by number, in which it lies if there was room.
// A lookup can have it on the way from memory together with the descriptor. Nothing depends on it.
inline constexpr std::uint32_t kLineEntries = 64 / sizeof(layout::Entry);
template <class G>
[[gnu::always_inline]] inline std::uint32_t home_of(std::uint8_t fingerprint) noexcept {
  return fingerprint * (G::kLeafEntries / kLineEntries) >> 8;
}
// The first of these slots, which are not none, in the fingerprint's home line, else anywhere.
template <class G>
[[gnu::always_inline]] inline std::uint32_t first_of(std::uint64_t slots,
                                                     std::uint8_t fingerprint) noexcept {
  const std::uint64_t line = (1ULL << kLineEntries) - 1;
  const std::uint64_t home = slots & (line << kLineEntries * home_of<G>(fingerprint));
  return static_cast<std::uint32_t>(__builtin_ctzll(home != 0 ? home : slots));
}

template <Platform P, class Codec, class G>
struct alignas(64) Descriptor {
  template <class T>
  using Atomic = typename P::template Atomic<T>;
  static constexpr std::uint64_t kSlots = (1ULL << G::kLeafEntries) - 1;

  Atomic<std::uint64_t> version{0};
  Atomic<std::uint64_t> low{0};    // inclusive word, if there is no separator
  Atomic<std::uint64_t> bound{0};  // inclusive
  Atomic<std::uint64_t> order{
      0};  // number of the cached scan order, and what it is valid for; or 0
  Atomic<std::uint32_t> next{kNoLeaf};
  Atomic<std::uint32_t> leaf{0};  // offset in the pool / sizeof(Leaf)

  // Read as words, written as bytes, both atomically.
  struct alignas(64) SearchLine {
    std::uint8_t fingerprints[60] = {};
    typename P::ByteLatches stripes;
  };
  static_assert(sizeof(SearchLine) == 64 && G::kLeafEntries <= 60);
  SearchLine search;

  alignas(Codec::kBytes ? 64 : 8)
      [[no_unique_address]] ordered::Separators<P, Codec::kBytes> separators;

  bool below(const Probe& probe) const noexcept {
    return ordered::lies_below<Codec::kBytes>(*this, probe);
  }
  bool above(const Probe& probe) const noexcept {
    return ordered::lies_above<Codec::kBytes>(*this, probe);
  }

  void set_fingerprint(std::uint32_t slot, std::uint8_t fingerprint) noexcept {
    P::store_byte(search.fingerprints[slot], fingerprint);
  }
  // The visible slots with this fingerprint, which is not 0.
  std::uint64_t matches(std::uint8_t fingerprint) const noexcept {
    return equal_to(fingerprint) & kSlots;
  }
  std::uint64_t visible() const noexcept { return ~equal_to(0) & kSlots; }

  // Latches every stripe, in ascending order: a writer holds one at most and waits for none.
  void latch_all() noexcept {
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
  // What holds a stripe: 0 if nothing.
  std::uint32_t holder(unsigned stripe) const noexcept {
    return search.stripes.load() >> 8 * stripe & 0xFF;
  }
  // phast.D5: afterwards all is visible of operations that had returned before.
  void let_go(unsigned stripe) const noexcept {
    const std::uint32_t before = holder(stripe);
    if (before == 0) [[likely]]
      return;
    for (unsigned spins = 0; holder(stripe) == before; ++spins) {
      // It may have lost its core. Then a heavy fence empties its store buffer: if it still holds
      // the stripe, it had not returned.
      if (spins >= P::kPatience && P::heavy_fence()) return;
      P::pause(spins);
    }
  }
  void unlatch_all() noexcept {
    PERDURE_ASSERT(P, "phast.D2", all_held());
    search.stripes.store(0);
  }
  // For assertions: by the caller, that is.
  bool all_held() const noexcept { return search.stripes.load() == kAllHeld; }
  bool linked() const noexcept { return (version.load(std::memory_order_acquire) & 1) == 0; }

  bool is_free(std::uint32_t slot) const noexcept {
    return P::load_byte(search.fingerprints[slot]) == 0;
  }
  // A free slot, as far as fingerprints and this word of the stripes say, or kNoSlot; one of the
  // fingerprint's home line if there is one.
  std::uint32_t free_slot(std::uint32_t word, std::uint8_t fingerprint) const noexcept {
    std::uint64_t taken = ~equal_to(0);
    for (; word != 0; word >>= 8) {
      if ((word & 0x7F) != 0) taken |= 1ULL << ((word & 0x7F) - 1);
    }
    const std::uint64_t free = ~taken & kSlots;
    return free != 0 ? first_of<G>(free, fingerprint) : kNoSlot;
  }

 private:
  std::uint64_t equal_to(std::uint8_t byte) const noexcept {
    return P::match_line(reinterpret_cast<const std::uint8_t*>(&search), byte);
  }
};

// A leaf's entries in key order, as of one version and number of entries. Every scanned leaf has
// one, so it has no padding to a line; of one that is free the first bytes name the next such.
template <class G>
struct ScanOrder {
  std::uint8_t slots[60];

  std::uint32_t next_free() const noexcept {
    std::uint32_t number = 0;
    std::memcpy(&number, slots, sizeof(number));
    return number;
  }
  void set_next_free(std::uint32_t number) noexcept { std::memcpy(slots, &number, sizeof(number)); }
  void prefetch() const noexcept {
    __builtin_prefetch(slots);
    __builtin_prefetch(slots + sizeof(slots) - 1);
  }
};
static_assert(sizeof(ScanOrder<DefaultGeometry>) == 60);

template <Platform P, class Codec, class G>
class LeafTable {
 public:
  using Desc = Descriptor<P, Codec, G>;
  static constexpr bool kBytes = Codec::kBytes;

  Status reserve(std::size_t leaves) noexcept {
    if (leaves > 0xFFFFFFF0ULL) leaves = 0xFFFFFFF0ULL;
    if (Status s = descriptors_.reserve(leaves + 1); !s.ok()) return s;
    if (Status s = places_.reserve(leaves + 1); !s.ok()) return s;
    return orders_.reserve(leaves + 1);
  }

  Desc& operator[](std::uint32_t number) const noexcept { return descriptors_[number]; }
  ScanOrder<G>& order(std::uint32_t number) const noexcept { return orders_[number]; }
  // Where the leaf lies, without its descriptor's cache miss: a hint, for prefetches.
  std::uint32_t place(std::uint32_t number) const noexcept {
    return places_[number].load(std::memory_order_relaxed);
  }
  void set_leaf(std::uint32_t number, std::uint32_t leaf) noexcept {
    descriptors_[number].leaf.store(leaf, std::memory_order_relaxed);
    places_[number].store(leaf, std::memory_order_relaxed);
  }

  // A fresh descriptor's number, or kNoLeaf. Version starts above whatever the slot had before.
  std::uint32_t take() noexcept {
    return take_from(descriptor_free_, descriptor_high_, descriptors_);
  }
  void give(std::uint32_t number) noexcept {
    LatchGuard guard(latch_);
    descriptors_[number].next.store(descriptor_free_, std::memory_order_relaxed);
    descriptor_free_ = number;
  }
  std::uint32_t take_order() noexcept {
    LatchGuard guard(latch_);
    if (order_free_ != 0) {
      const std::uint32_t number = order_free_;
      order_free_ = orders_[number].next_free();
      return number;
    }
    return order_high_ + 1 < orders_.capacity() ? ++order_high_ : 0;
  }
  void give_order(std::uint32_t number) noexcept {
    LatchGuard guard(latch_);
    orders_[number].set_next_free(order_free_);
    order_free_ = number;
  }
  std::uint32_t descriptor_count() const noexcept { return descriptor_high_; }
  std::uint64_t dram_bytes() noexcept {
    LatchGuard guard(latch_);
    return std::uint64_t{descriptor_high_} * (sizeof(Desc) + sizeof(std::uint32_t)) +
           order_bytes_locked();
  }
  std::uint64_t order_bytes() noexcept {
    LatchGuard guard(latch_);
    return order_bytes_locked();
  }

 private:
  std::uint64_t order_bytes_locked() const noexcept {
    return std::uint64_t{order_high_} * sizeof(ScanOrder<G>);
  }
  std::uint32_t take_from(std::uint32_t& free, std::uint32_t& high, Arena<Desc>& arena) noexcept {
    LatchGuard guard(latch_);
    if (free != kNoLeaf) {
      const std::uint32_t number = free;
      free = arena[number].next.load(std::memory_order_relaxed);
      return number;
    }
    return high + 1 < arena.capacity() ? ++high : kNoLeaf;
  }

  Arena<Desc> descriptors_;
  Arena<typename P::template Atomic<std::uint32_t>> places_;
  Arena<ScanOrder<G>> orders_;
  typename P::Latch latch_;
  std::uint32_t descriptor_free_ = kNoLeaf;
  std::uint32_t descriptor_high_ = 0;
  std::uint32_t order_free_ = 0;
  std::uint32_t order_high_ = 0;
};

}  // namespace perdure::phast
