// test: valgrind
// Pools, from the contract in perdure/c.h.
#include "c/check.h"

static char path[256];
static int log_lines[3];

static void count_line(void* context, perdure_log_level level, const char* line) {
  CHECK(context == log_lines && strstr(line, path) == line);
  ++log_lines[level];
}

static void modes(void) {
  perdure_pool_options options = PERDURE_POOL_OPTIONS_INIT;
  perdure_pool* pool = NULL;
  perdure_map* map = NULL;
  options.max_size = 32U << 20;
  options.mode = PERDURE_OPEN_EXISTING;
  FAILS(PERDURE_NOT_FOUND, path, perdure_pool_open(path, &options, &pool));
  CHECK(pool == NULL);
  options.mode = PERDURE_CREATE_NEW;
  options.log = count_line;
  options.log_context = log_lines;
  OK(perdure_pool_open(path, &options, &pool));
  CHECK(log_lines[PERDURE_LOG_INFO] == 1);
  FAILS(PERDURE_BUSY, "this process", perdure_pool_open(path, NULL, (perdure_pool**)&map));
  CHECK(map == NULL);
  map = open_bytes(pool, NULL, PERDURE_ENGINE_DEFAULT);
  OK(put_text(map, "a", "1"));
  perdure_map_close(map);
  OK(perdure_pool_close(pool, 0));
  FAILS(PERDURE_EXISTS, path, perdure_pool_open(path, &options, &pool));

  // What was acknowledged is there; a read-only pool refuses changes.
  options.mode = PERDURE_OPEN_READ_ONLY;
  OK(perdure_pool_open(path, &options, &pool));
  OK(perdure_map_open(pool, PERDURE_DEFAULT_MAP, NULL, &map));
  CHECK(has_text(map, "a", "1"));
  FAILS(PERDURE_READ_ONLY, "", put_text(map, "a", "2"));
  FAILS(PERDURE_READ_ONLY, "", perdure_pool_drop(pool, PERDURE_DEFAULT_MAP));
  perdure_map_close(map);
  FAILS(PERDURE_READ_ONLY, "", perdure_map_open(pool, "other", NULL, &map));
  OK(perdure_pool_close(pool, 0));

  INVALID("max_size", perdure_pool_resize(path, 1U << 20));
  OK(perdure_pool_resize(path, 64U << 20));
  FAILS(PERDURE_NOT_FOUND, "", perdure_pool_resize("/nonexistent/pool", 64U << 20));
}

static bool list_names(void* context, const perdure_map_info* info) {
  CHECK(info->struct_size == sizeof(*info));
  strcat(context, info->name);
  strcat(context, " ");
  return true;
}
static bool list_one(void* context, const perdure_map_info* info) {
  list_names(context, info);
  return false;
}

static void reports(void) {
  perdure_pool* pool = NULL;
  perdure_map* map = NULL;
  perdure_pool_info info;
  perdure_pool_stats stats;
  perdure_map_stats figures;
  char names[128] = "";
  char text[32];
  uint64_t freed = 77;
  int i = 0;
  memset(&info, 0xff, sizeof(info));
  memset(&stats, 0xff, sizeof(stats));
  memset(&figures, 0xff, sizeof(figures));
  info.struct_size = sizeof(info);
  stats.struct_size = sizeof(stats);
  figures.struct_size = sizeof(figures);

  OK(perdure_pool_inspect(path, &info));
  CHECK(info.clean == 1 && info.in_use == 0 && info.map_count == 1 && info.trusted == 1);
  CHECK(info.synced == 1);
  CHECK(info.max_bytes > 32U << 20 && strlen(info.uuid) == 36 && info.trust_note[0] == '\0');
  OK(perdure_pool_open(path, NULL, &pool));
  OK(perdure_map_open(pool, NULL, NULL, &map));
  for (i = 0; i < 1000; ++i) {
    snprintf(text, sizeof(text), "key %d", i);
    OK(put_text(map, text, text));
  }
  OK(perdure_pool_get_info(pool, &info));
  CHECK(info.medium != PERDURE_MEDIUM_PAGE || info.durability == PERDURE_DURABILITY_BUFFERED);
  CHECK(info.medium != PERDURE_MEDIUM_VOLATILE || info.durability == PERDURE_DURABILITY_PROCESS);
  CHECK(info.owner_pid == getpid() && info.in_use == 1 && info.synced == 0);
  CHECK(strlen(info.filesystem) > 0 && strlen(info.flush_instruction) > 0);
  OK(perdure_pool_sync(pool));
  OK(perdure_pool_get_info(pool, &info));
  CHECK(info.synced == 1 || info.durability == PERDURE_DURABILITY_BUFFERED);
  OK(perdure_pool_get_stats(pool, &stats));
  CHECK(stats.max_bytes == info.max_bytes && stats.used_bytes > 0 && stats.fragmentation < 1);
  CHECK(stats.allocated_bytes > 1000 && stats.stalled_readers == 0 && stats.limbo_blocks < 100000);
  OK(perdure_map_get_stats(map, &figures));
  CHECK(figures.entries == 1001 && figures.leaves > 0 && figures.partial == 0);
  CHECK(figures.pm_bytes > 1000 && figures.struct_size == sizeof(figures));
  uint64_t entries = 0;
  OK(perdure_size(map, &entries));
  CHECK(entries == 1001);

  perdure_map_close(open_bytes(pool, "second", PERDURE_ENGINE_LEVEL));
  OK(perdure_pool_list(pool, list_names, names));
  CHECK(strcmp(names, "default second ") == 0);
  names[0] = '\0';
  OK(perdure_pool_list(pool, list_one, names));
  CHECK(strcmp(names, "default ") == 0);
  OK(perdure_pool_drop(pool, "second"));
  FAILS(PERDURE_NOT_FOUND, "second", perdure_pool_drop(pool, "second"));
  names[0] = '\0';
  OK(perdure_pool_list(pool, list_names, names));
  CHECK(strcmp(names, "default ") == 0);

  if (perdure_pool_compact(pool, &freed) != PERDURE_OK) CHECK(freed == 0);
  perdure_map_close(map);
  OK(perdure_pool_close(pool, PERDURE_CLOSE_NO_SYNC | PERDURE_CLOSE_LEAVE_RECOVERY));
  OK(perdure_pool_inspect(path, &info));
  CHECK(info.clean == 1);
  CHECK(info.synced == 0 || info.durability == PERDURE_DURABILITY_BUFFERED);
}

