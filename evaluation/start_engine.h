// One of our engines over the heap of a run.
#pragma once

#include <memory>
#include <utility>

#include "bench/harness/memory_heap.h"
#include "index/engine_table.h"

namespace perdure::paper {

// Creates a map and opens it, as a pool does.
inline Expected<std::unique_ptr<EngineInstance>> start_engine(bench::MemoryHeap& memory,
                                                              Background<RealPlatform>& background,
                                                              const EngineRow& row,
                                                              const MapKinds& kinds,
                                                              const MapOptions& options = {}) {
  const EngineContext<RealPlatform> context{.platform = memory.platform(),
                                            .heap = memory.heap(),
                                            .epochs = memory.epochs(),
                                            .background = background};
  auto root = row.create(context, kinds, options);
  if (!root) return fail(std::move(root.error()));
  auto instance = row.open(context, kinds, *root);
  if (!instance) return instance;
  if (auto recovered = (*instance)->recover(false); !recovered) {
    return fail(std::move(recovered.error()));
  }
  (*instance)->start();
  return instance;
}

}  // namespace perdure::paper
