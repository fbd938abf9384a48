// open: opens any bytes as a pool file. The open succeeds or fails with a documented error. A
// refused file must not change, unless its owner died or the user accepted it: then recovery has
// begun.
#include <cstring>
#include <vector>

#include "format/pool_core.h"
#include "fuzz/bases.h"

namespace perdure::fuzz {

namespace {

bool was_closed(const std::string& bytes) {
  layout::Header header;
  return read_header(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), header).ok() &&
         (header.close_state == layout::CloseState::clean ||
          header.close_state == layout::CloseState::synced);
}

// The planted bug: uses a number of the header as an index. Only the header's checksum protects it.
void plant(const std::string& bytes) {
  layout::Header header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const std::vector<std::uint8_t> table(16);
  if (table.data()[header.log_id[0]] == 1) std::abort();
}

}  // namespace

void fuzz_one(Input input) {
  const Fixture& fixture = Fixture::get();
  const Recipe recipe = Recipe::parse(input);
  PoolOptions options;
  const std::string bytes = fixture.write(recipe, options);
  const auto inspected = Pool::inspect(fixture.file().path());
  auto pool = open_file(fixture.file().path(), options);
  if (pool) {
    PERDURE_EXPECT(inspected.has_value(), "open succeeds, but inspect fails: %s",
                   std::string(inspected.error().message()).c_str());
    const auto maps = pool->list();
    PERDURE_EXPECT(maps.has_value(), "list returned an error");
    PERDURE_EXPECT(maps->size() == inspected->maps.size(), "list shows %zu maps, inspect %zu",
                   maps->size(), inspected->maps.size());
    (void)pool->info();
    (void)pool->stats();
    if (planted()) plant(bytes);
    (void)pool->close({.sync = false});
  } else if (was_closed(bytes) && !options.accept_untrusted) {
    PERDURE_EXPECT(fixture.file().read() == bytes, "open failed (%s), but changed the file",
                   std::string(pool.error().message()).c_str());
  }
}

}  // namespace perdure::fuzz
