// A program that knows perdure only as an installed package: creates a pool, inserts an entry,
// opens the pool again and finds it.

#include <perdure/perdure.h>

#include <cstdint>
#include <cstdio>

namespace {

using Key = std::uint64_t;
using Value = std::uint64_t;

constexpr const char* kPath = "outside.perdure";
constexpr Key kKey = 42;
constexpr Value kValue = 7;

bool insert() {
  auto pool = perdure::Pool::open(kPath);
  if (!pool) return false;
  auto map = pool->map<Key, Value>("users");
  if (!map) return false;
  return map->insert(kKey, kValue).absent();
}

bool get() {
  auto pool = perdure::Pool::open(kPath);
  if (!pool) return false;
  auto map = pool->map<Key, Value>("users");
  if (!map) return false;
  auto found = map->get(kKey);
  return found && *found == kValue;
}

}  // namespace

int main() {
  if (!insert()) return std::puts("cannot insert"), 1;
  if (!get()) return std::puts("cannot get after reopening"), 1;
  std::puts("found");
  return 0;
}
