// The rows of `as` and `ascs` in the testers' list: the parts that both have in common.
#pragma once

#include <type_traits>
#include <vector>

#include "index/skiplist/skiplist.h"
#include "testing/crash/workloads.h"
#include "testing/engines/engine_list.h"
#include "testing/engines/skiplist_subject.h"
#include "testing/mutants/trials.h"
#include "testing/schedule/interleaver.h"
#include "testing/schedule/race_ops.h"
#include "testing/torture/lossy_target.h"

namespace perdure::testing {

template <class Kind>
struct SkiplistUnderTest {
  static SubjectFactory subjects(KeyKind keys, const MapSetup& setup) {
    return skiplist_subjects<Kind>(keys, setup);
  }

  // Towers of every height, built and taken down beside each other.
  static Ops towers() {
    Ops ops;
    const auto key = [](std::uint64_t n) { return n * 7 % 16 + 1; };
    for (std::uint64_t n = 0; n < 16; ++n) ops.push_back(insert(key(n), n));
    for (std::uint64_t n = 0; n < 16; n += 2) {
      ops.push_back(erase(key(n)));
      ops.push_back(upsert(key(n + 1), 100 + n));
      ops.push_back(insert(100 + n, n));
    }
    return ops;
  }
  // A crash separates words from their checks; the walk visits them, and the map is closed.
  static Ops updates() {
    Ops ops = tens(3);
    for (std::uint64_t n = 0; n < 3; ++n) {
      ops.push_back(update(10, n));
      ops.push_back(update(30, 7 * n));
      ops.push_back(background());
      ops.push_back(reopen());
    }
    return ops;
  }
  static std::vector<Exploration> directed(Preset preset) {
    ExploreOptions rarely = options_of(preset);
    rarely.second_in *= 4;
    ExploreOptions always = options_of(preset);
    always.second_in = 1;
    always.kill_in = 1;
    const SubjectFactory words = subjects(KeyKind::integer, {});
    return {directed_one("towers", words, integer_op, rarely, towers()),
            directed_one("updates", words, integer_op, always, updates())};
  }

  // Inserts a tower, whose last link is then owed, and erases the node behind it (K2); with
  // `closed`, after a close.
  static Ops owed_links(bool closed) {
    Ops ops = tens(8);
    for (const std::uint64_t before : {1, 2, 3}) {
      for (std::uint64_t key = 10; key <= 80; key += 10) {
        ops.push_back(insert(key - before, before));
        if (closed) ops.push_back(reopen());
        ops.push_back(erase(key));
        ops.push_back(insert(key, before));
      }
    }
    return ops;
  }
  // A process finds a value without its check: by its walk, by an update, or by a close.
  static Op after_crash(Random& random) {
    const std::uint64_t kind = random.below(4);
    return kind == 0 ? background() : kind == 1 ? update(20, kind) : reopen();
  }
  static std::vector<Exploration> trials() {
    std::vector<Exploration> all = directed(Preset::fast);
    const MapSetup unsynced{.sync_at_close = false};
    ExploreOptions options = trial_options();
    options.explore_create = false;
    options.battery = 20;
    options.second_in = options.kill_in = 0;
    ExploreOptions again = options;
    again.second_in = 1;
    again.second_ops = 8;
    again.second_reopens = true;
    Ops updates;
    for (std::uint64_t n = 0; n < 12; ++n) updates.push_back(update(10 + n % 2 * 20, 5 * n + 1));
    again.prepare = tens(3);
    all.push_back(directed_one("closed_checks", subjects(KeyKind::integer, unsynced), after_crash,
                               again, updates));
    if (!Kind::kUpperDurable) return all;
    all.push_back(directed_one("owed_links", subjects(KeyKind::integer, {}), integer_op, options,
                               owed_links(false)));
    all.push_back(directed_one("closed_links", subjects(KeyKind::integer, unsynced), integer_op,
                               options, owed_links(true)));
    return all;
  }

