// Bad input gets a clear error, and changes nothing. It does not say `valgrind`: a child of fork
// leaves its parent's objects alone.
#include <sys/wait.h>

#include "c/check.h"

static bool never_entry(void* context, const void* key, size_t key_size, const void* value,
                        size_t value_size) {
  (void)context, (void)key, (void)key_size, (void)value, (void)value_size;
  CHECK(!"called");
  return false;
}
static void never_value(void* context, const void* value, size_t size) {
  (void)context, (void)value, (void)size;
  CHECK(!"called");
}
static void never_indexed(void* context, size_t i, const void* value, size_t size) {
  (void)context, (void)i, (void)value, (void)size;
  CHECK(!"called");
}
static bool never_history(void* context, uint64_t version, const void* value, size_t size) {
  (void)context, (void)version, (void)value, (void)size;
  CHECK(!"called");
  return false;
}
static bool never_difference(void* context, const void* key, size_t key_size, const void* before,
                             size_t before_size, const void* after, size_t after_size) {
  (void)context, (void)key, (void)key_size, (void)before, (void)before_size, (void)after;
  (void)after_size;
  CHECK(!"called");
  return false;
}
static perdure_change never_change(void* context, const void* before, size_t size,
                                   perdure_bytes* after) {
  (void)context, (void)before, (void)size, (void)after;
  CHECK(!"called");
  return PERDURE_CHANGE_NONE;
}
static perdure_change put_change(void* context, const void* before, size_t size,
                                 perdure_bytes* after) {
  (void)context, (void)before, (void)size;
  after->data = "v";
  after->size = 1;
  return PERDURE_CHANGE_PUT;
}
static void never_read(void* context) {
  (void)context;
  CHECK(!"called");
}
static bool never_info(void* context, const perdure_map_info* info) {
  (void)context, (void)info;
  CHECK(!"called");
  return false;
}

// Every call on a map that cannot be used: NULL, of a closed pool, dropped, of the parent.
static void all_of_map(perdure_map* map, const char* why) {
  perdure_range range = PERDURE_RANGE_INIT;
  perdure_mutation mutation = {PERDURE_PUT, {"k", 1}, {"v", 1}};
  perdure_result result = {PERDURE_OK, true};
  perdure_bytes key = {"k", 1};
  perdure_buffer buffer = {&key, 4};
  perdure_map_info info;
  perdure_map_stats stats;
  perdure_iterator* it = (perdure_iterator*)&key;
  perdure_snapshot* snapshot = (perdure_snapshot*)&key;
  perdure_batch* batch = NULL;
  uint64_t word = 7, words = 7;
  bool present = true;
  void* value = &key;
  size_t size = 7;
  info.struct_size = sizeof(info);
  stats.struct_size = sizeof(stats);
  info.versioned = 7;
  stats.partial = 7;
#define REFUSED(call) INVALID(why, call)
  REFUSED(perdure_map_get_info(map, &info));
  REFUSED(perdure_map_get_stats(map, &stats));
  REFUSED(perdure_size(map, &words));
  CHECK(info.versioned == 0 && stats.partial == 0 && words == 0);
  REFUSED(perdure_put(map, "k", 1, "v", 1, &present));
  CHECK(!present);
  REFUSED(perdure_insert(map, "k", 1, "v", 1, NULL));
  REFUSED(perdure_update(map, "k", 1, "v", 1, NULL));
  REFUSED(perdure_erase(map, "k", 1, (present = true, &present)));
  CHECK(!present);
  REFUSED(perdure_contains(map, "k", 1, (present = true, &present)));
  CHECK(!present);
  REFUSED(perdure_get(map, "k", 1, &value, &size));
  CHECK(value == NULL && size == 0);
  size = 7;
  REFUSED(perdure_get_into(map, "k", 1, &word, 8, &size, (present = true, &present)));
  CHECK(size == 0 && !present && word == 7);
  REFUSED(perdure_read(map, "k", 1, never_value, NULL, &present));
  REFUSED(perdure_compare_exchange(map, "k", 1, NULL, 0, "v", 1, (present = true, &present)));
  CHECK(!present);
  REFUSED(perdure_modify(map, "k", 1, never_change, NULL, NULL));
  REFUSED(perdure_fetch_add(map, "k", 1, 1, &word));
  CHECK(word == 0);
  REFUSED(perdure_u64_put(map, 1, 1, NULL));
  REFUSED(perdure_u64_insert(map, 1, 1, NULL));
  REFUSED(perdure_u64_update(map, 1, 1, NULL));
  REFUSED(perdure_u64_erase(map, 1, NULL));
  REFUSED(perdure_u64_get(map, 1, &words, &present));
  CHECK(words == 0);
  REFUSED(perdure_u64_get_many(map, &word, 1, &words, &present, &size));
  REFUSED(perdure_u64_put_many(map, &word, &words, 1, &present));
  REFUSED(perdure_u64_erase_many(map, &word, 1, &present));
  REFUSED(perdure_get_many(map, &key, 1, &buffer, &size));
  CHECK(buffer.data == NULL);
  REFUSED(perdure_read_many(map, &key, 1, never_indexed, NULL, NULL));
  REFUSED(perdure_write_many(map, &mutation, 1, &result));
  CHECK(result.status == PERDURE_INVALID_ARGUMENT && !result.present);
  REFUSED(perdure_for_each(map, never_entry, NULL, &word));
  REFUSED(perdure_scan(map, NULL, never_entry, NULL, NULL));
  REFUSED(perdure_count(map, &range, &word));
  REFUSED(perdure_erase_range(map, &range, NULL));
  REFUSED(perdure_iterator_open(map, NULL, &it));
  CHECK(it == NULL);
  REFUSED(perdure_tag(map, &word));
  REFUSED(perdure_versions(map, &word, &words));
  REFUSED(perdure_get_at(map, 1, "k", 1, &value, NULL));
  REFUSED(perdure_history(map, "k", 1, never_history, NULL, NULL));
  REFUSED(perdure_diff(map, 1, 2, NULL, never_difference, NULL, NULL));
  REFUSED(perdure_trim(map, 1, NULL));
  REFUSED(perdure_rollback(map, 1));
  REFUSED(perdure_snapshot_open(map, 1, &snapshot));
  CHECK(snapshot == NULL);
  OK(perdure_batch_create(&batch));
  REFUSED(perdure_batch_put(batch, map, "k", 1, "v", 1));
  REFUSED(perdure_batch_erase(batch, map, "k", 1));
  REFUSED(perdure_batch_require(batch, map, "k", 1, "v", 1));
  REFUSED(perdure_batch_require_absent(batch, map, "k", 1));
  REFUSED(perdure_batch_get(batch, map, "k", 1, &value, NULL));
  perdure_batch_destroy(batch);
}

