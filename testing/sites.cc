#include "testing/sites.h"

#include <algorithm>
#include <cstring>

namespace perdure::testing {

namespace {

// Built on first use: registrars of other translation units may run before this one's initialisers.
std::vector<SiteInfo*>& registry() {
  static std::vector<SiteInfo*> sites;
  return sites;
}

constexpr Mutant kMutants[] = {Mutant::none,         Mutant::drop_flush,
                               Mutant::drop_fence,   Mutant::first_line_only,
                               Mutant::all_but_last, Mutant::drop_sync};

}  // namespace

const char* mutant_name(Mutant mutant) {
  switch (mutant) {
    case Mutant::none:
      return "none";
    case Mutant::drop_flush:
      return "drop_flush";
    case Mutant::drop_fence:
      return "drop_fence";
    case Mutant::first_line_only:
      return "first_line_only";
    case Mutant::all_but_last:
      return "all_but_last";
    case Mutant::drop_sync:
      return "drop_sync";
  }
  return "?";
}

std::optional<Mutant> parse_mutant(std::string_view name) {
  for (const Mutant mutant : kMutants) {
    if (name == mutant_name(mutant)) return mutant;
  }
  return std::nullopt;
}

SiteInfo& site_detail::register_site(const char* name, SiteUse use) {
  SiteInfo* site = find_site(name);
  if (site == nullptr) {
    site = registry().emplace_back(new SiteInfo(name));  // lives as long as the program
  }
  (use == SiteUse::flush   ? site->flushes
   : use == SiteUse::fence ? site->fences
                           : site->syncs) = true;
  return *site;
}

std::vector<SiteInfo*> all_sites() {
  std::vector<SiteInfo*> sites = registry();
  std::ranges::sort(sites, [](const SiteInfo* a, const SiteInfo* b) {
    return std::strcmp(a->name, b->name) < 0;
  });
  return sites;
}

SiteInfo* find_site(std::string_view name) {
  for (SiteInfo* site : registry()) {
    if (name == site->name) return site;
  }
  return nullptr;
}

std::vector<Mutant> mutants_of(const SiteInfo& site) {
  std::vector<Mutant> mutants;
  if (site.flushes) mutants.push_back(Mutant::drop_flush);
  if (site.fences) mutants.push_back(Mutant::drop_fence);
  if (site.flushes) {
    mutants.push_back(Mutant::first_line_only);
    mutants.push_back(Mutant::all_but_last);
  }
  if (site.syncs) mutants.push_back(Mutant::drop_sync);
  return mutants;
}

void reset_site_counts() {
  for (SiteInfo* site : registry()) {
    site->flush_count = 0;
    site->multi_line_count = 0;
    site->fence_count = 0;
    site->sync_count = 0;
    site->dropped_count = 0;
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
    case Mutant::none:
    case Mutant::drop_fence:
    case Mutant::drop_sync:
      break;
  }
  if (left.end != lines.end) site.dropped_count.fetch_add(1, std::memory_order_relaxed);
  return left;
}

}  // namespace perdure::testing
