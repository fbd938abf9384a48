// Versions: the calls of a store whose engine keeps them, and the view of a closed version.
#include <nanobind/stl/optional.h>

#include <vector>

#include "maps.h"
#include "read.h"

namespace perdure::python {

namespace {

// Holds its version: trim() keeps it, and rollback() does not go below it.
class SnapshotState {
 public:
  SnapshotState(const MapState& state, UntypedSnapshot snapshot)
      : state_(state), snapshot_(std::move(snapshot)) {
    state_.closed = false;
  }

  PoolState& pool() const noexcept { return *state_.pool; }
  const MapState& map() const noexcept { return state_; }
  UntypedSnapshot& opened() {
    (void)state_.opened();
    if (!snapshot_) raise_closed("the view of the version");
    return *snapshot_;
  }
  // Gives the version back.
  void close() {
    if (state_.is_closed() || pool().forked()) return;
    const Use use(pool(), Use::Kind::reads);  // a callback of read() may close it
    snapshot_.reset();
  }

 private:
  MapState state_;
  std::optional<UntypedSnapshot> snapshot_;
};

nb::object value_or_none(const std::optional<std::string>& value) {
  return value ? bytes_object(*value) : nb::none();
}
std::optional<std::string> copy_of(const std::optional<UntypedValue>& value) {
  if (!value) return std::nullopt;
  return std::string(value->bytes);
}

// Collects what walk(visit) visits, without the GIL. Raises MemoryError if memory is short.
template <class Item, class Walk>
std::vector<Item> collect(Walk&& walk) {
  std::vector<Item> items;
  bool whole = true;
  auto done = released([&] {
    return walk([&](auto&&... seen) {
      whole = detail::attempt([&] { items.push_back(Item{seen...}); });
      return whole;
    });
  });
  take(std::move(done));
  if (!whole) throw std::bad_alloc();
  return items;
}

struct Entry {
  Entry(Version v, const std::optional<UntypedValue>& x) : version(v), value(copy_of(x)) {}
  Version version;
  std::optional<std::string> value;
};
struct Change {
  Change(const UntypedKey& k, const std::optional<UntypedValue>& b,
         const std::optional<UntypedValue>& a)
      : key(k.bytes), before(copy_of(b)), after(copy_of(a)) {}
  std::string key;
  std::optional<std::string> before, after;
};

nb::list listed(const std::vector<Entry>& entries) {
  nb::list out;
  for (const Entry& entry : entries) {
    out.append(nb::make_tuple(entry.version, value_or_none(entry.value)));
  }
  return out;
}

nb::list history(const MapState& state, nb::handle key) {
  const Bytes k(key.ptr(), Bytes::Kind::key);
  UntypedMap& map = state.opened();
  const Use use(*state.pool, Use::Kind::reads);
  return listed(collect<Entry>([&](auto visit) { return map.history(k.key(), visit); }));
}

nb::list diff(const MapState& state, Version before, Version after, nb::handle start,
              nb::handle stop, nb::handle prefix, nb::handle limit) {
  const Range range = Range::of(start, stop, prefix, false, limit);
  UntypedMap& map = state.opened();
  const Use use(*state.pool, Use::Kind::reads);
  const auto changes =
      collect<Change>([&](auto visit) { return map.diff(before, after, range.options(), visit); });
  nb::list out;
  for (const Change& change : changes) {
    out.append(nb::make_tuple(bytes_object(change.key), value_or_none(change.before),
                              value_or_none(change.after)));
  }
  return out;
}

SnapshotState* snapshot(const MapState& state, std::optional<Version> version) {
  UntypedMap& map = state.opened();
  const Use use(*state.pool, Use::Kind::reads);
  auto view = released([&] { return version ? map.snapshot(*version) : map.snapshot(); });
  return new SnapshotState(state, take(std::move(view)));
}

void add_snapshot(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<SnapshotState>(module, "_Snapshot")
      .def_prop_ro("version", [](SnapshotState& s) { return s.opened().version(); })
      .def(
          "get",
          [](SnapshotState& s, nb::handle key, nb::object otherwise) {
            const Bytes k(key.ptr(), Bytes::Kind::key);
            const UntypedSnapshot& view = s.opened();
            const Use use(s.pool(), Use::Kind::reads);
            nb::object value =
                read_bytes(s.pool(), [&](auto visit) { return view.read(k.key(), visit); });
            return value.is_valid() ? value : otherwise;
          },
          "key"_a.none(), "default"_a.none() = nb::none())
      .def(
          "contains",
          [](SnapshotState& s, nb::handle key) {
            return has_key(key, [&](const UntypedKey& k) {
              const UntypedSnapshot& view = s.opened();
              const Use use(s.pool(), Use::Kind::reads);
              return view.contains(k);
            });
          },
          "key"_a.none())
      .def(
          "iterate",
          [](SnapshotState& s, Yield yield, nb::handle start, nb::handle stop, nb::handle prefix,
             bool reverse, nb::handle limit) {
            const Range range = Range::of(start, stop, prefix, reverse, limit);
            const UntypedSnapshot& view = s.opened();
            const Use use(s.pool(), Use::Kind::reads);
            auto at = released([&] { return view.scan(range.options()); });
            check(at.status());
            return new EntryIterator(s.map(), std::move(at), yield);
          },
          "what"_a, "start"_a.none(), "stop"_a.none(), "prefix"_a.none(), "reverse"_a,
          "limit"_a.none(), nb::rv_policy::take_ownership)
      .def(
          "count",
          [](SnapshotState& s, nb::handle start, nb::handle stop, nb::handle prefix, bool reverse,
             nb::handle limit) {
            const Range range = Range::of(start, stop, prefix, reverse, limit);
            const UntypedSnapshot& view = s.opened();
            const Use use(s.pool(), Use::Kind::reads);
            return take(released([&] {
              return view.scan(range.options(),
                               [](const UntypedKey&, const UntypedValue&) { return true; });
            }));
          },
          "start"_a.none(), "stop"_a.none(), "prefix"_a.none(), "reverse"_a, "limit"_a.none())
      .def(
          "history",
          [](SnapshotState& s, nb::handle key) {
            const Bytes k(key.ptr(), Bytes::Kind::key);
            const UntypedSnapshot& view = s.opened();
            const Use use(s.pool(), Use::Kind::reads);
            return listed(collect<Entry>([&](auto visit) { return view.history(k.key(), visit); }));
          },
          "key"_a.none())
      .def("close", &SnapshotState::close);
}

}  // namespace

void add_versions(nb::module_& module, StoreClass& store) {
  using namespace nb::literals;
  add_snapshot(module);
  store
      .def(
          "tag",
          [](const MapState& state) {
            UntypedMap& map = state.opened();
            const Use use(*state.pool);
            return take(released([&] { return map.tag(); }));
          },
          "Closes the open version and returns its number. It contains all that was written "
          "before, and never changes. Durable when the call returns. Engine `pskiplist`. In "
          "durability `buffered` the first call after an open, and one in 4,096, waits for a "
          "cut.")
      .def(
          "versions",
          [](const MapState& state) {
            UntypedMap& map = state.opened();
            const Use use(*state.pool, Use::Kind::reads);
            const VersionRange range = take(map.versions());
            return nb::make_tuple(range.first, range.last);
          },
          "Returns (first, last) of the closed versions that can be read. If last < first "
          "there is none.")
      .def("_snapshot", &snapshot, "version"_a.none(), nb::rv_policy::take_ownership)
      .def("history", &history, "key"_a.none(),
           "Returns (version, value) for each version in which the key was written, the oldest "
           "first. None: it was deleted.")
      .def("_diff", &diff, "before"_a, "after"_a, "start"_a.none(), "stop"_a.none(),
           "prefix"_a.none(), "limit"_a.none())
      .def(
          "trim",
          [](const MapState& state, Version version) {
            UntypedMap& map = state.opened();
            const Use use(*state.pool);
            return take(released([&] { return map.trim(version); }));
          },
          "version"_a,
          "Forgets the versions below `version`, or below the lowest one that a view holds. "
          "Returns the first version that remains.")
      .def(
          "rollback",
          [](const MapState& state, Version version) {
            UntypedMap& map = state.opened();
            const Use use(*state.pool);
            check(released([&] { return map.rollback(version); }));
          },
          "version"_a,
          "Makes the content of `version` the latest one, in one step; what was written later "
          "is lost. No other call may be under way. Raises BusyError if a view holds a later "
          "version.");
}

}  // namespace perdure::python
