// Standard input, output and error: descriptors 0 to 2.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>

#include "commands.h"

namespace perdure::cli {

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

int finish_standard_output(int status, int failed) {
  if (failed == 0 && std::fflush(stdout) != 0) failed = errno;
  if (failed == 0) return status;
  return failed == EPIPE ? status : cannot_write("standard output", failed);
}

void say(std::string_view text) { (void)std::fwrite(text.data(), 1, text.size(), stderr); }

}  // namespace perdure::cli
