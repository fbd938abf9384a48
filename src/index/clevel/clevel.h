// Clevel: a persistent hash map that rehashes in the background, and whose open reads no entries.
//
// WHAT  Clevel hashing (Chen et al., ATC 2020): a list of levels, each twice the one below, two
//   candidate buckets of eight slots per level, slots that name items, background rehash from the
//   last level to the first. WHEN: point access, no wait for the rehash, an open that reads the
//   root and the extent table only. WHEN NOT: order is asked for; the least memory; no insert may
//   wait (one that finds no slot waits for the next level). Deviations, and why, in
//   docs/design/clevel.md: the item, not the slot, is what operations linearize on; the draining
//   level's slots are sealed; no persistent cursor, context or buffer; no update ever
//   writes a slot; inserts of one key exclude each other.
// LAYOUT  layout.h (root, buckets), item.h (items and blobs). A level is 2^b buckets and nothing
//   else; the root's ring of words names the levels, so that growing or shrinking the list is one
//   word store.
// INVARIANTS  (C: after any crash; D: in DRAM)
//   clevel.I1 C  The ring's words that are not 0 are one run; each level was durably empty before
//         its word was stored. In a table that only grows each is twice the one before it.
//   clevel.I2 C  A slot is 0, sealed, or names an item block in a bucket that is one of the item's
//         two of that level; sealed slots are in the last of more than two levels only. A slot
//         whose item is not live, or not whole, is no entry.
//   clevel.I3 C  At most one live, whole item per key. Two slots name one item only if one of them
//         is in the last level and the other above it; and then (D) a Moving scope is alive, or the
//         slots are not verified yet (clevel.I7).
//   clevel.I4 C  A block is not reused before every slot that named it is durably something else,
//         and is durably dead (state 0) by then.
//   clevel.I5 D  The stripe of a key is not 0 from before a store to an item's state, an item's
//         value word or a fresh slot until after the fence of it. What was seen of a key whose
//         stripe is 0 afterwards is durable; otherwise whoever saw it writes it back and fences.
//   clevel.I6 D  A context (the list of levels) is published after the ring's word is fenced, and
//         only then is anything stored into its new level. Contexts and levels live as long as a
//         guard that may have loaded them.
//   clevel.I7 D  Until mark_some() has been through the table (verified_), a found item counts only
//         if its checksum matches and its slot still names it, and nothing is rehashed.
//   clevel.I8 C  In a map that was closed cleanly every slot that is not 0 or sealed names a live,
//         whole item, and the sum of all slots is the root's. A closed item, whose checksum covers
//         its value word, is whole until it is freed, whatever happens.
//   clevel.I9 D  While the walk of a cleanly closed map sums the slots, a slot changes under the
//         latch of its bucket. Changes ahead of the walk are added up, to be taken out of its sum.
//   clevel.I10 C Where the walk has found damage the root says so, and nobody answers "absent" any
//         more.
// OPERATIONS  (LP linearization, PP persist point; F write-backs, S fences; k lines of an item)
//   find    all levels from the last to the first: tag -> state live -> key -> value (LP: the load
//           of the state; a value that came later belongs to an update that is ordered before it
//           or before the erase that came between). Nothing found: absent, if the context is still
//           the same (LP: that load, or a moment of absence during the walk), else again. 0F 0S;
//           with the key's stripe in flight: what the answer rests on, 1S. A dead item of that tag
//           in flight: 1F 1S before "absent".
//   insert  item whole, state last -> stripe's latch -> find: absent -> slot CAS 0 -> item (LP) ->
//           F*k F S (PP) -> latch. (k+1)F 1S. A value beyond kInlineValue: its blob first, F* S.
//   update  find -> count the stripe -> a closed item: opened -> value word: store (LP) -> F S (PP)
//           -> uncount. 1F 1S.
//           Bytes: blob F* S -> CAS of the value word (LP) -> F S (PP) -> old blob retired: (k+1)F
//           2S.
//   erase   find -> count -> CAS state live -> dead (LP) -> F S (PP) -> clear the slots -> uncount
//           -> retire. 1F 1S, and 2F per item in the reclamation batch (slot, state 0). A copy that
//           a move has made: F S at once.
//   expand  level zero, F* S, in the background -> ring word, F S (PP) -> context, by the insert
//           that found no slot, unless an item of its buckets in the last of two levels can go up:
//           copy F S -> old slot cleared, F S.
//   rehash  per bucket of the last level: empty slots sealed; live items copied into a level above,
//           F per copy; 1S. Dead meanwhile: the copy undone, F. Then sealed, 1F; 1S a step. All
//           sealed: ring word 0, F S (PP) -> context -> level retired.
//   compact two smaller levels, as an expansion adds them; the rehash then empties the old ones.
//   for_each  bucket by bucket; nothing moves meanwhile, so that each entry is seen once.
//   close   the walk to its end -> items closed -> sum of the slots, F; the pool fences.
// ORDERING
//   state, key, value  before the slot's CAS (release); find loads the slot first (acquire).
//   copy               before the seal: who finds a seal finds the copy further up, or a new
//                      context. A dead item's slot is not sealed: its eraser clears it first.
//   seal               durable before the step's guard goes: blocks that sealed slots named are
//                      reused later (clevel.I4).
//   dead / moves       eraser: state CAS, verified_, moves_, then context and slots. Who moves:
//                      moves_, copy CAS, then state. Locked on both sides: one of them sees the
//                      other's store (as Dekker; a locked instruction orders both on x86, acquire
//                      and release alone do not).
//   stripe             raised before the store, loaded after the value; lowered after the fence, by
//                      a plain store: nothing locked stands between a fence and the next
//                      operation's misses (docs/decisions/0006).
//   scanners, moves    each side raises its own, then looks at the other's (seq_cst).
// RECOVERY  The ring; O(levels). mark_some() then goes through the slots while the map serves:
//   those that name a dead or torn item are cleared, once the death is durable, and so is the lower
//   one of two that name an item, as a move that was cut short leaves them; fenced in the same
//   step, before the sweep can free the block. The others' items and blobs are marked. A rehash
//   goes on from bucket 0. Idempotent. Damage that it finds ends it (clevel.I10): 1F 1S, once.
//   Non-authoritative pointers: slots of dead and torn items; the second slot of a moving item;
//   bits 0..38 of a dead state; value words of dead items.
// RECLAMATION  items through epochs, their slot written back and their state zeroed by the batch
//   that frees them; blobs, levels, contexts through epochs after the fence of their unlink. Before
//   a reference is removed during a sweep its target is marked.
// PROGRESS  find, update, erase are lock-free (an allocation aside). Inserts of one stripe exclude
//   each other across the fence. One thread expands, others that found no slot either wait for it.
//   Nobody waits for the rehash; it waits for erases between death and slot. While the walk of a
//   clean open goes on whoever stores into a slot takes a latch for that, as the walk does
//   (clevel.I9). pool_full: inserts and byte updates fail, all else goes on.
//   hash_overflow: an insert whose buckets are full though the table is nearly empty, since its
//   keys were chosen to collide; other keys' inserts go on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

