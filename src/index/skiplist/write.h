// Write: insert, put, update, erase. Responsible for skiplist.I5 and skiplist.I6: lookups,
// allocations and frees lie outside the latch, and everything between is one turn of the writer.
#pragma once

#include <algorithm>
#include <utility>

#include "index/skiplist/towers.h"

namespace perdure::skiplist {

template <class T>
class Write : public Towers<T> {
  using Base = Towers<T>;

 public:
  Expected<bool> remove(const detail::Key& key, const detail::Value* expected) {
    if (Status s = this->validate(key); !s.ok()) return fail(std::move(s));
    context_.background.help();
    MutationGuard<P> guard(context_.epochs);
    if (Status s = this->begin_mutation(guard, false); !s.ok()) return fail(std::move(s));
    P& platform = context_.platform;
    const Probe probe = Codec::probe(key);
    Path path;
    Node* node = nullptr;
    if (Status s = find_path<Reach::lowest>(probe, path, node); !s.ok()) return fail(std::move(s));
    if (node == nullptr) {
      if (!help(in_flight_.about(probe.word))) return fail(platform.failure());
      return missing();
    }
    const auto low = [&] { return height_of(platform.load(node->state)) == 1; };
    const bool whole = !low();
    if (whole) {
      if (Status s = find_path<Reach::whole>(probe, path, node); !s.ok()) return fail(std::move(s));
    }
    std::uint64_t blob = 0;
    {
      const LatchGuard latch(latch_);
      if (platform.poisoned()) return fail(platform.failure());
      const bool walking = this->walking();
      Status s = walking ? this->confirm(probe, path, node)
                         : locate(probe, whole ? this->levels() : 1, path, node);
      if (!s.ok()) return fail(std::move(s));
      if (node != nullptr && !whole && !walking && !low()) {  // another one has come in its place
        s = find_path<Reach::whole>(probe, path, node);
        if (!s.ok()) return fail(std::move(s));
      }
      if (node == nullptr) return missing();
      PERDURE_ASSERT(P, "skiplist.I6", !this->verified() || !erased(node));
      if (expected != nullptr) {
        auto same = holds_value(node, *expected);
        if (!same || !*same) return same;
      }
      const std::uint64_t value = shape_.bytes_values ? platform.load(node->value) : 0;
      const std::uint64_t state = platform.load(node->state);
      if (!this->sound(node, state) || !names_blob(value)) return fail(damaged_at(offset_of(node)));
      s = this->check_path(path, height_of(state));
      if (!s.ok()) return fail(std::move(s));
      blob = value & kOffsetMask;
      // The sweep must not free the blocks when it no longer finds them.
      context_.heap.mark_copied(offset_of(node));
      if (blob != 0) context_.heap.mark_copied(blob);
      s = this->unlink(probe, path, node);
      if (!s.ok()) return fail(std::move(s));
      note_node(probe, node, -1);
      if (passed(probe)) count(-1, -size_of(offset_of(node)) - size_of(blob));
      if (cursor_ == node) cursor_ = path.before[0];
      if (walking) {
        for (std::uint32_t level = 1; level < height_of(state); ++level) {
          if (this->walked_[level] == node) this->walked_[level] = path.before[level];
        }
      }
    }
    retire(offset_of(node), blob);
    return true;
  }

 protected:
  using Base::Base, Base::adds, Base::context_, Base::count, Base::cursor_, Base::damaged,
      Base::erased, Base::fingers_, Base::help, Base::in_flight_, Base::latch_, Base::locate,
      Base::missing, Base::names_blob, Base::node_at, Base::offset_of, Base::persist, Base::shape_;
  using typename Base::P, typename Base::Codec, typename Base::Fresh, typename Base::Kind,
      typename Base::Mode, typename Base::Order, typename Base::Path, typename Base::Reach;

  // The part outside the guard: background work, where no thread does it, and making room.
  template <Mode kMode>
  Expected<bool> write(const detail::Key& key, const detail::Value& value,
                       const detail::Value* expected = nullptr) {
    const bool bytes = shape_.bytes_values;
    if (Status s = this->validate(key, value, !bytes, bytes); !s.ok()) return fail(std::move(s));
    context_.background.help();
    // Towers are for speed. The last attempt makes a node of height 1, for which any block has
    // room.
    std::uint32_t most = replays_ ? 1 : Base::kMaxHeight;
    return this->with_room([&] { return write_once<kMode>(key, value, expected, most); },
                           [&] { most = 1; });
  }

