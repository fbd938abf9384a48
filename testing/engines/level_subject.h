// Level hashing as the crash explorer sees it. Its tables are tiny: three buckets of three slots,
// or of two slots in maps of arrays.
#pragma once

#include <memory>

#include "index/level/level.h"
#include "testing/crash/map_subject.h"

namespace perdure::testing {

// Of the only map in the file; null: there is none.
inline const level::layout::Root* level_root(const SimMemory& memory) {
  for (std::uint64_t at = 0; at < memory.size(); at += sizeof(level::layout::Line)) {
    const auto* root = reinterpret_cast<const level::layout::Root*>(memory.base() + at);
    if (root->magic == level::layout::kRootMagic) return root;
  }
  return nullptr;
}

// create() and open() are not inline, so only level_subject.cc instantiates them, and with them the
// engine, for the codecs and geometries below.
template <class Codec, class Geometry>
struct LevelTraits {
  using Map = LevelTraits;
  static constexpr Engine kEngine = Engine::level;
  static constexpr bool kBytes = Codec::kBytes;
  static constexpr bool kArrays = Codec::Form::kArrays;

  static Expected<std::uint64_t> create(const EngineContext<SimPlatform>& context,
                                        const MapKinds& kinds, const MapSetup&);
  static Expected<std::unique_ptr<EngineInstance>> open(const EngineContext<SimPlatform>& context,
                                                        std::uint64_t root);
};
template <class Codec, class Geometry>
Expected<std::uint64_t> LevelTraits<Codec, Geometry>::create(
    const EngineContext<SimPlatform>& context, const MapKinds& kinds, const MapSetup&) {
  return level::Level<SimPlatform, Codec, Geometry>::create(context, kinds, {});
}
template <class Codec, class Geometry>
Expected<std::unique_ptr<EngineInstance>> LevelTraits<Codec, Geometry>::open(
    const EngineContext<SimPlatform>& context, std::uint64_t root) {
  return level::Level<SimPlatform, Codec, Geometry>::open(context, root);
}

template <class Codec, class Geometry = level::TinyGeometry>
using LevelSubject = MapSubject<LevelTraits<Codec, Geometry>>;

template <class Codec, class Geometry = level::TinyGeometry>
SubjectFactory level_subjects(const MapSetup& setup) {
  return [setup] { return std::make_unique<LevelSubject<Codec, Geometry>>(setup); };
}

// Tables that drain one bucket at a time.
using SlowGeometry = level::Geometry<1, 1, 1, 1, 1>;
// Buckets of two lines, as pools have them: an array may go from one to the other.
using TwoLineGeometry = level::Geometry<2, 1, 2, 1, 2>;

// level_subject.cc has the instantiations that tests share.
extern template struct LevelTraits<level::IntegerCodec, level::TinyGeometry>;
extern template struct LevelTraits<level::BytesCodec, level::TinyGeometry>;
extern template struct LevelTraits<level::ArrayCodec, level::TinyGeometry>;
extern template struct LevelTraits<level::ArrayCodec, TwoLineGeometry>;
extern template struct LevelTraits<level::IntegerCodec, SlowGeometry>;
extern template class MapSubject<LevelTraits<level::IntegerCodec, level::TinyGeometry>>;
extern template class MapSubject<LevelTraits<level::BytesCodec, level::TinyGeometry>>;
extern template class MapSubject<LevelTraits<level::ArrayCodec, level::TinyGeometry>>;
extern template class MapSubject<LevelTraits<level::ArrayCodec, TwoLineGeometry>>;
extern template class MapSubject<LevelTraits<level::IntegerCodec, SlowGeometry>>;

}  // namespace perdure::testing
