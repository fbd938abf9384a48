// State: the data of a map, and the helpers that all parts use.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "index/level/codec.h"
#include "index/level/layout.h"
#include "index/level/locks.h"
#include "index/level/tier.h"
#include "index/map_engine.h"
#include "index/records.h"
#include "index/resizes.h"

namespace perdure::level {

template <class T>
class LevelMap;
struct Peek;

// What an attempt under locks returns.
enum class Made : std::uint8_t {
  done,
  full,          // there is no place, and no item can be moved
  again,         // another thread holds a lock that was needed, or the view has changed
  wants_record,  // which must be made before the locks are taken
  overflow,      // too many keys have the hash of this one
  failed         // the pool is poisoned, or Fresh::damaged is set
};

template <class T>
class State : public MapEngine<T, layout::Root, LevelMap<T>, detail::Index> {
  using Base = MapEngine<T, layout::Root, LevelMap<T>, detail::Index>;
  using typename Base::P, typename Base::Codec;
  using Form = typename Codec::Form;
  using Counter = typename P::template Atomic<std::uint64_t>;

 public:
  static constexpr std::uint32_t kSlots = Tier<T>::kSlots;

  using Base::Base;

 protected:
  using Base::context_, Base::root_;  // in a map of arrays, root_ is the first part of an ArrayRoot
  static constexpr auto kRootCrc = "level.root.crc"_site;
  static constexpr std::size_t kRootBytes =
      Form::kArrays ? sizeof(layout::ArrayRoot) : sizeof(layout::Root);
  // A call up: a step of the background work is a member of the top layer, as the operations that
  // MapEngine calls.
  struct Work final : BackgroundWork<P> {
    explicit Work(State& owner) : state(owner) {}
    Step run_some() noexcept override { return static_cast<LevelMap<T>&>(state).work(); }
    State& state;
  };

  View<T>* current() const { return view_.load(std::memory_order_acquire); }
  std::span<layout::Update> updates() const
    requires(Form::kArrays)
  {
    return reinterpret_cast<layout::ArrayRoot*>(root_)->updates;
  }
  bool has_records() const { return Codec::kBytes || (!Form::kArrays && record_values_); }
  Item<T> load(const Tier<T>& tier, std::uint64_t bucket, std::uint32_t slot) const {
    return Form::load(context_.platform, tier.line(bucket, slot), Tier<T>::in_line(slot));
  }
  Item<T> load(const Place<T>& place) const { return load(*place.tier, place.bucket, place.slot); }
  Probe probe_of(const Item<T>& item) const { return Codec::probe_of(item, seeds_); }
  // Returns whether the bucket is a candidate of the key in this level.
  static bool may_hold(const Tier<T>& tier, std::uint64_t bucket, const Probe& probe) {
    return tier.index(probe.hashes[0]) == bucket || tier.index(probe.hashes[1]) == bucket;
  }
  Status check_record(std::uint64_t offset, bool deep) const {
    return records_.check(offset, deep, "level.record.crc"_site);
  }
  // Of an operation.
  [[gnu::cold, gnu::noinline]] Status damaged_record(std::uint64_t offset) const {
    return this->of_this_map(Records<P>::damaged(offset));
  }

  // For assertions.
  bool in_table(const Tier<T>* tier) const {
    const auto tiers = current()->all();
    return std::ranges::find(tiers, tier) != tiers.end();
  }
  bool persisted(const Line<T>& line) const {
    return context_.platform.persisted(&line, sizeof(line));
  }

  Records<P> records_{context_};
  Seeds seeds_;
  bool record_values_ = false;  // the keys are integers, the values have any size
  bool word_records_ = false;   // the keys are byte strings, the values words
  // Of a map of arrays. 0: its keys are integers, or its values are words.
  std::uint8_t key_bytes_ = 0;
  std::uint8_t value_bytes_ = 0;
  bool may_shrink_ = false;
  typename P::template Atomic<View<T>*> view_{nullptr};
  typename P::template Atomic<std::uint32_t> scans_{0};
  Counter at_expansion_{0};  // the items at that time
  typename P::template Atomic<bool> wants_shrink_{false};
  typename P::template Atomic<bool> wants_level_{false};
  typename P::template Atomic<bool> lags_{false};  // the drain is behind the inserts
  struct alignas(kOwnLine) MoveLatch : P::Latch {};
  MoveLatch move_latches_[kMoveLines];
  alignas(kOwnLine) typename P::Latch resize_latch_;  // of root_->descriptor, view_ and resizes_
  Resizes<P> resizes_;
  Counter moved_{0};                         // items of the oldest resize in progress
  Counter moves_begun_{0}, moves_ended_{0};  // rounds of drains: items change levels in them
  Work work_{*this};
};

}  // namespace perdure::level
