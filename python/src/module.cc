// The module perdure._core. Names that begin with _ are wrapped by the package.
#include <nanobind/nanobind.h>

#include "maps.h"
#include "read.h"

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
