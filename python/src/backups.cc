// back_up(), inspect_backup() and restore(): backups of pools that this process has not opened.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <perdure/backup.h>

#include "maps.h"

namespace perdure::python {

nb::dict dict_of(const BackupInfo& info) {
  nb::dict result;
  result["uuid"] = info.uuid;
  result["closed"] = info.closed;
  result["first_epoch"] = info.first.epoch;
  result["last_epoch"] = info.last.epoch;
  result["first_unix_ns"] = info.first.unix_ns;
  result["last_unix_ns"] = info.last.unix_ns;
  result["made_unix_ns"] = info.made_unix_ns;
  result["ends_unix_ns"] = info.ends_unix_ns;
  result["base_bytes"] = info.base_bytes;
  result["log_bytes"] = info.log_bytes;
  result["extended"] = info.extended;
  result["copied_bytes"] = info.copied_bytes;
  return result;
}

void add_backups(nb::module_& module) {
  using namespace nb::literals;
  module.def(
      "back_up",
      [](nb::handle path, nb::handle folder) {
        const std::string from = path_of(path), to = path_of(folder);
        return dict_of(take(released([&] { return perdure::back_up(from, to); }), {from, to}));
      },
      "path"_a, "folder"_a);
  module.def(
      "inspect_backup",
      [](nb::handle folder) {
        const std::string from = path_of(folder);
        return dict_of(take(released([&] { return perdure::inspect_backup(from); }), {from}));
      },
      "folder"_a);
  module.def(
      "restore",
      [](nb::handle folder, nb::handle path, std::optional<std::uint64_t> epoch,
         std::optional<std::uint64_t> unix_ns) {
        const std::string from = path_of(folder), to = path_of(path);
        const RestoreOptions options{.epoch = epoch, .unix_ns = unix_ns};
        const auto restored =
            take(released([&] { return perdure::restore(from, to, options); }), {from, to});
        return restored.epoch;
      },
      "folder"_a, "path"_a, "epoch"_a.none(), "unix_ns"_a.none());
}

}  // namespace perdure::python
