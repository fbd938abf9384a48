// The only instantiation of the multi-version store over the simulator; all tests link it.
#include "testing/engines/pskiplist_subject.h"

namespace perdure {

template class pskiplist::PSkipListMap<
    Traits<testing::SimPlatform, pskiplist::IntegerCodec, pskiplist::TinyGeometry>>;
template class pskiplist::PSkipListMap<
    Traits<testing::SimPlatform, pskiplist::BytesCodec, pskiplist::TinyGeometry>>;
template class testing::MapSubject<
    testing::PskiplistTraits<pskiplist::IntegerCodec, pskiplist::TinyGeometry>>;
template class testing::MapSubject<
    testing::PskiplistTraits<pskiplist::BytesCodec, pskiplist::TinyGeometry>>;

}  // namespace perdure
