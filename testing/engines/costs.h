// The costs of an engine's operations. costs.cc defines the figures.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "testing/crash/map_subject.h"

namespace perdure::testing {

// Prints the figures of each engine of engines.def: testing/engines/costs/<engine>.cc.
namespace costs_of {
#define PERDURE_ENGINE(name) void name();
#include "index/engines.def"
}  // namespace costs_of

namespace costs {

inline constexpr std::uint64_t kKeys = 20'000;
inline constexpr std::uint64_t kScans = 2'000;
inline constexpr std::uint64_t kScanLength = 50;
// coprime to kKeys: a fixed permutation of the keys
inline constexpr std::uint64_t kStride = 7'919;
inline constexpr std::uint64_t kCapacity = 64_MiB;
inline constexpr std::uint64_t kSeed = 1;

// Counts the lines of the pool that the current operation touches.
class Lines {
 public:
  void watch(const SimMemory& memory) {
    base_ = reinterpret_cast<std::uintptr_t>(memory.base());
    last_touch_.assign(memory.capacity() / kLine, 0);
  }
  void begin_operation() { ++operation_; }
  std::uint64_t total() const { return total_; }

  void touch(const void* p, std::size_t n) {
    const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(p) - base_;
    if (n == 0 || offset >= last_touch_.size() * kLine) return;  // DRAM
    for (std::uintptr_t line = offset / kLine; line <= (offset + n - 1) / kLine; ++line) {
      if (last_touch_[line] == operation_) continue;
      last_touch_[line] = operation_;
      ++total_;
    }
  }

 private:
  std::uintptr_t base_ = 0;
  std::vector<std::uint32_t> last_touch_;  // by line: the last operation that touched it
  std::uint32_t operation_ = 0;
  std::uint64_t total_ = 0;
};

inline Lines& lines() {
  static Lines the_lines;
  return the_lines;
}

// The subject's view of an engine with its real nodes. Options: the arguments of its create() after
// the kinds.
template <Engine kOf, class M, class... Options>
struct Real {
  using Map = M;
  static constexpr Engine kEngine = kOf;
  static constexpr bool kBytes = false;
  static Expected<std::uint64_t> create(const EngineContext<SimPlatform>& context,
                                        const MapKinds& kinds, const MapSetup&) {
    return Map::create(context, kinds, Options{}...);
  }
};

[[noreturn]] inline void die(const std::string& engine, const std::string& what) {
  std::fprintf(stderr, "perdure-costs: %s: %s\n", engine.c_str(), what.c_str());
  std::exit(1);
}

inline std::string key_of(std::uint64_t i) { return integer_key(Random(i).next()); }
inline std::string value_of(std::uint64_t i) {
  return std::string(reinterpret_cast<const char*>(&i), sizeof(i));
}

template <class Traits>
class Measured {
 public:
  explicit Measured(std::string name) : name_(std::move(name)), memory_(kCapacity) {
    memory_.set_mode(SimMode::plain);
    SimPlatform::world() = {};
    SimPlatform::seed(kSeed);
    if (Status s = subject_.create(memory_); !s.ok()) die(name_, std::string(s.message()));
    if (Status s = subject_.open(memory_, 1); !s.ok()) die(name_, std::string(s.message()));
    lines().watch(memory_);
  }

  void print_all() {
    const auto each = [this](OpKind kind, bool expected) {
      return [this, kind, expected](std::uint64_t i) {
        apply({kind, key_of(expected ? i : i + kKeys), value_of(i)}, expected);
      };
    };
    print("insert", kKeys, each(OpKind::insert, true));
    print("find", kKeys, each(OpKind::find, true));
    print("find_missing", kKeys, each(OpKind::find, false));
    print("update", kKeys, each(OpKind::update, true));
    if (subject_.ordered()) print("scan", kScans, [this](std::uint64_t i) { scan(i); });
    print("erase", kKeys, each(OpKind::erase, true));
    if (Status s = subject_.close(); !s.ok()) die(name_, std::string(s.message()));
  }

 private:
  void apply(const Op& op, bool expected) {
    const auto done = subject_.call(op);
    if (!done) die(name_, describe(op) + ": " + std::string(done.error().message()));
    if (*done != expected) die(name_, describe(op) + (expected ? ": no" : ": yes"));
  }
  void scan(std::uint64_t i) {
    std::uint64_t left = kScanLength;
    const auto visit = [&](std::span<const detail::Entry> entries) {
      left -= std::min<std::uint64_t>(left, entries.size());
      return left != 0;
    };
    const detail::ScanRange range{.from = detail::Key{.word = Random(i).next()},
                                  .limit = kScanLength};
    const auto done = subject_.index().scan(range, visit);
    if (!done) die(name_, "scan: " + std::string(done.error().message()));
    scanned_ += kScanLength - left;
  }

  void print(const char* operation, std::uint64_t count,
             const std::function<void(std::uint64_t)>& run) {
    const Counters before = SimPlatform::counters();
    const std::uint64_t lines_before = lines().total();
    scanned_ = 0;
    SimPlatform::access_hook = [](const void* p, std::size_t n) { lines().touch(p, n); };
    for (std::uint64_t i = 0; i < count; ++i) {
      lines().begin_operation();
      run(i * kStride % kKeys);
    }
    SimPlatform::access_hook = nullptr;
    // Scans that begin near the last key are shorter.
    if (std::string(operation) == "scan" && scanned_ < kScans * kScanLength * 9 / 10) {
      die(name_, "scans returned too few entries");
    }
    const Counters& after = SimPlatform::counters();
    const auto figure = [&](const char* what, std::uint64_t total) {
      std::printf("%s.%s.%s=%.4f\n", name_.c_str(), operation, what,
                  static_cast<double>(total) / static_cast<double>(count));
    };
    figure("writebacks", after.flushes - before.flushes);
    figure("fences", after.fences - before.fences);
    figure("allocations", after.allocations - before.allocations);
    figure("lines", lines().total() - lines_before);
  }

  std::string name_;
  SimMemory memory_;
  MapSubject<Traits> subject_{
      MapSetup{.background_thread = false, .shape = {.max_bytes = kCapacity}}};
  std::uint64_t scanned_ = 0;
};

template <class Traits>
void print() {
  Measured<Traits>(std::string(engine_name(Traits::kEngine))).print_all();
}

}  // namespace costs
}  // namespace perdure::testing
