// Seal: sync of a live pool, and the seal that makes a copy of one trusted.
// docs/decisions/0007-sealed-pools.md argues it.
//
// A sealed header says that all content is durable and that nothing was stored since. It may be
// written only if that is true, and must be gone, durably, before that becomes false:
//   pool.S1  From begin_seal() on, every store passes before_store(). When begin_seal() returns, no
//       thread is between that test and its store: threads in epoch guards have left them, no step
//       of background work runs, and the caller makes sure that no map is made or dropped.
//   pool.S2  before_store() voids a seal under way. If a seal is set, it makes `dirty` durable in
//       both header copies, under the latch, and only then lets any store go on.
//   pool.S3  A copy of the file that was made while it was sealed has the content whose checksum is
//       in the header. Any other copy has not, and is refused at open.
#pragma once

#include <algorithm>
#include <utility>

#include "format/state.h"

namespace perdure::format {

template <Platform P>
class Seal : public State<P>, private StoreWatch {
  using Base = State<P>;

 public:
  using Base::Base, Base::header;

  // Makes everything acknowledged so far durable against power loss in every mode. Seals the pool
  // if nothing is stored meanwhile and background work comes to rest within about a second. The
  // caller is in no epoch guard, and no map is made or dropped during the call.
  [[gnu::noinline]] Status sync() {
    {
      LatchGuard guard(latch_);
      if (seal_.load(std::memory_order_relaxed) == Phase::set) return {};
    }
    auto quiet = begin_seal();
    Status s = quiet ? Status() : std::move(quiet.error());
    if (s.ok()) s = this->heap_.read_table();
    if (s.ok() && !this->after_kill_.settle_all()) s = StatusCode::poisoned;
    if (s.ok() && !platform_.fence("pool.sync.data"_site)) s = StatusCode::poisoned;
    if (s.ok()) s = this->sync_storage(0, header().file_bytes);
    if (s.ok() && *quiet) s = end_seal(content_checksum(true));
    LatchGuard guard(latch_);
    if (watching()) unseal();
    return s;
  }

 protected:
  using Base::background_, Base::header_, Base::latch_, Base::open_, Base::platform_,
      Base::storage_;

  // Ends a seal before the caller stores; the latch is held.
  [[gnu::noinline]] void unseal() {
    const Phase seal = seal_.load(std::memory_order_relaxed);
    if (seal == Phase::none) return;
    if (seal == Phase::set) {
      header_.close_state = layout::CloseState::dirty;
      header_.seal = 0;
      [[maybe_unused]] const std::uint64_t sequence = header_.sequence;
      // If this fails the pool is poisoned: later stores are never acknowledged.
      [[maybe_unused]] const bool dirty = this->write_dirty().ok();
      PERDURE_ASSERT(P, "pool.S2",
                     !dirty || (header_.sequence == sequence + 2 && this->is_dirty()));
    }
    seal_.store(Phase::none, std::memory_order_release);
    platform_.watch_stores(nullptr);
  }
  // The checksum of the root directory, the words of the extent table and all assigned extents.
  // `live`: gives up when a store voids the seal. The sum over pieces does not depend on their
  // order: any number of threads may add them up.
  [[gnu::noinline]] std::uint64_t content_checksum(bool live) {
    typename P::template Atomic<std::uint64_t> sum{0};
    const auto add = [&](std::uint64_t offset, std::uint64_t length) {
      const auto* words = reinterpret_cast<const std::uint64_t*>(storage_.base() + offset);
      std::uint32_t crc = 0;
      for (std::uint64_t w = 0; w < length / 8; w += 8) {
        std::uint64_t line[8];
        const std::uint64_t count = std::min<std::uint64_t>(8, length / 8 - w);
        for (std::uint64_t i = 0; i < count; ++i) line[i] = platform_.peek(words[w + i]);
        crc = crc32c(crc, line, count * 8);
      }
      // Depends on the place: pieces that were exchanged do not cancel out.
      const std::uint64_t place = (offset ^ length << 40) * 0x9E3779B97F4A7C15ULL;
      sum.fetch_add((place ^ crc) * 0xD6E8FEB86659FD93ULL, std::memory_order_relaxed);
    };
    const auto pieces = [&](std::size_t worker) {
      this->for_each_piece(worker, [&](std::uint64_t offset, std::uint64_t length) {
        if (!live || watching()) add(offset, length);
      });
    };
    P::parallel(this->threads_, pieces);
    return sum.load(std::memory_order_relaxed);
  }

 private:
  enum class Phase : std::uint8_t {
    none,
    watching,  // the next store voids the seal under way
    set,       // the header says sealed; the next store makes it dirty first
  };
  static constexpr int kAttempts = 4;
  static constexpr unsigned kPatience = 100'000;               // pauses, for readers that stay
  static constexpr std::uint64_t kPatienceNs = 1'000'000'000;  // for background work

  bool watching() const { return seal_.load(std::memory_order_acquire) == Phase::watching; }
  // Persist point: the dirty header, before the store that the caller is about to make.
  void before_store() noexcept override {
    if (this->header_writer_.load(std::memory_order_relaxed) == P::thread_slot()) return;
    LatchGuard guard(latch_);
    unseal();
  }
  // Returns whether no thread stores any more. Fails if a sweep has found damage (pool.W1), at the
  // latest during the wait: then nothing may vouch for the pool.
  Expected<bool> begin_seal() {
    const bool quiet = come_to_rest();
    const BackgroundHold<P> hold(background_);
    if (const Status& s = this->sweep_.failure(); !s.ok()) return fail(Status(s));
    return quiet;
  }
  // Gives up on work that mutations keep waking.
  [[gnu::noinline]] bool come_to_rest() {
    const std::uint64_t deadline = P::now_ns() + kPatienceNs;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      // Work that is left to do stores; so does reclamation, which this thread does itself.
      for (unsigned spins = 0; spins < kPatience && !background_.at_rest(); ++spins) {
        if (P::now_ns() > deadline) return false;
        if (!background_.run_some()) P::pause(spins);
      }
      this->epochs_.drain_all();
      {
        LatchGuard guard(latch_);
        unseal();
        seal_.store(Phase::watching, std::memory_order_seq_cst);
        platform_.watch_stores(this);
      }
      if (background_.at_rest() && quiesce()) return true;
    }
    return false;
  }
  // Returns true when every thread that was in an epoch guard has left it. Waits a while for
  // readers that stay.
  bool quiesce() {
    const std::uint64_t from = this->epochs_.epoch();
    for (unsigned spins = 0; this->epochs_.epoch() < from + 2; ++spins) {
      if (!watching() || spins > kPatience) return false;
      this->epochs_.drain_all();
      P::pause(spins);
    }
    return watching();
  }
  [[gnu::noinline]] Status end_seal(std::uint64_t content) {
    LatchGuard guard(latch_);
    if (!open_ || !watching()) return {};
    PERDURE_ASSERT(P, "pool.S1", platform_.persisted(storage_.base(), header_.file_bytes));
    header_.close_state = layout::CloseState::sealed;
    header_.directory_crc = this->directory_crc();
    header_.seal = content;
    header_.weakest = header_.mode;  // everything older is on the medium
    Status s = this->write_headers("pool.seal.second_copy"_site);
    seal_.store(Phase::set, std::memory_order_release);
    if (!s.ok()) unseal();  // one copy may say sealed already
    return s;
  }

  typename P::template Atomic<Phase> seal_{Phase::none};
};

}  // namespace perdure::format
