// Pools: opening, closing, and what concerns the whole file.
#include <algorithm>
#include <cstring>
#include <utility>

#include "c/calls.h"

namespace perdure::c {

namespace {

constexpr int kModes = 4;
constexpr int kDurabilities = 5;

perdure_status unknown(const char* function, const char* what, int value) noexcept {
  return failed(PERDURE_INVALID_ARGUMENT, "%s: %s %d is unknown", function, what, value);
}

// The pool calls it with a line that need not end with a NUL byte. An exception of the caller's
// function ends here: the core has no way to report it.
void log_line(void* context, LogLevel level, std::string_view message) noexcept {
  const auto& pool = *static_cast<const PoolState*>(context);
  char line[1280];
  line[message.copy(line, sizeof(line) - 1)] = '\0';
  Caller caller;
  (void)caller.call([&] {
    pool.log(pool.log_context, static_cast<perdure_log_level>(level), line);
    return true;
  });
}

perdure_status to_options(const char* function, const perdure_pool_options* options,
                          PoolState& state, PoolOptions& out) noexcept {
  perdure_pool_options in = PERDURE_POOL_OPTIONS_INIT;
  if (auto s = take(function, "options", options, in); s != PERDURE_OK) return s;
  if (in.mode < 0 || in.mode >= kModes) return unknown(function, "mode", in.mode);
  if (in.durability < 0 || in.durability >= kDurabilities) {
    return unknown(function, "durability", in.durability);
  }
  constexpr std::uint32_t kFlags = PERDURE_POOL_HANDLE_SIGBUS | PERDURE_POOL_ALLOW_DAMAGE |
                                   PERDURE_POOL_ACCEPT_UNTRUSTED | PERDURE_POOL_INTERLEAVE;
  if ((in.flags & ~kFlags) != 0 || in.reserved != 0) return unknown_flags(function, in.flags);
  if (in.background_threads < -1 ||
      in.background_threads > static_cast<std::int32_t>(kMaxBackgroundThreads)) {
    return failed(PERDURE_INVALID_ARGUMENT, "%s: background_threads %d; -1 to %u are allowed",
                  function, in.background_threads, kMaxBackgroundThreads);
  }
  out.mode = static_cast<OpenMode>(in.mode);
  out.durability = static_cast<Durability>(in.durability);
  if (in.max_size != 0) out.max_size = in.max_size;
  out.open_timeout_ms = in.open_timeout_ms;
  out.recovery_threads = in.recovery_threads;
  if (in.background_threads != 0) {
    out.background_threads = static_cast<std::uint32_t>(std::max(in.background_threads, 0));
  }
  out.write_latency_ns = in.write_latency_ns;
  out.handle_sigbus = (in.flags & PERDURE_POOL_HANDLE_SIGBUS) != 0;
  out.allow_damage = (in.flags & PERDURE_POOL_ALLOW_DAMAGE) != 0;
  out.accept_untrusted = (in.flags & PERDURE_POOL_ACCEPT_UNTRUSTED) != 0;
  out.interleave = (in.flags & PERDURE_POOL_INTERLEAVE) != 0;
  if (in.log != nullptr) {
    state.log = in.log;
    state.log_context = in.log_context;
    out.log = log_line;
    out.log_context = &state;
  }
  return PERDURE_OK;
}

void to_c(const PoolInfo& in, perdure_pool_info& out) noexcept {
  out.file_bytes = in.file_bytes;
  out.max_bytes = in.max_bytes;
  out.extent_bytes = in.extent_bytes;
  out.compatible_features = in.compatible_features;
  out.incompatible_features = in.incompatible_features;
  out.owner_pid = in.owner_pid;
  out.format_version = in.format_version;
  out.medium = static_cast<perdure_medium>(in.medium);
  out.durability = static_cast<perdure_durability>(in.durability);
  out.weakest_store = static_cast<perdure_durability>(in.weakest_mode);
  out.clean = in.clean ? 1 : 0;
  out.synced = in.synced ? 1 : 0;
  out.trusted = in.trusted ? 1 : 0;
  out.in_use = in.in_use ? 1 : 0;
  out.map_count = static_cast<std::uint32_t>(in.maps.size());
  copy(in.uuid, out.uuid);
  copy(in.filesystem, out.filesystem);
  copy(in.flush_instruction, out.flush_instruction);
  copy(in.owner_host, out.owner_host);
  copy(in.trust_note, out.trust_note);
}

MapTypes types_of(const MapInfo& info) noexcept {
  return {info.key_kind, info.value_kind, info.is_signed, info.key_bytes, info.value_bytes};
}

void to_c(const MapInfo& in, perdure_map_info& out) noexcept {
  out.engine = static_cast<perdure_engine>(in.engine);
  out.engine_version = in.engine_version;
  out.key_type = key_type(types_of(in));
  out.key_size = in.key_bytes;
  out.value_type = in.value_kind == ValueKind::bytes ? PERDURE_VALUE_BYTES : PERDURE_VALUE_FIXED;
  out.value_size = in.value_bytes;
  for (const EngineInfo& engine : engines()) {
    if (engine.engine != in.engine) continue;
    out.ordered = engine.ordered ? 1 : 0;
    out.versioned = engine.versioned ? 1 : 0;
  }
  copy(in.name, out.name);
}

// The types that the options state. `any`: one of them is whatever the map has.
perdure_status to_types(const char* function, const perdure_map_options& in, MapTypes& out,
                        bool& any) noexcept {
  const bool array = in.key_type == PERDURE_KEY_ARRAY;
  const bool fixed = in.value_type == PERDURE_VALUE_FIXED;
  if (in.key_type < 0 || in.key_type > PERDURE_KEY_ANY) {
    return unknown(function, "key_type", in.key_type);
  }
  if (in.value_type < 0 || in.value_type > PERDURE_VALUE_ANY) {
    return unknown(function, "value_type", in.value_type);
  }
  if (array ? in.key_size < 1 || in.key_size > kMaxArrayKeyBytes : in.key_size != 0) {
    return failed(PERDURE_INVALID_ARGUMENT,
                  "%s: key_size %u; 1 to 16 with PERDURE_KEY_ARRAY, otherwise 0", function,
                  in.key_size);
  }
  if (fixed ? in.value_size < 1 || in.value_size > kMaxArrayValueBytes : in.value_size != 0) {
    return failed(PERDURE_INVALID_ARGUMENT,
                  "%s: value_size %u; 1 to 15 with PERDURE_VALUE_FIXED, otherwise 0", function,
                  in.value_size);
  }
  any = in.key_type == PERDURE_KEY_ANY || in.value_type == PERDURE_VALUE_ANY;
  if (array) {
    out.key_kind = KeyKind::array;
    out.key_bytes = static_cast<std::uint8_t>(in.key_size);
  } else if (in.key_type >= PERDURE_KEY_U8 && in.key_type <= PERDURE_KEY_I64) {
    out.key_kind = KeyKind::integer;
    out.is_signed = in.key_type >= PERDURE_KEY_I8;
    const int log = in.key_type - (out.is_signed ? PERDURE_KEY_I8 : PERDURE_KEY_U8);
    out.key_bytes = static_cast<std::uint8_t>(1 << log);
  }
  if (fixed) {
    out.value_kind = in.value_size < kLeastArrayValueBytes ? ValueKind::word : ValueKind::array;
    out.value_bytes = static_cast<std::uint8_t>(in.value_size);
  }
  return PERDURE_OK;
}

perdure_status to_options(const char* function, const perdure_map_options& in,
                          MapOptions& out) noexcept {
  if (in.engine != PERDURE_ENGINE_DEFAULT && perdure_engine_name(in.engine) == nullptr) {
    return unknown(function, "engine", in.engine);
  }
  if (in.mode < 0 || in.mode >= kModes) return unknown(function, "mode", in.mode);
  if ((in.flags & ~(PERDURE_MAP_NO_SHRINK | PERDURE_MAP_PARTITION_BIT)) != 0 || in.reserved != 0) {
    return unknown_flags(function, in.flags);
  }
  if ((in.phast_partitions & (in.phast_partitions - 1)) != 0 || in.phast_partitions > 65536) {
    return failed(PERDURE_INVALID_ARGUMENT,
                  "%s: phast_partitions %u is no power of two up to 65,536", function,
                  in.phast_partitions);
  }
  if (in.engine != PERDURE_ENGINE_DEFAULT) out.engine = static_cast<Engine>(in.engine);
  out.mode = static_cast<OpenMode>(in.mode);
  out.capacity = in.capacity;
  out.level.buckets = in.level_buckets;
  out.level.auto_shrink = (in.flags & PERDURE_MAP_NO_SHRINK) == 0;
  if (in.phast_partitions != 0) {
    out.phast.partition_bits = static_cast<std::uint32_t>(__builtin_ctz(in.phast_partitions));
  }
  if ((in.flags & PERDURE_MAP_PARTITION_BIT) != 0) {
    out.phast.partition_shift = in.phast_partition_bit;
  }
  return PERDURE_OK;
}

// Whether the map has the types that the caller stated.
bool same_types(const perdure_map_options& in, const MapTypes& wanted,
                const MapTypes& own) noexcept {
  const bool keys = in.key_type == PERDURE_KEY_ANY ||
                    (wanted.key_kind == own.key_kind && wanted.key_bytes == own.key_bytes &&
                     wanted.is_signed == own.is_signed);
  const bool values = in.value_type == PERDURE_VALUE_ANY || (wanted.value_kind == own.value_kind &&
                                                             wanted.value_bytes == own.value_bytes);
  return keys && values;
}

// Opens the map as one of these types, if it has them.
template <class K, class V>
perdure_status open_typed(PoolState& state, const char* name, const MapTypes& own,
                          std::optional<Map<K, V>>& out) noexcept {
  if (own != map_types<K, V>()) return PERDURE_OK;
  auto map = state.pool->map<K, V>(name, {.mode = OpenMode::existing});
  if (!map) return failed(map.error());
  out = std::move(*map);
  return PERDURE_OK;
}

perdure_status open_map(const char* function, const std::shared_ptr<PoolState>& pool,
                        const char* name, const perdure_map_options& in, perdure_map** out) {
  PoolState& state = *pool;
  MapOptions options;
  MapTypes types;
  bool any = false;
  if (auto s = to_types(function, in, types, any); s != PERDURE_OK) return s;
  if (auto s = to_options(function, in, options); s != PERDURE_OK) return s;
  std::optional<MapTypes> create;
  if (!any) create = types;
  auto opened = state.pool->untyped_map(name, options, create);
  if (!opened) return failed(opened.error());
  const MapTypes own = types_of(opened->info());
  if (!same_types(in, types, own)) {
    return failed(PERDURE_INVALID_ARGUMENT,
                  "%s: map '%s' was created with other types (key type %d of %u bytes, value of %u "
                  "bytes; 0: byte strings); open it with those, or use another map",
                  function, name, key_type(own), own.key_bytes, own.value_bytes);
  }
  auto map = std::make_unique<perdure_map>(pool, std::move(*opened));
  if (auto s = open_typed(state, name, own, map->words); s != PERDURE_OK) return s;
  if (auto s = open_typed(state, name, own, map->texts); s != PERDURE_OK) return s;
  *out = map.release();
  return PERDURE_OK;
}

}  // namespace

perdure_status open_pool(const char* function, const char* path,
                         const perdure_pool_options* options, const BufferedOptions& buffered,
                         perdure_pool** pool) {
  if (auto s = not_null(function, "pool", pool); s != PERDURE_OK) return s;
  *pool = nullptr;
  if (auto s = not_null(function, "path", path); s != PERDURE_OK) return s;
  return guarded([&] {
    auto handle = std::make_unique<perdure_pool>();
    handle->state = std::make_shared<PoolState>();
    PoolState& state = *handle->state;
    PoolOptions in{.buffered = buffered};
    if (auto s = to_options(function, options, state, in); s != PERDURE_OK) return s;
    auto opened = Pool::open(path, in);
    if (!opened) return failed(opened.error());
    state.pool = std::move(*opened);
    *pool = handle.release();
    return PERDURE_OK;
  });
}

}  // namespace perdure::c

