// Extents: the heap takes them from the file and gives them back. Responsible for heap.I1, and for
// heap.I2 where an extent changes its use.
#pragma once

#include <algorithm>
#include <utility>

#include "heap/table.h"

namespace perdure::heap {

template <Platform P>
class Extents : public Table<P> {
  using Base = Table<P>;

 public:
  using Base::Base;

  // A hint: an allocation will soon need a block of n bytes. The pool gets space for it in the
  // background. Without effect while extents are unread: they may be free.
  [[gnu::noinline]] void expect(std::size_t n) {
    if (class_of(n) < max_class_ || !this->table_read()) return;
    const std::uint64_t missing = missing_for(extents_for(n));
    if (missing != 0) host_->expect(missing);  // without a latch: the host may be growing
  }
  // Calls visit(first byte, length) for every range of assigned extents. Not for those that hold a
  // table. After read_table().
  template <class F>
  [[gnu::noinline]] void for_each_assigned(F&& visit) {
    PERDURE_ASSERT(P, "heap.I6", this->table_read());
    const std::uint64_t count = this->extent_count();
    for (std::uint64_t i = 0, end = 0; i < count; i = end + 1) {
      {
        LatchGuard guard(extent_latch_);
        while (i < count && !holds_blocks(i)) ++i;
        end = i;
        while (end < count && holds_blocks(end)) ++end;
      }
      if (end > i) visit(this->template at<std::byte>(offset_of(i)), (end - i) << extent_shift_);
    }
  }
  // The next such range at or after extent `cursor`, of at most `most` extents. Moves the cursor
  // behind the range. False: there is none. After read_table().
  bool next_assigned(std::uint64_t& cursor, std::uint64_t most, std::uint64_t& offset,
                     std::uint64_t& bytes) {
    LatchGuard guard(extent_latch_);
    const std::uint64_t count = extent_count_.load(std::memory_order_relaxed);
    while (cursor < count && !holds_blocks(cursor)) ++cursor;
    const std::uint64_t first = cursor;
    while (cursor < count && cursor - first < most && holds_blocks(cursor)) ++cursor;
    offset = offset_of(first);
    bytes = (cursor - first) << extent_shift_;
    return bytes != 0;
  }
  // Calls bad(what) if a word of the extent table is damaged or differs from the state in DRAM.
  template <class F>
  void verify_table(F&& bad) {
    (void)this->read_table();  // its damage is found below
    LatchGuard guard(extent_latch_);
    for (std::uint64_t i = 0; i < extent_count_.load(std::memory_order_relaxed); ++i) {
      // The word of an extent inside a run is not read while the run lives; that of an extent that
      // holds a table, never.
      if (extents_[i].has(kInside | kChanging)) continue;
      const bool known = this->is_read(i);
      ExtentWord word;
      if (!decode(i, word)) {
        bad("a word of the extent table is damaged");
        continue;
      }
      const bool says = word.state == ExtentState::slab || word.state == ExtentState::run;
      if (known && says != assigned(i))
        bad("a word of the extent table differs from its extent's use");
    }
  }

 protected:
  using Base::assigned, Base::assigned_, Base::bitmap_bytes_, Base::blocks_in, Base::decode,
      Base::extent_count_, Base::extent_latch_, Base::extent_shift_, Base::extents_,
      Base::first_free_, Base::geometry_, Base::growth_latch_, Base::host_, Base::in_use_,
      Base::is_read, Base::kChanging, Base::kInside, Base::kKnown, Base::kMaybeHole, Base::kNone,
      Base::kOld, Base::kPunched, Base::kTouched, Base::keep_tables, Base::max_class_,
      Base::offset_of, Base::platform_, Base::storage_, Base::table_word;
  using typename Base::Bits, typename Base::Extent;

