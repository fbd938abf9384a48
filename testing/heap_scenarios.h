// Small directed scenarios, shared by the crash tests and the mutants: each returns what is wrong,
// or nothing. Most are about the heap: a block could be handed out although the medium still holds
// what it was before (X2, G8).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "heap/heap.h"

namespace perdure::testing {

// A run of extents is released; its inner extents were never named by a word of their own.
std::string released_run(BlockKind kind);
// Blocks of a kind are retired and come back.
std::string freed_blocks(BlockKind kind, std::size_t bytes);
// Extents of plain blocks become extents of a kind that promises something.
std::string changed_kind(BlockKind kind, std::size_t bytes);
// Blocks that a crash left unreachable, but looking alive, come back through the sweep.
std::string swept_blocks(BlockKind kind, std::size_t bytes);

// X1: after a kill nothing that the dead process stored is left undurable by open.
std::string killed_pool();

// 4f: a root is on the medium when add_root returns, and off it when drop_root does.
std::string durable_roots();

// Extents without a reachable block go back; the free blocks of others are used again.
std::string swept_extents();
std::string swept_partial();
// Space that was punched is asked for again before it is stored to, also after a reopen.
std::string reused_holes();
// A pool whose last process promised less is whole on the medium before `power` begins.
std::string entered_power();
// Close and sync fence what was written back and not fenced, before they sync the file.
std::string unfenced_data();
// 0007: a copy of a sealed pool is whole, or it is refused.
std::string torn_copy();
// A block that two references reach, and each bit of a root line, in a pool that was not closed.
std::string marked_twice();
std::string damaged_root();
// A root that is 0 in a pool that was closed looks like a free slot.
std::string lost_root();
// Planted: each of two writes hides that the other is missing.
std::string written_twice();

struct HeapScenario {
  std::string name;
  std::function<std::string()> run;
};
// All of them, for both kinds of block.
const std::vector<HeapScenario>& heap_scenarios();

}  // namespace perdure::testing
