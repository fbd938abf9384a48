// Store: a map of byte strings, as a MutableMapping. What collections.abc can derive is in
// perdure/_store.py.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "maps.h"
#include "read.h"

namespace perdure::python {

namespace {

// Raises KeyError(key).
[[noreturn]] void raise_key(nb::handle key) {
  PyErr_SetObject(PyExc_KeyError, nb::make_tuple(nb::borrow(key)).ptr());
  throw nb::python_error();
}

bool present(const Found& found) {
  check(found.status());
  return found.present();
}

// One mutation of one key. The GIL is kept if another thread could change the value meanwhile.
template <class F>
Found mutate(const MapState& state, const Bytes* value, F&& f) {
  UntypedMap& map = state.opened();
  const Use use(*state.pool);
  return released_if(value == nullptr || !value->may_change(), [&] { return f(map); });
}

Found put(const MapState& state, nb::handle key, nb::handle value) {
  const Bytes k(key.ptr(), Bytes::Kind::key);
  const Bytes v(value.ptr(), Bytes::Kind::value);
  return mutate(state, &v, [&](UntypedMap& map) { return map.put(k.key(), v.value()); });
}
Found erase(const MapState& state, nb::handle key) {
  const Bytes k(key.ptr(), Bytes::Kind::key);
  return mutate(state, nullptr, [&](UntypedMap& map) { return map.erase(k.key()); });
}
bool contains(const MapState& state, nb::handle key) {
  return has_key(key, [&](const UntypedKey& k) {
    UntypedMap& map = state.opened();
    const Use use(*state.pool, Use::Kind::reads);
    return released_if(state.pool->reads_may_wait(), [&] { return map.contains(k); });
  });
}
nb::object get(const MapState& state, nb::handle key) {
  const Bytes k(key.ptr(), Bytes::Kind::key);
  UntypedMap& map = state.opened();
  const Use use(*state.pool, Use::Kind::reads);
  return read_bytes(*state.pool, [&](auto visit) { return map.read(k.key(), visit); });
}
std::uint64_t length(const MapState& state) {
  UntypedMap& map = state.opened();
  const Use use(*state.pool, Use::Kind::reads);
  return take(released([&] { return map.size(); }));
}

// --- slots of the type: the calls of store[key], without the detour over methods ---

// Calls f() and turns what it throws into an exception of Python, with `failed` as the result.
template <class R, class F>
R guarded(R failed, F&& f) noexcept {
  try {
    return f();
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return failed;
}
const MapState& state_of(PyObject* self) {
  if (!nb::inst_ready(self)) [[unlikely]] {
    PyErr_SetString(PyExc_TypeError, "the store was never initialised");
    throw nb::python_error();
  }
  return *nb::inst_ptr<MapState>(self);
}

PyObject* slot_get(PyObject* self, PyObject* key) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    nb::object value = get(state_of(self), key);
    if (!value.is_valid()) raise_key(key);
    return value.release().ptr();
  });
}
int slot_set(PyObject* self, PyObject* key, PyObject* value) noexcept {
  return guarded(-1, [&] {
    if (value != nullptr) {
      check(put(state_of(self), key, value).status());
    } else if (!present(erase(state_of(self), key))) {
      raise_key(key);
    }
    return 0;
  });
}
int slot_contains(PyObject* self, PyObject* key) noexcept {
  return guarded(-1, [&] { return contains(state_of(self), key) ? 1 : 0; });
}
Py_ssize_t slot_length(PyObject* self) noexcept {
  return guarded<Py_ssize_t>(-1, [&] { return static_cast<Py_ssize_t>(length(state_of(self))); });
}

PyType_Slot slots[] = {{Py_mp_subscript, reinterpret_cast<void*>(&slot_get)},
                       {Py_mp_ass_subscript, reinterpret_cast<void*>(&slot_set)},
                       {Py_mp_length, reinterpret_cast<void*>(&slot_length)},
                       {Py_sq_contains, reinterpret_cast<void*>(&slot_contains)},
                       {0, nullptr}};

