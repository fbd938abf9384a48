// Skiplist: insert, update, erase. Included by skiplist.h only.
#pragma once

#include <algorithm>
#include <utility>

#include "index/skiplist/skiplist.h"

namespace perdure::skiplist {

// A secret of this open decides with the key, so that nobody can choose keys of one height; and no
// state is shared between threads.
template <Platform P, class Codec, class Kind, class G>
[[gnu::always_inline]] inline std::uint32_t Skiplist<P, Codec, Kind, G>::height_for(
    const Probe& probe) const noexcept {
  const auto zeros =
      static_cast<std::uint32_t>(__builtin_ctzll(Codec::hash(probe, seed_) | 1ULL << 63));
  return std::min(zeros / G::kShift + 1, kMaxHeight);
}

// Written back, not fenced.
template <Platform P, class Codec, class Kind, class G>
Expected<std::uint64_t> Skiplist<P, Codec, Kind, G>::make_blob(std::string_view value) noexcept {
  PERDURE_ASSERT(P, "skiplist.I5", !latch_.mine());
  P& platform = context_.platform;
  auto block = context_.heap.allocate(sizeof(layout::Blob) + value.size(), BlockKind::plain);
  if (!block) return block;
  auto* blob = context_.heap.template at<layout::Blob>(*block);
  platform.store(blob->size, value.size());
  platform.store(blob->crc, blob_crc(*block, value));
  if (!value.empty()) platform.copy(blob + 1, value.data(), value.size());
  platform.flush(blob, sizeof(*blob) + value.size(), Kind::template site<"blob.write">());
  return block;
}

// Complete but for its links, and not written back.
template <Platform P, class Codec, class Kind, class G>
Status Skiplist<P, Codec, Kind, G>::make_node(const Probe& probe, const detail::Value& value,
                                              std::uint32_t most, Fresh& fresh) noexcept {
  PERDURE_ASSERT(P, "skiplist.I5", !latch_.mine());
  P& platform = context_.platform;
  const bool apart = shape_.bytes_values && value.bytes.size() > kInlineValue;
  const std::string_view inside = shape_.bytes_values && !apart ? value.bytes : std::string_view();
  const std::uint32_t height = std::min(height_for(probe), most);
  const std::uint64_t plain = shape_.plain_state(height, probe.bytes.size(), inside.size());
  fresh.bytes = shape_.node_bytes(plain);
  auto block = context_.heap.allocate(shape_.block_bytes(fresh.bytes), BlockKind::plain);
  if (!block) return std::move(block.error());
  fresh.node = *block;
  if (apart && fresh.blob == 0) {
    auto blob = make_blob(value.bytes);
    if (!blob) return std::move(blob.error());
    fresh.blob = *blob;
  }
  Node* node = node_at(*block);
  const std::uint64_t word = shape_.bytes_values ? (apart ? link_to(fresh.blob) : 0) : value.word;
  const std::uint64_t state = plain | shape_.crc(plain, probe.word, probe.bytes, inside);
  platform.store(node->state, shape_.with_value(state, word));
  platform.store(node->key, probe.word);
  platform.store(node->value, word);
  auto* bytes = reinterpret_cast<char*>(node + 1) + 8 * std::size_t{height};
  if (!probe.bytes.empty()) platform.copy(bytes, probe.bytes.data(), probe.bytes.size());
  if (!inside.empty()) {
    platform.copy(bytes + padded(probe.bytes.size()), inside.data(), inside.size());
  }
  return {};
}

// Of an entry that is erased.
template <Platform P, class Codec, class Kind, class G>
[[gnu::always_inline]] inline void Skiplist<P, Codec, Kind, G>::retire(
    std::uint64_t node, std::uint64_t blob) noexcept {
  PERDURE_ASSERT(P, "skiplist.I5", !latch_.mine());
  context_.heap.retire(node);
  if (blob != 0) context_.heap.retire(blob);
}

template <Platform P, class Codec, class Kind, class G>
void Skiplist<P, Codec, Kind, G>::discard(const Fresh& fresh) noexcept {
  PERDURE_ASSERT(P, "skiplist.I5", !latch_.mine());
  if (fresh.node != 0) context_.heap.free(fresh.node);
  if (fresh.blob != 0) context_.heap.free(fresh.blob);
  if (fresh.retired != 0) context_.heap.retire(fresh.retired);
  fingers_.retire(fresh.outgrown);
}

// The path below `levels`, from where a lookup of this guard has seen it to where it is now, and
// the node with the key: skiplist.I6 says that what was passed and is not erased is still in its
// levels.
template <Platform P, class Codec, class Kind, class G>
Status Skiplist<P, Codec, Kind, G>::locate(const Probe& probe, std::uint32_t levels, Path& path,
                                           Node*& found) const noexcept {
  PERDURE_ASSERT(P, "skiplist.I6", latch_.mine());
  for (std::uint32_t level = levels; level-- > 0;) {
    Node*& at = path.before[level];
    if (erased(at)) return search<Reach::whole>(probe, &path, found);
    found = nullptr;
    for (std::uint64_t link = load_link(at, level); link != 0; link = load_link(at, level)) {
      Node* node = follow(link, level);
      const Order where = node == nullptr ? Order::damaged : order(node, probe);
      if (where == Order::damaged || (where == Order::before && !ascends(at, node))) {
        return damaged(link & kOffsetMask);
      }
      if (where == Order::equal) found = node;
      if (where != Order::before) break;
      at = node;
    }
  }
  return {};
}

// The last upper link of an insert is not written back by it (skiplist.I2): nothing that is stored
// later relies on it before the next fence of whoever has called this.
template <Platform P, class Codec, class Kind, class G>
void Skiplist<P, Codec, Kind, G>::write_back_owed() noexcept {
  if constexpr (Kind::kUpperDurable) {
    if (owed_ == nullptr) return;
    context_.platform.flush(owed_, sizeof(*owed_), Kind::template site<"owed.link">());
    owed_ = nullptr;
  }
}

// All stores to links that lookups follow, but those of recovery.
template <Platform P, class Codec, class Kind, class G>
[[gnu::always_inline]] inline void Skiplist<P, Codec, Kind, G>::redirect(
    Node* before, std::uint32_t level, std::uint64_t link) noexcept {
  std::uint64_t& word = link_at(before, level);
  PERDURE_ASSERT(P, "skiplist.I5", latch_.mine());
  PERDURE_ASSERT(P, "skiplist.I7", level > 0 || in_flight_.any() == &word);
  PERDURE_ASSERT(P, "skiplist.I8", !erased(before));
  context_.platform.store(word, link);
}

// Of the word that is announced; `durable`: its fence has succeeded.
template <Platform P, class Codec, class Kind, class G>
[[gnu::always_inline]] inline void Skiplist<P, Codec, Kind, G>::withdraw(
    [[maybe_unused]] bool durable) noexcept {
  PERDURE_ASSERT(P, "skiplist.I7",
                 !durable || context_.platform.persisted(in_flight_.any(), sizeof(std::uint64_t)));
  in_flight_.withdraw();
}

// The key is absent.
template <Platform P, class Codec, class Kind, class G>
Status Skiplist<P, Codec, Kind, G>::link(const Probe& probe, const Path& path,
                                         const Fresh& fresh) noexcept {
  P& platform = context_.platform;
  Node* node = node_at(fresh.node);
  const std::uint32_t height = height_of(platform.load(node->state));
  if (Status s = check_path(path, height); !s.ok()) return s;
  for (std::uint32_t level = 0; level < height; ++level) {
    platform.store(link_at(node, level), load_link(path.before[level], level));
  }
  write_back_owed();
  platform.flush(node, fresh.bytes, Kind::template site<"insert.node">());
  if (!platform.fence(Kind::template site<"insert.node">())) return StatusCode::poisoned;
  std::uint64_t& lowest = link_at(path.before[0], 0);
  PERDURE_ASSERT(P, "skiplist.I1", platform.persisted(node, fresh.bytes));
  PERDURE_ASSERT(P, "skiplist.I1", between(path.before[0], node, load_link(path.before[0], 0)));
  in_flight_.announce(probe.word, &lowest);
  redirect(path.before[0], 0, link_to(fresh.node));  // LP(insert)
  platform.flush(&lowest, sizeof(lowest), Kind::template site<"insert.link">());
  const bool durable = platform.fence(Kind::template site<"insert.link">());  // PP(insert)
  withdraw(durable);
  if (!durable) return StatusCode::poisoned;
  return height > 1 ? link_upper(path, link_to(fresh.node), height) : Status();
}

template <Platform P, class Codec, class Kind, class G>
Status Skiplist<P, Codec, Kind, G>::link_upper(const Path& path, std::uint64_t link,
                                               std::uint32_t height) noexcept {
  P& platform = context_.platform;
  if (height > levels()) levels_.store(height, std::memory_order_release);
  for (std::uint32_t level = 1; level < height; ++level) {
    std::uint64_t& word = link_at(path.before[level], level);
    PERDURE_ASSERT(P, "skiplist.I4", load_link(path.before[level - 1], level - 1) == link);
    PERDURE_ASSERT(
        P, "skiplist.I2",
        !Kind::kUpperDurable || platform.persisted(&link_at(path.before[level - 1], level - 1), 8));
    redirect(path.before[level], level, link);
    if constexpr (Kind::kUpperDurable) {
      if (level + 1 == height) {
        owed_ = &word;
        break;
      }
      platform.flush(&word, sizeof(word), Kind::template site<"insert.upper">());
      if (!platform.fence(Kind::template site<"insert.upper">())) return StatusCode::poisoned;
    }
  }
  return {};
}

template <Platform P, class Codec, class Kind, class G>
Status Skiplist<P, Codec, Kind, G>::unlink(const Probe& probe, const Path& path,
                                           Node* node) noexcept {
  P& platform = context_.platform;
  const std::uint64_t link = link_to(offset_of(node));
  write_back_owed();
  for (std::uint32_t level = height_of(platform.load(node->state)); level-- > 1;) {
    std::uint64_t& word = link_at(path.before[level], level);
    if (const std::uint64_t next = platform.load(word); next != link) {
      // Missing there (skiplist.I2), not behind another one.
      PERDURE_ASSERT(P, "skiplist.I4",
                     next == 0 || platform.load(node_at(next & kOffsetMask)->key) >= probe.word);
      continue;
    }
    redirect(path.before[level], level, load_link(node, level));
    if constexpr (Kind::kUpperDurable) {
      platform.flush(&word, sizeof(word), Kind::template site<"erase.upper">());
      if (!platform.fence(Kind::template site<"erase.upper">())) return StatusCode::poisoned;
      PERDURE_ASSERT(P, "skiplist.I2", platform.persisted(&word, sizeof(word)));
    }
  }
  std::uint64_t& lowest = link_at(path.before[0], 0);
  fingers_.unname(probe.word, offset_of(node));
  in_flight_.announce(probe.word, &lowest);
  PERDURE_ASSERT(P, "skiplist.F1", !fingers_.names(platform.load(node->key), offset_of(node)));
  redirect(path.before[0], 0, load_link(node, 0));  // LP(erase)
  platform.flush(&lowest, sizeof(lowest), Kind::template site<"erase.link">());
  const bool durable = platform.fence(Kind::template site<"erase.link">());  // PP(erase)
  withdraw(durable);
  if (!durable) return StatusCode::poisoned;
  platform.store(node->state, platform.load(node->state) | kErased);
  return {};
}

// The node is in the list. A blob is durable.
template <Platform P, class Codec, class Kind, class G>
Status Skiplist<P, Codec, Kind, G>::replace(const Probe& probe, Node* node,
                                            const detail::Value& value, Fresh& fresh) noexcept {
  P& platform = context_.platform;
  const std::uint64_t before = platform.load(node->value);
  const std::uint64_t word = shape_.bytes_values ? link_to(fresh.blob) : value.word;
  if (shape_.bytes_values && before != 0) {
    if (!names_blob(before)) return damaged(offset_of(node));
    context_.heap.mark_copied(before & kOffsetMask);
  }
  in_flight_.announce(probe.word, &node->value);
  PERDURE_ASSERT(P, "skiplist.I5", latch_.mine());
  platform.store(node->value, word);  // LP(update)
  if (!shape_.bytes_values) {
    platform.store(node->state, shape_.with_value(platform.load(node->state), word));
  }
  platform.flush(node, sizeof(*node), Kind::template site<"update.value">());
  const bool durable = platform.fence(Kind::template site<"update.value">());  // PP(update)
  withdraw(durable);
  if (!durable) return StatusCode::poisoned;
  if (!shape_.bytes_values) return {};
  if (passed(probe)) {
    count(0, static_cast<std::int64_t>(context_.heap.block_bytes(fresh.blob)));
    if (before != 0) {
      count(0, -static_cast<std::int64_t>(context_.heap.block_bytes(before & kOffsetMask)));
    }
  }
  fresh.blob = 0;
  fresh.retired = before & kOffsetMask;
  return {};
}

// What is done outside the guard: background work where no thread does it, and making room.
template <Platform P, class Codec, class Kind, class G>
template <typename Skiplist<P, Codec, Kind, G>::Mode kMode>
Expected<bool> Skiplist<P, Codec, Kind, G>::write(const detail::Key& key,
                                                  const detail::Value& value) {
  const bool bytes = shape_.bytes_values;
  if (Status s = validate(key, value, !bytes, bytes); !s.ok()) return fail(std::move(s));
  context_.background.help();
  // Towers are for speed: at last it is a low one, for which any block has room.
  std::uint32_t most = kMaxHeight;
  return with_room([&] { return write_once<kMode>(key, value, most); }, [&] { most = 1; });
}

// One turn with the latch. `found` is what a lookup of this guard has found.
template <Platform P, class Codec, class Kind, class G>
template <typename Skiplist<P, Codec, Kind, G>::Mode kMode>
[[gnu::always_inline]] inline auto Skiplist<P, Codec, Kind, G>::write_latched(
    const Probe& probe, const detail::Value& value, Path& path, Node* found, Fresh& fresh) noexcept
    -> Expected<Made> {
  const LatchGuard latch(latch_);
  // By who held the latch: what it left there does not count.
  if (context_.platform.poisoned()) return fail(context_.platform.failure());
  if (found == nullptr || erased(found)) {
    const std::uint32_t height = kMode == Mode::update ? 1 : height_for(probe);
    if (Status s = locate(probe, height, path, found); !s.ok()) return fail(std::move(s));
  }
  if (found != nullptr) {
    PERDURE_ASSERT(P, "skiplist.I6", !verified() || !erased(found));
    if (kMode == Mode::insert) return Made::exists;
    if (shape_.bytes_values && (fresh.blob == 0 || fresh.node != 0)) return Made::again;
    if (Status s = replace(probe, found, value, fresh); !s.ok()) return fail(std::move(s));
    return Made::exists;
  }
  if (kMode == Mode::update) return Made::absent;
  if (fresh.node == 0) return Made::again;
  if (Status s = link(probe, path, fresh); !s.ok()) return fail(std::move(s));
  fresh.outgrown = tend(node_at(fresh.node));
  note_node(probe, node_at(fresh.node), 1);
  if (passed(probe)) {
    count(1, static_cast<std::int64_t>(context_.heap.block_bytes(fresh.node)));
    if (fresh.blob != 0) {
      count(0, static_cast<std::int64_t>(context_.heap.block_bytes(fresh.blob)));
    }
  }
  fresh.node = 0;
  fresh.blob = 0;
  return Made::done;
}

template <Platform P, class Codec, class Kind, class G>
template <typename Skiplist<P, Codec, Kind, G>::Mode kMode>
[[gnu::always_inline]] inline Expected<bool> Skiplist<P, Codec, Kind, G>::write_once(
    const detail::Key& key, const detail::Value& value, std::uint32_t most) {
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_mutation(guard, true); !s.ok()) return fail(std::move(s));
  const Probe probe = Codec::probe(key);
  Path path;
  Node* found = nullptr;
  // Of a node of height 1, and of an update, the lowest level is all.
  Status s = kMode == Mode::update || height_for(probe) == 1
                 ? search<Reach::lowest>(probe, &path, found)
                 : search<Reach::whole>(probe, &path, found);
  if (!s.ok()) return fail(std::move(s));
  if (found != nullptr ? kMode == Mode::insert : kMode == Mode::update) {
    if (!help(in_flight_.about(probe.word))) return fail(context_.platform.failure());
    return found == nullptr ? missing() : absent();  // nor inserted, if it is there
  }
  if (found == nullptr && damaged()) return fail(known_damage());
  Fresh fresh;
  for (bool there = found != nullptr;;) {
    s = {};
    if (!there) {
      s = make_node(probe, value, most, fresh);
    } else if (shape_.bytes_values) {
      auto blob = make_blob(value.bytes);
      if (!blob) return fail(std::move(blob.error()));
      fresh.blob = *blob;
      // Durable before the only reference to the old value is replaced (2b).
      if (!context_.platform.fence(Kind::template site<"blob.write">())) {
        s = context_.platform.failure();
      }
    }
    Expected<Made> made = Made::again;
    if (s.ok()) made = write_latched<kMode>(probe, value, path, found, fresh);
    if (s.ok() && made && *made == Made::again) {
      there = !there;
      found = nullptr;
      discard(std::exchange(fresh, {}));
      continue;
    }
    // In a poisoned pool the medium may name what was made.
    if (!made && made.error() == StatusCode::poisoned) return fail(std::move(made.error()));
    discard(fresh);
    if (!s.ok()) return fail(std::move(s));
    if (!made) return fail(std::move(made.error()));
    if (kMode == Mode::update) return *made == Made::exists;
    return *made == Made::done;
  }
}

