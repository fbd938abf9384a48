// Pretends that the machine was restarted: the marks in the base of a log say that the pool was
// open in another boot.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "cut/log_format.h"
#include "tests/support/support.h"

namespace perdure::test {

// Returns false if it is no mark.
inline bool put_into_other_boot(layout::BaseMark& mark) {
  if (mark.magic != layout::kMarkMagic || mark.crc != layout::mark_crc(mark)) return false;
  std::memset(mark.live.boot_id, 0x55, sizeof(mark.live.boot_id));
  mark.crc = layout::mark_crc(mark);
  return true;
}

inline void restart_machine(const std::string& path) {
  std::string bytes = read_bytes(path);
  for (std::uint64_t i = 0; i < 2; ++i) {
    char* at = bytes.data() + i * layout::kMarkStride + layout::kMarkOffset;
    layout::BaseMark mark;
    std::memcpy(&mark, at, sizeof(mark));
    if (put_into_other_boot(mark)) std::memcpy(at, &mark, sizeof(mark));
  }
  write_bytes(path, bytes);
}

}  // namespace perdure::test
