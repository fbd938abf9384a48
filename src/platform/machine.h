// Machine: what differs between processors. RealPlatform is made of it; nothing above src/platform
// sees it.
//
// The protocols are written for x86-64. Beyond the memory model of C++ they assume:
//   M1  A read-modify-write is a full fence: no later load passes it.
//   M2  Loads do not pass loads, stores do not pass stores, and stores do not pass earlier loads:
//       single words and bytes, vector loads of a line, and peek().
//   M3  A byte of a word is stored while other threads compare and swap the whole word, and
//       neither is lost.
//   M4  membarrier(2) makes every running thread of the process execute a full fence.
//   M5  Stores to one line of 64 bytes reach the medium in their order, and an aligned word whole.
//   M6  After write_back() of a line and drain(), what the thread has stored or seen in it is on
//       the medium (reaches_medium() says whether the instruction does that).
//   M7  Pages have 4,096 bytes.
// machine_x86_64.h and machine_aarch64.h say how their processor meets them.
//
// INTERFACE  in perdure::machine:
//   Atomic<T>             the interface of std::atomic<T>, with M1 and M2
//   peek, load_byte, store_byte, match_line, match_words    as in platform.h, with M2
//   match_bytes(word, byte)    a bit for each byte of the word that equals `byte`, the lowest first
//   exchange_word, exchange_latches    compare-and-swap of a word of the pool, of a ByteLatches
//   write_back, drain     M6
//   loads_before          orders earlier plain loads before later loads
//   relax                 in a spin loop
//   ticks                 a counter that runs evenly
#pragma once

#if defined(__x86_64__)
#include "platform/machine_x86_64.h"
#elif defined(__aarch64__) && defined(__AARCH64EL__)
#include "platform/machine_aarch64.h"
#else
#error "perdure needs x86-64 or aarch64 (little-endian)"
#endif

namespace perdure {

FlushInstruction best_flush_instruction() noexcept;  // that this processor has
const char* flush_instruction_name(FlushInstruction instruction) noexcept;
// Whether a write-back by this instruction reaches persistent memory.
bool reaches_medium(FlushInstruction instruction) noexcept;

}  // namespace perdure
