#include "testing/crash/pool_scenarios.h"

#include <cstring>
#include <functional>
#include <string_view>

#include "testing/crash/enumerate.h"
#include "testing/sim/sim_pool.h"

namespace perdure::testing {

namespace {

constexpr std::uint64_t kCapacity = 2 << 20;
constexpr PoolShape kShape{.max_bytes = 1 << 20,
                           .extent_bytes = kPage,
                           .root_slots = 2,         // a line each: the first and the last
                           .initial_extents = 12};  // two lines of the extent table
constexpr std::uint64_t kExtents = 252;             // of its maximum
constexpr std::uint64_t kResized = 2 << 20;

layout::Root named(const char* name) {
  layout::Root line{};
  std::strcpy(line.name, name);
  line.root = 3 * kLine;
  return line;
}

// Two processes, one after the other. The first is killed; the second serves its pool at once.
class Succession {
 public:
  explicit Succession(bool resized = false, std::uint64_t extents = kShape.initial_extents) {
    PoolShape shape = kShape;
    shape.initial_extents = extents;
    expect(SimPool::create(before_, shape).ok(), "create");
    if (resized) expect(SimPool(before_).resize(1, kResized).ok(), "resize");
    expect(first_.open_whole(1).ok(), "open");
    expect(first_.core().add_root(named("kept")).ok(), "add_root");
    expect(first_.core().add_root(named("dropped")).ok(), "add_root");
  }
  ~Succession() {
    before_.set_mode(SimMode::frozen);
    after_.set_mode(SimMode::frozen);
  }
  Succession(const Succession&) = delete;
  Succession& operator=(const Succession&) = delete;

  const SimMemory& memory() const { return before_; }
  SimPool& first() { return first_; }
  SimPool& second() { return second_; }
  void expect(bool right, const char* what) {
    if (!right && wrong_.empty()) wrong_ = what;
  }
  const std::string& wrong() const { return wrong_; }

  // Kills the first process before the first fence of this site that `run` passes; at the end of
  // `run` if the site is empty. Then opens the second.
  void killed_before(std::string_view site, const std::function<void()>& run) {
    bool killed = false;
    before_.before_fence = [&](const SiteInfo& next) {
      if (!killed && next.name == site) after_.load_killed(before_);
      killed = killed || next.name == site;
    };
    run();
    before_.before_fence = nullptr;
    if (site.empty()) after_.load_killed(before_);
    expect(killed || site.empty(), "the site is not passed");
    second_.restart_at_once();
    expect(second_.open_whole(1).ok(), "open after the kill");
    expect(second_.report().at_once, "the second process does not serve at once");
  }
  // The power fails. Nothing has reached the medium by itself, but holes have.
  void power_fails(SimMemory& medium) {
    medium.load_image(after_, after_.image({}, {}, true, true));
  }

