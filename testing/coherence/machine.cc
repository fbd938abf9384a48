#include "testing/coherence/machine.h"

#include <algorithm>

namespace perdure::testing {

Machine::Machine(const MachineOptions& options)
    : options_(options),
      sets_(std::max(options.cache_lines / options.ways, 1U)),
      ways_(std::size_t{options.cores} * sets_ * options.ways) {}

Machine::Way* Machine::find(std::uint32_t core, std::uint64_t line) {
  Way* const set = &ways_[(std::size_t{core} * sets_ + line % sets_) * options_.ways];
  for (std::uint32_t i = 0; i < options_.ways; ++i) {
    if (set[i].copy != Copy::none && set[i].line == line) return &set[i];
  }
  return nullptr;
}

// Returns the way that the line gets: a free one, or the one that was not used for longest.
Machine::Way& Machine::make_room(std::uint32_t core, std::uint64_t line) {
  Way* const set = &ways_[(std::size_t{core} * sets_ + line % sets_) * options_.ways];
  Way* oldest = set;
  for (Way* way = set; way != set + options_.ways; ++way) {
    if (way->copy == Copy::none) {
      oldest = way;
      break;
    }
    if (way->used < oldest->used) oldest = way;
  }
  if (oldest->copy == Copy::shared || oldest->copy == Copy::modified) {
    Line& left = lines_[oldest->line];
    left.holders.reset(core);
    left.modified = false;
  }
  *oldest = {.line = line, .used = 0, .copy = Copy::none};
  return *oldest;
}

void Machine::invalidate_others(std::uint32_t core, std::uint64_t line, Line& state) {
  for (std::uint32_t other = 0; other < options_.cores; ++other) {
    if (other == core || !state.holders.test(other)) continue;
    find(other, line)->copy = Copy::invalidated;
    state.holders.reset(other);
  }
}

// A line moves to the core that needs it, after those that came before.
Machine::Result Machine::move(Line& state, bool exclusive, std::uint64_t now_ps,
                              std::uint64_t takeover_ps) {
  std::erase_if(state.done_ps, [&](std::uint64_t done) { return done <= now_ps; });
  Result result{.taken_over = true};
  result.done_ps = std::max(now_ps, state.busy_until_ps) + takeover_ps;
  if (exclusive) state.busy_until_ps = result.done_ps;
  state.done_ps.push_back(result.done_ps);
  result.queue = static_cast<std::uint32_t>(state.done_ps.size());
  return result;
}

Machine::Result Machine::access(std::uint32_t core, std::uint64_t line, bool writes,
                                std::uint64_t now_ps) {
  Line& state = lines_[line];
  Way* way = find(core, line);
  const bool has = way != nullptr && way->copy != Copy::invalidated;
  const bool lost = way != nullptr && way->copy == Copy::invalidated;
  const bool others = state.holders.count() > (has ? 1U : 0U);
  const bool taken_over = has ? writes && others : lost || state.modified || (writes && others);

  Result result;
  if (taken_over) {
    result = move(state, writes || state.modified, now_ps, options_.takeover_ps);
  } else {
    result.done_ps = now_ps + (has ? options_.hit_ps : options_.memory_ps);
  }
  if (way == nullptr) way = &make_room(core, line);
  if (writes) {
    invalidate_others(core, line, state);
    way->copy = Copy::modified;
    state.modified = true;
  } else if (!has) {
    if (state.modified) {  // the modified copy of another core becomes a shared one
      for (std::uint32_t other = 0; other < options_.cores; ++other) {
        if (state.holders.test(other)) find(other, line)->copy = Copy::shared;
      }
      state.modified = false;
    }
    way->copy = Copy::shared;
  }
  state.holders.set(core);
  way->used = ++clock_;
  return result;
}

}  // namespace perdure::testing
