// Growth: on demand and ahead of it. Responsible for pool.I2.
//
// OPERATIONS
//   prepare_growth  gets a piece of space behind the end of the pool, without a latch: any number
//                   of threads, and beside grow(). Nothing refers to the space, and a crash leaves
//                   only a longer file.
//   grow            gets the space that is missing, syncs the length of the file, claims the words,
//                   and writes the headers, in this order and under the latch.
// INVARIANT (DRAM)  The extents between the end of the pool and prepared_ have space. Set after the
//   storage has returned. Starts at 0, so an open trusts no space that an earlier process has left.
//   A refused growth gives back what was prepared for it, and lowers prepared_ (given_back_). So
//   does compact().
#pragma once

#include <algorithm>
#include <string_view>
#include <utility>

#include "format/growth_ahead.h"
#include "format/roots.h"
#include "format/space_return.h"

namespace perdure::format {

template <Platform P>
class Growth : public Roots<P> {
  using Base = Roots<P>;
  using Ahead = GrowthAhead<Growth, P>;
  using Return = SpaceReturn<Growth, P>;

 public:
  using Base::Base;

  // --- HeapHost ---
  Expected<std::uint64_t> grow(std::uint64_t extents) final {
    LatchGuard guard(latch_);
    this->unseal();
    PERDURE_ASSERT(P, "pool.I4", this->is_dirty());
    const HeapGeometry geometry = geometry_of(header_);
    const std::uint64_t now = extents_in(header_.file_bytes);
    const std::uint64_t most = geometry.blocks_between(now, geometry.max_extents);
    if (extents > most) {
      return refuse_growth(
          Status::format(StatusCode::pool_full,
                         "the pool is full: %lu of %lu bytes; erase entries, or close it and "
                         "raise its maximum with `perdure resize`",
                         header_.file_bytes, header_.max_bytes));
    }
    std::uint64_t want = growth_of(geometry.blocks_between(0, now));
    if (header_.file_bytes >= Ahead::kFrom) want = std::min(want, ready_after(now));
    want = std::min(std::max(extents, want), most);
    std::uint64_t end = 0;
    for (;;) {
      end = geometry.end_of(now, want);
      Status s = allocate_extents(geometry, now, end);
      if (s.ok()) break;
      if (s == StatusCode::poisoned) platform_.poison();  // the file lacks what the pool has
      if (want == extents || s != StatusCode::pool_full) {
        if (s == StatusCode::pool_full) give_back(geometry, now);
        return refuse_growth(std::move(s));
      }
      want = extents;  // the medium is nearly full: ask for no more than is needed
    }
    const std::uint64_t bytes = geometry.offset_of(end);
    prepared_ = std::max(prepared_, bytes);
    PERDURE_ASSERT(P, "pool.I2", bytes <= storage_.size());
    if (platform_.durable()) {  // the new length must not be lost after the header names it
      if (Status s = this->sync_storage(header_.file_bytes, bytes - header_.file_bytes); !s.ok()) {
        return fail(std::move(s));
      }
    }
    if (Status s = claim_words(geometry, now, end - now); !s.ok()) return fail(std::move(s));
    header_.file_bytes = bytes;
    expected_ -= std::min(expected_, want);
    // Both copies, before an extent is used: one that does not count these extents would free what
    // maps have in them if the other one is lost.
    if (Status s = this->write_headers("pool.grow.second_copy"_site, false); !s.ok()) {
      return fail(std::move(s));
    }
    growth_refused_ = false;
    growth_ahead_.grown(background_, bytes);
    return extents_in(bytes);
  }
  // Small requests are left to grow(), which asks the medium for more than they need.
  bool prepare(std::uint64_t extents) final {
    if (extents * header_.extent_bytes <= Ahead::kPiece) return false;
    {
      LatchGuard guard(latch_);
      const HeapGeometry geometry = geometry_of(header_);
      const std::uint64_t now = extents_in(header_.file_bytes);
      if (extents > geometry.blocks_between(now, geometry.max_extents)) return false;
      expected_ = std::max(expected_, extents);
    }
    return prepare_growth(Ahead::kPiece);
  }
  void expect(std::uint64_t extents) final {
    LatchGuard guard(latch_);
    expected_ = std::max(expected_, extents);
    growth_ahead_.expected(background_, expected_ * header_.extent_bytes);
  }
  void space_idle() final { space_return_.wake(background_); }
  // Whether the pool was opened, and can be changed.
  bool serves() {
    LatchGuard guard(latch_);
    return this->open_ && !platform_.poisoned();
  }
  // Allocates up to `bytes` of the space that the next growth will need. False: all of it is there,
  // or there is no more.
  bool prepare_growth(std::uint64_t bytes) {
    std::uint64_t begin = 0;
    std::uint64_t given_back = 0;
    const std::uint64_t piece = next_piece(bytes, begin, given_back);
    if (piece == 0 || !storage_.allocate(begin, piece).ok()) return false;
    LatchGuard guard(latch_);
    if (given_back == given_back_) prepared_ = std::max(prepared_, begin + piece);
    return true;
  }
  // For compact(): gives back the space behind the end of the pool, also what an earlier process
  // has left there. In pieces from the end: a growth waits for one. The words of tables stay
  // (claim_words).
  void give_back_ahead() {
    const HeapGeometry geometry = geometry_of(header_);
    const std::uint64_t piece = Ahead::kPiece / header_.extent_bytes + 1;
    for (std::uint64_t end = std::min(extents_in(storage_.size()), geometry.max_extents);;) {
      LatchGuard guard(latch_);
      const std::uint64_t now = extents_in(header_.file_bytes);
      if (!this->open_ || platform_.poisoned() || end <= now) return;
      const std::uint64_t first = std::max(now, end - std::min(end, piece));
      punch_stretches(geometry, first, end);
      prepared_ = std::min(prepared_, geometry.offset_of(first));
      ++given_back_;
      end = first;
    }
  }

