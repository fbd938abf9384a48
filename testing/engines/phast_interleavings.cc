#include "testing/engines/phast_interleavings.h"

#include "testing/crash/workloads.h"
#include "testing/engines/phast_subject.h"

namespace perdure::testing {

namespace {

using Ops = std::vector<Op>;

std::string word_text(std::uint64_t value) {
  return std::string(reinterpret_cast<const char*>(&value), 8);
}
Op op(OpKind kind, const std::string& key, const std::string& value = {}) {
  return {kind, key, value};
}

InterleaveReport beside_writers(const SubjectFactory& factory, const std::string& name, bool quiet,
                                const std::string& a, const std::string& b) {
  Interleaver interleaver(
      factory, {.name = name,
                .setup = {op(OpKind::insert, a, word_text(1)), op(OpKind::insert, b, word_text(1))},
                .threads = {{op(OpKind::update, a, word_text(2)), op(OpKind::erase, b)},
                            {op(OpKind::find, a), op(OpKind::find, b), op(OpKind::scan, {}),
                             op(OpKind::insert, a, word_text(3)), op(OpKind::erase, b)}},
                .quiet = quiet});
  return interleaver.exhaustive(1);
}

// The last report with what the others found.
InterleaveReport sum(const InterleaveReport& a, InterleaveReport b) {
  b.schedules += a.schedules;
  b.points += a.points;
  b.verdicts += a.verdicts;
  b.violations += a.violations;
  b.sites_crossed.insert(a.sites_crossed.begin(), a.sites_crossed.end());
  b.failures.insert(b.failures.end(), a.failures.begin(), a.failures.end());
  return b;
}

// A find, an insert, an erase and a scan that see another thread's update or erase before its
// fence (1c, X3, G1, 7).
InterleaveReport results_beside_writers(const std::string& name, bool quiet) {
  return beside_writers(phast_subjects<phast::IntegerCodec>({}), name, quiet, integer_key(5),
                        integer_key(6));
}

// The same with key 0, which lies in no leaf: it is updated, and it is erased.
InterleaveReport results_beside_writers_of_zero(const std::string& name, bool quiet) {
  const SubjectFactory factory = phast_subjects<phast::IntegerCodec>({});
  InterleaveReport report = beside_writers(factory, name, quiet, integer_key(0), integer_key(6));
  return sum(report, beside_writers(factory, name, quiet, integer_key(6), integer_key(0)));
}

// The same with a value word inside a record.
InterleaveReport results_beside_record_writers(const std::string& name, bool quiet) {
  return beside_writers(phast_subjects<phast::BytesCodec>({}), name, quiet, "customer1",
                        "customer2");
}

// A split whose insert finds the key taken; meanwhile a record that it moved away from is freed and
// its block used again (G12, X4, 1h iv).
InterleaveReport split_without_insert(const std::string& name, bool quiet) {
  const std::string value(30, 'v');
  Ops setup;
  for (std::uint64_t i = 0; i < 12; ++i) setup.push_back(op(OpKind::insert, dense_key(i), value));
  // Thread 1 takes thread 0's key, then frees a moved record and gives its block to a key that
  // lies left of the split.
  const std::string both = dense_key(5) + "5";
  const std::string moved = dense_key(11);
  Ops second{op(OpKind::insert, both, value), op(OpKind::erase, moved)};
  for (int i = 0; i < 3; ++i) second.push_back(op(OpKind::reclaim, {}));
  second.push_back(op(OpKind::upsert, dense_key(0), std::string(30, 'w')));
  Interleaver interleaver(
      phast_subjects<phast::BytesCodec, WideGeometry>({.values = ValueKind::bytes}),
      {.name = name,
       .setup = setup,
       .threads = {{op(OpKind::insert, both, value)}, second},
       .limits = {.product = 256, .random = 8, .sampled = 30},
       .quiet = quiet});
  return interleaver.sweep({{0, flush_of("phast.split.zero")}}, 0,
                           {{1, mark_of("return")}, {0, done()}, {1, done()}});
}

// A leaf is unlinked, and another thread gets its block (G6, X4).
InterleaveReport unlinked_leaf_reused(const std::string& name, bool quiet) {
  Ops setup;
  for (std::uint64_t i = 1; i <= 9; ++i) {
    setup.push_back(op(OpKind::insert, integer_key(i * 10), word_text(i)));
  }
  for (const std::uint64_t key : {50, 60, 70}) {  // the middle leaf has (40, 80]
    setup.push_back(op(OpKind::erase, integer_key(key)));
  }
  // Thread 1 fills the last leaf until it splits: the new leaf takes the block.
  Ops second{op(OpKind::reclaim, {})};
  for (std::uint64_t i = 10; i <= 13; ++i) {
    second.push_back(op(OpKind::insert, integer_key(i * 10), word_text(i)));
  }
  Interleaver interleaver(phast_subjects<phast::IntegerCodec>({}),
                          {.name = name,
                           .setup = setup,
                           .threads = {{op(OpKind::erase, integer_key(80))}, second},
                           .quiet = quiet});
  InterleaveReport report = interleaver.directed({{0, done()}, {1, done()}});
  return sum(report, interleaver.exhaustive(0));
}

// A thread does the piece of its key, and changes the key. An open must not do that piece again.
InterleaveReport erased_beside_a_batch(const std::string& name, bool quiet) {
  const std::string one = integer_key(5);
  const std::string other = integer_key(6);
  Op batch{.kind = OpKind::batch};
  batch.parts = {op(OpKind::upsert, one, word_text(2)), op(OpKind::upsert, other, word_text(2)),
                 op(OpKind::upsert, integer_key(7), word_text(2))};
  Interleaver interleaver(phast_subjects<phast::IntegerCodec>({.piece = 1}),
                          {.name = name,
                           .setup = {op(OpKind::insert, one, word_text(1))},
                           .threads = {{batch}, {op(OpKind::erase, other), op(OpKind::erase, one)}},
                           .quiet = quiet});
  return interleaver.exhaustive(1);
}

}  // namespace

std::vector<NamedInterleaving> phast_interleavings() {
  return {
      {"P1c_X3_G1_P11_results_beside_writers",
       &results_beside_writers,
       {"phast.help.entry:drop_flush", "phast.help.entry:drop_fence",
        "phast.update.value:drop_flush", "phast.erase.entry:drop_fence"}},
      {"P1c_results_beside_writers_of_zero",
       &results_beside_writers_of_zero,
       {"phast.help.zero:drop_flush", "phast.help.zero:drop_fence", "phast.zero.write:drop_flush",
        "phast.zero.erase:drop_fence"}},
      {"P1c_results_beside_record_writers",
       &results_beside_record_writers,
       {"phast.help.record:drop_flush", "phast.help.entry:drop_fence"}},
      {"G12_X4_split_without_insert",
       &split_without_insert,
       {"phast.split.zero:drop_fence", "phast.split.zero:drop_flush"}},
      {"G6_X4_unlinked_leaf_reused",
       &unlinked_leaf_reused,
       {"phast.unlink.next:drop_fence", "phast.unlink.next:drop_flush"}},
      {"batch_K1_erased_beside_a_batch",
       &erased_beside_a_batch,
       {"pool.batch.piece:drop_flush", "pool.batch.piece:drop_fence"}},
  };
}

}  // namespace perdure::testing
