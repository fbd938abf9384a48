#include "pool/owner.h"

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cut/live_image.h"
#include "format/layout.h"
#include "platform/nap.h"
#include "platform/real_platform.h"
#include "pool/left_open.h"

namespace perdure {

namespace {

constexpr std::uint64_t kPatience = 5'000'000'000;  // nanoseconds

// What has the lock of a file.
struct Holder {
  layout::Identity here;   // this process
  layout::Identity owner;  // or a reader; without a pid it is not known
  bool reads = false;
  bool ends = false;      // is gone: the lock will follow
  bool buffers = false;   // the pool is of durability `buffered`
  bool has_cuts = false;  // and is open: its log has its cuts
};

layout::Header last_header(const FileStorage& storage) {
  layout::Header headers[2] = {};
  (void)storage.read(&headers[0], sizeof(headers[0]), 0);
  (void)storage.read(&headers[1], sizeof(headers[1]), layout::kHeaderBytes);
  const bool second =
      headers[1].magic == layout::kMagic && headers[1].sequence > headers[0].sequence;
  return headers[second ? 1 : 0];
}

// A file's lock does not name its owner; the header does. That of a pool in use with a live image
// is in the image. Without an image the base says it.
void find_owner(const FileStorage& storage, std::string_view path, Holder& holder) {
  layout::Header header = last_header(storage);
  layout::BaseMark mark;
  holder.has_cuts = read_mark(storage, mark).ok() && mark.state == layout::BaseState::open;
  holder.buffers =
      holder.has_cuts || header.mode == static_cast<std::uint32_t>(Durability::buffered);
  char resolved[PATH_MAX];
  PathText text, live;
  layout::LiveHead head;
  const bool has_image = holder.has_cuts && text.assign(path) &&
                         ::realpath(text.c_str(), resolved) != nullptr &&
                         LiveImage::path_of(mark, resolved, live).ok() &&
                         LiveImage::read_head(RealFileSystem(), live.c_str(), head, storage).ok() &&
                         layout::same_id(head.live_id, mark.live.live_id);
  FileStorage image;
  if (has_image && image.open(live.c_str(), FileStorage::Access::observer).ok()) {
    header = last_header(image);
  }
  holder.owner = header.identity;
}

// Whether the process has ended. It has also if its parent has not been told yet.
bool is_gone(std::uint64_t pid) {
  if (pid == 0) return false;
  if (::kill(static_cast<pid_t>(pid), 0) != 0) return errno == ESRCH;
  char name[40];
  (void)std::snprintf(name, sizeof(name), "/proc/%lu/stat", pid);
  std::FILE* file = std::fopen(name, "re");
  if (file == nullptr) return false;
  char text[512];
  text[std::fread(text, 1, sizeof(text) - 1, file)] = '\0';
  std::fclose(file);
  const char* state = std::strrchr(text, ')');  // behind the name of the program
  return state != nullptr && std::strncmp(state, ") Z", 3) == 0;
}

// Whether the file /proc/PID/KIND/FD, which has the state of a descriptor, names a reader's lock.
bool has_read_lock(std::string_view path) {
  PathText name;
  std::FILE* file = name.assign(path) ? std::fopen(name.c_str(), "re") : nullptr;
  if (file == nullptr) return false;
  char line[256];
  bool found = false;
  while (!found && std::fgets(line, sizeof(line), file) != nullptr) {
    found = std::strncmp(line, "lock:", 5) == 0 && std::strstr(line, " READ ") != nullptr;
  }
  std::fclose(file);
  return found;
}

bool reads(const char* pid, const layout::Identity& pool) {
  char folder[300];
  std::snprintf(folder, sizeof(folder), "/proc/%s/fd", pid);
  DIR* const descriptors = ::opendir(folder);
  if (descriptors == nullptr) return false;
  bool found = false;
  while (const dirent* entry = found ? nullptr : ::readdir(descriptors)) {
    struct stat info{};
    if (::fstatat(::dirfd(descriptors), entry->d_name, &info, 0) != 0) continue;
    if (info.st_ino != pool.inode || info.st_dev != pool.device) continue;
    char state[600];
    std::snprintf(state, sizeof(state), "/proc/%s/fdinfo/%s", pid, entry->d_name);
    found = has_read_lock(state);
  }
  ::closedir(descriptors);
  return found;
}

// The system does not say which process has a lock, but which locks a process has.
std::uint64_t find_reader(const layout::Identity& pool) {
  if (reads("self", pool)) return pool.pid;
  DIR* const processes = ::opendir("/proc");
  if (processes == nullptr) return 0;
  std::uint64_t pid = 0;
  while (const dirent* entry = pid == 0 ? ::readdir(processes) : nullptr) {
    const std::uint64_t number = std::strtoull(entry->d_name, nullptr, 10);
    if (number != 0 && reads(entry->d_name, pool)) pid = number;
  }
  ::closedir(processes);
  return pid;
}

Holder holder_of(const FileStorage& storage, std::string_view path) {
  Holder holder;
  const bool known = storage.identity(holder.here).ok();
  holder.reads = storage.has_readers();
  if (holder.reads) {
    holder.owner = holder.here;
    holder.owner.pid = known ? find_reader(holder.here) : 0;
    return holder;
  }
  find_owner(storage, path, holder);
  const bool same_boot = known && layout::same_id(holder.here.boot_id, holder.owner.boot_id);
  holder.ends = storage.lock_holder() == 0 || (same_boot && is_gone(holder.owner.pid));
  return holder;
}

Status tell_readers(const Holder& holder) {
  const auto pid = holder.owner.pid;
  if (pid == 0) {
    return Status::format(StatusCode::busy,
                          "is being read by another process with read_only; close it there first");
  }
  if (pid == holder.here.pid) {
    return Status::format(StatusCode::busy,
                          "is being read by this process, %lu, with read_only; close it there "
                          "first",
                          pid);
  }
  return Status::format(StatusCode::busy,
                        "is being read by process %lu with read_only; close it there first", pid);
}

Status tell(const Holder& holder) {
  if (holder.reads) return tell_readers(holder);
  char host[sizeof(holder.owner.host) + 1] = {};
  std::memcpy(host, holder.owner.host, sizeof(holder.owner.host));
  const auto pid = holder.owner.pid;
  if (holder.here.pid == holder.owner.pid &&
      std::memcmp(holder.here.host, host, sizeof(holder.here.host)) == 0) {
    return Status::format(StatusCode::busy,
                          "this process, %lu, has it open already; use that pool, which any "
                          "number of threads may share, or close it first",
                          pid);
  }
  const char* name = host[0] != '\0' ? host : "this host";
  if (holder.buffers && !holder.has_cuts) {
    return Status::format(StatusCode::busy, "process %lu on %s opens or closes it; try again", pid,
                          name);
  }
  if (holder.has_cuts) {
    return Status::format(StatusCode::busy,
                          "in use by process %lu on %s; close it there first (its last cut can be "
                          "read meanwhile: read_only, or --read-only of a command that reads)",
                          pid, name);
  }
  return Status::format(StatusCode::busy,
                        "in use by process %lu on %s; close it there first (had that process "
                        "opened it with durability `buffered`, it could be read meanwhile)",
                        pid, name);
}

}  // namespace

Status open_as_owner(FileStorage& storage, std::string_view path) {
  for (const std::uint64_t began = RealPlatform::now_ns();;) {
    Status s = storage.open(path, FileStorage::Access::owner);
    if (s != StatusCode::busy) return s;
    const Holder holder = holder_of(storage, path);
    if (!holder.ends || RealPlatform::now_ns() - began > kPatience) return tell(holder);
    storage.close();
    nap();
  }
}

Status open_as_reader(FileStorage& storage, std::string_view path, bool& in_use) {
  for (const std::uint64_t began = RealPlatform::now_ns();;) {
    Status s = storage.open(path, FileStorage::Access::reader);
    in_use = s == StatusCode::busy;
    if (!in_use) return s;
    const Holder holder = holder_of(storage, path);
    const bool patient = RealPlatform::now_ns() - began < kPatience;
    if (holder.has_cuts && !(holder.ends && patient)) return {};
    // Other readers are in no reader's way: an owner has gone meanwhile.
    const bool changes = holder.reads || (holder.buffers && !holder.has_cuts);
    if (!patient || !(holder.ends || changes)) return tell(holder);
    storage.close();
    nap();
  }
}

}  // namespace perdure
