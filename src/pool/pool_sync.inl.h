// PoolCore: sync of a live pool, and the seal that makes a copy of one trusted. Included by
// pool_core.h only. docs/decisions/0007-sealed-pools.md argues it.
//
// A sealed header says: all content is durable and nobody has stored since. It may be written only
// if that is true, and must be gone, durably, before it is not:
//   pool.S1  From begin_seal() on every store of anybody passes before_store(). begin_seal()
//       returns when whoever was between that question and its store is gone: threads in epoch
//       guards have left them, no step of background work runs, and maps are made and dropped by
//       the caller.
//   pool.S2  before_store() of a seal under way voids it; of a set one it makes `dirty` durable in
//       both header copies, under the latch, and only then lets any store go on.
//   pool.S3  A copy of the file that is made while it is sealed has the content whose checksum is
//       in the header, or it was not made while it was sealed: then it is refused when it is
//       opened.
#pragma once

#include "pool/pool_core.h"

namespace perdure {

template <Platform P>
Status PoolCore<P>::sync() noexcept {
  {
    LatchGuard guard(latch_);
    if (seal_.load(std::memory_order_relaxed) == Seal::set) return {};
  }
  auto quiet = begin_seal();
  Status s = quiet ? Status() : std::move(quiet.error());
  if (s.ok() && !after_kill_.settle_all()) s = StatusCode::poisoned;
  if (s.ok() && !platform_.fence("pool.sync.data"_site)) s = StatusCode::poisoned;
  if (s.ok()) s = sync_storage(0, header().file_bytes);
  if (s.ok() && *quiet) s = end_seal(content_checksum(true));
  LatchGuard guard(latch_);
  if (watching()) unseal();
  return s;
}

// Answers whether nobody stores any more, or why nothing may vouch for the pool: a sweep that found
// damage (pool.W1), at the latest while it was waited for.
template <Platform P>
Expected<bool> PoolCore<P>::begin_seal() noexcept {
  const bool quiet = come_to_rest();
  const BackgroundHold<P> hold(background_);
  if (const Status& s = sweep_.failure(); !s.ok()) return fail(Status(s));
  return quiet;
}

// Work that mutations keep waking is not waited for.
template <Platform P>
bool PoolCore<P>::come_to_rest() noexcept {
  const std::uint64_t deadline = P::now_ns() + kSealPatienceNs;
  for (int attempt = 0; attempt < kSealAttempts; ++attempt) {
    // Work that is left to do stores; so does reclamation, which this thread does itself.
    for (unsigned spins = 0; spins < kPatience && !background_.at_rest(); ++spins) {
      if (P::now_ns() > deadline) return false;
      if (!background_.run_some()) P::pause(spins);
    }
    epochs_.drain_all();
    {
      LatchGuard guard(latch_);
      unseal();
      seal_.store(Seal::watching, std::memory_order_seq_cst);
      platform_.watch_stores(this);
    }
    if (background_.at_rest() && quiesce()) return true;
  }
  return false;
}

// Everybody who was in an epoch guard has left it; waits a while for readers that stay.
template <Platform P>
bool PoolCore<P>::quiesce() noexcept {
  const std::uint64_t from = epochs_.epoch();
  for (unsigned spins = 0; epochs_.epoch() < from + 2; ++spins) {
    if (!watching() || spins > kPatience) return false;
    epochs_.drain_all();
    P::pause(spins);
  }
  return watching();
}

template <Platform P>
Status PoolCore<P>::end_seal(std::uint64_t content) noexcept {
  LatchGuard guard(latch_);
  if (!open_ || !watching()) return {};
  PERDURE_ASSERT(P, "pool.S1", platform_.persisted(storage_.base(), header_.file_bytes));
  header_.close_state = layout::CloseState::sealed;
  header_.directory_crc = directory_crc();
  header_.seal = content;
  header_.weakest = header_.mode;  // everything older is on the medium
  Status s = write_headers("pool.seal.second_copy"_site);
  seal_.store(Seal::set, std::memory_order_release);
  if (!s.ok()) unseal();  // a copy may say so already
  return s;
}

// Persist point: the dirty header, before the store that the caller is about to make.
template <Platform P>
void PoolCore<P>::before_store() noexcept {
  if (header_writer_.load(std::memory_order_relaxed) == P::thread_slot()) return;
  LatchGuard guard(latch_);
  unseal();
}

template <Platform P>
void PoolCore<P>::unseal() noexcept {
  const Seal seal = seal_.load(std::memory_order_relaxed);
  if (seal == Seal::none) return;
  if (seal == Seal::set) {
    header_.close_state = layout::CloseState::dirty;
    header_.seal = 0;
    [[maybe_unused]] const std::uint64_t sequence = header_.sequence;
    // If this fails the pool is poisoned: what comes now is stored, but never acknowledged.
    [[maybe_unused]] const bool dirty = write_dirty().ok();
    PERDURE_ASSERT(P, "pool.S2", !dirty || (header_.sequence == sequence + 2 && is_dirty()));
  }
  seal_.store(Seal::none, std::memory_order_release);
  platform_.watch_stores(nullptr);
}

// Of the root directory, the words of the extent table and all assigned extents. `live`: gives up
// when somebody stores. Order-independent over pieces, so any number of threads may add them up.
template <Platform P>
std::uint64_t PoolCore<P>::content_checksum(bool live) noexcept {
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
    // Spread by place, so that exchanged pieces do not cancel out.
    const std::uint64_t place = (offset ^ length << 40) * 0x9E3779B97F4A7C15ULL;
    sum.fetch_add((place ^ crc) * 0xD6E8FEB86659FD93ULL, std::memory_order_relaxed);
  };
  const auto pieces = [&](std::size_t worker) {
    for_each_piece(worker, [&](std::uint64_t offset, std::uint64_t length) {
      if (!live || watching()) add(offset, length);
    });
  };
  P::parallel(threads_, pieces);
  return sum.load(std::memory_order_relaxed);
}

// This worker's share of everything that counts as content: visit(offset, bytes).
template <Platform P>
template <class F>
void PoolCore<P>::for_each_piece(std::size_t worker, F&& visit) noexcept {
  constexpr std::uint64_t kPiece = 1_MiB;
  std::uint64_t number = 0;
  const auto range = [&](std::uint64_t offset, std::uint64_t length) {
    for (std::uint64_t at = 0; at < length; at += kPiece, ++number) {
      if (number % threads_ == worker) visit(offset + at, std::min(kPiece, length - at));
    }
  };
  range(layout::kDirectoryOffset, std::uint64_t{header_.root_slots} * sizeof(layout::Root));
  range(header_.table_offset, extents_in(header().file_bytes) * 8);
  heap_.for_each_assigned([&](const std::byte* p, std::uint64_t n) {
    range(static_cast<std::uint64_t>(p - storage_.base()), n);
  });
}

}  // namespace perdure
