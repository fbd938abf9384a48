// The only instantiation of the skiplists over the simulator; all tests link it.
#include "testing/engines/skiplist_subject.h"

namespace perdure {

template class skiplist::Skiplist<testing::SimPlatform, skiplist::IntegerCodec, skiplist::As,
                                  skiplist::TinyGeometry>;
template class skiplist::Skiplist<testing::SimPlatform, skiplist::BytesCodec, skiplist::As,
                                  skiplist::TinyGeometry>;
template class skiplist::Skiplist<testing::SimPlatform, testing::TallCodec, skiplist::As,
                                  testing::TallGeometry>;
template class skiplist::Skiplist<testing::SimPlatform, skiplist::IntegerCodec, skiplist::Ascs,
                                  skiplist::TinyGeometry>;
template class skiplist::Skiplist<testing::SimPlatform, skiplist::BytesCodec, skiplist::Ascs,
                                  skiplist::TinyGeometry>;
template class skiplist::Skiplist<testing::SimPlatform, testing::TallCodec, skiplist::Ascs,
                                  testing::TallGeometry>;
template class testing::MapSubject<
    testing::SkiplistTraits<skiplist::IntegerCodec, skiplist::As, skiplist::TinyGeometry>>;
template class testing::MapSubject<
    testing::SkiplistTraits<skiplist::BytesCodec, skiplist::As, skiplist::TinyGeometry>>;
template class testing::MapSubject<
    testing::SkiplistTraits<testing::TallCodec, skiplist::As, testing::TallGeometry>>;
template class testing::MapSubject<
    testing::SkiplistTraits<skiplist::IntegerCodec, skiplist::Ascs, skiplist::TinyGeometry>>;
template class testing::MapSubject<
    testing::SkiplistTraits<skiplist::BytesCodec, skiplist::Ascs, skiplist::TinyGeometry>>;
template class testing::MapSubject<
    testing::SkiplistTraits<testing::TallCodec, skiplist::Ascs, testing::TallGeometry>>;

}  // namespace perdure
