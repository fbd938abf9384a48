// EngineContext: the services that the pool gives to an engine. EngineInstance: the interface of an
// engine beyond perdure::detail::Index.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "background/background.h"
#include "format/after_kill.h"
#include "format/open_sweep.h"
#include "heap/block_needs.h"
#include "heap/heap.h"
#include "index/findings.h"
#include "index/pending_batch.h"
#include "index/tombstone.h"
#include "perdure/index.h"
#include "platform/platform.h"
#include "reclaim/epoch.h"
#include "util/log.h"

namespace perdure {

// Where a fence makes stores durable for a kill, but not for a power failure.
class Cuts {
 public:
  // Returns when everything that was stored before the call is durable for a power failure, too. It
  // may take as long as a write of a file: the caller is in no guard of its own, and holds no latch
  // that a mutation needs. Errors: those of the log.
  virtual Status make_durable() noexcept = 0;

 protected:
  ~Cuts() = default;
};

// The services of the pool. All of them outlive the engine.
template <Platform P>
struct EngineContext {
  P& platform;
  Heap<P>& heap;
  EpochDomain<P>& epochs;
  Background<P>& background;  // for work that no operation waits for; see help() there
  std::uint32_t threads = 1;  // of recovery and close
  bool read_only = false;     // mutations return read_only
  // The log, and the map's name for its messages. Both stay valid as long as the engine.
  const Log* log = &kSilent;
  const char* map = "";
  // Not null during recover() if PoolOptions::allow_damage is set. Damage that can be skipped is
  // added here. The map is then not served, and stores reach no file.
  Findings* damage = nullptr;
  // Not null while the stores of a killed process are being made durable. Null if no engine of the
  // pool restarts at once, or if everything is durable.
  AfterKill<P>* after_kill = nullptr;
  // Null if what is fenced is as durable as it will be. From start() on.
  Cuts* cuts = nullptr;

  // For engines that restart at once (EngineRow::at_once). Call it before a result or a store
  // depends on what was read in [offset, offset + n), which lies in one extent or one run. Read
  // first, then settle: either the dead process stored what was read, and it is durable now; or it
  // was stored since, and its writer fences it. Returns false if the pool is poisoned.
  [[gnu::always_inline]] bool settle(std::uint64_t offset, std::size_t n) const noexcept {
    return after_kill == nullptr || after_kill->settle(offset, n);
  }
};

// What recover() has done.
enum class Recovered : std::uint8_t {
  done,     // all: every reachable block is marked
  marking,  // a part: the map serves, and mark_some() marks the rest
};

// The kinds of keys and values of a map, fixed when it is created.
struct MapKinds {
  KeyKind key = KeyKind::bytes;
  ValueKind value = ValueKind::bytes;
  std::uint8_t key_bytes = 0;    // of integers and arrays
  std::uint8_t value_bytes = 0;  // of words and arrays