  std::uint64_t extents_for(std::size_t n) const {
    return (n + geometry_.extent_bytes - 1) >> extent_shift_;
  }
  bool set_up_slab(Extent& extent, std::uint32_t size_class, BlockKind kind) {
    extent.size_class = static_cast<std::uint8_t>(size_class);
    extent.kind = kind;
    extent.state = ExtentState::slab;
    extent.next = extent.prev = kNone;
    extent.place.store(kNone, std::memory_order_relaxed);
    extent.set_count(blocks_in(extent));
    extent.inline_bits.store(0, std::memory_order_relaxed);
    const std::uint32_t words = (extent.count() + 63) / 64;
    if (words == 1) return true;
    extent.used = static_cast<Bits*>(std::calloc(words, sizeof(Bits)));
    if (extent.used == nullptr) return false;
    bitmap_bytes_.fetch_add(words * sizeof(Bits), std::memory_order_relaxed);
    return true;
  }
  void set_in_use(std::uint64_t extent, bool in_use) {
    const std::uint64_t bit = 1ULL << (extent % 64);
    if (in_use) {
      in_use_[extent / 64] |= bit;
      ++assigned_;
    } else {
      in_use_[extent / 64] &= ~bit;
      --assigned_;
      if (extent < first_free_) first_free_ = extent;
    }
  }
  // Under the extent latch.
  bool holds_blocks(std::uint64_t extent) const {
    return assigned(extent) && !geometry_.is_table(extent);
  }
  // Assigns `count` adjacent extents. The table is read until so many are known to be free, before
  // the pool grows for them if `grows` is set and it has to. No latch is held while extents are
  // zeroed, or while the file gets longer. corruption: there is no room, and the table is damaged.
  [[gnu::noinline]] Expected<std::uint64_t> take_extents(std::uint64_t count,
                                                         const ExtentWord& word, bool grows) {
    std::uint64_t first = 0;
    // For a run, twice as much each time: the search for one begins anew.
    for (std::uint64_t chunks = 1; !reserve(count, first, false); chunks *= count > 1 ? 2 : 1) {
      Status unread;
      if (!this->table_read()) {
        Expected<bool> more = true;
        for (std::uint64_t i = 0; i < chunks && more && *more; ++i) more = this->read_some();
        if (more) continue;
        unread = std::move(more.error());
        if (unread != StatusCode::corruption) return fail(std::move(unread));
      }
      if (!grows) return fail(StatusCode::pool_full);
      if (Status s = grow(count); !s.ok()) {
        return fail(s == StatusCode::pool_full && !unread.ok() ? std::move(unread) : std::move(s));
      }
    }
    Status s = assign(first, count, word);
    if (!s.ok()) set_free(first, count);
    // The medium has no space for these extents; others may have theirs already.
    if (s == StatusCode::pool_full && reserve(count, first, true)) {
      s = assign(first, count, word);
      if (!s.ok()) set_free(first, count);
    }
    if (!s.ok()) return fail(std::move(s));
    return first;
  }
  // Whether the file will soon have no free extent. False while extents are unread.
  bool few_free() {
    LatchGuard guard(extent_latch_);
    const std::uint64_t count = extent_count_.load(std::memory_order_relaxed);
    return this->table_read() && count - assigned_ <= std::min(count / 16, kFewExtents);
  }
  // Grows the file although it has free extents: threads that take these do not wait for the system
  // meanwhile. A failure has no effect: the thread that finds no extent tries again. The caller
  // holds no latch.
  [[gnu::noinline]] void grow_early() {
    const std::uint64_t known = extent_count_.load(std::memory_order_relaxed);
    if (known == geometry_.max_extents || !growth_latch_.try_lock()) return;
    const bool same = extent_count_.load(std::memory_order_relaxed) == known;
    if (same && this->refused_at_ != known && !add(1).ok()) {
      this->refused_at_ = static_cast<std::uint32_t>(known);
    }
    growth_latch_.unlock();
  }
  // Assigns these extents if all of them are free. Returns whether they were.
  [[gnu::noinline]] Expected<bool> take_extents_at(std::uint64_t first, std::uint64_t count,
                                                   const ExtentWord& word) {
    if (Status s = this->read_table(); !s.ok()) return fail(std::move(s));
    {
      LatchGuard guard(extent_latch_);
      const std::uint64_t end = extent_count_.load(std::memory_order_relaxed);
      if (first > end || count > end - first) return false;
      for (std::uint64_t i = first; i < first + count; ++i) {
        if (assigned(i)) return false;
      }
      for (std::uint64_t i = first; i < first + count; ++i) {
        set_in_use(i, true);
        extents_[i].set(kChanging);
      }
    }
    if (Status s = assign(first, count, word); !s.ok()) {
      set_free(first, count);
      return fail(std::move(s));
    }
    return true;
  }
  // Returns extents without blocks, which are in no list. A run's inner words come first. They are
  // ignored while the head names the run; after that they must say `free`, not virgin (heap.I2).
  // The caller holds no latch.
  [[gnu::noinline]] void release_extent(std::uint32_t number) {
    PERDURE_ASSERT(P, "heap.I6", is_read(number));
    Extent& extent = extents_[number];
    const std::uint64_t count = extent.state == ExtentState::run ? extent.count() : 1;
    {
      LatchGuard guard(extent_latch_);
      for (std::uint64_t i = number; i < number + count; ++i) extents_[i].set(kChanging);
    }
    const auto release = [&](std::uint64_t i) {
      std::uint64_t& slot = table_word(i);
      platform_.store(slot, ExtentWord{.state = ExtentState::free}.encode(i));
      platform_.flush(&slot, 8, "heap.extent.release"_site);
    };
    for (std::uint64_t i = number + std::uint64_t{1}; i < number + count; ++i) {
      release(i);
      extents_[i].clear(kInside);
    }
    if (count > 1) (void)platform_.fence("heap.run.release"_site);
    release(number);
    (void)platform_.fence("heap.extent.release"_site);
    tear_down(extent);
    extent.state = ExtentState::free;
    set_free(number, count);
    this->note_idle(count << extent_shift_);
  }
  // The same for a chain of slabs.
  void release_all(std::uint32_t chain) {
    while (chain != kNone) release_extent(std::exchange(chain, extents_[chain].next));
  }

