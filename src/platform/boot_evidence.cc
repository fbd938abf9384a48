#include "platform/boot_evidence.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>

#include "platform/descriptors.h"
#include "platform/platform.h"

#ifndef STATX_MNT_ID_UNIQUE
#define STATX_MNT_ID_UNIQUE 0x4000U
#endif

namespace perdure {

namespace {

constexpr std::uint32_t kTolerance = 2;  // seconds

std::int64_t seconds_of(clockid_t clock) noexcept {
  timespec now{};
  clock_gettime(clock, &now);
  return now.tv_sec;
}

}  // namespace

std::uint64_t boot_clocks() noexcept {
  const std::int64_t boot = seconds_of(CLOCK_BOOTTIME);
  const std::int64_t unix = seconds_of(CLOCK_REALTIME);
  return static_cast<std::uint64_t>(boot) << 32 | static_cast<std::uint32_t>(unix - boot);
}

Boot compare_boots(std::uint64_t clocks, std::uint64_t now, bool in_time_namespace) noexcept {
  const auto apart = static_cast<std::uint32_t>(static_cast<std::uint32_t>(now) -
                                                static_cast<std::uint32_t>(clocks) + kTolerance);
  if (now >> 32 < clocks >> 32) return in_time_namespace ? Boot::unknown : Boot::another;
  return apart <= 2 * kTolerance ? Boot::same : Boot::unknown;
}

bool in_time_namespace() noexcept {
  std::FILE* const file = std::fopen("/proc/self/timens_offsets", "re");
  if (file == nullptr) return false;  // the kernel has none
  char name[32];
  std::int64_t seconds = 0, nanoseconds = 0;
  bool shifted = false;
  while (std::fscanf(file, "%31s %ld %ld", name, &seconds, &nanoseconds) == 3) {
    shifted = shifted || seconds != 0 || nanoseconds != 0;
  }
  std::fclose(file);
  return shifted;
}

std::uint64_t mount_of_folder(std::string_view folder) noexcept {
  PathText path;
  struct statx info{};
  if (!path.assign(folder.empty() ? "/" : folder)) return 0;
  const int done = ::statx(AT_FDCWD, path.c_str(), 0, STATX_MNT_ID_UNIQUE, &info);
  return done == 0 && (info.stx_mask & STATX_MNT_ID_UNIQUE) != 0 ? info.stx_mnt_id : 0;
}

// The kernel tells it of files that the process may write.
bool is_in_memory(const RealFileSystem::Place& file) noexcept {
  const int fd =
      above_streams(::openat(file.folder, file.name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (fd < 0) return false;
  void* const page = ::mmap(nullptr, kPage, PROT_READ, MAP_SHARED, fd, 0);
  unsigned char state = 0;
  const bool known = page != MAP_FAILED && ::mincore(page, kPage, &state) == 0;
  if (page != MAP_FAILED) ::munmap(page, kPage);
  ::close(fd);
  return known && (state & 1) != 0;
}

}  // namespace perdure
