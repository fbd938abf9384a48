// Children of tests end with _exit(), which would lose what gcov counted in them. Linked into every
// program of a coverage build, in which the linker sends _exit() here.
#include <sys/resource.h>

extern "C" {
void __gcov_dump();                   // NOLINT: libgcov's name
[[noreturn]] void __real__exit(int);  // NOLINT: the linker's names
[[noreturn]] void __wrap__exit(int);  // NOLINT
}

void __wrap__exit(int status) {  // NOLINT
  // A count that is cut short by the limit of a test would spoil what all others have counted.
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_FSIZE, &limit);
  if (limit.rlim_max == RLIM_INFINITY) __gcov_dump();
  __real__exit(status);
}
