#include "testing/crash/enumerate.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace perdure::testing {

namespace {

using Choice = std::vector<std::uint32_t>;

// File size, punches and name are three further dimensions, of one or two states.
struct Space {
  explicit Space(const SimMemory& memory, const std::vector<PendingLine>& lines) : pending(lines) {
    for (const PendingLine& line : lines) {
      states.push_back(static_cast<std::uint32_t>(line.choices.size()));
    }
    states.push_back(memory.size_pending() ? 2 : 1);
    states.push_back(memory.punch_pending() ? 2 : 1);
    states.push_back(memory.name_pending() ? 2 : 1);
  }
  std::uint64_t product(std::uint64_t limit, bool recent_only) const {
    std::uint64_t result = 1;
    for (std::size_t i = 0; i < states.size(); ++i) {
      if (recent_only && i < pending.size() && !pending[i].recent) continue;
      result *= states[i];
      if (result > limit) return limit + 1;
    }
    return result;
  }
  // Whether the line was stored to since the mark. False for size, punches and name.
  bool recent(std::size_t i) const { return i < pending.size() && pending[i].recent; }
  Choice none() const { return Choice(states.size(), 0); }
  Choice all() const {
    Choice choice;
    for (const std::uint32_t n : states) choice.push_back(n - 1);
    return choice;
  }

  const std::vector<PendingLine>& pending;
  std::vector<std::uint32_t> states;
};

// Keeps a random `n` of them, if there are more.
template <class T>
void shuffle_to(std::vector<T>& all, std::size_t n, Random& random) {
  if (all.size() <= n) return;
  for (std::size_t i = 0; i < n; ++i) {
    std::swap(all[i], all[i + random.below(all.size() - i)]);
  }
  all.resize(n);
}

// Appends every combination of the dimensions that are not held. The held ones stay as in `start`.
void product(const Space& space, Choice start, bool recent_only, std::vector<Choice>& out) {
  const auto held = [&](std::size_t i) {
    return recent_only && i < space.pending.size() && !space.pending[i].recent;
  };
  for (std::size_t i = 0; i < start.size(); ++i) {
    if (!held(i)) start[i] = 0;
  }
  for (;;) {
    out.push_back(start);
    std::size_t i = 0;
    for (; i < start.size(); ++i) {
      if (held(i)) continue;
      if (++start[i] < space.states[i]) break;
      start[i] = 0;
    }
    if (i == start.size()) return;
  }
}

// Appends, for each line and for file size, punches and name: it alone, and all but it. These are
// never left out, because a forgotten write-back, of now or of ten operations ago, is one of them.
// Returns false if there are too many lines.
bool single_lines(const Space& space, std::uint32_t limit, Random& random,
                  std::vector<Choice>& out) {
  std::vector<std::size_t> lines, old;
  for (std::size_t i = 0; i < space.states.size(); ++i) {
    if (space.states[i] > 1) (space.recent(i) ? lines : old).push_back(i);
  }
  const bool whole = lines.size() + old.size() <= limit;
  shuffle_to(old, limit - std::min<std::size_t>(lines.size(), limit), random);
  lines.insert(lines.end(), old.begin(), old.end());
  shuffle_to(lines, limit, random);
  for (const std::size_t i : lines) {
    Choice hot = space.none();
    Choice cold = space.all();
    hot[i] = space.states[i] - 1;
    cold[i] = 0;
    out.push_back(std::move(hot));
    out.push_back(std::move(cold));
  }
  return whole;
}

// Appends the intermediate states of every recent line.
void recent_states(const Space& space, std::vector<Choice>& out) {
  for (std::size_t i = 0; i < space.pending.size(); ++i) {
    if (!space.recent(i)) continue;
    Choice hot = space.none();
    Choice cold = space.all();
    for (std::uint32_t state = 1; state + 1 < space.states[i]; ++state) {
      hot[i] = cold[i] = state;
      out.push_back(hot);
      out.push_back(cold);
    }
  }
}

// Appends the contents of the medium if lines were written back in program order up to some store:
// each of the recent stores, and a sample of those before.
void program_prefixes(const Space& space, std::size_t limit, Random& random,
                      std::vector<Choice>& out) {
  std::set<std::uint64_t> recent, before;
  for (std::size_t i = 0; i < space.pending.size(); ++i) {
    const PendingLine& line = space.pending[i];
    for (std::size_t c = 0; c < line.choices.size(); ++c) {
      if (line.choices[c].torn == 0) (line.recent ? recent : before).insert(line.order[c]);
    }
  }
  std::vector<std::uint64_t> orders(before.begin(), before.end());
  shuffle_to(orders, limit, random);
  orders.insert(orders.end(), recent.begin(), recent.end());
  for (const std::uint64_t order : orders) {
    Choice choice = space.all();
    for (std::size_t i = 0; i < space.pending.size(); ++i) {
      choice[i] = 0;
      for (std::uint32_t c = 0; c < space.states[i]; ++c) {
        if (space.pending[i].choices[c].torn == 0 && space.pending[i].order[c] <= order) {
          choice[i] = c;
        }
      }
    }
    out.push_back(std::move(choice));
  }
}

void pair(const Space& space, std::size_t i, std::size_t j, std::vector<Choice>& out) {
  Choice hot = space.none();
  Choice cold = space.all();
  hot[i] = space.states[i] - 1;
  hot[j] = space.states[j] - 1;
  cold[i] = cold[j] = 0;
  out.push_back(std::move(hot));
  out.push_back(std::move(cold));
}
void recent_pairs(const Space& space, std::size_t limit, std::vector<Choice>& out) {
  std::size_t made = 0;
  for (std::size_t i = 0; i < space.pending.size(); ++i) {
    for (std::size_t j = i + 1; j < space.pending.size() && made < limit; ++j) {
      if (!space.recent(i) || !space.recent(j)) continue;
      pair(space, i, j, out);
      ++made;
    }
  }
}
void any_pairs(const Space& space, std::size_t n, Random& random, std::vector<Choice>& out) {
  const std::size_t lines = space.pending.size();
  for (std::size_t made = 0; lines > 1 && made < n; ++made) {
    const std::size_t i = random.below(lines);
    pair(space, i, (i + 1 + random.below(lines - 1)) % lines, out);
  }
}

void random_draws(const Space& space, std::uint32_t count, Random& random,
                  std::vector<Choice>& out) {
  for (std::uint32_t n = 0; n < count; ++n) {
    Choice choice;
    const std::uint64_t old_lines = random.below(3);  // all of them absent, present, or mixed
    for (std::size_t i = 0; i < space.states.size(); ++i) {
      const bool old = i < space.pending.size() && !space.pending[i].recent;
      const auto states = space.states[i];
      choice.push_back(old && old_lines < 2 ? static_cast<std::uint32_t>(old_lines) * (states - 1)
                                            : static_cast<std::uint32_t>(random.below(states)));
    }
    out.push_back(std::move(choice));
  }
}

}  // namespace

