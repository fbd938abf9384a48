#include "c/handles.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace perdure::c {

namespace {
constinit thread_local char error_text[1280] = {};
}  // namespace

const char* last_error() noexcept { return error_text; }

perdure_status failed(const Status& status) noexcept {
  const std::string_view text = status.message();
  const std::size_t size = text.copy(error_text, sizeof(error_text) - 1);
  error_text[size] = '\0';
  return static_cast<perdure_status>(status.code());
}

perdure_status failed(perdure_status code, const char* format, ...) noexcept {
  std::va_list arguments;
  va_start(arguments, format);
  (void)std::vsnprintf(error_text, sizeof(error_text), format, arguments);
  va_end(arguments);
  return code;
}

perdure_status Caller::error(const char* function) const noexcept {
  return failed(PERDURE_INVALID_ARGUMENT, "%s: a callback threw a C++ exception; it must not",
                function);
}

// ---- refusals -----------------------------------------------------------------------------------

perdure_status refuse_key(const char* function, const detail::NamedTypes& map, const void* data,
                          std::size_t size) noexcept {
  const MapTypes& types = map.types;
  if (data == nullptr && size != 0) {
    return failed(PERDURE_INVALID_ARGUMENT, "%s: the key is NULL, but its size is %zu", function,
                  size);
  }
  if (types.key_kind == KeyKind::bytes) {
    return failed(PERDURE_INVALID_ARGUMENT, "%s: a key of %zu bytes; at most %u are allowed",
                  function, size, PERDURE_MAX_KEY_SIZE);
  }
  return failed(PERDURE_INVALID_ARGUMENT,
                "%s: a key of map '%s' is %s of %u bytes; this one has %zu bytes", function,
                map.name, types.key_kind == KeyKind::integer ? "an integer" : "an array",
                types.key_bytes, size);
}

perdure_status refuse_value(const char* function, const detail::NamedTypes& map, const void* data,
                            std::size_t size) noexcept {
  const MapTypes& types = map.types;
  if (data == nullptr && size != 0) {
    return failed(PERDURE_INVALID_ARGUMENT, "%s: the value is NULL, but its size is %zu", function,
                  size);
  }
  if (types.value_kind == ValueKind::bytes) {
    return failed(PERDURE_INVALID_ARGUMENT, "%s: a value of %zu bytes; at most %u are allowed",
                  function, size, PERDURE_MAX_VALUE_SIZE);
  }
  return failed(PERDURE_INVALID_ARGUMENT, "%s: a value of map '%s' has %u bytes; this one has %zu",
                function, map.name, types.value_bytes, size);
}

perdure_status refuse_struct(const char* function, const char* name, std::size_t size,
                             std::size_t least) noexcept {
  if (size < least) {
    return failed(PERDURE_INVALID_ARGUMENT,
                  "%s: struct_size of %s is %zu, at least %zu is expected; set it to the size of "
                  "the struct",
                  function, name, size, least);
  }
  return failed(PERDURE_INVALID_ARGUMENT,
                "%s: struct_size of %s is %zu, and this library, version %s, knows %zu bytes; the "
                "others must be 0",
                function, name, size, PERDURE_VERSION, least);
}

// ---- ranges -------------------------------------------------------------------------------------

namespace {

// A bound of a range. It may be one byte longer than a key: the first key behind another.
bool to_bound(const MapTypes& types, const void* data, std::size_t size,
              std::optional<UntypedKey>& bound) noexcept {
  UntypedKey key;
  if (types.key_kind != KeyKind::integer) {
    if (size > kMaxKeyBytes + 1) return false;
    key.bytes = {static_cast<const char*>(data), size};
  } else if (!to_key(types, data, size, key)) {
    return false;
  }
  bound = key;
  return true;
}

}  // namespace

perdure_status to_range(const char* function, const detail::NamedTypes& map,
                        const perdure_range* range, UntypedScanOptions& out) noexcept {
  const MapTypes& types = map.types;
  perdure_range in = PERDURE_RANGE_INIT;
  if (auto s = take(function, "range", range, in); s != PERDURE_OK) return s;
  if ((in.flags & ~PERDURE_REVERSE) != 0 || in.reserved != 0) {
    return failed(PERDURE_INVALID_ARGUMENT, "%s: flags 0x%x of range are unknown", function,
                  in.flags);
  }
  if ((in.from == nullptr && in.from_size != 0) || (in.to == nullptr && in.to_size != 0) ||
      (in.prefix == nullptr && in.prefix_size != 0)) {
    return failed(PERDURE_INVALID_ARGUMENT, "%s: a bound of range is NULL, but its size is not 0",
                  function);
  }
  if (in.from != nullptr && !to_bound(types, in.from, in.from_size, out.from)) {
    return refuse_key(function, map, in.from, in.from_size);
  }
  if (in.to != nullptr && !to_bound(types, in.to, in.to_size, out.to)) {
    return refuse_key(function, map, in.to, in.to_size);
  }
  if (in.prefix_size > kMaxKeyBytes) {
    return failed(PERDURE_INVALID_ARGUMENT, "%s: a prefix of %zu bytes; at most %u are allowed",
                  function, in.prefix_size, PERDURE_MAX_KEY_SIZE);
  }
  if (in.prefix_size != 0 && types.key_kind == KeyKind::integer) {
    return failed(PERDURE_INVALID_ARGUMENT,
                  "%s: the keys of map '%s' are integers, which have no prefix; use from and to",
                  function, map.name);
  }
  if (in.prefix_size != 0) out.prefix = {static_cast<const char*>(in.prefix), in.prefix_size};
  if (in.limit != 0) out.limit = in.limit;
  out.reverse = (in.flags & PERDURE_REVERSE) != 0;
  return PERDURE_OK;
}

}  // namespace perdure::c

// ---- perdure/c.h --------------------------------------------------------------------------------

const char* perdure_last_error(void) { return perdure::c::last_error(); }

const char* perdure_status_name(perdure_status status) {
  if (status == PERDURE_TRUNCATED) return "truncated";
  if (status < PERDURE_OK || status > PERDURE_LIVE_MISSING) return "unknown";
  return perdure::status_code_name(static_cast<perdure::StatusCode>(status));
}

void perdure_free(void* buffer) { std::free(buffer); }

const char* perdure_version(void) { return PERDURE_VERSION; }

const char* perdure_engine_name(perdure_engine engine) {
  for (const perdure::EngineInfo& info : perdure::engines()) {
    if (static_cast<int>(info.engine) == engine) return info.name.data();
  }
  return nullptr;
}

perdure_status perdure_thread_counters(perdure_counters* counters) {
  if (auto s = perdure::c::clear(__func__, "counters", counters); s != PERDURE_OK) return s;
  const perdure::Counters now = perdure::thread_counters();
  counters->flushes = now.flushes;
  counters->fences = now.fences;
  counters->written_lines = now.written_lines;
  counters->allocations = now.allocations;
  return PERDURE_OK;
}
