// The skiplists as the crash explorer sees them: parts of two to four nodes; four levels at most,
// or eight, whose links, of the head and of a tower, lie in two lines.
#pragma once

#include <memory>

#include "index/skiplist/skiplist.h"
#include "testing/map_subject.h"

namespace perdure::testing {

using TallGeometry = skiplist::Geometry<8, 1, 4, 2, 4>;

// The lowest three bits of a key say how high its node is, less one.
struct TallCodec : skiplist::IntegerCodec {
  static std::uint64_t hash(const skiplist::Probe& probe, std::uint64_t) noexcept {
    return 1ULL << (probe.word & 7);
  }
};

template <class Codec, class Kind, class G = skiplist::TinyGeometry>
struct SkiplistTraits {
  using Map = skiplist::Skiplist<SimPlatform, Codec, Kind, G>;
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
using TallSubject = MapSubject<SkiplistTraits<TallCodec, Kind, TallGeometry>>;

template <class Kind>
SubjectFactory skiplist_subjects(KeyKind keys, const MapSetup& setup) {
  if (keys == KeyKind::bytes) {
    return [setup] { return std::make_unique<SkiplistSubject<skiplist::BytesCodec, Kind>>(setup); };
  }
  return [setup] { return std::make_unique<SkiplistSubject<skiplist::IntegerCodec, Kind>>(setup); };
}

}  // namespace perdure::testing

// skiplist_subject.cc has the instantiations that tests share.
namespace perdure {

extern template class skiplist::Skiplist<testing::SimPlatform, skiplist::IntegerCodec, skiplist::As,
                                         skiplist::TinyGeometry>;
extern template class skiplist::Skiplist<testing::SimPlatform, skiplist::BytesCodec, skiplist::As,
                                         skiplist::TinyGeometry>;
extern template class skiplist::Skiplist<testing::SimPlatform, testing::TallCodec, skiplist::As,
                                         testing::TallGeometry>;
extern template class skiplist::Skiplist<testing::SimPlatform, skiplist::IntegerCodec,
                                         skiplist::Ascs, skiplist::TinyGeometry>;
extern template class skiplist::Skiplist<testing::SimPlatform, skiplist::BytesCodec, skiplist::Ascs,
                                         skiplist::TinyGeometry>;
extern template class skiplist::Skiplist<testing::SimPlatform, testing::TallCodec, skiplist::Ascs,
                                         testing::TallGeometry>;
extern template class testing::MapSubject<
    testing::SkiplistTraits<skiplist::IntegerCodec, skiplist::As, skiplist::TinyGeometry>>;
extern template class testing::MapSubject<
    testing::SkiplistTraits<skiplist::BytesCodec, skiplist::As, skiplist::TinyGeometry>>;
extern template class testing::MapSubject<
    testing::SkiplistTraits<testing::TallCodec, skiplist::As, testing::TallGeometry>>;
extern template class testing::MapSubject<
    testing::SkiplistTraits<skiplist::IntegerCodec, skiplist::Ascs, skiplist::TinyGeometry>>;
extern template class testing::MapSubject<
    testing::SkiplistTraits<skiplist::BytesCodec, skiplist::Ascs, skiplist::TinyGeometry>>;
extern template class testing::MapSubject<
    testing::SkiplistTraits<testing::TallCodec, skiplist::Ascs, testing::TallGeometry>>;

}  // namespace perdure
