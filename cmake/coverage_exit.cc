// Children of tests end with _exit(), which would lose what gcov counted in them. Linked into every
// program of a coverage build, in which the linker sends _exit() here.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
void __gcov_dump();                   // NOLINT: libgcov's name
[[noreturn]] void __real__exit(int);  // NOLINT: the linker's names
[[noreturn]] void __wrap__exit(int);  // NOLINT
}

void __wrap__exit(int status) {  // NOLINT
  // A count that is cut short, by the limit of a test or by its SIGKILL, would spoil what all
  // others have counted: a process that nobody knows writes it.
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
