// TortureLog: the reports of a child that will be killed, in memory shared with its parent.
//
// Each thread has a list of entries. An entry is complete before `started` counts it, and the
// operation begins after that. Its result is stored before `acknowledged` counts it, and the next
// operation begins after that. `started` counts all mutations of one call of write_many() at once.
// A thread whose list is full waits for the kill.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <string>

#include "testing/crash/subject.h"
#include "testing/torture/torture_runner.h"

namespace perdure::testing {

inline constexpr std::uint32_t kTortureThreads = 8;
inline constexpr std::uint32_t kLogEntries = 8192;
inline constexpr std::uint32_t kMostTogether = 24;   // mutations of one write_many()
inline constexpr std::uint32_t kLogTags = 128;       // per thread and cycle
inline constexpr std::uint32_t kMostVersions = 512;  // of a model

enum class LogResult : std::uint8_t { no, yes, unknown, refused };

struct LogEntry {
  std::uint32_t key = 0;  // for a tag, its index in ThreadLog::tags
  OpKind kind = OpKind::find;
  LogResult result = LogResult::unknown;
  bool together = false;       // in a call of write_many()
  std::uint64_t value = 0;     // the written value; for a find, the digest of the value found
  std::uint64_t expected = 0;  // of update_if, erase_if
  // the tag's result; the trim's argument; the find's version, 0: at present
  std::uint64_t version = 0;
};
inline bool is_conditional(OpKind kind) {
  return kind == OpKind::update_if || kind == OpKind::erase_if;
}
inline bool is_write(OpKind kind) { return kind <= OpKind::erase || is_conditional(kind); }

// The number of a thread's operations that a version holds: at least, at most.
struct Cut {
  std::uint64_t from = 0;
  std::uint64_t to = 0;
};

struct ThreadLog {
  std::atomic<std::uint32_t> started;
  std::atomic<std::uint32_t> acknowledged;
  LogEntry entries[kLogEntries];
  // For every thread in this cycle: operations acknowledged before the tag, and begun before its
  // end.
  struct Tag {
    Cut cuts[kTortureThreads];
  } tags[kLogTags];
};

enum class Phase : std::uint32_t { started, opening, opened, verified, closing, closed };
// How an operation ended that the last kill interrupted.
enum class Outcome : std::uint8_t { unknown, undone, done };

// What a verification has read of versions. Its cuts are within the parent's, and each of them
// counts by itself.
struct SeenVersions {
  std::atomic<std::uint64_t> first;  // the first readable one; stored last; 0: nothing was read
  std::uint64_t last;
  std::uint64_t newest;  // the last one, if the parent does not have it; or 0
  // of the parent's versions, in its order, and of the newest
  Cut cuts[kMostVersions][kTortureThreads];
};

// What a child reports and ends with: the failure that its first thread has found. A kill may come
// before the text is whole; then nothing is reported.
class FirstFailure {
 public:
  void clear() { reported_ = found_ = false; }
  [[noreturn]] void report(const std::string& what) {
    if (!found_.exchange(true)) {
      std::snprintf(text_, sizeof(text_), "%s", what.c_str());
      reported_ = true;
    }
    while (!reported_.load()) sched_yield();  // the other thread ends the process
    _exit(9);
  }
  bool reported() const { return reported_.load(); }
  const char* text() const { return text_; }

 private:
  std::atomic<bool> found_;
  std::atomic<bool> reported_;
  char text_[1024];
};

struct TortureLog {
  std::atomic<Phase> phase;
  std::atomic<Outcome> outcome[kTortureThreads][kMostTogether];
  std::atomic<std::uint64_t> open_calls;   // calls of KillPoint until the pool was open
  std::atomic<std::uint64_t> close_calls;  // calls during close
  std::atomic<const SiteInfo*> killed_at;  // valid in the parent: one program
  // For engines that keep versions:
  std::atomic<bool> keeps_versions;
  SeenVersions seen;
  std::atomic<std::uint64_t> verified;     // number of versions
  std::atomic<std::uint64_t> rollback_to;  // stored before the rollback
  std::atomic<bool> rolled_back;           // stored after the rollback
  std::atomic<Outcome> rollback_outcome;   // of a rollback that the last kill interrupted
  FirstFailure failure;
  ThreadLog threads[kTortureThreads];
};

// --- keys and values by their numbers in the log ---

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
