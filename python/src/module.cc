// The module perdure._core. Names that begin with _ are wrapped by the package.
#include <nanobind/nanobind.h>

#include <atomic>
#include <cstdint>

#include "maps.h"
#include "read.h"

#define PyInit__core init_in_any_interpreter
NB_MODULE(_core, module) {
  using namespace perdure::python;
  namespace nb = nanobind;
  const auto version = perdure::version();
  module.attr("__version__") = nb::str(version.data(), version.size());
  // Objects that are alive at the exit of the interpreter are no error of a program.
  nb::set_leak_warnings(false);
  count_forks();
  add_errors(module);
  add_lent(module);
  nb::enum_<Number>(module, "_Number")
      .value("uint64", Number::uint64)
      .value("int64", Number::int64)
      .value("float64", Number::float64);
  StoreClass store = add_store(module);
  add_versions(module, store);
  add_int_map(module);
  add_batch(module);
  add_pool(module);
  add_backups(module);
}
#undef PyInit__core

// nanobind and this module keep their state by process. A second interpreter that imports the
// module would replace the types of the first, so the first one owns it, and others get an
// ImportError. The slot runs in the interpreter that imports: since Python 3.13 PyInit__core does
// not.
namespace {
int (*exec_of_nanobind)(PyObject*) = nullptr;
int exec_in_owner(PyObject* module) {
  static std::atomic<std::int64_t> owner{-1};
  std::int64_t none = -1;
  const std::int64_t self = PyInterpreterState_GetID(PyInterpreterState_Get());
  if (!owner.compare_exchange_strong(none, self) && none != self) {
    PyErr_SetString(PyExc_ImportError,
                    "another interpreter of this process has imported perdure, which works in one "
                    "only: import it in that one (with mod_wsgi: WSGIApplicationGroup %{GLOBAL})");
    return -1;
  }
  return exec_of_nanobind(module);
}
}  // namespace

extern "C" NB_EXPORT PyObject* PyInit__core() {
  PyObject* made = init_in_any_interpreter();
  if (made == nullptr) return made;
  for (auto* slot = reinterpret_cast<PyModuleDef*>(made)->m_slots; slot->slot != 0; ++slot) {
    void* const ours = reinterpret_cast<void*>(&exec_in_owner);
    if (slot->slot != Py_mod_exec || slot->value == ours) continue;
    exec_of_nanobind = reinterpret_cast<int (*)(PyObject*)>(slot->value);
    slot->value = ours;
  }
  return made;
}
