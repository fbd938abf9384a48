// Levels: the list of levels, on media and in DRAM, and the history of resizes. level.I3.
#pragma once

#include <algorithm>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "index/level/lookup.h"
#include "util/crc32c.h"

namespace perdure::level {

template <class T>
class Levels : public Lookup<T> {
 protected:
  using Base = Lookup<T>;
  using P = typename T::Platform;
  using Base::context_, Base::current, Base::in_table, Base::persist, Base::resizes_, Base::root_;

 public:
  using Base::Base;

 protected:
  static std::uint32_t descriptor_crc(const layout::Descriptor& d) {
    return crc32c(0, reinterpret_cast<const std::byte*>(&d) + sizeof(d.crc),
                  sizeof(d) - sizeof(d.crc));
  }
  static bool descriptor_intact(const layout::Descriptor& image) {
    return matches<P>(image.crc == descriptor_crc(image), "level.descriptor.crc"_site);
  }

  // Adds a level of zeros to the table, and with it begins an expansion, which drains the bottom
  // level, or a shrink, which drains the top level. The caller holds the latch and is pinned.
  [[gnu::noinline]] Status begin_resize(View<T>& view, std::uint32_t log, Drain drain) {
    auto block = context_.heap.allocate(Tier<T>::bytes_of(log), BlockKind::zero_on_free);
    if (!block) return std::move(block.error());
    Tier<T>* tier = Tier<T>::make(*block, log, context_.heap.template at<Line<T>>(*block));
    if (tier == nullptr) {
      context_.heap.discard(*block);
      return StatusCode::out_of_memory;
    }
    const bool shrink = drain == Drain::top;
    Tier<T>* tiers[kMaxLevels] = {};
    tiers[shrink ? view.levels : 0] = tier;
    std::ranges::copy(view.all(), tiers + (shrink ? 0 : 1));
    if (Status s = publish(view, {tiers, view.levels + 1}, drain); !s.ok()) {
      // The medium of a poisoned pool may name the level.
      if (s != StatusCode::poisoned) context_.heap.discard(*block);
      delete tier;
      return s;
    }
    resize_begins(view, *current(), shrink);
    return {};
  }

  // Makes these the levels of the table: first durably, then for all threads. Retires the levels
  // that are no longer in the list. The caller holds the latch and is pinned.
  [[gnu::noinline]] Status publish(View<T>& before, std::span<Tier<T>* const> tiers, Drain drain) {
    P& platform = context_.platform;
    std::unique_ptr<View<T>> view(new (std::nothrow) View<T>);
    if (view == nullptr) return StatusCode::out_of_memory;
    auto block = context_.heap.allocate(sizeof(layout::Descriptor), BlockKind::plain);
    if (!block) return std::move(block.error());
    layout::Descriptor image{};
    image.top_log = static_cast<std::uint8_t>(tiers[0]->log);
    image.levels = static_cast<std::uint8_t>(tiers.size());
    image.drain = static_cast<std::uint8_t>(drain);
    image.generation = before.generation + 1;
    for (std::size_t i = 0; i < tiers.size(); ++i) {
      image.offsets[i] = tiers[i]->offset;
      view->tiers[i] = tiers[i];
    }
    image.crc = descriptor_crc(image);
    view->descriptor = *block;
    view->generation = image.generation;
    view->levels = image.levels;
    view->drain = drain;
    auto* descriptor = context_.heap.template at<layout::Descriptor>(*block);
    platform.copy(descriptor, &image, sizeof(image));
    if (!persist(descriptor, sizeof(image), "level.resize.descriptor"_site))
      return StatusCode::poisoned;
    PERDURE_ASSERT(P, "level.I3", platform.persisted(descriptor, sizeof(image)));
    PERDURE_ASSERT(P, "level.I3", std::ranges::all_of(tiers, [&](const Tier<T>* tier) {
                     return in_table(tier) ||
                            platform.persisted(tier->lines, Tier<T>::bytes_of(tier->log));
                   }));
    platform.store(root_->descriptor, *block);
    if (!persist(&root_->descriptor, 8, "level.resize.root"_site))
      return StatusCode::poisoned;  // PP(resize)
    PERDURE_ASSERT(P, "level.I3", platform.persisted(&root_->descriptor, 8));
    view->turn_search();
    this->view_.store(view.release(), std::memory_order_release);  // LP(resize)
    for (Tier<T>* tier : before.all()) {
      if (std::ranges::find(tiers, tier) != tiers.end()) continue;
      context_.heap.retire(tier->offset);
      context_.epochs.retire(kDelete<Tier<T>>, this, reinterpret_cast<std::uint64_t>(tier));
    }
    context_.heap.retire(before.descriptor);
    context_.epochs.retire(kDelete<View<T>>, this, reinterpret_cast<std::uint64_t>(&before));
    return {};
  }

  // The history of resizes. Each drains a level, and the level of the oldest resize leaves first.
  // The caller holds the latch.
  [[gnu::noinline]] void resize_begins(const View<T>& before, const View<T>& after, bool shrink) {
    resizes_.begin({.slots_before = before.slots(),
                    .slots_after = after.target_slots(),
                    .entries = before.items(),
                    .shrink = shrink});
  }
  [[gnu::noinline]] void resize_ends(const View<T>& drained) {
    const std::uint64_t moved = this->moved_.exchange(0, std::memory_order_relaxed);
    resizes_.end(drained.source().buckets(), moved, *context_.log, context_.map);
  }

 private:
  template <class Object>
  static constexpr Reclaimer kDelete{
      nullptr, [](void*, std::uint64_t object) { delete reinterpret_cast<Object*>(object); }};
};

}  // namespace perdure::level
