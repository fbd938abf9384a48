#include "testing/sim/sim_platform.h"

#include "platform/real_platform.h"

namespace perdure::testing {

namespace {

// The syncs of FileStorage, as sites like those of the library.
SiteInfo& storage_sync = site_detail::register_site("storage.sync", site_detail::SiteUse::sync);
SiteInfo& storage_publish =
    site_detail::register_site("storage.publish", site_detail::SiteUse::sync);

// Whether a sync at this site takes effect.
bool syncs(SimMemory& memory, SiteInfo& site) {
  site.sync_count.fetch_add(1, std::memory_order_relaxed);
  if (memory.mode() != SimMode::recording) return false;
  if (memory.before_fence) memory.before_fence(site);
  if (site.mutant != Mutant::drop_sync) return true;
  site.dropped_count.fetch_add(1, std::memory_order_relaxed);
  return false;
}

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

void SimPlatform::violated(const Assertion& assertion) noexcept {
  if ((mutated() || latches_stuck) && !planted) return;
  std::fprintf(stderr, "%s\n", describe_context != nullptr ? describe_context() : "");
  RealPlatform::violated(assertion);
}

void SimPlatform::sync_range(const void* p, std::size_t n, SiteInfo& site) noexcept {
  if (!syncs(memory_, site)) return;
  memory_.sync(static_cast<std::uint64_t>(static_cast<const std::byte*>(p) - memory_.base()), n,
               site.name);
}

Status SimStorage::sync(std::uint64_t offset, std::uint64_t length) noexcept {
  if (syncs(memory_, storage_sync)) memory_.sync_file(offset, length, storage_sync.name);
  return {};
}

Status SimStorage::publish() noexcept {
  if (memory_.medium() != SimMedium::page) return {};
  memory_.link();
  if (syncs(memory_, storage_publish)) memory_.sync_directory();
  return {};
}

}  // namespace perdure::testing
