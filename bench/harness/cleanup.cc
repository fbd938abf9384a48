#include "bench/harness/cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <climits>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace perdure::bench {
namespace {

std::array<std::array<char, PATH_MAX>, kPoolParts.size() - 1> files = {};
std::array<char, PATH_MAX> folder = {};
std::atomic<bool> armed{false};
std::atomic<bool> removing{false};

// Async-signal-safe, as readdir() is not. Removes the files of a folder without others.
void empty_folder(const char* path) {
  const int fd = ::open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return;
  alignas(dirent64) std::array<char, 4096> entries;
  for (;;) {
    const long size = ::syscall(SYS_getdents64, fd, entries.data(), entries.size());
    if (size <= 0) break;
    for (long at = 0; at < size;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries.data() + at);
      ::unlinkat(fd, entry->d_name, 0);
      at += entry->d_reclen;
    }
  }
  ::close(fd);
}

// Async-signal-safe: removes the files, then raises the signal again with its default action.
// Signals that come meanwhile, perhaps to other threads, wait for that: timeout(1) sends two.
void on_signal(int number) {
  if (removing.exchange(true)) {
    for (;;) ::pause();
  }
  if (armed.load()) {
    for (const auto& file : files) ::unlink(file.data());
    // The thread that writes the log may make a file meanwhile. It makes no other folder, because
    // the pool's own file is gone.
    constexpr int kAttempts = 10;
    for (int i = 0; i < kAttempts && ::access(folder.data(), F_OK) == 0; ++i) {
      empty_folder(folder.data());
      ::rmdir(folder.data());
    }
  }
  ::signal(number, SIG_DFL);
  ::raise(number);
}

void put(std::array<char, PATH_MAX>& out, const std::string& path, std::string_view suffix) {
  std::memcpy(out.data(), path.data(), path.size());
  std::memcpy(out.data() + path.size(), suffix.data(), suffix.size());
  out[path.size() + suffix.size()] = '\0';
}

}  // namespace

void remove_pool_files(const std::string& path) {
  std::error_code ignored;
  for (const char* part : kPoolParts) std::filesystem::remove_all(path + part, ignored);
}

void remove_on_signal(const std::string& path) {
  constexpr std::size_t kLongestSuffix = 16;
  armed.store(false);
  if (path.empty() || path.size() + kLongestSuffix >= folder.size()) return;
  for (std::size_t i = 0; i < files.size(); ++i) put(files[i], path, kPoolParts[i]);
  put(folder, path, kPoolParts.back());
  armed.store(true);
  struct sigaction action{};
  action.sa_handler = on_signal;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&action.sa_mask, number);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(number, &action, nullptr);
}

}  // namespace perdure::bench
