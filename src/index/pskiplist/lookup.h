// Lookup: the entry that counts in the latest state, or at a closed version; finds of one key and
// of many. Responsible for the readers' side of pskiplist.I3 and pskiplist.I6.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "index/pskiplist/history.h"

namespace perdure::pskiplist {

template <class T>
class Lookup : public History<T> {
 protected:
  using Base = History<T>;
  using Base::absent, Base::clock, Base::context_, Base::deliver, Base::directory_, Base::kGroup;
  using Base::Base;
  using Base::entry_at, Base::horizon_, Base::nodes_, Base::persist, Base::search, Base::slot_at;
  using Base::value_of;
  using typename Base::Codec, typename Base::Keys, typename Base::P, typename Base::Visit;
  using typename Base::Node;

  // Returns the key's node, or 0, for a caller that goes on to the slot. If the guess is right,
  // both misses overlap.
  [[gnu::always_inline]] std::uint32_t find_with_slot(const Probe& probe) const {
    return directory_.find(
        probe, [&](std::uint32_t node) { __builtin_prefetch(&slot_at(nodes_.likely_slot(node))); });
  }
  // Returns the node's state after every write of a version up to this one has come, or is `stored`
  // (pskiplist.I3).
  [[gnu::always_inline]] State settle_state(Node& node, std::uint64_t version) const {
    for (unsigned spins = 0;; P::pause(spins++)) {
      State seen = node.load();
      if (seen.phase() == Phase::unstamped) {
        (void)node.change(seen, State::of(Phase::stamped, clock()));
        seen = node.load();
      }
      if (seen.phase() == Phase::unstamped) continue;
      if (seen.phase() != Phase::stamped || seen.number() > version) return seen;
    }
  }
  // LP: the second load of the state.
  [[gnu::always_inline]] End latest(Node& node) const {
    for (;;) {
      const State state = settle_state(node, kLatest);
      if (state.phase() == Phase::dead) return {};
      const End end = node.end();
      if (state.phase() == Phase::stored) help(end.entry);
      if (node.load() == state) return end;
    }
  }
  // Makes an entry durable that its writer is about to make durable.
  [[gnu::noinline]] void help(std::uint64_t entry) const {
    (void)persist(&entry_at(entry), sizeof(Entry), "pskiplist.find.help"_site);
  }
  // Returns the entry that counts at a closed version. Entries that come meanwhile have later
  // versions, and lie behind. So if the node is being written, its slot still says where the
  // history begins, and the history is searched.
  [[gnu::noinline]] Found as_of(Node& node, std::uint64_t version) const {
    const State state = settle_state(node, version);
    if (state.phase() == Phase::dead) return {};
    const std::uint64_t slot = node.slot.load(std::memory_order_acquire);
    const End end = node.end();
    if (state.phase() == Phase::idle && node.load() == state) {  // pskiplist.N2
      if (end.version() <= version) return Found::of(end);
      return end.entries != 1 ? search(slot, version, end.entries - 1) : Found{};
    }
    if (state.phase() == Phase::stored) help(end.entry);
    return slot != 0 ? search(slot, version, ~0U) : Found{};
  }

  [[gnu::noinline]] Status readable(std::uint64_t version) const {
    const std::uint64_t first = horizon_.load(std::memory_order_seq_cst);
    const std::uint64_t last = clock() - 1;
    if (version >= first && version <= last) [[likely]]
      return {};
    if (last < first) {
      return Status::format(StatusCode::invalid_argument,
                            "version %llu: no tag has closed it yet; no version can be read",
                            static_cast<unsigned long long>(version));
    }
    return Status::format(
        StatusCode::invalid_argument, "version %llu: %s; readable versions: %llu to %llu",
        static_cast<unsigned long long>(version),
        version < first ? "it was trimmed, or never was" : "no tag has closed it yet",
        static_cast<unsigned long long>(first), static_cast<unsigned long long>(last));
  }
  // At a version, the horizon is loaded last (pskiplist.I6): a trimmed entry may have been reused.
  [[gnu::always_inline]] Expected<bool> show(const Found& found, std::uint64_t version,
                                             Visit visit) const {
    detail::Value value;
    const bool sound = !found.present || value_of(found.word, value);
    if (version != kLatest) {
      if (Status s = readable(version); !s.ok()) return fail(std::move(s));
    }
    // The entry may have been read from pages that were lost meanwhile.
    if (context_.platform.poisoned()) [[unlikely]]
      return fail(context_.platform.failure());
    if (!found.present) return false;
    if (!sound) return fail(Records<P>::damaged(found.word));
    return deliver(value, visit);
  }

  [[gnu::always_inline]] Expected<bool> find(const detail::Key& key, Visit visit) {
    const std::uint32_t number = directory_.find(Codec::probe(key));
    return find_node(number, visit);
  }
  struct Group {
    std::uint32_t numbers[kGroup];
  };
  [[gnu::always_inline]] Status fetch(Keys keys, Group& group) const {
    auto& numbers = group.numbers;
    Probe probes[kGroup];
    const std::size_t n = keys.size();
    for (std::size_t i = 0; i < n; ++i) {
      probes[i] = Codec::probe(keys[i]);
      directory_.prefetch_hint(probes[i]);
    }
    for (std::size_t i = 0; i < n; ++i) {
      numbers[i] = directory_.prefetch_node(probes[i]);
      if (numbers[i] == 0) directory_.prefetch_shortcut(probes[i]);
    }
    for (std::size_t i = 0; i < n; ++i) directory_.prefetch_key(numbers[i]);
    for (std::size_t i = 0; i < n; ++i) {
      numbers[i] = directory_.find_hinted(probes[i]);
      if (numbers[i] == 0) directory_.prefetch_leaf(probes[i]);
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (numbers[i] != 0) continue;
      numbers[i] = directory_.find_listed(probes[i]);
      __builtin_prefetch(&nodes_[numbers[i]]);
    }
    return {};
  }
  [[gnu::always_inline]] Expected<bool> find_fetched(const Group& group, std::size_t i,
                                                     Visit visit) {
    return find_node(group.numbers[i], visit);
  }

 private:
  // `number`: 0 if the key has no node.
  [[gnu::always_inline]] Expected<bool> find_node(std::uint32_t number, Visit visit) {
    if (number == 0) return absent();
    return show(Found::of(latest(nodes_[number])), kLatest, visit);
  }
};

}  // namespace perdure::pskiplist
