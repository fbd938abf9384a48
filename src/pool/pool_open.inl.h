// PoolCore: open, the write-back after a kill, check and close. Included by pool_core.h only.
#pragma once

#include "pool/pool_core.h"

namespace perdure {

// X1: after a kill the stores of the dead process are visible but not durable, and recovery must
// not act on what a power loss would take away. Each worker fences what it wrote back: a fence
// waits for its own thread's write-backs only.
template <Platform P>
bool PoolCore<P>::write_back_all() noexcept {
  typename P::template Atomic<bool> durable{true};
  const auto share = [&](std::size_t worker) {
    if (worker == 0) {
      platform_.flush(storage_.base(), layout::kDirectoryOffset, "pool.open.write_back"_site);
    }
    for_each_piece(worker, [&](std::uint64_t offset, std::uint64_t length) {
      platform_.flush(storage_.base() + offset, length, "pool.open.write_back"_site);
    });
    if (!platform_.fence("pool.open.write_back"_site)) {
      durable.store(false, std::memory_order_relaxed);
    }
  };
  P::parallel(threads_, share);
  return durable.load(std::memory_order_relaxed);
}

// X1 in the way that page media and the maps allow. Where no map reads before it settles, only what
// the pool itself rests on comes first.
template <Platform P>
Status PoolCore<P>::write_back(const OpenRequest& request, OpenReport& report) noexcept {
  if (request.write_back_by_sync) {
    return sync_storage(0, header_.file_bytes);
  }
  report.at_once = report.trusted && all_at_once(request);
  if (!report.at_once) {
    return write_back_all() ? Status() : StatusCode::poisoned;
  }
  platform_.flush(storage_.base(),
                  layout::kDirectoryOffset + header_.root_slots * sizeof(layout::Root),
                  "pool.settle.directory"_site);
  platform_.flush(storage_.base() + header_.table_offset, extents_in(header_.file_bytes) * 8,
                  "pool.settle.table"_site);
  if (!platform_.fence("pool.settle.table"_site)) return StatusCode::poisoned;
  return after_kill_.begin();
}

template <Platform P>
bool PoolCore<P>::all_at_once(const OpenRequest& request) const noexcept {
  bool any = false;
  for (std::uint32_t slot = 0; request.at_once != nullptr && slot < header_.root_slots; ++slot) {
    layout::Root root;
    const auto used = read_root(slot, root);
    if (!used || (*used && !request.at_once(root))) return false;
    any = any || *used;
  }
  return any;
}

template <Platform P>
Status PoolCore<P>::refuse(const char* reason) const noexcept {
  return Status::format(StatusCode::untrusted,
                        "%s; restore a copy, or run `perdure check --accept` to verify what is "
                        "there and serve it",
                        reason);
}

template <Platform P>
Status PoolCore<P>::open(const OpenRequest& request, OpenReport& report) noexcept {
  int copy = 0;
  if (Status s = read_header(storage_.base(), storage_.size(), header_, &copy,
                             P::verifies("pool.header.crc"_site));
      !s.ok()) {
    return s;
  }
  next_copy_ = copy ^ 1;
  threads_ = std::max(request.threads, 1U);
  const bool sealed = header_.close_state == layout::CloseState::sealed;
  report.was_clean = !sealed && header_.close_state != layout::CloseState::dirty;
  report.was_synced = header_.close_state >= layout::CloseState::synced;
  if (const char* reason = distrust(header_, request.identity);
      reason != nullptr && P::verifies("pool.open.trust"_site)) {
    report.trusted = false;
    report.distrust = reason;
    if (!request.accept_untrusted) return refuse(reason);
  }
  if (header_.close_state != layout::CloseState::dirty && P::verifies("pool.directory.crc"_site) &&
      header_.directory_crc != directory_crc()) {
    report.directory_damaged = true;
    if (!request.allow_damage)
      return Status::format(
          StatusCode::corruption,
          "the root directory is damaged, so a map may be missing; restore a copy");
  }
  const HeapGeometry geometry{
      .extent_bytes = header_.extent_bytes,
      .table_offset = header_.table_offset,
      .data_offset = header_.data_offset,
      .max_extents = (header_.max_bytes - header_.data_offset) / header_.extent_bytes};
  if (Status s = heap_.attach(geometry, extents_in(header_.file_bytes), *this); !s.ok()) return s;
  if (Status s = heap_.begin_sweep(); !s.ok()) return s;
  if (sealed && is_copy(header_, request.identity) && P::verifies("pool.seal.crc"_site) &&
      content_checksum(false) != header_.seal) {
    report.trusted = report.was_synced = false;
    report.distrust =
        "the file is a copy that was still being made when the pool was changed again";
    if (!request.accept_untrusted) return refuse(report.distrust);
  }
  if (platform_.durable() && !report.was_synced && P::runs("pool.open.write_back"_site)) {
    if (Status s = write_back(request, report); !s.ok()) return s;
  } else {
    report.at_once = all_at_once(request);
  }
  // Entering `power` over stores that no flush followed: the whole file goes back first.
  const auto weakest = static_cast<Durability>(header_.weakest);
  if (request.mode == Durability::power && weakest != Durability::power && !report.was_synced &&
      P::runs("pool.open.sync"_site)) {
    if (Status s = sync_storage(0, header_.file_bytes); !s.ok()) return s;
  }
  const bool all_durable = report.was_synced || request.mode == Durability::power;
  header_.mode = static_cast<std::uint32_t>(request.mode);
  header_.close_state = layout::CloseState::dirty;
  // An untrusted pool keeps its old identity and weakest mode, so that it stays untrusted if its
  // check fails.
  if (report.trusted) {
    header_.identity = request.identity;
    if (all_durable || weakest == Durability::power) header_.weakest = header_.mode;
  }
  if (report.was_clean) return {};
  open_ = true;
  return write_dirty();
}

template <Platform P>
Status PoolCore<P>::begin_serving() noexcept {
  if (open_) return {};
  if (Status s = write_dirty(); !s.ok()) return s;
  open_ = true;
  return {};
}

template <Platform P>
Status PoolCore<P>::finish_open(bool complete) noexcept {
  if (Status s = begin_serving(); !s.ok()) return s;
  if (!sweep_.has_maps() && after_kill_.done()) return heap_.end_sweep(complete);
  sweep_.begin(complete);
  return {};
}

template <Platform P>
Status PoolCore<P>::accept(const layout::Identity& identity) noexcept {
  if (Status s = sync_storage(0, header_.file_bytes); !s.ok()) return s;
  LatchGuard guard(latch_);
  header_.identity = identity;
  header_.weakest = header_.mode;
  return write_header(true);
}

template <Platform P>
template <class F>
void PoolCore<P>::verify(F&& bad) noexcept {
  {
    LatchGuard guard(latch_);
    layout::Header found;
    const Status s = read_header(storage_.base(), storage_.size(), found, nullptr,
                                 P::verifies("pool.header.crc"_site));
    if (!s.ok() || found.sequence != header_.sequence) bad("the header in force is damaged");
    layout::Root root;
    for (std::uint32_t slot = 0; slot < header_.root_slots; ++slot) {
      if (!read_root(slot, root)) bad("a line of the root directory is damaged");
    }
  }
  heap_.verify_table(bad);
}

template <Platform P>
Status PoolCore<P>::close(bool sync) noexcept {
  if (!open_) return {};
  epochs_.drain_all();
  if (!after_kill_.settle_all()) return StatusCode::poisoned;
  if (!platform_.fence("pool.close.data"_site)) return StatusCode::poisoned;
  LatchGuard guard(latch_);
  unseal();
  if (sync) {
    if (Status s = sync_storage(0, header_.file_bytes); !s.ok()) return s;
  }
  header_.directory_crc = directory_crc();
  header_.close_state = sync ? layout::CloseState::synced : layout::CloseState::clean;
  if (sync) header_.weakest = static_cast<std::uint32_t>(Durability::power);
  Status s = write_headers("pool.close.second_copy"_site);
  if (s.ok()) open_ = false;
  return s;
}

}  // namespace perdure
