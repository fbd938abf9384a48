// test: valgrind
// The calls on one key and on many, from the contract in perdure/c.h.
#include "c/check.h"

static void bytes(perdure_pool* pool) {
  perdure_map* map = open_bytes(pool, NULL, PERDURE_ENGINE_DEFAULT);
  bool present = true;
  char buffer[8] = "-------";
  size_t size = 77;
  void* value = buffer;

  OK(perdure_put(map, "ada", 3, "36", 2, &present));
  CHECK(!present);
  OK(perdure_put(map, "ada", 3, "37", 2, &present));
  CHECK(present && has_text(map, "ada", "37"));
  OK(perdure_insert(map, "ada", 3, "38", 2, &present));
  CHECK(present && has_text(map, "ada", "37"));
  OK(perdure_insert(map, "bob", 3, "1", 1, &present));
  CHECK(!present && has_text(map, "bob", "1"));
  OK(perdure_update(map, "bob", 3, "2", 1, &present));
  CHECK(present && has_text(map, "bob", "2"));
  OK(perdure_update(map, "eve", 3, "2", 1, &present));
  CHECK(!present && has_text(map, "eve", NULL));
  OK(perdure_contains(map, "bob", 3, &present));
  CHECK(present);
  OK(perdure_erase(map, "bob", 3, &present));
  CHECK(present && has_text(map, "bob", NULL));
  OK(perdure_erase(map, "bob", 3, &present));
  CHECK(!present);
  OK(perdure_contains(map, "bob", 3, &present));
  CHECK(!present);

  // Absence, and an empty value.
  OK(perdure_get(map, "bob", 3, &value, &size));
  CHECK(value == NULL && size == 0);
  OK(perdure_put(map, NULL, 0, NULL, 0, NULL));
  OK(perdure_get(map, "", 0, &value, &size));
  CHECK(value != NULL && size == 0);
  perdure_free(value);
  OK(perdure_get(map, "", 0, &value, NULL));
  perdure_free(value);

  // A key and a value with NUL bytes.
  OK(perdure_put(map, "a\0b", 3, "c\0d", 3, NULL));
  OK(perdure_get(map, "a\0b", 3, &value, &size));
  CHECK(size == 3 && memcmp(value, "c\0d", 4) == 0);
  perdure_free(value);
  CHECK(has_text(map, "a", NULL));

  // Into a buffer: room, no room, none at all, absent.
  OK(put_text(map, "k", "abcdef"));
  OK(perdure_get_into(map, "k", 1, buffer, sizeof(buffer), &size, &present));
  CHECK(present && size == 6 && memcmp(buffer, "abcdef-", 8) == 0);
  OK(perdure_get_into(map, "k", 1, buffer, 6, &size, &present));
  memset(buffer, '-', 7);
  FAILS(PERDURE_TRUNCATED, "6 bytes, the buffer has 4",
        perdure_get_into(map, "k", 1, buffer, 4, &size, &present));
  CHECK(present && size == 6 && memcmp(buffer, "abcd---", 8) == 0);
  FAILS(PERDURE_TRUNCATED, "", perdure_get_into(map, "k", 1, NULL, 0, &size, &present));
  CHECK(present && size == 6);
  OK(perdure_get_into(map, "absent", 6, buffer, 4, &size, &present));
  CHECK(!present && size == 0);
  OK(perdure_get_into(map, "", 0, NULL, 0, &size, &present));
  CHECK(present && size == 0);
  perdure_map_close(map);
}

static void add_to_buffer(void* context, const void* value, size_t size) {
  CHECK(value != NULL);
  strncat(context, value, size);
}

static void views(perdure_pool* pool) {
  perdure_map* map = open_bytes(pool, NULL, PERDURE_ENGINE_DEFAULT);
  char seen[64] = "";
  bool present = false;
  OK(put_text(map, "x", "view"));
  OK(perdure_read(map, "x", 1, add_to_buffer, seen, &present));
  CHECK(present && strcmp(seen, "view") == 0);
  OK(perdure_read(map, "y", 1, add_to_buffer, seen, &present));
  CHECK(!present && strcmp(seen, "view") == 0);
  OK(perdure_put(map, "empty", 5, "", 0, NULL));
  OK(perdure_read(map, "empty", 5, add_to_buffer, seen, NULL));
  perdure_map_close(map);
}

