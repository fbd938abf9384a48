// test: valgrind
// Walks and iterators, on every engine, from the contract in perdure/c.h.
#include "c/check.h"

typedef struct {
  char text[256];
  int stop_after;  // 0: never
  int calls;
} trace;

static bool note(void* context, const void* key, size_t key_size, const void* value,
                 size_t value_size) {
  trace* t = context;
  CHECK(value_size == key_size + 1 && memcmp(key, value, key_size) == 0);
  strncat(t->text, key, key_size);
  strcat(t->text, " ");
  return ++t->calls != t->stop_after;
}

// What a range visits: by callback, by iterator, and counted.
static void visits(perdure_map* map, const perdure_range* range, const char* wanted) {
  trace t = {"", 0, 0};
  trace other = {"", 0, 0};
  uint64_t visited = 77, count = 77;
  perdure_iterator* it = NULL;
  size_t key_size = 0, value_size = 0;
  OK(perdure_scan(map, range, note, &t, &visited));
  if (strcmp(t.text, wanted) != 0) fprintf(stderr, "'%s', not '%s'\n", t.text, wanted);
  CHECK(strcmp(t.text, wanted) == 0 && visited == (uint64_t)t.calls);
  OK(perdure_count(map, range, &count));
  CHECK(count == visited);
  for (OK(perdure_iterator_open(map, range, &it)); perdure_iterator_valid(it);
       OK(perdure_iterator_next(it))) {
    const void* key = perdure_iterator_key(it, &key_size);
    const void* value = perdure_iterator_value(it, &value_size);
    note(&other, key, key_size, value, value_size);
  }
  OK(perdure_iterator_status(it));
  CHECK(perdure_iterator_key(it, &key_size) == NULL && key_size == 0);
  CHECK(perdure_iterator_value(it, NULL) == NULL);
  CHECK(strcmp(other.text, wanted) == 0);
  perdure_iterator_close(it);
}

static perdure_range range_of(const char* from, const char* to, const char* prefix) {
  perdure_range range = PERDURE_RANGE_INIT;
  range.from = from;
  range.from_size = from != NULL ? strlen(from) : 0;
  range.to = to;
  range.to_size = to != NULL ? strlen(to) : 0;
  range.prefix = prefix;
  range.prefix_size = prefix != NULL ? strlen(prefix) : 0;
  return range;
}

static void ordered(perdure_map* map) {
  perdure_range range = PERDURE_RANGE_INIT;
  perdure_iterator* it = NULL;
  uint64_t n = 0;
  trace t = {"", 2, 0};
  visits(map, NULL, "a ab abc b ba c ");
  visits(map, &range, "a ab abc b ba c ");
  range = range_of("ab", "ba", NULL);
  visits(map, &range, "ab abc b ");
  range.flags = PERDURE_REVERSE;
  visits(map, &range, "b abc ab ");
  range.limit = 2;
  visits(map, &range, "b abc ");
  range = range_of(NULL, NULL, "ab");
  visits(map, &range, "ab abc ");
  range = range_of("abc", NULL, "ab");
  visits(map, &range, "abc ");
  range = range_of(NULL, "", NULL);  // the empty key is the least one
  visits(map, &range, "");
  range = range_of("b", "a", NULL);
  visits(map, &range, "");

  OK(perdure_scan(map, NULL, note, &t, &n));
  CHECK(n == 2 && strcmp(t.text, "a ab ") == 0);
  OK(perdure_scan(map, NULL, note, &t, NULL));

  // Moves.
  range = range_of("ab", "c", NULL);
  OK(perdure_iterator_open(map, &range, &it));
#define IS(text) CHECK(strncmp(perdure_iterator_key(it, NULL), text, strlen(text)) == 0)
  IS("ab");
  OK(perdure_iterator_last(it));
  IS("ba");
  OK(perdure_iterator_prev(it));
  IS("b");
  OK(perdure_iterator_seek(it, "abb", 3));
  IS("abc");
  OK(perdure_iterator_seek(it, "a", 1));
  IS("ab");
  OK(perdure_iterator_seek(it, "c", 1));
  CHECK(!perdure_iterator_valid(it));
  OK(perdure_iterator_next(it));
  CHECK(!perdure_iterator_valid(it));
  OK(perdure_iterator_first(it));
  IS("ab");
  OK(perdure_iterator_prev(it));
  CHECK(!perdure_iterator_valid(it));
  perdure_iterator_close(it);

  INVALID("flags", (range.flags = 2, perdure_count(map, &range, &n)));
  INVALID("flags", (range.flags = 0, range.reserved = 1, perdure_count(map, &range, &n)));
  range = range_of("ab", "b", NULL);
  INVALID("range is NULL", perdure_erase_range(map, NULL, &n));
  OK(perdure_erase_range(map, &range, &n));
  CHECK(n == 2);
  visits(map, NULL, "a b ba c ");
  range = range_of(NULL, NULL, "b");
  OK(perdure_erase_range(map, &range, NULL));
  visits(map, NULL, "a c ");
}

