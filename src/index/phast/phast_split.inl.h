// Phast: splitting full leaves and unlinking empty ones. Included by phast.h only.
#pragma once

#include <algorithm>

#include "index/phast/phast.h"

namespace perdure::phast {

// The key of a record that a commit word names; empty if it would end outside the file.
template <Platform P, class Codec, class G>
std::string_view Phast<P, Codec, G>::key_of(std::uint64_t word) const noexcept {
  const std::string_view key = RecordView::read(context_.platform, record_at(word)).key();
  const bool inside = context_.heap.contains(word & kOffsetMask, sizeof(RecordPrefix) + key.size());
  return inside ? key : std::string_view();
}

template <Platform P, class Codec, class G>
Probe Phast<P, Codec, G>::probe_of(const Entry& entry) const noexcept {
  if constexpr (Codec::kBytes) {
    const std::uint64_t word = context_.platform.load(entry.value);
    return {.word = context_.platform.load(entry.key),
            .bytes = key_of(word),
            .fingerprint = static_cast<std::uint8_t>(word >> 56)};
  } else {
    return Codec::probe({.word = context_.platform.load(entry.key)});
  }
}

// The given slots by key. Keys are copied first: a writer may empty a slot meanwhile (only scans
// call this without the latches), and then it is left out.
template <Platform P, class Codec, class G>
std::uint32_t Phast<P, Codec, G>::sort_slots(const Leaf& leaf, std::uint64_t slots,
                                             std::uint8_t* order) const noexcept {
  struct Item {
    Probe key;
    std::uint8_t slot;
  };
  struct WordItem {
    std::uint64_t key;
    std::uint8_t slot;
  };
  std::conditional_t<Codec::kBytes, Item, WordItem> items[64];
  std::uint32_t count = 0;
  for (; slots != 0; slots &= slots - 1) {
    const auto slot = static_cast<std::uint8_t>(__builtin_ctzll(slots));
    const Entry& entry = leaf.entries[slot];
    if constexpr (Codec::kBytes) {
      const std::uint64_t word = context_.platform.load(entry.value);
      if (word != 0) {
        items[count++] = {{.word = context_.platform.load(entry.key), .bytes = key_of(word)}, slot};
      }
    } else {
      const std::uint64_t word = context_.platform.load(entry.key);
      if (word != 0) items[count++] = {word, slot};
    }
  }
  std::sort(items, items + count, [](const auto& a, const auto& b) {
    if constexpr (Codec::kBytes) {
      return a.key.word != b.key.word ? a.key.word < b.key.word : a.key.bytes < b.key.bytes;
    } else {
      return a.key < b.key;
    }
  });
  for (std::uint32_t i = 0; i < count; ++i) order[i] = items[i].slot;
  return count;
}

// Moves the `keep` smallest of n distinct words to the front, the largest of them last, and their
// slots with them. Quickselect; which side a word goes to is no branch: it would be mispredicted
// every second time, some 50 times per split.
inline void select_words(std::uint64_t* words, std::uint8_t* slots, std::uint32_t n,
                         std::uint32_t keep) noexcept {
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

// Splits in the middle, or at the end if the key to come lies behind all others: ascending loads
// fill leaves. Only the halves matter, not the order inside them. corruption: a key cannot be read,
// or the one that would become a bound is not what was written.
template <Platform P, class Codec, class G>
Status Phast<P, Codec, G>::plan_split(const Desc& desc, const Probe& probe,
                                      SplitPlan& plan) const noexcept {
  const Leaf& leaf = leaf_of(desc);
  std::uint8_t* order = plan.order;
  plan.count = 0;
  const auto keep = [&](bool behind) { return behind ? plan.count : (plan.count + 1) / 2; };
  // The largest of the kept ones comes last among them: its key is the new bound.
  if constexpr (Codec::kBytes) {
    Probe keys[64];
    for (std::uint64_t v = desc.visible(); v != 0; v &= v - 1) {
      const auto slot = static_cast<std::uint8_t>(__builtin_ctzll(v));
      const std::uint64_t word = context_.platform.load(leaf.entries[slot].value);
      detail::Value ignored;
      if (!value_of(word, ignored)) return damaged_record(word);
      keys[slot] = probe_of(leaf.entries[slot]);
      order[plan.count++] = slot;
    }
    const auto less = [&keys](std::uint8_t a, std::uint8_t b) {
      return keys[a].word != keys[b].word ? keys[a].word < keys[b].word
                                          : keys[a].bytes < keys[b].bytes;
    };
    std::uint8_t* end = order + plan.count;
    const Probe& last = keys[*std::max_element(order, end, less)];
    plan.keep =
        keep(probe.word == last.word ? compare(probe, last.bytes) > 0 : probe.word > last.word);
    std::nth_element(order, order + plan.keep - 1, end, less);
    const std::uint8_t middle = order[plan.keep - 1];
    const std::uint64_t word = context_.platform.load(leaf.entries[middle].value);
    if (!check_record(word, true).ok() || head_word(keys[middle].bytes) != keys[middle].word) {
      return damaged_record(word);
    }
  } else {
    std::uint64_t words[64];
    std::uint64_t largest = 0;
    for (std::uint64_t v = desc.visible(); v != 0; v &= v - 1) {
      const auto slot = static_cast<std::uint8_t>(__builtin_ctzll(v));
      words[plan.count] = context_.platform.load(leaf.entries[slot].key);
      largest = std::max(largest, words[plan.count]);
      order[plan.count++] = slot;
    }
    plan.keep = keep(probe.word > largest);
    select_words(words, order, plan.count, plan.keep);
  }
  return {};
}

// Makes room in a full leaf. Returns ok also if another thread did.
template <Platform P, class Codec, class G>
Status Phast<P, Codec, G>::split(std::uint32_t number, const Probe& probe) noexcept {
  Desc& desc = table_[number];
  desc.latch_all();
  Status s;
  const bool full = desc.visible() == kSlots;
  const bool dead = (desc.version.load(std::memory_order_acquire) & 1) != 0;
  if (context_.platform.poisoned()) {
    s = StatusCode::poisoned;
  } else if (full && !dead && !desc.below(probe) && !desc.above(probe)) {
    // Still the key's leaf: a split at the end keeps the leaf full, and a second one there would
    // make a leaf with an empty range.
    prefetch_leaf(desc);
    SplitPlan plan;
    s = plan_split(desc, probe, plan);
    if (s.ok()) s = split_latched(number, plan);
  }
  desc.unlatch_all();
  return s;
}

// Writes the new leaf whole: moved entries, in their home lines first, the rest empty; same next
// and bound as the old one.
template <Platform P, class Codec, class G>
bool Phast<P, Codec, G>::build_leaf(const Desc& old, SplitPlan& plan, Leaf& fresh,
                                    std::uint64_t low) noexcept {
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
  platform.flush(&fresh, sizeof(Leaf), "phast.split.leaf"_site);
  return platform.fence("phast.split.leaf"_site);
}

// Errors leave everything as it was.
template <Platform P, class Codec, class G>
Status Phast<P, Codec, G>::split_latched(std::uint32_t number, SplitPlan& plan) noexcept {
  P& platform = context_.platform;
  Heap<P>& heap = context_.heap;
  Desc& desc = table_[number];
  PERDURE_ASSERT(P, "phast.I5", desc.all_held() && desc.linked());
  const Probe middle = probe_of(leaf_of(desc).entries[plan.order[plan.keep - 1]]);
  // Of words: of a byte string recovery has not seen the rest. Lost pages read as 0.
  PERDURE_ASSERT(P, "phast.I1",
                 middle.word >= desc.low.load(std::memory_order_relaxed) || platform.poisoned());
  PERDURE_ASSERT(P, "phast.D4",
                 middle.word <= desc.bound.load(std::memory_order_relaxed) || platform.poisoned());
  auto block = heap.allocate(sizeof(Leaf), BlockKind::plain);
  if (!block) return std::move(block.error());
  const std::uint32_t fresh = table_.take();
  Separator<P>* separator = nullptr;
  std::uint64_t low = middle.word;
  Status s = fresh == kNoLeaf ? Status(StatusCode::out_of_memory) : Status();
  if (Codec::kBytes && s.ok()) {
    // The separator record is written back here and fenced with the new leaf.
    auto record = heap.allocate(RecordView::bytes_needed(middle.bytes, {}), BlockKind::plain);
    if (record) {
      low = *record;
      void* memory = heap.template at<void>(low);
      RecordView::write(platform, memory, middle.bytes, {});
      platform.flush(memory, RecordView::bytes_needed(middle.bytes, {}),
                     "phast.split.separator"_site);
      separator = Separator<P>::make(middle.bytes, low);
      if (separator == nullptr) {
        heap.free(low);
        s = StatusCode::out_of_memory;
      }
    } else {
      s = std::move(record.error());
    }
  }
  if (!s.ok()) {
    if (fresh != kNoLeaf) table_.give(fresh);
    heap.free(*block);
    return s;
  }
  Leaf& leaf = leaf_of(desc);
  if (!build_leaf(desc, plan, *heap.template at<Leaf>(*block), low)) {
    inner_.release(separator);  // the pool is poisoned: its blocks are swept at the next open
    table_.give(fresh);
    return StatusCode::poisoned;
  }
  PERDURE_ASSERT(P, "phast.I3", platform.persisted(heap.template at<Leaf>(*block), sizeof(Leaf)));
  PERDURE_ASSERT(P, "phast.I3",
                 !Codec::kBytes || platform.persisted(record_at(low),
                                                      RecordView::bytes_needed(middle.bytes, {})));
  platform.store(leaf.next, *block);  // same line, in this order: nothing, next only, or both
  platform.store(leaf.bound, low);
  platform.flush(&leaf, kLine, "phast.split.link"_site);
  if (!platform.fence("phast.split.link"_site))
    return StatusCode::poisoned;  // nothing of it is shown
  publish_split(number, fresh, plan, separator, *block);
  return {};
}

// DRAM: new descriptor -> next -> bound -> version -> fingerprints; only then may moved entries be
// zeroed.
template <Platform P, class Codec, class G>
void Phast<P, Codec, G>::publish_split(std::uint32_t number, std::uint32_t fresh,
                                       const SplitPlan& plan, Separator<P>* middle,
                                       std::uint64_t fresh_offset) noexcept {
  Desc& desc = table_[number];
  Desc& right = table_[fresh];
  Leaf& leaf = leaf_of(desc);
  const std::uint64_t bound = desc.bound.load(std::memory_order_relaxed);
  table_.set_leaf(fresh, static_cast<std::uint32_t>(fresh_offset / sizeof(Leaf)));
  right.search.stripes.store(kAllHeld);
  for (std::uint32_t i = 0; i < kEntries; ++i) {
    right.set_fingerprint(i, plan.fingerprints[i]);
  }
  const Entry& last = leaf.entries[plan.order[plan.keep - 1]];
  const std::uint64_t middle_word = context_.platform.load(last.key);
  right.order.store(0, std::memory_order_relaxed);
  right.low.store(Codec::kBytes ? middle_word : middle_word + 1, std::memory_order_relaxed);
  right.bound.store(bound, std::memory_order_relaxed);
  if constexpr (Codec::kBytes) {
    Inner::share(middle);  // once as the left's bound, once as the right's low
    right.separators.low.store(middle, std::memory_order_relaxed);
    right.separators.bound.store(desc.separators.bound.load(std::memory_order_relaxed),
                                 std::memory_order_relaxed);
  }
  right.next.store(desc.next.load(std::memory_order_relaxed), std::memory_order_relaxed);
  PERDURE_ASSERT(P, "phast.D4", !right.linked() || right.version.load() == 0);
  right.version.store((right.version.load(std::memory_order_relaxed) | 1) + 1,
                      std::memory_order_release);

  desc.next.store(fresh, std::memory_order_release);
  if constexpr (Codec::kBytes) {
    desc.separators.bound.store(middle, std::memory_order_release);
  }
  desc.bound.store(middle_word, std::memory_order_release);
  desc.version.fetch_add(2, std::memory_order_release);
  std::uint64_t moved = 0;
  for (std::uint32_t i = plan.keep; i < plan.count; ++i) {
    moved |= 1ULL << plan.order[i];
    desc.set_fingerprint(plan.order[i], 0);
  }
  // phast.D3: a scan order of the old set is void.
  desc.version.fetch_add(2, std::memory_order_release);
  if constexpr (Codec::kBytes) {
    // Stale entries would name records that may be freed (1h iv). The fence is that
    // of the insert that follows in this guard; write() sees to it that there is one.
    for (std::uint32_t i = plan.keep; i < plan.count; ++i) {
      context_.platform.store(leaf.entries[plan.order[i]].value, 0);
    }
    constexpr std::uint32_t kPerLine = kLine / sizeof(Entry);
    for (std::uint32_t slot = 0; slot < kEntries; slot += kPerLine) {
      if ((moved >> slot & ((1U << kPerLine) - 1)) == 0) continue;
      context_.platform.flush(&leaf.entries[slot], kLine, "phast.split.zero"_site);
    }
  }
  splits_.fetch_add(1, std::memory_order_relaxed);
  const std::uint32_t partition = inner_.partitioning().of(middle_word);
  // Without memory for inner nodes lookups still reach the leaf, by walking right.
  (void)inner_.insert_after(partition, number, fresh);
  right.unlatch_all();
}

// --- unlink ---

// Frees a leaf that an erase left empty, unless it is the first or last of its partition or filled
// again.
template <Platform P, class Codec, class G>
void Phast<P, Codec, G>::try_unlink(std::uint32_t number) noexcept {
  const Desc& desc = table_[number];
  const std::uint64_t version = desc.version.load(std::memory_order_acquire);
  if ((version & 1) != 0 || desc.next.load(std::memory_order_acquire) == kNoLeaf) return;
  const std::uint64_t low = desc.low.load(std::memory_order_acquire);
  Probe left_probe{.word = low};  // a position in the left neighbour's range: its bound
  if constexpr (Codec::kBytes) {
    const Separator<P>* s = desc.separators.low.load(std::memory_order_acquire);
    if (s == nullptr) return;  // first of its partition
    left_probe.bytes = s->view();
  } else {
    if (low == inner_.partitioning().low(inner_.partitioning().of(low))) return;
    left_probe.word = low - 1;
  }
  const Entered left = enter(left_probe, inner_.locate(left_probe));
  if (left.number == number) return;
  Desc& left_desc = table_[left.number];
  left_desc.latch_all();  // left to right, like every holder of two leaves
  if ((left_desc.version.load(std::memory_order_acquire) & 1) == 0 &&
      left_desc.next.load(std::memory_order_acquire) == number) {
    table_[number].latch_all();
    if (unlink_latched(left.number, number)) return left_desc.unlatch_all();
    table_[number].unlatch_all();
  }
  left_desc.unlatch_all();
}

// The range goes to the right neighbour, so no bound ever rises.
template <Platform P, class Codec, class G>
bool Phast<P, Codec, G>::unlink_latched(std::uint32_t left_number, std::uint32_t number) noexcept {
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
  platform.flush(&left_leaf, kLine, "phast.unlink.next"_site);
  if (!platform.fence("phast.unlink.next"_site)) return false;
  // DRAM: disowned first. Were the right neighbour to own the range while this leaf still answers
  // for it, a find here would miss what an insert there has acknowledged.
  desc.version.fetch_add(1, std::memory_order_release);  // dead
  if constexpr (Codec::kBytes) {
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
  if constexpr (Codec::kBytes) {
    Separator<P>* bound = desc.separators.bound.load(std::memory_order_relaxed);
    if (P::runs("phast.unlink.separator"_site)) context_.heap.retire(bound->record);
    inner_.release(bound);
  }
  unlinks_.fetch_add(1, std::memory_order_relaxed);
  desc.unlatch_all();  // waiting writers see that it is dead
  if (P::runs("phast.unlink.retire"_site)) context_.epochs.retire(kLeafReclaimer, this, number);
  return true;
}

template <Platform P, class Codec, class G>
void Phast<P, Codec, G>::free_leaf(std::uint32_t number) noexcept {
  Desc& desc = table_[number];
  PERDURE_ASSERT(P, "phast.D4", !desc.linked());
  const auto order =
      static_cast<std::uint32_t>(desc.order.exchange(0, std::memory_order_acq_rel) & kOrderNumber);
  if (order != 0) table_.give_order(order);
  context_.heap.free(leaf_offset(desc));
  table_.give(number);
}

}  // namespace perdure::phast
