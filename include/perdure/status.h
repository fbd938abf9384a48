// Status: ok, or why a call failed. One machine word; a code without a message never allocates.
//
// The library throws no exceptions. Calls that can fail return Status, Found, or Expected<T>, which
// is a std::expected<T, Status>. Absence of a key is no failure (map.h). A message names the file,
// what is wrong and what to do.
// Thread safety: a Status is a value; distinct objects may be used from distinct threads.
#pragma once

#if __cplusplus <= 202002L
#error "perdure needs C++23: compile with -std=c++23 (GCC 12 or Clang 17, or later)"
#endif

#include <cstdarg>
#include <cstdint>
#include <expected>
#include <string_view>
#include <utility>

namespace perdure {

// The kind of failure. Programs branch on the code; people read the message.
enum class StatusCode : std::uint8_t {
  ok = 0,
  invalid_argument,    // the call breaks a rule of its documentation
  not_found,           // there is no such file or map; never: no such key
  exists,              // the file or map exists, and the call asked for a new one
  busy,                // another process owns or reads the pool; rollback(): a later one is held
  corruption,          // the content of the file breaks the format; nothing was changed
  unsupported_format,  // another format version, unknown features, or another kind of machine
  // The file may lack acknowledged data (docs/durability.md). PoolOptions::accept_untrusted serves
  // it if a full check passes; not if the log of a `buffered` pool is damaged or missing.
  untrusted,
  // No space in the pool or on the disk. Reads and erases work, inserts again once space is free.
  pool_full,
  out_of_memory,  // DRAM is short, not the pool
  io,             // the operating system refused an operation
  // A write-back failed, or the file became shorter. No call is acknowledged any more: close the
  // pool and open it again.
  poisoned,
  unsupported,    // the engine, the medium or this build cannot do it
  read_only,      // a mutation of a pool that was opened read-only
  hash_overflow,  // more keys of one hash than the table takes; nothing was changed
  conflict,       // a requirement of a batch is not met; nothing was changed
  // A `buffered` pool was left open since the machine was started, and its live image (two files)
  // is not where it was, or cannot be used. PoolOptions::accept_untrusted serves the last durable
  // cut.
  live_missing,
};

// The code's name in lower case, e.g. "pool_full". Never null; "unknown" for a value that is none.
const char* status_code_name(StatusCode code) noexcept;

class [[nodiscard]] Status {
 public:
  // A status without a message: ok, or the code.
  constexpr Status() noexcept : word_(bare(StatusCode::ok)) {}
  constexpr Status(StatusCode code) noexcept : word_(bare(code)) {}  // NOLINT: implicit on purpose
  // A copy has the message, too; without memory for it, only the code.
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

  // A status with a printf-formatted message, of which 1,023 bytes are kept. Without memory for it,
  // a bare code.
  [[gnu::format(printf, 2, 3)]] static Status format(StatusCode code, const char* format,
                                                     ...) noexcept;
  [[gnu::format(printf, 2, 0)]] static Status format_list(StatusCode code, const char* format,
                                                          std::va_list arguments) noexcept;

  // True if the call succeeded.
  constexpr bool ok() const noexcept { return word_ == bare(StatusCode::ok); }
  // The kind of failure, or StatusCode::ok.
  StatusCode code() const noexcept {
    return (word_ & 1) != 0 ? static_cast<StatusCode>(word_ >> 1) : message_code();
  }
  // The message, or the name of the code if there is none. Valid until this object changes.
  std::string_view message() const noexcept;

  // Compares the code.
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

// A value, or why there is none. value() of one without a value throws, or ends a program without
// exceptions; ask has_value() or ok-ness (`if (result)`) first.
template <class T>
class [[nodiscard]] Expected : public std::expected<T, Status> {
 public:
  using std::expected<T, Status>::expected;
};

// Makes the error of an Expected; `status` must not be ok.
inline std::unexpected<Status> fail(Status status) noexcept {
  return std::unexpected<Status>(std::move(status));
}
// The same with a message, as Status::format. It is no template, so the compiler checks the format.
[[gnu::cold, gnu::format(printf, 2, 3)]] std::unexpected<Status> fail(StatusCode code,
                                                                      const char* format,
                                                                      ...) noexcept;

}  // namespace perdure
