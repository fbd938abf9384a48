// The root block of a map: what those of all engines have in common. A root block begins with
// fields that are written once, when the map is created; `fixed_crc` lies behind them and is their
// checksum.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "index/engine.h"
#include "platform/real_platform.h"
#include "util/crc32c.h"

namespace perdure {

template <class Root>
std::uint32_t fixed_crc_of(const Root& image) {
  return crc32c(0, &image, offsetof(Root, fixed_crc));
}
template <Platform P, class Root, FixedString Name>
bool root_intact(const Root& image, Site<Name> site) {
  return matches<P>(image.fixed_crc == fixed_crc_of(image), site);
}

// The error of recover() if a root block cannot be used. `what`: the first wrong part of it.
[[gnu::cold]] inline Status bad_root(const char* what) {
  return Status::format(StatusCode::corruption, "the map's root block is damaged (%s)", what);
}

// Returns the instance of the map with this root block, of which it has read nothing; recover()
// comes next. `bytes`: the size that every root block of the engine has.
template <class Map, Platform P, class... More>
Expected<std::unique_ptr<EngineInstance>> make_instance(const EngineContext<P>& context,
                                                        std::uint64_t root, std::size_t bytes,
                                                        More... more) {
  if (!context.heap.contains(root, bytes) || root % kLine != 0) {
    return fail(StatusCode::corruption, "no root block can lie at offset %lu", root);
  }
  std::unique_ptr<EngineInstance> map(new (std::nothrow) Map(context, root, more...));
  if (map == nullptr) return fail(StatusCode::out_of_memory);
  if constexpr (!std::same_as<P, RealPlatform>) tombstone::share_with_children(map->index());
  return map;
}

}  // namespace perdure
