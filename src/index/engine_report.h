// Messages of engines: damage, violations of a check, progress.
#pragma once

#include <cstdint>
#include <cstdio>

#include "index/findings.h"
#include "perdure/options.h"
#include "perdure/stats.h"
#include "perdure/status.h"

namespace perdure {

// The error of an operation that needed this object, such as "the node".
[[gnu::cold]] inline Status damaged_object(const char* object, std::uint64_t offset) noexcept {
  return Status::format(
      StatusCode::corruption,
      "%s at offset %lu is damaged; run `perdure check --deep`, and restore a backup", object,
      offset);
}
// The error of a recovery or a check, which knows what is wrong with the object.
[[gnu::cold]] inline Status damaged_object(const char* object, std::uint64_t offset,
                                           const char* what) noexcept {
  return Status::format(StatusCode::corruption, "%s at offset %lu is damaged (%s)", object, offset,
                        what);
}
[[gnu::cold]] inline Status bad_levels(const char* what) noexcept {
  return Status::format(StatusCode::corruption, "the map's list of levels is damaged (%s)", what);
}
// The sum that the close wrote over all `objects` of the map is wrong.
[[gnu::cold]] inline Status differs_from_close(const char* objects) noexcept {
  return Status::format(StatusCode::corruption,
                        "the map's %s are not those that were closed: entries are lost; restore a "
                        "copy",
                        objects);
}
// The error of an operation that did not find its key in a map that is known to be damaged.
[[gnu::cold]] inline Status known_damage() noexcept {
  return Status::format(StatusCode::corruption,
                        "the map is damaged: what is not found may be lost; run `perdure check "
                        "--deep`, and restore a backup");
}

// Adds a violation. `id`: the violated invariant, or "". `kind`: the object at this offset, such as
// "level bucket".
[[gnu::cold]] inline void add_violation(Findings& report, const char* id, const char* kind,
                                        std::uint64_t offset, const char* what) {
  char line[180];
  const bool named = id[0] != '\0';
  std::snprintf(line, sizeof(line), "%s at offset %lu: %s%s%s%s", kind, offset, what,
                named ? " (" : "", id, named ? ")" : "");
  report.add(line);
}
[[gnu::cold]] inline void add_violation(Findings& report, const char* kind, std::uint64_t offset,
                                        const char* what) {
  add_violation(report, "", kind, offset, what);
}

// Reports the progress of a check at every `stride`th of `done` objects.
inline void tell_progress(const CheckOptions& options, const Findings& report, std::uint64_t done,
                          std::uint64_t stride) {
  if (options.progress == nullptr || done % stride != 0) return;
  options.progress(options.progress_context, report.bytes, 0);
}

}  // namespace perdure
