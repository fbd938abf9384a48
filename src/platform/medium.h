// What the medium under an open file promises.
#pragma once

#include <sys/types.h>

#include "platform/file_storage.h"

namespace perdure {

MediumReport detect(int fd);

// Returns "" if msync to this device is known to write whole sectors by DMA from the page,
// otherwise why not.
// `sys`: where sysfs is mounted.
const char* judge_block_device(const char* sys, dev_t device);

}  // namespace perdure