  // Results that rest on a word that another thread has in flight.
  static InterleaveReport results_beside_writers(const std::string& name, bool quiet) {
    return exhaustive(name, quiet, {insert(5, 1), insert(6, 1)}, {update(5, 2), erase(6)},
                      {find(5), find(6), scan(), insert(5, 3), erase(6)});
  }
  // The next mutation of any thread writes the last link of a tower back (K2).
  static InterleaveReport towers_beside_towers(const std::string& name, bool quiet) {
    return exhaustive(name, quiet, tens(3), {insert(11, 1), insert(13, 1), insert(15, 1)},
                      {insert(12, 2), erase(20), insert(14, 2), erase(30)});
  }
  static std::vector<NamedInterleaving> interleavings() {
    return {{"results_beside_writers", &results_beside_writers},
            {"towers_beside_towers", &towers_beside_towers}};
  }

  // Covers the fields of the only map's root block that are not reserved, and state, key, value and
  // lowest link of the first nodes.
  static Covered covered(const SimMemory& memory) {
    constexpr std::size_t kNodes = 4;
    for (std::uint64_t at = 0; at < memory.size(); at += kLine) {
      const auto* root = reinterpret_cast<const skiplist::layout::Root*>(memory.base() + at);
      if (root->magic != skiplist::layout::kRootMagic) continue;
      Covered found{{at, at + offsetof(skiplist::layout::Root, reserved)}};
      for (std::uint64_t link = root->first_link; link != 0 && found.size() <= kNodes;) {
        const std::uint64_t node = link & skiplist::kOffsetMask;
        found.emplace_back(node, node + sizeof(skiplist::Node) + sizeof(link));
        link = skiplist::link_at(reinterpret_cast<const skiplist::Node*>(memory.base() + node), 0);
      }
      return found;
    }
    return {};
  }

  struct UnderLoss {
    static constexpr Engine kEngine = Kind::kEngine;
    template <bool Bytes>
    using Map =
        skiplist::Skiplist<LossyPlatform,
                           std::conditional_t<Bytes, skiplist::BytesCodec, skiplist::IntegerCodec>,
                           Kind, skiplist::Geometry<8, 1, 64, 16, 32, 16>>;
    template <bool Bytes>
    static Expected<std::uint64_t> create(const EngineContext<LossyPlatform>& context,
                                          const MapKinds& kinds) {
      return Map<Bytes>::create(context, kinds);
    }
  };

  static constexpr EngineUnderTest row(RaceList (*races)(), std::span<const char* const> canaries,
                                       std::span<const HistoricalBug> historical) {
    return {.engine = Kind::kEngine,
            .ordered = true,
            .background = Kind::kUpperDurable,
            .subjects = &subjects,
            .directed = &directed,
            .trials = &trials,
            .image_cost = 6,  // lookups among 2,600 keys in towers of 4
            // Of ascs more is in flight at every moment.
            .random_words = {2, Kind::kUpperDurable ? 120U : 40U},
            .random_records = {1, Kind::kUpperDurable ? 80U : 30U},
            .random_strings = {2, Kind::kUpperDurable ? 80U : 30U},
            .races = races,
            .interleavings = &interleavings,
            .byte_latches = false,
            .open_lossy = &open_lossy<UnderLoss>,
            .planted = kPlanted,
            .covered = &covered,
            .canaries = canaries,
            .race_mutant = kHelp,
            .ordered_sites = {},
            .arguments = {},
            .historical = historical};
  }

 private:
  // SITE:op of this engine.
  template <FixedString Rest>
  static constexpr auto kMutant = skiplist::joined(Kind::kName, Rest);
  static constexpr const char* kHelp = kMutant<"help.word:drop_fence">.text;
  static constexpr PlantedBug kPlanted[] = {
      {"integer", kMutant<"insert.link:drop_flush">.text},
      {"bytes", kMutant<"blob.write:drop_flush">.text},
      {"integer", kMutant<"erase.link:drop_flush">.text},
  };

  static InterleaveReport exhaustive(const std::string& name, bool quiet, const Ops& setup,
                                     const Ops& one, const Ops& other) {
    Interleaver interleaver(
        subjects(KeyKind::integer, {.background_thread = false}),
        {.name = name, .setup = setup, .threads = {one, other}, .quiet = quiet});
    return interleaver.exhaustive(1);
  }
};

}  // namespace perdure::testing
