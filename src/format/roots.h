// Roots: the directory of named maps. Responsible for pool.I3.
#pragma once

#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include "format/seal.h"

namespace perdure::format {

template <Platform P>
class Roots : public Seal<P> {
  using Base = Seal<P>;

 public:
  using Base::Base;

  // Reads the map in a slot. False: the slot is free. corruption: the line is damaged.
  [[gnu::noinline]] Expected<bool> read_root(std::uint32_t slot, layout::Root& out) const {
    const auto* words = reinterpret_cast<const std::uint64_t*>(root_line(slot));
    std::uint64_t copy[kWords];
    for (std::size_t i = 0; i < kWords; ++i) copy[i] = platform_.load(words[i]);
    std::memcpy(&out, copy, sizeof(out));
    if (out.root == 0) return false;
    if (!matches<P>(out.crc == root_crc(out), "pool.root.crc"_site) || out.name[0] == '\0' ||
        out.name[sizeof(out.name) - 1] != '\0') {
      return fail(StatusCode::corruption, "root directory: slot %u is damaged", slot);
    }
    return true;
  }
  // The slot of a name, or root_slots().
  [[gnu::noinline]] Expected<std::uint32_t> find_root(std::string_view name) const {
    layout::Root root;
    for (std::uint32_t slot = 0; slot < header_.root_slots; ++slot) {
      auto used = read_root(slot, root);
      if (!used) return fail(std::move(used.error()));
      if (*used && name == root.name) return slot;
    }
    return header_.root_slots;
  }
  // The slot that add_root would take for this name. Errors as there.
  [[gnu::noinline]] Expected<std::uint32_t> free_root(std::string_view name) const {
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
  // Durable when it returns. Computes `root.crc`. Errors: exists, pool_full (no slot).
  [[gnu::noinline]] Status add_root(layout::Root root) {
    PERDURE_ASSERT(P, "pool.I3", root.root != 0);
    root.crc = root_crc(root);
    LatchGuard guard(this->latch_);
    this->unseal();
    PERDURE_ASSERT(P, "pool.I4", this->is_dirty());
    auto free_slot = free_root(root.name);
    if (!free_slot) return std::move(free_slot.error());
    layout::Root* line = root_line(*free_slot);
    std::uint64_t words[kWords];
    std::memcpy(words, &root, sizeof(root));
    auto* target = reinterpret_cast<std::uint64_t*>(line);
    for (std::size_t i = 0; i < kWords; ++i) {  // `root` is the last word: the commit
      platform_.store(target[i], words[i]);
    }
    platform_.flush(line, sizeof(*line), "pool.root.add"_site);
    return platform_.fence("pool.root.add"_site) ? Status() : StatusCode::poisoned;
  }
  // Durable when it returns.
  [[gnu::noinline]] Status drop_root(std::uint32_t slot) {
    LatchGuard guard(this->latch_);
    this->unseal();
    PERDURE_ASSERT(P, "pool.I4", this->is_dirty());
    layout::Root* line = root_line(slot);
    auto* words = reinterpret_cast<std::uint64_t*>(line);
    platform_.store(line->root, 0);  // first into the line: the slot is free before the rest goes
    for (std::size_t i = 0; i + 1 < kWords; ++i) platform_.store(words[i], 0);
    platform_.flush(line, sizeof(*line), "pool.root.drop"_site);
    return platform_.fence("pool.root.drop"_site) ? Status() : StatusCode::poisoned;
  }

 protected:
  using Base::header_, Base::platform_;

 private:
  static constexpr std::size_t kWords = sizeof(layout::Root) / 8;

  layout::Root* root_line(std::uint32_t slot) const {
    return reinterpret_cast<layout::Root*>(this->storage_.base() + layout::kDirectoryOffset) + slot;
  }
};

}  // namespace perdure::format
