#include <utility>

#include "evaluation/cuckoo.h"
#include "evaluation/engine_table.h"
#include "evaluation/growing/cceh.h"
#include "evaluation/growing/cmap.h"
#include "evaluation/growing/figures.h"
#include "evaluation/growing/pclht.h"
#include "evaluation/growing/slot_level.h"
#include "evaluation/growing/table_growing.h"

namespace perdure::paper {
namespace {

constexpr std::uint32_t kFirstLogBuckets = 10;

std::unique_ptr<GrowingTable> make_clevel(bench::MemoryHeap& memory) {
  return std::make_unique<TableGrowing>(must(ClevelTable::make(memory, kFirstItems)));
}
std::unique_ptr<GrowingTable> make_level(bench::MemoryHeap& memory) {
  return std::make_unique<TableGrowing>(
      must(LevelTable<>::make(memory, Resizer::thread, kFirstLogBuckets)));
}
std::unique_ptr<GrowingTable> make_libcuckoo(bench::MemoryHeap&) {
  return std::make_unique<TableGrowing>(make_cuckoo(kFirstItems));
}
template <class Made>
std::unique_ptr<GrowingTable> make(bench::MemoryHeap& memory) {
  auto table = std::make_unique<Made>(memory.platform(), memory.heap());
  must(table->open());
  return table;
}

}  // namespace

std::span<const GrowingScheme, kGrowingCount> growing_schemes() {
  static constexpr GrowingScheme kSchemes[] = {
      {"clevel", &make_clevel},
      {"level", &make_level},
      {"CCEH", &make<Cceh<RealPlatform, false>>},
      {"CCEH, copies", &make<Cceh<RealPlatform, true>>},
      {"cmap", &make<Cmap<RealPlatform>>},
      {"P-CLHT", &make<Pclht<RealPlatform>>},
  };
  return kSchemes;
}

std::vector<GrowingScheme> pointer_schemes() {
  return {{"clevel", &make_clevel},
          {"CCEH, pointers", &make<Cceh<RealPlatform, false, true>>},
          {"LEVEL, pointers", &make<SlotLevel<RealPlatform>>},
          {"cmap", &make<Cmap<RealPlatform>>},
          {"P-CLHT, pointers", &make<Pclht<RealPlatform, true>>}};
}

std::vector<GrowingScheme> anchored_schemes() {
  const auto all = growing_schemes();
  std::vector<GrowingScheme> schemes(all.begin(), all.end());
  if (make_cuckoo(1) != nullptr) schemes.push_back({"libcuckoo", &make_libcuckoo});
  return schemes;
}

}  // namespace perdure::paper
