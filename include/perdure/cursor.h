// Cursor: a position in the entries of a range; the base of all iterators. Users need map.h. This
// header is installed because its iterator is a template over Cursor.
//
// A cursor copies entries in batches and holds no guard between calls. So it may live long, and
// mutations may run beside it. A batch has one direction and no gap: it contains every entry
// between its first and its last key that was present throughout. So a step inside the batch does
// not read the map, in either direction. A step out of the batch scans the map again, strictly
// beyond the current key.
//
// Complexity: a step is O(1) amortized; first(), last() and seek() cost a lookup and a short scan.
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

// While a HeldVersion lives, trim() keeps its version and rollback() does not go below it.
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
    if (pin_ != nullptr) unpin(*index_, *pin_);
  }
  // Holds `version`.
  // Errors: invalid_argument if the version cannot be read; out_of_memory.
  static Expected<HeldVersion> of(Handle<VersionedIndex> index, std::uint64_t version) noexcept;
  // Holds the last closed version.
  // Errors: invalid_argument if no version can be read; out_of_memory.
  static Expected<HeldVersion> of_last(Handle<VersionedIndex> index) noexcept;

  bool held() const noexcept { return pin_ != nullptr; }
  std::uint64_t version() const noexcept { return pin_->version; }
  const Handle<VersionedIndex>& index() const noexcept { return index_; }

 private:
  Handle<VersionedIndex> index_;
  std::unique_ptr<VersionPin> pin_;
};

// An owned copy of one key. It keeps its memory for the next assign().
class KeyCopy {
 public:
  // Copies the key; with `above`, the least key above it, which must exist. Returns false if memory
  // is short. `words`: keys are integers.
  [[nodiscard]] bool assign(const Key& key, bool words, bool above) noexcept;
  const Key& key() const noexcept { return key_; }

 private:
  Key key_;
  std::unique_ptr<char[]> bytes_;
  std::size_t capacity_ = 0;
};

// The number of entries in a batch: `first` in the first one, then twice as many each time, up to
// `most`. A batch of large values ends earlier.
struct BatchSize {
  std::uint32_t first = 16;
  std::uint32_t most = 128;
};

class Cursor {
 public:
  // A cursor without entries whose status() is `failure`.
  explicit Cursor(Status failure) noexcept;
  // Moves to the first entry of the range. Copies the bounds. `words`: keys are integers.
  Cursor(Handle<OrderedIndex> index, bool words, const ScanRange& range,
         BatchSize size = {}) noexcept;
  // The same at the held version.
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
  // An entry of the batch; the bytes of its key and value begin at `begin` of bytes_.
  struct Item {
    std::uint64_t key = 0;
    std::uint64_t value = 0;
    std::size_t begin = 0;
    std::size_t value_bytes = 0;
    std::uint32_t key_bytes = 0;
    std::uint32_t word_size = 0;
  };
  static constexpr std::size_t kBatchBytes = 64 << 10;  // a batch ends once it has so many bytes

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
  // True if a greater key can exist in the map, whatever the range is.
  bool has_above(const Key& key) const noexcept { return !words_ || ~key.word != 0; }

  Handle<OrderedIndex> index_;  // null for a cursor at a version, or one that failed from the start
  HeldVersion held_;
  ScanRange range_;  // its bounds point into from_ and to_
  KeyCopy from_, to_;
  KeyCopy edge_;  // a bound of the current fetch
  bool words_ = false;
  bool failed_ = false;  // from the start, so no call can help
  Status status_;

  BatchSize size_;
  std::uint64_t left_ = 0;  // entries that the limit still allows behind this one
  std::unique_ptr<Item[]> items_;
  std::uint32_t capacity_ = 0;  // of items_
  std::uint32_t count_ = 0;
  std::uint32_t position_ = 0;
  std::uint32_t batch_ = 0;  // entries of the next fetch
  bool descending_ = false;  // direction of the batch
  bool exhausted_ = false;   // the range had no more entries in that direction
  std::unique_ptr<char[]> bytes_;
  std::size_t bytes_capacity_ = 0;
  std::size_t used_ = 0;
};

}  // namespace perdure::detail
