// Pfht: the PCM-friendly hash table that level hashing is compared with (paper, sections 2.2.2 and
// 5.1).
//
// WHAT  Two hash functions, buckets of kSlots, at most one eviction per insert. An item without a
//   place goes into a stash of 3% of all slots, a chained hash table. The table is full when the
//   stash is. The paper does not give the number of chains: here a full stash has kChain nodes a
//   chain.
// LAYOUT  the buckets; an array of chain heads; nodes of half a line from the heap.
// CONSISTENCY  log_free.h. A node is written before the link that names it, 2F 2S. One store
//   unlinks it, 1F 1S.
#pragma once

#include <algorithm>
#include <new>

#include "evaluation/hash/two_choice.h"

namespace perdure::paper {

template <Platform P, std::uint32_t kSlots = 4>
class Pfht final : public TwoChoice<P, kSlots> {
 public:
  static constexpr std::uint64_t kChain = 4;

  static Expected<std::unique_ptr<Table>> make(P& platform, Heap<P>& heap,
                                               std::uint32_t log_buckets) {
    std::unique_ptr<Pfht> table(new (std::nothrow) Pfht(platform, heap));
    if (table == nullptr) return fail(StatusCode::out_of_memory);
    if (Status s = table->open_buckets(log_buckets); !s.ok()) return fail(std::move(s));
    if (Status s = table->open_stash(); !s.ok()) return fail(std::move(s));
    return table;
  }
  std::uint64_t slots() override { return this->count_ * kSlots + stash_slots_; }
  Expected<bool> insert(std::uint64_t key, std::uint64_t value) override {
    const level::Probe probe = place(key);
    if (this->find_place(probe).found() || *link_of(probe) != 0) return false;
    Place target = this->free_place(probe);
    if (!target.found()) target = move_one(probe);
    if (!target.found()) return insert_stash(probe, value);
    this->put(target, key, value);
    return true;
  }
  Expected<bool> update(std::uint64_t key, std::uint64_t value) override {
    const level::Probe probe = place(key);
    if (const Place found = this->find_place(probe); found.found()) {
      this->log_free_.update(*found.bucket, found.slot, value);
      return true;
    }
    const std::uint64_t* link = link_of(probe);
    if (*link == 0) return false;
    this->log_free_.update_logged(node(*link).item, value);
    return true;
  }
  Expected<bool> erase(std::uint64_t key) override {
    const level::Probe probe = place(key);
    if (const Place found = this->find_place(probe); found.found()) {
      this->drop(found);
      return true;
    }
    std::uint64_t* link = link_of(probe);
    const std::uint64_t offset = *link;
    if (offset == 0) return false;
    this->log_free_.set_word(*link, node(offset).next);
    this->heap_.free(offset);
    --stashed_;
    --this->items_;
    return true;
  }

 private:
  using typename TwoChoice<P, kSlots>::BucketT;
  using typename TwoChoice<P, kSlots>::Place;
  using TwoChoice<P, kSlots>::TwoChoice;
  struct alignas(kLine / 2) Node {
    std::uint64_t next;
    Slot item;
  };

  Status open_stash() noexcept {
    stash_slots_ = this->count_ * kSlots * 3 / 97;
    chains_ = std::max<std::uint64_t>(stash_slots_ / kChain, 1);
    auto heads = this->template allocate<std::uint64_t>(chains_);
    if (!heads) return std::move(heads.error());
    heads_ = *heads;
    return {};
  }
  Node& node(std::uint64_t offset) const noexcept { return *this->heap_.template at<Node>(offset); }
  // Returns the link to the key's node, or the link that ends its chain. Buckets and chains use
  // different bits of the hash: items that collide in buckets spread over the chains.
  std::uint64_t* link_of(const level::Probe& probe) const noexcept {
    std::uint64_t* link = &heads_[(probe.hashes[0] >> 32) % chains_];
    for (;;) {
      const std::uint64_t offset = this->platform_.load(*link);
      if (offset == 0 || this->platform_.load(node(offset).item.key) == probe.word) return link;
      link = &node(offset).next;
    }
  }
  const Slot* lookup(std::uint64_t key) const noexcept override {
    const level::Probe probe = place(key);
    if (const Place found = this->find_place(probe); found.found()) return &found.item();
    const std::uint64_t offset = *link_of(probe);
    return offset != 0 ? &node(offset).item : nullptr;
  }
  void visit_slots(FunctionRef<void(const Slot&)> visit) const override {
    TwoChoice<P, kSlots>::visit_slots(visit);
    for (std::uint64_t i = 0; i < chains_; ++i) {
      for (std::uint64_t n = heads_[i]; n != 0; n = node(n).next) visit(node(n).item);
    }
  }

  // Makes the one eviction, of an item whose other bucket has an empty slot.
  Place move_one(const level::Probe& probe) noexcept {
    for (const std::uint64_t hash : probe.hashes) {
      for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
        const Place victim{&this->bucket(hash), slot};
        BucketT& to = this->alternative(victim);
        const std::uint32_t free_slot = to.free_slot();
        if (free_slot == kSlots) continue;
        this->log_free_.move(*victim.bucket, slot, to, free_slot);
        return victim;
      }
    }
    return {};
  }
  Expected<bool> insert_stash(const level::Probe& probe, std::uint64_t value) noexcept {
    if (stashed_ == stash_slots_) return fail(StatusCode::pool_full);
    auto block = this->heap_.allocate(sizeof(Node), BlockKind::plain);
    if (!block) return fail(std::move(block.error()));
    std::uint64_t& head = heads_[(probe.hashes[0] >> 32) % chains_];
    const Node image{head, {probe.word, value}};
    P& platform = this->platform_;
    platform.copy(&node(*block), &image, sizeof(image));
    platform.flush(&node(*block), sizeof(image), "bench.stash.node"_site);
    (void)platform.fence("bench.stash.node"_site);
    this->log_free_.set_word(head, *block);
    ++stashed_;
    ++this->items_;
    return true;
  }

  std::uint64_t* heads_ = nullptr;
  std::uint64_t chains_ = 0;
  std::uint64_t stash_slots_ = 0;
  std::uint64_t stashed_ = 0;
};

}  // namespace perdure::paper
