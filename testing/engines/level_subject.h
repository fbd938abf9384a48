// Level hashing as the crash explorer sees it; its tables are tiny: three buckets of three slots,
// of arrays two.
#pragma once

#include <memory>

#include "index/level/level.h"
#include "testing/map_subject.h"

namespace perdure::testing {

// Of the only map in the file; null: there is none.
inline const level::layout::Root* level_root(const SimMemory& memory) {
  for (std::uint64_t at = 0; at < memory.size(); at += sizeof(level::layout::Line)) {
    const auto* root = reinterpret_cast<const level::layout::Root*>(memory.base() + at);
    if (root->magic == level::layout::kRootMagic) return root;
  }
  return nullptr;
}

template <class Codec, class Geometry>
struct LevelTraits {
  using Map = level::Level<SimPlatform, Codec, Geometry>;
  static constexpr Engine kEngine = Engine::level;
  static constexpr bool kBytes = Codec::kBytes;
  static constexpr bool kArrays = Codec::Form::kArrays;

  static Expected<std::uint64_t> create(const EngineContext<SimPlatform>& context,
                                        const MapKinds& kinds, const MapSetup&) {
    return Map::create(context, kinds, {});
  }
};

template <class Codec, class Geometry = level::TinyGeometry>
using LevelSubject = MapSubject<LevelTraits<Codec, Geometry>>;

template <class Codec, class Geometry = level::TinyGeometry>
SubjectFactory level_subjects(const MapSetup& setup) {
  return [setup] { return std::make_unique<LevelSubject<Codec, Geometry>>(setup); };
}

// Tables that drain one bucket at a time.
using SlowGeometry = level::Geometry<1, 1, 1, 1, 1>;

}  // namespace perdure::testing

// level_subject.cc has the instantiations that tests share.
namespace perdure {

extern template class level::Level<testing::SimPlatform, level::IntegerCodec, level::TinyGeometry>;
extern template class level::Level<testing::SimPlatform, level::BytesCodec, level::TinyGeometry>;
extern template class level::Level<testing::SimPlatform, level::ArrayCodec, level::TinyGeometry>;
extern template class level::Level<testing::SimPlatform, level::IntegerCodec,
                                   testing::SlowGeometry>;
extern template class testing::MapSubject<
    testing::LevelTraits<level::IntegerCodec, level::TinyGeometry>>;
extern template class testing::MapSubject<
    testing::LevelTraits<level::BytesCodec, level::TinyGeometry>>;
extern template class testing::MapSubject<
    testing::LevelTraits<level::ArrayCodec, level::TinyGeometry>>;
extern template class testing::MapSubject<
    testing::LevelTraits<level::IntegerCodec, testing::SlowGeometry>>;

}  // namespace perdure
