#include "bench/harness/kill_child.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>

namespace perdure::bench {
namespace {

constexpr char kDirty = 'k';
constexpr std::uint64_t kWarmUp = 2000;  // operations before the kill, but no more than
constexpr std::chrono::seconds kLongest(1);
constexpr std::uint64_t kDistance = 500;  // a key is erased this many insertions after its own

bool read_all(int fd, void* data, std::size_t size) noexcept {
  auto* out = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t n = ::read(fd, out, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    out += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

void write_all(int fd, std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

// Inserts and erases until the process is killed. Returns the message of a failure.
std::string work(Subject& subject, const KeySpace& keys, const ValueCodec& values,
                 std::uint64_t first, int report) {
  if (auto opened = subject.reopen(); !opened) return opened.error().message;
  const std::unique_ptr<Session> session = subject.session();
  std::string bytes(keys.max_length(), '\0');
  std::string scratch = values.scratch();
  auto key_of = [&](std::uint64_t index) {
    KeyRef key{.word = keys.word(index)};
    if (keys.kind().is_string) {
      key.bytes = std::string_view(bytes).substr(0, keys.write(key.word, bytes.data()));
    }
    return key;
  };
  const auto begin = std::chrono::steady_clock::now();
  bool told = false;
  for (std::uint64_t i = 0;; ++i) {
    const KeyRef fresh = key_of(first + i);
    if (session->insert(fresh, values.make(fresh.word, 0, scratch)) == Outcome::failed ||
        (i >= kDistance && session->erase(key_of(first + i - kDistance)) == Outcome::failed)) {
      return session->error();
    }
    if (told || (i < kWarmUp && std::chrono::steady_clock::now() - begin < kLongest)) continue;
    write_all(report, std::string_view(&kDirty, 1));
    told = true;
  }
}

}  // namespace

KillChild::~KillChild() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  if (command_ >= 0) ::close(command_);
  if (report_ >= 0) ::close(report_);
}

Result<void> KillChild::start(Subject& subject, const KeySpace& keys, const ValueCodec& values) {
  std::array<int, 2> command = {};
  std::array<int, 2> report = {};
  if (::pipe2(command.data(), O_CLOEXEC) != 0 || ::pipe2(report.data(), O_CLOEXEC) != 0) {
    return failure(kExitIo, fmt::format("pipe: {}", std::string_view(std::strerror(errno))));
  }
  pid_ = ::fork();
  if (pid_ < 0) {
    return failure(kExitIo, fmt::format("fork: {}", std::string_view(std::strerror(errno))));
  }
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // it would not end otherwise
    ::close(command[1]);
    ::close(report[0]);
    std::uint64_t first = 0;
    // The end of the pipe means that the parent does not need this process, or has died.
    if (read_all(command[0], &first, sizeof(first))) {
      write_all(report[1], work(subject, keys, values, first, report[1]));
    }
    ::_exit(0);
  }
  ::close(command[0]);
  ::close(report[1]);
  command_ = command[1];
  report_ = report[0];
  return {};
}

Result<void> KillChild::dirty_and_kill(std::uint64_t first) {
  write_all(command_, std::string_view(reinterpret_cast<const char*>(&first), sizeof(first)));
  char byte = 0;
  const bool reported = read_all(report_, &byte, 1);
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
  if (reported && byte == kDirty) return {};
  std::string message(1, byte);
  while (reported && read_all(report_, &byte, 1)) message += byte;
  return failure(kExitIo, fmt::format("the process to be killed failed: {}",
                                      reported ? message : "it ended without a message"));
}

}  // namespace perdure::bench
