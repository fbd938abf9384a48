// Maps: what a Store, an IntMap and a view of a version share: a map of a pool, its ranges and its
// iterators.
#pragma once

#include <vector>

#include "calls.h"

namespace perdure::python {

// A map that is open. Pool.drop() marks it: its objects then raise ClosedError.
struct OpenMap {
  UntypedMap map;
  std::atomic<bool> dropped{false};
};

// A map of a pool. Objects of Python hold it by value: copies mean the same map.
struct MapState {
  std::shared_ptr<PoolState> pool;
  std::shared_ptr<OpenMap> shared;
  bool owns_pool = false;  // perdure.open(): close() of the object closes the pool
  bool closed = false;     // close() of the object was called

  const MapInfo& info() const noexcept { return shared->map.info(); }
  bool is_closed() const noexcept {
    return closed || shared->dropped.load(std::memory_order_acquire) || pool->closed();
  }
  // Raises ClosedError if the object is closed or its map was dropped.
  [[nodiscard]] UntypedMap& opened() const {
    if (closed || shared->dropped.load(std::memory_order_acquire)) [[unlikely]]
      raise_closed(info().name.c_str());
    return shared->map;
  }
  // For calls on ranges. Raises UnsupportedError if the engine keeps no order.
  void require_order() const;
};

// How the words of an integer map read in Python.
enum class Number : std::uint8_t { uint64, int64, float64 };
// Raise OverflowError or TypeError if the object does not fit. `key`: in the order of the keys.
std::uint64_t word_of_key(nb::handle key, bool is_signed);
nb::object key_of_word(std::uint64_t word, bool is_signed);
std::uint64_t word_of(nb::handle number, Number kind);
nb::object number_of(std::uint64_t word, Number kind);

// A map of integers: also with its types, for calls on many keys.
struct IntMapState : MapState {
  std::optional<Map<std::uint64_t, std::uint64_t>> of_unsigned;
  std::optional<Map<std::int64_t, std::uint64_t>> of_signed;
  Number number = Number::uint64;  // of the values
};

// start, stop, prefix, reverse and limit of Python, with the memory that they refer to.
struct Range {
  std::optional<std::string> start, stop;
  std::string prefix;
  bool reverse = false;
  std::uint64_t limit = ~std::uint64_t{0};

  static Range of(nb::handle start, nb::handle stop, nb::handle prefix, bool reverse,
                  nb::handle limit);
  [[nodiscard]] UntypedScanOptions options() const;
};

// What an iterator yields.
enum class Yield : std::uint8_t { keys, values, items };

// An iterator over a range of a map, or of a version of it, in the order of its keys. Entries are
// copied in batches, so the map may change meanwhile.
class EntryIterator {
 public:
  EntryIterator(const MapState& state, UntypedIterator at, Yield yield,
                Number number = Number::uint64)
      : state_(state),
        at_(std::move(at)),
        yield_(yield),
        integers_(state.info().key_kind == KeyKind::integer),
        is_signed_(state.info().is_signed),
        number_(number) {}
  nb::object next();  // raises StopIteration at the end

 private:
  MapState state_;  // declared before `at_`: outlives it
  UntypedIterator at_;
  Yield yield_;
  bool integers_;  // keys
  bool is_signed_;
  Number number_;
  bool first_ = true;
  std::atomic_flag busy_;  // two threads must not step at once
};

// The keys of a map without order, all at once; at most `limit` of them. copy(key) owns the key,
// object(copy) is that of Python.
template <class Copy, class Object>
nb::list unordered_keys(const MapState& state, std::size_t limit, Copy&& copy, Object&& object) {
  UntypedMap& map = state.opened();
  const Use use(*state.pool, Use::Kind::reads);
  std::vector<std::invoke_result_t<Copy&, const UntypedKey&>> keys;
  bool whole = true;
  take(released([&] {
    return map.for_each([&](const UntypedKey& key, const UntypedValue&) {
      whole = detail::attempt([&] { keys.push_back(copy(key)); });
      return whole && keys.size() < limit;
    });
  }));
  if (!whole) throw std::bad_alloc();
  nb::list out;
  for (const auto& key : keys) out.append(object(key));
  return out;
}

// What a Store and an IntMap tell of themselves.
template <class State>
void add_map_properties(nb::class_<State>& type) {
  type.def_prop_ro(
          "closed", [](const State& state) { return state.is_closed(); },
          "Whether the map or its pool is closed.")
      .def_prop_ro(
          "name", [](const State& state) { return text(state.info().name); },
          "The name of the map.")
      .def_prop_ro(
          "path", [](const State& state) { return text(state.pool->path()); },
          "The file of the pool.")
      .def_prop_ro(
          "engine", [](const State& state) { return text(engine_name(state.info().engine)); },
          "The name of the engine.")
      .def_prop_ro(
          "ordered", [](const State& state) { return state.shared->map.ordered(); },
          "Whether the engine keeps an order.")
      .def_prop_ro(
          "versioned", [](const State& state) { return state.shared->map.versioned(); },
          "Whether the engine keeps versions.");
}

// The parts of the module.
using StoreClass = nb::class_<MapState>;
void add_pool(nb::module_& module);
void add_backups(nb::module_& module);
std::string path_of(nb::handle path);  // as os.fspath() gives it
nb::dict dict_of(const BackupInfo& info);
StoreClass add_store(nb::module_& module);
void add_versions(nb::module_& module, StoreClass& store);
void add_batch(nb::module_& module);
nb::object make_batch(std::shared_ptr<PoolState> pool);
void add_int_map(nb::module_& module);

}  // namespace perdure::python
