// Clevel's scenarios. Buckets hold two items and the table begins with six of them, so that 14 keys
// make a third level; every write takes a step of the background work, which drains the last one.
#include "testing/engines/clevel_races.h"

#include "testing/engines/clevel_subject.h"
#include "testing/schedule/conditional_races.h"
#include "testing/schedule/gate_races.h"
#include "testing/schedule/race_ops.h"
#include "testing/sim/sites.h"

namespace perdure::testing {

namespace {

SubjectFactory words() {
  return clevel_subjects<clevel::IntegerCodec>({.background_thread = false});
}
SubjectFactory bytes() {
  return clevel_subjects<clevel::BytesCodec>(
      {.values = ValueKind::bytes, .background_thread = false});
}
constexpr EnumerationLimits kFewer{.product = 16, .random = 2, .sampled = 6};

// Every pair of operations on one key, that is there or not, while the table rests and while it
// grows. A thread writes back and fences what its result rests on (C11, X3). Of two inserts
// one succeeds (C4). The rehash makes no difference (C1, C2, C3).
void add_pairs(RaceList& races, bool grows) {
  const std::uint64_t key = 5;
  const Ops writers{insert(key, 2), upsert(key, 3), update(key, 4), erase(key)};
  const Ops others{insert(key, 5), upsert(key, 6), update(key, 7), erase(key), find(key)};
  static constexpr const char* kNames[] = {"Insert", "Upsert", "Update", "Erase", "Find"};
  const std::string hazards = grows ? "C1_C2_C3_C4_" : "C4_C11_X3_";
  for (const bool there : {false, true}) {
    Ops setup{insert(7, 1)};
    for (std::uint64_t other = 10; grows && other < 22; ++other) setup.push_back(insert(other, 1));
    if (there) setup.push_back(insert(key, 1));
    for (std::size_t w = 0; w < writers.size(); ++w) {
      for (std::size_t o = 0; o < others.size(); ++o) {
        races.push_back(
            {.name = hazards + kNames[w] + "And" + kNames[o] + (there ? "There" : "Absent"),
             .subjects = words(),
             .setup = setup,
             .threads = {{writers[w]}, {others[o], find(key)}},
             .thin = grows ? 96U : 24U,
             .limits = kFewer});
      }
    }
  }
}

// An erased item's block is used again while another thread still holds the slot's word (C8, X4).
void add_reuse(RaceList& races) {
  const Op put{OpKind::upsert, "a", std::string(30, 'p')};
  const Op other{OpKind::upsert, "b", std::string(30, 'q')};
  const Op gone{OpKind::erase, "a", {}};
  const Op look{OpKind::find, "a", {}};
  races.push_back({.name = "C8_X4_ABlockIsUsedAgainUnderALookup",
                   .subjects = bytes(),
                   .setup = {put},
                   .threads = {{gone, reclaim(), reclaim(), other}, {look}},
                   .limits = kFewer});
  races.push_back({.name = "C8_AValueIsReplacedUnderALookup",
                   .subjects = bytes(),
                   .setup = {put},
                   .threads = {{put, reclaim(), reclaim(), other}, {look, gone}},
                   .limits = kFewer});
  races.push_back(
      {.name = "C4_C8_X3_ThreeHandsOnOneKey",
       .subjects = words(),
       .setup = {insert(5, 1)},
       .threads = {{update(5, 2), erase(5)}, {insert(5, 3), find(5)}, {erase(5), upsert(5, 4)}},
       .limits = kFewer});
}

// Mutations that share a fence, beside others of the same keys, while the table rests and while it
// grows: all are seen before that fence, and what rests on them is durable (clevel.I5).
void add_many(RaceList& races) {
  Ops grown;
  for (std::uint64_t key = 10; key < 22; ++key) grown.push_back(insert(key, 1));
  for (const bool grows : {false, true}) {
    const auto add = [&](const std::string& name, const Ops& keys,
                         const std::vector<Ops>& threads) {
      races.push_back({.name = "Many_" + name + (grows ? "InATableThatGrows" : ""),
                       .subjects = words(),
                       .setup = grows ? with(grown, keys) : keys,
                       .threads = threads,
                       .thin = grows ? 96U : 24U,
                       .limits = kFewer});
    };
    add("BesideAFind", inserts({5, 6}),
        {{many({insert(7, 1), update(5, 2), erase(6)})}, {find(7), find(5), find(6)}});
    add("BesideWriters", inserts({5, 6}),
        {{many({insert(7, 1), update(5, 2), erase(6)})}, {insert(6, 3), erase(5), upsert(7, 4)}});
    add("CrossingKeys", inserts({5, 6}),
        {{many({update(5, 1), erase(6)})}, {many({erase(6), update(5, 4)}), find(5)}});
    add("OneKeyTwice", {},
        {{many({insert(5, 1), update(5, 2), erase(5)})}, {upsert(5, 3), find(5)}});
  }
  const auto put = [](const char* key, char value) {
    return Op{OpKind::upsert, key, std::string(30, value)};
  };
  races.push_back({.name = "Many_Strings",
                   .subjects = bytes(),
                   .setup = {put("a", 'p'), put("b", 'p')},
                   .threads = {{many({put("a", 'q'), {OpKind::erase, "b", {}}, put("c", 'q')})},
                               {put("a", 'r'), {OpKind::find, "b", {}}, {OpKind::find, "c", {}}}},
                   .thin = 24,
                   .limits = kFewer});
}

// 14 keys make three levels, the last of which drains with every step.
Ops growing() {
  Ops ops;
  for (std::uint64_t key = 1; key <= 14; ++key) ops.push_back(insert(key, 100 + key));
  return ops;
}

// Results that rest on another thread's insert, update or erase before its fence.
InterleaveReport results_beside_writers(const std::string& name, bool quiet) {
  Interleaver interleaver(
      words(),
      {.name = name,
       .setup = {insert(5, 1), insert(6, 1)},
       .threads = {{update(5, 2), erase(6), insert(7, 1)},
                   {find(5), find(6), scan(), insert(6, 3), find(7), update(7, 2), scan()}},
       .quiet = quiet});
  return interleaver.exhaustive(1);
}

// A scan passes over an item whose death is not durable.
InterleaveReport scans_beside_erases(const std::string& name, bool quiet) {
  Interleaver interleaver(words(), {.name = name,
                                    .setup = {insert(5, 1), insert(6, 1)},
                                    .threads = {{erase(5), erase(6)}, {scan()}},
                                    .quiet = quiet});
  return interleaver.exhaustive(1);
}

// An item dies while it is copied, and its block is used again.
InterleaveReport erases_beside_the_rehash(const std::string& name, bool quiet) {
  InterleaveReport all;
  for (std::uint64_t key = 1; key <= 8; ++key) {
    Interleaver interleaver(words(), {.name = name + std::to_string(key),
                                      .setup = growing(),
                                      .threads = {{erase(key)},
                                                  {background(), background(), reclaim(), reclaim(),
                                                   reclaim(), insert(40, 1), insert(41, 1)}},
                                      .limits = kFewer,
                                      .quiet = quiet});
    all.add(interleaver.exhaustive(1));
    if (!all.ok()) break;
  }
  return all;
}

SubjectFactory stepped() { return clevel_subjects<clevel::IntegerCodec>({}); }

// Inserts until one after which stop(stats) is true; steps of the background work after each that
// makes a third level, until it has drained one.
template <class Stop>
Ops grown_until(Stop&& stop) {
  const ScopedWorld world;
  SimPlatform::seed(InterleaveOptions{}.seed);
  SimMemory memory(InterleaveOptions{}.capacity);
  ClevelSubject<clevel::IntegerCodec> subject{MapSetup{}};
  Ops ops;
  // As an Interleaver: the walk of an open is ahead of the first operation.
  if (!subject.create(memory).ok() || !subject.open(memory, 1).ok() || !subject.close().ok() ||
      !subject.open(memory, 1).ok()) {
    return ops;
  }
  const auto apply = [&](Op op) {
    (void)subject.apply(op);
    ops.push_back(std::move(op));
  };
  for (int n = 0; n < 8; ++n) apply(background());
  for (std::uint64_t key = 1; key < 200; ++key) {
    apply(insert(key, 100 + key));
    if (stop(subject.stats())) break;
    for (int n = 0; n < 100 && subject.stats().levels.size() > 2; ++n) apply(background());
  }
  return ops;
}

// Three levels, the last of which, of at least so many buckets, is about to be drained.
Ops about_to_drain(std::uint64_t buckets) {
  return grown_until([&](const EngineStats& stats) {
    const std::size_t levels = stats.levels.size();
    return levels > 2 && stats.levels[levels - 1].slots >= 2 * buckets;
  });
}

// Enough to end the walk of the open, and to drain a small level.
Ops steps_of_background() { return Ops(8, background()); }

// Runs `legs` once for every key that the setup has inserted, and every number of steps.
template <class Threads>
InterleaveReport for_each_key(const std::string& name, bool quiet, const Ops& setup,
                              const std::vector<Leg>& before, const std::vector<Leg>& after,
                              Threads&& threads) {
  InterleaveReport all;
  for (const Op& op : setup) {
    if (op.kind != OpKind::insert || !all.ok()) continue;
    Interleaver interleaver(stepped(), {.name = name + std::to_string(integer_of(op.key)),
                                        .setup = setup,
                                        .threads = threads(op.key),
                                        .limits = kFewer,
                                        .quiet = quiet});
    all.add(interleaver.sweep(before, 1, after));
  }
  return all;
}

std::vector<Ops> erased_and_used_again(std::string key, Ops steps = steps_of_background()) {
  const Ops ops{{OpKind::erase, std::move(key), {}},
                reclaim(),
                reclaim(),
                reclaim(),
                insert(300, 1),
                insert(301, 1)};
  return std::vector<Ops>{ops, std::move(steps)};
}
// An item that was moved dies, and its block is used again, while the level that it came from still
// drains: the old slot must not name it any more (clevel.I4, X4).
InterleaveReport reuse_beside_the_rehash(const std::string& name, bool quiet) {
  return for_each_key(name, quiet, about_to_drain(4), {}, {{0, done()}},
                      [](std::string key) { return erased_and_used_again(std::move(key)); });
}

// An insert moves an item up, and is stopped; another thread makes its key in a slot that it makes
// free itself, so that the first inserts nothing, and erases the item. The old slot must not name
// the item's block when that is used again (clevel.I4, X4).
InterleaveReport reuse_beside_a_move(const std::string& name, bool quiet) {
  InterleaveReport all;
  for (std::uint64_t nth = 1; nth <= 2; ++nth) {
    reset_site_counts();
    const SiteInfo* moves = find_site("clevel.move.slot");
    Ops setup = grown_until([&](const EngineStats&) { return moves->flush_count.load() >= nth; });
    const Op mover = setup.back();
    setup.pop_back();
    const auto keys = [&](auto&& visit) {
      for (std::size_t i = 0; i < setup.size() && all.ok(); ++i) {
        if (setup[i].kind == OpKind::insert) visit(Op{OpKind::erase, setup[i].key, {}});
      }
    };
    keys([&](const Op& elsewhere) {
      keys([&](const Op& moved) {
        Ops others(3, reclaim());
        for (std::uint64_t key = 300; key < 302; ++key) others.push_back(insert(key, 1));
        Interleaver interleaver(
            stepped(),
            {.name = name + std::to_string(nth) + "_" + describe(moved),
             .setup = setup,
             .threads = {with(steps_of_background(), {mover}), {elsewhere, mover, moved}, others},
             .limits = kFewer,
             .quiet = quiet});
        all.add(interleaver.directed(
            {{0, fence_of("clevel.move.slot")}, {1, done()}, {0, done()}, {2, done()}}));
      });
    });
  }
  return all;
}

// An item dies after it was copied, and its eraser is stopped; the copy is undone, the step ends;
// the item's block is used again. What was the copy must not name it any more (X4). The second step
// undoes it, and none follows that would fence for it.
InterleaveReport reuse_after_an_undone_copy(const std::string& name, bool quiet) {
  const std::vector<Leg> after{{0, flush_of("clevel.erase.state")}, {1, done()}, {0, done()}};
  return for_each_key(name, quiet, about_to_drain(4), {}, after, [](std::string key) {
    return erased_and_used_again(std::move(key), Ops(2, background()));
  });
}

// An erase is stopped before it writes the death back. Steps of the background work come to the
// dead item's slot. Another thread then finds the key absent, and inserts it anew.
std::vector<Ops> absence(std::string key) {
  Ops others{{OpKind::find, key, {}}, {OpKind::insert, key, word(7)}};
  return {{{OpKind::erase, std::move(key), {}}}, steps_of_background(), std::move(others)};
}
InterleaveReport absence_beside_the_rehash(const std::string& name, bool quiet) {
  const std::vector<Leg> after{
      {0, flush_of("clevel.erase.state")}, {1, fence_of("clevel.rehash.seal")}, {2, done()}};
  return for_each_key(name, quiet, about_to_drain(2), {}, after, &absence);
}
InterleaveReport absence_beside_the_walk(const std::string& name, bool quiet) {
  return for_each_key(name, quiet, {insert(1, 1), insert(2, 1)},
                      {{0, flush_of("clevel.erase.state")}}, {{2, done()}}, &absence);
}

// An insert has made a level, and is stopped before its own fence: what another thread puts there
// is durable only if the level is.
InterleaveReport inserts_into_a_new_level(const std::string& name, bool quiet) {
  Ops setup = about_to_drain(1);
  const Op grower = setup.back();
  setup.pop_back();
  Ops others;
  for (std::uint64_t key = 300; key < 304; ++key) others.push_back(insert(key, 1));
  Interleaver interleaver(stepped(), {.name = name,
                                      .setup = setup,
                                      .threads = {with(steps_of_background(), {grower}), others},
                                      .limits = kFewer,
                                      .quiet = quiet});
  return interleaver.directed({{0, flush_of("clevel.insert.slot")}, {1, done()}, {0, done()}});
}

// An insert that moves an item up is stopped between copy and old slot. Another one makes a level,
// so that the last one drains. The rehash must not copy the same item (clevel.I3).
InterleaveReport drains_beside_a_move(const std::string& name, bool quiet) {
  reset_site_counts();
  const SiteInfo* moves = find_site("clevel.move.slot");
  Ops setup = grown_until([&](const EngineStats&) { return moves->flush_count.load() != 0; });
  const Op mover = setup.back();
  setup.pop_back();
  Ops others;
  for (std::uint64_t key = 300; key < 308; ++key) others.push_back(insert(key, 1));
  Interleaver interleaver(stepped(), {.name = name,
                                      .setup = setup,
                                      .threads = {{mover}, with(others, Ops(20, background()))},
                                      .limits = kFewer,
                                      .quiet = quiet});
  return interleaver.sweep({}, 0, {{1, done()}, {0, done()}});
}

// Whether the insert of a key would put its item into the last level.
bool lands_in_last(const Ops& setup, std::uint64_t key) {
  const ScopedWorld world;
  SimPlatform::seed(InterleaveOptions{}.seed);
  SimMemory memory(InterleaveOptions{}.capacity);
  ClevelSubject<clevel::IntegerCodec> subject{MapSetup{}};
  if (!subject.create(memory).ok() || !subject.open(memory, 1).ok() || !subject.close().ok() ||
      !subject.open(memory, 1).ok()) {
    return false;
  }
  const auto last = [&] { return subject.stats().levels[subject.stats().levels.size() - 1]; };
  for (const Op& op : setup) (void)subject.apply(op);
  const std::uint64_t before = last().entries;
  (void)subject.apply(insert(key, 1));
  return last().entries > before;
}

// An insert is stopped at each of its steps while the level drains that has its item. It must not
// take an item for its own that the rehash has withdrawn (clevel.I3), nor insert what is erased.
InterleaveReport drains_beside_an_insert(const std::string& name, bool quiet) {
  const Ops setup = with(steps_of_background(), {insert(1, 1), insert(2, 1), insert(3, 1)});
  Ops drains;
  for (std::uint64_t key = 400; key < 414; ++key) drains.push_back(insert(key, 1));
  drains = with(drains, Ops(30, background()));
  InterleaveReport all;
  int keys = 0;
  for (std::uint64_t key = 300; keys < 4 && all.ok(); ++key) {
    if (!lands_in_last(setup, key)) continue;
    for (const Ops& after : {Ops{find(key)}, Ops{insert(key, 2), erase(key)}}) {
      Interleaver interleaver(
          stepped(), {.name = name + std::to_string(key) + "_" + std::to_string(after.size()),
                      .setup = setup,
                      .threads = {{insert(key, 1), find(key)}, with(drains, after)},
                      .crashes = keys == 0,
                      .limits = kFewer,
                      .quiet = quiet});
      all.add(interleaver.sweep({}, 0, {{1, done()}, {0, done()}}));
      if (!all.ok()) break;
    }
    ++keys;
  }
  return all;
}

// A step has found a level, and is stopped before it takes a range. That level goes, and another
// thread is at a range of the next one. The first must take no range of that (clevel.I3).
InterleaveReport ranges_of_a_level_that_is_gone(const std::string& name, bool quiet) {
  Ops setup = about_to_drain(1);
  for (std::uint64_t key = 400; key < 416; ++key) setup.push_back(insert(key, 1));
  InterleaveReport all;
  for (std::size_t n = 3; n <= 6 && all.ok(); ++n) {
    Interleaver interleaver(
        stepped(), {.name = name + std::to_string(n),
                    .setup = setup,
                    .threads = {Ops(10, background()), Ops(n, background()), Ops(4, background())},
                    .crashes = false,
                    .quiet = quiet});
    all.add(interleaver.sweep(
        {}, 0, {{1, done()}, {2, fence_of("clevel.rehash.copy")}, {0, done()}, {2, done()}}));
  }
  return all;
}

// A thread that makes a level is stopped before it stores the level's word. Another one does that
// instead, and the level comes, is filled, drained, and would go. Its place in the ring must not be
// free while the first thread may store the word there yet (clevel.I6).
InterleaveReport words_that_come_late(const std::string& name, bool quiet) {
  Ops setup = about_to_drain(1);
  const Op grower = setup.back();
  setup.pop_back();
  Ops others;
  for (std::uint64_t key = 300; key < 380; ++key) {
    others.push_back(insert(key, 1));
    others = with(others, Ops(3, background()));
  }
  Interleaver interleaver(stepped(), {.name = name,
                                      .setup = setup,
                                      .threads = {{grower}, with(others, Ops(40, background()))},
                                      .crashes = false,
                                      .quiet = quiet});
  return interleaver.sweep({}, 0, {{1, done()}, {0, done()}});
}

// An insert is stopped at each of its steps, beside other inserts of its key (clevel.I3).
InterleaveReport inserts_beside_an_insert(const std::string& name, bool quiet) {
  InterleaveReport all;
  for (const Ops& others : {Ops{insert(9, 2), find(9)}, {insert(9, 2), erase(9), insert(9, 3)}}) {
    Interleaver interleaver(stepped(), {.name = name + std::to_string(others.size()),
                                        .setup = {insert(7, 1)},
                                        .threads = {{insert(9, 1), find(9)}, others},
                                        .limits = kFewer,
                                        .quiet = quiet});
    all.add(interleaver.sweep({}, 0, {{1, done()}, {0, done()}}));
    if (!all.ok()) break;
  }
  return all;
}

// The last insert of a stripe is of an item that is gone, and its block has the next insert's item.
// A thread that has searched before that must not insert (clevel.I3).
InterleaveReport inserts_in_a_block_that_was_the_last_insert(const std::string& name, bool quiet) {
  InterleaveReport all;
  const Ops reused{insert(9, 1), erase(9), reclaim(), reclaim(), reclaim(), insert(9, 2)};
  for (std::uint64_t n = 1; n < 4 && all.ok(); ++n) {
    Interleaver interleaver(stepped(), {.name = name + std::to_string(n),
                                        .setup = {insert(7, 1)},
                                        .threads = {reused, {insert(9, 3), find(9)}},
                                        .crashes = false,
                                        .quiet = quiet});
    all.add(interleaver.sweep({{0, mark_of("return", 2 + n)}}, 1, {{0, done()}, {1, done()}}));
  }
  return all;
}

// The walk of an open comes to the slot of an insert that has not taken effect yet.
InterleaveReport inserts_beside_the_walk(const std::string& name, bool quiet) {
  Interleaver interleaver(
      stepped(), {.name = name,
                  .setup = {insert(7, 1)},
                  .threads = {{insert(9, 1), find(9)}, with(steps_of_background(), {find(9)})},
                  .limits = kFewer,
                  .quiet = quiet});
  return interleaver.sweep({}, 0, {{1, done()}, {0, done()}});
}

// What a map's first start stores is durable before another thread acknowledges an insert.
bool survives_beside_the_first_start() {
  const ScopedWorld world;
  const MapSetup setup;
  SimMemory memory(2 << 20);
  ClevelSubject<clevel::IntegerCodec> subject(setup);
  if (!subject.create(memory).ok()) return false;
  memory.settle();
  memory.set_mode(SimMode::recording);
  if (!subject.open(memory, 1).ok()) return false;
  SimPlatform::world().thread = 7;
  if (!subject.call(insert(5, 1)).value_or(false)) return false;
  const std::vector<PendingLine> pending = memory.pending();
  const std::vector<std::uint32_t> guaranteed(pending.size(), 0);
  SimMemory after(2 << 20);
  after.load_image(memory, memory.image(pending, guaranteed, true, false));
  ClevelSubject<clevel::IntegerCodec> reopened(setup);
  std::string value;
  return reopened.open(after, 2).ok() && reopened.pool().core().sweep().finish() &&
         reopened.lookup(integer_key(5), value).value_or(false);
}
InterleaveReport inserts_into_a_new_map(const std::string& name, bool /*quiet*/) {
  InterleaveReport report;
  report.schedules = 1;
  if (!survives_beside_the_first_start()) {
    report.violations = 1;
    report.failures.push_back(name + ": an acknowledged insert is lost");
  }
  return report;
}

// An insert makes the level of eight buckets itself, where values of 512 bytes were.
InterleaveReport levels_in_used_blocks(const std::string& name, bool quiet) {
  const auto put = [](std::uint64_t key, std::size_t size) {
    return Op{OpKind::upsert, integer_key(key), std::string(size, 'd')};
  };
  Ops ops;
  for (int n = 0; n < 4; ++n) ops.push_back(put(0, 490));
  for (int n = 0; n < 3; ++n) ops.push_back(reclaim());
  for (std::uint64_t key = 1; key < 18; ++key) ops.push_back(put(key, 1));
  Interleaver interleaver(
      clevel_subjects<clevel::IntegerCodec>({.values = ValueKind::bytes}),
      {.name = name, .setup = {}, .threads = {ops, {reclaim()}}, .quiet = quiet});
  return interleaver.exhaustive(0);
}

}  // namespace

std::vector<NamedInterleaving> clevel_interleavings() {
  return {
      {"levels_in_used_blocks", &levels_in_used_blocks},
      {"results_beside_writers", &results_beside_writers},
      {"X3_scans_beside_erases",
       &scans_beside_erases,
       {"clevel.scan.dead:drop_flush", "clevel.scan.dead:drop_fence",
        "clevel.scan.dead:delay_flush", "clevel.scan.dead:publish_first"}},
      {"erases_beside_the_rehash", &erases_beside_the_rehash},
      {"I4_X4_reuse_beside_the_rehash",
       &reuse_beside_the_rehash,
       {"clevel.rehash.seal:drop_flush", "clevel.rehash.seal:drop_fence"}},
      {"I4_X4_reuse_beside_a_move",
       &reuse_beside_a_move,
       {"clevel.move.slot:drop_flush", "clevel.move.slot:drop_fence"}},
      {"inserts_into_a_new_map", &inserts_into_a_new_map, {"clevel.start.opened:drop_fence"}},
      {"inserts_into_a_new_level",
       &inserts_into_a_new_level,
       {"clevel.ring.word:drop_flush", "clevel.ring.word:drop_fence",
        "clevel.ring.word:delay_flush", "clevel.ring.word:publish_first"}},
      {"drains_beside_a_move", &drains_beside_a_move, {"clevel.rehash.raise:skip_step"}},
      {"drains_beside_an_insert", &drains_beside_an_insert, {"clevel.insert.withdrawn:skip_step"}},
      {"ranges_of_a_level_that_is_gone",
       &ranges_of_a_level_that_is_gone,
       {"clevel.rehash.gone:skip_step"}},
      {"C4_inserts_beside_an_insert",
       &inserts_beside_an_insert,
       {"clevel.insert.help:skip_step", "clevel.insert.follow:skip_step"}},
      {"C4_inserts_in_a_block_that_was_the_last_insert",
       &inserts_in_a_block_that_was_the_last_insert,
       {"clevel.erase.forget:skip_step"}},
      {"inserts_beside_the_walk", &inserts_beside_the_walk, {"clevel.mark.pending:skip_step"}},
      {"words_that_come_late", &words_that_come_late, {"clevel.ring.held:skip_step"}},
      {"X4_reuse_after_an_undone_copy",
       &reuse_after_an_undone_copy,
       {"clevel.rehash.undo:drop_flush", "clevel.rehash.undo:delay_flush"}},
      {"absence_beside_the_rehash", &absence_beside_the_rehash},
      {"X3_absence_beside_the_walk",
       &absence_beside_the_walk,
       {"clevel.mark.dead:drop_flush", "clevel.mark.dead:drop_fence"}}};
}

RaceList clevel_races() {
  RaceList races;
  add_pairs(races, false);
  add_pairs(races, true);
  add_reuse(races);
  add_many(races);
  add_conditional(races, words(), 24, kFewer);
  add_together(races, words(), 24, kFewer);
  add_batches(races, words(), 24, kFewer);
  return races;
}

}  // namespace perdure::testing
