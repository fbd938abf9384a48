// Small directed scenarios for the crash tests and the mutants. Each returns what is wrong, or "".
// Most check that the heap never hands out a block while the medium still holds its old content
// (X2, G8).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "heap/heap.h"

namespace perdure::testing {

// Releases a run of extents. Its inner extents never had a word of their own.
std::string released_run(BlockKind kind);
// Retires blocks of a kind and reuses them.
std::string freed_blocks(BlockKind kind, std::size_t bytes);
// Extents of plain blocks become extents of a kind with a guarantee.
std::string changed_kind(BlockKind kind, std::size_t bytes);
// The sweep frees blocks that a crash left unreachable but seemingly alive.
std::string swept_blocks(BlockKind kind, std::size_t bytes);

// X1: after a kill, open leaves no store of the dead process undurable.
std::string killed_pool();

// 4f: a root is on the medium when add_root returns, and off it when drop_root returns.
std::string durable_roots();

// The sweep frees extents without a reachable block, and the free blocks of others are reused.
std::string swept_extents();
std::string swept_partial();
// Punched space is allocated again before it is stored to, also after a reopen.
std::string reused_holes();
// A pool whose last process had a weaker durability is wholly on the medium before `power` begins.
std::string entered_power();
// Close and sync fence write-backs that are not fenced yet, before they sync the file.
std::string unfenced_data();
// 0007: a copy of a sealed pool is complete, or open refuses it.
std::string torn_copy();
// A block that two references reach, and each bit of a root line, in a pool that was not closed.
std::string marked_twice();
std::string damaged_root();
// A root of 0 in a closed pool looks like a free slot.
std::string lost_root();
// Planted: each of two writes hides that the other one is missing.
std::string written_twice();

struct HeapScenario {
  std::string name;
  std::function<std::string()> run;
};
// All scenarios, for both kinds of block.
const std::vector<HeapScenario>& heap_scenarios();

}  // namespace perdure::testing
