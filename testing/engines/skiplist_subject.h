// The skiplists as the crash explorer sees them: parts of two to four nodes; four levels at most,
// or eight, whose links, of the head and of a tower, lie in two lines.
#pragma once

#include <memory>

#include "index/skiplist/skiplist.h"
#include "testing/crash/map_subject.h"

namespace perdure::testing {

using TallGeometry = skiplist::Geometry<8, 1, 4, 2, 4, 4>;

// The lowest three bits of a key say how high its node is, less one.
struct TallCodec : skiplist::IntegerCodec {
  static std::uint64_t hash(const skiplist::Probe& probe, std::uint64_t) noexcept {
    return 1ULL << (probe.word & 7);
  }
};

template <class T>
struct SkiplistTraits {
  using Map = skiplist::SkiplistMap<T>;
  static constexpr Engine kEngine = T::Kind::kEngine;
  static constexpr bool kBytes = T::Codec::kBytes;

  static Expected<std::uint64_t> create(const EngineContext<SimPlatform>& context,
                                        const MapKinds& kinds, const MapSetup&) {
    return Map::create(context, kinds);
  }
};
template <class Codec, class Kind>
using Tiny = skiplist::Traits<SimPlatform, Codec, Kind, skiplist::TinyGeometry>;
template <class Kind>
using Tall = skiplist::Traits<SimPlatform, TallCodec, Kind, TallGeometry>;

template <class Codec, class Kind>
using SkiplistSubject = MapSubject<SkiplistTraits<Tiny<Codec, Kind>>>;
template <class Kind>
using TallSubject = MapSubject<SkiplistTraits<Tall<Kind>>>;

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

extern template class skiplist::SkiplistMap<testing::Tiny<skiplist::IntegerCodec, skiplist::As>>;
extern template class testing::MapSubject<
    testing::SkiplistTraits<testing::Tiny<skiplist::IntegerCodec, skiplist::As>>>;
extern template class skiplist::SkiplistMap<testing::Tiny<skiplist::BytesCodec, skiplist::As>>;
extern template class testing::MapSubject<
    testing::SkiplistTraits<testing::Tiny<skiplist::BytesCodec, skiplist::As>>>;
extern template class skiplist::SkiplistMap<testing::Tall<skiplist::As>>;
extern template class testing::MapSubject<testing::SkiplistTraits<testing::Tall<skiplist::As>>>;
extern template class skiplist::SkiplistMap<testing::Tiny<skiplist::IntegerCodec, skiplist::Ascs>>;
extern template class testing::MapSubject<
    testing::SkiplistTraits<testing::Tiny<skiplist::IntegerCodec, skiplist::Ascs>>>;
extern template class skiplist::SkiplistMap<testing::Tiny<skiplist::BytesCodec, skiplist::Ascs>>;
extern template class testing::MapSubject<
    testing::SkiplistTraits<testing::Tiny<skiplist::BytesCodec, skiplist::Ascs>>>;
extern template class skiplist::SkiplistMap<testing::Tall<skiplist::Ascs>>;
extern template class testing::MapSubject<testing::SkiplistTraits<testing::Tall<skiplist::Ascs>>>;

}  // namespace perdure
