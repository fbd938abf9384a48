// IntMap: a map of 64-bit integers to 64-bit numbers, with calls on arrays.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <array>
#include <vector>

#include "maps.h"

namespace perdure::python {

namespace {

using Words = nb::ndarray<const std::uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutWords = nb::ndarray<std::uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutBools = nb::ndarray<bool, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void same_length(std::size_t a, std::size_t b) {
  if (a != b) raise_invalid("the arrays have different lengths");
}

// Calls f(map, keys) with the map and keys of its type.
template <class F>
auto with_types(IntMapState& state, const Words& keys, F&& f) {
  if (state.of_signed) {
    return f(*state.of_signed,
             std::span(reinterpret_cast<const std::int64_t*>(keys.data()), keys.size()));
  }
  return f(*state.of_unsigned, std::span(keys.data(), keys.size()));
}

std::uint64_t find_many(IntMapState& state, const Words& keys, const OutWords& values,
                        const OutBools& mask) {
  same_length(keys.size(), values.size());
  same_length(keys.size(), mask.size());
  (void)state.opened();
  const Use use(*state.pool, Use::Kind::reads);
  return take(released([&] {
    return with_types(state, keys, [&](auto& map, auto span) {
      return map.read_many(span, [&](std::size_t i, std::uint64_t value) {
        values.data()[i] = value;
        mask.data()[i] = true;
      });
    });
  }));
}

// `changed`: null, or gets whether each key was inserted (put), or erased.
template <class Make, class Done>
void write_many(IntMapState& state, const Words& keys, Make&& make, Done&& done) {
  (void)state.opened();
  const Use use(*state.pool);
  check(released([&] {
    return with_types(state, keys, [&](auto& map, auto span) {
      using Key = std::remove_cv_t<typename decltype(span)::element_type>;
      std::array<Mutation<Key, std::uint64_t>, 256> batch;
      Status first;
      for (std::size_t begin = 0; begin < span.size() && first.ok(); begin += batch.size()) {
        const std::size_t n = std::min(batch.size(), span.size() - begin);
        for (std::size_t i = 0; i < n; ++i) batch[i] = make(span[begin + i], begin + i);
        first = map.write_many(std::span<const Mutation<Key, std::uint64_t>>(batch.data(), n),
                               [&](std::size_t i, const Found& found) { done(begin + i, found); });
      }
      return first;
    });
  }));
}

std::uint64_t put_many(IntMapState& state, const Words& keys, const Words& values) {
  same_length(keys.size(), values.size());
  std::uint64_t inserted = 0;
  write_many(
      state, keys,
      [&]<class K>(K key, std::size_t i) {
        return Mutation<K, std::uint64_t>{MutationKind::put, key, values.data()[i]};
      },
      [&](std::size_t, const Found& found) { inserted += found.absent() ? 1 : 0; });
  return inserted;
}

std::uint64_t erase_many(IntMapState& state, const Words& keys) {
  std::uint64_t erased = 0;
  write_many(
      state, keys,
      [&]<class K>(K key, std::size_t) {
        return Mutation<K, std::uint64_t>{MutationKind::erase, key, 0};
      },
      [&](std::size_t, const Found& found) { erased += found.present() ? 1 : 0; });
  return erased;
}

UntypedKey key_of(const IntMapState& state, nb::handle key) {
  return {.word = word_of_key(key, state.info().is_signed)};
}
UntypedValue value_of(const IntMapState& state, nb::handle value) {
  return {.word = word_of(value, state.number), .word_size = 8};
}

nb::object get(const IntMapState& state, nb::handle key) {
  const UntypedKey k = key_of(state, key);
  UntypedMap& map = state.opened();
  const Use use(*state.pool, Use::Kind::reads);
  std::uint64_t word = 0;
  const Found found = released_if(state.pool->reads_may_wait(), [&] {
    return map.read(k, [&](const UntypedValue& value) { word = value.word; });
  });
  check(found.status());
  return found.present() ? number_of(word, state.number) : nb::object();
}

template <class F>
Found mutate(const IntMapState& state, F&& f) {
  UntypedMap& map = state.opened();
  const Use use(*state.pool);
  return released([&] { return f(map); });
}

// None stands for an absent key.
bool compare_and_set(const IntMapState& state, nb::handle key, nb::handle expected,
                     nb::handle desired) {
  const UntypedKey k = key_of(state, key);
  std::optional<UntypedValue> before;
  std::optional<UntypedValue> after;
  if (!expected.is_none()) before = value_of(state, expected);
  if (!desired.is_none()) after = value_of(state, desired);
  UntypedMap& map = state.opened();
  const Use use(*state.pool);
  const Exchanged done = released([&] { return map.compare_exchange(k, before, after); });
  check(done.status());
  return done.exchanged();
}

// Adds to the value, which is 0 if the key is absent. Returns the new value.
nb::object add(const IntMapState& state, nb::handle key, nb::handle delta) {
  if (state.number == Number::float64) raise_invalid("add() is for maps of integers");
  const UntypedKey k = key_of(state, key);
  const std::uint64_t by = word_of(delta, Number::int64);
  UntypedMap& map = state.opened();
  const Use use(*state.pool);
  std::uint64_t sum = 0;
  check(released([&]() -> Status {
    for (;;) {
      std::optional<UntypedValue> before;
      Found found = map.read(k, [&](const UntypedValue& value) {
        before = UntypedValue{.word = value.word, .word_size = 8};
      });
      if (!found.ok()) return std::move(found).status();
      sum = (before ? before->word : 0) + by;
      Exchanged done = map.compare_exchange(k, before, UntypedValue{.word = sum, .word_size = 8});
      if (!done.ok() || done.exchanged()) return std::move(done).status();
    }
  }));
  return number_of(sum, state.number);
}

UntypedScanOptions range_of(const IntMapState& state, nb::handle start, nb::handle stop,
                            bool reverse, nb::handle limit) {
  UntypedScanOptions options{.reverse = reverse};
  if (!start.is_none()) options.from = key_of(state, start);
  if (!stop.is_none()) options.to = key_of(state, stop);
  options.limit = Range::of(nb::none(), nb::none(), nb::none(), reverse, limit).limit;
  return options;
}

void add_arrays_and_ranges(nb::class_<IntMapState>& type) {
  using namespace nb::literals;
  type.def(
          "_all_keys",
          [](const IntMapState& state, std::size_t limit) {
            return unordered_keys(
                state, limit, [](const UntypedKey& key) { return key.word; },
                [&](std::uint64_t word) { return key_of_word(word, state.info().is_signed); });
          },
          "limit"_a)
      .def("_find_many", &find_many, "keys"_a, "values"_a, "mask"_a)
      .def("_put_many", &put_many, "keys"_a, "values"_a)
      .def("_erase_many", &erase_many, "keys"_a)
      .def("_length",
           [](const IntMapState& s) {
             UntypedMap& map = s.opened();
             const Use use(*s.pool, Use::Kind::reads);
             return take(released([&] { return map.size(); }));
           })
      .def(
          "_iterate",
          [](const IntMapState& s, Yield yield, nb::handle start, nb::handle stop, bool reverse,
             nb::handle limit) {
            const UntypedScanOptions options = range_of(s, start, stop, reverse, limit);
            UntypedMap& map = s.opened();
            const Use use(*s.pool, Use::Kind::reads);
            s.require_order();
            auto at = released([&] { return map.scan(options); });
            check(at.status());
            return new EntryIterator(s, std::move(at), yield, s.number);
          },
          "what"_a, "start"_a.none(), "stop"_a.none(), "reverse"_a, "limit"_a.none(),
          nb::rv_policy::take_ownership);
}

}  // namespace

void add_int_map(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<IntMapState> type(module, "_IntMapBase", nb::is_weak_referenceable());
  add_map_properties(type);
  type.def(nb::init<const IntMapState&>())
      .def(
          "get",
          [](const IntMapState& s, nb::handle key, nb::object otherwise) {
            nb::object value = get(s, key);
            return value.is_valid() ? value : otherwise;
          },
          "key"_a.none(), "default"_a.none() = nb::none(),
          "Returns the value of the key, or `default` if the key is absent.")
      .def(
          "_contains", [](const IntMapState& s, nb::handle key) { return get(s, key).is_valid(); },
          "key"_a.none())
      .def(
          "put",
          [](const IntMapState& s, nb::handle key, nb::handle value) {
            const UntypedKey k = key_of(s, key);
            const UntypedValue v = value_of(s, value);
            const Found found = mutate(s, [&](UntypedMap& map) { return map.put(k, v); });
            check(found.status());
            return found.absent();
          },
          "key"_a.none(), "value"_a.none(),
          "Gives the key the value. Returns True if the key is new, False if its value was "
          "replaced.")
      .def(
          "insert",
          [](const IntMapState& s, nb::handle key, nb::handle value) {
            const UntypedKey k = key_of(s, key);
            const UntypedValue v = value_of(s, value);
            const Found found = mutate(s, [&](UntypedMap& map) { return map.insert(k, v); });
            check(found.status());
            return found.absent();
          },
          "key"_a.none(), "value"_a.none(),
          "Inserts the key unless it exists. Returns whether it did.")
      .def(
          "discard",
          [](const IntMapState& s, nb::handle key) {
            const UntypedKey k = key_of(s, key);
            const Found found = mutate(s, [&](UntypedMap& map) { return map.erase(k); });
            check(found.status());
            return found.present();
          },
          "key"_a.none(), "Deletes the key if it exists. Returns whether it did.")
      .def("add", &add, "key"_a.none(), "delta"_a.none() = 1,
           "Adds to the value of the key, which is 0 if the key is absent, in one step. "
           "Returns the new value. Overflow wraps around.")
      .def("compare_and_set", &compare_and_set, "key"_a.none(), "expected"_a.none(),
           "value"_a.none(),
           "Gives the key `value` if its value is `expected`, in one step. None stands for an "
           "absent "
           "key. Returns whether it did.");
  add_arrays_and_ranges(type);
}

}  // namespace perdure::python
