// SimPool: a PoolCore over a SimMemory, with the identity of a simulated machine.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "pool/opening.h"
#include "testing/sim/sim_platform.h"

namespace perdure::testing {

// Very small: growth, run allocation and reuse of extents happen within a few dozen operations.
inline constexpr PoolShape kTinyShape{
    .max_bytes = 1 << 20, .extent_bytes = kPage, .root_slots = 8, .initial_extents = 4};

// A heap's host that passes everything on to its pool. For tests that change a part of it.
class PassingHost : public HeapHost {
 public:
  explicit PassingHost(PoolCore<SimPlatform>& core) : core_(core) { core.heap().set_host(*this); }
  Expected<std::uint64_t> grow(std::uint64_t extents) override { return core_.grow(extents); }
  bool prepare(std::uint64_t extents) override { return core_.prepare(extents); }
  void expect(std::uint64_t extents) override { core_.expect(extents); }
  void space_freed() override { core_.space_freed(); }
  bool help_sweep() override { return core_.help_sweep(); }

 protected:
  PoolCore<SimPlatform>& core_;
};

class SimPool {
 public:
  explicit SimPool(SimMemory& memory, Durability mode = Durability::power)
      : mode_(mode), platform_(memory), storage_(memory), core_(platform_, storage_) {
    platform_.set_durable(mode != Durability::process);
  }

  static Status create(SimMemory& memory, const PoolShape& shape,
                       Durability mode = Durability::power) {
    SimPlatform platform(memory);
    platform.set_durable(mode != Durability::process);
    SimStorage storage(memory);
    const std::uint8_t uuid[16] = {1, 2, 3};
    Status s = PoolCore<SimPlatform>::create(platform, storage, shape, identity(1), uuid, mode);
    return s.ok() ? storage.publish() : std::move(s);
  }
  // The whole opening, with these maps.
  Status open(std::uint64_t boot, PoolMaps& maps) {
    return open_pool(core_, request(boot, false, kInode), report_, maps);
  }
  // For a pool whose maps are not opened: up to complete.
  Status open_whole(std::uint64_t boot) {
    Status s = open(boot);
    return s.ok() ? core_.complete(true) : s;
  }
  // The first phase only. Another inode than that of the file that was created: a copy.
  Status open(std::uint64_t boot, bool accept_untrusted = false, std::uint64_t inode = kInode) {
    return core_.open(request(boot, accept_untrusted, inode), report_);
  }

  // Instead of open(), and the only call.
  Status resize(std::uint64_t boot, std::uint64_t max_bytes) {
    return core_.resize(request(boot, false, kInode), max_bytes);
  }

  // Call it before open(): all maps restart at once.
  void restart_at_once() {
    at_once_ = [](const layout::Root&) { return true; };
  }

  PoolCore<SimPlatform>& core() { return core_; }
  SimPlatform& platform() { return platform_; }
  Heap<SimPlatform>& heap() { return core_.heap(); }
  EpochDomain<SimPlatform>& epochs() { return core_.epochs(); }
  const OpenReport& report() const { return report_; }

  // Runs `mark` between the two ends of an audit. Reports leaks and the error of `mark`.
  template <class F>
  void audit(F&& mark, std::vector<std::string>& violations) {
    epochs().drain_all();
    heap().flush_caches();
    if (const Status s = heap().begin_audit(); !s.ok()) {
      violations.push_back("audit: " + std::string(s.message()));
      return;
    }
    if (const Status s = mark(); !s.ok())
      violations.push_back("audit: " + std::string(s.message()));
    const std::uint64_t leaked = heap().end_audit();
    if (violations.empty() && leaked != 0) {
      violations.push_back(std::to_string(leaked) + " blocks leaked");
    }
  }

 private:
  static constexpr std::uint64_t kInode = 2;
  static layout::Identity identity(std::uint64_t boot, std::uint64_t inode = kInode) {
    layout::Identity id{};
    id.boot_id[0] = 0xB0;  // an all-zero boot id means unknown
    std::memcpy(id.boot_id + 1, &boot, sizeof(boot));
    id.device = 1;
    id.inode = inode;
    id.filesystem_id = 3;
    std::strcpy(id.host, "simulated");
    return id;
  }
  OpenRequest request(std::uint64_t boot, bool accept_untrusted, std::uint64_t inode) {
    return {.identity = identity(boot, inode),
            .mode = mode_,
            .accept_untrusted = accept_untrusted,
            .write_back_by_sync = platform_.memory().medium() == SimMedium::page,
            .at_once = at_once_,
            .threads = 2};
  }

  Durability mode_;
  bool (*at_once_)(const layout::Root&) = nullptr;
  SimPlatform platform_;
  SimStorage storage_;
  PoolCore<SimPlatform> core_;
  OpenReport report_;
};

}  // namespace perdure::testing

// sim_pool.cc has the instantiations that tests share.
namespace perdure {

extern template class heap::State<testing::SimPlatform>;
extern template class heap::Table<testing::SimPlatform>;
extern template class heap::Extents<testing::SimPlatform>;
extern template class heap::Slabs<testing::SimPlatform>;
extern template class heap::Sweep<testing::SimPlatform>;
extern template class heap::Audit<testing::SimPlatform>;
extern template class Heap<testing::SimPlatform>;
extern template class EpochDomain<testing::SimPlatform>;
extern template class Background<testing::SimPlatform>;
extern template class OpenSweep<testing::SimPlatform>;
extern template class AfterKill<testing::SimPlatform>;
extern template class format::State<testing::SimPlatform>;
extern template class format::Seal<testing::SimPlatform>;
extern template class format::Roots<testing::SimPlatform>;
extern template class format::Growth<testing::SimPlatform>;
extern template class format::Recovery<testing::SimPlatform>;
extern template class format::Resize<testing::SimPlatform>;
extern template class PoolCore<testing::SimPlatform>;

}  // namespace perdure
