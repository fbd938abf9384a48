// Write: insert, put, update, erase, and the plans of batches. A node is held, its write gets a
// version and room for its entry, and the entry is stored. Responsible for pskiplist.I1, I2, I4,
// I5, N1 and N2, for the writers' side of I3, and for records in I9.
#pragma once

#include <cstdint>
#include <utility>

#include "index/pskiplist/lookup.h"

namespace perdure::pskiplist {

template <class T>
class Write : public Lookup<T> {
 protected:
  using Base = Lookup<T>;
  using Base::absent, Base::adds, Base::begin_mutation, Base::begin_read, Base::came;
  using Base::Base;
  using Base::capacity_of, Base::chain_, Base::clock, Base::clock_, Base::context_;
  using Base::directory_, Base::entry_at, Base::find_with_slot, Base::latest, Base::load;
  using Base::nodes_, Base::persist, Base::persisted, Base::record_values_, Base::records_;
  using Base::reserve_, Base::root_, Base::segment_at, Base::slot_at, Base::store_durably;
  using Base::validate, Base::value_of, Base::went, Base::with_room;
  using typename Base::Chain, typename Base::Codec, typename Base::Mode, typename Base::Node;
  using typename Base::P;

  // --- a node is held and stamped ---

  // Takes the node. Returns false if it is dead.
  [[gnu::always_inline]] bool hold(Node& node, State& held) {
    for (unsigned spins = 0;; P::pause(spins++)) {
      const State seen = node.load();
      if (seen.phase() == Phase::dead) return false;
      if (seen.phase() != Phase::idle) continue;
      held = State::of(Phase::held, seen.number());
      if (node.change(seen, held)) return true;
    }
  }
  static void let_go(Node& node, State held, bool changed) {
    PERDURE_ASSERT(P, "pskiplist.N1", changed || node.load() == held);
    node.set(State::of(Phase::idle, held.number() + (changed ? 1 : 0)));
  }

  // LP of a write that succeeds: the compare-and-swap, here or in settle_state(). The exchange is a
  // full fence. Without it the clock could be loaded before other threads see that a write is
  // coming (pskiplist.I3).
  std::uint64_t stamp(Node& node, State held) {
    PERDURE_ASSERT(P, "pskiplist.N1", node.load() == held);
    const State unstamped = State::of(Phase::unstamped, held.number());
    node.state.exchange(unstamped.word, std::memory_order_seq_cst);
    const std::uint64_t version = clock();
    if (node.change(unstamped, State::of(Phase::stamped, version))) return version;
    PERDURE_ASSERT(P, "pskiplist.I3",
                   node.load().phase() == Phase::stamped && node.load().number() <= clock());
    return node.load().number();
  }
  // Returns the version, and a segment in `fresh` if the entry begins one. If it fails, the node is
  // not stamped: no reader returns anything by a stamp before the stores have come. If a tag makes
  // a segment necessary, the stamp is taken back. The next stamp has another number (pskiplist.N1):
  // a thread that met the first one may still be about to stamp, with the older version. The caller
  // goes on from `held`.
  [[gnu::noinline]] Expected<std::uint64_t> stamp_with_room(Node& node, State& held, bool reserved,
                                                            Fresh& fresh) {
    const std::uint64_t before = node.end().version();
    const bool full = must_grow(node);
    for (std::uint64_t version = clock();;) {
      if (full && version != before && fresh.segment == 0) {
        auto block = new_segment(node, reserved);
        if (!block) return block;
        fresh.segment = *block;
      }
      version = stamp(node, held);
      if (!full || version == before || fresh.segment != 0) return version;
      held = State::of(Phase::held, held.number() + 1);
      node.set(held);
    }
  }

  // --- stores; the node is stamped ---

