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

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "cut/cutter.h"
#include "cut/log_format.h"
#include "cut/page_set.h"
#include "cut/segment_names.h"
#include "platform/file_system.h"

namespace perdure {

// The end of what counts.
struct LogEnd {
  std::uint64_t epoch = 0;       // the last that counts; at least `folded` of the base
  std::uint32_t seal = 0;        // of that epoch
  std::uint64_t pool_bytes = 0;  // at that epoch; 0: no epoch of the log counts
  std::uint64_t unix_ns = 0;     // of that epoch
  std::uint64_t segment = 0;     // the greatest number
};

template <class P>
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
  template <class F>
  Status replay(F&& visit) noexcept {
    return replay(end_.epoch, std::forward<F>(visit));
  }
  // The same up to an epoch.
  template <class F>
  Status replay(std::uint64_t last, F&& visit) noexcept;
  // The same as replay(visit) in the opposite order, so that of a line the first one counts; calls
  // visit(epoch, line, content).
  template <class F>
  Status replay_back(F&& visit) noexcept;
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
  // Of a log that this process writes: reads the parts of a segment again that lie from `from` to
  // `to`, without gaps. Needs no scan(), and others may write beyond `to`. Errors: untrusted (a
  // part is damaged), out_of_memory, io.
  Status read_back(const layout::BaseMark& mark, std::uint64_t number, std::uint64_t from,
                   std::uint64_t to) noexcept;
  // Of an open file that is the segment `number`: calls visit(head, body) for each part from offset
  // `from` on, up to the first that is not whole, and returns where that lies. `body`: the bytes
  // behind the head. Needs no scan(), and others may write the segment. An error of visit() ends
  // it. Errors: out_of_memory, io.
  template <class F>
  Expected<std::uint64_t> visit_parts(const layout::BaseMark& mark, FileSystem::File file,
                                      std::uint64_t number, std::uint64_t from, F&& visit) noexcept;
  // The numbers of all segments that have a head, ascending.
  const Array<std::uint64_t>& segments() const noexcept { return with_head_; }
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
  Expected<std::size_t> read_part(const Part& part, std::uint64_t pool_bytes) noexcept;
  layout::Run run_at(std::size_t i) const noexcept {
    layout::Run run;
    std::memcpy(&run, body_.get() + i * sizeof(run), sizeof(run));
    return run;
  }
  LineWords line_at(std::size_t runs, std::uint64_t i) const noexcept {
    LineWords content;
    const std::size_t lines = layout::lines_at(runs) - sizeof(layout::PartHead);
    std::memcpy(&content, body_.get() + lines + i * kLine, sizeof(content));
    return content;
  }

