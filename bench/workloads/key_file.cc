#include "bench/workloads/key_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <utility>

#include "bench/workloads/random.h"
#include "perdure/options.h"

namespace perdure::bench {
namespace {

// write_absent() appends up to so many letters where changed ones give lines of the file only.
constexpr std::size_t kMostAppended = 16;

bool is_plain(char c) noexcept {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// A character of the same class.
char sibling(char c, std::uint64_t draw) noexcept {
  if (c >= '0' && c <= '9') return static_cast<char>('0' + draw % 10);
  if (c >= 'A' && c <= 'Z') return static_cast<char>('A' + draw % 26);
  return static_cast<char>('a' + draw % 26);
}

}  // namespace

Result<std::shared_ptr<const KeyFile>> KeyFile::read(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "rbe");
  std::string text;
  int error = errno;
  if (file != nullptr) {
    std::array<char, 1 << 16> chunk;
    while (const std::size_t n = std::fread(chunk.data(), 1, chunk.size(), file)) {
      text.append(chunk.data(), n);
    }
    error = std::ferror(file) != 0 ? errno : 0;
    std::fclose(file);
  }
  if (file == nullptr || error != 0) {
    return failure(kExitIo, fmt::format("--keys file:{}: {}; name a file that can be read", path,
                                        std::string_view(std::strerror(error))));
  }
  auto parsed = parse(std::move(text));
  if (!parsed) {
    return failure(parsed.error().exit_status,
                   fmt::format("--keys file:{}: {}", path, parsed.error().message));
  }
  return parsed;
}

Result<std::shared_ptr<const KeyFile>> KeyFile::parse(std::string text) {
  std::shared_ptr<KeyFile> file(new KeyFile);
  file->text_ = std::move(text);
  if (auto added = file->add_lines(); !added) return std::unexpected(added.error());
  return file;
}

Result<void> KeyFile::add_lines() {
  const auto newlines = static_cast<std::size_t>(std::ranges::count(text_, '\n'));
  if (newlines >= kFree) return failure(kExitUsage, "more than 2^32 lines; use a shorter file");
  slots_.assign(std::bit_ceil(2 * (newlines + 2)), kFree);
  std::string_view rest = text_;
  for (std::uint64_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.size() > kMaxKeyBytes) {
      return failure(kExitUsage, fmt::format("line {} has {} bytes; keys have up to {}", number,
                                             line.size(), kMaxKeyBytes));
    }
    std::uint32_t& place = slots_[slot(line)];
    if (line.empty() || place != kFree) continue;
    place = static_cast<std::uint32_t>(lines_.size());
    lines_.push_back(line);
    longest_ = std::max(longest_, line.size());
  }
  return {};
}

std::size_t KeyFile::slot(std::string_view line) const noexcept {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = std::hash<std::string_view>()(line) & mask;
  while (slots_[at] != kFree && lines_[slots_[at]] != line) at = (at + 1) & mask;
  return at;
}

bool KeyFile::contains(std::string_view line) const noexcept { return slots_[slot(line)] != kFree; }

std::size_t KeyFile::max_length() const noexcept {
  return std::min<std::size_t>(longest_ + kMostAppended, kMaxKeyBytes);
}

std::size_t KeyFile::write_absent(std::uint64_t number, char* out) const noexcept {
  const std::string_view like = line(number);
  Random random(number);
  for (std::size_t attempt = 0;; ++attempt) {
    std::memcpy(out, like.data(), like.size());
    std::size_t length = like.size();
    // The second half of the line: the common prefixes stay. Later attempts change more.
    for (std::size_t change = 0; change <= attempt / 8; ++change) {
      std::size_t at = length / 2 + random.below(length - length / 2);
      const std::size_t drawn = at;
      while (at > 0 && !is_plain(out[at])) --at;
      if (!is_plain(out[at])) at = drawn;
      out[at] = sibling(out[at], random.next());
    }
    const std::size_t appended = attempt < kMostAppended ? 0 : attempt - kMostAppended + 1;
    const std::size_t end = std::min(length + std::min(appended, kMostAppended), max_length());
    while (length < end) out[length++] = sibling('a', random.next());
    if (!contains({out, length})) return length;
  }
}

}  // namespace perdure::bench