#include "index/clevel/hash.h"
#include "index/clevel/item.h"
#include "index/clevel/layout.h"
#include "index/clevel/stripe.h"
#include "index/closed_sum.h"
#include "index/engine.h"
#include "index/map_engine.h"
#include "perdure/index.h"
#include "perdure/options.h"

namespace perdure::clevel {

template <Platform P, class Codec, class G = DefaultGeometry>
class Clevel final : public MapEngine<P, Codec, Clevel<P, Codec, G>, detail::Index> {
  using Base = MapEngine<P, Codec, Clevel<P, Codec, G>, detail::Index>;
  friend Base;

 public:
  using Item = layout::Item;
  using Bucket = layout::Bucket;

  // Writes an empty map with room for `capacity` entries, about, and answers the offset of its
  // root block; durable, not yet named.
  static Expected<std::uint64_t> create(const EngineContext<P>& context, const MapKinds& kinds,
                                        std::uint64_t capacity);
  // The instance of a root block; recover() comes next.
  static Expected<std::unique_ptr<EngineInstance>> open(const EngineContext<P>& context,
                                                        std::uint64_t root);

  Clevel(const EngineContext<P>& context, std::uint64_t root) noexcept;
  ~Clevel() override;

  // --- EngineInstance ---
  Expected<Recovered> recover(bool clean) override;
  Expected<bool> mark_some(std::uint64_t budget) noexcept override;
  void start() noexcept override;
  Expected<bool> compact() override;
  void release_blocks() override;
  Status close() override;

