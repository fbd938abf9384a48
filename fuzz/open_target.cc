// open: any bytes as a pool file. It opens or answers why not; a file that is refused is not
// changed, unless its owner died or the user asked to accept it: then recovery has begun.
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

// The planted bug: believes a number from behind the header's checksum.
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
    PERDURE_EXPECT(inspected.has_value(), "inspect refuses what open takes: %s",
                   std::string(inspected.error().message()).c_str());
    const auto maps = pool->list();
    PERDURE_EXPECT(maps.has_value(), "list answers an error");
    PERDURE_EXPECT(maps->size() == inspected->maps.size(), "%zu maps, inspected %zu", maps->size(),
                   inspected->maps.size());
    (void)pool->info();
    (void)pool->stats();
    if (planted()) plant(bytes);
    (void)pool->close({.sync = false});
  } else if (was_closed(bytes) && !options.accept_untrusted) {
    PERDURE_EXPECT(fixture.file().read() == bytes, "refused (%s), but changed",
                   std::string(pool.error().message()).c_str());
  }
}

}  // namespace perdure::fuzz
