// Check: invariants, audit and statistics. No mutation is in flight during a check or an audit.
#pragma once

#include "index/engine_report.h"
#include "index/root.h"
#include "index/skiplist/recovery.h"

namespace perdure::skiplist {

template <class T>
class Check : public Recovery<T> {
  using Base = Recovery<T>;

 public:
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
    out.height = levels();
    out.leaves = 0;
    out.inner_nodes = 0;
    out.pm_bytes = bytes + context_.heap.block_bytes(root_offset_);
    out.dram_bytes = sizeof(*this) + this->stripes_.dram_bytes() + this->fingers_.bytes();
  }

  void check(const CheckOptions& options, Findings& report) override {
    EpochGuard<P> guard(context_.epochs);
    ++report.objects;
    report.bytes += Base::kRootBytes;
    if (!root_intact<P>(*this->root_, kSite<Kind, "root.crc">)) {
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
    for (std::uint32_t level = 1; level < levels(); ++level) check_level(level, report);
    for (std::uint32_t level = levels(); level < kMaxHeight; ++level) {
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
  using Base::Base, Base::context_, Base::head, Base::kMaxHeight, Base::levels, Base::load_link,
      Base::marked_, Base::names_blob, Base::offset_of, Base::place_after, Base::root_offset_,
      Base::shape_, Base::value_of;
  using typename Base::P, typename Base::Codec, typename Base::Kind, typename Base::Reach;

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
    if (!Base::kUpperDurable && !this->trusted_) return nullptr;
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
    const LatchGuard latch(this->latch_);
    const std::uint64_t changed = this->changed();
    const bool whole = !this->marked() || sum == this->sum_ + changed;
    const bool closed =
        !this->trusted_ || sum == context_.platform.load(this->root_->nodes_sum) + changed;
    if (!matches<P>(whole && closed, kSite<Kind, "nodes.sum">)) {
      add_violation(report, "skiplist.I9", Kind::kBlock, root_offset_,
                    "the sum of the nodes is wrong: entries are lost");
    }
  }
};

}  // namespace perdure::skiplist
