// Structure: splits full leaves and unlinks empty ones. Responsible for the order in which a new
// leaf becomes reachable (phast.I1, phast.I3) and for phast.D4; both hold all stripes (phast.I5).
//
// WHERE  A split is in the middle, at the end (the new key is above all others, and nothing moves)
//   or at a gap (keys ascend below those of another stream). The rule is the leaf's own: a split in
//   the middle notes in the descriptor how many entries are behind the new key. If the next split
//   of that leaf finds as many, it is at the gap. Random keys seldom do that. After it the stream
//   is alone in its leaf, and its splits are at the end.
// BOUNDS  The new bound is any position from the last key that stays on, and before the first key
//   that moves: the last key itself, or just before the first one that moves (integers), or a
//   string between the new key and that one. It need not be the key of an entry, and the new leaf
//   may be empty: a recovery takes ranges from bounds, and the bound of a half-done split from the
//   new leaf's `low`. It reads no key for that. So each crash point of a split is as decidable with
//   any of the three.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "index/phast/lookup.h"

namespace perdure::phast {

template <class T>
class Structure : public Lookup<T> {
  using Base = Lookup<T>;

 protected:
  using Base::check_record, Base::context_, Base::damaged_record, Base::enter, Base::inner_,
      Base::kSlots, Base::leaf_of, Base::persist, Base::prefetch_leaf, Base::prefetch_record,
      Base::probe_of, Base::record_at, Base::root_offset_, Base::table_, Base::value_of;
  using typename Base::Desc, typename Base::Entered, typename Base::Entry, typename Base::G,
      typename Base::Inner, typename Base::Leaf, typename Base::P;

 public:
  using Base::Base, Base::kBytes, Base::kEntries;

 protected:
  struct SplitPlan {
    bool planned = false;
    std::uint32_t count = 0;             // visible entries
    std::uint32_t keep = 0;              // number of entries that stay: the smallest
    Probe bound = {};                    // of the old leaf: not below those, below all others
    std::uint8_t order[64];              // slots: first those that stay
    std::uint8_t fingerprints[64] = {};  // of the new leaf, by slot
    std::uint32_t behind[2] = {};        // Descriptor::behind of the old leaf and of the new one
    char text[64];                       // of the bound, if no key begins with it
  };

  // --- split ---

  // Makes room in a full leaf. Also returns ok if another thread has made room.
  [[gnu::noinline]] Status split(std::uint32_t number, const Probe& probe) {
    PERDURE_ASSERT(P, "batch.I4", !context_.epochs.gate().does_batch());
    return split_by(number, [&](const Desc& desc, SplitPlan& plan) {
      // Only if it is still the key's leaf: a split at the end keeps the leaf full, and a second
      // split there would make a leaf with an empty range.
      if (desc.visible() != kSlots || desc.below(probe) || desc.above(probe)) return Status();
      return plan_split(desc, probe, plan);
    });
  }
  // Splits a leaf by what `make_plan(desc, plan)` plans, with all stripes held; if nothing, it
  // stays. The block of the new leaf comes first: the pool may have to grow for it, and other
  // writers of the leaf need not wait for that.
  template <class MakePlan>
  Status split_by(std::uint32_t number, MakePlan&& make_plan) {
    Expected<std::uint64_t> block = allocate_structure(sizeof(Leaf));
    Desc& desc = table_[number];
    desc.latch_all();
    Status s;
    if (context_.platform.poisoned()) {
      s = StatusCode::poisoned;
    } else if (desc.linked()) {
      prefetch_leaf(number);
      SplitPlan plan;
      s = make_plan(desc, plan);
      if (s.ok() && plan.planned) s = split_latched(number, plan, block);
    }
    desc.unlatch_all();
    if (block && *block != 0) context_.heap.free(*block);  // nothing was stored to it
    return s;
  }

