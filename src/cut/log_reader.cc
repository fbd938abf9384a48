#include "cut/log_reader.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace perdure {

Status LogReader::lost(std::uint64_t segment, EpochId id) const noexcept {
  return Status::format(StatusCode::untrusted,
                        "%.*s: epoch %lu was on the disk and cannot be read (segment %s shows it): "
                        "the log lacks what follows epoch %lu; restore what is missing of it, or a "
                        "copy of the pool",
                        static_cast<int>(folder_.size()), folder_.data(), id.epoch,
                        segment_name(segment).c_str(), end_.epoch);
}

void LogReader::close_segment() noexcept {
  if (number_ != 0) files_.close(file_);
  number_ = 0;
}

Status LogReader::open_segment(std::uint64_t number) noexcept {
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
Expected<bool> LogReader::read_head(std::uint64_t offset, layout::PartHead& head) noexcept {
  auto got = files_.read(file_, &head, sizeof(head), offset);
  if (!got) return fail(std::move(got.error()));
  if (*got != sizeof(head) || head.magic != layout::kPartMagic) return false;
  if (head.crc != layout::part_seal(head) && files_.does("log.part.head"_site)) return false;
  const bool here = head.segment == number_ && head.offset == offset &&
                    layout::same_id(head.log_id, mark_.log_id);
  if (!here) return false;
  return head.lines <= layout::kMaxPartLines && head.runs <= head.lines &&
         head.epoch > head.after && head.epoch < kMostNumber;
}

// Reads runs and lines into body_. False: they are not those that were written.
Expected<bool> LogReader::read_body(const layout::PartHead& head) noexcept {
  const std::size_t n = layout::part_bytes(head.runs, head.lines) - sizeof(head);
  if (n > body_bytes_) {
    body_.reset(new (std::nothrow) std::byte[n]);
    body_bytes_ = body_ == nullptr ? 0 : n;
    if (body_ == nullptr) return fail(StatusCode::out_of_memory);
  }
  auto got = files_.read(file_, body_.get(), n, head.offset + sizeof(head));
  if (!got) return fail(std::move(got.error()));
  if (*got != n) return false;
  return head.body_crc == crc32c(3, body_.get(), n) || !files_.does("log.part.body"_site);
}

layout::Run LogReader::run_at(std::size_t i) const noexcept {
  layout::Run run;
  std::memcpy(&run, body_.get() + i * sizeof(run), sizeof(run));
  return run;
}

LineWords LogReader::line_at(std::size_t runs, std::uint64_t i) const noexcept {
  LineWords content;
  const std::size_t lines = layout::lines_at(runs) - sizeof(layout::PartHead);
  std::memcpy(&content, body_.get() + lines + i * kLine, sizeof(content));
  return content;
}

// Of the part in body_. Returns false if memory is short.
bool LogReader::note_pages(const layout::PartHead& head) noexcept {
  for (std::uint32_t i = 0; i < head.runs; ++i) {
    const layout::Run run = run_at(i);
    if (run.count == 0) continue;
    const std::uint64_t last = (std::uint64_t{run.line} + run.count - 1) * kLine / kPage;
    for (std::uint64_t page = run.line * kLine / kPage; page <= last; ++page) {
      if (!pages_.add(page)) return false;
    }
  }
  return true;
}

Status LogReader::read_back(const layout::BaseMark& mark, std::uint64_t number, std::uint64_t from,
                            std::uint64_t to) noexcept {
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
    } else if (!*whole && files_.does("log.fold.read_back"_site)) {
      s = Status::format(StatusCode::untrusted,
                         "%s: what was written at %lu cannot be read back; restore a copy",
                         path_.c_str(), from);
    } else {
      from += *whole ? align_up(layout::part_bytes(head.runs, head.lines), kPage) : kPage;
    }
  }
  close_segment();
  return s;
}

