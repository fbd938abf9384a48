// The pool's header: which copy counts, whether it is trusted, and its shape.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "format/layout.h"
#include "perdure/options.h"
#include "perdure/status.h"
#include "util/crc32c.h"

namespace perdure {

// The shape of a new pool.
struct PoolShape {
  std::uint64_t max_bytes = 64_GiB;
  std::uint64_t extent_bytes = 64_KiB;
  std::uint32_t root_slots = 1024;
  std::uint64_t initial_extents = 8;
};

inline std::uint32_t header_crc(const layout::Header& header) {
  return crc32c(0, &header, offsetof(layout::Header, crc));
}
inline std::uint32_t root_crc(const layout::Root& root) {
  layout::Root copy = root;
  copy.crc = 0;
  return crc32c(0, &copy, sizeof(copy));
}
inline HeapGeometry geometry_of(const layout::Header& header) {
  HeapGeometry geometry{
      .extent_bytes = header.extent_bytes,
      .table_offset = header.table_offset,
      .data_offset = header.data_offset,
      .max_extents = (header.max_bytes - header.data_offset) / header.extent_bytes};
  std::ranges::copy(header.more_tables, std::begin(geometry.more_tables));
  return geometry;
}

// Reads the counting header of a pool of `bytes` bytes. Otherwise returns what is wrong. `path` is
// for the commands that a message names.
Status read_header(const std::byte* base, std::uint64_t bytes, layout::Header& out,
                   int* copy = nullptr, bool verify = true, std::string_view path = "FILE");
// Which of the two copies at `base` is damaged, although the pool was closed or synced: both were
// whole then. -1: neither, or nothing can be said. In a pool that was not closed, a kill or a power
// failure can have left half of a copy, which is no damage.
int find_damaged_copy(const std::byte* base);
// Whether the header names another file than this one.
bool is_copy(const layout::Header& header, const layout::Identity& here);
// Why an unclean or moved pool is not trusted; null if it is (a sealed copy: if its seal fits).
const char* distrust(const layout::Header& header, const layout::Identity& here);
Status refuse_untrusted(const char* reason, std::string_view path);
// The header of a new pool. Fails if the shape is impossible.
Status shape_header(const PoolShape& shape, layout::Header& out);
// Raises the maximum in a header to `max_bytes`, in whole extents, and adds a table of their words
// unless the last one has room. On an error the header is unchanged.
// Errors: invalid_argument (not larger, too large, or no room beside the new table); unsupported
// (all tables are in use).
Status raise_max(std::uint64_t max_bytes, layout::Header& header);

}  // namespace perdure
