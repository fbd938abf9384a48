// Pretends that the machine was restarted: the marks in the base of a log say that the pool was
// open in another boot, and so does its live image, if that is beside it.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "cut/live_chunks.h"
#include "tests/support/support.h"

namespace perdure::test {

// Returns false if it is no mark.
inline bool put_into_other_boot(layout::BaseMark& mark) {
  if (mark.magic != layout::kMarkMagic || mark.crc != layout::mark_crc(mark)) return false;
  std::memset(mark.live.boot_id, 0x55, sizeof(mark.live.boot_id));
  mark.crc = layout::mark_crc(mark);
  return true;
}

// A restart is proven: the image was used when the machine had run for longer than it has now.
inline void set_clock_of_image(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return;
  const std::uint64_t later = ~std::uint64_t{0};
  (void)::pwrite(file, &later, sizeof(later),
                 layout::kMarkOffset + offsetof(layout::LiveHead, clocks));
  ::close(file);
}

inline void restart_machine(const std::string& path) {
  set_clock_of_image(path + "-live");
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