  // Plans a split. The halves matter, the order inside them does not. Errors: corruption, if a key
  // cannot be read, or if the key from which a bound is made is not what was written.
  [[gnu::noinline]] Status plan_split(const Desc& desc, const Probe& probe, SplitPlan& plan) const {
    std::uint8_t* order = plan.order;
    plan.planned = true;
    std::uint32_t below = 0;  // entries below the new key
    if constexpr (kBytes) {
      Probe keys[64];
      if (Status s = read_keys(desc, plan, keys); !s.ok()) return s;
      for (std::uint32_t i = 0; i < plan.count; ++i) below += less(keys[order[i]], probe) ? 1 : 0;
      const auto by_key = [&keys](std::uint8_t a, std::uint8_t b) {
        return less(keys[a], keys[b]);
      };
      std::uint8_t* end = order + plan.count;
      const auto select = [&] { std::nth_element(order, order + plan.keep - 1, end, by_key); };
      std::uint8_t named = 0;  // whose key makes the bound
      if (choose_keep(desc, below, plan)) {
        select();
        named = *std::min_element(order + plan.keep, end, by_key);
        plan.bound = ordered::probe_of(before(keys[named].bytes, probe.bytes, plan));
        if (plan.bound.bytes.empty()) keep_half(below, plan);
      }
      if (plan.bound.bytes.empty()) {
        select();
        named = order[plan.keep - 1];
        plan.bound = keys[named];
      }
      return check_named(desc, named, keys[named]);
    } else {
      const Leaf& leaf = leaf_of(desc);
      std::uint64_t words[64];
      for (std::uint64_t v = desc.visible(); v != 0; v &= v - 1) {
        const auto slot = static_cast<std::uint8_t>(__builtin_ctzll(v));
        words[plan.count] = context_.platform.load(leaf.entries[slot].key);
        below += words[plan.count] < probe.word ? 1 : 0;
        order[plan.count++] = slot;
      }
      const bool ascends = choose_keep(desc, below, plan);
      select_words(words, order, plan.count, plan.keep);
      plan.bound.word = ascends ? *std::min_element(words + plan.keep, words + plan.count) - 1
                                : words[plan.keep - 1];
      return {};
    }
  }
  // Reads the keys of the visible entries, and lists their slots. `keys`: by slot, 64. Errors:
  // corruption, of an entry that names no record.
  Status read_keys(const Desc& desc, SplitPlan& plan, Probe* keys) const {
    const Leaf& leaf = leaf_of(desc);
    for (std::uint64_t v = kBytes ? desc.visible() : 0; v != 0; v &= v - 1) {
      prefetch_record(context_.platform.load(leaf.entries[__builtin_ctzll(v)].value));
    }
    for (std::uint64_t v = desc.visible(); v != 0; v &= v - 1) {
      const auto slot = static_cast<std::uint8_t>(__builtin_ctzll(v));
      if constexpr (kBytes) {
        const std::uint64_t word = context_.platform.load(leaf.entries[slot].value);
        detail::Value ignored;
        if (!value_of(word, ignored)) return damaged_record(word);
      }
      keys[slot] = probe_of(leaf.entries[slot]);
      plan.order[plan.count++] = slot;
    }
    return {};
  }
  // A bound is made from the key of the entry in this slot only if it is what was written.
  Status check_named(const Desc& desc, std::uint8_t slot, const Probe& key) const {
    if constexpr (kBytes) {
      const std::uint64_t word = context_.platform.load(leaf_of(desc).entries[slot].value);
      if (!check_record(word, true).ok() || head_word(key.bytes) != key.word) {
        return damaged_record(word);
      }
    }
    return {};
  }
  static bool less(const Probe& a, const Probe& b) {
    return a.word != b.word ? a.word < b.word : kBytes && a.bytes < b.bytes;
  }
  // Returns a string behind `key` and before `next`, no longer than the longer one. The keys of a
  // stream that ascends from `key` are before it: it is what both have in common, and one byte more
  // of `next`; or if that is `next` itself, one of `key` and 0xFF. Empty if it would not be behind.
  static std::string_view before(std::string_view next, std::string_view key, SplitPlan& plan) {
    const std::size_t shorter = std::min(key.size(), next.size());
    std::size_t common = 0;
    while (common < shorter && key[common] == next[common]) ++common;
    if (common + 1 < next.size()) return next.substr(0, common + 1);
    const std::size_t size = common + 2;
    if (size > std::min(key.size(), sizeof(plan.text)) || key[size - 1] == '\xFF') return {};
    std::memcpy(plan.text, key.data(), size - 1);
    plan.text[size - 1] = '\xFF';
    return {plan.text, size};
  }

