// The text form of entries: key<TAB>value<NEWLINE>, where a tab, a newline and a backslash inside a
// key or value are written \t, \n and \\. Every other byte, NUL included, stands for itself, so
// each byte string has exactly one text form.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace perdure::cli {

// Appends the text form of `bytes`.
void escape(std::string_view bytes, std::string& out);

// The bytes that `text` stands for, in `storage` only if they differ from it. `text` must be valid.
std::string_view unescape(std::string_view text, std::string& storage);

// What is wrong with a field, in words; nothing if it is valid.
std::optional<std::string> field_error(std::string_view text);

// How many bytes a valid field stands for.
std::size_t unescaped_size(std::string_view text);

}  // namespace perdure::cli
