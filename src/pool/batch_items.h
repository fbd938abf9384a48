// BatchItems: what a WriteBatch has been given, copied to DRAM. ItemsCommit commits it.
//
// WHAT  One mutation a key, the last one that was given, and the requirements in their order. A
//   table finds the mutation of a key: open addressing, at most half full. It is made once a key is
//   not above the one before it: ascending keys are distinct, and a binary search finds them.
// Thread safety: of a value.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "perdure/index.h"
#include "pool/batch.h"
#include "pool/latched_batch.h"
#include "pool/piece_batch.h"
#include "util/containers.h"
#include "util/hash.h"

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

  // Copies the item. Returns false if memory is short; then nothing has changed. Amortised
  // O(bytes).
  [[nodiscard]] bool add(const Item& item) noexcept {
    std::uint32_t map = 0;
    if (!keep(*item.index, map)) return false;
    const bool puts = item.kind == Kind::put;
    const bool mutates = puts || item.kind == Kind::erase;
    const bool added = mutates ? mutate({map,
                                         {.kind = puts ? MutationKind::put : MutationKind::erase,
                                          .key = item.key,
                                          .value = puts ? item.value : Value()}})
                               : require({.target = map,
                                          .number = 0,
                                          .present = item.kind == Kind::require,
                                          .key = item.key,
                                          .value = item.value});
    added_ += added ? 1 : 0;
    return added;
  }
  // How many items were added.
  std::size_t size() const noexcept { return added_; }
  // Of distinct keys. Their targets are numbers of maps().
  std::span<const BatchMutation> mutations() const noexcept {
    return {mutations_.begin(), mutations_.size()};
  }
  // Their targets, too.
  std::span<const BatchRequirement> requirements() const noexcept {
    return {requirements_.begin(), requirements_.size()};
  }
  std::span<const Handle<Index>> maps() const noexcept { return {maps_.begin(), maps_.size()}; }
  // The mutation of the key, or null.
  const Mutation* find(const Index& index, const Key& key) const noexcept {
    for (std::uint32_t map = 0; map < maps_.size(); ++map) {
      if (maps_[map].get() != &index) continue;
      if (places_ == nullptr) return find_ascending(map, key);
      const Place place = places_[number_of(map, key, hash_of(map, key))];
      return place.mutation != 0 ? &mutations_[place.mutation - 1].mutation : nullptr;
    }
    return nullptr;
  }

 private:
  static constexpr std::size_t kChunk = 16 << 10;
  static constexpr std::size_t kFirstPlaces = 16;

  // Keeps the memory of the map's engine, so that no other map gets its address.
  bool keep(Index& index, std::uint32_t& map) noexcept {
    map = 0;
    while (map < maps_.size() && maps_[map].get() != &index) ++map;
    return map < maps_.size() || maps_.push_back(Handle<Index>(&index));
  }
  bool require(BatchRequirement requirement) noexcept {
    requirement.number = static_cast<std::uint32_t>(requirements_.size() + 1);
    return copy(requirement.key.bytes) && copy(requirement.value.bytes) &&
           requirements_.push_back(requirement);
  }
  // Whether the mutation comes before the key of this map in ascending order.
  static bool below(const BatchMutation& one, std::uint32_t map, const Key& key) noexcept {
    const Key& own = one.mutation.key;
    if (one.target != map) return one.target < map;
    return own.word != key.word ? own.word < key.word : own.bytes < key.bytes;
  }
  const Mutation* find_ascending(std::uint32_t map, const Key& key) const noexcept {
    const auto* at = std::lower_bound(
        mutations_.begin(), mutations_.end(), key,
        [&](const BatchMutation& one, const Key& wanted) { return below(one, map, wanted); });
    const bool found = at != mutations_.end() && at->target == map &&
                       at->mutation.key.word == key.word && at->mutation.key.bytes == key.bytes;
    return found ? &at->mutation : nullptr;
  }
  // Of a key that no other one has.
  bool append(BatchMutation added) noexcept {
    return copy(added.mutation.key.bytes) && copy(added.mutation.value.bytes) &&
           mutations_.push_back(added);
  }
  bool mutate(BatchMutation added) noexcept {
    if (places_ == nullptr &&
        (mutations_.empty() || below(mutations_.back(), added.target, added.mutation.key))) {
      return append(added);
    }
    if (!make_room()) return false;
    const std::uint32_t hash = hash_of(added.target, added.mutation.key);
    Place& place = places_[number_of(added.target, added.mutation.key, hash)];
    if (place.mutation != 0) {
      if (!copy(added.mutation.value.bytes)) return false;
      Mutation& mutation = mutations_[place.mutation - 1].mutation;
      mutation.kind = added.mutation.kind;
      mutation.value = added.mutation.value;
      return true;
    }
    if (!append(added)) return false;
    place = {.mutation = static_cast<std::uint32_t>(mutations_.size()), .hash = hash};
    return true;
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

  // --- the table of keys ---
  struct Place {
    std::uint32_t mutation = 0;  // its number in mutations_, + 1; 0: unused
    std::uint32_t hash = 0;
  };
  std::uint32_t hash_of(std::uint32_t map, const Key& key) const noexcept {
    std::uint64_t hash = fold(key.word ^ seed_, map + kOdd);
    for (std::string_view left = key.bytes; !left.empty();) {
      std::uint64_t word = 0;
      const std::size_t n = std::min(left.size(), sizeof(word));
      std::memcpy(&word, left.data(), n);
      hash = fold(hash ^ word, seed_ + n);
      left.remove_prefix(n);
    }
    return static_cast<std::uint32_t>(hash ^ hash >> 32);
  }
  // Of the place that names the key's mutation, or of the one where it belongs.
  std::size_t number_of(std::uint32_t map, const Key& key, std::uint32_t hash) const noexcept {
    std::size_t i = hash & mask_;
    for (; places_[i].mutation != 0; i = (i + 1) & mask_) {
      if (places_[i].hash != hash) continue;
      const BatchMutation& there = mutations_[places_[i].mutation - 1];
      const Key& other = there.mutation.key;
      if (there.target == map && other.word == key.word && other.bytes == key.bytes) break;
    }
    return i;
  }
  // For one more key.
  bool make_room() noexcept {
    const std::size_t before = places_ == nullptr ? 0 : mask_ + 1;
    const std::size_t wanted = 2 * (mutations_.size() + 1);
    if (wanted <= before) return true;
    const std::size_t count = std::max(kFirstPlaces, std::bit_ceil(wanted));
    std::unique_ptr<Place[]> places(new (std::nothrow) Place[count]{});
    if (places == nullptr) return false;
    mask_ = count - 1;
    const auto add = [&](const Place& place) {
      std::size_t to = place.hash & mask_;
      while (places[to].mutation != 0) to = (to + 1) & mask_;
      places[to] = place;
    };
    for (std::size_t from = 0; from < before; ++from) {
      if (places_[from].mutation != 0) add(places_[from]);
    }
    for (std::uint32_t i = 0; before == 0 && i < mutations_.size(); ++i) {
      add({i + 1, hash_of(mutations_[i].target, mutations_[i].mutation.key)});
    }
    places_ = std::move(places);
    return true;
  }

  static constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15ULL;
  // Keys that were chosen to collide in one batch do not in another.
  const std::uint64_t seed_ = mix(reinterpret_cast<std::uintptr_t>(this)) | 1;
  Array<BatchMutation> mutations_;
  Array<BatchRequirement> requirements_;
  std::size_t added_ = 0;
  std::unique_ptr<Place[]> places_;
  std::size_t mask_ = 0;
  Array<Handle<Index>> maps_;  // of the items
  Array<std::unique_ptr<char[]>> chunks_;
  char* free_ = nullptr;  // in the last chunk
  std::size_t left_ = 0;
};

}  // namespace detail