static void all_of_iterator(perdure_iterator* it, const char* why) {
  size_t size = 7;
  CHECK(!perdure_iterator_valid(it));
  CHECK(perdure_iterator_key(it, &size) == NULL && size == 0);
  CHECK(perdure_iterator_value(it, &size) == NULL);
  REFUSED(perdure_iterator_status(it));
  REFUSED(perdure_iterator_next(it));
  REFUSED(perdure_iterator_prev(it));
  REFUSED(perdure_iterator_first(it));
  REFUSED(perdure_iterator_last(it));
  REFUSED(perdure_iterator_seek(it, "k", 1));
}

// It goes on in what it has copied, and enters the map no more.
static void all_of_ended_iterator(perdure_iterator* it, const char* why) {
  size_t size = 7;
  CHECK(perdure_iterator_key(it, &size) != NULL && size == 1);
  while (perdure_iterator_valid(it)) (void)perdure_iterator_next(it);
  REFUSED(perdure_iterator_first(it));
  REFUSED(perdure_iterator_last(it));
  REFUSED(perdure_iterator_seek(it, "k", 1));
  REFUSED(perdure_iterator_status(it));
  CHECK(!perdure_iterator_valid(it) && perdure_iterator_value(it, &size) == NULL && size == 0);
}

static void all_of_snapshot(perdure_snapshot* snapshot, const char* why) {
  bool present = true;
  void* value = &present;
  uint64_t n = 7;
  perdure_iterator* it = NULL;
  REFUSED(perdure_snapshot_contains(snapshot, "k", 1, &present));
  REFUSED(perdure_snapshot_get(snapshot, "k", 1, &value, NULL));
  CHECK(value == NULL);
  REFUSED(perdure_snapshot_get_into(snapshot, "k", 1, NULL, 0, NULL, &present));
  REFUSED(perdure_snapshot_read(snapshot, "k", 1, never_value, NULL, NULL));
  REFUSED(perdure_snapshot_scan(snapshot, NULL, never_entry, NULL, NULL));
  REFUSED(perdure_snapshot_count(snapshot, NULL, &n));
  REFUSED(perdure_snapshot_iterate(snapshot, NULL, &it));
  REFUSED(perdure_snapshot_history(snapshot, "k", 1, never_history, NULL, NULL));
}

