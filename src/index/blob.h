// Blob: the bytes of a value in a heap block of their own, which the entry names. A blob is durable
// before it is named. On media: format version 1.
#pragma once

#include <cstdint>
#include <string_view>

#include "heap/heap.h"
#include "platform/platform.h"
#include "util/crc32c.h"

namespace perdure {

struct Blob {
  std::uint64_t size;
  std::uint64_t crc;  // CRC32C of the block's offset, the size and the bytes that follow

  static std::uint64_t checksum(std::uint64_t offset, std::string_view value) {
    const std::uint64_t words[2] = {offset, value.size()};
    return crc32c(crc32c(0, words, sizeof(words)), value.data(), value.size());
  }

  // Returns the offset of a new blob, which is written back and not fenced. Errors: pool_full.
  template <Platform P, FixedString Name>
  static Expected<std::uint64_t> write(P& platform, Heap<P>& heap, std::string_view value,
                                       Site<Name> site) {
    auto block = heap.allocate(sizeof(Blob) + value.size(), BlockKind::plain);
    if (!block) return block;
    auto* blob = heap.template at<Blob>(*block);
    platform.store(blob->size, value.size());
    platform.store(blob->crc, checksum(*block, value));
    if (!value.empty()) platform.copy(blob + 1, value.data(), value.size());
    platform.flush(blob, sizeof(Blob) + value.size(), site);
    return block;
  }

  // Returns false if the block at this offset cannot hold a blob of the size that it states.
  template <Platform P>
  static bool read(const P& platform, const Heap<P>& heap, std::uint64_t offset,
                   std::string_view& value) {
    const auto* blob = heap.template at<Blob>(offset);
    const std::uint64_t size = platform.load(blob->size);
    const std::size_t room = heap.block_bytes(offset);
    if (room < sizeof(Blob) || size > room - sizeof(Blob)) return false;
    value = {reinterpret_cast<const char*>(blob + 1), size};
    return true;
  }

  // Whether the bytes, as read() has returned them, match the checksum.
  template <Platform P, FixedString Name>
  static bool intact(const P& platform, const Heap<P>& heap, std::uint64_t offset,
                     std::string_view value, Site<Name> site) {
    return matches<P>(platform.load(heap.template at<Blob>(offset)->crc) == checksum(offset, value),
                      site);
  }
};
static_assert(sizeof(Blob) == 16);

}  // namespace perdure
