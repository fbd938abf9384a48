// Table: the extent table as an open finds it. Responsible for heap.I6 and heap.I7.
//
// WHAT  An open reads no word of the table. The extents that it finds are unread: chunks of them
//   become read from the last one to the first, because free extents lie at the end of a pool that
//   has grown. A unit of background work reads (OpenSweep), and so does each call that needs to
//   know a free extent, or all of them. A call that has the offset of a block decodes the word of
//   that extent alone.
// INVARIANTS
//   heap.I6  (DRAM) Extents before `unread_` are unread. Nothing assigns or releases one, so its
//       word stays as the open has found it, and each reader finds the same. No bit of in_use_, no
//       count and no list has it; what needs them for all extents comes after read_table().
//   heap.I7  (C) Before an extent counts as free, its word is durable, and so is each word that
//       says free between it and the slab or run below: a killed process may have released the
//       extent, or the run that had it, and not fenced. Otherwise the extent could be punched, or
//       used anew, and a power failure would bring back the slab or the run.
// OPERATIONS
//   a chunk      The words between two heads say virgin, or free, whether they lie in a run or not.
//                So the head at or below the chunk's first word is searched first (Cover). A
//                damaged word is damage unless a run covers it, as nothing reads such a word.
//   touch        Before a mark or a free: sets up the one extent, if it is a slab or a run. The
//                chunk that has it later passes over that.
//   block_bytes, is_block, is_plain
//                decode the word of an unread extent each time. No latch.
// CRASHES  Nothing but heap.I7 is stored or written back. The next open begins again.
// DAMAGE  A call with an offset reports the word of its extent. The reader of chunks stops at a
//   damaged word for good: extents behind it are served and allocated, nothing is freed (the sweep
//   comes after the table), and growth goes on. What needs the whole table returns the damage.
// MEMORY  DRAM for every bitmap is reserved as address space when the open begins: reading cannot
//   run out of it.
// ORDERING  unread_ (release, after the chunk's extents are set up; acquire, before one is used);
//   kKnown the same for one extent.
// PROGRESS  A chunk is at most kMostWords; the search for a head reads words only, up to the
//   longest run or stretch of free extents, once for all chunks in it. touch() may wait for a chunk
//   that another thread sets up: some ten microseconds. Nothing is written back under a latch.
//   table_latch_ comes before extent_latch_; its holder takes no other.
#pragma once

#include <algorithm>
#include <utility>

#include "heap/state.h"

namespace perdure::heap {

template <Platform P>
class Table : public State<P> {
  using Base = State<P>;

 public:
  using Base::Base;

  // Whether all of the table is read.
  [[gnu::always_inline]] bool table_read() const { return is_read(0); }
  // Reads a chunk. True: there are more. Any thread, without a latch of the heap. Errors:
  // corruption, poisoned.
  [[gnu::noinline]] Expected<bool> read_some() {
    std::uint64_t end = 0;
    Cover cover;
    {
      LatchGuard guard(table_latch_);
      end = unread_.load(std::memory_order_relaxed);
      if (end == 0) return false;
      if (!table_failure_.ok()) return fail(Status(table_failure_));
      cover = cover_;
    }
    const std::uint64_t begin = end - std::min(end, chunk_);
    Status s;
    std::uint64_t first = begin;  // of what may not be durable
    if (cover.head > begin) s = find_cover(begin, cover, first);
    // No thread changes these words meanwhile (heap.I6). If the cover is known, the chunk that has
    // found it has written this one back.
    if (s.ok() && !write_back(first, end)) return fail(StatusCode::poisoned);
    LatchGuard guard(table_latch_);
    if (const std::uint64_t now = unread_.load(std::memory_order_relaxed); now != end) {
      return now != 0;
    }
    if (s.ok()) s = set_up(begin, end, cover);
    if (!s.ok()) {
      table_failure_ = s;
      return fail(std::move(s));
    }
    cover_ = cover;
    publish(begin, end);
    return begin != 0;
  }
  // Reads what is left.
  Status read_table() {
    while (!table_read()) {
      if (auto more = read_some(); !more) return std::move(more.error());
    }
    return {};
  }
  // A hint to the medium: of all slabs, those of this kind will be read soon. Once for all maps.
  [[gnu::noinline]] void read_ahead(BlockKind kind) {
    if (reads_ahead_.exchange(true, std::memory_order_relaxed)) return;
    std::uint64_t begin = 0;  // of adjacent extents
    std::uint64_t end = 0;
    const auto tell = [&] {
      if (begin < end) storage_.will_read(offset_of(begin), (end - begin) << extent_shift_);
    };
    for (std::uint64_t i = 0; i < count_; ++i) {
      ExtentWord word;
      const bool wanted = !geometry_.is_table(i) && decode(i, word) &&
                          word.state == ExtentState::slab && word.kind == kind;
      if (!wanted) continue;
      if (i != end) {
        tell();
        begin = i;
      }
      end = i + 1;
    }
    tell();
  }
  // Whether the extent may hold what a process before this one has stored.
  bool may_be_old(std::uint64_t extent) const {
    if (!is_read(extent)) return !geometry_.is_table(extent);
    return extents_[extent].has(kOld);
  }

