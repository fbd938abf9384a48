// Stripes: the locks of a map's nodes, the word that the holder of one is changing, and the link
// that it owes. In DRAM.
//
// WHAT  A node belongs to the stripe that its place selects. A change holds the stripes of all
//   nodes whose words it stores to, and that of the node that it links or unlinks. Changes of nodes
//   in different stripes do not wait for each other.
// INVARIANTS (DRAM)
//   skiplist.S1  A thread takes stripes in ascending order, all at once. While it holds one it
//         waits for no latch. So no circle of threads waits.
// PROGRESS  A change waits for the changes that hold one of its stripes: those of neighbours, and
//   by chance others. Lookups read a stripe and never wait.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "index/skiplist/in_flight.h"
#include "index/skiplist/writer_latch.h"
#include "util/arena.h"

namespace perdure::skiplist {

template <Platform P>
struct alignas(kOwnLine) Stripe {
  WriterLatch<P> latch;
  InFlight<P> in_flight;
  // as: a link above level 0 that leads to a node of the stripe and is not written back yet. A
  // change of such a link holds the stripe of the node that it leads to, and writes back what that
  // owes. So the word is never that of a node that was erased.
  const std::uint64_t* owed = nullptr;
};

template <Platform P, std::uint32_t kCount>
class Stripes {
  static constexpr int kBits = std::countr_zero(kCount);
  static_assert(std::has_single_bit(kCount) && kBits > 0);

 public:
  Status reserve() { return stripes_.reserve(kCount); }  // zeros: not held, nothing in flight
  static constexpr std::size_t dram_bytes() { return kCount * sizeof(Stripe<P>); }

  static std::uint32_t number_of(std::uint64_t place) {
    return static_cast<std::uint32_t>(place * 0x9E37'79B9'7F4A'7C15 >> (64 - kBits));
  }
  Stripe<P>& operator[](std::uint32_t number) const { return stripes_[number]; }
  [[gnu::always_inline]] Stripe<P>& of(std::uint64_t place) const {
    return stripes_[number_of(place)];
  }
  // The word of the node, or the link to it, that its writer is changing; null if there is none.
  [[gnu::always_inline]] const std::uint64_t* in_flight(std::uint64_t place) const {
    return of(place).in_flight.about(place);
  }
  // For check(): whether any word is in flight.
  bool any_in_flight() const {
    for (std::uint32_t i = 0; i < kCount; ++i) {
      if (stripes_[i].in_flight.any() != nullptr) return true;
    }
    return false;
  }

  // The one stripe that a change of a value holds.
  class HoldOne {
   public:
    explicit HoldOne(const Stripes& stripes) : stripes_(stripes) {}
    ~HoldOne() { release(); }
    HoldOne(const HoldOne&) = delete;
    HoldOne& operator=(const HoldOne&) = delete;

    void take(std::uint64_t place) {
      latch_ = &stripes_.of(place).latch;
      latch_->lock();
    }
    void release() {
      if (latch_ != nullptr) latch_->unlock();
      latch_ = nullptr;
    }

   private:
    const Stripes& stripes_;
    WriterLatch<P>* latch_ = nullptr;
  };

  // The stripes that an insert or an erase holds.
  template <std::uint32_t kMost>
  class Hold {
   public:
    explicit Hold(const Stripes& stripes) : stripes_(stripes) {}
    ~Hold() { release(); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

    // Before take(): a node that the change stores to. 0: none.
    void add(std::uint64_t place) {
      if (place == 0) return;
      const std::uint32_t number = number_of(place);
      for (std::uint32_t i = 0; i < count_; ++i) {
        if (numbers_[i] == number) return;
      }
      std::uint32_t i = count_++;
      for (; i > 0 && numbers_[i - 1] > number; --i) numbers_[i] = numbers_[i - 1];
      numbers_[i] = number;
    }
    // skiplist.S1
    void take() {
      for (std::uint32_t i = 0; i < count_; ++i) stripes_[numbers_[i]].latch.lock();
      held_ = true;
    }
    void release() {
      for (std::uint32_t i = 0; held_ && i < count_; ++i) stripes_[numbers_[i]].latch.unlock();
      held_ = false;
      count_ = 0;
    }
    // Takes what the holders of these stripes have left to write back.
    template <class F>
    void take_owed(F&& write_back) {
      for (std::uint32_t i = 0; i < count_; ++i) {
        const std::uint64_t*& owed = stripes_[numbers_[i]].owed;
        if (owed != nullptr) write_back(owed);
        owed = nullptr;
      }
    }

   private:
    const Stripes& stripes_;
    std::uint32_t numbers_[kMost];
    std::uint32_t count_ = 0;
    bool held_ = false;
  };

  // For assertions: whether the calling thread holds the stripe of the node; any stripe.
  bool mine(std::uint64_t place) const { return of(place).latch.mine(); }
  bool any_mine() const {
    for (std::uint32_t i = 0; i < kCount; ++i) {
      if (stripes_[i].latch.mine()) return true;
    }
    return false;
  }

 private:
  Arena<Stripe<P>> stripes_;
};

}  // namespace perdure::skiplist
