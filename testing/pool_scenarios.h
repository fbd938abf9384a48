// Directed scenarios of the pool: what an open that serves at once after a kill has to make durable
// first, and what each header copy is good for. Shared by the crash tests and the mutants; each
// returns what is wrong, or nothing.
#pragma once

#include <string>

namespace perdure::testing {

// X1, lazily (AfterKill). A process was killed between a store and its fence, and the next one
// serves at once: what that one has told or given away is there after a power failure.
std::string untrusted();  // stores that no write-back followed, after a restart of the machine
// The argument for `pool.open.sync:skip_step`: what the sync is there for has been written back.
std::string nothing_left_to_sync();
std::string killed_dropping();   // a root line: the map is gone for good
std::string killed_releasing();  // a word of the extent table: before the space is punched
std::string killed_storing();    // every line of a block whose content an answer rests on

// Both header copies vouch for a pool that was closed, or is sealed: either may be damaged.
std::string either_header_closed();
std::string either_header_sealed();

}  // namespace perdure::testing
