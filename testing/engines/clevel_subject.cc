// The only instantiation of clevel hashing over the simulator; all tests link it.
#include "testing/engines/clevel_subject.h"

namespace perdure {

template class clevel::Clevel<testing::SimPlatform, clevel::IntegerCodec, clevel::TinyGeometry>;
template class clevel::Clevel<testing::SimPlatform, clevel::BytesCodec, clevel::TinyGeometry>;
template class testing::MapSubject<testing::ClevelTraits<clevel::IntegerCodec>>;
template class testing::MapSubject<testing::ClevelTraits<clevel::BytesCodec>>;

}  // namespace perdure