static void all_of_pool(perdure_pool* pool, const char* why) {
  perdure_pool_info info;
  perdure_pool_stats stats;
  perdure_map* map = (perdure_map*)&info;
  bool worked = true;
  info.struct_size = sizeof(info);
  stats.struct_size = sizeof(stats);
  info.format_version = 7;
  stats.epoch = 7;
  REFUSED(perdure_pool_get_info(pool, &info));
  REFUSED(perdure_pool_get_stats(pool, &stats));
  CHECK(info.format_version == 0 && stats.epoch == 0);
  REFUSED(perdure_pool_check(pool, NULL, NULL));
  REFUSED(perdure_pool_sync(pool));
  REFUSED(perdure_pool_compact(pool, NULL));
  REFUSED(perdure_pool_run_background(pool, &worked));
  REFUSED(perdure_pool_read_batch(pool, never_read, NULL));
  REFUSED(perdure_pool_drop(pool, "x"));
  REFUSED(perdure_pool_list(pool, never_info, NULL));
  REFUSED(perdure_map_open(pool, NULL, NULL, &map));
  CHECK(map == NULL);
}

static void null_handles(void) {
  void* value = &value;
  all_of_map(NULL, "map is NULL");
  all_of_iterator(NULL, "iterator is NULL");
  all_of_snapshot(NULL, "snapshot is NULL");
  all_of_pool(NULL, "pool is NULL");
  CHECK(perdure_snapshot_version(NULL) == 0 && perdure_batch_size(NULL) == 0);
  INVALID("batch is NULL", perdure_batch_commit(NULL));
  INVALID("batch is NULL", perdure_batch_clear(NULL));
  INVALID("batch is NULL", perdure_batch_get(NULL, NULL, "k", 1, &value, NULL));
  CHECK(value == NULL);
  INVALID("batch is NULL", perdure_batch_create(NULL));
  OK(perdure_pool_close(NULL, 0));
  perdure_map_close(NULL);
  perdure_iterator_close(NULL);
  perdure_snapshot_close(NULL);
  perdure_batch_destroy(NULL);
  perdure_free(NULL);
}