Enumeration enumerate(const SimMemory& memory, const std::vector<PendingLine>& pending,
                      const EnumerationLimits& limits, std::uint64_t seed) {
  const Space space(memory, pending);
  Enumeration result;
  std::vector<Choice> choices;
  if (space.product(limits.product, false) <= limits.product) {
    product(space, space.none(), false, choices);
  } else {
    result.exhaustive = false;
    Random random(seed);
    choices.push_back(space.none());
    choices.push_back(space.all());
    result.bounded = !single_lines(space, limits.sampled, random, choices);
    std::vector<Choice> others;
    // Lines that stay pending for long (hints are never flushed) must not crowd out the present
    // operation.
    if (space.product(limits.product / 2, true) <= limits.product / 2) {
      product(space, space.none(), true, others);
      product(space, space.all(), true, others);
    } else {
      recent_states(space, others);
      recent_pairs(space, limits.sampled / 2, others);
    }
    program_prefixes(space, limits.sampled / 4, random, others);
    any_pairs(space, limits.sampled / 8, random, others);
    random_draws(space, limits.random, random, others);
    const std::size_t left = limits.sampled - std::min<std::size_t>(choices.size(), limits.sampled);
    shuffle_to(others, std::max<std::size_t>(left, limits.sampled / 2), random);
    std::ranges::move(others, std::back_inserter(choices));
  }
  for (Choice& choice : choices) {
    Combination combination;
    combination.new_name = choice.back() != 0 || !memory.name_pending();
    choice.pop_back();
    combination.punched = choice.back() != 0;
    choice.pop_back();
    combination.new_size = choice.back() != 0 || !memory.size_pending();
    choice.pop_back();
    combination.choice = std::move(choice);
    result.combinations.push_back(std::move(combination));
  }
  return result;
}

}  // namespace perdure::testing
