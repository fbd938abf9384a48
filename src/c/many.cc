// Calls on many keys, and batches.
#include <array>
#include <cstdlib>

#include "c/calls.h"

namespace perdure::c {

namespace {

constexpr std::size_t kGroup = 64;  // keys that are converted at a time, on the stack

// Looks up all keys. visit(i, value) gets those that are present.
template <class F>
perdure_status read_all(const char* function, perdure_map* map, const perdure_bytes* keys,
                        std::size_t count, F&& visit, std::size_t* found) noexcept {
  std::array<UntypedKey, kGroup> group;
  std::size_t present = 0;
  for (std::size_t begin = 0; begin < count; begin += kGroup) {
    const std::size_t n = count - begin < kGroup ? count - begin : kGroup;
    for (std::size_t i = 0; i < n; ++i) {
      const perdure_bytes& key = keys[begin + i];
      group[i] = {};
      if (auto s = key_of(function, *map, key.data, key.size, group[i]); s != PERDURE_OK) return s;
    }
    auto done = map->map.read_many({group.data(), n}, [&](std::size_t i, const UntypedValue& seen) {
      visit(begin + i, Datum(map->types, seen));
    });
    if (!done) return failed(done.error());
    present += *done;
  }
  if (found != nullptr) *found = present;
  return PERDURE_OK;
}

// The results of mutations. Keeps the first error, by the number of its mutation.
class Results {
 public:
  explicit Results(perdure_result* results) noexcept : results_(results) {}

  void set(std::size_t i, perdure_status status, bool present) noexcept {
    if (results_ != nullptr) results_[i] = {status, present};
  }
  // Before a refusal of mutation i, whose text is this thread's error, is lost.
  void refused(std::size_t i, perdure_status status) noexcept {
    set(i, status, false);
    if (first_ != PERDURE_OK && at_ < i) return;
    first_ = status;
    at_ = i;
    text_[std::string_view(last_error()).copy(text_, sizeof(text_) - 1)] = '\0';
  }
  perdure_status first() const noexcept {
    return first_ == PERDURE_OK ? PERDURE_OK : failed(first_, "%s", text_);
  }

 private:
  perdure_result* results_;
  perdure_status first_ = PERDURE_OK;
  std::size_t at_ = 0;
  char text_[1280];
};

// Collects mutations and does them in groups.
class Writer {
 public:
  Writer(const char* function, perdure_map& map, perdure_result* results) noexcept
      : function_(function), map_(map), results_(results) {}

  void add(std::size_t i, const perdure_mutation& in) noexcept {
    if (in.kind < PERDURE_PUT || in.kind > PERDURE_ERASE) {
      results_.refused(i, failed(PERDURE_INVALID_ARGUMENT, "%s: kind %d of mutation %zu is unknown",
                                 function_, in.kind, i));
      return;
    }
    UntypedMutation out{.kind = static_cast<MutationKind>(in.kind)};
    auto s = key_of(function_, map_, in.key.data, in.key.size, out.key);
    if (s == PERDURE_OK && in.kind != PERDURE_ERASE) {
      s = value_of(function_, map_, in.value.data, in.value.size, out.value);
    }
    if (s != PERDURE_OK) {
      results_.refused(i, s);
      return;
    }
    group_[size_] = out;
    numbers_[size_++] = i;
    if (size_ == kGroup) flush();
  }
  perdure_status end() noexcept {
    flush();
    return results_.first();
  }

 private:
  void flush() noexcept {
    (void)map_.map.write_many({group_.data(), size_}, [&](std::size_t i, const Found& found) {
      if (found.ok()) {
        results_.set(numbers_[i], PERDURE_OK, found.present());
      } else {
        results_.refused(numbers_[i], failed(found.status()));
      }
    });
    size_ = 0;
  }

