// PoolCore: the directory of named roots. Included by pool_core.h only.
#pragma once

#include "pool/pool_core.h"

namespace perdure {

// A line whose commit word is lost looks free: only the whole directory can tell.
template <Platform P>
std::uint64_t PoolCore<P>::directory_crc(const P& platform, const std::byte* base,
                                         std::uint32_t slots) noexcept {
  std::uint32_t crc = 0;
  const auto* words = reinterpret_cast<const std::uint64_t*>(base + layout::kDirectoryOffset);
  for (std::uint64_t w = 0; w < slots * sizeof(layout::Root) / 8; ++w) {
    const std::uint64_t word = platform.load(words[w]);
    crc = crc32c(crc, &word, sizeof(word));
  }
  return crc;
}

template <Platform P>
Expected<bool> PoolCore<P>::read_root(std::uint32_t slot, layout::Root& out) const noexcept {
  const auto* words = reinterpret_cast<const std::uint64_t*>(root_line(slot));
  std::uint64_t copy[sizeof(layout::Root) / 8];
  for (std::size_t i = 0; i < std::size(copy); ++i) copy[i] = platform_.load(words[i]);
  std::memcpy(&out, copy, sizeof(out));
  if (out.root == 0) return false;
  if ((out.crc != root_crc(out) && P::verifies("pool.root.crc"_site)) || out.name[0] == '\0' ||
      out.name[sizeof(out.name) - 1] != '\0') {
    return fail(StatusCode::corruption, "root directory: slot %u is damaged", slot);
  }
  return true;
}

template <Platform P>
Expected<std::uint32_t> PoolCore<P>::find_root(std::string_view name) const noexcept {
  layout::Root root;
  for (std::uint32_t slot = 0; slot < header_.root_slots; ++slot) {
    auto used = read_root(slot, root);
    if (!used) return fail(std::move(used.error()));
    if (*used && name == root.name) return slot;
  }
  return header_.root_slots;
}

template <Platform P>
Expected<std::uint32_t> PoolCore<P>::free_root(std::string_view name) const noexcept {
  layout::Root other;
  std::uint32_t free_slot = header_.root_slots;
  for (std::uint32_t slot = 0; slot < header_.root_slots; ++slot) {
    auto used = read_root(slot, other);
    if (!used) return fail(std::move(used.error()));
    if (*used && other.name == name) return fail(StatusCode::exists);
    if (!*used && free_slot == header_.root_slots) free_slot = slot;
  }
  if (free_slot == header_.root_slots) {
    return fail(StatusCode::pool_full, "the pool holds %u maps already; drop one",
                header_.root_slots);
  }
  return free_slot;
}

template <Platform P>
Status PoolCore<P>::add_root(layout::Root root) noexcept {
  PERDURE_ASSERT(P, "pool.I3", root.root != 0);
  root.crc = root_crc(root);
  LatchGuard guard(latch_);
  unseal();
  PERDURE_ASSERT(P, "pool.I4", is_dirty());
  auto free_slot = free_root(root.name);
  if (!free_slot) return std::move(free_slot.error());
  layout::Root* line = root_line(*free_slot);
  std::uint64_t words[sizeof(root) / 8];
  std::memcpy(words, &root, sizeof(root));
  auto* target = reinterpret_cast<std::uint64_t*>(line);
  for (std::size_t i = 0; i < std::size(words); ++i) {  // `root` is the last word: the commit
    platform_.store(target[i], words[i]);
  }
  platform_.flush(line, sizeof(*line), "pool.root.add"_site);
  if (!platform_.fence("pool.root.add"_site)) return StatusCode::poisoned;
  return {};
}

template <Platform P>
Status PoolCore<P>::drop_root(std::uint32_t slot) noexcept {
  LatchGuard guard(latch_);
  unseal();
  PERDURE_ASSERT(P, "pool.I4", is_dirty());
  layout::Root* line = root_line(slot);
  auto* words = reinterpret_cast<std::uint64_t*>(line);
  platform_.store(line->root, 0);  // first into the line: what follows is of a free slot
  for (std::size_t i = 0; i + 1 < sizeof(*line) / 8; ++i) platform_.store(words[i], 0);
  platform_.flush(line, sizeof(*line), "pool.root.drop"_site);
  if (!platform_.fence("pool.root.drop"_site)) return StatusCode::poisoned;
  return {};
}

}  // namespace perdure
