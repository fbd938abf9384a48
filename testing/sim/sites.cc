#include "testing/sim/sites.h"

#include <algorithm>
#include <cstring>
#include <mutex>

namespace perdure::testing {

namespace {

// Built on first use, because registrars of other translation units may run before this one's
// initialisers, and never destroyed, because their objects are used until the program ends. Sites
// of a FileSystem register when a thread reaches them.
struct Registry {
  std::mutex latch;
  std::vector<SiteInfo*> sites;

  SiteInfo* find(std::string_view name) const {
    for (SiteInfo* site : sites) {
      if (name == site->name) return site;
    }
    return nullptr;
  }
};
Registry& registry() {
  static auto* const made = new Registry;
  return *made;
}

constexpr const char* kNames[] = {"none",         "drop_flush",  "drop_fence",    "first_line_only",
                                  "all_but_last", "delay_flush", "publish_first", "any_order",
                                  "drop_sync",    "skip_step",   "skip_check"};
static_assert(std::size(kNames) == static_cast<std::size_t>(kLastMutant) + 1);

}  // namespace

const char* mutant_name(Mutant mutant) { return kNames[static_cast<std::size_t>(mutant)]; }

std::optional<Mutant> parse_mutant(std::string_view name) {
  const auto* found = std::ranges::find(kNames, name);
  if (found == std::end(kNames)) return std::nullopt;
  return static_cast<Mutant>(found - std::begin(kNames));
}

SiteInfo& site_detail::register_site(const char* name, SiteUse use) {
  const std::scoped_lock guard(registry().latch);
  SiteInfo* site = registry().find(name);
  if (site == nullptr) site = registry().sites.emplace_back(new SiteInfo(name));
  bool SiteInfo::* const uses[] = {&SiteInfo::flushes, &SiteInfo::fences, &SiteInfo::syncs,
                                   &SiteInfo::steps, &SiteInfo::checks};
  site->*uses[static_cast<std::size_t>(use)] = true;
  return *site;
}

std::vector<SiteInfo*> all_sites() {
  std::vector<SiteInfo*> sites;
  {
    const std::scoped_lock guard(registry().latch);
    sites = registry().sites;
  }
  std::ranges::sort(sites, [](const SiteInfo* a, const SiteInfo* b) {
    return std::strcmp(a->name, b->name) < 0;
  });
  return sites;
}

SiteInfo* find_site(std::string_view name) {
  const std::scoped_lock guard(registry().latch);
  return registry().find(name);
}

SiteInfo& step_site(const char* name) {
  return site_detail::register_site(name, site_detail::SiteUse::step);
}

bool reached(const SiteInfo& site) {
  return site.flush_count + site.fence_count + site.sync_count + site.ask_count > 0;
}

bool step_runs(SiteInfo& site) {
  site.ask_count.fetch_add(1, std::memory_order_relaxed);
  const Mutant mutant = site.mutant;
  if (mutant != Mutant::skip_step && mutant != Mutant::skip_check) return true;
  site.dropped_count.fetch_add(1, std::memory_order_relaxed);
  return false;
}

bool step_runs(AnySite site) { return site.name() == nullptr || step_runs(step_site(site.name())); }

void reset_site_counts() {
  for (SiteInfo* site : all_sites()) {
    site->flush_count = 0;
    site->multi_line_count = 0;
    site->ordered_count = 0;
    site->fence_count = 0;
    site->sync_count = 0;
    site->ask_count = 0;
    site->dropped_count = 0;
    site->settled_by.clear();
  }
}

bool set_mutant(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return false;
  const auto mutant = parse_mutant(std::string_view(text).substr(colon + 1));
  SiteInfo* site = find_site(std::string_view(text).substr(0, colon));
  if (!mutant || site == nullptr) return false;
  site->mutant = *mutant;
  return true;
}

bool mutated() {
  return std::ranges::any_of(all_sites(),
                             [](const SiteInfo* site) { return site->mutant != Mutant::none; });
}

LineRange mutated_flush(SiteInfo& site, LineRange lines) {
  site.flush_count.fetch_add(1, std::memory_order_relaxed);
  if (lines.end - lines.first > 1) site.multi_line_count.fetch_add(1, std::memory_order_relaxed);
  LineRange left = lines;
  switch (site.mutant) {
    case Mutant::drop_flush:
      left.end = left.first;
      break;
    case Mutant::first_line_only:
      left.end = std::min(left.end, left.first + 1);
      break;
    case Mutant::all_but_last:
      if (lines.end - lines.first > 1) --left.end;
      break;
    default:  // operators of the platforms themselves
      break;
  }
  if (left.end != lines.end) site.dropped_count.fetch_add(1, std::memory_order_relaxed);
  return left;
}

}  // namespace perdure::testing