  // In a full pool among the records.
  Expected<std::uint64_t> allocate_structure(std::size_t bytes) {
    auto block = context_.heap.allocate(bytes, kStructureKind);
    const bool full = !block && block.error() == StatusCode::pool_full;
    return full ? context_.heap.allocate(bytes, BlockKind::plain) : std::move(block);
  }
  // An error leaves everything as it was. `block`: of the new leaf; 0 once it is stored to.
  [[gnu::noinline]] Status split_latched(std::uint32_t number, SplitPlan& plan,
                                         Expected<std::uint64_t>& block) {
    P& platform = context_.platform;
    Heap<P>& heap = context_.heap;
    Desc& desc = table_[number];
    PERDURE_ASSERT(P, "phast.I5", desc.all_held() && desc.linked());
    const Probe middle = plan.bound;
    // By words: recovery has not read the rest of a byte string. Lost pages read as 0.
    PERDURE_ASSERT(P, "phast.I1",
                   middle.word >= desc.low.load(std::memory_order_relaxed) || platform.poisoned());
    PERDURE_ASSERT(
        P, "phast.D4",
        middle.word <= desc.bound.load(std::memory_order_relaxed) || platform.poisoned());
    if (!block) return std::move(block.error());
    const std::uint32_t fresh = table_.take(Base::place_of(*block));
    Separator<P>* separator = nullptr;
    std::uint64_t low = middle.word;
    Status s = fresh == kNoLeaf ? Status(StatusCode::out_of_memory) : Status();
    if (kBytes && s.ok()) {
      // The separator record is written back here and fenced with the new leaf.
      auto record = allocate_structure(RecordView::bytes_needed(middle.bytes, {}));
      if (record) {
        low = *record;
        void* memory = heap.template at<void>(low);
        RecordView::write(platform, memory, middle.bytes, {});
        platform.flush(memory, RecordView::bytes_needed(middle.bytes, {}),
                       "phast.split.separator"_site);
        separator = Separator<P>::make(middle.bytes, low);
        if (separator == nullptr) {
          heap.discard(low);
          s = StatusCode::out_of_memory;
        }
      } else {
        s = std::move(record.error());
      }
    }
    if (!s.ok()) {
      if (fresh != kNoLeaf) table_.give(fresh);
      return s;
    }
    const std::uint64_t offset = std::exchange(*block, 0);
    Leaf& leaf = leaf_of(desc);
    if (!build_leaf(desc, plan, *heap.template at<Leaf>(offset), low)) {
      inner_.release(separator);  // the pool is poisoned: the next open sweeps its blocks
      table_.give(fresh);
      return StatusCode::poisoned;
    }
    PERDURE_ASSERT(P, "phast.I3", platform.persisted(heap.template at<Leaf>(offset), sizeof(Leaf)));
    PERDURE_ASSERT(
        P, "phast.I3",
        !kBytes || platform.persisted(record_at(low), RecordView::bytes_needed(middle.bytes, {})));
    platform.store(leaf.next, offset);  // same line, in this order: neither, next only, or both
    platform.store(leaf.bound, low);
    platform.flush(&leaf, kLine, "phast.split.link"_site);
    // After a failure nothing of the split is shown.
    if (!platform.fence("phast.split.link"_site)) return StatusCode::poisoned;
    publish_split(number, fresh, plan, separator);
    return {};
  }

  // --- unlink ---

