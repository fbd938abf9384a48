// Resizes: the growths and shrinks of a hash table since its open, of which it keeps the last ones.
// The oldest one under way ends first. The table's latch protects it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "index/findings.h"
#include "perdure/stats.h"
#include "platform/platform.h"
#include "util/log.h"

namespace perdure {

template <Platform P>
class Resizes {
 public:
  void begin(ResizeStats resize) {
    resize.begin_ns = since_open();
    at(begun_++) = resize;
  }
  // For a table that keeps the resizes under way itself: one that began earlier, and now ends.
  void add_ended(const ResizeStats& resize, std::uint64_t buckets, std::uint64_t moved,
                 const Log& log, const char* map) {
    at(begun_++) = resize;
    end(buckets, moved, log, map);
  }
  std::uint64_t since_open() const { return P::now_ns() - opened_ns_; }
  ResizeStats& newest() { return at(begun_ - 1); }
  void end(std::uint64_t buckets, std::uint64_t moved, const Log& log, const char* map) {
    ResizeStats& resize = at(ended_++);
    resize.end_ns = since_open();
    resize.buckets = buckets;
    resize.moved = moved;
    tell(resize, log, map);
  }
  // The last ones, of which it leaves `others` out: so many more follow.
  void copy_to(EngineStats& out, std::uint64_t others = 0) {
    for (std::uint64_t n = begun_ - std::min(begun_, kKept - others); n < begun_; ++n) {
      if (!out.resizes.push_back(at(n))) out.partial = true;
    }
  }

 private:
  static constexpr std::uint64_t kKept = MapStats::kMaxResizes;

  ResizeStats& at(std::uint64_t number) { return last_[number % kKept]; }
  [[gnu::cold]] static void tell(const ResizeStats& resize, const Log& log, const char* map) {
    const auto before = resize.slots_before;
    const auto after = resize.slots_after;
    const double ms = milliseconds(resize.end_ns - resize.begin_ns);
    if (before == after) {
      log.say(LogLevel::info, "map %s: a shrink was undone after %.1f ms, %lu slots", map, ms,
              after);
    } else {
      log.say(LogLevel::info, "map %s: its table %s from %lu to %lu slots in %.1f ms, %lu moved",
              map, resize.shrink ? "shrank" : "grew", before, after, ms, resize.moved);
    }
  }

  ResizeStats last_[kKept];
  std::uint64_t begun_ = 0;
  std::uint64_t ended_ = 0;
  const std::uint64_t opened_ns_ = P::now_ns();
};

}  // namespace perdure
