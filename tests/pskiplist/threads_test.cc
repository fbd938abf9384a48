// test: no asan, tsan
// Versions with concurrent writers. V ids: docs/design/hazards.md. W ids: docs/design/pskiplist.md.
#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/support.h"

namespace perdure::test {
namespace {

using Numbers = VersionedMap<std::uint64_t, std::uint64_t>;

// V5, W1 to W4: each writer sets its first key, then its second, to 1, 2, 3, .. Therefore in every
// version first equals second or is one more, and every read of a version gives the same values.
// Other keys come and go: leaves, slots and nodes are reused meanwhile, and old versions are
// trimmed.
TEST(Versions, V5_W1_W3_W4_TagsAreConsistentAndImmutable) {
  constexpr std::uint64_t kWriters = 2;
  TempPath path;
  Pool pool = open_pool(path, {.durability = Durability::emulated, .max_size = 256_MiB});
  auto map = must(pool.versioned_map<std::uint64_t, std::uint64_t>("m"));
  const std::uint64_t rounds = scaled(60'000, 3'000);
  std::atomic<std::uint64_t> writing{kWriters};
  const auto first = [](std::uint64_t w) { return 1000 * w; };
  const auto second = [](std::uint64_t w) { return 1000 * w + 500; };
  std::vector<std::thread> threads;
  for (std::uint64_t w = 0; w < kWriters; ++w) {
    threads.emplace_back([&, w] {
      for (std::uint64_t i = 1; i <= rounds; ++i) {
        must(map.put(first(w), i));
        must(map.put(second(w), i));
        const std::uint64_t other = first(w) + 1 + i % 400;
        if (i % 800 < 400) {
          must(map.put(other, i));
        } else {
          must(map.erase(other));
        }
      }
      writing.fetch_sub(1);
    });
  }
  std::uint64_t tags = 0;
  const auto check = [&](Version version) {
    for (std::uint64_t w = 0; w < kWriters; ++w) {
      std::optional<std::uint64_t> seen[2][2];
      for (auto& look : seen) {
        look[1] = must(map.get(second(w), version));
        look[0] = must(map.get(first(w), version));
      }
      ASSERT_EQ(seen[0][0], seen[1][0]) << "version " << version << " has changed";
      ASSERT_EQ(seen[0][1], seen[1][1]) << "version " << version << " has changed";
      const std::uint64_t a = seen[0][0].value_or(0);
      const std::uint64_t b = seen[0][1].value_or(0);
      ASSERT_TRUE(a == b || a == b + 1) << "version " << version << ": " << a << ", " << b;
    }
    std::uint64_t keys[2] = {};
    for (std::uint64_t& n : keys) {
      n = must(map.scan_at(version, {}, [](std::uint64_t, std::uint64_t) {}));
    }
    ASSERT_EQ(keys[0], keys[1]) << "version " << version << " has changed";
  };
  const auto contents = [&](Version version) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> all;
    must(map.scan_at(version, {}, [&](std::uint64_t key, std::uint64_t value) {
      all.emplace_back(key, value);
    }));
    for (std::uint64_t w = 0; w < kWriters; ++w) {
      for (const std::uint64_t key : {first(w), second(w), first(w) + 7}) {
        all.emplace_back(key, must(map.get(key, version)).value_or(0));
      }
    }
    return all;
  };
  for (std::uint64_t n = 0; writing.load() != 0 && !HasFatalFailure(); ++n, ++tags) {
    const Version version = must(map.tag());
    check(version);
    if (n % 64 != 63) continue;
    const auto held = must(map.snapshot(version - 10));
    const auto before = contents(held.version());
    must(map.trim(version - 5));
    check(held.version());
    (void)map.stats();
    if (contents(held.version()) == before) continue;
    ADD_FAILURE() << "a trim has changed version " << held.version() << ", which is held";
    break;
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("%llu tags\n", static_cast<unsigned long long>(tags));
  const auto report = must(pool.check({.deep = true}));
  EXPECT_TRUE(report.ok()) << report.first();
  EXPECT_EQ(report.leaked_blocks, 0U);
}

}  // namespace
}  // namespace perdure::test
