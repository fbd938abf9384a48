// BatchRecord: the mutations of a batch on the medium (format/layout.h). Writer and reader.
//
// A record is written once, before the batch is committed. The reader trusts nothing in it but what
// its checksum covers, and checks that against the limits of keys and values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "format/layout.h"
#include "heap/heap.h"
#include "index/engine.h"
#include "perdure/options.h"
#include "platform/platform.h"
#include "util/crc32c.h"

namespace perdure::batch_record {

inline std::size_t padded(std::size_t n) { return (n + 7) / 8 * 8; }
inline bool erases(const detail::Mutation& mutation) {
  return mutation.kind == MutationKind::erase;
}
inline std::size_t value_bytes(const detail::Mutation& mutation) {
  return erases(mutation) ? 0 : mutation.value.bytes.size();
}
inline std::size_t bytes_of(const detail::Mutation& mutation) {
  return sizeof(layout::BatchEntry) + padded(mutation.key.bytes.size()) +
         padded(value_bytes(mutation));
}

// What the checksum covers of the head, and the place.
inline std::uint32_t begin_crc(std::uint64_t offset, const layout::BatchRecord& head) {
  const std::uint64_t words[3] = {offset, head.bytes, head.maps | std::uint64_t{head.runs} << 32};
  return crc32c(0, words, sizeof(words));
}

// Writes the pieces of a record behind each other, and then its head.
template <Platform P>
class Writer {
 public:
  // `head`: all but the checksum.
  Writer(P& platform, std::byte* record, std::uint64_t offset, const layout::BatchRecord& head)
      : platform_(platform), record_(record), head_(head) {
    head_.crc = begin_crc(offset, head);
  }
  void add(const BlockRun& run) {
    const layout::BatchRun image{.offset = run.offset,
                                 .extents = static_cast<std::uint32_t>(run.extents),
                                 .kind = static_cast<std::uint32_t>(run.kind)};
    append(&image, sizeof(image));
  }
  void add(const layout::BatchMap& map) { append(&map, sizeof(map)); }
  void add(const detail::Mutation& mutation) {
    const bool put = !erases(mutation);
    const std::size_t value = value_bytes(mutation);
    const layout::BatchEntry entry{
        .key = mutation.key.word,
        .value = put ? mutation.value.word : 0,
        .key_bytes = static_cast<std::uint32_t>(mutation.key.bytes.size()),
        .value_bytes = static_cast<std::uint32_t>(value),
        .erases = put ? 0U : 1U,
        .word_size = put ? mutation.value.word_size : 0};
    append(&entry, sizeof(entry));
    append_padded(mutation.key.bytes);
    append_padded(mutation.value.bytes.substr(0, value));
  }
  void end() { platform_.copy(record_, &head_, sizeof(head_)); }

 private:
  void append(const void* from, std::size_t n) {
    if (n == 0) return;
    platform_.copy(record_ + at_, from, n);
    head_.crc = crc32c(head_.crc, from, n);
    at_ += n;
  }
  void append_padded(std::string_view bytes) {
    const std::size_t whole = bytes.size() / 8 * 8;
    append(bytes.data(), whole);
    if (whole == bytes.size()) return;  // also an empty one, whose pointer may be null
    std::uint64_t last = 0;
    std::memcpy(&last, bytes.data() + whole, bytes.size() - whole);
    append(&last, sizeof(last));
  }

  P& platform_;
  std::byte* record_;
  layout::BatchRecord head_;
  std::size_t at_ = sizeof(layout::BatchRecord);
};

// Reads the pieces in their order. Each returns false if the record cannot have been written so.
template <Platform P>
class Reader {
 public:
  Reader(Heap<P>& heap, std::uint64_t offset) : heap_(heap), offset_(offset) {}

  Status open() {
    const std::size_t room = heap_.is_block(offset_) ? heap_.block_bytes(offset_) : 0;
    if (room < sizeof(head_)) return damaged();
    at_ = heap_.template at<std::byte>(offset_);
    std::memcpy(&head_, at_, sizeof(head_));
    if (head_.magic != layout::kBatchMagic || head_.reserved != 0 || head_.bytes < sizeof(head_) ||
        head_.bytes > room) {
      return damaged();
    }
    const std::uint32_t crc =
        crc32c(begin_crc(offset_, head_), at_ + sizeof(head_), head_.bytes - sizeof(head_));
    if (!matches<P>(crc == head_.crc, "pool.batch.record_crc"_site)) return damaged();
    left_ = head_.bytes - sizeof(head_);
    at_ += sizeof(head_);
    return {};
  }
  std::uint32_t maps() const { return head_.maps; }
  std::uint32_t runs() const { return head_.runs; }
  bool next(BlockRun& run) {
    layout::BatchRun image{};
    if (!take(&image, sizeof(image)) || image.kind >= kBlockKinds || image.extents == 0 ||
        !heap_.is_extent(image.offset)) {
      return false;
    }
    run = {image.offset, image.extents, static_cast<BlockKind>(image.kind)};
    return true;
  }
  bool next(layout::BatchMap& map) { return take(&map, sizeof(map)) && map.reserved == 0; }
  // The views of the mutation lie in the record.
  bool next(detail::Mutation& mutation) {
    layout::BatchEntry entry{};
    if (!take(&entry, sizeof(entry)) || entry.erases > 1 || entry.word_size > sizeof(entry.value) ||
        entry.key_bytes > kMaxKeyBytes || entry.value_bytes > kMaxValueBytes) {
      return false;
    }
    mutation = {.kind = entry.erases != 0 ? MutationKind::erase : MutationKind::put,
                .key = {.word = entry.key},
                .value = {.word = entry.value, .word_size = entry.word_size}};
    return take(mutation.key.bytes, entry.key_bytes) &&
           take(mutation.value.bytes, entry.value_bytes);
  }
  bool ended() const { return left_ == 0; }
  Status damaged() const {
    return Status::format(StatusCode::corruption,
                          "the record of a batch at offset %lu is damaged; restore a copy",
                          offset_);
  }

 private:
  bool take(void* to, std::size_t n) {
    if (left_ < n) return false;
    std::memcpy(to, at_, n);
    at_ += n;
    left_ -= n;
    return true;
  }
  bool take(std::string_view& bytes, std::size_t n) {
    if (left_ < padded(n)) return false;
    bytes = {reinterpret_cast<const char*>(at_), n};
    at_ += padded(n);
    left_ -= padded(n);
    return true;
  }

  Heap<P>& heap_;
  std::uint64_t offset_;
  const std::byte* at_ = nullptr;
  std::size_t left_ = 0;
  layout::BatchRecord head_{};
};

}  // namespace perdure::batch_record
