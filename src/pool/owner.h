// The process that owns a pool, those that read its file, and the lock that says so.
#pragma once

#include <string_view>

#include "platform/file_storage.h"

namespace perdure {

// Opens an existing file and takes the lock of its owner. If another process has the lock: `busy`,
// and a message that names the process. The lock of a killed process ends with its memory. The
// kernel may free that later than the process has ended, so this waits up to five seconds for a
// process that is gone.
Status open_as_owner(FileStorage& storage, std::string_view path);

// Opens an existing file and takes the lock of a reader: no process owns the pool until that goes.
// If one owns it now: `busy`, too; unless the pool is open in durability `buffered`. Then there is
// no lock, and `in_use` is true: its last cut can be copied (last_cut.h). While an owner opens or
// closes such a pool, this waits up to five seconds.
Status open_as_reader(FileStorage& storage, std::string_view path, bool& in_use);

}  // namespace perdure
