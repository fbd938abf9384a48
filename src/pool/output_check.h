// What must not be written to, for calls and commands that write to a path that a user names: a
// pool, a part of one, and a part of a backup, under any name that leads to it.
// Thread safety: any thread.
#pragma once

#include <climits>
#include <cstdint>
#include <string_view>

#include "perdure/status.h"

namespace perdure {

// What lies beside a pool's file, as PATH-log and so on. The others than the first are files.
inline constexpr const char* kPoolParts[] = {"-log", "-live", "-live-dirty"};

enum class OwnKind : std::uint8_t { none, pool, live_image, segment, dirty_log, backup };

// What an open file is, by its content. `none`: also if it cannot be read. `backup`: its head.
OwnKind kind_of(int file) noexcept;
// The same in words: "a pool", "the live image of a pool" and so on. Null: none of these.
const char* own_kind(int file) noexcept;
// Whether nothing was written to the beginning of a file, or it is empty.
bool begins_with_zeros(int file) noexcept;

// The path without links, also of a file that is not there. Returns false without its folder.
bool resolve_path(const char* path, char (&out)[PATH_MAX]) noexcept;

// Whether something may be made at `path`: no pool beside it, and no backup around it, has or will
// have a part of that name. Errors: invalid_argument.
Status check_place(std::string_view path) noexcept;
// The same for a caller that puts the path before the message.
Status verify_place(std::string_view path) noexcept;

// The same, and whether the file that is there, if any, may be replaced. Errors: invalid_argument;
// io (the file there cannot be read).
Status check_output(std::string_view path) noexcept;

}  // namespace perdure
