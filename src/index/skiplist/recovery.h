// Recovery: what an open and a close do, and what check(), an audit and the statistics see. No
// mutation is in flight during a check or an audit. Responsible for skiplist.I3 and skiplist.I9.
#pragma once

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "index/engine_report.h"
#include "index/root.h"
#include "index/skiplist/rebuild.h"

namespace perdure::skiplist {

template <class T>
class Recovery : public Rebuild<T> {
  using Base = Rebuild<T>;

 public:
  Expected<Recovered> recover(bool clean) override {
    if (Status s = read_root(); !s.ok()) return fail(std::move(s));
    if (Status s = this->stripes_.reserve(); !s.ok()) return fail(std::move(s));
    trusted_ = clean;
    if constexpr (!kUpperDurable) {
      Status s = this->rebuild();
      if (!s.ok()) {
        s = this->pass_over(std::move(s));
        stale_ = false;  // a second attempt would fail, too
      }
      if (!s.ok()) return fail(std::move(s));
    } else {
      std::uint32_t levels = kMaxHeight;
      while (levels > 1 && load_link(head(), levels - 1) == 0) --levels;
      if (load_link(head(), 0) != 0 || damaged()) {
        levels_.store(levels, std::memory_order_release);
        return Recovered::marking;
      }
      if (levels > 1) {  // skiplist.I2
        Status s = this->pass_over(damaged_at(load_link(head(), levels - 1) & kOffsetMask));
        if (!s.ok()) return fail(std::move(s));
      }
    }
    if (Status s = verify_nodes(); !s.ok()) {
      s = this->pass_over(std::move(s));
      if (!s.ok()) return fail(std::move(s));
    }
    marked_.store(true, std::memory_order_release);
    return Recovered::done;
  }

  // The nodes have been visited; only their links may be stale.
  Status complete() override { return std::exchange(stale_, false) ? this->rebuild() : Status(); }

  // as: continues the walk over level 0. The latch separates its steps from a writer's.
  [[gnu::noinline]] Expected<bool> mark_some(std::uint64_t budget) noexcept override {
    if constexpr (!kUpperDurable) return Base::mark_some(budget);  // recover() has marked all
    if (damaged()) return fail(known_damage());
    EpochGuard<P> guard(context_.epochs);
    if (!guard.ok()) return fail(StatusCode::out_of_memory);
    Seen seen;
    bool over = false;
    Status s;
    for (std::uint64_t n = 0; n < budget && s.ok() && !over; n += G::kLatchNodes) {
      const LatchGuard latch(latch_);
      for (std::uint32_t i = 0; i < G::kLatchNodes && s.ok() && !over; ++i) {
        const std::uint64_t link = load_link(cursor_, 0);
        over = link == 0;
        if (over) break;
        Node* node = place_after(cursor_, link, 0);
        if (node == nullptr) {
          s = damaged_at(link & kOffsetMask);
        } else if (auto visited = visit(node, seen); !visited) {
          s = std::move(visited.error());
        } else if (!walk_tower(node, *visited)) {
          s = damaged_at(link & kOffsetMask);
        }
        if (s.ok()) cursor_ = node;
      }
      this->count(seen.nodes, seen.bytes, seen.term);
      seen = {.wrote = seen.wrote};
      if (over) s = verify_tops();
      if (over && s.ok()) s = verify_nodes();
      if (over && s.ok()) marked_.store(true, std::memory_order_release);
    }
    if (seen.wrote && !context_.platform.fence(kSite<Kind, "visit.check">) && s.ok()) {
      s = context_.platform.failure();
    }
    // A mutation that has failed meanwhile is not in the sum, and lost pages read as zeros.
    if (!s.ok() && context_.platform.poisoned()) s = context_.platform.failure();
    if (s == StatusCode::corruption) note_damage();
    if (!s.ok()) return fail(std::move(s));
    return !over;
  }

