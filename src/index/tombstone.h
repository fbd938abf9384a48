// Tombstone: what a call finds that is made through a handle whose engine has ended.
//
// WHAT  A map, an iterator and a snapshot have one pointer to their engine (detail::Handle). The
//   engine ends with the close of its pool or the drop of its map, but its memory stays as long as
//   a handle refers to it. The first word there is the pointer to the virtual functions of the
//   engine's Index. At the end it becomes that of a Tombstone, whose calls return the reason. So a
//   call through a handle checks nothing: it has no instruction more, and it reads no line more.
//   A child of fork() gets tombstones for all engines of its parent, but for those of a simulated
//   platform, whose medium it has, too.
// LAYOUT (DRAM)  {Header, one line} {engine}. All headers are in one list.
// INVARIANTS
//   tombstone.T1  The Index of an engine begins at the first byte of the engine.
//   tombstone.T2  The memory is freed at the end of the engine or of its last handle, whichever
//         comes later.
//   tombstone.T3  No call through a handle that begins after the end enters the engine. The end
//         waits for no call but unpin(): its callers ensure that none is under way.
//   tombstone.T4  A change of the list, and an end, is one step for fork() and for unpin(): all of
//         them take one latch.
// Thread safety: any thread may make and release handles at once, also those that hold a version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "perdure/index.h"

namespace perdure::tombstone {

enum class End : std::uint8_t { closed, dropped, forked };

// The memory for an engine. Null if memory is short.
void* allocate(std::size_t bytes, std::size_t alignment) noexcept;
// The engine there was destroyed. Its handles find the reason of place(), without one that its pool
// was closed.
void release(void* engine) noexcept;
// Of a simulated platform: a child of fork() goes on to use the engine.
void share_with_children(detail::Index& engine) noexcept;
// From now on the handles find the reason, and the path of the pool. Only destruction of the engine
// follows.
void place(detail::Index& engine, End end, const char* path) noexcept;

// The base of everything that handles refer to: they keep the memory.
struct Allocated {
  static void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    return allocate(bytes, alignof(std::max_align_t));
  }
  static void* operator new(std::size_t bytes, std::align_val_t alignment,
                            const std::nothrow_t&) noexcept {
    return allocate(bytes, static_cast<std::size_t>(alignment));
  }
  static void operator delete(void* engine) noexcept { release(engine); }
  static void operator delete(void* engine, std::align_val_t) noexcept { release(engine); }
};

}  // namespace perdure::tombstone
