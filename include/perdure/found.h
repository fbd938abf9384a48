// Found: the result of a call on one key. It holds an error, or whether the key was present when
// the call took effect.
//
//   auto erased = users.erase(42);
//   if (!erased.ok()) return erased.status();   // why it failed
//   if (erased.absent()) ...                    // there was nothing to erase
//
// Exchanged: the result of compare_exchange().
//
// They do not convert to bool, because `if (users.erase(42))` could mean either question. After a
// failure present() and absent(), or exchanged() and refused(), are both false.
//
// Thread safety: both are values; distinct objects may be used from distinct threads.
#pragma once

#include <concepts>
#include <expected>
#include <utility>

#include "perdure/status.h"

namespace perdure {

class [[nodiscard]] Found {
 public:
  // The result of a call that succeeded.
  explicit Found(std::same_as<bool> auto present) noexcept : present_(present) {}
  // The result of a call that failed; `failure` must not be ok.
  Found(Status failure) noexcept : status_(std::move(failure)) {}  // NOLINT: implicit on purpose
  Found(std::unexpected<Status> failure) noexcept                  // NOLINT: likewise
      : status_(std::move(failure).error()) {}

  // True if the call succeeded.
  bool ok() const noexcept { return status_.ok(); }
  // Why the call failed; ok if it succeeded.
  const Status& status() const& noexcept { return status_; }
  Status status() && noexcept { return std::move(status_); }

  // True if the call succeeded and the key was present.
  bool present() const noexcept { return ok() && present_; }
  // True if the call succeeded and the key was absent.
  bool absent() const noexcept { return ok() && !present_; }

 private:
  Status status_;
  bool present_ = false;
};

class [[nodiscard]] Exchanged {
 public:
  // The result of a call that succeeded.
  explicit Exchanged(std::same_as<bool> auto exchanged) noexcept : exchanged_(exchanged) {}
  // The result of a call that failed; `failure` must not be ok.
  Exchanged(Status failure) noexcept
      : status_(std::move(failure)) {}  // NOLINT: implicit on purpose

  // True if the call succeeded.
  bool ok() const noexcept { return status_.ok(); }
  // Why the call failed; ok if it succeeded.
  const Status& status() const& noexcept { return status_; }
  Status status() && noexcept { return std::move(status_); }

  // True if the call succeeded, and the key had what was expected.
  bool exchanged() const noexcept { return ok() && exchanged_; }
  // True if the call succeeded, and the key had something else. Nothing changed.
  bool refused() const noexcept { return ok() && !exchanged_; }

 private:
  Status status_;
  bool exchanged_ = false;
};

}  // namespace perdure
