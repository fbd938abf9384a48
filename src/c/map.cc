// The calls on one key.
#include <cstdlib>

#include "c/calls.h"

namespace perdure::c {

namespace {

// A mutation with a value: change(map, key, value) is that of UntypedMap or of Map.
template <class F>
[[gnu::always_inline]] inline perdure_status store(const char* function, perdure_map* map,
                                                   const void* key, std::size_t key_size,
                                                   const void* value, std::size_t value_size,
                                                   bool* present, F&& change) noexcept {
  if (present != nullptr) *present = false;
  UntypedKey k;
  UntypedValue v;
  if (auto s = not_null(function, "map", map); s != PERDURE_OK) return s;
  if (auto s = key_of(function, *map, key, key_size, k); s != PERDURE_OK) return s;
  if (auto s = value_of(function, *map, value, value_size, v); s != PERDURE_OK) return s;
  const Found found = map->texts ? change(*map->texts, k.bytes, v.bytes) : change(map->map, k, v);
  if (!found.ok()) return failed(found.status());
  if (present != nullptr) *present = found.present();
  return PERDURE_OK;
}

// UntypedMap::read(); of byte strings without its check of the types.
template <class F>
[[gnu::always_inline]] inline Found read(perdure_map& map, const UntypedKey& key,
                                         F&& visit) noexcept {
  if (!map.texts) return map.map.read(key, visit);
  return map.texts->read(key.bytes,
                         [&](std::string_view seen) { visit(UntypedValue{.bytes = seen}); });
}

std::uint64_t mask_of(std::uint32_t bytes) noexcept {
  return bytes >= 8 ? ~std::uint64_t{0} : (1ULL << (8 * bytes)) - 1;
}

// The value that modify() has read.
class Copy {
 public:
  Copy() = default;
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;
  ~Copy() { std::free(bytes_); }

  // Returns false if memory is short.
  bool assign(const Datum& datum) noexcept {
    size_ = datum.size();
    if (size_ + 1 > capacity_) {
      std::free(bytes_);
      bytes_ = static_cast<char*>(std::malloc(size_ + 1));
      capacity_ = bytes_ != nullptr ? size_ + 1 : 0;
    }
    if (bytes_ == nullptr) return false;
    std::memcpy(bytes_, datum.data(), size_);
    bytes_[size_] = '\0';
    return true;
  }
  const void* data() const noexcept { return bytes_; }
  std::size_t size() const noexcept { return size_; }