static void not_ordered(perdure_map* map) {
  perdure_range range = PERDURE_RANGE_INIT;
  perdure_iterator* it = NULL;
  uint64_t n = 0;
  trace t = {"", 0, 0};
  FAILS(PERDURE_UNSUPPORTED, "order", perdure_scan(map, NULL, note, &t, &n));
  FAILS(PERDURE_UNSUPPORTED, "order", perdure_count(map, NULL, &n));
  FAILS(PERDURE_UNSUPPORTED, "order", perdure_erase_range(map, &range, &n));
  FAILS(PERDURE_UNSUPPORTED, "order", perdure_iterator_open(map, NULL, &it));
  CHECK(it == NULL && !perdure_iterator_valid(it));
}

static void every_engine(perdure_pool* pool) {
  static const char* const keys[] = {"b", "abc", "a", "c", "ab", "ba"};
  int engine = 0;
  int opened = 0;
  for (engine = 1; engine < 64; ++engine) {
    const char* name = perdure_engine_name((perdure_engine)engine);
    perdure_map_info info;
    perdure_map* map = name != NULL ? open_bytes(pool, name, (perdure_engine)engine) : NULL;
    trace t = {"", 0, 0};
    uint64_t n = 0;
    size_t i = 0;
    if (map == NULL) continue;
    ++opened;
    info.struct_size = sizeof(info);
    for (i = 0; i < 6; ++i) {
      char value[8];
      snprintf(value, sizeof(value), "%s!", keys[i]);
      OK(put_text(map, keys[i], value));
    }
    OK(perdure_for_each(map, note, &t, &n));
    CHECK(n == 6 && strlen(t.text) == 17 - 1);
    t.stop_after = t.calls + 2;
    OK(perdure_for_each(map, note, &t, &n));
    CHECK(n == 2);
    OK(perdure_map_get_info(map, &info));
    CHECK(info.engine == (perdure_engine)engine);
    if (engine <= PERDURE_ENGINE_PSKIPLIST) {
      CHECK(info.ordered == (engine != PERDURE_ENGINE_LEVEL && engine != PERDURE_ENGINE_CLEVEL));
      CHECK(info.versioned == (engine == PERDURE_ENGINE_PSKIPLIST));
    }
    (info.ordered ? ordered : not_ordered)(map);
    perdure_map_close(map);
  }
  CHECK(opened >= PERDURE_ENGINE_PSKIPLIST);
}

// More entries than a batch of an iterator, in both directions, with integers.
static void long_walks(perdure_pool* pool) {
  perdure_map* map = open_map(pool, "long", PERDURE_ENGINE_DEFAULT, PERDURE_KEY_I32, 4);
  perdure_range range = PERDURE_RANGE_INIT;
  perdure_iterator* it = NULL;
  const int32_t from = -100, to = 100;
  int32_t i = 0;
  uint64_t n = 0;
  for (i = -1000; i < 1000; ++i) OK(perdure_put(map, &i, sizeof(i), &i, sizeof(i), NULL));
  OK(perdure_iterator_open(map, NULL, &it));
  for (i = -1000; i < 1000; ++i, OK(perdure_iterator_next(it))) {
    CHECK(*(const int32_t*)perdure_iterator_key(it, NULL) == i);
  }
  CHECK(!perdure_iterator_valid(it));
  OK(perdure_iterator_last(it));
  for (i = 999; i >= -1000; --i, OK(perdure_iterator_prev(it))) {
    CHECK(*(const int32_t*)perdure_iterator_value(it, NULL) == i);
  }
  perdure_iterator_close(it);
  range.from = &from;
  range.from_size = sizeof(from);
  range.to = &to;
  range.to_size = sizeof(to);
  OK(perdure_count(map, &range, &n));
  CHECK(n == 200);
  range.to_size = 2;
  INVALID("an integer of 4 bytes", perdure_count(map, &range, &n));
  range.to_size = sizeof(to);
  range.prefix = "x";
  range.prefix_size = 1;
  INVALID("no prefix", perdure_count(map, &range, &n));
  perdure_map_close(map);
}

int main(void) {
  perdure_pool* pool = open_scratch();
  every_engine(pool);
  long_walks(pool);
  close_scratch(pool);
  return 0;
}
