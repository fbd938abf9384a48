// Sites: every write-back, fence and sync that was compiled in, by name, and the switch that breaks
// one.
//
// A Site is instantiated where SimPlatform or LossyPlatform is asked to flush, fence or sync; the
// instantiation registers itself before main, so the list is complete for the templates a program
// contains, run or not. A mutant makes one site misbehave at run time: a test suite that stays
// green under it proves nothing about that site.
//
// Thread safety: set mutants while no pool is in use; the counters are approximate under threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
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
  drop_sync,        // the sync makes nothing durable
};
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
  Mutant mutant = Mutant::none;
  std::atomic<std::uint64_t> flush_count{0};       // calls since reset_site_counts()
  std::atomic<std::uint64_t> multi_line_count{0};  // of these: more than one line
  std::atomic<std::uint64_t> fence_count{0};
  std::atomic<std::uint64_t> sync_count{0};
  std::atomic<std::uint64_t> dropped_count{0};  // calls that the mutant changed
};

namespace site_detail {
enum class SiteUse : std::uint8_t { flush, fence, sync };
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
// The mutants that apply to a site.
std::vector<Mutant> mutants_of(const SiteInfo& site);
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

// The lines [first, end) of a flush of [first, end) that the site's mutant leaves.
struct LineRange {
  std::uint64_t first;
  std::uint64_t end;
};
LineRange mutated_flush(SiteInfo& site, LineRange lines);

}  // namespace perdure::testing
