// Names of engines, and those of this build.
#include <array>
#include <utility>

#include "index/engine_table.h"
#include "perdure/pool.h"

namespace perdure {

namespace {

// As the command line prints and takes them.
constexpr std::array<std::pair<Engine, std::string_view>, 6> kNames = {{
    {Engine::phast, "phast"},
    {Engine::level, "level"},
    {Engine::clevel, "clevel"},
    {Engine::as, "as"},
    {Engine::ascs, "ascs"},
    {Engine::pskiplist, "pskiplist"},
}};

}  // namespace

std::string_view engine_name(Engine engine) noexcept {
  for (const auto& [number, name] : kNames) {
    if (number == engine) return name;
  }
  return "unknown";
}

std::span<const EngineInfo> engines() noexcept {
  struct List {
    std::array<EngineInfo, kNames.size()> infos{};
    std::size_t count = 0;
  };
  static const List list = [] {
    List out;
    for (const auto& [number, name] : kNames) {
      const EngineRow* row = find_engine(number);
      if (row == nullptr) continue;
      out.infos[out.count++] = {number, name, row->ordered, row->versioned};
    }
    return out;
  }();
  return {list.infos.data(), list.count};
}

}  // namespace perdure
