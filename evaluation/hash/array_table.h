// ArrayTable: `level` with the paper's items in its slots.
#pragma once

#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "evaluation/engine_table.h"
#include "index/engine_table.h"

namespace perdure::paper {

// `level` with keys of 16 bytes and values of 15, the paper's. Its buckets have four slots in two
// lines, and an update needs no log if its bucket has an empty slot.
class ArrayTable final : public EngineTable {
 public:
  static Expected<std::unique_ptr<ArrayTable>> make(bench::MemoryHeap& memory,
                                                    std::uint32_t log_buckets) {
    auto table = std::make_unique<ArrayTable>(memory, Resizer::thread);
    const EngineRow& row = *find_engine(perdure::Engine::level);
    const MapKinds kinds{KeyKind::array, ValueKind::array, 16, 15};
    auto root = row.create(table->context(), kinds,
                           {.level = {.buckets = 1ULL << log_buckets, .auto_shrink = false}});
    if (!root) return fail(std::move(root.error()));
    auto instance = row.open(table->context(), kinds, *root);
    if (!instance) return fail(std::move(instance.error()));
    if (Status s = table->serve(std::move(*instance)); !s.ok()) return fail(std::move(s));
    return table;
  }
  using EngineTable::EngineTable;

  Expected<bool> insert(std::uint64_t key, std::uint64_t value) override {
    return index().insert(Pair(key).key(), Pair(value).value());
  }
  Expected<bool> update(std::uint64_t key, std::uint64_t value) override {
    return index().update(Pair(key).key(), Pair(value).value());
  }
  Expected<bool> erase(std::uint64_t key) override { return index().erase(Pair(key).key()); }
  Expected<bool> find(std::uint64_t key, std::uint64_t& value) override {
    return index().read(Pair(key).key(), [&](const detail::Value& found) {
      std::memcpy(&value, found.bytes.data(), sizeof(value));
    });
  }

 private:
  // A number as 16 bytes, of which both words differ from those of other numbers.
  class Pair {
   public:
    explicit Pair(std::uint64_t number) noexcept : words_{number, ~number} {}
    detail::Key key() const noexcept { return {.bytes = first(16)}; }
    detail::Value value() const noexcept { return {.bytes = first(15)}; }

   private:
    std::string_view first(std::size_t bytes) const noexcept {
      return {reinterpret_cast<const char*>(words_), bytes};
    }
    std::uint64_t words_[2];
  };
};

}  // namespace perdure::paper
