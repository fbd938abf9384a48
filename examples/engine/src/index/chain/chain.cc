#include "index/chain/chain.h"

#include "index/engine_table.h"
#include "platform/real_platform.h"

namespace perdure::chain {

template class Chain<RealPlatform>;

namespace {

Expected<std::uint64_t> create(const EngineContext<RealPlatform>& context, const MapKinds& kinds,
                               const MapOptions& options) {
  return Chain<RealPlatform>::create(context, kinds, options.capacity);
}

Expected<std::unique_ptr<EngineInstance>> open(const EngineContext<RealPlatform>& context,
                                               const MapKinds&, std::uint64_t root) {
  return Chain<RealPlatform>::open(context, root);
}

}  // namespace
}  // namespace perdure::chain

namespace perdure {

constinit const EngineRow rows::chain{.engine = Engine::chain,
                                      .name = "chain",
                                      .version = 1,
                                      .ordered = false,
                                      .versioned = false,
                                      .at_once = false,
                                      .create = &chain::create,
                                      .open = &chain::open};

}  // namespace perdure
