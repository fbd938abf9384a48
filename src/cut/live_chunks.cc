#include "cut/live_chunks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "platform/nap.h"

namespace perdure {

using layout::LiveBits;
using layout::LiveHead;

namespace {

constexpr std::uint64_t kLeastChunk = 256_KiB;
constexpr std::uint64_t kBitsInHead = std::size(LiveHead{}.live) * 64;
static_assert(FirstStores<RealPlatform>::kMaxParts ==
              kBitsInHead + std::size(LiveBits{}.live) * 64);

}  // namespace

LiveChunks::Word& LiveChunks::word(std::uint64_t chunk) const noexcept {
  auto* more = reinterpret_cast<LiveBits*>(start_ + layout::kMarkStride + layout::kMarkOffset);
  std::uint64_t& bits =
      chunk < kBitsInHead ? head().live[chunk / 64] : more->live[(chunk - kBitsInHead) / 64];
  return reinterpret_cast<Word&>(bits);
}

Status LiveChunks::open() noexcept {
  buffers_.reset(new (std::nothrow) std::byte[kBuffer * latches_.size()]);
  if (buffers_ == nullptr) return StatusCode::out_of_memory;
  start_ = image_.map_start(kStart);
  if (start_ != nullptr) return {};
  return Status::format(StatusCode::out_of_memory, "the head of the live image cannot be mapped");
}

void LiveChunks::set_chunks(std::uint64_t covered, std::uint64_t chunk_bytes) noexcept {
  covered_ = covered;
  set_shape(align_up(covered, chunk_bytes) / chunk_bytes,
            static_cast<unsigned>(std::countr_zero(chunk_bytes)));
  set_ready(parts());  // what lies behind the chunks
}

template <class F>
Status LiveChunks::for_each_run(F&& show) noexcept {
  for (std::uint64_t from = 0; from < parts();) {
    const bool live = has_bit(from);
    std::uint64_t to = from + 1;
    while (to < parts() && has_bit(to) == live) ++to;
    const std::uint64_t end = live ? begin_of(to) : std::min(begin_of(to), covered_);
    if (Status s = show(begin_of(from), end, live); !s.ok()) return s;
    from = to;
  }
  return {};
}

Status LiveChunks::begin(std::uint64_t bytes, LiveHead head) noexcept {
  if (Status s = open(); !s.ok()) return s;
  head.magic = layout::kLiveMagic;
  head.covered = align_up(bytes, kPage);
  head.chunk_bytes = kLeastChunk;
  while (head.covered > head.chunk_bytes * kMaxParts) head.chunk_bytes *= 2;
  head.crc = layout::live_head_crc(head);
  set_chunks(head.covered, head.chunk_bytes);
  if (Status s = image_.show(base_, 0, head.covered); !s.ok()) return s;
  if (Status s = make(0); !s.ok()) return s;
  // Its copy has the marks of the base where the head and the bits lie.
  std::memset(start_ + layout::kMarkStride + layout::kMarkOffset, 0, sizeof(LiveBits));
  std::memcpy(start_ + layout::kMarkOffset, &head, sizeof(head));
  word(0).store(1, std::memory_order_release);
  return {};
}

Status LiveChunks::go_on() noexcept {
  if (Status s = open(); !s.ok()) return s;
  const LiveHead& live = head();
  const std::uint64_t most = live.chunk_bytes * kMaxParts;
  const bool right = layout::is_live_head(live) && std::has_single_bit(live.chunk_bytes) &&
                     live.chunk_bytes >= kLeastChunk && live.covered <= most &&
                     live.covered % kPage == 0 && has_bit(0);
  if (!right) return Status::format(StatusCode::corruption, "its head is damaged");
  set_chunks(live.covered, live.chunk_bytes);
  struct stat info{};
  if (::fstat(base_, &info) != 0) {
    return Status::format(StatusCode::io, "the pool's file is not open: %s", std::strerror(errno));
  }
  if (align_up(static_cast<std::uint64_t>(info.st_size), kPage) < live.covered) {
    return Status::format(StatusCode::corruption,
                          "the pool's file was truncated: %ld bytes, of %lu; restore a copy",
                          static_cast<std::int64_t>(info.st_size), live.covered);
  }
  for (std::uint64_t chunk = 0; chunk < parts(); ++chunk) {
    if (!has_bit(chunk)) continue;
    set_ready(chunk);
    made_.fetch_add(1, std::memory_order_relaxed);
  }
  return for_each_run([this](std::uint64_t from, std::uint64_t to, bool live_run) {
    return live_run ? Status() : image_.show(base_, from, to);
  });
}

void LiveChunks::attach(RealPlatform& platform) noexcept {
  platform_ = &platform;
  // The next store of each thread finds the pool poisoned.
  platform.on_lost_pages([](void* chunks) { static_cast<LiveChunks*>(chunks)->set_none_ready(); },
                         this);
  if (platform.poisoned()) set_none_ready();
}

void LiveChunks::close() noexcept {
  if (start_ != nullptr) image_.unmap_start(std::exchange(start_, nullptr), kStart);
}

void LiveChunks::abandon() noexcept { start_ = nullptr; }

std::uint64_t LiveChunks::live_bytes() const noexcept {
  const std::uint64_t covered = parts() << shift();
  const std::uint64_t behind = image_.size() > covered ? image_.size() - covered : 0;
  return std::min((made_.load(std::memory_order_relaxed) << shift()) + behind, image_.size());
}

// Not from the mapping of the base, in which each few pages are a fault.
Status LiveChunks::copy(std::uint64_t from, std::uint64_t n, std::byte* buffer) noexcept {
  for (const std::uint64_t end = from + n; from < end;) {
    const std::uint64_t piece = std::min(kBuffer, end - from);
    const ssize_t got = ::pread(base_, buffer, piece, static_cast<off_t>(from));
    if (got < 0 && errno == EINTR) continue;
    const std::uint64_t bytes = got < 0 ? 0 : static_cast<std::uint64_t>(got);
    if (bytes == 0 || (bytes % kPage != 0 && from + align_up(bytes, kPage) != covered_)) {
      return Status::format(StatusCode::corruption, "%s",
                            got < 0 ? std::strerror(errno) : "it was truncated");
    }
    std::memset(buffer + bytes, 0, align_up(bytes, kPage) - bytes);
    if (Status s = image_.write(buffer, align_up(bytes, kPage), from); !s.ok()) return s;
    from += align_up(bytes, kPage);
  }
  return {};
}

Status LiveChunks::make(std::uint64_t chunk) noexcept {
  const std::uint64_t from = begin_of(chunk);
  const std::uint64_t to = begin_of(chunk + 1);
  const std::uint64_t n = std::min(to, covered_) - from;
  if (Status s = image_.reserve(from, n); !s.ok()) return s;
  std::byte* const buffer = buffers_.get() + chunk % latches_.size() * kBuffer;
  if (Status s = copy(from, n, buffer); !s.ok()) return s;
  const std::uint64_t bit = std::uint64_t{1} << chunk % 64;
  word(chunk).fetch_or(bit, std::memory_order_release);
  if (Status s = image_.show_own(from, to); !s.ok()) {
    word(chunk).fetch_and(~bit, std::memory_order_release);
    return s;
  }
  made_.fetch_add(1, std::memory_order_relaxed);
  set_ready(chunk);
  return {};
}

Status LiveChunks::make_live(std::uint64_t offset) noexcept {
  const std::uint64_t chunk = part_of(offset);
  LatchGuard guard(latches_[chunk % latches_.size()]);
  return is_ready(chunk) ? Status() : make(chunk);
}

Status LiveChunks::make_live(const PageSet& pages) noexcept {
  constexpr std::uint64_t kAhead = 32_MiB;
  const auto next = [&](std::uint64_t chunk) {  // from this one on
    const std::uint64_t page = pages.next(begin_of(chunk) / kPage);
    return page < covered_ / kPage ? part_of(page * kPage) : parts();
  };
  std::uint64_t ahead = 0;
  for (std::uint64_t chunk = next(0); chunk < parts(); chunk = next(chunk + 1)) {
    for (ahead = std::max(ahead, chunk); ahead < parts(); ahead = next(ahead + 1)) {
      if (begin_of(ahead) >= begin_of(chunk + 1) + kAhead) break;
      (void)::posix_fadvise(base_, static_cast<off_t>(begin_of(ahead)),
                            static_cast<off_t>(begin_of(1)), POSIX_FADV_WILLNEED);
    }
    if (Status s = make_live(begin_of(chunk)); !s.ok()) return s;
  }
  return {};
}

Status LiveChunks::punch(std::uint64_t offset, std::uint64_t length, PunchBase base) noexcept {
  for (const std::uint64_t end = offset + length; offset < end;) {
    const std::uint64_t chunk = part_of(offset);
    const bool covered = chunk < parts();
    const std::uint64_t n = (covered ? std::min(end, begin_of(chunk + 1)) : end) - offset;
    LatchGuard guard(latches_[chunk % latches_.size()]);
    if (covered && is_ready(chunk)) {
      if (Status s = image_.punch_again(offset, n); !s.ok()) return s;
    }
    if (Status s = base(offset, n); !s.ok()) return s;
    offset += n;
  }
  return {};
}

// What lies behind the chunks may be in one by now: then another one becomes live for nothing, and
// the caller asks again.
bool LiveChunks::make_ready(std::uint64_t offset) noexcept {
  if (frozen_.load(std::memory_order_acquire)) return false;
  const std::uint64_t part = part_of(offset);
  Status s;
  {
    LatchGuard guard(latches_[part % latches_.size()]);
    if (frozen_.load(std::memory_order_acquire)) return false;
    if (is_ready(part)) return true;
    // Then no part is ready, and this one may be live.
    s = platform_->poisoned() ? Status(StatusCode::poisoned) : make(part);
  }
  if (!s.ok()) freeze(s);
  return true;
}

Status LiveChunks::cover(std::uint64_t bytes) noexcept {
  const std::uint64_t had = parts();
  const std::uint64_t to = std::min(bytes >> shift(), kMaxParts);
  lock_all();
  Status s =
      frozen_.load(std::memory_order_relaxed) || is_poisoned() ? StatusCode::poisoned : Status();
  // The image has what lies behind the covered bytes of the last chunk, also if that is not live.
  if (s.ok() && to > had && had != 0 && !has_bit(had - 1)) s = make(had - 1);
  if (s.ok() && to > had) {
    for (std::uint64_t i = had; i < to; ++i)
      word(i).fetch_or(std::uint64_t{1} << i % 64, std::memory_order_release);
    LiveHead next{};  // the first part, which no other thread changes
    std::memcpy(static_cast<void*>(&next), &head(), offsetof(LiveHead, folded));
    next.covered = begin_of(to);
    next.crc = layout::live_head_crc(next);
    s = image_.write(&next, offsetof(LiveHead, folded), layout::kMarkOffset);
  }
  if (s.ok() && to > had) {
    for (std::uint64_t i = had; i <= to; ++i) set_ready(i);
    made_.fetch_add(to - had, std::memory_order_relaxed);
    covered_ = begin_of(to);
    set_parts(to);
    see_poison();
  }
  unlock_all();
  return s;
}

// Of a chunk to which no store is under way.
Status LiveChunks::show_base(std::uint64_t chunk) noexcept {
  const std::uint64_t to = std::min(begin_of(chunk + 1), covered_);
  if (Status s = image_.show(base_, begin_of(chunk), to); !s.ok()) {
    (void)image_.show_own(begin_of(chunk), to);
    return s;
  }
  word(chunk).fetch_and(~(std::uint64_t{1} << chunk % 64), std::memory_order_seq_cst);
  made_.fetch_sub(1, std::memory_order_relaxed);
  return {};
}

// In a group: ends_stores() costs more than the rest. Chunk 0 has the marks.
Expected<std::uint64_t> LiveChunks::retire(std::uint64_t offset, EndStores ends_stores,
                                           IsInBase is_in_base) noexcept {
  const std::uint64_t begin = std::max<std::uint64_t>(offset >> shift(), 1);
  const std::uint64_t end = std::min(begin + kRetired, parts());
  lock_all();
  std::array<bool, kRetired> stays{};
  bool any = false;
  for (std::uint64_t i = begin; i < end; ++i) any |= stays[i - begin] = is_ready(i) && has_bit(i);
  Status s =
      frozen_.load(std::memory_order_relaxed) || is_poisoned() ? StatusCode::poisoned : Status();
  if (s.ok() && any) {
    for (std::uint64_t i = begin; i < end; ++i) {
      if (stays[i - begin]) set_not_ready(i);
    }
    const bool ended = ends_stores();
    for (std::uint64_t i = begin; i < end; ++i) {
      bool& live = stays[i - begin];
      if (!live) continue;
      if (ended && s.ok() && is_in_base(begin_of(i), std::min(begin_of(i + 1), covered_))) {
        s = show_base(i);
        live = !s.ok();
      }
      if (live) set_ready(i);
    }
    see_poison();
  }
  unlock_all();
  if (!s.ok()) return fail(std::move(s));
  return begin_of(end);
}

// With the head, the disk never says of a chunk without space that it is live: zeros could pass for
// what was given back (image_check.h).
Status LiveChunks::give_back() noexcept {
  if (::msync(start_, kStart, MS_SYNC) != 0)
    return Status::format(StatusCode::io, "the head of the live image cannot be written");
  for (std::uint64_t i = 1; i < parts(); ++i) {
    LatchGuard guard(latches_[i % latches_.size()]);
    if (is_ready(i) || has_bit(i)) continue;
    const std::uint64_t n = std::min(begin_of(i + 1), covered_) - begin_of(i);
    if (Status s = image_.punch_again(begin_of(i), n); !s.ok()) return s;
  }
  return {};
}

void LiveChunks::keep_all_private() noexcept {
  constexpr int kTries = 100;
  const auto keep = [this](std::uint64_t from, std::uint64_t to, bool live) {
    for (int i = 0; i < kTries; ++i) {
      if (image_.keep_private(live ? -1 : base_, from, to).ok()) return Status();
      nap();
    }
    std::abort();
  };
  (void)for_each_run(keep);
  const bool whole = parts() != 0 && has_bit(parts() - 1);
  (void)keep(whole ? begin_of(parts()) : covered_, image_.capacity(), true);
}

void LiveChunks::mark_poisoned(const Status& why) noexcept {
  char text[256];
  const bool readable = why != StatusCode::corruption;  // the base
  std::snprintf(text, sizeof(text),
                "%s (%.*s); nothing is acknowledged any more%s; close the pool, see to the disk, "
                "and open it again",
                readable ? "its live image cannot be changed" : "its file cannot be read",
                static_cast<int>(why.message().size()), why.message().data(),
                readable ? ", and nothing is lost" : "");
  platform_->mark_poisoned(platform_->poisoned() ? nullptr : text);
}

// No other thread is in make() while all latches are taken. The log is told afterwards: it may call
// the application, which may store.
void LiveChunks::freeze(const Status& why) noexcept {
  for (auto& latch : latches_) latch.lock();
  if (!frozen_.load(std::memory_order_relaxed)) {
    mark_poisoned(why);
    set_none_ready();
    (void)RealPlatform::heavy_fence();
    keep_all_private();
    frozen_.store(true, std::memory_order_release);
  }
  for (auto& latch : latches_) latch.unlock();
  platform_->tell_poisoned();
}

}  // namespace perdure
