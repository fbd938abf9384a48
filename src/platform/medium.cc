#include "platform/medium.h"

#include <dirent.h>
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

#include "platform/lines.h"
#include "platform/mounts.h"

namespace perdure {

namespace {

struct Filesystem {
  std::uint32_t magic;
  const char* name;
  Medium medium;
};
constexpr std::uint32_t kOverlay = 0x794C7630;
// Those of Medium::page lie on local disks. What is not listed may be shared with other machines.
constexpr Filesystem kFilesystems[] = {
    {0x01021994, "tmpfs", Medium::volatile_ram},
    {0x858458F6, "ramfs", Medium::volatile_ram},
    {0x958458F6, "hugetlbfs", Medium::volatile_ram},
    {0xEF53, "ext4", Medium::page},
    {0x58465342, "xfs", Medium::page},
    {0x9123683E, "btrfs", Medium::page},
    {0xF2F52010, "f2fs", Medium::page},
    {0x2FC12FC1, "zfs", Medium::page},
    {0xCA451A4E, "bcachefs", Medium::page},
    {kOverlay, "overlayfs", Medium::page},
    {0x6969, "nfs", Medium::network},
    {0x65735546, "fuse", Medium::network},
    {0xFF534D42, "cifs", Medium::network},
    {0xFE534D42, "smb2", Medium::network},
    {0x517B, "smbfs", Medium::network},
    {0x00C36400, "ceph", Medium::network},
    {0x5346414F, "afs", Medium::network},
    {0x6B414653, "kafs", Medium::network},
    {0x73757245, "coda", Medium::network},
    {0x0BD00BD0, "lustre", Medium::network},
    {0x20030528, "orangefs", Medium::network},
    {0x47504653, "gpfs", Medium::network},
    {0x01161970, "gfs2", Medium::network},
    {0x7461636F, "ocfs2", Medium::network},
    {0x01021997, "9p", Medium::network},
};

const Filesystem* find(std::uint32_t magic) {
  for (const Filesystem& known : kFilesystems) {
    if (known.magic == magic) return &known;
  }
  return nullptr;
}

// What is stored lies in the upper layer. In a container its folder is out of sight.
void look_below_overlay(int fd, MediumReport& report) {
  PathText upper;
  struct statfs info{};
  if (!upper_layer_of(fd, upper) || statfs(upper.c_str(), &info) != 0) return;
  const Filesystem* below = find(static_cast<std::uint32_t>(info.f_type));
  report.local_disk = below != nullptr && below->medium == Medium::page;
  if (below == nullptr) report.filesystem = "overlayfs over unknown";
  if (below != nullptr) report.medium = below->medium;
}

// A synchronous mapping is possible on DAX only: stores reach the medium without the kernel.
bool is_dax(int fd) {
  struct stat info{};
  if (fstat(fd, &info) != 0) return false;
  void* p = mmap(nullptr, 4096, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
  if (p == MAP_FAILED) return false;
  munmap(p, 4096);
  return true;
}

// libpmem2 knows whether the platform flushes its caches on power loss. It refuses empty files.
bool is_eadr(int fd) {
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

// Reads as much as fits. False: the file cannot be read, or is empty.
bool read_text(const char* path, char* text, std::size_t size) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const auto n = ::read(fd, text, size - 1);
  ::close(fd);
  text[n > 0 ? n : 0] = '\0';
  return n > 0;
}

// Whether DMA from the page writes this disk, or the disk of this partition.
bool is_disk(const char* name) {
  return std::strncmp(name, "nvme", 4) == 0 || std::strncmp(name, "sd", 2) == 0 ||
         std::strncmp(name, "vd", 2) == 0;
}

// The mount options of a device, from mountinfo; "" if they cannot be read.
bool journals_data(unsigned device_major, unsigned device_minor) {
  char device[32];
  std::snprintf(device, sizeof(device), " %u:%u ", device_major, device_minor);
  bool journals = false;
  bool known = false;  // no process is without a mount
  for_each_line("/proc/self/mountinfo", [&](const char* line) {
    known = true;
    journals = std::strstr(line, device) != nullptr && std::strstr(line, "data=journal") != nullptr;
    return journals;
  });
  return journals || !known;
}

// With msync, `power` needs whole sectors written by DMA from the page: ext4 or xfs on a plain
// block device.
void judge_msync(int fd, MediumReport& report) {
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
  report.msync_note = judge_block_device("/sys", info.st_dev);
  report.msync_is_ordered = report.msync_note[0] == '\0';
}

}  // namespace

// Only root can read a device-mapper device's table, but every user its parts. LVM's linear and
// striped volumes lie on disks themselves and have a name without suffix; thin, cached, mirrored
// and snapshot volumes, and those on encryption or RAID, lie on other mapped devices.
const char* judge_block_device(const char* sys, dev_t device) {
  char path[1024];
  char target[512] = {};
  std::snprintf(path, sizeof(path), "%s/dev/block/%u:%u", sys, major(device), minor(device));
  if (readlink(path, target, sizeof(target) - 1) <= 0) return "the block device is unknown";
  const char* slash = std::strrchr(target, '/');
  const char* name = slash != nullptr ? slash + 1 : target;
  if (is_disk(name)) return "";
  constexpr const char* kOther = "the block device is not nvme, sd, vd or a linear LVM volume";
  if (std::strncmp(name, "dm-", 3) != 0) return kOther;
  char uuid[192];
  std::snprintf(path, sizeof(path), "%s/block/%s/dm/uuid", sys, name);
  if (!read_text(path, uuid, sizeof(uuid))) return "the LVM volume is unknown";
  uuid[std::strcspn(uuid, "\n")] = '\0';
  constexpr std::size_t kPlainVolume = 4 + 32 + 32;  // LVM-, group, volume
  if (std::strncmp(uuid, "LVM-", 4) != 0 || std::strlen(uuid) != kPlainVolume) return kOther;
  std::snprintf(path, sizeof(path), "%s/block/%s/slaves", sys, name);
  DIR* parts = ::opendir(path);
  if (parts == nullptr) return "the LVM volume is unknown";
  std::size_t disks = 0;
  const char* why = "";
  while (const dirent* part = ::readdir(parts)) {
    if (part->d_name[0] == '.') continue;
    if (!is_disk(part->d_name)) why = "the LVM volume lies on another mapped device";
    ++disks;
  }
  ::closedir(parts);
  return disks == 0 ? "the LVM volume is unknown" : why;
}

MediumReport detect(int fd) {
  MediumReport report;
  struct statfs info{};
  if (fstatfs(fd, &info) == 0) {
    if (const Filesystem* known = find(static_cast<std::uint32_t>(info.f_type))) {
      report.filesystem = known->name;
      report.medium = known->medium;
      report.local_disk = known->medium == Medium::page;
      if (known->magic == kOverlay) look_below_overlay(fd, report);
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
