// Baseline: the common part of the tables that are compared with level hashing. They live in a heap
// for the time of a run and leave their blocks to it. No root names them, and they are never opened
// again.
#pragma once

#include <utility>

#include "evaluation/hash/log_free.h"
#include "evaluation/table.h"
#include "heap/heap.h"

namespace perdure::paper {

template <Platform P>
class Baseline : public Table {
 public:
  std::uint64_t items() override { return items_; }
  Expected<bool> find(std::uint64_t key, std::uint64_t& value) final {
    const Slot* slot = lookup(key);
    if (slot == nullptr) return false;
    value = slot->value;
    return true;
  }
  Status for_each(FunctionRef<void(std::uint64_t, std::uint64_t)> visit) final {
    visit_slots([&](const Slot& slot) { visit(slot.key, slot.value); });
    return {};
  }
  // Checks that a lookup finds every item in its slot, which excludes duplicate keys, and that the
  // number of items is right.
  void check(Findings& report) final {
    std::uint64_t count = 0;
    visit_slots([&](const Slot& slot) {
      ++count;
      if (lookup(slot.key) != &slot) report.add("an item that a lookup does not find");
    });
    report.entries += count;
    if (count != items_) report.add("the count of items is wrong");
  }

 protected:
  Baseline(P& platform, Heap<P>& heap) noexcept
      : platform_(platform), heap_(heap), log_free_(platform) {}

  virtual const Slot* lookup(std::uint64_t key) const noexcept = 0;
  virtual void visit_slots(FunctionRef<void(const Slot&)> visit) const = 0;

  // Call it before any other operation.
  Status open_log() noexcept {
    auto log = allocate<LogLine>(1);
    if (!log) return std::move(log.error());
    log_free_.set_log(*log);
    return {};
  }
  // Allocates an array of zeros.
  template <class T>
  Expected<T*> allocate(std::uint64_t count) noexcept {
    auto block = heap_.allocate(count * sizeof(T), BlockKind::zero_on_free);
    if (!block) return fail(std::move(block.error()));
    return heap_.template at<T>(*block);
  }
  template <std::uint32_t kSlots>
  static void visit_bucket(const Bucket<kSlots>& bucket, FunctionRef<void(const Slot&)> visit) {
    for (std::uint32_t i = 0; i < kSlots; ++i) {
      if (bucket.has(i)) visit(bucket.slots[i]);
    }
  }

  P& platform_;
  Heap<P>& heap_;
  LogFree<P> log_free_;
  std::uint64_t items_ = 0;
};

}  // namespace perdure::paper
