#include "bench/harness/in_process.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>

namespace perdure::bench {
namespace {

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

}  // namespace

void run_process(FunctionRef<void(std::optional<Pool>&, void*)> use, void* result,
                 std::size_t bytes) {
  void* shared = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  require(shared != MAP_FAILED, "no memory for a result");
  std::fflush(nullptr);  // or the child would print it, too
  const pid_t child = ::fork();
  require(child >= 0, "no process");
  if (child == 0) {
    try {
      std::optional<Pool> pool;
      use(pool, shared);
      if (pool) ::raise(SIGKILL);
      ::_exit(0);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "the process that uses the pool: %s\n", error.what());
    }
    ::_exit(1);
  }
  int status = 0;
  require(::waitpid(child, &status, 0) == child, "a process is lost");
  std::memcpy(result, shared, bytes);
  ::munmap(shared, bytes);
  const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  require(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0),
          "the process that uses the pool failed");
}

}  // namespace perdure::bench
