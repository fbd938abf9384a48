#include "perdure/cursor.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace perdure::detail {

// ---- HeldVersion --------------------------------------------------------------------------------

Expected<HeldVersion> HeldVersion::of(Handle<VersionedIndex> index,
                                      std::uint64_t version) noexcept {
  std::unique_ptr<VersionPin> pin(new (std::nothrow) VersionPin);
  if (pin == nullptr) return fail(StatusCode::out_of_memory);
  if (Status s = index->pin(*pin, version); !s.ok()) return fail(std::move(s));
  HeldVersion held;
  held.index_ = std::move(index);
  held.pin_ = std::move(pin);
  return held;
}

Expected<HeldVersion> HeldVersion::of_last(Handle<VersionedIndex> index) noexcept {
  for (;;) {
    const VersionRange range = index->versions();
    if (range.last < range.first) {
      if (Status s = index->usable(); !s.ok()) return fail(std::move(s));
      return fail(StatusCode::invalid_argument,
                  "no version can be read: none has been closed since the last trim; tag() closes "
                  "the open one");
    }
    auto held = of(index, range.last);
    if (held || held.error() != StatusCode::invalid_argument) return held;
    // Retries if a trim or a rollback has removed the version since versions() was read.
    const VersionRange now = index->versions();
    if (now.first == range.first && now.last == range.last) return held;
  }
}

// ---- KeyCopy ------------------------------------------------------------------------------------

bool KeyCopy::assign(const Key& key, bool words, bool above) noexcept {
  if (words) {
    key_ = {.word = key.word + (above ? 1 : 0)};
    return true;
  }
  const std::size_t size = key.bytes.size() + (above ? 1 : 0);
  if (size > capacity_) {
    const std::size_t capacity = std::max<std::size_t>(size, 64);
    std::unique_ptr<char[]> bytes(new (std::nothrow) char[capacity]);
    if (bytes == nullptr) return false;
    bytes_ = std::move(bytes);
    capacity_ = capacity;
  }
  key.bytes.copy(bytes_.get(), key.bytes.size());
  if (above) bytes_[key.bytes.size()] = '\0';
  key_ = {.bytes = {bytes_.get(), size}};
  return true;
}

// ---- Cursor -------------------------------------------------------------------------------------

Cursor::Cursor(Status failure) noexcept : failed_(true), status_(std::move(failure)) {}

Cursor::Cursor(Handle<OrderedIndex> index, bool words, const ScanRange& range,
               BatchSize size) noexcept
    : index_(std::move(index)), words_(words), size_(size) {
  begin(range);
}

Cursor::Cursor(HeldVersion held, bool words, const ScanRange& range, BatchSize size) noexcept
    : held_(std::move(held)), words_(words), size_(size) {
  begin(range);
}

void Cursor::begin(const ScanRange& range) noexcept {
  range_.reverse = range.reverse;
  range_.limit = range.limit;
  if ((range.from && !from_.assign(*range.from, words_, false)) ||
      (range.to && !to_.assign(*range.to, words_, false))) {
    failed_ = true;
    return stop(StatusCode::out_of_memory);
  }
  if (range.from) range_.from = from_.key();
  if (range.to) range_.to = to_.key();
  first();
}

Entry Cursor::entry() const noexcept {
  if (!valid()) return {};
  const Item& item = items_[position_];
  const char* bytes = bytes_.get() + item.begin;
  return {.key = {.word = item.key, .bytes = {bytes, item.key_bytes}},
          .value = {.word = item.value,
                    .bytes = {bytes + item.key_bytes, item.value_bytes},
                    .word_size = item.word_size}};
}

void Cursor::first() noexcept { place(range_.reverse, range_); }
void Cursor::last() noexcept { place(!range_.reverse, range_); }

void Cursor::seek(const Key& key) noexcept {
  if (failed_) return;
  ScanRange range = range_;
  if (!range.reverse || has_above(key)) {
    // A copy: the key may be in the batch, which is about to be replaced.
    if (!edge_.assign(key, words_, range.reverse)) return stop(StatusCode::out_of_memory);
    const Key& edge = edge_.key();
    if (range.reverse) {
      if (!range.to || less(edge, *range.to)) range.to = edge;
    } else {
      if (!range.from || less(*range.from, edge)) range.from = edge;
    }
  }
  place(range.reverse, range);
}