using namespace perdure::c;  // NOLINT(google-build-using-namespace): this file defines perdure/c.h
using perdure::Status;
using perdure::StatusCode;

// ---- open and close -----------------------------------------------------------------------------

perdure_status perdure_pool_open(const char* path, const perdure_pool_options* options,
                                 perdure_pool** pool) {
  return open_pool(__func__, path, options, {}, pool);
}

perdure_status perdure_pool_close(perdure_pool* pool, uint32_t flags) {
  if (pool == nullptr) return PERDURE_OK;
  if ((flags & ~(PERDURE_CLOSE_NO_SYNC | PERDURE_CLOSE_LEAVE_RECOVERY)) != 0) {
    return unknown_flags(__func__, flags);
  }
  const Status closed =
      pool->state->pool->close({.sync = (flags & PERDURE_CLOSE_NO_SYNC) == 0,
                                .finish_recovery = (flags & PERDURE_CLOSE_LEAVE_RECOVERY) == 0});
  if (closed != StatusCode::invalid_argument) delete pool;  // else it is a call from a callback
  return done(closed);
}

// ---- what a file is -----------------------------------------------------------------------------

perdure_status perdure_pool_get_info(perdure_pool* pool, perdure_pool_info* info) {
  if (auto s = clear(__func__, "info", info); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "pool", pool); s != PERDURE_OK) return s;
  auto got = pool->state->pool->info();
  if (!got) return failed(got.error());
  to_c(*got, *info);
  return PERDURE_OK;
}

