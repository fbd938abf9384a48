// The skiplists as the crash explorer sees them: four levels at most, parts of two to four nodes.
#pragma once

#include <memory>

#include "index/skiplist/skiplist.h"
#include "testing/map_subject.h"

namespace perdure::testing {

template <class Codec, class Kind>
struct SkiplistTraits {
  using Map = skiplist::Skiplist<SimPlatform, Codec, Kind, skiplist::TinyGeometry>;
  static constexpr Engine kEngine = Kind::kEngine;
  static constexpr bool kBytes = Codec::kBytes;

  static Expected<std::uint64_t> create(const EngineContext<SimPlatform>& context,
                                        const MapKinds& kinds, const MapSetup&) {
    return Map::create(context, kinds);
  }
};

template <class Codec, class Kind>
using SkiplistSubject = MapSubject<SkiplistTraits<Codec, Kind>>;

template <class Kind>
SubjectFactory skiplist_subjects(KeyKind keys, const MapSetup& setup) {
  if (keys == KeyKind::bytes) {
    return [setup] { return std::make_unique<SkiplistSubject<skiplist::BytesCodec, Kind>>(setup); };
  }
  return [setup] { return std::make_unique<SkiplistSubject<skiplist::IntegerCodec, Kind>>(setup); };
}

}  // namespace perdure::testing