  // In a closed pool the value checks and the sum must hold. Either they held at the open, and the
  // changes since are known; or every node has been visited, the last ones now. The link that is
  // owed need not be written back. A close that syncs writes it back; after a close that does not
  // sync, an open settles what it rests on, as after a kill.
  Status close() override {
    constexpr std::uint64_t kBudget = 1 << 16;
    if constexpr (kUpperDurable) {
      while (!trusted_ && !marked()) {
        if (auto more = Recovery::mark_some(kBudget); !more) return std::move(more.error());
      }
    }
    P& platform = context_.platform;
    const std::uint64_t before = platform.load(root_->nodes_sum);
    const std::uint64_t sum = (trusted_ ? before : sum_) + this->changed();
    if (sum != before) {
      platform.store(root_->nodes_sum, sum);
      platform.flush(&root_->nodes_sum, sizeof(sum), kSite<Kind, "close.sum">);
    }
    return {};
  }

  // --- check and statistics ---
  // Until the sweep has come to the end, this goes through the map.
  void stats(EngineStats& out) override {
    EpochGuard<P> guard(context_.epochs);
    out.engine = Kind::kEngine;
    std::uint64_t bytes = 0;
    if (marked_.load(std::memory_order_acquire)) {  // before the counters that it makes whole
      out.entries = this->entries();
      bytes = this->bytes();
    } else {
      const Node* at = head();
      for (std::uint64_t link = load_link(at, 0); link != 0; link = load_link(at, 0)) {
        const Node* node = place_after(at, link, 0);
        out.partial = node == nullptr;
        if (out.partial) break;
        ++out.entries;
        bytes += context_.heap.block_bytes(link & kOffsetMask);
        const std::uint64_t blob = shape_.bytes_values ? context_.platform.load(node->value) : 0;
        if (blob != 0) bytes += context_.heap.block_bytes(blob & kOffsetMask);
        at = node;
      }
    }
    out.height = this->levels();
    out.leaves = 0;
    out.inner_nodes = 0;
    out.pm_bytes = bytes + context_.heap.block_bytes(root_offset_);
    out.dram_bytes = sizeof(*this) + this->stripes_.dram_bytes() + this->fingers_.bytes();
  }

  void check(const CheckOptions& options, Findings& report) override {
    EpochGuard<P> guard(context_.epochs);
    ++report.objects;
    report.bytes += kRootBytes;
    if (!root_intact<P>(*root_, kSite<Kind, "root.crc">)) {
      add_violation(report, Kind::kBlock, root_offset_, "damaged root block");
    }
    const std::uint64_t before = report.entries;
    const Node* at = head();
    const Node* sound = at;  // the last node whose key can be relied on
    std::uint64_t sum = 0;
    for (;;) {
      const std::uint64_t link = load_link(at, 0);
      const Node* node = link != 0 ? place_after(at, link, 0) : nullptr;
      if (node == nullptr && link == 0) {
        if (report.whole_entries != nullptr) node = beyond(sound);
        if (node == nullptr) break;
        add_violation(report, "skiplist.I1", Kind::kBlock, offset_of(at),
                      "ends the list too early");
      } else if (node == nullptr) {
        add_violation(report, "skiplist.I1", Kind::kBlock, link & kOffsetMask,
                      "is no node, or out of order");
        if (report.whole_entries == nullptr) return;
        node = past(sound, link);
        if (node == nullptr) return;
      }
      if (report.whole_entries != nullptr &&
          this->sound(node, context_.platform.load(node->state))) {
        sound = node;
      }
      check_node(node, options, report);
      sum += shape_.closed_term(offset_of(node), context_.platform.load(node->state));
      tell_progress(options, report, report.entries, 4096);
      at = node;
    }
    for (std::uint32_t level = 1; level < this->levels(); ++level) check_level(level, report);
    for (std::uint32_t level = this->levels(); level < kMaxHeight; ++level) {
      if (load_link(head(), level) != 0) {
        add_violation(report, Kind::kBlock, root_offset_, "has a link above its levels");
      }
    }
    if (marked_.load(std::memory_order_acquire) && report.entries - before != this->entries()) {
      add_violation(report, Kind::kBlock, root_offset_, "the number of entries is wrong");
    }
    check_sum(sum, report);
    if (this->stripes_.any_in_flight()) {
      add_violation(report, "skiplist.I7", Kind::kBlock, root_offset_, "a word is in flight");
    }
  }

