#include "testing/sim_platform.h"

namespace perdure::testing {

namespace {

// No Site names it: it is the file's, not the platform's. Before main, as all sites are.
SiteInfo& storage_sync = site_detail::register_site("storage.sync", site_detail::SiteUse::sync);

}  // namespace

std::uint64_t SimPlatform::random() noexcept {  // splitmix64
  std::uint64_t z = (world_.random_state += 0x9E3779B97F4A7C15ULL);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

void SimPlatform::stuck() noexcept {
  std::fprintf(stderr, "sim: no progress after %llu pauses: deadlock or endless loop\n%s\n",
               static_cast<unsigned long long>(kMaxPauses),
               describe_context != nullptr ? describe_context() : "");
  std::abort();
}

void SimPlatform::sync_range(const void* p, std::size_t n, SiteInfo& site) noexcept {
  site.sync_count.fetch_add(1, std::memory_order_relaxed);
  if (memory_.mode() != SimMode::recording) return;
  if (memory_.before_fence) memory_.before_fence(site);
  if (site.mutant == Mutant::drop_sync) {
    site.dropped_count.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  memory_.sync(static_cast<std::uint64_t>(static_cast<const std::byte*>(p) - memory_.base()), n,
               site.name);
}

Status SimStorage::sync(std::uint64_t offset, std::uint64_t length) noexcept {
  SiteInfo& site = storage_sync;
  site.sync_count.fetch_add(1, std::memory_order_relaxed);
  if (memory_.mode() != SimMode::recording) return {};
  if (memory_.before_fence) memory_.before_fence(site);
  if (site.mutant == Mutant::drop_sync) {
    site.dropped_count.fetch_add(1, std::memory_order_relaxed);
    return {};
  }
  memory_.sync(offset, length, site.name);
  return {};
}

}  // namespace perdure::testing
