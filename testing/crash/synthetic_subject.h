// SyntheticSubject: SyntheticEngine in a pool of its own, for the crash explorer.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "testing/crash/subject.h"
#include "testing/crash/synthetic_engine.h"
#include "testing/sim/sim_pool.h"

namespace perdure::testing {

// Integer keys in a model: 8 bytes, big-endian.
inline std::string integer_key(std::uint64_t key) {
  const std::uint64_t swapped = __builtin_bswap64(key);
  return std::string(reinterpret_cast<const char*>(&swapped), 8);
}
inline std::uint64_t integer_of(const std::string& key) {
  std::uint64_t word = 0;
  std::memcpy(&word, key.data(), std::min<std::size_t>(key.size(), 8));
  return __builtin_bswap64(word);
}

class SyntheticSubject : public Subject, private PoolMaps {
 public:
  explicit SyntheticSubject(const SyntheticRules& rules = {}, const PoolShape& shape = kTinyShape,
                            SimMedium medium = SimMedium::line)
      : rules_(rules), shape_(shape), medium_(medium) {}

  Status create(SimMemory& memory) override {
    memory.set_medium(medium_);
    return SimPool::create(memory, shape_);
  }
  Status open(SimMemory& memory, std::uint64_t boot) override {
    pool_ = std::make_unique<SimPool>(memory);
    pool_->restart_at_once();
    return pool_->open(boot, *this);
  }
  Status recover(const OpenReport& /*report*/, bool& /*whole*/) override {
    engine_ = std::make_unique<SyntheticEngine<SimPlatform>>(
        pool_->platform(), pool_->heap(), pool_->epochs(), pool_->core(), rules_);
    auto slot = pool_->core().find_root("synthetic");
    if (!slot) return std::move(slot.error());
    recovered_ = *slot < pool_->core().root_slots();
    if (!recovered_) return {};
    layout::Root root{};
    if (auto used = pool_->core().read_root(*slot, root); !used) return std::move(used.error());
    if (Status s = engine_->open(root.root); !s.ok()) return s;
    pool_->core().sweep().add(*engine_);
    return {};
  }
  Status complete() override {
    if (!recovered_) {
      auto offset = engine_->create();
      if (!offset) return std::move(offset.error());
      layout::Root root{};
      std::strcpy(root.name, "synthetic");
      root.root = *offset;
      if (Status s = pool_->core().add_root(root); !s.ok()) return s;
      if (Status s = engine_->open(*offset); !s.ok()) return s;
    }
    if (!rules_.help_sweep) no_help_ = std::make_unique<NoHelp>(pool_->core());
    engine_->start();  // before the sweep is added: that one is then the first in turn
    return {};
  }
  void serve() override {}
  Expected<bool> apply(const Op& op) override {
    engine_->step();
    // Reclaims at once: a short workload then reuses blocks.
    pool_->epochs().drain_all();
    const std::uint64_t key = integer_of(op.key);
    std::string value;
    switch (op.kind) {
      case OpKind::insert:
        return engine_->insert(key, op.value);
      case OpKind::update:
        return engine_->update(key, op.value);
      case OpKind::upsert: {
        auto updated = engine_->update(key, op.value);
        if (!updated || !*updated) return updated ? engine_->insert(key, op.value) : updated;
        return false;
      }
      case OpKind::erase:
        return engine_->erase(key);
      case OpKind::find:
        return engine_->lookup(key, value);
      default:
        return true;
    }
  }
  Expected<bool> lookup(const std::string& key, std::string& value) override {
    return engine_->lookup(integer_of(key), value);
  }
  Status contents(Contents& out) override {
    engine_->for_each([&](std::uint64_t key, const std::string& value) {
      out.emplace_back(integer_key(key), value);
    });
    return {};
  }
  bool ordered() const override { return false; }
  void check(std::vector<std::string>& violations) override {
    // An audit needs the end of the sweep, which goes on in the background.
    if (const Status s = engine_->check(); !s.ok()) violations.emplace_back(s.message());
    if (pool_->heap().sweeping()) return;
    pool_->audit([&] { return engine_->audit(); }, violations);
  }
  Status close() override {
    // Closes during a sweep: the next open begins another.
    pool_->core().background().stop();
    return pool_->core().close(true);
  }

  SimPool& pool() { return *pool_; }
  SyntheticEngine<SimPlatform>& engine() { return *engine_; }

 private:
  bool recovered_ = false;  // the engine was there
  struct NoHelp final : PassingHost {
    using PassingHost::PassingHost;
    bool help_sweep() override { return false; }
  };

  SyntheticRules rules_;
  PoolShape shape_;
  SimMedium medium_;
  std::unique_ptr<NoHelp> no_help_;  // goes after its pool
  std::unique_ptr<SimPool> pool_;
  std::unique_ptr<SyntheticEngine<SimPlatform>> engine_;  // destroyed before its pool
};

// Short values, blobs of one block, and runs of extents.
inline Op synthetic_op(Random& random) {
  static constexpr OpKind kKinds[] = {OpKind::insert, OpKind::insert, OpKind::upsert,
                                      OpKind::update, OpKind::update, OpKind::erase,
                                      OpKind::erase,  OpKind::find};
  Op op{kKinds[random.below(8)], integer_key(random.below(24)), {}};
  const std::uint64_t shape = random.below(16);
  const std::size_t size = shape < 9    ? random.below(8)
                           : shape < 15 ? 8 + random.below(300)
                                        : 2500 + random.below(9000);
  for (std::size_t i = 0; i < size; ++i) op.value += static_cast<char>('a' + random.below(26));
  return op;
}

}  // namespace perdure::testing