 protected:
  using Base::Base, Base::context_, Base::cursor_, Base::damaged, Base::damaged_, Base::head,
      Base::kMaxHeight, Base::kRootBytes, Base::kUpperDurable, Base::latch_, Base::levels_,
      Base::load_link, Base::marked, Base::marked_, Base::names_blob, Base::offset_of,
      Base::persist, Base::place_after, Base::root_, Base::root_offset_, Base::shape_, Base::stale_,
      Base::sum_, Base::trusted_, Base::value_of, Base::walked_;
  using typename Base::P, typename Base::Codec, typename Base::Kind, typename Base::G,
      typename Base::Look, typename Base::Reach, typename Base::Seen;

  // Passes every block that the map can reach to `mark`; a node after it has read its successor. If
  // a block is damaged, release_blocks() leaves what lies behind it to the next open.
  [[gnu::noinline]] Status enumerate(Status (Heap<P>::*mark)(std::uint64_t)) {
    const P& platform = context_.platform;
    Status s;
    const auto reach = [&](std::uint64_t offset) {
      if (s.ok()) s = (context_.heap.*mark)(offset);
    };
    const Node* node = head();
    bool intact = step(node);
    while (intact && node != nullptr && s.ok()) {
      const Node* next = node;
      const std::uint64_t value = shape_.bytes_values ? platform.load(node->value) : 0;
      intact = names_blob(value) && step(next);
      if (!intact) break;
      if (value != 0) reach(value & kOffsetMask);
      reach(offset_of(node));
      node = next;
    }
    if (!intact) return damaged_at(offset_of(node));
    reach(root_offset_);
    return s;
  }

 private:
  // Verifies the root block before anything in it is used.
  [[gnu::noinline]] Status read_root() {
    if (Status s = context_.heap.mark(root_offset_); !s.ok()) return s;
    if (context_.heap.block_bytes(root_offset_) < kRootBytes) return bad_root("size");
    if (!context_.settle(root_offset_, kRootBytes)) return StatusCode::poisoned;
    const layout::Root image = *root_;
    if (image.magic != layout::kRootMagic) return bad_root("magic");
    if (!root_intact<P>(image, kSite<Kind, "root.crc">)) return bad_root("checksum");
    if (image.max_height != kMaxHeight) return bad_root("height");
    if (((image.flags & layout::kBytesKeys) != 0) != Codec::kBytes) return bad_root("key kind");
    if (((image.flags & layout::kUpperDurable) != 0) != kUpperDurable) return bad_root("kind");
    if ((image.flags & ~layout::kFlags) != 0) return bad_root("flags");
    if (image.damaged != 0 && (image.damaged != layout::kDamaged || !kUpperDurable)) {
      return bad_root("state");
    }
    damaged_.store(image.damaged != 0, std::memory_order_relaxed);
    shape_.bytes_values = (image.flags & layout::kBytesValues) != 0;
    if (this->values_ && (*this->values_ == ValueKind::bytes) != shape_.bytes_values) {
      return bad_root("value kind");
    }
    return {};
  }

  // as: checks all of a node, marks it, counts it, and returns its height.
  [[gnu::noinline]] Expected<std::uint32_t> visit(Node* node, Seen& seen) {
    Look look;
    if (!this->inspect(node, look, seen)) return fail(damaged_at(offset_of(node)));
    if (look.unchecked) this->make_check(node, seen.wrote);
    Heap<P>& heap = context_.heap;
    Status s = heap.mark_serving(offset_of(node), kSite<Kind, "visit.mark">);
    if (s.ok() && look.blob != 0) s = heap.mark_serving(look.blob);
    if (!s.ok()) return fail(std::move(s));
    return look.height;
  }