perdure_status perdure_pool_inspect(const char* path, perdure_pool_info* info) {
  if (auto s = clear(__func__, "info", info); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "path", path); s != PERDURE_OK) return s;
  auto got = perdure::Pool::inspect(path);
  if (!got) return failed(got.error());
  to_c(*got, *info);
  return PERDURE_OK;
}

perdure_status perdure_pool_resize(const char* path, uint64_t max_size) {
  if (auto s = not_null(__func__, "path", path); s != PERDURE_OK) return s;
  const Status s = perdure::Pool::resize(path, max_size);
  return done(s);
}

perdure_status perdure_pool_get_stats(perdure_pool* pool, perdure_pool_stats* stats) {
  if (auto s = clear(__func__, "stats", stats); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "pool", pool); s != PERDURE_OK) return s;
  auto got = pool->state->pool->stats();
  if (!got) return failed(got.error());
  stats->file_bytes = got->file_bytes;
  stats->disk_bytes = got->disk_bytes;
  stats->used_bytes = got->used_bytes;
  stats->max_bytes = got->max_bytes;
  stats->assigned_bytes = got->assigned_bytes;
  stats->free_bytes = got->free_bytes;
  stats->allocated_bytes = got->allocated_bytes;
  stats->punched_bytes = got->punched_bytes;
  stats->heap_dram_bytes = got->heap_dram_bytes;
  stats->limbo_blocks = got->limbo_blocks;
  stats->epoch = got->epoch;
  stats->stalled_readers = got->stalled_readers;
  stats->recovery_ns = got->recovery_ns;
  stats->fragmentation = got->fragmentation;
  return PERDURE_OK;
}