static perdure_change append(void* context, const void* before, size_t size, perdure_bytes* after) {
  char* text = context;
  if (before == NULL) {
    strcpy(text, "new");
  } else if (size >= 5) {
    return PERDURE_CHANGE_ERASE;
  } else {
    memcpy(text, before, size);
    strcpy(text + size, "+");
  }
  after->data = text;
  after->size = strlen(text);
  return PERDURE_CHANGE_PUT;
}
static perdure_change keep(void* context, const void* before, size_t size, perdure_bytes* after) {
  (void)before, (void)size, (void)after;
  *(int*)context += 1;
  return PERDURE_CHANGE_NONE;
}
static perdure_change unknown(void* context, const void* before, size_t size,
                              perdure_bytes* after) {
  (void)context, (void)before, (void)size, (void)after;
  return (perdure_change)17;
}

// Another mutation comes in between the first look and the change.
typedef struct {
  perdure_map* map;
  int calls;
} racing;
static perdure_change race(void* context, const void* before, size_t size, perdure_bytes* after) {
  racing* r = context;
  if (++r->calls == 1) OK(put_text(r->map, "race", "other"));
  CHECK(r->calls == 1 ? before == NULL : size == 5 && memcmp(before, "other", 5) == 0);
  after->data = "mine";
  after->size = 4;
  return PERDURE_CHANGE_PUT;
}

static void look_and_change(perdure_pool* pool) {
  perdure_map* map = open_bytes(pool, "changes", PERDURE_ENGINE_DEFAULT);
  char text[32];
  bool done = true;
  int calls = 0;
  racing r = {map, 0};

  OK(perdure_modify(map, "m", 1, append, text, &done));
  CHECK(!done && has_text(map, "m", "new"));
  OK(perdure_modify(map, "m", 1, append, text, &done));
  CHECK(done && has_text(map, "m", "new+"));
  OK(perdure_modify(map, "m", 1, append, text, NULL));
  OK(perdure_modify(map, "m", 1, append, text, &done));
  CHECK(done && has_text(map, "m", NULL));
  OK(perdure_modify(map, "m", 1, keep, &calls, &done));
  CHECK(!done && calls == 1);
  INVALID("17", perdure_modify(map, "m", 1, unknown, NULL, &done));
  OK(perdure_modify(map, "race", 4, race, &r, &done));
  CHECK(done && r.calls == 2 && has_text(map, "race", "mine"));

  // Absent, and the empty value, are two things.
  OK(perdure_compare_exchange(map, "c", 1, "", 0, "x", 1, &done));
  CHECK(!done && has_text(map, "c", NULL));
  OK(perdure_compare_exchange(map, "c", 1, NULL, 0, "", 0, &done));
  CHECK(done && has_text(map, "c", ""));
  OK(perdure_compare_exchange(map, "c", 1, NULL, 0, "x", 1, &done));
  CHECK(!done && has_text(map, "c", ""));
  OK(perdure_compare_exchange(map, "c", 1, "", 0, "x", 1, &done));
  CHECK(done && has_text(map, "c", "x"));
  OK(perdure_compare_exchange(map, "c", 1, "y", 1, NULL, 0, &done));
  CHECK(!done && has_text(map, "c", "x"));
  OK(perdure_compare_exchange(map, "c", 1, "x", 1, NULL, 0, &done));
  CHECK(done && has_text(map, "c", NULL));
  perdure_map_close(map);
}

