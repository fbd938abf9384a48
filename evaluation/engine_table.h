// Our engines as tables, on the same heap as the baselines.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include "bench/harness/memory_heap.h"
#include "evaluation/table.h"
#include "index/engine.h"
#include "index/level/level.h"

namespace perdure::paper {

// The thread that does the background work.
enum class Resizer : std::uint8_t {
  thread,  // its own, as in a pool
  caller,  // the caller: in settle() and in every mutation, which must check for such work
};

class EngineTable : public Table {
 public:
  // `threads`: those of Resizer::thread.
  EngineTable(bench::MemoryHeap& memory, Resizer resizer, std::uint32_t threads = 1) noexcept
      : memory_(memory) {
    background_.set_threads(resizer == Resizer::thread ? threads : 0);
  }

  Expected<bool> insert(std::uint64_t key, std::uint64_t value) override {
    return index_->insert({.word = key}, {.word = value, .word_size = 8});
  }
  Expected<bool> update(std::uint64_t key, std::uint64_t value) override {
    return index_->update({.word = key}, {.word = value, .word_size = 8});
  }
  Expected<bool> erase(std::uint64_t key) override { return index_->erase({.word = key}); }
  Expected<bool> find(std::uint64_t key, std::uint64_t& value) override {
    return index_->read({.word = key}, [&](const detail::Value& found) { value = found.word; });
  }
  std::uint64_t items() override { return stats().entries; }
  std::uint64_t slots() override;
  Status for_each(FunctionRef<void(std::uint64_t, std::uint64_t)> visit) override;
  void check(Findings& report) override { index_->check({.deep = true}, report); }
  std::uint64_t grew_at() override;
  void settle() override { background_.settle(); }

  EngineStats stats();

 protected:
  EngineContext<RealPlatform> context() noexcept {
    return {.platform = memory_.platform(),
            .heap = memory_.heap(),
            .epochs = memory_.epochs(),
            .background = background_};
  }
  Status serve(std::unique_ptr<EngineInstance> instance);
  EngineInstance& instance() noexcept { return *instance_; }
  detail::Index& index() noexcept { return *index_; }

 private:
  bench::MemoryHeap& memory_;
  Background<RealPlatform> background_;
  std::unique_ptr<EngineInstance> instance_;  // registers with instance_
  detail::Index* index_ = nullptr;
};

class ClevelTable final : public EngineTable {
 public:
  // For about `capacity` items. `threads` of the background rehash.
  static Expected<std::unique_ptr<ClevelTable>> make(bench::MemoryHeap& memory,
                                                     std::uint64_t capacity,
                                                     std::uint32_t threads = 1);
  using EngineTable::EngineTable;
};

// `Lines`: lines per bucket, with three slots each. The engine's default is two.
template <std::uint32_t Lines = 2>
class LevelTable final : public EngineTable {
 public:
  using Geometry = level::Geometry<Lines, 5, 4, 32, 16>;
  static_assert(Lines != 2 || std::is_same_v<Geometry, level::DefaultGeometry>);
  using Engine = level::Level<RealPlatform, level::IntegerCodec, Geometry>;

  static Expected<std::unique_ptr<LevelTable>> make(bench::MemoryHeap& memory, Resizer resizer,
                                                    std::uint32_t log_buckets) {
    auto table = std::make_unique<LevelTable>(memory, resizer);
    auto root = Engine::create(table->context(), {KeyKind::integer, ValueKind::word},
                               {.buckets = 1ULL << log_buckets, .auto_shrink = false});
    if (!root) return fail(std::move(root.error()));
    auto instance = Engine::open(table->context(), *root);
    if (!instance) return fail(std::move(instance.error()));
    if (Status s = table->serve(std::move(*instance)); !s.ok()) return fail(std::move(s));
    return table;
  }
  using EngineTable::EngineTable;

  // Expands in place, from begin to end.
  Status expand() {
    Status s = static_cast<Engine&>(instance()).expand();
    settle();
    return s;
  }
  // Returns whether the table shrank.
  Expected<bool> shrink() { return instance().compact(); }
};

}  // namespace perdure::paper
