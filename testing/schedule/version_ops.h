// Short forms of operations of subjects that keep versions: those of race_ops.h at present, and
// operations at versions by number.
#pragma once

#include <cstdint>
#include <string>

#include "testing/schedule/race_ops.h"
#include "testing/schedule/version_model.h"

namespace perdure::testing {

inline Op at_present(Op op) {
  op.key.insert(op.key.begin(), kPresent);
  return op;
}
inline Op put(std::uint64_t key, std::uint64_t value) { return at_present(upsert(key, value)); }
inline Op gone(std::uint64_t key) { return at_present(erase(key)); }
inline Op get(std::uint64_t key) { return at_present(find(key)); }
inline Op get(std::uint64_t key, std::uint64_t version) {
  return {OpKind::find, version_key(version_name(version), integer_key(key)), {}};
}
inline Op tag() { return {OpKind::tag, {}, {}}; }
inline Op trim(std::uint64_t version) { return {OpKind::trim, version_name(version), {}}; }
inline Op scan_at(std::uint64_t version) { return {OpKind::scan_at, version_name(version), {}}; }
inline Op diff(std::uint64_t from, std::uint64_t to) {
  return {OpKind::diff, version_name(from) + version_name(to), {}};
}
inline Op history(std::uint64_t key) {
  Op op = at_present(find(key));
  op.kind = OpKind::history;
  return op;
}

}  // namespace perdure::testing
