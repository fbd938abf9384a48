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
  std::uint32_t kill_in = 8;
  std::uint32_t second_ops = 10;
  bool process_mode = false;
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

// One split, half done in many images, so that second runs finish it; what comes then splits the
// new leaf.
Op behind_op(Random& random) {
  return {OpKind::insert, integer_key(26 + random.below(30)), "in right"};
}
std::vector<Op> one_split() {
  std::vector<Op> ops;
  for (const std::uint64_t key : {10, 20, 30, 40, 25, 22}) {
    ops.push_back({OpKind::insert, integer_key(key), "half way"});
  }
  return ops;
}

// Keys that a split has moved go, and others to the left of it take the blocks of their records.
Op reusing_op(Random& random) {
  if (random.one_in(2)) return {OpKind::erase, dense_key(7 + random.below(5)), {}};
  return {OpKind::upsert, dense_key(random.below(5)) + "a", std::string(30, 'r')};
}
std::vector<Op> one_bytes_split() {
  std::vector<Op> ops;
  for (std::uint64_t i = 0; i < 12; ++i) {
    ops.push_back({OpKind::upsert, dense_key(i), std::string(30, 'a')});
  }
  ops.push_back({OpKind::upsert, dense_key(5) + "5", std::string(30, 'b')});
  return ops;
}

std::vector<Op> reopened() {
  std::vector<Op> ops;
  for (std::uint64_t key = 1; key < 4; ++key) {
    ops.push_back({OpKind::upsert, integer_key(key), "reopened"});
    ops.push_back({OpKind::reopen, {}, {}});
  }
  return ops;
}

// The file grows several times in one open; before that it was closed and synced.
std::vector<Op> growing() {
  std::vector<Op> ops{{OpKind::upsert, integer_key(99), "first"}, {OpKind::reopen, {}, {}}};
  for (std::uint64_t key = 0; key < 16; ++key) {
    ops.push_back({OpKind::upsert, integer_key(key), std::string(1500, 'g')});
  }
  return ops;
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
  const PhastSetup paged{.values = ValueKind::bytes, .medium = SimMedium::page};
  const PhastSetup process{.values = ValueKind::bytes, .mode = Durability::process};
  PhastSetup unsynced_maps = maps;
  unsynced_maps.sync_at_close = false;
  return {
      {"words", phast_subjects<phast::IntegerCodec>(words), integer_op, 60},
      {"bytes", phast_subjects<phast::BytesCodec>(records), bytes_op, 50},
      {"records", phast_subjects<phast::IntegerCodec>(records), integer_record_op, 40},
      {"bytes_words", phast_subjects<phast::BytesCodec>(words), bytes_word_op, 40},
      {"pool", phast_subjects<phast::IntegerCodec>(maps), pool_op, 40},
      {"unsynced_pool", phast_subjects<phast::IntegerCodec>(unsynced_maps), dropping_op, 30},
      {"half_split", phast_subjects<phast::IntegerCodec>(words), behind_op, 0, one_split(), 3},
      {"half_moved", phast_subjects<phast::BytesCodec, WideGeometry>(records), reusing_op, 0,
       one_bytes_split(), 3, 8, 24},
      {"reopened", phast_subjects<phast::IntegerCodec>(words), integer_op, 0, reopened(), 10, 1, 1},
      {"process", phast_subjects<phast::IntegerCodec>(process), integer_record_op, 0, growing(), 80,
       8, 10, true},
      {"churn", phast_subjects<phast::IntegerCodec>(words), integer_op, 0, churn(16, 2)},
      {"moved", phast_subjects<phast::BytesCodec, WideGeometry>(records), dense_op, 0,
       moved_entries(2), 12},
      {"unsynced", phast_subjects<phast::IntegerCodec>(unsynced), reopening_op, 30},
      {"unsynced_values", phast_subjects<phast::BytesCodec>(unsynced), reopening_bytes_op, 30},
      {"page", phast_subjects<phast::IntegerCodec>(paged), integer_record_op, 20},
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
                               .kill_in = e.kill_in,
                               .second_ops = e.second_ops,
                               .process_mode = e.process_mode});
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
