// Walks, iterators and versions.
#include "c/calls.h"

using namespace perdure::c;  // NOLINT(google-build-using-namespace): this file defines perdure/c.h
using perdure::Found;
using perdure::Status;
using perdure::UntypedKey;
using perdure::UntypedScanOptions;
using perdure::UntypedValue;
using perdure::Version;

namespace {

// What a call with a range verifies: the handle and the range.
template <class Handle>
perdure_status with_range(const char* function, const char* name, const Handle* handle,
                          const perdure_range* range, UntypedScanOptions& options) noexcept {
  if (auto s = not_null(function, name, handle); s != PERDURE_OK) return s;
  return to_range(function, *handle, range, options);
}

void set(std::uint64_t* out, std::uint64_t value) noexcept {
  if (out != nullptr) *out = value;
}

// Whether another thread is in a call on the iterator, or none may be made.
class Moving {
 public:
  Moving(const char* function, perdure_iterator* iterator) noexcept : iterator_(iterator) {
    status_ = not_null(function, "iterator", iterator);
    if (status_ != PERDURE_OK) return;
    mine_ = iterator->busy.try_lock();
    if (!mine_) {
      status_ = failed(PERDURE_BUSY, "%s: another thread is in a call on this iterator", function);
    }
  }
  ~Moving() {
    if (mine_) iterator_->busy.unlock();
  }
  Moving(const Moving&) = delete;
  Moving& operator=(const Moving&) = delete;

  template <class F>
  perdure_status move(F&& f) noexcept {
    if (status_ != PERDURE_OK) return status_;
    f(iterator_->iterator);
    const Status& s = iterator_->iterator.status();
    return s.ok() ? PERDURE_OK : failed(s);
  }

 private:
  perdure_iterator* iterator_;
  perdure_status status_ = PERDURE_OK;
  bool mine_ = false;
};

}  // namespace

// ---- walks --------------------------------------------------------------------------------------

perdure_status perdure_for_each(perdure_map* map, perdure_entry_fn* visit, void* context,
                                uint64_t* visited) {
  set(visited, 0);
  if (auto s = not_null(__func__, "map", map); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "visit", visit); s != PERDURE_OK) return s;
  return walk(
      __func__, map->types, [&](auto each) { return map->map.for_each(each); }, visit, context,
      visited);
}

perdure_status perdure_scan(perdure_map* map, const perdure_range* range, perdure_entry_fn* visit,
                            void* context, uint64_t* visited) {
  set(visited, 0);
  UntypedScanOptions options;
  if (auto s = with_range(__func__, "map", map, range, options); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "visit", visit); s != PERDURE_OK) return s;
  return walk(
      __func__, map->types, [&](auto each) { return map->map.scan(options, each); }, visit, context,
      visited);
}

perdure_status perdure_count(perdure_map* map, const perdure_range* range, uint64_t* count) {
  if (auto s = not_null(__func__, "count", count); s != PERDURE_OK) return s;
  *count = 0;
  UntypedScanOptions options;
  if (auto s = with_range(__func__, "map", map, range, options); s != PERDURE_OK) return s;
  auto n = map->map.scan(options, [](const UntypedKey&, const UntypedValue&) { return true; });
  if (!n) return failed(n.error());
  *count = *n;
  return PERDURE_OK;
}

perdure_status perdure_erase_range(perdure_map* map, const perdure_range* range, uint64_t* erased) {
  set(erased, 0);
  UntypedScanOptions options;
  if (auto s = not_null(__func__, "map", map); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "range", range); s != PERDURE_OK) return s;
  if (auto s = with_range(__func__, "map", map, range, options); s != PERDURE_OK) return s;
  auto n = map->map.erase_range(options);
  if (!n) return failed(n.error());
  set(erased, *n);
  return PERDURE_OK;
}

// ---- iterators ----------------------------------------------------------------------------------

perdure_status perdure_iterator_open(perdure_map* map, const perdure_range* range,
                                     perdure_iterator** iterator) {
  if (auto s = not_null(__func__, "iterator", iterator); s != PERDURE_OK) return s;
  *iterator = nullptr;
  UntypedScanOptions options;
  if (auto s = with_range(__func__, "map", map, range, options); s != PERDURE_OK) return s;
  return make_iterator(*map, map->map.scan(options), iterator);
}