  // Frees a leaf that an erase left empty. The leaf stays if it is the first or the last of its
  // partition, if it was filled again, or if a pending batch will put something into it.
  [[gnu::noinline]] void try_unlink(std::uint32_t number) {
    if (takes_puts(number)) return;
    const Desc& desc = table_[number];
    const std::uint64_t version = desc.version.load(std::memory_order_acquire);
    if ((version & 1) != 0 || desc.next.load(std::memory_order_acquire) == kNoLeaf) return;
    const std::uint64_t low = desc.low.load(std::memory_order_acquire);
    Probe left_probe{.word = low};  // the left neighbour's bound, which lies in its range
    if constexpr (kBytes) {
      const Separator<P>* s = desc.separators.low.load(std::memory_order_acquire);
      if (s == nullptr) return;  // first of its partition
      left_probe.bytes = s->view();
    } else {
      if (low == inner_.partitioning().low(inner_.partitioning().of(low))) return;
      left_probe.word = low - 1;
    }
    const Entered left = enter(left_probe, inner_.locate_range(left_probe));
    if (left.number == number) return;
    Desc& left_desc = table_[left.number];
    left_desc.latch_all();  // from left to right, as every holder of two leaves
    if ((left_desc.version.load(std::memory_order_acquire) & 1) == 0 &&
        left_desc.next.load(std::memory_order_acquire) == number) {
      table_[number].latch_all();
      if (unlink_latched(left.number, number)) return left_desc.unlatch_all();
      table_[number].unlatch_all();
    }
    left_desc.unlatch_all();
  }

  // Its neighbour may have no room for those puts: batch.K2.
  bool takes_puts(std::uint32_t number) const {
    const PendingBatch* batch = context_.epochs.gate().pending();
    if (batch == nullptr || !batch->names(root_offset_)) return false;
    const Desc& desc = table_[number];
    detail::Key low;  // of the map's kind: the word of byte strings is 0
    if constexpr (kBytes) {
      const Separator<P>* before = desc.separators.low.load(std::memory_order_acquire);
      if (before != nullptr) low.bytes = before->view();
    } else {
      low.word = desc.low.load(std::memory_order_acquire);
    }
    for (std::size_t i = batch->first_put(root_offset_, low);; ++i) {
      const detail::Mutation* put = batch->put(root_offset_, i);
      if (put == nullptr || desc.above(T::Codec::probe(put->key))) return false;
      if (batch->needs_room(root_offset_, i) && !desc.below(T::Codec::probe(put->key))) return true;
    }
  }
  // The right neighbour takes the range over, so no bound ever rises.
  [[gnu::noinline]] bool unlink_latched(std::uint32_t left_number, std::uint32_t number) {
    P& platform = context_.platform;
    Desc& desc = table_[number];
    const std::uint32_t right_number = desc.next.load(std::memory_order_relaxed);
    if ((desc.version.load(std::memory_order_relaxed) & 1) != 0 || right_number == kNoLeaf ||
        desc.visible() != 0) {
      return false;
    }
    Desc& left = table_[left_number];
    Desc& right = table_[right_number];
    PERDURE_ASSERT(P, "phast.I5", left.all_held() && desc.all_held());
    PERDURE_ASSERT(
        P, "phast.D4",
        left.linked() && right.linked() &&
            desc.low.load(std::memory_order_relaxed) <= right.low.load(std::memory_order_relaxed));
    Leaf& left_leaf = leaf_of(left);
    platform.store(left_leaf.next, platform.load(leaf_of(desc).next));
    if (!persist(&left_leaf, kLine, "phast.unlink.next"_site)) return false;
    // DRAM: first the leaf gives its range up. If the right neighbour owned the range while lookups
    // still accepted this leaf for it, a find here would miss what an insert there acknowledged.
    desc.version.fetch_add(1, std::memory_order_release);  // dead
    if constexpr (kBytes) {
      Separator<P>* low = desc.separators.low.load(std::memory_order_relaxed);
      Separator<P>* before = right.separators.low.load(std::memory_order_relaxed);
      right.low.store(desc.low.load(std::memory_order_relaxed), std::memory_order_release);
      right.separators.low.store(low, std::memory_order_release);
      inner_.release(before);
    } else {
      right.low.store(desc.low.load(std::memory_order_relaxed), std::memory_order_release);
    }
    left.next.store(right_number, std::memory_order_release);
    inner_.remove(inner_.partitioning().of(desc.bound.load(std::memory_order_relaxed)), number,
                  right_number);
    if constexpr (kBytes) {
      Separator<P>* bound = desc.separators.bound.load(std::memory_order_relaxed);
      context_.heap.retire(bound->record, "phast.unlink.separator"_site);
      inner_.release(bound);
    }
    this->counts_.unlinks.fetch_add(1, std::memory_order_relaxed);
    desc.unlatch_all();  // waiting writers see that it is dead
    if (P::runs("phast.unlink.retire"_site)) context_.epochs.retire(kLeafReclaimer, this, number);
    return true;
  }