  [[gnu::noinline]] Status write_first(Node& node, State held, std::uint64_t version,
                                       const Probe& probe, std::uint64_t value, Fresh& fresh) {
    P& platform = context_.platform;
    const std::uint64_t offset = node.slot.load(std::memory_order_relaxed);
    Slot& slot = slot_at(offset);
    PERDURE_ASSERT(P, "pskiplist.N2", node.load() == State::of(Phase::stamped, version));
    platform.store(slot.key, Codec::kBytes ? fresh.key : probe.word);
    platform.store(slot.more, 0);
    platform.store(slot.first.value, value);
    platform.store(slot.first.stamp, stamp_of(version, false));
    node.set_end({offset + offsetof(Slot, first), value, stamp_of(version, false), 1});
    node.set(State::of(Phase::stored, held.number()));
    const bool durable = persist(&slot, sizeof(slot), "pskiplist.insert.slot"_site);  // PP
    return durable ? Status() : StatusCode::poisoned;
  }
  [[gnu::noinline]] Status write_in_place(Node& node, State held, std::uint64_t version,
                                          std::uint64_t value, bool removed) {
    P& platform = context_.platform;
    const std::uint64_t offset = node.last.load(std::memory_order_relaxed);
    Entry& entry = entry_at(offset);
    const std::uint64_t stamp = stamp_of(version, removed);
    PERDURE_ASSERT(
        P, "pskiplist.I4",
        node.load() == State::of(Phase::stamped, version) && node.end().version() == version);
    // All of the entry before any of the node: a reader that reads the node can write back the
    // whole line.
    if (!removed) platform.store(entry.value, value);
    if (load(entry.stamp) != stamp) platform.store(entry.stamp, stamp);
    node.set_end({offset, value, stamp, node.end().entries});
    node.set(State::of(Phase::stored, held.number()));
    const bool durable = persist(&entry, sizeof(entry), "pskiplist.update.entry"_site);  // PP
    return durable ? Status() : StatusCode::poisoned;
  }
  [[gnu::noinline]] Status append(Node& node, State held, std::uint64_t version,
                                  std::uint64_t value, bool removed, Fresh& fresh) {
    P& platform = context_.platform;
    const std::uint64_t segment = fresh.segment != 0 ? fresh.segment : node.tail;
    const std::uint32_t position = fresh.segment != 0 ? 0 : used_in_tail(node);
    const std::uint64_t offset = entry_offset(segment, position);
    Entry& entry = entry_at(offset);
    PERDURE_ASSERT(P, "pskiplist.N2", node.load() == State::of(Phase::stamped, version));
    PERDURE_ASSERT(P, "pskiplist.I1",
                   version > node.end().version() && position < capacity_of(segment));
    PERDURE_ASSERT(P, "pskiplist.I9",
                   fresh.segment == 0 || persisted(segment, context_.heap.block_bytes(segment)));
    platform.store(entry.value, value);
    platform.store(entry.stamp, stamp_of(version, removed));
    if (fresh.segment != 0) {
      // The state stays `stamped`, because a reader could not write back the link.
      std::uint64_t& link = node.tail != 0
                                ? segment_at(node.tail).next
                                : slot_at(node.slot.load(std::memory_order_relaxed)).more;
      platform.store(link, segment);
      platform.flush(&link, 8, "pskiplist.append.link"_site);
    }
    node.set_end({offset, value, stamp_of(version, removed), node.end().entries + 1});
    if (fresh.segment == 0) node.set(State::of(Phase::stored, held.number()));
    const bool durable = persist(&entry, sizeof(entry), "pskiplist.append.entry"_site);  // PP
    if (!durable) return StatusCode::poisoned;
    node.tail = segment;
    fresh.segment = 0;
    return {};
  }

  // --- what an unlink frees ---

