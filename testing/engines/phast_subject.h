// PhaST as the crash explorer sees it; its nodes are tiny unless said.
#pragma once

#include <memory>

#include "index/phast/phast.h"
#include "testing/crash/map_subject.h"

namespace perdure::testing {

// Of the only map in the file; null: there is none.
inline const phast::layout::Root* phast_root(const SimMemory& memory) {
  for (std::uint64_t at = 0; at < memory.size(); at += kLine) {
    const auto* root = reinterpret_cast<const phast::layout::Root*>(memory.base() + at);
    if (root->magic == phast::layout::kRootMagic) return root;
  }
  return nullptr;
}

template <class Codec, class Geometry>
struct PhastTraits {
  using Map = phast::Phast<SimPlatform, Codec, Geometry>;
  static constexpr Engine kEngine = Engine::phast;
  static constexpr bool kBytes = Codec::kBytes;

  // Several maps have the root blocks of several partitions between them.
  static Expected<std::uint64_t> create(const EngineContext<SimPlatform>& context,
                                        const MapKinds& kinds, const MapSetup& setup) {
    return Map::create(context, kinds, {.partition_bits = setup.maps > 1 ? 3U : 1U});
  }
};

template <class Codec, class Geometry = phast::TinyGeometry>
using PhastSubject = MapSubject<PhastTraits<Codec, Geometry>>;

template <class Codec, class Geometry = phast::TinyGeometry>
SubjectFactory phast_subjects(const MapSetup& setup) {
  return [setup] { return std::make_unique<PhastSubject<Codec, Geometry>>(setup); };
}

// Entries in three lines: with four in one, the write-back of any covers all.
using WideGeometry = phast::Geometry<12, 4>;

}  // namespace perdure::testing

// phast_subject.cc has the instantiations that tests share.
namespace perdure {

extern template class phast::PhastMap<
    Traits<testing::SimPlatform, phast::IntegerCodec, phast::TinyGeometry>>;
extern template class phast::PhastMap<
    Traits<testing::SimPlatform, phast::BytesCodec, phast::TinyGeometry>>;
extern template class phast::PhastMap<
    Traits<testing::SimPlatform, phast::BytesCodec, testing::WideGeometry>>;
extern template class testing::MapSubject<
    testing::PhastTraits<phast::IntegerCodec, phast::TinyGeometry>>;
extern template class testing::MapSubject<
    testing::PhastTraits<phast::BytesCodec, phast::TinyGeometry>>;
extern template class testing::MapSubject<
    testing::PhastTraits<phast::BytesCodec, testing::WideGeometry>>;

}  // namespace perdure
