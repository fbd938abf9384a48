#include "testing/crash/heap_scenarios.h"

#include <cstring>
#include <functional>
#include <set>
#include <vector>

#include "testing/crash/enumerate.h"
#include "testing/crash/pool_scenarios.h"
#include "testing/sim/sim_pool.h"

namespace perdure::testing {

namespace {

constexpr std::uint64_t kCapacity = 2 << 20;

std::string dead_as_promised(const std::uint64_t* words, BlockKind kind, std::size_t bytes) {
  const std::size_t count = kind == BlockKind::zero_on_free ? bytes / 8 : 1;
  for (std::size_t i = 0; i < count; ++i) {
    if (words[i] != 0) return "word " + std::to_string(i) + " is not zero";
  }
  return {};
}

// A pool in use, and a judge of every file that a crash can make of it.
class Scenario {
 public:
  Scenario(BlockKind kind, std::size_t bytes) : kind_(kind), bytes_(bytes), memory_(kCapacity) {
    if (!SimPool::create(memory_, kTinyShape).ok()) wrong_ = "create";
    open(1);
    finish();
  }
  ~Scenario() { memory_.set_mode(SimMode::frozen); }
  Scenario(const Scenario&) = delete;
  Scenario& operator=(const Scenario&) = delete;

  void open(std::uint64_t boot) {
    pool_.reset();
    pool_ = std::make_unique<SimPool>(memory_);
    if (!pool_->open(boot).ok()) wrong_ = "open";
  }
  void finish() {
    if (!pool_->core().complete(true).ok()) wrong_ = "complete";
  }
  void power_fails() { memory_.settle(); }
  SimPool& pool() { return *pool_; }
  const std::string& wrong() const { return wrong_; }

  // Allocates a block and fills it durably.
  std::uint64_t filled(std::size_t n, BlockKind kind) {
    const auto block = pool_->heap().allocate(n, kind);
    if (!block) {
      wrong_ = "allocate";
      return 0;
    }
    const std::vector<char> bytes(n, 'x');
    auto* p = pool_->heap().at<char>(*block);
    pool_->platform().copy(p, bytes.data(), n);
    pool_->platform().flush(p, n, "scenario.fill.block"_site);
    pool_->platform().fence("scenario.fill.block"_site);
    return *block;
  }
  // Opens every image at every fence that `run` passes. Each block of the kind must be dead there.
  void at_every_fence(const std::function<void()>& run) {
    std::set<std::uint64_t> seen;
    SimMemory scratch(kCapacity);
    memory_.before_fence = [&](const SiteInfo& site) {
      const ScopedWorld world;
      const auto pending = memory_.pending();
      for (const Combination& c : enumerate(memory_, pending, {.product = 256}, 1).combinations) {
        const CrashImage image = memory_.image(pending, c.choice, c.new_size, c.punched);
        if (!wrong_.empty() || !seen.insert(image.hash).second) continue;
        scratch.load_image(memory_, image);
        after_a_crash(scratch, site.name);
      }
    };
    run();
    memory_.before_fence = nullptr;
  }
  // Allocates blocks. Each must be dead in memory, and on the medium if the power fails.
  void hand_out(int blocks) {
    SimMemory medium(kCapacity);
    for (int i = 0; i < blocks && wrong_.empty(); ++i) {
      const auto block = pool_->heap().allocate(bytes_, kind_);
      if (!block) return;
      medium.load_image(memory_, memory_.image({}, {}, true, false));
      expect_dead(pool_->heap().at<std::uint64_t>(*block), "handed out");
      expect_dead(reinterpret_cast<const std::uint64_t*>(medium.base() + *block), "on the medium");
    }
  }

 private:
  void expect_dead(const std::uint64_t* words, const std::string& where) {
    const std::string what = dead_as_promised(words, kind_, bytes_);
    if (!what.empty() && wrong_.empty()) wrong_ = where + ": " + what;
  }
  void after_a_crash(SimMemory& scratch, const char* site) {
    SimPool after(scratch);
    if (!after.open_whole(2).ok()) {
      wrong_ = std::string("no open after a crash before ") + site;
      return;
    }
    scratch.set_disk_limit(scratch.size());
    for (auto block = after.heap().allocate(bytes_, kind_); block && wrong_.empty();
         block = after.heap().allocate(bytes_, kind_)) {
      expect_dead(after.heap().at<std::uint64_t>(*block),
                  std::string("power failed before ") + site);
    }
    scratch.set_mode(SimMode::frozen);
  }

