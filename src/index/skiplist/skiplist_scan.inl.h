// Skiplist: scans. Included by skiplist.h only.
//
// Forward a scan goes on from the last node that it has delivered; if that was erased between two
// batches it looks for its place anew: by its links (skiplist.I8) it would come to what was erased
// behind it, however long ago. Backwards it looks, for each batch, for a node that lies some
// entries before the last one, and goes forward from there. A key that is there throughout lies on
// every such way.
#pragma once

#include <algorithm>

#include "index/skiplist/skiplist.h"

namespace perdure::skiplist {

template <Platform P, class Codec, class Kind, class G>
[[gnu::always_inline]] inline bool Skiplist<P, Codec, Kind, G>::entry_of(
    const Node* node, detail::Entry& entry) noexcept {
  entry.key = {.word = context_.platform.load(node->key)};
  if constexpr (Codec::kBytes) {
    if (!key_of(node, entry.key.bytes)) return false;
  }
  return answer_of(node, entry.value);
}

// For a scan that stands on an erased node: the last node before its key that is in the list now.
// What is delivered next has a greater key, and none before the scan's own bound: it may stand in
// front of that still.
template <Platform P, class Codec, class Kind, class G>
Status Skiplist<P, Codec, Kind, G>::refind(Node*& at, Bounds& bounds) const noexcept {
  const Order where = bounds.has_from ? order(at, bounds.from) : Order::after;
  if (where == Order::damaged) return damaged(offset_of(at));
  if (where != Order::before) {
    bounds.has_from = bounds.beyond = true;
    bounds.from = {.word = context_.platform.load(at->key)};
    if constexpr (Codec::kBytes) {
      if (!key_of(at, bounds.from.bytes)) return damaged(offset_of(at));
    }
  }
  Path path;
  Node* found = nullptr;
  Status s = search<Reach::lowest>(bounds.from, &path, found);
  if (s.ok()) at = path.before[0];
  return s;
}

// The entries behind `at`, which moves on to the last of them. `end`: there are no more. Keys
// before `from` may have come since the scan looked for it.
template <Platform P, class Codec, class Kind, class G>
Expected<std::uint32_t> Skiplist<P, Codec, Kind, G>::collect(Node*& at, const Bounds& bounds,
                                                             std::uint32_t most,
                                                             detail::Entry* entries,
                                                             bool& end) noexcept {
  std::uint32_t count = 0;
  while (count < most) {
    const std::uint64_t link = load_link(at, 0);
    if (link == 0) break;
    Node* node = follow(link, 0);
    if (node == nullptr || !ascends(at, node)) return fail(damaged(link & kOffsetMask));
    __builtin_prefetch(node_at(load_link(node, 0) & kOffsetMask));
    const Order from = bounds.has_from ? order(node, bounds.from) : Order::after;
    const Order to = bounds.has_to ? order(node, bounds.to) : Order::before;
    if (from == Order::damaged || to == Order::damaged) return fail(damaged(offset_of(node)));
    if (to != Order::before) break;
    if (from == Order::before || (from == Order::equal && bounds.beyond)) {
      at = node;
      continue;
    }
    if (!entry_of(node, entries[count])) return fail(damaged(offset_of(node)));
    ++count;
    at = node;
  }
  end = count < most;
  return count;
}

// The last entries before `to`, in descending order. `end`: there are none before them.
template <Platform P, class Codec, class Kind, class G>
Expected<std::uint32_t> Skiplist<P, Codec, Kind, G>::collect_back(const Bounds& bounds,
                                                                  std::uint32_t most,
                                                                  detail::Entry* entries,
                                                                  bool& end) noexcept {
  Node* at = head();
  const auto beyond = [&](const Node* node) {
    return bounds.has_to ? order(node, bounds.to) : Order::before;
  };
  std::uint32_t level = levels() - 1;
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
    Order where = Order::after;
    Node* node = nullptr;
    if (link != 0) {
      node = follow(link, low ? 0 : level);
      where = node == nullptr ? Order::damaged : beyond(node);
      if (where == Order::damaged || !ascends(at, node)) {
        return fail(damaged(link & kOffsetMask));
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
    if (!entry_of(node, entries[i])) return fail(damaged(offset_of(node)));
  }
  return count;
}

template <Platform P, class Codec, class Kind, class G>
Expected<void> Skiplist<P, Codec, Kind, G>::scan(
    const detail::ScanRange& range, FunctionRef<bool(std::span<const detail::Entry>)> visit) {
  Bounds bounds{.has_from = range.from.has_value(), .has_to = range.to.has_value()};
  if (bounds.has_from) bounds.from = Codec::probe(*range.from);
  if (bounds.has_to) bounds.to = Codec::probe(*range.to);
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_read(guard); !s.ok()) return fail(std::move(s));
  Node* at = head();
  if (bounds.has_from && !range.reverse) {
    Path path;
    Node* found = nullptr;
    if (Status s = search<Reach::lowest>(bounds.from, &path, found); !s.ok())
      return fail(std::move(s));
    at = path.before[0];
  }
  detail::Entry entries[kBatch];
  std::uint64_t left = range.limit;
  for (bool end = false; !end && left > 0;) {
    const auto most = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, kBatch));
    if (erased(at)) [[unlikely]] {
      if (Status s = refind(at, bounds); !s.ok()) return fail(std::move(s));
    }
    auto count = range.reverse ? collect_back(bounds, most, entries, end)
                               : collect(at, bounds, most, entries, end);
    // skiplist.I7: whatever is in flight may be among what was seen, or missed.
    const bool durable = help(in_flight_.any());
    if (!durable || context_.platform.poisoned()) return fail(context_.platform.failure());
    if (!count) return fail(std::move(count.error()));
    if (*count == 0) break;
    left -= *count;
    if (range.reverse) {
      const detail::Key& last = entries[*count - 1].key;
      bounds.has_to = true;
      bounds.to = {.word = last.word, .bytes = last.bytes};
    }
    const bool more = visit(std::span<const detail::Entry>(entries, *count));
    // What was shown may have come from pages that were lost meanwhile.
    if (context_.platform.poisoned()) return fail(context_.platform.failure());
    if (!more) break;
  }
  if (damaged()) return fail(known_damage());
  return {};
}

}  // namespace perdure::skiplist
