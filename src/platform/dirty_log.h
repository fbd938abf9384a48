// DirtyLog: which lines of a pool have changed, in memory that outlives the process.
//
// WHAT  A writer notes a line before it stores to it: an entry in a ring of its own, or, if the
//   ring is full or has no space, a bit for the line. One thread, that which cuts, moves the
//   entries into the bits, takes lines, and says later that they are on the disk (settle) or not
//   (again). If the process is killed, the next one finds every line that is not on the disk
//   (inherit).
// LAYOUT  of a Storage of its own, shared memory. The lines of the pool are numbered from 0.
//     header     a page
//     readers    per thread slot: whether it has a ring, and where its next entry is read
//     sets       `dirty` and `taken`: a bit per line of the pool; a bit over each 8 of these words;
//                a bit over each word of those. The words of lines have space as far as cover() was
//                called.
//     rings      kRing words per thread slot: first line << 7 | number of lines; 0: free
// INVARIANTS
//   cut.L1  From before a store on, its line is in a ring, in `dirty`, or in `taken`, until a cut
//       that has the store is settled.
//   cut.L2  A line that was taken is in `taken` before it leaves `dirty`, until settle().
//   cut.L3  A bit over others is set after them, and cleared before they are read.
//   cut.L4  Only its thread adds to a ring, and only the thread that cuts drains it.
// OPERATIONS
//   note     entry (release), if the place is free; or the bits by locked instructions, unless they
//            are set
//   drain    per entry: entry (acquire), bits, then the place is free
//   take     from the top: the bit over a group off; then for each word `taken` on and `dirty` off
//   settle   `taken` off
//   again    `dirty` on, then `taken` off
//   inherit  of the next process, before it stores: again, and every entry of every ring. The bits
//            over words are made anew, because a kill may have come between a word and them.
// ORDERING  A kill loses no store of a thread, and shared memory has them in the order of the
//   instructions for the next process. So for a kill L1 and L2 need the order of the program.
//   A writer sets a bit, unless it is set, and then looks at the bit over it. The thread that cuts
//   clears the bit over others and then reads these. These accesses are seq_cst: otherwise both
//   threads could read what was before, and the line would have no bit over it.
//   A bit that a writer finds set may be taken before the writer stores. What comes between a take
//   and a copy is in cutter.h.
// PROGRESS  wait-free for writers: none allocates, and none waits for another thread.
#pragma once

#include <algorithm>
#include <atomic>  // memory orders
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "platform/platform.h"
#include "platform/storage.h"

namespace perdure {

template <class P>
class DirtyLog {
 public:
  static constexpr std::uint64_t kMagic = 0x31474F4C59545244;  // "DRTYLOG1"
  static constexpr std::uint64_t kRing = 32'768;               // words: 256 KiB
  static constexpr std::uint64_t kLeast = 512;                 // lines that take() needs room for

  // For the lines of a pool of at most `pool_bytes`. The storage must have a capacity of
  // bytes_for(pool_bytes), read as zero where it is new, and stay valid.
  DirtyLog(Storage& storage, std::uint64_t pool_bytes) noexcept
      : storage_(storage), shape_(pool_bytes) {}
  DirtyLog(const DirtyLog&) = delete;
  DirtyLog& operator=(const DirtyLog&) = delete;
  static std::uint64_t bytes_for(std::uint64_t pool_bytes) noexcept {
    return Shape(pool_bytes).end;
  }

  // --- before threads use it ---
  // Makes an empty log. Errors: pool_full.
  Status create() noexcept;
  // Whether a file that begins with these words may be a log, perhaps a damaged one.
  static bool begins_log(const std::uint64_t (&words)[3]) noexcept {
    return words[0] == kMagic && words[2] == kRing;
  }
  // Opens the log that a process has left. Every line in it becomes dirty.
  // Errors: corruption: it is no log, or damaged, or of a pool of another size.
  Status inherit() noexcept;

  // Gives the first bytes of the pool their bits. Call it before a store beyond what was covered.
  // One thread at a time. Errors: pool_full, and then nothing has changed.
  Status cover(std::uint64_t pool_bytes) noexcept;

