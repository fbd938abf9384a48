// The process that owns a pool, and the lock that says so.
#pragma once

#include <string_view>

#include "platform/file_storage.h"

namespace perdure {

// Opens an existing file and takes the lock of its owner. If another process has the lock: `busy`,
// and a message that names the process. The lock of a killed process ends with its memory. The
// kernel may free that later than the process has ended, so this waits up to five seconds for a
// process that is gone.
Status open_as_owner(FileStorage& storage, std::string_view path);

}  // namespace perdure
