// The text form of entries: key<TAB>value<NEWLINE>. A tab, a newline and a backslash inside a key
// or value are written \t, \n and \\. Every other byte, NUL included, stands for itself. So each
// byte string has exactly one text form.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace perdure::cli {

// Appends the text form of `bytes`.
void escape(std::string_view bytes, std::string& out);

// Returns the bytes that `text` stands for. Uses `storage` only if they differ from `text`, which
// must be valid.
std::string_view unescape(std::string_view text, std::string& storage);

// Returns what is wrong with a field, in words, or nothing if it is valid.
std::optional<std::string> field_error(std::string_view text);

// Returns how many bytes a valid field stands for.
std::size_t unescaped_size(std::string_view text);

}  // namespace perdure::cli
