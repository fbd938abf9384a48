// The only instantiation of level hashing over the simulator; all tests link it.
#include "testing/engines/level_subject.h"

namespace perdure {

template class level::Level<testing::SimPlatform, level::IntegerCodec, level::TinyGeometry>;
template class level::Level<testing::SimPlatform, level::BytesCodec, level::TinyGeometry>;
template class level::Level<testing::SimPlatform, level::ArrayCodec, level::TinyGeometry>;
template class level::Level<testing::SimPlatform, level::IntegerCodec, testing::SlowGeometry>;
template class testing::MapSubject<testing::LevelTraits<level::IntegerCodec, level::TinyGeometry>>;
template class testing::MapSubject<testing::LevelTraits<level::BytesCodec, level::TinyGeometry>>;
template class testing::MapSubject<testing::LevelTraits<level::ArrayCodec, level::TinyGeometry>>;
template class testing::MapSubject<
    testing::LevelTraits<level::IntegerCodec, testing::SlowGeometry>>;

}  // namespace perdure
