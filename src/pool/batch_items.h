// BatchItems: what a WriteBatch has been given, copied to DRAM. commit_items() commits it.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include "perdure/index.h"
#include "pool/batch.h"
#include "util/containers.h"

namespace perdure {
namespace detail {

class BatchItems {
 public:
  enum class Kind : std::uint8_t { put, erase, require, require_absent };
  struct Item {
    Index* index = nullptr;
    Kind kind = Kind::put;
    Key key = {};
    Value value = {};
  };

  // Copies the item. Returns false, and changes nothing, if memory is short.
  [[nodiscard]] bool add(Item item) noexcept {
    return keep(*item.index) && copy(item.key.bytes) && copy(item.value.bytes) &&
           items_.push_back(item);
  }
  std::size_t size() const noexcept { return items_.size(); }
  const Item* begin() const noexcept { return items_.begin(); }
  const Item* end() const noexcept { return items_.end(); }

 private:
  static constexpr std::size_t kChunk = 16 << 10;

  // Keeps the memory of the map's engine, so that no other map gets its address.
  bool keep(Index& index) noexcept {
    const auto is_there = [&](const Handle<Index>& map) { return map.get() == &index; };
    return std::any_of(maps_.begin(), maps_.end(), is_there) ||
           maps_.push_back(Handle<Index>(&index));
  }
  // Replaces the view by one of a copy.
  bool copy(std::string_view& bytes) noexcept {
    if (bytes.empty()) {
      bytes = {};
      return true;
    }
    if (left_ < bytes.size()) {
      const std::size_t size = std::max(kChunk, bytes.size());
      std::unique_ptr<char[]> chunk(new (std::nothrow) char[size]);
      if (chunk == nullptr) return false;
      free_ = chunk.get();
      left_ = size;
      if (!chunks_.push_back(std::move(chunk))) {
        left_ = 0;
        return false;
      }
    }
    std::memcpy(free_, bytes.data(), bytes.size());
    bytes = {free_, bytes.size()};
    free_ += bytes.size();
    left_ -= bytes.size();
    return true;
  }

  Array<Item> items_;
  Array<Handle<Index>> maps_;  // of the items
  Array<std::unique_ptr<char[]>> chunks_;
  char* free_ = nullptr;  // in the last chunk
  std::size_t left_ = 0;
};

}  // namespace detail

// `target_of(index)` returns the map that has this index, or one with a null map. The caller is in
// no guard, and no map is made or dropped meanwhile. Errors: those of Pool::commit.
template <Platform P, class TargetOf>
Status commit_items(PoolCore<P>& core, const detail::BatchItems& items, TargetOf&& target_of) {
  using Kind = detail::BatchItems::Kind;
  if (items.size() >= ~std::uint32_t{0}) {
    return Status::format(StatusCode::invalid_argument, "a batch of %zu items; at most 2^32 - 2",
                          items.size());
  }
  Array<BatchTarget> targets;
  Array<BatchMutation> mutations;
  Array<std::uint32_t> numbers;  // of the items' targets
  for (const detail::BatchItems::Item& item : items) {
    std::uint32_t number = 0;
    while (number < targets.size() && &targets[number].map->index() != item.index) ++number;
    if (number == targets.size()) {
      const BatchTarget target = target_of(*item.index);
      if (target.map == nullptr) {
        return Status::format(StatusCode::invalid_argument,
                              "the batch names a map that is not of this pool");
      }
      if (!targets.push_back(target)) return StatusCode::out_of_memory;
    }
    if (!numbers.push_back(number)) return StatusCode::out_of_memory;
    if (item.kind != Kind::put && item.kind != Kind::erase) continue;
    const bool puts = item.kind == Kind::put;
    if (!mutations.push_back({number,
                              {.kind = puts ? MutationKind::put : MutationKind::erase,
                               .key = item.key,
                               .value = puts ? item.value : detail::Value()}})) {
      return StatusCode::out_of_memory;
    }
  }
  const bool swept = core.sweep().finish();
  const GateHold<P> gate(core.epochs());
  const BackgroundHold<P> hold(core.background());
  // Then the heap cannot tell which blocks are free, and neither could the open after a crash.
  if (Status s = core.sweep().failure(); !s.ok() || !swept) return s;
  std::size_t i = 0;
  std::size_t requirements = 0;
  for (const detail::BatchItems::Item& item : items) {
    EngineInstance& map = *targets[numbers[i++]].map;
    if (item.kind == Kind::put || item.kind == Kind::erase) continue;
    ++requirements;
    bool same = false;
    auto found = map.index().read(item.key, [&](const detail::Value& value) {
      same = detail::same_value(value, item.value);
    });
    if (!found) return std::move(found.error());
    if (item.kind == Kind::require ? !same : *found) {
      return Status::format(StatusCode::conflict,
                            "requirement %zu of the batch is not met; nothing was changed",
                            requirements);
    }
  }
  return Batch<P>(core).commit({targets.begin(), targets.size()},
                               {mutations.begin(), mutations.size()});
}

}  // namespace perdure
