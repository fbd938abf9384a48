// TortureChild: the process that is killed.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "testing/torture/torture_model.h"

namespace perdure::testing {

// The place of the kill that the parent plans, and the child's preparations for it.
struct KillPlan {
  KillWhen when = KillWhen::work;
  bool by_site = false;            // otherwise by the clock
  const SiteInfo* site = nullptr;  // null: any site
  std::uint64_t nth = 0;           // call of the site
  std::uint64_t delay_us = 0;      // after the phase, by the clock
  std::uint64_t age = 0;           // cycles of this pool
  bool last = false;               // no kill: close and end
  // For engines that keep versions:
  bool trims = false;       // many trims
  bool rolls_back = false;  // before the threads begin
};

class TortureChild {
 public:
  // `model` is the parent's. After the fork the child may change its copy.
  TortureChild(TortureLog& log, const TortureOptions& options, const KillPlan& plan,
               TortureModel& model, std::uint64_t cycle)
      : log_(log), options_(options), plan_(plan), model_(model), cycle_(cycle) {}

  [[noreturn]] void run(const TortureOpen& open, const std::string& file, bool created);

 private:
  [[noreturn]] void report(const std::string& what);
  void arm();
  void verify();
  void verify_pending(ThreadModel& model, std::uint32_t thread);
  std::string check_key(std::uint32_t key, const ThreadModel& model);

  // --- torture_child_versions.cc ---
  void decide_rollback();
  std::string verify_range(const VersionRange& range);
  std::string verify_versions();
  // The keys of a version, with the digests of their values.
  using Entries = std::unordered_map<std::string, std::uint64_t>;
  std::string verify_whole(KeptVersion& version, Entries& entries);
  std::string verify_difference(const KeptVersion& from, const Entries& before,
                                const KeptVersion& to, const Entries& after);
  std::string verify_history(std::uint64_t first, Random& random);
  std::string verify_some(KeptVersion& version, Random& random);
  std::string verify_trimmed(std::uint64_t version, Random& random);
  std::uint32_t some_key(Random& random);
  void publish(const VersionRange& range, bool newest);
  void roll_back();
  LogEntry read_beside(std::uint32_t thread, std::uint32_t index, std::uint64_t version);
  void perform_at_versions(ThreadLog& log, LogEntry& entry);

  void work(std::uint32_t thread, std::uint32_t limit);
  void perform(ThreadLog& log, std::uint32_t index);
  void perform_together(ThreadLog& log, std::uint32_t index, std::uint32_t n);
  void work_in_all(std::uint32_t limit);
  void close();
  [[noreturn]] static void wait_for_the_kill();

  TortureLog& log_;
  const TortureOptions& options_;
  const KillPlan& plan_;
  TortureModel& model_;
  std::uint64_t cycle_;
  std::unique_ptr<TortureTarget> target_;
  std::uint64_t rollback_to_ = 0;  // if the plan has a rollback
};

}  // namespace perdure::testing
