#include "platform/mounts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "platform/lines.h"

namespace perdure {

namespace {

// The kernel writes blanks, commas and the like as \ and three octal digits.
bool unescape(std::string_view text, PathText& out) noexcept {
  char path[PATH_MAX];
  std::size_t n = 0;
  const auto digit = [&](std::size_t i) { return static_cast<unsigned>(text[i] - '0'); };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (n == sizeof(path)) return false;
    const bool escaped = text[i] == '\\' && i + 3 < text.size() && digit(i + 1) < 4 &&
                         digit(i + 2) < 8 && digit(i + 3) < 8;
    path[n++] =
        escaped ? static_cast<char>(digit(i + 1) << 6 | digit(i + 2) << 3 | digit(i + 3)) : text[i];
    if (escaped) i += 3;
  }
  return out.assign(std::string_view(path, n));
}

}  // namespace

std::uint64_t mount_in_fdinfo(int fd) noexcept {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
  std::uint64_t mount = 0;
  for_each_line(path,
                [&](const char* line) { return std::sscanf(line, "mnt_id: %lu", &mount) == 1; });
  return mount;
}

std::uint64_t mount_of(int fd) noexcept {
  struct statx info{};
  const bool known = ::statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &info) == 0 &&
                     (info.stx_mask & STATX_MNT_ID) != 0;
  return known ? info.stx_mnt_id : mount_in_fdinfo(fd);
}

bool is_mounted_alone(int fd, const char* path) noexcept {
  char folder[PATH_MAX];
  if (::realpath(path, folder) == nullptr) return false;
  *(std::strrchr(folder, '/') + 1) = '\0';
  const int parent = ::open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (parent < 0) return false;
  const std::uint64_t own = mount_of(fd);
  const std::uint64_t around = mount_of(parent);
  ::close(parent);
  return own != 0 && around != 0 && own != around;
}

bool upper_layer_of(int fd, PathText& folder) noexcept {
  const std::uint64_t mount = mount_of(fd);
  bool found = false;
  for_each_line("/proc/self/mountinfo", [&](const char* text) {
    if (mount == 0 || std::strtoull(text, nullptr, 10) != mount) return false;
    const std::string_view line(text);
    constexpr std::string_view kOption = ",upperdir=";
    const std::size_t at = line.rfind(kOption);
    if (at == std::string_view::npos) return true;
    const std::string_view rest = line.substr(at + kOption.size());
    found = rest.starts_with('/') && unescape(rest.substr(0, rest.find_first_of(",\n")), folder);
    return true;
  });
  return found;
}

}  // namespace perdure
