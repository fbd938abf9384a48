// Clevel hashing as the crash explorer sees it: two slots per bucket, four stripes, a bucket per
// step of the rehash.
#pragma once

#include "index/clevel/clevel.h"
#include "testing/map_subject.h"

namespace perdure::testing {

// Of the only map in the file; null: there is none.
inline const clevel::layout::Root* clevel_root(const SimMemory& memory) {
  for (std::uint64_t at = 0; at < memory.size(); at += kLine) {
    const auto* root = reinterpret_cast<const clevel::layout::Root*>(memory.base() + at);
    if (root->magic == clevel::layout::kRootMagic) return root;
  }
  return nullptr;
}

template <class Codec>
struct ClevelTraits {
  using Map = clevel::Clevel<SimPlatform, Codec, clevel::TinyGeometry>;
  static constexpr Engine kEngine = Engine::clevel;
  static constexpr bool kBytes = Codec::kBytes;

  static Expected<std::uint64_t> create(const EngineContext<SimPlatform>& context,
                                        const MapKinds& kinds, const MapSetup&) {
    return Map::create(context, kinds, 0);
  }
};

template <class Codec>
using ClevelSubject = MapSubject<ClevelTraits<Codec>>;
template <class Codec>
SubjectFactory clevel_subjects(const MapSetup& setup) {
  return [setup] { return std::make_unique<ClevelSubject<Codec>>(setup); };
}

}  // namespace perdure::testing

// clevel_subject.cc has the instantiations that tests share.
namespace perdure {

extern template class clevel::Clevel<testing::SimPlatform, clevel::IntegerCodec,
                                     clevel::TinyGeometry>;
extern template class clevel::Clevel<testing::SimPlatform, clevel::BytesCodec,
                                     clevel::TinyGeometry>;
extern template class testing::MapSubject<testing::ClevelTraits<clevel::IntegerCodec>>;
extern template class testing::MapSubject<testing::ClevelTraits<clevel::BytesCodec>>;

}  // namespace perdure
