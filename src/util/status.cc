#include "perdure/status.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "perdure/stats.h"

namespace perdure {

namespace {

// The text follows the struct in the same allocation, NUL-terminated.
struct Message {
  StatusCode code;
};
char* text_of(Message* message) noexcept { return reinterpret_cast<char*>(message + 1); }

Message* message_of(std::uintptr_t word) noexcept { return reinterpret_cast<Message*>(word); }

std::uintptr_t make_message(StatusCode code, const char* text, std::size_t size) noexcept {
  auto* message = static_cast<Message*>(std::malloc(sizeof(Message) + size + 1));
  if (message == nullptr) return (static_cast<std::uintptr_t>(code) << 1) | 1;
  message->code = code;
  std::memcpy(text_of(message), text, size);
  text_of(message)[size] = '\0';
  return reinterpret_cast<std::uintptr_t>(message);
}

}  // namespace

const char* status_code_name(StatusCode code) noexcept {
  switch (code) {
    case StatusCode::ok:
      return "ok";
    case StatusCode::invalid_argument:
      return "invalid_argument";
    case StatusCode::not_found:
      return "not_found";
    case StatusCode::exists:
      return "exists";
    case StatusCode::busy:
      return "busy";
    case StatusCode::corruption:
      return "corruption";
    case StatusCode::unsupported_format:
      return "unsupported_format";
    case StatusCode::untrusted:
      return "untrusted";
    case StatusCode::pool_full:
      return "pool_full";
    case StatusCode::out_of_memory:
      return "out_of_memory";
    case StatusCode::io:
      return "io";
    case StatusCode::poisoned:
      return "poisoned";
    case StatusCode::unsupported:
      return "unsupported";
    case StatusCode::read_only:
      return "read_only";
    case StatusCode::hash_overflow:
      return "hash_overflow";
    case StatusCode::conflict:
      return "conflict";
    case StatusCode::live_missing:
      return "live_missing";
  }
  return "unknown";
}

Status::Status(const Status& other) noexcept
    : word_((other.word_ & 1) != 0
                ? other.word_
                : make_message(other.code(), other.message().data(), other.message().size())) {}

Status& Status::operator=(const Status& other) noexcept {
  if (this != &other) *this = Status(other);
  return *this;
}

Status Status::format_list(StatusCode code, const char* format, std::va_list arguments) noexcept {
  char text[1024];
  const int size = std::vsnprintf(text, sizeof(text), format, arguments);
  const std::size_t kept =
      size < 0 ? 0 : std::min(static_cast<std::size_t>(size), sizeof(text) - 1);
  Status status;
  status.word_ = make_message(code, text, kept);
  return status;
}

Status Status::format(StatusCode code, const char* format, ...) noexcept {
  std::va_list arguments;
  va_start(arguments, format);
  Status status = format_list(code, format, arguments);
  va_end(arguments);
  return status;
}

std::unexpected<Status> fail(StatusCode code, const char* format, ...) noexcept {
  std::va_list arguments;
  va_start(arguments, format);
  Status status = Status::format_list(code, format, arguments);
  va_end(arguments);
  return fail(std::move(status));
}

StatusCode Status::message_code() const noexcept { return message_of(word_)->code; }

std::string_view Status::message() const noexcept {
  if ((word_ & 1) != 0) return status_code_name(code());
  return text_of(message_of(word_));
}

void Status::release() noexcept { std::free(message_of(word_)); }

std::string_view durability_name(Durability durability) noexcept {
  switch (durability) {
    case Durability::automatic:
      return "auto";
    case Durability::process:
      return "process";
    case Durability::power:
      return "power";
    case Durability::emulated:
      return "emulated";
    case Durability::buffered:
      return "buffered";
  }
  return "unknown";
}

const char* medium_name(Medium medium) noexcept {
  switch (medium) {
    case Medium::page:
      return "page";
    case Medium::volatile_ram:
      return "volatile_ram";
    case Medium::cache_line:
      return "cache_line";
    case Medium::eadr:
      return "eadr";
    case Medium::network:
      return "network";
  }
  return "unknown";
}

}  // namespace perdure
