#include "evaluation/engine_table.h"

#include <utility>

#include "index/engine_table.h"

namespace perdure::paper {

Status EngineTable::serve(std::unique_ptr<EngineInstance> instance) {
  instance_ = std::move(instance);
  index_ = &instance_->index();
  if (auto recovered = instance_->recover(false); !recovered) return std::move(recovered.error());
  instance_->start();
  return {};
}

EngineStats EngineTable::stats() {
  EngineStats stats;
  index_->stats(stats);
  return stats;
}

std::uint64_t EngineTable::slots() {
  std::uint64_t sum = 0;
  for (const LevelStats& level : stats().levels) sum += level.slots;
  return sum;
}

std::uint64_t EngineTable::grew_at() {
  const EngineStats stats = this->stats();
  return stats.resizes.empty() ? 0 : stats.resizes[0].entries;
}

Status EngineTable::for_each(FunctionRef<void(std::uint64_t, std::uint64_t)> visit) {
  auto visited = index_->for_each([&](std::span<const detail::Entry> entries) {
    for (const detail::Entry& entry : entries) visit(entry.key.word, entry.value.word);
    return true;
  });
  return visited ? Status() : std::move(visited.error());
}

Expected<std::unique_ptr<ClevelTable>> ClevelTable::make(bench::MemoryHeap& memory,
                                                         std::uint64_t capacity,
                                                         std::uint32_t threads) {
  auto table = std::make_unique<ClevelTable>(memory, Resizer::thread, threads);
  const EngineRow& row = *find_engine(Engine::clevel);
  const MapKinds kinds{KeyKind::integer, ValueKind::word};
  auto root = row.create(table->context(), kinds, {.capacity = capacity});
  if (!root) return fail(std::move(root.error()));
  auto instance = row.open(table->context(), kinds, *root);
  if (!instance) return fail(std::move(instance.error()));
  if (Status s = table->serve(std::move(*instance)); !s.ok()) return fail(std::move(s));
  return table;
}

}  // namespace perdure::paper
