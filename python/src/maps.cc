#include "maps.h"

#include <bit>

namespace perdure::python {

namespace {

std::optional<std::string> bound_of(nb::handle bound) {
  if (bound.is_none()) return std::nullopt;
  return std::string(Bytes(bound.ptr(), Bytes::Kind::key).view());
}

// The conversion of an int has failed: Python's own words name types of C.
[[noreturn]] void raise_range(const char* range) {
  PyErr_Format(PyExc_OverflowError, "the number does not fit into %s", range);
  throw nb::python_error();
}

}  // namespace

void MapState::require_order() const {
  if (shared->map.ordered()) return;
  const auto engine = engine_name(info().engine);
  raise(Status::format(StatusCode::unsupported,
                       "%s: map '%s' is of engine %.*s, which keeps no order: it has no ranges, "
                       "no reverse order and no limit; iterate over all of it",
                       pool->path().c_str(), info().name.c_str(), static_cast<int>(engine.size()),
                       engine.data()));
}

Range Range::of(nb::handle start, nb::handle stop, nb::handle prefix, bool reverse,
                nb::handle limit) {
  Range range;
  range.start = bound_of(start);
  range.stop = bound_of(stop);
  range.prefix = bound_of(prefix).value_or("");
  range.reverse = reverse;
  if (!limit.is_none()) {
    const nb::object number = nb::steal(PyNumber_Index(limit.ptr()));
    if (!number.is_valid()) throw nb::python_error();
    int overflow = 0;
    const long long most = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
    if (overflow < 0 || (overflow == 0 && most < 0)) raise_invalid("limit is negative");
    if (overflow == 0) range.limit = static_cast<std::uint64_t>(most);
  }
  return range;
}

UntypedScanOptions Range::options() const {
  UntypedScanOptions options{.prefix = prefix, .limit = limit, .reverse = reverse};
  if (start) options.from = UntypedKey{.bytes = *start};
  if (stop) options.to = UntypedKey{.bytes = *stop};
  return options;
}

std::uint64_t word_of_key(nb::handle key, bool is_signed) {
  const nb::object number = nb::steal(PyNumber_Index(key.ptr()));
  if (!number.is_valid()) throw nb::python_error();
  if (is_signed) {
    const long long value = PyLong_AsLongLong(number.ptr());
    if (value == -1 && PyErr_Occurred() != nullptr) raise_range("int64: -2**63 to 2**63 - 1");
    return static_cast<std::uint64_t>(value) ^ std::uint64_t{1} << 63;
  }
  const unsigned long long value = PyLong_AsUnsignedLongLong(number.ptr());
  if (value == ~0ULL && PyErr_Occurred() != nullptr) raise_range("uint64: 0 to 2**64 - 1");
  return value;
}

nb::object key_of_word(std::uint64_t word, bool is_signed) {
  if (!is_signed) return nb::int_(word);
  return nb::int_(static_cast<std::int64_t>(word ^ std::uint64_t{1} << 63));
}

std::uint64_t word_of(nb::handle number, Number kind) {
  if (kind == Number::float64) {
    const double value = PyFloat_AsDouble(number.ptr());
    if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    return std::bit_cast<std::uint64_t>(value);
  }
  const std::uint64_t word = word_of_key(number, kind == Number::int64);
  return kind == Number::int64 ? word ^ std::uint64_t{1} << 63 : word;
}

nb::object number_of(std::uint64_t word, Number kind) {
  if (kind == Number::float64) return nb::float_(std::bit_cast<double>(word));
  if (kind == Number::int64) return nb::int_(static_cast<std::int64_t>(word));
  return nb::int_(word);
}

nb::object EntryIterator::next() {
  if (busy_.test_and_set(std::memory_order_acquire)) {
    raise_invalid("two threads use one iterator at the same time");
  }
  struct Release {
    std::atomic_flag& busy;
    ~Release() { busy.clear(std::memory_order_release); }
  } const release{busy_};
  (void)state_.opened();
  const Use use(*state_.pool, Use::Kind::reads);
  if (!first_) {
    // A batch is read now and then, so the GIL is not released for steps inside of one.
    released_if(state_.pool->reads_may_wait(), [&] { at_.next(); });
  }
  first_ = false;
  if (!at_.valid()) {
    check(at_.status());
    throw nb::stop_iteration();
  }
  const auto key = [&] {
    return integers_ ? key_of_word(at_.key().word, is_signed_) : bytes_object(at_.key().bytes);
  };
  const auto value = [&]() -> nb::object {
    const UntypedValue found = at_.value();
    return found.word_size == 0 ? bytes_object(found.bytes) : number_of(found.word, number_);
  };
  if (yield_ == Yield::keys) return key();
  if (yield_ == Yield::values) return value();
  return nb::make_tuple(key(), value());
}

}  // namespace perdure::python
