#include "testing/mutants/trials.h"

#include <memory>
#include <utility>

#include "testing/crash/batch_scenarios.h"
#include "testing/crash/flip_scenarios.h"
#include "testing/crash/heap_scenarios.h"
#include "testing/crash/synthetic_subject.h"
#include "testing/crash/workloads.h"
#include "testing/engines/engine_list.h"

namespace perdure::testing {

namespace {

// A map is dropped, and the pool closed soon after. No sync hides what is missing.
Op dropping_op(Random& random) {
  static const OpSource source = pool_ops(2, 16);
  if (random.one_in(4)) return {OpKind::reopen, {}, {}};
  Op op = source(random);
  if (op.key.empty()) op = {OpKind::reopen, {}, {}};
  if (random.one_in(4) && !op.key.empty()) op = {OpKind::drop, op.key.substr(0, 1), {}};
  return op;
}

std::vector<Op> reopened() {
  std::vector<Op> ops;
  for (std::uint64_t key = 1; key < 4; ++key) {
    ops.push_back({OpKind::upsert, integer_key(key), "reopened"});
    ops.push_back({OpKind::reopen, {}, {}});
  }
  return ops;
}

// The file grows several times in one open. Before that it was closed and synced.
std::vector<Op> growing() {
  std::vector<Op> ops{{OpKind::upsert, integer_key(99), "first"}, {OpKind::reopen, {}, {}}};
  for (std::uint64_t key = 0; key < 16; ++key) {
    ops.push_back({OpKind::upsert, integer_key(key), std::string(1500, 'g')});
  }
  return ops;
}

// The guarantees of heap and pool that engines may use and PhaST does not.
std::vector<Exploration> shared_explorations() {
  const SyntheticRules fast_sweep{.marks_per_step = 40};
  const ExploreOptions options = trial_options();
  // Killed at every point, served at once, followed by a power failure.
  ExploreOptions killed = options;
  killed.kill_in = 1;
  killed.second_in = 0;
  killed.second_ops = 6;
  return {
      random_one(
          "settled", [=] { return std::make_unique<SyntheticSubject>(fast_sweep); }, synthetic_op,
          killed, 20),
      random_one(
          "synthetic", [] { return std::make_unique<SyntheticSubject>(); }, synthetic_op, options,
          50),
      random_one(
          "runs", [=] { return std::make_unique<SyntheticSubject>(fast_sweep); }, run_op, options,
          40),
  };
}

std::vector<Exploration> explorations(const EngineUnderTest& engine) {
  const MapSetup words{};
  const MapSetup records{.values = ValueKind::bytes};
  const MapSetup unsynced{.sync_at_close = false};
  const MapSetup maps{.values = ValueKind::bytes, .maps = 2};
  const MapSetup unsynced_maps{.values = ValueKind::bytes, .maps = 2, .sync_at_close = false};
  const MapSetup paged{.values = ValueKind::bytes, .medium = SimMedium::page};
  const MapSetup copied{.sync_at_close = false, .old_words = true};
  const MapSetup weak{.values = ValueKind::bytes, .mode = Durability::process};
  const auto integers = [&](const MapSetup& s) { return engine.subjects(KeyKind::integer, s); };
  const auto strings = [&](const MapSetup& s) { return engine.subjects(KeyKind::bytes, s); };
  const ExploreOptions options = trial_options();
  ExploreOptions again = options;
  again.second_in = 10;
  again.kill_in = 1;
  again.second_ops = 1;
  ExploreOptions process = options;
  process.process_mode = true;
  std::vector<Exploration> all{
      random_one("words", integers(words), integer_op, options, 60),
      random_one("bytes", strings(records), bytes_op, options, 50),
      random_one("records", integers(records), integer_record_op, options, 40),
      random_one("bytes_words", strings(words), bytes_word_op, options, 40),
      random_one("many", integers(words), together(integer_op, 4), options, 60),
      random_one("many_bytes", strings(records), together(bytes_op, 4), options, 30),
      random_one("pool", integers(maps), pool_ops(2, 16), options, 40),
      random_one("batches", integers(maps), batches(pool_ops(2, 16), 4), options, 8),
      random_one("batches_copied", integers(copied), reopening(batches(integer_op, 4), 3), options,
                 20),
      random_one("unsynced_pool", integers(unsynced_maps), dropping_op, options, 30),
      directed_one("reopened", integers(words), integer_op, again, reopened()),
      directed_one("process", integers(weak), integer_record_op, process, growing()),
      directed_one("churn", integers(words), integer_op, options, churn(16, 2)),
      random_one("unsynced", integers(unsynced), reopening(integer_op), options, 30),
      random_one("unsynced_values", strings(unsynced), reopening(bytes_word_op), options, 30),
      random_one("page", integers(paged), integer_record_op, options, 20),
  };
  if (engine.pieces) {
    all.push_back(
        random_one("batches_pieces", integers({.piece = 1}), batches(integer_op, 4), options, 20));
  }
  if (engine.arrays) {
    all.push_back(
        random_one("arrays", engine.subjects(KeyKind::array, words), integer_op, options, 60));
  }
  for (Exploration& e : engine.trials()) all.push_back(std::move(e));
  all = beside_background(engine, std::move(all));
  for (Exploration& e : shared_explorations()) all.push_back(std::move(e));
  return all;
}

void add_flips(const EngineUnderTest& engine, std::vector<Trial>& out) {
  const auto add = [&](const FlipWork& work) {
    out.push_back({std::string("lost_") + work.name,
                   [work] { return lost_lines(work.factory, work.source, work.exchanged); }});
    out.push_back({std::string("flips_") + work.name, [work, covered = engine.covered] {
                     return flipped_bits(work.factory, work.source, covered);
                   }});
  };
  const auto flips = [&](const char* name, KeyKind keys, ValueKind values, const OpSource& source) {
    // A record of an integer key does not identify its key.
    const bool named = keys == KeyKind::bytes && !engine.anonymous_values;
    add({name, engine.subjects(keys, {.values = values}), source,
         named || values != ValueKind::bytes});
  };
  flips("words", KeyKind::integer, ValueKind::word, integer_op);
  flips("bytes", KeyKind::bytes, ValueKind::bytes, bytes_op);
  flips("records", KeyKind::integer, ValueKind::bytes, integer_record_op);
  flips("bytes_words", KeyKind::bytes, ValueKind::word, bytes_word_op);
  if (engine.arrays) flips("arrays", KeyKind::array, ValueKind::array, integer_op);
  if (engine.flips == nullptr) return;
  for (const FlipWork& work : engine.flips()) add(work);
}

void add_interleavings(const EngineUnderTest& engine, std::vector<Trial>& out) {
  for (const NamedInterleaving& interleaving : engine.interleavings()) {
    const std::string name = std::string("mutants_") + interleaving.name;
    out.push_back({name, [name, run = interleaving.run]() -> std::string {
                     const InterleaveReport report = run(name, false);
                     if (report.violations == 0) return {};
                     return report.failures.empty() ? "red" : report.failures.front();
                   }});
  }
}

Trial explore(const Exploration& e, std::uint64_t seed) {
  const std::string name = "mutants_" + e.name;
  return {name + ":" + std::to_string(seed), [e, seed, name]() -> std::string {
            const ExploreReport report = run_exploration(e, name, seed);
            return report.ok() ? "" : report.failures.front();
          }};
}

}  // namespace

ExploreOptions trial_options() {
  return {.capacity = 2 << 20,
          .limits = {.product = 48, .random = 4, .sampled = 16},
          .battery = 80,
          .second_in = 80,
          .kill_in = 8,
          .second_ops = 10};
}

std::vector<Trial> trials(const EngineUnderTest& engine, std::uint32_t seeds) {
  std::vector<Trial> out;
  for (const HeapScenario& scenario : heap_scenarios())
    out.push_back({scenario.name, scenario.run});
  const SubjectFactory records = engine.subjects(KeyKind::integer, {.values = ValueKind::bytes});
  for (const HeapScenario& scenario : batch_scenarios(records))
    out.push_back({scenario.name, scenario.run});
  add_interleavings(engine, out);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    for (const Exploration& e : explorations(engine)) out.push_back(explore(e, seed));
  }
  add_flips(engine, out);
  return out;
}

}  // namespace perdure::testing
