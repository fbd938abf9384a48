#include "testing/coherence/lines.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <string_view>

#include "format/layout.h"
#include "index/clevel/layout.h"
#include "index/level/layout.h"
#include "index/phast/layout.h"
#include "index/pskiplist/layout.h"
#include "index/skiplist/layout.h"

namespace perdure::testing {
namespace {

struct Row {
  Engine engine;
  std::size_t root_bytes;
  std::span<const std::string_view> content;  // names in DRAM; blocks of the pool are content, too
};

constexpr std::array<std::string_view, 2> kPhast = {"Arena<phast::Descriptor>",
                                                    "Arena<phast::ScanOrder>"};
constexpr std::array<std::string_view, 1> kLevel = {"Arena<level::Meta>"};
constexpr std::array<std::string_view, 3> kPskiplist = {
    "Arena<pskiplist::KeyNode>", "Arena<pskiplist::Leaf>", "Arena<pskiplist::KeyHints::Bucket>"};
constexpr Row kTable[] = {
    {Engine::phast, sizeof(phast::layout::Root), kPhast},
    {Engine::level, sizeof(level::layout::Root), kLevel},
    {Engine::clevel, sizeof(clevel::layout::Root), {}},
    {Engine::as, sizeof(skiplist::layout::Root), {}},
    {Engine::ascs, sizeof(skiplist::layout::Root), {}},
    {Engine::pskiplist, sizeof(pskiplist::layout::Root), kPskiplist},
};

// Of an engine without a row, only blocks of the pool are content.
Row row_of(Engine engine) {
  const auto* row = std::ranges::find(kTable, engine, &Row::engine);
  return row != std::end(kTable) ? *row : Row{.engine = engine, .root_bytes = 64, .content = {}};
}

std::string with_place(std::string name, std::uint64_t place) {
  char text[24];
  std::snprintf(text, sizeof(text), " +0x%llx", static_cast<unsigned long long>(place));
  return name + text;
}

// Frames of the C++ library and of helpers that get memory for others.
bool is_helper(const std::string& function) {
  constexpr std::string_view kHelpers[] = {"std::",   "__gnu_cxx::", "operator",
                                           "__wrap_", "??",          "reserve_dram"};
  return std::ranges::any_of(kHelpers, [&](auto h) { return function.starts_with(h); });
}

// "Arena<phast::Descriptor>" for Arena<perdure::phast::Descriptor<...>>::reserve.
std::string element_of(const std::string& full) {
  const auto begin = full.find("Arena<");
  if (begin == std::string::npos) return "Arena";
  std::string element = full.substr(begin + 6);
  int depth = 0;
  for (std::size_t i = 0; i < element.size(); ++i) {
    if (element[i] == '<') ++depth;
    if (element[i] == '>' && depth-- == 0) {
      element.resize(i);
      break;
    }
  }
  if (element.find("atomic<") != std::string::npos) return "Arena<atomic>";
  return "Arena<" + short_name(element) + ">";
}

}  // namespace

LineName Lines::in_file(const Memory& memory, std::uint64_t address) const {
  const auto* base = reinterpret_cast<const std::byte*>(memory.begin);
  const auto& header = *reinterpret_cast<const layout::Header*>(base);
  const std::uint64_t offset = address - memory.begin;
  if (header.magic != layout::kMagic) return {"file"};
  if (offset < layout::kDirectoryOffset) return {with_place("pool header", offset)};
  if (offset < header.table_offset) return {"root directory"};
  if (offset < header.data_offset) return {"extent table"};
  const auto* roots = reinterpret_cast<const layout::Root*>(base + layout::kDirectoryOffset);
  for (std::uint32_t slot = 0; slot < header.root_slots; ++slot) {
    const std::uint64_t root = roots[slot].root;
    if (root != 0 && offset >= root && offset < root + row_of(engine_).root_bytes) {
      return {with_place("root block", offset - root)};
    }
  }
  return {"block", true};
}

std::string Lines::maker_of(const Memory& memory) {
  if (const auto it = makers_.find(memory.callers); it != makers_.end()) return it->second;
  const Frames frames = frames_of({memory.callers.begin(), memory.callers.end()});
  std::string maker = "memory";
  for (const std::uint64_t code : memory.callers) {
    const auto it = frames.find(code);
    if (it == frames.end()) continue;
    for (const Frame& frame : it->second) {
      if (frame.function.starts_with("Arena::")) {
        maker = element_of(frame.full);
      } else if (!is_helper(frame.function)) {
        if (maker.starts_with("Arena")) {
          maker += maker == "Arena<atomic>" ? " of " + frame.function : "";
        } else {
          maker = frame.function + " (" + frame.place + ")";
        }
        return makers_[memory.callers] = maker;
      }
    }
  }
  return makers_[memory.callers] = maker;
}

LineName Lines::name_of(std::uint64_t line) {
  const std::uint64_t address = line * 64;
  // An object may begin within its first line.
  Memory memory = memory_at(address);
  for (std::uint64_t at = address + 8; memory.kind == Memory::Kind::unknown && at < address + 64;
       at += 8) {
    memory = memory_at(at);
  }
  const std::uint64_t place = address > memory.begin ? address - memory.begin : 0;
  switch (memory.kind) {
    case Memory::Kind::file:
      return in_file(memory, address);
    case Memory::Kind::fixed:
      return {memory.name.empty() ? "static object" : memory.name};
    case Memory::Kind::heap: {
      std::string name = maker_of(memory);
      const auto content = row_of(engine_).content;
      const bool listed = std::ranges::find(content, name) != content.end();
      if (memory.bytes <= kSmall) name = with_place(std::move(name), place);
      return {std::move(name), listed};
    }
    case Memory::Kind::unknown:
      break;
  }
  return {"unknown memory"};
}

}  // namespace perdure::testing
