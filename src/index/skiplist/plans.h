// Plans: the blocks that the mutations of a batch will allocate (pool/batch.h). In recovery they
// make nodes of height 1, because the heights of this process have another secret than those of the
// process that allocated the blocks. Looks at the nodes before each key: their damage would stop
// the mutation, and later each open.
#pragma once

#include "index/skiplist/write.h"

namespace perdure::skiplist {

template <class T>
class Plans : public Write<T> {
  using Base = Write<T>;

 protected:
  using Base::context_, Base::height_for, Base::shape_;
  using typename Base::Codec, typename Base::P, typename Base::Path, typename Base::Reach;

 public:
  using Base::Base;

  Status plan_batch(const BatchPlan& plan) override {
    EpochGuard<P> guard(context_.epochs);
    if (Status s = this->begin_read(guard); !s.ok()) return s;
    if (this->damaged()) return known_damage();
    for (std::size_t i = 0; i < plan.mutations.size(); ++i) {
      const detail::Mutation& mutation = plan.mutations[i];
      if (Status s = look(Codec::probe(mutation.key)); !s.ok()) return s;
      if (mutation.kind == MutationKind::erase) continue;
      const bool added = plan.present[i]
                             ? !shape_.bytes_values || add_blob(mutation.value, plan.needs)
                             : add_node(Codec::probe(mutation.key), mutation.value, plan.needs);
      if (!added) return StatusCode::out_of_memory;
    }
    return {};
  }
  void begin_replay(std::uint64_t /*version*/) override { this->replays_ = true; }
  void end_replay() override { this->replays_ = false; }

 private:
  [[gnu::noinline]] Status look(const Probe& probe) const {
    Path path;
    Node* found = nullptr;
    Status s = this->template search<Reach::whole>(probe, &path, found);
    return s.ok() ? this->check_path(path, Base::kMaxHeight) : s;
  }
  [[nodiscard]] bool add_node(const Probe& probe, const detail::Value& value,
                              BlockNeeds& needs) const {
    const bool apart = shape_.bytes_values && value.bytes.size() > kInlineValue;
    const std::size_t inside = shape_.bytes_values && !apart ? value.bytes.size() : 0;
    const auto bytes = [&](std::uint32_t height) {
      const std::uint64_t state = shape_.plain_state(height, probe.bytes.size(), inside);
      return shape_.block_bytes(shape_.node_bytes(state));
    };
    const std::size_t low = bytes(1);
    const std::size_t drawn = bytes(this->replays_ ? 1 : height_for(probe));
    return needs.add(low, BlockKind::plain) &&
           (drawn == low || needs.add(drawn, BlockKind::plain)) &&
           (!apart || add_blob(value, needs));
  }
  [[nodiscard]] static bool add_blob(const detail::Value& value, BlockNeeds& needs) {
    return needs.add(sizeof(Blob) + value.bytes.size(), BlockKind::plain);
  }
};

}  // namespace perdure::skiplist