static void null_arguments(perdure_pool* pool) {
  perdure_map* map = open_bytes(pool, "arguments", PERDURE_ENGINE_PSKIPLIST);
  perdure_map* words = open_map(pool, "nulls", PERDURE_ENGINE_DEFAULT, PERDURE_KEY_U64, 8);
  perdure_pool* other = NULL;
  perdure_iterator* it = NULL;
  uint64_t n = 0;
  bool present = false;
  void* value = NULL;
  perdure_bytes key = {"k", 1};
  perdure_pool_info info;
  info.struct_size = sizeof(info);
  INVALID("path is NULL", perdure_pool_open(NULL, NULL, &other));
  INVALID("pool is NULL", perdure_pool_open("x", NULL, NULL));
  INVALID("path is NULL", perdure_pool_inspect(NULL, &info));
  INVALID("info is NULL", perdure_pool_inspect("x", NULL));
  INVALID("path is NULL", perdure_pool_resize(NULL, 1));
  INVALID("info is NULL", perdure_pool_get_info(pool, NULL));
  INVALID("stats is NULL", perdure_pool_get_stats(pool, NULL));
  INVALID("worked is NULL", perdure_pool_run_background(pool, NULL));
  INVALID("reads is NULL", perdure_pool_read_batch(pool, NULL, NULL));
  INVALID("name is NULL", perdure_pool_drop(pool, NULL));
  INVALID("visit is NULL", perdure_pool_list(pool, NULL, NULL));
  INVALID("map is NULL", perdure_map_open(pool, "x", NULL, NULL));
  INVALID("info is NULL", perdure_map_get_info(map, NULL));
  INVALID("stats is NULL", perdure_map_get_stats(map, NULL));
  INVALID("entries is NULL", perdure_size(map, NULL));
  INVALID("counters is NULL", perdure_thread_counters(NULL));
  INVALID("key is NULL", perdure_put(map, NULL, 1, "v", 1, NULL));
  INVALID("value is NULL", perdure_put(map, "k", 1, NULL, 1, NULL));
  INVALID("key is NULL", perdure_erase(map, NULL, 1, NULL));
  INVALID("present is NULL", perdure_contains(map, "k", 1, NULL));
  INVALID("value is NULL", perdure_get(map, "k", 1, NULL, NULL));
  INVALID("key is NULL", perdure_get(map, NULL, 5, &value, NULL));
  INVALID("buffer is NULL", perdure_get_into(map, "k", 1, NULL, 9, NULL, &present));
  INVALID("present is NULL", perdure_get_into(map, "k", 1, &n, 8, NULL, NULL));
  INVALID("visit is NULL", perdure_read(map, "k", 1, NULL, NULL, NULL));
  INVALID("exchanged is NULL", perdure_compare_exchange(map, "k", 1, "", 0, "", 0, NULL));
  INVALID("value is NULL", perdure_compare_exchange(map, "k", 1, NULL, 3, "", 0, &present));
  INVALID("change is NULL", perdure_modify(map, "k", 1, NULL, NULL, NULL));
  INVALID("present is NULL", perdure_u64_get(words, 1, &n, NULL));
  INVALID("keys is NULL", perdure_u64_get_many(words, NULL, 1, &n, &present, NULL));
  INVALID("values is NULL", perdure_u64_get_many(words, &n, 1, NULL, &present, NULL));
  INVALID("present is NULL", perdure_u64_get_many(words, &n, 1, &n, NULL, NULL));
  INVALID("keys is NULL", perdure_u64_put_many(words, NULL, &n, 1, NULL));
  INVALID("values is NULL", perdure_u64_put_many(words, &n, NULL, 1, NULL));
  INVALID("keys is NULL", perdure_u64_erase_many(words, NULL, 1, NULL));
  INVALID("values is NULL", perdure_get_many(map, &key, 1, NULL, NULL));
  INVALID("visit is NULL", perdure_read_many(map, &key, 1, NULL, NULL, NULL));
  INVALID("keys is NULL", perdure_read_many(map, NULL, 1, never_indexed, NULL, NULL));
  INVALID("mutations is NULL", perdure_write_many(map, NULL, 1, NULL));
  INVALID("visit is NULL", perdure_for_each(map, NULL, NULL, NULL));
  INVALID("visit is NULL", perdure_scan(map, NULL, NULL, NULL, NULL));
  INVALID("count is NULL", perdure_count(map, NULL, NULL));
  INVALID("iterator is NULL", perdure_iterator_open(map, NULL, NULL));
  INVALID("version is NULL", perdure_tag(map, NULL));
  INVALID("first is NULL", perdure_versions(map, NULL, &n));
  INVALID("last is NULL", perdure_versions(map, &n, NULL));
  INVALID("visit is NULL", perdure_history(map, "k", 1, NULL, NULL, NULL));
  INVALID("visit is NULL", perdure_diff(map, 1, 2, NULL, NULL, NULL, NULL));
  INVALID("snapshot is NULL", perdure_snapshot_open(map, 1, NULL));
  OK(perdure_iterator_open(map, NULL, &it));
  INVALID("key is NULL", perdure_iterator_seek(it, NULL, 2));
  perdure_iterator_close(it);
  perdure_map_close(map);
  perdure_map_close(words);
}

static void sizes(perdure_pool* pool) {
  perdure_map* map = open_bytes(pool, "sizes", PERDURE_ENGINE_DEFAULT);
  static char longest[65537];
  perdure_range range = PERDURE_RANGE_INIT;
  perdure_iterator* it = NULL;
  perdure_pool* other = NULL;
  void* value = NULL;
  uint64_t n = 0;
  OK(perdure_put(map, longest, 65535, "v", 1, NULL));
  INVALID("65536", perdure_put(map, longest, 65536, "v", 1, NULL));
  INVALID("at most 65535", perdure_get(map, longest, SIZE_MAX, &value, NULL));
  INVALID("at most 1073741824", perdure_put(map, "k", 1, longest, SIZE_MAX, NULL));
  INVALID("at most 1073741824",
          perdure_put(map, "k", 1, longest, PERDURE_MAX_VALUE_SIZE + 1UL, NULL));
  range.from = range.to = range.prefix = longest;
  range.to_size = 65536;  // the first key behind the longest one
  OK(perdure_count(map, &range, &n));
  CHECK(n == 1);
  range.from_size = SIZE_MAX;
  INVALID("at most", perdure_count(map, &range, &n));
  range.from_size = 0;
  range.prefix_size = SIZE_MAX;
  INVALID("at most", perdure_iterator_open(map, &range, &it));
  range.prefix = NULL;
  range.prefix_size = 1;
  INVALID("range is NULL", perdure_count(map, &range, &n));
  perdure_map_close(map);

  INVALID("31 bytes", perdure_map_open(pool, "a name that has thirty-two bytes", NULL, &map));
  INVALID("31 bytes", perdure_map_open(pool, "", NULL, &map));
  memset(longest, 'p', 65536);
  INVALID("a path", perdure_pool_open(longest, NULL, &other));
  CHECK(perdure_pool_open("", NULL, &other) != PERDURE_OK && other == NULL);
}

