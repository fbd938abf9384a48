// The last durable cut of a `buffered` pool, in the memory of a process that reads it.
#pragma once

#include <string_view>

#include "platform/file_storage.h"

namespace perdure {

// Makes the pool whose base `storage` has opened, as a reader or an observer, in memory: base and
// log are copied as a backup copies them (backup_writer.h), whether another process has the pool or
// not, and the epochs of the log are replayed. A pool that was open stays as a crash leaves it: its
// next opening recovers it. `path`: absolute, without links. Errors: busy (the pool was closed or
// opened meanwhile), untrusted (the log lacks something; no check of the content has passed),
// out_of_memory, io.
Status copy_last_cut(FileStorage& storage, std::string_view path, std::uint64_t max_bytes) noexcept;

}  // namespace perdure
