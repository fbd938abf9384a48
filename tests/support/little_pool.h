// LittlePool: pools whose maps are LittleEngines. Include it once per test program: it defines the
// engine table of the whole program.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>

#include <unistd.h>

#include "index/engine_table.h"
#include "perdure/perdure.h"
#include "platform/real_platform.h"
#include "testing/engines/little_engine.h"
#include "tests/support/soon.h"

namespace perdure {

inline constexpr std::uint8_t kLittleVersion = 3;  // not the value of a line that was never written

// Replaces the library's function, which a static library only supplies if the program has none.
std::span<const EngineRow> engine_rows() noexcept {
  using Little = testing::LittleEngine<RealPlatform>;
  static const EngineRow kRows[] = {
      rows::phast,
      {.engine = testing::kLittleEngine,
       .name = "little",
       .version = kLittleVersion,
       .ordered = false,
       .versioned = false,
       .at_once = true,
       .create = [](const EngineContext<RealPlatform>& context, const MapKinds&,
                    const MapOptions&) { return Little::create(context); },
       .open = [](const EngineContext<RealPlatform>& context, const MapKinds&,
                  std::uint64_t root) { return Little::open(context, root); }},
  };
  return kRows;
}

using testing::little_rules;
inline constexpr MapOptions kLittle{.engine = testing::kLittleEngine};
inline constexpr std::uint64_t kEndless = ~std::uint64_t{0};

using test::soon;
using test::threads_of_this_process;

class LittlePool : public ::testing::Test {
 protected:
  LittlePool()
      : path_((std::filesystem::temp_directory_path() /
               ("perdure-little-" + std::to_string(::getpid())))
                  .string()) {
    std::thread([] {}).join();  // a sanitizer starts a thread of its own with the first
    testing::reset_little_rules();
    ::unlink(path_.c_str());
  }
  ~LittlePool() override {
    testing::reset_little_rules();
    ::unlink(path_.c_str());
  }
  // A new pool gets mode `process`: another one has threads of its own.
  Pool open(PoolOptions options = {.max_size = 16_MiB}) {
    if (options.durability == Durability::automatic && !std::filesystem::exists(path_))
      options.durability = Durability::process;
    auto pool = Pool::open(path_, options);
    EXPECT_TRUE(pool.has_value()) << pool.error().message();
    return std::move(*pool);
  }
  static auto map_of(Pool& pool) {
    auto map = pool.map<std::uint64_t, std::uint64_t>("m", kLittle);
    EXPECT_TRUE(map.has_value()) << map.error().message();
    return std::move(*map);
  }

  std::string path_;
};

}  // namespace perdure