  const char* function_;
  perdure_map& map_;
  Results results_;
  std::array<UntypedMutation, kGroup> group_;
  std::array<std::size_t, kGroup> numbers_;
  std::size_t size_ = 0;
};

// Puts or erases integers. `values` is null for erases.
perdure_status write_words(const char* function, perdure_map* map, MutationKind kind,
                           const std::uint64_t* keys, const std::uint64_t* values,
                           std::size_t count, bool* present) noexcept {
  for (std::size_t i = 0; present != nullptr && i < count; ++i) present[i] = false;
  if (auto s = not_null(function, "map", map); s != PERDURE_OK) return s;
  if (auto s = words_of(function, map); s != PERDURE_OK) return s;
  if (count != 0) {
    if (auto s = not_null(function, "keys", keys); s != PERDURE_OK) return s;
  }
  if (count != 0 && kind == MutationKind::put) {
    if (auto s = not_null(function, "values", values); s != PERDURE_OK) return s;
  }
  using Word = Mutation<std::uint64_t, std::uint64_t>;
  std::array<Word, kGroup> group;
  Status first;
  for (std::size_t begin = 0; begin < count; begin += kGroup) {
    const std::size_t n = count - begin < kGroup ? count - begin : kGroup;
    for (std::size_t i = 0; i < n; ++i) {
      group[i] = {kind, keys[begin + i], values != nullptr ? values[begin + i] : 0};
    }
    Status s = map->words->write_many(std::span<const Word>(group.data(), n),
                                      [&](std::size_t i, const Found& found) {
                                        if (present != nullptr)
                                          present[begin + i] = found.present();
                                      });
    if (first.ok()) first = std::move(s);
  }
  return first.ok() ? PERDURE_OK : failed(first);
}

}  // namespace

}  // namespace perdure::c

using namespace perdure::c;  // NOLINT(google-build-using-namespace): this file defines perdure/c.h
using perdure::MutationKind;
using perdure::Status;
using perdure::StatusCode;
using perdure::UntypedKey;
using perdure::UntypedValue;
using perdure::Version;

perdure_status perdure_get_many(perdure_map* map, const perdure_bytes* keys, size_t count,
                                perdure_buffer* values, size_t* found) {
  if (found != nullptr) *found = 0;
  if (count != 0) {
    if (auto s = not_null(__func__, "values", values); s != PERDURE_OK) return s;
  }
  for (std::size_t i = 0; i < count; ++i) values[i] = {nullptr, 0};
  if (auto s = not_null(__func__, "map", map); s != PERDURE_OK) return s;
  if (count != 0) {
    if (auto s = not_null(__func__, "keys", keys); s != PERDURE_OK) return s;
  }
  bool copied = true;
  auto s = read_all(
      __func__, map, keys, count,
      [&](std::size_t i, const Datum& datum) {
        values[i] = {copy_of(datum), datum.size()};
        copied &= values[i].data != nullptr;
      },
      found);
  if (s == PERDURE_OK && copied) return s;
  for (std::size_t i = 0; i < count; ++i) {
    std::free(values[i].data);
    values[i] = {nullptr, 0};
  }
  if (found != nullptr) *found = 0;
  return s != PERDURE_OK ? s : failed(Status(StatusCode::out_of_memory));
}

perdure_status perdure_read_many(perdure_map* map, const perdure_bytes* keys, size_t count,
                                 perdure_indexed_fn* visit, void* context, size_t* found) {
  if (found != nullptr) *found = 0;
  if (auto s = not_null(__func__, "map", map); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "visit", visit); s != PERDURE_OK) return s;
  if (count != 0) {
    if (auto s = not_null(__func__, "keys", keys); s != PERDURE_OK) return s;
  }
  Caller caller;
  auto s = read_all(
      __func__, map, keys, count,
      [&](std::size_t i, const Datum& datum) {
        if (caller.threw()) return;
        (void)caller.call([&] {
          visit(context, i, datum.data(), datum.size());
          return true;
        });
      },
      found);
  if (s != PERDURE_OK || !caller.threw()) return s;
  if (found != nullptr) *found = 0;
  return caller.error(__func__);
}

perdure_status perdure_write_many(perdure_map* map, const perdure_mutation* mutations, size_t count,
                                  perdure_result* results) {
  auto refused = not_null(__func__, "map", map);
  if (refused == PERDURE_OK && count != 0) refused = not_null(__func__, "mutations", mutations);
  if (refused != PERDURE_OK) {
    for (std::size_t i = 0; results != nullptr && i < count; ++i) results[i] = {refused, false};
    return refused;
  }
  Writer writer(__func__, *map, results);
  for (std::size_t i = 0; i < count; ++i) writer.add(i, mutations[i]);
  return writer.end();
}