  // --- writers ---
  using Word = typename P::template Atomic<std::uint64_t>;
  // The lines [line, line + count) will be stored to; count <= 64. `ring` is what make_ring()
  // returned for this thread, or null; `at` is of the thread alone, and begins with 0.
  void note(Word* ring, std::uint64_t& at, std::uint64_t line, std::uint64_t count) noexcept {
    PERDURE_ASSERT(P, "cut.L1", covers(line + count - 1));
    if (ring == nullptr || ring[at].load(std::memory_order_acquire) != 0) [[unlikely]]
      return mark(line, count);
    ring[at].store(line << 7 | count, std::memory_order_release);
    at = (at + 1) % kRing;
  }

  // --- the thread that cuts ---
  // The ring of a thread, which has none yet. Null: there is no space.
  Word* make_ring(std::uint32_t slot) noexcept;
  // Moves the entries of the first `slots` rings into the set of dirty lines. Returns false if a
  // ring is damaged.
  bool drain(std::uint32_t slots) noexcept;
  std::uint64_t drained() const noexcept { return drained_; }  // entries, since the open
  // Whether no line is dirty but for those in rings and those that were taken.
  bool empty() const noexcept { return next_top(dirty_, 0) == shape_.tops; }
  // Whether the line has its bits.
  bool covers(std::uint64_t line) const noexcept {
    return line / 64 < covered().load(std::memory_order_relaxed);
  }
  // Whether the line is dirty, and not only noted in a ring.
  bool has(std::uint64_t line) const noexcept {
    return covers(line) &&
           (dirty_.words[line / 64].load(std::memory_order_relaxed) >> line % 64 & 1) != 0;
  }
  // Whether none of the lines is dirty, as has() says, nor taken. Both are multiples of 64.
  bool is_clean(std::uint64_t from, std::uint64_t to) const noexcept {
    for (std::uint64_t at = from / 64; at < to / 64 && covers(at * 64); ++at) {
      if (dirty_.words[at].load(std::memory_order_relaxed) != 0) return false;
      if (taken_.words[at].load(std::memory_order_relaxed) != 0) return false;
    }
    return true;
  }
  // Takes dirty lines, in ascending order from where the last call ended, until `lines` has less
  // room than kLeast, or all were seen; then `ended` is true. Returns their number.
  std::uint64_t take(std::span<std::uint64_t> lines, bool& ended) noexcept;
  // Lines that were taken are dirty again.
  void give_back(std::span<const std::uint64_t> lines) noexcept {
    at_ = 0;  // a pass begins anew
    for (const std::uint64_t line : lines) mark(line, 1);
  }
  // The lines that were taken are on the disk.
  void settle() noexcept;
  // The lines that were taken are dirty again.
  void again() noexcept;

 private:
  static constexpr std::uint64_t kGroup = 8;  // words under a bit: a line of them
  static constexpr std::uint64_t bit(std::uint64_t n) noexcept {
    return std::uint64_t{1} << n % 64;
  }
  struct Header {
    std::uint64_t magic;
    std::uint64_t pool_bytes;
    std::uint64_t ring_words;
    std::uint64_t slots;
    std::uint64_t covered;
  };
  struct Reader {
    Word has_ring;
    Word at;
  };
  struct SetShape {  // offsets in the storage
    std::uint64_t words = 0, tops = 0, roofs = 0;
  };
  struct Shape {
    explicit Shape(std::uint64_t bytes) noexcept;
    // For so many bytes of a pool. A page of words at a time.
    static std::uint64_t words_for(std::uint64_t bytes) noexcept {
      return align_up(align_up(bytes, kLine * 64) / (kLine * 64), kPage / 8);
    }
    std::uint64_t pool_bytes, words, tops, roofs;  // numbers of words
    std::uint64_t readers = kPage, words_begin, rings, end;
    SetShape dirty, taken;
  };
  struct Set {
    Word* words;
    Word* tops;
    Word* roofs;
    void set(Word& word, std::uint64_t bits) const noexcept {
      if ((word.load(std::memory_order_seq_cst) & bits) != bits) {
        word.fetch_or(bits, std::memory_order_seq_cst);
      }
    }
    void add(std::uint64_t at, std::uint64_t bits) const noexcept {
      set(words[at], bits);
      set(tops[at / kGroup / 64], bit(at / kGroup));
      set(roofs[at / kGroup / 64 / 64], bit(at / kGroup / 64));
    }
  };

