// Bch: bucketized cuckoo hashing, the memory-efficient scheme for DRAM that level hashing is
// compared with (paper, sections 2.2.1 and 5.1).
//
// WHAT  Two hash functions, buckets of kSlots. An insert takes an empty slot of its two buckets,
//   or evicts a random item to its other bucket, and so on. The table is full when kEvictions do
//   not suffice.
// CONSISTENCY  log_free.h. An insert first searches the cuckoo path and changes nothing. Then the
//   items move from the end of the path backwards, and none is ever missing (the paper's figure 9).
//   No slot is twice on a path, because the second movement would not find the item.
#pragma once

#include <new>

#include "bench/workloads/random.h"
#include "evaluation/hash/two_choice.h"

namespace perdure::paper {

template <Platform P, std::uint32_t kSlots = 4>
class Bch final : public TwoChoice<P, kSlots> {
 public:
  static constexpr std::uint32_t kEvictions = 500;

  static Expected<std::unique_ptr<Table>> make(P& platform, Heap<P>& heap,
                                               std::uint32_t log_buckets) {
    std::unique_ptr<Bch> table(new (std::nothrow) Bch(platform, heap));
    if (table == nullptr) return fail(StatusCode::out_of_memory);
    if (Status s = table->open_buckets(log_buckets); !s.ok()) return fail(std::move(s));
    return table;
  }

  std::uint64_t slots() override { return this->count_ * kSlots; }
  Expected<bool> insert(std::uint64_t key, std::uint64_t value) override {
    const level::Probe probe = place(key);
    if (this->find_place(probe).found()) return false;
    Place target = this->free_place(probe);
    if (!target.found()) {
      target = make_place(probe);
      if (!target.found()) return fail(StatusCode::pool_full);
    }
    this->put(target, key, value);
    return true;
  }
  Expected<bool> update(std::uint64_t key, std::uint64_t value) override {
    const Place found = this->find_place(place(key));
    if (!found.found()) return false;
    this->log_free_.update(*found.bucket, found.slot, value);
    return true;
  }
  Expected<bool> erase(std::uint64_t key) override {
    const Place found = this->find_place(place(key));
    if (!found.found()) return false;
    this->drop(found);
    return true;
  }

 private:
  using typename TwoChoice<P, kSlots>::BucketT;
  using typename TwoChoice<P, kSlots>::Place;
  using TwoChoice<P, kSlots>::TwoChoice;

  const Slot* lookup(std::uint64_t key) const noexcept override {
    const Place found = this->find_place(place(key));
    return found.found() ? &found.item() : nullptr;
  }

  bool on_path(const Place& step, std::uint32_t length) const noexcept {
    for (std::uint32_t i = 0; i < length; ++i) {
      if (path_[i].bucket == step.bucket && path_[i].slot == step.slot) return true;
    }
    return false;
  }
  // The next step of a path, in a full bucket: a random slot, or the next one that is not on the
  // path.
  bool extend(BucketT& bucket, std::uint32_t length) noexcept {
    const auto first = static_cast<std::uint32_t>(random_.below(kSlots));
    for (std::uint32_t i = 0; i < kSlots; ++i) {
      path_[length] = {&bucket, (first + i) % kSlots};
      if (!on_path(path_[length], length)) return true;
    }
    return false;
  }
  // Empties a slot of one of the key's buckets. Not found() if that takes too many evictions.
  Place make_place(const level::Probe& probe) noexcept {
    BucketT* bucket = &this->bucket(probe.hashes[random_.below(2)]);
    for (std::uint32_t length = 0; length < kEvictions; ++length) {
      if (!extend(*bucket, length)) return {};
      bucket = &this->alternative(path_[length]);
      const std::uint32_t slot = bucket->free_slot();
      if (slot == kSlots) continue;
      Place to{bucket, slot};
      for (std::uint32_t i = length + 1; i-- > 0; to = path_[i]) {
        this->log_free_.move(*path_[i].bucket, path_[i].slot, *to.bucket, to.slot);
      }
      return to;
    }
    return {};
  }

  bench::Random random_{1};
  Place path_[kEvictions];
};

}  // namespace perdure::paper