  // --- Index ---
  Expected<bool> erase(const detail::Key& key) override;
  Expected<bool> read(const detail::Key& key,
                      FunctionRef<void(const detail::Value&)> visit) override;
  Expected<std::uint64_t> read_many(
      std::span<const detail::Key> keys,
      FunctionRef<void(std::size_t, const detail::Value&)> visit) override;
  Expected<void> for_each(FunctionRef<bool(std::span<const detail::Entry>)> visit) override;
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
  static constexpr std::uint32_t kGroup = 16;  // lookups in flight in read_many
  static constexpr std::uint64_t kMoveBegun = std::uint64_t{1} << 32;
  static constexpr unsigned kGiveCoreAway = 63;  // as P::pause() knows it
  static constexpr std::uint32_t kSumLatches = 16;

  struct Level {
    Bucket* buckets = nullptr;
    std::uint64_t count = 0;   // of buckets, a power of two
    std::uint64_t offset = 0;  // of the block
    std::uint32_t ring = 0;    // its word
    bool inherited = false;    // found at open: a rehash of it may have begun before
    std::uint64_t next = 0;    // bucket that the rehash comes to; its step's own
    std::uint64_t mask() const noexcept { return count - 1; }
  };
  struct Context {
    std::uint32_t count = 0;
    Level* levels[kMaxLevels] =
        {};  // the last level, which drains if there are more than two, first
    Level& first() const noexcept { return *levels[count - 1]; }
    bool growing() const noexcept { return count > 2; }
    // Twice the largest that stays.
    std::uint64_t next_size() const noexcept {
      std::uint64_t largest = 0;
      for (std::uint32_t i = growing() ? 1 : 0; i < count; ++i) {
        largest = std::max(largest, levels[i]->count);
      }
      return largest * 2;
    }
  };
  // What a walk has found.
  struct Found {
    Item* item = nullptr;  // null: absent
    std::uint64_t word = 0;
    std::uint64_t* slot = nullptr;
    std::uint64_t state = 0;
    std::uint64_t value = 0;
    const Context* context = nullptr;
    std::uint64_t moves = 0;    // moves_ before the walk
    std::uint64_t damaged = 0;  // an item that a clean close left whole, and that is not
    bool verified = false;      // verified_ before the walk
  };
  // What an item is that a slot named, by its checksum. `changed`: it was another one by then.
  enum class Look : std::uint8_t { whole, torn, damaged, changed };

  // --- helpers ---
  Probe probe_of(const detail::Key& key) const noexcept {
    if constexpr (Codec::kBytes) return {.hash = hash_bytes(key.bytes, seed_), .bytes = key.bytes};
    return {.hash = hash_word(key.word, seed_), .word = key.word};
  }
  Probe probe_of(const Item* item, std::uint64_t state) const noexcept;
  Item* item_at(std::uint64_t word) const noexcept {
    return context_.heap.template at<Item>(word & kOffsetMask);
  }
  std::uint64_t offset_of(const void* p) const noexcept {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(p) -
                                      context_.heap.template at<std::byte>(0));
  }
  Stripe<P>& stripe_of(const Probe& probe) const noexcept {
    return stripes_[probe.stripe() % G::kStripes];
  }
  // What assertions ask.
  bool state_persisted(std::uint64_t item) const noexcept {
    return context_.platform.persisted(&item_at(item)->state, sizeof(std::uint64_t));
  }
  bool seals_persisted(const Bucket& bucket) const noexcept {
    const P& platform = context_.platform;
    return std::ranges::all_of(bucket.slots, [&](const std::uint64_t& slot) {
      return platform.load(slot) != kSealed || platform.persisted(&slot, sizeof(slot));
    });
  }
  bool ring_persisted(std::uint32_t index, std::uint64_t word) const noexcept {
    const std::uint64_t& place = root_->levels[index];
    return context_.platform.load(place) == word &&
           context_.platform.persisted(&place, sizeof(place));
  }
  static Status damaged(std::uint64_t offset) noexcept;
  static Status known_damage() noexcept;
  bool plausible(std::uint64_t word) const noexcept {
    return context_.heap.contains(word & kOffsetMask, 32) && (word & 15) == 0;
  }
  bool is_item_block(std::uint64_t offset) const noexcept {
    const Heap<P>& heap = context_.heap;
    return heap.is_block(offset) && !heap.is_plain(offset) && heap.block_bytes(offset) >= 32;
  }
  bool whole(std::uint64_t word, std::uint64_t state) const noexcept {
    Item* item = item_at(word);
    return is_whole(item, state, context_.platform.load(item->value),
                    context_.heap.block_bytes(word & kOffsetMask)) ||
           !P::verifies("clevel.item.crc"_site);
  }
  // A block that a state of such lengths can be of; a damaged one must not lead beyond the file.
  bool fits(std::uint64_t word, std::uint64_t state) const noexcept {
    const std::uint64_t offset = word & kOffsetMask;
    return is_item_block(offset) && item_bytes(state) <= context_.heap.block_bytes(offset);
  }
  Look look_at(const std::uint64_t& slot, std::uint64_t word, std::uint64_t state) const noexcept;

