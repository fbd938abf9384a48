// Log: messages for an operator, through PoolOptions::log. Without a callback it is silent.
//
// Thread safety: any number of threads. The thread that calls say() calls the callback.
#pragma once

#include <cstdint>
#include <string_view>

#include "perdure/options.h"

namespace perdure {

class Log {
 public:
  using Function = void (*)(void* context, LogLevel level, std::string_view message);

  constexpr Log() noexcept = default;
  // Messages begin with `path`, which must stay valid.
  constexpr Log(Function function, void* context, const char* path) noexcept
      : function_(function), context_(context), path_(path) {}

  // "": of no pool.
  const char* path() const noexcept { return path_; }

  // Reports one line, printf-formatted. Allocates nothing. Not for hot paths.
  [[gnu::cold, gnu::format(printf, 3, 4)]] void say(LogLevel level, const char* format,
                                                    ...) const noexcept;

 private:
  Function function_ = nullptr;
  void* context_ = nullptr;
  const char* path_ = "";
};

inline constexpr Log kSilent;  // for code without a pool

inline double milliseconds(std::uint64_t ns) noexcept { return static_cast<double>(ns) / 1e6; }

}  // namespace perdure