  BlockKind kind_;
  std::size_t bytes_;
  SimMemory memory_;
  std::unique_ptr<SimPool> pool_;
  std::string wrong_;
};

}  // namespace

std::string released_run(BlockKind kind) {
  Scenario s(kind, 64);
  // Longer than the words of one line of the table, because within a line the order of the stores
  // alone would suffice.
  const std::uint64_t run = s.filled(12 * kPage, BlockKind::plain);
  s.at_every_fence([&] { s.pool().heap().free(run); });
  s.hand_out(400);
  return s.wrong();
}

std::string freed_blocks(BlockKind kind, std::size_t bytes) {
  Scenario s(kind, bytes);
  std::vector<std::uint64_t> blocks;
  for (int i = 0; i < 70; ++i) blocks.push_back(s.filled(bytes, kind));
  s.at_every_fence([&] {
    const EpochGuard<SimPlatform> guard(s.pool().epochs());
    for (const std::uint64_t block : blocks) s.pool().heap().retire(block);
  });
  s.at_every_fence([&] { s.pool().epochs().drain_all(); });
  s.hand_out(140);
  return s.wrong();
}

std::string changed_kind(BlockKind kind, std::size_t bytes) {
  Scenario s(kind, bytes);
  std::vector<std::uint64_t> blocks;
  for (int i = 0; i < 200; ++i) blocks.push_back(s.filled(64, BlockKind::plain));
  s.at_every_fence([&] {
    for (const std::uint64_t block : blocks) s.pool().heap().free(block);
    s.pool().heap().flush_caches();
  });
  s.at_every_fence([&] { (void)s.pool().heap().allocate(bytes, kind); });
  s.hand_out(100);
  return s.wrong();
}

std::string swept_blocks(BlockKind kind, std::size_t bytes) {
  Scenario s(kind, bytes);
  std::vector<std::uint64_t> blocks;
  for (int i = 0; i < 50; ++i) blocks.push_back(s.filled(bytes, kind));
  s.power_fails();
  s.open(3);
  // Some blocks survive in every extent: no extent is released as a whole.
  for (std::size_t i = 0; i < blocks.size(); i += 5) (void)s.pool().heap().mark(blocks[i]);
  s.finish();
  s.hand_out(60);
  return s.wrong();
}

std::string killed_pool() {
  SimMemory memory(kCapacity);
  std::string wrong;
  {
    if (!SimPool::create(memory, kTinyShape).ok()) return "create";
    SimPool pool(memory);
    if (!pool.open_whole(1).ok()) return "open";
    // Stores to every line of several extents and to a root, without any write-back.
    for (std::uint64_t i = 0; i < 3 * kPage / kLine; ++i) {
      const auto block = pool.heap().allocate(kLine, BlockKind::plain);
      if (!block) return "allocate";
      auto* words = pool.heap().at<std::uint64_t>(*block);
      for (std::uint64_t w = 0; w < 8; ++w) pool.platform().store(words[w], i * 8 + w + 1);
    }
    SimMemory next(kCapacity);
    next.load_killed(memory);
    SimPool after(next);
    if (!after.open(1).ok()) return "open after the kill";
    if (next.pending_lines() != 0) {
      wrong = std::to_string(next.pending_lines()) + " lines are not durable after the open";
    }
    next.set_mode(SimMode::frozen);
    memory.set_mode(SimMode::frozen);
  }
  return wrong;
}

std::string durable_roots() {
  SimMemory memory(kCapacity);
  if (!SimPool::create(memory, kTinyShape).ok()) return "create";
  SimPool pool(memory);
  if (!pool.open_whole(1).ok()) return "open";
  SimMemory medium(kCapacity);
  const auto on_the_medium = [&](std::uint64_t root) {
    medium.load_image(memory, memory.image({}, {}, true, false));
    layout::Root line{};
    SimPool after(medium);
    if (!after.open(2).ok()) return false;
    const auto slot = after.core().find_root("map");
    const bool found = slot && *slot < after.core().root_slots() &&
                       after.core().read_root(*slot, line).value_or(false);
    medium.set_mode(SimMode::frozen);
    return root == 0 ? !found : found && line.root == root;
  };
  std::string wrong;
  for (std::uint64_t root = 64; root < 64 * 4 && wrong.empty(); root += 64) {
    layout::Root line{};
    std::memcpy(line.name, "map", 4);
    line.root = root;
    if (!pool.core().add_root(line).ok() || !on_the_medium(root)) wrong = "a root is not durable";
    const auto slot = pool.core().find_root("map");
    if (!slot || !pool.core().drop_root(*slot).ok() || !on_the_medium(0)) {
      wrong = "a dropped root is still there";
    }
  }
  memory.set_mode(SimMode::frozen);
  return wrong;
}

std::string swept_extents() {
  Scenario s(BlockKind::plain, 64);
  for (int i = 0; i < 200; ++i) (void)s.filled(192, BlockKind::plain);
  (void)s.filled(3 * kPage, BlockKind::plain);
  s.power_fails();
  s.open(3);
  s.finish();  // marks no block
  if (!s.wrong().empty()) return s.wrong();
  const std::uint64_t kept = s.pool().heap().stats().assigned_extents;
  return kept == 0 ? "" : std::to_string(kept) + " extents without a block are still assigned";
}

std::string swept_partial() {
  Scenario s(BlockKind::plain, 64);
  std::vector<std::uint64_t> blocks;
  for (std::uint64_t i = 0; i < kPage / 64; ++i) blocks.push_back(s.filled(64, BlockKind::plain));
  s.power_fails();
  s.open(3);
  (void)s.pool().heap().mark(blocks.front());
  s.finish();
  const std::uint64_t before = s.pool().heap().stats().assigned_extents;
  (void)s.filled(64, BlockKind::plain);
  if (!s.wrong().empty()) return s.wrong();
  return s.pool().heap().stats().assigned_extents == before ? ""
                                                            : "a swept block is not used again";
}

std::string reused_holes() {
  SimMemory memory(kCapacity);
  if (!SimPool::create(memory, kTinyShape).ok()) return "create";
  {
    SimPool pool(memory);
    if (!pool.open_whole(1).ok()) return "open";
    if (!pool.heap().punch_free() || !pool.core().close(true).ok()) return "close";
  }
  SimPool pool(memory);
  if (!pool.open_whole(1).ok()) return "reopen";
  const auto block = pool.heap().allocate(64, BlockKind::plain);
  if (!block) return "allocate";
  pool.platform().store(*pool.heap().at<std::uint64_t>(*block), 1);
  const bool holes = memory.hole_stores() != 0;
  memory.set_mode(SimMode::frozen);
  return holes ? "a store into space that was punched" : "";
}

// Space may be punched only once the extent's word durably says that it is free. Otherwise the next
// open finds it assigned, does not know of the hole, and hands it out again.
std::string punched_run() {
  SimMemory memory(kCapacity);
  if (!SimPool::create(memory, kTinyShape).ok()) return "create";
  SimPool pool(memory);
  if (!pool.open_whole(1).ok()) return "open";
  const auto run = pool.heap().allocate(3 * kPage, BlockKind::plain);
  if (!run) return "allocate";
  pool.heap().free(*run);
  if (!pool.heap().punch_free()) return "punch";
  SimMemory next(kCapacity);
  next.load_image(memory, memory.image({}, {}, true, true));
  SimPool after(next);
  if (!after.open_whole(2).ok()) return "reopen";
  const auto again = after.heap().allocate(3 * kPage, BlockKind::plain);
  if (!again) return "allocate again";
  after.platform().store(*after.heap().at<std::uint64_t>(*again), 1);
  const bool holes = next.hole_stores() != 0;
  next.set_mode(SimMode::frozen);
  memory.set_mode(SimMode::frozen);
  return holes ? "a store into space that was punched before its word was durable" : "";
}

std::string entered_power() {
  SimMemory memory(kCapacity);
  if (!SimPool::create(memory, kTinyShape, Durability::process).ok()) return "create";
  std::string wrong;
  {
    SimPool pool(memory, Durability::process);
    if (!pool.open_whole(1).ok()) return "open";
    const std::uint64_t before = memory.size();
    while (memory.size() == before) {
      if (!pool.heap().allocate(kPage, BlockKind::plain)) return "allocate";
    }
    SimMemory next(kCapacity);
    next.load_killed(memory);
    SimPool after(next, Durability::power);
    if (!after.open(1).ok()) return "open in power";
    if (next.pending_lines() != 0) wrong = "stores of the dead process are not durable";
    if (next.size_pending()) wrong = "the size that the dead process gave the file is not durable";
    next.set_mode(SimMode::frozen);
    memory.set_mode(SimMode::frozen);
  }
  return wrong;
}

// Engines that leave fences to the pool rely on this.
std::string unfenced_data() {
  for (const bool closes : {true, false}) {
    SimMemory memory(kCapacity);
    if (!SimPool::create(memory, kTinyShape).ok()) return "create";
    SimPool pool(memory);
    if (!pool.open_whole(1).ok()) return "open";
    const auto block = pool.heap().allocate(64, BlockKind::plain);
    if (!block) return "allocate";
    auto* word = pool.heap().at<std::uint64_t>(*block);
    pool.platform().store(*word, 7);
    pool.platform().flush(word, 8, "scenario.fill.block"_site);
    std::uint64_t late = 0;
    memory.before_fence = [&](const SiteInfo& site) {
      if (std::string_view(site.name) == "storage.sync") late = memory.pending_lines();
    };
    const Status s = closes ? pool.core().close(true) : pool.core().sync();
    memory.before_fence = nullptr;
    memory.set_mode(SimMode::frozen);
    if (!s.ok()) return "close";
    if (late != 0) return "a line is not fenced when the file is synced";
  }
  return {};
}

std::string torn_copy() {
  SimMemory memory(kCapacity);
  if (!SimPool::create(memory, kTinyShape).ok()) return "create";
  SimPool pool(memory);
  if (!pool.open_whole(1).ok()) return "open";
  const auto block = pool.heap().allocate(64, BlockKind::plain);
  if (!block) return "allocate";
  auto* word = pool.heap().at<std::uint64_t>(*block);
  pool.platform().store(*word, 7);
  pool.platform().flush(word, 8, "scenario.fill.block"_site);
  pool.platform().fence("scenario.fill.block"_site);
  if (!pool.core().sync().ok()) return "sync";
  std::string wrong;
  for (const bool torn : {false, true}) {
    SimMemory copy(kCapacity);
    copy.load_image(memory, memory.image({}, {}, true, false));
    if (torn) copy.store(reinterpret_cast<std::uint64_t*>(copy.base() + *block), 8);
    SimPool other(copy);
    const Status s = other.open(1, false, 77);
    if (!torn && !s.ok()) wrong = "a copy of a sealed pool is refused";
    if (torn && s != StatusCode::untrusted)
      wrong = "a torn copy of a sealed pool is taken for whole";
    copy.set_mode(SimMode::frozen);
  }
  memory.set_mode(SimMode::frozen);
  return wrong;
}

std::string marked_twice() {
  Scenario s(BlockKind::plain, 64);
  const std::uint64_t block = s.filled(64, BlockKind::plain);
  s.power_fails();
  s.open(3);
  if (!s.wrong().empty()) return s.wrong();
  if (!s.pool().heap().mark(block).ok()) return "a block cannot be marked";
  return s.pool().heap().mark(block) == StatusCode::corruption ? ""
                                                               : "a block is reached twice, unseen";
}

std::string damaged_root() {
  SimMemory memory(kCapacity);
  if (!SimPool::create(memory, kTinyShape).ok()) return "create";
  SimPool pool(memory);
  if (!pool.open_whole(1).ok()) return "open";
  layout::Root line{};
  std::memcpy(line.name, "map", 4);
  line.root = 3 * kLine;
  if (!pool.core().add_root(line).ok()) return "add_root";
  auto* words = reinterpret_cast<std::uint64_t*>(memory.base() + layout::kDirectoryOffset);
  std::string wrong;
  for (std::uint64_t bit = 0; bit < sizeof(line) * 8 && wrong.empty(); ++bit) {
    words[bit / 64] ^= 1ULL << (bit % 64);
    if (pool.core().find_root("map")) wrong = "bit " + std::to_string(bit) + " of a root line";
    words[bit / 64] ^= 1ULL << (bit % 64);
  }
  memory.set_mode(SimMode::frozen);
  return wrong;
}

std::string lost_root() {
  SimMemory memory(kCapacity);
  if (!SimPool::create(memory, kTinyShape).ok()) return "create";
  {
    SimPool pool(memory);
    if (!pool.open_whole(1).ok()) return "open";
    layout::Root line{};
    std::memcpy(line.name, "map", 4);
    line.root = 3 * kLine;
    if (!pool.core().add_root(line).ok() || !pool.core().close(true).ok()) return "close";
  }
  auto* line = reinterpret_cast<layout::Root*>(memory.base() + layout::kDirectoryOffset);
  line->root = 0;
  SimPool pool(memory);
  const Status s = pool.open(1);
  memory.set_mode(SimMode::frozen);
  return s == StatusCode::corruption ? "" : "a pool that has lost a map is opened";
}

std::string written_twice() {
  SimMemory memory(kCapacity);
  if (!SimPool::create(memory, kTinyShape).ok()) return "create";
  SimPlatform platform(memory);
  auto* word = reinterpret_cast<std::uint64_t*>(memory.base() + layout::kDirectoryOffset);
  platform.store(*word, 7);
  platform.flush(word, 8, "planted.write.first"_site);
  platform.fence("planted.write.first"_site);
  platform.flush(word, 8, "planted.write.again"_site);
  platform.fence("planted.write.again"_site);
  const std::size_t pending = memory.pending_lines();
  memory.set_mode(SimMode::frozen);
  return pending == 0 ? "" : "a line that was written back is not durable";
}

const std::vector<HeapScenario>& heap_scenarios() {
  static const std::vector<HeapScenario> all = [] {
    std::vector<HeapScenario> out{
        {"durable_roots", &durable_roots},
        {"killed_pool", &killed_pool},
        {"swept_extents", &swept_extents},
        {"swept_partial", &swept_partial},
        {"reused_holes", &reused_holes},
        {"entered_power", &entered_power},
        {"unfenced_data", &unfenced_data},
        {"torn_copy", &torn_copy},
        {"marked_twice", &marked_twice},
        {"damaged_root", &damaged_root},
        {"lost_root", &lost_root},
        {"written_twice", &written_twice},
        {"punched_run", &punched_run},
        {"untrusted", &untrusted},
        {"nothing_left_to_sync", &nothing_left_to_sync},
        {"killed_dropping", &killed_dropping},
        {"killed_releasing", &killed_releasing},
        {"killed_releasing_first", &killed_releasing_first},
        {"killed_releasing_last", &killed_releasing_last},
        {"killed_releasing_long", &killed_releasing_long},
        {"killed_releasing_resized", &killed_releasing_resized},
        {"killed_storing", &killed_storing},
        {"killed_growing_resized", &killed_growing_resized},
        {"either_header_closed", &either_header_closed},
        {"either_header_sealed", &either_header_sealed},
        {"either_header_resized", &either_header_resized},
        {"either_header_grown", &either_header_grown},
    };
    for (const BlockKind kind : {BlockKind::dead_on_free, BlockKind::zero_on_free}) {
      const std::string suffix = kind == BlockKind::dead_on_free ? "_dead" : "_zero";
      for (const std::size_t bytes : {64, 192}) {
        const std::string size = suffix + std::to_string(bytes);
        out.push_back({"freed_blocks" + size, [=] { return freed_blocks(kind, bytes); }});
        out.push_back({"changed_kind" + size, [=] { return changed_kind(kind, bytes); }});
        out.push_back({"swept_blocks" + size, [=] { return swept_blocks(kind, bytes); }});
      }
      out.push_back({"released_run" + suffix, [=] { return released_run(kind); }});
    }
    return out;
  }();
  return all;
}

}  // namespace perdure::testing
