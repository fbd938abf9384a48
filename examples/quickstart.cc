// Kills a process while it writes. The next process opens the same file and finds everything that
// was acknowledged.
#include <perdure/perdure.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "scratch.h"

int main(int argc, char** argv) {
  const Scratch scratch(argc, argv, "quickstart");
  const std::string& path = scratch.path();

  // Shared between parent and child: the number of the last put that returned.
  auto* done = static_cast<volatile int*>(
      mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));

  const pid_t child = fork();
  if (child == 0) {  // writes until it is killed
    auto store = perdure::Store::open(path);
    for (int i = 1; store && store->put("user:" + std::to_string(i), "here").ok(); ++i) *done = i;
    _exit(1);
  }
  while (*done < 100'000 && waitpid(child, nullptr, WNOHANG) == 0) usleep(100);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);

  auto store = perdure::Store::open(path);
  if (!store) return std::printf("%s\n", store.error().message().data()), 1;
  int found = 0;
  for (int i = 1; i <= *done; ++i) {
    auto value = store->get("user:" + std::to_string(i));
    if (value && *value == "here") ++found;
  }
  std::printf("killed after %d puts; %d are there\n", *done, found);
  return found >= 100'000 && found == *done ? 0 : 1;
}