void perdure_iterator_close(perdure_iterator* iterator) { delete iterator; }

bool perdure_iterator_valid(const perdure_iterator* iterator) {
  return iterator != nullptr && iterator->iterator.valid();
}

perdure_status perdure_iterator_status(const perdure_iterator* iterator) {
  if (auto s = not_null(__func__, "iterator", iterator); s != PERDURE_OK) return s;
  const Status& s = iterator->iterator.status();
  return s.ok() ? PERDURE_OK : failed(s);
}

const void* perdure_iterator_key(const perdure_iterator* iterator, size_t* size) {
  const bool valid = perdure_iterator_valid(iterator);
  if (valid) iterator->key.set(iterator->types, iterator->iterator.key());
  if (size != nullptr) *size = valid ? iterator->key.size() : 0;
  return valid ? iterator->key.data() : nullptr;
}
const void* perdure_iterator_value(const perdure_iterator* iterator, size_t* size) {
  const bool valid = perdure_iterator_valid(iterator);
  if (valid) iterator->value.set(iterator->types, iterator->iterator.value());
  if (size != nullptr) *size = valid ? iterator->value.size() : 0;
  return valid ? iterator->value.data() : nullptr;
}

perdure_status perdure_iterator_next(perdure_iterator* iterator) {
  return Moving(__func__, iterator).move([](auto& it) { it.next(); });
}
perdure_status perdure_iterator_prev(perdure_iterator* iterator) {
  return Moving(__func__, iterator).move([](auto& it) { it.prev(); });
}
perdure_status perdure_iterator_first(perdure_iterator* iterator) {
  return Moving(__func__, iterator).move([](auto& it) { it.first(); });
}
perdure_status perdure_iterator_last(perdure_iterator* iterator) {
  return Moving(__func__, iterator).move([](auto& it) { it.last(); });
}
perdure_status perdure_iterator_seek(perdure_iterator* iterator, const void* key, size_t key_size) {
  UntypedKey k;
  if (auto s = not_null(__func__, "iterator", iterator); s != PERDURE_OK) return s;
  if (auto s = key_of(__func__, *iterator, key, key_size, k); s != PERDURE_OK) return s;
  return Moving(__func__, iterator).move([&](auto& it) { it.seek(k); });
}

// ---- versions -----------------------------------------------------------------------------------

perdure_status perdure_tag(perdure_map* map, uint64_t* version) {
  if (auto s = not_null(__func__, "version", version); s != PERDURE_OK) return s;
  *version = 0;
  if (auto s = not_null(__func__, "map", map); s != PERDURE_OK) return s;
  auto tag = map->map.tag();
  if (!tag) return failed(tag.error());
  *version = *tag;
  return PERDURE_OK;
}

perdure_status perdure_versions(perdure_map* map, uint64_t* first, uint64_t* last) {
  if (auto s = not_null(__func__, "first", first); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "last", last); s != PERDURE_OK) return s;
  *first = *last = 0;
  if (auto s = not_null(__func__, "map", map); s != PERDURE_OK) return s;
  auto range = map->map.versions();
  if (!range) return failed(range.error());
  *first = range->first;
  *last = range->last;
  return PERDURE_OK;
}

perdure_status perdure_get_at(perdure_map* map, uint64_t version, const void* key, size_t key_size,
                              void** value, size_t* value_size) {
  if (value_size != nullptr) *value_size = 0;
  if (auto s = not_null(__func__, "value", value); s != PERDURE_OK) return s;
  *value = nullptr;
  UntypedKey k;
  if (auto s = not_null(__func__, "map", map); s != PERDURE_OK) return s;
  if (auto s = key_of(__func__, *map, key, key_size, k); s != PERDURE_OK) return s;
  return get(
      map->types, [&](auto visit) { return map->map.read(k, version, visit); }, value, value_size);
}

