#include <algorithm>
#include <cstring>

#include "pool/pool_core.h"

namespace perdure {

namespace {

enum class Copy { valid, foreign, damaged, absent };

// A copy that carries the magic but not our tags is foreign, not damaged.
Copy classify(const layout::Header& header, bool verify) noexcept {
  if (header.magic != layout::kMagic) return Copy::absent;
  if (!verify || header.crc == header_crc(header)) {
    const bool ours = header.endian_tag == layout::kEndianTag &&
                      header.word_bytes == sizeof(void*) &&
                      header.format_version == layout::kFormatVersion &&
                      header.header_bytes == sizeof(layout::Header);
    return ours ? Copy::valid : Copy::foreign;
  }
  return Copy::damaged;
}

// A checksum proves that these are the bytes that were written, not that they make sense.
Status check_shape(const layout::Header& h, std::uint64_t bytes) noexcept {
  const auto bad = [](const char* what) {
    return Status::format(StatusCode::corruption,
                          "the header is inconsistent (%s); restore a copy of the file", what);
  };
  const std::uint64_t e = h.extent_bytes;
  if (e < kPage || (e & (e - 1)) != 0 || e > 1_GiB) return bad("extent size");
  if (h.max_bytes > kMaxPoolSize || h.data_offset >= h.max_bytes ||
      h.max_bytes - h.data_offset < e) {
    return bad("maximum size");
  }
  if (h.root_slots == 0 || h.root_slots > 65536 || h.writer_slots > 1U << 20) return bad("slots");
  const std::uint64_t directory_end =
      layout::kDirectoryOffset + std::uint64_t{h.root_slots + h.writer_slots} * 64;
  if (h.table_offset < directory_end || h.table_offset % kPage != 0 ||
      h.table_offset > h.data_offset) {
    return bad("extent table");
  }
  const std::uint64_t extents = (h.max_bytes - h.data_offset) / e;
  if (h.data_offset % e != 0 || h.data_offset - h.table_offset < extents * 8) {
    return bad("data offset");
  }
  if (h.file_bytes < h.data_offset || h.file_bytes - h.data_offset < e ||
      h.file_bytes > h.max_bytes || (h.file_bytes - h.data_offset) % e != 0) {
    return bad("file size");
  }
  if (h.close_state > layout::CloseState::sealed) return bad("state");
  if (h.mode < 1 || h.mode > 3 || h.weakest < 1 || h.weakest > 3) return bad("durability");
  if (bytes < h.file_bytes) {
    return Status::format(
        StatusCode::corruption,
        "the file was truncated: %llu bytes, the header says %llu; restore a copy",
        static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(h.file_bytes));
  }
  return {};
}

}  // namespace

Status read_header(const std::byte* base, std::uint64_t bytes, layout::Header& out, int* copy,
                   bool verify) noexcept {
  if (bytes < layout::kDirectoryOffset) {
    return Status::format(StatusCode::corruption,
                          "not a perdure pool: %llu bytes are too few for its headers",
                          static_cast<unsigned long long>(bytes));
  }
  layout::Header headers[2];
  Copy kinds[2];
  for (int i = 0; i < 2; ++i) {
    std::memcpy(&headers[i], base + static_cast<std::uint64_t>(i) * layout::kHeaderBytes,
                sizeof(layout::Header));
    kinds[i] = classify(headers[i], verify);
  }
  int best = -1;
  for (int i = 0; i < 2; ++i) {
    if (kinds[i] == Copy::valid && (best < 0 || headers[i].sequence > headers[best].sequence)) {
      best = i;
    }
  }
  for (int i = 0; i < 2 && best < 0; ++i) {
    if (kinds[i] == Copy::foreign) {
      return Status::format(StatusCode::unsupported_format,
                            "format version %u (endian tag %x, %u-byte words) is not this build's "
                            "version %u; use the build that wrote it, or dump and load",
                            headers[i].format_version, headers[i].endian_tag, headers[i].word_bytes,
                            layout::kFormatVersion);
    }
  }
  if (best < 0) {
    const bool ours = kinds[0] == Copy::damaged || kinds[1] == Copy::damaged;
    return Status::format(StatusCode::corruption,
                          ours ? "both headers are damaged; restore a copy of the file"
                               : "not a perdure pool (no header), or its creation did not finish; "
                                 "remove the file if it is meant to be one");
  }
  if (Status s = check_shape(headers[best], bytes); !s.ok()) return s;
  out = headers[best];
  if (copy != nullptr) *copy = best;
  return {};
}

namespace {

bool same_boot_as(const layout::Identity& there, const layout::Identity& here) noexcept {
  static constexpr std::uint8_t kUnknown[16] = {};
  return std::memcmp(here.boot_id, kUnknown, 16) != 0 &&
         std::memcmp(there.boot_id, here.boot_id, 16) == 0;
}

}  // namespace

bool is_copy(const layout::Header& header, const layout::Identity& here) noexcept {
  const layout::Identity& there = header.identity;
  return there.inode != here.inode || there.filesystem_id != here.filesystem_id ||
         (same_boot_as(there, here) && there.device != here.device);
}

const char* distrust(const layout::Header& header, const layout::Identity& here) noexcept {
  if (header.close_state >= layout::CloseState::synced) return nullptr;
  static constexpr std::uint8_t kUnknown[16] = {};
  const bool known = std::memcmp(here.boot_id, kUnknown, 16) != 0;
  const bool same_boot = same_boot_as(header.identity, here);
  const bool power = static_cast<Durability>(header.weakest) == Durability::power;
  if (is_copy(header, here)) {
    return "the file is a copy, made while the pool was open or before it was synced, so pages may "
           "be of different times";
  }
  if (same_boot || power) return nullptr;
  if (!known) return "the system's boot id cannot be read, so a power loss cannot be ruled out";
  return header.close_state == layout::CloseState::clean
             ? "the pool was closed without a sync and the machine has been restarted since"
             : "the machine went down while the pool was open in a mode that does not survive it";
}

Status shape_header(const PoolShape& shape, layout::Header& h) noexcept {
  const std::uint64_t e = shape.extent_bytes;
  if (e < kPage || (e & (e - 1)) != 0) {
    return Status::format(StatusCode::invalid_argument,
                          "extent size %llu is not a power of two of at least one page",
                          static_cast<unsigned long long>(e));
  }
  h.magic = layout::kMagic;
  h.format_version = layout::kFormatVersion;
  h.endian_tag = layout::kEndianTag;
  h.word_bytes = sizeof(void*);
  h.header_bytes = sizeof(layout::Header);
  h.extent_bytes = e;
  h.root_slots = shape.root_slots;
  h.writer_slots = shape.writer_slots;
  h.table_offset = align_up(
      layout::kDirectoryOffset + std::uint64_t{shape.root_slots + shape.writer_slots} * 64, kPage);
  h.data_offset = align_up(h.table_offset + shape.max_bytes / e * 8, e);
  h.max_bytes = shape.max_bytes / e * e;
  if (shape.max_bytes > kMaxPoolSize || h.max_bytes < h.data_offset + e) {
    return Status::format(StatusCode::invalid_argument, "max_size %llu is outside [%llu, %llu]",
                          static_cast<unsigned long long>(shape.max_bytes),
                          static_cast<unsigned long long>(kMinPoolSize),
                          static_cast<unsigned long long>(kMaxPoolSize));
  }
  return {};
}

}  // namespace perdure
