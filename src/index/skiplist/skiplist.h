// Skiplist: the persistent ordered maps `as` and `ascs`, all of whose index is in the pool.
//
// WHAT  Atomic skiplists (Xiao et al., IEEE Access 2021): a skiplist that is changed by ordered
//   8-byte stores, without a log. `as` keeps every level consistent on the medium at every moment;
//   `ascs` level 0 only. WHEN: an ordered map that needs no index in DRAM; `as` for an open that
//   reads no nodes, `ascs` for the fewest write-backs. WHEN NOT: the fastest ordered map
//   (phast); many writers (they take turns). Deviations, and why, in
//   docs/design/atomic_skiplists.md: a node is written back whole before its link; the last link of
//   a tower is written back by the next operation; lookups and scans run beside the writer.
// LAYOUT  layout.h, node.h. A node is key, value and tower in one block; key, value word and the
//   lowest five links lie in its first line. The head's links are in the root block.
// INVARIANTS  (C: after any crash; D: in DRAM)
//   skiplist.I1 C  Level 0 is a list in ascending order of whole nodes, which are durable: the map.
//   skiplist.I2 C  as: level i + 1 is a sub-list of level i. A node may be missing in the highest
//         levels of its tower, never in one between two that it is in.
//   skiplist.I3 C  ascs: nothing is known of the levels above 0; nobody follows them.
//   skiplist.I4 D  Level i + 1 is a sub-list of level i as any thread sees them, in both engines:
//         towers are linked from below and unlinked from above.
//   skiplist.I5 D  One writer: it holds latch_ from before its first store to a reachable word
//         until after the fence of its last one that an answer can rest on. The latch is never held
//         across an allocation from the heap, nor while what was retired is finished.
//   skiplist.I6 D  A node is erased (bit 63 of its state) after its unlink is durable and before
//         the latch is free: who holds the latch and finds the bit clear has a node that is in the
//         list.
//   skiplist.I7 D  What a returned operation has seen is durable: in_flight_ announces the word
//         that is being changed, from before the store until after the fence; who has read it looks
//         afterwards, and then writes the word's line back and fences.
//   skiplist.I8 D  The links of an erased node stay as they were, and lead to what came behind it.
//   skiplist.I9 C  In a cleanly closed map the root's sum is that of all nodes. Damage that the
//         walk behind an open of `as` finds is noted in the root, durably: from then on no answer
//         is "absent".
// OPERATIONS  (LP linearization, PP persist point; F write-backs, S fences; k lines of a node,
//   b of a blob, h height)
//   insert  lookup without the latch -> node without links -> latch -> path anew from where it was
//           -> links, F*k S -> announce -> link of level 0 (LP) -> F S (PP) -> withdraw -> as:
//           link, F, S for each further level, of the last one both left to the next insert or
//           erase (skiplist.I2, owed_). as (k+1)F 2S, of height h > 1 (k+h-1)F hS; ascs (k+1)F 2S;
//           + 1F after a tower. A long value: its blob's bF with the node's.
//   update  of a word: latch -> announce -> value and its check (LP) -> F S (PP). 1F 1S. Of bytes:
//           blob F*b S -> latch -> announce -> value word (LP) -> F S (PP) -> retire: (b+1)F 2S.
//   erase   lookup -> latch -> path -> as: unlink, F S for each level from the top -> announce ->
//           unlink level 0 (LP) -> F S (PP) -> erased -> retire. as hF hS, + 1F after a tower; ascs
//           1F 1S.
//   close   if the last owner was killed the walk to its end -> sum of the nodes, F; the pool
//           fences.
//   find    down and right from the head, or right from a finger. Found: LP a moment at which the
//           node was in the list; absent: one at which its neighbours were neighbours
//           (skiplist.I8). 0F 0S; if the key is in flight 1F 1S. as, after a kill: the write-back
//           of each extent that nobody has come to before (AfterKill).
//   scan    batches of entries from level 0; backwards each batch from a node some entries before.
//           Not one operation.
// ORDERING
//   node       whole, fenced, before the link to it (release); a reader's load acquires.
//   in_flight  in_flight.h.
//   upper links  as: S between two levels of one tower, both ways; the last link of an insert is
//              written back late, as nothing relies on it before the next fence under the latch.
//   value      before its check, in one line: of no consequence after a crash, as checks count in a
//              cleanly closed pool only.
// RECOVERY  as: the root; O(1). mark_some() walks level 0 while the map serves. An insert or an
//   erase that was under way has left links missing above, and nothing to be done. ascs: level 0
//   is walked, one thread ahead, another behind it that marks and links the towers anew from the
//   durable heights. What a dead process left visible is made durable before an answer or a store
//   rests on it: as settles every node that it visits. Non-authoritative pointers: all links above
//   level 0 of ascs.
// RECLAMATION  nodes and blobs through epochs, after the fence of the unlink from level 0 (and from
//   those above before it). During a sweep what is unlinked is marked first.
// PROGRESS  find and scan are wait-free but for the length of the list that they walk, with one
//   exception: in `as`, until the walk behind an open after a clean close is over, a lookup of a
//   word that meets its update half done looks again, and at last waits for the latch. insert,
//   update, erase: any number of threads, one at a time; the latch is held for their fences, and
//   once for each doubling of the map while DRAM is taken for its fingers. The paper has one
//   writer. pool_full: inserts and updates of bytes fail, all else goes on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "index/engine.h"
#include "index/map_engine.h"
#include "index/skiplist/codec.h"
#include "index/skiplist/fingers.h"
#include "index/skiplist/in_flight.h"
#include "index/skiplist/kinds.h"
#include "index/skiplist/layout.h"
#include "index/skiplist/node.h"
#include "index/skiplist/writer_latch.h"
#include "perdure/index.h"
#include "perdure/options.h"

