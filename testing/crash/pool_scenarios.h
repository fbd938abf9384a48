// Directed scenarios of the pool: what an open that serves at once after a kill must first make
// durable, and what each header copy is good for. The crash tests and the mutants run them. Each
// returns what is wrong, or "".
#pragma once

#include <string>

namespace perdure::testing {

// X1, lazily (AfterKill). A process is killed between a store and its fence, and the next one
// serves at once. All that the next one returns or frees must survive a power failure.
std::string untrusted();  // stores that were never written back, after a restart of the machine
// The argument for `pool.open.sync:skip_step`: everything that the sync covers was already written
// back.
std::string nothing_left_to_sync();
std::string killed_dropping();           // a root line: the map must stay dropped
std::string killed_releasing();          // a word of the extent table, before its space is punched
std::string killed_releasing_first();    // the same where no later fence hides it
std::string killed_releasing_last();     // the same with three lines before it
std::string killed_releasing_long();     // the same where another chunk of the table has the word
std::string killed_releasing_resized();  // the same in the second extent table
std::string killed_storing();            // every line of a block that a result depends on
// A process is killed while its pool grows. The pool is resized, and the power fails at any point:
// the growth that was in use is there, and the old maximum or the new one; at the end the new one.
std::string killed_growing_resized();

// Each header copy alone vouches for a pool that is closed, or sealed, and says what a resize or
// growth has changed: either may be damaged.
std::string either_header_closed();
std::string either_header_sealed();
std::string either_header_resized();  // the new maximum
std::string either_header_grown();    // the extents that are in use

}  // namespace perdure::testing
