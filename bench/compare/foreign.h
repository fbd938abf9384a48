// The foreign engines under the driver, configured as docs/benchmarks.md says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <type_traits>

#include "bench/harness/subject.h"
#include "bench/workloads/data.h"

namespace perdure::bench {

struct ForeignOptions {
  std::string path;  // files go into PATH.NAME.d, a folder that must not exist or be ours
  DataKind key = {};
  DataKind value = {};
  std::uint32_t threads = 1;
  std::uint64_t max_size = 0;
  std::uint64_t capacity = 0;  // entries that a table begins with; 0: as it comes
};

std::unique_ptr<Subject> make_std_map_subject(const ForeignOptions& options);
std::unique_ptr<Subject> make_libcuckoo_subject(const ForeignOptions& options);
std::unique_ptr<Subject> make_tbb_subject(const ForeignOptions& options);
std::unique_ptr<Subject> make_lmdb_subject(const ForeignOptions& options);
std::unique_ptr<Subject> make_rocksdb_subject(const ForeignOptions& options);
// Does nothing and answers "yes" to everything: what the driver itself costs.
std::unique_ptr<Subject> make_null_subject(const ForeignOptions& options);

// For tables in DRAM, whose keys and values are words or strings: std::uint64_t, std::string.
template <class T, class Ref>
T owned(const Ref& ref) {
  if constexpr (std::is_same_v<T, std::string>) {
    return std::string(ref.bytes);
  } else {
    return ref.word;
  }
}

template <class Ref, class T>
Ref borrowed(const T& value) noexcept {
  if constexpr (std::is_same_v<T, std::string>) {
    return {.bytes = value};
  } else {
    return {.word = value};
  }
}

template <template <class, class> class Typed>
std::unique_ptr<Subject> make_typed(const ForeignOptions& options) {
  using Word = std::uint64_t;
  using Text = std::string;
  if (options.key.is_string) {
    if (options.value.is_string) return std::make_unique<Typed<Text, Text>>(options);
    return std::make_unique<Typed<Text, Word>>(options);
  }
  if (options.value.is_string) return std::make_unique<Typed<Word, Text>>(options);
  return std::make_unique<Typed<Word, Word>>(options);
}

// What malloc has handed out, of all arenas, as threads that inserted may be gone; what the driver
// holds is small by comparison.
std::uint64_t heap_bytes() noexcept;

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
