// test: valgrind
// Versions, snapshots and batches, from the contract in perdure/c.h.
#include "c/check.h"

static bool note_history(void* context, uint64_t version, const void* value, size_t size) {
  char* text = context;
  (void)version;
  if (value == NULL) {
    strcat(text, "- ");
  } else {
    strncat(text, value, size);
    strcat(text, " ");
  }
  return true;
}
static bool note_difference(void* context, const void* key, size_t key_size, const void* before,
                            size_t before_size, const void* after, size_t after_size) {
  char line[64];
  snprintf(line, sizeof(line), "%.*s:%.*s>%.*s ", (int)key_size, (const char*)key,
           before == NULL ? 1 : (int)before_size, before == NULL ? "-" : (const char*)before,
           after == NULL ? 1 : (int)after_size, after == NULL ? "-" : (const char*)after);
  strcat(context, line);
  return true;
}
static bool count_entries(void* context, const void* key, size_t key_size, const void* value,
                          size_t value_size) {
  (void)key, (void)key_size, (void)value, (void)value_size;
  ++*(int*)context;
  return true;
}
static void copy_value(void* context, const void* value, size_t size) {
  strncat(context, value, size);
}

static void versions(perdure_pool* pool) {
  perdure_map* map = open_bytes(pool, "v", PERDURE_ENGINE_PSKIPLIST);
  perdure_snapshot* one = NULL;
  perdure_snapshot* last = NULL;
  perdure_iterator* it = NULL;
  perdure_range range = PERDURE_RANGE_INIT;
  uint64_t v1 = 0, v2 = 0, first = 0, newest = 0, n = 0;
  char text[256] = "", small[2];
  void* value = NULL;
  size_t size = 0;
  bool present = false;
  int entries = 0;

  OK(perdure_versions(map, &first, &newest));
  CHECK(newest < first);
  INVALID("", perdure_snapshot_open(map, PERDURE_LAST_VERSION, &one));
  CHECK(one == NULL);
  OK(put_text(map, "a", "1"));
  OK(put_text(map, "b", "1"));
  OK(perdure_tag(map, &v1));
  OK(put_text(map, "a", "22"));
  OK(perdure_erase(map, "b", 1, NULL));
  OK(put_text(map, "c", "2"));
  OK(perdure_tag(map, &v2));
  CHECK(v2 > v1);
  OK(put_text(map, "a", "3"));
  OK(perdure_versions(map, &first, &newest));
  CHECK(first <= v1 && newest == v2);

  OK(perdure_get_at(map, v1, "a", 1, &value, &size));
  CHECK(size == 1 && strcmp(value, "1") == 0);
  perdure_free(value);
  OK(perdure_get_at(map, v2, "b", 1, &value, &size));
  CHECK(value == NULL && size == 0);
  INVALID("", perdure_get_at(map, v2 + 5, "b", 1, &value, NULL));

  OK(perdure_history(map, "a", 1, note_history, text, &n));
  CHECK(n == 3 && strcmp(text, "1 22 3 ") == 0);
  text[0] = '\0';
  OK(perdure_history(map, "b", 1, note_history, text, NULL));
  CHECK(strcmp(text, "1 - ") == 0);
  text[0] = '\0';
  OK(perdure_diff(map, v1, v2, NULL, note_difference, text, &n));
  CHECK(n == 3 && strcmp(text, "a:1>22 b:1>- c:->2 ") == 0);
  range.from = "b";
  range.from_size = 1;
  text[0] = '\0';
  OK(perdure_diff(map, v1, v2, &range, note_difference, text, NULL));
  CHECK(strcmp(text, "b:1>- c:->2 ") == 0);

  OK(perdure_snapshot_open(map, v1, &one));
  OK(perdure_snapshot_open(map, PERDURE_LAST_VERSION, &last));
  CHECK(perdure_snapshot_version(one) == v1 && perdure_snapshot_version(last) == v2);
  OK(perdure_snapshot_contains(one, "b", 1, &present));
  CHECK(present);
  OK(perdure_snapshot_contains(last, "b", 1, &present));
  CHECK(!present);
  OK(perdure_snapshot_get(last, "a", 1, &value, &size));
  CHECK(size == 2 && strcmp(value, "22") == 0);
  perdure_free(value);
  FAILS(PERDURE_TRUNCATED, "", perdure_snapshot_get_into(last, "a", 1, small, 1, &size, &present));
  CHECK(present && size == 2 && small[0] == '2');
  text[0] = '\0';
  OK(perdure_snapshot_read(one, "a", 1, copy_value, text, &present));
  CHECK(present && strcmp(text, "1") == 0);
  OK(perdure_snapshot_scan(one, NULL, count_entries, &entries, &n));
  CHECK(n == 2 && entries == 2);
  OK(perdure_snapshot_count(one, &range, &n));
  CHECK(n == 1);
  text[0] = '\0';
  OK(perdure_snapshot_history(last, "a", 1, note_history, text, &n));
  CHECK(n == 2 && strcmp(text, "1 22 ") == 0);

  // The iterator holds its version itself.
  OK(perdure_snapshot_iterate(one, NULL, &it));
  perdure_snapshot_close(one);
  OK(perdure_trim(map, v2, &first));
  CHECK(first == v1);
  CHECK(memcmp(perdure_iterator_key(it, &size), "a", 1) == 0);
  OK(perdure_iterator_next(it));
  CHECK(memcmp(perdure_iterator_key(it, &size), "b", 1) == 0);
  FAILS(PERDURE_BUSY, "", perdure_rollback(map, v1));
  perdure_snapshot_close(last);
  OK(perdure_rollback(map, v1));
  CHECK(has_text(map, "a", "1") && has_text(map, "c", NULL));
  perdure_iterator_close(it);
  OK(perdure_tag(map, &v2));
  OK(perdure_trim(map, v2, NULL));
  INVALID("", perdure_snapshot_open(map, v1, &one));
  perdure_map_close(map);

  map = open_bytes(pool, "plain", PERDURE_ENGINE_PHAST);
  FAILS(PERDURE_UNSUPPORTED, "versions", perdure_tag(map, &v1));
  FAILS(PERDURE_UNSUPPORTED, "versions", perdure_versions(map, &first, &newest));
  FAILS(PERDURE_UNSUPPORTED, "versions", perdure_snapshot_open(map, 1, &one));
  FAILS(PERDURE_UNSUPPORTED, "versions", perdure_get_at(map, 1, "a", 1, &value, NULL));
  FAILS(PERDURE_UNSUPPORTED, "versions", perdure_history(map, "a", 1, note_history, text, &n));
  FAILS(PERDURE_UNSUPPORTED, "versions",
        perdure_diff(map, 1, 2, NULL, note_difference, text, NULL));
  FAILS(PERDURE_UNSUPPORTED, "versions", perdure_trim(map, 1, NULL));
  FAILS(PERDURE_UNSUPPORTED, "versions", perdure_rollback(map, 1));
  perdure_map_close(map);
}