  Word* word(std::uint64_t offset) const noexcept {
    return reinterpret_cast<Word*>(storage_.base() + offset);
  }
  Set set_of(const SetShape& shape) const noexcept {
    return {word(shape.words), word(shape.tops), word(shape.roofs)};
  }
  Word* ring_of(std::uint32_t slot) const noexcept { return rings_ + slot * kRing; }
  void find_parts() noexcept;
  // How many words of lines have space; in the header, because the next process needs it.
  Word& covered() const noexcept { return *word(offsetof(Header, covered)); }
  bool drain_ring(std::uint32_t slot) noexcept;
  bool take_entry(Word& place, std::uint64_t entry) noexcept;
  [[gnu::noinline]] void mark(std::uint64_t line, std::uint64_t count) noexcept;
  std::uint64_t next_top(const Set& set, std::uint64_t top) const noexcept;
  std::uint64_t take_group(std::uint64_t group, std::uint64_t* lines) noexcept;
  // Calls visit(word, bits) for the words of `taken`, which becomes empty.
  template <class F>
  void empty_taken(F&& visit) noexcept;

  Storage& storage_;
  Shape shape_;
  Reader* readers_ = nullptr;
  Word* rings_ = nullptr;
  Set dirty_{}, taken_{};
  std::uint64_t at_ = 0;  // group at which the next take() begins
  std::uint64_t drained_ = 0;
};

template <class P>
DirtyLog<P>::Shape::Shape(std::uint64_t bytes) noexcept
    : pool_bytes(bytes),
      words(words_for(bytes)),
      tops(align_up(words / kGroup, 64) / 64),
      roofs(align_up(tops, 64) / 64) {
  std::uint64_t at = align_up(readers + kMaxThreadSlots * sizeof(Reader), kPage);
  const auto next = [&](std::uint64_t count) {
    const std::uint64_t begin = at;
    at = align_up(at + count * 8, kPage);
    return begin;
  };
  for (SetShape* set : {&dirty, &taken}) {
    set->roofs = next(roofs);
    set->tops = next(tops);
  }
  words_begin = at;
  for (SetShape* set : {&dirty, &taken}) set->words = next(words);
  rings = at;
  end = next(kMaxThreadSlots * kRing) + kMaxThreadSlots * kRing * 8;
}

template <class P>
void DirtyLog<P>::find_parts() noexcept {
  readers_ = reinterpret_cast<Reader*>(storage_.base() + shape_.readers);
  rings_ = word(shape_.rings);
  dirty_ = set_of(shape_.dirty);
  taken_ = set_of(shape_.taken);
}

template <class P>
Status DirtyLog<P>::create() noexcept {
  if (Status s = storage_.allocate(0, shape_.words_begin); !s.ok()) return s;
  const Header header{kMagic, shape_.pool_bytes, kRing, kMaxThreadSlots, 0};
  std::memcpy(storage_.base(), &header, sizeof(header));
  find_parts();
  return {};
}

template <class P>
Status DirtyLog<P>::inherit() noexcept {
  Header header{};
  if (storage_.size() < shape_.words_begin) return StatusCode::corruption;
  std::memcpy(&header, storage_.base(), sizeof(header));
  const std::uint64_t words_end = shape_.taken.words + header.covered * 8;
  if (header.magic != kMagic || header.pool_bytes != shape_.pool_bytes ||
      header.ring_words != kRing || header.slots != kMaxThreadSlots ||
      header.covered > shape_.words || header.covered % (kPage / 8) != 0 ||
      (header.covered != 0 && storage_.size() < words_end)) {
    return StatusCode::corruption;
  }
  find_parts();
  for (const Set& set : {dirty_, taken_}) {
    for (std::uint64_t i = 0; i < shape_.tops; ++i) set.tops[i].store(0, std::memory_order_relaxed);
    for (std::uint64_t i = 0; i < shape_.roofs; ++i) {
      set.roofs[i].store(0, std::memory_order_relaxed);
    }
  }
  for (std::uint64_t at = 0; at < header.covered; ++at) {
    const std::uint64_t taken = taken_.words[at].load(std::memory_order_relaxed);
    if (taken == 0 && dirty_.words[at].load(std::memory_order_relaxed) == 0) continue;
    dirty_.add(at, taken);
    taken_.words[at].store(0, std::memory_order_release);
  }
  for (std::uint32_t slot = 0; slot < kMaxThreadSlots; ++slot) {
    if (readers_[slot].has_ring.load(std::memory_order_relaxed) == 0) continue;
    if (shape_.rings + (slot + 1) * (kRing * 8) > storage_.size()) return StatusCode::corruption;
    for (std::uint64_t at = 0; at < kRing; ++at) {
      Word& place = ring_of(slot)[at];
      const std::uint64_t entry = place.load(std::memory_order_relaxed);
      if (entry != 0 && !take_entry(place, entry)) return StatusCode::corruption;
    }
    readers_[slot].at.store(0, std::memory_order_relaxed);
  }
  return {};
}

template <class P>
Status DirtyLog<P>::cover(std::uint64_t pool_bytes) noexcept {
  const std::uint64_t had = covered().load(std::memory_order_relaxed);
  const std::uint64_t words = std::min(shape_.words, Shape::words_for(pool_bytes));
  if (words <= had) return {};
  for (const SetShape* set : {&shape_.dirty, &shape_.taken}) {
    if (Status s = storage_.allocate(set->words + had * 8, (words - had) * 8); !s.ok()) return s;
  }
  covered().store(words, std::memory_order_release);
  return {};
}

template <class P>
typename DirtyLog<P>::Word* DirtyLog<P>::make_ring(std::uint32_t slot) noexcept {
  const std::uint64_t at = shape_.rings + slot * (kRing * 8);
  if (!storage_.allocate(at, kRing * 8).ok()) return nullptr;
  readers_[slot].has_ring.store(1, std::memory_order_release);
  return ring_of(slot);
}

template <class P>
void DirtyLog<P>::mark(std::uint64_t line, std::uint64_t count) noexcept {
  while (count > 0) {
    const std::uint64_t here = std::min(count, 64 - line % 64);
    const std::uint64_t ones = here == 64 ? ~std::uint64_t{0} : bit(here) - 1;
    dirty_.add(line / 64, ones << line % 64);
    line += here;
    count -= here;
  }
}

// Empties the place of an entry. Returns false if no thread has written such an entry.
template <class P>
bool DirtyLog<P>::take_entry(Word& place, std::uint64_t entry) noexcept {
  const std::uint64_t line = entry >> 7;
  const std::uint64_t count = entry & 127;
  if (count == 0 || count > 64 || !covers(line + count - 1)) return false;
  mark(line, count);
  place.store(0, std::memory_order_release);
  return true;
}

template <class P>
bool DirtyLog<P>::drain_ring(std::uint32_t slot) noexcept {
  Word* ring = ring_of(slot);
  std::uint64_t at = readers_[slot].at.load(std::memory_order_relaxed);
  bool right = true;
  for (std::uint64_t i = 0; i < kRing && right; ++i) {  // not for ever: the thread goes on
    const std::uint64_t entry = ring[at].load(std::memory_order_acquire);
    if (entry == 0) break;
    right = take_entry(ring[at], entry);
    ++drained_;
    at = (at + 1) % kRing;
  }
  readers_[slot].at.store(at, std::memory_order_relaxed);
  return right;
}

template <class P>
bool DirtyLog<P>::drain(std::uint32_t slots) noexcept {
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    if (readers_[slot].has_ring.load(std::memory_order_relaxed) == 0) continue;
    if (!drain_ring(slot)) return false;
  }
  return true;
}

