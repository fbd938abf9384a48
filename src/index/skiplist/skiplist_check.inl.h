// Skiplist: invariants, audit and statistics. Included by skiplist.h only. No mutation is in
// flight.
#pragma once

#include "index/engine_report.h"
#include "index/skiplist/skiplist.h"

namespace perdure::skiplist {

// To the next node of level 0, null behind the last one. False: the link leads to none.
template <Platform P, class Codec, class Kind, class G>
bool Skiplist<P, Codec, Kind, G>::step(const Node*& at) const noexcept {
  const std::uint64_t link = load_link(at, 0);
  const Node* next = link != 0 ? follow(link, 0) : nullptr;
  if (link != 0 &&
      (next == nullptr || !context_.heap.is_block(link & kOffsetMask) || !ascends(at, next))) {
    return false;
  }
  at = next;
  return true;
}

// Names every block the map can reach, a node after what it is followed by was looked at. What
// release_blocks() does not come to, because it is damaged, the next open finds.
template <Platform P, class Codec, class Kind, class G>
Status Skiplist<P, Codec, Kind, G>::enumerate(
    Status (Heap<P>::*mark)(std::uint64_t) noexcept) noexcept {
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
  if (!intact) return damaged(offset_of(node));
  reach(root_offset_);
  return s;
}

template <Platform P, class Codec, class Kind, class G>
void Skiplist<P, Codec, Kind, G>::check_node(const Node* node, const CheckOptions& options,
                                             Findings& report) {
  const P& platform = context_.platform;
  const std::uint64_t offset = offset_of(node);
  const auto bad = [&](const char* what) { add_violation(report, Kind::kBlock, offset, what); };
  const auto broken = [&](const char* id, const char* what) {
    add_violation(report, id, Kind::kBlock, offset, what);
  };
  const std::uint64_t state = platform.load(node->state);
  const std::uint64_t word = platform.load(node->value);
  const std::size_t room = context_.heap.is_block(offset) ? context_.heap.block_bytes(offset) : 0;
  ++report.objects;
  ++report.entries;
  report.bytes += room;
  if (shape_.node_bytes(state) > room) return broken("skiplist.I1", "does not fit its block");
  if (height_of(state) == 0 || height_of(state) > kMaxHeight)
    broken("skiplist.I1", "has no height");
  if ((state & kErased) != 0) broken("skiplist.I6", "is erased but linked");
  if (!value_checks(node) && P::verifies(Kind::template site<"value.check">())) {
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
  if (!sound(node, platform.load(node->state)))
    return broken("skiplist.I1", "is damaged (checksum)");
  if (blob && P::verifies(Kind::template site<"blob.crc">()) &&
      platform.load(context_.heap.template at<layout::Blob>(word & kOffsetMask)->crc) !=
          blob_crc(word & kOffsetMask, value.bytes)) {
    bad("has a damaged value (checksum)");
  }
  detail::Key key{.word = platform.load(node->key)};
  if (Codec::kBytes && !key_of(node, key.bytes)) return bad("has no key");
  const Probe probe = Codec::probe(key);
  if (probe.word != platform.load(node->key)) bad("has a wrong head");
  Node* found = nullptr;
  if (!search<Reach::node>(probe, nullptr, found).ok() || found != node)
    bad("is not what its key finds");
}

// What is in this level is in the one below, in the same order, and has the height.
template <Platform P, class Codec, class Kind, class G>
void Skiplist<P, Codec, Kind, G>::check_level(std::uint32_t level, Findings& report) {
  constexpr const char* kId = Kind::kUpperDurable ? "skiplist.I2" : "skiplist.I4";
  const Node* before = head();
  const Node* below = head();
  std::uint64_t link = load_link(head(), level);
  while (link != 0) {
    const Node* node = place(link, level);
    const std::uint64_t offset = link & kOffsetMask;
    if (node == nullptr || !ascends(before, node)) {
      return add_violation(report, kId, Kind::kBlock, offset,
                           "is linked but no node of this level in its place");
    }
    before = node;
    // A level that is damaged itself was reported, and ends somewhere, since keys ascend.
    while (below != nullptr && below != node) {
      const std::uint64_t next = load_link(below, level - 1);
      const Node* to = next != 0 ? place(next, level - 1) : nullptr;
      below = to != nullptr && ascends(below, to) ? to : nullptr;
    }
    if (below == nullptr) {
      return add_violation(report, kId, Kind::kBlock, offset,
                           "is in a level and not in the one below");
    }
    link = load_link(node, level);
  }
}

template <Platform P, class Codec, class Kind, class G>
void Skiplist<P, Codec, Kind, G>::check(const CheckOptions& options, Findings& report) {
  EpochGuard<P> guard(context_.epochs);
  ++report.objects;
  report.bytes += kRootBytes;
  const layout::Root image = *root_;
  if (image.fixed_crc != crc32c(0, &image, offsetof(layout::Root, fixed_crc)) &&
      P::verifies(Kind::template site<"root.crc">())) {
    add_violation(report, Kind::kBlock, root_offset_, "damaged root block");
  }
  const std::uint64_t before = report.entries;
  const Node* at = head();
  std::uint64_t sum = 0;
  for (std::uint64_t link = load_link(at, 0); link != 0; link = load_link(at, 0)) {
    const Node* node = place(link, 0);
    if (node == nullptr || !ascends(at, node)) {
      add_violation(report, "skiplist.I1", Kind::kBlock, link & kOffsetMask,
                    "is no node, or out of order");
      return;
    }
    check_node(node, options, report);
    sum += shape_.closed_term(offset_of(node), context_.platform.load(node->state));
    tell_progress(options, report, report.entries, 4096);
    at = node;
  }
  for (std::uint32_t level = 1; level < levels(); ++level) check_level(level, report);
  for (std::uint32_t level = levels(); level < kMaxHeight; ++level) {
    if (load_link(head(), level) != 0) {
      add_violation(report, Kind::kBlock, root_offset_, "has a level that nobody walks");
    }
  }
  if (marked_.load(std::memory_order_acquire) && report.entries - before != entries_.load()) {
    add_violation(report, Kind::kBlock, root_offset_, "the number of entries is wrong");
  }
  check_sum(sum, report);
  if (in_flight_.any() != nullptr) {
    add_violation(report, "skiplist.I7", Kind::kBlock, root_offset_, "a word is in flight");
  }
}

// What close() would write into the root is the sum of the nodes that are there.
template <Platform P, class Codec, class Kind, class G>
void Skiplist<P, Codec, Kind, G>::check_sum(std::uint64_t sum, Findings& report) {
  const LatchGuard latch(latch_);
  const bool whole = !marked_.load(std::memory_order_relaxed) || sum == sum_;
  const bool closed = !trusted_ || sum == context_.platform.load(root_->nodes_sum) + changed_;
  if ((!whole || !closed) && P::verifies(Kind::template site<"nodes.sum">())) {
    add_violation(report, "skiplist.I9", Kind::kBlock, root_offset_,
                  "the sum of the nodes is wrong: entries are lost");
  }
}

// While the sweep has not come to the end, by going through the map.
template <Platform P, class Codec, class Kind, class G>
void Skiplist<P, Codec, Kind, G>::stats(EngineStats& out) {
  EpochGuard<P> guard(context_.epochs);
  out.engine = Kind::kEngine;
  std::uint64_t bytes = 0;
  if (marked_.load(std::memory_order_acquire)) {  // before what it makes whole
    out.entries = entries_.load(std::memory_order_relaxed);
    bytes = bytes_.load(std::memory_order_relaxed);
  } else {
    const Node* at = head();
    for (std::uint64_t link = load_link(at, 0); link != 0; link = load_link(at, 0)) {
      const Node* node = place(link, 0);
      out.partial = node == nullptr || !ascends(at, node);
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
  out.dram_bytes = sizeof(*this) + fingers_.bytes();
}

}  // namespace perdure::skiplist
