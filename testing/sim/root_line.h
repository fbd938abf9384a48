// The line of a map in the root directory, as PoolImpl writes it.
#pragma once

#include <cstring>
#include <string>

#include "index/engine_table.h"

namespace perdure::testing {

inline layout::Root root_line(const std::string& name, Engine engine, const MapKinds& kinds,
                              std::uint64_t root) {
  layout::Root line{};
  std::strcpy(line.name, name.c_str());
  line.engine = static_cast<std::uint16_t>(engine);
  // Without its version, restarts_at_once() would not know the engine.
  if (const EngineRow* row = find_engine(engine)) line.engine_version = row->version;
  line.key_kind = static_cast<std::uint8_t>(kinds.key);
  line.value_kind = static_cast<std::uint8_t>(kinds.value);
  line.root = root;
  return line;
}

}  // namespace perdure::testing
