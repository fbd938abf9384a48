// Batch: changes of any stores and maps of one pool that happen wholly or not at all.
#include "maps.h"
#include "read.h"

namespace perdure::python {

namespace {

// A batch is for one thread: the scope of a call on it.
class InBatch {
 public:
  explicit InBatch(std::atomic_flag& busy) : busy_(busy) {
    if (busy.test_and_set(std::memory_order_acquire)) {
      raise_invalid("two threads use one batch at the same time");
    }
  }
  ~InBatch() { busy_.clear(std::memory_order_release); }
  InBatch(const InBatch&) = delete;
  InBatch& operator=(const InBatch&) = delete;

 private:
  std::atomic_flag& busy_;
};

class PyBatch {
 public:
  explicit PyBatch(std::shared_ptr<PoolState> pool) : pool_(std::move(pool)) {}

  // `State`: MapState or IntMapState.
  template <class State>
  void put(const State& state, nb::handle key, nb::handle value) {
    add(state, key, value, [&](UntypedMap& map, const UntypedKey& k, const UntypedValue& v) {
      batch_.put(map, k, v);
    });
  }
  template <class State>
  void erase(const State& state, nb::handle key) {
    add(state, key, nb::handle(),
        [&](UntypedMap& map, const UntypedKey& k, const UntypedValue&) { batch_.erase(map, k); });
  }
  // None: the key is absent.
  template <class State>
  void require(const State& state, nb::handle key, nb::handle value) {
    const bool absent = value.is_none();
    add(state, key, absent ? nb::handle() : value,
        [&](UntypedMap& map, const UntypedKey& k, const UntypedValue& v) {
          absent ? batch_.require_absent(map, k) : batch_.require(map, k, v);
        });
  }
  // What the key would have after a commit now; None: it would be absent.
  nb::object get(const MapState& state, nb::handle key) {
    UntypedMap& map = map_of(state);
    const Bytes k(key.ptr(), Bytes::Kind::key);
    const InBatch scope(busy_);
    const Use use(*pool_, Use::Kind::reads);
    nb::object value =
        read_bytes(*pool_, [&](auto visit) { return batch_.read(map, k.key(), visit); });
    return value.is_valid() ? value : nb::none();
  }
  nb::object get(const IntMapState& state, nb::handle key) {
    UntypedMap& map = map_of(state);
    const UntypedKey k{.word = word_of_key(key, map.info().is_signed)};
    const InBatch scope(busy_);
    const Use use(*pool_, Use::Kind::reads);
    std::uint64_t word = 0;
    const Found found = released_if(pool_->reads_may_wait(), [&] {
      return batch_.read(map, k, [&](const UntypedValue& value) { word = value.word; });
    });
    check(found.status());
    return found.present() ? number_of(word, state.number) : nb::none();
  }
  std::size_t size() {
    const InBatch scope(busy_);
    return batch_.size();
  }
  void commit() {
    const InBatch scope(busy_);
    const Use use(*pool_);
    check(released([&] { return pool_->pool().commit(batch_); }));
    batch_.clear();
  }
  void clear() {
    const InBatch scope(busy_);
    batch_.clear();
  }

 private:
  UntypedMap& map_of(const MapState& state) const {
    if (state.pool != pool_) raise_invalid("a batch is for the maps of one pool");
    return state.opened();
  }
  // `value`: null if the call has none.
  template <class F>
  void add(const MapState& state, nb::handle key, nb::handle value, F&& f) {
    UntypedMap& map = map_of(state);
    const Bytes k(key.ptr(), Bytes::Kind::key);
    std::optional<Bytes> v;
    if (value.is_valid()) v.emplace(value.ptr(), Bytes::Kind::value);
    const InBatch scope(busy_);
    const Use use(*pool_);
    f(map, k.key(), v ? v->value() : UntypedValue{});
  }
  template <class F>
  void add(const IntMapState& state, nb::handle key, nb::handle value, F&& f) {
    UntypedMap& map = map_of(state);
    const UntypedKey k{.word = word_of_key(key, map.info().is_signed)};
    UntypedValue v{.word_size = 8};
    if (value.is_valid()) v.word = word_of(value, state.number);
    const InBatch scope(busy_);
    const Use use(*pool_);
    f(map, k, v);
  }

  std::shared_ptr<PoolState> pool_;
  WriteBatch batch_;
  std::atomic_flag busy_;
};

}  // namespace

nb::object make_batch(std::shared_ptr<PoolState> pool) {
  return nb::cast(new PyBatch(std::move(pool)), nb::rv_policy::take_ownership);
}

void add_batch(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<PyBatch>(module, "_Batch")
      .def("put", &PyBatch::put<MapState>, "map"_a, "key"_a.none(), "value"_a.none())
      .def("put", &PyBatch::put<IntMapState>, "map"_a, "key"_a.none(), "value"_a.none())
      .def("delete", &PyBatch::erase<MapState>, "map"_a, "key"_a.none())
      .def("delete", &PyBatch::erase<IntMapState>, "map"_a, "key"_a.none())
      .def("require", &PyBatch::require<MapState>, "map"_a, "key"_a.none(), "value"_a.none())
      .def("require", &PyBatch::require<IntMapState>, "map"_a, "key"_a.none(), "value"_a.none())
      .def("get", nb::overload_cast<const MapState&, nb::handle>(&PyBatch::get), "map"_a,
           "key"_a.none())
      .def("get", nb::overload_cast<const IntMapState&, nb::handle>(&PyBatch::get), "map"_a,
           "key"_a.none())
      .def("commit", &PyBatch::commit)
      .def("clear", &PyBatch::clear)
      .def("__len__", &PyBatch::size);
}

}  // namespace perdure::python
