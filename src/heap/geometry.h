// HeapGeometry: where the parts of a heap lie in the pool.
//
// LAYOUT  The first extent table lies before the extents. It has a word for each extent that the
//   pool was created for. A resize of the pool may add a table. It lies at the start of the extents
//   that the resize adds, and has their words, those of its own extents first. The words of extents
//   that hold a table stay virgin, or free, and are ignored.
//   Of each table, only the words of extents in the file need space. The rest may be a hole.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace perdure {

// A further extent table: extents `first` to `first + extents - 1`. Unused: both are 0. On media.
struct MoreTable {
  std::uint32_t first;
  std::uint32_t extents;
};
static_assert(sizeof(MoreTable) == 8);
inline constexpr std::size_t kMoreTables = 8;

struct HeapGeometry {
  std::uint64_t extent_bytes = 0;  // power of two
  std::uint64_t table_offset = 0;  // of the first table
  std::uint64_t data_offset = 0;   // first extent; a multiple of extent_bytes
  std::uint64_t max_extents = 0;
  MoreTable more_tables[kMoreTables] = {};  // ascending; the unused ones come last

  std::uint64_t offset_of(std::uint64_t extent) const {
    return data_offset + extent * extent_bytes;
  }
  // Where the word of the extent lies.
  std::uint64_t word_offset(std::uint64_t extent) const {
    std::uint64_t offset = table_offset + extent * 8;
    for (const MoreTable& table : more_tables) {
      if (table.extents == 0 || extent < table.first) break;
      offset = offset_of(table.first) + (extent - table.first) * 8;
    }
    return offset;
  }
  bool is_table(std::uint64_t extent) const {
    for (const MoreTable& table : more_tables) {
      if (table.extents == 0 || extent < table.first) break;
      if (extent - table.first < table.extents) return true;
    }
    return false;
  }
  // The end of `count` extents for blocks, from `first` on. Passes over those that hold a table.
  std::uint64_t end_of(std::uint64_t first, std::uint64_t count) const {
    for (const MoreTable& table : more_tables) {
      const std::uint64_t stop = std::uint64_t{table.first} + table.extents;
      if (table.extents == 0 || table.first >= first + count) break;
      if (stop <= first) continue;
      count -= table.first > first ? table.first - first : 0;
      first = stop;
    }
    return first + count;
  }
  // Calls visit(first, end) for each stretch of extents for blocks between `first` and `end`.
  template <class F>
  void for_each_stretch(std::uint64_t first, std::uint64_t end, F&& visit) const {
    for (const MoreTable& table : more_tables) {
      if (table.extents == 0 || table.first >= end) break;
      if (table.first > first) visit(first, std::uint64_t{table.first});
      first = std::max(first, std::uint64_t{table.first} + table.extents);
    }
    if (first < end) visit(first, end);
  }
  // The number of extents for blocks between `first` and `end`.
  std::uint64_t blocks_between(std::uint64_t first, std::uint64_t end) const {
    std::uint64_t count = 0;
    for_each_stretch(first, end, [&](std::uint64_t from, std::uint64_t to) { count += to - from; });
    return count;
  }
  // The first extent behind this one whose word lies in a later table; the largest number if there
  // is none.
  std::uint64_t table_end(std::uint64_t extent) const {
    for (const MoreTable& table : more_tables) {
      if (table.extents != 0 && extent < table.first) return table.first;
    }
    return ~std::uint64_t{0};
  }
  // Calls visit(extent, offset of its word, number of words) for each piece of a table. Together
  // they have the words of `count` extents from `first` on.
  template <class F>
  void for_each_table(std::uint64_t first, std::uint64_t count, F&& visit) const {
    for (const std::uint64_t end = first + count; first < end;) {
      const std::uint64_t stop = std::min(end, table_end(first));
      visit(first, word_offset(first), stop - first);
      first = stop;
    }
  }
};

}  // namespace perdure
