// libcuckoo's table in DRAM, which any number of threads may use: the table that level hashing's
// paper compares with in figure 17, and the anchor of the other program. It holds nothing durable.
#pragma once

#include <memory>

#include "evaluation/table.h"

namespace perdure::paper {

// With room for `capacity` items; it grows by its own rules. Null if the build did not find
// libcuckoo.
std::unique_ptr<Table> make_cuckoo(std::uint64_t capacity);

}  // namespace perdure::paper