  template <class Site>
  void retire_value(std::uint64_t value, std::uint64_t stamp, Site site) {
    if (!record_values_ || (stamp & (layout::kRemoved | layout::kDropped)) != 0) return;
    context_.heap.retire(value, site);
  }
  [[gnu::noinline]] void retire_segments(std::uint64_t first, std::uint64_t end = 0) {
    for (std::uint64_t segment = first; segment != 0 && segment != end;) {
      const std::uint64_t next = load(segment_at(segment).next);
      context_.heap.retire(segment, "pskiplist.history.retire"_site);
      segment = next;
    }
  }
  // No version that can be read sees the key: gives its slot back, and all that the slot names. A
  // trim holds the node, or an erase has stamped it.
  [[gnu::noinline]] Status give_back(std::uint32_t number, const Probe& probe) {
    const Node& node = nodes_[number];
    const std::uint64_t offset = node.slot.load(std::memory_order_relaxed);
    Slot& slot = slot_at(offset);
    PERDURE_ASSERT(P, "pskiplist.I4",
                   node.load().phase() == Phase::held ||
                       node.load() == State::of(Phase::stamped, node.end().version()));
    const std::uint64_t first = load(slot.first.stamp);
    Status done = store_durably(slot.first.stamp, 0, "pskiplist.erase.slot"_site);  // PP(erase)
    if (!done.ok()) return done;
    retire_value(load(slot.first.value), first, "pskiplist.erase.retire"_site);
    for (std::uint64_t s = load(slot.more); s != 0; s = load(segment_at(s).next)) {
      for (std::uint32_t i = 0; i < capacity_of(s); ++i) {
        const Entry& entry = entry_at(entry_offset(s, i));
        const std::uint64_t stamp = load(entry.stamp);
        if (stamp == 0) break;
        retire_value(load(entry.value), stamp, "pskiplist.erase.retire"_site);
      }
    }
    free_slot(offset, number, probe, "pskiplist.erase.retire_key"_site);
    reserve_.room();
    return {};
  }
  // The slot is durably free: frees its segments, its key and its node, then itself.
  template <class Site>
  void free_slot(std::uint64_t offset, std::uint32_t number, const Probe& probe, Site site) {
    retire_segments(load(slot_at(offset).more));
    if (Codec::kBytes) context_.heap.retire(nodes_[number].key, site);
    const typename Chain::Place place{offset, nodes_[number].block};
    bury(number, probe);
    chain_.release(place);
  }
  // The node has no slot: it leaves the directory, then is freed.
  [[gnu::noinline]] void bury(std::uint32_t number, const Probe& probe) {
    PERDURE_ASSERT(P, "pskiplist.I5", has_no_slot(nodes_[number]));
    nodes_[number].set(State::of(Phase::dead, 0));
    directory_.remove(probe, number);
    context_.epochs.retire(kNodeReclaimer, &nodes_, number);
  }

  // --- inserts, puts, updates ---

  template <Mode kMode>
  Expected<bool> write(const detail::Key& key, const detail::Value& value,
                       const detail::Value* expected = nullptr) {
    if (Status s = validate(key, value, !record_values_, record_values_); !s.ok())
      return fail(std::move(s));
    context_.background.help();
    const Probe probe = Codec::probe(key);
    return with_room([&] { return write_once<kMode>(probe, value, expected); });
  }

 private:
  // --- room for the next entry ---

  // Returns the number of entries of the segment that the next entry needs, or 0.
  [[gnu::noinline]] std::uint32_t next_segment(Node& node) const {
    return must_grow(node) ? first_or_next(node) : 0;
  }
  // Whether the next entry begins a segment. A rollback leaves empty segments linked.
  [[gnu::noinline]] bool must_grow(Node& node) const {
    if (node.tail == 0) return true;
    if (used_in_tail(node) < capacity_of(node.tail)) return false;
    const std::uint64_t next = load(segment_at(node.tail).next);
    if (next == 0) return true;
    node.tail = next;
    return false;
  }
  // Returns the number of entries in the tail. The last entry lies there, or a rollback has left
  // the tail empty.
  std::uint32_t used_in_tail(const Node& node) const {
    const std::uint64_t before =  // entries in front of the last, if it lies there
        (node.last.load(std::memory_order_relaxed) - entry_offset(node.tail, 0)) / sizeof(Entry);
    return before < capacity_of(node.tail) ? static_cast<std::uint32_t>(before + 1) : 0;
  }
  std::uint32_t first_or_next(const Node& node) const {
    return node.tail == 0 ? T::Geometry::kFirstEntries : 2 * capacity_of(node.tail);
  }
  // Allocates a segment for the node's next entry. In a full pool one of the reserve, of the
  // smallest size, will do.
  [[gnu::noinline]] Expected<std::uint64_t> new_segment(const Node& node, bool reserved) {
    const std::uint32_t entries = first_or_next(node);
    auto block = context_.heap.allocate(entry_offset(0, entries), BlockKind::zero_on_free);
    if (block) {
      reserve_.refill();
    } else if (reserved && block.error() == StatusCode::pool_full) {
      if (const std::uint64_t segment = reserve_.take(); segment != 0) return segment;
    }
    return block;
  }