  // skiplist.I2: the walk has come to this node of level 0. Returns false if its tower has a gap. A
  // link that leads elsewhere is passed over; verify_tops() finds it. Not in a read-only open: the
  // owner may insert behind the walk, and nothing is stored.
  [[gnu::noinline]] bool walk_tower(Node* node, std::uint32_t height) {
    const std::uint64_t link = link_to(offset_of(node));
    bool linked = true;
    for (std::uint32_t level = 1; level < height && !context_.read_only; ++level) {
      const bool here = load_link(walked_[level], level) == link;
      if (here && !linked) return false;
      linked = here;
      if (here) walked_[level] = node;
    }
    return true;
  }
  // skiplist.I2, at the end of the walk: a link above level 0 that the walk has not come to leads
  // to no node of level 0.
  [[gnu::noinline]] Status verify_tops() const {
    for (std::uint32_t level = 1; level < kMaxHeight && !context_.read_only; ++level) {
      const std::uint64_t link = load_link(walked_[level], level);
      if (link != 0) return damaged_at(link & kOffsetMask);
    }
    return {};
  }

  // skiplist.I9: every node of the closed map is there, or was erased since the open.
  [[gnu::noinline]] Status verify_nodes() const {
    if (!trusted_ ||
        matches<P>(sum_ == context_.platform.load(root_->nodes_sum), kSite<Kind, "nodes.sum">)) {
      return {};
    }
    return differs_from_close("nodes");
  }

  // skiplist.I9. The next open does not follow a clean close and cannot find the damage itself. The
  // site is that of visit(): no crash would cross a site here, as no crash damages a pool.
  [[gnu::noinline]] void note_damage() {
    P& platform = context_.platform;
    damaged_.store(true, std::memory_order_release);
    platform.store(root_->damaged, layout::kDamaged);
    (void)persist(&root_->damaged, sizeof(root_->damaged),
                  kSite<Kind, "visit.check">);  // the caller returns the damage
  }

  // --- check ---
  // Goes to the next node of level 0, or to null behind the last one. Returns false if the link
  // leads to no node.
  [[gnu::noinline]] bool step(const Node*& at) const {
    const std::uint64_t link = load_link(at, 0);
    const Node* next = link != 0 ? this->follow_after(at, link, 0) : nullptr;
    if (link != 0 && (next == nullptr || !context_.heap.is_block(link & kOffsetMask))) return false;
    at = next;
    return true;
  }

  // `link`, of level 0, leads to no node that could lie behind `at`. A link has a check of its own,
  // so it can be right where a key is damaged: returns the sound node at the link, or the one
  // behind it, or the one that beyond() finds; or null.
  [[gnu::noinline]] const Node* past(const Node* at, std::uint64_t link) const {
    for (int i = 0; i < 2; ++i) {
      const Node* node = link != 0 ? this->place(link, 0) : nullptr;
      if (node == nullptr) break;
      if (this->sound(node, context_.platform.load(node->state)) && this->ascends(at, node)) {
        return node;
      }
      link = load_link(node, 0);
    }
    return beyond(at);
  }

  // Level 0 leads no further than `at`: returns the first node behind it that a higher level leads
  // to, or null. Those of ascs are links to nodes of now if the pool was closed (skiplist.I3).
  [[gnu::noinline]] const Node* beyond(const Node* at) const {
    if (!kUpperDurable && !trusted_) return nullptr;
    const Node* first = nullptr;
    const Node* before = head();
    for (std::uint32_t level = kMaxHeight; level-- > 1;) {
      for (std::uint64_t link = load_link(before, level); link != 0;) {
        const Node* node = place_after(before, link, level);
        if (node == nullptr || !this->sound(node, context_.platform.load(node->state))) break;
        if (this->ascends(at, node)) {
          first = node;  // nearer than those of the levels above
          break;
        }
        before = node;
        link = load_link(node, level);
      }
    }
    return first;
  }

