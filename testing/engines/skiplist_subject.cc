// The only instantiation of the skiplists over the simulator; all tests link it.
#include "testing/engines/skiplist_subject.h"

namespace perdure {

template class skiplist::SkiplistMap<testing::Tiny<skiplist::IntegerCodec, skiplist::As>>;
template class testing::MapSubject<
    testing::SkiplistTraits<testing::Tiny<skiplist::IntegerCodec, skiplist::As>>>;
template class skiplist::SkiplistMap<testing::Tiny<skiplist::BytesCodec, skiplist::As>>;
template class testing::MapSubject<
    testing::SkiplistTraits<testing::Tiny<skiplist::BytesCodec, skiplist::As>>>;
template class skiplist::SkiplistMap<testing::Tall<skiplist::As>>;
template class testing::MapSubject<testing::SkiplistTraits<testing::Tall<skiplist::As>>>;
template class skiplist::SkiplistMap<testing::Tiny<skiplist::IntegerCodec, skiplist::Ascs>>;
template class testing::MapSubject<
    testing::SkiplistTraits<testing::Tiny<skiplist::IntegerCodec, skiplist::Ascs>>>;
template class skiplist::SkiplistMap<testing::Tiny<skiplist::BytesCodec, skiplist::Ascs>>;
template class testing::MapSubject<
    testing::SkiplistTraits<testing::Tiny<skiplist::BytesCodec, skiplist::Ascs>>>;
template class skiplist::SkiplistMap<testing::Tall<skiplist::Ascs>>;
template class testing::MapSubject<testing::SkiplistTraits<testing::Tall<skiplist::Ascs>>>;

}  // namespace perdure
