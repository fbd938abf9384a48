#include "testing/mutants.h"

#include <functional>
#include <utility>

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

// Runs of extents that come and go between small blocks.
Op run_op(Random& random) {
  Op op = synthetic_op(random);
  op.key = integer_key(random.below(6));
  if (random.one_in(2)) op.value.assign(2500 + random.below(12000), 'r');
  return op;
}

std::vector<Exploration> explorations() {
  const PhastSetup words{};
  const PhastSetup records{.values = ValueKind::bytes};
  const PhastSetup unsynced{.sync_at_close = false};
  const PhastSetup paged{.values = ValueKind::bytes, .medium = SimMedium::page};
  const SyntheticRules fast_sweep{.marks_per_step = 40};
  const PhastSetup maps{.values = ValueKind::bytes, .maps = 2, .partition_bits = 3};
  return {
      {"words", phast_subjects<phast::IntegerCodec>(words), integer_op, 60},
      {"bytes", phast_subjects<phast::BytesCodec>(records), bytes_op, 50},
      {"records", phast_subjects<phast::IntegerCodec>(records), integer_record_op, 40},
      {"bytes_words", phast_subjects<phast::BytesCodec>(words), bytes_word_op, 40},
      {"pool", phast_subjects<phast::IntegerCodec>(maps), pool_op, 40},
      {"synthetic", [] { return std::make_unique<SyntheticSubject>(); }, synthetic_op, 50},
      {"runs", [=] { return std::make_unique<SyntheticSubject>(fast_sweep); }, run_op, 40},
      {"churn", phast_subjects<phast::IntegerCodec>(words), integer_op, 0, churn(16, 2)},
      {"moved", phast_subjects<phast::BytesCodec, WideGeometry>(records), dense_op, 0,
       moved_entries(2), 12},
      {"unsynced", phast_subjects<phast::IntegerCodec>(unsynced), reopening_op, 30},
      {"page", phast_subjects<phast::IntegerCodec>(paged), integer_record_op, 20},
  };
}

}  // namespace

std::vector<ExploreReport> run_explorations(std::uint32_t effort, bool stop_at_red) {
  std::vector<ExploreReport> reports;
  ExploreReport heap{.name = "mutants_heap"};
  if (std::string wrong = all_heap_scenarios(); !wrong.empty()) {
    heap.violations = 1;
    heap.failures.push_back(std::move(wrong));
  }
  reports.push_back(std::move(heap));
  if (stop_at_red && !reports.back().ok()) return reports;
  for (const NamedInterleaving& interleaving : interleavings()) {
    const InterleaveReport found =
        interleaving.run(std::string("mutants_") + interleaving.name, false);
    ExploreReport report{.name = found.name, .images = found.images, .verdicts = found.verdicts};
    report.violations = found.violations;
    report.failures = found.failures;
    reports.push_back(std::move(report));
    if (stop_at_red && !reports.back().ok()) return reports;
  }
  for (std::uint64_t seed = 1; seed <= effort; ++seed) {
    for (const Exploration& e : explorations()) {
      Explorer explorer(e.factory, e.source,
                        {.name = std::string("mutants_") + e.name,
                         .seed = seed,
                         .capacity = 2 << 20,
                         .limits = kLimits,
                         .battery = 80,
                         .second_in = e.second_in,
                         .kill_in = 8,
                         .second_ops = 10});
      reports.push_back(explorer.run(
          e.workload.empty() ? random_workload(e.source, seed, e.operations) : e.workload));
      if (stop_at_red && !reports.back().ok()) return reports;
    }
  }
  return reports;
}

bool mutant_is_red(const std::string& site, Mutant mutant, std::uint32_t effort) {
  return fails_in_child(
      [&] {
        const ScopedMutant scoped(site, mutant);
        return !scoped.matched() || run_explorations(effort, true).back().ok();
      },
      120 * effort);
}

}  // namespace perdure::testing