// Returns the first top from `top` on that has a bit over it, or the number of tops.
template <class P>
std::uint64_t DirtyLog<P>::next_top(const Set& set, std::uint64_t top) const noexcept {
  for (std::uint64_t roof = top / 64; roof < shape_.roofs; ++roof) {
    std::uint64_t bits = set.roofs[roof].load(std::memory_order_seq_cst);
    if (roof == top / 64) bits &= ~std::uint64_t{0} << top % 64;
    if (bits != 0) return roof * 64 + static_cast<unsigned>(std::countr_zero(bits));
  }
  return shape_.tops;
}

template <class P>
std::uint64_t DirtyLog<P>::take_group(std::uint64_t group, std::uint64_t* lines) noexcept {
  std::uint64_t count = 0;
  for (std::uint64_t at = group * kGroup; at < (group + 1) * kGroup; ++at) {
    std::uint64_t bits = dirty_.words[at].load(std::memory_order_seq_cst);
    if (bits == 0) continue;
    if (P::runs("cut.take.keep"_site)) taken_.add(at, bits);
    dirty_.words[at].fetch_and(~bits, std::memory_order_seq_cst);
    for (; bits != 0; bits &= bits - 1) {
      lines[count++] = at * 64 + static_cast<unsigned>(std::countr_zero(bits));
    }
  }
  return count;
}

