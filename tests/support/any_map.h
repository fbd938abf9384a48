// AnyMap: a map of any engine, with scans if the engine keeps order. For suites that run on all
// engines with run-time parameters.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/engines.h"
#include "tests/support/support.h"

namespace perdure::test {

template <class K, class V>
class AnyMap : public Map<K, V> {
 public:
  AnyMap(Pool& pool, std::string_view name, const EngineInfo& engine, MapOptions options = {})
      : Map<K, V>(open(pool, name, engine, options)) {
    options.engine = engine.engine;
    if (engine.ordered) ordered_.emplace(must(pool.ordered_map<K, V>(name, options)));
  }
  // The same map; null if its engine keeps no order.
  OrderedMap<K, V>* ordered() { return ordered_ ? &*ordered_ : nullptr; }
  // Visits every entry and returns their number.
  std::uint64_t count() {
    return must(this->for_each([](const K&, const V&) {}));
  }

 private:
  static Map<K, V> open(Pool& pool, std::string_view name, const EngineInfo& engine,
                        MapOptions options) {
    options.engine = engine.engine;
    return must(pool.map<K, V>(name, options));
  }

  std::optional<OrderedMap<K, V>> ordered_;
};

inline std::string name_of(const EngineInfo& engine) {
  return std::string(engine_name(engine.engine));
}
inline std::vector<EngineInfo> all_engines() { return {kEngines.begin(), kEngines.end()}; }
inline std::vector<EngineInfo> ordered_engines() {
  std::vector<EngineInfo> out;
  for (const EngineInfo& engine : kEngines) {
    if (engine.ordered) out.push_back(engine);
  }
  return out;
}

}  // namespace perdure::test
