// Checksums of a damaged pool made right again, so that what lies behind them is reached. What
// names no place inside the file is left alone; of a closed pool nothing is changed.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "format/layout.h"

namespace perdure::testing {

// Extent table, root lines, root directory, headers.
void fix_pool(std::string& bytes);
// The metadata and the records of every map. Before fix_pool().
void fix_engines(std::string& bytes);

// A pool's file, for the engines' fixers: <engine>.cc, one each.
class PoolBytes {
 public:
  explicit PoolBytes(std::string& bytes) noexcept : bytes_(bytes) {}

  std::uint64_t size() const noexcept { return bytes_.size(); }
  const char* at(std::uint64_t offset) const noexcept { return bytes_.data() + offset; }
  bool inside(std::uint64_t offset, std::uint64_t n) const noexcept {
    return offset <= size() && n <= size() - offset;
  }
  // The place must be inside.
  template <class T>
  T load(std::uint64_t offset) const noexcept {
    T value;
    std::memcpy(static_cast<void*>(&value), at(offset), sizeof(value));
    return value;
  }
  template <class T>
  void store(std::uint64_t offset, const T& value) noexcept {
    std::memcpy(bytes_.data() + offset, &value, sizeof(value));
  }

  // What the extent table says of the block there; 0 if it says nothing.
  std::uint64_t block_bytes(std::uint64_t offset) const noexcept;

  // A RecordPrefix and what follows it; false if no record can be there.
  bool fix_record(std::uint64_t offset) noexcept;

 private:
  std::string& bytes_;
};

// What an engine's fixer begins with: the pool, and where the map's root block lies.
class MapFixer {
 public:
  MapFixer(PoolBytes& bytes, std::uint64_t root) noexcept : bytes_(bytes), root_(root) {}

 protected:
  PoolBytes& bytes_;
  std::uint64_t root_;
};

}  // namespace perdure::testing