  FileSystem& files_;
  std::string_view folder_;
  layout::BaseMark mark_{};
  Array<std::uint64_t> segments_, with_head_;
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

template <class P>
Status LogReader<P>::lost(std::uint64_t segment, EpochId id) const noexcept {
  return Status::format(
      StatusCode::untrusted,
      "%.*s: epoch %llu was on the disk and cannot be read (segment %s shows it); what follows "
      "epoch %llu is lost; restore a copy",
      static_cast<int>(folder_.size()), folder_.data(), static_cast<unsigned long long>(id.epoch),
      segment_name(segment).c_str(), static_cast<unsigned long long>(end_.epoch));
}

template <class P>
void LogReader<P>::close_segment() noexcept {
  if (number_ != 0) files_.close(file_);
  number_ = 0;
}

template <class P>
Status LogReader<P>::open_segment(std::uint64_t number) noexcept {
  if (number == number_) return {};
  close_segment();
  if (Status s = path_in(folder_, segment_name(number), path_); !s.ok()) return s;
  auto file = files_.open(path_.c_str(), FileSystem::Open::reading);
  if (!file) return std::move(file.error());
  file_ = *file;
  number_ = number;
  auto size = files_.size(file_);
  if (!size) return std::move(size.error());
  size_ = number == last_ ? std::min(*size, last_bytes_) : *size;
  return {};
}

// True: a part of this log lies there.
template <class P>
Expected<bool> LogReader<P>::read_head(std::uint64_t offset, layout::PartHead& head) noexcept {
  auto got = files_.read(file_, &head, sizeof(head), offset);
  if (!got) return fail(std::move(got.error()));
  if (*got != sizeof(head) || head.magic != layout::kPartMagic) return false;
  if (P::verifies("log.part.head"_site) && head.crc != layout::part_seal(head)) return false;
  const bool here = head.segment == number_ && head.offset == offset &&
                    std::memcmp(head.log_id, mark_.log_id, sizeof(head.log_id)) == 0;
  if (!here) return false;
  return head.lines <= layout::kMaxPartLines && head.runs <= head.lines &&
         head.epoch > head.after && head.epoch < kMostNumber;
}

// Reads runs and lines into body_. False: they are not those that were written.
template <class P>
Expected<bool> LogReader<P>::read_body(const layout::PartHead& head) noexcept {
  const std::size_t n = layout::part_bytes(head.runs, head.lines) - sizeof(head);
  if (n > body_bytes_) {
    body_.reset(new (std::nothrow) std::byte[n]);
    body_bytes_ = body_ == nullptr ? 0 : n;
    if (body_ == nullptr) return fail(StatusCode::out_of_memory);
  }
  auto got = files_.read(file_, body_.get(), n, head.offset + sizeof(head));
  if (!got) return fail(std::move(got.error()));
  if (*got != n) return false;
  return head.body_crc == crc32c(3, body_.get(), n) || !P::verifies("log.part.body"_site);
}

// Of the part in body_. Returns false if memory is short.
template <class P>
bool LogReader<P>::note_pages(const layout::PartHead& head) noexcept {
  for (std::uint32_t i = 0; i < head.runs; ++i) {
    layout::Run run;
    std::memcpy(&run, body_.get() + i * sizeof(run), sizeof(run));
    if (run.count == 0) continue;
    const std::uint64_t last = (std::uint64_t{run.line} + run.count - 1) * kLine / kPage;
    for (std::uint64_t page = run.line * kLine / kPage; page <= last; ++page) {
      if (!pages_.add(page)) return false;
    }
  }
  return true;
}

template <class P>
Status LogReader<P>::read_back(const layout::BaseMark& mark, std::uint64_t number,
                               std::uint64_t from, std::uint64_t to) noexcept {
  mark_ = mark;
  Status s = open_segment(number);
  if (s == StatusCode::not_found) {
    s = Status::format(StatusCode::untrusted, "%s: the segment is missing; restore a copy",
                       path_.c_str());
  }
  while (s.ok() && from < to) {
    layout::PartHead head{};
    auto whole = read_head(from, head);
    if (whole && *whole) whole = read_body(head);
    if (!whole) {
      s = std::move(whole.error());
    } else if (!*whole && P::verifies("log.fold.read_back"_site)) {
      s = Status::format(StatusCode::untrusted,
                         "%s: what was written at %llu cannot be read back; restore a copy",
                         path_.c_str(), static_cast<unsigned long long>(from));
    } else {
      from += *whole ? align_up(layout::part_bytes(head.runs, head.lines), kPage) : kPage;
    }
  }
  close_segment();
  return s;
}

template <class P>
template <class F>
Expected<std::uint64_t> LogReader<P>::visit_parts(const layout::BaseMark& mark,
                                                  FileSystem::File file, std::uint64_t number,
                                                  std::uint64_t from, F&& visit) noexcept {
  close_segment();
  mark_ = mark;
  file_ = file;
  number_ = number;
  Status s;
  while (s.ok()) {
    layout::PartHead head{};
    auto whole = read_head(from, head);
    if (whole && *whole) whole = read_body(head);
    if (!whole) s = std::move(whole.error());
    if (!s.ok() || !*whole) break;
    const std::uint64_t bytes = layout::part_bytes(head.runs, head.lines);
    s = visit(head, std::span<const std::byte>(body_.get(), bytes - sizeof(head)));
    from += align_up(bytes, kPage);
  }
  number_ = 0;  // the file is the caller's
  if (!s.ok()) return fail(std::move(s));
  return from;
}

template <class P>
Status LogReader<P>::add(const layout::PartHead& head, bool whole) noexcept {
  if (head.part == 0 && !traces_.push_back({.segment = head.segment,
                                            .offset = head.offset,
                                            .id = {.epoch = head.after, .seal = head.before}}))
    return StatusCode::out_of_memory;
  Epoch* last = epochs_.empty() ? nullptr : &epochs_[epochs_.size() - 1];
  const bool begins = head.part == 0;
  const bool goes_on = !begins && last != nullptr && last->term == head.term &&
                       last->epoch == head.epoch && last->parts == head.part &&
                       last->seal == head.before && !last->whole;
  // A part without the one before it is of an epoch that is not whole.
  if (!begins && !goes_on) return {};
  if (!parts_.push_back({.segment = head.segment, .offset = head.offset, .seal = head.crc}))
    return StatusCode::out_of_memory;
  if (begins) {
    if (!epochs_.push_back({.term = head.term,
                            .epoch = head.epoch,
                            .after = head.after,
                            .before = head.before,
                            .seal = 0,
                            .first = parts_.size() - 1,
                            .parts = 0,
                            .whole = false,
                            .pool_bytes = 0,
                            .unix_ns = 0}))
      return StatusCode::out_of_memory;
    last = &epochs_[epochs_.size() - 1];
  }
  // What follows a torn part does not make its epoch whole.
  if (!whole) {
    last->parts = SIZE_MAX;
    return {};
  }
  ++last->parts;
  last->seal = head.crc;
  last->pool_bytes = head.pool_bytes;
  last->unix_ns = head.unix_ns;
  last->whole = head.last == 1;
  return {};
}

template <class P>
Status LogReader<P>::scan_segment(std::uint64_t number, bool& has_head) noexcept {
  has_head = false;
  if (Status s = open_segment(number); !s.ok()) return s;
  layout::SegmentHead own{};
  auto got = files_.read(file_, &own, sizeof(own), 0);
  if (!got) return std::move(got.error());
  // Without its head it is a segment that was not finished, or of which the name is new and the
  // head old. No part in it counts then.
  if (*got != sizeof(own) || !layout::is_head(own)) return {};
  if (std::memcmp(own.log_id, mark_.log_id, sizeof(own.log_id)) != 0) {
    return Status::format(StatusCode::exists,
                          "%s: belongs to the log of another pool; move that folder away, or "
                          "restore the pool's own",
                          path_.c_str());
  }
  has_head = own.number == number;
  if (!has_head) return {};
  if (!traces_.push_back(
          {.segment = number, .offset = 0, .id = {.epoch = own.after, .seal = own.before}}))
    return StatusCode::out_of_memory;
  for (std::uint64_t at = kPage; at < std::min(size_, own.bytes);) {
    layout::PartHead head{};
    auto there = read_head(at, head);
    if (!there) return std::move(there.error());
    if (!*there) {
      at += kPage;
      continue;
    }
    auto whole = read_body(head);
    if (!whole) return std::move(whole.error());
    if (Status s = add(head, *whole); !s.ok()) return s;
    // The base has the lines of an epoch that was folded.
    const bool needed = *whole && head.epoch > mark_.folded;
    if (needed && !note_pages(head)) return StatusCode::out_of_memory;
    // A torn part says nothing for sure of what lies behind its head.
    at += *whole ? align_up(layout::part_bytes(head.runs, head.lines), kPage) : kPage;
  }
  return {};
}

// The epoch that counts after the present end, or null.
template <class P>
const typename LogReader<P>::Epoch* LogReader<P>::next() const noexcept {
  const auto* first =
      std::lower_bound(epochs_.begin(), epochs_.end(), end_.epoch,
                       [](const Epoch& epoch, std::uint64_t after) { return epoch.after < after; });
  for (; first != epochs_.end() && first->after == end_.epoch; ++first) {
    if (first->whole && first->before == end_.seal) return first;
  }
  return nullptr;
}

template <class P>
Status LogReader<P>::follow() noexcept {
  std::ranges::sort(epochs_, [](const Epoch& a, const Epoch& b) {
    return a.after != b.after ? a.after < b.after : a.term > b.term;
  });
  end_.epoch = mark_.folded;
  end_.seal = mark_.folded_seal;
  while (const Epoch* epoch = next()) {
    if (epoch->pool_bytes < end_.pool_bytes) {
      return Status::format(StatusCode::untrusted,
                            "%.*s: the pool becomes smaller in epoch %llu; restore a copy",
                            static_cast<int>(folder_.size()), folder_.data(),
                            static_cast<unsigned long long>(epoch->epoch));
    }
    if (!counting_.push_back(static_cast<std::size_t>(epoch - epochs_.begin())))
      return StatusCode::out_of_memory;
    end_.epoch = epoch->epoch;
    end_.seal = epoch->seal;
    end_.pool_bytes = epoch->pool_bytes;
    end_.unix_ns = epoch->unix_ns;
  }
  return {};
}

template <class P>
bool LogReader<P>::has(EpochId id) const noexcept {
  if (id.epoch == mark_.folded) return id.seal == mark_.folded_seal;
  return std::ranges::any_of(counting_, [&](std::size_t i) {
    return epochs_[i].epoch == id.epoch && epochs_[i].seal == id.seal;
  });
}

template <class P>
std::uint64_t LogReader<P>::last_in(std::uint64_t segment, std::uint64_t end) const noexcept {
  std::uint64_t last = 0;
  for (const std::size_t i : counting_) {
    const Epoch& epoch = epochs_[i];
    for (std::size_t k = 0; k < epoch.parts && epoch.epoch <= end; ++k) {
      if (parts_[epoch.first + k].segment == segment) last = epoch.epoch;
    }
  }
  return last;
}

// All zero if no epoch counts.
template <class P>
typename LogReader<P>::Part LogReader<P>::last_part() const noexcept {
  if (counting_.empty()) return {};
  const Epoch& epoch = epochs_[counting_[counting_.size() - 1]];
  return parts_[epoch.first + epoch.parts - 1];
}

// Whether the mark names a segment that is not there.
template <class P>
bool LogReader<P>::lacks(std::uint64_t segment) const noexcept {
  return segment != 0 && std::ranges::find(with_head_, segment) == with_head_.end();
}

// The trace of an epoch that was durable and does not count, or null. What was written before the
// last epoch that counts may be of an attempt that this one has replaced.
template <class P>
const typename LogReader<P>::Trace* LogReader<P>::lost_epoch() const noexcept {
  const Part last = last_part();
  for (const Trace& trace : traces_) {
    const bool later =
        trace.segment != last.segment ? trace.segment > last.segment : trace.offset > last.offset;
    if (later && trace.id.epoch >= mark_.folded && !has(trace.id)) return &trace;
  }
  return nullptr;
}

// Also true if the first epoch that counts is of a restart after the folding began: only such an
// epoch follows `folded` then, and it has all lines since.
template <class P>
bool LogReader<P>::has_folding() const noexcept {
  const EpochId folding{.epoch = mark_.folding, .seal = mark_.folding_seal};
  if (mark_.folding == mark_.folded || has(folding)) return true;
  return !counting_.empty() && epochs_[counting_[0]].term > mark_.folding_segment;
}

template <class P>
Status LogReader<P>::scan(const layout::BaseMark& mark) noexcept {
  mark_ = mark;
  Status listed = list_segments(files_, folder_, segments_);
  // Without a folder the mark says whether that is right.
  if (!listed.ok() && listed != StatusCode::not_found) return listed;
  Status done;
  for (const std::uint64_t number : segments_) {
    if (number < first_ || number > last_) continue;
    bool has_head = false;
    done = scan_segment(number, has_head);
    if (!done.ok()) break;
    if (has_head && !with_head_.push_back(number)) done = StatusCode::out_of_memory;
    if (!done.ok()) break;
    end_.segment = number;
  }
  close_segment();
  if (!done.ok()) return done;
  if (Status s = follow(); !s.ok()) return s;
  // What a restart has read, until one epoch has all of it.
  const bool replaced = !counting_.empty() && epochs_[counting_[0]].term > mark.replaced;
  const bool older = !replaced && P::verifies("log.scan.replaced"_site) && lacks(mark.replaced);
  if (older || (P::verifies("log.scan.newest"_site) && lacks(mark.newest))) {
    return Status::format(
        StatusCode::untrusted,
        "%.*s: segment %s of the pool's log is missing or damaged; restore it, or "
        "a copy of the pool",
        static_cast<int>(folder_.size()), folder_.data(),
        segment_name(older ? mark.replaced : mark.newest).c_str());
  }
  if (const Trace* trace = lost_epoch(); P::verifies("log.scan.known"_site) && trace != nullptr)
    return lost(trace->segment, trace->id);
  if (P::verifies("log.scan.folding"_site) && !has_folding())
    return lost(mark.folding_segment, {.epoch = mark.folding, .seal = mark.folding_seal});
  return {};
}

// Into body_. Returns the number of runs.
template <class P>
Expected<std::size_t> LogReader<P>::read_part(const Part& part, std::uint64_t pool_bytes) noexcept {
  if (Status s = open_segment(part.segment); !s.ok()) return fail(std::move(s));
  layout::PartHead head{};
  auto same = read_head(part.offset, head);
  if (same && *same) same = head.crc == part.seal ? read_body(head) : Expected<bool>(false);
  if (!same) return fail(std::move(same.error()));
  std::uint64_t lines = 0;
  bool right = *same;
  for (std::size_t i = 0; right && i < head.runs; ++i) {
    const layout::Run run = run_at(i);
    lines += run.count;
    right = lines <= head.lines && (std::uint64_t{run.line} + run.count) * kLine <= pool_bytes;
  }
  if (right && lines == head.lines) return head.runs;
  return fail(StatusCode::untrusted,
              "%s: a part of an epoch breaks the format; restore a copy of the pool",
              path_.c_str());
}

template <class P>
template <class F>
Status LogReader<P>::replay(std::uint64_t last, F&& visit) noexcept {
  Status s;
  for (const std::size_t number : counting_) {
    const Epoch& epoch = epochs_[number];
    for (std::size_t i = 0; i < epoch.parts && epoch.epoch <= last && s.ok(); ++i) {
      auto runs = read_part(parts_[epoch.first + i], epoch.pool_bytes);
      if (!runs) s = std::move(runs.error());
      std::uint64_t at = 0;
      for (std::size_t r = 0; runs && r < *runs; ++r) {
        const layout::Run run = run_at(r);
        for (std::uint64_t k = 0; k < run.count; ++k, ++at) {
          if (!layout::is_of_mark(run.line + k)) visit(run.line + k, line_at(*runs, at));
        }
      }
    }
  }
  close_segment();
  return s;
}

template <class P>
template <class F>
Status LogReader<P>::replay_back(F&& visit) noexcept {
  Status s;
  for (std::size_t number = counting_.size(); number-- > 0 && s.ok();) {
    const Epoch& epoch = epochs_[counting_[number]];
    for (std::size_t i = epoch.parts; i-- > 0 && s.ok();) {
      auto runs = read_part(parts_[epoch.first + i], epoch.pool_bytes);
      if (!runs) s = std::move(runs.error());
      std::uint64_t at = 0;
      for (std::size_t r = 0; runs && r < *runs; ++r) at += run_at(r).count;
      for (std::size_t r = runs ? *runs : 0; r-- > 0;) {
        const layout::Run run = run_at(r);
        for (std::uint64_t k = run.count; k-- > 0;) {
          --at;
          if (!layout::is_of_mark(run.line + k))
            visit(epoch.epoch, run.line + k, line_at(*runs, at));
        }
      }
    }
  }
  close_segment();
  return s;
}

}  // namespace perdure
