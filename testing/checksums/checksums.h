// Corrects the checksums of a damaged pool, so that tests reach the code behind the checks. It
// ignores references that point outside the file. It changes nothing in a closed, undamaged pool.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "format/layout.h"

namespace perdure::testing {

// Corrects the extent table, root lines, root directory and headers.
void fix_pool(std::string& bytes);
// Corrects the metadata and records of every map. Call it before fix_pool().
void fix_engines(std::string& bytes);

// A pool's file, for the engines' fixers: one <engine>.cc each.
class PoolBytes {
 public:
  explicit PoolBytes(std::string& bytes) noexcept : bytes_(bytes) {}

  std::uint64_t size() const noexcept { return bytes_.size(); }
  const char* at(std::uint64_t offset) const noexcept { return bytes_.data() + offset; }
  bool inside(std::uint64_t offset, std::uint64_t n) const noexcept {
    return offset <= size() && n <= size() - offset;
  }
  // The object must lie inside the file.
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

  // Size of the block at `offset` by the extent table; 0 if the table has none there.
  std::uint64_t block_bytes(std::uint64_t offset) const noexcept;

  // Corrects a RecordPrefix and its record. Returns false if no record can be there.
  bool fix_record(std::uint64_t offset) noexcept;

 private:
  std::string& bytes_;
};

// Base of an engine's fixer: the pool, and the offset of the map's root block.
class MapFixer {
 public:
  MapFixer(PoolBytes& bytes, std::uint64_t root) noexcept : bytes_(bytes), root_(root) {}

 protected:
  PoolBytes& bytes_;
  std::uint64_t root_;
};

}  // namespace perdure::testing
