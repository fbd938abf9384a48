#include "platform/memory_limit.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "platform/lines.h"

namespace perdure {

namespace {

// A version of the interface: names in a group's folder, and the lines of its memory.stat.
struct Names {
  const char* limit;
  const char* used;
  std::string_view cache;   // of files, those in RAM included
  std::string_view in_ram;  // files that the kernel cannot drop
  std::string_view slab;    // other memory that it can
};
constexpr Names kFirst{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache ",
                       "total_shmem ", "none"};
constexpr Names kSecond{"memory.max", "memory.current", "file ", "shmem ", "slab_reclaimable "};
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;  // version 1 has a number near 2^63

using Path = char[PATH_MAX];

bool join(Path& out, const char* a, const char* b, const char* c = "", const char* d = "") {
  const int n = std::snprintf(out, sizeof(out), "%s%s%s%s", a, b, c, d);
  return n > 0 && static_cast<std::size_t>(n) < sizeof(out);
}

// "max" and a file that is not there are 2^64 - 1.
std::uint64_t number_in(const char* folder, const char* name) noexcept {
  Path path;
  std::uint64_t number = ~std::uint64_t{0};
  if (!join(path, folder, "/", name)) return number;
  for_each_line(path, [&](const char* line) {
    if (*line >= '0' && *line <= '9') number = std::strtoull(line, nullptr, 10);
    return true;
  });
  return number;
}

// Of one group.
void look_at(const char* folder, const Names& names, MemoryLimit& tightest) noexcept {
  constexpr std::uint64_t kLeastReserve = std::uint64_t{8} << 20;
  constexpr std::uint64_t kMostReserve = std::uint64_t{256} << 20;
  const std::uint64_t limit = number_in(folder, names.limit);
  const std::uint64_t used = number_in(folder, names.used);
  if (limit >= kNoLimit || used >= kNoLimit) return;
  std::uint64_t cache = 0;
  std::uint64_t in_ram = 0;
  std::uint64_t slab = 0;
  Path path;
  if (!join(path, folder, "/memory.stat")) return;
  for_each_line(path, [&](const char* text) {
    const auto take = [&](std::string_view name, std::uint64_t& number) {
      if (std::string_view(text).starts_with(name))
        number = std::strtoull(text + name.size(), nullptr, 10);
    };
    take(names.cache, cache);
    take(names.in_ram, in_ram);
    take(names.slab, slab);
    return false;
  });
  const std::uint64_t reserve = std::clamp(limit / 8, kLeastReserve, kMostReserve);
  const std::uint64_t taken =
      used - std::min(used, cache - std::min(cache, in_ram) + slab) + reserve;
  const std::uint64_t room = limit - std::min(limit, taken);
  if (tightest.bytes == 0 || room < tightest.room) tightest = {.bytes = limit, .room = room};
}

// The group of the process in this hierarchy, and all above it. `mounted`: the group that is the
// top of what is mounted at `at`; a container may see its own group only.
void look_upwards(const char* at, std::string_view mounted, const char* group, const Names& names,
                  MemoryLimit& tightest) noexcept {
  if (mounted == "/") mounted = {};
  const std::string_view own(group);
  const bool inside =
      own.starts_with(mounted) && (own.size() == mounted.size() || own[mounted.size()] == '/');
  Path folder;
  if (!join(folder, at, inside ? group + mounted.size() : "")) return;
  const std::size_t top = std::strlen(at);
  for (;;) {
    look_at(folder, names, tightest);
    char* const slash = std::strrchr(folder, '/');
    if (slash == nullptr || static_cast<std::size_t>(slash - folder) < top) return;
    *slash = '\0';
  }
}

// The group of the process: of version 2 if `controller` is empty. False: it is in none.
bool group_of(const char* root, std::string_view controller, Path& group) noexcept {
  Path path;
  bool found = false;
  if (!join(path, root, "/proc/self/cgroup")) return false;
  for_each_line(path, [&](const char* text) {  // hierarchy:controllers:path
    std::string_view line(text);
    if (line.ends_with('\n')) line.remove_suffix(1);
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) return false;
    if (line.substr(first + 1, second - first - 1) != controller) return false;
    const std::string_view name = line.substr(second + 1);
    found = name.size() < sizeof(group);
    if (found) group[name.copy(group, sizeof(group) - 1)] = '\0';
    return found;
  });
  if (found && std::strcmp(group, "/") == 0) group[0] = '\0';
  return found;
}

}  // namespace

MemoryLimit memory_limit(const char* root) noexcept {
  MemoryLimit tightest;
  Path mounts;
  if (!join(mounts, root, "/proc/self/mountinfo")) return tightest;
  for_each_line(mounts, [&](const char* line) {
    Path top, at, group, point;
    char type[16], options[256];
    // number parent device top point options fields* - type source options
    const char* const dash = std::strstr(line, " - ");
    static_assert(sizeof(Path) == 4096);
    if (dash == nullptr || std::sscanf(line, "%*d %*d %*s %4095s %4095s", top, at) != 2)
      return false;
    if (std::sscanf(dash, " - %15s %*s %255s", type, options) != 2) return false;
    const bool second = std::strcmp(type, "cgroup2") == 0;
    const bool first =
        std::strcmp(type, "cgroup") == 0 && std::strstr(options, "memory") != nullptr;
    if (!first && !second) return false;
    if (group_of(root, second ? "" : "memory", group) && join(point, root, at))
      look_upwards(point, top, group, second ? kSecond : kFirst, tightest);
    return false;
  });
  return tightest;
}

bool leaves_room(std::uint64_t bytes, std::uint64_t& limit) noexcept {
  constexpr std::uint64_t kMostAtOnce = std::uint64_t{64} << 20;
  static std::atomic<std::uint64_t> known;  // room that callers may still take
  std::uint64_t left = known.load(std::memory_order_relaxed);
  while (left >= bytes) {
    if (known.compare_exchange_weak(left, left - bytes, std::memory_order_relaxed)) return true;
  }
  const MemoryLimit now = memory_limit();
  limit = now.bytes;
  if (now.room < bytes) return false;
  known.store(std::min((now.room - bytes) / 4, kMostAtOnce), std::memory_order_relaxed);
  return true;
}

}  // namespace perdure