// An integer of each width and sign: order, counters, and the extremes.
#define INTEGERS(type, key_type, least, most)                                                \
  do {                                                                                       \
    perdure_map* map = open_map(pool, #key_type, PERDURE_ENGINE_DEFAULT, key_type, 8);       \
    const type keys[] = {(least), 0, 5, (most)};                                             \
    uint64_t value = 0;                                                                      \
    size_t at = 0, n = 0;                                                                    \
    perdure_iterator* it = NULL;                                                             \
    for (value = 0; value < 4; ++value) {                                                    \
      OK(perdure_put(map, &keys[value], sizeof(type), &value, sizeof(value), NULL));         \
    }                                                                                        \
    OK(perdure_iterator_open(map, NULL, &it));                                               \
    for (at = (least) == 0 ? 1 : 0; perdure_iterator_valid(it); perdure_iterator_next(it)) { \
      CHECK(memcmp(perdure_iterator_key(it, &n), &keys[at], sizeof(type)) == 0);             \
      CHECK(n == sizeof(type) && *(const uint64_t*)perdure_iterator_value(it, &n) == at);    \
      CHECK(n == sizeof(uint64_t));                                                          \
      ++at;                                                                                  \
    }                                                                                        \
    CHECK(at == 4);                                                                          \
    perdure_iterator_close(it);                                                              \
    INVALID("an integer of", perdure_put(map, keys, sizeof(type) + 1, &value, 8, NULL));     \
    INVALID("an integer of", perdure_put(map, keys, sizeof(type) - 1, &value, 8, NULL));     \
    INVALID("has 8 bytes", perdure_put(map, keys, sizeof(type), &value, 7, NULL));           \
    perdure_map_close(map);                                                                  \
  } while (0)

static void integers(perdure_pool* pool) {
  INTEGERS(uint8_t, PERDURE_KEY_U8, 0, UINT8_MAX);
  INTEGERS(uint16_t, PERDURE_KEY_U16, 0, UINT16_MAX);
  INTEGERS(uint32_t, PERDURE_KEY_U32, 0, UINT32_MAX);
  INTEGERS(uint64_t, PERDURE_KEY_U64, 0, UINT64_MAX);
  INTEGERS(int8_t, PERDURE_KEY_I8, INT8_MIN, INT8_MAX);
  INTEGERS(int16_t, PERDURE_KEY_I16, INT16_MIN, INT16_MAX);
  INTEGERS(int32_t, PERDURE_KEY_I32, INT32_MIN, INT32_MAX);
  INTEGERS(int64_t, PERDURE_KEY_I64, INT64_MIN, INT64_MAX);
}

// Values of 1 to 15 bytes, and array keys of 1 to 16.
static void fixed(perdure_pool* pool, perdure_engine engine) {
  static const unsigned char data[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  uint32_t n = 0;
  for (n = 1; n <= 16; ++n) {
    perdure_map_options options = PERDURE_MAP_OPTIONS_INIT;
    perdure_map_info info;
    perdure_map* map = NULL;
    void* value = NULL;
    size_t size = 0;
    char name[32];
    const uint32_t value_size = n < 16 ? n : 15;
    snprintf(name, sizeof(name), "fixed%u.%d", n, engine);
    options.engine = engine;
    options.key_type = PERDURE_KEY_ARRAY;
    options.key_size = n;
    options.value_type = PERDURE_VALUE_FIXED;
    options.value_size = value_size;
    OK(perdure_map_open(pool, name, &options, &map));
    OK(perdure_put(map, data, n, data, value_size, NULL));
    OK(perdure_get(map, data, n, &value, &size));
    CHECK(size == value_size && memcmp(value, data, size) == 0);
    perdure_free(value);
    INVALID("an array of", perdure_erase(map, data, n - 1, NULL));
    info.struct_size = sizeof(info);
    OK(perdure_map_get_info(map, &info));
    CHECK(info.key_type == PERDURE_KEY_ARRAY && info.key_size == n && info.engine == engine);
    CHECK(info.value_type == PERDURE_VALUE_FIXED && info.value_size == value_size);
    CHECK(strcmp(info.name, name) == 0);
    perdure_map_close(map);
    OK(perdure_pool_drop(pool, name));
  }
}

static void counters(perdure_pool* pool) {
  uint32_t size = 0;
  for (size = 1; size <= 8; ++size) {
    const uint64_t most = size == 8 ? UINT64_MAX : ((uint64_t)1 << (8 * size)) - 1;
    perdure_map* map = NULL;
    uint64_t before = 99;
    char name[16];
    snprintf(name, sizeof(name), "count%u", size);
    map = open_map(pool, name, PERDURE_ENGINE_DEFAULT, PERDURE_KEY_BYTES, size);
    OK(perdure_fetch_add(map, "hits", 4, 3, &before));
    CHECK(before == 0);
    OK(perdure_fetch_add(map, "hits", 4, (uint64_t)-4, &before));
    CHECK(before == 3);
    OK(perdure_fetch_add(map, "hits", 4, 2, &before));
    CHECK(before == most);
    OK(perdure_fetch_add(map, "hits", 4, 0, NULL));
    OK(perdure_fetch_add(map, "hits", 4, 0, &before));
    CHECK(before == 1);
    perdure_map_close(map);
  }
}

static void words(perdure_pool* pool) {
  perdure_map* map = open_map(pool, "words", PERDURE_ENGINE_DEFAULT, PERDURE_KEY_U64, 8);
  uint64_t keys[200], values[200], value = 9;
  bool present[200], one = true;
  size_t i = 0, found = 0;
  OK(perdure_u64_put(map, 1, 10, &one));
  CHECK(!one);
  OK(perdure_u64_put(map, 1, 11, &one));
  CHECK(one);
  OK(perdure_u64_insert(map, 1, 12, &one));
  CHECK(one);
  OK(perdure_u64_update(map, 2, 12, &one));
  CHECK(!one);
  OK(perdure_u64_get(map, 1, &value, &one));
  CHECK(one && value == 11);
  OK(perdure_u64_get(map, 2, &value, &one));
  CHECK(!one && value == 0);
  OK(perdure_u64_get(map, 1, NULL, &one));
  CHECK(one);
  OK(perdure_u64_erase(map, 1, &one));
  CHECK(one);
  OK(perdure_u64_erase(map, 1, NULL));

  for (i = 0; i < 200; ++i) keys[i] = i * 3, values[i] = i;
  OK(perdure_u64_put_many(map, keys, values, 200, present));
  for (i = 0; i < 200; ++i) CHECK(!present[i]);
  for (i = 0; i < 200; ++i) keys[i] = i * 2, values[i] = 7;
  OK(perdure_u64_get_many(map, keys, 200, values, present, &found));
  CHECK(found == 67);
  for (i = 0; i < 200; ++i) {
    CHECK(present[i] == (i % 3 == 0) && values[i] == (i % 3 == 0 ? i * 2 / 3 : 0));
  }
  OK(perdure_u64_erase_many(map, keys, 200, present));
  for (i = 0; i < 200; ++i) CHECK(present[i] == (i % 3 == 0));
  OK(perdure_u64_get_many(map, keys, 200, values, present, NULL));
  for (i = 0; i < 200; ++i) CHECK(!present[i]);
  OK(perdure_u64_put_many(map, NULL, NULL, 0, NULL));
  OK(perdure_u64_get_many(map, NULL, 0, NULL, NULL, &found));
  CHECK(found == 0);
  perdure_map_close(map);
}

static void sum_indices(void* context, size_t index, const void* value, size_t size) {
  CHECK(size == 4 && memcmp(value, "v", 1) == 0);
  *(size_t*)context += index;
}

static void many(perdure_pool* pool) {
  enum { kCount = 150 };
  perdure_map* map = open_bytes(pool, "many", PERDURE_ENGINE_DEFAULT);
  static char texts[kCount][8];
  perdure_mutation mutations[kCount];
  perdure_result results[kCount];
  perdure_bytes keys[kCount];
  perdure_buffer values[kCount];
  size_t i = 0, found = 0, sum = 0;
  for (i = 0; i < kCount; ++i) {
    snprintf(texts[i], sizeof(texts[i]), "v%03d", (int)i);
    mutations[i].kind = i % 2 == 0 ? PERDURE_PUT : PERDURE_UPDATE;
    mutations[i].key.data = mutations[i].value.data = texts[i];
    mutations[i].key.size = mutations[i].value.size = 4;
  }
  mutations[3].kind = (perdure_mutation_kind)9;
  mutations[5].key.data = NULL;
  mutations[70].kind = PERDURE_INSERT;
  INVALID("kind 9 of mutation 3", perdure_write_many(map, mutations, kCount, results));
  for (i = 0; i < kCount; ++i) {
    CHECK(results[i].status == (i == 3 || i == 5 ? PERDURE_INVALID_ARGUMENT : PERDURE_OK));
    CHECK(!results[i].present);  // not even of the updates
  }
  for (i = 0; i < kCount; ++i) {
    keys[i].data = texts[i];
    keys[i].size = 4;
  }
  OK(perdure_get_many(map, keys, kCount, values, &found));
  CHECK(found == kCount / 2);
  for (i = 0; i < kCount; ++i) {
    CHECK((values[i].data != NULL) == (i % 2 == 0));
    CHECK(i % 2 != 0 || (values[i].size == 4 && memcmp(values[i].data, texts[i], 5) == 0));
    perdure_free(values[i].data);
  }
  OK(perdure_read_many(map, keys, kCount, sum_indices, &sum, &found));
  CHECK(found == kCount / 2 && sum == 75 * 74);
  keys[100].size = 70000;
  INVALID("70000", perdure_get_many(map, keys, kCount, values, &found));
  CHECK(found == 0);
  for (i = 0; i < kCount; ++i) CHECK(values[i].data == NULL);

  // Mutations of one key in their order, and an erase, whose value is not looked at.
  for (i = 0; i < 4; ++i) {
    mutations[i].key.data = "k";
    mutations[i].key.size = 1;
  }
  mutations[0].kind = PERDURE_INSERT;
  mutations[1].kind = PERDURE_ERASE;
  mutations[1].value.data = NULL;
  mutations[2].kind = PERDURE_UPDATE;
  mutations[3].kind = PERDURE_PUT;
  OK(perdure_write_many(map, mutations, 4, results));
  CHECK(!results[0].present && results[1].present && !results[2].present && !results[3].present);
  OK(perdure_write_many(map, mutations, 4, NULL));
  CHECK(has_text(map, "k", "v003"));
  OK(perdure_write_many(map, NULL, 0, NULL));
  perdure_map_close(map);
}

int main(void) {
  perdure_pool* pool = open_scratch();
  bytes(pool);
  views(pool);
  look_and_change(pool);
  integers(pool);
  fixed(pool, PERDURE_ENGINE_LEVEL);  // arrays inline
  fixed(pool, PERDURE_ENGINE_PHAST);  // arrays as byte strings
  counters(pool);
  words(pool);
  many(pool);
  close_scratch(pool);
  return 0;
}