 private:
  char* bytes_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

// One attempt of modify(). `done`: no other mutation came in between.
perdure_status try_modify(const char* function, perdure_map& map, const UntypedKey& key,
                          perdure_modify_fn* change, void* context, Copy& before, bool& present,
                          bool& done) noexcept {
  bool copied = true;
  Found found = map.map.read(
      key, [&](const UntypedValue& seen) { copied = before.assign(Datum(map.types, seen)); });
  if (!found.ok()) return failed(found.status());
  if (!copied) return failed(Status(StatusCode::out_of_memory));
  present = found.present();
  perdure_bytes after = {nullptr, 0};
  perdure_change wanted = PERDURE_CHANGE_NONE;
  Caller caller;
  (void)caller.call([&] {
    wanted =
        change(context, present ? before.data() : nullptr, present ? before.size() : 0, &after);
    return true;
  });
  if (caller.threw()) return caller.error(function);
  if (wanted < PERDURE_CHANGE_NONE || wanted > PERDURE_CHANGE_ERASE) {
    return failed(PERDURE_INVALID_ARGUMENT, "%s: change %d is unknown", function, wanted);
  }
  done = wanted == PERDURE_CHANGE_NONE || (wanted == PERDURE_CHANGE_ERASE && !present);
  if (done) return PERDURE_OK;
  std::optional<UntypedValue> expected;
  std::optional<UntypedValue> desired;
  if (present) (void)to_value(map.types, before.data(), before.size(), expected.emplace());
  if (wanted == PERDURE_CHANGE_PUT) {
    auto s = value_of(function, map, after.data, after.size, desired.emplace());
    if (s != PERDURE_OK) return s;
  }
  const Exchanged exchanged = map.map.compare_exchange(key, expected, desired);
  if (!exchanged.ok()) return failed(exchanged.status());
  done = exchanged.exchanged();
  return PERDURE_OK;
}

// A mutation of a map of words: change(words) is that of Map.
template <class F>
[[gnu::always_inline]] inline perdure_status store_word(const char* function, perdure_map* map,
                                                        bool* present, F&& change) noexcept {
  if (present != nullptr) *present = false;
  if (auto s = not_null(function, "map", map); s != PERDURE_OK) return s;
  if (auto s = words_of(function, map); s != PERDURE_OK) return s;
  const Found found = change(*map->words);
  if (!found.ok()) return failed(found.status());
  if (present != nullptr) *present = found.present();
  return PERDURE_OK;
}

}  // namespace

}  // namespace perdure::c

using namespace perdure::c;  // NOLINT(google-build-using-namespace): this file defines perdure/c.h
using perdure::Found;
using perdure::UntypedKey;
using perdure::UntypedValue;

perdure_status perdure_put(perdure_map* map, const void* key, size_t key_size, const void* value,
                           size_t value_size, bool* present) {
  return store(__func__, map, key, key_size, value, value_size, present,
               [](auto& m, const auto& k, const auto& v) { return m.put(k, v); });
}
perdure_status perdure_insert(perdure_map* map, const void* key, size_t key_size, const void* value,
                              size_t value_size, bool* present) {
  return store(__func__, map, key, key_size, value, value_size, present,
               [](auto& m, const auto& k, const auto& v) { return m.insert(k, v); });
}
perdure_status perdure_update(perdure_map* map, const void* key, size_t key_size, const void* value,
                              size_t value_size, bool* present) {
  return store(__func__, map, key, key_size, value, value_size, present,
               [](auto& m, const auto& k, const auto& v) { return m.update(k, v); });
}
perdure_status perdure_erase(perdure_map* map, const void* key, size_t key_size, bool* present) {
  if (present != nullptr) *present = false;
  UntypedKey k;
  if (auto s = not_null(__func__, "map", map); s != PERDURE_OK) return s;
  if (auto s = key_of(__func__, *map, key, key_size, k); s != PERDURE_OK) return s;
  const Found found = map->map.erase(k);
  if (!found.ok()) return failed(found.status());
  if (present != nullptr) *present = found.present();
  return PERDURE_OK;
}

perdure_status perdure_contains(perdure_map* map, const void* key, size_t key_size, bool* present) {
  if (auto s = not_null(__func__, "present", present); s != PERDURE_OK) return s;
  *present = false;
  UntypedKey k;
  if (auto s = not_null(__func__, "map", map); s != PERDURE_OK) return s;
  if (auto s = key_of(__func__, *map, key, key_size, k); s != PERDURE_OK) return s;
  const Found found = map->map.contains(k);
  if (!found.ok()) return failed(found.status());
  *present = found.present();
  return PERDURE_OK;
}

perdure_status perdure_get(perdure_map* map, const void* key, size_t key_size, void** value,
                           size_t* value_size) {
  if (value_size != nullptr) *value_size = 0;
  if (auto s = not_null(__func__, "value", value); s != PERDURE_OK) return s;
  *value = nullptr;
  UntypedKey k;
  if (auto s = not_null(__func__, "map", map); s != PERDURE_OK) return s;
  if (auto s = key_of(__func__, *map, key, key_size, k); s != PERDURE_OK) return s;
  return get(map->types, [&](auto visit) { return read(*map, k, visit); }, value, value_size);
}

perdure_status perdure_get_into(perdure_map* map, const void* key, size_t key_size, void* buffer,
                                size_t capacity, size_t* value_size, bool* present) {
  if (value_size != nullptr) *value_size = 0;
  if (auto s = not_null(__func__, "present", present); s != PERDURE_OK) return s;
  *present = false;
  UntypedKey k;
  if (auto s = not_null(__func__, "map", map); s != PERDURE_OK) return s;
  if (capacity != 0) {
    if (auto s = not_null(__func__, "buffer", buffer); s != PERDURE_OK) return s;
  }
  if (auto s = key_of(__func__, *map, key, key_size, k); s != PERDURE_OK) return s;
  return get_into(
      __func__, map->types, [&](auto visit) { return read(*map, k, visit); }, buffer, capacity,
      value_size, present);
}

perdure_status perdure_read(perdure_map* map, const void* key, size_t key_size,
                            perdure_value_fn* visit, void* context, bool* present) {
  if (present != nullptr) *present = false;
  UntypedKey k;
  if (auto s = not_null(__func__, "map", map); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "visit", visit); s != PERDURE_OK) return s;
  if (auto s = key_of(__func__, *map, key, key_size, k); s != PERDURE_OK) return s;
  return visit_value(
      __func__, map->types, [&](auto each) { return read(*map, k, each); }, visit, context,
      present);
}

// ---- look and change ----------------------------------------------------------------------------

