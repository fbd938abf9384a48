// A pool with one map under threads, with and without write-backs, that must be sound at the end.
#pragma once

#include <string>

#include "tests/concurrent/tracked.h"

namespace perdure::test {

class Races : public ::testing::TestWithParam<Durability> {
 protected:
  Races() : pool_(open_pool(path_, {.durability = GetParam(), .max_size = 1_GiB})) {}
  void TearDown() override {
    violations_.expect_none();
    expect_sound(pool_);
  }
  template <class K, class V>
  OrderedMap<K, V> open_map(std::uint32_t partition_bits) {
    return must(pool_.ordered_map<K, V>(
        "m", {.engine = kEngines[0].engine, .phast = {.partition_bits = partition_bits}}));
  }

  TempPath path_;
  Pool pool_;
  Violations violations_;
};
inline std::string durability_of(const ::testing::TestParamInfo<Durability>& row) {
  return std::string(durability_name(row.param));
}

}  // namespace perdure::test