  // --- nodes without a slot ---

  // Whether the node's slot is durably free, or it never got one.
  bool has_no_slot(const Node& node) const {
    const std::uint64_t slot = node.slot.load(std::memory_order_relaxed);
    if (slot == 0) return true;
    const std::uint64_t& stamp = slot_at(slot).first.stamp;
    return load(stamp) == 0 && context_.platform.persisted(&stamp, sizeof(stamp));
  }
  static void free_node(void* nodes, std::uint64_t number) {
    static_cast<NodeTable<P>*>(nodes)->give(static_cast<std::uint32_t>(number));
  }
  static constexpr Reclaimer kNodeReclaimer{nullptr, &free_node};

  // --- one attempt at a write ---

  // Makes durable records of the value, and of the key if it is new (pskiplist.I9).
  [[gnu::noinline]] Status make_records(const Probe& probe, const detail::Value& value, bool key,
                                        Fresh& fresh) {
    bool made = false;
    if (record_values_ && fresh.value == 0) {
      auto block = records_.write({}, value, "pskiplist.record.write"_site);
      if (!block) return std::move(block.error());
      fresh.value = *block;
      made = true;
    }
    if (Codec::kBytes && key && fresh.key == 0) {
      auto block = records_.write(probe.bytes, {.word_size = 8}, "pskiplist.record.write"_site);
      if (!block) return std::move(block.error());
      fresh.key = *block;
      made = true;
    }
    if (made && !context_.platform.fence("pskiplist.record.write"_site)) {
      return StatusCode::poisoned;
    }
    for ([[maybe_unused]] const std::uint64_t record : {fresh.key, fresh.value}) {
      PERDURE_ASSERT(P, "pskiplist.I9", record == 0 || persisted(record, sizeof(RecordPrefix)));
    }
    return {};
  }
  // In a poisoned pool it frees nothing: the medium may name the blocks.
  [[gnu::noinline]] void discard(const Fresh& fresh) {
    if (context_.platform.poisoned()) return;
    for (const std::uint64_t block : {fresh.key, fresh.value, fresh.segment}) {
      if (block != 0) context_.heap.discard(block);
    }
    if (fresh.replaced != 0) context_.heap.retire(fresh.replaced, "pskiplist.update.retire"_site);
  }