namespace perdure::skiplist {

struct Peek;

template <Platform P, class Codec, class Kind, class G = DefaultGeometry>
class Skiplist final
    : public MapEngine<P, Codec, Skiplist<P, Codec, Kind, G>, detail::OrderedIndex> {
  using Base = MapEngine<P, Codec, Skiplist<P, Codec, Kind, G>, detail::OrderedIndex>;
  friend Base;
  friend struct Peek;  // of tests, which break invariants with it

 public:
  // Writes an empty map and answers the offset of its root block; durable, not yet named.
  static Expected<std::uint64_t> create(const EngineContext<P>& context, const MapKinds& kinds);
  // The instance of a root block, whose values are said to be of this kind; recover() comes next.
  static Expected<std::unique_ptr<EngineInstance>> open(
      const EngineContext<P>& context, std::uint64_t root,
      std::optional<ValueKind> values = std::nullopt);
  Skiplist(const EngineContext<P>& context, std::uint64_t root,
           std::optional<ValueKind> values) noexcept;
  ~Skiplist() override { context_.epochs.drain_all(); }  // tables of fingers_

  // --- EngineInstance ---
  Expected<Recovered> recover(bool clean) override;
  Status complete() override;
  Expected<bool> mark_some(std::uint64_t budget) noexcept override;
  Status close() override;

  // --- Index ---
  Expected<bool> erase(const detail::Key& key) override;
  Expected<bool> read(const detail::Key& key,
                      FunctionRef<void(const detail::Value&)> visit) override;
  Expected<std::uint64_t> read_many(
      std::span<const detail::Key> keys,
      FunctionRef<void(std::size_t, const detail::Value&)> visit) override;
  Expected<void> scan(const detail::ScanRange& range,
                      FunctionRef<bool(std::span<const detail::Entry>)> visit) override;
  void stats(EngineStats& out) override;
  void check(const CheckOptions& options, Findings& report) override;

 private:
  using Base::absent;
  using Base::begin_mutation;
  using Base::begin_read;
  using Base::context_;
  using Base::validate;
  using Base::with_room;
  using typename Base::Mode;
  static constexpr std::uint32_t kMaxHeight = G::kMaxHeight;
  static constexpr std::uint32_t kGroup = 16;  // lookups in flight in read_many
  static constexpr std::uint32_t kBatch = 64;  // entries of a scan
  // A level with about a quarter of a batch between two nodes.
  static constexpr std::uint32_t kBackLevel = 4 / G::kShift;
  static constexpr std::size_t kRootBytes =
      (offsetof(layout::Root, first_link) + 8 * std::size_t{kMaxHeight} + 63) / 64 * 64;
  enum class Order : std::uint8_t { before, equal, after, damaged };

  enum class Reach : std::uint8_t {
    node,    // the node with the key, as soon as it is seen
    lowest,  // it, and the last node before the key in level 0
    whole,   // it, and those in all levels
  };
  using Places = std::uint64_t[Fingers<P>::kNear];
  using Outgrown = typename Fingers<P>::Outgrown;
  static constexpr std::uint32_t kFromFinger = 32;  // nodes from it that a walk passes at most

  // Of a key: the last node before it in each level.
  struct Path {
    Node* before[kMaxHeight];
  };
  // A lookup on its way: `at` lies before the key; `link` leads to the node that comes next in
  // `level`; `stop` is the last one that did not lie before the key.
  struct Walk {
    Node* at = nullptr;
    std::uint64_t word = 0;  // key word of `at`
    std::uint64_t link = 0;
    std::uint64_t stop = 0;
    Node* hit = nullptr;  // what `stop` leads to, if it has the key
    std::uint32_t level = 0;
    std::uint32_t left = 0;  // nodes that it may still pass; 0: any number
  };

  // --- helpers ---
  Node* head() const noexcept { return &root_->head; }
  Node* node_at(std::uint64_t offset) const noexcept {
    return context_.heap.template at<Node>(offset);
  }
  std::uint64_t offset_of(const void* p) const noexcept {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(p) -
                                      context_.heap.template at<std::byte>(0));
  }
  std::uint64_t load_link(const Node* node, std::uint32_t level) const noexcept {
    return context_.platform.load(link_at(node, level));
  }
  std::uint32_t levels() const noexcept { return levels_.load(std::memory_order_acquire); }
  // No checksum covers the state of the head, which is never erased.
  bool erased(const Node* node) const noexcept {
    return node != head() && (context_.platform.load(node->state) & kErased) != 0;
  }
  // For assertions: whether this process has looked at, or has made, every link that is followed,
  // and is the only one that changes the map.
  bool verified() const noexcept { return !Kind::kUpperDurable && !context_.read_only; }
  bool precedes(const Node* a, const Node* b) const noexcept {
    const std::uint64_t left = context_.platform.load(a->key);
    const std::uint64_t right = context_.platform.load(b->key);
    return a == head() || left < right || (Codec::kBytes && left == right);
  }
  bool between(const Node* before, const Node* node, std::uint64_t after) const noexcept {
    return precedes(before, node) && (after == 0 || precedes(node, node_at(after & kOffsetMask)));
  }
  std::uint32_t height_for(const Probe& probe) const noexcept;
  static Status damaged(std::uint64_t offset) noexcept;
  static Status known_damage() noexcept;
  bool damaged() const noexcept {
    return Kind::kUpperDurable && damaged_.load(std::memory_order_acquire);
  }
  // The answer where a key was not found.
  Expected<bool> missing() const noexcept {
    if (damaged()) [[unlikely]]
      return fail(known_damage());
    return absent();
  }

