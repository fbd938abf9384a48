// perdure-instructions: does operations of each engine under callgrind, which counts their
// instructions. tests/testers/instructions_test.py runs it and holds the ledger.
//
// The maps have kKeys entries and room for all that come, so that none grows meanwhile. Keys and
// values are integers and words; or strings of 16 bytes and values of 100. The pool has durability
// `emulated`, and no background thread, whose instructions would count.
#include <valgrind/callgrind.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "perdure/perdure.h"

namespace {

constexpr std::uint64_t kKeys = 4096;
constexpr std::uint64_t kCalls = 2048;  // of each operation

// A bijection: keys have all bits.
std::uint64_t scatter(std::uint64_t x) {
  x = (x ^ x >> 31) * 0x7FB5D329728EA185ULL;
  x = (x ^ x >> 27) * 0x81DADEF4BC2DD44DULL;
  return x ^ x >> 33;
}

void require(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "perdure-instructions: %s failed\n", what);
  std::exit(1);
}

// Counts the instructions of op(i), for i from `first` on, under the name.
template <class Op>
void count(const std::string& name, std::uint64_t first, Op&& op) {
  for (std::uint64_t i = 0; i < 16; ++i) require(op(first + i), name.c_str());  // it is resolved
  CALLGRIND_START_INSTRUMENTATION;
  CALLGRIND_ZERO_STATS;
  bool ok = true;
  for (std::uint64_t i = 16; i < 16 + kCalls; ++i) ok &= op(first + i);
  CALLGRIND_DUMP_STATS_AT(name.c_str());
  CALLGRIND_STOP_INSTRUMENTATION;
  require(ok, name.c_str());
}

// `key(i)` and `value(i)` return what the map takes.
template <class Map, class Key, class Value, class Get>
void count_all(Map& map, const std::string& name, Key&& key, Value&& value, Get&& get) {
  for (std::uint64_t i = 0; i < kKeys; ++i) require(map.insert(key(i), value(i)).ok(), "insert");
  count(name + ".get", 0, [&](std::uint64_t i) { return get(map, key(i)); });
  count(name + ".missing", 8 * kKeys, [&](std::uint64_t i) { return !get(map, key(i)); });
  count(name + ".put", 0, [&](std::uint64_t i) { return map.put(key(i), value(i + 1)).present(); });
  count(name + ".insert", 4 * kKeys,
        [&](std::uint64_t i) { return map.insert(key(i), value(i)).absent(); });
  count(name + ".erase", 4 * kKeys, [&](std::uint64_t i) { return map.erase(key(i)).present(); });
}

void count_engine(perdure::Pool& pool, const perdure::EngineInfo& engine) {
  const std::string name(engine.name);
  const perdure::MapOptions options{.engine = engine.engine, .capacity = 8 * kKeys};
  auto words = pool.map<std::uint64_t, std::uint64_t>(name + "-words", options);
  require(words.has_value(), "map");
  count_all(*words, name + ".words", scatter, scatter, [](auto& map, std::uint64_t key) {
    auto found = map.get(key);
    return found && found->has_value();
  });

  std::vector<std::string> keys;  // of all numbers that occur
  for (std::uint64_t i = 0; i < 12 * kKeys; ++i) {
    char text[17];
    std::snprintf(text, sizeof(text), "%016lx", static_cast<unsigned long>(scatter(i)));
    keys.emplace_back(text);
  }
  const std::string bytes(100, 'v');
  auto strings = pool.map<std::string_view, std::string_view>(name + "-strings", options);
  require(strings.has_value(), "map");
  count_all(
      *strings, name + ".strings", [&](std::uint64_t i) { return std::string_view(keys[i]); },
      [&](std::uint64_t) { return std::string_view(bytes); },
      [](auto& map, std::string_view key) {
        std::size_t size = 0;
        return map.read(key, [&](std::string_view value) { size = value.size(); }).present() &&
               size == 100;
      });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: perdure-instructions FILE  (a pool that it makes)\n");
    return 2;
  }
  auto pool = perdure::Pool::open(argv[1], {.mode = perdure::OpenMode::create_new,
                                            .durability = perdure::Durability::emulated,
                                            .max_size = 256 << 20,
                                            .background_threads = 0});
  require(pool.has_value(), "open");
  for (const perdure::EngineInfo& engine : perdure::engines()) count_engine(*pool, engine);
  return pool->close().ok() ? 0 : 1;
}