  template <Mode kMode>
  [[gnu::noinline]] Expected<bool> write_once(const Probe& probe, const detail::Value& value,
                                              const detail::Value* expected) {
    MutationGuard<P> guard(context_.epochs);
    if (Status s = begin_mutation(guard, true); !s.ok()) return fail(std::move(s));
    Fresh fresh;
    std::uint32_t number = adds(kMode) ? directory_.find_maybe_new(probe) : directory_.find(probe);
    // A guess: so records are made, and their fence is over, before the node is held.
    if (record_values_ && number != 0 && kMode != Mode::put) {
      if (latest(nodes_[number]).present() == (kMode == Mode::insert)) {
        if (!adds(kMode)) return absent();
        if (!context_.platform.poisoned()) return false;
      }
    }
    Status s;
    if (record_values_ && (number != 0 || adds(kMode))) {
      s = make_records(probe, value, number == 0, fresh);
    }
    Expected<bool> done = false;
    for (unsigned spins = 0; s.ok(); P::pause(spins++)) {
      State held = State::of(Phase::held, 0);
      if (number != 0) {
        if (hold(nodes_[number], held)) {
          done = write_held<kMode>(number, probe, held, value, expected, fresh);
          break;
        }
        // Dead: it is about to leave its leaf. The hints say sooner that it has gone.
        number = directory_.find_listed(probe);
        continue;
      }
      if (!adds(kMode)) {
        done = absent();
        break;
      }
      if (s = make_records(probe, value, true, fresh); !s.ok()) break;
      const std::uint32_t mine = nodes_.take();
      if (mine == 0) {
        s = StatusCode::pool_full;  // nodes of dead keys may be in limbo
        break;
      }
      nodes_[mine].key = Codec::kBytes ? fresh.key : probe.word;
      auto there = directory_.put(probe, mine);
      if (!there || *there != 0) nodes_.give(mine);
      if (!there) {
        s = this->of_this_map(std::move(there.error()));
      } else if (*there == 0) {
        done = write_held<kMode>(mine, probe, held, value, expected, fresh);
        break;
      } else {
        number = *there;
      }
    }
    discard(fresh);
    if (!s.ok()) return fail(std::move(s));
    if (adds(kMode) && done && *done) came();
    return done;
  }
  template <Mode kMode>
  [[gnu::noinline]] Expected<bool> write_held(std::uint32_t number, const Probe& probe, State held,
                                              const detail::Value& value,
                                              const detail::Value* expected, Fresh& fresh) {
    P& platform = context_.platform;
    Node& node = nodes_[number];
    const bool present = node.end().present();
    if (platform.poisoned() || (kMode == Mode::insert && present) || (!adds(kMode) && !present)) {
      let_go(node, held, false);
      if (platform.poisoned()) return fail(platform.failure());
      return false;
    }
    if (kMode == Mode::update && expected != nullptr) [[unlikely]] {
      auto same = holds_value(node, *expected);
      if (!same || !*same) {
        let_go(node, held, false);
        return same;
      }
    }
    const bool is_new = node.slot.load(std::memory_order_relaxed) == 0;
    PERDURE_ASSERT(P, "pskiplist.I2", is_new == (node.end().entry == 0));
    Status s = make_records(probe, value, is_new, fresh);
    if (is_new && s.ok()) {
      auto place = chain_.claim();
      if (place) {
        node.block = place->block;
        nodes_.set_slot(number, place->slot);
      } else {
        s = std::move(place.error());
      }
    }
    std::uint64_t version = 0;
    if (s.ok()) {
      auto stamped = is_new ? Expected<std::uint64_t>(stamp(node, held))
                            : stamp_with_room(node, held, false, fresh);
      if (stamped) {
        version = *stamped;
      } else {
        s = std::move(stamped.error());
      }
    }
    if (!s.ok()) {
      if (is_new) {
        bury(number, probe);
        // It was in the directory: another thread may be comparing its key with this one.
        if (fresh.key != 0 && !platform.poisoned()) context_.heap.retire(fresh.key);
        fresh.key = 0;
      } else {
        let_go(node, held, false);
      }
      return fail(std::move(s));
    }
    const std::uint64_t word = record_values_ ? fresh.value : value.word;
    if (is_new) {
      s = write_first(node, held, version, probe, word, fresh);
      fresh.key = 0;
    } else if (node.end().version() == version) {
      if (present && record_values_) fresh.replaced = node.value.load(std::memory_order_relaxed);
      s = write_in_place(node, held, version, word, false);
    } else {
      s = append(node, held, version, word, false, fresh);
    }
    fresh.value = 0;
    PERDURE_ASSERT(P, "pskiplist.N3", !s.ok() || persisted(node.end().entry, sizeof(Entry)));
    let_go(node, held, true);
    if (!s.ok()) return fail(std::move(s));
    return adds(kMode) ? !present : present;
  }

  // Whether the key has the value. The node is held, and the key is present.
  [[gnu::noinline]] Expected<bool> holds_value(const Node& node,
                                               const detail::Value& expected) const {
    const std::uint64_t word = node.value.load(std::memory_order_relaxed);
    detail::Value value;
    if (!value_of(word, value)) return fail(this->damaged_record(word));
    return detail::same_value(value, expected) ? Expected<bool>(true) : absent();
  }

