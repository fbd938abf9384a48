// Names of enumerators, as the command line prints them, and the defaults users rely on.
#include "perdure/options.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "perdure/pool.h"

namespace perdure {
namespace {

TEST(OptionsTest, EngineNames) {
  EXPECT_EQ(engine_name(Engine::phast), "phast");
  EXPECT_EQ(engine_name(Engine::level), "level");
  EXPECT_EQ(engine_name(Engine::clevel), "clevel");
  EXPECT_EQ(engine_name(Engine::as), "as");
  EXPECT_EQ(engine_name(Engine::ascs), "ascs");
  EXPECT_EQ(engine_name(Engine::pskiplist), "pskiplist");
  for (const EngineInfo& engine : engines()) {
    EXPECT_EQ(engine_named(engine_name(engine.engine)), engine.engine);
  }
  EXPECT_FALSE(engine_name(static_cast<Engine>(999)).empty()) << "an unknown engine has a name too";
}

TEST(OptionsTest, DurabilityNames) {
  EXPECT_EQ(durability_name(Durability::process), "process");
  EXPECT_EQ(durability_name(Durability::power), "power");
  EXPECT_EQ(durability_name(Durability::emulated), "emulated");
  std::set<std::string_view> names;
  for (int i = 0; i < 4; ++i) names.insert(durability_name(static_cast<Durability>(i)));
  EXPECT_EQ(names.size(), 4U);
}

TEST(OptionsTest, MediumNames) {
  std::set<std::string> names;
  for (int i = 1; i <= 5; ++i) names.insert(medium_name(static_cast<Medium>(i)));
  EXPECT_EQ(names.size(), 5U);
}

TEST(OptionsTest, Units) {
  EXPECT_EQ(3_KiB, 3'072U);
  EXPECT_EQ(2_MiB, 2'097'152U);
  EXPECT_EQ(64_GiB, 68'719'476'736U);
}

TEST(OptionsTest, Defaults) {
  const PoolOptions pool;
  EXPECT_TRUE(pool.create);
  EXPECT_FALSE(pool.must_create);
  EXPECT_FALSE(pool.read_only);
  EXPECT_FALSE(pool.accept_untrusted);
  EXPECT_EQ(pool.durability, Durability::automatic);
  const MapOptions map;
  EXPECT_EQ(map.engine, Engine::phast);
  EXPECT_EQ(map.capacity, 0U);
  EXPECT_EQ(map.phast.partition_bits, PhastOptions::kAuto);
  EXPECT_TRUE(CloseOptions{}.sync);
}

TEST(OptionsTest, VersionIsThreeNumbers) {
  const std::string text(version());
  unsigned major = 0, minor = 0, patch = 0;
  char rest = 0;
  EXPECT_EQ(std::sscanf(text.c_str(), "%u.%u.%u%c", &major, &minor, &patch, &rest), 3) << text;
}

}  // namespace
}  // namespace perdure
