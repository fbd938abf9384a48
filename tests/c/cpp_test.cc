// perdure/c.h from C++: callbacks that throw, and a map that both interfaces use.
#include <perdure/perdure.h>

#include <stdexcept>
#include <string>

#include "c/check.h"

namespace {

void in_value(void*, const void*, std::size_t) { throw std::runtime_error("value"); }
void in_many(void*, std::size_t, const void*, std::size_t) { throw 1; }
bool in_entry(void*, const void*, std::size_t, const void*, std::size_t) { throw 1; }
bool in_history(void*, std::uint64_t, const void*, std::size_t) { throw 1; }
bool in_difference(void*, const void*, std::size_t, const void*, std::size_t, const void*,
                   std::size_t) {
  throw 1;
}
perdure_change in_modify(void*, const void*, std::size_t, perdure_bytes*) { throw 1; }
bool in_list(void*, const perdure_map_info*) { throw 1; }
void in_batch(void*) { throw 1; }
void in_progress(void*, std::uint64_t, std::uint64_t) { throw 1; }
void in_log(void* lines, perdure_log_level, const char*) {
  ++*static_cast<int*>(lines);
  throw 1;
}

// An exception ends in the library, which keeps no latch and no guard: everything works afterwards.
void throwing() {
  int lines = 0;
  perdure_pool_options options = PERDURE_POOL_OPTIONS_INIT;
  options.max_size = 64U << 20;
  options.log = in_log;
  options.log_context = &lines;
  perdure_pool* pool = nullptr;
  OK(perdure_pool_open(scratch("pool"), &options, &pool));
  CHECK(lines > 0);
  perdure_map* map = open_bytes(pool, "map", PERDURE_ENGINE_PSKIPLIST);
  OK(put_text(map, "a", "1"));
  std::uint64_t one = 0;
  std::uint64_t two = 0;
  OK(perdure_tag(map, &one));
  OK(put_text(map, "a", "2"));
  OK(perdure_tag(map, &two));
  perdure_snapshot* snapshot = nullptr;
  OK(perdure_snapshot_open(map, one, &snapshot));
  perdure_map* leaves = open_bytes(pool, "leaves", PERDURE_ENGINE_PHAST);  // to check
  for (int i = 0; i < 2000; ++i) OK(put_text(leaves, std::to_string(i).c_str(), "x"));
  perdure_map_close(leaves);
  const perdure_bytes key = {"a", 1};
  perdure_check_options check = PERDURE_CHECK_OPTIONS_INIT;
  check.progress = in_progress;
  check.flags = PERDURE_CHECK_DEEP;
  std::uint64_t n = 7;
  bool present = true;
  INVALID("threw", perdure_read(map, "a", 1, in_value, nullptr, &present));
  CHECK(!present);
  INVALID("threw", perdure_read_many(map, &key, 1, in_many, nullptr, nullptr));
  INVALID("threw", perdure_for_each(map, in_entry, nullptr, nullptr));
  INVALID("threw", perdure_scan(map, nullptr, in_entry, nullptr, &n));
  CHECK(n == 0);
  INVALID("threw", perdure_history(map, "a", 1, in_history, nullptr, nullptr));
  INVALID("threw", perdure_diff(map, one, two, nullptr, in_difference, nullptr, nullptr));
  INVALID("threw", perdure_modify(map, "a", 1, in_modify, nullptr, nullptr));
  INVALID("threw", perdure_snapshot_read(snapshot, "a", 1, in_value, nullptr, nullptr));
  INVALID("threw", perdure_snapshot_scan(snapshot, nullptr, in_entry, nullptr, nullptr));
  INVALID("threw", perdure_snapshot_history(snapshot, "a", 1, in_history, nullptr, nullptr));
  INVALID("threw", perdure_pool_list(pool, in_list, nullptr));
  INVALID("threw", perdure_pool_read_batch(pool, in_batch, nullptr));
  INVALID("threw", perdure_pool_check(pool, &check, nullptr));
  perdure_pool_stats stats;
  stats.struct_size = sizeof(stats);
  OK(perdure_pool_get_stats(pool, &stats));
  CHECK(stats.stalled_readers == 0);
  OK(put_text(map, "a", "3"));
  CHECK(has_text(map, "a", "3"));
  OK(perdure_pool_sync(pool));
  perdure_snapshot_close(snapshot);
  perdure_map_close(map);
  close_scratch(pool);
}

// What C++ stores, C reads, and the other way round.
void shared() {
  const std::string path = scratch("shared");
  {
    auto store = perdure::Store::open(path, {.pool = {.max_size = 64U << 20}});
    CHECK(store && store->put("ada", "36").ok());
    auto counts = store->pool().map<std::int32_t, std::uint64_t>("counts");
    CHECK(counts && counts->put(-5, 12).ok());
  }
  perdure_pool* pool = nullptr;
  perdure_map* map = nullptr;
  OK(perdure_pool_open(path.c_str(), nullptr, &pool));
  OK(perdure_map_open(pool, nullptr, nullptr, &map));
  CHECK(has_text(map, "ada", "36"));
  OK(put_text(map, "bob", "7"));
  perdure_map_close(map);
  map = open_map(pool, "counts", PERDURE_ENGINE_DEFAULT, PERDURE_KEY_I32, 8);
  const std::int32_t key = -5;
  std::uint64_t before = 0;
  OK(perdure_fetch_add(map, &key, sizeof(key), 1, &before));
  CHECK(before == 12);
  perdure_map_close(map);
  OK(perdure_pool_close(pool, 0));
  auto store = perdure::Store::open(path);
  CHECK(store && store->get("bob").value() == "7");
  auto counts = store->pool().map<std::int32_t, std::uint64_t>("counts");
  CHECK(counts && counts->get(-5).value() == 13U);
  CHECK(store->close().ok());
  std::remove(path.c_str());
}

}  // namespace

int main() {
  throwing();
  shared();
  return 0;
}
