// The names of the segments of a log (epoch_log.h), in its folder, and their heads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <utility>

#include "cut/log_format.h"
#include "platform/file_system.h"
#include "util/containers.h"
#include "util/path.h"

namespace perdure {

inline constexpr const char* kUnnamedSegment = "new";  // until it has its name

using SegmentName = Text<16>;
inline SegmentName segment_name(std::uint64_t number) noexcept {
  char text[17];
  std::snprintf(text, sizeof(text), "%016lx", number);
  return std::string_view(text, 16);
}
// 0: it is no name of a segment.
inline std::uint64_t segment_number(std::string_view name) noexcept {
  if (name.size() != 16) return 0;
  std::uint64_t number = 0;
  for (const char c : name) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (c < 'a' || c > 'f')) return 0;
    number = number << 4 | static_cast<std::uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return number < kMostNumber ? number : 0;
}

// The path of a name in the folder. Errors: invalid_argument (it is too long).
inline Status path_in(std::string_view folder, std::string_view name, PathText& path) noexcept {
  char suffix[50] = "/";
  if (name.size() > sizeof(suffix) - 2) {
    return Status::format(StatusCode::invalid_argument, "%.*s: a name there is too long",
                          static_cast<int>(folder.size()), folder.data());
  }
  suffix[1 + name.copy(suffix + 1, sizeof(suffix) - 2)] = '\0';
  if (path.assign(folder, std::string_view(suffix, 1 + name.size()))) return {};
  return Status::format(StatusCode::invalid_argument, "%.*s: the path is too long",
                        static_cast<int>(folder.size()), folder.data());
}

// The head of the segment in an open file; all zero: it has none. Errors: io.
inline Expected<layout::SegmentHead> read_segment_head(FileSystem& files,
                                                       FileSystem::File file) noexcept {
  layout::SegmentHead head{};
  auto got = files.read(file, &head, sizeof(head), 0);
  if (!got) return fail(std::move(got.error()));
  return *got == sizeof(head) && layout::is_head(head) ? head : layout::SegmentHead{};
}

// Removes the file of that name in the folder.
inline Status remove_in(FileSystem& files, std::string_view folder,
                        std::string_view name) noexcept {
  PathText path;
  Status s = path_in(folder, name, path);
  return s.ok() ? files.remove(path.c_str()) : std::move(s);
}

// The numbers of the segments in the folder, ascending. Errors: not_found (there is no folder),
// out_of_memory, io.
inline Status list_segments(FileSystem& files, std::string_view folder,
                            Array<std::uint64_t>& numbers) noexcept {
  bool memory = true;
  Status listed = files.list(folder, [&](std::string_view name) {
    const std::uint64_t number = segment_number(name);
    if (number != 0 && memory) memory = numbers.push_back(number);
  });
  if (!memory) return StatusCode::out_of_memory;
  std::ranges::sort(numbers);
  return listed;
}

}  // namespace perdure