  // Whether a block of an assigned extent starts here.
  bool is_block(std::uint64_t offset) const {
    std::uint64_t number = 0;
    std::uint32_t block = 0;
    // A caller asks for words that may name no block: without the text of an error.
    return this->contains(offset, 16) && locate(offset, number, block).ok();
  }
  // Whether the heap promises nothing about the block's content after it was freed.
  bool is_plain(std::uint64_t offset) const {
    return use_of(extent_of(offset)).kind == BlockKind::plain;
  }
  // 0 if no extent lies there.
  [[gnu::always_inline]] std::size_t block_bytes(std::uint64_t offset) const {
    if (!this->contains(offset, 16)) return 0;
    const std::uint64_t number = extent_of(offset);
    if (!is_read(number)) [[unlikely]]  // asked once: it may become read meanwhile
      return block_bytes_unread(number);
    const Extent& extent = extents_[number];
    if (extent.state == ExtentState::run) [[unlikely]]
      return static_cast<std::size_t>(extent.count()) << extent_shift_;
    return kClassSizes[extent.size_class];
  }

 protected:
  using Base::bitmap_bytes_, Base::blocks_in, Base::extent_latch_, Base::extent_of,
      Base::extent_shift_, Base::extents_, Base::first_free_, Base::geometry_, Base::in_use_,
      Base::kInside, Base::kKnown, Base::kMaybeHole, Base::kNone, Base::kOld, Base::kTouched,
      Base::max_class_, Base::offset_of, Base::places_, Base::platform_, Base::storage_,
      Base::table_word, Base::unread_;
  using typename Base::Bits, typename Base::Extent;

  // `settles`: a killed process may have left words that are not durable. Before other threads use
  // the heap.
  Status begin_table(bool settles) {
    const std::uint64_t count = this->extent_count();
    const std::uint64_t most = this->extent_bytes() / kClassSizes[0] / 64 + 1;  // words of a bitmap
    if (Status s = places_.reserve(count * most, false); !s.ok()) return s;
    chunk_ = std::clamp<std::uint64_t>(count / 16, 4, kMostWords);
    count_ = count;
    settles_ = settles;
    first_free_ = count;
    keep_tables(0, count);
    unread_.store(count, std::memory_order_release);
    return {};
  }
  [[gnu::always_inline]] bool is_read(std::uint64_t extent) const {
    return extent >= unread_.load(std::memory_order_acquire);
  }
  // Sets up the extent of a block. Afterwards its DRAM state is that of a read one. False: its word
  // is damaged.
  [[gnu::always_inline]] bool touch(std::uint64_t extent) {
    return is_read(extent) || touch_unread(extent);
  }
  bool decode(std::uint64_t extent, ExtentWord& word) const {
    return ExtentWord::decode(platform_.load(table_word(extent)), extent, word,
                              P::verifies("heap.extent.crc"_site));
  }
  static Status damaged(std::uint64_t extent) {
    return Status::format(StatusCode::corruption, "extent table: word %lu is damaged", extent);
  }
  // Of the extents `first` to `end - 1`, those that hold a table are in use from now on: they are
  // never free, and never punched. Under the extent latch, or before other threads use the heap.
  void keep_tables(std::uint64_t first, std::uint64_t end) {
    for (const MoreTable& table : geometry_.more_tables) {
      const std::uint64_t stop = std::min(end, std::uint64_t{table.first} + table.extents);
      for (std::uint64_t i = std::max<std::uint64_t>(first, table.first); i < stop; ++i) {
        in_use_[i / 64] |= 1ULL << (i % 64);
        extents_[i].set(kInside);
      }
    }
  }
  // Finds the block at `offset`, or returns what is wrong with the offset.
  [[gnu::noinline]] Status locate(std::uint64_t offset, std::uint64_t& number,
                                  std::uint32_t& block) const {
    const auto bad = [offset](const char* what) {
      return Status::format(StatusCode::corruption, "offset %lu %s", offset, what);
    };
    if (!this->contains(offset, 16)) return bad("lies outside the pool's extents");
    number = extent_of(offset);
    const std::uint64_t inside = offset - offset_of(number);
    ExtentWord use;
    if (!is_read(number)) [[unlikely]] {
      if (Status s = read_word(number, use); !s.ok()) return s;
    } else if (const Extent& extent = extents_[number]; !extent.has(kInside)) {
      use.state = extent.state;
      use.size_class = extent.size_class;
    }
    if (use.state == ExtentState::run) {
      if (inside != 0) return bad("points into a large object");
      block = 0;
      return {};
    }
    if (use.state != ExtentState::slab) return bad("points into a free extent");
    const std::uint32_t size = kClassSizes[use.size_class];
    if (inside % size != 0 || inside / size >= this->extent_bytes() / size) {
      return bad("is not a block's start");
    }
    block = static_cast<std::uint32_t>(inside / size);
    return {};
  }
  // For assertions about a block that the caller owns: its bit is set.
  bool is_used(std::uint64_t offset) {
    std::uint64_t number = 0;
    std::uint32_t block = 0;
    return locate(offset, number, block).ok() && touch(number) &&
           Base::is_set(this->bits_of(extents_[number]), block, std::memory_order_acquire);
  }
  // Likewise: it is durably dead if its kind requires that. A run that must be zero is zeroed when
  // its extents are used again.
  bool is_dead(std::uint64_t offset) {
    const ExtentWord use = use_of(extent_of(offset));
    const bool whole = use.kind == BlockKind::zero_on_free;
    return is_plain(offset) || (whole && use.state == ExtentState::run) || platform_.poisoned() ||
           platform_.persisted(this->template at<std::byte>(offset),
                               whole ? block_bytes(offset) : 8);
  }