  [[gnu::noinline]] void free_leaf(std::uint32_t number) {
    const Desc& desc = table_[number];
    PERDURE_ASSERT(P, "phast.D4", !desc.linked());
    const std::uint64_t offset = Base::leaf_offset(desc);
    table_.give(number);  // first: the block may become a leaf again at once
    context_.heap.free(offset);
  }

 private:
  static void prepare_leaf(void* self, std::uint64_t number) {
    auto* map = static_cast<Structure*>(self);
    const Desc& desc = map->table_[static_cast<std::uint32_t>(number)];
    map->context_.heap.prepare_free(Base::leaf_offset(desc));
  }
  static void finish_leaf(void* self, std::uint64_t number) {
    static_cast<Structure*>(self)->free_leaf(static_cast<std::uint32_t>(number));
  }
  static constexpr Reclaimer kLeafReclaimer{&prepare_leaf, &finish_leaf};

  // Chooses how many entries stay. `below`: how many are below the new key. If none is behind it,
  // all stay: ascending keys then fill leaves. Returns true if as many are behind it as at the last
  // split: keys ascend there, and those behind it are of another stream. Then the entries below it
  // stay, and with them the range up to the next key. Else half of the entries stay.
  [[nodiscard]] static bool choose_keep(const Desc& desc, std::uint32_t below, SplitPlan& plan) {
    const std::uint32_t behind = plan.count - below;
    plan.keep = below;
    if (behind == 0) return false;
    if (behind == desc.behind) return true;
    keep_half(below, plan);
    return false;
  }
  // The leaf of the new key remembers how many entries are behind it.
  static void keep_half(std::uint32_t below, SplitPlan& plan) {
    plan.keep = (plan.count + 1) / 2;
    const bool right = below >= plan.keep;
    plan.behind[right ? 1 : 0] = (right ? plan.count : plan.keep) - below;
  }
  // Moves the `keep` smallest of n distinct words to the front, the largest of them last, and their
  // slots with them. Quickselect. The side to which a word goes is not a branch: it would be
  // mispredicted every second time, some 50 times per split.
  static void select_words(std::uint64_t* words, std::uint8_t* slots, std::uint32_t n,
                           std::uint32_t keep) {
    const auto exchange = [&](std::uint32_t a, std::uint32_t b) {
      std::swap(words[a], words[b]);
      std::swap(slots[a], slots[b]);
    };
    const std::uint32_t target = keep - 1;
    for (std::uint32_t begin = 0, end = n; end - begin > 1;) {
      const std::uint32_t last = end - 1;
      exchange(begin + (end - begin) / 2, last);
      const std::uint64_t pivot = words[last];
      std::uint32_t smaller = begin;  // words[begin, smaller) < pivot <= words[smaller, i)
      for (std::uint32_t i = begin; i < last; ++i) {
        const bool is = words[i] < pivot;
        exchange(smaller, i);
        smaller += static_cast<std::uint32_t>(is);
      }
      exchange(smaller, last);
      if (target == smaller) return;
      if (target < smaller) {
        end = smaller;
      } else {
        begin = smaller + 1;
      }
    }
  }

