// test: no asan
// With PERDURE_POOL_HANDLE_SIGBUS a file that is cut short does not end the process.
#include "c/check.h"

int main(void) {
  perdure_pool_options options = PERDURE_POOL_OPTIONS_INIT;
  perdure_pool* pool = NULL;
  perdure_map* map = NULL;
  perdure_status status = PERDURE_OK;
  char path[256], key[32];
  void* value = NULL;
  int i = 0;
  snprintf(path, sizeof(path), "%s", scratch("cut"));
  options.max_size = 32U << 20;
  options.flags = PERDURE_POOL_HANDLE_SIGBUS;
  options.durability = PERDURE_DURABILITY_PROCESS;  // the file is what is mapped
  OK(perdure_pool_open(path, &options, &pool));
  map = open_bytes(pool, NULL, PERDURE_ENGINE_DEFAULT);
  for (i = 0; i < 1000; ++i) {
    snprintf(key, sizeof(key), "key %d", i);
    OK(put_text(map, key, key));
  }
  CHECK(truncate(path, 4096) == 0);
  for (i = 0; i < 1000 && status == PERDURE_OK; ++i) {
    snprintf(key, sizeof(key), "key %d", i);
    status = perdure_get(map, key, strlen(key), &value, NULL);
    perdure_free(value);
  }
  CHECK(status == PERDURE_POISONED && value == NULL);
  FAILS(PERDURE_POISONED, path, put_text(map, "a", "1"));
  perdure_map_close(map);
  FAILS(PERDURE_POISONED, path, perdure_pool_close(pool, 0));
  remove(path);
  return 0;
}
