// Kills a process while it writes. The next process opens the same file and finds everything that
// was acknowledged. In C99:
//   cc -std=c99 quickstart.c $(pkg-config --cflags --libs perdure)
#define _POSIX_C_SOURCE 200809L

#include <perdure/c.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static const char* const kPath = "quickstart.perdure";

// Opens the store in the file: the map without a name. Returns NULL after an error.
static perdure_map* open_store(perdure_pool** pool) {
  perdure_map* map = NULL;
  if (perdure_pool_open(kPath, NULL, pool) != PERDURE_OK ||
      perdure_map_open(*pool, NULL, NULL, &map) != PERDURE_OK) {
    fprintf(stderr, "%s\n", perdure_last_error());
  }
  return map;
}

// Puts key after key, and reports each one that was acknowledged, until it is killed.
static void write_until_killed(int report) {
  perdure_pool* pool = NULL;
  perdure_map* map = open_store(&pool);
  int i = 0;
  for (i = 1; map != NULL; ++i) {
    char key[32];
    const int size = snprintf(key, sizeof key, "user:%d", i);
    if (perdure_put(map, key, (size_t)size, "here", 4, NULL) != PERDURE_OK) break;
    if (write(report, &i, sizeof i) != sizeof i) break;
  }
  _exit(1);
}

int main(void) {
  int report[2];
  int done = 0, found = 0, i = 0;
  perdure_pool* pool = NULL;
  perdure_map* map = NULL;
  pid_t child = 0;
  remove(kPath);
  if (pipe(report) != 0) return 1;
  child = fork();  // before the pool is opened: a child must not use its parent's
  if (child == 0) write_until_killed(report[1]);
  close(report[1]);
  while (done < 20000 && read(report[0], &i, sizeof i) == sizeof i) done = i;
  kill(child, SIGKILL);
  while (read(report[0], &i, sizeof i) == sizeof i) done = i;  // what it had reported by then
  waitpid(child, NULL, 0);

  map = open_store(&pool);
  if (map == NULL) return 1;
  for (i = 1; i <= done; ++i) {
    char key[32];
    bool present = false;
    const int size = snprintf(key, sizeof key, "user:%d", i);
    if (perdure_contains(map, key, (size_t)size, &present) != PERDURE_OK) break;
    if (present) ++found;
  }
  printf("killed after %d puts; %d are there\n", done, found);
  perdure_map_close(map);
  if (perdure_pool_close(pool, 0) != PERDURE_OK) {
    fprintf(stderr, "%s\n", perdure_last_error());
    return 1;
  }
  return done >= 20000 && found == done ? 0 : 1;
}