perdure_status perdure_pool_list(perdure_pool* pool,
                                 bool (*visit)(void* context, const perdure_map_info* info),
                                 void* context) {
  if (auto s = not_null(__func__, "pool", pool); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "visit", visit); s != PERDURE_OK) return s;
  auto maps = pool->state->pool->list();
  if (!maps) return failed(maps.error());
  Caller caller;
  for (const perdure::MapInfo& map : *maps) {
    perdure_map_info info{};
    info.struct_size = sizeof(info);
    to_c(map, info);
    if (!caller.call([&] { return visit(context, &info); })) break;
  }
  return caller.threw() ? caller.error(__func__) : PERDURE_OK;
}

// ---- check and maintenance ----------------------------------------------------------------------

namespace {
struct Progress {
  const perdure_check_options& options;
  Caller caller;
};
void tell_progress(void* context, std::uint64_t done, std::uint64_t total) {
  auto& progress = *static_cast<Progress*>(context);
  (void)progress.caller.call([&] {
    progress.options.progress(progress.options.context, done, total);
    return true;
  });
}

// Fills the report, if there is one, and passes the violations on.
perdure_status conclude(const char* function, const perdure::CheckReport& found, Progress& progress,
                        perdure_check_report* report) {
  if (report != nullptr) {
    report->objects = found.objects;
    report->entries = found.entries;
    report->bytes = found.bytes;
    report->leaked_blocks = found.leaked_blocks;
    report->violations = found.violation_count;
  }
  for (const std::string& violation : found.violations) {
    if (progress.options.violation == nullptr || progress.caller.threw()) break;
    (void)progress.caller.call([&] {
      progress.options.violation(progress.options.context, violation.c_str());
      return true;
    });
  }
  if (progress.caller.threw()) return progress.caller.error(function);
  if (found.ok()) return PERDURE_OK;
  const std::string_view first = found.first();
  return failed(PERDURE_CORRUPTION, "%.*s", static_cast<int>(first.size()), first.data());
}

// The arguments that a check and a salvage have in common.
perdure_status with_check(const char* function, perdure_pool* pool,
                          const perdure_check_options* options, perdure_check_report* report,
                          perdure_check_options& in) {
  if (report != nullptr) {
    if (auto s = clear(function, "report", report); s != PERDURE_OK) return s;
  }
  if (auto s = not_null(function, "pool", pool); s != PERDURE_OK) return s;
  in = PERDURE_CHECK_OPTIONS_INIT;
  if (auto s = take(function, "options", options, in); s != PERDURE_OK) return s;
  const bool known = (in.flags & ~PERDURE_CHECK_DEEP) == 0 && in.reserved == 0;
  return known ? PERDURE_OK : unknown_flags(function, in.flags);
}
}  // namespace

