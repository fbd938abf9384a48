// Small directed scenarios, shared by the crash tests and the mutants: each returns what is wrong,
// or nothing. Most are about the heap: a block could be handed out although the medium still holds
// what it was before (X2, G8).
#pragma once

#include <string>

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

// All of them, for both kinds; the first thing that is wrong.
std::string all_heap_scenarios();

}  // namespace perdure::testing
