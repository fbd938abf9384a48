#include <perdure/perdure.h>

#include <cstdio>

int main() {
  auto store = perdure::Store::open("test_package.perdure");
  if (!store || !store->put("user:1", "Ada").ok()) return 1;
  auto name = store->get("user:1");
  if (!name || *name != "Ada") return 1;
  std::puts("C++: user:1 is Ada");
  return store->close().ok() ? 0 : 1;
}
