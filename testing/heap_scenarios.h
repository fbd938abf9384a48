// Scenarios of the heap in which a block could be handed out although the medium still holds what
// it was before (X2, G8): each returns what is wrong, or nothing. Used by the crash tests and by
// the mutants.
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

// All of them, for both kinds; the first thing that is wrong.
std::string all_heap_scenarios();

}  // namespace perdure::testing