// --- many keys ---

// The keys of an iterable, held while the GIL is released.
struct Keys {
  explicit Keys(nb::handle iterable) {
    for (nb::handle key : nb::borrow<nb::iterable>(iterable)) add(key);
  }
  Keys() = default;
  void add(nb::handle key) {
    objects.append(key);
    views.push_back(std::make_unique<Bytes>(key.ptr(), Bytes::Kind::key));
    keys.push_back(views.back()->key());
    turns.step();
  }
  Turns turns;
  nb::list objects;
  std::vector<std::unique_ptr<Bytes>> views;
  std::vector<UntypedKey> keys;
};

nb::list get_many(const MapState& state, nb::handle iterable) {
  const Keys keys(iterable);
  UntypedMap& map = state.opened();
  const Use use(*state.pool, Use::Kind::reads);
  std::vector<std::optional<std::string>> values(keys.keys.size());
  auto done = released([&] {
    return map.read_many(keys.keys, [&](std::size_t i, const UntypedValue& value) {
      (void)detail::attempt([&] { values[i].emplace(value.bytes); });
    });
  });
  take(std::move(done));
  nb::list out;
  Turns turns;
  for (const auto& value : values) {
    out.append(value ? bytes_object(*value) : nb::none());
    turns.step();
  }
  return out;
}

// The pairs of what dict.update() takes: a mapping, something with keys(), or an iterable of pairs.
nb::object pairs_of(nb::handle entries) {
  if (nb::hasattr(entries, "items")) return nb::object(entries.attr("items")());
  if (!nb::hasattr(entries, "keys")) return nb::borrow(entries);
  nb::list pairs;
  for (nb::handle key : nb::borrow<nb::iterable>(entries.attr("keys")())) {
    pairs.append(nb::make_tuple(key, entries[key]));
  }
  return pairs;
}

std::uint64_t set_many(const MapState& state, nb::handle entries) {
  Keys keys;
  std::vector<std::unique_ptr<Bytes>> values;
  const nb::object source = pairs_of(entries);
  nb::list kept;  // the values
  bool may_change = false;
  for (nb::handle entry : nb::borrow<nb::iterable>(source)) {
    const nb::object pair = nb::steal(PySequence_Fast(entry.ptr(), "set_many takes pairs"));
    if (!pair.is_valid()) throw nb::python_error();
    if (nb::len(pair) != 2) raise_invalid("set_many takes pairs of a key and a value");
    const nb::object value = pair[1];
    keys.add(nb::object(pair[0]));
    kept.append(value);
    values.push_back(std::make_unique<Bytes>(value.ptr(), Bytes::Kind::value));
    may_change = may_change || values.back()->may_change() || keys.views.back()->may_change();
  }
  std::vector<UntypedMutation> mutations;
  for (std::size_t i = 0; i < values.size(); ++i) {
    mutations.push_back({MutationKind::put, keys.keys[i], values[i]->value()});
  }
  UntypedMap& map = state.opened();
  const Use use(*state.pool);
  std::uint64_t inserted = 0;
  check(released_if(!may_change, [&] {
    return map.write_many(
        mutations, [&](std::size_t, const Found& found) { inserted += found.absent() ? 1 : 0; });
  }));
  return inserted;
}

std::uint64_t delete_many(const MapState& state, nb::handle iterable) {
  const Keys keys(iterable);
  std::vector<UntypedMutation> mutations;
  for (const UntypedKey& key : keys.keys) mutations.push_back({MutationKind::erase, key, {}});
  UntypedMap& map = state.opened();
  const Use use(*state.pool);
  std::uint64_t deleted = 0;
  check(released([&] {
    return map.write_many(
        mutations, [&](std::size_t, const Found& found) { deleted += found.present() ? 1 : 0; });
  }));
  return deleted;
}

