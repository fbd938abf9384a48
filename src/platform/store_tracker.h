// StoreTracker: what a platform does around a store to a pool that is cut (cut/cutter.h).
//
// WHAT  begin() enters the gate and notes the lines, end() leaves the gate; the store comes
//   between. A line is not noted again if it is the last line that the thread has noted in the same
//   round. In a later round it may have been taken since: a store that is not noted then is in no
//   cut. If the part of the pool that the store goes to is not ready (first_stores.h), begin()
//   leaves the gate, makes it ready, and begins again.
// COSTS  Each store makes two stores and a load more, and two of each more than that if its line is
//   not the one of the store before. The word `state` of the gate is shared; all else belongs to
//   the thread.
#pragma once

#include <algorithm>
#include <cstddef>

#include "platform/cut_gate.h"
#include "platform/dirty_log.h"
#include "platform/first_stores.h"

namespace perdure {

template <class P>
class StoreTracker {
 public:
  using Slot = typename CutGate<P>::Slot;

  // Of the pool that is mapped at `base`. The log must stay valid, and so must `first`, if it is
  // not null.
  StoreTracker(std::byte* base, DirtyLog<P>& log, CutLimits limits = {},
               FirstStores<P>* first = nullptr) noexcept
      : base_(base), log_(log), first_(first), gate_(limits) {}
  // Call it once, before a store. Returns false if memory is short.
  bool make() noexcept { return gate_.make(); }

  // [p, p + n) lies in one page. Returns what end() needs.
  Slot& begin(const void* p, std::size_t n) noexcept {
    const std::uint32_t number = P::thread_slot();
    Slot& slot = gate_.slot(number);
    if (gate_.fresh(slot)) [[unlikely]]
      gate_.join(number);
    std::uint64_t round = gate_.enter(slot);
    if (first_ != nullptr && !first_->allows(offset_of(p))) [[unlikely]]
      round = enter_ready(slot, offset_of(p));
    if (P::runs("cut.track.before"_site)) note(slot, round, p, n);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // plain stores follow
    return slot;
  }
  void end(Slot& slot, const void* p, std::size_t n) noexcept {
    // A mutant: if the process is killed in between, no log has the line.
    if (!P::runs("cut.track.before"_site)) note(slot, 0, p, n);
    gate_.leave(slot);
  }
  // Calls write(offset, bytes) between begin() and end() for each piece of [p, p + n), which lies
  // in one page. So no store takes long.
  template <class F>
  void in_pieces(const void* p, std::size_t n, F&& write) noexcept {
    const auto* bytes = static_cast<const std::byte*>(p);
    for (std::size_t at = 0; at < n;) {
      const std::size_t piece = std::min(n - at, kPage - offset_of(bytes + at) % kPage);
      Slot& slot = begin(bytes + at, piece);
      write(at, piece);
      end(slot, bytes + at, piece);
      at += piece;
    }
  }

  // --- the thread that cuts ---
  // Gives new threads their rings. It takes space of the storage, so not while the gate is shut.
  void make_rings() noexcept {
    const std::uint32_t used = gate_.slots_used();
    for (; rings_ < used; ++rings_) gate_.slot(rings_).ring.store(log_.make_ring(rings_));
  }
  // Moves what threads have noted into the set of dirty lines. Returns false if the log is damaged.
  bool drain() noexcept { return log_.drain(gate_.slots_used()); }
  // --- any thread ---
  // How many lines were noted, with those that were noted before.
  std::uint64_t noted() const noexcept {
    std::uint64_t lines = 0;
    const std::uint32_t used = gate_.slots_used();
    for (std::uint32_t i = 0; i < used; ++i) {
      lines += gate_.slot(i).lines.load(std::memory_order_relaxed);
    }
    return lines;
  }
  const std::byte* base() const noexcept { return base_; }
  CutGate<P>& gate() noexcept { return gate_; }
  DirtyLog<P>& log() noexcept { return log_; }

 private:
  std::uint64_t offset_of(const void* p) const noexcept {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(p) - base_);
  }
  // Of a thread that has entered. Returns the number of the round in which it has entered again.
  [[gnu::noinline]] std::uint64_t enter_ready(Slot& slot, std::uint64_t offset) noexcept {
    for (;;) {
      gate_.leave(slot);
      const bool asks = first_->make_ready(offset);
      const std::uint64_t round = gate_.enter(slot);
      if (!asks || first_->allows(offset)) return round;
    }
  }
  void note(Slot& slot, std::uint64_t round, const void* p, std::size_t n) noexcept {
    const std::uint64_t first = offset_of(p) / kLine;
    const std::uint64_t count = lines_of(p, n);
    const bool same_round = slot.round == round || !P::runs("cut.track.round"_site);
    if (count == 1 && first == slot.line && same_round) return;
    log_.note(slot.ring.load(std::memory_order_acquire), slot.at, first, count);
    slot.line = first + count - 1;
    slot.round = round;
    gate_.count(slot, count);
  }

  std::byte* base_;
  DirtyLog<P>& log_;
  FirstStores<P>* first_;
  CutGate<P> gate_;
  std::uint32_t rings_ = 0;  // slots that have one, or for which there was no space
};

}  // namespace perdure