 private:
  [[gnu::noinline]] std::size_t block_bytes_unread(std::uint64_t number) const {
    ExtentWord word;
    if (!read_word(number, word).ok()) return 0;
    if (word.state == ExtentState::run) return std::size_t{word.run} << extent_shift_;
    return word.state == ExtentState::slab ? kClassSizes[word.size_class] : 0;
  }
  // The slab or run at or below an extent, and the end of the extents that it covers. If there is
  // none: both are where the search has ended.
  struct Cover {
    std::uint64_t head = 0;
    std::uint64_t end = 0;
  };
  static bool is_head(const ExtentWord& word) {
    return word.state == ExtentState::slab || word.state == ExtentState::run;
  }
  // A word that decodes, of a slab or a run.
  Status verify_head(std::uint64_t extent, const ExtentWord& word) const {
    const auto number = extent;
    if (word.state == ExtentState::slab) {
      if (word.size_class < max_class_) return {};
      return Status::format(StatusCode::corruption, "extent table: word %lu names size class %u",
                            number, word.size_class);
    }
    const std::uint64_t end = std::min(count_, geometry_.table_end(extent));
    return word.run != 0 && word.run <= end - extent ? Status() : too_long(extent);
  }
  static Status too_long(std::uint64_t extent) {
    return Status::format(StatusCode::corruption, "extent table: run at %lu is too long", extent);
  }
  // The word of an unread extent. Extents that hold a table have none.
  [[gnu::noinline]] Status read_word(std::uint64_t extent, ExtentWord& word) const {
    word = {};
    if (geometry_.is_table(extent)) return {};
    if (!decode(extent, word)) return damaged(extent);
    return is_head(word) ? verify_head(extent, word) : Status();
  }
  // Of any extent, without a run's length. Virgin if the word is damaged.
  ExtentWord use_of(std::uint64_t number) const {
    if (!is_read(number)) [[unlikely]] {
      ExtentWord word;
      return read_word(number, word).ok() ? word : ExtentWord{};
    }
    const Extent& extent = extents_[number];
    return {.state = extent.state, .kind = extent.kind, .size_class = extent.size_class};
  }
  // No run leads over extents that hold a table. Sets `free` to the lowest word behind the head
  // that says free, if there is one.
  Status find_cover(std::uint64_t at, Cover& cover, std::uint64_t& free) const {
    constexpr std::uint64_t kNo = ~std::uint64_t{0};
    std::uint64_t bad = kNo;  // the last damaged word
    std::uint64_t i = at + 1;
    cover = {};
    for (; i > 0 && !geometry_.is_table(i - 1); --i) {
      ExtentWord word;
      if (!decode(i - 1, word)) {
        if (bad == kNo) bad = i - 1;
      } else if (word.state == ExtentState::free) {
        if (P::runs("heap.table.stretch"_site)) free = std::min(free, i - 1);
      } else if (is_head(word)) {
        if (Status s = verify_head(i - 1, word); !s.ok()) return s;
        const std::uint64_t length = word.state == ExtentState::run ? word.run : 1;
        cover = {i - 1, i - 1 + length};
        break;
      }
    }
    if (cover.end == 0) cover = {i, i};
    return bad != kNo && bad >= cover.end ? damaged(bad) : Status();
  }
  bool write_back(std::uint64_t begin, std::uint64_t end) {
    if (!settles_) return true;
    geometry_.for_each_table(
        begin, end - begin,
        [&](std::uint64_t /*extent*/, std::uint64_t offset, std::uint64_t words) {
          platform_.flush(this->template at<std::byte>(offset), words * 8,
                          "heap.table.settle"_site);
        });
    return platform_.fence("heap.table.settle"_site);
  }

