// The foreign engines under the driver, configured as docs/benchmarks.md says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "bench/harness/subject.h"
#include "bench/workloads/data.h"

namespace perdure::bench {

struct ForeignOptions {
  std::string path;  // files go into PATH.NAME.d, a folder that must not exist or be ours
  DataKind key = {};
  DataKind value = {};
  std::uint32_t threads = 1;
  std::uint64_t max_size = 0;
};

std::unique_ptr<Subject> make_std_map_subject(const ForeignOptions& options);
std::unique_ptr<Subject> make_lmdb_subject(const ForeignOptions& options);
std::unique_ptr<Subject> make_rocksdb_subject(const ForeignOptions& options);
// Does nothing and answers "yes" to everything: what the driver itself costs.
std::unique_ptr<Subject> make_null_subject(const ForeignOptions& options);

// Integers as eight octets, most significant first, so that byte order is numeric order; values as
// they lie in memory. Views into the argument or into `word`, which must outlive them.
class Encoded {
 public:
  explicit Encoded(const KeyRef& key) noexcept
      : word_(__builtin_bswap64(key.word)), bytes_(key.bytes) {}
  explicit Encoded(const ValueRef& value) noexcept : word_(value.word), bytes_(value.bytes) {}
  Encoded(const Encoded&) = delete;
  Encoded& operator=(const Encoded&) = delete;

  std::string_view view() const noexcept {
    if (bytes_.data() != nullptr) return bytes_;
    return {reinterpret_cast<const char*>(&word_), sizeof(word_)};
  }

 private:
  std::uint64_t word_;
  std::string_view bytes_;
};
KeyRef decode_key(const DataKind& kind, std::string_view bytes) noexcept;
ValueRef decode_value(const DataKind& kind, std::string_view bytes) noexcept;

// A folder of a foreign store, marked as made by perdure-compare.
class StoreFolder {
 public:
  StoreFolder(const std::string& path, const std::string& engine);

  // Makes it empty; refuses a folder without our mark.
  Result<void> create() const;
  void remove() const;
  const std::filesystem::path& path() const noexcept { return path_; }
  // All files in it, the mark left out.
  std::uint64_t bytes() const;

 private:
  std::filesystem::path path_;
};

}  // namespace perdure::bench
