// Log: what the library tells an operator, through PoolOptions::log. Silent without a callback.
//
// Thread safety: any number of threads; the callback is called by the one that speaks.
#pragma once

#include <cstdint>
#include <string_view>

#include "perdure/options.h"

namespace perdure {

class Log {
 public:
  using Function = void (*)(void* context, LogLevel level, std::string_view message);

  constexpr Log() noexcept = default;
  // Messages begin with the path, which must stay valid.
  constexpr Log(Function function, void* context, const char* path) noexcept
      : function_(function), context_(context), path_(path) {}

  // One line, printf-formatted. Allocates nothing. Not for hot paths.
  [[gnu::cold, gnu::format(printf, 3, 4)]] void say(LogLevel level, const char* format,
                                                    ...) const noexcept;

 private:
  Function function_ = nullptr;
  void* context_ = nullptr;
  const char* path_ = "";
};

inline constexpr Log kSilent;  // where there is no pool that could speak

inline double milliseconds(std::uint64_t ns) noexcept { return static_cast<double>(ns) / 1e6; }

}  // namespace perdure
