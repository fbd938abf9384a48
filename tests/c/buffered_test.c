// Pools of durability `buffered`, and backups, from the contract in perdure/c.h.
#include <perdure/c.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "c/check.h"

static char folder[256];
static char path[300];
static int calls;

// A path in the folder of this test, which is on a disk. Valid until the fourth call after this
// one.
static const char* in_folder(const char* name) {
  static char texts[4][300];
  static int next;
  char* text = texts[next++ % 4];
  snprintf(text, sizeof(texts[0]), "%s/%s", folder, name);
  return text;
}

static uint64_t now_ns(void) {
  struct timespec now;
  CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
  return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static perdure_pool* open_it(const char* file, perdure_durability durability) {
  perdure_pool_options options = PERDURE_POOL_OPTIONS_INIT;
  perdure_buffered_options buffered = PERDURE_BUFFERED_OPTIONS_INIT;
  perdure_pool* pool = NULL;
  options.max_size = 32U << 20;
  options.durability = durability;
  buffered.interval_ms = 3600000;  // only what waits makes a cut
  buffered.keep_log_bytes = 64U << 20;
  OK(perdure_pool_open_buffered(file, &options, &buffered, &pool));
  return pool;
}
static void put_one(perdure_pool* pool, const char* key, const char* value) {
  perdure_map* map = open_bytes(pool, NULL, PERDURE_ENGINE_DEFAULT);
  OK(put_text(map, key, value));
  perdure_map_close(map);
}
static void expect_one(const char* file, const char* key, const char* value) {
  perdure_pool* pool = open_it(file, PERDURE_DURABILITY_AUTOMATIC);
  perdure_map* map = open_bytes(pool, NULL, PERDURE_ENGINE_DEFAULT);
  CHECK(has_text(map, key, value));
  perdure_map_close(map);
  OK(perdure_pool_close(pool, 0));
}

static void options_are_checked(void) {
  perdure_pool_options options = PERDURE_POOL_OPTIONS_INIT;
  perdure_buffered_options buffered = PERDURE_BUFFERED_OPTIONS_INIT;
  perdure_pool* pool = (perdure_pool*)&options;
  options.durability = PERDURE_DURABILITY_BUFFERED;
  buffered.flags = 8;
  INVALID("flags 0x8", perdure_pool_open_buffered(path, &options, &buffered, &pool));
  CHECK(pool == NULL);
  buffered.flags = PERDURE_BUFFERED_REPORT_LAG | PERDURE_BUFFERED_SERVE_WITHOUT_LOG;
  buffered.interval_ms = 3600001;
  INVALID("interval_ms", perdure_pool_open_buffered(path, &options, &buffered, &pool));
  buffered.interval_ms = 0;
  buffered.log_bytes = 1;
  INVALID("log_bytes", perdure_pool_open_buffered(path, &options, &buffered, &pool));
  buffered.log_bytes = 0;
  buffered.memory_directory = in_folder("nothing");
  CHECK(perdure_pool_open_buffered(path, &options, &buffered, &pool) != PERDURE_OK);
  CHECK(strstr(perdure_last_error(), "nothing") != NULL && pool == NULL);
  buffered.memory_directory = "";
  buffered.struct_size = 4;
  INVALID("struct_size", perdure_pool_open_buffered(path, &options, &buffered, &pool));
  INVALID("pool is NULL", perdure_pool_open_buffered(path, &options, NULL, NULL));
  INVALID("path is NULL", perdure_pool_open_buffered(NULL, &options, NULL, &pool));
}

static void cuts(void) {
  perdure_pool* pool = open_it(path, PERDURE_DURABILITY_BUFFERED);
  perdure_buffered_stats stats;
  perdure_buffered_info info;
  uint64_t epoch = 0;
  memset(&stats, 0xff, sizeof(stats));
  memset(&info, 0xff, sizeof(info));
  stats.struct_size = sizeof(stats);
  info.struct_size = sizeof(info);
  put_one(pool, "a", "1");
  OK(perdure_pool_epoch(pool, &epoch));
  OK(perdure_pool_wait_durable(pool, epoch));
  INVALID("no cut", perdure_pool_wait_durable(pool, epoch + 100));
  OK(perdure_pool_resume_log(pool));
  OK(perdure_pool_get_buffered_stats(pool, &stats));
  CHECK(stats.cuts == epoch && stats.log_bound_bytes == 1U << 30 && stats.log_bytes != 0);
  CHECK(stats.folds == 0 && stats.log_written_bytes != 0 && stats.live_bytes != 0);
  CHECK(stats.log_failed_unix_ns == 0);
  CHECK(stats.stopped_thread == 0);
  OK(perdure_pool_fold_log(pool));
  OK(perdure_pool_get_buffered_stats(pool, &stats));
  CHECK(stats.folds == 1 && stats.fold_written_bytes != 0);
  OK(perdure_pool_inspect_buffered(path, &info));
  CHECK(strncmp(info.live_image, path, strlen(path)) == 0);
  CHECK(info.durable_unix_ns != 0 && info.durable_unix_ns <= now_ns());
  OK(perdure_pool_close(pool, 0));
  OK(perdure_pool_inspect_buffered(path, &info));
  CHECK(info.live_image[0] == '\0');
  INVALID("pool is NULL", perdure_pool_epoch(NULL, &epoch));
  INVALID("epoch is NULL", perdure_pool_epoch(NULL, NULL));
  INVALID("stats is NULL", perdure_pool_get_buffered_stats(NULL, NULL));
  FAILS(PERDURE_NOT_FOUND, "nothing", perdure_pool_inspect_buffered(in_folder("nothing"), &info));
}

static void count_call(void* context, uint64_t done, uint64_t total) {
  CHECK(context == folder && done <= total);
  ++calls;
}

static void backups(void) {
  perdure_backup_options options = PERDURE_BACKUP_OPTIONS_INIT;
  perdure_restore_options which = PERDURE_RESTORE_OPTIONS_INIT;
  perdure_backup_info info;
  perdure_pool* pool = open_it(path, PERDURE_DURABILITY_AUTOMATIC);
  uint64_t first = 0;
  uint64_t restored = 77;
  memset(&info, 0xff, sizeof(info));
  info.struct_size = sizeof(info);
  options.progress = count_call;
  options.context = folder;
  put_one(pool, "a", "2");
  OK(perdure_pool_backup(pool, in_folder("saved"), &options, &info));
  CHECK(calls > 0 && info.extended == 0 && info.closed == 0 && strlen(info.uuid) == 36);
  CHECK(info.copied_bytes != 0 && info.base_bytes != 0 && info.first_epoch <= info.last_epoch);
  CHECK(info.made_unix_ns <= now_ns() && info.ends_unix_ns <= now_ns());
  first = info.last_epoch;
  put_one(pool, "a", "3");
  OK(perdure_pool_backup(pool, in_folder("saved"), NULL, &info));
  CHECK(info.extended == 1 && info.last_epoch > first);
  put_one(pool, "a", "4");
  OK(perdure_inspect_backup(in_folder("saved"), &info));
  CHECK(info.last_epoch > first && info.extended == 0);

  calls = 0;
  which.progress = count_call;
  which.context = folder;
  OK(perdure_restore(in_folder("saved"), in_folder("last"), &which, &restored));
  CHECK(restored == info.last_epoch && calls > 0);
  expect_one(in_folder("last"), "a", "3");
  which.flags = PERDURE_RESTORE_EPOCH;
  which.epoch = first;
  OK(perdure_restore(in_folder("saved"), in_folder("first"), &which, NULL));
  expect_one(in_folder("first"), "a", "2");
  which.flags = PERDURE_RESTORE_TIME;
  which.unix_ns = now_ns() + 1000000000000U;
  INVALID("", perdure_restore(in_folder("saved"), in_folder("none"), &which, &restored));
  CHECK(restored == 0);
  which.flags = PERDURE_RESTORE_EPOCH;
  which.epoch = info.last_epoch + 1;
  INVALID("it has", perdure_restore(in_folder("saved"), in_folder("none"), &which, NULL));
  which.flags = 4;
  INVALID("flags", perdure_restore(in_folder("saved"), in_folder("none"), &which, NULL));
  FAILS(PERDURE_EXISTS, "", perdure_restore(in_folder("saved"), path, NULL, NULL));
  FAILS(PERDURE_NOT_FOUND, "", perdure_restore(in_folder("nothing"), in_folder("x"), NULL, NULL));
  CHECK(access(in_folder("none"), F_OK) != 0);

  OK(perdure_pool_close(pool, 0));
  OK(perdure_back_up(path, in_folder("closed"), NULL, &info));
  CHECK(info.closed == 1 && info.first_epoch == info.last_epoch);
  OK(perdure_restore(in_folder("closed"), in_folder("again"), NULL, NULL));
  expect_one(in_folder("again"), "a", "4");
  FAILS(PERDURE_EXISTS, "", perdure_back_up(path, folder, NULL, NULL));
  FAILS(PERDURE_NOT_FOUND, "", perdure_back_up(in_folder("nothing"), in_folder("x"), NULL, NULL));
  FAILS(PERDURE_NOT_FOUND, "", perdure_inspect_backup(in_folder("nothing"), &info));
  INVALID("folder is NULL", perdure_back_up(path, NULL, NULL, NULL));
  INVALID("info is NULL", perdure_inspect_backup(folder, NULL));
}

static void other_durabilities(void) {
  perdure_pool* pool = open_it(in_folder("process"), PERDURE_DURABILITY_PROCESS);
  perdure_buffered_stats stats;
  uint64_t epoch = 77;
  stats.struct_size = sizeof(stats);
  FAILS(PERDURE_UNSUPPORTED, "", perdure_pool_epoch(pool, &epoch));
  CHECK(epoch == 0);
  FAILS(PERDURE_UNSUPPORTED, "", perdure_pool_wait_durable(pool, 1));
  FAILS(PERDURE_UNSUPPORTED, "close it", perdure_pool_backup(pool, in_folder("p"), NULL, NULL));
  OK(perdure_pool_fold_log(pool));
  OK(perdure_pool_get_buffered_stats(pool, &stats));
  CHECK(stats.cuts == 0 && stats.log_bound_bytes == 0);
  OK(perdure_pool_close(pool, 0));
}

// A process stores the value, and is killed.
static void killed_with(const char* file, const char* value) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    put_one(open_it(file, PERDURE_DURABILITY_BUFFERED), "a", value);
    kill(getpid(), SIGKILL);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
}

