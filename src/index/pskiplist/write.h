// Write: insert, put, update, erase. Responsible for pskiplist.I2, and for records in pskiplist.I9.
#pragma once

#include <cstdint>
#include <utility>

#include "index/pskiplist/mutation.h"

namespace perdure::pskiplist {

template <class T>
class Write : public Mutation<T> {
 protected:
  using Base = Mutation<T>;
  using Base::absent, Base::adds, Base::append, Base::begin_mutation, Base::bury, Base::chain_;
  using Base::Base;
  using Base::context_, Base::nodes_;
  using Base::directory_, Base::find_with_slot, Base::give_back, Base::hold, Base::latest;
  using Base::let_go, Base::persisted, Base::record_values_, Base::records_, Base::stamp;
  using Base::stamp_with_room, Base::validate, Base::with_room, Base::write_first;
  using Base::write_in_place;
  using typename Base::Codec, typename Base::P;
  using typename Base::Mode, typename Base::Node;

  template <Mode kMode>
  Expected<bool> write(const detail::Key& key, const detail::Value& value,
                       const detail::Value* expected = nullptr) {
    if (Status s = validate(key, value, !record_values_, record_values_); !s.ok())
      return fail(std::move(s));
    context_.background.help();
    const Probe probe = Codec::probe(key);
    return with_room([&] { return write_once<kMode>(probe, value, expected); });
  }

 public:
  Expected<bool> remove(const detail::Key& key, const detail::Value* expected) {
    if (Status s = validate(key); !s.ok()) return fail(std::move(s));
    context_.background.help();
    const Probe probe = Codec::probe(key);
    bool full = false;  // after the first failure, with the reserve for erases
    return with_room([&] { return erase_once(probe, expected, std::exchange(full, true)); });
  }

 private:
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
    std::uint32_t number = !adds(kMode)            ? directory_.find(probe)
                           : kMode == Mode::insert ? directory_.find_likely_new(probe)
                                                   : directory_.find_maybe_new(probe);
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
        number = directory_.find(probe);  // dead: it is about to leave
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
        s = std::move(there.error());
      } else if (*there == 0) {
        done = write_held<kMode>(mine, probe, held, value, expected, fresh);
        break;
      } else {
        number = *there;
      }
    }
    discard(fresh);
    if (!s.ok()) return fail(std::move(s));
    if (adds(kMode) && done && *done) this->came();
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
    if (!this->value_of(word, value)) return fail(records_.damaged(word));
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
        return this->went();
      }
    } else {
      if (record_values_) fresh.replaced = value;
      s = write_in_place(node, held, *version, 0, true);
    }
    PERDURE_ASSERT(P, "pskiplist.N3", !s.ok() || persisted(node.end().entry, sizeof(Entry)));
    let_go(node, held, true);
    discard(fresh);
    if (!s.ok()) return fail(std::move(s));
    return this->went();
  }
};

}  // namespace perdure::pskiplist