  // --- lookups ---
  Node* place(std::uint64_t link, std::uint32_t level) const noexcept;
  bool sound(const Node* node, std::uint64_t state) const noexcept;
  Status check_path(const Path& path, std::uint32_t height) const noexcept;
  Node* follow(std::uint64_t link, std::uint32_t level) const noexcept;
  bool key_of(const Node* node, std::string_view& key) const noexcept;
  Order order(const Node* node, const Probe& probe) const noexcept;
  bool ascends(const Node* from, const Node* to) const noexcept;
  Node* finger(const Probe& probe, const Places& places, bool hit, Order& where) const noexcept;
  void near(const Probe& probe, Places& places) const noexcept;
  bool advance(Walk& walk, Path* path) const noexcept;
  Order judge(Walk& walk, const Probe& probe) const noexcept;
  void limit(Walk& walk) const noexcept;
  template <Reach kReach>
  Status search(const Probe& probe, Path* path, Node*& found) const noexcept;
  bool value_of(const Node* node, detail::Value& value) const noexcept;
  bool value_checks(const Node* node) const noexcept {
    const std::uint64_t state = context_.platform.load(node->state);
    return state == shape_.with_value(state, context_.platform.load(node->value));
  }
  bool answer_of(const Node* node, detail::Value& value) noexcept;
  bool help(const std::uint64_t* word) noexcept;
  Expected<bool> deliver(const Probe& probe, const Node* node,
                         FunctionRef<void(const detail::Value&)> visit) noexcept;