// Structs: too small, too large, unknown values.
static void structs(perdure_pool* pool) {
  struct {
    perdure_range range;
    uint64_t later[2];
  } grown = {PERDURE_RANGE_INIT, {0, 0}};
  struct {
    perdure_pool_stats stats;
    uint64_t later[2];
  } more;
  perdure_pool_options options = PERDURE_POOL_OPTIONS_INIT;
  perdure_map_options how = PERDURE_MAP_OPTIONS_INIT;
  perdure_check_options check = PERDURE_CHECK_OPTIONS_INIT;
  perdure_map* map = open_bytes(pool, "structs", PERDURE_ENGINE_DEFAULT);
  perdure_map* other = NULL;
  perdure_pool* second = NULL;
  uint64_t n = 0;
  grown.range.struct_size = 0;
  INVALID("struct_size of range is 0", perdure_count(map, &grown.range, &n));
  grown.range.struct_size = sizeof(grown.range) - 1;
  INVALID("struct_size of range", perdure_count(map, &grown.range, &n));
  grown.range.struct_size = SIZE_MAX;
  INVALID("struct_size of range", perdure_count(map, &grown.range, &n));
  grown.range.struct_size = sizeof(grown);
  OK(perdure_count(map, &grown.range, &n));
  grown.later[1] = 1;  // asks for what this version cannot do
  INVALID("the others must be 0", perdure_count(map, &grown.range, &n));
  more.stats.struct_size = sizeof(more);
  more.later[1] = 7;
  OK(perdure_pool_get_stats(pool, &more.stats));
  CHECK(more.later[1] == 0 && more.stats.struct_size == sizeof(more) && more.stats.max_bytes != 0);
  more.stats.struct_size = sizeof(more.stats) - 8;
  INVALID("struct_size of stats", perdure_pool_get_stats(pool, &more.stats));
#define WITH(field, bad, part, call)         \
  do {                                       \
    const uint64_t good = (uint64_t)(field); \
    (field) = (bad);                         \
    INVALID(part, call);                     \
    (field) = good;                          \
  } while (0)
#define OPEN perdure_pool_open(scratch("never"), &options, &second)
  WITH(options.struct_size, 8, "struct_size of options", OPEN);
  options.mode = (perdure_open_mode)4;
  INVALID("mode 4", OPEN);
  options.mode = (perdure_open_mode)256;
  INVALID("mode 256", OPEN);
  options.mode = (perdure_open_mode)-1;
  INVALID("mode -1", OPEN);
  options.mode = PERDURE_OPEN_OR_CREATE;
  options.durability = (perdure_durability)5;
  INVALID("durability 5", OPEN);
  options.durability = PERDURE_DURABILITY_AUTOMATIC;
  WITH(options.flags, 16, "flags 0x10", OPEN);
  WITH(options.background_threads, 17, "background_threads 17", OPEN);
  WITH(options.background_threads, -2, "background_threads -2", OPEN);
  WITH(options.max_size, 1000, "max_size", OPEN);
#define MAP perdure_map_open(pool, "never", &how, &other)
  how.engine = (perdure_engine)99;
  INVALID("engine 99", MAP);
  how.engine = (perdure_engine)-1;
  INVALID("engine -1", MAP);
  how.engine = PERDURE_ENGINE_DEFAULT;
  how.mode = (perdure_open_mode)9;
  INVALID("mode 9", MAP);
  how.mode = PERDURE_OPEN_OR_CREATE;
  how.key_type = (perdure_key_type)11;
  INVALID("key_type 11", MAP);
  how.key_type = PERDURE_KEY_ARRAY;
  INVALID("key_size 0", MAP);
  WITH(how.key_size, 17, "key_size 17", MAP);
  how.key_type = PERDURE_KEY_U64;
  WITH(how.key_size, 8, "key_size 8", MAP);
  how.value_type = (perdure_value_type)3;
  INVALID("value_type 3", MAP);
  how.value_type = PERDURE_VALUE_FIXED;
  INVALID("value_size 0", MAP);
  WITH(how.value_size, 16, "value_size 16", MAP);
  how.value_type = PERDURE_VALUE_BYTES;
  WITH(how.value_size, 1, "value_size 1", MAP);
  WITH(how.flags, 4, "flags", MAP);
  WITH(how.reserved, 1, "flags", MAP);
  WITH(how.phast_partitions, 3, "phast_partitions 3", MAP);
  WITH(how.struct_size, 0, "struct_size of options is 0", MAP);
  check.flags = 2;
  INVALID("flags", perdure_pool_check(pool, &check, NULL));
  INVALID("flags", perdure_pool_close(pool, 4));  // and stays open
  OK(perdure_count(map, NULL, &n));
  perdure_map_close(map);
  FAILS(PERDURE_NOT_FOUND, "", (how.mode = PERDURE_OPEN_EXISTING, MAP));
}