// A commit of these items. The caller is in no guard.
template <Platform P>
class ItemsCommit {
 public:
  ItemsCommit(PoolCore<P>& core, const detail::BatchItems& items, const PieceLimits& limits = {})
      : core_(core), items_(items), limits_(limits) {}

  // `target_of(index)` returns the map that has this index, or one with a null map. No map is made
  // or dropped meanwhile. Errors: invalid_argument, out_of_memory.
  template <class TargetOf>
  Status find_targets(TargetOf&& target_of) {
    targets_.clear();
    for (const detail::Handle<detail::Index>& map : items_.maps()) {
      const BatchTarget target = target_of(*map);
      if (target.map == nullptr) {
        return Status::format(StatusCode::invalid_argument,
                              "the batch names a map that is not of this pool");
      }
      if (!targets_.push_back(target)) return StatusCode::out_of_memory;
    }
    return {};
  }
  // Before the next two. Errors: invalid_argument, out_of_memory.
  Status sort() {
    if (items_.mutations().size() >= ~std::uint32_t{0}) {
      return Status::format(StatusCode::invalid_argument, "a batch of %zu keys; at most 2^32 - 2",
                            items_.mutations().size());
    }
    return order_.sort(items_.mutations()) ? Status() : StatusCode::out_of_memory;
  }
  // Beside other mutations. False: it must close the gate; nothing has changed. The maps that
  // find_targets() has found must not be dropped meanwhile.
  Expected<bool> do_beside() {
    if (!core_.sweep().over() || !core_.sweep().failure().ok()) return false;
    return LatchedBatch<P>(core_).commit(targets(), items_.mutations(), order_,
                                         items_.requirements());
  }
  // With the gate closed, for all of it or for a piece at a time. No map is made or dropped
  // meanwhile, and no other thread does this. Errors: those of Pool::commit.
  Status do_alone() {
    const bool swept = core_.sweep().finish();
    PieceBatch<P> pieces(core_, targets(), items_.mutations(), order_, limits_);
    const bool some_at_a_time =
        swept && items_.requirements().size() <= limits_.requirements && pieces.fits();
    std::optional<GateHold<P>> gate;
    if (!some_at_a_time) gate.emplace(core_.epochs());
    {
      const BackgroundHold<P> hold(core_.background());
      // Then the heap cannot tell which blocks are free, and neither could the open after a crash.
      if (Status s = core_.sweep().failure(); !s.ok() || !swept) return s;
      if (!some_at_a_time) {
        if (Status s = check_requirements(); !s.ok()) return s;
        return Batch<P>(core_).commit(targets(), items_.mutations(), order_);
      }
    }
    return pieces.commit([&] { return check_requirements(); });
  }

  // Beside other mutations if it may.
  Status run() {
    auto beside = do_beside();
    if (!beside) return std::move(beside.error());
    return *beside ? Status() : do_alone();
  }

 private:
  std::span<const BatchTarget> targets() const { return {targets_.begin(), targets_.size()}; }
  Status check_requirements() const {
    for (const BatchRequirement& one : items_.requirements()) {
      bool same = false;
      auto found = targets_[one.target].map->index().read(one.key, [&](const detail::Value& value) {
        same = detail::same_value(value, one.value);
      });
      if (!found) return std::move(found.error());
      if (one.present ? !same : *found) return unmet_requirement(one.number);
    }
    return {};
  }

  PoolCore<P>& core_;
  const detail::BatchItems& items_;
  const PieceLimits limits_;
  Array<BatchTarget> targets_;
  BatchOrder order_;
};

}  // namespace perdure
