// LogReader: the epochs that a log has on its disk, and which of them count.
//
// WHAT  scan() reads and verifies every part of every segment. An epoch is whole if it has all its
//   parts. From the folded epoch of the base on, the whole epoch that follows the one before
//   counts; if there are several, that of the highest term. The last one that counts is the content
//   of the pool. replay() gives the lines of all of them, but not those of marks
//   (layout::is_of_mark): the first builds that began a log anew wrote the head of the live image
//   as such lines.
// INVARIANTS
//   log.R1  A part counts only where it was written: log, segment and offset stand in it.
//   log.R2  An epoch follows another one by its number and its seal, so the chain is the order in
//       which they became durable.
//   log.R3  A part, and the head of a segment, was written only after the epoch that it follows was
//       durable. Segments and offsets are the order of time. So if one that lies behind the last
//       epoch that counts follows an epoch that does not count, the log has lost something.
//   log.R4  The log has the epoch `folding` of the base, or one that was written after the folding
//       began and has all lines since `folded`. Otherwise there is no state of the pool left.
//   log.R5  The pool does not become smaller.
// LIMITS  Damage in the last epoch alone looks like a write that the power failure cut off. The
//   log closes this hole by an empty epoch after the last change (EpochLog::confirm()).
// COSTS  scan() reads the log once, replay() once more; about 70 bytes of memory a part.
// Thread safety: one thread; the log must not be written meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "cut/page_set.h"
#include "cut/segment_names.h"
#include "perdure/function_ref.h"

namespace perdure {

// The end of what counts.
struct LogEnd {
  std::uint64_t epoch = 0;       // the last that counts; at least `folded` of the base
  std::uint32_t seal = 0;        // of that epoch
  std::uint64_t pool_bytes = 0;  // at that epoch; 0: no epoch of the log counts
  std::uint64_t unix_ns = 0;     // of that epoch
  std::uint64_t segment = 0;     // the greatest number
};

class LogReader {
 public:
  // `folder` must stay valid.
  LogReader(FileSystem& files, std::string_view folder) noexcept : files_(files), folder_(folder) {}

  // Of the log that the mark names; the base must be open. Called once. Errors: exists (a segment
  // is of another log); untrusted (an epoch that was durable cannot be read); out_of_memory; io.
  Status scan(const layout::BaseMark& mark) noexcept;
  // Before scan(): segments before `first` are not looked at, and nothing from offset `bytes` of
  // the segment `last` on.
  void limit(std::uint64_t first, std::uint64_t last, std::uint64_t bytes) noexcept {
    first_ = first;
    last_ = last;
    last_bytes_ = bytes;
  }
  const LogEnd& end() const noexcept { return end_; }
  // Calls visit(line, content) for every line of the epochs that count, in their order. A line can
  // come several times; the last one counts. Errors: untrusted (the log has changed since scan(),
  // or breaks the format), io.
  using VisitLine = FunctionRef<void(std::uint64_t line, const LineWords& content)>;
  Status replay(VisitLine visit) noexcept { return replay(end_.epoch, visit); }
  // The same up to an epoch.
  Status replay(std::uint64_t last, VisitLine visit) noexcept {
    return walk(false, last, [&](std::uint64_t, std::uint64_t line, const LineWords& content) {
      visit(line, content);
    });
  }
  // The same as replay(visit) in the opposite order, so that of a line the first one counts.
  using VisitBack =
      FunctionRef<void(std::uint64_t epoch, std::uint64_t line, const LineWords& content)>;
  Status replay_back(VisitBack visit) noexcept { return walk(true, end_.epoch, visit); }
  // The epochs that count, in their order.
  struct Counting {
    EpochId id;
    std::uint64_t pool_bytes, unix_ns;
  };
  std::size_t count() const noexcept { return counting_.size(); }
  Counting counting(std::size_t i) const noexcept {
    const Epoch& epoch = epochs_[counting_[i]];
    return {.id = {.epoch = epoch.epoch, .seal = epoch.seal},
            .pool_bytes = epoch.pool_bytes,
            .unix_ns = epoch.unix_ns};
  }
  // Whether the epoch counts, or is that of the base.
  bool has(EpochId id) const noexcept;
  // The pages of all lines that scan() has read, also of epochs that do not count. A second call
  // returns nothing.
  PageSet take_pages() noexcept { return std::move(pages_); }
  const PageSet& pages() const noexcept { return pages_; }
  // Of a log that this process writes: reads the parts of a segment again that lie from `from` to
  // `to`, without gaps. Needs no scan(), and others may write beyond `to`. Errors: untrusted (a
  // part is damaged), out_of_memory, io.
  Status read_back(const layout::BaseMark& mark, std::uint64_t number, std::uint64_t from,
                   std::uint64_t to) noexcept;
  // Of an open file that is the segment `number`: calls visit(head, body) for each part from offset
  // `from` on, up to the first that is not whole, and returns where that lies. `body`: the bytes
  // behind the head. Needs no scan(), and others may write the segment. An error of visit() ends
  // it. Errors: out_of_memory, io.
  using VisitPart =
      FunctionRef<Status(const layout::PartHead& head, std::span<const std::byte> body)>;
  Expected<std::uint64_t> visit_parts(const layout::BaseMark& mark, FileSystem::File file,
                                      std::uint64_t number, std::uint64_t from,
                                      VisitPart visit) noexcept;
  // All segments that have a head, by ascending number, and the sizes of their files.
  struct Segment {
    std::uint64_t number, bytes;
  };
  const Array<Segment>& segments() const noexcept { return with_head_; }
  // The segment with the end of the last epoch that counts. 0: none does.
  std::uint64_t last_segment() const noexcept { return last_part().segment; }
  // The last epoch up to `end` that counts and has a part in the segment. 0: there is none.
  std::uint64_t last_in(std::uint64_t segment, std::uint64_t end) const noexcept;