typedef struct {
  uint64_t done, total;
  int calls, violations;
} checking;
static void progress(void* context, uint64_t done, uint64_t total) {
  checking* c = context;
  CHECK(done <= total);
  c->done = done;
  c->total = total;
  ++c->calls;
}
static void violation(void* context, const char* line) {
  CHECK(strlen(line) > 0);
  ++((checking*)context)->violations;
}

// Flips a byte in the last record that has the text.
static void damage(const char* text) {
  FILE* file = fopen(path, "r+b");
  static char content[8U << 20];
  const size_t size = fread(content, 1, sizeof(content), file);
  const size_t n = strlen(text);
  size_t i = 0, at = 0;
  for (i = 0; i + n <= size; ++i) {
    if (memcmp(content + i, text, n) == 0) at = i;
  }
  CHECK(at != 0 && fseek(file, (long)at, SEEK_SET) == 0 && fputc('#', file) == '#');
  CHECK(fclose(file) == 0);
}

static bool keep(void* context, const void* key, size_t key_size, const void* value,
                 size_t value_size) {
  uint64_t* left = context;
  CHECK(key_size != 7 || memcmp(key, "key 500", 7) != 0);
  CHECK(value != NULL && value_size > 0);
  return --*left > 0;
}
// The map has a damaged record, and the pool is open to be looked at.
static void salvage(perdure_pool* pool, const perdure_check_options* how,
                    perdure_check_report* report) {
  uint64_t left = 5000, visited = 0;
  const int before = ((checking*)how->context)->violations;
  FAILS(PERDURE_CORRUPTION, "damaged",
        perdure_pool_salvage(pool, "default", how, keep, &left, &visited, report));
  CHECK(visited == 5000 - left && visited == 1000);
  CHECK(report->violations > 0 && ((checking*)how->context)->violations > before);
  left = 3;
  FAILS(PERDURE_CORRUPTION, "damaged",
        perdure_pool_salvage(pool, "default", NULL, keep, &left, &visited, NULL));
  CHECK(left == 0 && visited == 3);
  FAILS(PERDURE_NOT_FOUND, "no map",
        perdure_pool_salvage(pool, "none", NULL, keep, &left, NULL, NULL));
  FAILS(PERDURE_INVALID_ARGUMENT, "visit",
        perdure_pool_salvage(pool, "default", NULL, NULL, NULL, &visited, NULL));
  CHECK(visited == 0);
}

static void check(void) {
  perdure_pool_options options = PERDURE_POOL_OPTIONS_INIT;
  perdure_check_options how = PERDURE_CHECK_OPTIONS_INIT;
  checking seen = {0, 0, 0, 0};
  perdure_check_report report;
  perdure_pool* pool = NULL;
  report.struct_size = sizeof(report);
  how.progress = progress;
  how.violation = violation;
  how.context = &seen;
  how.flags = PERDURE_CHECK_DEEP;
  OK(perdure_pool_open(path, NULL, &pool));
  OK(perdure_pool_check(pool, NULL, NULL));
  OK(perdure_pool_check(pool, &how, &report));
  CHECK(report.entries == 1001 && report.violations == 0 && report.leaked_blocks == 0);
  CHECK(report.objects > 0 && report.bytes > 0 && seen.calls > 0 && seen.violations == 0);
  INVALID("ALLOW_DAMAGE", perdure_pool_salvage(pool, "default", NULL, keep, NULL, NULL, NULL));
  OK(perdure_pool_close(pool, 0));

  // A deep check notices a value that changed; the call then fails.
  damage("key 500");
  OK(perdure_pool_open(path, NULL, &pool));
  FAILS(PERDURE_CORRUPTION, "damaged record", perdure_pool_check(pool, &how, &report));
  CHECK(report.violations > 0 && seen.violations == (int)report.violations);
  FAILS(PERDURE_CORRUPTION, "", perdure_pool_check(pool, &how, NULL));
  OK(perdure_pool_close(pool, 0));
  options.mode = PERDURE_OPEN_READ_ONLY;
  options.flags = PERDURE_POOL_ALLOW_DAMAGE;
  OK(perdure_pool_open(path, &options, &pool));
  salvage(pool, &how, &report);
  OK(perdure_pool_close(pool, 0));
  remove(path);
}

