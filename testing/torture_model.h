// TortureModel: what the killed processes of a torture must have left behind, at present and in
// closed versions.
//
// CUTS  Keys are not shared between threads. So a version holds of each thread what that thread's
//   keys were after a number of its operations, the cut. Of the thread that tagged it is known; of
//   another it lies between the operations that were acknowledged before the tag began and those
//   that had begun when it was over. Cuts rise with the versions, so neighbours bound each other,
//   and also a version that no tag has answered: one in flight, or left out after a crash. What is
//   read of a version makes its cuts narrower, and they stay so, whatever is killed.
//
// Thread safety: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "testing/torture_log.h"

namespace perdure::testing {

// What a key holds; nothing: it is absent.
using KeyValue = std::optional<std::uint64_t>;

// What one thread has done, and must find.
class ThreadModel {
 public:
  struct Change {
    std::uint64_t since;  // operations
    KeyValue value;
  };

  const std::unordered_map<std::uint32_t, std::uint64_t>& content() const { return content_; }
  // Of every key that any version may hold, what it was; kept where versions are.
  const std::unordered_map<std::uint32_t, std::vector<Change>>& history() const { return history_; }
  void keep_history() { keeps_history_ = true; }
  std::uint64_t operations() const { return operations_; }  // with the one in flight

  KeyValue value_of(std::uint32_t key) const;
  KeyValue value_at(std::uint32_t key, std::uint64_t cut) const;
  // The operation's answer.
  bool apply(const LogEntry& entry);
  // Leaves of the cut what explains that the key was read so; false: nothing does.
  bool narrow(const TortureOptions& options, std::uint32_t key, const KeyValue& found,
              Cut& cut) const;
  // The same of all keys at once, as a version has them; empty, or what is wrong.
  using Found = std::function<KeyValue(std::uint32_t key)>;
  std::string narrow_to_all(const TortureOptions& options, const Found& found, Cut& cut) const;
  std::size_t entries_at(std::uint64_t cut) const;
  bool differs_from(std::uint64_t cut) const;  // the present does
  // Makes the present what it was, as one operation.
  void roll_back(std::uint64_t cut);
  // No version is read before this cut.
  void forget_before(std::uint64_t cut);

  // --- a write that was in flight at the last kill ---
  void begin(const LogEntry& entry);
  const std::optional<LogEntry>& pending() const { return pending_; }
  Outcome outcome = Outcome::unknown;  // once a verification, or a read of a version, has seen it
  void end_pending();                  // as `outcome` says

 private:
  bool changes_within(std::uint32_t key, const Cut& cut) const;
  void note(std::uint32_t key, const KeyValue& value);
  void set(std::uint32_t key, const KeyValue& value);

  std::unordered_map<std::uint32_t, std::uint64_t> content_;
  std::unordered_map<std::uint32_t, std::vector<Change>> history_;
  bool keeps_history_ = false;
  std::uint64_t operations_ = 0;
  std::optional<LogEntry> pending_;
};

// What was read, as the log has it.
KeyValue digest_of(const TortureOptions& options, const KeyValue& value);

struct KeptVersion {
  std::uint64_t number = 0;
  std::array<Cut, kTortureThreads> cuts = {};
};

struct TortureModel {
  std::vector<ThreadModel> threads;
  std::vector<KeptVersion> kept;  // acknowledged or seen, not trimmed; ascending
  std::uint64_t first = 1;        // below, versions are trimmed
  std::uint64_t last = 0;         // the highest that was acknowledged or seen

  // In flight at the last kill.
  std::vector<std::uint64_t> trims;
  std::optional<std::uint64_t> rollback;

  explicit TortureModel(std::size_t n) : threads(n) {}

  const KeptVersion* find(std::uint64_t number) const;
  // What is known of a version that is not among those.
  KeptVersion between(std::uint64_t number) const;
  void trim(std::uint64_t to);
  void roll_back(std::uint64_t to);

  // --- what the log of a dead child says; empty, or what is wrong ---
  // What its verification has seen.
  void see(const TortureLog& log);
  // Its tags, reads of versions and trims. `before`: of each thread, the operations before its log.
  std::string settle_versions(const TortureOptions& options, const TortureLog& log,
                              const std::array<std::uint64_t, kTortureThreads>& before);

 private:
  std::string add_tags(const TortureLog& log,
                       const std::array<std::uint64_t, kTortureThreads>& before);
  std::string judge_reads(const TortureOptions& options, const ThreadLog& log, std::uint64_t asked);
  bool order_cuts();

  std::array<std::uint64_t, kTortureThreads> floor_ = {};  // cuts of the last one that was trimmed
};

}  // namespace perdure::testing
