// FirstStores: parts of a pool that have to be made ready before the first store to them.
//
// WHAT  A pool has parts of one size, and one more for all that lies behind them. Every store asks
//   whether its part is ready; if not, its thread makes it ready, or waits for the thread that
//   does.
// Thread safety: any thread may call before().
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

  // A store to the byte at `offset` of the pool follows.
  [[gnu::always_inline]] void before(std::uint64_t offset) noexcept {
    const std::uint64_t part = part_of(offset);
    if (!is_ready(part)) [[unlikely]]
      make_ready(part);
  }
  bool is_ready(std::uint64_t part) const noexcept {
    return (ready_[part / 64].load(std::memory_order_acquire) >> part % 64 & 1) != 0;
  }
  // The last one is all that lies behind the others.
  std::uint64_t part_of(std::uint64_t offset) const noexcept {
    return std::min(offset >> shift_, parts_);
  }

 protected:
  FirstStores() = default;
  ~FirstStores() = default;
  // When it returns, the store can be made.
  virtual void make_ready(std::uint64_t part) noexcept = 0;

  // `parts`: without the last one.
  void set_shape(std::uint64_t parts, unsigned shift) noexcept {
    parts_ = parts;
    shift_ = shift;
  }
  std::uint64_t parts() const noexcept { return parts_; }
  unsigned shift() const noexcept { return shift_; }
  void set_ready(std::uint64_t part) noexcept {
    ready_[part / 64].fetch_or(std::uint64_t{1} << part % 64, std::memory_order_release);
  }
  // Every store waits in make_ready() from here on, or has asked before.
  void set_none_ready() noexcept {
    for (auto& word : ready_) word.store(0, std::memory_order_seq_cst);
  }

 private:
  std::uint64_t parts_ = 0;
  unsigned shift_ = 63;
  std::array<typename P::template Atomic<std::uint64_t>, kMaxParts / 64 + 1> ready_{};
};

}  // namespace perdure
