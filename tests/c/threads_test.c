// test: tsan
// Threads that share a pool, its maps and a snapshot; and those that must not share an iterator.
#include <pthread.h>

#include "c/check.h"

enum { kThreads = 4, kRounds = 2000, kCounts = 50000 };

static perdure_pool* pool;
static perdure_map* text;
static perdure_map* words;
static perdure_snapshot* snapshot;

static perdure_change increment(void* context, const void* before, size_t size,
                                perdure_bytes* after) {
  char* number = context;
  snprintf(number, 32, "%ld", before == NULL ? 1L : strtol(before, NULL, 10) + 1);
  (void)size;
  after->data = number;
  after->size = strlen(number);
  return PERDURE_CHANGE_PUT;
}

static void* work(void* argument) {
  const int me = *(const int*)argument;
  char number[32];
  uint64_t i = 0, before = 0;
  bool present = false;
  for (i = 0; i < kRounds; ++i) {
    const uint64_t zero = 0;
    OK(perdure_fetch_add(words, &zero, sizeof(zero), 1, &before));
    OK(perdure_modify(text, "n", 1, increment, number, NULL));
    OK(perdure_u64_put(words, 1 + i * kThreads + (uint64_t)me, i, NULL));
    OK(perdure_snapshot_contains(snapshot, "n", 1, &present));
    CHECK(present);
    // An error of one thread does not reach another's text.
    if (i % 100 == 0) {
      snprintf(number, sizeof(number), "no map %d", me);
      FAILS(PERDURE_NOT_FOUND, number, perdure_pool_drop(pool, number));
    }
  }
  return NULL;
}

// Nothing but the counter, so that threads meet there.
static void* count(void* argument) {
  const uint64_t key = UINT64_MAX;
  int i = 0;
  (void)argument;
  for (i = 0; i < kCounts; ++i) OK(perdure_fetch_add(words, &key, sizeof(key), 1, NULL));
  return NULL;
}

static void* move_alone(void* argument) {
  perdure_iterator* it = argument;
  int i = 0;
  for (i = 0; i < 100000; ++i) {
    const perdure_status s = i % 400 == 0 ? perdure_iterator_first(it) : perdure_iterator_next(it);
    CHECK(s == PERDURE_OK || s == PERDURE_BUSY);
  }
  return NULL;
}
static void* fill_alone(void* argument) {
  perdure_batch* batch = argument;
  int i = 0;
  for (i = 0; i < 20000; ++i) {
    perdure_status s = perdure_batch_put(batch, text, "k", 1, "v", 1);
    CHECK(s == PERDURE_OK || s == PERDURE_BUSY);
    if (i % 64 == 0) s = perdure_batch_clear(batch);
    CHECK(s == PERDURE_OK || s == PERDURE_BUSY);
  }
  return NULL;
}

static void run(void* (*function)(void*), void* argument, int numbered) {
  pthread_t threads[kThreads];
  int numbers[kThreads];
  int i = 0;
  for (i = 0; i < kThreads; ++i) {
    numbers[i] = i;
    CHECK(pthread_create(&threads[i], NULL, function, numbered ? &numbers[i] : argument) == 0);
  }
  for (i = 0; i < kThreads; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(void) {
  uint64_t version = 0, value = 0, n = 0;
  bool present = false;
  int i = 0;
  perdure_iterator* it = NULL;
  perdure_batch* batch = NULL;
  pool = open_scratch();
  text = open_bytes(pool, "text", PERDURE_ENGINE_PSKIPLIST);
  words = open_map(pool, "words", PERDURE_ENGINE_DEFAULT, PERDURE_KEY_U64, 8);
  OK(put_text(text, "n", "0"));
  OK(perdure_tag(text, &version));
  OK(perdure_snapshot_open(text, version, &snapshot));
  run(work, NULL, 1);
  OK(perdure_u64_get(words, 0, &value, &present));
  CHECK(present && value == kThreads * kRounds);
  CHECK(has_text(text, "n", "8000"));
  OK(perdure_count(words, NULL, &n));
  CHECK(n == 1 + kThreads * kRounds);
  run(count, NULL, 0);
  OK(perdure_u64_get(words, UINT64_MAX, &value, &present));
  CHECK(value == kThreads * kCounts);

  for (i = 0; i < 1000; ++i) {
    char key[16];
    snprintf(key, sizeof(key), "key %d", i);
    OK(put_text(text, key, key));
  }
  OK(put_text(text, "k", "v"));
  OK(perdure_iterator_open(text, NULL, &it));
  run(move_alone, it, 0);
  OK(perdure_iterator_first(it));  // it still works
  CHECK(memcmp(perdure_iterator_key(it, NULL), "k", 1) == 0);
  perdure_iterator_close(it);
  OK(perdure_batch_create(&batch));
  run(fill_alone, batch, 0);
  OK(perdure_batch_commit(batch));
  perdure_batch_destroy(batch);

  perdure_snapshot_close(snapshot);
  perdure_map_close(text);
  perdure_map_close(words);
  close_scratch(pool);
  return 0;
}
