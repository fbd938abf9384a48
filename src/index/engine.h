// What an engine is given, and what it offers to the pool beyond perdure::detail::Index.
#pragma once

#include <cstdint>
#include <memory>

#include "heap/heap.h"
#include "perdure/index.h"
#include "platform/platform.h"
#include "pool/background.h"
#include "reclaim/epoch.h"

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
  // During recover() of a damaged pool that is only looked at: what is wrong and can be passed over
  // is noted here. The map is not served, and what is stored reaches no file. Otherwise null.
  CheckReport* damage = nullptr;
};

// How a map was created; fixed.
struct MapKinds {
  KeyKind key = KeyKind::bytes;
  ValueKind value = ValueKind::bytes;
};

// An engine instance as the pool drives it. Any method that enumerates answers corruption where the
// medium holds what the engine could not have written.
class EngineInstance {
 public:
  virtual ~EngineInstance() = default;

  virtual detail::Index& index() noexcept = 0;
  virtual detail::OrderedIndex* ordered() noexcept { return nullptr; }
  // Once, after construction: repairs what a crash left, marks every reachable block in the heap,
  // builds DRAM state. `clean`: the pool was closed properly, so checksums count.
  virtual Status recover(bool clean) = 0;
  // Declares every reachable block to Heap::audit_mark; no mutation in flight.
  virtual Status audit() = 0;
  // The map was dropped, durably: gives all its blocks back. Nothing follows but destruction.
  virtual void release_blocks() = 0;
  // Writes checksums and whatever else makes the next open quick; no operation in flight, none
  // follows. This thread's write-backs are fenced by the pool's close.
  virtual Status close() = 0;
};

}  // namespace perdure