template <class P>
std::uint64_t DirtyLog<P>::take(std::span<std::uint64_t> lines, bool& ended) noexcept {
  std::uint64_t count = 0;
  ended = false;
  for (std::uint64_t top = next_top(dirty_, at_ / 64); top < shape_.tops;
       top = next_top(dirty_, top + 1)) {
    dirty_.roofs[top / 64].fetch_and(~bit(top), std::memory_order_seq_cst);
    std::uint64_t groups = dirty_.tops[top].load(std::memory_order_seq_cst);
    // Groups before the one at which the pass goes on are for the next pass: so each pass ends.
    const std::uint64_t passed = top == at_ / 64 ? bit(at_) - 1 : 0;
    std::uint64_t left = groups & passed;
    for (groups &= ~passed; groups != 0; groups &= groups - 1) {
      const auto group = static_cast<unsigned>(std::countr_zero(groups));
      if (lines.size() - count < kLeast) {
        at_ = top * 64 + group;
        left |= groups;
        break;
      }
      const bool first = P::runs("cut.take.order"_site);
      if (first) dirty_.tops[top].fetch_and(~bit(group), std::memory_order_seq_cst);
      count += take_group(top * 64 + group, lines.data() + count);
      if (!first) dirty_.tops[top].fetch_and(~bit(group), std::memory_order_seq_cst);
    }
    if (left != 0) dirty_.roofs[top / 64].fetch_or(bit(top), std::memory_order_seq_cst);
    if (groups != 0) return count;
  }
  at_ = 0;
  ended = true;
  return count;
}

template <class P>
template <class F>
void DirtyLog<P>::empty_taken(F&& visit) noexcept {
  for (std::uint64_t top = next_top(taken_, 0); top < shape_.tops;
       top = next_top(taken_, top + 1)) {
    const std::uint64_t groups = taken_.tops[top].load(std::memory_order_relaxed);
    for (std::uint64_t left = groups; left != 0; left &= left - 1) {
      const std::uint64_t group = top * 64 + static_cast<unsigned>(std::countr_zero(left));
      for (std::uint64_t at = group * kGroup; at < (group + 1) * kGroup; ++at) {
        const std::uint64_t bits = taken_.words[at].load(std::memory_order_relaxed);
        if (bits == 0) continue;
        visit(at, bits);
        taken_.words[at].store(0, std::memory_order_release);
      }
    }
    taken_.tops[top].store(0, std::memory_order_release);
    taken_.roofs[top / 64].fetch_and(~bit(top), std::memory_order_release);
  }
}

template <class P>
void DirtyLog<P>::settle() noexcept {
  empty_taken([](std::uint64_t, std::uint64_t) {});
}

template <class P>
void DirtyLog<P>::again() noexcept {
  at_ = 0;
  empty_taken([&](std::uint64_t at, std::uint64_t bits) { dirty_.add(at, bits); });
}

}  // namespace perdure
