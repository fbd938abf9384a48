// The opening of a pool: one sequence of phases, for PoolImpl, the simulator and the torture.
//
// Before it, the pool's owner has opened, locked and mapped the file. The phases, in their order:
//
// open      by PoolCore
//   reads     header, root directory; extent table, unless all maps restart at once (heap/table.h)
//   stores    the dirty header, and what a killed process left (X1); nothing if the pool was closed
//             properly
//   durable   the stores of a killed process, or AfterKill has them pending; both header copies
//   crash     as before the opening; a pool that was closed properly is still closed properly
//   refuses   a damaged, foreign or untrusted pool; a failed write-back
// recover   by each map
//   reads     what it reaches, and marks that in the heap; or mark_some() will (OpenSweep)
//   stores    repairs of what a crash left, only if the pool was not closed properly
//   durable   the repairs, by the map's own fences
//   crash     as in open; the next opening repairs again
//   refuses   a damaged map, unless the owner only reads; a damaged record of a batch, or a block
//             that it names
// complete  by PoolCore, then each map. Before, the blocks that a batch has left are marked
//   stores    PoolCore the dirty header if open has not; a map what recover() found missing. The
//             heap's sweep ends, or OpenSweep will end it
//   durable   the dirty header, before any other store
//   crash     the pool is dirty: the next opening recovers it
//   refuses   a failed write-back
// replay    by Batch (batch.h), if a batch was committed and not done
//   reads     its record, and the keys and blocks that it names
//   stores    the mutations that are left; then the word of the batch is 0
//   durable   these, in this order
//   crash     as in complete; the next opening does what is left
//   refuses   a damaged record; a map that cannot be read; a failed write-back
// accept    by the owner, of an untrusted pool also by PoolCore::accept
//   reads     everything, if the pool is untrusted: it is checked
//   stores    of an untrusted pool that passed: a header with this file's and boot's identity
//   durable   that header; before it all content
//   crash     the pool is dirty, and untrusted until that header is durable
//   refuses   a violation that the check found
// serve     by PoolCore, then each map; not if the owner only reads
//   stores    nothing: adds the rest of the sweep, and the maps' own work, to the background
//   refuses   nothing
//
// A pool that a phase has refused is not closed: the file stays as a crash would leave it.
#pragma once

#include "pool/batch.h"

namespace perdure {

// The maps of a pool that is being opened, and its owner's decisions.
class PoolMaps {
 public:
  virtual ~PoolMaps() = default;
  // Opens and recovers every map. Adds a map whose recovery returned Recovered::marking to the
  // pool's sweep. Sets `whole` to false if a map could not be enumerated: nothing may be freed.
  virtual Status recover(const OpenReport& report, bool& whole) = 0;
  // EngineInstance::complete() of every map.
  virtual Status complete() = 0;
  // The open map with this slot and root, or null.
  virtual EngineInstance* map_at(std::uint32_t slot, std::uint64_t root) {
    (void)slot, (void)root;
    return nullptr;
  }
  // The last phase that may refuse the pool.
  virtual Status accept(const OpenReport& /*report*/) { return {}; }
  // EngineInstance::start() of every map.
  virtual void serve() = 0;
};

// The sweep ends first: the batch needs the free blocks. `whole`: every map could be enumerated. A
// reader's stores stay in its memory.
template <Platform P>
Status replay_batch(PoolCore<P>& core, PoolMaps& maps, bool whole) {
  const std::uint64_t record = core.batch_left();
  if (record == 0 || !P::runs("pool.batch.replay"_site)) return {};
  if (Status s = core.heap().read_table(); !s.ok()) return s;
  Status swept = core.sweep().finish() ? Status() : Status(StatusCode::corruption);
  if (!core.sweep().failure().ok()) swept = core.sweep().failure();  // also of one map alone
  if (whole && !swept.ok() && swept != StatusCode::corruption) return swept;
  if (!whole || !swept.ok()) {
    return Status::format(StatusCode::corruption,
                          "the last process ended within a batch, which cannot be finished because "
                          "a map cannot be read; restore a copy, or use a build that has the "
                          "engine of that map");
  }
  return Batch<P>(core).redo(
      record, [&](std::uint32_t slot, std::uint64_t root) { return maps.map_at(slot, root); });
}

template <Platform P>
Status open_pool(PoolCore<P>& core, const OpenRequest& request, OpenReport& report,
                 PoolMaps& maps) {
  if (Status s = core.open(request, report); !s.ok()) return s;
  bool whole = true;
  if (Status s = maps.recover(report, whole); !s.ok()) return s;
  if (const std::uint64_t record = core.batch_left(); record != 0) {
    // The sweep may give up the extents of blocks that are not marked.
    Status s = Batch<P>::mark_blocks(core, record);
    report.batch_damaged = report.batch_damaged || s == StatusCode::corruption;
    if (!s.ok() && !(report.batch_damaged && request.allow_damage)) return s;
  }
  if (Status s = core.complete(whole); !s.ok()) return s;
  if (Status s = maps.complete(); !s.ok()) return s;
  if (Status s = replay_batch(core, maps, whole); !s.ok()) {
    report.batch_damaged = s == StatusCode::corruption;
    if (!report.batch_damaged || !request.allow_damage) return s;
  }
  if (Status s = maps.accept(report); !s.ok()) return s;
  if (!request.serve) return {};
  core.serve();
  maps.serve();
  return {};
}

}  // namespace perdure
