// Checks and a scratch folder for the tests in C. A check that fails prints its line and ends the
// program.
#pragma once

#include <perdure/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition) \
  ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition, perdure_last_error()))
// The call returns PERDURE_OK.
#define OK(call) check_status(__FILE__, __LINE__, #call, (call), PERDURE_OK, "")
// The call fails with the code, and the text of the error contains `part`.
#define FAILS(code, part, call) check_status(__FILE__, __LINE__, #call, (call), (code), (part))
#define INVALID(part, call) FAILS(PERDURE_INVALID_ARGUMENT, part, call)

static inline void check_failed(const char* file, int line, const char* what, const char* error) {
  fprintf(stderr, "%s:%d: %s\n  last error: %s\n", file, line, what, error);
  exit(1);
}

static inline void check_status(const char* file, int line, const char* what, perdure_status got,
                                perdure_status wanted, const char* part) {
  if (got == wanted && (wanted == PERDURE_OK || strstr(perdure_last_error(), part) != NULL)) return;
  fprintf(stderr, "%s:%d: %s\n  returned %s, not %s with '%s'; last error: %s\n", file, line, what,
          perdure_status_name(got), perdure_status_name(wanted), part, perdure_last_error());
  exit(1);
}

// The path of a file of this process that does not exist. It is valid until the next call.
static inline const char* scratch(const char* name) {
  static char path[256];
  const char* folder = getenv("TMPDIR");
  snprintf(path, sizeof(path), "%s/perdure_c_%ld_%s", folder != NULL ? folder : "/tmp",
           (long)getpid(), name);
  remove(path);
  return path;
}

// A pool of up to 64 MiB in a new file. close_scratch() closes it and removes the file.
static inline perdure_pool* open_scratch(void) {
  perdure_pool_options options = PERDURE_POOL_OPTIONS_INIT;
  perdure_pool* pool = NULL;
  options.max_size = 64U << 20;
  OK(perdure_pool_open(scratch("pool"), &options, &pool));
  return pool;
}
static inline void close_scratch(perdure_pool* pool) {
  OK(perdure_pool_close(pool, PERDURE_CLOSE_NO_SYNC));
  (void)scratch("pool");
}

static inline perdure_map* open_map(perdure_pool* pool, const char* name, perdure_engine engine,
                                    perdure_key_type key_type, uint32_t value_size) {
  perdure_map_options options = PERDURE_MAP_OPTIONS_INIT;
  perdure_map* map = NULL;
  options.engine = engine;
  options.key_type = key_type;
  if (value_size != 0) options.value_type = PERDURE_VALUE_FIXED;
  options.value_size = value_size;
  OK(perdure_map_open(pool, name, &options, &map));
  return map;
}
static inline perdure_map* open_bytes(perdure_pool* pool, const char* name, perdure_engine engine) {
  return open_map(pool, name, engine, PERDURE_KEY_BYTES, 0);
}

static inline perdure_status put_text(perdure_map* map, const char* key, const char* value) {
  return perdure_put(map, key, strlen(key), value, strlen(value), NULL);
}
// Whether the key has this text; NULL: is absent.
static inline bool has_text(perdure_map* map, const char* key, const char* value) {
  void* got = NULL;
  size_t size = 0;
  bool same = false;
  OK(perdure_get(map, key, strlen(key), &got, &size));
  same = got == NULL ? value == NULL
                     : value != NULL && size == strlen(value) && memcmp(got, value, size + 1) == 0;
  perdure_free(got);
  return same;
}
