// What only certain interleavings show. Versions are the numbers of the tags; ids are those of
// docs/design/hazards.md and docs/design/pskiplist.md. Key 5 lies in slot 0, its further entries in
// segments of one.
#include <string>

#include "testing/engines/pskiplist_races.h"
#include "testing/engines/pskiplist_subject.h"
#include "testing/schedule/race_ops.h"
#include "testing/schedule/version_ops.h"

namespace perdure::testing {

namespace {

using pskiplist::Phase;
using Numbered = NumberedSubject<pskiplist::IntegerCodec>;

SubjectFactory numbered() {
  return numbered_subjects<pskiplist::IntegerCodec>({.background_thread = false});
}
constexpr EnumerationLimits kFew{.product = 8, .random = 1, .sampled = 4};

// Until the node of key 5 is in that phase.
Until phase(Interleaver& interleaver, Phase phase) {
  return holds("phase", [&interleaver, phase] {
    return static_cast<Numbered&>(interleaver.subject()).phase_of(find(5).key) == phase;
  });
}
Until returned(std::uint64_t n = 1) { return mark_of("return", n); }

// A sweep of each pair of threads: the first is stopped after every number of steps, the second
// comes in between.
InterleaveReport beside(const std::string& name, bool quiet, const Ops& setup,
                        const std::vector<Ops>& stopped, const std::vector<Ops>& others) {
  InterleaveReport all;
  for (std::size_t i = 0; i < stopped.size(); ++i) {
    for (std::size_t j = 0; j < others.size(); ++j) {
      Interleaver interleaver(numbered(),
                              {.name = name + "_" + std::to_string(i) + std::to_string(j),
                               .setup = setup,
                               .threads = {stopped[i], others[j]},
                               .limits = kFew,
                               .quiet = quiet});
      all.add(interleaver.sweep({}, 0, {{1, done()}, {0, done()}}));
      if (!all.ok()) return all;
    }
  }
  return all;
}

// A write is stamped twice, as a tag makes it need a segment. A thread that met the first stamp
// goes on behind the second, with the clock of the first.
InterleaveReport old_clock(const std::string& name, bool quiet) {
  const Ops setup{put(5, 1), tag(), put(5, 2)};
  InterleaveReport all;
  {
    // A tag has returned in between, and the version that it closed was read.
    Interleaver interleaver(
        numbered(), {.name = name + "_closed",
                     .setup = setup,
                     .threads = {{put(5, 3)}, {tag(), tag(), get(5, 3), get(5, 3)}, {get(5)}},
                     .crashes = false,
                     .quiet = quiet});
    all.add(interleaver.sweep({{0, phase(interleaver, Phase::unstamped)}, {1, returned()}}, 2,
                              {{0, phase(interleaver, Phase::held)},
                               {1, returned(2)},
                               {0, phase(interleaver, Phase::unstamped)},
                               {2, done()},
                               {0, done()},
                               {1, done()}}));
    if (!all.ok()) return all;
  }
  // The clock was loaded before the tag: the entry of the version that it closed would be replaced.
  Interleaver interleaver(numbered(),
                          {.name = name + "_replaced",
                           .setup = setup,
                           .threads = {{put(5, 3)}, {tag(), get(5, 2), get(5, 2)}, {get(5)}},
                           .crashes = false,
                           .quiet = quiet});
  all.add(interleaver.sweep({{0, phase(interleaver, Phase::unstamped)}}, 2,
                            {{1, returned()},
                             {0, phase(interleaver, Phase::held)},
                             {1, returned()},
                             {0, phase(interleaver, Phase::unstamped)},
                             {2, done()},
                             {0, done()},
                             {1, done()}}));
  return all;
}

// A lookup begins beside one write of a version and ends beside another of the same version. What
// it returns is durable. The writes are an update, an erase and an insert, all in place.
InterleaveReport stored_twice(const std::string& name, bool quiet) {
  Interleaver interleaver(numbered(), {.name = name,
                                       .setup = {put(5, 1), tag(), put(5, 2)},
                                       .threads = {{put(5, 3), gone(5), put(5, 4)}, {get(5)}},
                                       .limits = kFew,
                                       .quiet = quiet});
  const Leg stored{0, phase(interleaver, Phase::stored)};
  InterleaveReport all = interleaver.sweep({stored}, 1, {});
  const std::uint64_t steps_of_lookup = all.schedules - 1;
  const std::uint64_t behind_the_look = 20;  // more than there are behind its first look
  std::uint64_t k = steps_of_lookup - std::min(steps_of_lookup, behind_the_look);
  for (; k < steps_of_lookup && all.ok(); ++k) {
    all.add(interleaver.sweep({stored, {1, steps(k)}, {0, returned(2)}}, 0,
                              {{1, after_fence_of("pskiplist.find.help")},
                               {0, flush_of("pskiplist.update.entry")},
                               {1, done()},
                               {0, done()}}));
  }
  return all;
}

// Two trims under one reader of a version: the first takes the first entry, the second the one that
// says that the key was removed.
InterleaveReport two_trims(const std::string& name, bool quiet) {
  return beside(name, quiet, {put(5, 1), tag(), gone(5), tag(), tag(), put(5, 2), tag()},
                {{get(5, 3)}, {scan_at(3)}, {diff(3, 4)}, {history(5)}}, {{trim(3), trim(3)}});
}

// A history beside what changes it: its last entry is closed and followed by another; the key goes,
// and another has its slot.
InterleaveReport histories(const std::string& name, bool quiet) {
  const std::vector<Ops> history_of_5{{history(5)}};
  InterleaveReport all;
  for (const auto& [part, setup, other] :
       {std::tuple("_closed", Ops{put(5, 1), tag()}, Ops{put(5, 2), tag(), put(5, 3)}),
        std::tuple("_replaced", Ops{put(5, 1), tag(), put(5, 2)}, Ops{put(5, 3), gone(5), tag()}),
        std::tuple("_trimmed", Ops{put(5, 1), tag(), gone(5), tag()}, Ops{trim(3), put(6, 9)}),
        std::tuple("_erased", Ops{put(5, 1)}, Ops{gone(5), tag(), put(6, 9)})}) {
    all.add(beside(name + part, quiet, setup, history_of_5, {other}));
    if (!all.ok()) return all;
  }
  all.add(beside(name + "_moved", quiet, {put(5, 1), tag(), put(5, 2), tag(), put(5, 3), tag()},
                 history_of_5, {{trim(3), put(5, 4)}, {trim(2), gone(5), tag(), trim(4)}}));
  return all;
}

// What a trim has freed holds another key's value; no crash brings back the entry that led to it.
InterleaveReport trimmed_and_reused(const std::string& name, bool quiet) {
  Interleaver interleaver(numbered_subjects<pskiplist::IntegerCodec>(
                              {.values = ValueKind::bytes, .background_thread = false}),
                          {.name = name,
                           .setup = {put(5, 1), put(6, 1), put(7, 1), tag(), put(5, 2), tag()},
                           .threads = {{trim(2)}, {reclaim(), put(7, 2), get(7)}},
                           .limits = kFew,
                           .quiet = quiet});
  return interleaver.sweep({}, 0, {{1, done()}, {0, done()}});
}

// A trim takes a version away, and the keys that only it had, under a reader of it.
InterleaveReport trimmed_away(const std::string& name, bool quiet) {
  return beside(name, quiet, {put(5, 1), tag(), gone(5), tag()},
                {{scan_at(1)}, {diff(1, 2)}, {get(5, 1)}}, {{trim(2)}, {trim(2), put(6, 9)}});
}

// A trim is stopped; what is refused because of it stays refused after a crash.
InterleaveReport refused_beside_trims(const std::string& name, bool quiet) {
  return beside(name, quiet, {put(5, 1), tag(), gone(5), tag()}, {{trim(2)}},
                {{get(5, 1)}, {scan_at(1)}});
}

// A write is stopped anywhere; its version is closed, read, and read again when it has ended.
InterleaveReport closed_beside_writes(const std::string& name, bool quiet) {
  const std::vector<Ops> writes{{put(5, 2)}, {gone(5)}, {put(6, 2)}};
  InterleaveReport all;
  for (const Ops& setup : {Ops{put(5, 1)}, Ops{put(5, 1), tag()}, Ops{put(5, 1), tag(), put(5, 7)},
                           Ops{put(5, 1), tag(), put(5, 2), tag(), put(5, 3)}}) {
    const auto tags = static_cast<std::uint64_t>(std::ranges::count(setup, OpKind::tag, &Op::kind));
    for (std::size_t i = 0; i < writes.size(); ++i) {
      Interleaver interleaver(
          numbered(), {.name = name + "_" + std::to_string(tags) + std::to_string(setup.size()) +
                               std::to_string(i),
                       .setup = setup,
                       .threads = {writes[i], {tag(), scan_at(tags + 1), scan_at(tags + 1)}},
                       .limits = kFew,
                       .quiet = quiet});
      all.add(interleaver.sweep({}, 0, {{1, returned(2)}, {0, done()}, {1, done()}}));
      if (!all.ok()) return all;
    }
  }
  return all;
}

// A lookup is stopped anywhere, a write then while it changes the node, so that the lookup goes on
// with the one half of the last entry from before and the other from behind.
InterleaveReport two_halves(const std::string& name, bool quiet) {
  constexpr std::uint64_t kSteps = 24;  // more than a write has behind its stamp, up to `stored`
  InterleaveReport all;
  for (const auto& [part, setup] : {std::pair("_segment", Ops{put(5, 1), tag()}),
                                    std::pair("_entry", Ops{put(5, 1), tag(), put(5, 2), tag()})}) {
    for (const auto& [write, lookup] :
         {std::pair(put(5, 3), get(5, 1)), std::pair(gone(5), get(5, 1)),
          std::pair(put(5, 3), get(5)), std::pair(put(5, 3), history(5))}) {
      Interleaver interleaver(numbered(), {.name = name + part,
                                           .setup = setup,
                                           .threads = {{write}, {lookup}},
                                           .crashes = false,
                                           .quiet = quiet});
      for (std::uint64_t k = 0; k < kSteps && all.ok(); ++k) {
        all.add(interleaver.sweep(
            {}, 1,
            {{0, phase(interleaver, Phase::stamped)}, {0, steps(k)}, {1, done()}, {0, done()}}));
      }
      if (!all.ok()) return all;
    }
  }
  return all;
}

// A's write is stopped, and holds up no other write. Its version is closed. B is written in the
// next one, and read. Then A is read, and was not written before B.
InterleaveReport new_beside_old(const std::string& name, bool quiet) {
  Interleaver interleaver(numbered(),
                          {.name = name,
                           .setup = {put(5, 1), put(6, 1)},
                           .threads = {{put(5, 2)}, {tag(), put(6, 2), get(6), get(5), get(5, 1)}},
                           .limits = kFew,
                           .quiet = quiet});
  return interleaver.sweep({}, 0, {{1, done()}, {0, done()}});
}

// An append is stopped: of an entry that begins a segment, of one that does not.
InterleaveReport links(const std::string& name, bool quiet) {
  const Ops one{put(5, 1), tag()};
  const Ops three{put(5, 1), tag(), put(5, 2), tag(), put(5, 3), tag()};
  InterleaveReport all;
  for (const auto& [part, setup] : {std::pair("_link", one), std::pair("_entry", three)}) {
    all.add(beside(name + part, quiet, setup, {{put(5, 8)}, {gone(5)}}, {{get(5)}, {history(5)}}));
    if (!all.ok()) return all;
  }
  all.add(beside(name + "_version", quiet, one, {{put(5, 8)}}, {{tag(), get(5, 2)}}));
  return all;
}

// Tags write their limit beside each other, and beside a write of the version that they close: two
// threads append to one history, in the order of its versions, where each entry begins a segment.
InterleaveReport limits_of_tags(const std::string& name, bool quiet) {
  return beside(name, quiet, {put(5, 1), tag()}, {{tag()}, {put(5, 2), tag()}},
                {{tag(), tag()}, {tag(), put(5, 3), tag()}});
}

// A lookup is stopped anywhere while a key comes that divides the bucket in which its key is hinted
// at, or the other way round. The key is there throughout, and so is its hint. With `many` the
// bucket has a linked one, in which its last names lie.
InterleaveReport certain_absences(const std::string& name, bool quiet) {
  using Hints = pskiplist::KeyHints<SimPlatform>;
  InterleaveReport all;
  for (const bool many : {false, true}) {
    const std::uint64_t buckets = many ? 4 : 1;  // the next to come is divided from the first
    const std::uint64_t count = buckets * Hints::kFill;
    Ops full;  // every second key will lie in the new bucket
    Ops lookups;
    for (std::uint64_t key = 1; full.size() < count; ++key) {
      if (Hints::hash<false>(key, {}) % (2 * buckets) != full.size() % 2 * buckets) continue;
      full.push_back(put(key, 1));
      lookups.push_back(get(key));
    }
    for (const std::uint64_t i : {std::uint64_t{1}, count - 2, count - 1}) {
      const std::string part = name + (many ? "_many" : "_one") + std::to_string(i);
      Interleaver interleaver(numbered(), {.name = part,
                                           .setup = full,
                                           .threads = {{lookups[i]}, {put(5000, 1)}},
                                           .crashes = false,
                                           .quiet = quiet});
      all.add(interleaver.sweep({}, 0, {{1, done()}, {0, done()}}));
      if (all.ok()) all.add(interleaver.sweep({}, 1, {{0, done()}, {1, done()}}));
      if (!all.ok()) return all;
    }
  }
  return all;
}

// A key goes while another comes that divides the bucket in which it is hinted at. What hints name
// at the end is listed: check() counts it.
InterleaveReport hints(const std::string& name, bool quiet) {
  using Hints = pskiplist::KeyHints<SimPlatform>;
  Ops full;  // one bucket; every second key will lie in the new one
  Ops out;
  for (std::uint64_t key = 1; full.size() < Hints::kFill; ++key) {
    if (Hints::hash<false>(key, {}) % 2 != full.size() % 2) continue;
    full.push_back(put(key, 1));
    out.push_back(gone(key));
  }
  const Ops one_more{put(100, 1)};
  InterleaveReport all;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::string part = name + std::to_string(i);
    all.add(beside(part + "_out", quiet, full, {{out[i]}}, {one_more}));
    all.add(beside(part + "_in", quiet, full, {one_more}, {{out[i]}}));
    if (!all.ok()) return all;
  }
  all.add(beside(name + "_two", quiet, full, {one_more}, {one_more}));
  return all;
}

// The insert that adds a block to the key chain is stopped; what others put into that block is
// reached through its link. The block is the first, or linked ahead: then another thread takes the
// last slot of the block before.
InterleaveReport new_blocks(const std::string& name, bool quiet) {
  InterleaveReport all = beside(name, quiet, {}, {{put(10, 1)}}, {{put(11, 1), get(11)}});
  if (!all.ok()) return all;
  all.add(beside(name + "_ahead", quiet, {put(1, 1), put(2, 1)}, {{put(10, 1)}},
                 {{put(11, 1), put(12, 1), get(12)}}));
  return all;
}

// A block of the key chain loses its last key while another thread takes a slot: of that block, or
// of the next one, which may be linked then. The thread that erases has given two slots back
// before, which lie in its stash.
InterleaveReport leaving_blocks(const std::string& name, bool quiet) {
  Ops setup;
  for (std::uint64_t key = 1; key <= 11; ++key) setup.push_back(put(key, key));
  const Ops last{gone(1), gone(2), gone(3), gone(4), gone(5), gone(6)};
  return beside(name, quiet, setup, {last}, {{put(10, 1), put(11, 1)}, {gone(7), gone(8)}});
}

}  // namespace

std::vector<NamedInterleaving> pskiplist_interleavings() {
  return {{"W16_old_clock", &old_clock},
          {"W17_stored_twice", &stored_twice},
          {"W15_W12_two_trims", &two_trims},
          {"W19_two_halves", &two_halves},
          {"W8_histories", &histories},
          {"W8_V16_trimmed_away", &trimmed_away},
          {"V16_trimmed_and_reused", &trimmed_and_reused},
          {"W18_refused_beside_trims", &refused_beside_trims},
          {"V5_W1_W4_closed_beside_writes", &closed_beside_writes},
          {"V1_W3_new_beside_old", &new_beside_old},
          {"W9_V18_links",
           &links,
           {"pskiplist.find.help:drop_flush", "pskiplist.find.help:drop_fence"}},
          {"W14_V4_V6_V10_limits_of_tags", &limits_of_tags},
          {"V7_V8_new_blocks", &new_blocks, {"pskiplist.chain.link:drop_fence"}},
          {"V8_leaving_blocks", &leaving_blocks},
          {"W20_hints", &hints},
          {"W28_certain_absences", &certain_absences}};
}

}  // namespace perdure::testing
