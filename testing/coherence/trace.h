// Trace: the lines that the library reads and writes, thread by thread.
//
// The library is compiled with -fsanitize=thread but linked without its runtime. trace.cc defines
// the functions that the compiler calls before every load, store and atomic operation, so that
// plain fields count as well as atomic ones. memcpy and its kind are wrapped. What is not seen:
// prefetches, inline assembler (write-backs, fences), and functions that say
// no_sanitize("thread").
#pragma once

#include <cstdint>
#include <vector>

namespace perdure::testing {

struct Access {
  std::uint64_t line = 0;  // address / 64
  std::uint64_t code = 0;  // address behind the instruction
  bool writes = false;
};

// Begins to record the accesses of the calling thread, until end_trace() returns them. Accesses of
// its stack are left out.
void begin_trace();
void end_trace(std::vector<Access>& accesses);

// While it is on, threads that never called begin_trace() are recorded, too: the background threads
// of a pool. take_background() returns what they did since its last call, by thread.
void trace_background(bool on);
std::vector<std::vector<Access>> take_background();
// The calling thread is no background thread.
void exclude_thread();

}  // namespace perdure::testing
