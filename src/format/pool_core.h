// PoolCore: the format of a pool over a Storage: headers, root directory, growth, trust, close.
//
// WHAT  Everything of a pool that must survive a crash. It asks the operating system for nothing:
//   files, locks and media belong to FileStorage and PoolImpl. The crash explorer runs this very
//   code.
// LAYOUT  layout.h.
// INVARIANTS
//   pool.I1  (after any crash) at least one header copy is valid; the valid one with the higher
//       sequence counts. Copies are written in turn, each durable before the other may be touched.
//   pool.I2  (after any crash) file_bytes of the counting header <= bytes the medium backs; extents
//       beyond it are virgin. No extent is used before both copies count it.
//   pool.I3  A root line is valid iff `root` is non-zero; it is stored last into its line
//       (same-line order).
//   pool.I4  The header says `dirty`, durably and in every mode, before the first mutation of an
//       open, and again before the first store after it said `sealed`. `sealed` is written when all
//       content is durable.
// OPERATIONS
//   create      everything but copy A, fence, then copy A: the file is a pool from its last fence
//               on (G10).
//   open, complete, accept, serve
//               the phases of an opening; the table in pool/opening.h. A pool that was closed
//               properly is not written before its maps have recovered: one found damaged stays
//               clean, and its checksums count at the next open too.
//   grow        space, then table words (virgin: zero already; else claim_words()), then the
//               header's file_bytes, both copies. The space of the next growth is allocated in the
//               background (growth_ahead.h).
//   add_root    line without `root`, then `root`: one line, 1 write-back, 1 fence.
//   drop_root   root := 0, then the rest of the line: one line, 1 write-back, 1 fence.
//   resize      of a pool that is not open: the header's max_bytes and tables, both copies
//               (resize.h).
//   close       data fenced -> storage synced -> header clean|synced, both copies: the loss of one
//               of them takes nothing from the checksums of the other's content.
//   sync        data fenced -> storage synced; if nothing was stored meanwhile -> header sealed,
//               both copies. The next store of any thread: dirty header, both copies, durable ->
//               the store.
// RECOVERY  a torn header copy loses to the other one; an unfinished grow leaves a longer file; an
//   unfinished add_root leaves a free slot; blocks of a half-made or dropped map are swept.
// PROGRESS  blocking; one latch for headers and roots.
// LAYERS  state.h, seal.h, roots.h, growth.h, batch_log.h, recovery.h, resize.h, and here create
//   and close.
#pragma once

#include <algorithm>
#include <cstring>

#include "format/resize.h"

namespace perdure {

template <Platform P>
class PoolCore final : public format::Resize<P> {
  using Base = format::Resize<P>;

 public:
  using Base::Base;
  ~PoolCore() override {
    background_.stop();
    if (!abandoned_) epochs_.drain_all();
  }
  // A child of fork has inherited this object, not the pool: it must not touch the pool any more.
  void abandon() {
    abandoned_ = true;
    background_.abandon();
  }

  // Formats an empty storage. A crash before the end leaves a file that is not a pool.
  static Status create(P& platform, Storage& storage, const PoolShape& shape,
                       const layout::Identity& identity, const std::uint8_t (&uuid)[16],
                       Durability mode) {
    layout::Header header{};
    if (Status s = shape_header(shape, header); !s.ok()) return s;
    std::memcpy(header.uuid, uuid, sizeof(uuid));
    header.identity = identity;
    header.mode = header.weakest = static_cast<std::uint32_t>(mode);
    if (mode == Durability::buffered) header.incompatible |= layout::kBuffered;
    header.close_state = layout::CloseState::synced;
    header.sequence = 1;
    const std::uint64_t extents =
        std::min(std::max<std::uint64_t>(shape.initial_extents, 1),
                 (header.max_bytes - header.data_offset) / header.extent_bytes);
    header.file_bytes = header.data_offset + extents * header.extent_bytes;
    // The directory and the used part of the extent table; growth backs the rest of the table.
    const std::uint64_t table_end = align_up(header.table_offset + extents * 8, kPage);
    if (Status s = storage.allocate(0, table_end); !s.ok()) return s;
    if (Status s = storage.allocate(header.data_offset, extents * header.extent_bytes); !s.ok()) {
      return s;
    }
    std::byte* base = storage.base();
    platform.zero(base + layout::kDirectoryOffset, table_end - layout::kDirectoryOffset);
    platform.zero(base, layout::kDirectoryOffset);
    if (Status s = storage.sync(0, header.file_bytes); !s.ok()) return s;
    header.directory_crc = Base::directory_crc(platform, base, header.root_slots);
    // Commit: the magic is in this copy and nowhere else.
    header.crc = header_crc(header);
    platform.copy(base, &header, sizeof(header));
    if (!platform.sync(base, sizeof(header), "pool.create.header"_site)) {
      return StatusCode::poisoned;
    }
    return {};
  }
  // The caller has stopped background work and closed its maps. Idempotent.
  [[gnu::noinline]] Status close(bool sync) {
    if (!open_) return {};
    epochs_.drain_all();
    // The header does not vouch for a pool whose table is damaged.
    if (Status s = heap_.read_table(); !s.ok()) return s;
    if (!this->after_kill_.settle_all()) return StatusCode::poisoned;
    if (!this->platform_.fence("pool.close.data"_site)) return StatusCode::poisoned;
    LatchGuard guard(latch_);
    this->unseal();
    if (sync) {
      if (Status s = this->sync_storage(0, header_.file_bytes); !s.ok()) return s;
    }
    header_.directory_crc = this->directory_crc();
    header_.close_state = sync ? layout::CloseState::synced : layout::CloseState::clean;
    if (sync) header_.weakest = static_cast<std::uint32_t>(Durability::power);
    Status s = this->write_headers("pool.close.second_copy"_site);
    if (s.ok()) open_ = false;
    return s;
  }
  // Compares headers, root directory and extent table with their checksums and with DRAM. Calls
  // bad(what) for each thing that is wrong.
  template <class F>
  void verify(F&& bad) {
    {
      LatchGuard guard(latch_);
      layout::Header found;
      const Status s = this->read_counting(found, nullptr);
      if (!s.ok() || found.sequence != header_.sequence) bad("the header in force is damaged");
      layout::Root root;
      for (std::uint32_t slot = 0; slot < header_.root_slots; ++slot) {
        if (!this->read_root(slot, root)) bad("a line of the root directory is damaged");
      }
    }
    heap_.verify_table(bad);
  }

 private:
  using Base::abandoned_, Base::background_, Base::epochs_, Base::header_, Base::heap_,
      Base::latch_, Base::open_;
};

}  // namespace perdure
