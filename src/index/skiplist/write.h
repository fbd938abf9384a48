// Write: insert, put, update and erase, and the blocks that batches of them will allocate.
// Responsible for skiplist.I5: lookups, allocations and frees lie outside the stripes, and
// everything between is one turn of the writer.
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
    if (node == nullptr) return absent_behind(path);
    std::uint64_t blob = 0;
    {
      const Turn turn(*this);
      Hold hold(this->stripes_);
      Status s = this->hold_entry(probe, path, node, hold);
      if (!s.ok()) return fail(std::move(s));
      // A thread that held a stripe before may have failed: what it has left does not count.
      if (platform.poisoned()) return fail(platform.failure());
      if (node == nullptr) return absent_behind(path);
      PERDURE_ASSERT(P, "skiplist.I6", !this->verified() || !erased(node));
      if (expected != nullptr) {
        auto same = holds_value(node, *expected);
        if (!same || !*same) return same;
      }
      const std::uint64_t value = shape_.bytes_values ? platform.load(node->value) : 0;
      const std::uint64_t state = platform.load(node->state);
      if (!names_blob(value)) return fail(this->damaged_node(offset_of(node)));
      s = this->check_path(path, height_of(state));
      if (!s.ok()) return fail(std::move(s));
      blob = value & kOffsetMask;
      // The sweep must not free the blocks when it no longer finds them.
      context_.heap.mark_copied(offset_of(node));
      if (blob != 0) context_.heap.mark_copied(blob);
      s = this->unlink(probe, path, node, hold);
      if (!s.ok()) return fail(std::move(s));
      note_node(probe, node, -1, -size_of(offset_of(node)) - size_of(blob));
      if (this->walking()) step_back(path, node);
    }
    retire(offset_of(node), blob);
    return true;
  }

  // --- batches ---
  // The blocks that the mutations of a batch will allocate (pool/batch.h). In recovery they make
  // nodes of height 1, because the heights of this process have another secret than those of the
  // process that allocated the blocks. Looks at the nodes before each key: their damage would stop
  // the mutation, and later each open.
  Status plan_batch(const BatchPlan& plan) override {
    EpochGuard<P> guard(context_.epochs);
    if (Status s = this->begin_read(guard); !s.ok()) return s;
    if (damaged()) return this->of_this_map(known_damage());
    for (std::size_t i = 0; i < plan.mutations.size(); ++i) {
      const detail::Mutation& mutation = plan.mutations[i];
      if (Status s = look(Codec::probe(mutation.key)); !s.ok()) return s;
      if (mutation.kind == MutationKind::erase) continue;
      const bool added = plan.present[i]
                             ? !shape_.bytes_values || add_blob(mutation.value, plan.needs)
                             : add_node(Codec::probe(mutation.key), mutation.value, plan.needs);
      if (!added) return StatusCode::out_of_memory;
    }
    return {};
  }
  void begin_replay(std::uint64_t /*version*/) override { replays_ = true; }
  void end_replay() override { replays_ = false; }

 protected:
  using Base::Base, Base::adds, Base::context_, Base::count, Base::cursor_, Base::damaged,
      Base::erased, Base::help, Base::missing, Base::names_blob, Base::node_at, Base::offset_of,
      Base::persist, Base::replays_, Base::shape_, Base::stripes_;
  using typename Base::P, typename Base::Codec, typename Base::Fresh, typename Base::Hold,
      typename Base::Kind, typename Base::Mode, typename Base::Order, typename Base::Path,
      typename Base::Reach, typename Base::Turn;

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

  // Whether the node has the value. Its stripe is held.
  [[gnu::noinline]] Expected<bool> holds_value(const Node* node,
                                               const detail::Value& expected) const {
    PERDURE_ASSERT(P, "skiplist.I5", stripes_.mine(offset_of(node)));
    detail::Value value;
    if (!this->value_of(node, value)) return fail(this->damaged_node(offset_of(node)));
    return detail::same_value(value, expected) ? Expected<bool>(true) : this->absent();
  }

  // Makes a node without its links, which is not written back, and its blob.
  [[gnu::noinline]] Status make_node(const Probe& probe, const detail::Value& value,
                                     std::uint32_t most, Fresh& fresh) {
    PERDURE_ASSERT(P, "skiplist.I5", !stripes_.any_mine());
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
    PERDURE_ASSERT(P, "skiplist.I5", !stripes_.any_mine());
    return Blob::write(context_.platform, context_.heap, value, kSite<Kind, "blob.write">);
  }
  // The blob of an update, if it has one. It is durable before the only reference to the old value
  // is replaced (2b).
  [[gnu::always_inline]] Status make_value(const detail::Value& value, Fresh& fresh) {
    if (!shape_.bytes_values) return {};
    auto blob = make_blob(value.bytes);
    if (!blob) return std::move(blob.error());
    fresh.blob = *blob;
    if (!context_.platform.fence(kSite<Kind, "blob.write">)) return context_.platform.failure();
    return {};
  }
  // The entry is erased.
  [[gnu::always_inline]] void retire(std::uint64_t node, std::uint64_t blob) {
    PERDURE_ASSERT(P, "skiplist.I5", !stripes_.any_mine());
    context_.heap.retire(node);
    if (blob != 0) context_.heap.retire(blob);
  }
  [[gnu::noinline]] void discard(const Fresh& fresh) {
    PERDURE_ASSERT(P, "skiplist.I5", !stripes_.any_mine());
    if (fresh.node != 0) context_.heap.free(fresh.node);
    if (fresh.blob != 0) context_.heap.free(fresh.blob);
    if (fresh.retired != 0) context_.heap.retire(fresh.retired);
  }

  // The node is in the list. A new blob is durable.
  [[gnu::noinline]] Status replace(const Probe& probe, Node* node, const detail::Value& value,
                                   Fresh& fresh) {
    P& platform = context_.platform;
    const std::uint64_t before = platform.load(node->value);
    const std::uint64_t word = shape_.bytes_values ? link_to(fresh.blob) : value.word;
    if (shape_.bytes_values && before != 0) {
      if (!names_blob(before)) return this->damaged_node(offset_of(node));
      context_.heap.mark_copied(before & kOffsetMask);
    }
    PERDURE_ASSERT(P, "skiplist.I5", stripes_.mine(offset_of(node)));
    InFlight<P>& in_flight = stripes_.of(offset_of(node)).in_flight;
    in_flight.announce(offset_of(node), &node->value);
    this->store_locked(node->value, word);  // LP(update)
    if (!shape_.bytes_values) {
      platform.store(node->state, shape_.with_value(platform.load(node->state), word));
    }
    const bool durable = persist(node, sizeof(*node), kSite<Kind, "update.value">);  // PP(update)
    if (!this->withdraw(in_flight, durable)) return StatusCode::poisoned;
    if (!shape_.bytes_values) return {};
    count_change(probe, 0, size_of(fresh.blob) - size_of(before & kOffsetMask), 0);
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
    return cursor_ != this->head() && this->order(cursor_, probe) != Order::before;
  }
  // `term`: of closed_sum. The stripe of the node is held.
  [[gnu::always_inline]] void count_change(const Probe& probe, std::int64_t entries,
                                           std::int64_t bytes, std::uint64_t term) {
    this->tally_.add(entries, bytes, static_cast<std::int64_t>(term));
    if (!this->walking() || passed(probe)) [[likely]]
      return;
    count(-entries, -bytes, 0 - term);  // the walk will come to it
  }
  // `sign`: 1 for a node that was linked, -1 for one that was unlinked.
  void note_node(const Probe& probe, const Node* node, std::int64_t sign, std::int64_t bytes) {
    const std::uint64_t term =
        shape_.closed_term(offset_of(node), context_.platform.load(node->state));
    count_change(probe, sign, bytes, term * static_cast<std::uint64_t>(sign));
  }
  // The walk behind the open stands on a node that was unlinked. The latch is held.
  [[gnu::noinline]] void step_back(const Path& path, const Node* node) {
    if (cursor_ == node) cursor_ = path.before[0];
    for (std::uint32_t level = 1; level < height_of(context_.platform.load(node->state)); ++level) {
      if (this->walked_[level] == node) this->walked_[level] = path.before[level];
    }
  }
  // The walk has passed the place of a node that was linked. The latch is held.
  [[gnu::noinline]] void step_on(const Path& path, Node* node) {
    for (std::uint32_t level = 1; level < height_of(context_.platform.load(node->state)); ++level) {
      if (this->walked_[level] == path.before[level]) this->walked_[level] = node;
    }
  }

  // The result for a key that is absent behind a path.
  Expected<bool> absent_behind(const Path& path) {
    if (!help(path.before[0])) return fail(context_.platform.failure());
    return missing();
  }

  // Links the new node, if the key is absent.
  template <Mode kMode>
  [[gnu::always_inline]] Expected<Made> write_new(const Probe& probe, Path& path, Node*& found,
                                                  Fresh& fresh) {
    Node* node = node_at(fresh.node);
    const Turn turn(*this);
    Hold hold(stripes_);
    const std::uint32_t height = height_of(context_.platform.load(node->state));
    Status s = this->hold_place(probe, height, fresh.node, path, found, hold);
    if (!s.ok()) return fail(std::move(s));
    // A thread that held a stripe before may have failed: what it has left does not count.
    if (context_.platform.poisoned()) return fail(context_.platform.failure());
    if (found != nullptr) {
      if (kMode != Mode::insert) return Made::again;
      if (!help(found)) return fail(context_.platform.failure());
      return Made::exists;
    }
    if (s = this->link(path, fresh, hold); !s.ok()) return fail(std::move(s));
    this->name(node);
    note_node(probe, node, 1, size_of(fresh.node) + size_of(fresh.blob));
    if (this->walking() && passed(probe)) step_on(path, node);
    fresh.node = 0;
    fresh.blob = 0;
    return Made::done;
  }
  // Changes the value of the node that a lookup of this guard has found.
  template <Mode kMode>
  [[gnu::always_inline]] Expected<Made> write_over(const Probe& probe, const detail::Value& value,
                                                   const detail::Value* expected, Path& path,
                                                   Node*& found, Fresh& fresh) {
    const Turn turn(*this);
    typename Base::HoldOne hold(stripes_);
    Status s = this->hold_node(probe, path, found, hold);
    if (!s.ok()) return fail(std::move(s));
    if (context_.platform.poisoned()) return fail(context_.platform.failure());
    if (found == nullptr) {
      if (adds(kMode)) return Made::again;
      if (!help(path.before[0])) return fail(context_.platform.failure());
      return Made::absent;
    }
    PERDURE_ASSERT(P, "skiplist.I6", !this->verified() || !erased(found));
    if (kMode == Mode::update && expected != nullptr) [[unlikely]] {
      auto same = holds_value(found, *expected);
      if (!same) return fail(std::move(same.error()));
      if (!*same) return Made::absent;
    }
    if (s = replace(probe, found, value, fresh); !s.ok()) return fail(std::move(s));
    return Made::exists;
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
    if (found == nullptr && !adds(kMode)) return absent_behind(path);
    if (found != nullptr && kMode == Mode::insert) {
      if (!help(found)) return fail(context_.platform.failure());
      return this->absent();  // false: not inserted either
    }
    if (found == nullptr && damaged()) return fail(this->of_this_map(known_damage()));
    Fresh fresh;
    for (bool there = found != nullptr;; there = !there) {
      s = there ? make_value(value, fresh) : make_node(probe, value, most, fresh);
      Expected<Made> made = Made::again;
      if (s.ok()) {
        made = there ? write_over<kMode>(probe, value, expected, path, found, fresh)
                     : write_new<kMode>(probe, path, found, fresh);
      }
      // In a poisoned pool the medium may name the new blocks.
      if (!made && made.error() == StatusCode::poisoned) return fail(std::move(made.error()));
      discard(std::exchange(fresh, {}));
      if (!s.ok()) return fail(std::move(s));
      if (!made) return fail(std::move(made.error()));
      if (*made == Made::again) continue;
      if (!adds(kMode)) return *made == Made::exists;
      if (*made != Made::done) return false;
      this->tend();
      return true;
    }
  }

  // --- batches ---
  [[gnu::noinline]] Status look(const Probe& probe) const {
    Path path;
    Node* found = nullptr;
    Status s = this->template search<Reach::whole>(probe, &path, found);
    return s.ok() ? this->check_path(path, Base::kMaxHeight) : s;
  }
  [[nodiscard]] bool add_node(const Probe& probe, const detail::Value& value,
                              BlockNeeds& needs) const {
    const bool apart = shape_.bytes_values && value.bytes.size() > kInlineValue;
    const std::size_t inside = shape_.bytes_values && !apart ? value.bytes.size() : 0;
    const auto bytes = [&](std::uint32_t height) {
      const std::uint64_t state = shape_.plain_state(height, probe.bytes.size(), inside);
      return shape_.block_bytes(shape_.node_bytes(state));
    };
    const std::size_t low = bytes(1);
    const std::size_t drawn = bytes(replays_ ? 1 : height_for(probe));
    return needs.add(low, BlockKind::plain) &&
           (drawn == low || needs.add(drawn, BlockKind::plain)) &&
           (!apart || add_blob(value, needs));
  }
  [[nodiscard]] static bool add_blob(const detail::Value& value, BlockNeeds& needs) {
    return needs.add(sizeof(Blob) + value.bytes.size(), BlockKind::plain);
  }
};

}  // namespace perdure::skiplist