template <Platform P, class Codec, class Kind, class G>
Expected<bool> Skiplist<P, Codec, Kind, G>::erase(const detail::Key& key) {
  if (Status s = validate(key); !s.ok()) return fail(std::move(s));
  context_.background.help();
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_mutation(guard, false); !s.ok()) return fail(std::move(s));
  P& platform = context_.platform;
  const Probe probe = Codec::probe(key);
  Path path;
  Node* node = nullptr;
  if (Status s = search<Reach::lowest>(probe, &path, node); !s.ok()) return fail(std::move(s));
  if (node == nullptr) {
    if (!help(in_flight_.about(probe.word))) return fail(platform.failure());
    return missing();
  }
  const auto low = [&] { return height_of(platform.load(node->state)) == 1; };
  const bool whole = !low();
  if (whole) {
    if (Status s = search<Reach::whole>(probe, &path, node); !s.ok()) return fail(std::move(s));
  }
  std::uint64_t blob = 0;
  {
    const LatchGuard latch(latch_);
    if (platform.poisoned()) return fail(platform.failure());
    if (Status s = locate(probe, whole ? levels() : 1, path, node); !s.ok()) {
      return fail(std::move(s));
    }
    if (node != nullptr && !whole && !low()) {  // another one has come in its place
      if (Status s = search<Reach::whole>(probe, &path, node); !s.ok()) return fail(std::move(s));
    }
    if (node == nullptr) return missing();
    PERDURE_ASSERT(P, "skiplist.I6", !verified() || !erased(node));
    const std::uint64_t value = shape_.bytes_values ? platform.load(node->value) : 0;
    const std::uint64_t state = platform.load(node->state);
    if (!sound(node, state) || !names_blob(value)) return fail(damaged(offset_of(node)));
    if (Status s = check_path(path, height_of(state)); !s.ok()) return fail(std::move(s));
    blob = value & kOffsetMask;
    // The sweep must not free what it no longer finds.
    context_.heap.mark_copied(offset_of(node));
    if (blob != 0) context_.heap.mark_copied(blob);
    if (Status s = unlink(probe, path, node); !s.ok()) return fail(std::move(s));
    note_node(probe, node, -1);
    if (passed(probe)) {
      count(-1, -static_cast<std::int64_t>(context_.heap.block_bytes(offset_of(node))));
      if (blob != 0) count(0, -static_cast<std::int64_t>(context_.heap.block_bytes(blob)));
    }
    if (cursor_ == node) cursor_ = path.before[0];
  }
  retire(offset_of(node), blob);
  return true;
}

}  // namespace perdure::skiplist
