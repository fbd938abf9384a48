// Plans: the blocks that the mutations of a batch will allocate (pool/batch.h), and the version in
// which they lie.
#pragma once

#include <cstdint>

#include "index/pskiplist/write.h"

namespace perdure::pskiplist {

template <class T>
class Plans : public Write<T> {
 protected:
  using Base = Write<T>;
  using Base::begin_read, Base::clock, Base::clock_, Base::context_, Base::directory_;
  using Base::next_segment, Base::nodes_, Base::record_values_, Base::reserve_;
  using typename Base::Chain, typename Base::Codec, typename Base::P;

 public:
  using Base::Base;

  Status plan_batch(const BatchPlan& plan) override {
    EpochGuard<P> guard(context_.epochs);
    if (Status s = begin_read(guard); !s.ok()) return s;
    if (context_.platform.load(this->root_->rollback_to) != 0) {
      return Status::format(StatusCode::busy, "a rollback is under way");
    }
    std::uint64_t slots = 0;
    std::uint64_t segments = 0;
    for (std::size_t i = 0; i < plan.mutations.size(); ++i) {
      const detail::Mutation& mutation = plan.mutations[i];
      const Probe probe = Codec::probe(mutation.key);
      const std::uint32_t number = directory_.find(probe);
      bool added = true;
      if (mutation.kind != MutationKind::erase && record_values_) {
        added = plan.needs.add(RecordView::bytes_needed({}, mutation.value), BlockKind::plain);
      }
      if (number == 0) {
        ++slots;
        if (Codec::kBytes) {
          added =
              added && plan.needs.add(RecordView::bytes_needed(probe.bytes, {}), BlockKind::plain);
        }
      } else if (const std::uint32_t entries = next_segment(nodes_[number]);
                 entries != 0 && nodes_[number].end().version() != clock()) {
        ++segments;
        added = added && plan.needs.add(entry_offset(0, entries), BlockKind::zero_on_free);
      }
      if (!added) return StatusCode::out_of_memory;
    }
    const std::uint64_t blocks = slots == 0 ? 0 : slots / Chain::kSlots + 1;
    const bool added =
        plan.needs.add(Chain::kBlockBytes, BlockKind::zero_on_free, blocks) &&
        (segments == 0 || plan.needs.add(entry_offset(0, T::Geometry::kFirstEntries),
                                         BlockKind::zero_on_free, reserve_.missing()));
    return added ? Status() : StatusCode::out_of_memory;
  }
  std::uint64_t batch_version() override { return clock(); }
  void begin_replay(std::uint64_t version) override {
    replayed_from_ = clock();
    clock_.store(version, std::memory_order_seq_cst);
  }
  void end_replay() override { clock_.store(replayed_from_, std::memory_order_seq_cst); }

 private:
  std::uint64_t replayed_from_ = 0;  // the open version
};

}  // namespace perdure::pskiplist
