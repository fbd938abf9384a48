// The lowest layer of PoolCore: its parts, and the writes of its header. Responsible for pool.I1,
// and for the write of the dirty header (pool.I4).
#pragma once

#include <algorithm>
#include <cstdint>

#include "background/background.h"
#include "format/after_kill.h"
#include "format/header.h"
#include "format/open_sweep.h"
#include "heap/heap.h"

namespace perdure::format {

template <Platform P>
class State : public HeapHost {
 public:
  State(P& platform, Storage& storage)
      : platform_(platform),
        storage_(storage),
        epochs_(platform),
        heap_(platform, storage, epochs_),
        after_kill_(platform, heap_),
        sweep_(heap_, after_kill_, background_) {}

  // --- HeapHost ---
  void space_freed() final { background_.space_freed(); }
  bool help_sweep() final { return sweep_.help(); }

  P& platform() { return platform_; }
  Storage& storage() { return storage_; }
  EpochDomain<P>& epochs() { return epochs_; }
  const Gate<P>& gate() const { return epochs_.gate(); }
  Heap<P>& heap() { return heap_; }
  Background<P>& background() { return background_; }
  OpenSweep<P>& sweep() { return sweep_; }
  AfterKill<P>& after_kill() { return after_kill_; }
  std::uint32_t root_slots() const { return header_.root_slots; }
  // A copy: growth changes the header.
  layout::Header header() const {
    LatchGuard guard(latch_);
    return header_;
  }

 protected:
  std::uint64_t extents_in(std::uint64_t bytes) const {
    return (bytes - header_.data_offset) / header_.extent_bytes;
  }
  Status read_counting(layout::Header& out, int* copy) const {
    return read_header(storage_.base(), storage_.size(), out, copy,
                       P::verifies("pool.header.crc"_site));
  }
  // For assertions, with the latch held: the pool may be stored to.
  bool is_dirty() const {
    return open_ && header_.close_state == layout::CloseState::dirty &&
           platform_.persisted(storage_.base(), layout::kDirectoryOffset);
  }
  // A failed write-back leaves pages that the system calls clean. Nothing may be acknowledged after
  // it.
  [[gnu::noinline]] Status sync_storage(std::uint64_t offset, std::uint64_t length) {
    Status s = storage_.sync(offset, length);
    if (!s.ok()) platform_.poison();
    return s;
  }
  // `sync`: durable against power loss in every mode; otherwise in the modes that promise it.
  [[gnu::noinline]] Status write_header(bool sync) {
    PERDURE_ASSERT(P, "pool.I1",
                   platform_.persisted(storage_.base() + (next_copy_ ^ 1) * layout::kHeaderBytes,
                                       sizeof(header_)));
    ++header_.sequence;
    header_.crc = header_crc(header_);
    std::byte* copy =
        storage_.base() + static_cast<std::uint64_t>(next_copy_) * layout::kHeaderBytes;
    header_writer_.store(P::thread_slot(), std::memory_order_relaxed);
    platform_.copy(copy, &header_, sizeof(header_));
    header_writer_.store(~0U, std::memory_order_relaxed);
    if ((sync || platform_.durable()) &&
        !platform_.sync(copy, sizeof(header_), "pool.header.write"_site)) {
      return StatusCode::poisoned;
    }
    next_copy_ ^= 1;
    return {};
  }
  // Writes both copies: the loss of either then changes nothing that the header says. `sync` as in
  // write_header().
  template <FixedString Second>
  Status write_headers(Site<Second> second, bool sync = true) {
    Status s = write_header(sync);
    return s.ok() && P::runs(second) ? write_header(sync) : s;
  }
  // Writes the dirty header to both copies: a later header that tears must not revive one that says
  // `synced`. What a killed process left visible but not durable is made durable before either copy
  // is overwritten.
  [[gnu::noinline]] Status write_dirty() {
    if (!P::runs("pool.open.dirty"_site)) return {};
    if (!platform_.sync(storage_.base(), 2 * layout::kHeaderBytes, "pool.open.headers"_site)) {
      return StatusCode::poisoned;
    }
    return write_headers("pool.open.second_copy"_site);
  }
  // Over all lines of the root directory: a line whose commit word is lost looks free.
  static std::uint64_t directory_crc(const P& platform, const std::byte* base,
                                     std::uint32_t slots) {
    std::uint32_t crc = 0;
    const auto* words = reinterpret_cast<const std::uint64_t*>(base + layout::kDirectoryOffset);
    for (std::uint64_t w = 0; w < slots * sizeof(layout::Root) / 8; ++w) {
      const std::uint64_t word = platform.load(words[w]);
      crc = crc32c(crc, &word, sizeof(word));
    }
    return crc;
  }
  std::uint64_t directory_crc() const {
    return directory_crc(platform_, storage_.base(), header_.root_slots);
  }
  // This worker's share of all content: visit(offset, bytes).
  template <class F>
  void for_each_piece(std::size_t worker, F&& visit) {
    constexpr std::uint64_t kPiece = 1_MiB;
    std::uint64_t number = 0;
    const auto range = [&](std::uint64_t offset, std::uint64_t length) {
      for (std::uint64_t at = 0; at < length; at += kPiece, ++number) {
        if (number % threads_ == worker) visit(offset + at, std::min(kPiece, length - at));
      }
    };
    range(layout::kDirectoryOffset, std::uint64_t{header_.root_slots} * sizeof(layout::Root));
    const layout::Header now = header();
    geometry_of(now).for_each_table(0, extents_in(now.file_bytes),
                                    [&](std::uint64_t /*extent*/, std::uint64_t offset,
                                        std::uint64_t words) { range(offset, words * 8); });
    heap_.for_each_assigned([&](const std::byte* p, std::uint64_t n) {
      range(static_cast<std::uint64_t>(p - storage_.base()), n);
    });
  }

  P& platform_;
  Storage& storage_;
  EpochDomain<P> epochs_;
  Heap<P> heap_;
  Background<P> background_;
  AfterKill<P> after_kill_;
  OpenSweep<P> sweep_;
  layout::Header header_{};
  std::uint32_t threads_ = 1;
  int next_copy_ = 0;  // where the next header goes: never over the counting one
  bool open_ = false;
  bool abandoned_ = false;
  // The thread that writes a header: before_store() ignores that store.
  typename P::template Atomic<std::uint32_t> header_writer_{~0U};
  mutable typename P::Latch latch_;
};

}  // namespace perdure::format
