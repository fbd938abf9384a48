// DataKind, KeyRef and ValueRef: the generators' keys and values, for any engine.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

namespace perdure::bench {

// Results of the benchmark code: a value, or a message and an exit status.
inline constexpr int kExitViolation = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitIo = 3;

struct Failure {
  int exit_status = kExitIo;
  std::string message;
};
template <class T>
using Result = std::expected<T, Failure>;

inline std::unexpected<Failure> failure(int exit_status, std::string message) {
  return std::unexpected<Failure>(Failure{exit_status, std::move(message)});
}

// `u64`, `string:LEN`, or `array:LEN`: a string of that length, in a map of arrays.
struct DataKind {
  bool is_string = false;
  std::uint32_t length = 8;
  bool is_array = false;
};
Result<DataKind> parse_data_kind(std::string_view text);
std::string to_string(const DataKind& kind);

// `word` always identifies the key, and the value is computed from it. `bytes` is the key itself if
// keys are strings.
struct KeyRef {
  std::uint64_t word = 0;
  std::string_view bytes = {};
};

struct ValueRef {
  std::uint64_t word = 0;
  std::string_view bytes = {};
};

}  // namespace perdure::bench