static void a_kill(void) {
  char live[320];
  perdure_pool* pool = NULL;
  killed_with(path, "5");
  snprintf(live, sizeof(live), "%s-live", path);
  CHECK(rename(live, in_folder("hidden")) == 0);
  FAILS(PERDURE_LIVE_MISSING, live, perdure_pool_open(path, NULL, &pool));
  CHECK(rename(in_folder("hidden"), live) == 0);
  expect_one(path, "a", "5");
}

static perdure_pool* read_it(const char* file) {
  perdure_pool_options options = PERDURE_POOL_OPTIONS_INIT;
  perdure_pool* pool = NULL;
  options.mode = PERDURE_OPEN_READ_ONLY;
  OK(perdure_pool_open(file, &options, &pool));
  return pool;
}

static void readers(void) {
  const char* file = in_folder("read");
  perdure_pool_options options = PERDURE_POOL_OPTIONS_INIT;
  perdure_pool* owner = open_it(file, PERDURE_DURABILITY_BUFFERED);
  perdure_pool* reader = NULL;
  perdure_map* map = NULL;
  put_one(owner, "a", "1");
  OK(perdure_pool_sync(owner));
  put_one(owner, "a", "2");
  // The last cut of a pool in use; it stays what it was.
  reader = read_it(file);
  map = open_bytes(reader, NULL, PERDURE_ENGINE_DEFAULT);
  CHECK(has_text(map, "a", "1"));
  put_one(owner, "a", "3");
  OK(perdure_pool_close(owner, 0));
  CHECK(has_text(map, "a", "1"));
  perdure_map_close(map);
  OK(perdure_pool_close(reader, 0));
  // Of a closed pool.
  reader = read_it(file);
  FAILS(PERDURE_BUSY, "being read by this process", perdure_pool_open(file, NULL, &owner));
  OK(perdure_pool_close(reader, 0));
  owner = open_it(file, PERDURE_DURABILITY_PROCESS);
  options.mode = PERDURE_OPEN_READ_ONLY;
  FAILS(PERDURE_BUSY, "this process", perdure_pool_open(file, &options, &reader));
  OK(perdure_pool_close(owner, 0));
}

