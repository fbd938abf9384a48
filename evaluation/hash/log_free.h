// LogFree: the consistency scheme of level hashing's paper (section 3.3), for the tables that its
// evaluation compares with level hashing.
//
// WHAT  An item counts iff its token is set. The tokens of a bucket share a word, which one store
//   writes. Therefore an insertion, a deletion and a movement need no log. An update needs none if
//   the item's bucket has an empty slot.
// LAYOUT  A bucket is {tokens, slots} and begins at a line, or at half a line if it has one slot:
//   the header area of the paper's figure 7. No slot lies in two lines.
// COST  (F write-backs, S fences) insert 2F 2S: the item, then its token, even if both lie in one
//   line, as in the paper (level hashing here writes that line back once). erase 1F 1S. movement
//   3F 3S. update 2F 2S: into an empty slot, or the old item to the log and then the value in
//   place, as the paper's algorithm 4 prints it. The paper does not say how a log entry ends;
//   nothing is counted for that. Without write-backs (the paper's DRAM variants) an update is in
//   place and not logged.
// WHY A LOG  The 8-byte values of these tables could be stored in place without one, as level
//   hashing's are in src/index/level. The paper's values of 15 bytes could not, and the comparison
//   is with its scheme.
#pragma once

#include <cstdint>

#include "index/level/codec.h"
#include "platform/platform.h"

namespace perdure::paper {

struct alignas(16) Slot {  // lies in one line
  std::uint64_t key;
  std::uint64_t value;
};

template <std::uint32_t kSlots>
struct alignas(kSlots == 1 ? kLine / 2 : kLine) Bucket {
  static_assert(kSlots >= 1 && kSlots <= 64);
  static constexpr std::uint32_t kFull = kSlots;  // no empty slot

  std::uint64_t tokens;  // bit i: slots[i] counts
  Slot slots[kSlots];

  bool has(std::uint32_t slot) const noexcept { return (tokens >> slot & 1) != 0; }
  std::uint32_t used() const noexcept {
    return static_cast<std::uint32_t>(__builtin_popcountll(tokens));
  }
  std::uint32_t free_slot() const noexcept {
    return used() == kSlots ? kFull : static_cast<std::uint32_t>(__builtin_ctzll(~tokens));
  }
  // Through the platform, so that one that counts the lines that a search reads sees them.
  template <Platform P>
  std::uint32_t find(const P& platform, std::uint64_t key) const noexcept {
    for (std::uint32_t i = 0; i < kSlots; ++i) {
      if (platform.load(slots[i].key) == key && has(i)) return i;
    }
    return kFull;
  }
};

// Level hashing's two hash functions. The seeds are fixed, because a benchmark needs no protection
// from attacks.
inline level::Probe place(std::uint64_t key) noexcept {
  constexpr level::Seeds kSeeds{{0x9E3779B97F4A7C15ULL, 0xC2B2AE3D27D4EB4FULL}};
  return level::place(key, kSeeds);
}

// The item that is being updated in place, and its place.
struct alignas(kLine) LogLine {
  std::uint64_t place;
  Slot item;
};

template <Platform P>
class LogFree {
 public:
  explicit LogFree(P& platform) noexcept : platform_(platform) {}
  void set_log(LogLine* log) noexcept { log_ = log; }

  template <std::uint32_t kSlots>
  void put(Bucket<kSlots>& bucket, std::uint32_t slot, std::uint64_t key,
           std::uint64_t value) noexcept {
    write(bucket.slots[slot], {key, value});
    set_word(bucket.tokens, bucket.tokens | 1ULL << slot);
  }
  template <std::uint32_t kSlots>
  void drop(Bucket<kSlots>& bucket, std::uint32_t slot) noexcept {
    set_word(bucket.tokens, bucket.tokens & ~(1ULL << slot));
  }
  // A crash during a movement leaves two equal items. Either may be dropped.
  template <std::uint32_t kSlots>
  void move(Bucket<kSlots>& from, std::uint32_t slot, Bucket<kSlots>& to,
            std::uint32_t free_slot) noexcept {
    put(to, free_slot, from.slots[slot].key, from.slots[slot].value);
    drop(from, slot);
  }
  template <std::uint32_t kSlots>
  void update(Bucket<kSlots>& bucket, std::uint32_t slot, std::uint64_t value) noexcept {
    const std::uint32_t other = bucket.free_slot();
    if (other == bucket.kFull || !platform_.durable()) {
      update_logged(bucket.slots[slot], value);
      return;
    }
    write(bucket.slots[other], {bucket.slots[slot].key, value});
    set_word(bucket.tokens, bucket.tokens ^ (1ULL << slot | 1ULL << other));
  }
  void update_logged(Slot& slot, std::uint64_t value) noexcept {
    if (platform_.durable()) {
      const LogLine entry{reinterpret_cast<std::uint64_t>(&slot), slot};
      platform_.copy(log_, &entry, sizeof(entry));
      platform_.flush(log_, sizeof(entry), "bench.update.log"_site);
      (void)platform_.fence("bench.update.log"_site);
    }
    set_word(slot.value, value);
  }
  // Writes an item that does not count yet. Call it before the store that makes it count.
  void write(Slot& slot, const Slot& item) noexcept {
    platform_.copy(&slot, &item, sizeof(item));
    platform_.flush(&slot, sizeof(item), "bench.put.item"_site);
    (void)platform_.fence("bench.put.item"_site);
  }
  void set_word(std::uint64_t& word, std::uint64_t value) noexcept {
    platform_.store(word, value);
    platform_.flush(&word, sizeof(word), "bench.put.word"_site);
    (void)platform_.fence("bench.put.word"_site);  // memory without a file is never poisoned
  }

 private:
  P& platform_;
  LogLine* log_ = nullptr;
};

}  // namespace perdure::paper
