// Clevel hashing as the crash explorer sees it: two slots per bucket, four stripes, a bucket per
// step of the rehash.
#pragma once

#include "index/clevel/item.h"
#include "index/clevel/layout.h"
#include "testing/crash/map_subject.h"

namespace perdure::testing {

// Of the only map in the file; null: there is none.
inline const clevel::layout::Root* clevel_root(const SimMemory& memory) {
  for (std::uint64_t at = 0; at < memory.size(); at += kLine) {
    const auto* root = reinterpret_cast<const clevel::layout::Root*>(memory.base() + at);
    if (root->magic == clevel::layout::kRootMagic) return root;
  }
  return nullptr;
}

// clevel_subject.cc defines the functions and instantiates them, so that no test instantiates the
// engine.
template <class Codec>
struct ClevelTraits {
  struct Map {
    static Expected<std::unique_ptr<EngineInstance>> open(const EngineContext<SimPlatform>& context,
                                                          std::uint64_t root);
  };
  static constexpr Engine kEngine = Engine::clevel;
  static constexpr bool kBytes = Codec::kBytes;

  static Expected<std::uint64_t> create(const EngineContext<SimPlatform>& context,
                                        const MapKinds& kinds, const MapSetup&);
};

template <class Codec>
using ClevelSubject = MapSubject<ClevelTraits<Codec>>;
template <class Codec>
SubjectFactory clevel_subjects(const MapSetup& setup) {
  return [setup] { return std::make_unique<ClevelSubject<Codec>>(setup); };
}

extern template struct ClevelTraits<clevel::IntegerCodec>;
extern template struct ClevelTraits<clevel::BytesCodec>;
extern template class MapSubject<ClevelTraits<clevel::IntegerCodec>>;
extern template class MapSubject<ClevelTraits<clevel::BytesCodec>>;

}  // namespace perdure::testing