perdure_status perdure_history(perdure_map* map, const void* key, size_t key_size,
                               perdure_history_fn* visit, void* context, uint64_t* visited) {
  set(visited, 0);
  UntypedKey k;
  if (auto s = not_null(__func__, "map", map); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "visit", visit); s != PERDURE_OK) return s;
  if (auto s = key_of(__func__, *map, key, key_size, k); s != PERDURE_OK) return s;
  return walk_history(
      __func__, map->types, [&](auto each) { return map->map.history(k, each); }, visit, context,
      visited);
}

perdure_status perdure_diff(perdure_map* map, uint64_t from_version, uint64_t to_version,
                            const perdure_range* range, perdure_difference_fn* visit, void* context,
                            uint64_t* visited) {
  set(visited, 0);
  UntypedScanOptions options;
  if (auto s = with_range(__func__, "map", map, range, options); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "visit", visit); s != PERDURE_OK) return s;
  Caller caller;
  const auto each = [&](const UntypedKey& key, const std::optional<UntypedValue>& before,
                        const std::optional<UntypedValue>& after) {
    const Datum k(map->types, key);
    Datum b;
    Datum a;
    if (before) b.set(map->types, *before);
    if (after) a.set(map->types, *after);
    return caller.call([&] {
      return visit(context, k.data(), k.size(), before ? b.data() : nullptr, before ? b.size() : 0,
                   after ? a.data() : nullptr, after ? a.size() : 0);
    });
  };
  auto count = map->map.diff(from_version, to_version, options, each);
  if (!count) return failed(count.error());
  if (caller.threw()) return caller.error(__func__);
  set(visited, *count);
  return PERDURE_OK;
}

perdure_status perdure_trim(perdure_map* map, uint64_t version, uint64_t* first) {
  set(first, 0);
  if (auto s = not_null(__func__, "map", map); s != PERDURE_OK) return s;
  auto remains = map->map.trim(version);
  if (!remains) return failed(remains.error());
  set(first, *remains);
  return PERDURE_OK;
}

perdure_status perdure_rollback(perdure_map* map, uint64_t version) {
  if (auto s = not_null(__func__, "map", map); s != PERDURE_OK) return s;
  const Status s = map->map.rollback(version);
  return s.ok() ? PERDURE_OK : failed(s);
}

// ---- snapshots ----------------------------------------------------------------------------------

perdure_status perdure_snapshot_open(perdure_map* map, uint64_t version,
                                     perdure_snapshot** snapshot) {
  if (auto s = not_null(__func__, "snapshot", snapshot); s != PERDURE_OK) return s;
  *snapshot = nullptr;
  if (auto s = not_null(__func__, "map", map); s != PERDURE_OK) return s;
  auto held = version == PERDURE_LAST_VERSION ? map->map.snapshot() : map->map.snapshot(version);
  if (!held) return failed(held.error());
  *snapshot = new (std::nothrow) perdure_snapshot(*map, std::move(*held));
  return *snapshot != nullptr ? PERDURE_OK : failed(Status(perdure::StatusCode::out_of_memory));
}

void perdure_snapshot_close(perdure_snapshot* snapshot) { delete snapshot; }

uint64_t perdure_snapshot_version(const perdure_snapshot* snapshot) {
  return snapshot == nullptr ? 0 : snapshot->snapshot.version();
}

perdure_status perdure_snapshot_contains(perdure_snapshot* snapshot, const void* key,
                                         size_t key_size, bool* present) {
  if (auto s = not_null(__func__, "present", present); s != PERDURE_OK) return s;
  *present = false;
  UntypedKey k;
  if (auto s = not_null(__func__, "snapshot", snapshot); s != PERDURE_OK) return s;
  if (auto s = key_of(__func__, *snapshot, key, key_size, k); s != PERDURE_OK) return s;
  const Found found = snapshot->snapshot.contains(k);
  if (!found.ok()) return failed(found.status());
  *present = found.present();
  return PERDURE_OK;
}

perdure_status perdure_snapshot_get(perdure_snapshot* snapshot, const void* key, size_t key_size,
                                    void** value, size_t* value_size) {
  if (value_size != nullptr) *value_size = 0;
  if (auto s = not_null(__func__, "value", value); s != PERDURE_OK) return s;
  *value = nullptr;
  UntypedKey k;
  if (auto s = not_null(__func__, "snapshot", snapshot); s != PERDURE_OK) return s;
  if (auto s = key_of(__func__, *snapshot, key, key_size, k); s != PERDURE_OK) return s;
  return get(
      snapshot->types, [&](auto visit) { return snapshot->snapshot.read(k, visit); }, value,
      value_size);
}

