// Sites: every write-back, fence, sync, step and checksum that was compiled in, by name, and the
// switch that breaks one.
//
// A Site is instantiated where SimPlatform or LossyPlatform is asked to flush, fence or sync, or
// whether a step runs or a checksum counts; the instantiation registers itself before main, so the
// list is complete for the templates a program contains, run or not. A mutant makes one site
// misbehave at run time: a test suite that stays green under it proves nothing about that site.
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
  all_but_last,     // all lines of the range but the last one
  delay_flush,      // the write-back starts after the thread's next fence
  publish_first,    // write-back and fence come after the thread's next fence of another site
  any_order,        // stores to one line reach the medium in any order, not in that of the program
  drop_sync,        // the sync makes nothing durable
  skip_step,        // the step is left out
  skip_check,       // the checksum is taken for right
};
inline constexpr Mutant kLastMutant = Mutant::skip_check;
const char* mutant_name(Mutant mutant);
std::optional<Mutant> parse_mutant(std::string_view name);

struct SiteInfo {
  explicit SiteInfo(const char* site_name) : name(site_name) {}
  SiteInfo(const SiteInfo&) = delete;
  SiteInfo& operator=(const SiteInfo&) = delete;

  const char* name;
  bool flushes = false;  // somebody flushes, fences, syncs under this name
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
  std::atomic<std::uint64_t> ask_count{0};      // of a step or a checksum
  std::atomic<std::uint64_t> dropped_count{0};  // calls that the mutant changed
  // SimMemory: which fences and syncs made durable what the mutant of this site did not.
  std::set<std::string> settled_by;
};

namespace site_detail {
enum class SiteUse : std::uint8_t { flush, fence, sync, step, check };
// Finds or makes the site of this name, and notes the use.
SiteInfo& register_site(const char* name, SiteUse use);

// One per (site, use) that is instantiated; its initialiser runs before main.
template <FixedString Name, SiteUse Use>
struct SiteRecord {
  static inline SiteInfo& info = register_site(Name.text, Use);
};
}  // namespace site_detail

// All sites of this program, by name.
std::vector<SiteInfo*> all_sites();
SiteInfo* find_site(std::string_view name);
// The mutants that apply to a site, by what it is used for and what was counted there:
//   drop_flush, delay_flush        it writes back
//   drop_fence                     it fences
//   first_line_only, all_but_last  a write-back had more than one line; else they change nothing
//   publish_first                  it writes back and fences, so something may be published next
//   any_order                      relies_on_order(), and a line written back had pending stores
//                                  that have an order
//   drop_sync, skip_step, skip_check  it syncs, is a step, is a checksum
std::vector<Mutant> mutants_of(const SiteInfo& site);
// The site's protocol needs the order of stores to one line, by the design documents.
bool relies_on_order(std::string_view site);
// Whether anything that the site is used for was counted.
bool reached(const SiteInfo& site);
// The same for a step or a checksum: counts the question, and answers it.
bool step_runs(SiteInfo& site);
void reset_site_counts();

// One mutant for as long as the object lives. `matched` is false if no such site was compiled in.
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

// Sets the mutant that "SITE:op" names, e.g. "phast.insert.entry:drop_flush"; false if there is
// none.
bool set_mutant(const std::string& text);
// Whether any mutant is set.
bool mutated();

// The lines [first, end) of a flush of [first, end) that the site's mutant leaves.
struct LineRange {
  std::uint64_t first;
  std::uint64_t end;
};
LineRange mutated_flush(SiteInfo& site, LineRange lines);

}  // namespace perdure::testing
