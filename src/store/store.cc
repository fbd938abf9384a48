#include "perdure/store.h"

#include "store/pool_impl.h"

namespace perdure {

namespace {

// The smallest string behind every string that starts with `prefix`; false if there is none
// ("\xff\xff").
bool after_prefix(std::string_view prefix, std::string& out) {
  out.assign(prefix);
  while (!out.empty() && static_cast<unsigned char>(out.back()) == 0xFF) out.pop_back();
  if (out.empty()) return false;
  out.back() = static_cast<char>(static_cast<unsigned char>(out.back()) + 1);
  return true;
}

}  // namespace

detail::ScanRange scan_range(const ScanOptions<std::string_view>& options, std::string& storage) {
  detail::ScanRange range{.reverse = options.reverse, .limit = options.limit};
  std::optional<std::string_view> from = options.from;
  std::optional<std::string_view> to = options.to;
  if (!options.prefix.empty()) {
    if (!from || *from < options.prefix) from = options.prefix;
    if (after_prefix(options.prefix, storage) && (!to || std::string_view(storage) < *to)) {
      to = storage;
    }
  }
  if (from) range.from = detail::to_key(*from);
  if (to) range.to = detail::to_key(*to);
  return range;
}

Expected<Store> Store::open(const std::string& path, const StoreOptions& options) {
  auto pool = Pool::open(path, options.pool);
  if (!pool) return fail(std::move(pool.error()));
  MapOptions map_options = options.map_options;
  map_options.engine = options.engine;
  map_options.any_engine = true;  // an existing map keeps its engine
  map_options.create = options.create_map;
  auto map = pool->map<Bytes, Bytes>(options.map, map_options);
  if (!map) return fail(std::move(map.error()));
  return Store(std::move(*pool), std::move(*map), options.map, map_options);
}

Status Store::put(std::string_view key, std::string_view value) {
  auto done = map_->upsert(key, value);
  return done ? Status() : std::move(done.error());
}

Expected<OrderedMap<Store::Bytes, Store::Bytes>> Store::ordered() {
  return pool_.ordered_map<Bytes, Bytes>(name_, options_);
}

}  // namespace perdure
