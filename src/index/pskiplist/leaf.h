// Leaf: sorted keys of the directory with the numbers of their nodes, in DRAM. LeafArena: all
// leaves, by number. Responsible for pskiplist.D1.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "index/ordered/inner.h"
#include "index/pskiplist/layout.h"
#include "util/arena.h"

namespace perdure::pskiplist {

using ordered::BytesCodec;
using ordered::IntegerCodec;
using ordered::kNoLeaf;
using ordered::Probe;
using ordered::Separator;

template <class T>
struct alignas(64) Leaf {
  using P = typename T::Platform;
  template <class V>
  using Atomic = typename P::template Atomic<V>;
  static constexpr bool kBytes = T::Codec::kBytes;
  static constexpr std::uint32_t kKeys = T::Geometry::kLeafKeys;
  static constexpr std::uint64_t kLocked = 1;
  static constexpr std::uint64_t kGone = 2;

  Atomic<std::uint64_t> version{0};
  Atomic<std::uint64_t> low{0};    // inclusive word, if there is no separator
  Atomic<std::uint64_t> bound{0};  // inclusive
  Atomic<std::uint32_t> next{kNoLeaf};
  Atomic<std::uint32_t> count{0};
  [[no_unique_address]] ordered::Separators<P, kBytes> separators;
  // Byte strings: all keys begin with so many bytes of the separator of `bound` (pskiplist.D5).
  Atomic<std::uint32_t> prefix{0};
  alignas(64) Atomic<std::uint64_t> words[kKeys];  // of what follows the prefix, in key order
  Atomic<std::uint32_t> nodes[kKeys];

  bool below(const Probe& probe) const { return ordered::lies_below<kBytes>(*this, probe); }
  bool above(const Probe& probe) const { return ordered::lies_above<kBytes>(*this, probe); }
  // Returns the word by which the keys are searched for the probe, which may lie outside the range.
  [[gnu::always_inline]] std::uint64_t word_in(const Probe& probe) const {
    if constexpr (kBytes) {
      const std::uint32_t size = prefix.load(std::memory_order_acquire);
      if (size != 0) return ordered::word_behind(prefix_of(size), probe);
    }
    return probe.word;
  }
  // The other functions of prefixes are for the holder of the lock.
  bool has_prefix(std::string_view key) const
    requires(kBytes)
  {
    const std::uint32_t size = prefix.load(std::memory_order_relaxed);
    if (size == 0) return true;
    const std::string_view bytes = prefix_of(size);
    return bytes.size() == size && key.starts_with(bytes);
  }
  // Returns the word that key i has behind a shorter prefix, of so many bytes.
  std::uint64_t word_behind(std::uint32_t shorter, std::uint32_t i) const {
    const std::uint64_t word = words[i].load(std::memory_order_relaxed);
    if constexpr (kBytes) {
      const std::string_view between =
          prefix_of(prefix.load(std::memory_order_relaxed)).substr(shorter);
      const std::uint64_t head = ordered::head_word(between);
      return between.size() >= sizeof(word) ? head : head | word >> 8 * between.size();
    }
    return word;
  }
  void prefetch() const {
    const auto* bytes = reinterpret_cast<const char*>(this);
    for (std::size_t line = 0; line < sizeof(*this); line += kLine) {
      __builtin_prefetch(bytes + line);
    }
  }
  // Makes key i what key j of the other leaf is.
  void copy(std::uint32_t i, const Leaf& from, std::uint32_t j, std::memory_order order) {
    words[i].store(from.words[j].load(std::memory_order_relaxed), order);
    nodes[i].store(from.nodes[j].load(std::memory_order_relaxed), order);
  }
  bool locked() const {
    return (version.load(std::memory_order_relaxed) & (kLocked | kGone)) == kLocked;
  }
  bool try_lock(std::uint64_t seen) {
    return version.compare_exchange_strong(seen, seen | kLocked, std::memory_order_acq_rel);
  }
  void unlock() {
    PERDURE_ASSERT(P, "pskiplist.D1", locked());
    version.store((version.load(std::memory_order_relaxed) | 3) + 1, std::memory_order_release);
  }
  void unlock_gone() {
    PERDURE_ASSERT(P, "pskiplist.D1", locked());
    version.store(((version.load(std::memory_order_relaxed) | 3) + 1) | kGone,
                  std::memory_order_release);
  }

 private:
  // A reader may meet the separator of a later moment: its version tells it so.
  std::string_view prefix_of(std::uint32_t size) const {
    const auto* bound_here = separators.bound.load(std::memory_order_acquire);
    return bound_here == nullptr ? std::string_view() : bound_here->view().substr(0, size);
  }
};

template <class T>
class LeafArena {
  using P = typename T::Platform;

 public:
  using Desc = Leaf<T>;
  static constexpr bool kBytes = Desc::kBytes;

  Status reserve(std::size_t leaves) {
    return leaves_.reserve(std::min<std::size_t>(leaves + 1, 0xFFFFFFF0));
  }
  Desc& operator[](std::uint32_t number) const { return leaves_[number]; }
  // Returns the number of a free leaf, which is locked now, or kNoLeaf.
  std::uint32_t take() {
    std::uint32_t number = kNoLeaf;
    {
      LatchGuard guard(latch_);
      if (free_ != kNoLeaf) {
        number = free_;
        free_ = leaves_[number].next.load(std::memory_order_relaxed);
      } else if (high_ + 1 < leaves_.capacity()) {
        number = ++high_;
      }
    }
    if (number != kNoLeaf) begin(number);
    return number;
  }
  // Returns the first of so many numbers in a row, or kNoLeaf. For each comes begin().
  std::uint32_t take_row(std::uint64_t count) {
    LatchGuard guard(latch_);
    if (leaves_.capacity() - high_ <= count) return kNoLeaf;
    high_ += static_cast<std::uint32_t>(count);
    return high_ - static_cast<std::uint32_t>(count) + 1;
  }
  // The leaf is empty and locked.
  void begin(std::uint32_t number) {
    Desc& leaf = leaves_[number];
    const std::uint64_t version = leaf.version.load(std::memory_order_relaxed);
    leaf.version.store(((version | 3) + 1) | Desc::kLocked, std::memory_order_relaxed);
    leaf.next.store(kNoLeaf, std::memory_order_relaxed);
    leaf.count.store(0, std::memory_order_relaxed);
    leaf.prefix.store(0, std::memory_order_relaxed);
  }
  void give(std::uint32_t number) {
    LatchGuard guard(latch_);
    PERDURE_ASSERT(P, "pskiplist.D1",
                   (leaves_[number].version.load(std::memory_order_relaxed) & Desc::kGone) != 0);
    leaves_[number].next.store(free_, std::memory_order_relaxed);
    free_ = number;
  }
  std::uint32_t taken() {
    LatchGuard guard(latch_);
    return high_;
  }

 private:
  Arena<Desc> leaves_;
  typename P::Latch latch_;
  std::uint32_t free_ = kNoLeaf;
  std::uint32_t high_ = 0;
};

}  // namespace perdure::pskiplist
