#include "bench/compare/foreign.h"

#include <fmt/core.h>
#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <system_error>

namespace perdure::bench {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = ".perdure-compare";

class NullSession : public Session {
 public:
  Outcome insert(const KeyRef&, const ValueRef&) override { return Outcome::yes; }
  Outcome update(const KeyRef&, const ValueRef&) override { return Outcome::yes; }
  Outcome erase(const KeyRef&) override { return Outcome::yes; }
  Outcome read(const KeyRef&, FunctionRef<void(const ValueRef&)>) override { return Outcome::yes; }
  Outcome scan(const KeyRef&, std::uint64_t, ScanTally&) override { return Outcome::yes; }
};

class NullSubject : public Subject {
 public:
  std::string name() const override { return "null"; }
  std::string medium() const override { return "none"; }
  std::string durability() const override { return "none"; }
  std::string version() const override { return ""; }
  bool persistent() const override { return false; }
  Result<void> create() override { return {}; }
  Result<void> reopen() override { return {}; }
  Result<void> close() override { return {}; }
  void remove() override {}
  std::unique_ptr<Session> session() override { return std::make_unique<NullSession>(); }
  Footprint footprint() override { return {}; }
};

}  // namespace

std::unique_ptr<Subject> make_null_subject(const ForeignOptions&) {
  return std::make_unique<NullSubject>();
}

std::uint64_t heap_bytes() noexcept {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

KeyRef decode_key(const DataKind& kind, std::string_view bytes) noexcept {
  if (kind.is_string) return {.bytes = bytes};
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data(), std::min(bytes.size(), sizeof(word)));
  return {.word = __builtin_bswap64(word)};
}

ValueRef decode_value(const DataKind& kind, std::string_view bytes) noexcept {
  if (kind.is_string) return {.bytes = bytes};
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data(), std::min(bytes.size(), sizeof(word)));
  return {.word = word};
}

StoreFolder::StoreFolder(const std::string& path, const std::string& engine)
    : path_(path + "." + engine + ".d") {}

Result<void> StoreFolder::create() const {
  std::error_code error;
  if (fs::exists(fs::symlink_status(path_, error))) {
    if (!fs::exists(path_ / kMark, error)) {
      return failure(kExitIo,
                     fmt::format("{}: exists and was not made by perdure-compare; it was left "
                                 "as it is: name another place",
                                 path_.string()));
    }
    remove();
  }
  fs::create_directory(path_, error);
  if (error) return failure(kExitIo, fmt::format("{}: {}", path_.string(), error.message()));
  if (!std::ofstream(path_ / kMark)) {
    return failure(kExitIo, fmt::format("{}: cannot write", path_.string()));
  }
  return {};
}

void StoreFolder::remove() const {
  std::error_code error;
  if (fs::exists(path_ / kMark, error)) fs::remove_all(path_, error);
}

std::uint64_t StoreFolder::bytes() const {
  std::uint64_t sum = 0;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(path_, error)) {
    if (entry.is_regular_file(error)) sum += entry.file_size(error);
  }
  return sum;
}

}  // namespace perdure::bench