static void wrong_kinds(perdure_pool* pool) {
  perdure_map_options how = PERDURE_MAP_OPTIONS_INIT;
  perdure_map* text = open_bytes(pool, "text", PERDURE_ENGINE_DEFAULT);
  perdure_map* words = open_map(pool, "numbers", PERDURE_ENGINE_DEFAULT, PERDURE_KEY_U64, 8);
  perdure_map* signs = open_map(pool, "signs", PERDURE_ENGINE_DEFAULT, PERDURE_KEY_I64, 8);
  perdure_map* map = NULL;
  perdure_map_info info;
  uint64_t n = 0;
  bool present = false;
  INVALID("64-bit", perdure_u64_put(text, 1, 1, NULL));
  INVALID("64-bit", perdure_u64_get(text, 1, &n, &present));
  INVALID("64-bit", perdure_u64_get(signs, 1, &n, &present));
  INVALID("64-bit", perdure_u64_put_many(text, &n, &n, 1, NULL));
  INVALID("64-bit", perdure_u64_get_many(text, &n, 1, &n, &present, NULL));
  INVALID("no integers", perdure_fetch_add(text, "k", 1, 1, &n));
  INVALID("an integer of 8 bytes", put_text(words, "apple", "12345678"));
  INVALID("has 8 bytes", perdure_put(words, &n, sizeof(n), "1", 1, NULL));
  INVALID("other types", perdure_map_open(pool, "numbers", NULL, &map));
  CHECK(map == NULL);
  how.key_type = PERDURE_KEY_I64;
  how.value_type = PERDURE_VALUE_FIXED;
  how.value_size = 8;
  INVALID("other types", perdure_map_open(pool, "numbers", &how, &map));
  how.key_type = PERDURE_KEY_U64;
  how.value_size = 4;
  INVALID("other types", perdure_map_open(pool, "numbers", &how, &map));
  how.value_size = 8;
  how.engine = PERDURE_ENGINE_LEVEL;
  INVALID("engine", perdure_map_open(pool, "numbers", &how, &map));

  // Whatever the map has; an absent one is not made.
  how = (perdure_map_options)PERDURE_MAP_OPTIONS_INIT;
  how.key_type = PERDURE_KEY_ANY;
  how.value_type = PERDURE_VALUE_ANY;
  FAILS(PERDURE_NOT_FOUND, "no map", perdure_map_open(pool, "no such map", &how, &map));
  OK(perdure_map_open(pool, "signs", &how, &map));
  info.struct_size = sizeof(info);
  OK(perdure_map_get_info(map, &info));
  CHECK(info.key_type == PERDURE_KEY_I64 && info.key_size == 8 && info.value_size == 8);
  perdure_map_close(map);
  perdure_map_close(text);
  perdure_map_close(words);
  perdure_map_close(signs);
}

// A callback of a read changes the pool that it reads.
typedef struct {
  perdure_pool* pool;
  perdure_map* map;
  perdure_map* words;
  perdure_map* elsewhere;
  int calls;
} context;

