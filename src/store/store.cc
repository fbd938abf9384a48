// Built with exceptions: a Store owns a std::string, which attempt() fills.
#include "perdure/store.h"

#include <new>

#include "pool/pool_impl.h"

namespace perdure {

Expected<detail::ScanRange> scan_range(const ScanOptions<std::string_view>& options,
                                       detail::PrefixEnd& end) noexcept {
  detail::ScanRange range{.reverse = options.reverse, .limit = options.limit};
  std::optional<std::string_view> from = options.from;
  std::optional<std::string_view> to = options.to;
  if (!options.prefix.empty()) {
    if (!from || *from < options.prefix) from = options.prefix;
    // The smallest string behind every string with the prefix. Behind "\xff\xff" there is none.
    const std::size_t size = options.prefix.find_last_not_of('\xff') + 1;
    if (size > 0) {
      char* bytes = end.in_place;
      if (size > sizeof(end.in_place)) {
        end.allocated.reset(new (std::nothrow) char[size]);
        bytes = end.allocated.get();
      }
      if (bytes == nullptr) return fail(StatusCode::out_of_memory);
      options.prefix.copy(bytes, size);
      bytes[size - 1] = static_cast<char>(static_cast<unsigned char>(bytes[size - 1]) + 1);
      const std::string_view bound(bytes, size);
      if (!to || bound < *to) to = bound;
    }
  }
  if (from) range.from = detail::to_key(*from);
  if (to) range.to = detail::to_key(*to);
  return range;
}

Expected<Store> Store::open(std::string_view path, const StoreOptions& options) {
  std::string name;
  if (!detail::attempt([&] { name = options.map_name; })) return fail(StatusCode::out_of_memory);
  auto pool = Pool::open(path, options.pool);
  if (!pool) return fail(std::move(pool.error()));
  auto map = pool->map<Bytes, Bytes>(options.map_name, options.map);
  if (!map) return fail(std::move(map.error()));
  Store store(std::move(*pool), std::move(*map), std::move(name));
  if (auto ordered = store.ordered()) {
    store.ordered_ = std::move(*ordered);
  } else if (ordered.error() != StatusCode::unsupported) {
    return fail(std::move(ordered.error()));
  }
  return store;
}

Expected<OrderedMap<Store::Bytes, Store::Bytes>> Store::ordered() {
  return pool_.ordered_map<Bytes, Bytes>(name_, {.mode = OpenMode::existing});
}

Expected<VersionedMap<Store::Bytes, Store::Bytes>> Store::versioned() {
  return pool_.versioned_map<Bytes, Bytes>(name_, {.mode = OpenMode::existing});
}

Status Store::keeps_no_order() {
  auto none = ordered();
  return none ? Status() : std::move(none.error());
}

Expected<Snapshot<Store::Bytes, Store::Bytes>> Store::snapshot() {
  auto map = versioned();
  if (!map) return fail(std::move(map.error()));
  return map->snapshot();
}

Expected<Snapshot<Store::Bytes, Store::Bytes>> Store::snapshot(Version version) {
  auto map = versioned();
  if (!map) return fail(std::move(map.error()));
  return map->snapshot(version);
}

}  // namespace perdure
