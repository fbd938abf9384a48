#include "index/engine_table.h"

#include <iterator>

namespace perdure {

std::span<const EngineRow> engine_rows() noexcept {
  static const EngineRow kRows[] = {
#define PERDURE_ENGINE(name) rows::name,
#include "index/engines.def"
  };
  static_assert(std::size(kRows) <= kMostEngines);
  return kRows;
}

}  // namespace perdure
