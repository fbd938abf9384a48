#include "platform/machine.h"

#if defined(__x86_64__)
#include <cpuid.h>
#else
#include <sys/auxv.h>
#endif

namespace perdure {

#if defined(__x86_64__)

FlushInstruction best_flush_instruction() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
    if ((b & (1U << 24)) != 0) return FlushInstruction::clwb;
    if ((b & (1U << 23)) != 0) return FlushInstruction::clflushopt;
  }
  return FlushInstruction::clflush;  // every x86-64 processor has it
}

const char* flush_instruction_name(FlushInstruction instruction) noexcept {
  switch (instruction) {
    case FlushInstruction::clwb:
      return "clwb";
    case FlushInstruction::clflushopt:
      return "clflushopt";
    case FlushInstruction::clflush:
      return "clflush";
  }
  return "?";
}

bool reaches_medium(FlushInstruction) noexcept { return true; }

#else

FlushInstruction best_flush_instruction() noexcept {
  constexpr unsigned long kDcPop = 1UL << 16;  // HWCAP_DCPOP
  return (getauxval(AT_HWCAP) & kDcPop) != 0 ? FlushInstruction::dc_cvap
                                             : FlushInstruction::dc_cvac;
}

const char* flush_instruction_name(FlushInstruction instruction) noexcept {
  return instruction == FlushInstruction::dc_cvap ? "dc cvap" : "dc cvac";
}

bool reaches_medium(FlushInstruction instruction) noexcept {
  return instruction == FlushInstruction::dc_cvap;
}

#endif

}  // namespace perdure
