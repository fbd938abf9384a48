#include "evaluation/ordered/fast_fair.h"
#include "evaluation/ordered/figures.h"
#include "evaluation/ordered/fptree.h"
#include "evaluation/ordered/nv_skiplist.h"
#include "evaluation/ordered/phast_map.h"
#include "evaluation/ordered/shared_fast_fair.h"
#include "evaluation/ordered/std_map.h"
#include "evaluation/ordered/wb_tree.h"
#include "evaluation/ordered/wort.h"

namespace perdure::paper {
namespace {

std::unique_ptr<OrderedMap> make_phast(bench::MemoryHeap& memory) {
  return PhastMap::make(memory, rows::phast);
}
std::unique_ptr<OrderedMap> make_std_map(bench::MemoryHeap&) { return std::make_unique<StdMap>(); }
template <template <Platform> class Map>
std::unique_ptr<OrderedMap> make(bench::MemoryHeap& memory) {
  auto map = std::make_unique<Map<RealPlatform>>(memory.platform(), memory.heap());
  must(map->open());
  return map;
}

}  // namespace

std::span<const OrderedScheme, kOrderedCount + 1> anchored_schemes() {
  static constexpr OrderedScheme kSchemes[] = {
      {"phast", &make_phast},      {"FAST-FAIR", &make<FastFair>},
      {"FPTree", &make<FpTree>},   {"NV-Skiplist", &make<NvSkiplist>},
      {"wB+-Tree", &make<WbTree>}, {"WORT", &make<Wort>},
      {"std::map", &make_std_map},
  };
  return kSchemes;
}
std::span<const OrderedScheme, kOrderedCount> ordered_schemes() {
  return anchored_schemes().first<kOrderedCount>();
}
std::span<const OrderedScheme, 2> shared_schemes() {
  static constexpr OrderedScheme kSchemes[] = {{"phast", &make_phast},
                                               {"FAST-FAIR", &make<SharedFastFair>}};
  return kSchemes;
}

}  // namespace perdure::paper
