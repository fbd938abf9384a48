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
inline constexpr std::uint32_t kLogTags = 128;       // of a thread in a cycle
inline constexpr std::uint32_t kMostVersions = 512;  // that a model keeps

enum class Answer : std::uint8_t { no, yes, unknown, refused };

struct LogEntry {
  std::uint32_t key = 0;  // of a tag, its place in ThreadLog::tags
  OpKind kind = OpKind::find;
  Answer answer = Answer::unknown;
  std::uint64_t value = 0;    // what is written; of a find, the digest of what was found
  std::uint64_t version = 0;  // a tag's answer; what a trim asks for; of a find, 0: at present
};
inline bool is_write(OpKind kind) { return kind <= OpKind::erase; }

// How many operations of a thread a version holds: at least, at most.
struct Cut {
  std::uint64_t from = 0;
  std::uint64_t to = 0;
};

struct ThreadLog {
  std::atomic<std::uint32_t> started;
  std::atomic<std::uint32_t> acknowledged;
  LogEntry entries[kLogEntries];
  // Of every thread in this cycle: what was acknowledged before the tag, and begun behind it.
  struct Tag {
    Cut cuts[kTortureThreads];
  } tags[kLogTags];
};

enum class Phase : std::uint32_t { started, opening, opened, verified, closing, closed };
// How an operation that the last kill interrupted came out.
enum class Outcome : std::uint8_t { unknown, undone, done };

// What a verification has seen of versions. Its cuts are within those that the parent gave, so each
// of them counts by itself.
struct SeenVersions {
  std::atomic<std::uint64_t> first;  // that can be read; stored last; 0: nothing was seen
  std::uint64_t last;
  std::uint64_t newest;                      // the last, if it is none of the parent's; or 0
  Cut cuts[kMostVersions][kTortureThreads];  // of the parent's, in its order, and of the newest
};

struct TortureLog {
  std::atomic<Phase> phase;
  std::atomic<Outcome> outcome[kTortureThreads];
  std::atomic<std::uint64_t> open_calls;   // of KillPoint, until the pool was open
  std::atomic<std::uint64_t> close_calls;  // while it was closed
  std::atomic<const SiteInfo*> killed_at;  // child and parent are one program
  // Of engines that keep versions.
  std::atomic<bool> keeps_versions;
  SeenVersions seen;
  std::atomic<std::uint64_t> verified;     // versions
  std::atomic<std::uint64_t> rollback_to;  // before it begins
  std::atomic<bool> rolled_back;           // behind it
  std::atomic<Outcome> rollback_outcome;   // of one that the last kill interrupted
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