  // Whether the node has the value. The latch is held.
  [[gnu::noinline]] Expected<bool> holds_value(const Node* node,
                                               const detail::Value& expected) const {
    PERDURE_ASSERT(P, "skiplist.I5", latch_.mine());
    detail::Value value;
    if (!this->value_of(node, value)) return fail(damaged_at(offset_of(node)));
    return detail::same_value(value, expected) ? Expected<bool>(true) : this->absent();
  }

  // Makes a node without its links, which is not written back, and its blob.
  [[gnu::noinline]] Status make_node(const Probe& probe, const detail::Value& value,
                                     std::uint32_t most, Fresh& fresh) {
    PERDURE_ASSERT(P, "skiplist.I5", !latch_.mine());
    P& platform = context_.platform;
    const bool apart = shape_.bytes_values && value.bytes.size() > kInlineValue;
    const std::string_view inside =
        shape_.bytes_values && !apart ? value.bytes : std::string_view();
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
  // The blob is written back and not fenced.
  [[gnu::noinline]] Expected<std::uint64_t> make_blob(std::string_view value) {
    PERDURE_ASSERT(P, "skiplist.I5", !latch_.mine());
    return Blob::write(context_.platform, context_.heap, value, kSite<Kind, "blob.write">);
  }
  // The entry is erased.
  [[gnu::always_inline]] void retire(std::uint64_t node, std::uint64_t blob) {
    PERDURE_ASSERT(P, "skiplist.I5", !latch_.mine());
    context_.heap.retire(node);
    if (blob != 0) context_.heap.retire(blob);
  }
  [[gnu::noinline]] void discard(const Fresh& fresh) {
    PERDURE_ASSERT(P, "skiplist.I5", !latch_.mine());
    if (fresh.node != 0) context_.heap.free(fresh.node);
    if (fresh.blob != 0) context_.heap.free(fresh.blob);
    if (fresh.retired != 0) context_.heap.retire(fresh.retired);
    fingers_.retire(fresh.outgrown);
  }

  // The node is in the list. A new blob is durable.
  [[gnu::noinline]] Status replace(const Probe& probe, Node* node, const detail::Value& value,
                                   Fresh& fresh) {
    P& platform = context_.platform;
    const std::uint64_t before = platform.load(node->value);
    const std::uint64_t word = shape_.bytes_values ? link_to(fresh.blob) : value.word;
    if (shape_.bytes_values && before != 0) {
      if (!names_blob(before)) return damaged_at(offset_of(node));
      context_.heap.mark_copied(before & kOffsetMask);
    }
    in_flight_.announce(probe.word, &node->value);
    PERDURE_ASSERT(P, "skiplist.I5", latch_.mine());
    platform.store(node->value, word);  // LP(update)
    if (!shape_.bytes_values) {
      platform.store(node->state, shape_.with_value(platform.load(node->state), word));
    }
    if (!this->withdraw(persist(node, sizeof(*node), kSite<Kind, "update.value">))) {  // PP(update)
      return StatusCode::poisoned;
    }
    if (!shape_.bytes_values) return {};
    if (passed(probe)) count(0, size_of(fresh.blob) - size_of(before & kOffsetMask));
    fresh.blob = 0;
    fresh.retired = before & kOffsetMask;
    return {};
  }

  // The height follows from the key and a secret of this open: no caller can choose keys of one
  // height, and threads share no state.
  [[gnu::always_inline]] std::uint32_t height_for(const Probe& probe) const {
    const auto zeros =
        static_cast<std::uint32_t>(__builtin_ctzll(Codec::hash(probe, this->seed_) | 1ULL << 63));
    return std::min(zeros / Base::G::kShift + 1, Base::kMaxHeight);
  }

  bool replays_ = false;  // recovery does the mutations of a batch

 private:
  enum class Made : std::uint8_t { done, absent, exists, again };

  template <Reach kReach>
  [[gnu::always_inline]] Status find_path(const Probe& probe, Path& path, Node*& found) const {
    return Base::template search<kReach>(probe, &path, found);
  }
  // Of a block; 0: none.
  std::int64_t size_of(std::uint64_t offset) const {
    return offset != 0 ? static_cast<std::int64_t>(context_.heap.block_bytes(offset)) : 0;
  }
  // Whether mark_some() has passed the key. The latch is held.
  bool passed(const Probe& probe) const {
    return this->marked() ||
           (cursor_ != this->head() && this->order(cursor_, probe) != Order::before);
  }
  // The latch is held. `sign`: 1 for a node that was linked, -1 for one that was unlinked.
  void note_node(const Probe& probe, const Node* node, std::int64_t sign) {
    const std::uint64_t term =
        shape_.closed_term(offset_of(node), context_.platform.load(node->state)) *
        static_cast<std::uint64_t>(sign);
    this->changed_ += term;
    if (passed(probe)) this->sum_ += term;
  }

  // One turn with the latch. `found` is the node that a lookup of this guard has found.
  template <Mode kMode>
  [[gnu::always_inline]] Expected<Made> write_latched(const Probe& probe,
                                                      const detail::Value& value,
                                                      const detail::Value* expected, Path& path,
                                                      Node* found, Fresh& fresh) {
    const LatchGuard latch(latch_);
    // The thread that held the latch before may have failed: what it has left does not count.
    if (context_.platform.poisoned()) return fail(context_.platform.failure());
    if (this->walking()) {
      if (Status s = this->confirm(probe, path, found); !s.ok()) return fail(std::move(s));
    } else if (found == nullptr || erased(found)) {
      const std::uint32_t height = adds(kMode) ? height_for(probe) : 1;
      if (Status s = locate(probe, height, path, found); !s.ok()) return fail(std::move(s));
    }
    if (found != nullptr) {
      PERDURE_ASSERT(P, "skiplist.I6", !this->verified() || !erased(found));
      if (kMode == Mode::insert) return Made::exists;
      if (kMode == Mode::update && expected != nullptr) [[unlikely]] {
        auto same = holds_value(found, *expected);
        if (!same) return fail(std::move(same.error()));
        if (!*same) return Made::absent;
      }
      if (shape_.bytes_values && (fresh.blob == 0 || fresh.node != 0)) return Made::again;
      if (Status s = replace(probe, found, value, fresh); !s.ok()) return fail(std::move(s));
      return Made::exists;
    }
    if (!adds(kMode)) return Made::absent;
    if (fresh.node == 0) return Made::again;
    if (Status s = this->link(probe, path, fresh); !s.ok()) return fail(std::move(s));
    fresh.outgrown = this->tend(node_at(fresh.node));
    Node* node = node_at(fresh.node);
    note_node(probe, node, 1);
    if (passed(probe)) {
      count(1, size_of(fresh.node) + size_of(fresh.blob));
      const std::uint32_t height =
          this->walking() ? height_of(context_.platform.load(node->state)) : 1;
      for (std::uint32_t level = 1; level < height; ++level) {
        if (this->walked_[level] == path.before[level]) this->walked_[level] = node;
      }
    }
    fresh.node = 0;
    fresh.blob = 0;
    return Made::done;
  }

  template <Mode kMode>
  [[gnu::always_inline]] Expected<bool> write_once(const detail::Key& key,
                                                   const detail::Value& value,
                                                   const detail::Value* expected,
                                                   std::uint32_t most) {
    MutationGuard<P> guard(context_.epochs);
    if (Status s = this->begin_mutation(guard, true); !s.ok()) return fail(std::move(s));
    const Probe probe = Codec::probe(key);
    Path path;
    Node* found = nullptr;
    // An update, and a node of height 1, need the lowest level only.
    Status s = !adds(kMode) || height_for(probe) == 1 ? find_path<Reach::lowest>(probe, path, found)
                                                      : find_path<Reach::whole>(probe, path, found);
    if (!s.ok()) return fail(std::move(s));
    if (found != nullptr ? kMode == Mode::insert : !adds(kMode)) {
      if (!help(in_flight_.about(probe.word))) return fail(context_.platform.failure());
      return found == nullptr ? missing() : this->absent();  // false: not inserted either
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
        if (!context_.platform.fence(kSite<Kind, "blob.write">)) s = context_.platform.failure();
      }
      Expected<Made> made = Made::again;
      if (s.ok()) made = write_latched<kMode>(probe, value, expected, path, found, fresh);
      if (s.ok() && made && *made == Made::again) {
        there = !there;
        found = nullptr;
        discard(std::exchange(fresh, {}));
        continue;
      }
      // In a poisoned pool the medium may name the new blocks.
      if (!made && made.error() == StatusCode::poisoned) return fail(std::move(made.error()));
      discard(fresh);
      if (!s.ok()) return fail(std::move(s));
      if (!made) return fail(std::move(made.error()));
      if (!adds(kMode)) return *made == Made::exists;
      return *made == Made::done;
    }
  }
};

}  // namespace perdure::skiplist
