// Recovery: PoolCore's phases of an opening (pool/opening.h), and the write-back after a kill (X1).
// Responsible for pool.I4 at open.
#pragma once

#include <algorithm>

#include "format/batch_log.h"

namespace perdure {

// What an opening needs to know of its pool and its owner.
struct OpenRequest {
  layout::Identity identity{};
  Durability mode = Durability::process;
  bool accept_untrusted = false;
  bool allow_damage = false;  // of the root directory and of a batch: check() reports it
  // A log vouches for the content: no power failure has taken a part of it.
  bool logged = false;
  bool write_back_by_sync = false;  // page media: one sync instead of a write-back per line
  bool serve = true;                // false: nothing goes on in the background
  // Whether a map restarts at once: it settles what its results rest on (AfterKill). If all maps
  // do, the write-back after a kill goes on in the background. Null: no map does.
  bool (*at_once)(const layout::Root& root) = nullptr;
  std::uint32_t threads = 1;  // for passes over the whole content, during the opening and later
  const char* path = "FILE";  // for the commands that a message names
};

struct OpenReport {
  bool was_clean = false;
  bool was_synced = false;
  bool trusted = true;
  const char* distrust = nullptr;  // why not
  bool at_once = false;            // there are maps, and all of them restart at once
  bool directory_damaged = false;
  bool batch_damaged = false;  // a batch was committed, and may be done in part
};

}  // namespace perdure

namespace perdure::format {

template <Platform P>
class Recovery : public BatchLog<P> {
  using Base = BatchLog<P>;

 public:
  using Base::Base;

  [[gnu::noinline]] Status open(const OpenRequest& request, OpenReport& report) {
    if (Status s = examine(request, report); !s.ok()) return s;
    if (platform_.durable() && !report.was_synced && P::runs("pool.open.write_back"_site)) {
      if (Status s = write_back(request, report); !s.ok()) return s;
    } else {
      report.at_once = all_at_once(request);
    }
    // Entering `power` over stores that no flush followed: the whole file goes back first.
    const auto weakest = static_cast<Durability>(header_.weakest);
    if (request.mode == Durability::power && weakest != Durability::power && !report.was_synced &&
        P::runs("pool.open.sync"_site)) {
      if (Status s = this->sync_storage(0, header_.file_bytes); !s.ok()) return s;
    }
    const bool all_durable = report.was_synced || request.mode == Durability::power;
    header_.mode = static_cast<std::uint32_t>(request.mode);
    if (request.mode == Durability::buffered) header_.incompatible |= layout::kBuffered;
    header_.close_state = layout::CloseState::dirty;
    // An untrusted pool keeps its old identity and weakest mode: it stays untrusted if its check
    // fails.
    if (report.trusted) {
      header_.identity = request.identity;
      if (all_durable || weakest == Durability::power) header_.weakest = header_.mode;
    }
    // A clean pool is not written before its maps have recovered.
    return report.was_clean ? Status() : begin_stores();
  }
  // `whole`: every map could be enumerated, or marks while it serves.
  [[gnu::noinline]] Status complete(bool whole) {
    if (Status s = begin_stores(); !s.ok()) return s;
    if (batch_ != 0) {  // the log names it, and no map
      // The reader of the record reports a damaged one.
      Status s = heap_.mark_serving(batch_, "pool.batch.mark"_site);
      if (!s.ok() && s != StatusCode::corruption) return s;
    }
    if (!sweep_.has_maps() && after_kill_.done()) return heap_.end_sweep(whole);
    sweep_.begin(whole);
    return {};
  }
  // An untrusted pool has passed its check: from now on it counts as this file of this boot.
  [[gnu::noinline]] Status accept(const layout::Identity& identity) {
    if (Status s = this->sync_storage(0, header_.file_bytes); !s.ok()) return s;
    LatchGuard guard(this->latch_);
    header_.identity = identity;
    header_.weakest = header_.mode;
    return this->write_header(true);
  }
  void serve() { sweep_.serve(); }
  // The record of the batch that the last process has left undone, or 0.
  std::uint64_t batch_left() const { return batch_; }

 protected:
  using Base::after_kill_, Base::header_, Base::heap_, Base::open_, Base::platform_, Base::storage_,
      Base::sweep_, Base::threads_;

