#include <utility>

#include "bench/paper/engine_table.h"
#include "bench/paper/growing/cceh.h"
#include "bench/paper/growing/cmap.h"
#include "bench/paper/growing/figures.h"
#include "bench/paper/growing/pclht.h"

namespace perdure::paper {
namespace {

// Our engines take calls from any number of threads.
class EngineGrowing final : public GrowingTable {
 public:
  explicit EngineGrowing(std::unique_ptr<Table> table) noexcept : table_(std::move(table)) {}
  Expected<bool> insert(Word key, Word value) override { return table_->insert(key, value); }
  Expected<bool> update(Word key, Word value) override { return table_->update(key, value); }
  Expected<bool> erase(Word key) override { return table_->erase(key); }
  bool find(Word key, Word& value) override { return must(table_->find(key, value)); }

 private:
  std::unique_ptr<Table> table_;
};

constexpr std::uint64_t kFirstItems = 4096;
constexpr std::uint32_t kFirstLogBuckets = 10;

std::unique_ptr<GrowingTable> make_clevel(bench::MemoryHeap& memory) {
  return std::make_unique<EngineGrowing>(must(ClevelTable::make(memory, kFirstItems)));
}
std::unique_ptr<GrowingTable> make_level(bench::MemoryHeap& memory) {
  return std::make_unique<EngineGrowing>(
      must(LevelTable<>::make(memory, Resizer::thread, kFirstLogBuckets)));
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

}  // namespace perdure::paper
