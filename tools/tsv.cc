#include "tsv.h"

#include <algorithm>

#include <fmt/format.h>

namespace perdure::cli {

void escape(std::string_view bytes, std::string& out) {
  constexpr std::string_view kSpecial("\t\n\\", 3);
  for (;;) {
    const std::size_t at = bytes.find_first_of(kSpecial);
    out += bytes.substr(0, at);
    if (at == std::string_view::npos) return;
    out += '\\';
    out += bytes[at] == '\t' ? 't' : bytes[at] == '\n' ? 'n' : '\\';
    bytes.remove_prefix(at + 1);
  }
}

std::string_view unescape(std::string_view text, std::string& storage) {
  std::size_t at = text.find('\\');
  if (at == std::string_view::npos) return text;
  storage.clear();
  do {
    storage += text.substr(0, at);
    const char escaped = text[at + 1];
    storage += escaped == 't' ? '\t' : escaped == 'n' ? '\n' : '\\';
    text.remove_prefix(at + 2);
    at = text.find('\\');
  } while (at != std::string_view::npos);
  storage += text;
  return storage;
}

std::optional<std::string> field_error(std::string_view text) {
  for (std::size_t at = text.find('\\'); at != std::string_view::npos;
       at = text.find('\\', at + 2)) {
    if (at + 1 == text.size()) return "it ends in a single backslash; write \\\\";
    const char escaped = text[at + 1];
    if (escaped != 't' && escaped != 'n' && escaped != '\\') {
      return "a backslash stands before something other than t, n or \\; write \\\\";
    }
  }
  if (text.find('\t') != std::string_view::npos) {
    return "there is a second tab; write \\t inside a value";
  }
  return std::nullopt;
}

std::size_t unescaped_size(std::string_view text) {
  std::size_t size = text.size();
  for (std::size_t at = text.find('\\'); at != std::string_view::npos;
       at = text.find('\\', at + 2)) {
    --size;
  }
  return size;
}

}  // namespace perdure::cli