  // Reads header, root directory and extent table, stores nothing, and refuses the pool. If all
  // maps restart at once, the table is read later.
  Status examine(const OpenRequest& request, OpenReport& report) {
    int copy = 0;
    if (Status s = this->read_counting(header_, &copy); !s.ok()) return s;
    this->next_copy_ = copy ^ 1;
    threads_ = std::max(request.threads, 1U);
    const bool sealed = header_.close_state == layout::CloseState::sealed;
    report.was_clean = !sealed && header_.close_state != layout::CloseState::dirty;
    report.was_synced = header_.close_state >= layout::CloseState::synced;
    if (const char* reason = request.logged ? nullptr : distrust(header_, request.identity);
        !matches<P>(reason == nullptr, "pool.open.trust"_site)) {
      report.trusted = false;
      report.distrust = reason;
      if (!request.accept_untrusted) return refuse_untrusted(reason, request.path);
    }
    if (header_.close_state != layout::CloseState::dirty &&
        !matches<P>(header_.directory_crc == this->directory_crc(), "pool.directory.crc"_site)) {
      report.directory_damaged = true;
      if (!request.allow_damage) {
        return Status::format(
            StatusCode::corruption,
            "the root directory is damaged, so a map may be missing; restore a copy");
      }
    }
    if (header_.close_state == layout::CloseState::dirty) {
      auto batch = this->committed_batch();
      if (!batch && !request.allow_damage) return std::move(batch.error());
      report.batch_damaged = !batch;
      batch_ = batch.value_or(0);
    }
    const std::uint64_t extents = this->extents_in(header_.file_bytes);
    if (Status s = heap_.attach(geometry_of(header_), extents, *this); !s.ok()) return s;
    const bool is_sealed_copy = sealed && !request.logged && is_copy(header_, request.identity);
    if (Status s = read_table(request, report, is_sealed_copy); !s.ok()) return s;
    if (is_sealed_copy &&
        !matches<P>(this->content_checksum(false) == header_.seal, "pool.seal.crc"_site)) {
      report.trusted = report.was_synced = false;
      report.distrust =
          "the file is a copy that was still being made when the pool was changed again";
      if (!request.accept_untrusted) return refuse_untrusted(report.distrust, request.path);
    }
    return {};
  }

 private:
  // Not later if the opening itself reads or verifies everything.
  Status read_table(const OpenRequest& request, const OpenReport& report, bool reads_all) {
    const bool settles = platform_.durable() && !report.was_synced;
    if (reads_all || !report.trusted || !all_at_once(request) ||
        (settles && request.write_back_by_sync)) {
      return heap_.begin_sweep();
    }
    return heap_.begin_sweep_unread(settles);
  }
  // X1, as page media and the maps allow it. If no map reads before it settles, only what the pool
  // itself rests on comes first.
  [[gnu::noinline]] Status write_back(const OpenRequest& request, OpenReport& report) {
    if (request.write_back_by_sync) return this->sync_storage(0, header_.file_bytes);
    report.at_once = report.trusted && all_at_once(request);
    if (!report.at_once) return write_back_all() ? Status() : StatusCode::poisoned;
    platform_.flush(storage_.base(),
                    layout::kDirectoryOffset + header_.root_slots * sizeof(layout::Root),
                    "pool.settle.directory"_site);
    if (!platform_.fence("pool.settle.directory"_site)) return StatusCode::poisoned;
    return after_kill_.begin();
  }
  // X1: after a kill the stores of the dead process are visible but not durable, and recovery must
  // not act on content that a power loss would remove. Each worker fences what it wrote back: a
  // fence waits for its own thread's write-backs only.
  bool write_back_all() {
    typename P::template Atomic<bool> durable{true};
    const auto share = [&](std::size_t worker) {
      if (worker == 0) {
        platform_.flush(storage_.base(), layout::kDirectoryOffset, "pool.open.write_back"_site);
      }
      this->for_each_piece(worker, [&](std::uint64_t offset, std::uint64_t length) {
        platform_.flush(storage_.base() + offset, length, "pool.open.write_back"_site);
      });
      if (!platform_.fence("pool.open.write_back"_site)) {
        durable.store(false, std::memory_order_relaxed);
      }
    };
    P::parallel(threads_, share);
    return durable.load(std::memory_order_relaxed);
  }
  [[gnu::noinline]] bool all_at_once(const OpenRequest& request) const {
    bool any = false;
    for (std::uint32_t slot = 0; request.at_once != nullptr && slot < header_.root_slots; ++slot) {
      layout::Root root;
      const auto used = this->read_root(slot, root);
      if (!used || (*used && !request.at_once(root))) return false;
      any = any || *used;
    }
    return any;
  }
  // The pool may be stored to afterwards: the header says dirty (pool.I4).
  Status begin_stores() {
    if (open_) return {};
    if (batch_ == 0) this->forget_batch();  // pool.L3
    Status s = this->write_dirty();
    open_ = s.ok();
    return s;
  }

  std::uint64_t batch_ = 0;
};

}  // namespace perdure::format
