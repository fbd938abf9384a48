// Scan: batches of entries of level 0.
//
// Forwards a scan continues behind the last node that it has delivered. If that node was erased
// between two batches, the scan searches its place again: the links of the node (skiplist.I8) lead
// to nodes that were erased behind it, however long ago. Backwards a scan searches, for each batch,
// a node that lies some entries before the last one, and goes forwards from there. A key that is
// there throughout lies on every such way. The batch rests on the value and on the link of each
// node that it passes (skiplist.I7).
#pragma once

#include <algorithm>
#include <span>

#include "index/skiplist/lookup.h"

namespace perdure::skiplist {

template <class T>
class Scan : public Lookup<T> {
  using Base = Lookup<T>;

 public:
  Expected<void> scan(const detail::ScanRange& range,
                      FunctionRef<bool(std::span<const detail::Entry>)> visit) override {
    Bounds bounds{.has_from = range.from.has_value(), .has_to = range.to.has_value()};
    if (bounds.has_from) bounds.from = Codec::probe(*range.from);
    if (bounds.has_to) bounds.to = Codec::probe(*range.to);
    EpochGuard<P> guard(context_.epochs);
    if (Status s = this->begin_read(guard); !s.ok()) return fail(std::move(s));
    Node* at = head();
    if (bounds.has_from && !range.reverse) {
      if (Status s = search_before(bounds.from, at); !s.ok()) return fail(std::move(s));
    }
    detail::Entry entries[kBatch];
    std::uint64_t left = range.limit;
    for (bool end = false; !end && left > 0;) {
      const auto most = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, kBatch));
      if (this->erased(at)) [[unlikely]] {
        if (Status s = refind(at, bounds); !s.ok()) return fail(std::move(s));
      }
      auto count = range.reverse ? collect_back(bounds, most, entries, end)
                                 : collect(at, bounds, most, entries, end);
      if (context_.platform.poisoned()) return fail(context_.platform.failure());
      if (!count) return fail(std::move(count.error()));
      if (*count == 0) break;
      left -= *count;
      if (range.reverse) {
        const detail::Key& last = entries[*count - 1].key;
        bounds.has_to = true;
        bounds.to = {.word = last.word, .bytes = last.bytes};
      }
      const bool more = visit(std::span<const detail::Entry>(entries, *count));
      // The bytes may have come from pages that were lost meanwhile.
      if (context_.platform.poisoned()) return fail(context_.platform.failure());
      if (!more) break;
    }
    if (this->damaged()) return fail(known_damage());
    return {};
  }

 protected:
  using Base::Base, Base::context_, Base::follow, Base::follow_after, Base::head, Base::help,
      Base::key_of, Base::load_link, Base::node_at, Base::offset_of, Base::order;
  using typename Base::P, typename Base::Codec, typename Base::Order, typename Base::Path,
      typename Base::Reach;

 private:
  static constexpr std::uint32_t kBatch = 64;
  // A level with about a quarter of a batch between two nodes.
  static constexpr std::uint32_t kBackLevel = 4 / Base::G::kShift;

  struct Bounds {
    bool has_from = false;
    bool has_to = false;
    bool beyond = false;  // `from` itself was delivered
    Probe from;
    Probe to;
  };

  [[gnu::always_inline]] bool entry_of(const Node* node, detail::Entry& entry) {
    entry.key = {.word = context_.platform.load(node->key)};
    if constexpr (Codec::kBytes) {
      if (!key_of(node, entry.key.bytes)) return false;
    }
    return this->checked_value(node, entry.value);
  }

  // Sets `at` to the last node before the key.
  [[gnu::always_inline]] Status search_before(const Probe& probe, Node*& at) const {
    Path path;
    Node* found = nullptr;
    Status s = this->template search<Reach::lowest>(probe, &path, found);
    if (s.ok()) at = path.before[0];
    return s;
  }

  // The scan stands on an erased node. Sets `at` to the last node before its key that is in the
  // list now. The scan delivers greater keys from now on, and none before its own bound: `at` may
  // lie before that bound.
  [[gnu::noinline]] Status refind(Node*& at, Bounds& bounds) const {
    const Order where = bounds.has_from ? order(at, bounds.from) : Order::after;
    if (where == Order::damaged) return damaged_at(offset_of(at));
    if (where != Order::before) {
      bounds.has_from = bounds.beyond = true;
      bounds.from = {.word = context_.platform.load(at->key)};
      if constexpr (Codec::kBytes) {
        if (!key_of(at, bounds.from.bytes)) return damaged_at(offset_of(at));
      }
    }
    return search_before(bounds.from, at);
  }

  // Collects the entries behind `at`, which moves on to the last of them. Sets `end` if there are
  // no more. Keys before `from` may have come since the scan searched its place.
  [[gnu::noinline]] Expected<std::uint32_t> collect(Node*& at, const Bounds& bounds,
                                                    std::uint32_t most, detail::Entry* entries,
                                                    bool& end) {
    std::uint32_t count = 0;
    while (count < most) {
      const std::uint64_t link = load_link(at, 0);
      if (!help(at)) return fail(context_.platform.failure());  // of its value, too
      if (link == 0) break;
      Node* node = follow_after(at, link, 0);
      if (node == nullptr) return fail(damaged_at(link & kOffsetMask));
      __builtin_prefetch(node_at(load_link(node, 0) & kOffsetMask));
      const Order from = bounds.has_from ? order(node, bounds.from) : Order::after;
      const Order to = bounds.has_to ? order(node, bounds.to) : Order::before;
      if (from == Order::damaged || to == Order::damaged) return fail(damaged_at(offset_of(node)));
      if (to != Order::before) break;
      at = node;
      if (from == Order::before || (from == Order::equal && bounds.beyond)) continue;
      if (!entry_of(node, entries[count])) return fail(damaged_at(offset_of(node)));
      ++count;
    }
    end = count < most;
    if (!end && !help(at)) return fail(context_.platform.failure());
    return count;
  }

  // Collects the last entries before `to`, in descending order. Sets `end` if there are none before
  // them.
  [[gnu::noinline]] Expected<std::uint32_t> collect_back(const Bounds& bounds, std::uint32_t most,
                                                         detail::Entry* entries, bool& end) {
    Node* at = head();
    const auto beyond = [&](const Node* node) {
      return bounds.has_to ? order(node, bounds.to) : Order::before;
    };
    std::uint32_t level = this->levels() - 1;
    const std::uint32_t lowest = std::min(level, kBackLevel);
    Node* ring[kBatch];
    std::uint64_t passed = 0;
    const auto outside = [&](const Node* node) {
      return bounds.has_from && order(node, bounds.from) == Order::before;
    };
    const auto pass = [&](Node* node) {
      if (!outside(node)) ring[passed++ % most] = node;
    };
    for (bool low = false;;) {
      const std::uint64_t link = load_link(at, low ? 0 : level);
      if (low && !help(at)) return fail(context_.platform.failure());
      Order where = Order::after;
      Node* node = nullptr;
      if (link != 0) {
        node = follow(link, low ? 0 : level);
        where = node == nullptr ? Order::damaged : beyond(node);
        if (where == Order::damaged || !this->ascends(at, node)) {
          return fail(damaged_at(link & kOffsetMask));
        }
      }
      if (where == Order::before) {
        at = node;
        if (low) pass(node);
        continue;
      }
      if (low) break;
      if (level > lowest) {
        --level;
        continue;
      }
      low = true;
      end = at == head() || outside(at);
      if (!end) pass(at);
    }
    const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(passed, most));
    if (passed > most) end = false;
    for (std::uint32_t i = 0; i < count; ++i) {
      const Node* node = ring[(passed - 1 - i) % most];
      if (!entry_of(node, entries[i])) return fail(damaged_at(offset_of(node)));
      if (!help(node)) return fail(context_.platform.failure());
    }
    return count;
  }
};

}  // namespace perdure::skiplist
