// The handles of the C library (perdure/c.h), and what all of its calls check.
//
// WHAT  A thin front end: each call checks its arguments, converts them, and calls UntypedMap, Pool
//   or WriteBatch. No exception leaves it, and none of a caller's callback enters the core. The
//   core refuses calls on what is closed, dropped or the parent's, and those from a callback.
// Thread safety: as perdure/c.h says of each handle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perdure/c.h"
#include "perdure/perdure.h"
#include "platform/real_platform.h"

namespace perdure::c {

// ---- errors -------------------------------------------------------------------------------------

// Store the text of the calling thread's error, and return its code.
[[gnu::cold]] perdure_status failed(const Status& status) noexcept;
[[gnu::cold, gnu::format(printf, 2, 3)]] perdure_status failed(perdure_status code,
                                                               const char* format, ...) noexcept;
const char* last_error() noexcept;

// Calls f(), which allocates. Without memory the call fails.
template <class F>
perdure_status guarded(F&& f) noexcept {
  try {
    return f();
  } catch (...) {  // std::bad_alloc: nothing else is thrown
    return failed(Status(StatusCode::out_of_memory));
  }
}

// ---- what handles share -------------------------------------------------------------------------

// The maps of a pool keep it when its handle was closed.
struct PoolState {
  std::optional<Pool> pool;
  void (*log)(void*, perdure_log_level, const char*) = nullptr;
  void* log_context = nullptr;
};

// Whether a function of the caller threw. Its exception ends here.
class Caller {
 public:
  // Calls f(), which returns whether the walk goes on. Returns false if f() throws.
  template <class F>
  bool call(F&& f) noexcept {
    try {
      return f();
    } catch (...) {
      threw_ = true;
      return false;
    }
  }
  bool threw() const noexcept { return threw_; }
  perdure_status error(const char* function) const noexcept;

 private:
  bool threw_ = false;
};

// ---- keys and values ----------------------------------------------------------------------------

inline perdure_key_type key_type(const MapTypes& types) noexcept {
  if (types.key_kind == KeyKind::bytes) return PERDURE_KEY_BYTES;
  if (types.key_kind == KeyKind::array) return PERDURE_KEY_ARRAY;
  const int log = types.key_bytes == 8 ? 3 : types.key_bytes / 2;
  return static_cast<perdure_key_type>((types.is_signed ? PERDURE_KEY_I8 : PERDURE_KEY_U8) + log);
}

// Convert an argument. Return false if it does not fit the types.
inline bool to_key(const MapTypes& types, const void* data, std::size_t size,
                   UntypedKey& key) noexcept {
  if (data == nullptr && size != 0) return false;
  if (types.key_kind == KeyKind::integer) {
    if (data == nullptr || size != types.key_bytes) return false;
    std::memcpy(&key.word, data, size);
    if (types.is_signed) {
      const unsigned shift = 64 - 8 * types.key_bytes;
      const auto number = static_cast<std::int64_t>(key.word << shift) >> shift;
      key.word = static_cast<std::uint64_t>(number) ^ (1ULL << 63);
    }
    return true;
  }
  if (size > kMaxKeyBytes || (types.key_kind == KeyKind::array && size != types.key_bytes)) {
    return false;
  }
  key.bytes = {static_cast<const char*>(data), size};
  return true;
}
inline bool to_value(const MapTypes& types, const void* data, std::size_t size,
                     UntypedValue& value) noexcept {
  if ((data == nullptr && size != 0) || size > kMaxValueBytes) return false;
  if (types.value_kind != ValueKind::bytes && size != types.value_bytes) return false;
  if (types.value_kind == ValueKind::word) {
    if (data == nullptr) return false;
    std::memcpy(&value.word, data, size);
    value.word_size = types.value_bytes;
  } else {
    value.bytes = {static_cast<const char*>(data), size};
  }
  return true;
}
// Why a conversion has failed.
[[gnu::cold]] perdure_status refuse_key(const char* function, const detail::NamedTypes& map,
                                        const void* data, std::size_t size) noexcept;
[[gnu::cold]] perdure_status refuse_value(const char* function, const detail::NamedTypes& map,
                                          const void* data, std::size_t size) noexcept;

// A key or a value as a caller sees it: never NULL, and of the size that its type has.
class Datum {
 public:
  Datum() noexcept = default;
  Datum(const MapTypes& types, const UntypedKey& key) noexcept { set(types, key); }
  Datum(const MapTypes& types, const UntypedValue& value) noexcept { set(types, value); }

