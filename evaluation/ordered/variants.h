// `phast` with other sizes of nodes, and without the levels above the inner nodes. The sizes are
// constants of the engine; these are the engine with other constants.
#pragma once

#include <span>

#include "index/engine_table.h"

namespace perdure::paper {

struct Variant {
  const char* name;
  const EngineRow& row;
};

// With all levels, then without the shortcut, then without the index cache as well.
std::span<const Variant> variants_by_start();
// By leaves of an inner node. Without the shortcut, since that leads lookups past these nodes.
std::span<const Variant> variants_by_inner_leaves();
// By entries of a leaf, which has a power of two of bytes. The last one has the engine's.
std::span<const Variant> variants_by_leaf_entries();

}  // namespace perdure::paper
