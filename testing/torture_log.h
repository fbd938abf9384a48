// TortureLog: what a child that will be killed tells its parent, in memory that they share.
//
// Each thread has a list of entries. An entry is complete before `started` counts it, and the
// operation begins after that; its answer is stored before `acknowledged` counts it, and the next
// operation begins after that. A thread whose list is full waits for the kill.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "testing/subject.h"
#include "testing/torture_runner.h"

namespace perdure::testing {

inline constexpr std::uint32_t kTortureThreads = 8;
inline constexpr std::uint32_t kLogEntries = 8192;

enum class Answer : std::uint8_t { no, yes, unknown };

struct LogEntry {
  std::uint32_t key = 0;
  OpKind kind = OpKind::find;
  Answer answer = Answer::unknown;
  std::uint64_t value = 0;  // what is written; of a find, the digest of what was found
};

struct ThreadLog {
  std::atomic<std::uint32_t> started;
  std::atomic<std::uint32_t> acknowledged;
  LogEntry entries[kLogEntries];
};

enum class Phase : std::uint32_t { started, opening, opened, verified, closing, closed };
// How an operation that the last kill interrupted came out.
enum class Outcome : std::uint8_t { unknown, undone, done };

struct TortureLog {
  std::atomic<Phase> phase;
  std::atomic<Outcome> outcome[kTortureThreads];
  std::atomic<std::uint64_t> open_calls;   // of KillPoint, until the pool was open
  std::atomic<std::uint64_t> close_calls;  // while it was closed
  std::atomic<const SiteInfo*> killed_at;  // child and parent are one program
  std::atomic<bool> failed;
  char message[1024];
  ThreadLog threads[kTortureThreads];
};

// --- keys and values, as the log names them ---

inline std::string key_text(const TortureOptions& options, std::uint32_t number) {
  if (options.keys != "integer") return "customer:" + std::to_string(number);
  // Spread over all partitions; 0 is among them.
  const std::uint64_t spread = __builtin_bswap64(number * 0x9E3779B97F4A7C15ULL);
  return {reinterpret_cast<const char*>(&spread), 8};
}
// One byte string in sixteen is long, one in 512 longer than a small pool's extent.
inline std::string value_text(const TortureOptions& options, std::uint64_t word) {
  if (options.keys == "integer") return {reinterpret_cast<const char*>(&word), 8};
  const std::uint64_t most = word % 512 == 0 ? 40'000 : word % 16 == 0 ? 4'000 : 150;
  const std::uint64_t size = word / 512 % most;
  return std::string(size, static_cast<char>('a' + word % 26)) + std::to_string(word);
}
inline std::uint64_t digest(const std::string& value) { return std::hash<std::string>{}(value); }

}  // namespace perdure::testing
