// PhastMap: our engine as an OrderedMap, over the heap of a run. Any number of threads may use it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "evaluation/ordered/ordered_map.h"
#include "evaluation/start_engine.h"
#include "index/findings.h"

namespace perdure::paper {

class PhastMap final : public OrderedMap {
 public:
  explicit PhastMap(bench::MemoryHeap& memory) noexcept : memory_(memory) {
    background_.set_threads(0);
  }
  // `row`: the engine, or one with other sizes of nodes.
  Status open(const EngineRow& row, const PhastOptions& options) {
    auto started = start_engine(memory_, background_, row, {KeyKind::integer, ValueKind::word},
                                {.phast = options});
    if (!started) return std::move(started.error());
    instance_ = std::move(*started);
    return {};
  }
  static std::unique_ptr<PhastMap> make(bench::MemoryHeap& memory, const EngineRow& row,
                                        const PhastOptions& options = {}) {
    auto map = std::make_unique<PhastMap>(memory);
    must(map->open(row, options));
    return map;
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
                             entries = entries.first(std::min<std::size_t>(entries.size(), limit));
                             for (const detail::Entry& entry : entries) {
                               visit(entry.key.word, entry.value.word);
                             }
                             limit -= entries.size();
                             return limit != 0;
                           });
    if (!done) must(done.error());
  }

  EngineStats stats() {
    EngineStats stats;
    instance_->index().stats(stats);
    return stats;
  }
  void must_be_sound() override {
    Findings findings;
    instance_->index().check({.deep = true}, findings);
    if (!findings.ok()) throw std::runtime_error(std::string(findings.first()));
  }

 private:
  bench::MemoryHeap& memory_;
  Background<RealPlatform> background_;
  std::unique_ptr<EngineInstance> instance_;
};

}  // namespace perdure::paper
