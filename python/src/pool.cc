// Pool: a file with named maps.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "maps.h"

namespace perdure::python {

namespace {

using Strings = std::optional<std::string>;

// All pools that are open, for the exit of the interpreter.
std::mutex open_pools_mutex;
std::vector<std::weak_ptr<PoolState>> open_pools;

void remember(const std::shared_ptr<PoolState>& pool) {
  const std::lock_guard lock(open_pools_mutex);
  std::erase_if(open_pools, [](const auto& old) { return old.expired(); });
  open_pools.push_back(pool);
}

std::vector<std::shared_ptr<PoolState>> all_open_pools() {
  const std::lock_guard lock(open_pools_mutex);
  std::vector<std::shared_ptr<PoolState>> pools;
  for (const auto& weak : open_pools) {
    if (auto pool = weak.lock(); pool != nullptr && !pool->forked()) pools.push_back(pool);
  }
  return pools;
}

// Pools stay open for what ends with the interpreter, and for its thread alone.
void end_calls() {
  begin_exit();
  for (const auto& pool : all_open_pools()) {
    const bool idle = released([&] { return pool->is_idle_at_exit(); });
    if (!idle) new std::shared_ptr<PoolState>(pool);
  }
}

// After the interpreter: closes the pools of objects that it has not freed. Calls no Python, and
// keeps the pools, because they have objects.
void close_last() noexcept {
  auto* pools = new std::vector(all_open_pools());
  for (const auto& pool : *pools) {
    if (!pool->has_lent()) pool->close_at_exit();
  }
}

template <class T>
T named(const std::string& name, const char* what,
        std::initializer_list<std::pair<const char*, T>> values) {
  std::string known;
  for (const auto& [text, value] : values) {
    if (name == text) return value;
    known += std::string(known.empty() ? "" : ", ") + text;
  }
  raise_invalid(std::string(what) + " is one of " + known + ", not " + name);
}

OpenMode mode_of(const std::string& name) {
  return named<OpenMode>(name, "mode",
                         {{"open_or_create", OpenMode::open_or_create},
                          {"existing", OpenMode::existing},
                          {"create_new", OpenMode::create_new},
                          {"read_only", OpenMode::read_only}});
}

std::optional<Engine> engine_of(const Strings& name) {
  if (!name) return std::nullopt;
  auto engine = engine_named(*name);
  if (!engine) {
    std::string known;
    for (const EngineInfo& info : engines()) {
      known += std::string(known.empty() ? "" : ", ") + std::string(info.name);
    }
    raise_invalid("engine is one of " + known + ", not " + *name);
  }
  return engine;
}

// Of the seconds between two cuts.
std::uint32_t milliseconds_of(double seconds, double least, const char* why) {
  const double ms = std::round(seconds * 1000);
  if (ms >= least && ms <= 3'600'000) return static_cast<std::uint32_t>(ms);
  raise_invalid(why);
}

// Waits so long for a pool that is busy, and looks for signals meanwhile.
Expected<Pool> open_in_pieces(const std::string& file, PoolOptions options, std::uint32_t most_ms) {
  constexpr std::uint32_t kPiece = 100;
  for (;; most_ms -= options.open_timeout_ms) {
    options.open_timeout_ms = std::min(most_ms, kPiece);
    auto pool = released([&] { return Pool::open(file, options); });
    if (pool || pool.error() != StatusCode::busy || most_ms <= kPiece) return pool;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

nb::dict cuts_of(const PoolStats& stats) {
  nb::dict cuts;
  cuts["lag_seconds"] = static_cast<double>(stats.lag_ns) * 1e-9;
  cuts["cuts"] = stats.cuts;
  cuts["longest_stop_seconds"] = static_cast<double>(stats.longest_stop_ns) * 1e-9;
  cuts["log_bytes"] = stats.log_bytes;
  cuts["log_bound_bytes"] = stats.log_bound_bytes;
  cuts["log_written_bytes"] = stats.log_written_bytes;
  cuts["live_bytes"] = stats.live_bytes;
  cuts["folds"] = stats.folds;
  cuts["fold_written_bytes"] = stats.fold_written_bytes;
  cuts["log_failed_at"] = nb::none();
  if (stats.log_failed_unix_ns != 0)
    cuts["log_failed_at"] = static_cast<double>(stats.log_failed_unix_ns) * 1e-9;
  cuts["stopped_thread"] = nb::none();
  if (stats.stopped_thread != 0) cuts["stopped_thread"] = stats.stopped_thread;
  return cuts;
}

nb::list list_of(const std::vector<MapInfo>& maps) {
  nb::list list;
  for (const MapInfo& info : maps) {
    nb::dict entry;
    entry["name"] = text(info.name);
    entry["engine"] = std::string(engine_name(info.engine));
    entry["keys"] = info.key_kind == KeyKind::integer ? info.is_signed ? "int" : "uint" : "bytes";
    entry["values"] = info.value_kind == ValueKind::word ? "word" : "bytes";
    list.append(entry);
  }
  return list;
}

nb::dict properties_of(const PoolInfo& info) {
  nb::dict result;
  result["path"] = text(info.path);
  result["uuid"] = info.uuid;
  result["format_version"] = info.format_version;
  result["durability"] = std::string(durability_name(info.durability));
  result["weakest_mode"] = std::string(durability_name(info.weakest_mode));
  result["medium"] = medium_name(info.medium);
  result["filesystem"] = info.filesystem;
  result["file_bytes"] = info.file_bytes;
  result["max_bytes"] = info.max_bytes;
  result["clean"] = info.clean;
  result["synced"] = info.synced;
  result["trusted"] = info.trusted;
  result["trust_note"] = text(info.trust_note);
  result["in_use"] = info.in_use;
  result["owner_pid"] = info.owner_pid;
  result["owner_host"] = text(info.owner_host);
  result["live"] = text(info.live_image);
  result["durable_unix_ns"] = info.durable_unix_ns;
  result["maps"] = list_of(info.maps);
  return result;
}

class PyPool {
 public:
  PyPool(nb::handle path, const std::string& mode, const std::string& durability,
         std::uint64_t max_size, std::uint32_t recovery_threads, std::uint32_t background_threads,
         bool accept_untrusted, bool allow_damage, bool handle_sigbus, double timeout,
         double interval, std::uint64_t log_bytes, std::uint64_t keep_log_bytes,
         nb::handle memory_directory, const std::string& on_lag,
         const std::string& on_log_failure) {
    const std::string memory = memory_directory.is_none() ? "" : path_of(memory_directory);
    auto messages = std::make_shared<Messages>();
    PoolOptions options{
        .mode = mode_of(mode),
        .handle_sigbus = handle_sigbus,
        .allow_damage = allow_damage,
        .accept_untrusted = accept_untrusted,
        .durability = named<Durability>(durability, "durability",
                                        {{"auto", Durability::automatic},
                                         {"process", Durability::process},
                                         {"buffered", Durability::buffered},
                                         {"power", Durability::power},
                                         {"emulated", Durability::emulated}}),
        .buffered = {.interval_ms =
                         milliseconds_of(interval, 1, "interval is 0.001 to 3600 seconds"),
                     .on_lag =
                         named<OnLag>(on_lag, "on_lag",
                                      {{"throttle", OnLag::throttle}, {"report", OnLag::report}}),
                     .on_log_failure = named<OnLogFailure>(
                         on_log_failure, "on_log_failure",
                         {{"refuse", OnLogFailure::refuse}, {"serve", OnLogFailure::serve}}),
                     .log_bytes = log_bytes,
                     .keep_log_bytes = keep_log_bytes,
                     .memory_directory = memory},
        .max_size = max_size,
        .log = &Messages::add,
        .log_context = messages.get(),
        .recovery_threads = recovery_threads,
        .background_threads = background_threads};
    const std::string file = path_of(path);
    auto pool =
        open_in_pieces(file, options, milliseconds_of(timeout, 0, "timeout is 0 to 3600 seconds"));
    messages->deliver();
    if (!pool) raise(pool.error(), {file});
    state_ = std::make_shared<PoolState>(std::move(*pool), file, std::move(messages));
    remember(state_);
  }

  const std::shared_ptr<PoolState>& state() const noexcept { return state_; }

  MapState map(const std::string& name, const Strings& engine, const std::string& mode,
               std::uint64_t capacity, const MapTypes& types) {
    const Use use(*state_);
    MapOptions options{.engine = engine_of(engine), .mode = mode_of(mode), .capacity = capacity};
    const bool creates =
        options.mode == OpenMode::open_or_create || options.mode == OpenMode::create_new;
    auto map = released([&] {
      return state_->pool().untyped_map(name, options,
                                        creates ? std::optional(types) : std::nullopt);
    });
    if (!map) raise(map.error(), {state_->path()});
    const MapInfo& info = map->info();
    const MapTypes found{info.key_kind, info.value_kind, info.is_signed, info.key_bytes,
                         info.value_bytes};
    if (found != types) {
      raise_invalid(state_->path() + ": map \"" + name + "\" has keys or values of other types");
    }
    auto shared = std::make_shared<OpenMap>(std::move(*map));
    std::erase_if(maps_, [](const auto& old) { return old.expired(); });
    maps_.push_back(shared);
    return {.pool = state_, .shared = std::move(shared)};
  }

  IntMapState int_map(const std::string& name, const Strings& engine, const std::string& mode,
                      std::uint64_t capacity, bool is_signed, Number number) {
    IntMapState state{map(name, engine, mode, capacity,
                          is_signed ? map_types<std::int64_t, std::uint64_t>()
                                    : map_types<std::uint64_t, std::uint64_t>()),
                      {},
                      {},
                      number};
    const MapOptions options{.mode =
                                 mode == "read_only" ? OpenMode::read_only : OpenMode::existing};
    if (is_signed) {
      state.of_signed = take(state_->pool().map<std::int64_t, std::uint64_t>(name, options));
    } else {
      state.of_unsigned = take(state_->pool().map<std::uint64_t, std::uint64_t>(name, options));
    }
    return state;
  }

  nb::list maps() const {
    const Use use(*state_);
    return list_of(take(state_->pool().list(), {state_->path()}));
  }
  void drop(const std::string& name) {
    const Use use(*state_);
    mark_dropped(name, true);  // first: other threads run while the GIL is released
    const Status status = released([&] { return state_->pool().drop(name); });
    if (!status.ok()) mark_dropped(name, false);
    state_->messages().deliver();
    check(status, {state_->path()});
  }
  void sync() {
    run([](Pool& pool) { return pool.sync(); });
  }
  std::uint64_t epoch() const {
    const Use use(*state_);
    return take(state_->pool().epoch());
  }
  void wait_durable(std::uint64_t epoch) {
    run([&](Pool& pool) { return pool.wait_durable(epoch); });
  }
  void resume_log() {
    run([](Pool& pool) { return pool.resume_log(); });
  }
  void fold_log() {
    run([](Pool& pool) { return pool.fold_log(); });
  }
  nb::dict backup(nb::handle folder) {
    const std::string to = path_of(folder);
    const Use use(*state_);
    auto made = released([&] { return state_->pool().backup(to); });
    state_->messages().deliver();
    return dict_of(take(std::move(made), {state_->path(), to}));
  }
  std::uint64_t compact() {
    const Use use(*state_);
    auto freed = released([&] { return state_->pool().compact(); });
    state_->messages().deliver();
    return take(std::move(freed), {state_->path()});
  }
  nb::dict verify(bool deep) const {
    const Use use(*state_);
    auto report = take(released([&] { return state_->pool().check({.deep = deep}); }));
    state_->messages().deliver();
    nb::list violations;
    for (const std::string& violation : report.violations) violations.append(violation);
    nb::dict result;
    result["ok"] = report.ok();
    result["entries"] = report.entries;
    result["bytes"] = report.bytes;
    result["leaked_blocks"] = report.leaked_blocks;
    result["violations"] = violations;
    result["violation_count"] = report.violation_count;
    return result;
  }
  nb::dict stats() const {
    const Use use(*state_);
    auto stats = take(released([&] { return state_->pool().stats(); }));
    nb::dict maps;
    for (const MapStats& map : stats.maps) {
      nb::dict one;
      one["engine"] = std::string(engine_name(map.engine));
      one["entries"] = map.entries;
      one["pm_bytes"] = map.pm_bytes;
      one["dram_bytes"] = map.dram_bytes;
      one["load_factor"] = map.load_factor;
      maps[map.name.c_str()] = one;
    }
    nb::dict result;
    result["file_bytes"] = stats.file_bytes;
    result["disk_bytes"] = stats.disk_bytes;
    result["used_bytes"] = stats.used_bytes;
    result["max_bytes"] = stats.max_bytes;
    result["free_bytes"] = stats.free_bytes;
    result["allocated_bytes"] = stats.allocated_bytes;
    result["recovery_seconds"] = static_cast<double>(stats.recovery_ns) * 1e-9;
    result["maps"] = maps;
    // Another durability makes no cuts, and has no bound.
    if (stats.log_bound_bytes != 0) result["buffered"] = cuts_of(stats);
    return result;
  }
  nb::dict info() const {
    const Use use(*state_);
    return properties_of(take(state_->pool().info(), {state_->path()}));
  }
  void close(bool sync) { state_->close(sync); }

 private:
  // Without the GIL.
  template <class F>
  void run(F&& call) {
    const Use use(*state_);
    const Status status = released([&] { return call(state_->pool()); });
    state_->messages().deliver();
    check(status, {state_->path()});
  }

  void mark_dropped(const std::string& name, bool dropped) {
    for (const auto& weak : maps_) {
      const auto map = weak.lock();
      if (map != nullptr && map->map.info().name == name) map->dropped.store(dropped);
    }
  }

  std::shared_ptr<PoolState> state_;
  std::vector<std::weak_ptr<OpenMap>> maps_;
};

}  // namespace

std::string path_of(nb::handle path) {
  PyObject* bytes = nullptr;
  if (PyUnicode_FSConverter(path.ptr(), static_cast<void*>(&bytes)) == 0) throw nb::python_error();
  const nb::object owner = nb::steal(bytes);
  return {PyBytes_AS_STRING(bytes), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes))};
}

void add_pool(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<PyPool>(module, "_Pool", nb::is_weak_referenceable())
      .def(nb::init<nb::handle, const std::string&, const std::string&, std::uint64_t,
                    std::uint32_t, std::uint32_t, bool, bool, bool, double, double, std::uint64_t,
                    std::uint64_t, nb::handle, const std::string&, const std::string&>(),
           "path"_a, "mode"_a, "durability"_a, "max_size"_a, "recovery_threads"_a,
           "background_threads"_a, "accept_untrusted"_a, "allow_damage"_a, "handle_sigbus"_a,
           "timeout"_a, "interval"_a, "log_bytes"_a, "keep_log_bytes"_a,
           "memory_directory"_a.none(), "on_lag"_a, "on_log_failure"_a)
      .def(
          "bytes_map",
          [](PyPool& pool, const std::string& name, const Strings& engine, const std::string& mode,
             std::uint64_t capacity, bool owns) {
            MapState map = pool.map(name, engine, mode, capacity,
                                    map_types<std::string_view, std::string_view>());
            map.owns_pool = owns;
            return map;
          },
          "name"_a, "engine"_a.none(), "mode"_a, "capacity"_a, "owns"_a)
      .def(
          "int_map",
          [](PyPool& pool, const std::string& name, const Strings& engine, const std::string& mode,
             std::uint64_t capacity, bool is_signed, Number number) {
            return pool.int_map(name, engine, mode, capacity, is_signed, number);
          },
          "name"_a, "engine"_a.none(), "mode"_a, "capacity"_a, "is_signed"_a, "number"_a)
      .def_prop_ro("path", [](const PyPool& pool) { return text(pool.state()->path()); })
      .def_prop_ro("closed", [](const PyPool& pool) { return pool.state()->closed(); })
      .def("batch", [](const PyPool& pool) { return make_batch(pool.state()); })
      .def("maps", &PyPool::maps)
      .def("drop", &PyPool::drop, "name"_a)
      .def("sync", &PyPool::sync)
      .def("epoch", &PyPool::epoch)
      .def("wait_durable", &PyPool::wait_durable, "epoch"_a)
      .def("resume_log", &PyPool::resume_log)
      .def("fold_log", &PyPool::fold_log)
      .def("backup", &PyPool::backup, "folder"_a)
      .def("compact", &PyPool::compact)
      .def("check", &PyPool::verify, "deep"_a)
      .def("stats", &PyPool::stats)
      .def("info", &PyPool::info)
      .def("close", &PyPool::close, "sync"_a);
  module.def(
      "resize",
      [](nb::handle path, std::uint64_t max_size) {
        const std::string at = path_of(path);
        check(released([&] { return Pool::resize(at, max_size); }), {at});
      },
      "path"_a, "max_size"_a);
  module.def(
      "info",
      [](nb::handle path) {
        const std::string at = path_of(path);
        return properties_of(take(released([&] { return Pool::inspect(at); }), {at}));
      },
      "path"_a);
  module.def(
      "destroy",
      [](nb::handle path) {
        const std::string at = path_of(path);
        check(released([&] { return perdure::destroy(at); }), {at});
      },
      "path"_a);
  module.def("_end_calls", &end_calls);
  static const bool at_exit = Py_AtExit([] { close_last(); }) == 0;
  if (!at_exit) throw std::bad_alloc();
}

}  // namespace perdure::python
