#include "pool/medium.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#ifdef PERDURE_HAVE_LIBPMEM2
#include <libpmem2.h>
#endif

namespace perdure {

namespace {

struct Filesystem {
  std::uint32_t magic;
  const char* name;
  Medium medium;
};
constexpr Filesystem kFilesystems[] = {
    {0x01021994, "tmpfs", Medium::volatile_ram},
    {0x858458F6, "ramfs", Medium::volatile_ram},
    {0x958458F6, "hugetlbfs", Medium::volatile_ram},
    {0xEF53, "ext4", Medium::page},
    {0x58465342, "xfs", Medium::page},
    {0x9123683E, "btrfs", Medium::page},
    {0xF2F52010, "f2fs", Medium::page},
    {0x794C7630, "overlayfs", Medium::page},
    {0x2FC12FC1, "zfs", Medium::page},
    {0x6969, "nfs", Medium::network},
    {0x65735546, "fuse", Medium::network},
    {0xFF534D42, "cifs", Medium::network},
    {0xFE534D42, "smb2", Medium::network},
    {0x01021997, "9p", Medium::network},
};

// A synchronous mapping is possible on DAX only: stores reach the medium without the kernel.
bool is_dax(int fd) noexcept {
  struct stat info{};
  if (fstat(fd, &info) != 0) return false;
  void* p = mmap(nullptr, 4096, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
  if (p == MAP_FAILED) return false;
  munmap(p, 4096);
  return true;
}

// libpmem2 knows whether the platform flushes its caches on power loss. It refuses empty files.
bool is_eadr(int fd) noexcept {
#ifdef PERDURE_HAVE_LIBPMEM2
  pmem2_source* source = nullptr;
  pmem2_config* config = nullptr;
  pmem2_map* map = nullptr;
  bool eadr = false;
  if (pmem2_source_from_fd(&source, fd) == 0 && pmem2_config_new(&config) == 0 &&
      pmem2_config_set_required_store_granularity(config, PMEM2_GRANULARITY_PAGE) == 0 &&
      pmem2_config_set_length(config, 4096) == 0 && pmem2_map_new(&map, config, source) == 0) {
    eadr = pmem2_map_get_store_granularity(map) == PMEM2_GRANULARITY_BYTE;
    pmem2_map_delete(&map);
  }
  if (config != nullptr) pmem2_config_delete(&config);
  if (source != nullptr) pmem2_source_delete(&source);
  return eadr;
#else
  (void)fd;
  return false;
#endif
}

bool read_text(const char* path, char* text, std::size_t size) noexcept {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const auto n = ::read(fd, text, size - 1);
  ::close(fd);
  text[n > 0 ? n : 0] = '\0';
  return n > 0;
}

// The mount options of a device, from mountinfo; "" if they cannot be read.
bool journals_data(unsigned device_major, unsigned device_minor) noexcept {
  std::FILE* file = std::fopen("/proc/self/mountinfo", "re");
  if (file == nullptr) return true;  // cannot tell
  char device[32];
  std::snprintf(device, sizeof(device), " %u:%u ", device_major, device_minor);
  char line[4096];
  bool journals = false;
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    if (std::strstr(line, device) != nullptr && std::strstr(line, "data=journal") != nullptr) {
      journals = true;
    }
  }
  std::fclose(file);
  return journals;
}

// `power` by msync needs sectors written whole, by DMA from the page: ext4 or xfs on a plain block
// device.
void judge_msync(int fd, MediumReport& report) noexcept {
  const bool ext4 = std::strcmp(report.filesystem, "ext4") == 0;
  if (!ext4 && std::strcmp(report.filesystem, "xfs") != 0) {
    report.msync_note = "only ext4 and xfs are known to write pages back without copying them";
    return;
  }
  struct stat info{};
  if (fstat(fd, &info) != 0) return;
  if (ext4 && journals_data(major(info.st_dev), minor(info.st_dev))) {
    report.msync_note = "ext4 with data=journal copies pages, or its mount options cannot be read";
    return;
  }
  char link[96];
  std::snprintf(link, sizeof(link), "/sys/dev/block/%u:%u", major(info.st_dev), minor(info.st_dev));
  char target[512] = {};
  if (readlink(link, target, sizeof(target) - 1) <= 0) {
    report.msync_note = "the block device cannot be told";
    return;
  }
  const char* slash = std::strrchr(target, '/');
  const char* name = slash != nullptr ? slash + 1 : target;
  bool plain = std::strncmp(name, "nvme", 4) == 0 || std::strncmp(name, "sd", 2) == 0 ||
               std::strncmp(name, "vd", 2) == 0;
  if (std::strncmp(name, "dm-", 3) == 0) {
    char path[640];
    char uuid[128];
    std::snprintf(path, sizeof(path), "/sys/block/%s/dm/uuid", name);
    plain = read_text(path, uuid, sizeof(uuid)) && std::strncmp(uuid, "LVM-", 4) == 0;
  }
  report.msync_is_ordered = plain;
  if (!plain) report.msync_note = "the block device is not nvme, sd, vd or linear LVM";
}

}  // namespace

MediumReport detect(int fd) noexcept {
  MediumReport report;
  struct statfs info{};
  if (fstatfs(fd, &info) == 0) {
    for (const Filesystem& known : kFilesystems) {
      if (static_cast<std::uint32_t>(info.f_type) != known.magic) continue;
      report.filesystem = known.name;
      report.medium = known.medium;
    }
  }
  if (report.medium == Medium::page) {
    if (is_dax(fd)) {
      report.medium = is_eadr(fd) ? Medium::eadr : Medium::cache_line;
    } else {
      judge_msync(fd, report);
    }
  }
  return report;
}

}  // namespace perdure
