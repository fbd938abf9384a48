#include "testing/torture/lossy_platform.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>

#include "testing/crash/subject.h"
#include "testing/torture/kill_point.h"

namespace perdure::testing {

namespace {

// This thread's write-backs between flush and fence.
thread_local std::vector<std::uint64_t> queued_lines;
// Write-backs that a mutant delays, with their site.
struct Delayed {
  LineRange lines;
  const SiteInfo* site;
};
thread_local std::vector<Delayed> delayed_lines;

Random& thread_random(std::uint64_t seed) {
  static std::atomic<std::uint64_t> threads{0};
  thread_local Random random(seed * 1000 + threads.fetch_add(1));
  return random;
}

std::uint64_t load_word(const std::byte* p) {
  return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(p)))
      .load(std::memory_order_relaxed);
}
void store_word(std::byte* p, std::uint64_t value) {
  std::atomic_ref(*reinterpret_cast<std::uint64_t*>(p)).store(value, std::memory_order_relaxed);
}

}  // namespace

LossyJournal* LossyJournal::make() {
  void* p = mmap(nullptr, sizeof(LossyJournal), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                 -1, 0);
  return p == MAP_FAILED ? nullptr : new (p) LossyJournal;
}

void LossyJournal::clear() {
  for (Slot& slot : slots) slot.offset = 0;
}

LossyStorage::~LossyStorage() {
  if (visible_ != nullptr) munmap(visible_, capacity_);
  if (medium_ != nullptr && medium_ != visible_) munmap(medium_, capacity_);
  if (fd_ >= 0) ::close(fd_);
}

Status LossyStorage::open(const std::string& path, std::uint64_t capacity, LossyJournal* journal,
                          bool lossless) {
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  struct stat stat{};
  if (fd_ < 0 || fstat(fd_, &stat) != 0) return StatusCode::io;
  capacity_ = capacity;
  size_ = static_cast<std::uint64_t>(stat.st_size);
  void* medium = mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  void* visible = lossless ? medium
                           : mmap(nullptr, capacity, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_NORESERVE, fd_, 0);
  if (medium == MAP_FAILED || visible == MAP_FAILED) return StatusCode::io;
  medium_ = static_cast<std::byte*>(medium);
  visible_ = static_cast<std::byte*>(visible);
  journal_ = journal;
  for (LossyJournal::Slot& slot : journal->slots) {
    const std::uint64_t offset = slot.offset.load(std::memory_order_acquire);
    if (offset == 0 || offset - 1 + kLine > size_) continue;
    for (std::size_t i = 0; i < 8; ++i) store_word(medium_ + offset - 1 + i * 8, slot.words[i]);
  }
  journal->clear();
  latches_ = std::make_unique<std::atomic_flag[]>(kLatches);
  return {};
}

void LossyStorage::write_back(std::uint64_t line) noexcept {
  if (visible_ == medium_) return;
  LossyJournal::Slot& note = journal_->slots[RealPlatform::thread_slot() % LossyJournal::kSlots];
  std::byte* from = visible_ + line * kLine;
  std::byte* to = medium_ + line * kLine;
  lock(line);
  bool differs = false;
  for (std::size_t i = 0; i < 8; ++i) {
    note.words[i] = load_word(from + i * 8);
    differs |= note.words[i] != load_word(to + i * 8);
  }
  if (differs) {
    // A kill between the two stores of the offset leaves a note, and the next open finishes the
    // copy.
    note.offset.store(line * kLine + 1, std::memory_order_release);
    for (std::size_t i = 0; i < 8; ++i) store_word(to + i * 8, note.words[i]);
    note.offset.store(0, std::memory_order_release);
  }
  unlock(line);
}

Status LossyStorage::allocate(std::uint64_t offset, std::uint64_t length) noexcept {
  if (offset + length > capacity_) return StatusCode::pool_full;
  const int error = posix_fallocate(fd_, static_cast<off_t>(offset), static_cast<off_t>(length));
  if (error == ENOSPC || error == EFBIG) return StatusCode::pool_full;
  if (error != 0) return StatusCode::io;
  std::uint64_t size = size_.load();
  while (size < offset + length && !size_.compare_exchange_weak(size, offset + length)) {
  }
  return {};
}

Status LossyStorage::punch(std::uint64_t offset, std::uint64_t length) noexcept {
  if (fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                static_cast<off_t>(length)) != 0) {
    return errno == EOPNOTSUPP ? StatusCode::unsupported : StatusCode::io;
  }
  // The private pages of the range hold the old content.
  if (visible_ != medium_ && madvise(visible_ + offset, length, MADV_DONTNEED) != 0)
    return StatusCode::io;
  return {};
}