// --- conditions ---

std::optional<UntypedValue> optional_value(const std::optional<Bytes>& bytes) {
  if (!bytes) return std::nullopt;
  return bytes->value();
}
bool compare_and_set(const MapState& state, nb::handle key, nb::handle expected,
                     nb::handle desired) {
  const Bytes k(key.ptr(), Bytes::Kind::key);
  std::optional<Bytes> before;
  std::optional<Bytes> after;
  if (!expected.is_none()) before.emplace(expected.ptr(), Bytes::Kind::value);
  if (!desired.is_none()) after.emplace(desired.ptr(), Bytes::Kind::value);
  const bool may_change = (before && before->may_change()) || (after && after->may_change());
  UntypedMap& map = state.opened();
  const Use use(*state.pool);
  const Exchanged done = released_if(!may_change, [&] {
    return map.compare_exchange(k.key(), optional_value(before), optional_value(after));
  });
  check(done.status());
  return done.exchanged();
}

// --- ranges ---

std::uint64_t count(const MapState& state, const Range& range) {
  UntypedMap& map = state.opened();
  const Use use(*state.pool, Use::Kind::reads);
  state.require_order();
  return take(released([&] {
    return map.scan(range.options(), [](const UntypedKey&, const UntypedValue&) { return true; });
  }));
}

nb::object iterate(const MapState& state, Yield yield, const Range& range) {
  UntypedMap& map = state.opened();
  const Use use(*state.pool, Use::Kind::reads);
  state.require_order();
  auto at = released([&] { return map.scan(range.options()); });
  check(at.status());
  return nb::cast(new EntryIterator(state, std::move(at), yield), nb::rv_policy::take_ownership);
}

void close(MapState& state, bool sync) {
  if (state.owns_pool) return state.pool->close(sync);
  state.closed = true;
}

void add_calls_on_one(StoreClass& store) {
  using namespace nb::literals;
  store
      .def(
          "get",
          [](const MapState& state, nb::handle key, nb::object otherwise) {
            nb::object value = get(state, key);
            return value.is_valid() ? value : otherwise;
          },
          "key"_a.none(), "default"_a.none() = nb::none(),
          "Returns the value of the key, or `default` if the key is absent.")
      .def(
          "put",
          [](const MapState& s, nb::handle key, nb::handle value) {
            const Found found = put(s, key, value);
            check(found.status());
            return found.absent();
          },
          "key"_a.none(), "value"_a.none(),
          "Gives the key the value. Returns True if the key is new, False if its value was "
          "replaced.")
      .def(
          "insert",
          [](const MapState& s, nb::handle key, nb::handle value) {
            const Bytes k(key.ptr(), Bytes::Kind::key);
            const Bytes v(value.ptr(), Bytes::Kind::value);
            const Found found =
                mutate(s, &v, [&](UntypedMap& map) { return map.insert(k.key(), v.value()); });
            check(found.status());
            return found.absent();
          },
          "key"_a.none(), "value"_a.none(),
          "Inserts the key unless it exists. Returns whether it did.")
      .def(
          "replace",
          [](const MapState& s, nb::handle key, nb::handle value) {
            const Bytes k(key.ptr(), Bytes::Kind::key);
            const Bytes v(value.ptr(), Bytes::Kind::value);
            return present(
                mutate(s, &v, [&](UntypedMap& map) { return map.update(k.key(), v.value()); }));
          },
          "key"_a.none(), "value"_a.none(),
          "Replaces the value of the key if it exists. Returns whether it did.")
      .def(
          "discard", [](const MapState& s, nb::handle key) { return present(erase(s, key)); },
          "key"_a.none(), "Deletes the key if it exists. Returns whether it did.")
      .def("compare_and_set", &compare_and_set, "key"_a.none(), "expected"_a.none(),
           "value"_a.none(),
           "Gives the key `value` if its value is `expected`, in one step. None stands for an "
           "absent key, so that the call can insert and delete, too. Returns whether it did.")
      .def(
          "read",
          [](const MapState& state, nb::handle key, nb::handle function) {
            const Bytes k(key.ptr(), Bytes::Kind::key);
            UntypedMap& map = state.opened();
            const Use use(*state.pool, Use::Kind::reads);
            return read_in_place(
                *state.pool, [&](auto visit) { return map.read(k.key(), visit); }, function);
          },
          "key"_a.none(), "function"_a,
          "Calls function(view) with a memoryview of the value where it lies in the file. "
          "Returns (True, its result), or (False, None) if the key is absent. The view ends "
          "with the function, which may read the store and must not change it.");
}

