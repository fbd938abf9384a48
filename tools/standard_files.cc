// Standard input, output and error: descriptors 0 to 2.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>

#include "commands.h"
#include "pool/output_check.h"

namespace perdure::cli {

namespace {

// What the file is that an open descriptor writes to. It may not be open for reading.
const char* kind_of_output(int fd) {
  struct stat info{};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return nullptr;
  const int file =
      ::open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  const char* kind = own_kind(file >= 0 ? file : fd);
  if (file >= 0) ::close(file);
  return kind;
}

}  // namespace

int open_standard_files() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // The least free descriptor is this one. A write to standard output must fail, because what it
    // prints is asked for. Of errors the exit status tells.
    const int opened = ::open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
    if (opened == fd) continue;
    return report("/dev/null",
                  fmt::format("cannot open it for descriptor {}: {}; start the command "
                              "with descriptors 0, 1 and 2 open",
                              fd, std::strerror(errno)));
  }
  return exit_done;
}

int refuse_own_outputs() {
  constexpr const char* kRefused = "is {}; let it go to another file";
  const char* out = kind_of_output(STDOUT_FILENO);
  const char* error = kind_of_output(STDERR_FILENO);
  if (out != nullptr && error == nullptr) {
    return report("standard output", fmt::format(kRefused, out), exit_usage);
  }
  if (error != nullptr && out == nullptr) {
    fmt::print("perdure: standard error: {}\n", fmt::format(kRefused, error));
  }
  return out != nullptr || error != nullptr ? exit_usage : exit_done;
}

int finish_standard_output(int status, int failed) {
  if (failed == 0 && std::fflush(stdout) != 0) failed = errno;
  if (failed == 0) return status;
  return failed == EPIPE ? status : cannot_write("standard output", failed);
}

namespace {

// The length of the character that the text begins with, in UTF-8; 0: it is none, or a control
// character from U+0080 on.
std::size_t character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t n = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < n) return 0;
  for (std::size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool none = (first == 0xED && byte(1) >= 0xA0) || (first == 0xF4 && byte(1) >= 0x90);
  return overlong || none || (first == 0xC2 && byte(1) < 0xA0) ? 0 : n;
}

}  // namespace

std::string shown_on(int fd, std::string_view text) {
  std::string shown(text);
  if (::isatty(fd) == 0) return shown;
  shown.clear();
  while (!text.empty()) {
    const std::size_t n = character(text);
    const auto byte = static_cast<unsigned char>(text[0]);
    const bool control = n == 0 || byte == 0x7F || (byte < ' ' && byte != '\n' && byte != '\t');
    const std::string_view next = text.substr(0, std::max<std::size_t>(n, 1));
    shown += control ? fmt::format("\\x{:02X}", byte) : std::string(next);
    text.remove_prefix(next.size());
  }
  return shown;
}

void print_text(std::string_view text) { fmt::print("{}", shown_on(STDOUT_FILENO, text)); }

void say(std::string_view text) {
  const std::string shown = shown_on(STDERR_FILENO, text);
  (void)std::fwrite(shown.data(), 1, shown.size(), stderr);
}

}  // namespace perdure::cli