perdure_status perdure_u64_get_many(perdure_map* map, const uint64_t* keys, size_t count,
                                    uint64_t* values, bool* present, size_t* found) {
  if (found != nullptr) *found = 0;
  if (count != 0) {
    if (auto s = not_null(__func__, "values", values); s != PERDURE_OK) return s;
    if (auto s = not_null(__func__, "present", present); s != PERDURE_OK) return s;
  }
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = 0;
    present[i] = false;
  }
  if (auto s = not_null(__func__, "map", map); s != PERDURE_OK) return s;
  if (auto s = words_of(__func__, map); s != PERDURE_OK) return s;
  if (count != 0) {
    if (auto s = not_null(__func__, "keys", keys); s != PERDURE_OK) return s;
  }
  auto done = map->words->read_many({keys, count}, [&](std::size_t i, std::uint64_t value) {
    values[i] = value;
    present[i] = true;
  });
  if (!done) return failed(done.error());
  if (found != nullptr) *found = *done;
  return PERDURE_OK;
}

perdure_status perdure_u64_put_many(perdure_map* map, const uint64_t* keys, const uint64_t* values,
                                    size_t count, bool* present) {
  return write_words(__func__, map, MutationKind::put, keys, values, count, present);
}
perdure_status perdure_u64_erase_many(perdure_map* map, const uint64_t* keys, size_t count,
                                      bool* present) {
  return write_words(__func__, map, MutationKind::erase, keys, nullptr, count, present);
}

// ---- batches ------------------------------------------------------------------------------------

// NOLINTNEXTLINE(readability-identifier-naming): the name of perdure/c.h
struct perdure_batch {
  perdure::RealPlatform::Latch busy;
  std::shared_ptr<PoolState> pool;  // of the first map; null: none yet
  perdure::WriteBatch batch;
  perdure_status first = PERDURE_OK;  // what perdure_batch_commit() fails with, and its text
  char text[1280];
};