static void batches(perdure_pool* pool) {
  perdure_map* names = open_bytes(pool, "names", PERDURE_ENGINE_DEFAULT);
  perdure_map* sums = open_map(pool, "sums", PERDURE_ENGINE_CLEVEL, PERDURE_KEY_U64, 8);
  perdure_batch* batch = NULL;
  const uint64_t account = 7, before = 100, after = 70;
  uint64_t value = 0;
  void* text = NULL;
  size_t text_size = 0;
  bool present = false;
  OK(perdure_batch_create(&batch));
  OK(perdure_batch_commit(batch));  // of nothing
  OK(perdure_batch_require(batch, sums, &account, 8, &before, 8));
  OK(perdure_batch_require_absent(batch, names, "eve", 3));
  OK(perdure_batch_put(batch, sums, &account, 8, &after, 8));
  OK(perdure_batch_put(batch, names, "ada", 3, "x", 1));
  OK(perdure_batch_put(batch, names, "ada", 3, "y", 1));  // the last one counts
  OK(perdure_batch_get(batch, names, "ada", 3, &text, &text_size));
  CHECK(text != NULL && text_size == 1 && memcmp(text, "y", 2) == 0);
  perdure_free(text);
  OK(perdure_batch_get(batch, names, "bob", 3, &text, NULL));
  CHECK(text == NULL);
  OK(perdure_batch_erase(batch, names, "bob", 3));
  CHECK(perdure_batch_size(batch) == 6);
  OK(put_text(names, "bob", "1"));

  FAILS(PERDURE_CONFLICT, "", perdure_batch_commit(batch));
  CHECK(has_text(names, "bob", "1") && has_text(names, "ada", NULL));
  OK(perdure_u64_put(sums, account, before, NULL));
  OK(perdure_batch_commit(batch));
  CHECK(has_text(names, "bob", NULL) && has_text(names, "ada", "y"));
  OK(perdure_u64_get(sums, account, &value, &present));
  CHECK(present && value == 70);
  FAILS(PERDURE_CONFLICT, "", perdure_batch_commit(batch));  // committed again: 70 is not 100

  // A refused item is remembered: a commit must not do a part of what was asked.
  OK(perdure_batch_clear(batch));
  CHECK(perdure_batch_size(batch) == 0);
  OK(perdure_batch_put(batch, names, "cid", 3, "1", 1));
  INVALID("an integer of 8 bytes", perdure_batch_erase(batch, sums, "cid", 3));
  INVALID("an integer of 8 bytes", perdure_batch_get(batch, names, "cid", 3, &text, NULL));
  CHECK(perdure_batch_size(batch) == 1);
  INVALID("", perdure_batch_put(NULL, names, "cid", 3, "1", 1));
  INVALID("an integer of 8 bytes", perdure_batch_commit(batch));
  CHECK(has_text(names, "cid", NULL));
  OK(perdure_batch_clear(batch));
  OK(perdure_batch_commit(batch));
  perdure_batch_destroy(batch);
  perdure_map_close(names);
  perdure_map_close(sums);
}