  // --- fingers ---
  Node* last() const noexcept;
  Outgrown tend(const Node* node) noexcept;
  void remember(const Node* node) noexcept;

  // --- scans ---
  struct Bounds {
    bool has_from = false;
    bool has_to = false;
    bool beyond = false;  // `from` itself was delivered
    Probe from;
    Probe to;
  };
  bool entry_of(const Node* node, detail::Entry& entry) noexcept;
  Status refind(Node*& at, Bounds& bounds) const noexcept;
  Expected<std::uint32_t> collect(Node*& at, const Bounds& bounds, std::uint32_t most,
                                  detail::Entry* entries, bool& end) noexcept;
  Expected<std::uint32_t> collect_back(const Bounds& bounds, std::uint32_t most,
                                       detail::Entry* entries, bool& end) noexcept;

  // --- mutations ---
  // What a mutation has made, and not used yet, or has replaced.
  struct Fresh {
    std::uint64_t node = 0;
    std::size_t bytes = 0;
    std::uint64_t blob = 0;
    std::uint64_t retired = 0;
    Outgrown outgrown = nullptr;
  };
  enum class Made : std::uint8_t { done, absent, exists, again };
  template <Mode kMode>
  Expected<bool> write(const detail::Key& key, const detail::Value& value);
  template <Mode kMode>
  Expected<bool> write_once(const detail::Key& key, const detail::Value& value, std::uint32_t most);
  template <Mode kMode>
  Expected<Made> write_latched(const Probe& probe, const detail::Value& value, Path& path,
                               Node* found, Fresh& fresh) noexcept;
  void retire(std::uint64_t node, std::uint64_t blob) noexcept;
  void discard(const Fresh& fresh) noexcept;
  Expected<std::uint64_t> make_blob(std::string_view value) noexcept;
  Status make_node(const Probe& probe, const detail::Value& value, std::uint32_t most,
                   Fresh& fresh) noexcept;
  Status locate(const Probe& probe, std::uint32_t levels, Path& path, Node*& found) const noexcept;
  void redirect(Node* before, std::uint32_t level, std::uint64_t link) noexcept;
  void withdraw(bool durable) noexcept;
  Status link(const Probe& probe, const Path& path, const Fresh& fresh) noexcept;
  Status link_upper(const Path& path, std::uint64_t link, std::uint32_t height) noexcept;
  Status unlink(const Probe& probe, const Path& path, Node* node) noexcept;
  Status replace(const Probe& probe, Node* node, const detail::Value& value, Fresh& fresh) noexcept;
  bool names_blob(std::uint64_t value) const noexcept {
    return value == 0 || (link_intact(value) && context_.heap.is_block(value & kOffsetMask));
  }
  void write_back_owed() noexcept;
  void count(std::int64_t nodes, std::int64_t bytes) noexcept {
    entries_.fetch_add(static_cast<std::uint64_t>(nodes), std::memory_order_relaxed);
    bytes_.fetch_add(static_cast<std::uint64_t>(bytes), std::memory_order_relaxed);
  }
  // The latch is held. `sign`: 1 of a node that has come, -1 of one that goes.
  void note_node(const Probe& probe, const Node* node, std::int64_t sign) noexcept {
    const std::uint64_t term =
        shape_.closed_term(offset_of(node), context_.platform.load(node->state)) *
        static_cast<std::uint64_t>(sign);
    changed_ += term;
    if (passed(probe)) sum_ += term;
  }
  bool passed(const Probe& probe) const noexcept {
    return marked_.load(std::memory_order_relaxed) ||
           (cursor_ != head() && order(cursor_, probe) != Order::before);
  }

