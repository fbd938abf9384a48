// Lookup: read and read_many. No result rests on a word that is not durable (skiplist.I7).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "index/skiplist/search.h"

namespace perdure::skiplist {

template <class T>
class Lookup : public Search<T> {
  using Base = Search<T>;

 protected:
  using Base::Base, Base::advance, Base::context_, Base::deliver, Base::fingers_, Base::kGroup,
      Base::missing, Base::offset_of, Base::persist, Base::stripes_, Base::value_checks;
  using typename Base::P, typename Base::Codec, typename Base::Keys, typename Base::Kind,
      typename Base::Order, typename Base::Places, typename Base::Reach, typename Base::Visit,
      typename Base::Walk;

  [[gnu::always_inline]] Expected<bool> find(const detail::Key& key, Visit visit) {
    const Probe probe = Codec::probe(key);
    Node* node = nullptr;
    const Node* rest = nullptr;
    if (Status s = this->template search<Reach::node>(probe, nullptr, node, &rest); !s.ok()) {
      return fail(std::move(s));
    }
    if (node != nullptr && fingers_.vacant(probe.word)) [[unlikely]]
      this->remember(node);
    return show(node, rest, visit);
  }

  struct Group {
    Probe probes[kGroup];
    Walk walks[kGroup];
  };
  // The walks take turns, one node each.
  [[gnu::always_inline]] Status fetch(Keys keys, Group& group) const {
    auto& [probes, walks] = group;
    Places places[kGroup];
    std::uint32_t order[kGroup];  // of the walks that are not over
    const std::size_t n = keys.size();
    std::uint32_t going = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      probes[i] = Codec::probe(keys[i]);
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
        if (where == Order::damaged) return damaged_at(walk.link & kOffsetMask);
        if (where == Order::before) this->limit(walk);
        if (where != Order::equal && advance(walk, nullptr)) order[left++] = order[k];
      }
      going = left;
    }
    return {};
  }
  [[gnu::always_inline]] Expected<bool> find_fetched(const Group& group, std::size_t i,
                                                     Visit visit) {
    const Walk& walk = group.walks[i];
    return show(walk.hit, walk.hit != nullptr ? walk.hit : walk.at, visit);
  }

  // As value_of(), for a result. In a pool that was closed cleanly it verifies the value's check
  // until the walk has visited every node. An update stores the two words one after the other. If
  // its thread has lost its core in between, or if the words are damaged, the node's stripe tells.
  [[gnu::always_inline]] bool checked_value(const Node* node, detail::Value& value) {
    if (Base::kUpperDurable && !this->marked() && this->trusted_ && !value_checks(node))
        [[unlikely]] {
      bool checks = false;
      for (unsigned i = 0; i < P::kPatience && !checks; ++i) {
        P::pause(i);
        checks = value_checks(node);
      }
      if (!checks) {
        const LatchGuard latch(stripes_.of(offset_of(node)).latch);
        if (!matches<P>(value_checks(node), kSite<Kind, "value.check">)) return false;
      }
    }
    return this->value_of(node, value);
  }

  // Makes what a result that rests on this node has seen durable (skiplist.I7). Returns false if
  // the pool is poisoned.
  [[gnu::always_inline]] bool help(const Node* rest) {
    const std::uint64_t* word = stripes_.in_flight(offset_of(rest));
    if (word == nullptr) [[likely]]
      return true;
    return write_back(word);
  }

 private:
  [[gnu::noinline]] bool write_back(const std::uint64_t* word) {
    return persist(word, sizeof(*word), kSite<Kind, "help.word">);
  }

  [[gnu::always_inline]] Expected<bool> show(const Node* node, const Node* rest, Visit visit) {
    detail::Value value;
    const bool readable = node == nullptr || checked_value(node, value);
    const bool durable = help(rest);
    if (!durable || context_.platform.poisoned()) [[unlikely]]
      return fail(context_.platform.failure());
    if (node == nullptr) return missing();
    if (!readable) return fail(damaged_at(offset_of(node)));
    return deliver(value, visit);
  }
};

}  // namespace perdure::skiplist
