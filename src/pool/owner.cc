#include "pool/owner.h"

#include <signal.h>

#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "format/layout.h"
#include "platform/nap.h"
#include "platform/real_platform.h"
#include "pool/buffered.h"

namespace perdure {

namespace {

constexpr std::uint64_t kPatience = 5'000'000'000;  // nanoseconds

// A file's lock does not name its owner; the header does. That of a pool in use with a live image
// is in the image.
layout::Identity last_owner(FileStorage& storage, std::string_view path) {
  layout::BaseMark mark;
  layout::Identity here;
  char resolved[PATH_MAX];
  PathText text;
  if (read_mark(storage, mark).ok() && mark.state == layout::BaseState::open &&
      storage.identity(here).ok() && text.assign(path) &&
      ::realpath(text.c_str(), resolved) != nullptr) {
    // Without an image the base says it.
    FileStorage base;
    if (!observe_live(storage, base, mark, resolved, here).ok()) {
      storage.close();
      (void)storage.open(path, FileStorage::Access::observer);
    }
  }
  layout::Header headers[2] = {};
  (void)storage.read(&headers[0], sizeof(headers[0]), 0);
  (void)storage.read(&headers[1], sizeof(headers[1]), layout::kHeaderBytes);
  const bool second =
      headers[1].magic == layout::kMagic && headers[1].sequence > headers[0].sequence;
  return headers[second ? 1 : 0].identity;
}

// Whether the process has ended. It has also if its parent has not been told yet.
bool is_gone(std::uint64_t pid) {
  if (pid == 0) return false;
  if (::kill(static_cast<pid_t>(pid), 0) != 0) return errno == ESRCH;
  char name[40];
  (void)std::snprintf(name, sizeof(name), "/proc/%llu/stat", static_cast<unsigned long long>(pid));
  std::FILE* file = std::fopen(name, "re");
  if (file == nullptr) return false;
  char text[512];
  text[std::fread(text, 1, sizeof(text) - 1, file)] = '\0';
  std::fclose(file);
  const char* state = std::strrchr(text, ')');  // behind the name of the program
  return state != nullptr && std::strncmp(state, ") Z", 3) == 0;
}

Status tell(const layout::Identity& owner, const layout::Identity& here) {
  char host[sizeof(owner.host) + 1] = {};
  std::memcpy(host, owner.host, sizeof(owner.host));
  const auto pid = static_cast<unsigned long long>(owner.pid);
  if (here.pid == owner.pid && std::memcmp(here.host, owner.host, sizeof(here.host)) == 0) {
    return Status::format(StatusCode::busy,
                          "this process, %llu, has it open already; use that pool, which any "
                          "number of threads may share, or close it first",
                          pid);
  }
  return Status::format(StatusCode::busy,
                        "in use by process %llu on %s; close it there first (an open with "
                        "read_only, or --read-only, works meanwhile)",
                        pid, host[0] != '\0' ? host : "this host");
}

}  // namespace

Status open_as_owner(FileStorage& storage, std::string_view path) {
  for (const std::uint64_t began = RealPlatform::now_ns();;) {
    Status s = storage.open(path, FileStorage::Access::owner);
    if (s != StatusCode::busy) return s;
    layout::Identity here;
    const bool known = storage.identity(here).ok();
    const layout::Identity owner = last_owner(storage, path);
    const bool same_boot =
        known && std::memcmp(here.boot_id, owner.boot_id, sizeof(here.boot_id)) == 0;
    const bool waits = same_boot && is_gone(owner.pid);
    if (!waits || RealPlatform::now_ns() - began > kPatience) return tell(owner, here);
    storage.close();
    nap();
  }
}

}  // namespace perdure
