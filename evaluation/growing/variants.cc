#include "evaluation/growing/variants.h"

#include <utility>

#include "evaluation/growing/table_growing.h"
#include "index/clevel/clevel.h"

namespace perdure::paper {
namespace {

// A bucket of fewer than eight slots leaves the rest of its line empty.
template <std::uint32_t Slots>
class ClevelOf final : public EngineTable {
 public:
  using Geometry = clevel::Geometry<Slots, 4096, 64, 4096, 64>;
  static_assert(Slots != 8 || std::is_same_v<Geometry, clevel::DefaultGeometry>);
  using Engine = clevel::Clevel<RealPlatform, clevel::IntegerCodec, Geometry>;

  static std::unique_ptr<EngineTable> make(bench::MemoryHeap& memory, std::uint64_t items) {
    auto table = std::make_unique<ClevelOf>(memory, Resizer::thread);
    const std::uint64_t root =
        must(Engine::create(table->context(), {KeyKind::integer, ValueKind::word}, items));
    must(table->serve(must(Engine::open(table->context(), root))));
    return table;
  }
  using EngineTable::EngineTable;
};

template <std::uint32_t Lines>
std::unique_ptr<EngineTable> make_level(bench::MemoryHeap& memory, std::uint64_t items) {
  std::uint32_t log = 5;
  while ((Lines * 9ULL << log) / 2 < items) ++log;
  return must(LevelTable<Lines>::make(memory, Resizer::thread, log));
}

template <auto kMake>
constexpr Variant variant(const char* name) {
  return {{name,
           [](bench::MemoryHeap& memory) -> std::unique_ptr<GrowingTable> {
             return std::make_unique<TableGrowing>(kMake(memory, kFirstItems));
           }},
          kMake};
}

}  // namespace

std::span<const Variant> clevel_variants() {
  static constexpr Variant kVariants[] = {variant<&ClevelOf<8>::make>("clevel, 8 slots"),
                                          variant<&ClevelOf<4>::make>("clevel, 4 slots")};
  return kVariants;
}

std::span<const Variant> level_variants() {
  static constexpr Variant kVariants[] = {variant<&make_level<2>>("level, 6 slots"),
                                          variant<&make_level<1>>("level, 3 slots")};
  return kVariants;
}

}  // namespace perdure::paper