  // --- under table_latch_ ---
  [[gnu::noinline]] bool touch_unread(std::uint64_t number) {
    if (extents_[number].has(kKnown)) return true;
    LatchGuard guard(table_latch_);
    if (is_read(number) || extents_[number].has(kKnown)) return true;
    ExtentWord word;
    if (!read_word(number, word).ok()) return false;
    if (is_head(word)) set_up_head(extents_[number], word);
    return true;
  }
  void set_up_head(Extent& extent, const ExtentWord& word) {
    extent.state = word.state;
    extent.kind = word.kind;
    extent.size_class = word.size_class;
    extent.next = extent.prev = kNone;
    extent.place.store(kNone, std::memory_order_relaxed);
    extent.inline_bits.store(0, std::memory_order_relaxed);
    if (word.state == ExtentState::run) {
      extent.set_count(word.run);
    } else {
      extent.set_count(blocks_in(extent));
      const std::uint32_t words = (extent.count() + 63) / 64;
      if (words > 1) {
        extent.used = places_.data() + places_used_;
        places_used_ += words;
        bitmap_bytes_.fetch_add(words * sizeof(Bits), std::memory_order_relaxed);
      }
    }
    extent.set(kTouched | kOld | kKnown);
  }
  // The extents of a chunk; the cover of its first one is known.
  Status set_up(std::uint64_t begin, std::uint64_t end, const Cover& cover) {
    std::uint64_t run = cover.head;                                     // the last head
    std::uint64_t reach = cover.head < begin ? cover.end : cover.head;  // what it covers
    for (std::uint64_t i = begin; i < end; ++i) {
      Extent& extent = extents_[i];
      if (geometry_.is_table(i)) continue;
      if (i < reach) {
        extent.set(kInside | kOld);
        continue;
      }
      ExtentWord word;
      if (!decode(i, word)) return damaged(i);
      if (!is_head(word)) {
        PERDURE_ASSERT(P, "heap.I7", !settles_ || platform_.persisted(&table_word(i), 8));
        if (P::runs("heap.sweep.holes"_site)) extent.set(kMaybeHole);
        continue;
      }
      if (Status s = verify_head(i, word); !s.ok()) return s;
      if (!extent.has(kKnown)) set_up_head(extent, word);
      PERDURE_ASSERT(P, "heap.I6",
                     extent.state == word.state && extent.kind == word.kind &&
                         extent.size_class == word.size_class);
      run = i;
      reach = i + (word.state == ExtentState::run ? word.run : 1);
    }
    // The chunk behind this one has found the same head.
    const std::uint64_t found = cover_.head < end ? std::max(cover_.end, end) : end;
    return std::max(reach, end) == found ? Status() : too_long(run);
  }
  void publish(std::uint64_t begin, std::uint64_t end) {
    LatchGuard guard(extent_latch_);
    for (std::uint64_t i = begin; i < end; ++i) {
      if (extents_[i].has(kOld)) {
        in_use_[i / 64] |= 1ULL << (i % 64);
        ++this->assigned_;
      } else if (!geometry_.is_table(i)) {
        first_free_ = std::min(first_free_, i);
      }
    }
    unread_.store(begin, std::memory_order_release);
  }

  static constexpr std::uint64_t kMostWords = 256;

  std::uint64_t count_ = 0;  // extents at open
  std::uint64_t chunk_ = 0;  // words
  bool settles_ = false;
  typename P::template Atomic<bool> reads_ahead_{false};
  typename P::Latch table_latch_;
  std::uint64_t places_used_ = 0;
  Cover cover_{~std::uint64_t{0}, 0};  // of the first extent that is read
  Status table_failure_;
};

}  // namespace perdure::heap
