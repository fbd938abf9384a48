// What an engine is given, and what it offers to the pool beyond perdure::detail::Index.
#pragma once

#include <cstdint>
#include <memory>

#include "background/background.h"
#include "format/after_kill.h"
#include "format/open_sweep.h"
#include "heap/heap.h"
#include "index/findings.h"
#include "perdure/index.h"
#include "platform/platform.h"
#include "reclaim/epoch.h"
#include "util/log.h"

namespace perdure {

// The pool's services, as an engine sees them. All outlive the engine.
template <Platform P>
struct EngineContext {
  P& platform;
  Heap<P>& heap;
  EpochDomain<P>& epochs;
  Background<P>& background;  // for what no operation waits for; see help() there
  std::uint32_t threads = 1;  // for recovery and close
  bool read_only = false;     // mutations answer read_only
  // What the log says of the map begins with its name. Both stay valid as long as the engine.
  const Log* log = &kSilent;
  const char* map = "";
  // During recover() of a damaged pool that is only looked at: what is wrong and can be passed over
  // is noted here. The map is not served, and what is stored reaches no file. Otherwise null.
  Findings* damage = nullptr;
  // While what a killed process left is being made durable; null: no engine of the pool restarts at
  // once, or everything is durable already.
  AfterKill<P>* after_kill = nullptr;

  // For engines that restart at once (EngineRow::at_once), before an answer, or a store, rests on
  // what was read in [offset, offset + n), which one extent holds or one run. Read first, then
  // settle: what was read was left by the dead process, and is durable now, or was stored since,
  // and is its writer's to fence. False: the pool is poisoned.
  [[gnu::always_inline]] bool settle(std::uint64_t offset, std::size_t n) const noexcept {
    return after_kill == nullptr || after_kill->settle(offset, n);
  }
};

// How far recover() has come.
enum class Recovered : std::uint8_t {
  done,     // every reachable block is marked
  marking,  // the map serves; mark_some() marks what is left
};

// How a map was created; fixed.
struct MapKinds {
  KeyKind key = KeyKind::bytes;
  ValueKind value = ValueKind::bytes;
  std::uint8_t key_bytes = 0;    // of integers and arrays
  std::uint8_t value_bytes = 0;  // of words and arrays

  // As an engine that keeps no arrays in place has them: byte strings of one length.
  MapKinds without_arrays() const noexcept {
    MapKinds kinds = *this;
    if (key == KeyKind::array) kinds.key = KeyKind::bytes;
    if (value == ValueKind::array) kinds.value = ValueKind::bytes;
    return kinds;
  }
};

// An engine instance as the pool drives it. Any method that enumerates answers corruption where the
// medium holds what the engine could not have written. In this order: recover; start, unless the
// pool is read-only or only looked at; any operation, audit (no step of background work runs);
// release_blocks or close; destruction, which waits for whoever may still hold what it owns
// (EpochDomain::drain_all) and unregisters its units before it does anything else.
class EngineInstance : public MarkingMap {
 public:
  virtual detail::Index& index() noexcept = 0;
  virtual detail::OrderedIndex* ordered() noexcept { return nullptr; }
  virtual detail::VersionedIndex* versioned() noexcept { return nullptr; }
  // Once, after construction: repairs what a crash left, marks every reachable block in the heap
  // (Heap::mark), builds DRAM state. `clean`: the pool was closed properly, so checksums count. Or,
  // in an engine that restarts at once: answers `marking` after what does not grow with the map,
  // and mark_some() does the rest while it serves. Until Heap::sweeping() ends, it marks the target
  // of a reference before it copies it or takes it away (Heap::mark_copied), and a repair waits for
  // the operation that needs it. The answer does not count for a map that was made since the pool
  // was opened.
  virtual Expected<Recovered> recover(bool clean) = 0;
  // After recover() of all maps of the pool, and once the header says dirty, durably; before one is
  // served: stores what recovery has found missing in a map that was closed. So a pool that is
  // refused is left as it was.
  virtual Status complete() { return {}; }
  // The only place for Background::add: the header says dirty, durably, and the pool is trusted. So
  // a reopened pool goes on with what the last process left.
  virtual void start() noexcept {}
  // For Pool::compact, before free extents are given back: makes the map smaller if it is worth it.
  // Any operation may go on. True: it gave something back.
  virtual Expected<bool> compact() { return false; }
  // Declares every reachable block to Heap::audit_mark; no mutation in flight.
  virtual Status audit() = 0;
  // The map was dropped, durably: unregisters its units, then gives all its blocks back. Nothing
  // follows but destruction.
  virtual void release_blocks() = 0;
  // Writes checksums and whatever else makes the next open quick; no operation in flight and no
  // step of background work, none follows. This thread's write-backs are fenced by the pool's
  // close.
  virtual Status close() = 0;
};

}  // namespace perdure