  // Writes the whole new leaf: the moved entries, in their home lines first; empty slots; next and
  // bound of the old leaf.
  [[gnu::noinline]] bool build_leaf(const Desc& old, SplitPlan& plan, Leaf& fresh,
                                    std::uint64_t low) {
    P& platform = context_.platform;
    const Leaf& leaf = leaf_of(old);
    alignas(64) Leaf image{};
    image.next = platform.load(leaf.next);
    image.bound = platform.load(leaf.bound);
    image.low = low;
    std::uint64_t free = kSlots;
    for (std::uint32_t i = plan.keep; i < plan.count; ++i) {
      const Entry& entry = leaf.entries[plan.order[i]];
      const std::uint8_t fingerprint = probe_of(entry).fingerprint;
      const std::uint32_t slot = first_of<G>(free, fingerprint);
      free &= ~(1ULL << slot);
      image.entries[slot] = {platform.load(entry.key), platform.load(entry.value)};
      plan.fingerprints[slot] = fingerprint;
    }
    platform.copy(&fresh, &image, sizeof(Leaf));
    return persist(&fresh, sizeof(Leaf), "phast.split.leaf"_site);
  }

  // DRAM: new descriptor -> next -> bound -> version -> fingerprints. Only then may the moved
  // entries be zeroed, and only when they are durably zero may the new leaf change (phast.I6).
  [[gnu::noinline]] void publish_split(std::uint32_t number, std::uint32_t fresh,
                                       const SplitPlan& plan, Separator<P>* middle) {
    Desc& desc = table_[number];
    Desc& right = table_[fresh];
    Leaf& leaf = leaf_of(desc);
    const std::uint64_t bound = desc.bound.load(std::memory_order_relaxed);
    right.search.stripes.store(kAllHeld);
    for (std::uint32_t i = 0; i < kEntries; ++i) right.set_fingerprint(i, plan.fingerprints[i]);
    const std::uint64_t middle_word = plan.bound.word;
    right.low.store(kBytes ? middle_word : middle_word + 1, std::memory_order_relaxed);
    right.bound.store(bound, std::memory_order_relaxed);
    if constexpr (kBytes) {
      Inner::share(middle);  // one reference as the left's bound, one as the right's low
      right.separators.low.store(middle, std::memory_order_relaxed);
      right.separators.bound.store(desc.separators.bound.load(std::memory_order_relaxed),
                                   std::memory_order_relaxed);
    }
    right.next.store(desc.next.load(std::memory_order_relaxed), std::memory_order_relaxed);
    desc.behind = plan.behind[0];
    right.behind = plan.behind[1];
    PERDURE_ASSERT(P, "phast.D4", !right.linked() || right.version.load() == 0);
    right.version.store((right.version.load(std::memory_order_relaxed) | 1) + 1,
                        std::memory_order_release);

    desc.next.store(fresh, std::memory_order_release);
    if constexpr (kBytes) desc.separators.bound.store(middle, std::memory_order_release);
    desc.bound.store(middle_word, std::memory_order_release);
    desc.version.fetch_add(2, std::memory_order_release);
    for (std::uint32_t i = plan.keep; i < plan.count; ++i) {
      desc.set_fingerprint(plan.order[i], 0);
    }
    // phast.D3: a scan order of the old set is void, whatever is erased or inserted later.
    desc.version.fetch_add(kManyRemoved, std::memory_order_release);
    if constexpr (kBytes) zero_moved(leaf, plan);
    this->counts_.splits.fetch_add(1, std::memory_order_relaxed);
    // If memory for inner nodes is short, lookups still reach the leaf by walking right.
    (void)inner_.insert_after(inner_.partitioning().of(middle_word), number, fresh);
    right.unlatch_all();
  }

  // Stale entries would name records that may be freed (hazard 1h, iv).
  void zero_moved(Leaf& leaf, const SplitPlan& plan) {
    std::uint64_t moved = 0;
    for (std::uint32_t i = plan.keep; i < plan.count; ++i) {
      moved |= 1ULL << plan.order[i];
      context_.platform.store(leaf.entries[plan.order[i]].value, 0);
    }
    for (std::uint32_t slot = 0; slot < kEntries; slot += kLineEntries) {
      if ((moved >> slot & ((1U << kLineEntries) - 1)) == 0) continue;
      context_.platform.flush(&leaf.entries[slot], kLine, "phast.split.zero"_site);
    }
    if (moved == 0) return;
    (void)context_.platform.fence("phast.split.zero"_site);  // if it fails, the pool is poisoned
    PERDURE_ASSERT(P, "phast.I6", context_.platform.persisted(&leaf, sizeof(leaf)));
  }
};

}  // namespace perdure::phast