perdure_status perdure_compare_exchange(perdure_map* map, const void* key, size_t key_size,
                                        const void* expected, size_t expected_size,
                                        const void* desired, size_t desired_size, bool* exchanged) {
  if (auto s = not_null(__func__, "exchanged", exchanged); s != PERDURE_OK) return s;
  *exchanged = false;
  UntypedKey k;
  std::optional<UntypedValue> before;
  std::optional<UntypedValue> after;
  if (auto s = not_null(__func__, "map", map); s != PERDURE_OK) return s;
  if (auto s = key_of(__func__, *map, key, key_size, k); s != PERDURE_OK) return s;
  if (expected != nullptr || expected_size != 0) {
    auto s = value_of(__func__, *map, expected, expected_size, before.emplace());
    if (s != PERDURE_OK) return s;
  }
  if (desired != nullptr || desired_size != 0) {
    auto s = value_of(__func__, *map, desired, desired_size, after.emplace());
    if (s != PERDURE_OK) return s;
  }
  const perdure::Exchanged done = map->map.compare_exchange(k, before, after);
  if (!done.ok()) return failed(done.status());
  *exchanged = done.exchanged();
  return PERDURE_OK;
}

perdure_status perdure_modify(perdure_map* map, const void* key, size_t key_size,
                              perdure_modify_fn* change, void* context, bool* present) {
  if (present != nullptr) *present = false;
  UntypedKey k;
  if (auto s = not_null(__func__, "map", map); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "change", change); s != PERDURE_OK) return s;
  if (auto s = key_of(__func__, *map, key, key_size, k); s != PERDURE_OK) return s;
  Copy before;
  bool was = false;
  for (bool done = false; !done;) {
    auto s = try_modify(__func__, *map, k, change, context, before, was, done);
    if (s != PERDURE_OK) return s;
  }
  if (present != nullptr) *present = was;
  return PERDURE_OK;
}

perdure_status perdure_fetch_add(perdure_map* map, const void* key, size_t key_size, uint64_t delta,
                                 uint64_t* before) {
  if (before != nullptr) *before = 0;
  UntypedKey k;
  if (auto s = not_null(__func__, "map", map); s != PERDURE_OK) return s;
  if (auto s = key_of(__func__, *map, key, key_size, k); s != PERDURE_OK) return s;
  if (map->types.value_kind != perdure::ValueKind::word) {
    if (auto s = usable(__func__, map); s != PERDURE_OK) return s;
    return failed(PERDURE_INVALID_ARGUMENT,
                  "%s: the values of map '%s' are no integers of 1 to 8 bytes", __func__,
                  map->name);
  }
  const std::uint32_t size = map->types.value_bytes;
  for (;;) {
    std::optional<UntypedValue> was;
    const Found found = map->map.read(k, [&](const UntypedValue& seen) {
      was = UntypedValue{.word = seen.word & mask_of(size), .word_size = size};
    });
    if (!found.ok()) return failed(found.status());
    const std::uint64_t word = was ? was->word : 0;
    const UntypedValue sum{.word = (word + delta) & mask_of(size), .word_size = size};
    const perdure::Exchanged done = map->map.compare_exchange(k, was, sum);
    if (!done.ok()) return failed(done.status());
    if (!done.exchanged()) continue;
    if (before != nullptr) *before = word;
    return PERDURE_OK;
  }
}

// ---- maps of 64-bit integers --------------------------------------------------------------------

perdure_status perdure_u64_put(perdure_map* map, uint64_t key, uint64_t value, bool* present) {
  return store_word(__func__, map, present, [&](auto& words) { return words.put(key, value); });
}
perdure_status perdure_u64_insert(perdure_map* map, uint64_t key, uint64_t value, bool* present) {
  return store_word(__func__, map, present, [&](auto& words) { return words.insert(key, value); });
}
perdure_status perdure_u64_update(perdure_map* map, uint64_t key, uint64_t value, bool* present) {
  return store_word(__func__, map, present, [&](auto& words) { return words.update(key, value); });
}
perdure_status perdure_u64_erase(perdure_map* map, uint64_t key, bool* present) {
  return store_word(__func__, map, present, [&](auto& words) { return words.erase(key); });
}
perdure_status perdure_u64_get(perdure_map* map, uint64_t key, uint64_t* value, bool* present) {
  if (value != nullptr) *value = 0;
  if (auto s = not_null(__func__, "present", present); s != PERDURE_OK) return s;
  *present = false;
  if (auto s = not_null(__func__, "map", map); s != PERDURE_OK) return s;
  if (auto s = words_of(__func__, map); s != PERDURE_OK) return s;
  const auto got = map->words->get(key);
  if (!got) return failed(got.error());
  *present = got->has_value();
  if (value != nullptr && got->has_value()) *value = **got;
  return PERDURE_OK;
}