perdure_status perdure_pool_check(perdure_pool* pool, const perdure_check_options* options,
                                  perdure_check_report* report) {
  perdure_check_options in;
  if (auto s = with_check(__func__, pool, options, report, in); s != PERDURE_OK) return s;
  Progress progress{in, {}};
  perdure::CheckOptions with{.deep = (in.flags & PERDURE_CHECK_DEEP) != 0};
  if (in.progress != nullptr) {
    with.progress = tell_progress;
    with.progress_context = &progress;
  }
  auto checked = pool->state->pool->check(with);
  if (!checked) return failed(checked.error());
  return conclude(__func__, *checked, progress, report);
}

perdure_status perdure_pool_salvage(perdure_pool* pool, const char* name,
                                    const perdure_check_options* options, perdure_entry_fn* visit,
                                    void* context, std::uint64_t* visited,
                                    perdure_check_report* report) {
  if (visited != nullptr) *visited = 0;
  perdure_check_options in;
  if (auto s = with_check(__func__, pool, options, report, in); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "name", name); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "visit", visit); s != PERDURE_OK) return s;
  PoolState& state = *pool->state;
  auto maps = state.pool->list();
  if (!maps) return failed(maps.error());
  perdure::MapTypes types;
  for (const perdure::MapInfo& map : *maps) {
    if (map.name == name) types = types_of(map);
  }
  perdure::CheckReport found;
  const auto salvage = [&](auto each) -> perdure::Expected<std::uint64_t> {
    std::uint64_t count = 0;
    bool more = true;
    auto done = state.pool->salvage(
        name, [&](const perdure::UntypedKey& key, const perdure::UntypedValue& value) {
          if (!more) return;
          ++count;
          more = each(key, value);
        });
    if (!done) return perdure::fail(std::move(done.error()));
    found = std::move(*done);
    return count;
  };
  if (auto s = walk(__func__, types, salvage, visit, context, visited); s != PERDURE_OK) {
    return s;
  }
  Progress progress{in, {}};
  return conclude(__func__, found, progress, report);
}

perdure_status perdure_pool_sync(perdure_pool* pool) {
  if (auto s = not_null(__func__, "pool", pool); s != PERDURE_OK) return s;
  const Status s = pool->state->pool->sync();
  return done(s);
}

