#include "testing/lin/lin_history.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace perdure::testing {

Status write_history(const std::string& path, std::span<const HistoryOp> ops) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) {
    return Status::format(StatusCode::io, "%s: %s", path.c_str(), std::strerror(errno));
  }
  const std::uint64_t header[2] = {kHistoryMagic, ops.size()};
  bool ok = std::fwrite(header, sizeof header, 1, file) == 1;
  ok = std::fwrite(ops.data(), sizeof(HistoryOp), ops.size(), file) == ops.size() && ok;
  ok = std::fclose(file) == 0 && ok;
  return ok ? Status() : Status::format(StatusCode::io, "%s: cannot be written", path.c_str());
}

// All keys have the same first 8 bytes, which ordered engines compare first.
std::string history_text_key(std::uint32_t number) {
  char text[32];
  std::snprintf(text, sizeof text, "customer:%08u", number);
  return text;
}

std::uint32_t history_key_number(std::string_view key) {
  const std::string copy(key);
  unsigned number = 0;
  if (std::sscanf(copy.c_str(), "customer:%8u", &number) != 1) return kAllKeys;
  return copy == history_text_key(number) ? number : kAllKeys;
}

std::string history_text_value(std::uint64_t number) {
  std::string value(8 + number % 150, static_cast<char>('a' + number % 26));
  std::memcpy(value.data(), &number, 8);
  return value;
}

std::uint64_t history_value_number(std::string_view value) {
  std::uint64_t number = 0;
  if (value.size() < 8) return kForeignValue;
  std::memcpy(&number, value.data(), 8);
  return value == history_text_value(number) ? number : kForeignValue;
}

}  // namespace perdure::testing