static bool change_in_walk(void* p, const void* key, size_t key_size, const void* value,
                           size_t value_size) {
  context* c = p;
  perdure_range range = PERDURE_RANGE_INIT;
  perdure_mutation mutation = {PERDURE_PUT, {"k", 1}, {"v", 1}};
  perdure_batch* batch = NULL;
  perdure_map* map = NULL;
  perdure_pool_info info;
  uint64_t n = 0;
  bool present = false;
  info.struct_size = sizeof(info);
#define IN_CALLBACK(call) INVALID("callback", call)
  IN_CALLBACK(put_text(c->map, "k", "v"));
  IN_CALLBACK(perdure_insert(c->map, "k", 1, "v", 1, NULL));
  IN_CALLBACK(perdure_update(c->map, "k", 1, "v", 1, NULL));
  IN_CALLBACK(perdure_erase(c->map, "k", 1, NULL));
  IN_CALLBACK(perdure_compare_exchange(c->map, "k", 1, NULL, 0, "v", 1, &present));
  IN_CALLBACK(perdure_modify(c->map, "k", 1, put_change, NULL, NULL));
  IN_CALLBACK(perdure_fetch_add(c->map, "k", 1, 1, &n));
  IN_CALLBACK(perdure_write_many(c->map, &mutation, 1, NULL));
  IN_CALLBACK(perdure_u64_put(c->words, 1, 1, NULL));
  IN_CALLBACK(perdure_erase_range(c->map, &range, NULL));
  IN_CALLBACK(perdure_tag(c->map, &n));
  IN_CALLBACK(perdure_trim(c->map, 1, NULL));
  IN_CALLBACK(perdure_rollback(c->map, 1));
  IN_CALLBACK(perdure_pool_sync(c->pool));
  IN_CALLBACK(perdure_pool_compact(c->pool, NULL));
  IN_CALLBACK(perdure_pool_check(c->pool, NULL, NULL));
  IN_CALLBACK(perdure_pool_drop(c->pool, "text"));
  IN_CALLBACK(perdure_pool_read_batch(c->pool, never_read, NULL));
  IN_CALLBACK(perdure_map_open(c->pool, "text", NULL, &map));
  IN_CALLBACK(perdure_pool_get_info(c->pool, &info));
  IN_CALLBACK(perdure_pool_close(c->pool, 0));
  OK(perdure_batch_create(&batch));
  OK(perdure_batch_put(batch, c->map, "k", 1, "v", 1));
  IN_CALLBACK(perdure_batch_commit(batch));
  perdure_batch_destroy(batch);
  // Reads, and another pool, are allowed.
  OK(perdure_contains(c->map, key, key_size, &present));
  CHECK(present);
  OK(perdure_put(c->elsewhere, key, key_size, value, value_size, NULL));
  return ++c->calls < 2;
}
static void change_in_read(void* p, const void* value, size_t size) {
  IN_CALLBACK(put_text(((context*)p)->map, "k", "v"));
  ++((context*)p)->calls;
  (void)value, (void)size;
}
static void change_in_many(void* p, size_t i, const void* value, size_t size) {
  (void)i;
  change_in_read(p, value, size);
}

static void callbacks(perdure_pool* pool) {
  char path[256];
  perdure_pool_options options = PERDURE_POOL_OPTIONS_INIT;
  perdure_pool* second = NULL;
  perdure_bytes key = {"a", 1};
  context c = {pool, open_bytes(pool, "callbacks", PERDURE_ENGINE_PSKIPLIST),
               open_map(pool, "counted", PERDURE_ENGINE_DEFAULT, PERDURE_KEY_U64, 8), NULL, 0};
  options.max_size = 16U << 20;
  snprintf(path, sizeof(path), "%s", scratch("elsewhere"));
  OK(perdure_pool_open(path, &options, &second));
  c.elsewhere = open_bytes(second, NULL, PERDURE_ENGINE_DEFAULT);
  OK(put_text(c.map, "a", "1"));
  OK(put_text(c.map, "b", "2"));
  OK(perdure_scan(c.map, NULL, change_in_walk, &c, NULL));
  CHECK(c.calls == 2 && has_text(c.elsewhere, "b", "2") && has_text(c.map, "k", NULL));
  OK(perdure_for_each(c.map, change_in_walk, &c, NULL));
  OK(perdure_read(c.map, "a", 1, change_in_read, &c, NULL));
  OK(perdure_read_many(c.map, &key, 1, change_in_many, &c, NULL));
  CHECK(c.calls == 5);
  OK(put_text(c.map, "k", "v"));  // afterwards everything is allowed
  perdure_map_close(c.elsewhere);
  perdure_map_close(c.words);
  perdure_map_close(c.map);
  OK(perdure_pool_close(second, 0));
  remove(path);
}

