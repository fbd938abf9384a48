// RealKeys: keys as people have them, for `--keys`. A key is computed from its index and the seed.
//
//   ids    64-bit numbers that ascend by one; one of 16 is left out, as by a transaction that was
//          rolled back. read_missing looks up these gaps; 15 indexes share one.
//   times  nanoseconds since 1970, in the first weeks of 2026 or later, ascending: 8 events in
//          0.8 ms. Their gaps are exponentially distributed. In half of the periods the events come
//          in a burst, which is 2 to 4096 times as fast.
//   paths  path_keys.h
//   urls   of 4096 hosts, the most frequent of which has one key in eight
//   uuid   version 4 in text form
//   words  syllables.h
//   file   key_file.h
//
// Text is made from a number that KeySpace calls the word: twice the index, and one more for the
// missing key, which has the directory, the host or the length of the present one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "bench/workloads/data.h"
#include "bench/workloads/key_file.h"

namespace perdure::bench {

enum class RealKind : std::uint8_t { ids, times, paths, urls, uuid, words, file };

class RealKeys {
 public:
  // `file` for the kind `file` only.
  RealKeys(RealKind kind, std::uint64_t seed,
           std::shared_ptr<const KeyFile> file = nullptr) noexcept;

  RealKind kind() const noexcept { return kind_; }
  std::string_view name() const noexcept;
  bool is_string() const noexcept { return kind_ != RealKind::ids && kind_ != RealKind::times; }
  // Whether new keys come in an order that all threads share.
  bool in_order() const noexcept { return !is_string() || kind_ == RealKind::file; }
  // Indexes below have distinct keys.
  std::uint64_t most_keys() const noexcept {
    return file_ ? file_->lines() : std::uint64_t{1} << 32;
  }

  // As in KeySpace.
  std::uint64_t word(std::uint64_t index) const noexcept;
  std::uint64_t missing_word(std::uint64_t index) const noexcept;
  std::size_t write(std::uint64_t word, char* out) const noexcept;
  std::size_t max_length() const noexcept;

 private:
  std::uint64_t id(std::uint64_t index, bool gap) const noexcept;
  std::uint64_t time(std::uint64_t index) const noexcept;
  std::size_t write_url(std::uint64_t number, char* out) const noexcept;
  std::size_t write_uuid(std::uint64_t number, char* out) const noexcept;
  std::size_t write_line(std::uint64_t number, char* out) const noexcept;

  RealKind kind_;
  std::uint64_t seed_;
  std::shared_ptr<const KeyFile> file_;
};

// Parses `ids`, `file:F` and so on, and reads the file F.
Result<RealKeys> make_real_keys(std::string_view text, std::uint64_t seed);

}  // namespace perdure::bench
