#include <utility>

#include "bench/paper/ordered/fast_fair.h"
#include "bench/paper/ordered/figures.h"
#include "bench/paper/ordered/fptree.h"
#include "bench/paper/ordered/nv_skiplist.h"
#include "bench/paper/ordered/wb_tree.h"
#include "bench/paper/ordered/wort.h"
#include "bench/paper/start_engine.h"

namespace perdure::paper {
namespace {

class PhastMap final : public OrderedMap {
 public:
  explicit PhastMap(bench::MemoryHeap& memory) noexcept : memory_(memory) {
    background_.set_threads(0);
  }
  Status open() {
    auto started =
        start_engine(memory_, background_, rows::phast, {KeyKind::integer, ValueKind::word});
    if (!started) return std::move(started.error());
    instance_ = std::move(*started);
    return {};
  }

  Expected<bool> insert(Word key, Word value) override {
    return instance_->index().insert({.word = key}, {.word = value, .word_size = 8});
  }
  Expected<bool> update(Word key, Word value) override {
    return instance_->index().update({.word = key}, {.word = value, .word_size = 8});
  }
  Expected<bool> erase(Word key) override { return instance_->index().erase({.word = key}); }
  bool find(Word key, Word& value) override {
    return must(instance_->index().read({.word = key},
                                        [&](const detail::Value& found) { value = found.word; }));
  }
  void scan(Word from, std::uint64_t limit, FunctionRef<void(Word, Word)> visit) override {
    auto& index = static_cast<detail::OrderedIndex&>(instance_->index());
    auto done = index.scan({.from = detail::Key{.word = from}, .limit = limit},
                           [&](std::span<const detail::Entry> entries) {
                             for (const detail::Entry& entry : entries) {
                               if (limit-- == 0) return false;
                               visit(entry.key.word, entry.value.word);
                             }
                             return limit != 0;
                           });
    if (!done) must(done.error());
  }

 private:
  bench::MemoryHeap& memory_;
  Background<RealPlatform> background_;
  std::unique_ptr<EngineInstance> instance_;
};

std::unique_ptr<OrderedMap> make_phast(bench::MemoryHeap& memory) {
  auto map = std::make_unique<PhastMap>(memory);
  must(map->open());
  return map;
}
template <template <Platform> class Map>
std::unique_ptr<OrderedMap> make(bench::MemoryHeap& memory) {
  auto map = std::make_unique<Map<RealPlatform>>(memory.platform(), memory.heap());
  must(map->open());
  return map;
}

}  // namespace

std::span<const OrderedScheme, kOrderedCount> ordered_schemes() {
  static constexpr OrderedScheme kSchemes[] = {
      {"phast", &make_phast},      {"FAST-FAIR", &make<FastFair>},
      {"FPTree", &make<FpTree>},   {"NV-Skiplist", &make<NvSkiplist>},
      {"wB+-Tree", &make<WbTree>}, {"WORT", &make<Wort>},
  };
  return kSchemes;
}

}  // namespace perdure::paper