  // The kinds for an engine that stores no arrays inline: arrays are byte strings of one length.
  MapKinds without_arrays() const noexcept {
    MapKinds kinds = *this;
    if (key == KeyKind::array) kinds.key = KeyKind::bytes;
    if (value == ValueKind::array) kinds.value = ValueKind::bytes;
    return kinds;
  }
};

// The mutations of a batch for one map (pool/batch.h): puts, and erases of keys that are present.
// Their keys are distinct. The puts come first; both are sorted.
struct BatchPlan {
  std::span<const detail::Mutation> mutations;
  std::span<const bool> present;    // whether the key of mutations[i] is
  std::span<std::uint64_t> blocks;  // with the entry of mutations[i], not published; 0: none
  BlockNeeds& needs;
  bool replays = false;    // the rest of a batch, at an open: it must not write entries
  bool in_pieces = false;  // some mutations of takes_pieces(): every put gets its block now
  // In pieces, so many of the first ones may be there again: they have been planned before, and
  // take places, too.
  static constexpr std::size_t kAgain = 128;
};

// What a key of a map must be for a batch to happen.
struct BatchRequirement {
  std::uint32_t target = 0;  // the map, by its number in the batch
  std::uint32_t number = 0;  // in the batch, from 1
  bool present = false;      // with this value
  detail::Key key = {};
  detail::Value value = {};
};

// The latches of the keys of a small batch in one map (pool/latched_batch.h). The caller is pinned
// as a mutation. The calls come in this order: fits, make_records; latch until it returns true,
// and make_place before each; unmet, store, settle, finish, clean_up. Or release after latch.
class BatchLatches {
 public:
  virtual ~BatchLatches() = default;
  // Whether it is likely that all keys can be latched together.
  virtual bool fits() = 0;
  // Writes the entries of puts into blocks that nothing names yet; blocks[i]: of mutation i, or 0.
  // The caller fences. Errors: those of an insert.
  virtual Status make_records(std::span<std::uint64_t> blocks) = 0;
  // Makes the place that latch() has missed. No latch is held. Errors: those of an insert.
  virtual Status make_place() = 0;
  // Takes the latch of each key, also of those that are required, and a place for each new one.
  // False: it holds no latch, because another thread has one, or because a place is missing.
  virtual bool latch() = 0;
  virtual void release() = 0;
  // The number of the first requirement that is not met; 0: there is none. Errors: of a read.
  virtual Expected<std::uint32_t> unmet() const = 0;
  virtual void store() = 0;
  // Writes back and fences what store() has stored. False: the pool is poisoned.
  virtual bool settle() = 0;
  // Shows the new entries, if they are durable. Releases the latches.
  virtual void finish(bool durable) = 0;
  // Retires what was replaced, after finish() of all maps of the batch.
  virtual void clean_up() = 0;
};

// An engine instance, as the pool calls it. A method that enumerates returns corruption if the
// medium contains what the engine cannot have written. The order of calls:
//
//   1. recover
//   2. complete; then start, unless the pool is read-only
//   3. any operation; audit, while no step of background work runs
//   4. release_blocks or close
//   5. destruction, after a drop behind tombstone::place(): it first unregisters the engine's units
//      of background work, then waits for threads that may still hold what it owns
//      (EpochDomain::drain_all)
class EngineInstance : public MarkingMap, public tombstone::Allocated {
 public:
  // Lies at the first byte of the engine (tombstone.T1).
  virtual detail::Index& index() noexcept = 0;
  virtual detail::OrderedIndex* ordered() noexcept { return nullptr; }
  virtual detail::VersionedIndex* versioned() noexcept { return nullptr; }
  // Called once, after construction. Repairs the state that a crash left, marks every reachable
  // block in the heap (Heap::mark), and builds the state in DRAM. `clean`: the pool was closed
  // properly, so its checksums must match.
  //
  // An engine that restarts at once returns `marking` after the part that does not grow with the
  // map, and mark_some() does the rest while the map serves. Until Heap::sweeping() ends, the
  // engine must mark the target of a reference before it copies or removes the reference
  // (Heap::mark_copied). A repair is left to the operation that needs it. The result is ignored for
  // a map that was created after the open.
  virtual Expected<Recovered> recover(bool clean) = 0;
  // Called after recover() of all maps, when the header says dirty, durably, and before a map is
  // served. Stores what recovery found missing in a map that was closed. So a pool that is refused
  // stays as it was.
  virtual Status complete() { return {}; }
  // Called when the header says dirty, durably, and the pool is trusted. The only place for
  // Background::add, so that a reopened pool continues the work of the last process.
  virtual void start() noexcept {}
  // For Pool::compact, before it returns free extents: makes the map smaller if that pays. Any
  // operation may run meanwhile. Returns true if it freed something.
  virtual Expected<bool> compact() { return false; }
  // After compact(), until it returns false: a step of moving blocks out of thin extents
  // (heap/thin.h). It waits at the gate, and any operation may run meanwhile.
  virtual Expected<bool> compact_some() { return false; }
  // Called while no other mutation and no step of background work runs. Makes sure that none of the
  // mutations can fail for want of a place, and adds the blocks that they will allocate to
  // plan.needs. It may also write the entry of a put into a plain block, and put that into
  // plan.blocks; the caller fences, and frees it after an error. Changes no entry. Errors: those of
  // an insert; unsupported.
  virtual Status plan_batch(const BatchPlan& plan) {
    (void)plan;
    return Status::format(StatusCode::unsupported, "the engine takes no batches");
  }
  // Whether the mutations of a batch can be planned some at a time, while other mutations go on in
  // between, which ask the batch first (index/pending_batch.h). `least`: the put with the least
  // key, or null. Then plan.needs stays empty, and to do a mutation twice is to do it once.
  virtual bool takes_pieces(const detail::Mutation* least) const {
    (void)least;
    return false;
  }
  // Between the two, write_many() of these mutations publishes these blocks of plan_batch().
  virtual void begin_apply(std::span<const detail::Mutation> mutations,
                           std::span<const std::uint64_t> blocks) {
    (void)mutations, (void)blocks;
  }
  virtual void end_apply() {}
  // For a small batch of these mutations, of distinct keys, and of requirements. They must stay
  // valid. Null: the engine has no such latches, or memory is short.
  virtual std::unique_ptr<BatchLatches> latches_for(std::span<const detail::Mutation> mutations,
                                                    std::span<const BatchRequirement> required) {
    (void)mutations, (void)required;
    return nullptr;
  }
  // The open version of a map with versions: the mutations of a batch lie in it.
  virtual std::uint64_t batch_version() { return 0; }
  // Recovery plans and does the rest of a batch between these two. Its mutations lie in `version`,
  // and need no more blocks than plan_batch() has named in the process that died.
  virtual void begin_replay(std::uint64_t version) { (void)version; }
  virtual void end_replay() {}
  // Passes every reachable block to Heap::audit_mark. No mutation may be in flight.
  virtual Status audit() = 0;
  // Called after the map was dropped, durably. Unregisters its units of background work, then frees
  // all its blocks. Only destruction follows.
  virtual void release_blocks() = 0;
  // Writes checksums and other state for a fast next open. No operation and no step of background
  // work is in flight, and none follows. The pool's close fences the write-backs of this thread.
  virtual Status close() = 0;
};

}  // namespace perdure
