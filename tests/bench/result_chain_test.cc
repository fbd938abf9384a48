// test: no asan
// Dependent operations: the same keys in the same order, checked as without the option. After a
// wrong result another key follows than planned, which shows that the keys depend on the results.
#include "bench/harness/result_chain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/harness/driver.h"

namespace perdure::bench {
namespace {

// Keys by their words, and every key that was asked for. One result can be made wrong.
struct Store {
  std::map<std::uint64_t, std::string> strings;
  std::map<std::uint64_t, std::uint64_t> words;
  std::vector<std::uint64_t> asked;
  std::size_t wrong_at = ~std::size_t{0};  // the number of the operation, from 0

  bool wrong() { return asked.size() - 1 == wrong_at; }
};

class StoreSession : public Session {
 public:
  explicit StoreSession(Store& store) : store_(store) {}

  Outcome insert(const KeyRef& key, const ValueRef& value) override {
    store_.asked.push_back(key.word);
    const bool fresh = !store_.words.contains(key.word);
    put(key, value);
    return outcome_of(fresh);
  }
  Outcome update(const KeyRef& key, const ValueRef& value) override {
    store_.asked.push_back(key.word);
    const bool present = store_.words.contains(key.word);
    if (present) put(key, value);
    return outcome_of(present);
  }
  Outcome erase(const KeyRef& key) override {
    store_.asked.push_back(key.word);
    return outcome_of(store_.words.erase(key.word) == 1);
  }
  Outcome read(const KeyRef& key, FunctionRef<void(const ValueRef&)> visit) override {
    store_.asked.push_back(key.word);
    const auto found = store_.words.find(key.word);
    if (found == store_.words.end()) return outcome_of(false);
    std::string& bytes = store_.strings[key.word];
    const bool wrong = store_.wrong();
    if (!bytes.empty()) bytes[0] = static_cast<char>(bytes[0] ^ (wrong ? 3 : 0));
    visit({.word = found->second ^ (wrong && bytes.empty() ? 3 : 0), .bytes = bytes});
    if (!bytes.empty()) bytes[0] = static_cast<char>(bytes[0] ^ (wrong ? 3 : 0));
    return Outcome::yes;
  }
  Outcome scan(const KeyRef&, std::uint64_t, ScanTally&) override { return fail("no order"); }

 private:
  Outcome outcome_of(bool yes) { return yes != store_.wrong() ? Outcome::yes : Outcome::no; }
  void put(const KeyRef& key, const ValueRef& value) {
    store_.words[key.word] = value.word;
    store_.strings[key.word] = value.bytes;
  }
  Store& store_;
};

class StoreSubject : public Subject {
 public:
  std::string name() const override { return "store"; }
  std::string medium() const override { return ""; }
  std::string durability() const override { return ""; }
  std::string version() const override { return ""; }
  Result<void> create() override { return {}; }
  Result<void> reopen() override { return {}; }
  Result<void> close() override { return {}; }
  void remove() override {}
  std::unique_ptr<Session> session() override { return std::make_unique<StoreSession>(store); }
  Footprint footprint() override { return {}; }

  Store store;
};

// Runs phases on an empty store. `asked` has the keys that the last phase asked for.
struct Bench {
  explicit Bench(const DataKind& kind = {}, const DriverOptions& options = {.dependent = true})
      : keys(KeyScheme::mixed, kind, 1),
        values(kind),
        maker({.records = 500, .operations = 400, .threads = 1, .seed = 1}, keys),
        driver(subject, keys, values, progress, options) {}

  PhaseResult run(Workload workload) {
    const Phase phase = maker.make(workload, ledger);
    planned = phase.blocks[0].words;
    subject.store.asked.clear();
    auto result = driver.run(phase, ledger);
    EXPECT_TRUE(result.has_value());
    WorkMaker::commit(phase, ledger);
    return *result;
  }
  const std::vector<std::uint64_t>& asked() const { return subject.store.asked; }

  StoreSubject subject;
  KeySpace keys;
  ValueCodec values;
  WorkMaker maker;
  Progress progress{false};
  Driver driver;
  Ledger ledger;
  std::vector<std::uint64_t> planned;
};

constexpr Workload kChained[] = {Workload::insert,       Workload::read,   Workload::read_batch,
                                 Workload::read_missing, Workload::update, Workload::erase};
constexpr DataKind kKinds[] = {{}, {.is_string = true, .length = 100}};

TEST(ResultChain, VisitsTheSameKeysInTheSameOrder) {
  for (const DataKind& kind : kKinds) {
    Bench bench(kind);
    EXPECT_EQ(bench.run(Workload::load).missing, 0U);
    // Reads again after the update: values are of the newest generation.
    for (const Workload workload :
         {Workload::insert, Workload::read, Workload::read_batch, Workload::read_missing,
          Workload::update, Workload::read, Workload::read_batch, Workload::erase}) {
      const PhaseResult result = bench.run(workload);
      EXPECT_EQ(result.missing + result.unexpected, 0U) << result.name;
      EXPECT_EQ(bench.asked(), bench.planned) << result.name;
    }
  }
}

TEST(ResultChain, AWrongResultLeadsToAnotherKey) {
  constexpr std::size_t kWrong = 100;
  for (const DataKind& kind : kKinds) {
    for (const Workload workload : kChained) {
      Bench bench(kind);
      bench.run(Workload::load);
      bench.subject.store.wrong_at = kWrong;
      const PhaseResult result = bench.run(workload);
      EXPECT_GT(result.missing + result.unexpected, 0U) << result.name;
      const std::size_t first = workload == Workload::read_batch ? 112 : kWrong + 1;
      ASSERT_EQ(bench.asked().size(), bench.planned.size()) << result.name;
      EXPECT_TRUE(std::equal(bench.planned.begin(),
                             bench.planned.begin() + static_cast<std::ptrdiff_t>(first),
                             bench.asked().begin()))
          << result.name;
      EXPECT_NE(bench.asked()[first], bench.planned[first]) << result.name;
    }
  }
}

TEST(ResultChain, IndependentOperationsGoOnAsPlanned) {
  for (const Workload workload : kChained) {
    Bench bench({}, {.dependent = false});
    bench.run(Workload::load);
    bench.subject.store.wrong_at = 100;
    bench.run(workload);
    EXPECT_EQ(bench.asked(), bench.planned) << workload_name(workload);
  }
}

TEST(ResultChain, LoadIsNoChain) {
  Bench bench;
  bench.subject.store.wrong_at = 100;
  bench.run(Workload::load);
  EXPECT_EQ(bench.asked(), bench.planned);
}

}  // namespace
}  // namespace perdure::bench