  [[gnu::noinline]] void check_node(const Node* node, const CheckOptions& options,
                                    Findings& report) {
    const P& platform = context_.platform;
    const std::uint64_t offset = offset_of(node);
    const auto bad = [&](const char* what) { add_violation(report, Kind::kBlock, offset, what); };
    const auto broken = [&](const char* id, const char* what) {
      add_violation(report, id, Kind::kBlock, offset, what);
    };
    const std::uint64_t state = platform.load(node->state);
    const std::uint64_t word = platform.load(node->value);
    const std::uint64_t before = report.violation_count;
    const std::size_t room = context_.heap.is_block(offset) ? context_.heap.block_bytes(offset) : 0;
    ++report.objects;
    ++report.entries;
    report.bytes += room;
    if (shape_.node_bytes(state) > room) return broken("skiplist.I1", "does not fit its block");
    if (height_of(state) == 0 || height_of(state) > kMaxHeight) {
      broken("skiplist.I1", "has no height");
    }
    if ((state & kErased) != 0) broken("skiplist.I6", "is erased but linked");
    if (!matches<P>(this->value_checks(node), kSite<Kind, "value.check">)) {
      bad("has a damaged value (check)");
    }
    const bool blob = shape_.bytes_values && word != 0;
    detail::Value value;
    if (!value_of(node, value)) return bad("names no value");
    if (blob) {
      ++report.objects;
      report.bytes += context_.heap.block_bytes(word & kOffsetMask);
    }
    if (!options.deep) return;
    if (!this->sound(node, platform.load(node->state))) {
      return broken("skiplist.I1", "is damaged (checksum)");
    }
    if (blob && !Blob::intact(platform, context_.heap, word & kOffsetMask, value.bytes,
                              kSite<Kind, "blob.crc">)) {
      bad("has a damaged value (checksum)");
    }
    detail::Key key{.word = platform.load(node->key)};
    if (Codec::kBytes && !this->key_of(node, key.bytes)) return bad("has no key");
    const Probe probe = Codec::probe(key);
    if (probe.word != platform.load(node->key)) bad("has a wrong head");
    if (report.whole_entries != nullptr && report.violation_count == before) {
      key.word = probe.word;
      (*report.whole_entries)({.key = key, .value = value});
    }
    Node* found = nullptr;
    if (!this->template search<Reach::node>(probe, nullptr, found).ok() || found != node) {
      bad("is not what its key finds");
    }
  }

  // The nodes of a level are in the level below, in the same order, and have the height.
  [[gnu::noinline]] void check_level(std::uint32_t level, Findings& report) {
    constexpr const char* kId = Kind::kUpperDurable ? "skiplist.I2" : "skiplist.I4";
    const Node* before = head();
    const Node* below = head();
    std::uint64_t link = load_link(head(), level);
    while (link != 0) {
      const Node* node = place_after(before, link, level);
      const std::uint64_t offset = link & kOffsetMask;
      if (node == nullptr) {
        return add_violation(report, kId, Kind::kBlock, offset,
                             "is linked but no node of this level in its place");
      }
      before = node;
      // A damaged level below was reported already. It ends somewhere, since keys ascend.
      while (below != nullptr && below != node) {
        const std::uint64_t next = load_link(below, level - 1);
        below = next != 0 ? place_after(below, next, level - 1) : nullptr;
      }
      if (below == nullptr) {
        return add_violation(report, kId, Kind::kBlock, offset,
                             "is in a level and not in the one below");
      }
      link = load_link(node, level);
    }
  }

  // The sum that close() would write into the root is that of the nodes in the list.
  [[gnu::noinline]] void check_sum(std::uint64_t sum, Findings& report) {
    const LatchGuard latch(latch_);
    const std::uint64_t changed = this->changed();
    const bool whole = !marked() || sum == sum_ + changed;
    const bool closed = !trusted_ || sum == context_.platform.load(root_->nodes_sum) + changed;
    if (!matches<P>(whole && closed, kSite<Kind, "nodes.sum">)) {
      add_violation(report, "skiplist.I9", Kind::kBlock, root_offset_,
                    "the sum of the nodes is wrong: entries are lost");
    }
  }
};

}  // namespace perdure::skiplist
