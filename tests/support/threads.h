// A pool with one map of an engine under threads, with and without write-backs. It must be sound at
// the end.
#pragma once

#include <string>
#include <tuple>

#include "tests/support/tracked.h"

namespace perdure::test {

using EngineDurability = std::tuple<EngineInfo, Durability>;
inline std::string race_name(const ::testing::TestParamInfo<EngineDurability>& row) {
  const auto& [engine, durability] = row.param;
  return name_of(engine) + "_" + std::string(durability_name(durability));
}
inline auto with_durabilities(const std::vector<EngineInfo>& engines) {
  return ::testing::Combine(::testing::ValuesIn(engines),
                            ::testing::Values(Durability::process, Durability::emulated));
}

class Races : public ::testing::TestWithParam<EngineDurability> {
 protected:
  Races() : pool_(open_pool(path_, {.durability = durability(), .max_size = 1_GiB})) {}
  void TearDown() override {
    violations_.expect_none();
    expect_sound(pool_);
  }
  const EngineInfo& engine() const { return std::get<0>(GetParam()); }
  Durability durability() const { return std::get<1>(GetParam()); }
  // `partition_bits`: for engines with partitions.
  template <class K, class V>
  AnyMap<K, V> open_map(std::uint32_t partition_bits) {
    return {pool_, "m", engine(), {.phast = {.partition_bits = partition_bits}}};
  }

  TempPath path_;
  Pool pool_;
  Violations violations_;
};
class OrderedRaces : public Races {};

}  // namespace perdure::test
