// The fences of write_many, as docs/design/phast.md, level.md and clevel.md have them. The
// scheduler and the explorer show that they suffice.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/cost.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

constexpr std::uint64_t kCalls = 200;
constexpr std::uint64_t kInCall = 16;
constexpr std::uint64_t kBefore = 20'000;  // keys: few of a call share a leaf, stripe or bucket

class ManyBudget : public ::testing::TestWithParam<Engine> {
 protected:
  template <class K, class V>
  Map<K, V> map() {
    return must(
        pool_.map<K, V>("m", {.engine = GetParam(), .capacity = 4 * (kBefore + kCalls * kInCall)}));
  }
  // Returns the fences of a call, of all calls.
  template <class K, class V, class Make>
  static double fences_per_call(Map<K, V>& map, Make&& make) {
    std::uint64_t fences = 0;
    for (std::uint64_t call = 0; call < kCalls; ++call) {
      std::vector<Mutation<K, V>> mutations;
      for (std::uint64_t i = 0; i < kInCall; ++i) {
        mutations.push_back(make(kBefore + call * kInCall + i));
      }
      fences += cost_of([&] { must(map.write_many(mutations)); }).fences;
    }
    return static_cast<double>(fences) / kCalls;
  }
  TempPath path_;
  Pool pool_ = open_pool(
      path_, {.durability = Durability::emulated, .max_size = 256_MiB, .background_threads = 0});
};
INSTANTIATE_TEST_SUITE_P(Engines, ManyBudget,
                         ::testing::Values(Engine::phast, Engine::level, Engine::clevel),
                         [](const auto& row) { return std::string(engine_name(row.param)); });

TEST_P(ManyBudget, SixteenWordsShareAFence) {
  auto map = this->map<std::uint64_t, std::uint64_t>();
  for (std::uint64_t i = 0; i < kBefore; ++i) must(map.insert(mix(i), i));
  using M = Mutation<std::uint64_t, std::uint64_t>;
  const auto of = [](MutationKind kind) {
    return [kind](std::uint64_t i) { return M{.kind = kind, .key = mix(i), .value = i}; };
  };
  EXPECT_LE(fences_per_call(map, of(MutationKind::insert)), 3.0);  // splits have their own
  EXPECT_LE(fences_per_call(map, of(MutationKind::put)), 1.5);
  EXPECT_LE(fences_per_call(map, of(MutationKind::update)), 1.5);
  EXPECT_LE(fences_per_call(map, of(MutationKind::erase)), 1.75);
  EXPECT_EQ(map.stats().entries, kBefore);
}

TEST_P(ManyBudget, SixteenStringsShareTwo) {
  auto map = this->map<std::string_view, std::string_view>();
  const std::uint64_t all = kBefore + kCalls * kInCall;
  std::vector<std::string> keys;
  for (std::uint64_t i = 0; i < all; ++i) keys.push_back("key " + std::to_string(mix(i)));
  const std::string value(40, 'v');
  for (std::uint64_t i = 0; i < kBefore; ++i) must(map.insert(keys[i], value));
  using M = Mutation<std::string_view, std::string_view>;
  const auto of = [&](MutationKind kind) {
    return [&, kind](std::uint64_t i) { return M{.kind = kind, .key = keys[i], .value = value}; };
  };
  // A split has three; a record and an entry have one each.
  EXPECT_LE(fences_per_call(map, of(MutationKind::insert)), 5.25);
  EXPECT_LE(fences_per_call(map, of(MutationKind::put)), 2.75);
  EXPECT_LE(fences_per_call(map, of(MutationKind::update)), 2.75);
  EXPECT_LE(fences_per_call(map, of(MutationKind::erase)), 2.0);
  EXPECT_EQ(map.stats().entries, kBefore);
}

}  // namespace
}  // namespace perdure::test