perdure_status perdure_snapshot_get_into(perdure_snapshot* snapshot, const void* key,
                                         size_t key_size, void* buffer, size_t capacity,
                                         size_t* value_size, bool* present) {
  if (value_size != nullptr) *value_size = 0;
  if (auto s = not_null(__func__, "present", present); s != PERDURE_OK) return s;
  *present = false;
  UntypedKey k;
  if (auto s = not_null(__func__, "snapshot", snapshot); s != PERDURE_OK) return s;
  if (capacity != 0) {
    if (auto s = not_null(__func__, "buffer", buffer); s != PERDURE_OK) return s;
  }
  if (auto s = key_of(__func__, *snapshot, key, key_size, k); s != PERDURE_OK) return s;
  return get_into(
      __func__, snapshot->types, [&](auto visit) { return snapshot->snapshot.read(k, visit); },
      buffer, capacity, value_size, present);
}

perdure_status perdure_snapshot_read(perdure_snapshot* snapshot, const void* key, size_t key_size,
                                     perdure_value_fn* visit, void* context, bool* present) {
  if (present != nullptr) *present = false;
  UntypedKey k;
  if (auto s = not_null(__func__, "snapshot", snapshot); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "visit", visit); s != PERDURE_OK) return s;
  if (auto s = key_of(__func__, *snapshot, key, key_size, k); s != PERDURE_OK) return s;
  return visit_value(
      __func__, snapshot->types, [&](auto each) { return snapshot->snapshot.read(k, each); }, visit,
      context, present);
}

perdure_status perdure_snapshot_scan(perdure_snapshot* snapshot, const perdure_range* range,
                                     perdure_entry_fn* visit, void* context, uint64_t* visited) {
  set(visited, 0);
  UntypedScanOptions options;
  if (auto s = with_range(__func__, "snapshot", snapshot, range, options); s != PERDURE_OK) {
    return s;
  }
  if (auto s = not_null(__func__, "visit", visit); s != PERDURE_OK) return s;
  return walk(
      __func__, snapshot->types, [&](auto each) { return snapshot->snapshot.scan(options, each); },
      visit, context, visited);
}

perdure_status perdure_snapshot_count(perdure_snapshot* snapshot, const perdure_range* range,
                                      uint64_t* count) {
  if (auto s = not_null(__func__, "count", count); s != PERDURE_OK) return s;
  *count = 0;
  UntypedScanOptions options;
  if (auto s = with_range(__func__, "snapshot", snapshot, range, options); s != PERDURE_OK) {
    return s;
  }
  auto n =
      snapshot->snapshot.scan(options, [](const UntypedKey&, const UntypedValue&) { return true; });
  if (!n) return failed(n.error());
  *count = *n;
  return PERDURE_OK;
}

perdure_status perdure_snapshot_iterate(perdure_snapshot* snapshot, const perdure_range* range,
                                        perdure_iterator** iterator) {
  if (auto s = not_null(__func__, "iterator", iterator); s != PERDURE_OK) return s;
  *iterator = nullptr;
  UntypedScanOptions options;
  if (auto s = with_range(__func__, "snapshot", snapshot, range, options); s != PERDURE_OK) {
    return s;
  }
  return make_iterator(*snapshot, snapshot->snapshot.scan(options), iterator);
}

perdure_status perdure_snapshot_history(perdure_snapshot* snapshot, const void* key,
                                        size_t key_size, perdure_history_fn* visit, void* context,
                                        uint64_t* visited) {
  set(visited, 0);
  UntypedKey k;
  if (auto s = not_null(__func__, "snapshot", snapshot); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "visit", visit); s != PERDURE_OK) return s;
  if (auto s = key_of(__func__, *snapshot, key, key_size, k); s != PERDURE_OK) return s;
  return walk_history(
      __func__, snapshot->types, [&](auto each) { return snapshot->snapshot.history(k, each); },
      visit, context, visited);
}
