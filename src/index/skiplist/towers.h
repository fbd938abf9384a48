// Towers: a node enters the list level by level from below and leaves it from above. Responsible
// for skiplist.I1, I2, I4 and I8. The stripes of all nodes that change are held throughout
// (skiplist.I5).
#pragma once

#include "index/skiplist/paths.h"

namespace perdure::skiplist {

template <class T>
class Towers : public Paths<T> {
  using Base = Paths<T>;

 protected:
  using Base::Base, Base::check_path, Base::context_, Base::erased, Base::fingers_, Base::head,
      Base::kUpperDurable, Base::levels, Base::load_link, Base::node_at, Base::offset_of,
      Base::persist, Base::stripes_;
  using typename Base::P, typename Base::Codec, typename Base::Hold, typename Base::Kind,
      typename Base::Path;

  // What a mutation has made and not used yet, and what it has replaced.
  struct Fresh {
    std::uint64_t node = 0;
    std::size_t bytes = 0;
    std::uint64_t blob = 0;
    std::uint64_t retired = 0;
  };

  // Every store to a link that lookups follow, except those of recovery. In level 0 results that
  // rest on the node at `rest` rest on this link.
  [[gnu::always_inline]] void redirect(Node* before, std::uint32_t level, std::uint64_t link,
                                       [[maybe_unused]] std::uint64_t rest = 0) {
    std::uint64_t& word = link_at(before, level);
    PERDURE_ASSERT(P, "skiplist.I5", stripes_.mine(offset_of(before)));
    PERDURE_ASSERT(P, "skiplist.I7", level > 0 || stripes_.in_flight(rest) == &word);
    PERDURE_ASSERT(P, "skiplist.I8", !erased(before));
    level == 0 ? this->store_locked(word, link) : context_.platform.store(word, link);
  }
  // Withdraws the word that is announced. `durable`: its fence has succeeded.
  [[gnu::always_inline]] bool withdraw(InFlight<P>& in_flight, bool durable) {
    PERDURE_ASSERT(P, "skiplist.I7",
                   !durable || context_.platform.persisted(in_flight.any(), sizeof(std::uint64_t)));
    in_flight.withdraw();
    return durable;
  }

  // The key is absent.
  [[gnu::noinline]] Status link(const Path& path, const Fresh& fresh, Hold& hold) {
    P& platform = context_.platform;
    Node* node = node_at(fresh.node);
    PERDURE_ASSERT(P, "skiplist.I5", stripes_.mine(fresh.node));
    const std::uint32_t height = height_of(platform.load(node->state));
    if (Status s = check_path(path, height); !s.ok()) return s;
    for (std::uint32_t level = 0; level < height; ++level) {
      platform.store(link_at(node, level), load_link(path.before[level], level));
    }
    write_back_owed(hold);
    if (!persist(node, fresh.bytes, kSite<Kind, "insert.node">)) return StatusCode::poisoned;
    PERDURE_ASSERT(P, "skiplist.I1", platform.persisted(node, fresh.bytes));
    PERDURE_ASSERT(P, "skiplist.I1", between(path.before[0], node, load_link(path.before[0], 0)));
    const std::uint64_t link = link_to(fresh.node);
    if (!redirect_lowest(path, link, fresh.node, kSite<Kind, "insert.link">)) {
      return StatusCode::poisoned;
    }
    return height > 1 ? link_upper(path, link, height) : Status();
  }

  [[gnu::noinline]] Status link_upper(const Path& path, std::uint64_t link, std::uint32_t height) {
    P& platform = context_.platform;
    std::uint32_t known = levels();
    while (height > known && !this->levels_.compare_exchange_weak(known, height)) {
    }
    for (std::uint32_t level = 1; level < height; ++level) {
      std::uint64_t& word = link_at(path.before[level], level);
      PERDURE_ASSERT(P, "skiplist.I4", load_link(path.before[level - 1], level - 1) == link);
      PERDURE_ASSERT(
          P, "skiplist.I2",
          !kUpperDurable || platform.persisted(&link_at(path.before[level - 1], level - 1), 8));
      redirect(path.before[level], level, link);
      if constexpr (kUpperDurable) {
        if (level + 1 == height) {
          stripes_.of(link & kOffsetMask).owed = &word;
          break;
        }
        if (!persist(&word, sizeof(word), kSite<Kind, "insert.upper">)) return StatusCode::poisoned;
      }
    }
    return {};
  }

  [[gnu::noinline]] Status unlink(const Probe& probe, const Path& path, Node* node, Hold& hold) {
    P& platform = context_.platform;
    const std::uint64_t link = link_to(offset_of(node));
    PERDURE_ASSERT(P, "skiplist.I5", stripes_.mine(offset_of(node)));
    write_back_owed(hold);
    for (std::uint32_t level = height_of(platform.load(node->state)); level-- > 1;) {
      std::uint64_t& word = link_at(path.before[level], level);
      if (const std::uint64_t next = platform.load(word); next != link) {
        // The node is missing in this level (skiplist.I2); it is not behind another one.
        PERDURE_ASSERT(P, "skiplist.I4",
                       next == 0 || platform.load(node_at(next & kOffsetMask)->key) >= probe.word);
        continue;
      }
      redirect(path.before[level], level, load_link(node, level));
      if constexpr (kUpperDurable) {
        if (!persist(&word, sizeof(word), kSite<Kind, "erase.upper">)) return StatusCode::poisoned;
        PERDURE_ASSERT(P, "skiplist.I2", platform.persisted(&word, sizeof(word)));
      }
    }
    fingers_.unname(probe.word, offset_of(node));
    PERDURE_ASSERT(P, "skiplist.F1", !fingers_.names(platform.load(node->key), offset_of(node)));
    const std::uint64_t rest = offset_of(path.before[0]);
    if (!redirect_lowest(path, load_link(node, 0), rest, kSite<Kind, "erase.link">)) {
      return StatusCode::poisoned;
    }
    platform.store(node->state, platform.load(node->state) | kErased);
    return {};
  }

 private:
  bool precedes(const Node* a, const Node* b) const {
    const std::uint64_t left = context_.platform.load(a->key);
    const std::uint64_t right = context_.platform.load(b->key);
    return a == head() || left < right || (Codec::kBytes && left == right);
  }
  bool between(const Node* before, const Node* node, std::uint64_t after) const {
    return precedes(before, node) && (after == 0 || precedes(node, node_at(after & kOffsetMask)));
  }

  // An insert leaves its last upper link to the next change that holds the stripe of its node
  // (skiplist.I2): no other one relies on that link, and this one not before its next fence.
  [[gnu::noinline]] void write_back_owed(Hold& hold) {
    if constexpr (kUpperDurable) {
      hold.take_owed([&](const std::uint64_t* link) {
        context_.platform.flush(link, sizeof(*link), kSite<Kind, "owed.link">);
      });
    }
  }

  // Stores to level 0 and makes the store durable. Returns false if the pool is poisoned.
  template <FixedString Name>
  [[gnu::always_inline]] bool redirect_lowest(const Path& path, std::uint64_t link,
                                              std::uint64_t rest, Site<Name> site) {
    std::uint64_t& lowest = link_at(path.before[0], 0);
    InFlight<P>& in_flight = stripes_.of(rest).in_flight;
    in_flight.announce(rest, &lowest);
    redirect(path.before[0], 0, link, rest);                             // LP(insert), LP(erase)
    return withdraw(in_flight, persist(&lowest, sizeof(lowest), site));  // PP(insert), PP(erase)
  }
};

}  // namespace perdure::skiplist
