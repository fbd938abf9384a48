// The only instantiation of PhaST over the simulator; all tests link it.
#include "testing/engines/phast_subject.h"

namespace perdure {

template class phast::PhastMap<
    Traits<testing::SimPlatform, phast::IntegerCodec, phast::TinyGeometry>>;
template class phast::PhastMap<
    Traits<testing::SimPlatform, phast::BytesCodec, phast::TinyGeometry>>;
template class phast::PhastMap<
    Traits<testing::SimPlatform, phast::BytesCodec, testing::WideGeometry>>;
template class testing::MapSubject<testing::PhastTraits<phast::IntegerCodec, phast::TinyGeometry>>;
template class testing::MapSubject<testing::PhastTraits<phast::BytesCodec, phast::TinyGeometry>>;
template class testing::MapSubject<testing::PhastTraits<phast::BytesCodec, testing::WideGeometry>>;

}  // namespace perdure