  // --- lookups ---
  template <class F>
  static bool for_each_match(const Probe& probe, const Level& level, F&& visit) noexcept;
  bool same_key(const Item* item, std::uint64_t state, const Probe& probe) const noexcept;
  Status search(const Probe& probe, std::uint32_t own, Found& found) noexcept;
  bool walk(const Probe& probe, std::uint32_t own, Found& found, bool& wrote) noexcept;
  bool note_dead(const Item* item, const Probe& probe, std::uint32_t own) noexcept;
  Status make_durable(const Found& found, const Probe& probe, std::uint32_t own) noexcept;
  void write_back(const Found& found) noexcept;
  Status value_at(const Found& found, detail::Value& value) const noexcept;
  void prefetch(const Probe& probe) const noexcept;
  void prefetch_items(const Probe& probe) const noexcept;
  void prefetch_items(const Bucket& bucket) const noexcept;
  void prefetch_above(const Bucket& bucket, const Context& now) const noexcept;
  bool deliver_bucket(const Context& now, std::uint32_t level, Bucket& bucket,
                      FunctionRef<bool(std::span<const detail::Entry>)> visit, Status& s) noexcept;

  // --- mutations ---
  enum class Added : std::uint8_t { done, exists, full };
  template <Mode kMode>
  Expected<bool> write(const detail::Key& key, const detail::Value& value);
  template <Mode kMode>
  Expected<bool> write_once(const detail::Key& key, const detail::Value& value);
  Expected<Added> add(const Probe& probe, std::uint64_t block, std::size_t bytes,
                      std::uint64_t before, const Context*& seen) noexcept;
  Expected<std::uint64_t> make_item(const Probe& probe, const detail::Value& value,
                                    std::size_t& bytes) noexcept;
  Expected<std::uint64_t> make_blob(std::string_view value) noexcept;
  void discard_item(std::uint64_t block) noexcept;
  std::uint64_t* free_slot(const Probe& probe, const Context& now,
                           std::uint32_t lowest) const noexcept;
  Expected<bool> replace(const Found& found, const Probe& probe,
                         const detail::Value& value) noexcept;
  Expected<bool> replace_bytes(const Found& found, const Probe& probe,
                               std::string_view value) noexcept;
  void retire_blob(std::uint64_t blob) noexcept;
  void open_item(Item* item, std::uint64_t state) noexcept;
  bool clear_slots(const Found& found, const Probe& probe) noexcept;
  bool clear_copies(const Found& found, const Probe& probe) noexcept;
  // As compare_exchange, with clevel.I9. Where the walk may not be over.
  [[gnu::always_inline]] bool exchange_slot(std::uint64_t& slot, std::uint64_t& expected,
                                            std::uint64_t word) noexcept {
    if (!clean_ || verified_.load(std::memory_order_acquire)) [[likely]]
      return context_.platform.compare_exchange(slot, expected, word);
    return exchange_summed(slot, expected, word);
  }
  bool exchange_summed(std::uint64_t& slot, std::uint64_t& expected, std::uint64_t word) noexcept;

