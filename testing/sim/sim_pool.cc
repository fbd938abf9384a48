// The only instantiation of the heap and the pool over the simulator. All tests link it.
#include "testing/sim/sim_pool.h"

namespace perdure {

template class heap::State<testing::SimPlatform>;
template class heap::Table<testing::SimPlatform>;
template class heap::Extents<testing::SimPlatform>;
template class heap::Slabs<testing::SimPlatform>;
template class heap::Sweep<testing::SimPlatform>;
template class heap::Audit<testing::SimPlatform>;
template class Heap<testing::SimPlatform>;
template class EpochDomain<testing::SimPlatform>;
template class Background<testing::SimPlatform>;
template class OpenSweep<testing::SimPlatform>;
template class AfterKill<testing::SimPlatform>;
template class format::State<testing::SimPlatform>;
template class format::Seal<testing::SimPlatform>;
template class format::Roots<testing::SimPlatform>;
template class format::Growth<testing::SimPlatform>;
template class format::Recovery<testing::SimPlatform>;
template class format::Resize<testing::SimPlatform>;
template class PoolCore<testing::SimPlatform>;

}  // namespace perdure