Expected<std::uint64_t> LogReader::visit_parts(const layout::BaseMark& mark, FileSystem::File file,
                                               std::uint64_t number, std::uint64_t from,
                                               VisitPart visit) noexcept {
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

Status LogReader::add(const layout::PartHead& head, bool whole) noexcept {
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

Status LogReader::scan_segment(std::uint64_t number, bool& has_head) noexcept {
  has_head = false;
  if (Status s = open_segment(number); !s.ok()) return s;
  auto own = read_segment_head(files_, file_);
  if (!own) return std::move(own.error());
  // Without its head it is a segment that was not finished, or of which the name is new and the
  // head old. No part in it counts then.
  if (own->magic == 0) return {};
  if (!layout::same_id(own->log_id, mark_.log_id)) {
    return Status::format(StatusCode::exists,
                          "%s: belongs to the log of another pool; move that folder away, or "
                          "restore the pool's own",
                          path_.c_str());
  }
  has_head = own->number == number;
  if (!has_head) return {};
  if (!traces_.push_back(
          {.segment = number, .offset = 0, .id = {.epoch = own->after, .seal = own->before}}))
    return StatusCode::out_of_memory;
  for (std::uint64_t at = kPage; at < std::min(size_, own->bytes);) {
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
const LogReader::Epoch* LogReader::next() const noexcept {
  const auto* first =
      std::lower_bound(epochs_.begin(), epochs_.end(), end_.epoch,
                       [](const Epoch& epoch, std::uint64_t after) { return epoch.after < after; });
  for (; first != epochs_.end() && first->after == end_.epoch; ++first) {
    if (first->whole && first->before == end_.seal) return first;
  }
  return nullptr;
}

Status LogReader::follow() noexcept {
  std::ranges::sort(epochs_, [](const Epoch& a, const Epoch& b) {
    return a.after != b.after ? a.after < b.after : a.term > b.term;
  });
  end_.epoch = mark_.folded;
  end_.seal = mark_.folded_seal;
  while (const Epoch* epoch = next()) {
    if (epoch->pool_bytes < end_.pool_bytes) {
      return Status::format(StatusCode::untrusted,
                            "%.*s: the pool becomes smaller in epoch %lu; restore a copy",
                            static_cast<int>(folder_.size()), folder_.data(), epoch->epoch);
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

bool LogReader::has(EpochId id) const noexcept {
  if (id.epoch == mark_.folded) return id.seal == mark_.folded_seal;
  return std::ranges::any_of(counting_, [&](std::size_t i) {
    return epochs_[i].epoch == id.epoch && epochs_[i].seal == id.seal;
  });
}

std::uint64_t LogReader::last_in(std::uint64_t segment, std::uint64_t end) const noexcept {
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
LogReader::Part LogReader::last_part() const noexcept {
  if (counting_.empty()) return {};
  const Epoch& epoch = epochs_[counting_[counting_.size() - 1]];
  return parts_[epoch.first + epoch.parts - 1];
}

// Whether the mark names a segment that is not there.
bool LogReader::lacks(std::uint64_t segment) const noexcept {
  return segment != 0 &&
         std::ranges::find(with_head_, segment, &Segment::number) == with_head_.end();
}

// The trace of an epoch that was durable and does not count, or null. What was written before the
// last epoch that counts may be of an attempt that this one has replaced.
const LogReader::Trace* LogReader::lost_epoch() const noexcept {
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
bool LogReader::has_folding() const noexcept {
  const EpochId folding{.epoch = mark_.folding, .seal = mark_.folding_seal};
  if (mark_.folding == mark_.folded || has(folding)) return true;
  return !counting_.empty() && epochs_[counting_[0]].term > mark_.folding_segment;
}

Status LogReader::scan(const layout::BaseMark& mark) noexcept {
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
    if (has_head && !with_head_.push_back({.number = number, .bytes = size_}))
      done = StatusCode::out_of_memory;
    if (!done.ok()) break;
    end_.segment = number;
  }
  close_segment();
  if (!done.ok()) return done;
  if (Status s = follow(); !s.ok()) return s;
  // What a restart has read, until one epoch has all of it.
  const bool replaced = !counting_.empty() && epochs_[counting_[0]].term > mark.replaced;
  const bool older = !replaced && files_.does("log.scan.replaced"_site) && lacks(mark.replaced);
  if (older || (files_.does("log.scan.newest"_site) && lacks(mark.newest))) {
    return Status::format(
        StatusCode::untrusted,
        "%.*s: segment %s of the pool's log is missing or damaged; restore it, or "
        "a copy of the pool",
        static_cast<int>(folder_.size()), folder_.data(),
        segment_name(older ? mark.replaced : mark.newest).c_str());
  }
  if (const Trace* trace = lost_epoch(); files_.does("log.scan.known"_site) && trace != nullptr)
    return lost(trace->segment, trace->id);
  if (files_.does("log.scan.folding"_site) && !has_folding())
    return lost(mark.folding_segment, {.epoch = mark.folding, .seal = mark.folding_seal});
  return {};
}

// Into body_. Returns the number of runs.
Expected<std::size_t> LogReader::read_part(const Part& part, std::uint64_t pool_bytes) noexcept {
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

// Through the epochs that count, up to `last`; `back`: from the last line to the first.
Status LogReader::walk(bool back, std::uint64_t last, VisitBack visit) noexcept {
  const auto nth = [back](std::uint64_t i, std::uint64_t count) {
    return back ? count - 1 - i : i;
  };
  Status s;
  for (std::size_t e = 0; e < counting_.size() && s.ok(); ++e) {
    const Epoch& epoch = epochs_[counting_[nth(e, counting_.size())]];
    for (std::size_t i = 0; i < epoch.parts && epoch.epoch <= last && s.ok(); ++i) {
      auto runs = read_part(parts_[epoch.first + nth(i, epoch.parts)], epoch.pool_bytes);
      if (!runs) s = std::move(runs.error());
      std::uint64_t at = 0;  // lines before the run
      for (std::size_t r = 0; runs && back && r < *runs; ++r) at += run_at(r).count;
      for (std::size_t r = 0; runs && r < *runs; ++r) {
        const layout::Run run = run_at(nth(r, *runs));
        if (back) at -= run.count;
        for (std::uint64_t k = 0; k < run.count; ++k) {
          const std::uint64_t line = nth(k, run.count);
          if (!layout::is_of_mark(run.line + line))
            visit(epoch.epoch, run.line + line, line_at(*runs, at + line));
        }
        if (!back) at += run.count;
      }
    }
  }
  close_segment();
  return s;
}

}  // namespace perdure