  // --- structure ---
  Status append(const Context& seen, std::span<const std::uint64_t> sizes, bool shrink) noexcept;
  Status expand(const Context* seen) noexcept;
  Expected<bool> shrink() noexcept;
  bool give_back_ahead() noexcept;
  void look_ahead(const Context& now, const std::uint64_t* slot) noexcept;
  Step prepare_some(Status& failure) noexcept;
  Expected<std::uint64_t> take_level(std::uint64_t buckets) noexcept;
  std::uint64_t entries_about() const noexcept;
  void begin_resizes(const Context& from, const Context& to, bool shrink) noexcept;
  void end_resize(const Level& drained) noexcept;
  static std::uint64_t slots_of(const Context& context) noexcept;
  static std::uint64_t lower_for(std::uint64_t entries) noexcept;
  std::uint64_t gained() const noexcept;
  bool crowded(const Level& level) const noexcept;
  Step rehash_some() noexcept;
  Step rehash_batch(bool& waits) noexcept;
  struct Move {
    std::uint64_t word = 0;  // of the slot; 0: it stays as it is
    std::uint64_t* copy = nullptr;
  };
  static Step after_failure(const Status& s) noexcept;
  Expected<bool> rehash_bucket(Bucket& bucket, bool& wrote) noexcept;
  Expected<bool> copy_bucket(Bucket& bucket, Move (&moves)[8]) noexcept;
  void undo_copies(std::span<Move> moves) noexcept;
  Expected<bool> make_room(const Probe& probe, const Context* seen) noexcept;
  Expected<std::uint64_t*> copy_above(const Probe& probe, std::uint64_t word,
                                      const Context& now) noexcept;
  Expected<std::uint64_t*> copy_up(const Probe& probe, std::uint64_t word) noexcept;
  Status drop_last() noexcept;
  bool store_ring(std::uint32_t index, std::uint64_t word) noexcept;
  struct Rehash final : BackgroundWork<P> {
    explicit Rehash(Clevel* m) : map(m) {}
    Step run_some() noexcept override { return map->rehash_some(); }
    Clevel* map;
  };
  struct Ahead final : BackgroundWork<P> {
    explicit Ahead(Clevel* m) : map(m) {}
    Step run_some() noexcept override {
      // Who holds it may wait for whoever waits for this step.
      if (!map->ahead_latch_.try_lock()) return Step::more;
      Status failure;  // the insert that needs the level says so
      const Step step = map->prepare_some(failure);
      map->ahead_latch_.unlock();
      return step;
    }
    Clevel* map;
  };
  // Who makes a copy of a slot, or takes one of two away. Items move only while may_copy().
  class [[nodiscard]] Moving {
   public:
    explicit Moving(Clevel& map) noexcept : map_(map) {
      map_.moves_.fetch_add(kMoveBegun + 1, std::memory_order_seq_cst);
    }
    ~Moving() { map_.moves_.fetch_sub(1, std::memory_order_seq_cst); }
    Moving(const Moving&) = delete;
    Moving& operator=(const Moving&) = delete;
    bool may_copy() const noexcept {
      return map_.scanners_.load(std::memory_order_seq_cst) == 0 &&
             !map_.context_.platform.poisoned();
    }

   private:
    Clevel& map_;
  };
  // While it lives no item moves; it waits for those that move one.
  class [[nodiscard]] Pause {
   public:
    explicit Pause(Clevel& map) noexcept : map_(map) {
      map_.scanners_.fetch_add(1, std::memory_order_seq_cst);
      for (unsigned n = 0; map_.moves_.load(std::memory_order_seq_cst) % kMoveBegun != 0;) {
        P::pause(n++);
      }
    }
    ~Pause() {
      map_.scanners_.fetch_sub(1, std::memory_order_seq_cst);
      map_.context_.background.wake(map_.rehash_);
    }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Clevel& map_;
  };
  static void prepare_item(void* self, std::uint64_t item) {
    static_cast<Clevel*>(self)->kill_item(item);
  }
  static void finish_item(void* self, std::uint64_t item) {
    auto& map = *static_cast<Clevel*>(self);
    PERDURE_ASSERT(P, "clevel.I4", map.state_persisted(item) || map.context_.platform.poisoned());
    map.context_.heap.finish_free(item);
  }
  static void finish_level(void*, std::uint64_t level) { delete reinterpret_cast<Level*>(level); }
  static void finish_context(void*, std::uint64_t context) {
    delete reinterpret_cast<Context*>(context);
  }
  static void touch_item(void* self, std::uint64_t item) {
    static_cast<Clevel*>(self)->context_.heap.touch_free(item);
  }
  static constexpr Reclaimer kItemReclaimer{&prepare_item, &finish_item, &touch_item};
  static constexpr Reclaimer kLevelReclaimer{nullptr, &finish_level};
  static constexpr Reclaimer kContextReclaimer{nullptr, &finish_context};
  void kill_item(std::uint64_t item) noexcept;