// Moves to the first entry of the range in that direction.
void Cursor::place(bool descending, const ScanRange& range) noexcept {
  if (failed_) return;
  status_ = {};
  count_ = position_ = 0;
  if (range_.limit == 0) return;
  left_ = range_.limit - 1;
  batch_ = size_.first;
  fetch(descending, range);
}

void Cursor::step(bool descending) noexcept {
  if (!valid()) return;
  if (left_ == 0) {
    count_ = position_ = 0;
    return;
  }
  --left_;
  if (descending == descending_) {
    if (++position_ < count_) return;
    if (exhausted_) return;
  } else if (position_ > 0) {
    --position_;
    return;
  }
  position_ = descending == descending_ ? count_ - 1 : 0;
  const Key here = entry().key;
  ScanRange range = range_;
  if (!descending && !has_above(here)) {
    count_ = position_ = 0;
    return;
  }
  // A copy: `here` is in the batch, which is about to be replaced.
  if (!edge_.assign(here, words_, !descending)) return stop(StatusCode::out_of_memory);
  (descending ? range.to : range.from) = edge_.key();
  fetch(descending, range);
}

void Cursor::fetch(bool descending, ScanRange range) noexcept {
  count_ = position_ = 0;
  used_ = 0;
  descending_ = descending;
  exhausted_ = true;
  if (range.from && range.to && !less(*range.from, *range.to)) return;
  // The entry that this call delivers, and those that the limit still allows.
  const auto most = static_cast<std::uint32_t>(std::min<std::uint64_t>(batch_, left_ + 1));
  if (capacity_ < most) {
    items_.reset(new (std::nothrow) Item[most]);
    capacity_ = items_ != nullptr ? most : 0;
    if (items_ == nullptr) return stop(StatusCode::out_of_memory);
  }
  range.reverse = descending;
  range.limit = most;
  bool copied = true;
  auto done = scan(range, [&](std::span<const Entry> entries) {
    for (const Entry& entry : entries) {
      copied = append(entry);
      exhausted_ = copied && count_ < most && used_ < kBatchBytes;
      if (!exhausted_) return false;
    }
    return true;
  });
  if (!done) return stop(std::move(done.error()));
  if (!copied) return stop(StatusCode::out_of_memory);
  batch_ = std::min(2 * batch_, size_.most);
}

Expected<void> Cursor::scan(const ScanRange& range,
                            FunctionRef<bool(std::span<const Entry>)> visit) noexcept {
  if (held_.held()) return held_.index()->scan_at(held_.version(), range, visit);
  return index_->scan(range, visit);
}

// Returns false if memory is short.
bool Cursor::append(const Entry& entry) noexcept {
  const std::string_view key = words_ ? std::string_view() : entry.key.bytes;
  const std::string_view value = entry.value.bytes;
  if (!reserve(used_ + key.size() + value.size())) return false;
  items_[count_++] = {.key = entry.key.word,
                      .value = entry.value.word,
                      .begin = used_,
                      .value_bytes = value.size(),
                      .key_bytes = static_cast<std::uint32_t>(key.size()),
                      .word_size = entry.value.word_size};
  key.copy(bytes_.get() + used_, key.size());
  value.copy(bytes_.get() + used_ + key.size(), value.size());
  used_ += key.size() + value.size();
  return true;
}

bool Cursor::reserve(std::size_t bytes) noexcept {
  if (bytes <= bytes_capacity_) return true;
  const std::size_t capacity = std::max({bytes, 2 * bytes_capacity_, std::size_t{1} << 10});
  std::unique_ptr<char[]> grown(new (std::nothrow) char[capacity]);
  if (grown == nullptr) return false;
  if (used_ != 0) std::memcpy(grown.get(), bytes_.get(), used_);
  bytes_ = std::move(grown);
  bytes_capacity_ = capacity;
  return true;
}

void Cursor::stop(Status status) noexcept {
  status_ = std::move(status);
  count_ = position_ = 0;
}

}  // namespace perdure::detail
