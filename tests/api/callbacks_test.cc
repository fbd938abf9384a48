// test: cross
// What a callback may do: throw, and return what owns its memory.
#include <stdexcept>
#include <string>

#include "perdure/versioned_map.h"
#include "tests/support/engines.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

struct Thrown {};
using Bytes = std::string_view;

// In all engines: afterwards no guard and no gate is held. If one were, a mutation would be refused
// or wait, and freed memory would not come back.
class Callbacks : public ::testing::TestWithParam<EngineInfo> {
 protected:
  Callbacks() {
    for (int i = 0; i < 100; ++i) must(map_.put(key(i), "value"));
  }
  static std::string key(int i) { return "key " + std::to_string(i); }
  // Calls call(visit), where `visit` throws when it is called first, and not again.
  template <class Call>
  void expect_carried(Call&& call) {
    int calls = 0;
    const auto visit = [&](const auto&...) {
      if (++calls == 1) throw Thrown{};
    };
    EXPECT_THROW(call(visit), Thrown);
    EXPECT_EQ(calls, 1);
    for (int i = 0; i < 100; ++i) must(map_.put(key(i), "value"));
    EXPECT_EQ(must(pool_.stats()).stalled_readers, 0U);
    EXPECT_TRUE(pool_.sync().ok());
  }

  TempPath path_;
  Pool pool_ = open_pool(path_, {.max_size = 256_MiB});
  Map<Bytes, Bytes> map_ = must(pool_.map<Bytes, Bytes>("m", {.engine = GetParam().engine}));
};
INSTANTIATE_TEST_SUITE_P(Engines, Callbacks, ::testing::ValuesIn(kEngines), [](const auto& row) {
  return std::string(engine_name(row.param.engine));
});

TEST_P(Callbacks, ThrowThroughReads) {
  const std::vector<std::string> names{key(1), key(2)};
  const std::vector<Bytes> keys(names.begin(), names.end());
  expect_carried([&](auto visit) { (void)map_.read(key(1), visit); });
  expect_carried([&](auto visit) { (void)map_.read_many(keys, visit); });
  expect_carried([&](auto visit) { (void)map_.for_each(visit); });
  expect_carried([&](auto visit) { (void)pool_.read_batch(visit); });
  expect_carried([&](auto visit) {  // both at once
    (void)pool_.read_batch([&] { (void)map_.read(key(1), visit); });
  });
}

TEST_P(Callbacks, ThrowThroughMutations) {
  const Mutation<Bytes, Bytes> puts[] = {{.key = "a", .value = "1"}, {.key = "b", .value = "2"}};
  expect_carried([&](auto done) { (void)map_.write_many(puts, done); });
  expect_carried([&](auto f) {
    (void)map_.modify(key(1), [&](const auto& before) {
      f();
      return before;
    });
  });
  EXPECT_EQ(must(map_.get(key(1))), std::optional<std::string>("value"));
}

TEST_P(Callbacks, ThrowThroughScans) {
  if (!GetParam().ordered) return;
  auto map = must(pool_.ordered_map<Bytes, Bytes>("m"));
  expect_carried([&](auto visit) { (void)map.scan({}, visit); });
  if (!GetParam().versioned) return;
  auto history = must(pool_.versioned_map<Bytes, Bytes>("m"));
  const Version version = must(history.tag());
  must(history.put(key(1), "other"));
  expect_carried([&](auto visit) { (void)history.history(key(1), visit); });
  expect_carried([&](auto visit) { (void)history.scan_at(version, {}, visit); });
  expect_carried([&](auto visit) { (void)history.read(key(1), version, visit); });
  must(history.put(key(1), "other"));
  const Version later = must(history.tag());
  expect_carried([&](auto visit) { (void)history.diff(version, later, {}, visit); });
  auto snapshot = must(history.snapshot());
  expect_carried([&](auto visit) { (void)snapshot.read(key(1), visit); });
}

// A result that owns its bytes is not gone when they are written.
TEST_P(Callbacks, ModifyTakesWhatOwnsItsBytes) {
  const std::string more(100, 'm');
  using Before = std::optional<Bytes>;
  must(map_.modify("k", [&](Before) -> std::optional<std::string> { return "first " + more; }));
  EXPECT_EQ(must(map_.get("k")), std::optional("first " + more));
  must(map_.modify("k", [&](Before b) { return std::string(*b) + more; }));
  EXPECT_EQ(must(map_.get("k")), std::optional("first " + more + more));
  must(map_.modify("k", [&](Before b) { return b->substr(0, 5); }));
  EXPECT_EQ(must(map_.get("k")), std::optional<std::string>("first"));
  must(map_.modify("k", [](Before) { return "literal"; }));
  EXPECT_EQ(must(map_.get("k")), std::optional<std::string>("literal"));
  must(map_.modify("k", [](Before) { return std::nullopt; }));
  EXPECT_FALSE(must(map_.get("k")));
}

}  // namespace
}  // namespace perdure::test