static void removal(void) {
  const char* file = in_folder("gone");
  char live[320], copy[700];
  perdure_buffered_info info;
  perdure_pool* pool = open_it(file, PERDURE_DURABILITY_BUFFERED);
  FAILS(PERDURE_BUSY, "this process", perdure_destroy(file));
  OK(perdure_pool_close(pool, 0));
  info.struct_size = sizeof(info);
  OK(perdure_pool_inspect_buffered(file, &info));
  CHECK(info.aside_images == 0 && info.newest_aside_unix_ns == 0 && info.newest_aside[0] == '\0');
  // A backup takes the place of a pool that was left open.
  snprintf(copy, sizeof(copy), "cp '%s' '%s.saved'", file, file);
  CHECK(system(copy) == 0);
  killed_with(file, "1");
  snprintf(copy, sizeof(copy), "rm -rf '%s-log' && mv '%s.saved' '%s'", file, file, file);
  CHECK(system(copy) == 0);
  OK(perdure_pool_close(open_it(file, PERDURE_DURABILITY_BUFFERED), 0));
  OK(perdure_pool_inspect_buffered(file, &info));
  CHECK(info.aside_images == 1 && info.newest_aside_unix_ns > 1000000000000000000U);
  CHECK(access(info.newest_aside, F_OK) == 0);
  OK(perdure_destroy(info.newest_aside));
  CHECK(access(info.newest_aside, F_OK) != 0 && access(file, F_OK) == 0);
  // With all that a kill has left, and of that alone.
  snprintf(live, sizeof(live), "%s-live", file);
  killed_with(file, "2");
  OK(perdure_destroy(file));
  CHECK(access(file, F_OK) != 0 && access(live, F_OK) != 0);
  killed_with(file, "3");
  CHECK(unlink(file) == 0 && access(live, F_OK) == 0);
  OK(perdure_destroy(file));
  CHECK(access(live, F_OK) != 0);
  FAILS(PERDURE_NOT_FOUND, file, perdure_destroy(file));
  INVALID("path is NULL", perdure_destroy(NULL));
}

int main(void) {
  const char* build = getenv("PERDURE_BUILD_DIR");
  char command[300];
  snprintf(folder, sizeof(folder), "%s/perdure-test-%ld-c", build != NULL ? build : ".",
           (long)getpid());
  CHECK(mkdir(folder, 0700) == 0);
  snprintf(path, sizeof(path), "%s/pool", folder);
  options_are_checked();
  cuts();
  backups();
  other_durabilities();
  a_kill();
  readers();
  removal();
  snprintf(command, sizeof(command), "rm -r '%s'", folder);
  return system(command);
}
