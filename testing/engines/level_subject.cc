// The only instantiation of level hashing over the simulator; all tests link it.
#include "testing/engines/level_subject.h"

namespace perdure::testing {

template struct LevelTraits<level::IntegerCodec, level::TinyGeometry>;
template struct LevelTraits<level::BytesCodec, level::TinyGeometry>;
template struct LevelTraits<level::ArrayCodec, level::TinyGeometry>;
template struct LevelTraits<level::ArrayCodec, TwoLineGeometry>;
template struct LevelTraits<level::IntegerCodec, SlowGeometry>;
template class MapSubject<LevelTraits<level::IntegerCodec, level::TinyGeometry>>;
template class MapSubject<LevelTraits<level::BytesCodec, level::TinyGeometry>>;
template class MapSubject<LevelTraits<level::ArrayCodec, level::TinyGeometry>>;
template class MapSubject<LevelTraits<level::ArrayCodec, TwoLineGeometry>>;
template class MapSubject<LevelTraits<level::IntegerCodec, SlowGeometry>>;

}  // namespace perdure::testing
