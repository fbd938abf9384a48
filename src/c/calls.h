// What the calls on maps, snapshots and iterators share.
#pragma once

#include <cstdlib>
#include <new>
#include <string>
#include <utility>

#include "c/handles.h"

namespace perdure::c {

inline perdure_status unknown_flags(const char* function, std::uint32_t flags) noexcept {
  return failed(PERDURE_INVALID_ARGUMENT, "%s: flags 0x%x are unknown", function, flags);
}
inline perdure_status done(const Status& status) noexcept {
  return status.ok() ? PERDURE_OK : failed(status);
}
// For the calls on a map that would not notice by what they do.
inline perdure_status usable(const char* function, const perdure_map* map) noexcept {
  if (auto s = not_null(function, "map", map); s != PERDURE_OK) return s;
  return done(map->map.usable());
}
inline perdure_status words_of(const char* function, const perdure_map* map) noexcept {
  if (map->words) [[likely]]
    return PERDURE_OK;
  if (auto s = usable(function, map); s != PERDURE_OK) return s;
  return failed(PERDURE_INVALID_ARGUMENT,
                "%s: map '%s' is none of 64-bit unsigned keys and values of 8 bytes", function,
                map->name);
}
// Text that does not fit is cut.
template <std::size_t N>
void copy(const std::string& text, char (&out)[N]) noexcept {
  out[text.copy(out, N - 1)] = '\0';
}

// perdure_pool_open() for the call `function`. In pool.cc.
perdure_status open_pool(const char* function, const char* path,
                         const perdure_pool_options* options, const BufferedOptions& buffered,
                         perdure_pool** pool);

inline perdure_status key_of(const char* function, const detail::NamedTypes& handle,
                             const void* data, std::size_t size, UntypedKey& key) noexcept {
  if (to_key(handle.types, data, size, key)) [[likely]]
    return PERDURE_OK;
  return refuse_key(function, handle, data, size);
}
inline perdure_status value_of(const char* function, const detail::NamedTypes& handle,
                               const void* data, std::size_t size, UntypedValue& value) noexcept {
  if (to_value(handle.types, data, size, value)) [[likely]]
    return PERDURE_OK;
  return refuse_value(function, handle, data, size);
}

// A copy of a value, for perdure_free(), with a NUL byte behind it. Null if memory is short.
inline void* copy_of(const Datum& datum) noexcept {
  auto* copy = static_cast<char*>(std::malloc(datum.size() + 1));
  if (copy == nullptr) return nullptr;
  std::memcpy(copy, datum.data(), datum.size());
  copy[datum.size()] = '\0';
  return copy;
}

// The calls below end those of a map, a snapshot and a version: read(visit) reads one key, as
// UntypedMap::read().

template <class Read>
perdure_status get(const MapTypes& types, Read&& read, void** value, std::size_t* size) noexcept {
  void* copy = nullptr;
  std::size_t bytes = 0;
  bool short_of_memory = false;
  const Found found = read([&](const UntypedValue& seen) {
    const Datum datum(types, seen);
    bytes = datum.size();
    copy = copy_of(datum);
    short_of_memory = copy == nullptr;
  });
  if (!found.ok()) {
    std::free(copy);  // a pool that loses its file fails after the callback
    return failed(found.status());
  }
  if (short_of_memory) return failed(Status(StatusCode::out_of_memory));
  *value = copy;
  if (size != nullptr) *size = bytes;
  return PERDURE_OK;
}

template <class Read>
perdure_status get_into(const char* function, const MapTypes& types, Read&& read, void* buffer,
                        std::size_t capacity, std::size_t* size, bool* present) noexcept {
  std::size_t bytes = 0;
  const Found found = read([&](const UntypedValue& seen) {
    const Datum datum(types, seen);
    bytes = datum.size();
    if (capacity != 0) std::memcpy(buffer, datum.data(), bytes < capacity ? bytes : capacity);
  });
  if (!found.ok()) return failed(found.status());
  *present = found.present();
  if (size != nullptr) *size = bytes;
  if (bytes <= capacity) return PERDURE_OK;
  return failed(PERDURE_TRUNCATED, "%s: the value has %zu bytes, the buffer has %zu", function,
                bytes, capacity);
}

template <class Read>
perdure_status visit_value(const char* function, const MapTypes& types, Read&& read,
                           perdure_value_fn* visit, void* context, bool* present) noexcept {
  Caller caller;
  const Found found = read([&](const UntypedValue& seen) {
    const Datum datum(types, seen);
    (void)caller.call([&] {
      visit(context, datum.data(), datum.size());
      return true;
    });
  });
  if (!found.ok()) return failed(found.status());
  if (caller.threw()) return caller.error(function);
  if (present != nullptr) *present = found.present();
  return PERDURE_OK;
}

// Ends a walk: scan(visit) visits entries, as UntypedMap::scan().
template <class Scan>
perdure_status walk(const char* function, const MapTypes& types, Scan&& scan,
                    perdure_entry_fn* visit, void* context, std::uint64_t* visited) noexcept {
  Caller caller;
  Datum k;
  Datum v;
  const Expected<std::uint64_t> count = scan([&](const UntypedKey& key, const UntypedValue& value) {
    k.set(types, key);
    v.set(types, value);
    return caller.call([&] { return visit(context, k.data(), k.size(), v.data(), v.size()); });
  });
  if (!count) return failed(count.error());
  if (caller.threw()) return caller.error(function);
  if (visited != nullptr) *visited = *count;
  return PERDURE_OK;
}

template <class History>
perdure_status walk_history(const char* function, const MapTypes& types, History&& history,
                            perdure_history_fn* visit, void* context,
                            std::uint64_t* visited) noexcept {
  Caller caller;
  Datum datum;
  const Expected<std::uint64_t> count =
      history([&](Version version, const std::optional<UntypedValue>& value) {
        if (value) datum.set(types, *value);
        return caller.call([&] {
          return visit(context, version, value ? datum.data() : nullptr, value ? datum.size() : 0);
        });
      });
  if (!count) return failed(count.error());
  if (caller.threw()) return caller.error(function);
  if (visited != nullptr) *visited = *count;
  return PERDURE_OK;
}

inline perdure_status make_iterator(const detail::NamedTypes& of, UntypedIterator iterator,
                                    perdure_iterator** out) noexcept {
  if (!iterator.status().ok()) return failed(iterator.status());
  *out = new (std::nothrow) perdure_iterator(of, std::move(iterator));
  return *out != nullptr ? PERDURE_OK : failed(Status(StatusCode::out_of_memory));
}

}  // namespace perdure::c