perdure_status perdure_pool_compact(perdure_pool* pool, uint64_t* freed) {
  if (freed != nullptr) *freed = 0;
  if (auto s = not_null(__func__, "pool", pool); s != PERDURE_OK) return s;
  auto bytes = pool->state->pool->compact();
  if (!bytes) return failed(bytes.error());
  if (freed != nullptr) *freed = *bytes;
  return PERDURE_OK;
}

perdure_status perdure_pool_run_background(perdure_pool* pool, bool* worked) {
  if (auto s = not_null(__func__, "worked", worked); s != PERDURE_OK) return s;
  *worked = false;
  if (auto s = not_null(__func__, "pool", pool); s != PERDURE_OK) return s;
  auto more = pool->state->pool->run_background();
  if (!more) return failed(more.error());
  *worked = *more;
  return PERDURE_OK;
}

perdure_status perdure_pool_read_batch(perdure_pool* pool, void (*reads)(void* context),
                                       void* context) {
  if (auto s = not_null(__func__, "pool", pool); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "reads", reads); s != PERDURE_OK) return s;
  Caller caller;
  const Status s = pool->state->pool->read_batch([&] {
    (void)caller.call([&] {
      reads(context);
      return true;
    });
  });
  if (!s.ok()) return failed(s);
  return caller.threw() ? caller.error(__func__) : PERDURE_OK;
}

perdure_status perdure_pool_drop(perdure_pool* pool, const char* name) {
  if (auto s = not_null(__func__, "pool", pool); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "name", name); s != PERDURE_OK) return s;
  return done(pool->state->pool->drop(name));
}

// ---- maps ---------------------------------------------------------------------------------------

perdure_status perdure_map_open(perdure_pool* pool, const char* name,
                                const perdure_map_options* options, perdure_map** map) {
  if (auto s = not_null(__func__, "map", map); s != PERDURE_OK) return s;
  *map = nullptr;
  if (auto s = not_null(__func__, "pool", pool); s != PERDURE_OK) return s;
  perdure_map_options in = PERDURE_MAP_OPTIONS_INIT;
  if (auto s = take(__func__, "options", options, in); s != PERDURE_OK) return s;
  return guarded([&] {
    const char* of = name != nullptr ? name : PERDURE_DEFAULT_MAP;
    return open_map("perdure_map_open", pool->state, of, in, map);
  });
}

void perdure_map_close(perdure_map* map) { delete map; }

perdure_status perdure_map_get_info(perdure_map* map, perdure_map_info* info) {
  if (auto s = clear(__func__, "info", info); s != PERDURE_OK) return s;
  if (auto s = usable(__func__, map); s != PERDURE_OK) return s;
  to_c(map->map.info(), *info);
  return PERDURE_OK;
}

perdure_status perdure_size(perdure_map* map, std::uint64_t* entries) {
  if (auto s = not_null(__func__, "entries", entries); s != PERDURE_OK) return s;
  *entries = 0;
  if (auto s = not_null(__func__, "map", map); s != PERDURE_OK) return s;
  auto size = map->map.size();
  if (!size) return failed(size.error());
  *entries = *size;
  return PERDURE_OK;
}

perdure_status perdure_map_get_stats(perdure_map* map, perdure_map_stats* stats) {
  if (auto s = clear(__func__, "stats", stats); s != PERDURE_OK) return s;
  if (auto s = usable(__func__, map); s != PERDURE_OK) return s;
  const perdure::MapStats got = map->map.stats();
  stats->entries = got.entries;
  stats->height = got.height;
  stats->leaves = got.leaves;
  stats->inner_nodes = got.inner_nodes;
  stats->pm_bytes = got.pm_bytes;
  stats->dram_bytes = got.dram_bytes;
  stats->scan_order_bytes = got.scan_order_bytes;
  stats->splits = got.splits;
  stats->merges = got.merges;
  stats->load_factor = got.load_factor;
  stats->partial = got.partial ? 1 : 0;
  return PERDURE_OK;
}