void add_calls_on_many(StoreClass& store) {
  using namespace nb::literals;
  store
      .def("get_many", &get_many, "keys"_a.none(),
           "Returns the value of each key, None where it is absent. Faster than single calls; "
           "not one atomic step.")
      .def("set_many", &set_many, "entries"_a.none(),
           "Sets the entries of a mapping, or of an iterable of pairs. Returns how many keys "
           "are new. Faster than single calls; each entry is atomic by itself. batch() makes "
           "all of them one step.")
      .def("delete_many", &delete_many, "keys"_a.none(),
           "Deletes the keys, each atomically. Returns how many were there.");
}

void add_ranges(StoreClass& store) {
  using namespace nb::literals;
  const auto range_arguments = [](auto&& call) {
    return [call](const MapState& state, nb::handle start, nb::handle stop, nb::handle prefix,
                  bool reverse, nb::handle limit) {
      return call(state, Range::of(start, stop, prefix, reverse, limit));
    };
  };
  store
      .def("_count", range_arguments(&count), "start"_a.none(), "stop"_a.none(), "prefix"_a.none(),
           "reverse"_a, "limit"_a.none())
      .def("_delete_range", range_arguments([](const MapState& state, const Range& range) {
             UntypedMap& map = state.opened();
             const Use use(*state.pool);
             state.require_order();
             return take(released([&] { return map.erase_range(range.options()); }));
           }),
           "start"_a.none(), "stop"_a.none(), "prefix"_a.none(), "reverse"_a, "limit"_a.none())
      .def(
          "_iterate",
          [](const MapState& state, Yield yield, nb::handle start, nb::handle stop,
             nb::handle prefix, bool reverse, nb::handle limit) {
            return iterate(state, yield, Range::of(start, stop, prefix, reverse, limit));
          },
          "what"_a, "start"_a.none(), "stop"_a.none(), "prefix"_a.none(), "reverse"_a,
          "limit"_a.none())
      .def(
          "_all_keys",
          [](const MapState& state, std::size_t limit) {
            return unordered_keys(
                state, limit, [](const UntypedKey& key) { return std::string(key.bytes); },
                bytes_object);
          },
          "limit"_a)
      .def("_close", &close, "sync"_a);
}

}  // namespace

StoreClass add_store(nb::module_& module) {
  using namespace nb::literals;
  nb::enum_<Yield>(module, "_Yield")
      .value("keys", Yield::keys)
      .value("values", Yield::values)
      .value("items", Yield::items);
  nb::class_<EntryIterator>(module, "_Iterator")
      .def("__iter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__next__", &EntryIterator::next);
  StoreClass store(module, "_StoreBase", nb::type_slots(slots), nb::is_weak_referenceable());
  store.def(nb::init<const MapState&>());
  add_calls_on_one(store);
  add_calls_on_many(store);
  add_ranges(store);
  add_map_properties(store);
  // The bytes that a key stands for.
  module.def("_key_bytes", [](nb::handle key) {
    return bytes_object(Bytes(key.ptr(), Bytes::Kind::key).view());
  });
  return store;
}

}  // namespace perdure::python