 private:
  struct Part {
    std::uint64_t segment;
    std::uint64_t offset;
    std::uint32_t seal;
  };
  struct Epoch {  // an attempt to write one
    std::uint64_t term, epoch, after;
    std::uint32_t before, seal;
    std::size_t first, parts;  // in parts_
    bool whole;
    std::uint64_t pool_bytes, unix_ns;
  };

  struct Trace {  // of an epoch that was durable when this was written
    std::uint64_t segment, offset;
    EpochId id;
  };

  Status scan_segment(std::uint64_t number, bool& has_head) noexcept;
  Part last_part() const noexcept;
  bool lacks(std::uint64_t segment) const noexcept;
  const Trace* lost_epoch() const noexcept;
  bool has_folding() const noexcept;
  Status add(const layout::PartHead& head, bool whole) noexcept;
  Expected<bool> read_head(std::uint64_t offset, layout::PartHead& head) noexcept;
  Expected<bool> read_body(const layout::PartHead& head) noexcept;
  bool note_pages(const layout::PartHead& head) noexcept;
  Status open_segment(std::uint64_t number) noexcept;
  void close_segment() noexcept;
  const Epoch* next() const noexcept;
  Status follow() noexcept;
  Status lost(std::uint64_t segment, EpochId id) const noexcept;
  Status walk(bool back, std::uint64_t last, VisitBack visit) noexcept;
  Expected<std::size_t> read_part(const Part& part, std::uint64_t pool_bytes) noexcept;
  layout::Run run_at(std::size_t i) const noexcept;
  LineWords line_at(std::size_t runs, std::uint64_t i) const noexcept;

  FileSystem& files_;
  std::string_view folder_;
  layout::BaseMark mark_{};
  Array<std::uint64_t> segments_;
  Array<Segment> with_head_;
  Array<Part> parts_;
  Array<Epoch> epochs_;          // after scan(): by `after`, and the higher term first
  Array<std::size_t> counting_;  // in epochs_
  LogEnd end_;
  Array<Trace> traces_;
  PageSet pages_;
  PathText path_;             // of the open segment
  std::uint64_t number_ = 0;  // of the open segment; 0: none
  FileSystem::File file_ = -1;
  std::uint64_t size_ = 0;
  std::uint64_t first_ = 0, last_ = ~std::uint64_t{0}, last_bytes_ = 0;  // limit()
  std::unique_ptr<std::byte[]> body_;
  std::size_t body_bytes_ = 0;
};

}  // namespace perdure
