// Work in child processes, which leave their results in shared memory.
//
// Thread safety: call it from a process with one thread.
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <new>

namespace perdure::testing {

// Memory that children share with their parent, for the life of the program.
template <class T>
T* shared_array(std::size_t n) {
  void* p = mmap(nullptr, std::max<std::size_t>(n, 1) * sizeof(T), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) std::abort();
  return new (p) T[n]{};
}

// Runs body(i) in a child for each i < n, `jobs` at a time. Calls ended(i, ok), where ok says
// whether body(i) returned true.
template <class Body, class Ended>
void in_children(std::size_t n, unsigned jobs, const Body& body, const Ended& ended) {
  std::map<pid_t, std::size_t> running;
  for (std::size_t next = 0; next < n || !running.empty();) {
    if (next < n && running.size() < jobs) {
      std::fflush(nullptr);
      const pid_t child = fork();
      if (child == 0) _exit(body(next) ? 0 : 1);
      if (child > 0) running[child] = next;
      if (child < 0) ended(next, false);
      ++next;
      continue;
    }
    int status = 0;
    const pid_t child = waitpid(-1, &status, 0);
    if (child < 0 && errno == EINTR) continue;
    const auto found = running.find(child);
    if (found == running.end()) continue;
    const std::size_t i = found->second;
    running.erase(found);
    ended(i, WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

}  // namespace perdure::testing
