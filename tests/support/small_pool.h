// A small pool with known content, the results that it must return, and the state of a refused
// file. Shared by the suites of tests/api that damage, copy and share pools.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>

#include "tests/support/engines.h"
#include "tests/support/support.h"

namespace perdure::test {

using Bytes = std::string_view;

inline constexpr std::uint64_t kEntries = 300;

// A small pool with integers and strings, closed cleanly.
inline PoolOptions small_pool() {
  return {.durability = Durability::process, .max_size = 4_MiB, .recovery_threads = 1};
}
// A map of the engine of the suite. Suites that call this say `each engine` in their first line
// (tests/CMakeLists.txt).
inline MapOptions small_map() {
  return {.engine = chosen_engine().engine, .phast = {.partition_bits = 3}};
}
inline std::string text_of(std::uint64_t i) { return "customer:" + std::to_string(mix(i)); }
inline void fill_pool(Pool& pool) {
  auto numbers = must(pool.map<std::uint64_t, std::uint64_t>("numbers", small_map()));
  auto texts = must(pool.map<Bytes, Bytes>("texts", small_map()));
  for (std::uint64_t i = 0; i < kEntries; ++i) {
    require(was_absent(numbers.insert(mix(i), i)), "insert");
    require(was_absent(texts.insert(text_of(i), std::string(i % 90, 'v'))), "insert");
  }
}
inline void make_pool(const std::string& path, const CloseOptions& close_options = {}) {
  Pool pool = open_pool(path, small_pool());
  fill_pool(pool);
  must(pool.close(close_options));
}
// Returns "" if every entry is present and right, otherwise what is wrong. A refused map or read is
// not wrong: `refused` counts it. `may_lack`: an absent entry is not wrong either.
inline std::string wrong_content(Pool& pool, int* refused = nullptr, bool may_lack = false) {
  int ignored = 0;
  int& refusals = refused != nullptr ? *refused : ignored;
  MapOptions there = small_map();
  there.mode = OpenMode::existing;
  auto numbers = pool.map<std::uint64_t, std::uint64_t>("numbers", there);
  auto texts = pool.map<Bytes, Bytes>("texts", there);
  if (!numbers || !texts) {
    ++refusals;
    return refused != nullptr ? "" : "a map cannot be opened";
  }
  for (std::uint64_t i = 0; i < kEntries; ++i) {
    const auto number = numbers->get(mix(i));
    const auto text = texts->get(text_of(i));
    if (!number || !text) {
      ++refusals;
      if (refused == nullptr) return "get failed";
      continue;
    }
    const bool lacks_number = may_lack && !number->has_value();
    if (!lacks_number && *number != std::optional(i)) {
      return "number " + std::to_string(i) + " is wrong or absent";
    }
    const bool lacks_text = may_lack && !text->has_value();
    if (!lacks_text && *text != std::optional(std::string(i % 90, 'v'))) {
      return "text " + std::to_string(i) + " is wrong or absent";
    }
  }
  return "";
}

// Opens without creating. Expects a failure with one of the codes, and an unchanged file.
inline void expect_refused(const std::string& path, std::initializer_list<StatusCode> codes,
                           PoolOptions options = small_pool()) {
  options.mode = OpenMode::existing;
  const std::string before = read_bytes(path);
  const auto pool = Pool::open(path, options);
  ASSERT_FALSE(pool.has_value()) << "opened";
  EXPECT_TRUE(std::find(codes.begin(), codes.end(), pool.error().code()) != codes.end())
      << describe(pool.error());
  EXPECT_NE(pool.error().message().find(std::filesystem::path(path).filename().string()),
            Bytes::npos)
      << "the message does not name the file: " << pool.error().message();
  EXPECT_TRUE(read_bytes(path) == before) << "a refused file was changed";
}

inline constexpr std::initializer_list<StatusCode> kDamaged = {StatusCode::corruption,
                                                               StatusCode::unsupported_format};

}  // namespace perdure::test
