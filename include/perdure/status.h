// Status: why a call failed. One machine word; a bare code never allocates.
//
// The library throws nothing. Calls that can fail return Expected<T>, a std::expected<T, Status>;
// absence of a key is no failure (see map.h). A message names the file, what is wrong, what to do.
// Thread safety: a Status is a value; distinct objects may be used from distinct threads.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <expected>
#include <string_view>
#include <utility>

namespace perdure {

// What kind of failure it is. Programs branch on the code, people read the message.
enum class StatusCode : std::uint8_t {
  ok = 0,
  invalid_argument,    // the caller passed something the contract rules out
  not_found,           // no such file or map (never: no such key)
  exists,              // a file or map of that name exists and the call asked for a new one
  busy,                // another process owns the pool
  corruption,          // the file's content violates the format; nothing was changed
  unsupported_format,  // written by a newer or foreign build
  untrusted,  // the file may lack acknowledged data (see docs/durability.md); `accept` clears it
  pool_full,  // no space: reads and erases go on, inserts work again once space is free
  out_of_memory,  // DRAM, not the pool
  io,             // the operating system refused
  poisoned,       // an earlier write-back failed: nothing more is acknowledged; close and reopen
  unsupported,    // the engine or medium lacks the capability; said at open, never later
  read_only,      // a mutation on a pool opened read-only
  hash_overflow,  // more keys of one hash than its table takes; nothing changed, others go on
};

// The code's name in lower case, e.g. "pool_full". Never null.
const char* status_code_name(StatusCode code) noexcept;

class [[nodiscard]] Status {
 public:
  constexpr Status() noexcept : word_(bare(StatusCode::ok)) {}
  constexpr Status(StatusCode code) noexcept : word_(bare(code)) {}  // NOLINT: implicit on purpose
  Status(const Status& other) noexcept;
  constexpr Status(Status&& other) noexcept
      : word_(std::exchange(other.word_, bare(StatusCode::ok))) {}
  Status& operator=(const Status& other) noexcept;
  Status& operator=(Status&& other) noexcept {
    std::swap(word_, other.word_);
    return *this;
  }
  ~Status() {
    if ((word_ & 1) == 0) release();
  }

  // A status with a printf-formatted message; falls back to the bare code if memory is short.
  [[gnu::format(printf, 2, 3)]] static Status format(StatusCode code, const char* format,
                                                     ...) noexcept;
  [[gnu::format(printf, 2, 0)]] static Status format_list(StatusCode code, const char* format,
                                                          std::va_list arguments) noexcept;

  constexpr bool ok() const noexcept { return word_ == bare(StatusCode::ok); }
  StatusCode code() const noexcept {
    return (word_ & 1) != 0 ? static_cast<StatusCode>(word_ >> 1) : message_code();
  }
  // The message, or the code's name where there is none. Valid as long as this object.
  std::string_view message() const noexcept;

  friend bool operator==(const Status& status, StatusCode code) noexcept {
    return status.code() == code;
  }

 private:
  static constexpr std::uintptr_t bare(StatusCode code) noexcept {
    return (static_cast<std::uintptr_t>(code) << 1) | 1;
  }
  StatusCode message_code() const noexcept;
  void release() noexcept;

  std::uintptr_t word_;  // odd: a bare code; even: a pointer to an owned message
};

template <class T>
class [[nodiscard]] Expected : public std::expected<T, Status> {
 public:
  using std::expected<T, Status>::expected;
};

// The failing side of an Expected.
inline std::unexpected<Status> fail(Status status) noexcept {
  return std::unexpected<Status>(std::move(status));
}
// The same with a message, as Status::format. Not a template: the compiler checks the format.
[[gnu::cold, gnu::format(printf, 2, 3)]] std::unexpected<Status> fail(StatusCode code,
                                                                      const char* format,
                                                                      ...) noexcept;

}  // namespace perdure