namespace {

enum class Adds : std::uint8_t { put, erase, require, require_absent };

// Holds the batch for a call.
class Busy {
 public:
  explicit Busy(perdure_batch& batch) noexcept : batch_(batch), mine_(batch.busy.try_lock()) {}
  ~Busy() {
    if (mine_) batch_.busy.unlock();
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

  bool mine() const noexcept { return mine_; }
  static perdure_status refuse(const char* function) noexcept {
    return failed(PERDURE_BUSY, "%s: another thread is in a call on this batch", function);
  }

 private:
  perdure_batch& batch_;
  bool mine_;
};

perdure_status add_item(const char* function, perdure_batch& batch, Adds kind, perdure_map* map,
                        const perdure_bytes& key, const perdure_bytes& value) noexcept {
  UntypedKey k;
  UntypedValue v;
  if (auto s = usable(function, map); s != PERDURE_OK) return s;
  if (batch.pool != nullptr && batch.pool != map->pool) {
    return failed(PERDURE_INVALID_ARGUMENT, "%s: map '%s' is of another pool than the batch",
                  function, map->name);
  }
  if (auto s = key_of(function, *map, key.data, key.size, k); s != PERDURE_OK) return s;
  const bool has_value = kind == Adds::put || kind == Adds::require;
  if (has_value) {
    if (auto s = value_of(function, *map, value.data, value.size, v); s != PERDURE_OK) return s;
  }
  const std::size_t before = batch.batch.size();
  switch (kind) {
    case Adds::put:
      batch.batch.put(map->map, k, v);
      break;
    case Adds::erase:
      batch.batch.erase(map->map, k);
      break;
    case Adds::require:
      batch.batch.require(map->map, k, v);
      break;
    case Adds::require_absent:
      batch.batch.require_absent(map->map, k);
      break;
  }
  // The arguments were verified above, so nothing else is left that can fail.
  if (batch.batch.size() == before) return failed(Status(StatusCode::out_of_memory));
  batch.pool = map->pool;
  return PERDURE_OK;
}

perdure_status add(const char* function, perdure_batch* batch, Adds kind, perdure_map* map,
                   const perdure_bytes& key, const perdure_bytes& value) noexcept {
  if (auto s = not_null(function, "batch", batch); s != PERDURE_OK) return s;
  const Busy busy(*batch);
  if (!busy.mine()) return Busy::refuse(function);
  auto s = add_item(function, *batch, kind, map, key, value);
  if (s != PERDURE_OK && batch->first == PERDURE_OK) {
    batch->first = s;
    batch->text[std::string_view(last_error()).copy(batch->text, sizeof(batch->text) - 1)] = '\0';
  }
  return s;
}

}  // namespace

perdure_status perdure_batch_create(perdure_batch** batch) {
  if (auto s = not_null(__func__, "batch", batch); s != PERDURE_OK) return s;
  *batch = new (std::nothrow) perdure_batch;
  return *batch != nullptr ? PERDURE_OK : failed(Status(StatusCode::out_of_memory));
}
void perdure_batch_destroy(perdure_batch* batch) { delete batch; }

perdure_status perdure_batch_put(perdure_batch* batch, perdure_map* map, const void* key,
                                 size_t key_size, const void* value, size_t value_size) {
  return add(__func__, batch, Adds::put, map, {key, key_size}, {value, value_size});
}
perdure_status perdure_batch_erase(perdure_batch* batch, perdure_map* map, const void* key,
                                   size_t key_size) {
  return add(__func__, batch, Adds::erase, map, {key, key_size}, {});
}
perdure_status perdure_batch_require(perdure_batch* batch, perdure_map* map, const void* key,
                                     size_t key_size, const void* value, size_t value_size) {
  return add(__func__, batch, Adds::require, map, {key, key_size}, {value, value_size});
}
perdure_status perdure_batch_require_absent(perdure_batch* batch, perdure_map* map, const void* key,
                                            size_t key_size) {
  return add(__func__, batch, Adds::require_absent, map, {key, key_size}, {});
}

perdure_status perdure_batch_get(perdure_batch* batch, perdure_map* map, const void* key,
                                 size_t key_size, void** value, size_t* value_size) {
  if (value_size != nullptr) *value_size = 0;
  if (auto s = not_null(__func__, "value", value); s != PERDURE_OK) return s;
  *value = nullptr;
  if (auto s = not_null(__func__, "batch", batch); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "map", map); s != PERDURE_OK) return s;
  const Busy busy(*batch);
  if (!busy.mine()) return Busy::refuse(__func__);
  if (batch->first != PERDURE_OK) return failed(batch->first, "%s", batch->text);
  UntypedKey k;
  if (auto s = key_of(__func__, *map, key, key_size, k); s != PERDURE_OK) return s;
  return get(
      map->types, [&](auto visit) { return batch->batch.read(map->map, k, visit); }, value,
      value_size);
}

perdure_status perdure_batch_commit(perdure_batch* batch) {
  if (auto s = not_null(__func__, "batch", batch); s != PERDURE_OK) return s;
  const Busy busy(*batch);
  if (!busy.mine()) return Busy::refuse(__func__);
  if (batch->first != PERDURE_OK) return failed(batch->first, "%s", batch->text);
  if (batch->pool == nullptr) return PERDURE_OK;  // nothing to do
  // It refuses a pool that is closed or the parent's, and a thread that is in a callback.
  const Status s = batch->pool->pool->commit(batch->batch);
  return s.ok() ? PERDURE_OK : failed(s);
}

perdure_status perdure_batch_clear(perdure_batch* batch) {
  if (auto s = not_null(__func__, "batch", batch); s != PERDURE_OK) return s;
  const Busy busy(*batch);
  if (!busy.mine()) return Busy::refuse(__func__);
  batch->batch.clear();
  batch->pool.reset();
  batch->first = PERDURE_OK;
  return PERDURE_OK;
}

size_t perdure_batch_size(const perdure_batch* batch) {
  return batch == nullptr ? 0 : batch->batch.size();
}