  [[gnu::noinline]] Expected<bool> erase_once(const Probe& probe, const detail::Value* expected,
                                              bool full) {
    P& platform = context_.platform;
    MutationGuard<P> guard(context_.epochs);
    if (Status s = begin_mutation(guard, false); !s.ok()) return fail(std::move(s));
    const std::uint32_t number = find_with_slot(probe);
    if (number == 0) return absent();
    Node& node = nodes_[number];
    State held{};
    if (!hold(node, held)) return absent();
    if (platform.poisoned() || !node.end().present()) {
      let_go(node, held, false);
      return absent();
    }
    if (expected != nullptr) {
      auto same = holds_value(node, *expected);
      if (!same || !*same) {
        let_go(node, held, false);
        return same;
      }
    }
    Fresh fresh;
    auto version = stamp_with_room(node, held, full, fresh);
    if (!version) {
      let_go(node, held, false);
      return fail(std::move(version.error()));
    }
    const std::uint64_t value = node.value.load(std::memory_order_relaxed);
    Status s;
    if (node.end().version() != *version) {
      s = append(node, held, *version, 0, true, fresh);
    } else if (node.end().entries == 1) {
      s = give_back(number, probe);
      if (s.ok()) {
        discard(fresh);
        return went();
      }
    } else {
      if (record_values_) fresh.replaced = value;
      s = write_in_place(node, held, *version, 0, true);
    }
    PERDURE_ASSERT(P, "pskiplist.N3", !s.ok() || persisted(node.end().entry, sizeof(Entry)));
    let_go(node, held, true);
    discard(fresh);
    if (!s.ok()) return fail(std::move(s));
    return went();
  }

  std::uint64_t replayed_from_ = 0;  // the open version

 public:
  Expected<bool> remove(const detail::Key& key, const detail::Value* expected) {
    if (Status s = validate(key); !s.ok()) return fail(std::move(s));
    context_.background.help();
    const Probe probe = Codec::probe(key);
    bool full = false;  // after the first failure, with the reserve for erases
    return with_room([&] { return erase_once(probe, expected, std::exchange(full, true)); });
  }

  // --- batches (pool/batch.h) ---

  // The blocks that the mutations of a batch will allocate.
  Status plan_batch(const BatchPlan& plan) override {
    EpochGuard<P> guard(context_.epochs);
    if (Status s = begin_read(guard); !s.ok()) return s;
    if (context_.platform.load(root_->rollback_to) != 0) {
      return Status::format(StatusCode::busy, "a rollback is under way");
    }
    std::uint64_t slots = 0;
    std::uint64_t segments = 0;
    for (std::size_t i = 0; i < plan.mutations.size(); ++i) {
      const detail::Mutation& mutation = plan.mutations[i];
      const Probe probe = Codec::probe(mutation.key);
      const std::uint32_t number = directory_.find(probe);
      bool added = true;
      if (mutation.kind != MutationKind::erase && record_values_) {
        added = plan.needs.add(RecordView::bytes_needed({}, mutation.value), BlockKind::plain);
      }
      if (number == 0) {
        ++slots;
        if (Codec::kBytes) {
          added =
              added && plan.needs.add(RecordView::bytes_needed(probe.bytes, {}), BlockKind::plain);
        }
      } else if (const std::uint32_t entries = next_segment(nodes_[number]);
                 entries != 0 && nodes_[number].end().version() != clock()) {
        ++segments;
        added = added && plan.needs.add(entry_offset(0, entries), BlockKind::zero_on_free);
      }
      if (!added) return StatusCode::out_of_memory;
    }
    const std::uint64_t blocks = slots == 0 ? 0 : slots / Chain::kSlots + 1;
    const bool added =
        plan.needs.add(Chain::kBlockBytes, BlockKind::zero_on_free, blocks) &&
        (segments == 0 || plan.needs.add(entry_offset(0, T::Geometry::kFirstEntries),
                                         BlockKind::zero_on_free, reserve_.missing()));
    return added ? Status() : StatusCode::out_of_memory;
  }
  // The version in which they lie.
  std::uint64_t batch_version() override { return clock(); }
  void begin_replay(std::uint64_t version) override {
    replayed_from_ = clock();
    clock_.store(version, std::memory_order_seq_cst);
  }
  void end_replay() override { clock_.store(replayed_from_, std::memory_order_seq_cst); }
};

}  // namespace perdure::pskiplist
