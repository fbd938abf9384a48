// EngineRow: what the pool knows of an engine. The engine's folder defines its row; engines.def
// lists the engines.
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
  std::string_view name;  // a literal: the name of its enumerator
  std::uint8_t version;   // of its format on media
  bool ordered;           // implements detail::OrderedIndex
  bool versioned;         // implements detail::VersionedIndex
  // Its maps may return Recovered::marking, and settle what their results depend on. If all maps of
  // a pool are of such engines, the duration of its open does not grow with its content.
  bool at_once;
  Expected<std::uint64_t> (*create)(const EngineContext<RealPlatform>&, const MapKinds&,
                                    const MapOptions&);
  Expected<std::unique_ptr<EngineInstance>> (*open)(const EngineContext<RealPlatform>&,
                                                    const MapKinds&, std::uint64_t root);
  // Stores arrays inline. Other engines get arrays as byte strings.
  bool arrays = false;
};

// The row of each engine that engines.def lists.
namespace rows {
#define PERDURE_ENGINE(name) extern const EngineRow name;
#include "index/engines.def"
}  // namespace rows

inline constexpr std::size_t kMostEngines = 32;
std::span<const EngineRow> engine_rows() noexcept;

// Returns null if this build does not have the engine.
const EngineRow* find_engine(Engine engine) noexcept;

inline MapKinds kinds_of(const layout::Root& root) noexcept {
  return {static_cast<KeyKind>(root.key_kind), static_cast<ValueKind>(root.value_kind),
          root.key_bytes, root.value_bytes};
}

// For OpenRequest::at_once.
inline bool restarts_at_once(const layout::Root& root) noexcept {
  const EngineRow* row = find_engine(static_cast<Engine>(root.engine));
  return row != nullptr && row->version == root.engine_version && row->at_once;
}

}  // namespace perdure
