// TextWriter: composes a key from pieces in a buffer that is large enough.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "bench/workloads/syllables.h"

namespace perdure::bench {

// Up to 15 characters. All 15 are copied, because a copy of fixed size needs no call.
struct Piece {
  std::array<char, 15> text{};
  std::uint8_t length = 0;

  consteval Piece(const char* from) {
    while (from[length] != '\0') {
      text[length] = from[length];
      ++length;
    }
  }
};

class TextWriter {
 public:
  explicit TextWriter(char* out) noexcept : begin_(out), at_(out) {}

  void put(std::string_view text) noexcept {
    std::memcpy(at_, text.data(), text.size());
    at_ += text.size();
  }
  void put_short(const Piece& piece) noexcept {
    std::memcpy(at_, piece.text.data(), piece.text.size());
    at_ += piece.length;
  }
  void put(char c) noexcept { *at_++ = c; }
  void put_number(std::uint64_t number) noexcept { at_ = std::to_chars(at_, at_ + 20, number).ptr; }
  void put_word(std::uint64_t number, std::uint64_t seed) noexcept {
    at_ += write_word(number, seed, at_);
  }
  std::size_t size() const noexcept { return static_cast<std::size_t>(at_ - begin_); }

 private:
  char* begin_;
  char* at_;
};

// Words of file names and of titles. They consist of letters, so another character ends them.
inline constexpr std::array<Piece, 64> kTopics = {
    "access", "action",  "address", "array",  "backend",  "base",    "batch",   "block",
    "buffer", "cache",   "channel", "client", "codec",    "color",   "command", "common",
    "config", "context", "core",    "cursor", "database", "decoder", "device",  "dialog",
    "engine", "error",   "event",   "export", "factory",  "filter",  "format",  "graph",
    "handle", "header",  "image",   "index",  "input",    "kernel",  "layout",  "list",
    "loader", "locale",  "manager", "matrix", "memory",   "message", "model",   "module",
    "number", "object",  "option",  "output", "parser",   "plugin",  "process", "query",
    "reader", "request", "schema",  "server", "session",  "stream",  "table",   "writer"};

}  // namespace perdure::bench
