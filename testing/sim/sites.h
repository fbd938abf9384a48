// Sites: every compiled-in write-back, fence, sync, step and checksum by name, and the switch that
// breaks one.
//
// A Site is instantiated by each use of SimPlatform or LossyPlatform: a flush, fence or sync, or
// the question whether a step runs or a checksum counts. The instantiation registers itself before
// main. The list is therefore complete for the templates of a program, run or not. An AnySite
// registers itself when SimFileSystem gets it; tests/tidy requires a test that breaks it. A mutant
// makes one site misbehave at run time. A test suite that passes with it proves nothing about that
// site.
//
// Thread safety: set mutants while no pool is in use; the counters are approximate under threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "platform/site.h"

namespace perdure::testing {

enum class Mutant : std::uint8_t {
  none,
  drop_flush,       // the write-back is never started
  drop_fence,       // the fence waits for nothing
  first_line_only,  // only the first line of the range is written back
  all_but_last,     // all lines of the range but the last one are
  delay_flush,      // the write-back starts after the thread's next fence
  publish_first,    // write-back and fence come after the thread's next fence of another site
  any_order,        // stores to one line reach the medium in any order, not in program order
  drop_sync,        // the sync makes nothing durable
  skip_step,        // the step is left out
  skip_check,       // the checksum counts as correct
};
inline constexpr Mutant kLastMutant = Mutant::skip_check;
const char* mutant_name(Mutant mutant);
std::optional<Mutant> parse_mutant(std::string_view name);

struct SiteInfo {
  explicit SiteInfo(const char* site_name) : name(site_name) {}
  SiteInfo(const SiteInfo&) = delete;
  SiteInfo& operator=(const SiteInfo&) = delete;

  const char* name;
  bool flushes = false;  // some code flushes, fences, syncs, ... under this name
  bool fences = false;
  bool syncs = false;
  bool steps = false;
  bool checks = false;
  Mutant mutant = Mutant::none;
  std::atomic<std::uint64_t> flush_count{0};       // calls since reset_site_counts()
  std::atomic<std::uint64_t> multi_line_count{0};  // of these: more than one line
  std::atomic<std::uint64_t> ordered_count{0};  // of these: a line with stores that have an order
  std::atomic<std::uint64_t> fence_count{0};
  std::atomic<std::uint64_t> sync_count{0};
  std::atomic<std::uint64_t> ask_count{0};      // questions of a step or a checksum
  std::atomic<std::uint64_t> dropped_count{0};  // calls that the mutant changed
  // In SimMemory: fences and syncs that made durable what the mutant of this site did not.
  std::set<std::string> settled_by;
};

namespace site_detail {
enum class SiteUse : std::uint8_t { flush, fence, sync, step, check };
// Finds or makes the site of this name, and notes the use.
SiteInfo& register_site(const char* name, SiteUse use);

// One per instantiated (site, use). Its initialiser runs before main.
template <FixedString Name, SiteUse Use>
struct SiteRecord {
  static inline SiteInfo& info = register_site(Name.text, Use);
};
}  // namespace site_detail

// All sites of this program, by name.
std::vector<SiteInfo*> all_sites();
SiteInfo* find_site(std::string_view name);
// The site of a step, which need not have been reached. The name must stay valid.
SiteInfo& step_site(const char* name);
// Whether any use of the site was counted.
bool reached(const SiteInfo& site);
// The same for a step or a checksum: counts the question, and returns whether it runs.
bool step_runs(SiteInfo& site);
bool step_runs(AnySite site);
void reset_site_counts();

// Sets one mutant for the life of the object. `matched` is false if no such site is compiled in.
class ScopedMutant {
 public:
  ScopedMutant(std::string_view site, Mutant mutant) : site_(find_site(site)) {
    if (site_ != nullptr) site_->mutant = mutant;
  }
  ~ScopedMutant() {
    if (site_ != nullptr) site_->mutant = Mutant::none;
  }
  ScopedMutant(const ScopedMutant&) = delete;
  ScopedMutant& operator=(const ScopedMutant&) = delete;
  bool matched() const { return site_ != nullptr; }
  SiteInfo* site() const { return site_; }

 private:
  SiteInfo* site_;
};

// Sets the mutant "SITE:op", e.g. "phast.insert.entry:drop_flush". Returns false if there is none.
bool set_mutant(const std::string& text);
// Whether any mutant is set.
bool mutated();

// The lines [first, end) that the site's mutant leaves of a flush.
struct LineRange {
  std::uint64_t first;
  std::uint64_t end;
};
LineRange mutated_flush(SiteInfo& site, LineRange lines);

}  // namespace perdure::testing