 protected:
  using Base::background_, Base::extents_in, Base::header_, Base::latch_, Base::platform_,
      Base::storage_;

 private:
  // Finds the first piece of the next growth that is not prepared; 0: there is none.
  std::uint64_t next_piece(std::uint64_t bytes, std::uint64_t& begin, std::uint64_t& given_back) {
    LatchGuard guard(latch_);
    given_back = given_back_;
    if (!this->open_ || platform_.poisoned()) return 0;
    const std::uint64_t now = extents_in(header_.file_bytes);
    const HeapGeometry geometry = geometry_of(header_);
    const std::uint64_t want =
        std::min(std::max(growth_of(geometry.blocks_between(0, now)), expected_),
                 geometry.blocks_between(now, geometry.max_extents));
    std::uint64_t piece = 0;
    geometry.for_each_stretch(
        now, geometry.end_of(now, want), [&](std::uint64_t first, std::uint64_t stop) {
          const std::uint64_t from = std::max(prepared_, geometry.offset_of(first));
          const std::uint64_t to = geometry.offset_of(stop);
          if (piece != 0 || from >= to) return;
          begin = from;
          // Pieces end at multiples: each is huge pages where the system has them.
          piece = std::min(to, (from / bytes + 1) * bytes) - from;
        });
    return piece;
  }
  // The number of extents by which a pool of so many grows: an eighth more, which amortises growth,
  // but bounded, which keeps a step short.
  std::uint64_t growth_of(std::uint64_t extents) const {
    return std::min(extents / 8 + 1, 64_MiB / header_.extent_bytes + 1);
  }
  // After a refused growth: others need the space of the medium that was prepared for it.
  void give_back(const HeapGeometry& geometry, std::uint64_t now) {
    expected_ = 0;
    const std::uint64_t ahead =
        geometry.end_of(now, std::min(growth_of(geometry.blocks_between(0, now)),
                                      geometry.blocks_between(now, geometry.max_extents)));
    const std::uint64_t keep = geometry.offset_of(ahead);
    if (prepared_ <= keep) return;
    punch_stretches(geometry, ahead, extents_in(prepared_));
    prepared_ = keep;
    ++given_back_;
  }
  void punch_stretches(const HeapGeometry& geometry, std::uint64_t first, std::uint64_t end) {
    geometry.for_each_stretch(first, end, [&](std::uint64_t from, std::uint64_t to) {
      const std::uint64_t offset = geometry.offset_of(from);
      (void)storage_.punch(offset, geometry.offset_of(to) - offset);
    });
  }
  // The number of extents that are prepared, or a piece: what an operation can wait for.
  std::uint64_t ready_after(std::uint64_t now) const {
    const std::uint64_t end = extents_in(std::max(prepared_, header_.file_bytes));
    return std::max(geometry_of(header_).blocks_between(now, end),
                    Ahead::kPiece / header_.extent_bytes);
  }
  // Logs the refusal once until the pool grows again: every insert into a full pool fails here.
  std::unexpected<Status> refuse_growth(Status why) {
    if (!growth_refused_) {
      const std::string_view text = why.message();
      background_.log().say(LogLevel::warning, "growth was refused: %.*s",
                            static_cast<int>(text.size()), text.data());
    }
    growth_refused_ = true;
    return fail(std::move(why));
  }
  // Gets space for the words of the extents, and for those that hold blocks. A table may lie
  // between them, and is a hole otherwise.
  Status allocate_extents(const HeapGeometry& geometry, std::uint64_t first, std::uint64_t end) {
    Status s;
    geometry.for_each_table(
        first, end - first,
        [&](std::uint64_t /*extent*/, std::uint64_t offset, std::uint64_t words) {
          const std::uint64_t begin = offset / kPage * kPage;
          if (s.ok()) s = storage_.allocate(begin, align_up(offset + words * 8, kPage) - begin);
        });
    geometry.for_each_stretch(first, end, [&](std::uint64_t from, std::uint64_t to) {
      const std::uint64_t offset = std::max(prepared_, geometry.offset_of(from));
      const std::uint64_t stop = geometry.offset_of(to);
      if (s.ok() && offset < stop) s = storage_.allocate(offset, stop - offset);
    });
    return s;
  }
  // Words of new extents are virgin (pool.I2), with two exceptions. Without write-back a power
  // failure may take both headers of a growth whose extents were used, and leave their content; the
  // head of a run says how far it reaches. And no open has read the words of extents that never
  // were: a bit may have flipped in one. Such extents become free, and are zeroed where zeros are
  // relied upon.
  Status claim_words(const HeapGeometry& geometry, std::uint64_t first, std::uint64_t count) {
    Status s;
    geometry.for_each_table(first, count,
                            [&](std::uint64_t extent, std::uint64_t offset, std::uint64_t words) {
                              if (s.ok()) s = claim_words_at(offset, extent, words);
                            });
    return s;
  }
  [[gnu::noinline]] Status claim_words_at(std::uint64_t offset, std::uint64_t first,
                                          std::uint64_t count) {
    auto* words = reinterpret_cast<std::uint64_t*>(storage_.base() + offset);
    bool wrote = false;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t extent = first + i;
      const std::uint64_t found = platform_.load(words[i]);
      ExtentWord word;
      if (ExtentWord::decode(found, extent, word) && word.state == ExtentState::run) {
        used_until_ = std::max(used_until_, extent + word.run);
      }
      if (found == 0 && extent >= used_until_) continue;
      platform_.store(words[i], ExtentWord{.state = ExtentState::free}.encode(extent));
      wrote = true;
    }
    if (!wrote || !platform_.durable()) return {};
    const std::uint64_t begin = offset / kPage * kPage;
    return this->sync_storage(begin, align_up(offset + count * 8, kPage) - begin);
  }

  // Under the latch:
  bool growth_refused_ = false;  // and logged
  std::uint64_t expected_ = 0;   // extents, by expect() or prepare()
  // Every extent between the end of the pool and this byte has space. The file may be longer: a
  // process that was killed has lengthened it, and not got the space, or another thread is at it.
  std::uint64_t prepared_ = 0;
  std::uint64_t given_back_ = 0;  // times that prepared_ was lowered
  std::uint64_t used_until_ = 0;  // extent, by lost headers; see claim_words()
  Ahead growth_ahead_{*this};
  Return space_return_{*this};
};

}  // namespace perdure::format