static void background(void) {
  perdure_pool_options options = PERDURE_POOL_OPTIONS_INIT;
  perdure_pool* pool = NULL;
  perdure_map* map = NULL;
  perdure_counters before, after;
  bool worked = true, ever = false;
  uint64_t i = 0;
  options.max_size = 32U << 20;
  options.durability = PERDURE_DURABILITY_EMULATED;
  options.background_threads = -1;
  options.recovery_threads = 1;
  options.flags =
      PERDURE_POOL_HANDLE_SIGBUS | PERDURE_POOL_ACCEPT_UNTRUSTED | PERDURE_POOL_INTERLEAVE;
  OK(perdure_pool_open(path, &options, &pool));
  map = open_map(pool, "words", PERDURE_ENGINE_CLEVEL, PERDURE_KEY_U64, 8);
  before.struct_size = after.struct_size = sizeof(before);
  OK(perdure_thread_counters(&before));
  for (i = 0; i < 20000; ++i) {
    OK(perdure_u64_put(map, i, i, NULL));
    if (i % 500 == 0) {
      OK(perdure_pool_run_background(pool, &worked));
      ever = ever || worked;
    }
  }
  OK(perdure_thread_counters(&after));
  CHECK(after.flushes - before.flushes >= 20000 && after.fences - before.fences >= 20000);
  CHECK(after.written_lines > before.written_lines && after.allocations > before.allocations);
  while (worked) {
    OK(perdure_pool_run_background(pool, &worked));
    ever = ever || worked;
  }
  CHECK(ever);
  perdure_map_close(map);
  OK(perdure_pool_close(pool, 0));
  remove(path);
}

static perdure_pool* shared_pool;
static perdure_map* shared;
static void read_two(void* context) {
  uint64_t a = 0, b = 0;
  bool present = false;
  OK(perdure_u64_get(shared, 1, &a, &present));
  OK(perdure_u64_get(shared, 2, &b, &present));
  *(bool*)context = a + b == 10;
  INVALID("callback", perdure_u64_put(shared, 1, 1, NULL));
  INVALID("callback", perdure_pool_sync(shared_pool));
  INVALID("callback", perdure_pool_close(shared_pool, 0));
}

static void read_batch(void) {
  perdure_pool* pool = open_scratch();
  bool same = false;
  shared_pool = pool;
  shared = open_map(pool, "words", PERDURE_ENGINE_DEFAULT, PERDURE_KEY_U64, 8);
  OK(perdure_u64_put(shared, 1, 4, NULL));
  OK(perdure_u64_put(shared, 2, 6, NULL));
  OK(perdure_pool_read_batch(pool, read_two, &same));
  CHECK(same);
  perdure_map_close(shared);
  close_scratch(pool);
}

int main(void) {
  snprintf(path, sizeof(path), "%s", scratch("modes"));
  CHECK(strcmp(perdure_version(), PERDURE_VERSION) == 0);
  CHECK(strcmp(perdure_last_error(), "") == 0);
  CHECK(strcmp(perdure_status_name(PERDURE_OK), "ok") == 0);
  CHECK(strcmp(perdure_status_name(PERDURE_CONFLICT), "conflict") == 0);
  CHECK(strcmp(perdure_status_name(PERDURE_LIVE_MISSING), "live_missing") == 0);
  CHECK(strcmp(perdure_status_name(PERDURE_TRUNCATED), "truncated") == 0);
  CHECK(strcmp(perdure_status_name((perdure_status)1000), "unknown") == 0);
  CHECK(strcmp(perdure_status_name((perdure_status)-1), "unknown") == 0);
  CHECK(strcmp(perdure_engine_name(PERDURE_ENGINE_PHAST), "phast") == 0);
  CHECK(strcmp(perdure_engine_name(PERDURE_ENGINE_PSKIPLIST), "pskiplist") == 0);
  CHECK(perdure_engine_name(PERDURE_ENGINE_DEFAULT) == NULL);
  CHECK(perdure_engine_name((perdure_engine)99) == NULL);
  modes();
  reports();
  check();
  background();
  read_batch();
  return 0;
}
