// rapidcheck: small sequences, shrunk to the smallest that fails. Keys are few and awkward: short
// sequences already meet reused slots, equal heads and empty leaves.
#include <rapidcheck.h>

#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/model.h"

namespace perdure::test {
namespace {

using Bytes = std::string_view;

// rapidcheck reads its configuration once, before the first property.
const bool kConfigured = [] {
  const std::string parameters = "seed=" + std::to_string(seed()) +
                                 " max_success=" + std::to_string(scaled(150, 20)) +
                                 " max_size=" + std::to_string(scaled(200, 60));
  return setenv("RC_PARAMS", parameters.c_str(), /*overwrite=*/0) == 0;
}();

struct Step {
  OpKind kind;
  std::uint64_t key;
  std::uint64_t salt;
  std::uint64_t extra;
  int reopen;  // 1: clean, 2: without sync, after this step
};
std::ostream& operator<<(std::ostream& out, const Step& step) {
  return out << "{kind " << int(step.kind) << " key " << step.key << " salt " << step.salt
             << " extra " << step.extra << " reopen " << step.reopen << "}";
}

rc::Gen<Step> any_step(std::uint64_t universe) {
  return rc::gen::build<Step>(
      rc::gen::set(&Step::kind,
                   rc::gen::element(OpKind::insert, OpKind::insert, OpKind::upsert, OpKind::update,
                                    OpKind::erase, OpKind::erase, OpKind::find, OpKind::find_many,
                                    OpKind::scan, OpKind::iterate)),
      rc::gen::set(&Step::key, rc::gen::inRange<std::uint64_t>(0, universe)),
      rc::gen::set(&Step::salt, rc::gen::inRange<std::uint64_t>(0, 1'000)),
      rc::gen::set(&Step::extra, rc::gen::arbitrary<std::uint64_t>()),
      rc::gen::set(&Step::reopen, rc::gen::weightedElement<int>({{40, 0}, {1, 1}, {1, 2}})));
}

// Prints at once, because a failure that does not repeat is shrunk to a case that passes.
void hold(bool holds, std::string_view what) {
  if (!holds) std::cerr << "expected: " << what << "\n";
  RC_ASSERT(holds);
}

template <class K, class V>
bool holds_for(const EngineInfo& engine, Distribution distribution, std::uint64_t universe,
               Durability durability) {
  return rc::check("a map returns what std::map does, across reopens", [=] {
    const auto steps = *rc::gen::container<std::vector<Step>>(any_step(universe));
    TempPath path;
    Model<K, V> model(distribution, engine.ordered);
    const PoolOptions options{.durability = durability, .max_size = 16_MiB, .recovery_threads = 1};
    auto pool = std::make_unique<Pool>(open_pool(path, options));
    const MapOptions map_options{.phast = {.partition_bits = 1}};
    std::optional<AnyMap<K, V>> map(std::in_place, *pool, "m", engine, map_options);
    for (const Step& step : steps) {
      const Op op{step.kind, step.key, step.salt, step.extra};
      const std::uint64_t expected = model.apply(op);
      hold(model.apply(op, *map) == expected, "a step returns what the model's does");
      if (step.reopen == 0) continue;
      map.reset();  // a map must not outlive its pool
      must(pool->close({.sync = step.reopen == 1}));
      pool.reset();
      pool = std::make_unique<Pool>(open_pool(path, options));
      map.emplace(*pool, "m", engine, map_options);
      const std::string wrong = model.difference(*map);
      hold(wrong.empty(), wrong);
    }
    const std::string wrong = model.difference(*map);
    hold(wrong.empty(), wrong);
    const auto report = must(pool->check({.deep = true}));
    hold(report.ok(), report.first());
    hold(report.leaked_blocks == 0U, "no block is leaked");
  });
}

class Properties : public ::testing::TestWithParam<EngineInfo> {};
INSTANTIATE_TEST_SUITE_P(Engines, Properties, ::testing::ValuesIn(kEngines),
                         [](const auto& row) { return name_of(row.param); });

TEST_P(Properties, Integers) {
  ASSERT_TRUE(kConfigured);
  EXPECT_TRUE((holds_for<std::uint64_t, std::uint64_t>(GetParam(), Distribution::uniform, 40,
                                                       Durability::process)))
      << seed_note();
  EXPECT_TRUE((holds_for<std::uint64_t, std::uint64_t>(GetParam(), Distribution::ascending, 200,
                                                       Durability::emulated)))
      << seed_note();
}

TEST_P(Properties, StringsWithHeadZeroAndPrefixes) {
  EXPECT_TRUE(
      (holds_for<Bytes, Bytes>(GetParam(), Distribution::uniform, 40, Durability::emulated)))
      << seed_note();
}

TEST_P(Properties, StringsWithEqualHeads) {
  EXPECT_TRUE((holds_for<Bytes, std::uint64_t>(GetParam(), Distribution::equal_heads, 100,
                                               Durability::process)))
      << seed_note();
}

TEST_P(Properties, IntegersToStrings) {
  EXPECT_TRUE((holds_for<std::uint64_t, Bytes>(GetParam(), Distribution::equal_heads, 100,
                                               Durability::emulated)))
      << seed_note();
}

}  // namespace
}  // namespace perdure::test
