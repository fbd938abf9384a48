#include "index/engine_table.h"

#include <iterator>

namespace perdure {

std::span<const EngineRow> engine_rows() noexcept {
  static const EngineRow rows_of_build[] = {
#define PERDURE_ENGINE(name) rows::name,
#include "index/engines.def"
  };
  static_assert(std::size(rows_of_build) <= kMostEngines);
  return rows_of_build;
}

}  // namespace perdure
