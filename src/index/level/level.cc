#include "index/level/level.h"

#include "index/engine_table.h"
#include "platform/real_platform.h"

namespace perdure::level {

template class LevelMap<Traits<RealPlatform, IntegerCodec, DefaultGeometry>>;
template class LevelMap<Traits<RealPlatform, BytesCodec, DefaultGeometry>>;
template class LevelMap<Traits<RealPlatform, ArrayCodec, DefaultGeometry>>;

namespace {

// Calls f with the codec of maps of these kinds, and with the kinds as that codec has them. A slot
// has no room for a record's offset beside an array, so a map with byte strings also keeps arrays
// in records.
template <class F>
auto with_codec(const MapKinds& kinds, F&& f) {
  const bool arrays = kinds.key == KeyKind::array || kinds.value == ValueKind::array;
  const bool bytes = kinds.key == KeyKind::bytes || kinds.value == ValueKind::bytes;
  if (arrays && !bytes) return f(ArrayCodec{}, kinds);
  const MapKinds records = kinds.without_arrays();
  return records.key == KeyKind::bytes ? f(BytesCodec{}, records) : f(IntegerCodec{}, records);
}

Expected<std::uint64_t> create(const EngineContext<RealPlatform>& context, const MapKinds& kinds,
                               const MapOptions& options) {
  return with_codec(kinds, [&]<class Codec>(Codec, const MapKinds& own_kinds) {
    using Map = Level<RealPlatform, Codec>;
    LevelOptions own = options.level;
    if (own.buckets == 0 && options.capacity != 0) {
      own.buckets = Map::buckets_for(context.heap, options.capacity);
    }
    return Map::create(context, own_kinds, own);
  });
}

Expected<std::unique_ptr<EngineInstance>> open(const EngineContext<RealPlatform>& context,
                                               const MapKinds& kinds, std::uint64_t root) {
  return with_codec(kinds, [&]<class Codec>(Codec, const MapKinds&) {
    return Level<RealPlatform, Codec>::open(context, root);
  });
}

}  // namespace
}  // namespace perdure::level

namespace perdure {

constinit const EngineRow rows::level{.engine = Engine::level,
                                      .name = "level",
                                      .version = 1,
                                      .ordered = false,
                                      .versioned = false,
                                      .at_once = false,
                                      .create = &level::create,
                                      .open = &level::open,
                                      .arrays = true};

}  // namespace perdure