Status LossyStorage::sync(std::uint64_t offset, std::uint64_t length) noexcept {
  const std::uint64_t end = std::min((offset + length + kPage - 1) / kPage * kPage, size_.load());
  for (std::uint64_t at = offset / kPage * kPage; at < end; at += kLine) write_back(at / kLine);
  return {};
}

LossyPlatform::LossyPlatform(LossyStorage& storage, std::uint64_t seed)
    : storage_(storage), seed_(seed), evictor_([this] { evict(); }) {
  queued_lines.clear();
  delayed_lines.clear();
}

LossyPlatform::~LossyPlatform() {
  stop_ = true;
  evictor_.join();
}

// As a full cache does: writes any line back, at any time.
void LossyPlatform::evict() noexcept {
  Random random(seed_ + 77);
  while (!stop_.load(std::memory_order_relaxed)) {
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(200)));
    for (std::uint64_t n = random.below(4); n > 0; --n) {
      const std::uint64_t line = recent_[random.below(kRecent)].load(std::memory_order_relaxed);
      if ((line + 1) * kLine <= storage_.size()) storage_.write_back(line);
    }
  }
}

// Copies line by line, each as a whole under its latch.
void LossyPlatform::copy(void* dst, const void* src, std::size_t n) noexcept {
  auto* to = static_cast<std::byte*>(dst);
  const auto* from = static_cast<const std::byte*>(src);
  while (n > 0) {
    const std::size_t step =
        std::min<std::size_t>(n, kLine - reinterpret_cast<std::uintptr_t>(to) % kLine);
    const std::uint64_t line = begin_store(to);
    std::memcpy(to, from, step);
    storage_.unlock(line);
    to += step;
    from += step;
    n -= step;
  }
}

void LossyPlatform::zero(void* dst, std::size_t n) noexcept {
  auto* to = static_cast<std::byte*>(dst);
  while (n > 0) {
    const std::size_t step =
        std::min<std::size_t>(n, kLine - reinterpret_cast<std::uintptr_t>(to) % kLine);
    const std::uint64_t line = begin_store(to);
    std::memset(to, 0, step);
    storage_.unlock(line);
    to += step;
    n -= step;
  }
}

void LossyPlatform::stall() noexcept {
  Random& random = thread_random(seed_);
  if (stall_one_in_ == 0 || !random.one_in(stall_one_in_)) return;
  std::this_thread::sleep_for(std::chrono::microseconds(random.below(1'000)));
}

void LossyPlatform::start_flush(const void* p, std::size_t n, SiteInfo& site) noexcept {
  KillPoint::reached(site);
  ++counters().flushes;
  if (n == 0) return;
  stall();
  const LineRange lines = mutated_flush(
      site, {storage_.line_of(p), storage_.line_of(static_cast<const std::byte*>(p) + n - 1) + 1});
  if (site.mutant == Mutant::delay_flush || site.mutant == Mutant::publish_first) {
    delayed_lines.push_back({lines, &site});
    return;
  }
  Random& random = thread_random(seed_);
  for (std::uint64_t line = lines.first; line < lines.end; ++line) {
    // Writes back the present content, or the content at the fence.
    if (random.one_in(2)) {
      queued_lines.push_back(line);
    } else {
      storage_.write_back(line);
    }
  }
}

void LossyPlatform::finish_flushes(SiteInfo& site) noexcept {
  KillPoint::reached(site);
  ++counters().fences;
  stall();
  site.fence_count.fetch_add(1, std::memory_order_relaxed);
  if (site.mutant == Mutant::drop_fence) {
    site.dropped_count.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  for (const std::uint64_t line : queued_lines) storage_.write_back(line);
  queued_lines.clear();
  std::vector<Delayed> kept;
  for (const Delayed& delayed : delayed_lines) {
    const bool publish_first = delayed.site->mutant == Mutant::publish_first;
    if (publish_first && delayed.site == &site) {
      kept.push_back(delayed);
      continue;
    }
    for (std::uint64_t line = delayed.lines.first; line < delayed.lines.end; ++line) {
      if (publish_first) storage_.write_back(line);
      if (!publish_first) queued_lines.push_back(line);
    }
  }
  delayed_lines = std::move(kept);
  KillPoint::reached(site);
}

void LossyPlatform::sync_range(const void* p, std::size_t n, SiteInfo& site) noexcept {
  KillPoint::reached(site);
  site.sync_count.fetch_add(1, std::memory_order_relaxed);
  if (site.mutant == Mutant::drop_sync) return;
  (void)storage_.sync(storage_.line_of(p) * kLine, n + kLine);
  KillPoint::reached(site);
}

}  // namespace perdure::testing
