#include "testing/trials.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "testing/explorer.h"
#include "testing/flip_scenarios.h"
#include "testing/heap_scenarios.h"
#include "testing/interleavings.h"
#include "testing/synthetic_subject.h"
#include "testing/workloads.h"

namespace perdure::testing {

namespace {

constexpr EnumerationLimits kLimits{.product = 48, .random = 8, .sampled = 40};

struct Exploration {
  const char* name;
  SubjectFactory factory;
  OpSource source;
  std::size_t operations;
  std::vector<Op> workload = {};  // instead of random operations
  std::uint32_t second_in = 80;
};

Op pool_op(Random& random) {
  Op op = integer_record_op(random);
  op.key.insert(op.key.begin(), static_cast<char>(random.below(2)));
  const std::uint64_t kind = random.below(16);
  if (kind == 0) return {OpKind::drop, op.key.substr(0, 1), {}};
  if (kind == 1) return {OpKind::reopen, {}, {}};
  if (kind == 2) return {OpKind::compact, {}, {}};
  if (kind == 3) return {OpKind::sync, {}, {}};
  return op;
}

// Closed and opened now and then.
Op reopening_op(Random& random) {
  if (random.one_in(8)) return {OpKind::reopen, {}, {}};
  return integer_op(random);
}

Op reopening_bytes_op(Random& random) {
  if (random.one_in(8)) return {OpKind::reopen, {}, {}};
  return bytes_word_op(random);
}

// A map is dropped, and the pool closed soon after.
Op dropping_op(Random& random) {
  if (random.one_in(4)) return {OpKind::reopen, {}, {}};
  Op op = pool_op(random);
  if (op.key.empty()) op = {OpKind::reopen, {}, {}};  // no sync, which would hide what is missing
  if (random.one_in(4) && !op.key.empty()) op = {OpKind::drop, op.key.substr(0, 1), {}};
  return op;
}

// Runs of extents that come and go between small blocks.
Op run_op(Random& random) {
  Op op = synthetic_op(random);
  op.key = integer_key(random.below(6));
  if (random.one_in(2)) op.value.assign(2500 + random.below(12000), 'r');
  return op;
}

// What any engine may leave to heap and pool, and PhaST does not use.
std::vector<Exploration> shared_explorations() {
  const SyntheticRules fast_sweep{.marks_per_step = 40};
  return {
      {"synthetic", [] { return std::make_unique<SyntheticSubject>(); }, synthetic_op, 50},
      {"runs", [=] { return std::make_unique<SyntheticSubject>(fast_sweep); }, run_op, 40},
  };
}

std::vector<Exploration> phast_explorations() {
  const PhastSetup words{};
  const PhastSetup records{.values = ValueKind::bytes};
  const PhastSetup unsynced{.sync_at_close = false};
  const PhastSetup maps{.values = ValueKind::bytes, .maps = 2, .partition_bits = 3};
  PhastSetup unsynced_maps = maps;
  unsynced_maps.sync_at_close = false;
  return {
      {"words", phast_subjects<phast::IntegerCodec>(words), integer_op, 60},
      {"bytes", phast_subjects<phast::BytesCodec>(records), bytes_op, 50},
      {"records", phast_subjects<phast::IntegerCodec>(records), integer_record_op, 40},
      {"bytes_words", phast_subjects<phast::BytesCodec>(words), bytes_word_op, 40},
      {"pool", phast_subjects<phast::IntegerCodec>(maps), pool_op, 40},
      {"unsynced_pool", phast_subjects<phast::IntegerCodec>(unsynced_maps), dropping_op, 30},
      {"churn", phast_subjects<phast::IntegerCodec>(words), integer_op, 0, churn(16, 2)},
      {"moved", phast_subjects<phast::BytesCodec, WideGeometry>(records), dense_op, 0,
       moved_entries(2), 12},
      {"unsynced", phast_subjects<phast::IntegerCodec>(unsynced), reopening_op, 30},
      {"unsynced_values", phast_subjects<phast::BytesCodec>(unsynced), reopening_bytes_op, 30},
  };
}

void add_phast_scenarios(std::vector<Trial>& out) {
  const PhastSetup words{.values = ValueKind::word};
  const PhastSetup records{.values = ValueKind::bytes};
  const auto flips = [&](const char* name, SubjectFactory factory, OpSource source) {
    out.push_back(
        {std::string("flips_") + name, [factory = std::move(factory), source = std::move(source)] {
           return flipped_bits(factory, source);
         }});
  };
  flips("words", phast_subjects<phast::IntegerCodec>(words), integer_op);
  flips("bytes", phast_subjects<phast::BytesCodec>(records), bytes_op);
  flips("records", phast_subjects<phast::IntegerCodec>(records), integer_record_op);
  flips("bytes_words", phast_subjects<phast::BytesCodec>(words), bytes_word_op);
  for (const NamedInterleaving& interleaving : interleavings()) {
    const std::string name = std::string("mutants_") + interleaving.name;
    out.push_back({name, [name, run = interleaving.run]() -> std::string {
                     const InterleaveReport report = run(name, false);
                     if (report.violations == 0) return {};
                     return report.failures.empty() ? "red" : report.failures.front();
                   }});
  }
}

// One line per engine.
struct EngineTrials {
  std::string_view engine;
  std::vector<Exploration> (*explorations)();
  void (*add_scenarios)(std::vector<Trial>& out);
};
constexpr EngineTrials kEngines[] = {{"phast", &phast_explorations, &add_phast_scenarios}};

Trial explore(const Exploration& e, std::uint64_t seed) {
  const std::string name = std::string("mutants_") + e.name;
  return {name + ":" + std::to_string(seed), [e, seed, name]() -> std::string {
            Explorer explorer(e.factory, e.source,
                              {.name = name,
                               .seed = seed,
                               .capacity = 2 << 20,
                               .limits = kLimits,
                               .battery = 80,
                               .second_in = e.second_in,
                               .kill_in = 8,
                               .second_ops = 10});
            const ExploreReport report = explorer.run(
                e.workload.empty() ? random_workload(e.source, seed, e.operations) : e.workload);
            return report.ok() ? "" : report.failures.front();
          }};
}

}  // namespace

std::vector<Trial> trials(std::string_view engine, std::uint32_t seeds) {
  const auto* found = std::ranges::find(kEngines, engine, &EngineTrials::engine);
  if (found == std::end(kEngines)) return {};
  std::vector<Trial> out;
  for (const HeapScenario& scenario : heap_scenarios())
    out.push_back({scenario.name, scenario.run});
  found->add_scenarios(out);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    for (const auto& list : {found->explorations(), shared_explorations()}) {
      for (const Exploration& e : list) out.push_back(explore(e, seed));
    }
  }
  return out;
}

}  // namespace perdure::testing
