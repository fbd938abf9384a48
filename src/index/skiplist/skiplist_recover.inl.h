// Skiplist: creation, recovery, close. Included by skiplist.h only.
#pragma once

#include <algorithm>
#include <new>
#include <utility>

#include "index/engine_report.h"
#include "index/skiplist/skiplist.h"

namespace perdure::skiplist {

template <Platform P, class Codec, class Kind, class G>
Skiplist<P, Codec, Kind, G>::Skiplist(const EngineContext<P>& context, std::uint64_t root,
                                      std::optional<ValueKind> values) noexcept
    : Base(context),
      root_offset_(root),
      root_(context.heap.template at<layout::Root>(root)),
      values_(values),
      fingers_(context.epochs),
      cursor_(head()) {}

template <Platform P, class Codec, class Kind, class G>
Expected<std::uint64_t> Skiplist<P, Codec, Kind, G>::create(const EngineContext<P>& context,
                                                            const MapKinds& kinds) {
  P& platform = context.platform;
  auto block = context.heap.allocate(kRootBytes, BlockKind::plain);
  if (!block) return block;
  layout::Root image{};
  image.magic = layout::kRootMagic;
  image.max_height = kMaxHeight;
  image.flags = (Codec::kBytes ? layout::kBytesKeys : 0) |
                (kinds.value == ValueKind::bytes ? layout::kBytesValues : 0) |
                (Kind::kUpperDurable ? layout::kUpperDurable : 0);
  image.fixed_crc = crc32c(0, &image, offsetof(layout::Root, fixed_crc));
  auto* root = context.heap.template at<layout::Root>(*block);
  platform.zero(root, kRootBytes);
  platform.copy(root, &image, sizeof(image));
  platform.flush(root, kRootBytes, Kind::template site<"create.root">());
  if (!platform.fence(Kind::template site<"create.root">())) return fail(StatusCode::poisoned);
  return block;
}

template <Platform P, class Codec, class Kind, class G>
Expected<std::unique_ptr<EngineInstance>> Skiplist<P, Codec, Kind, G>::open(
    const EngineContext<P>& context, std::uint64_t root, std::optional<ValueKind> values) {
  if (Status s = root_may_lie_at(root, kRootBytes, context.heap); !s.ok())
    return fail(std::move(s));
  std::unique_ptr<EngineInstance> map(new (std::nothrow) Skiplist(context, root, values));
  if (map == nullptr) return fail(StatusCode::out_of_memory);
  return map;
}

// The root block is checked before anything in it is believed.
template <Platform P, class Codec, class Kind, class G>
Status Skiplist<P, Codec, Kind, G>::read_root() noexcept {
  if (Status s = context_.heap.mark(root_offset_); !s.ok()) return s;
  if (context_.heap.block_bytes(root_offset_) < kRootBytes) return bad_root("size");
  if (!context_.settle(root_offset_, kRootBytes)) return StatusCode::poisoned;
  const layout::Root image = *root_;
  if (image.magic != layout::kRootMagic) return bad_root("magic");
  if (image.fixed_crc != crc32c(0, &image, offsetof(layout::Root, fixed_crc)) &&
      P::verifies(Kind::template site<"root.crc">())) {
    return bad_root("checksum");
  }
  if (image.max_height != kMaxHeight) return bad_root("height");
  if (((image.flags & layout::kBytesKeys) != 0) != Codec::kBytes) return bad_root("key kind");
  if (((image.flags & layout::kUpperDurable) != 0) != Kind::kUpperDurable) return bad_root("kind");
  if ((image.flags & ~layout::kFlags) != 0) return bad_root("flags");
  if (image.damaged != 0 && (image.damaged != layout::kDamaged || !Kind::kUpperDurable)) {
    return bad_root("state");
  }
  damaged_.store(image.damaged != 0, std::memory_order_relaxed);
  shape_.bytes_values = (image.flags & layout::kBytesValues) != 0;
  if (values_ && (*values_ == ValueKind::bytes) != shape_.bytes_values)
    return bad_root("value kind");
  return {};
}

template <Platform P, class Codec, class Kind, class G>
Expected<Recovered> Skiplist<P, Codec, Kind, G>::recover(bool clean) {
  if (Status s = read_root(); !s.ok()) return fail(std::move(s));
  trusted_ = clean;
  if constexpr (!Kind::kUpperDurable) {
    if (Status s = rebuild(); !s.ok()) return fail(std::move(s));
  } else {
    std::uint32_t levels = kMaxHeight;
    while (levels > 1 && load_link(head(), levels - 1) == 0) --levels;
    if (load_link(head(), 0) != 0 || damaged()) {
      levels_.store(levels, std::memory_order_release);
      return Recovered::marking;
    }
    if (levels > 1) {  // skiplist.I2
      Status s = this->pass_over(damaged(load_link(head(), levels - 1) & kOffsetMask));
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

// Looks at all of a node, marks it, counts it, and answers its height. The check of a value that
// the crash has cut from it is made anew.
template <Platform P, class Codec, class Kind, class G>
Expected<std::uint32_t> Skiplist<P, Codec, Kind, G>::visit(Node* node, bool& wrote) noexcept {
  P& platform = context_.platform;
  Heap<P>& heap = context_.heap;
  const std::uint64_t offset = offset_of(node);
  const std::uint64_t state = platform.load(node->state);
  if (!sound(node, state) || (state & kErased) != 0) return fail(damaged(offset));
  const std::uint64_t word = platform.load(node->value);
  const std::uint64_t right = shape_.with_value(state, word);
  if (state != right) {
    if (trusted_ && P::verifies(Kind::template site<"value.check">())) {
      return fail(damaged(offset));
    }
    platform.store(node->state, right);
    platform.flush(&node->state, sizeof(node->state), Kind::template site<"visit.check">());
    wrote = true;
  }
  const auto mark = [&heap](std::uint64_t block) {
    return Kind::kUpperDurable ? heap.mark_serving(block) : heap.mark(block);
  };
  if (P::runs(Kind::template site<"visit.mark">())) {
    if (Status s = mark(offset); !s.ok()) return fail(std::move(s));
  }
  std::size_t blob_room = 0;
  if (shape_.bytes_values && word != 0) {
    detail::Value value;
    if (!value_of(node, value)) return fail(damaged(offset));
    if (Status s = mark(word & kOffsetMask); !s.ok()) return fail(std::move(s));
    blob_room = heap.block_bytes(word & kOffsetMask);
  }
  count(1, static_cast<std::int64_t>(heap.block_bytes(offset) + blob_room));
  sum_ += shape_.closed_term(offset, state);
  return height_of(state);
}

// skiplist.I9. Every node that was there when the map was closed is there, or was erased since.
template <Platform P, class Codec, class Kind, class G>
Status Skiplist<P, Codec, Kind, G>::verify_nodes() const noexcept {
  if (!trusted_ || sum_ == context_.platform.load(root_->nodes_sum) + changed_ ||
      !P::verifies(Kind::template site<"nodes.sum">())) {
    return {};
  }
  return Status::format(StatusCode::corruption,
                        "the map's nodes are not those that were closed: entries are lost; "
                        "restore a copy");
}

// skiplist.I9: whoever opens the map next has no other way to know: it comes after no clean close.
// The site is visit()'s, as no crash would cross one of its own: none damages a pool.
template <Platform P, class Codec, class Kind, class G>
void Skiplist<P, Codec, Kind, G>::note_damage() noexcept {
  P& platform = context_.platform;
  damaged_.store(true, std::memory_order_release);
  platform.store(root_->damaged, layout::kDamaged);
  platform.flush(&root_->damaged, sizeof(root_->damaged), Kind::template site<"visit.check">());
  (void)platform.fence(Kind::template site<"visit.check">());  // the damage is the answer
}

template <Platform P, class Codec, class Kind, class G>
Expected<bool> Skiplist<P, Codec, Kind, G>::mark_some(std::uint64_t budget) noexcept {
  if constexpr (Kind::kUpperDurable) {
    return walk_some(budget);
  } else {
    return Base::mark_some(budget);  // recover() has marked all
  }
}

// as: level 0, from where the last call came to. The latch makes its way and a writer's one.
template <Platform P, class Codec, class Kind, class G>
Expected<bool> Skiplist<P, Codec, Kind, G>::walk_some(std::uint64_t budget) noexcept {
  if (damaged()) return fail(known_damage());
  EpochGuard<P> guard(context_.epochs);
  if (!guard.ok()) return fail(StatusCode::out_of_memory);
  bool wrote = false;
  bool over = false;
  Status s;
  for (std::uint64_t n = 0; n < budget && s.ok() && !over; n += G::kLatchNodes) {
    const LatchGuard latch(latch_);
    for (std::uint32_t i = 0; i < G::kLatchNodes && s.ok() && !over; ++i) {
      const std::uint64_t link = load_link(cursor_, 0);
      over = link == 0;
      if (over) break;
      Node* node = place(link, 0);
      if (node == nullptr || !ascends(cursor_, node)) {
        s = damaged(link & kOffsetMask);
      } else if (auto visited = visit(node, wrote); !visited) {
        s = std::move(visited.error());
      }
      if (s.ok()) cursor_ = node;
    }
    if (over) s = verify_nodes();
    if (over && s.ok()) marked_.store(true, std::memory_order_release);
  }
  if (wrote && !context_.platform.fence(Kind::template site<"visit.check">()) && s.ok()) {
    s = context_.platform.failure();
  }
  // A mutation that has failed on the way is not in the sum, and pages that were lost are zeros.
  if (!s.ok() && context_.platform.poisoned()) s = context_.platform.failure();
  if (s == StatusCode::corruption) note_damage();
  if (!s.ok()) return fail(std::move(s));
  return !over;
}

// Nodes in the order of level 0, from the thread that is ahead to the one behind.
template <Platform P, class Codec, class Kind, class G>
struct Skiplist<P, Codec, Kind, G>::Chunk {
  std::uint32_t count = 0;
  Node* nodes[G::kWalkNodes];
};

// ascs, skiplist.I3. Of an empty map, too: the head's links are in several lines, and a crash keeps
// some.
template <Platform P, class Codec, class Kind, class G>
Status Skiplist<P, Codec, Kind, G>::rebuild() noexcept {
  Node* last[kMaxHeight];  // so far, in each level
  std::fill(last, last + kMaxHeight, head());
  if (load_link(head(), 0) != 0) {
    if (Status s = link_towers(last); !s.ok()) return s;
  }
  std::uint32_t levels = 1;
  for (std::uint32_t level = 1; level < kMaxHeight; ++level) {
    set_link(last[level], level, 0);
    if (last[level] != head()) levels = level + 1;
  }
  levels_.store(levels, std::memory_order_release);
  return {};
}

// Level 0 is one chain of cache misses; all else is done behind the thread that waits for them.
template <Platform P, class Codec, class Kind, class G>
Status Skiplist<P, Codec, Kind, G>::link_towers(Node** last) noexcept {
  const std::unique_ptr<Chunk[]> chunks(new (std::nothrow) Chunk[2]);
  if (chunks == nullptr) return StatusCode::out_of_memory;
  Node* at = head();
  Status ahead;
  Status behind;
  for (std::uint32_t turn = 0; ahead.ok() && behind.ok(); ++turn) {
    Chunk& next = chunks[turn % 2];
    const Chunk& done = chunks[1 - turn % 2];
    if (turn > 0 && done.count == 0) break;
    const auto work = [&](std::size_t part) {
      if (part == 0) ahead = gather(at, next);
      if (part == 1) behind = relink(done, last);
    };
    if (context_.threads > 1) {
      P::parallel(2, work);
    } else {
      work(0);
      work(1);
    }
  }
  return behind.ok() ? ahead : behind;
}

template <Platform P, class Codec, class Kind, class G>
Status Skiplist<P, Codec, Kind, G>::gather(Node*& at, Chunk& chunk) const noexcept {
  chunk.count = 0;
  while (chunk.count < G::kWalkNodes) {
    const std::uint64_t link = load_link(at, 0);
    if (link == 0) break;
    Node* node = place(link, 0);
    if (node == nullptr || !ascends(at, node)) return damaged(link & kOffsetMask);
    chunk.nodes[chunk.count++] = at = node;
  }
  return {};
}

// skiplist.I3: what a link above level 0 is is of no interest, only whether it is right already. A
// pool that was closed may be refused yet, and is not stored to before that is known.
template <Platform P, class Codec, class Kind, class G>
void Skiplist<P, Codec, Kind, G>::set_link(Node* node, std::uint32_t level,
                                           std::uint64_t link) noexcept {
  std::uint64_t& word = link_at(node, level);
  if (context_.platform.load(word) == link) return;
  if (trusted_ && !marked_.load(std::memory_order_relaxed)) {
    stale_ = true;
  } else {
    context_.platform.store(word, link);
  }
}

// The nodes have been visited; now only their links are of interest.
template <Platform P, class Codec, class Kind, class G>
Status Skiplist<P, Codec, Kind, G>::complete() {
  return std::exchange(stale_, false) ? rebuild() : Status();
}

template <Platform P, class Codec, class Kind, class G>
Status Skiplist<P, Codec, Kind, G>::relink(const Chunk& chunk, Node** last) noexcept {
  P& platform = context_.platform;
  bool wrote = false;
  for (std::uint32_t i = 0; i < chunk.count; ++i) {
    Node* node = chunk.nodes[i];
    const auto height = marked_.load(std::memory_order_relaxed)
                            ? Expected<std::uint32_t>(height_of(platform.load(node->state)))
                            : visit(node, wrote);
    if (!height) return height.error();
    const std::uint64_t link = link_to(offset_of(node));
    for (std::uint32_t level = 1; level < *height; ++level) {
      set_link(last[level], level, link);
      last[level] = node;
    }
  }
  if (wrote && !platform.fence(Kind::template site<"visit.check">())) return platform.failure();
  return {};
}

// The value checks and the sum hold in a pool that is closed: they did at open, but for what was
// changed since, or every node has been visited, the last ones now. The link that is owed need not
// be written back: a close that syncs does it, and after one that does not an open settles whatever
// it rests on, as after a kill.
template <Platform P, class Codec, class Kind, class G>
Status Skiplist<P, Codec, Kind, G>::close() {
  constexpr std::uint64_t kBudget = 1 << 16;
  if constexpr (Kind::kUpperDurable) {
    while (!trusted_ && !marked_.load(std::memory_order_relaxed)) {
      if (auto more = walk_some(kBudget); !more) return std::move(more.error());
    }
  }
  P& platform = context_.platform;
  const std::uint64_t before = platform.load(root_->nodes_sum);
  const std::uint64_t sum = trusted_ ? before + changed_ : sum_;
  if (sum != before) {
    platform.store(root_->nodes_sum, sum);
    platform.flush(&root_->nodes_sum, sizeof(sum), Kind::template site<"close.sum">());
  }
  return {};
}

}  // namespace perdure::skiplist