// A batch belongs to the pool of its first map.
static void batch_of_two_pools(perdure_pool* pool) {
  char path[256];
  perdure_pool* second = NULL;
  perdure_map* here = open_bytes(pool, "here", PERDURE_ENGINE_DEFAULT);
  perdure_map* there = NULL;
  perdure_batch* batch = NULL;
  perdure_pool_options options = PERDURE_POOL_OPTIONS_INIT;
  options.max_size = 16U << 20;
  snprintf(path, sizeof(path), "%s", scratch("second"));
  OK(perdure_pool_open(path, &options, &second));
  there = open_bytes(second, "there", PERDURE_ENGINE_DEFAULT);
  OK(perdure_batch_create(&batch));
  OK(perdure_batch_put(batch, there, "a", 1, "1", 1));
  INVALID("of another pool", perdure_batch_put(batch, here, "a", 1, "1", 1));
  INVALID("of another pool", perdure_batch_commit(batch));
  OK(perdure_batch_clear(batch));
  OK(perdure_batch_put(batch, there, "a", 1, "1", 1));
  OK(perdure_pool_close(second, 0));
  INVALID("closed", perdure_batch_commit(batch));
  INVALID("closed", perdure_batch_put(batch, there, "a", 1, "1", 1));
  perdure_map_close(there);
  perdure_map_close(here);
  perdure_batch_destroy(batch);
  remove(path);
}

int main(void) {
  perdure_pool* pool = open_scratch();
  versions(pool);
  batches(pool);
  batch_of_two_pools(pool);
  close_scratch(pool);
  return 0;
}