 private:
  SimMemory before_{kCapacity};
  SimMemory after_{kCapacity};
  SimPool first_{before_};
  SimPool second_{after_};
  std::string wrong_;
};

std::uint64_t run_of(SimPool& pool, std::uint64_t extents) {
  return pool.heap().allocate(extents * kPage, BlockKind::plain).value_or(0);
}

// The pool's maximum according to a medium; 0: it is no pool.
std::uint64_t maximum_of(const SimMemory& medium, layout::Header& header) {
  return read_header(medium.base(), medium.size(), header).ok() ? header.max_bytes : 0;
}

// The third process must not use an extent that the second has punched.
std::string released_durably(Succession& s, std::uint64_t run) {
  s.killed_before("heap.extent.release", [&] { s.first().heap().free(run); });
  s.expect(s.second().heap().punch_free().has_value(), "punch");
  SimMemory medium(kCapacity);
  s.power_fails(medium);
  SimPool third(medium);
  s.expect(third.open_whole(2).ok(), "open after the power cut");
  medium.set_disk_limit(medium.size());
  for (auto block = third.heap().allocate(kPage, BlockKind::plain); block;
       block = third.heap().allocate(kPage, BlockKind::plain)) {
    third.platform().store(*third.heap().at<std::uint64_t>(*block), 1);
  }
  s.expect(medium.hole_stores() == 0, "a store into space that was punched");
  medium.set_mode(SimMode::frozen);
  return s.wrong();
}

// Copies the pool, and damages one copy of its header.
void copy_without_header(SimMemory& from, std::uint64_t damaged, SimMemory& copy) {
  copy.load_image(from, from.image({}, {}, true, false));
  auto* header = reinterpret_cast<std::uint64_t*>(copy.base() + damaged * layout::kHeaderBytes);
  copy.store(&header[5], header[5] ^ 1);
}

std::string either_header(bool closes) {
  SimMemory memory(kCapacity);
  if (!SimPool::create(memory, kShape).ok()) return "create";
  SimPool pool(memory);
  if (!pool.open_whole(1).ok()) return "open";
  if (!pool.core().add_root(named("map")).ok()) return "add_root";
  if (!(closes ? pool.core().close(true) : pool.core().sync()).ok()) return "close or sync";
  std::string wrong;
  for (const std::uint64_t damaged : {0, 1}) {
    SimMemory copy(kCapacity);
    copy_without_header(memory, damaged, copy);
    // Opened on another machine, only a header that vouches for the whole file is trusted.
    SimPool other(copy);
    if (!other.open(2, false, 77).ok() || !other.report().was_synced) {
      wrong = "without header copy " + std::to_string(damaged) + " nothing vouches for the pool";
    }
    copy.set_mode(SimMode::frozen);
  }
  memory.set_mode(SimMode::frozen);
  return wrong;
}

}  // namespace

std::string nothing_left_to_sync() {
  SimMemory before(kCapacity), after(kCapacity);
  if (!SimPool::create(before, kShape, Durability::process).ok()) return "create";
  SimPool first(before, Durability::process);
  if (!first.open_whole(1).ok()) return "open";
  if (!first.core().add_root(named("map")).ok()) return "add_root";
  const std::uint64_t block = run_of(first, 1);
  if (block == 0) return "allocate";
  before.store(reinterpret_cast<std::uint64_t*>(before.base() + block), std::uint64_t{1});
  after.load_killed(before);
  before.set_mode(SimMode::frozen);
  std::size_t pending = 0;
  bool asked = false;
  after.before_fence = [&](const SiteInfo& site) {
    if (std::string_view(site.name) != "storage.sync" || asked) return;
    asked = true;
    pending = after.pending_lines();
  };
  SimPool second(after);
  const Status s = second.open(1);
  after.before_fence = nullptr;
  after.set_mode(SimMode::frozen);
  if (!s.ok()) return "open for power";
  // As a mutant the sync is left out, which must have no effect here.
  const bool skipped = find_site("pool.open.sync")->mutant != Mutant::none;
  if (!asked && !skipped) return "open synced nothing";
  return pending == 0 ? "" : std::to_string(pending) + " lines were left to pool.open.sync";
}

std::string untrusted() {
  SimMemory memory(kCapacity);
  if (!SimPool::create(memory, kShape, Durability::process).ok()) return "create";
  SimPool first(memory, Durability::process);
  if (!first.open_whole(1).ok()) return "open";
  SimMemory after(kCapacity);
  after.load_killed(memory);
  memory.set_mode(SimMode::frozen);
  SimPool second(after, Durability::process);
  const bool refused = second.open(2).code() == StatusCode::untrusted;
  SimPool third(after, Durability::process);
  const bool accepted = third.open(2, true).ok() && !third.report().trusted;
  after.set_mode(SimMode::frozen);
  if (!refused) return "a pool of a machine that went down is served";
  return accepted ? "" : "it cannot be accepted, or passes for trusted";
}

std::string killed_dropping() {
  Succession s;
  const std::uint32_t slot = s.first().core().find_root("dropped").value_or(0);
  s.expect(slot == kShape.root_slots - 1, "the map is not in the last line");
  s.killed_before("pool.root.drop", [&] { (void)s.first().core().drop_root(slot); });
  const auto gone = [](SimPool& pool) {
    const auto found = pool.core().find_root("dropped");
    return found && *found == kShape.root_slots;
  };
  s.expect(gone(s.second()), "the map is still there after the kill");
  SimMemory medium(kCapacity);
  s.power_fails(medium);
  SimPool third(medium);
  s.expect(third.open(2).ok() && gone(third), "a map that was said to be gone is back");
  medium.set_mode(SimMode::frozen);
  return s.wrong();
}

// As punched_run(): an extent that is assigned on the medium is assumed to have space.
std::string killed_releasing() {
  Succession s;
  s.expect(run_of(s.first(), 8) != 0, "allocate");  // the first line of the table
  return released_durably(s, run_of(s.first(), 2));
}
// The run's word lies in the chunk of the table that is read last, and a run in use keeps the
// others from writing its line back. So no later fence hides a late write-back.
std::string killed_releasing_first() {
  Succession s(false, 128);
  const std::uint64_t run = run_of(s.first(), 2);
  s.expect(run_of(s.first(), 8) != 0, "allocate");
  return released_durably(s, run);
}
// The run's word lies in the last of four lines that are written back together.
std::string killed_releasing_last() {
  Succession s(false, 128);
  s.expect(run_of(s.first(), 100) != 0, "allocate");
  const std::uint64_t before[] = {run_of(s.first(), 4), run_of(s.first(), 16)};
  const std::uint64_t run = run_of(s.first(), 2);
  for (const std::uint64_t free : before) s.first().heap().free(free);
  return released_durably(s, run);
}
// The run leads over two chunks of the table, and the word that names it lies in the lower one. The
// second process uses an extent of its end, and reads no other chunk.
std::string killed_releasing_long() {
  Succession s(false, 128);
  s.expect(run_of(s.first(), 110) != 0, "allocate");
  const std::uint64_t run = run_of(s.first(), 16);
  s.expect(run_of(s.first(), 2) != 0, "allocate");
  s.killed_before("heap.extent.release", [&] { s.first().heap().free(run); });
  const std::uint64_t block = run_of(s.second(), 1);
  s.expect(block > run && block < run + 16 * kPage, "the extent is another one");
  s.expect(!s.second().heap().table_read(), "the table is read");
  SimMemory medium(kCapacity);
  s.power_fails(medium);
  SimPool third(medium);
  s.expect(third.open(2).ok(), "open after the power cut");
  s.expect(third.heap().mark(block).ok(), "the run is back, and covers what was allocated");
  medium.set_mode(SimMode::frozen);
  return s.wrong();
}
std::string killed_releasing_resized() {
  Succession s(true);
  s.expect(run_of(s.first(), kExtents) != 0, "allocate");  // the first table
  s.expect(run_of(s.first(), 7) != 0, "allocate");         // the first line of the second one
  const std::uint64_t run = run_of(s.first(), 2);
  layout::Header header{};
  (void)maximum_of(s.memory(), header);
  s.expect(run == geometry_of(header).offset_of(kExtents + 8), "the run lies elsewhere");
  return released_durably(s, run);
}

std::string killed_storing() {
  Succession s;
  constexpr std::uint64_t kBytes = 2 * kPage;
  const std::uint64_t block = run_of(s.first(), kBytes / kPage);
  s.killed_before("", [&] {
    auto* words = s.first().heap().at<std::uint64_t>(block);
    for (std::uint64_t i = 0; i < kBytes / 8; ++i) s.first().platform().store(words[i], i + 1);
  });
  s.expect(s.second().core().after_kill().settle(block, kBytes), "settle");
  SimMemory medium(kCapacity);
  s.power_fails(medium);
  s.expect(std::memcmp(medium.base() + block, s.second().heap().at<char>(block), kBytes) == 0,
           "what was settled is not on the medium");
  medium.set_mode(SimMode::frozen);
  return s.wrong();
}

std::string killed_growing_resized() {
  SimMemory before(kCapacity), after(kCapacity), medium(kCapacity);
  if (!SimPool::create(before, kShape).ok()) return "create";
  SimPool first(before);
  if (!first.open_whole(1).ok()) return "open";
  // The first growth is in use. The first header of the second one is visible only.
  int headers = 0;
  before.before_fence = [&](const SiteInfo& next) {
    if (std::string_view(next.name) == "pool.header.write" && ++headers == 3) {
      after.load_killed(before);
    }
  };
  const std::uint64_t used = run_of(first, 20);
  (void)run_of(first, 40);
  before.before_fence = nullptr;
  before.set_mode(SimMode::frozen);
  if (used == 0 || headers != 4) return "the pool has not grown twice";
  std::string wrong;
  const auto judge = [&](bool resized) {
    const auto pending = after.pending();
    const EnumerationLimits limits{.product = 256, .random = 64, .sampled = 120};
    for (const Combination& c : enumerate(after, pending, limits, 1).combinations) {
      medium.load_image(after, after.image(pending, c.choice, c.new_size, c.punched));
      layout::Header header{};
      const std::uint64_t maximum = maximum_of(medium, header);
      if (maximum != kResized && (resized || maximum != kShape.max_bytes)) {
        wrong = "the maximum is " + std::to_string(maximum);
      } else if (header.file_bytes < used + 20 * kPage) {
        wrong = "growth that was in use is lost";
      }
    }
  };
  after.before_fence = [&](const SiteInfo& /*next*/) { judge(false); };
  const Status s = SimPool(after).resize(1, kResized);
  after.before_fence = nullptr;
  judge(true);
  after.set_mode(SimMode::frozen);
  return s.ok() ? wrong : "resize: " + std::string(s.message());
}

std::string either_header_resized() {
  SimMemory memory(kCapacity);
  if (!SimPool::create(memory, kShape).ok()) return "create";
  if (!SimPool(memory).resize(1, kResized).ok()) return "resize";
  std::string wrong;
  for (const std::uint64_t damaged : {0, 1}) {
    SimMemory copy(kCapacity);
    copy_without_header(memory, damaged, copy);
    layout::Header found{};
    if (maximum_of(copy, found) != kResized) {
      wrong = "without header copy " + std::to_string(damaged) + " the pool was not resized";
    }
    copy.set_mode(SimMode::frozen);
  }
  memory.set_mode(SimMode::frozen);
  return wrong;
}
std::string either_header_grown() {
  SimMemory memory(kCapacity);
  if (!SimPool::create(memory, kShape).ok()) return "create";
  SimPool pool(memory);
  if (!pool.open_whole(1).ok()) return "open";
  std::string wrong;
  for (std::uint64_t grown = 0; grown < 2; ++grown) {  // each copy is the newer one once
    const std::uint64_t used = run_of(pool, 20);
    if (used == 0) return "allocate";
    for (const std::uint64_t damaged : {0, 1}) {
      SimMemory copy(kCapacity);
      copy_without_header(memory, damaged, copy);
      layout::Header found{};
      if (maximum_of(copy, found) != kShape.max_bytes || found.file_bytes < used + 20 * kPage) {
        wrong = "without header copy " + std::to_string(damaged) + " growth that is in use is lost";
      }
      copy.set_mode(SimMode::frozen);
    }
  }
  memory.set_mode(SimMode::frozen);
  return wrong;
}
std::string either_header_closed() { return either_header(true); }
std::string either_header_sealed() { return either_header(false); }

}  // namespace perdure::testing