  // --- recovery, check ---
  Status read_root() noexcept;
  static bool has_checksum(const layout::Root& image) noexcept {
    return image.fixed_crc == crc32c(0, &image, offsetof(layout::Root, fixed_crc)) ||
           !P::verifies("clevel.root.crc"_site);
  }
  Status read_levels() noexcept;
  static std::uint64_t level_word(std::uint64_t offset, std::uint64_t buckets) noexcept;
  std::uint64_t close_level(Level& level) noexcept;
  std::uint64_t walk_rank(const std::uint64_t& slot) const noexcept;
  std::uint64_t slot_term(const std::uint64_t& slot, std::uint64_t word) const noexcept {
    return closed_term(offset_of(&slot), word);
  }
  void sum_bucket(const Bucket& bucket) noexcept;
  Status verify_sum() const noexcept;
  void note_damage() noexcept;
  Status mark_bucket(const Context& now, Bucket& bucket, bool& wrote) noexcept;
  bool named_above(const Context& now, std::uint64_t word, const Probe& probe) const noexcept;
  Status enumerate(Status (Heap<P>::*mark)(std::uint64_t) noexcept) noexcept;
  LevelStats level_stats(const Context& now, std::uint32_t number, EngineStats& out) noexcept;
  void check_slot(const Context& now, std::uint32_t level, std::uint64_t bucket, std::uint64_t word,
                  const CheckOptions& options, Findings& report);

  std::uint64_t root_offset_;
  layout::Root* root_;
  Seed seed_;
  bool bytes_values_ = false;
  bool clean_ = false;  // found as a close leaves it
  typename P::template Atomic<Context*> levels_{nullptr};
  typename P::template Atomic<bool> verified_{false};  // clevel.I7
  typename P::template Atomic<bool> damaged_{false};   // clevel.I10
  std::unique_ptr<Stripe<P>[]> stripes_;
  typename P::Latch resize_latch_;
  // Of who adds a level; taken before the others. Held across allocations, which may wait for
  // background work: steps only try to take it.
  typename P::Latch grow_latch_;
  Rehash rehash_{this};
  Ahead ahead_{this};
  typename P::template Atomic<std::uint64_t> wanted_{0};  // buckets of the next level
  typename P::Latch ahead_latch_;                         // likewise
  struct {                                                // the next level as far as it is zeroed
    std::uint64_t offset = 0;
    std::uint64_t buckets = 0;
    std::uint64_t zeroed = 0;
  } next_;
  typename P::template Atomic<std::uint32_t> scanners_{0};
  // Moving scopes: under way in the lower half, begun in the upper.
  typename P::template Atomic<std::uint64_t> moves_{0};
  typename P::template Atomic<std::uint64_t> found_{0};  // entries when verified, less the gained
  const std::uint64_t opened_ns_ = P::now_ns();
  // With resize_latch_: those that begin take the next place, the oldest one under way ends first.
  ResizeStats resizes_[MapStats::kMaxResizes];
  std::uint64_t begun_ = 0;
  std::uint64_t ended_ = 0;
  std::uint64_t inherited_ = 0;  // under way at open, and not ended
  // The rehash's own, one step at a time:
  std::uint64_t moved_ = 0;
  // mark_some's own:
  std::uint32_t mark_level_ = 0;
  std::uint64_t mark_bucket_ = 0;
  std::uint64_t marked_ = 0;     // entries
  std::uint64_t mark_rank_ = 0;  // buckets that are done
  std::uint64_t slots_summed_ = 0;
  // clevel.I9: buckets that are summed, in the order of the walk; what changes ahead of it have
  // added.
  typename P::template Atomic<std::uint64_t> summed_{0};
  typename P::template Atomic<std::uint64_t> added_ahead_{0};
  typename P::Latch sum_latches_[kSumLatches];
};

}  // namespace perdure::clevel

#include "index/clevel/clevel_check.inl.h"    // IWYU pragma: keep
#include "index/clevel/clevel_find.inl.h"     // IWYU pragma: keep
#include "index/clevel/clevel_grow.inl.h"     // IWYU pragma: keep
#include "index/clevel/clevel_recover.inl.h"  // IWYU pragma: keep
#include "index/clevel/clevel_rehash.inl.h"   // IWYU pragma: keep
#include "index/clevel/clevel_write.inl.h"    // IWYU pragma: keep
