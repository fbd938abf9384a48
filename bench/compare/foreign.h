// The foreign engines under the driver. docs/design/benchmark.md gives their configuration.
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
  std::string path;  // files are in PATH.NAME.d, which must not exist or have our mark
  DataKind key = {};
  DataKind value = {};
  std::uint32_t threads = 1;
  std::uint64_t max_size = 0;
  bool sync = false;           // each change is durable when its call returns
  std::uint64_t capacity = 0;  // entries that a table is made for; 0: its default
};

std::unique_ptr<Subject> make_absl_btree_subject(const ForeignOptions& options);
std::unique_ptr<Subject> make_absl_flat_subject(const ForeignOptions& options);
std::unique_ptr<Subject> make_art_olc_subject(const ForeignOptions& options);
std::unique_ptr<Subject> make_boost_flat_subject(const ForeignOptions& options);
std::unique_ptr<Subject> make_btree_olc_subject(const ForeignOptions& options);
std::unique_ptr<Subject> make_leveldb_subject(const ForeignOptions& options);
std::unique_ptr<Subject> make_leveldb_tuned_subject(const ForeignOptions& options);
std::unique_ptr<Subject> make_libcuckoo_subject(const ForeignOptions& options);
std::unique_ptr<Subject> make_lmdb_subject(const ForeignOptions& options);
std::unique_ptr<Subject> make_lmdb_int_subject(const ForeignOptions& options);
std::unique_ptr<Subject> make_pmemobj_subject(const ForeignOptions& options);
std::unique_ptr<Subject> make_redis_subject(const ForeignOptions& options);
std::unique_ptr<Subject> make_rocksdb_subject(const ForeignOptions& options);
std::unique_ptr<Subject> make_rocksdb_tuned_subject(const ForeignOptions& options);
std::unique_ptr<Subject> make_sqlite_subject(const ForeignOptions& options);
std::unique_ptr<Subject> make_sqlite_tuned_subject(const ForeignOptions& options);
std::unique_ptr<Subject> make_sqlite_wal_subject(const ForeignOptions& options);
std::unique_ptr<Subject> make_std_map_subject(const ForeignOptions& options);
std::unique_ptr<Subject> make_tbb_subject(const ForeignOptions& options);
// A subject that does nothing and returns "yes" from every call: it measures the cost of the
// driver.
std::unique_ptr<Subject> make_null_subject(const ForeignOptions& options);

// Copies a view into std::uint64_t or std::string, the key and value types of tables in DRAM.
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

// Bytes that malloc has handed out. All arenas count, because inserting threads may have ended. The
// driver's own share is small.
std::uint64_t heap_bytes() noexcept;

// Keys and values as bytes. Integer keys are eight octets, most significant first: byte order is
// then numeric order. Values are as in memory. The views point into the argument or into `word`,
// which must outlive them.
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

// The folder of a foreign store, with a mark that perdure-compare made it.
class StoreFolder {
 public:
  StoreFolder(const std::string& path, const std::string& engine);

  // Empties the folder. Fails if it has no mark.
  Result<void> create() const;
  void remove() const;
  const std::filesystem::path& path() const noexcept { return path_; }
  // Bytes of all files except the mark, also of those in folders.
  std::uint64_t bytes() const;

 private:
  std::filesystem::path path_;
};

}  // namespace perdure::bench
