// check: runs check on every pool that opens. A pool without violations must close, open again, and
// still have none.
#include <cstring>
#include <vector>

#include "format/layout.h"
#include "fuzz/bases.h"

namespace perdure::fuzz {

namespace {

bool whole(const Pool& pool) {
  const auto quick = pool.check({.deep = false});
  const auto deep =
      pool.check({.deep = true, .progress = [](void*, std::uint64_t done, std::uint64_t total) {
                    PERDURE_EXPECT(done <= total, "progress beyond the end");
                  }});
  PERDURE_EXPECT(quick.has_value() && deep.has_value(), "check returned an error");
  PERDURE_EXPECT(quick->ok() || !deep->ok(), "the deep check misses: %s",
                 quick->violations.front().c_str());
  for (const auto& violation : deep->violations) {
    PERDURE_EXPECT(!violation.empty(), "a violation has an empty text");
  }
  return deep->ok();
}

// The planted bug: uses a number of the engine as an index. Only the checksum of its line protects
// that number.
void plant(const std::string& bytes) {
  const std::vector<std::uint8_t> table(64);
  for (std::size_t slot = 0; slot < 8; ++slot) {
    layout::Root root;
    std::memcpy(&root, bytes.data() + layout::kDirectoryOffset + slot * sizeof(root), sizeof(root));
    if (root.root != 0 && table.data()[root.parameters % 4096] == 1) std::abort();
  }
}

}  // namespace

void fuzz_one(Input input) {
  const Fixture& fixture = Fixture::get();
  const Recipe recipe = Recipe::parse(input);
  PoolOptions options;
  const std::string bytes = fixture.write(recipe, options);
  auto pool = open_file(fixture.file().path(), options);
  if (!pool) return;
  if (planted()) plant(bytes);
  const bool sound = whole(*pool);
  const Status closed = pool->close({.sync = false});
  if (!sound || options.mode == OpenMode::read_only) return;
  PERDURE_EXPECT(closed.ok(), "close: %s", std::string(closed.message()).c_str());
  pool = open_file(fixture.file().path(), {.mode = OpenMode::existing});
  PERDURE_EXPECT(pool.has_value(), "a pool without violations does not open again: %s",
                 std::string(pool.error().message()).c_str());
  PERDURE_EXPECT(whole(*pool), "a pool without violations has some after close and open");
}

}  // namespace perdure::fuzz
