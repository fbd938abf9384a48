// Reads what program.cc has written.
#include <perdure/c.h>
#include <stdio.h>

int main(void) {
  perdure_pool* pool = NULL;
  perdure_map* map = NULL;
  void* value = NULL;
  int failed = 1;
  if (perdure_pool_open("test_package.perdure", NULL, &pool) == PERDURE_OK &&
      perdure_map_open(pool, NULL, NULL, &map) == PERDURE_OK &&
      perdure_get(map, "user:1", 6, &value, NULL) == PERDURE_OK && value != NULL) {
    printf("C: user:1 is %s\n", (const char*)value);
    failed = 0;
  }
  perdure_free(value);
  perdure_map_close(map);
  perdure_pool_close(pool, 0);
  return failed;
}
