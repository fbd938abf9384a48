// BatchRecord: the mutations of a batch on the medium (format/layout.h). Writer and reader.
//
// A record is written once, before the batch is committed. The reader trusts nothing in it but what
// its checksum covers, and checks that against the limits of keys and values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "format/layout.h"
#include "heap/heap.h"
#include "index/engine.h"
#include "index/record.h"
#include "perdure/options.h"
#include "platform/platform.h"
#include "util/crc32c.h"

namespace perdure::batch_record {

// layout::BatchEntry::kind
inline constexpr std::uint32_t kPut = 0;
inline constexpr std::uint32_t kErase = 1;
inline constexpr std::uint32_t kNames = 2;

inline std::size_t padded(std::size_t n) { return (n + 7) / 8 * 8; }
inline bool erases(const detail::Mutation& mutation) {
  return mutation.kind == MutationKind::erase;
}
inline std::size_t value_bytes(const detail::Mutation& mutation) {
  return erases(mutation) ? 0 : mutation.value.bytes.size();
}
// `block`: with the record of the mutation; 0: none.
inline std::size_t bytes_of(const detail::Mutation& mutation, std::uint64_t block) {
  return sizeof(layout::BatchEntry) +
         (block != 0 ? 0 : padded(mutation.key.bytes.size()) + padded(value_bytes(mutation)));
}

// What the checksum covers of the head, and the place.
inline std::uint32_t begin_crc(std::uint64_t offset, const layout::BatchRecord& head) {
  const std::uint64_t words[4] = {offset, head.bytes, head.maps | std::uint64_t{head.runs} << 32,
                                  head.piece};
  return crc32c(0, words, head.piece != 0 ? sizeof(words) : sizeof(words) - sizeof(words[3]));
}
// Behind the record of a batch in pieces, for each piece: 0, or this when it is done.
inline std::uint64_t done_word(std::uint64_t offset, std::uint64_t piece) {
  const std::uint64_t words[2] = {offset, piece};
  return std::uint64_t{1} << 32 | crc32c(0, words, sizeof(words));
}

// All but the checksum. `parts`: with a target and a range of mutations each.
// `mutations`: with size(), and one for each number.
template <class Parts, class Mutations>
layout::BatchRecord head_of(const Parts& parts, std::uint32_t runs, const Mutations& mutations,
                            std::span<const std::uint64_t> blocks, std::uint32_t piece = 0) {
  layout::BatchRecord head = {.magic = layout::kBatchMagic,
                              .bytes = sizeof(layout::BatchRecord) +
                                       parts.size() * sizeof(layout::BatchMap) +
                                       runs * sizeof(layout::BatchRun),
                              .maps = static_cast<std::uint32_t>(parts.size()),
                              .runs = runs,
                              .crc = 0,
                              .piece = piece};
  for (std::size_t i = 0; i < mutations.size(); ++i) {
    head.bytes += bytes_of(mutations[i], blocks[i]);
  }
  return head;
}
template <class Part>
layout::BatchMap line_of(const Part& part) {
  return {.slot = part.target.slot,
          .reserved = 0,
          .root = part.target.root,
          .version = part.target.map->batch_version(),
          .entries = part.end - part.begin};
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
  void add(const detail::Mutation& mutation, std::uint64_t block) {
    if (block != 0) {
      const layout::BatchEntry entry{.key = mutation.key.word,
                                     .value = block,
                                     .key_bytes = 0,
                                     .value_bytes = 0,
                                     .kind = kNames,
                                     .word_size = 0};
      return append(&entry, sizeof(entry));
    }
    const bool put = !erases(mutation);
    const std::size_t value = value_bytes(mutation);
    const layout::BatchEntry entry{
        .key = mutation.key.word,
        .value = put ? mutation.value.word : 0,
        .key_bytes = static_cast<std::uint32_t>(mutation.key.bytes.size()),
        .value_bytes = static_cast<std::uint32_t>(value),
        .kind = put ? kPut : kErase,
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

// Writes the whole record, and fences it and the blocks that it names. `add_runs(out)` adds its
// runs; `before_each()` is called before each mutation. False: the pool is poisoned.
template <Platform P, class Parts, class Mutations, class AddRuns, class BeforeEach>
bool write(P& platform, std::byte* memory, std::uint64_t record, const layout::BatchRecord& head,
           const Parts& parts, const Mutations& mutations, std::span<const std::uint64_t> blocks,
           AddRuns&& add_runs, BeforeEach&& before_each) {
  Writer<P> out(platform, memory, record, head);
  add_runs(out);
  for (const auto& part : parts) {
    out.add(line_of(part));
    for (std::size_t i = part.begin; i < part.end; ++i) {
      before_each();
      out.add(mutations[i], blocks[i]);
    }
  }
  out.end();
  platform.flush(memory, head.bytes, "pool.batch.record"_site);
  return platform.fence("pool.batch.record"_site);
}

// Reads the pieces in their order. Each returns false if the record cannot have been written so.
template <Platform P>
class Reader {
 public:
  Reader(P& platform, Heap<P>& heap, std::uint64_t offset)
      : platform_(platform), heap_(heap), offset_(offset) {}

  Status open() {
    const std::size_t room = heap_.is_block(offset_) ? heap_.block_bytes(offset_) : 0;
    if (room < sizeof(head_)) return damaged();
    at_ = heap_.template at<std::byte>(offset_);
    std::memcpy(&head_, at_, sizeof(head_));
    if (head_.magic != layout::kBatchMagic || head_.bytes % 8 != 0 || head_.bytes < sizeof(head_) ||
        head_.bytes > room) {
      return damaged();
    }
    const std::uint32_t crc =
        crc32c(begin_crc(offset_, head_), at_ + sizeof(head_), head_.bytes - sizeof(head_));
    if (!matches<P>(crc == head_.crc, "pool.batch.record_crc"_site)) return damaged();
    done_ = at_ + head_.bytes;
    pieces_ = (room - head_.bytes) / sizeof(std::uint64_t);
    left_ = head_.bytes - sizeof(head_);
    at_ += sizeof(head_);
    return {};
  }
  // After all mutations of a map: the next one is the first of a piece.
  void end_map() {
    if (in_piece_ != 0) ++piece_;
    in_piece_ = 0;
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
  // The views of the mutation lie in the record, or in the block that it names; `block`: 0 if it
  // names none; `done`: the mutation is of a piece that is done. Then its block may be free, and
  // the mutation is none.
  bool next(detail::Mutation& mutation, std::uint64_t& block, bool& done) {
    layout::BatchEntry entry{};
    if (!take(&entry, sizeof(entry)) || entry.kind > kNames ||
        entry.word_size > sizeof(entry.value) || entry.key_bytes > kMaxKeyBytes ||
        entry.value_bytes > kMaxValueBytes) {
      return false;
    }
    if (!count_into_piece(done)) return false;
    block = !done && entry.kind == kNames ? entry.value : 0;
    if (done && entry.kind == kNames) {
      mutation = {};
      return true;
    }
    if (entry.kind == kNames) return read_block(entry, mutation);
    mutation = {.kind = entry.kind == kErase ? MutationKind::erase : MutationKind::put,
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
  bool read_block(const layout::BatchEntry& entry, detail::Mutation& mutation) {
    const std::size_t room = heap_.is_block(entry.value) ? heap_.block_bytes(entry.value) : 0;
    if (room < sizeof(RecordPrefix)) return false;
    const auto* prefix = heap_.template at<RecordPrefix>(entry.value);
    const auto record = RecordView::read(platform_, prefix);
    if (!record.plausible(room) || (record.word_size() != 0 && head_.piece == 0) ||
        record.value().bytes.size() > kMaxValueBytes ||
        !matches<P>(record.intact(), "pool.batch.block_crc"_site)) {
      return false;
    }
    mutation = {.kind = MutationKind::put,
                .key = {.word = entry.key, .bytes = record.key()},
                .value = record.value()};
    return true;
  }
  // Whether the piece of the next mutation is done. False: what says so is damaged.
  bool count_into_piece(bool& done) {
    done = false;
    if (head_.piece == 0) return true;
    if (piece_ >= pieces_) return false;
    std::uint64_t word = 0;
    std::memcpy(&word, done_ + piece_ * sizeof(word), sizeof(word));
    done = word == done_word(offset_, piece_);
    if (word != 0 && !done) return false;
    if (++in_piece_ == head_.piece) end_map();
    return true;
  }
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

  P& platform_;
  Heap<P>& heap_;
  std::uint64_t offset_;
  const std::byte* at_ = nullptr;
  std::size_t left_ = 0;
  layout::BatchRecord head_{};
  const std::byte* done_ = nullptr;  // a word for each piece
  std::uint64_t pieces_ = 0;         // for which there is room
  std::uint64_t piece_ = 0;          // of the next mutation
  std::uint32_t in_piece_ = 0;
};

}  // namespace perdure::batch_record