// Handles that outlive their map or their pool.
static void after_the_end(void) {
  perdure_pool* pool = open_scratch();
  perdure_map* dropped = open_bytes(pool, "dropped", PERDURE_ENGINE_PSKIPLIST);
  perdure_map* closed = open_bytes(pool, "closed", PERDURE_ENGINE_PSKIPLIST);
  perdure_map* again = NULL;
  perdure_map* maps[2];
  perdure_iterator* iterators[4];
  perdure_snapshot* snapshots[2];
  uint64_t version = 0;
  int i = 0;
  maps[0] = dropped;
  maps[1] = closed;
  for (i = 0; i < 2; ++i) {
    OK(put_text(maps[i], "k", "v"));
    OK(perdure_tag(maps[i], &version));
    OK(perdure_snapshot_open(maps[i], version, &snapshots[i]));
    OK(perdure_iterator_open(maps[i], NULL, &iterators[i]));
    OK(perdure_snapshot_iterate(snapshots[i], NULL, &iterators[i + 2]));
    CHECK(perdure_iterator_valid(iterators[i + 2]));
  }
  OK(perdure_pool_drop(pool, "dropped"));
  all_of_map(dropped, "was dropped");
  all_of_ended_iterator(iterators[0], "was dropped");
  all_of_ended_iterator(iterators[2], "was dropped");
  all_of_snapshot(snapshots[0], "was dropped");
  again = open_bytes(pool, "dropped", PERDURE_ENGINE_DEFAULT);
  CHECK(has_text(again, "k", NULL));  // a new map of the old name
  CHECK(perdure_iterator_valid(iterators[1]) && perdure_iterator_valid(iterators[3]));

  close_scratch(pool);
  all_of_map(again, "is closed");
  all_of_map(closed, "is closed");
  all_of_ended_iterator(iterators[1], "is closed");
  all_of_ended_iterator(iterators[3], "is closed");
  all_of_snapshot(snapshots[1], "is closed");
  perdure_map_close(again);
  for (i = 0; i < 2; ++i) {
    perdure_map_close(maps[i]);
    perdure_iterator_close(iterators[i]);
    perdure_snapshot_close(snapshots[i]);
    perdure_iterator_close(iterators[i + 2]);
  }
}

static void forked(perdure_pool* pool) {
  static const char* const why = "belongs to the parent";
  perdure_map* map = open_bytes(pool, "forked", PERDURE_ENGINE_PSKIPLIST);
  perdure_iterator* it = NULL;
  perdure_snapshot* snapshot = NULL;
  perdure_batch* batch = NULL;
  uint64_t version = 0;
  pid_t child = 0;
  int status = 0;
  OK(put_text(map, "k", "v"));
  OK(perdure_tag(map, &version));
  OK(perdure_snapshot_open(map, version, &snapshot));
  OK(perdure_snapshot_iterate(snapshot, NULL, &it));
  OK(perdure_batch_create(&batch));
  OK(perdure_batch_put(batch, map, "k", 1, "w", 1));
  child = fork();
  if (child == 0) {
    perdure_pool_options options = PERDURE_POOL_OPTIONS_INIT;
    perdure_pool* own = NULL;
    all_of_map(map, why);
    all_of_ended_iterator(it, why);
    all_of_snapshot(snapshot, why);
    all_of_pool(pool, why);
    INVALID(why, perdure_batch_commit(batch));
    perdure_iterator_close(it);
    perdure_snapshot_close(snapshot);
    perdure_map_close(map);
    perdure_batch_destroy(batch);
    OK(perdure_pool_close(pool, 0));
    // Its own pool works.
    options.max_size = 16U << 20;
    OK(perdure_pool_open(scratch("child"), &options, &own));
    map = open_bytes(own, NULL, PERDURE_ENGINE_DEFAULT);
    OK(put_text(map, "k", "v"));
    CHECK(has_text(map, "k", "v"));
    perdure_map_close(map);
    OK(perdure_pool_close(own, 0));
    (void)scratch("child");
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(has_text(map, "k", "v") && perdure_iterator_valid(it));
  OK(perdure_batch_commit(batch));
  CHECK(has_text(map, "k", "w"));
  perdure_iterator_close(it);
  perdure_snapshot_close(snapshot);
  perdure_batch_destroy(batch);
  perdure_map_close(map);
}

int main(void) {
  perdure_pool* pool = open_scratch();
  null_handles();
  null_arguments(pool);
  sizes(pool);
  structs(pool);
  wrong_kinds(pool);
  callbacks(pool);
  forked(pool);
  close_scratch(pool);
  after_the_end();
  return 0;
}
