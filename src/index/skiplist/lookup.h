// Lookup: read and read_many. No result rests on a word that is not durable (skiplist.I7).
#pragma once

#include <algorithm>
#include <span>

#include "index/skiplist/search.h"

namespace perdure::skiplist {

template <class T>
class Lookup : public Search<T> {
  using Base = Search<T>;

 public:
  Expected<bool> read(const detail::Key& key,
                      FunctionRef<void(const detail::Value&)> visit) override {
    EpochGuard<P> guard(context_.epochs);
    if (Status s = begin_read(guard); !s.ok()) return fail(std::move(s));
    const Probe probe = Codec::probe(key);
    Node* node = nullptr;
    if (Status s = this->template search<Reach::node>(probe, nullptr, node); !s.ok()) {
      return fail(std::move(s));
    }
    if (node != nullptr && fingers_.vacant(probe.word)) [[unlikely]]
      this->remember(node);
    return deliver(probe, node, visit);
  }

  // The walks of a group take turns, one node each. Their cache misses overlap.
  Expected<std::uint64_t> read_many(
      std::span<const detail::Key> keys,
      FunctionRef<void(std::size_t, const detail::Value&)> visit) override {
    EpochGuard<P> guard(context_.epochs);
    if (Status s = begin_read(guard); !s.ok()) return fail(std::move(s));
    std::uint64_t present = 0;
    Probe probes[kGroup];
    Walk walks[kGroup];
    Places places[kGroup];
    std::uint32_t order[kGroup];  // of the walks that are not over
    for (std::size_t begin = 0; begin < keys.size(); begin += kGroup) {
      const std::size_t n = std::min<std::size_t>(kGroup, keys.size() - begin);
      std::uint32_t going = 0;
      for (std::uint32_t i = 0; i < n; ++i) {
        probes[i] = Codec::probe(keys[begin + i]);
        fingers_.prefetch(probes[i].word);
      }
      for (std::uint32_t i = 0; i < n; ++i) this->near(probes[i], places[i]);
      for (std::uint32_t i = 0; i < n; ++i) {
        walks[i] = this->from_head();
        Order where = Order::before;
        Node* from = this->finger(probes[i], places[i], true, where);
        if (from != nullptr) walks[i] = this->from_finger(from);
        if (where == Order::equal && from != nullptr) {
          walks[i].hit = from;
        } else if (advance(walks[i], nullptr)) {
          order[going++] = i;
        }
      }
      while (going > 0) {
        std::uint32_t left = 0;
        for (std::uint32_t k = 0; k < going; ++k) {
          Walk& walk = walks[order[k]];
          const Order where = this->judge(walk, probes[order[k]]);
          if (where == Order::damaged) return fail(damaged_at(walk.link & kOffsetMask));
          if (where == Order::before) this->limit(walk);
          if (where != Order::equal && advance(walk, nullptr)) order[left++] = order[k];
        }
        going = left;
      }
      for (std::size_t i = 0; i < n; ++i) {
        auto found = deliver(probes[i], walks[i].hit,
                             [&](const detail::Value& value) { visit(begin + i, value); });
        if (!found) return fail(std::move(found.error()));
        present += *found ? 1 : 0;
      }
    }
    return present;
  }

 protected:
  using Base::Base, Base::advance, Base::begin_read, Base::context_, Base::fingers_,
      Base::in_flight_, Base::latch_, Base::missing, Base::offset_of, Base::value_checks;
  using typename Base::P, typename Base::Codec, typename Base::Kind, typename Base::Order,
      typename Base::Places, typename Base::Reach, typename Base::Walk;

  // As value_of(), for a result. In a pool that was closed cleanly it verifies the value's check
  // until the walk has visited every node. An update stores the two words one after the other. If
  // its thread has lost its core in between, or if the words are damaged, the latch tells.
  [[gnu::always_inline]] bool checked_value(const Node* node, detail::Value& value) {
    if (Base::kUpperDurable && !this->marked() && this->trusted_ && !value_checks(node))
        [[unlikely]] {
      bool checks = false;
      for (unsigned i = 0; i < P::kPatience && !checks; ++i) {
        P::pause(i);
        checks = value_checks(node);
      }
      if (!checks) {
        const LatchGuard latch(latch_);
        if (!matches<P>(value_checks(node), kSite<Kind, "value.check">)) return false;
      }
    }
    return this->value_of(node, value);
  }

  // Makes the word that is in flight durable (skiplist.I7). Returns false if the pool is poisoned.
  [[gnu::always_inline]] bool help(const std::uint64_t* word) {
    if (word == nullptr) [[likely]]
      return true;
    context_.platform.flush(word, sizeof(*word), kSite<Kind, "help.word">);
    return context_.platform.fence(kSite<Kind, "help.word">);
  }

 private:
  static constexpr std::uint32_t kGroup = 16;  // lookups in flight in read_many

  [[gnu::always_inline]] Expected<bool> deliver(const Probe& probe, const Node* node,
                                                FunctionRef<void(const detail::Value&)> visit) {
    detail::Value value;
    const bool readable = node == nullptr || checked_value(node, value);
    const bool durable = help(in_flight_.about(probe.word));
    if (!durable || context_.platform.poisoned()) [[unlikely]]
      return fail(context_.platform.failure());
    if (node == nullptr) return missing();
    if (!readable) return fail(damaged_at(offset_of(node)));
    visit(value);
    // The bytes may have come from pages that were lost meanwhile.
    if (context_.platform.poisoned()) [[unlikely]]
      return fail(context_.platform.failure());
    return true;
  }
};

}  // namespace perdure::skiplist