  void set(const MapTypes& types, const UntypedKey& key) noexcept {
    if (types.key_kind == KeyKind::integer) {
      number(types.is_signed ? key.word ^ (1ULL << 63) : key.word, types.key_bytes);
    } else {
      bytes(key.bytes, types.key_bytes);
    }
  }
  void set(const MapTypes& types, const UntypedValue& value) noexcept {
    if (types.value_kind == ValueKind::word) {
      number(value.word, types.value_bytes);
    } else {
      bytes(value.bytes, types.value_bytes);
    }
  }
  const void* data() const noexcept { return data_ != nullptr ? data_ : fixed_; }
  std::size_t size() const noexcept { return size_; }

 private:
  void number(std::uint64_t word, std::size_t size) noexcept {
    std::memcpy(fixed_, &word, sizeof(word));
    data_ = nullptr;
    size_ = size;
  }
  // A damaged record may have another size than its type.
  void bytes(std::string_view bytes, std::size_t fixed) noexcept {
    data_ = bytes.data();
    size_ = bytes.size();
    if (fixed == 0) return;
    std::memset(fixed_, 0, sizeof(fixed_));
    bytes.copy(fixed_, fixed);
    data_ = nullptr;
    size_ = fixed;
  }

  const char* data_ = nullptr;  // null: fixed_
  std::size_t size_ = 0;
  alignas(16) char fixed_[16] = {};
};

// ---- structs with their size --------------------------------------------------------------------

inline constexpr std::size_t kLargestStruct = 16384;  // a size above it is no size

[[gnu::cold]] perdure_status refuse_struct(const char* function, const char* name, std::size_t size,
                                           std::size_t least) noexcept;

// Copies a struct of options; null stands for the defaults, which `out` has.
template <class T>
perdure_status take(const char* function, const char* name, const T* in, T& out) noexcept {
  if (in == nullptr) return PERDURE_OK;
  const std::size_t size = in->struct_size;
  bool known = size >= sizeof(T) && size <= kLargestStruct;
  const char* bytes = reinterpret_cast<const char*>(in);
  for (std::size_t i = sizeof(T); known && i < size; ++i) known = bytes[i] == 0;
  if (!known) return refuse_struct(function, name, size, sizeof(T));
  std::memcpy(static_cast<void*>(&out), in, sizeof(T));
  return PERDURE_OK;
}
// Prepares a struct of results: verifies its size, and zeroes the rest of it.
template <class T>
perdure_status clear(const char* function, const char* name, T* out) noexcept {
  if (out == nullptr) return failed(PERDURE_INVALID_ARGUMENT, "%s: %s is NULL", function, name);
  const std::size_t size = out->struct_size;
  if (size < sizeof(T) || size > kLargestStruct) {
    return refuse_struct(function, name, size, sizeof(T));
  }
  std::memset(reinterpret_cast<char*>(out) + sizeof(size), 0, size - sizeof(size));
  return PERDURE_OK;
}

// An argument that must not be NULL.
template <class T>
perdure_status not_null(const char* function, const char* name, T* p) noexcept {
  if (p != nullptr) [[likely]]
    return PERDURE_OK;
  return failed(PERDURE_INVALID_ARGUMENT, "%s: %s is NULL", function, name);
}

perdure_status to_range(const char* function, const detail::NamedTypes& map,
                        const perdure_range* range, UntypedScanOptions& out) noexcept;

}  // namespace perdure::c

// NOLINTBEGIN(readability-identifier-naming): the names of perdure/c.h

struct perdure_pool {
  std::shared_ptr<perdure::c::PoolState> state;
};

struct perdure_map : perdure::detail::NamedTypes {
  perdure_map(std::shared_ptr<perdure::c::PoolState> of, perdure::UntypedMap opened) noexcept
      : NamedTypes(opened.info()), pool(std::move(of)), map(std::move(opened)) {}

  std::shared_ptr<perdure::c::PoolState> pool;
  perdure::UntypedMap map;
  // The same map, if it is one of 64-bit integers or of byte strings: types that need no check.
  std::optional<perdure::Map<std::uint64_t, std::uint64_t>> words;
  std::optional<perdure::Map<std::string_view, std::string_view>> texts;
};

struct perdure_snapshot : perdure::detail::NamedTypes {
  perdure_snapshot(const NamedTypes& of, perdure::UntypedSnapshot held) noexcept
      : NamedTypes(of), snapshot(std::move(held)) {}

  perdure::UntypedSnapshot snapshot;
};

struct perdure_iterator : perdure::detail::NamedTypes {
  perdure_iterator(const NamedTypes& of, perdure::UntypedIterator begun) noexcept
      : NamedTypes(of), iterator(std::move(begun)) {}

  perdure::UntypedIterator iterator;
  perdure::RealPlatform::Latch busy;
  mutable perdure::c::Datum key;
  mutable perdure::c::Datum value;
};

// NOLINTEND(readability-identifier-naming)