  // --- recovery, check ---
  Status read_root() noexcept;
  Expected<std::uint32_t> visit(Node* node, bool& wrote) noexcept;
  Status verify_nodes() const noexcept;
  void note_damage() noexcept;
  Expected<bool> walk_some(std::uint64_t budget) noexcept;
  Status rebuild() noexcept;
  Status link_towers(Node** last) noexcept;
  struct Chunk;
  Status gather(Node*& at, Chunk& chunk) const noexcept;
  Status relink(const Chunk& chunk, Node** last) noexcept;
  void set_link(Node* node, std::uint32_t level, std::uint64_t link) noexcept;
  Status enumerate(Status (Heap<P>::*mark)(std::uint64_t) noexcept) noexcept;
  bool step(const Node*& at) const noexcept;
  void check_node(const Node* node, const CheckOptions& options, Findings& report);
  void check_level(std::uint32_t level, Findings& report);
  void check_sum(std::uint64_t sum, Findings& report);

  std::uint64_t root_offset_;
  layout::Root* root_;
  const std::optional<ValueKind> values_;  // as the directory has it
  Shape<Codec::kBytes> shape_;
  const std::uint64_t seed_ = P::random();                // of the heights
  bool trusted_ = false;                                  // the value checks of the nodes hold
  bool stale_ = false;                                    // ascs: complete() has links to store
  typename P::template Atomic<std::uint32_t> levels_{1};  // that are not empty, at least
  typename P::template Atomic<bool> marked_{false};       // every node was looked at
  InFlight<P> in_flight_;
  alignas(64) WriterLatch<P> latch_;
  const std::uint64_t* owed_ = nullptr;  // under latch_: the link that is not written back yet
  Fingers<P> fingers_;
  typename P::template Atomic<bool> damaged_{false};  // skiplist.I9
  // Changed under latch_. Until marked_ entries_, bytes_ and sum_ are of what mark_some() has
  // passed; what lies up to cursor_ is marked.
  Node* cursor_ = nullptr;
  std::uint64_t sum_ = 0;      // of the nodes
  std::uint64_t changed_ = 0;  // what those that have come and gone since the open add to it
  typename P::template Atomic<std::uint64_t> entries_{0};
  typename P::template Atomic<std::uint64_t> bytes_{0};  // of nodes and blobs
};

}  // namespace perdure::skiplist

#include "index/skiplist/skiplist_check.inl.h"    // IWYU pragma: keep
#include "index/skiplist/skiplist_find.inl.h"     // IWYU pragma: keep
#include "index/skiplist/skiplist_recover.inl.h"  // IWYU pragma: keep
#include "index/skiplist/skiplist_scan.inl.h"     // IWYU pragma: keep
#include "index/skiplist/skiplist_write.inl.h"    // IWYU pragma: keep
