// Lookups that deliver the value of a key to Python.
#pragma once

#include <cstring>

#include "calls.h"

namespace perdure::python {

// Calls function(view) with a view of the bytes. Returns its result, or an object that is not valid
// after an exception, which is set. Throws nothing.
nb::object lend(PoolState& pool, std::string_view bytes, nb::handle function) noexcept;
// Registers the object that lends bytes.
void add_lent(nb::module_& module);

// Calls read(visit), a lookup, and returns the value as bytes; an object that is not valid if the
// key is absent.
template <class Read>
nb::object read_bytes(PoolState& pool, Read&& read) {
  if (!pool.reads_may_wait()) {
    PyObject* value = nullptr;
    const Found found = read([&](const UntypedValue& seen) {
      value =
          PyBytes_FromStringAndSize(seen.bytes.data(), static_cast<Py_ssize_t>(seen.bytes.size()));
    });
    nb::object owner = nb::steal(value);
    check(found.status());
    if (found.present() && value == nullptr) throw nb::python_error();
    return owner;
  }
  // The value is copied twice: only a thread with the GIL can make the object.
  constexpr std::size_t kInPlace = 512;
  char small[kInPlace];
  std::string large;
  std::string_view copy;
  bool copied = true;
  const Found found = released([&] {
    return read([&](const UntypedValue& seen) {
      if (seen.bytes.size() <= kInPlace) {
        std::memcpy(small, seen.bytes.data(), seen.bytes.size());
        copy = {small, seen.bytes.size()};
      } else {
        copied = detail::attempt([&] { large.assign(seen.bytes); });
        copy = large;
      }
    });
  });
  check(found.status());
  if (!copied) throw std::bad_alloc();
  return found.present() ? bytes_object(copy) : nb::object();
}

// Calls function(view) with a memoryview of the value where it lies, and returns (True, result); or
// (False, None) if the key is absent. The view ends with the function. If the function keeps a view
// of the memory, the call raises BufferError, and the pool cannot be closed before that is gone.
template <class Read>
nb::object read_in_place(PoolState& pool, Read&& read, nb::handle function) {
  nb::object result;
  bool failed = false;
  const Found found = read([&](const UntypedValue& seen) {
    // Nothing may be thrown through the library: an exception of Python waits until the lookup is
    // over.
    const InCallback scope;
    result = lend(pool, seen.bytes, function);
    failed = !result.is_valid();
  });
  if (failed) throw nb::python_error();
  check(found.status());
  return nb::make_tuple(found.present(), found.present() ? result : nb::none());
}

}  // namespace perdure::python
