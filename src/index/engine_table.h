// What the pool knows of an engine: a row, which its folder defines. engines.def lists the engines.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "format/layout.h"
#include "index/engine.h"
#include "perdure/options.h"
#include "platform/real_platform.h"

namespace perdure {

struct EngineRow {
  Engine engine;
  std::string_view name;  // its enumerator; as the command line prints and takes it
  std::uint8_t version;   // of its on-media format
  bool ordered;           // offers detail::OrderedIndex
  bool versioned;         // offers detail::VersionedIndex
  // Its maps may answer Recovered::marking, and settle what their answers rest on. A pool that has
  // no others opens in a time that does not grow with its content.
  bool at_once;
  Expected<std::uint64_t> (*create)(const EngineContext<RealPlatform>&, const MapKinds&,
                                    const MapOptions&);
  Expected<std::unique_ptr<EngineInstance>> (*open)(const EngineContext<RealPlatform>&,
                                                    const MapKinds&, std::uint64_t root);
  bool arrays = false;  // keeps arrays in place, if it is asked to; they are byte strings to others
};

// Of each engine that engines.def lists.
namespace rows {
#define PERDURE_ENGINE(name) extern const EngineRow name;
#include "index/engines.def"
}  // namespace rows

inline constexpr std::size_t kMostEngines = 32;
std::span<const EngineRow> engine_rows() noexcept;

// Null if this build does not have the engine.
const EngineRow* find_engine(Engine engine) noexcept;

inline MapKinds kinds_of(const layout::Root& root) noexcept {
  return {static_cast<KeyKind>(root.key_kind), static_cast<ValueKind>(root.value_kind),
          root.key_bytes, root.value_bytes};
}

// OpenRequest::at_once.
inline bool restarts_at_once(const layout::Root& root) noexcept {
  const EngineRow* row = find_engine(static_cast<Engine>(root.engine));
  return row != nullptr && row->version == root.engine_version && row->at_once;
}

}  // namespace perdure
