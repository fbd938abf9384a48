// Opens a pool through dlopen: for programs that use perdure where it is installed, and for
// languages that call C. The first argument is the library.
#include <dlfcn.h>
#include <perdure/c.h>  // for the types only
#include <stdio.h>
#include <string.h>

// A function of the library, by its name. ISO C has no cast from an object to a function.
static int load(void* library, const char* name, void* function) {
  void* symbol = dlsym(library, name);
  if (symbol == NULL) fprintf(stderr, "%s\n", dlerror());
  memcpy(function, &symbol, sizeof symbol);
  return symbol != NULL;
}

int main(int argc, char** argv) {
  const char* const name = argc > 1 ? argv[1] : "libperdure.so.0";
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  perdure_status (*pool_open)(const char*, const perdure_pool_options*, perdure_pool**);
  perdure_status (*pool_close)(perdure_pool*, uint32_t);
  perdure_status (*map_open)(perdure_pool*, const char*, const perdure_map_options*, perdure_map**);
  perdure_status (*put)(perdure_map*, const void*, size_t, const void*, size_t, bool*);
  perdure_status (*get)(perdure_map*, const void*, size_t, void**, size_t*);
  void (*map_close)(perdure_map*);
  void (*release)(void*);
  const char* (*last_error)(void);
  perdure_pool* pool = NULL;
  perdure_map* map = NULL;
  void* value = NULL;
  int failed = 1;
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  if (!load(library, "perdure_pool_open", &pool_open) ||
      !load(library, "perdure_pool_close", &pool_close) ||
      !load(library, "perdure_map_open", &map_open) || !load(library, "perdure_put", &put) ||
      !load(library, "perdure_get", &get) || !load(library, "perdure_map_close", &map_close) ||
      !load(library, "perdure_free", &release) ||
      !load(library, "perdure_last_error", &last_error)) {
    return 1;
  }
  if (pool_open("plugin.perdure", NULL, &pool) == PERDURE_OK &&
      map_open(pool, NULL, NULL, &map) == PERDURE_OK &&
      put(map, "ada", 3, "36", 2, NULL) == PERDURE_OK &&
      get(map, "ada", 3, &value, NULL) == PERDURE_OK) {
    failed = value == NULL || strcmp(value, "36") != 0;
    printf("ada: %s\n", value != NULL ? (const char*)value : "absent");
  } else {
    fprintf(stderr, "%s\n", last_error());
  }
  release(value);
  map_close(map);
  if (pool_close(pool, 0) != PERDURE_OK) failed = 1;
  dlclose(library);  // it stays loaded: it has threads
  return failed;
}
