#include "format/header.h"

#include <sys/sysmacros.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "platform/platform.h"

namespace perdure {

namespace {

enum class Copy { valid, foreign, damaged, absent };

bool same_machine(const layout::Header& header) {
  return header.endian_tag == layout::kEndianTag && header.word_bytes == sizeof(void*) &&
         header.header_bytes == sizeof(layout::Header);
}

// A copy that carries the magic but not our tags is foreign, not damaged.
Copy classify(const layout::Header& header, bool verify) {
  if (header.magic != layout::kMagic) return Copy::absent;
  if (!verify || header.crc == header_crc(header)) {
    const bool ours = same_machine(header) && header.format_version == layout::kFormatVersion;
    return ours ? Copy::valid : Copy::foreign;
  }
  return Copy::damaged;
}

void copy_headers(const std::byte* base, layout::Header (&headers)[2]) {
  std::memcpy(&headers[0], base, sizeof(layout::Header));
  std::memcpy(&headers[1], base + layout::kHeaderBytes, sizeof(layout::Header));
}

Status refuse_foreign(const layout::Header& header, std::string_view path) {
  if (!same_machine(header)) {
    return Status::format(StatusCode::unsupported_format,
                          "written on another kind of machine (endian tag %x, %u-byte words, "
                          "%u-byte header); run `perdure dump` there and `perdure load` here",
                          header.endian_tag, header.word_bytes, header.header_bytes);
  }
  if (header.format_version > layout::kFormatVersion) {
    return Status::format(StatusCode::unsupported_format,
                          "format version %u is newer than version %u, which this build reads; use "
                          "the perdure that wrote the file, or a newer one",
                          header.format_version, layout::kFormatVersion);
  }
  return Status::format(
      StatusCode::unsupported_format,
      "format version %u, this build reads version %u; with the perdure that wrote the file run "
      "`perdure dump %.*s items.tsv`, then with this one `perdure load NEW items.tsv` (for each "
      "map; load takes its --map, --key, --value and --engine)",
      header.format_version, layout::kFormatVersion, static_cast<int>(path.size()), path.data());
}

// A build that opens a pool may lose the data of features that it does not know.
Status check_features(const layout::Header& header) {
  const std::uint64_t unknown = header.incompatible & ~layout::kIncompatibleFeatures;
  if (unknown == 0) return {};
  char bits[64 * 4 + 1];
  int n = 0;
  for (int bit = 0; bit < 64; ++bit) {
    if ((unknown >> bit & 1) == 0) continue;
    n += std::snprintf(bits + n, sizeof(bits) - static_cast<std::size_t>(n), "%s%d",
                       n == 0 ? "" : ", ", bit);
  }
  return Status::format(StatusCode::unsupported_format,
                        "the pool has features that this build does not know (incompatible bits "
                        "%s); use the perdure that wrote the file, or a newer one",
                        bits);
}

// True also if the header has a feature that this build does not know: it may keep something
// there.
bool reserved_is_zero(const layout::Header& h) {
  if ((h.compatible & ~layout::kCompatibleFeatures) != 0) return true;
  return h.reserved0 == 0 && h.reserved1 == 0 && h.reserved2 == 0 &&
         std::ranges::all_of(h.reserved, [](std::uint8_t byte) { return byte == 0; });
}

// Whether each table has room for its words, and each further one lies in the extents that it has
// the words of.
bool tables_fit(const layout::Header& h, std::uint64_t extents) {
  // Of the table before: the extent whose word comes first, where the next table may lie, and the
  // number of words that there is room for.
  std::uint64_t first = 0;
  std::uint64_t end = 1;
  std::uint64_t words = (h.data_offset - h.table_offset) / 8;
  bool ended = false;
  for (const MoreTable& table : h.more_tables) {
    if (table.extents == 0) {
      if (table.first != 0) return false;
      ended = true;
      continue;
    }
    if (ended || table.first < end || table.first - first > words) return false;
    first = table.first;
    end = first + table.extents;
    words = table.extents * (h.extent_bytes / 8);
  }
  const bool has_more = (h.incompatible & layout::kHasMoreTables) != 0;
  return has_more == (first != 0) && end <= extents && extents - first <= words;
}

// A checksum proves that these are the bytes that were written, not that they make sense.
Status check_shape(const layout::Header& h, std::uint64_t bytes) {
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
  if (h.root_slots == 0 || h.root_slots > 65536) return bad("slots");
  const std::uint64_t directory_end =
      layout::kDirectoryOffset + h.root_slots * sizeof(layout::Root);
  if (h.table_offset < directory_end || h.table_offset % kPage != 0 ||
      h.table_offset > h.data_offset) {
    return bad("extent table");
  }
  if (h.data_offset % e != 0) return bad("data offset");
  if (!tables_fit(h, (h.max_bytes - h.data_offset) / e)) return bad("extent tables");
  if (h.file_bytes < h.data_offset || h.file_bytes - h.data_offset < e ||
      h.file_bytes > h.max_bytes || (h.file_bytes - h.data_offset) % e != 0) {
    return bad("file size");
  }
  if (h.close_state > layout::CloseState::sealed) return bad("state");
  const bool buffered = (h.incompatible & layout::kBuffered) != 0;
  const std::uint32_t last = buffered ? 4 : 3;
  if (h.mode < 1 || h.mode > last || h.weakest < 1 || h.weakest > last) return bad("durability");
  const bool batches = (h.incompatible & layout::kBatches) != 0;
  if (h.batch_log != (batches ? layout::kBatchLog : 0)) return bad("log of batches");
  if (!reserved_is_zero(h)) return bad("reserved bytes");
  if (bytes < h.file_bytes) {
    return Status::format(StatusCode::corruption,
                          "the file was truncated: %lu bytes, the header says %lu; restore a copy",
                          bytes, h.file_bytes);
  }
  return {};
}

}  // namespace

Status read_header(const std::byte* base, std::uint64_t bytes, layout::Header& out, int* copy,
                   bool verify, std::string_view path) {
  if (bytes < layout::kDirectoryOffset) {
    return Status::format(StatusCode::corruption,
                          "not a perdure pool (%lu bytes are too few); check the file name", bytes);
  }
  layout::Header headers[2];
  copy_headers(base, headers);
  const Copy kinds[2] = {classify(headers[0], verify), classify(headers[1], verify)};
  int best = -1;
  for (int i = 0; i < 2; ++i) {
    if (kinds[i] == Copy::valid && (best < 0 || headers[i].sequence > headers[best].sequence)) {
      best = i;
    }
  }
  for (int i = 0; i < 2 && best < 0; ++i) {
    if (kinds[i] == Copy::foreign) return refuse_foreign(headers[i], path);
  }
  if (best < 0) {
    const bool ours = kinds[0] == Copy::damaged || kinds[1] == Copy::damaged;
    return Status::format(
        StatusCode::corruption,
        ours ? "both headers are damaged; restore a copy of the file"
             : "not a perdure pool (no header); check the file name, or remove the "
               "file if its creation did not finish");
  }
  if (Status s = check_features(headers[best]); !s.ok()) return s;
  if (Status s = check_shape(headers[best], bytes); !s.ok()) return s;
  out = headers[best];
  if (copy != nullptr) *copy = best;
  return {};
}

int find_damaged_copy(const std::byte* base) {
  layout::Header headers[2];
  copy_headers(base, headers);
  for (int i = 0; i < 2; ++i) {
    const layout::Header& whole = headers[i];
    const layout::Header& other = headers[1 - i];
    if (classify(whole, true) != Copy::valid || classify(other, true) == Copy::valid) continue;
    if (whole.close_state == layout::CloseState::dirty) return -1;
    std::uint8_t bytes[sizeof(other)];
    std::memcpy(bytes, &other, sizeof(other));
    // The creation of a pool writes one copy.
    const bool unwritten = whole.sequence == 1 &&
                           std::ranges::all_of(bytes, [](std::uint8_t byte) { return byte == 0; });
    return unwritten ? -1 : 1 - i;
  }
  return -1;
}

namespace {

bool same_boot_as(const layout::Identity& there, const layout::Identity& here) {
  return layout::is_known(here.boot_id) && std::memcmp(there.boot_id, here.boot_id, 16) == 0;
}

// A device without a disk of its own (major 0: overlayfs, btrfs, zfs, NFS) gets its number at each
// mount. There the id of the file system counts, if it has one.
bool same_device(const layout::Identity& there, const layout::Identity& here) {
  const bool numbered_at_mount = major(there.device) == 0 && major(here.device) == 0;
  return there.device == here.device || (numbered_at_mount && here.filesystem_id != 0);
}

}  // namespace

bool is_copy(const layout::Header& header, const layout::Identity& here) {
  const layout::Identity& there = header.identity;
  return there.inode != here.inode || there.filesystem_id != here.filesystem_id ||
         (same_boot_as(there, here) && !same_device(there, here));
}

const char* distrust(const layout::Header& header, const layout::Identity& here) {
  if (header.close_state >= layout::CloseState::synced) return nullptr;
  const bool same_boot = same_boot_as(header.identity, here);
  const bool power = static_cast<Durability>(header.weakest) == Durability::power;
  if (is_copy(header, here)) {
    return "the file is a copy, made while the pool was open or before it was synced, so pages may "
           "be of different times";
  }
  if (same_boot || power) return nullptr;
  if (!layout::is_known(here.boot_id))
    return "the system's boot id cannot be read, so a power loss cannot be ruled out";
  return header.close_state == layout::CloseState::clean
             ? "the pool was closed without a sync and the machine has been restarted since"
             : "the machine went down while the pool was open in a mode that does not survive it";
}

Status refuse_untrusted(const char* reason, std::string_view path) {
  const int length = static_cast<int>(path.size());
  return Status::format(StatusCode::untrusted,
                        "%s; restore a copy that was made after `perdure sync %.*s`, or run "
                        "`perdure check %.*s --accept` to verify what is there and serve it",
                        reason, length, path.data(), length, path.data());
}

Status shape_header(const PoolShape& shape, layout::Header& h) {
  const std::uint64_t e = shape.extent_bytes;
  if (e < kPage || (e & (e - 1)) != 0) {
    return Status::format(StatusCode::invalid_argument,
                          "extent size %lu is not a power of two of at least one page", e);
  }
  h.magic = layout::kMagic;
  h.format_version = layout::kFormatVersion;
  h.endian_tag = layout::kEndianTag;
  h.word_bytes = sizeof(void*);
  h.header_bytes = sizeof(layout::Header);
  h.extent_bytes = e;
  h.root_slots = shape.root_slots;
  h.table_offset =
      align_up(layout::kDirectoryOffset + shape.root_slots * sizeof(layout::Root), kPage);
  h.data_offset = align_up(h.table_offset + shape.max_bytes / e * 8, e);
  h.max_bytes = shape.max_bytes / e * e;
  if (shape.max_bytes > kMaxPoolSize || h.max_bytes < h.data_offset + e) {
    return Status::format(StatusCode::invalid_argument, "max_size %lu is outside [%lu, %lu]",
                          shape.max_bytes, kMinPoolSize, kMaxPoolSize);
  }
  return {};
}

Status raise_max(std::uint64_t max_bytes, layout::Header& h) {
  const std::uint64_t e = h.extent_bytes;
  const std::uint64_t before = (h.max_bytes - h.data_offset) / e;
  const std::uint64_t after = max_bytes < h.data_offset ? 0 : (max_bytes - h.data_offset) / e;
  if (max_bytes > kMaxPoolSize) {
    return Status::format(StatusCode::invalid_argument,
                          "max_size %lu is more than a pool can have; at most %lu", max_bytes,
                          kMaxPoolSize);
  }
  if (after <= before) {
    return Status::format(StatusCode::invalid_argument,
                          "max_size %lu is not larger than the present one of %lu bytes, in "
                          "whole extents of %lu; a pool can only be made larger",
                          max_bytes, h.max_bytes, e);
  }
  std::size_t used = 0;
  while (used < kMoreTables && h.more_tables[used].extents != 0) ++used;
  const MoreTable* last = used == 0 ? nullptr : &h.more_tables[used - 1];
  if (last == nullptr || (after - last->first) * 8 > last->extents * e) {
    if (used == kMoreTables) {
      return Status::format(StatusCode::unsupported,
                            "the pool was made larger %zu times, and has no room for another "
                            "extent table; dump its maps and load them into a new pool",
                            used);
    }
    // Has room for as many extents again as the pool has then, within the largest pool. Small steps
    // would otherwise use up all tables.
    const std::uint64_t room = std::min(after, (kMaxPoolSize - h.data_offset) / e - before);
    const std::uint64_t extents = (room * 8 + e - 1) / e;
    const std::uint64_t needed = extents * e;
    if (after - before <= extents) {
      return Status::format(StatusCode::invalid_argument,
                            "max_size %lu adds no room beside the extent table that it needs, of "
                            "%lu bytes; ask for more",
                            max_bytes, needed);
    }
    h.more_tables[used] = {static_cast<std::uint32_t>(before), static_cast<std::uint32_t>(extents)};
    h.incompatible |= layout::kHasMoreTables;
  }
  h.max_bytes = h.data_offset + after * e;
  return {};
}

}  // namespace perdure
