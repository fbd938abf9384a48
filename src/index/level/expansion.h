// Expansion: the table becomes twice as large. A new top level is added, and the bottom level is
// drained. level.I3 through publish().
#pragma once

#include "index/level/shrink.h"

namespace perdure::level {

template <class T>
class Expansion : public Shrink<T> {
 protected:
  using Base = Shrink<T>;
  using P = typename T::Platform;
  using Base::at_expansion_, Base::context_, Base::current, Base::lags_, Base::resize_latch_,
      Base::scans_, Base::wants_level_, Base::work_;

 public:
  using Base::Base;

  // Begins an expansion at any load. For benchmarks. Errors: those of an insert.
  Status expand() {
    EpochGuard<P> guard(context_.epochs);
    if (Status s = this->begin_change(guard, true); !s.ok()) return s;
    return grow(current()->generation);
  }

 protected:
  // Does one of three things, if the view is still of this generation: begins an expansion; adds
  // one more level for a drain that cannot place an item; or ends a shrink, whose source then takes
  // items again. The caller is pinned.
  [[gnu::noinline]] Status grow(std::uint64_t generation) {
    LatchGuard latch(resize_latch_);
    if (context_.platform.poisoned()) return context_.platform.failure();
    View<T>& view = *current();
    if (view.generation != generation) return {};
    if (view.drain == Drain::top) return this->undo_shrink(view);
    const std::uint64_t items = view.items();
    if ((items + planned_) * kLeastLoad < view.slots()) {
      return Status::format(
          StatusCode::hash_overflow,
          "too many keys have hashes alike: no table of %llu items is large enough",
          static_cast<unsigned long long>(items));
    }
    const std::uint32_t log = view.tiers[0]->log + 1;
    // The last level is for items that the drain after the scan cannot place.
    const bool scan = scans_.load(std::memory_order_seq_cst) != 0;
    if (view.levels + (scan ? 1 : 0) >= kMaxLevels || log > kMaxLog) {
      return Status::format(StatusCode::pool_full, "the table cannot grow by more levels at once%s",
                            scan ? "; a scan holds items where they are" : "");
    }
    if (Status s = this->begin_resize(view, log, Drain::bottom); !s.ok()) return s;
    at_expansion_.store(items, std::memory_order_relaxed);
    context_.background.wake(work_);
    return {};
  }

  // Whether the insert that has raised the count of its stripe to this number looks. During a drain
  // often, because inserts help to keep its pace (E19).
  static bool is_due(const View<T>& view, const Tier<T>& tier, std::int64_t count) {
    return view.drain == Drain::bottom ? count % 64 == 0 : tier.is_due(count, 64);
  }
  // Inserts for which is_due() holds call this. During a drain of the bottom level it checks
  // whether the drain lags behind the inserts, which fill the other levels (E19). Without a drain,
  // it asks for the space of the next level when the table is three quarters full: the system needs
  // long to make that space.
  [[gnu::noinline]] void after_insert(View<T>& view) {
    view.turn_search();
    const std::uint64_t items = view.items();
    if (view.drain == Drain::bottom) {
      const std::uint64_t before = at_expansion_.load(std::memory_order_relaxed);
      const std::uint64_t room = view.target_slots() * 3 / 4;  // from here on inserts move items
      if (items <= before || room <= before) return;
      const std::uint64_t filled = (items - before) * 256 / (room - before);
      const std::uint64_t begun = view.cursor.load(std::memory_order_relaxed) * 256;
      if (begun < filled * view.source().buckets()) lags_.store(true, std::memory_order_relaxed);
      return;
    }
    if (view.drain != Drain::none || items * 4 < view.slots() * 3) return;
    if (view.fills_up.load(std::memory_order_relaxed) ||
        view.fills_up.exchange(true, std::memory_order_relaxed)) {
      return;
    }
    wants_level_.store(true, std::memory_order_relaxed);
    context_.background.wake(work_);
  }

  std::uint64_t planned_ = 0;  // inserts of a batch that is being planned

 private:
  static constexpr std::uint64_t kLeastLoad = 16;  // no expansion below a load of 1/16
};

}  // namespace perdure::level
