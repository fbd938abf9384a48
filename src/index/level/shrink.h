// Shrink: the table becomes smaller by half, when erases have left it too large or at compact().
// A new bottom level is added, and the top level is drained. level.I2 when a shrink is undone.
#pragma once

#include <bit>
#include <utility>

#include "index/level/levels.h"

namespace perdure::level {

template <class T>
class Shrink : public Levels<T> {
 protected:
  using Base = Levels<T>;
  using P = typename T::Platform;
  using Base::at_expansion_, Base::begin_change, Base::context_, Base::current, Base::publish,
      Base::resize_latch_, Base::resizes_, Base::root_, Base::wants_shrink_, Base::work_;

 public:
  using Base::Base;

  Expected<bool> compact() override {
    const auto size = [&] {
      EpochGuard<P> guard(context_.epochs);
      return guard.ok() ? current()->tiers[0]->log : kMaxLog + 1;
    };
    (void)context_.background.finish(work_);
    std::uint32_t log = size();
    for (bool smaller = false;; smaller = true) {
      auto begun = this->with_room([&] { return shrink(8); });
      if (!begun) return begun;
      if (!*begun) return smaller;
      (void)context_.background.finish(work_);
      // The shrink was undone, and the next one would be, too.
      if (size() >= log) return smaller;
      log = size();
    }
  }

 protected:
  // Erases call this now and then. It takes the current view, not the view under which the erase
  // held its lock: a drain that has ended since may have summed the counts before the erase lowered
  // its count (E20).
  [[gnu::noinline]] void after_erase(std::int64_t left) {
    View<T>& view = *current();
    static_assert(std::has_single_bit(T::Geometry::kLookEvery));
    if (!view.upper().is_due(left, T::Geometry::kLookEvery)) [[likely]]
      return;
    view.turn_search();
    if (!too_large(view)) return;
    wants_shrink_.store(true, std::memory_order_relaxed);
    context_.background.wake(work_);
  }

  // Returns whether the table has become too large. It is not while it holds more than half of what
  // it held when it grew, or when a shrink was undone.
  [[gnu::noinline]] bool too_large(const View<T>& view) const {
    if (!this->may_shrink_ || view.drain != Drain::none || is_smallest(view)) return false;
    const std::uint64_t items = view.items();
    return items * 4 < view.slots() && items * 2 <= at_expansion_.load(std::memory_order_relaxed);
  }

  // Counts as if the table had just grown to this size, at a load of 0.9.
  void expect_growth(const View<T>& view) {
    at_expansion_.store(view.slots() * 9 / 20, std::memory_order_relaxed);
  }

  // Begins a shrink to half the slots if at most `load` tenths of them will be full then.
  [[gnu::noinline]] Expected<bool> shrink(std::uint64_t load) {
    EpochGuard<P> guard(context_.epochs);
    if (Status s = begin_change(guard, true); !s.ok()) return fail(std::move(s));
    LatchGuard latch(resize_latch_);
    View<T>& view = *current();
    if (view.drain != Drain::none || is_smallest(view)) return false;
    if (view.items() * 20 > view.slots() * load) return false;
    if (Status s = this->begin_resize(view, view.tiers[1]->log - 1, Drain::top); !s.ok()) {
      return fail(std::move(s));
    }
    context_.background.wake(work_);
    return true;
  }

  // For inserts that find no place during a shrink: drains the new bottom level instead of the top
  // level, which takes items again. Items that were moved down may stay. A batch in progress may
  // hold an item twice, in two levels neither of which is drained afterwards (level.I2). So this
  // waits until no batch is in progress. The caller holds the latch and is pinned.
  [[gnu::noinline]] Status undo_shrink(View<T>& view) {
    view.closed.store(true, std::memory_order_seq_cst);
    for (unsigned spins = 0; view.inside.load(std::memory_order_seq_cst) != 0;) P::pause(spins++);
    if (Status s = publish(view, view.all(), Drain::bottom); !s.ok()) {
      view.closed.store(false, std::memory_order_seq_cst);
      return s;
    }
    ResizeStats& undone = resizes_.newest();
    undone.slots_after = undone.slots_before;
    at_expansion_.store(view.items(), std::memory_order_relaxed);
    context_.background.wake(work_);
    return {};
  }

 private:
  bool is_smallest(const View<T>& view) const { return view.tiers[0]->log <= root_->first_log; }
};

}  // namespace perdure::level
