// FirstStores: parts of a pool that have to be made ready before the first store to them.
//
// WHAT  A pool has parts of one size, and one more for all that lies behind them. Every store asks
//   whether its part is ready; if not, its thread makes it ready, or waits for the thread that
//   does. A part that is ready can cease to be, and parts can be added.
// ORDERING  A store asks between enter() and leave() of the gate (cut_gate.h), and makes its part
//   ready outside of it, because that takes long. So once set_not_ready() was followed by a
//   next_round() of the gate, no store to the part is under way, and none begins until it is ready.
// Thread safety: any thread may call allows() and make_ready().
#pragma once

#include <algorithm>
#include <array>
#include <atomic>  // memory orders
#include <cstdint>

namespace perdure {

template <class P>
class FirstStores {
 public:
  static constexpr std::uint64_t kMaxParts = 6656;

  // Whether the byte at `offset` of the pool can be stored to.
  [[gnu::always_inline]] bool allows(std::uint64_t offset) const noexcept {
    return is_ready(part_of(offset));
  }
  // Makes its part ready. The caller asks again; false: it can store all the same.
  virtual bool make_ready(std::uint64_t offset) noexcept = 0;
  // Of a thread beside which no part ceases to be ready.
  void before(std::uint64_t offset) noexcept {
    while (!allows(offset) && make_ready(offset)) {
    }
  }
  bool is_ready(std::uint64_t part) const noexcept {
    return (ready_[part / 64].load(std::memory_order_acquire) >> part % 64 & 1) != 0;
  }
  // The last one is all that lies behind the others.
  std::uint64_t part_of(std::uint64_t offset) const noexcept {
    return std::min(offset >> shift_, parts());
  }

 protected:
  FirstStores() = default;
  ~FirstStores() = default;

  // `parts`: without the last one.
  void set_shape(std::uint64_t parts, unsigned shift) noexcept {
    shift_ = shift;
    set_parts(parts);
  }
  // More than before, which are ready.
  void set_parts(std::uint64_t parts) noexcept { parts_.store(parts, std::memory_order_release); }
  std::uint64_t parts() const noexcept { return parts_.load(std::memory_order_acquire); }
  unsigned shift() const noexcept { return shift_; }
  void set_ready(std::uint64_t part) noexcept {
    ready_[part / 64].fetch_or(std::uint64_t{1} << part % 64, std::memory_order_release);
  }
  void set_not_ready(std::uint64_t part) noexcept {
    ready_[part / 64].fetch_and(~(std::uint64_t{1} << part % 64), std::memory_order_seq_cst);
  }
  // Every store waits in make_ready() from here on, or has asked before.
  void set_none_ready() noexcept {
    for (auto& word : ready_) word.store(0, std::memory_order_seq_cst);
  }

 private:
  typename P::template Atomic<std::uint64_t> parts_{0};
  unsigned shift_ = 63;
  std::array<typename P::template Atomic<std::uint64_t>, kMaxParts / 64 + 1> ready_{};
};

}  // namespace perdure
