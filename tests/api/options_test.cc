// test: cross
// The names of enumerators on the command line, and the version.
#include "perdure/options.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "perdure/pool.h"

namespace perdure {
namespace {

TEST(OptionsTest, EngineNames) {
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

TEST(OptionsTest, VersionIsThreeNumbers) {
  const std::string text(version());
  unsigned major = 0, minor = 0, patch = 0;
  char rest = 0;
  EXPECT_EQ(std::sscanf(text.c_str(), "%u.%u.%u%c", &major, &minor, &patch, &rest), 3) << text;
}

}  // namespace
}  // namespace perdure
