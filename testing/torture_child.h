// TortureChild: the process that is killed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "testing/torture_log.h"

namespace perdure::testing {

// Where the parent means to kill, and what the child has to do for it.
struct KillPlan {
  KillWhen when = KillWhen::work;
  bool by_site = false;            // else by the clock
  const SiteInfo* site = nullptr;  // null: any
  std::uint64_t nth = 0;           // call of it
  std::uint64_t delay_us = 0;      // after the phase, by the clock
  std::uint64_t age = 0;           // cycles of this pool
  bool last = false;               // no kill: close and end
};

// What one thread has done, and must find; keys are not shared between threads.
struct ThreadModel {
  std::unordered_map<std::uint32_t, std::uint64_t> content;
  std::optional<LogEntry> pending;     // in flight at the last kill
  Outcome outcome = Outcome::unknown;  // of that, once a verification has seen it
};
// What the operation answers on this content, which it changes.
bool apply_to(ThreadModel& model, const LogEntry& entry);

class TortureChild {
 public:
  TortureChild(TortureLog& log, const TortureOptions& options, const KillPlan& plan,
               const std::vector<ThreadModel>& models, std::uint64_t cycle)
      : log_(log), options_(options), plan_(plan), models_(models), cycle_(cycle) {}

  [[noreturn]] void run(const TortureOpen& open, const std::string& file, bool created);

 private:
  [[noreturn]] void report(const std::string& what);
  void arm();
  void verify();
  void verify_pending(ThreadModel& model, std::uint32_t thread);
  std::string check_key(std::uint32_t key, const ThreadModel& model);
  void work(std::uint32_t thread, std::uint32_t limit);
  void perform(ThreadLog& log, std::uint32_t index);
  void work_in_all(std::uint32_t limit);
  void close();
  [[noreturn]] static void wait_for_the_kill();

  TortureLog& log_;
  const TortureOptions& options_;
  const KillPlan& plan_;
  const std::vector<ThreadModel>& models_;
  std::uint64_t cycle_;
  std::unique_ptr<TortureTarget> target_;
};

}  // namespace perdure::testing
