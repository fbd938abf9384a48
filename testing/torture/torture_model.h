// TortureModel: what the killed processes of a torture must have left, at present and in closed
// versions.
//
// CUTS  Threads share no keys. A version therefore holds, of each thread, the state of its keys
//   after a number of its operations, the cut. For the thread that tagged the version the cut is
//   known. For another thread it lies between the operations acknowledged before the tag began and
//   those begun before it ended. Cuts rise with the versions, and neighbours bound each other. They
//   also bound a version that no tag has returned: one in flight, or one left out after a crash.
//   Reads of a version narrow its cuts, and these stay narrowed across kills.
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

#include "testing/torture/torture_log.h"

namespace perdure::testing {

// The value of a key; nullopt: it is absent.
using KeyValue = std::optional<std::uint64_t>;

// One thread's operations, and the content that they must have left.
class ThreadModel {
 public:
  struct Change {
    std::uint64_t since;  // number of operations
    KeyValue value;
  };

  const std::unordered_map<std::uint32_t, std::uint64_t>& content() const { return content_; }
  // The past values of every key that any version may hold; kept only with versions.
  const std::unordered_map<std::uint32_t, std::vector<Change>>& history() const { return history_; }
  void keep_history() { keeps_history_ = true; }
  std::uint64_t operations() const { return operations_; }  // with those in flight

  KeyValue value_of(std::uint32_t key) const;
  KeyValue value_at(std::uint32_t key, std::uint64_t cut) const;
  // Applies the operation and returns its expected result.
  bool apply(const LogEntry& entry);
  // Narrows the cut to what explains that the key was read with this value. Returns false if
  // nothing does.
  bool narrow(const TortureOptions& options, std::uint32_t key, const KeyValue& found,
              Cut& cut) const;
  // The same for all keys at once, as a version has them. Returns "", or what is wrong.
  using Found = std::function<KeyValue(std::uint32_t key)>;
  std::string narrow_to_all(const TortureOptions& options, const Found& found, Cut& cut) const;
  std::size_t entries_at(std::uint64_t cut) const;
  bool differs_from(std::uint64_t cut) const;  // compares with the present
  // Makes the present state that at the cut, as one operation.
  void roll_back(std::uint64_t cut);
  // No version is read before this cut.
  void forget_before(std::uint64_t cut);

  // --- writes that were in flight at the last kill: one, or those of one write_many() ---
  struct Pending {
    LogEntry entry;
    std::uint64_t since;  // number of operations with it
    // known once a verification, or a read of a version, has seen it
    Outcome outcome = Outcome::unknown;
  };
  // The keys of pending writes are distinct.
  void begin(const LogEntry& entry);
  std::vector<Pending>& pending() { return pending_; }
  void end_pending();  // as their outcomes say

 private:
  bool changes_within(std::uint32_t key, const Cut& cut) const;
  void note(std::uint32_t key, const KeyValue& value);
  void set(std::uint32_t key, const KeyValue& value);

  std::unordered_map<std::uint32_t, std::uint64_t> content_;
  std::unordered_map<std::uint32_t, std::vector<Change>> history_;
  bool keeps_history_ = false;
  std::uint64_t operations_ = 0;
  std::vector<Pending> pending_;
};

// The logged form of a read value.
KeyValue digest_of(const TortureOptions& options, const KeyValue& value);

struct KeptVersion {
  std::uint64_t number = 0;
  std::array<Cut, kTortureThreads> cuts = {};
};

struct TortureModel {
  std::vector<ThreadModel> threads;
  std::vector<KeptVersion> kept;  // acknowledged or seen, not trimmed; ascending
  std::uint64_t first = 1;        // versions below are trimmed
  std::uint64_t last = 0;         // the highest that was acknowledged or seen

  // In flight at the last kill:
  std::vector<std::uint64_t> trims;
  std::optional<std::uint64_t> rollback;

  explicit TortureModel(std::size_t n) : threads(n) {}

  const KeptVersion* find(std::uint64_t number) const;
  // The bounds of a version that is not in `kept`.
  KeptVersion between(std::uint64_t number) const;
  void trim(std::uint64_t to);
  void roll_back(std::uint64_t to);

  // --- the log of a dead child; these return "", or what is wrong ---
  // Takes over what its verification has read.
  void see(const TortureLog& log);
  // Settles its tags, reads of versions and trims. `before`: for each thread, the operations before
  // its log.
  std::string settle_versions(const TortureOptions& options, const TortureLog& log,
                              const std::array<std::uint64_t, kTortureThreads>& before);

 private:
  std::string add_tags(const TortureLog& log,
                       const std::array<std::uint64_t, kTortureThreads>& before);
  std::string judge_reads(const TortureOptions& options, const ThreadLog& log, std::uint64_t asked);
  bool order_cuts();

  // cuts of the last version that was trimmed
  std::array<std::uint64_t, kTortureThreads> floor_ = {};
};

}  // namespace perdure::testing
