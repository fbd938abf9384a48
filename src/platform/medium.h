// What the medium under an open file promises.
#pragma once

#include <sys/types.h>

#include "platform/file_storage.h"

namespace perdure {

MediumReport detect(int fd) noexcept;

// Why msync to this device is not known to write whole sectors by DMA from the page; "" if it is.
// `sys`: where sysfs is mounted.
const char* judge_block_device(const char* sys, dev_t device) noexcept;

}  // namespace perdure
