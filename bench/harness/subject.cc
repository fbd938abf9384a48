#include "bench/harness/subject.h"

#include "bench/workloads/work.h"

namespace perdure::bench {

Outcome Session::modify(const KeyRef& key, FunctionRef<void(const ValueRef&)> visit,
                        const ValueRef& value) {
  const Outcome found = read(key, visit);
  return found == Outcome::yes ? update(key, value) : found;
}

Outcome Session::write_many(OpKind kind, std::span<const KeyRef> keys,
                            std::span<const ValueRef> values) {
  if (kind == OpKind::batch) return fail("the engine has no batches");
  Outcome first = Outcome::yes;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const Outcome outcome = kind == OpKind::insert   ? insert(keys[i], values[i])
                            : kind == OpKind::update ? update(keys[i], values[i])
                                                     : erase(keys[i]);
    if (first == Outcome::yes) first = outcome;
  }
  return first;
}

Outcome Session::read_batch(std::span<const KeyRef> keys,
                            FunctionRef<void(std::size_t, const ValueRef&)> visit) {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const Outcome outcome = read(keys[i], [&](const ValueRef& value) { visit(i, value); });
    if (outcome == Outcome::failed) return outcome;
  }
  return Outcome::yes;
}

Outcome Session::tag() { return keeps_no_versions(); }
Outcome Session::read_at(const KeyRef&, Version, FunctionRef<void(const ValueRef&)>) {
  return keeps_no_versions();
}
Outcome Session::history(const KeyRef&, FunctionRef<void(Version, const ValueRef*)>) {
  return keeps_no_versions();
}
Outcome Session::scan_at(Version, ScanTally&) { return keeps_no_versions(); }

}  // namespace perdure::bench
