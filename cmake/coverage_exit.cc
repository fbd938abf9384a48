// Children of tests end with _exit(), which would lose the counts of gcov. The linker redirects
// _exit() to this file in every program of a coverage build.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
void __gcov_dump();                   // NOLINT: libgcov's name
[[noreturn]] void __real__exit(int);  // NOLINT: the linker's names
[[noreturn]] void __wrap__exit(int);  // NOLINT
}

void __wrap__exit(int status) {  // NOLINT
  // A count that a limit or the SIGKILL of a test cut short would spoil the counts of all others.
  // So a process in a session of its own writes it.
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_FSIZE, &limit);
  const pid_t writer = limit.rlim_max == RLIM_INFINITY ? fork() : -1;
  if (writer == 0) {
    setsid();
    __gcov_dump();
    __real__exit(0);
  }
  if (writer > 0) waitpid(writer, nullptr, 0);
  __real__exit(status);
}
