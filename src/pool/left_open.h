// A base that was left open, by a process that was killed or has it, or by a power failure: what
// its file says, and how it is read without being its owner.
#pragma once

#include <string_view>

#include "cut/log_format.h"
#include "platform/file_storage.h"
#include "platform/file_system.h"

namespace perdure {

// Reads the mark that counts from a file that is open. All zero if there is none.
Status read_mark(const FileStorage& storage, layout::BaseMark& mark) noexcept;

bool in_this_boot(const layout::BaseMark& mark, const layout::Identity& here) noexcept;
// Whether the file is the one that the mark was written for.
bool of_this_file(const layout::BaseMark& mark, const layout::Identity& here) noexcept;
// Why it is refused, if it is another one.
Status is_a_copy(std::string_view path) noexcept;
// Whether the kernel has had the live image at this path in memory since a process of this boot had
// it open.
bool stayed_mounted(const RealFileSystem& files, const layout::BaseMark& mark,
                    std::string_view image) noexcept;
// Whether its log of dirty lines is in memory.
bool is_dirty_file_in_memory(const RealFileSystem& files, std::string_view image) noexcept;

// Its log and its live image are beside its file. Errors: unsupported (the file is mounted alone).
Status has_its_parts(const FileStorage& base, const char* path) noexcept;
// Its content is that of the last cut in its log, of this boot or another one. Errors: untrusted (a
// copy), live_missing (the boot is not known).
Status may_read_log(const layout::BaseMark& mark, const layout::Identity& identity,
                    std::string_view path) noexcept;
// Of this boot, and for inspections: `storage` gets its live image, and `base` the base; once it is
// mapped, LiveChunks shows both. Errors: live_missing, untrusted (a copy, or a base of another
// boot), and those of files.
Status observe_live(FileStorage& storage, FileStorage& base, const layout::BaseMark& mark,
                    std::string_view path, const layout::Identity& identity) noexcept;

}  // namespace perdure
