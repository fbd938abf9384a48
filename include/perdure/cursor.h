// Cursor: a position in the entries of a range, what the iterators of all maps are made of. Users
// need map.h; this header is installed because its iterator is a template over Cursor.
//
// A cursor copies entries in batches and keeps no guard between calls, so it may live long, and any
// mutation may go on beside it. Its batch is in one direction, up or down, and covers its part of
// the range without a gap: what lies between its first and its last key, and was there throughout,
// is in it. So a step inside the batch needs no look at the map, in either direction. A step out of
// it scans the map anew, strictly beyond the key where it stands.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "perdure/index.h"
#include "perdure/status.h"

namespace perdure::detail {

// Keeps trim() and rollback() off a version while it lives.
class HeldVersion {
 public:
  HeldVersion() noexcept = default;
  HeldVersion(HeldVersion&&) noexcept = default;
  HeldVersion& operator=(HeldVersion&& other) noexcept {
    std::swap(index_, other.index_);
    std::swap(pin_, other.pin_);
    return *this;
  }
  ~HeldVersion() {
    if (pin_ != nullptr) index_->unpin(*pin_);
  }
  // Errors: invalid_argument if the version cannot be read, out_of_memory.
  static Expected<HeldVersion> of(std::shared_ptr<VersionedIndex> index,
                                  std::uint64_t version) noexcept;
  // The last closed version. Errors: invalid_argument if none can be read, out_of_memory.
  static Expected<HeldVersion> of_last(std::shared_ptr<VersionedIndex> index) noexcept;

  bool held() const noexcept { return pin_ != nullptr; }
  std::uint64_t version() const noexcept { return pin_->version; }
  const std::shared_ptr<VersionedIndex>& index() const noexcept { return index_; }

 private:
  std::shared_ptr<VersionedIndex> index_;
  std::unique_ptr<VersionPin> pin_;
};

// The bytes of one key, owned. Memory that it has it keeps.
class KeyCopy {
 public:
  // Copies the key or, with `above`, the least key above it, of which there is one. False: out of
  // memory. `words`: keys are integers.
  [[nodiscard]] bool assign(const Key& key, bool words, bool above) noexcept;
  const Key& key() const noexcept { return key_; }

 private:
  Key key_;
  std::unique_ptr<char[]> bytes_;
  std::size_t capacity_ = 0;
};

// Entries of a batch: as many at first, twice as many each time after that. A batch of large values
// ends earlier.
struct BatchSize {
  std::uint32_t first = 16;
  std::uint32_t most = 128;
};

class Cursor {
 public:
  // Has no entry, and that status.
  explicit Cursor(Status failure) noexcept;
  // Stands on the first entry of the range. The bounds are copied. `words`: keys are integers.
  Cursor(std::shared_ptr<OrderedIndex> index, bool words, const ScanRange& range,
         BatchSize size = {}) noexcept;
  // The same at a version.
  Cursor(HeldVersion held, bool words, const ScanRange& range, BatchSize size = {}) noexcept;
  Cursor(Cursor&&) noexcept = default;
  Cursor& operator=(Cursor&&) noexcept = default;

  bool valid() const noexcept { return position_ < count_ && items_ != nullptr; }
  const Status& status() const noexcept { return status_; }
  Entry entry() const noexcept;

  void first() noexcept;
  void last() noexcept;
  void seek(const Key& key) noexcept;
  void next() noexcept { step(range_.reverse); }
  void prev() noexcept { step(!range_.reverse); }

 private:
  // Where its bytes are in `bytes_`.
  struct Item {
    std::uint64_t key = 0;
    std::uint64_t value = 0;
    std::size_t begin = 0;
    std::size_t value_bytes = 0;
    std::uint32_t key_bytes = 0;
    std::uint32_t word_size = 0;
  };
  static constexpr std::size_t kBatchBytes = 64 << 10;  // a batch ends behind so many

  void begin(const ScanRange& range) noexcept;
  void place(bool descending, const ScanRange& range) noexcept;
  void step(bool descending) noexcept;
  void fetch(bool descending, ScanRange range) noexcept;
  Expected<void> scan(const ScanRange& range,
                      FunctionRef<bool(std::span<const Entry>)> visit) noexcept;
  bool append(const Entry& entry) noexcept;
  bool reserve(std::size_t bytes) noexcept;
  void stop(Status status) noexcept;
  bool less(const Key& a, const Key& b) const noexcept {
    return words_ ? a.word < b.word : a.bytes < b.bytes;
  }
  // Whether a key of the map lies above this one, whatever the range says.
  bool has_above(const Key& key) const noexcept { return !words_ || ~key.word != 0; }

  std::shared_ptr<OrderedIndex> index_;  // null: of a version, or failed from the start
  HeldVersion held_;
  ScanRange range_;  // its bounds are `from_` and `to_`
  KeyCopy from_, to_;
  KeyCopy edge_;  // a bound of the fetch that goes on
  bool words_ = false;
  bool failed_ = false;  // from the start: no call can help
  Status status_;

  BatchSize size_;
  std::uint64_t left_ = 0;  // entries that may be delivered behind this one
  std::unique_ptr<Item[]> items_;
  std::uint32_t capacity_ = 0;  // of items_
  std::uint32_t count_ = 0;
  std::uint32_t position_ = 0;
  std::uint32_t batch_ = 0;  // the next fetch's number of entries
  bool descending_ = false;  // the batch's direction
  bool exhausted_ = false;   // the range had no more entries in that direction
  std::unique_ptr<char[]> bytes_;
  std::size_t bytes_capacity_ = 0;
  std::size_t used_ = 0;
};

}  // namespace perdure::detail