 private:
  static constexpr std::uint64_t kFewExtents = 16;

  void tear_down(Extent& extent) {
    if (extent.used != nullptr && this->is_own(extent.used)) {
      bitmap_bytes_.fetch_sub((blocks_in(extent) + 63) / 64 * sizeof(Bits),
                              std::memory_order_relaxed);
      std::free(static_cast<void*>(extent.used));
    }
    extent.used = nullptr;
    extent.clear(kTouched | kInside | kKnown | kOld);
    extent.set_count(0);
  }
  // The number of extents by which the file is too short for `count` adjacent free ones.
  std::uint64_t missing_for(std::uint64_t count) {
    LatchGuard guard(extent_latch_);
    std::uint64_t first = 0;
    return find_free(count, first, false) ? 0 : count - std::min(count, free_at_end());
  }
  // Adds extents to the file until `count` adjacent ones are free, or were for a moment.
  [[gnu::noinline]] Status grow(std::uint64_t count) {
    for (;;) {
      const std::uint64_t known = extent_count_.load(std::memory_order_relaxed);
      const std::uint64_t needed = missing_for(count);
      if (needed == 0) return {};
      if (host_->prepare(needed)) continue;
      LatchGuard growth(growth_latch_);
      // Another thread may have grown the file by what was prepared: then there is more to prepare.
      if (extent_count_.load(std::memory_order_relaxed) == known) return grow_now(count);
    }
  }
  // Under the growth latch.
  Status grow_now(std::uint64_t count) {
    const std::uint64_t missing = missing_for(count);
    return missing != 0 ? add(missing) : Status();
  }
  // Under the growth latch. Adds at least so many extents to the file.
  Status add(std::uint64_t extents) {
    auto grown = host_->grow(extents);
    if (!grown) return std::move(grown.error());
    LatchGuard guard(extent_latch_);
    keep_tables(extent_count_.load(std::memory_order_relaxed), *grown);
    extent_count_.store(*grown, std::memory_order_release);
    return {};
  }
  // Finds `count` adjacent free extents, and keeps other threads from taking them.
  bool reserve(std::uint64_t count, std::uint64_t& first, bool backed_only) {
    LatchGuard guard(extent_latch_);
    if (!find_free(count, first, backed_only)) return false;
    for (std::uint64_t i = first; i < first + count; ++i) {
      set_in_use(i, true);
      extents_[i].set(kChanging);
    }
    return true;
  }
  void set_free(std::uint64_t first, std::uint64_t count) {
    LatchGuard guard(extent_latch_);
    for (std::uint64_t i = first; i < first + count; ++i) {
      set_in_use(i, false);
      extents_[i].clear(kChanging);
    }
  }
  // The first run of `count` free extents in the file. `backed_only`: every one has space on the
  // medium. The extent latch is held.
  [[gnu::noinline]] bool find_free(std::uint64_t count, std::uint64_t& first, bool backed_only) {
    const std::uint64_t end = extent_count_.load(std::memory_order_relaxed);
    std::uint64_t run = 0;
    for (std::uint64_t i = first_free_; i < end; ++i) {
      if (i % 64 == 0 && in_use_[i / 64] == ~std::uint64_t{0}) {
        run = 0;
        i += 63;
        continue;
      }
      if (assigned(i) || (backed_only && extents_[i].has(kPunched | kMaybeHole))) {
        run = 0;
      } else if (++run == count) {
        first = i + 1 - count;
        if (count == 1 && !backed_only) first_free_ = first;
        return true;
      }
    }
    return false;
  }
  // The number of free extents at the end of the file, which growth continues.
  std::uint64_t free_at_end() const {
    const std::uint64_t end = extent_count_.load(std::memory_order_relaxed);
    std::uint64_t n = 0;
    while (n < end && is_read(end - 1 - n) && !assigned(end - 1 - n)) ++n;
    return n;
  }
  // Persist point: the word of the first extent. The extents are reserved.
  [[gnu::noinline]] Status assign(std::uint64_t first, std::uint64_t count,
                                  const ExtentWord& word) {
    if (Status s = make_ready(first, count, word.kind); !s.ok()) return s;
    Extent& head = extents_[first];
    if (word.state == ExtentState::slab) {
      if (!set_up_slab(head, word.size_class, word.kind)) return StatusCode::out_of_memory;
    } else {
      head.kind = word.kind;
      head.state = ExtentState::run;
      head.set_count(static_cast<std::uint32_t>(count));  // a run's length
      head.inline_bits.store(1, std::memory_order_relaxed);
      for (std::uint64_t i = first + 1; i < first + count; ++i) extents_[i].set(kInside);
    }
    std::uint64_t& slot = table_word(first);
    platform_.store(slot, word.encode(first));
    platform_.flush(&slot, 8, "heap.extent.assign"_site);
    if (!platform_.fence("heap.extent.assign"_site)) return StatusCode::poisoned;
    PERDURE_ASSERT(P, "heap.I1", platform_.persisted(&slot, 8));
    PERDURE_ASSERT(P, "heap.I2",
                   word.kind == BlockKind::plain ||
                       platform_.persisted(this->template at<std::byte>(offset_of(first)),
                                           count << extent_shift_));
    for (std::uint64_t i = first; i < first + count; ++i) extents_[i].clear(kChanging);
    return {};
  }
  // A free extent may be punched (it has no space) or hold old content (wrong for heap.I2). The
  // fence of the extent's word also covers what is zeroed here: no block is handed out before it,
  // and if a crash keeps the word, the sweep handles the extent's blocks.
  [[gnu::noinline]] Status make_ready(std::uint64_t first, std::uint64_t count, BlockKind kind) {
    for (std::uint64_t i = first; i < first + count; ++i) {
      Extent& extent = extents_[i];
      PERDURE_ASSERT(P, "heap.I4", is_read(i) && !extent.has(kTouched));
      ExtentWord word;
      (void)ExtentWord::decode(platform_.load(table_word(i)), i, word);
      if (extent.has(kPunched | kMaybeHole)) {
        Status s = storage_.allocate(offset_of(i), geometry_.extent_bytes);
        if (!s.ok()) return s;
        extent.clear(kPunched | kMaybeHole);
      }
      if (kind != BlockKind::plain && word.state != ExtentState::virgin) {
        auto* bytes = this->template at<std::byte>(offset_of(i));
        platform_.zero(bytes, geometry_.extent_bytes);
        platform_.flush(bytes, geometry_.extent_bytes, "heap.extent.zero"_site);
      }
      tear_down(extent);
    }
    return {};
  }
};

}  // namespace perdure::heap
